"""The memory that an inference engine leaves for the KV cache, by its own rule.

Symbols: M bytes of a GPU, s the engine's share, W bytes of weights on it, b other bytes of the engine there.

    of all     s·M − W − b: the share covers everything               (vLLM)
    static     s·M − W: the share covers weights and cache            (SGLang)
    of free    s·(M − W − b): of what is free once weights are loaded (TensorRT-LLM)
"""

from __future__ import annotations

from napkin.errors import NapkinError, did_you_mean
from napkin.footprint import served_weights
from napkin.footprint.allocator import Figure
from napkin.footprint.served_weights import StoredWeights
from napkin.operations.fold_cache import remembered
from napkin.operations.model import Model
from napkin.planning.generation import CHUNK, ServingSetup
from napkin.record import record
from napkin.term import ASSUMED, GIVEN, SEEN, TRUE, Term, add, constant, divide, leaf, multiply, subtract
from napkin.timing.generation import EngineRanks

OF_ALL, STATIC_PART, OF_FREE = "of all", "static", "of free"
BESIDES = Figure(
    2 * 2**30,
    1 * 2**30,
    4 * 2**30,
    "assumed: CUDA context, graphs, and the activations and logits of the largest pass",
)


@record
class EngineMemory:
    """An engine's memory rule. shares: (share, largest number of tensor-parallel ranks), the last for more ranks;
    chunk: prompt tokens in one pass; divides: the degrees by which it divides a model by default; vendors: the only
    vendors whose accelerators it supports, if few."""

    name: str
    rule: str
    shares: tuple[tuple[int, float], ...]
    source: str
    chunk: int = CHUNK
    divides: tuple[str, ...] = ("tp", "pp", "ep")
    vendors: tuple[str, ...] = ()

    def share(self, ranks: int) -> float:
        """Return the share on this many tensor-parallel ranks."""
        return next((share for most, share in self.shares if ranks <= most), self.shares[-1][1])


ENGINES = {
    one.name: one
    for one in (
        EngineMemory(
            "vllm", OF_ALL, ((1, 0.9),), "vLLM, vllm/config/cache.py, gpu_memory_utilization: 0.9, at 002f10e0 0.92"
        ),
        EngineMemory(
            "sglang",
            STATIC_PART,
            ((1, 0.88), (3, 0.87), (7, 0.85), (15, 0.81), (16, 0.79)),
            "SGLang, srt/server_args.py, mem_fraction_static",
        ),
        EngineMemory(
            "tensorrt-llm",
            OF_FREE,
            ((1, 0.9),),
            "TensorRT-LLM documentation, How to Change KV Cache Behavior, free_gpu_memory_fraction",
            vendors=("NVIDIA",),
        ),
        EngineMemory(
            "llama.cpp",
            OF_ALL,
            ((1, 1.0),),
            "llama.cpp takes what its context needs; common/common.h, n_ubatch; --split-mode layer",
            512,
            ("pp",),
        ),
        EngineMemory(
            "gpt-fast",
            OF_ALL,
            ((1, 1.0),),
            "gpt-fast, model.py, setup_caches: a cache of the batch's length; tp.py",
            divides=("tp",),
        ),
    )
}
USUAL = "vllm"
BY_VENDOR = {"Apple": "llama.cpp"}
"""Vendor → default engine, if it differs from the usual one (vLLM by itself runs on the CPUs of Apple's chips
alone: docs/getting_started/installation/cpu.apple.inc.md)."""


def engine_memory(name: str) -> EngineMemory:
    """Return an engine's rule by its name; another name is refused (2)."""
    word = name.strip().lower()
    if word not in ENGINES:
        raise NapkinError(
            f"--engine: no engine is called {word[:40]!r}", did_you_mean(word, ENGINES) or ", ".join(ENGINES)
        )
    return ENGINES[word]


@record
class EngineRoom:
    """Bytes of a GPU: weights, other bytes of the engine, the KV cache with its interval, and the total that the engine
    may use."""

    weights: Term
    besides: Term
    cache: Term
    usable: Term
    low: float
    high: float


def room(engine: EngineMemory, setup: ServingSetup, capacity: Term, share: float | None = None) -> EngineRoom:
    """Return the memory of an engine on each GPU. share: as given, None: its default."""
    weights = weights_on(setup)
    taken = leaf("engine/share", engine.share(setup.groups.tp), "1", SEEN, engine.source)
    if share is not None:
        taken = leaf("engine/share", share, "1", GIVEN)
    figure = BESIDES
    besides = leaf("memory/engine", int(figure.value), "byte", ASSUMED, figure.source)
    cache, usable = _left(engine.rule, taken, capacity, weights, besides)
    ends = [
        float(_left(engine.rule, taken, capacity, weights, constant("b", end, "byte"))[0].value)
        for end in (figure.high, figure.low)
    ]
    return EngineRoom(weights, besides, cache, usable, min(ends), max(ends))


def _left(rule: str, share: Term, capacity: Term, weights: Term, besides: Term) -> tuple[Term, Term]:
    """Return the bytes of the KV cache, and the total that the engine may use."""
    path, total = "serve/kv_cache/room", "memory/usable"
    if rule == OF_FREE:
        held = add("engine/held", weights, besides)
        cache = multiply(path, share, subtract("engine/free", capacity, held))
        return cache, add(total, held, cache)
    whole = multiply("engine/memory", share, capacity)
    if rule == STATIC_PART:
        return subtract(path, whole, weights), add(total, whole, besides)
    return subtract(path, subtract("engine/without_weights", whole, weights), besides), whole.renamed(total)


def weights_on(setup: ServingSetup) -> Term:
    """Return the bytes of the weights on the fullest GPU: experts are divided by expert parallelism, the rest by tensor
    parallelism, both over pipeline stages, one of which also has the embedding or the head."""
    return _weights_on(setup.model, setup.weights, setup.groups)


@remembered
def _weights_on(model: Model, stored: StoredWeights, groups: EngineRanks) -> Term:
    name = "memory/parameters"
    whole = served_weights.weights(model, stored, groups.tp)
    if groups.pp == 1 and groups.ep <= groups.tp:
        return whole
    experts = leaf("experts", served_weights.expert_bytes(model, stored), "byte", TRUE)
    wide = max(groups.ep, groups.tp)
    others = subtract("weights/others", whole, divide("experts/of_a_rank", experts, constant("tp", groups.tp)))
    here = add("weights/of_a_replica", others, divide("experts/here", experts, constant("expert_ranks", wide)))
    if groups.pp == 1:
        return here.renamed(name)
    depth = model.depth
    ends = served_weights.end_bytes(model, stored, groups.tp)
    apart = ends[0] if model.tied else sum(ends)
    inside = subtract("weights/layers", here, leaf("weights/ends", apart, "byte", TRUE))
    layers = leaf("layers_of_a_stage", -(-depth // groups.pp), "1", TRUE)
    part = divide("weights/stage", multiply("weights/stage/all", inside, layers), constant("layers", depth))
    return add(name, part, leaf("weights/end", max(ends), "byte", TRUE, "embedding or head, whichever is larger"))

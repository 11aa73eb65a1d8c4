"""The ways to reduce the memory of a step: options that can save some, level by level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.footprint.saving import FULL, ON_GPU, SHARDED
from napkin.operations.implementations import EAGER, FLASH
from napkin.operations.model import Model
from napkin.operations.queries import undivided
from napkin.operations.recomputed_parts import parts_of
from napkin.operations.roles import EXPERT
from napkin.options.training import CORE_ATTENTION, DENSE_MLP, EXPERT_ACTIVATION, MOE_LAYER, selective
from napkin.record import record
from napkin.training.frameworks import PLAIN
from napkin.training.optimizers import in_eight_bits
from napkin.training.setup import Setup

Options = Mapping[str, "str | bool"]
"""Option → its text in a changed question; True and False for flags."""

SHORTEST = 512
"""Tokens below which no shorter sequence is suggested."""
LORA, QLORA, USUAL_RANK = "lora", "qlora", 16
"""The axes that train LoRA matrices instead of all weights, and their rank."""
NOT_FUSED = ("", "log-probs", "chunked-recomputed")
"""Losses that materialize all logits, or copies of the head's weight, and that Liger-Kernel computes in chunks with the
head's matmul."""
LEAST_RANK = 8
"""LoRA's rank below which none is suggested."""
NOT_WHOLE = ("none", "selective", "every")
"""Kinds of recomputation that leave layers, or parts of each, as they are."""
DOUBLINGS = 10
"""Number of doublings of the GPUs to try."""


@record
class Axis:
    """One way to use less memory, level by level: the options of each level, and its cost in words."""

    name: str
    levels: tuple[Options, ...]
    cost: str


def axes(model: Model, setup: Setup, given: Options, node: int) -> list[Axis]:
    """Return every axis with room for less memory. given: the options of the question, by name; node: the most GPUs
    of a tensor-parallel group."""
    return [
        *machine_axes(setup, given),
        *trainer_axes(model, setup, given, node),
        *_optimizer(setup),
        *_sequence(model, setup),
    ]


def trainer_axes(model: Model, setup: Setup, given: Options, node: int) -> list[Axis]:
    """Return the axes of the layout, the passes and the adapters."""
    return [
        *_degrees(model, setup, given, node),
        *_sharding(setup, given),
        *_batch(setup),
        *_recomputation(model, setup),
        *_kernels(model, setup),
        *_adapter(model, setup),
        *_saving(setup),
    ]


def _kernels(model: Model, setup: Setup) -> Iterator[Axis]:
    """Yield other implementations of the same computation."""
    if setup.attention == EAGER and FLASH in setup.implementation.kernels:
        yield Axis("attention", ({"attention": FLASH},), "nothing: fewer bytes to memory too")
    if setup.form != "fused" and "fused" in setup.optimizer.forms:
        yield Axis("optimizer-form", ({"optimizer-form": "fused"},), "nothing: one kernel for all tensors")
    whole = setup.layout.tp == 1 and setup.implementation.loss in NOT_FUSED
    if setup.tunes and whole and not model.outputs:
        yield Axis(
            "loss",
            ({"loss": "fused"},),
            "nothing: logits are made for a part of the tokens at a time, from the head's weight as it is",
        )


def _adapter(model: Model, setup: Setup) -> Iterator[Axis]:
    """Yield LoRA if all weights are trained (a different kind of training); else what LoRA can still save: frozen
    weights in 4 bits, a smaller rank."""
    tuning = setup.implementation.tuning
    if tuning is None:
        lora: dict[str, str | bool] = {"lora-rank": str(USUAL_RANK)}
        quantized = {**lora, "quantized": "nf4"}
        more = ({**quantized, "quantize-experts": True},) if model.experts else ()
        yield Axis(LORA, (lora,), "trains LoRA matrices, not all weights")
        yield Axis(QLORA, (quantized, *more), "trains LoRA matrices on weights rounded to 4 bits")
        return
    if setup.narrower is not None:
        narrow = {"precision": setup.narrower.stated}
        yield Axis("frozen", (narrow,), "nothing: frozen weights in 16 bits, as checkpoints have them")
    if not tuning.quantized:
        yield Axis("quantized", ({"quantized": "nf4"}, {"quantized": "nf4-dq"}), "frozen weights rounded to 4 bits")
    elif model.experts and not tuning.experts:
        yield Axis("quantize-experts", ({"quantize-experts": True},), "frozen experts rounded to 4 bits")
    if tuning.rank > LEAST_RANK:
        yield Axis("lora-rank", ({"lora-rank": str(LEAST_RANK)},), "fewer trained parameters")


def _sharding(setup: Setup, given: Options) -> Iterator[Axis]:
    """Yield sequence parallelism and higher ZeRO stages."""
    layout = setup.layout
    if layout.tp > 1 and not layout.sp and (layout.seq // layout.cp) % layout.tp == 0:
        yield Axis("sp", ({"sp": True},), "nothing: the same bytes between the same ranks")
    # Megatron's distributed optimizer names stage 1 and contradicts the others
    other: dict[str, str | bool] = {"distributed-optimizer": False} if "distributed-optimizer" in given else {}
    higher = (stage for stage in setup.framework.divides.zero if stage > layout.zero)
    stages = tuple({"zero": str(stage), **other} for stage in higher)
    if stages:
        yield Axis("zero", stages, "states gathered from the other ranks")


def _batch(setup: Setup) -> Iterator[Axis]:
    """Yield smaller micro-batches."""
    sizes = halves(int(setup.layout.micro), 1)
    if sizes:
        yield Axis("micro-batch", tuple({"micro-batch": str(size)} for size in sizes), "smaller matmuls")


def halves(size: int, least: int) -> list[int]:
    """Return the size halved again and again, down to `least`."""
    found = []
    while size % 2 == 0 and size // 2 >= least:
        size //= 2
        found.append(size)
    if size > least == 1:
        found.append(1)
    return found


def _recomputation(model: Model, setup: Setup) -> Iterator[Axis]:
    """Yield more recomputation: attention's core, the modules whose results a framework frees, entire blocks."""
    kind = setup.layout.recompute.kind
    words = []
    if kind == "none" and setup.attention == EAGER:
        words.append("selective")
    if kind in ("none", "selective"):
        given, cheap, whole = set(setup.layout.recompute.parts), *_modules(model, setup)
        core = {CORE_ATTENTION} if setup.attention == EAGER else set()
        if cheap - given:
            words.append(selective((*given, *core, *cheap)))
        words.append("every:2")
        if whole - given:
            inner = {EXPERT_ACTIVATION} if MOE_LAYER in whole else set()
            words.append(selective((*given, *core, *cheap - inner, *whole)))
    if kind in NOT_WHOLE:
        words.append("full")
    if words:
        yield Axis("recompute", tuple({"recompute": word} for word in words), "forward passes again")


def _modules(model: Model, setup: Setup) -> tuple[set[str], set[str]]:
    """Return the modules of the model that the framework can run again by name: those whose result it frees too,
    which have next to no matmuls, and the MLPs, which have most of them and most of what a layer saves."""
    layers = [layer for stack in model.stacks for layer in stack.layers]
    parts = [part for layer in layers for part in parts_of(layer.operations, setup.framework.recomputes)]
    cheap = {part.module for part in parts if part.frees_output}
    return cheap, {part.module for part in parts} & {DENSE_MLP, MOE_LAYER}


def _optimizer(setup: Setup) -> Iterator[Axis]:
    """Yield 8-bit optimizer states, and offloading to the host: of activations those of recomputed layers, since the
    link is slower than what it would save."""
    eight = in_eight_bits(setup.optimizer)
    if eight is not None:
        form = {"optimizer-form": "fused"} if setup.form != "fused" else {}
        yield Axis("optimizer", ({"optimizer": eight.name, **form},), "states rounded to 8 bits")
    levels: list[Options] = []
    together, partly = list(setup.offload), setup.layout.recompute.kind in NOT_WHOLE
    for what in ("optimizer", "activations", "parameters"):
        if what not in together:
            together.append(what)
            zero = {"zero": "3"} if what == "parameters" else {}
            again = {"recompute": "full"} if "activations" in together and partly else {}
            levels.append({"offload": ",".join(together), **zero, **again})
    if levels:
        yield Axis("offload", tuple(levels), "transfers over the link to the host")


def _saving(setup: Setup) -> Iterator[Axis]:
    """Yield savings of the state that gather less of it on a GPU."""
    if setup.save == ON_GPU:
        yield Axis("save", ({"save": FULL}, {"save": SHARDED}), "nothing of the step: less is gathered on each GPU")


def _degrees(model: Model, setup: Setup, given: Options, node: int) -> Iterator[Axis]:
    """Yield larger tensor, pipeline, context and expert parallelism on the same GPUs, with fewer replicas."""
    layout = setup.layout
    tp, pp, cp, ep, dp = (int(getattr(layout, name)) for name in ("tp", "pp", "cp", "ep", "dp"))
    times = [k for k in (2, 4, 8) if dp % k == 0 and dp // k % ep == 0]

    def larger(name: str, degree: int, k: int) -> Options:
        return {name: str(degree * k)} | ({"dp": str(dp // k)} if "dp" in given else {})

    wide = [k for k in times if tp * k <= node and not undivided(model, setup.implementation, tp * k)]
    wide = [k for k in wide if (int(layout.seq) // cp) % (tp * k) == 0]
    long = [k for k in times if int(layout.seq) % (cp * k * tp) == 0]
    divides = setup.framework.divides
    wide, long = wide if divides.tensor else [], long if divides.of("cp", layout.ulysses) else []
    if setup.tunes_own_class and setup.framework is PLAIN and tp * pp == 1:
        wide, times = [], []  # fine-tuning libraries shard a model of transformers over data-parallel ranks
    assigned = bool(layout.stages) or model.on_one_stage
    deep = [k for k in times if not assigned and model.stacks[-1].depth % (pp * k * int(layout.vp)) == 0]
    fewest = min(_experts(model), default=0)
    spread = [k for k in (2, 4, 8) if fewest and dp % (ep * k) == 0 and fewest % (ep * k) == 0]
    found = (
        ("tp", tuple(larger("tp", tp, k) for k in wide), "activations added up between the ranks of every layer"),
        ("cp", tuple(larger("cp", cp, k) for k in long), "keys and values passed round in every layer"),
        ("pp", tuple(larger("pp", pp, k) for k in deep), "a pipeline's bubble"),
        ("ep", tuple({"ep": str(ep * k)} for k in spread), "tokens between the experts' ranks"),
    )
    for name, levels, cost in found:
        if levels:
            yield Axis(name, levels, cost)


def _experts(model: Model) -> list[int]:
    """Return the experts of each layer that routes."""
    operations = [op for layer in model.stacks[-1].layers for op in layer.operations]
    return [weight.copies for op in operations for weight in op.weights() if weight.shard == EXPERT]


def machine_axes(setup: Setup, given: Options, others: int = 0) -> Iterator[Axis]:
    """Yield more GPUs, as more replicas. others: GPUs that do not train."""
    layout = setup.layout
    levels = []
    for times in (1 << k for k in range(1, DOUBLINGS + 1)):
        if "global-batch" in given and layout.global_samples % (layout.dp * times):
            break  # a step has no more sequences to share out
        options: dict[str, str | bool] = {}
        if "dp" in given:
            options = {"dp": str(int(layout.dp) * times), **options}
        if "gpus" in given or "dp" not in given:
            options = {"gpus": str(int(layout.gpus) * times + others), **options}
        levels.append(options)
    if levels:
        yield Axis("gpus", tuple(levels), "more GPUs")


def _sequence(model: Model, setup: Setup) -> Iterator[Axis]:
    """Yield shorter sequences."""
    lengths = halves(int(setup.layout.seq), SHORTEST) if len(model.stacks) == 1 else []
    if lengths:
        yield Axis("seq", tuple({"seq": str(length)} for length in lengths), "a shorter context")

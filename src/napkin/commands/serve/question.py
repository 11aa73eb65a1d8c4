"""What `serve` is asked, read from the options."""

from __future__ import annotations

from napkin import formats
from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.machine import read_hardware
from napkin.commands.question.model import read_model
from napkin.commands.question.nodes import read_gpus
from napkin.errors import NapkinError, Refused
from napkin.evidence.serving_words import computed_in
from napkin.footprint import served_weights
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.operations.queries import generates
from napkin.planning.engine_kernels import kernels_today
from napkin.planning.engines import USUAL, EngineMemory, EngineRoom, engine_memory, room
from napkin.planning.generation import ServingSetup
from napkin.planning.served import undivided_when_served
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.generation import CLOSED, SINGLE, STATIC, EngineRanks, LatencyLimits, Traffic

CACHE, WEIGHTS = "bf16", "bf16"
PROMPT, RESPONSE = "1024", "1024"
MOST_RANKS = 1024
"""GPUs of a replica beyond which none is tried."""


@record
class ServeQuestion:
    """A model that is served.

    setups    the ways to divide the model that are compared: one where the options say which
    solves    whether --gpus is not given: the fewest are taken
    traffic   in a batch, of one replica; where `maximize`, as many as fit and keep the bounds
    compute   format in which linear layers are multiplied
    limits    on latency
    """

    hardware: Hardware
    setups: tuple[ServingSetup, ...]
    solves: bool
    traffic: Traffic
    engine: EngineMemory
    share: float | None
    compute: str
    price: Term | None
    limits: LatencyLimits
    maximize: bool
    must_fit: bool
    confidence: float

    @property
    def capacity(self) -> Term:
        return self.hardware.term("capacity", "memory/capacity", "byte")

    def room(self, setup: ServingSetup) -> EngineRoom:
        """Return what the engine leaves of each GPU."""
        return room(self.engine, setup, self.capacity, self.share)

    def requests(self, setup: ServingSetup, batch: int | None = None) -> Traffic:
        """Return the requests on all GPUs of a setup; batch: as many sequences in each replica instead."""
        if self.traffic.mode == CLOSED:
            return self.traffic if batch is None else replace(self.traffic, at_once=batch * setup.dp)
        each = self.traffic.at_once if batch is None else batch
        return replace(self.traffic, mode=STATIC if each > 1 else SINGLE, at_once=each * setup.dp)


def read(inputs: Inputs) -> ServeQuestion:
    """Read the question."""
    inputs.need_all({"model": "which model?", "hardware": "which accelerator serves it?"})
    model = read_model(inputs)
    if not generates(model):
        raise Refused(f"{model.name} generates no tokens: its attention is not causal", "a decoder, such as llama3-8b")
    hardware = read_hardware(inputs, ("peak-flops", "memory-size", "memory-bandwidth"))
    engine = engine_memory(inputs.text("engine", default=USUAL))
    share = inputs.number_or_none("memory-share")
    word = inputs.text("dtype", default=WEIGHTS)
    cache = formats.find(inputs.text("cache-dtype", default=CACHE), "--cache-dtype")
    compute = computed_in(word, hardware)
    setup = ServingSetup(
        model,
        served_weights.stored(word),
        formats.element_bytes(cache).value,
        cache.name,
        chunk=engine.chunk,
        kernels=kernels_today(engine.name, hardware.vendor),
    )
    maximize = _read_whether_largest(inputs)
    traffic = _read_traffic(inputs, maximize)
    asked = ServeQuestion(
        hardware=hardware,
        setups=(setup,),
        solves="gpus" not in inputs and "nodes" not in inputs,
        traffic=traffic,
        engine=engine,
        share=None if share is None else float(share),
        compute=compute,
        price=inputs.term("price") if inputs.has("price") else None,
        limits=LatencyLimits(inputs.number_or_none("max-ttft"), inputs.number_or_none("max-tpot")),
        maximize=maximize,
        must_fit=inputs.flag("must-fit"),
        confidence=read_confidence(inputs),
    )
    inputs.depends(("link-bandwidth", "network-bandwidth"), True)
    return replace(asked, setups=_read_layouts(inputs, asked))


def _read_whether_largest(inputs: Inputs) -> bool:
    """Return whether the largest batch is asked for: by name, or by a bound on latency."""
    bounds = [name for name in ("max-tpot", "max-ttft") if name in inputs]
    asked = inputs.has("max") and inputs.text("max") == "batch"
    if (asked or bounds) and (given := [name for name in ("batch", "concurrency") if name in inputs]):
        wanted = "--max batch" if asked else f"--{bounds[0]}"
        raise NapkinError(
            f"{wanted} asks for the largest batch, and --{given[0]} gives one", "leave out one of the two"
        )
    return asked or bool(bounds)


def _read_traffic(inputs: Inputs, maximize: bool) -> Traffic:
    """Return the requests: of one replica in a batch, else of all GPUs."""
    if "batch" in inputs and "concurrency" in inputs:
        raise NapkinError(
            "--batch and --concurrency cannot be combined",
            "--batch: sequences of a replica that start together; --concurrency: requests in flight on all GPUs",
        )
    prompt = inputs.integer("prompt-tokens", default=PROMPT)
    response = inputs.integer("response-tokens", default=RESPONSE)
    if not {"prompt-tokens", "response-tokens"} & set(inputs.given):
        inputs.assume(f"{prompt:,} tokens in, {response:,} out")
    if "concurrency" in inputs:
        return Traffic(CLOSED, inputs.integer("concurrency"), prompt, response)
    each = 1 if maximize else inputs.integer("batch", default="1")
    return Traffic(STATIC if each > 1 else SINGLE, each, prompt, response)


# --- how GPUs divide the model ---------------------------------------------------------------------------------------


def _read_layouts(inputs: Inputs, asked: ServeQuestion) -> tuple[ServingSetup, ...]:
    """Return the setup with the layout that is given; without --tp, one for each power of two of tensor-parallel ranks
    that divides the model and the GPUs."""
    read_gpus(inputs)
    if inputs.has("min"):
        inputs.depends(("min",), True)
        if given := [name for name in ("gpus", "nodes", "dp") if name in inputs]:
            raise NapkinError(f"--min gpus and --{given[0]} cannot be combined", "leave out one of the two")
    pp, ep = inputs.integer("pp", default="1"), inputs.integer("ep", default="1")
    gpus, tp, dp = (inputs.integer_or_none(name) for name in ("gpus", "tp", "dp"))
    if gpus is not None and dp is not None and tp is None:
        if gpus % (dp * pp):
            raise NapkinError(f"--dp {dp:,} × --pp {pp:,} does not divide --gpus {gpus:,}", "leave out --dp")
        tp = gpus // (dp * pp)
    model = asked.setups[0].model
    found = []
    for ranks in [tp] if tp is not None else _powers(model, pp, ep, gpus):
        replicas = _replicas(ranks, pp, ep, gpus, dp)
        _check_degrees(model, ranks, pp, ep, replicas)
        found.append(replace(asked.setups[0], groups=EngineRanks(ranks, pp, ep), dp=replicas))
    return tuple(found)


def _replicas(tp: int, pp: int, ep: int, gpus: int | None, dp: int | None) -> int:
    """Return the replicas: those that the GPUs hold; without --gpus one, or as many as share the experts."""
    if gpus is None:
        return dp or max(ep // tp, 1)
    replicas, rest = divmod(gpus, tp * pp)
    if rest or not replicas:
        raise NapkinError(f"--tp {tp:,} × --pp {pp:,} does not divide --gpus {gpus:,}", "leave out one of them")
    if dp is not None and dp != replicas:
        raise NapkinError(
            f"a contradiction: --tp {tp:,} × --pp {pp:,} × --dp {dp:,} is not --gpus {gpus:,}", "leave out --dp"
        )
    return replicas


def _check_degrees(model: Model, tp: int, pp: int, ep: int, dp: int) -> None:
    """Refuse degrees that do not divide the model."""
    if what := undivided_when_served(model, tp):
        raise NapkinError(f"--tp {tp:,} does not divide {what}", "a divisor of it")
    if pp > model.depth:
        raise NapkinError(f"--pp {pp:,}: {model.name} has {model.depth:,} layers", "fewer stages")
    if ep == 1:
        return
    if not model.experts:
        raise NapkinError(f"--ep {ep:,}: {model.name} has no experts", "leave it out")
    if tp * dp % ep or (ep < tp and tp % ep) or (ep > tp and ep % tp):
        raise NapkinError(f"--ep {ep:,} does not divide --tp {tp:,} × --dp {dp:,}", "all GPUs of a stage, or a part")
    if any(number % ep for number in model.experts):
        raise NapkinError(f"--ep {ep:,} does not divide the experts ({min(model.experts):,})", "a divisor of it")


def _powers(model: Model, pp: int, ep: int, gpus: int | None) -> list[int]:
    """Return powers of two that divide the model, the GPUs that are given, and the ranks of experts."""
    found = [1]
    while 2 * found[-1] <= (gpus or MOST_RANKS) and not undivided_when_served(model, 2 * found[-1]):
        found.append(2 * found[-1])
    fitting = [tp for tp in found if (gpus is None or gpus % (tp * pp) == 0) and (max(ep, tp) % min(ep, tp) == 0)]
    if not fitting:
        raise NapkinError(f"--pp {pp:,} does not divide --gpus {gpus:,}", "a divisor of it")
    return fitting

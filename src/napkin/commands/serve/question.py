"""The question of `serve`, read from the options."""

from __future__ import annotations

from napkin import formats
from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.machine import read_gpus, read_hardware
from napkin.commands.question.model import read_model
from napkin.commands.question.stored_weights import read_weights
from napkin.commands.question.tasks import check_decodes
from napkin.errors import NapkinError, Refused
from napkin.evidence.figures.prices import PRICES, Price, given
from napkin.evidence.serving.words import computed_in
from napkin.footprint.engine_kernels import kernels_today
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.engines import BY_VENDOR, USUAL, EngineMemory, EngineRoom, engine_memory, room
from napkin.planning.generation import ServingSetup
from napkin.planning.served import undivided_when_served
from napkin.planning.serving_search import GivenRanks, divisions
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.generation import CLOSED, SINGLE, STATIC, GenerationRates, LatencyLimits, Traffic

DEGREES = ("tp", "pp", "ep", "dp")


def read_ranks(inputs: Inputs, model: Model, engine: EngineMemory) -> GivenRanks:
    """Return the given GPUs and degrees; degrees that the engine does not support are 1."""
    read_gpus(inputs)
    if inputs.has("min"):
        inputs.depends(("min",), True)
        if given := [name for name in ("gpus", "nodes", "dp") if name in inputs]:
            raise NapkinError(f"--min gpus and --{given[0]} cannot be combined", "leave out one of the two")
    tp, pp, ep, dp = (inputs.integer_or_none(name) for name in DEGREES)
    found = GivenRanks(inputs.integer_or_none("gpus"), tp, pp, ep, dp)
    _check(model, found)
    searched = {name: 1 for name in ("tp", "pp", "ep") if name not in inputs and name not in engine.divides}
    usual = replace(found, **searched)
    if divisions(model, usual):
        return usual
    if usual != found and divisions(model, found):
        raise NapkinError(
            f"{engine.name} divides a model by --{' and --'.join(engine.divides)}, which does not go here",
            f"--{next(iter(searched))} says otherwise",
        )
    shown = " × ".join(f"--{name} {degree:,}" for name in DEGREES if (degree := getattr(found, name)) is not None)
    if found.gpus is None:
        raise NapkinError(f"{shown} does not divide the model", "leave out one of them")
    raise NapkinError(f"{shown} does not divide --gpus {found.gpus:,}", "leave out one of them")


def _check(model: Model, given: GivenRanks) -> None:
    """Reject degrees that contradict each other or that the model does not allow."""
    if given.tp is not None and (what := undivided_when_served(model, given.tp)):
        raise NapkinError(f"--tp {given.tp:,} does not divide {what}", "a divisor of it")
    if given.pp is not None and given.pp > model.depth:
        raise NapkinError(f"--pp {given.pp:,}: {model.name} has {model.depth:,} layers", "fewer stages")
    if None not in (given.gpus, given.tp, given.dp):
        product = (given.tp or 1) * (given.pp or 1) * (given.dp or 1)
        if given.gpus != product:
            stages = "" if given.pp is None else f" × --pp {given.pp:,}"
            raise NapkinError(
                f"a contradiction: --tp {given.tp:,}{stages} × --dp {given.dp:,} is not --gpus {given.gpus:,}",
                "leave out --dp",
            )
    if given.ep is None or given.ep == 1:
        return
    if not model.experts:
        raise NapkinError(f"--ep {given.ep:,}: {model.name} has no experts", "leave it out")
    if any(number % given.ep for number in model.experts):
        raise NapkinError(f"--ep {given.ep:,} does not divide the experts ({min(model.experts):,})", "a divisor of it")


CACHE = "bf16"
LENGTH = 1024
"""Default tokens of a prompt and of an answer."""


@record
class ServeQuestion:
    """A model that is served.

    setup     the model in its engine, undivided             ranks    given GPUs and degrees
    traffic   the batch of one replica; with `maximize`, as many sequences as fit and meet the limits
    compute   number format of the matmuls of linear layers  rates    rates that the machine and the engine reach
    price     of a GPU-hour: given, else the market price; None: unknown
    limits    latency limits
    """

    hardware: Hardware
    setup: ServingSetup
    ranks: GivenRanks
    traffic: Traffic
    engine: EngineMemory
    share: float | None
    compute: str
    rates: GenerationRates
    price: Price | None
    limits: LatencyLimits
    maximize: bool
    must_fit: bool
    confidence: float

    @property
    def capacity(self) -> Term:
        return self.hardware.term("capacity", "memory/capacity", "byte")

    def room(self, setup: ServingSetup) -> EngineRoom:
        """Return the bytes of each GPU that the engine may use."""
        return room(self.engine, setup, self.capacity, self.share)

    def requests(self, setup: ServingSetup, batch: int | None = None) -> Traffic:
        """Return the requests on all GPUs of a setup; batch: this many sequences in each replica instead."""
        if self.traffic.mode == CLOSED:
            return self.traffic if batch is None else replace(self.traffic, at_once=batch * setup.dp)
        each = self.traffic.at_once if batch is None else batch
        return replace(self.traffic, mode=STATIC if each > 1 else SINGLE, at_once=each * setup.dp)


def read(inputs: Inputs) -> ServeQuestion:
    """Read the question."""
    inputs.need_all({"model": "which model?", "hardware": "which accelerator serves it?"})
    model = read_model(inputs)
    check_decodes(model)
    hardware = read_hardware(inputs, ("peak-flops", "memory-size", "memory-bandwidth"))
    engine = _read_engine(inputs, hardware)
    share = inputs.number_or_none("memory-share")
    weights = read_weights(inputs, model)
    cache = formats.find(inputs.text("cache-dtype", default=CACHE), "--cache-dtype")
    compute = computed_in(weights.name, hardware)
    setup = ServingSetup(
        model,
        weights,
        formats.element_bytes(cache).value,
        cache.name,
        chunk=engine.chunk,
        kernels=kernels_today(engine.name, hardware.vendor),
    )
    ranks = read_ranks(inputs, model, engine)
    largest = _read_largest(inputs, ranks)
    inputs.depends(("link-bandwidth", "network-bandwidth", "oversubscription"), True)
    return ServeQuestion(
        hardware=hardware,
        setup=setup,
        ranks=ranks,
        traffic=_read_traffic(inputs, largest, model),
        engine=engine,
        share=None if share is None else float(share),
        compute=compute,
        rates=_read_rates(inputs, hardware, compute, engine.name),
        price=_read_price(inputs, hardware),
        limits=LatencyLimits(inputs.number_or_none("max-ttft"), inputs.number_or_none("max-tpot")),
        maximize=largest != "",
        must_fit=inputs.flag("must-fit"),
        confidence=read_confidence(inputs),
    )


def _read_engine(inputs: Inputs, hardware: Hardware) -> EngineMemory:
    """Return the engine: given, else the default of the accelerator's vendor."""
    usual = BY_VENDOR.get(hardware.vendor, USUAL)
    found = engine_memory(inputs.text("engine", default=usual))
    if "engine" not in inputs and usual != USUAL:
        inputs.assume(usual)
    if found.vendors and hardware.vendor not in found.vendors:
        runs = f"{found.name} runs on GPUs of {' and '.join(found.vendors)}, and not on {hardware.name}"
        raise Refused(f"--engine: {runs}", f"--engine {usual}")
    return found


def _read_rates(inputs: Inputs, hardware: Hardware, compute: str, engine: str) -> GenerationRates:
    """Return the rates that the engine reaches on the machine: as published, or with those measured in a profile."""
    from napkin.evidence.serving.generation import rates_on

    rates = rates_on(hardware, compute, engine)
    if not inputs.has("profile"):
        return rates
    from napkin.commands.question.machine import record_rates
    from napkin.commands.question.step_model import read_rates_profile
    from napkin.evidence.rates.profile_shares import with_measured

    profile = read_rates_profile(inputs, hardware)
    assert profile is not None
    record_rates(inputs, profile, compute)
    rates, used = with_measured(rates, hardware, profile, compute)
    if not used:
        raise Refused(
            f"--profile: it measured neither {compute} products, nor memory, nor the link", "napkin bench measures them"
        )
    for what in used:
        inputs.note(f"measured by the profile: {what}")
    return rates


def _read_price(inputs: Inputs, hardware: Hardware) -> Price | None:
    """Return the price of a GPU-hour: given, else the market price."""
    if inputs.has("price"):
        return given(float(inputs.number("price")))
    found = PRICES.get(hardware.slug)
    if found is not None:
        inputs.record("price", found.middle, "evidence", "USD/GPU-hour", f"{found.date}; {found.source}")
    return found


def _read_largest(inputs: Inputs, ranks: GivenRanks) -> str:
    """Return what to maximize, "" if the requests are given: the batch, or the requests in flight (also for a latency
    limit without requests)."""
    bounds = [name for name in ("max-tpot", "max-ttft") if name in inputs]
    asked = inputs.text("max") if inputs.has("max") else ""
    given = [name for name in ("batch", "concurrency") if name in inputs]
    if asked and given:
        raise NapkinError(f"--max {asked} asks for what --{given[0]} gives", "leave out one of the two")
    if bounds and given and (ranks.gpus is not None or ranks.dp is not None):
        raise NapkinError(
            f"--{bounds[0]} asks for the most requests or the fewest GPUs, and both are given",
            f"leave out --{given[0]} for the most requests, or --{'dp' if ranks.gpus is None else 'gpus'} for the "
            "fewest GPUs",
        )
    return asked or ("concurrency" if bounds and not given else "")


def _read_traffic(inputs: Inputs, largest: str, model: Model) -> Traffic:
    """Return the requests: those of one replica for a batch, else those of all GPUs."""
    if "batch" in inputs and "concurrency" in inputs:
        raise NapkinError(
            "--batch and --concurrency cannot be combined",
            "--batch: sequences of a replica that start together; --concurrency: requests in flight on all GPUs",
        )
    positions = model.max_length if len(model.stacks) == 1 else None
    usual = min(LENGTH, positions // 2) if positions else LENGTH
    prompt = inputs.integer("prompt-tokens", default=str(usual))
    response = inputs.integer("response-tokens", default=str(usual))
    if positions and prompt + response > positions:
        inputs.assume(f"beyond {model.name}'s {positions:,} positions")
        inputs.note(f"{prompt + response:,} tokens of a request are beyond the model's {positions:,} positions")
    if not {"prompt-tokens", "response-tokens"} & set(inputs.given):
        inputs.assume(f"{prompt:,} tokens in, {response:,} out")
    if "concurrency" in inputs or largest == "concurrency":
        return Traffic(CLOSED, 1 if largest else inputs.integer("concurrency"), prompt, response)
    each = 1 if largest else inputs.integer("batch", default="1")
    return Traffic(STATIC if each > 1 else SINGLE, each, prompt, response)

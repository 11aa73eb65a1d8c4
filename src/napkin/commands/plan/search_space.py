"""The search space of `napkin plan`: the range of every degree and of the batch."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.commands.inputs import Inputs
from napkin.commands.plan.backends import read_sharded
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.divisions import check_search
from napkin.commands.question.layout import check_heads, read_context, read_expert_load, read_zero
from napkin.commands.question.machine import RATES, WHICH, read_hardware
from napkin.commands.question.model import read_images_of_sequence, read_model, read_sequence, read_target
from napkin.commands.question.setup import read_loading, read_setup_around, read_trainer_recompute
from napkin.commands.question.software import read_whether_staged
from napkin.commands.question.step_model import read_asynchronous, read_rates_profile, read_unmeasured
from napkin.commands.question.tasks import read_task
from napkin.commands.question.usual_stack import TUNES_ON
from napkin.counting import flops
from napkin.evidence.predictions import one_run
from napkin.evidence.predictions.one_run import StepPrediction
from napkin.evidence.rates.machines import machine
from napkin.evidence.rates.of_step import Asynchronous
from napkin.footprint.loading import quantizes
from napkin.inputs.hardware import Hardware
from napkin.inputs.lengths import read_lengths
from napkin.inputs.profile import Profile
from napkin.operations.implementations import HUGGING_FACE
from napkin.operations.model import Model
from napkin.options.layout import BOUNDED, SEARCHED
from napkin.options.question import SAMPLES
from napkin.options.training import FROZEN
from napkin.planning.grid import Request, forced
from napkin.planning.layout_time import Timed
from napkin.planning.layouts import HalfWidth, LayoutQuestion
from napkin.record import replace
from napkin.term import Term
from napkin.timing.rates import Rates
from napkin.timing.step_layout import StepLayout
from napkin.training.layout import Layout
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup

LARGEST_STEP = 16 * 2**20
"""Tokens in a step up to which a free batch grows: what the largest published dense run settled on (Llama 3 405B,
Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.1)."""

LARGEST_OF_TUNING = 128
"""Sequences in a step up to which a free batch grows in fine-tuning: those of
Tülu 3 8B and 70B, 64 GPUs · 1 · 2 accumulated (allenai/open-instruct, docs/tulu3.md at 0becd2c, Finetuning)."""

RECOMPUTES = ("none", "selective", "full")
SOFTWARE = ("framework", "trainer", "implementation", "stack")
"""Options that each name the software of a step."""


def read_layouts(inputs: Inputs) -> tuple[LayoutQuestion, StepPrediction]:
    """Read the search space except the number of GPUs, and the question of `step`, for what does not depend on the
    layout."""
    inputs.need_all({"model": "which model?", "hardware": WHICH})
    model = read_model(inputs)
    hardware = read_hardware(inputs, (*RATES, "memory-size"))
    seq = read_sequence(inputs, model)
    images = read_images_of_sequence(inputs, model, seq)
    read_trainer_recompute(inputs)
    alone = _read_whether_tuned(inputs) and not any(name in inputs for name in SOFTWARE)
    if alone:
        inputs.redefault("implementation", HUGGING_FACE)
        inputs.redefault("stack", TUNES_ON)
    shared = _read_shared(inputs, model, seq, images)
    setup, sharded = read_setup_around(inputs, model, shared), read_sharded(inputs, model, shared)
    read_loading(inputs, quantizes(setup))
    _read_bounds(inputs, setup, alone)
    if alone:
        _read_whole_samples(inputs, setup, seq)
    asynchronous = read_asynchronous(inputs)
    prediction = read_unmeasured(inputs, model, setup, hardware)
    profile = read_rates_profile(inputs, hardware)
    if profile is not None:
        for what in one_run.with_profile(prediction.rates, hardware, profile, setup.compute)[1]:
            inputs.note(f"measured by the profile: {what}")
    node = int(machine(hardware, setup.compute).node)
    request = replace(_read_request(inputs, model, setup, seq, node), sharded=sharded)
    frameworks = (setup.framework, *(one.framework for _, one in sharded))
    check_search(inputs, frameworks, request.only, shared.ulysses)
    confidence = read_confidence(inputs)
    asked = (
        *(request, hardware, profile, asynchronous, confidence, prediction.peak.value, prediction.factor),
        *(prediction.stack, prediction.rates, prediction.kernel, prediction.at),
    )
    found = next((known for before, known in _ASKED if before == asked), None)
    if found is None:
        timed = _timed(model, hardware, prediction, asynchronous, profile)
        wide = _half_width(model, hardware, prediction, confidence), _apart(prediction, confidence)
        found = _layouts(request, hardware, timed, *wide, prediction.peak)
        _ASKED[1:] = [(asked, found)]
    return found, prediction


_ASKED: list[tuple[object, LayoutQuestion]] = []
"""The first and the last search, each with the values it depends on. Questions that differ only in the amount of
training, a deadline or a price share one search."""


def _read_shared(inputs: Inputs, model: Model, seq: int, images: tuple[int, int]) -> Layout:
    """Return what all layouts of the search share, with every degree 1. images: those of a sequence, and the tokens of
    one."""
    imbalance, capacity = read_expert_load(inputs, model)
    ulysses = read_context(inputs)
    if ulysses:
        check_heads(model, inputs.integer("cp"))
    return Layout(
        seq=seq,
        target=read_target(inputs, model) or 0,
        rows=read_task(inputs).rows,
        images=images[0],
        image_tokens=images[1],
        ulysses=ulysses,
        imbalance=imbalance,
        capacity=capacity,
        recompute=recompute(inputs.text_or_none("recompute") or RECOMPUTES[0]),
    )


def _layouts(
    request: Request,
    hardware: Hardware,
    timed: Timed,
    half_width: HalfWidth,
    apart: Callable[[int], float],
    peak: Term,
) -> LayoutQuestion:
    """Return a new layout search."""
    needed = request.setup.needed(request.model)
    laid = request.setup.layout
    counted = flops.of_passes(needed, lambda model, times: flops.of_layout(model, laid, times)).value
    return LayoutQuestion(
        request=request,
        hardware=hardware,
        timed=timed,
        half_width=half_width,
        apart=apart,
        peak=peak.value,
        per_sequence=float(counted),
        known={},
        layers={},
        least={},
        chosen={},
    )


def _read_request(inputs: Inputs, model: Model, setup: Setup, seq: int, node: int) -> Request:
    """Read the range of every degree and of the batch; node: GPUs that share a link."""
    free = not inputs.has("global-batch")
    inputs.depends(("max-global-batch",), free, "--global-batch says how large a step is", "leave out one of the two")
    if free:
        inputs.default("max-global-batch", str(_read_largest_batch(inputs, setup, seq)))
    chosen = inputs.text_or_none("recompute")
    only = {name: inputs.integer(name) for name in SEARCHED if name != "zero" and inputs.has(name)}
    if inputs.has("zero") or inputs.has("distributed-optimizer"):
        inputs.default("zero", "1")
        only["zero"] = read_zero(inputs)
    if inputs.has("grad-accum"):
        only["grad-accum"] = inputs.integer("grad-accum")
    only |= forced(setup)
    if inputs.has("sp"):
        only["sp"] = int(inputs.flag("sp"))
    if "tp" not in only and not inputs.has("max-tp"):
        inputs.default("max-tp", str(node))
        inputs.note(
            f"tensor parallelism stays within the {node} GPUs of a node: no published step in the evidence "
            "leaves it; --max-tp looks further"
        )
    inputs.depends(("max-ep",), bool(model.experts), f"{model.name} has no experts")
    below = {name: inputs.integer(f"max-{name}") for name in BOUNDED if inputs.has(f"max-{name}")}
    bounds = [f"--max-{name} {most}" for name, most in below.items() if f"max-{name}" in inputs]
    if bounds:
        inputs.note(f"layouts beyond {', '.join(bounds)} were not tried")
    request = Request(
        model=model,
        setup=setup,
        gpus=1,
        node=node,
        seq=seq,
        batch=inputs.integer_or_none("global-batch"),
        most=inputs.integer_or_none("max-global-batch") or 1,
        recomputes=tuple(recompute(one) for one in ((chosen,) if chosen else RECOMPUTES)),
        only=only,
        below=below,
        deep="zero" in only or "zero" in below,
    )
    if not request.deep:
        inputs.note(
            "ZeRO-3 with a pipeline is omitted: no published step with several micro-batches in the evidence has "
            "it; --max-zero 3 includes it"
        )
    return request


def _read_whether_tuned(inputs: Inputs) -> bool:
    """Return whether this is fine-tuning: a task, adapters or frozen parts."""
    return any(name in inputs for name in FROZEN) or inputs.peek("task") not in (None, "pretrain")


def _read_bounds(inputs: Inputs, setup: Setup, alone: bool) -> None:
    """Exclude parallelism that the software does not have: pipeline stages where it divides no layers, and those and
    tensor parallelism in fine-tuning. alone: fine-tuning without named software."""
    staged = read_whether_staged(inputs)
    if not setup.tunes_own_class and staged:
        return
    left_out = ["pp", "tp"] if alone else ["pp"]
    for name in left_out:
        if not inputs.has(name) and not inputs.has(f"max-{name}"):
            inputs.default(f"max-{name}", "1")
    if alone:
        inputs.note(
            "searched as fine-tuning libraries shard a model of transformers: over data-parallel ranks; --max-tp, "
            "--max-pp or --framework megatron-core search more"
        )


def _read_whole_samples(inputs: Inputs, setup: Setup, seq: int) -> None:
    """Split no sequence of fine-tuning that holds samples shorter than itself, as long as its batch has one for every
    GPU: a shorter sequence takes as little memory, and sends nothing."""
    if inputs.has("cp") or inputs.has("max-cp") or not any(name in inputs for name in ("sample-tokens", "lengths")):
        return
    mean = inputs.number("sample-tokens") if "sample-tokens" in inputs else read_lengths(inputs.text("lengths")).mean
    if mean >= seq:
        return
    batch = inputs.integer_or_none("global-batch") or _read_largest_batch(inputs, setup, seq)
    gpus = inputs.integer("gpus") if inputs.has("gpus") else 1
    inputs.default("max-cp", str(-(-gpus // batch)))
    inputs.note(
        "samples are shorter than a sequence, which is not split over GPUs: --seq shortens it, --max-cp splits it"
    )


def _read_largest_batch(inputs: Inputs, setup: Setup, seq: int) -> int:
    """Return the sequences up to which a free batch grows: those of pre-training or fine-tuning, at most those of the
    run."""
    tuned = setup.tunes or any(name in inputs for name in SAMPLES)
    usual = LARGEST_OF_TUNING if tuned else LARGEST_STEP // seq
    trained = inputs.peek("tokens")
    run = trained // seq if isinstance(trained, int) else usual
    if tuned:
        inputs.assume(f"batch up to {usual}")
    return max(min(usual, run), 1)


def _timed(
    model: Model, hardware: Hardware, prediction: StepPrediction, asynchronous: Asynchronous, profile: Profile | None
) -> Timed:
    """Return the function that returns plan and rates of a setup; the degrees of its layout may be arrays."""

    def timed(setup: Setup) -> tuple[StepLayout, Rates]:
        compute = setup.compute
        at = machine(hardware, compute)
        plan, rates = one_run.timed(model, setup, prediction.stack, at, prediction.kernel, asynchronous)
        if prediction.factor != 1.0:
            rates = replace(rates, stack=rates.stack * prediction.factor)
        if profile is not None:
            rates, _ = one_run.with_profile(rates, hardware, profile, compute)
        return plan, rates

    return timed


def _half_width(model: Model, hardware: Hardware, prediction: StepPrediction, confidence: float) -> HalfWidth:
    """Return the function from a setup, the plan and rates of its step and its time to the half-width of the interval
    of ln(time), as `step` has it."""

    def half_width(setup: Setup, plan: StepLayout, rates: Rates, found: Term) -> float:
        there = one_run.laid_out(prediction, model, setup, hardware, plan, rates)
        return there.half_width(confidence, found=found)[0]

    return half_width


def _apart(prediction: StepPrediction, confidence: float) -> Callable[[int], float]:
    """Return the function from the number of GPUs to the half-width of the interval of ln(time) by the errors of
    published steps, without what depends on the layout or is not stated of machine and software."""
    known: dict[int, float] = {}

    def apart(gpus: int) -> float:
        if gpus not in known:
            there = replace(prediction, at=replace(prediction.at, gpus=math.log(gpus)))
            known[gpus] = there.of_evidence(confidence)[0]
        return known[gpus]

    return apart

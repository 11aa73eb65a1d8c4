"""`train-time` without --mfu: the utilisation that published runs lead one to expect, and the intervals it gives."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.commands.command import Inputs
from napkin.commands.confidence import read_confidence
from napkin.commands.machine import read_hardware
from napkin.evidence import prices, runs
from napkin.inputs.hardware import Hardware
from napkin.options.training import STEP_MODEL
from napkin.render.answer import Answer
from napkin.term import SEEN, Term, divide, leaf
from napkin.timing import time

STEP_TO_RUN, STEP_TO_RUN_SPREAD = 0.88, 0.13
"""Whole-run utilisation over that of a good step, and its spread (σ of the logarithm): seven published runs for which
both are known lie between 0.66 and 1.0 (BLOOM 0.88, Llama 3.1 405B 0.86, GLM-130B 0.77, PaLM 0.66 with its ramps)."""

START = 70e9
"""Parameters to begin with where they are what is asked for."""
ROUNDS = 6


def wanted(known: Mapping[str, Term], with_budget: bool) -> bool:
    """Whether --mfu is to be estimated: it is missing, and what else is missing takes all the equations."""
    if "mfu" in known:
        return False
    sized = {"params"} if "per_token" in known else set()
    missing = set(time.UNKNOWNS) - {"mfu"} - set(known) - sized
    return len(missing) >= (2 if with_budget else 1)


def solved(
    inputs: Inputs,
    known: dict[str, Term],
    hardware: Hardware,
    peak: Term,
    budget: Term | None,
    price: Term | None,
) -> tuple[dict[str, Term], runs.Estimate]:
    """The run's quantities with an estimated MFU. Where the size or the count is what is asked for, the estimate and
    the answer are found together, by going round a few times."""
    from napkin.evidence.rates import generation_note

    if note := generation_note(hardware):
        inputs.note(note)
    level = read_confidence(inputs)
    rule = runs.Rule(runs.evidence(), level)
    stepped = _of_layout(inputs, known, hardware, level)
    found: dict[str, Term] = dict(known)
    estimate = None
    for _ in range(ROUNDS):
        estimate = stepped or runs.estimate(_asked(found, hardware), rule)
        share = estimate.mfu * hardware.peak(hardware.default_dtype) / peak.value
        source = f"{estimate.runs} published runs of {estimate.teams} teams" if stepped is None else "the step model"
        found = time.solve({**known, "mfu": leaf("mfu", share, "1", SEEN, source)}, peak, budget, price)
        if "per_token" in known and "gpus" in known:
            break
    assert estimate is not None
    inputs.record("mfu", found["mfu"].value, "evidence")
    return found, estimate


def _asked(found: Mapping[str, Term], hardware: Hardware) -> runs.PlannedRun:
    from napkin.evidence.rates import constants_of

    total = found["params"].value if "params" in found else START
    active = found["per_token"].value / 6 if "per_token" in found else total
    gpus = int(found["gpus"].value) if "gpus" in found else None
    return runs.PlannedRun(max(active, 1), max(total, active), constants_of(hardware), gpus)


def _of_layout(inputs: Inputs, known: Mapping[str, Term], hardware: Hardware, level: float) -> runs.Estimate | None:
    """With a model and a layout: the step model's utilisation in 6·N terms, times what whole runs keep of it."""
    laid_out = any(name in inputs for name in (*STEP_MODEL, "profile"))
    if inputs.get("model") is None or not laid_out or "gpus" not in known:
        return None
    from napkin.commands.model import read_model
    from napkin.commands.predicted import read_step_model
    from napkin.commands.setup import read_setup
    from napkin.evidence.constants import deviations
    from napkin.options.training import SETUP_DEFAULTS
    from napkin.timing.step import step

    for name, text in SETUP_DEFAULTS.items():
        inputs.default(name, text)
    model = read_model(inputs)
    setup = read_setup(inputs, model)
    asked = read_step_model(inputs, model, setup, hardware)
    seconds = step(model, asked.plan, asked.rates).time.value
    layout = setup.layout
    done = known["per_token"].value * layout.global_batch * layout.seq
    middle = done / (seconds * layout.gpus * hardware.peak(hardware.default_dtype)) * STEP_TO_RUN
    half, close = asked.half_width(level, named="stack" in inputs)
    half = math.hypot(half, deviations(level) * STEP_TO_RUN_SPREAD)
    names = ", ".join(one.id for _, one in close)
    inputs.note(f"MFU from the step model ({seconds:.3g} s a step) × {STEP_TO_RUN} that whole runs keep; near: {names}")
    return runs.Estimate(middle, middle / math.exp(half), min(middle * math.exp(half), 1.0), level, 0, 0, ())


def show(
    answer: Answer, inputs: Inputs, known: Mapping[str, Term], found: Mapping[str, Term], estimate: runs.Estimate
) -> None:
    """The intervals of what follows from the estimate, the runs it rests on, and goodput apart from MFU."""
    low, high = estimate.low / estimate.mfu, estimate.high / estimate.mfu
    mfu = found["mfu"].value
    answer.intervals["mfu"] = (mfu * low, mfu * high)
    grows = {"params", "tokens"} - set(known)  # better use gives more of these
    if "per_token" in known:
        grows.discard("params")
    shrinks = set() if grows else {"time", "gpus", "gpu_hours", "cost", "energy", "carbon"} - set(known)
    if "time/allowed" in found:
        shrinks.discard("time")  # the GPUs are chosen to meet it
    for term in answer.terms:
        if term.name in shrinks:
            answer.intervals[term.name] = (term.value / high, term.value / low)
        elif term.name in grows:
            answer.intervals[term.name] = (term.value * low, term.value * high)
    gpus = max(int(found["gpus"].value), 1)
    good = leaf("goodput", runs.goodput(gpus), "1", SEEN, "published interruptions, checkpoints and evaluation")
    if good.value > 0:
        answer.terms = (*answer.terms, good, divide("mfu/while_running", found["mfu"], good))
    if estimate.similar:
        inputs.note(
            f"MFU {mfu:.2f} is estimated from {estimate.runs} published whole runs of {estimate.teams} teams; "
            f"{estimate.level:.0%} of such runs lie between {mfu * low:.2f} and {mfu * high:.2f}"
        )
        inputs.note(f"most similar: {estimate.named()}")
        inputs.note("single steps reach more: --mfu takes a figure of your own")
    if estimate.wider:
        inputs.note(f"the interval is wider: {estimate.wider}")
    if inputs.get("price") is None:
        card = read_hardware(inputs)
        line = prices.remark(card.slug, card.name)
        if line:
            inputs.note(line)
    answer.extra["evidence"] = [
        {"model": run.row.model, "mfu": round(math.exp(run.log_u), 4), "hours_basis": run.row.basis, "id": run.row.id}
        for run in estimate.similar
    ]

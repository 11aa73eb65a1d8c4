"""`napkin train-time`: how long a run takes, or what it needs to meet a deadline or a budget."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.screens.train_time import screen
from napkin.commands.train_time.question import TrainTimeQuestion
from napkin.commands.train_time.read import PREDICTS, read
from napkin.counting.six_n import against_count
from napkin.errors import BROKEN, DOES_NOT_FIT, HELD, IMPOSSIBLE, OK, UNDECIDED
from napkin.options.layout import MACHINE_SIZE
from napkin.options.model import PREDICTING
from napkin.options.option import choice
from napkin.options.question import AMOUNT, MEASURED_TOKENS, OF_FAILURES
from napkin.options.rollout import ROLLOUT
from napkin.render.answer import Answer, Shown
from napkin.term import Term
from napkin.timing import time


def run(inputs: Inputs) -> Answer:
    """Answer for a model or its number of parameters."""
    if inputs.has("model") and any(name in inputs for name in ("task", *ROLLOUT)):
        from napkin.commands.question.tasks import read_whether_rollout

        if read_whether_rollout(inputs):
            from napkin.commands.rollout.answer import run_time

            return run_time(inputs)
    return answer(read(inputs))


def answer(question: TrainTimeQuestion) -> Answer:
    """Answer with the time, FLOPs, cost and energy of the run, and with the quantities that were solved for."""
    known = question.known
    if question.confidence is None:
        found = time.solve(known, question.peak, question.budget, question.price, question.goodput)
        if question.measured:
            found = {**found, "mfu": question.goodput.whole_run(known["mfu"])}
        answer = _answer_from(question, found)
        answer.terms = (*answer.terms, *([known["mfu"]] if question.measured else []))
    else:
        from napkin.commands.train_time.estimated import add_estimate, estimated

        run = estimated(question, question.confidence)
        answer = _answer_from(question, run.found)
        add_estimate(answer, question, run, question.confidence)
        if question.solved is not None and question.solved.ends is not None:
            answer.intervals["gpus"] = question.solved.ends
    if question.market is not None and "cost" in answer.by_path():
        answer.intervals["cost"] = question.market.spread(answer.by_path()["cost"].value, answer.intervals.get("cost"))
    _judge(question, answer, _weigh(question, answer))
    answer.screen = screen(question, answer)
    return answer


def _weigh(question: TrainTimeQuestion, answer: Answer) -> str | None:
    """Add the memory of the layout's step, as `step` does; return whether it fits, None if unknown."""
    step = question.step
    if step is None or not question.weighed:
        return None
    from napkin.commands.question.step_model import memory_terms

    capacity = step.hardware.capacity
    terms, fit, notes = memory_terms(step.model, step.setup, capacity)
    answer.notes += notes
    if terms:
        answer.terms = (*answer.terms, *terms, step.hardware.term("capacity", "memory/capacity", "byte"))
    if fit is not None:
        answer.extra["fit"] = fit
    return fit


def _judge(question: TrainTimeQuestion, answer: Answer, fit: str | None) -> None:
    """Judge the run against a deadline and a budget that are not needed to solve it, and check whether its layout fits.
    A layout that does not fit meets neither."""
    if answer.verdict is not None:
        return
    if question.limits:
        from napkin.inputs.limits import status_of_most

        most = {{"time": "time", "budget": "cost"}[name]: limit.value for name, limit in question.limits.items()}
        answer.status = status_of_most(most, answer.quantities(), answer.intervals)
        answer.verdict = HELD[answer.status]
    if fit == DOES_NOT_FIT:
        if question.limits:
            asked = " and ".join("--within" if name == "time" else "--budget" for name in question.limits)
            answer.notes.append(f"the layout does not fit; otherwise {asked}: {answer.verdict}")
        answer.verdict = fit
        answer.status = BROKEN if question.limits else OK
    elif fit == UNDECIDED and not question.limits:
        answer.verdict = fit


def _answer_from(question: TrainTimeQuestion, found: Mapping[str, Term]) -> Answer:
    """Answer with the run's quantities once they are solved."""
    known, price = question.known, question.price
    terms = [
        found[name]
        for name in ("time", "time/uninterrupted", "goodput", "flops", "mfu", "gpus", "tokens", "params", "gpu_hours")
        if name in found
    ]
    terms += [found[name] for name in ("gpus/exact", "time/allowed") if name in found]
    terms += question.goodput.expected(found["time"]) if "time" in found else []
    terms += question.data
    terms += [question.solved.allowed] if question.solved is not None else []
    if price is not None:
        terms.append(time.cost(found["gpu_hours"], price))
    footprint, notes = _footprint(question, found)
    terms += footprint
    if question.counted is not None:
        exact, note = _compared_with_count(question.convention, found, question.counted)
        terms += exact
        notes.append(note)
    impossible = found["mfu"].value > question.excess
    answer = Answer(
        "train-time",
        terms,
        verdict=IMPOSSIBLE if impossible else None,
        status=BROKEN if impossible else OK,
        notes=notes,
    )
    for name in ("params", "tokens", "gpus", "mfu"):
        if name not in known and name in found:
            answer.inputs[name] = Shown(found[name].value, None, "solved", found[name].unit)
    context = time.compared_with_known(found["flops"].value)
    answer.extra["context"] = [
        {"name": name, "flops": flops, "ratio": ratio, "source": source} for name, flops, ratio, source in context
    ]
    if impossible:
        answer.notes.append("the MFU that this takes is above 1: more than the hardware's dense peak")
    elif found["mfu"].value > 1:
        from napkin.counting.utilization import UNMASKED

        answer.notes.append(UNMASKED)
    return answer


def _compared_with_count(convention: str, found: Mapping[str, Term], counted: Term) -> tuple[list[Term], str]:
    """Return the counted FLOPs of the entire run, the ratio of the convention to them, and the ratio in words."""
    exact, ratio = against_count(found["flops"], counted, found["tokens"])
    side = "above" if ratio.value > 1 else "below"
    return [exact, ratio], f"{convention} is {abs(ratio.value - 1):.1%} {side} the count"


def _footprint(question: TrainTimeQuestion, found: Mapping[str, Term]) -> tuple[list[Term], list[str]]:
    """Return energy and carbon; omitted, with a note, if the accelerator's TDP is not known."""
    hardware = question.hardware
    if hardware.tdp_w is None and question.draw is None:
        return [], [f"{hardware.name}: no TDP is known, so energy is omitted"]
    draw = question.draw or hardware.term("tdp_w", "tdp", "watt/GPU")
    used = time.energy(found, draw, question.overhead, question.pue)
    return [used, time.carbon(used, question.carbon)], []


COMMAND = Command(
    "train-time",
    "Duration and cost of a training run, or what a deadline or budget requires",
    run,
    brief="Duration and cost of a run, or what a deadline requires",
    verdicts=(*HELD.values(), DOES_NOT_FIT, IMPOSSIBLE),
    success=HELD[OK],
    options=(
        "params",
        "active-params",
        "tokens",
        *AMOUNT,
        *MACHINE_SIZE,
        "hardware",
        "hardware-file",
        "dtype",
        "mfu",
        *MEASURED_TOKENS,
        "goodput",
        *OF_FAILURES,
        "phases",
        "run-kind",
        "within",
        "budget",
        "min",
        "max",
        "price",
        "power-overhead",
        "pue",
        "power",
        "carbon-intensity",
        "region",
        "flops",
        "seq",
        "target-seq",
        "assume-ignorable",
        "strict-config",
        *PREDICTING,
        "confidence",
        *PREDICTS,
        *ROLLOUT,
        "ema",
    ),
    arguments=("model",),
    reads={"max": choice("params", "tokens")},
    defaults={"power-overhead": "1.3", "pue": "1.1", "carbon-intensity": "0.385"},
    examples=(
        "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5",
        "train-time --params 70B --tokens 15T --hardware h100 --mfu 0.4 --within 30d",
        "train-time --params 70B --tokens 15T --hardware h100 --within 60d --min gpus",
        "train-time llama3-70b --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --flops palm --seq 8192",
        "train-time --params 7B --gpus 256 --hardware a100 --mfu 0.45 --price 2 --budget 2000000",
    ),
)

"""What would make a step fit, as suggestions: each verified by an evaluation of its own, with the time that it adds by
the same step model as `napkin step`."""

from __future__ import annotations

import math

from napkin.commands.memory.question import MemoryQuestion
from napkin.commands.question.setup import read_setup
from napkin.errors import NapkinError
from napkin.evidence.rates import gpus_per_node
from napkin.footprint.memory import least_states
from napkin.inputs.hardware import Hardware
from napkin.options.command_line import option_piece
from napkin.planning.remedies import TOO_LARGE, Remedy, RemedySearch, advice, remedies, with_more_gpus
from napkin.planning.remedy_axes import Options, axes
from napkin.planning.verdicts import Fit
from napkin.record import record
from napkin.render.answer import Answer, Row
from napkin.training.setup import Setup
from napkin.training.tasks import PRETRAIN


@record
class Pace:
    """Seconds of one token on the whole job, by the step model; half: half the interval of their logarithm."""

    token: float
    half: float


def suggest(answer: Answer, question: MemoryQuestion, hardware: Hardware) -> None:
    """Add what would make it fit: on the same GPUs the fastest first, in fine-tuning what people try first; then with
    more GPUs."""

    def evaluate(options: Options) -> Fit | str | None:
        try:
            setup = read_setup(question.asked.changed(options), question.model)
        except NapkinError:  # the options do not go together
            return None
        if not setup.offload and least_states(question.model, setup) > hardware.capacity:
            return TOO_LARGE
        return question.evaluate(question.model, setup)

    given = {name: one.text for name, one in question.asked.given.items() if isinstance(one.text, (str, bool))}
    search = RemedySearch(axes(question.model, question.setup, given, gpus_per_node(hardware)), evaluate)
    tuned = question.setup.task != PRETRAIN
    here = list(advice(search) if tuned else remedies(search))
    more = with_more_gpus(search, fewest=not here)
    before, why = _pace(question, {}, hardware, question.setup)
    rows = [_row(question, hardware, one, before, why) for one in here]
    if not tuned:
        rows.sort(key=_extra)
    if more is not None:
        rows.append(_row(question, hardware, more, before, why))
    answer.extra["suggestions"] = rows
    answer.extra["more_accelerators"] = rows[-1] if more is not None else None
    if not rows:
        answer.notes.append(
            "nothing that napkin tries makes it fit: recomputation, ZeRO, smaller micro-batches, parallelism, 8-bit "
            "states, offloading, shorter sequences and more GPUs, each and all together"
        )


def _extra(row: Row) -> float:
    """Return the time that a suggestion adds, for sorting: those without a prediction come last."""
    extra = row.get("extra_time")
    return extra if isinstance(extra, float) else math.inf


def _pace(question: MemoryQuestion, options: Options, hardware: Hardware, setup: Setup) -> tuple[Pace | None, str]:
    """Return what `napkin step` says of the question with these options; or why it says nothing."""
    why = _untimed(setup)
    if why:
        return None, why
    from napkin.commands.question.step_model import read_prediction

    inputs = question.asked.changed(options)
    try:
        prediction = read_prediction(inputs, question.model, setup, hardware)
    except NapkinError as problem:
        return None, problem.message
    layout = setup.layout
    half, _ = prediction.half_width(question.confidence, named="stack" in inputs)
    seconds = float(prediction.step().time.value)
    return Pace(seconds / float(layout.global_batch * layout.seq), half), ""


def _untimed(setup: Setup) -> str:
    """Return why the step model does not time a setup, else ""."""
    if setup.offload:
        return "the step model does not time transfers to the host"
    return ""


def _row(question: MemoryQuestion, hardware: Hardware, one: Remedy, before: Pace | None, why: str) -> Row:
    """Return one suggestion as a row; without extra_time, `untimed` says why."""
    row: dict[str, str | float | int | list[str]] = {
        "change": " ".join(option_piece(name, text) for name, text in one.options.items()),
        "used": int(one.fit.reported.used.value),
        "costs": list(one.costs),
        "command": question.asked.command_line("memory", one.options),
    }
    if "lora-rank" in one.options and question.setup.implementation.tuning is None:
        row["trains"] = "LoRA matrices, not all weights"
    after, problem = _pace(question, one.options, hardware, one.fit.step.setup)
    if before is None or after is None:
        return {**row, "untimed": problem or why}
    ratio, factor = after.token / before.token, math.exp(after.half)
    return {**row, "extra_time": ratio - 1, "low": ratio / factor - 1, "high": ratio * factor - 1}

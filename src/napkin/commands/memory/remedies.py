"""Suggestions that make a step fit. Each is verified by evaluating the changed step, and its extra time comes from the
step model of `napkin step`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from napkin.commands.inputs import Inputs
from napkin.commands.memory.host import holds, host_of, keeps, read_node, read_save, read_whether_kept
from napkin.commands.memory.question import MemoryQuestion
from napkin.commands.question.layout import read_whether_alone
from napkin.commands.question.setup import read_setup
from napkin.errors import NapkinError
from napkin.evidence.rates.machines import gpus_per_node
from napkin.footprint.loading import HOST, loaded_by_each
from napkin.footprint.memory import least_states
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.remedies import HOST_TOO_SMALL, TOO_LARGE, Remedy, RemedySearch, advice, remedies, with_more_gpus
from napkin.planning.remedy_axes import Axis, Options, axes
from napkin.planning.step_memory import terms_of
from napkin.planning.verdicts import FITS, Fit
from napkin.record import record, replace
from napkin.render.answer import Answer, Cell, Row
from napkin.term import Term
from napkin.training.setup import Setup

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.evidence.predictions.one_run import StepPrediction

TRAINS_LORA = "LoRA matrices, not all weights"
"""What a suggestion with LoRA trains of a question that trains every weight."""

UNSHARDED: Options = {"zero": "0", "distributed-optimizer": False}
"""No sharding of states, in the options that state it."""


@record
class Pace:
    """The step that `napkin step` predicts. token: seconds per token of the entire job; named: whether the software
    stack is stated."""

    prediction: StepPrediction
    time: Term
    token: float
    named: bool

    def half(self, level: float) -> float:
        """Return the half-width of the interval in log space."""
        return self.prediction.half_width(level, self.named, self.time)[0]


def suggest(answer: Answer, question: MemoryQuestion, hardware: Hardware) -> None:
    """Add suggestions: first those on the same GPUs, the fastest first, those with a shorter sequence after the others
    (in fine-tuning, the most common first), then those with more GPUs."""
    search = RemedySearch(
        read_axes(question.asked, question.model, question.setup, hardware),
        lambda options: evaluated(question, options, hardware),
    )
    tuned = question.setup.tunes
    here, more = read_found(question.asked, search, advice(search) if tuned else remedies(search))
    here, more = (
        [loaded(question.model, one, hardware) for one in here],
        more and loaded(question.model, more, hardware),
    )
    before, why = _pace(question, {}, hardware, question.setup)
    rows = [_row(question, hardware, one, before, why) for one in here]
    read_host_of(question.asked, search, rows)
    if not tuned:
        shorter = {id(row) for row, one in zip(rows, here, strict=True) if "seq" in one.options}
        rows.sort(key=lambda row: (id(row) in shorter, extra(row)))
    if more is not None:
        rows.append(_row(question, hardware, more, before, why))
    answer.extra["suggestions"] = rows
    answer.extra["more_accelerators"] = rows[-1] if more is not None else None
    if not rows:
        answer.notes.append(
            "nothing that napkin tries makes it fit: recomputation, ZeRO, smaller micro-batches, parallelism, 8-bit "
            "states, offloading, shorter sequences and more GPUs, each and all together"
        )


def loaded(model: Model, one: Remedy, hardware: Hardware) -> Remedy:
    """Return a suggestion whose weights wait in host memory while they are loaded, where all of them are more than a
    GPU holds before ranks divide them."""
    if loaded_by_each(model, one.fit.step.setup) <= hardware.capacity:
        return one
    return replace(one, options={**one.options, "loading": HOST})


def read_host_of(asked: Inputs, search: RemedySearch, rows: Sequence[Row]) -> None:
    """Read whether the suggestions depend on the size of host memory. If offloading was tried and no suggestion keeps
    anything there, the size is only noted: it would matter on a larger GPU."""
    if any({"offload", "rollout-offload"} & options.keys() for axis in search.axes for options in axis.levels):
        asked.minor.add("host-memory")
    read_whether_kept(asked, search.met(HOST_TOO_SMALL) or any("host" in row for row in rows))


def read_found(asked: Inputs, search: RemedySearch, found: Iterable[Remedy]) -> tuple[list[Remedy], Remedy | None]:
    """Return the suggestions for a question: those that a search found on the same GPUs, and one with more of them."""
    here = [one for one in (_read_without_idle(asked, search, one) for one in found) if one is not None]
    more = with_more_gpus(search)
    return here, None if more is None else _read_without_idle(asked, search, more)


def _read_without_idle(asked: Inputs, search: RemedySearch, one: Remedy) -> Remedy | None:
    """Return a suggestion that leaves one data-parallel rank without the given sharding, which has no effect there and
    is refused; None if it does not fit so. asked: the question."""
    layout, changed = one.fit.step.setup.layout, asked.changed(one.options)
    idle = {name: text for name, text in UNSHARDED.items() if name in changed.given}
    if layout.dp * layout.cp > 1 or not idle or read_whether_alone(changed):
        return one
    options = {**one.options, **idle}
    fit = search.evaluate(options)
    return replace(one, options=options, fit=fit) if isinstance(fit, Fit) and fit.verdict == FITS else None


def read_axes(asked: Inputs, model: Model, setup: Setup, hardware: Hardware) -> list[Axis]:
    """Return every way to reduce the memory of a step that the options leave open."""
    return axes(model, setup, read_given(asked), gpus_per_node(hardware))


def read_given(asked: Inputs) -> Options:
    """Return the texts of the given options that are one text or a flag."""
    return {name: one.text for name, one in asked.given.items() if isinstance(one.text, (str, bool))}


def evaluated(question: MemoryQuestion, options: Options, hardware: Hardware) -> Fit | str | None:
    """Return the memory of the question with these options; TOO_LARGE if its states alone are more than a GPU has,
    HOST_TOO_SMALL if only the host lacks room; None if the options cannot be combined."""
    asked = question.asked.changed(options)
    try:
        setup = read_setup(asked, question.model)
        if _shards_alone(setup, options):
            kept = {name: text for name, text in options.items() if name not in UNSHARDED}
            return evaluated(question, kept, hardware)
        setup = replace(setup, save=read_save(asked, setup), loading=HOST)  # said where it matters (_loaded)
        if not setup.offload and least_states(question.model, setup) > hardware.capacity:
            return TOO_LARGE
        return read_within_host(question.evaluate(question.model, setup), asked, hardware, question.source)
    except NapkinError:
        return None


def _shards_alone(setup: Setup, options: Options) -> bool:
    """Return whether these options shard the states of a single data-parallel rank, which holds all of them and would
    only gather them into further buffers. Offloading depends on the stage."""
    return "zero" in options and setup.layout.dp * setup.layout.cp == 1 and not setup.offload


def read_within_host(found: Fit, asked: Inputs, hardware: Hardware, source: str) -> Fit | str:
    """Return the memory of a step, or HOST_TOO_SMALL if it fits the GPU and what it keeps on the host does not fit."""
    setup = found.step.setup
    if found.verdict != FITS or not keeps(setup):
        return found
    node, there = read_node(asked, setup, hardware)
    return found if holds(terms_of(found, source), node, there) else HOST_TOO_SMALL


def extra(row: Row) -> float:
    """Return the extra time of a suggestion, for sorting; suggestions without a prediction come last."""
    extra = row.get("extra_time")
    return extra if isinstance(extra, float) else math.inf


def _pace(question: MemoryQuestion, options: Options, hardware: Hardware, setup: Setup) -> tuple[Pace | None, str]:
    """Return the pace that `napkin step` predicts with these options, or the reason why it predicts none."""
    from napkin.commands.question.step_model import read_prediction
    from napkin.commands.question.untimed import check_timed

    inputs = question.asked.changed(options)
    try:
        check_timed(inputs, setup)
        prediction = read_prediction(inputs, question.model, setup, hardware)
    except NapkinError as problem:
        return None, problem.message
    layout = setup.layout
    found = prediction.step().time
    token = float(found.value) / float(layout.global_batch * layout.seq)
    return Pace(prediction, found, token, "stack" in inputs), ""


def command_line(question: MemoryQuestion, one: Remedy) -> str:
    """Return the question with a suggestion applied, as a command line. Omitted are options of a host that keeps
    nothing, and --max of layers: a suggestion is for the model with its own layers."""
    asked = question.asked
    if not keeps(one.fit.step.setup):
        asked = Inputs(asked.command, asked.without("host-memory"))
    if question.maximize in ("layers", "params"):
        asked = Inputs(asked.command, asked.without("max"))
    return asked.command_line("memory", one.options)


def on_host(question: MemoryQuestion, one: Remedy, hardware: Hardware) -> dict[str, int]:
    """Return the bytes that a suggestion keeps in host memory of a node, and the size of that memory, if given."""
    node, there = read_node(question.asked.changed(one.options), one.fit.step.setup, hardware)
    found = host_of(terms_of(one.fit, question.source), node)
    kept = {"host": 0 if found is None else int(found.value)}
    return kept if there is None else {**kept, "host_capacity": int(there)}


def _row(question: MemoryQuestion, hardware: Hardware, one: Remedy, before: Pace | None, why: str) -> Row:
    """Return one suggestion as a row."""
    after, problem = _pace(question, one.options, hardware, one.fit.step.setup)
    extra_time = None
    if before is not None and after is not None:
        ratio, factor = after.token / before.token, math.exp(after.half(question.confidence))
        extra_time = ratio, ratio / factor, ratio * factor
    return suggestion(
        one,
        int(one.fit.reported.used.value),
        command_line(question, one),
        on_host(question, one, hardware) if "offload" in one.options else {},
        extra_time if extra_time is not None else problem or why,
        trains_all=question.setup.implementation.tuning is None,
    )


def suggestion(
    remedy: Remedy,
    used: int,
    line: str,
    host: Mapping[str, int],
    time: tuple[float, float, float] | str,
    *,
    trains_all: bool,
) -> Row:
    """Return one suggestion as a row.

    used: bytes of a GPU; line: the command that asks it; host: bytes of a node's host, and its size; time: ratio to the
    time of the question with its interval, or why it is not timed; trains_all: the question trains every weight"""
    row: dict[str, Cell] = {"change": remedy.change, "used": used, "costs": list(remedy.costs), "command": line, **host}
    if trains_all and "lora-rank" in remedy.options:
        row["trains"] = TRAINS_LORA
    if "gpus" in remedy.options:
        row["gpus"] = int(remedy.options["gpus"])
    if isinstance(time, str):
        return {**row, "untimed": time}
    ratio, low, high = time
    return {**row, "extra_time": ratio - 1, "low": low - 1, "high": high - 1}

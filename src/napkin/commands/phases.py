"""`phases:` of a run file: parts of a run with different options (a batch ramp, longer sequences, other GPUs). Each is
answered separately; times, FLOPs and costs are summed, and memory is that of the worst phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from napkin.commands.inputs import Inputs
from napkin.commands.question.price import no_price
from napkin.commands.signature import OptionText, Signature
from napkin.errors import BROKEN, CLOSE, DOES_NOT_FIT, HELD, OK, UNDECIDED, USAGE, NapkinError, Problems
from napkin.inputs.limits import LIMITED, status_of_most
from napkin.inputs.load import printable
from napkin.options.output import COMMON
from napkin.record import record, replace
from napkin.render.answer import Answer, Cell, Shown, reasons_in
from napkin.render.figures import size
from napkin.term import TRUE, Term, add, divide, largest, leaf, multiply

NAME = "phases"
MOST = 100
SUMMED = (
    *("time", "time/uninterrupted", "flops/total", "flops/exact", "tokens", "gpu_hours"),
    *("cost", "energy", "carbon", "failures"),
)
"""Quantities that are summed over the phases of a run."""
WHOLE = ("min", "max", "emit", "plot", "theme")
"""Options that have no meaning for several phases."""
UNITS = {"time": "second", "low": "second", "high": "second", "gpus": "GPU", "tokens": "token", "mfu": "1"}
UNITS |= {"gpu_hours": "GPU-hour", "cost": "USD", "memory/total": "byte"}
SEVERITY = (None, UNDECIDED, DOES_NOT_FIT)
"""Verdicts on memory, the worst last."""


@record
class PhaseText:
    """A phase as the run file states it: its name, and the options that it changes."""

    name: str
    options: Mapping[str, OptionText]


Accepted = Callable[[Mapping[str, object], Callable[[str], str]], dict[str, OptionText]]
"""Reads a mapping of options by name; the second argument returns the location of an option."""
Ask = Callable[[Mapping[str, OptionText], dict[str, NapkinError]], Answer]
"""Answers the question of a phase; the second argument collects the errors for options that have no effect in it."""


def check_has_phases(command: Signature, where: str) -> None:
    """Reject phases for a command that cannot combine them."""
    if NAME not in command.names:
        raise NapkinError(f"{where}: {command.name} has no phases", "train-time, plan, memory and lint FILE have")


def accepted_phases(value: object, place: Callable[..., str], accepted: Accepted) -> OptionText:
    """Return the `phases:` of a run file, each mapping's options by name. place: returns the location of an entry in
    the file."""
    where = place()
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise NapkinError(f"{where}: is not a list of mappings", "each has its tokens: and what it changes")
    if len(value) > MOST:
        raise NapkinError(f"{where}: has more than {MOST} entries", "join some of them")
    phases = []
    for i, one in enumerate(value):
        options = {key: text for key, text in one.items() if key != "name"}
        found = accepted(options, partial(place, i))
        for name in (*LIMITED, *WHOLE, NAME, *COMMON):
            if name in found:
                raise NapkinError(f"{place(i, name)}: belongs to the whole run", "write it next to phases:")
        phases.append(PhaseText(printable(str(one.get("name", f"phase {i + 1}")), 40), found))
    return OptionText(tuple(phases), "run file", where)


def answer_phases(command: Signature, given: Mapping[str, OptionText], ask: Ask) -> Answer:
    """Answer a question with phases."""
    stated = given[NAME]
    for name in WHOLE:
        if name in given:
            raise NapkinError(f"--{name} and phases: cannot be combined", "leave out one of the two")
    phases = parts_of(given)
    answers, unused = [], []
    for phase in phases:
        spare: dict[str, NapkinError] = {}
        try:
            answers.append(ask(phase.options, spare))
        except NapkinError as problem:
            raise problem.at(phase.name) from None
        unused.append(spare)
    stated_in = {
        name: [spare for phase, spare in zip(phases, unused, strict=True) if name in phase.options]
        for spare in unused
        for name in spare
    }
    idle = [found[0][name] for name, found in stated_in.items() if all(name in one for one in found)]
    if idle:
        raise Problems(idle) if len(idle) > 1 else idle[0]
    names = [phase.name for phase in phases]
    whole = _worst(answers, names) if command.name == "memory" else _added(command, given, answers, names)
    whole.inputs[NAME] = Shown(tuple(names), None, "derived", "1", stated.where)
    return whole


AMOUNTS = ("tokens", "steps", "samples")


def parts_of(given: Mapping[str, OptionText]) -> list[PhaseText]:
    """Return the phases of a run, each with all its options: the shared ones, overridden by its own. An amount of
    training in a phase replaces the run's. given: options, including `phases`."""
    phases = given[NAME].text
    if not isinstance(phases, tuple) or not all(isinstance(one, PhaseText) for one in phases):
        raise NapkinError("--phases: parts of a run are written in a run file", "phases: [{tokens: 1T, seq: 4096}, …]")
    shared = {name: one for name, one in given.items() if name not in (*LIMITED, NAME)}
    parts = []
    for phase in phases:
        own = any(name in phase.options for name in AMOUNTS)
        common = {name: one for name, one in shared.items() if not own or name not in AMOUNTS}
        parts.append(PhaseText(phase.name, {**common, **phase.options}))
    return parts


# --- time ------------------------------------------------------------------------------------------------------------


def _added(
    command: Signature, given: Mapping[str, OptionText], answers: Sequence[Answer], names: Sequence[str]
) -> Answer:
    """Answer with the sums over the phases."""
    found = [one.by_path() for one in answers]
    for terms, one, name in zip(found, answers, names, strict=True):
        if "time" not in terms or "reasons" in one.extra:
            raise NapkinError(
                f"{name}: {reasons_in(one) or 'it has no time'}",
                "each phase states how much it trains, as in tokens: 1T",
                status=one.status or USAGE,
            )
    sums = {path: _sum(path, found) for path in SUMMED if all(path in terms for terms in found)}
    _check_amount(given, sums)
    total = list(sums.values())
    total.append(largest("gpus", *(_gpus(one, at) for at, one in enumerate(answers))))
    if "time/uninterrupted" in sums:
        total.append(divide("goodput", sums["time/uninterrupted"], sums["time"]))
    if all("mfu" in one and "gpu_hours" in one for one in found) and _of_one_machine(answers):
        done = [multiply(f"phase/{at}/mfu_hours", one["mfu"], one["gpu_hours"]) for at, one in enumerate(found, 1)]
        total.append(divide("mfu", add("mfu_hours", *done), sums["gpu_hours"]))
    whole = Answer(command.name, total, rows=[_row(*one) for one in zip(answers, names, strict=True)])
    for path in sums:
        if all(path in one.intervals for one in answers):
            ends = [[float(one.intervals[path][end]) for one in answers] for end in (0, 1)]
            whole.intervals[path] = (sum(ends[0]), sum(ends[1]))
    whole.extra["columns"] = dict(UNITS)
    whole.inputs = dict(answers[0].inputs)
    whole.notes = list(dict.fromkeys(note for one in answers for note in one.notes))
    whole.assumed = list(dict.fromkeys(words for one in answers for words in one.assumed))
    _judge(command, given, whole, answers)
    from napkin.commands.screens.phases import screen

    whole.screen = screen(whole, answers)
    return whole


def _sum(path: str, found: Sequence[Mapping[str, Term]]) -> Term:
    return add(path, *(terms[path].renamed(f"phase/{at}/{path}") for at, terms in enumerate(found, 1)))


def _gpus(answer: Answer, at: int) -> Term:
    """Return the GPUs of a phase, which `plan` has among its inputs."""
    stated = answer.by_path().get("gpus")
    if stated is not None:
        return stated.renamed(f"phase/{at + 1}/gpus")
    shown = answer.inputs["gpus"].value
    assert isinstance(shown, int)
    return leaf(f"phase/{at + 1}/gpus", shown, "GPU")


def _of_one_machine(answers: Sequence[Answer]) -> bool:
    return len({str(one.inputs["hardware"].value) for one in answers if "hardware" in one.inputs}) == 1


def _check_amount(given: Mapping[str, OptionText], sums: Mapping[str, Term]) -> None:
    """Reject tokens of the entire run that are not the sum over the phases."""
    if "tokens" not in given or "tokens" not in sums:
        return
    from napkin.options.registry import OPTIONS

    stated = OPTIONS["tokens"].parse(str(given["tokens"].text))
    total = float(sums["tokens"].value)
    if isinstance(stated, (int, float)) and abs(total / stated - 1) > 1e-6:
        raise NapkinError(
            f"a contradiction: tokens of the run are {stated:,.0f}, and those of its phases add up to {total:,.0f}",
            "leave tokens to the phases",
        )


def _judge(command: Signature, given: Mapping[str, OptionText], whole: Answer, answers: Sequence[Answer]) -> None:
    """Judge the entire run against its deadline and budget, and report a phase that does not fit."""
    inputs = Inputs(command, {name: given[name] for name in LIMITED if name in given})
    most = {LIMITED[name]: float(inputs.number(name)) for name in LIMITED if name in given}
    if "cost" in most and "cost" not in whole.by_path():
        raise no_price()
    if most:
        whole.status = status_of_most(most, whole.quantities(), whole.intervals)
        whole.verdict = HELD[whole.status]
        whole.inputs |= inputs.shown
    worst = max((one.verdict for one in answers), key=_severity)
    if _severity(worst) > 0:
        whole.verdict = worst
        whole.status = max(whole.status, max(one.status for one in answers)) if worst == DOES_NOT_FIT else whole.status


def _severity(verdict: str | None) -> int:
    return SEVERITY.index(verdict) if verdict in SEVERITY else 0


def _row(answer: Answer, name: str) -> dict[str, Cell]:
    """Return a phase as a row."""
    terms = answer.by_path()
    row: dict[str, Cell] = {"phase": name, "gpus": _gpus(answer, 0).value}
    for option in ("seq", "global-batch"):
        if option in answer.inputs:
            row[option] = answer.inputs[option].value
    row |= {path: terms[path].value for path in ("tokens", "time", "mfu", "gpu_hours", "cost") if path in terms}
    if "tokens" not in row and "tokens" in answer.inputs:
        row["tokens"] = answer.inputs["tokens"].value
    if "time" in answer.intervals:
        row["low"], row["high"] = (float(end) for end in answer.intervals["time"])
    return row


# --- memory ----------------------------------------------------------------------------------------------------------


def _worst(answers: Sequence[Answer], names: Sequence[str]) -> Answer:
    """Answer with the phase that needs the most memory per GPU, and note what the others need."""

    def order(at: int) -> tuple[int, float]:
        terms = answers[at].by_path()
        total = float(terms["memory/total"].value) if "memory/total" in terms else 0.0
        capacity = float(terms["memory/capacity"].value) if "memory/capacity" in terms else 1.0
        return _severity(answers[at].verdict), total / capacity

    at = max(range(len(answers)), key=order)
    worst = answers[at]
    totals = [one.by_path().get("memory/total") for one in answers]
    if all(total is not None for total in totals):
        each = [f"{name} {size(total.value)}" for name, total in zip(names, totals, strict=True) if total is not None]
        said = f"the largest of {len(answers)} phases: {', '.join(each)}"
        worst.notes.insert(0, said)
        worst.terms = (
            *worst.terms,
            *(
                leaf(f"phase/{n}/memory/total", total.value, "byte", TRUE)
                for n, total in enumerate(totals, 1)
                if total is not None
            ),
        )
        shown = worst.screen
        question = [*shown.question[:1], names[at], *shown.question[1:]]
        worst.screen = replace(shown, question=question, remarks=[*shown.remarks, said])
    worst.status = next((one for one in (BROKEN, CLOSE) if any(a.status == one for a in answers)), OK)
    return worst

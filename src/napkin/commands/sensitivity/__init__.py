"""`napkin sensitivity COMMAND …`: which input changes the answer most, and where a decision flips."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence

from napkin.commands import nested_question
from napkin.commands.command import Command
from napkin.commands.compare import HEADLINES
from napkin.commands.inputs import Inputs
from napkin.commands.nested_question import Changes, Question
from napkin.commands.screens.sensitivity import screen
from napkin.commands.sensitivity.variation import Moved
from napkin.errors import NapkinError
from napkin.inputs.limits import hold
from napkin.options.option import Option
from napkin.options.output import DRAWS
from napkin.options.ranges import is_whole, written
from napkin.options.registry import OPTIONS
from napkin.planning import attribution
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series, axis, spoken, titled
from napkin.render.figures import between, share
from napkin.units import human

REACH = 64.0
"""A decision's flip is searched between 1/64 and 64 times the present value."""

Asked = Callable[[Changes, Container[str]], "Answer | None"]
"""Answers the question with these changes and these quantities; None if it is not a valid question."""


def run(inputs: Inputs) -> Answer:
    """Answer with every input varied both ways, and where a decision flips."""
    from napkin.render.progress import Progress

    with Progress("moving each input"):
        return _run(inputs)


def _run(inputs: Inputs) -> Answer:
    """Answer without a progress line."""
    command, question = nested_question.read_target(inputs)
    base = nested_question.answer_quietly(command, question)
    inputs.minor.update(question)  # the command uses them, though the quantity that is watched may not depend on them
    found = base.quantities()
    if not found:
        raise NapkinError(f"{command.name} publishes no quantity", "ask a command that does, such as train-time")
    named = nested_question.paths(inputs.text_or_none("show"), list(found))
    if named and len(named) > 1:
        raise NapkinError("--show: one quantity is watched at a time", f"--show {named[0]}")
    path = named[0] if named else _headline(base, found)
    inputs.default("show", path)
    value, unit = found[path]
    change = inputs.number("change")

    def asked(changes: Changes, read: Container[str]) -> Answer | None:
        try:
            return nested_question.answer_quietly(command, nested_question.changed(question, changes), read, {})
        except NapkinError:
            return None

    varied = _varied(command, question, base, inputs.text_or_none("vary"))
    decide = _decision(inputs.text_or_none("limit"), inputs.text_or_none("against"), command, asked, base, path)
    moved: list[Moved] = []
    for name, now in varied.items():
        one = _moved(asked, OPTIONS[name], now, _reach(base, name, now, change), path, value)
        if one is None:
            continue
        one = replace(one, estimated=_interval_of(base, name) is not None)
        flip = None if decide is None else _flip(decide, OPTIONS[name], now)
        if one.swing > attribution.ROUNDING * abs(value) or flip is not None:
            moved.append(replace(one, flip=flip))
    moved.sort(key=lambda one: -one.swing)
    answer = Answer(
        inputs.command.name,
        terms=[one for one in base.terms if one.name == path],
        rows=[one.row(decide is not None) for one in moved],
        inputs=base.inputs,
        notes=[*base.notes, *_remarks(path, [name for name in varied if name in question], moved)],
        verdict=decide({}) if decide is not None else None,
    )
    asked_for = [f"Sensitivity of {path} in {command.name}", f"each input by ±{share(float(change))}"]
    asked_for += [f"estimated {one.option.name} over its interval" for one in moved if one.estimated]
    asked_for += [inputs.text(name) for name in ("limit", "against") if inputs.has(name)]
    answer.screen = screen(asked_for, path, value, unit, moved, answer.verdict)
    answer.extra["columns"] = {"at_low": unit, "at_high": unit, "swing": unit}
    answer.plot = _charts(command, moved, path, value, unit)
    nested_question.record_as_answered(inputs, answer)
    return answer


def _headline(base: Answer, found: Container[str]) -> str:
    """Return the quantity to watch: what was solved for, else the first headline."""
    solved = [name for name, shown in base.inputs.items() if shown.origin == "solved"]
    answers = [path for name in solved for path in (f"{name}/exact", f"max/{name}", name)]
    return next(path for path in (*answers, *HEADLINES, *base.quantities()) if path in found)


def _remarks(path: str, given: Sequence[str], moved: Sequence[Moved]) -> Iterator[str]:
    """Yield notes on given inputs without effect, and on inputs with a special range; given: the varied ones."""
    effective = {one.option.name for one in moved}
    still = [f"--{name}" for name in given if name not in effective]
    if still:
        yield f"{', '.join(still)}: {path} does not depend on {'it' if len(still) == 1 else 'them'}"
    jumped = [one.option.name for one in moved if one.jump]
    if jumped:
        yield f"{', '.join(jumped)}: only halving and doubling give valid questions, so they are varied further"
    over = [one.option.name for one in moved if one.estimated]
    if over:
        yield f"{', '.join(over)}: estimated, and moved over the interval of the estimate"


def _varied(command: Command, question: Question, base: Answer, only: str | None) -> dict[str, float]:
    """Return every numeric input, and the accelerator's figures, with its current value in base units."""
    numbers = {
        name: shown.value
        for name, shown in base.inputs.items()
        if name in command.names
        and isinstance(shown.value, (int, float))
        and not isinstance(shown.value, bool)
        and shown.value > 0
        and shown.origin != "solved"
    }
    if command.figures and "hardware" in base.inputs:
        numbers |= _figures(command, question)
    if only is None:
        return numbers
    wanted = [nested_question.option_of(command, word, "--vary").name for word in only.split(",")]
    for name in wanted:
        if name not in numbers:
            raise NapkinError(f"--vary: {name} is not a number in this question", f"one of {', '.join(numbers)}")
    return {name: numbers[name] for name in wanted}


def _figures(command: Command, question: Question) -> dict[str, float]:
    """Return the accelerator's figures by their options' names."""
    from napkin.commands.question.machine import FIELDS, read_base_dtype, read_hardware
    from napkin.evidence.rates.machines import is_bridge_unstated, link_of

    resolved = Inputs(command, question)
    hardware = read_hardware(resolved, ())
    if is_bridge_unstated(hardware):
        hardware = replace(hardware, link_bandwidth=link_of(hardware)[0])
    figures: dict[str, float] = {"peak-flops": hardware.peak(read_base_dtype(resolved, hardware))}
    figures |= {
        name: hardware.capacity if name == "memory-size" else getattr(hardware, field) for name, field in FIELDS.items()
    }
    return {name: figure for name, figure in figures.items() if figure}


def _reach(base: Answer, name: str, now: float, change: float) -> tuple[float, float]:
    """Return how far to vary an input: an estimate over its interval, others by a share of their value."""
    ends = _interval_of(base, name)
    return ends or (now * (1 - change), now * (1 + change))


def _interval_of(base: Answer, name: str) -> tuple[float, float] | None:
    """Return the interval of an estimated input; None for all others."""
    if name not in base.inputs or base.inputs[name].origin != "evidence":
        return None
    ends = base.intervals.get(name.replace("-", "_"))
    return None if ends is None else (float(ends[0]), float(ends[1]))


def _moved(
    asked: Asked, option: Option, now: float, reach: tuple[float, float], path: str, value: float
) -> Moved | None:
    """Return the answers with one input at each end of its range; halved and doubled if a small change is not a valid
    question."""
    whole = is_whole(option)
    ends: dict[str, tuple[float, float] | None] = {}
    jump = False
    for end, near, far in (("low", reach[0], now / 2), ("high", reach[1], now * 2)):
        ends[end] = None
        for step, further in ((near, False), (far, True)):
            there = round(step) if whole else step
            if there == now or there <= 0 or (whole and further and step != there):
                continue
            answer = asked({option.name: written(option, there)}, {path})
            found = {} if answer is None else answer.quantities()
            if path in found:
                ends[end] = (there, found[path][0])
                jump = jump or further
                break
    low, high = ends["low"], ends["high"]
    if low is None and high is None:
        return None
    reached = [value, *(end[1] for end in (low, high) if end)]
    (x0, y0), (x1, y1) = low or (now, value), high or (now, value)
    elasticity = math.log(y1 / y0) / math.log(x1 / x0) if y0 > 0 and y1 > 0 else None
    return Moved(option, now, low, high, max(reached) - min(reached), elasticity, jump)


Decision = Callable[[Changes], "str | None"]


def _decision(
    limit: str | None, against: str | None, command: Command, asked: Asked, base: Answer, path: str
) -> Decision | None:
    """Return the decision function of changed inputs: the outcome of a limit, the smaller side, or the verdict. Each
    requests only the quantities that it needs: a verdict none, or `path` if the command gives a verdict only with
    it."""
    if limit is not None and against is not None:
        raise NapkinError("--limit and --against are two decisions", "ask one at a time")
    if limit is not None:
        name, _, condition = limit.partition(" ")

        def held(changes: Changes) -> str | None:
            answer = asked(changes, {name})
            if answer is None or name not in answer.quantities():
                return None
            outcomes, problems = hold({name: condition}, answer.quantities(), answer.intervals, {name: "--limit"})
            if problems:
                raise problems[0]
            return outcomes[0].status

        _, wrong = hold({name: condition}, base.quantities(), base.intervals, {name: "--limit"})
        if wrong:
            raise wrong[0]
        return held
    if against is not None:
        other = nested_question.assignments(against, command, "--against")

        def less(changes: Changes) -> str | None:
            first = asked(changes, {path})
            second = asked({**changes, **other}, {path})
            if first is None or second is None:
                return None
            a, b = first.quantities().get(path), second.quantities().get(path)
            if a is None or b is None:
                return None
            return "as given is lower" if a[0] < b[0] else f"{against} is lower" if b[0] < a[0] else "equal"

        return less

    if base.verdict is None:
        return None
    reads: tuple[tuple[str, ...], ...] = ((), (path,))
    return next((judged for judged in (_judged(asked, read) for read in reads) if judged({}) is not None), None)


def _judged(asked: Asked, read: Container[str]) -> Decision:
    """Return the decision function that uses the verdict of an answer with these quantities."""
    return lambda changes: getattr(asked(changes, read), "verdict", None)


def _flip(decide: Decision, option: Option, now: float) -> attribution.Flip | None:
    """Return the nearest value of one input at which the decision changes."""
    whole = is_whole(option)
    low = max(1, round(now / REACH)) if whole else now / REACH
    high = round(now * REACH) if whole else now * REACH
    return attribution.flip(lambda x: decide({option.name: written(option, x)}), now, low, high, whole)


def _charts(command: Command, moved: list[Moved], path: str, value: float, unit: str) -> list[Chart]:
    """Draw a tornado: the answer with each input lowered and raised, the widest bar on top."""
    moving = [one for one in moved if one.swing]
    if not moving:
        return []
    ends = [end for one in moving for end in (one.low, one.high) if end is not None]
    scale, name = axis([value, *(reached for _, reached in ends)], unit)
    names = [_reached(one) for one in moving]
    low = Series("input lower", names, [(one.low[1] if one.low else value) / scale for one in moving])
    high = Series("input higher", names, [(one.high[1] if one.high else value) / scale for one in moving])
    bars = [low, high]
    return [
        Chart(
            "tornado",
            f"what moves {spoken(path)} most ({command.name})",
            titled(spoken(path), name),
            "",
            bars,
            middle=value / scale,
        )
    ]


def _reached(one: Moved) -> str:
    """Return an input with the ends of its range: `mfu 0.25 to 0.6`."""
    ends = [end[0] for end in (one.low, one.high) if end is not None]
    said = between(ends[0], ends[-1], one.option.unit) if len(ends) > 1 else human(ends[0], one.option.unit)
    return f"{spoken(one.option.name)}\n{said}"


COMMAND = Command(
    "sensitivity",
    "Rank the inputs by their effect on an answer (tornado), and find where a decision flips",
    run,
    brief="Rank the inputs by their effect on an answer",
    options=("change", "vary", "limit", "against", "show", *DRAWS),
    defaults={"change": "10%"},
    examples=(
        "sensitivity train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --limit 'time <= 150d'",
    ),
)

"""`napkin sweep COMMAND … --over OPTION=VALUES`: any question over a list or range of one option, or of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from napkin.commands import nested_question
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.screens.sweep import chosen, screen
from napkin.commands.sweep.point import Point, value_of
from napkin.errors import NapkinError, Problems
from napkin.options.option import Option
from napkin.options.output import DRAWS
from napkin.options.ranges import MOST_VALUES, values
from napkin.record import record
from napkin.render.answer import Answer, Row, Shown, end_path, is_end
from napkin.render.chart import Chart, Series, axis, spoken, titled
from napkin.render.page import WORDS, either

Axis = tuple[Option, list[str] | list[bool]]
MOST_NUMBERS = 30_000
"""Maximum numbers in all rows together: what fits in 1 MB of JSON."""


def run(inputs: Inputs) -> Answer:
    """Answer for every value of one option, or of two."""
    command, question = nested_question.read_target(inputs)
    over = _axis(command, inputs.text("over", "an option and its values"), "--over")
    by = None if not inputs.has("by") else _axis(command, inputs.text("by"), "--by")
    if by is not None and by[0].name == over[0].name:
        raise NapkinError(f"--by: {by[0].name} is swept already", "name another option")
    questions = len(over[1]) * (len(by[1]) if by else 1)
    if questions > MOST_VALUES:
        raise NapkinError(f"the sweep has more than {MOST_VALUES:,} questions", "take larger steps")
    for option, _ in (over, *([by] if by else [])):
        if option.name in question:
            inputs.note(f"{option.shown} {question[option.name].text} is replaced by the values that are swept")
    points: list[Point] = []
    answered = False
    unused: list[dict[str, NapkinError]] = []
    lines = [{by[0].name: line} for line in by[1]] if by else [{}]
    for line in lines:
        for value in over[1]:
            changes = {**line, over[0].name: value}
            spare: dict[str, NapkinError] = {}
            unused.append(spare)
            try:
                asked = nested_question.changed(question, changes)
                points.append(Point(changes, nested_question.answer_quietly(command, asked, spare=spare)))
            except NapkinError as problem:
                points.append(Point(changes, None, problem))
            if points[-1].answer is not None and not answered:
                answered = True
                _refuse_too_many(questions, len(points[-1].quantities), inputs.text_or_none("show"))
    _refuse_unused([spare for spare, point in zip(unused, points, strict=True) if point.answer is not None])
    found = _answer(inputs.command.name, command, [over, *([by] if by else [])], points, inputs.text_or_none("show"))
    nested_question.record_as_answered(inputs, found)
    return found


def _refuse_too_many(questions: int, quantities: int, show: str | None) -> None:
    """Reject a sweep with more numbers than an answer can hold."""
    each = show.count(",") + 1 if show else quantities
    if questions * each > MOST_NUMBERS:
        fewer = f"take larger steps (at most {MOST_NUMBERS // each:,} questions)"
        raise NapkinError(
            f"the sweep asks {questions:,} questions of {each} quantities each, more than one answer holds",
            fewer if show else f"{fewer}, or choose quantities with --show",
        )


def _refuse_unused(unused: Sequence[Mapping[str, NapkinError]]) -> None:
    """Reject options that have no effect in any of the questions."""
    everywhere = [problem for name, problem in (unused[0] if unused else {}).items() if all(name in u for u in unused)]
    if everywhere:
        raise Problems(everywhere) if len(everywhere) > 1 else everywhere[0]


def _axis(command: Command, text: str, where: str) -> Axis:
    """Read OPTION=VALUES."""
    name, equals, listed = text.partition("=")
    if not equals:
        raise NapkinError(f"{where}: {text[:60]!r} is not OPTION=VALUES", "for example --over mfu=0.3..0.6:0.05")
    option = nested_question.option_of(command, name, where)
    return option, values(option, listed, where)


def _answer(name: str, command: Command, axes: Sequence[Axis], points: Sequence[Point], show: str | None) -> Answer:
    """Answer with a row for each point; name: that of the sweep; show: requested paths."""
    answers = [point.answer for point in points if point.answer is not None]
    if not answers:
        raise points[0].problem or NapkinError(f"{command.name} gave no answer")
    found = [point.quantities for point in points]
    units = {path: unit for one in found for path, (_, unit) in one.items()}
    if not units:
        raise NapkinError(f"{command.name} publishes no quantity", "ask a command that does, such as train-time")
    options = [option for option, _ in axes]
    swept = [option.name for option in options]
    named = nested_question.paths(show, list(units))
    answered = [one for one in found if one]
    moving = [p for p in units if p not in swept and len({one[p][0] if p in one else None for one in answered}) > 1]
    moving = _without_swept(moving, options, points) or moving
    kept = named or moving or [next(iter(units))]
    verdicts = any(answer.verdict for answer in answers)
    fits = any("fit" in answer.extra for answer in answers)
    failed = len(answers) < len(points)
    shown = chosen(kept, bool(named), points)
    rows: list[Row] = []
    for point, got in zip(points, found, strict=True):
        verdict = {"verdict": point.answer.verdict if point.answer is not None else None} if verdicts else {}
        verdict |= {"fit": point.fit} if fits else {}
        why = {"why": point.problem.message if point.problem is not None else None} if failed else {}
        numbers = {path: got[path][0] if path in got else None for path in kept}
        rows.append({**{one.name: point.value(one) for one in options}, **numbers, **verdict, **why})
    more = len([path for path in kept if not is_end(path)]) - len(shown)
    result = Answer(name, rows=rows, screen=screen(command.name, points, shown, more, swept))
    result.extra["columns"] = {**{option.name: option.unit for option in options}, **{p: units[p] for p in kept}}
    result.inputs = {name: one for name, one in _inputs(answers).items() if name not in swept}
    guessed = {name: one.value for name, one in result.inputs.items() if one.origin == "assumed" and name not in WORDS}
    result.assumed = [f"{name} {either(value)}" for name, value in guessed.items()]
    for option, listed in axes:
        result.inputs[option.name] = Shown([value_of(option, v) for v in listed], None, "given", option.unit)
    result.notes = list(dict.fromkeys(note for answer in answers for note in answer.notes))
    charts = Panels(command.name, options[0], options[1] if len(options) > 1 else None, points, frozenset(kept))
    result.plot = [charts.of(path, units[path]) for path in shown]
    return result


def _without_swept(paths: Sequence[str], options: Sequence[Option], points: Sequence[Point]) -> list[str]:
    """Return the quantities that are not a swept option again (`flops/total` over --compute)."""
    given = [[point.value(option) for point in points] for option in options]
    return [path for path in paths if [point.quantities.get(path, (None,))[0] for point in points] not in given]


def _inputs(answers: Sequence[Answer]) -> dict[str, Shown]:
    """Return the inputs of all answers, except solved ones; a default that differs between them has all its values."""
    found: dict[str, Shown] = {}
    for name in dict.fromkeys(name for answer in answers for name in answer.inputs):
        shown = [answer.inputs[name] for answer in answers if name in answer.inputs]
        shown = [one for one in shown if one.origin != "solved"]
        if not shown:
            continue
        values = list({str(one.value): one.value for one in shown}.values())
        guessed = next((one for one in shown if one.origin == "assumed"), shown[0])
        found[name] = shown[0] if len(values) == 1 else Shown(values, None, guessed.origin, guessed.unit)
    return found


CAPACITY, HELD = "memory/capacity", ("memory/total", "memory/used", "memory/reserved")
"""The capacity of a GPU, and the quantities that it limits."""


@record
class Panels:
    """Panels of a sweep over one option, with a line for each value of another: lines over numbers, bars over words.
    kept: the quantities in the answer's rows."""

    title: str
    over: Option
    by: Option | None
    points: Sequence[Point]
    kept: frozenset[str]

    def of(self, path: str, unit: str) -> Chart:
        """Return the panel of one quantity."""
        known = [point for point in self.points if path in point.quantities]
        values = [float(point.quantities[path][0]) for point in known]
        y_scale, y_unit = axis(values, unit)
        numbers = self._numbers()
        x_scale, x_unit = (1.0, "") if numbers is None else axis(map(float, numbers.values()), self.over.unit)
        everywhere = self.kept.intersection(*(point.quantities for point in self.points))
        ends = [end for end in _ends(path) if end in everywhere]
        groups: dict[str, list[Point]] = {}
        for point in known:
            name = "" if self.by is None else f"{spoken(self.by.name)} {point.value(self.by)}"
            groups.setdefault(name, []).append(point)
        series = []
        for name, mine in groups.items():
            band = [[p.quantities[end][0] / y_scale for p in mine] for end in ends] if len(ends) == 2 else [(), ()]
            words = [str(p.value(self.over)).lower() for p in mine]
            x = words if numbers is None else [numbers[id(p)] / x_scale for p in mine]
            series.append(Series(name or spoken(path), x, [p.quantities[path][0] / y_scale for p in mine], *band))
        lines = numbers is not None and len(set(numbers.values())) > 1
        return Chart(
            "lines" if lines else "bars",
            f"{spoken(path)} by {spoken(self.over.name)} ({self.title})",
            titled(spoken(self.over.name), x_unit),
            titled(spoken(path), y_unit),
            series,
            marks=self._capacity(path, y_scale),
            log_x=lines and numbers is not None and (_spread(at := list(numbers.values())) or _multiplied(at)),
            log_y=lines and _spread(values),
        )

    def _capacity(self, path: str, scale: float) -> list[tuple[float, str]]:
        """Return the line of a GPU's capacity, if its memory is drawn and the capacity is the same at every point."""
        found = {point.quantities[CAPACITY][0] for point in self.points if CAPACITY in point.quantities}
        if path not in HELD or len(found) != 1:
            return []
        (capacity,) = found
        return [(float(capacity) / scale, f"capacity {float(capacity) / scale:.1f}")]

    def _numbers(self) -> dict[int, int | float] | None:
        """Return the value of `over` by point if all are numbers; empty otherwise."""
        found: dict[int, int | float] = {}
        for point in self.points:
            value = point.value(self.over)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return None
            found[id(point)] = value
        return found


def _ends(path: str) -> tuple[str, str]:
    return end_path(path, "low"), end_path(path, "high")


def _spread(values: Sequence[float]) -> bool:
    """Return whether a logarithmic axis is better: all values above 0, the largest far above the smallest."""
    return bool(values) and min(values) > 0 and max(values) >= 16 * min(values)


def _multiplied(values: Sequence[float]) -> bool:
    """Return whether values form a geometric series: 8, 16, 32."""
    found = sorted(set(values))
    ratios = [b / a for a, b in pairwise(found) if a > 0]
    return len(found) > 2 and len(ratios) == len(found) - 1 and max(ratios) < 1.001 * min(ratios)


COMMAND = Command(
    "sweep",
    "Repeat a question over a list or range of values, as a table (--csv, --markdown, --json) or a plot",
    run,
    brief="Repeat a question over a range of values: a table or a plot",
    options=("over", "by", "show", *DRAWS),
    examples=(
        "sweep train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --over mfu=0.3..0.6:0.05",
        "sweep train-time --params 70B --tokens 15T --hardware h100 --over gpus=256..16384 --by mfu=0.4,0.5",
        "sweep train-time --params 70B --tokens 15T --gpus 1024 --mfu 0.4 --over hardware=a100,h100,b200",
    ),
)

"""`napkin sweep COMMAND … --over OPTION=VALUES`: any question over a list or range of one option, or of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from napkin.commands import wrapped
from napkin.commands.command import Command, Inputs
from napkin.errors import NapkinError
from napkin.options.option import Option
from napkin.options.output import DRAWS
from napkin.options.ranges import MOST_VALUES, values
from napkin.render.answer import Answer, Shown
from napkin.render.chart import Chart, Series
from napkin.render.scale import axis, titled
from napkin.units import human

_COLUMNS = 5
"""Quantities that a person is shown where none is named; --csv and --json have all that change."""

Axis = tuple[Option, list[Any]]
Point = tuple[dict[str, Any], "Answer | NapkinError"]


def run(inputs: Inputs) -> Answer:
    """Answer for every value of one option, or of two."""
    command, question = wrapped.read_target(inputs)
    over = _axis(command, inputs.need("over", "an option and its values"), "--over")
    by = None if inputs.get("by") is None else _axis(command, inputs.get("by"), "--by")
    if by is not None and by[0].name == over[0].name:
        raise NapkinError(f"--by: {by[0].name} is swept already", "name another option")
    if len(over[1]) * (len(by[1]) if by else 1) > MOST_VALUES:
        raise NapkinError(f"the sweep asks more than {MOST_VALUES:,} questions", "take larger steps")
    points: list[Point] = []
    for line in by[1] if by else (None,):
        for value in over[1]:
            changes = {over[0].name: value} if by is None else {by[0].name: line, over[0].name: value}
            try:
                points.append((changes, wrapped.answer_quietly(command, wrapped.changed(question, changes))))
            except NapkinError as problem:
                points.append((changes, problem))
    return _answer(inputs.command.name, command, [over, *([by] if by else [])], points, inputs.get("show"))


def _axis(command: Command, text: str, where: str) -> Axis:
    """Read OPTION=VALUES."""
    name, equals, listed = text.partition("=")
    if not equals:
        raise NapkinError(f"{where}: {text[:60]!r} is not OPTION=VALUES", "for example --over mfu=0.3..0.6:0.05")
    option = wrapped.option_of(command, name, where)
    return option, values(option, listed, where)


def _answer(name: str, command: Command, axes: Sequence[Axis], points: Sequence[Point], show: str | None) -> Answer:
    """Answer with a row for each point; name: of the sweep; show: paths asked for."""
    answers = [answer for _, answer in points if isinstance(answer, Answer)]
    if not answers:
        problem = points[0][1]
        assert isinstance(problem, NapkinError)
        raise problem
    found = [answer.quantities() for answer in answers]
    units = {path: unit for one in found for path, (_, unit) in one.items()}
    if not units:
        raise NapkinError(f"{command.name} publishes no quantity", "ask a command that does, such as train-time")
    swept = [option.name for option, _ in axes]
    named = wrapped.paths(show, list(units))
    moving = [p for p in units if p not in swept and len({one[p][0] if p in one else None for one in found}) > 1]
    kept = named or moving or [next(iter(units))]
    rows, display = [], []
    verdicts = any(answer.verdict for answer in answers)
    failed = len(answers) < len(points)
    shown = [p for p in kept if named or p.rpartition("/")[2] not in ("low", "high")][: None if named else _COLUMNS]
    for changes, answer in points:
        row = {option.name: _value(option, changes[option.name]) for option, _ in axes}
        shown_as = {option.name: str(changes[option.name]).lower().strip() for option, _ in axes}
        values = answer.quantities() if isinstance(answer, Answer) else {}
        row |= {path: values[path][0] if path in values else None for path in kept}
        shown_as |= {path: human(*values[path]) if path in values else "–" for path in shown}
        if verdicts:
            row["verdict"] = answer.verdict if isinstance(answer, Answer) else None
            shown_as["verdict"] = row["verdict"] or ""
        if failed:
            row["why"] = answer.message if isinstance(answer, NapkinError) else None
            shown_as["why"] = row["why"] or ""
        rows.append(row)
        display.append(shown_as)
    text = " and ".join(f"{option.name} ({len(values)} values)" for option, values in axes)
    result = Answer(name, f"{command.name} over {text}", rows=rows, display=display)
    result.extra["units"] = {**{option.name: option.unit for option, _ in axes}, **{p: units[p] for p in kept}}
    result.extra["columns"] = result.extra["units"]
    result.inputs = {
        option: one for option, one in answers[0].inputs.items() if option not in swept and one.origin != "solved"
    }
    for option, listed in axes:
        result.inputs[option.name] = Shown([_value(option, v) for v in listed], None, "given", option.unit)
    result.notes = list(dict.fromkeys(note for answer in answers for note in answer.notes))
    hidden = len([p for p in kept if p.rpartition("/")[2] not in ("low", "high")]) - len(shown)
    if hidden > 0:
        result.notes.append(f"{hidden} more quantities change; --show names them, --csv and --json have all")
    result.plot = _charts(result, command, axes, shown)
    return result


def _value(option: Option, text: Any) -> Any:
    return text if option.flag else option.parse(str(text))


def _charts(answer: Answer, command: Command, axes: Sequence[Axis], shown: list[str]) -> list[Chart]:
    """Draw a panel for each quantity that is shown: lines over numbers, bars over words."""
    rows, units = answer.rows or [], answer.extra["units"]
    over = axes[0][0]
    by = axes[1][0] if len(axes) > 1 else None
    xs = [row[over.name] for row in rows]
    numeric = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in xs)
    x_scale, x_unit = axis([float(x) for x in xs], over.unit) if numeric else (1.0, "")
    charts = []
    for path in shown:
        y_scale, y_unit = axis([float(r[path]) for r in rows if r[path] is not None], units[path])
        groups: dict[str, list[Any]] = {}
        for row in rows:
            if row[path] is not None:
                groups.setdefault("" if by is None else f"{by.name} {row[by.name]}", []).append(row)
        ends = [end for end in _ends(path) if all(end in row and row[end] is not None for row in rows)]
        series = []
        for name, mine in groups.items():
            band = [[row[end] / y_scale for row in mine] for end in ends] if len(ends) == 2 else [(), ()]
            x = [row[over.name] / x_scale if numeric else str(row[over.name]).lower() for row in mine]
            series.append(Series(name or path, x, [row[path] / y_scale for row in mine], *band))
        drawn = "lines" if numeric and len(set(xs)) > 1 else "bars"
        charts.append(
            Chart(
                drawn,
                f"{command.name}: {path} over {over.name}",
                titled(over.name, x_unit),
                titled(path, y_unit),
                series,
                log_x=drawn == "lines" and _spread(xs),
                log_y=drawn == "lines" and _spread([row[path] for row in rows if row[path] is not None]),
            )
        )
    return charts


def _ends(path: str) -> tuple[str, str]:
    from napkin.render.answer import end_path

    return end_path(path, "low"), end_path(path, "high")


def _spread(values: Sequence[Any]) -> bool:
    """Whether a logarithmic axis shows more: everything above 0, the largest far above the smallest."""
    return bool(values) and min(values) > 0 and max(values) >= 16 * min(values)


COMMAND = Command(
    "sweep",
    "Any question over a list or range of an option, as a table (--csv, --markdown, --json) or a plot",
    run,
    options=("over", "by", "show", *DRAWS),
    examples=(
        "sweep train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --over mfu=0.3..0.6:0.05",
        "sweep train-time --params 70B --tokens 15T --hardware h100 --over gpus=256..16384 --by mfu=0.4,0.5",
        "sweep train-time --params 70B --tokens 15T --gpus 1024 --mfu 0.4 --over hardware=a100,h100,b200",
    ),
)

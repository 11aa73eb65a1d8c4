"""`napkin compare`: two runs, models or machines, and what each difference contributes to time, memory and cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from napkin import term
from napkin.commands import wrapped
from napkin.commands.command import Command, find
from napkin.commands.inputs import Inputs, OptionText
from napkin.commands.wrapped import Question
from napkin.elementwise import ratio
from napkin.errors import NapkinError
from napkin.options.files import DRAWS
from napkin.options.layout import DEGREES
from napkin.planning import attribution
from napkin.record import record
from napkin.render.answer import Answer, Quantities
from napkin.render.chart import Chart, Series
from napkin.render.scale import axis, titled
from napkin.units import human

HEADLINES = ("time", "step/time", "memory/total", "cost", "energy", "mfu", "params/total", "flops/total")
"""What is explained where no quantity is named: the first three that both answers have and that differ."""
SHAPLEY = "Shapley 1953, A Value for n-Person Games: the mean over all orders in which the differences can be made"

Names = tuple[str, ...]


@record
class Contribution:
    """What one difference adds to each quantity: its name, the text on either side, path → what it adds."""

    name: str
    a: str
    b: str
    adds: Mapping[str, float]


def run(inputs: Inputs) -> Answer:
    """Answer for two sides, or for one question and what is different in the other."""
    sides = inputs.texts("sides")
    if len(sides) == 2 and all(_is_profile(word) for word in sides):
        return wrapped.answer_quietly(find("bench"), {"what": OptionText(["compare", *sides])})
    inputs.because(("against",), "two sides are named", "compare COMMAND … --against NAME=VALUE")
    command, a, b, names = _read_sides(inputs)
    first, second = _side(command, a, names[0]), _side(command, b, names[1])
    have, get = first.quantities(), second.quantities()
    shared = [path for path in have if path in get]
    if not shared:
        raise NapkinError(f"the two answers of {command.name} share no quantity", "compare answers of the same kind")
    differing = [name for name in dict.fromkeys((*a, *b)) if _text(a, name) != _text(b, name)]
    named = wrapped.paths(inputs.text_or_none("show"), shared)
    moved = [p for p in shared if have[p][0] != get[p][0]]
    shown = named or [p for p in HEADLINES if p in moved][:3] or moved[:3] or shared[:1]
    parts, exact = _contributions(command, a, b, differing, shown)
    answer = Answer(inputs.command.name, f"{command.name}: {names[0]} (A) against {names[1]} (B)")
    if parts:
        answer.terms = tuple(_change(path, have[path][1], parts, i) for i, path in enumerate(shown))
    steps = [
        Contribution(
            ", ".join(part),
            ", ".join(_text(a, name, first) for name in part),
            ", ".join(_text(b, name, second) for name in part),
            dict(zip(shown, adds, strict=True)),
        )
        for part, adds in parts.items()
    ]
    answer.rows = [{"difference": one.name, "a": one.a, "b": one.b, **one.adds} for one in steps]
    answer.extra["quantities"] = [
        {"path": p, "unit": have[p][1], "a": have[p][0], "b": get[p][0], "ratio": float(ratio(get[p][0], have[p][0]))}
        for p in shared
    ]
    answer.units = {path: have[path][1] for path in shown}
    answer.extra["columns"] = answer.units
    several = len(parts) > 1
    answer.display = _waterfall_rows(steps, have, get, shown) if several else _side_by_side(have, get, named or shared)
    if not exact:
        answer.notes.append(f"{len(parts)} differences: contributions are means over {attribution.SAMPLED} orders")
    for part in parts:
        if len(part) > 1:
            answer.notes.append(f"{', '.join(part)} count as one difference: they cannot be changed separately")
    for side, one in (("A", first), ("B", second)):
        answer.notes += [note for note in one.notes if note not in answer.notes]
        if one.verdict:
            answer.notes.append(f"{side}: {one.verdict}")
    answer.plot = [_chart(command, steps, path, have[path]) for path in shown] if steps else []
    return answer


def _read_sides(inputs: Inputs) -> tuple[Command, Question, Question, tuple[str, str]]:
    """Return what is asked twice: from --against, or from two words."""
    if inputs.command.target:
        command, a = wrapped.read_target(inputs)
        changes = wrapped.assignments(inputs.text("against", "what is different?"), command, "--against")
        b = wrapped.changed(a, changes)
        return command, a, b, ("as given", ", ".join(f"{name} {text}" for name, text in changes.items()))
    sides = inputs.texts("sides")
    if len(sides) != 2:
        raise NapkinError(
            f"compare takes two sides, not {len(sides)}",
            "napkin compare a.yaml b.yaml, or compare train-time … --against",
        )
    first, second = sides
    command, a = _word(first)
    other, b = _word(second)
    if command.name != other.name:
        raise NapkinError(f"{first} asks {command.name}, {second} asks {other.name}", "compare like with like")
    return command, a, b, (first, second)


def _word(word: str) -> tuple[Command, Question]:
    """Return a run file, an accelerator or a model as a question."""
    from napkin.commands import runfile
    from napkin.inputs import hardware
    from napkin.inputs.load import printable
    from napkin.inputs.presets import preset

    if word.endswith((".yaml", ".yml")) and os.path.isfile(word):
        document = runfile.read(word)
        stated = document.data.get("command")
        if isinstance(stated, str):
            command = find(stated)
            return command, runfile.options_of(document, document.data, (), command)
    try:
        hardware.find(word)
    except NapkinError as no_hardware:
        if not os.path.exists(word):
            try:
                preset(word)
            except NapkinError as no_model:
                near = [p.hint for p in (no_hardware, no_model) if p.hint and p.hint.startswith("did you mean")]
                known = "napkin hardware and napkin models list the names"
                raise NapkinError(
                    f"{printable(word, 60)!r} is no run file, accelerator, model or profile", near[0] if near else known
                ) from None
        command = find("params")
        return command, {"model": OptionText(word)}
    return find("hardware"), {"accelerator": OptionText(word)}


def _is_profile(word: str) -> bool:
    """Whether the word names a profile of `napkin bench`; those are told apart by its own statistics."""
    from napkin.inputs.load import read_json
    from napkin.inputs.profile_cases import KIND

    if not (word.endswith(".json") and os.path.isfile(word)):
        return False
    data = read_json(word).data
    return isinstance(data, dict) and data.get("kind") == KIND


def _side(command: Command, question: Question, name: str) -> Answer:
    try:
        return wrapped.answer_quietly(command, question)
    except NapkinError as problem:
        raise problem.at(name) from None


def _text(question: Question, name: str, answer: Answer | None = None) -> str:
    """Return an option as it was given; else as the answer resolved it."""
    if name in question:
        text = question[name].text
    else:
        text = answer.inputs[name].value if answer is not None and name in answer.inputs else "–"
    return ("yes" if text else "no") if isinstance(text, bool) else str(text)


def _contributions(
    command: Command, a: Question, b: Question, differing: Sequence[str], shown: Sequence[str]
) -> tuple[dict[Names, tuple[float, ...]], bool]:
    """Return what each difference adds to each quantity: singly if that can be asked, else the layout or all as one."""
    layout = tuple(name for name in differing if name in DEGREES)
    rest = [(name,) for name in differing if name not in DEGREES]
    singly = [(name,) for name in differing]
    together = [tuple(differing)] if differing else []
    for parts in (singly, [layout, *rest] if len(layout) > 1 else singly, together):

        def ask(done: frozenset[Names]) -> Sequence[float] | None:
            taken = [name for part in done for name in part]
            question = {name: one for name, one in a.items() if name not in taken}
            question |= {name: b[name] for name in taken if name in b}
            try:
                found = wrapped.answer_quietly(command, question, shown, {}).quantities()
            except NapkinError:
                return None
            return [found[path][0] for path in shown] if all(path in found for path in shown) else None

        result = attribution.attribute(parts, ask)
        if result is not None:
            return result.by, result.exact
    raise AssertionError("both ends were answered, so one step leads from one to the other")


def _change(path: str, unit: str, parts: dict[Names, tuple[float, ...]], at: int) -> term.Term:
    """Return the whole change as the sum of its contributions."""
    leaves = [
        term.leaf(f"{path}/change/{'+'.join(part)}", adds[at], unit, term.TRUE, SHAPLEY) for part, adds in parts.items()
    ]
    return term.add(f"{path}/change", *leaves)


def signed(value: float, unit: str) -> str:
    """Return a change as people read it."""
    return ("+" if value > 0 else "") + human(value, unit) if value else "0"


def _waterfall_rows(
    steps: Sequence[Contribution], have: Quantities, get: Quantities, shown: Sequence[str]
) -> list[dict[str, str]]:
    """Return A, then what each difference adds, then B, to be read down a column."""
    table = [{"difference": "A", "a": "", "b": "", **{p: human(*have[p]) for p in shown}}]
    for one in steps:
        added = {p: signed(one.adds[p], have[p][1]) for p in shown}
        table.append({"difference": one.name, "a": one.a, "b": one.b, **added})
    table.append({"difference": "B", "a": "", "b": "", **{p: human(*get[p]) for p in shown}})
    return table


def _side_by_side(have: Quantities, get: Quantities, paths: Sequence[str]) -> list[dict[str, str]]:
    """Return each quantity of both sides, and how many times the first the second is."""
    table = []
    for path in (p for p in have if p in get and p in paths):
        (a, unit), b = have[path], get[path][0]
        times = ratio(b, a)
        text = f"{times:.4g} ×" if times == times else ""
        table.append({"quantity": path, "A": human(a, unit), "B": human(b, unit), "B / A": text})
    return table


def _chart(command: Command, steps: Sequence[Contribution], path: str, start: tuple[float, str]) -> Chart:
    """Draw a waterfall for one quantity, from A to B."""
    value, unit = start
    scale, name = axis([value, value + sum(one.adds[path] for one in steps)], unit)
    labels = [f"{one.name}: {one.a} → {one.b}"[:60] for one in steps]
    series = Series(path, labels, [one.adds[path] / scale for one in steps])
    title = f"{command.name}: {path} from A to B"
    return Chart("waterfall", title, titled(path, name), "", [series], middle=value / scale)


COMMAND = Command(
    "compare",
    "Two runs, models or machines, and what each difference contributes, whatever order they are made in",
    run,
    options=("against", "show", *DRAWS),
    arguments=("sides",),
    examples=(
        "compare h100 b200",
        "compare train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --price 2 "
        "--against hardware=b200,mfu=0.35,price=4",
    ),
)

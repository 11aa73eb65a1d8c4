"""`napkin compare`: two runs, models or machines, and what each difference contributes to time, memory and cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin import term
from napkin.commands import nested_question
from napkin.commands.command import Command, find
from napkin.commands.inputs import Inputs
from napkin.commands.nested_question import Question
from napkin.commands.screens.compare import Contribution, changes, of_sides, of_steps
from napkin.commands.sides import is_profile, read_sides
from napkin.commands.signature import OptionText
from napkin.elementwise import ratio
from napkin.errors import NapkinError
from napkin.inputs.launch.stated import FROM_FILE
from napkin.options.command_line import pieces_of, quoted
from napkin.options.layout import DEGREES
from napkin.options.output import DRAWS
from napkin.planning import attribution
from napkin.record import replace
from napkin.render.answer import Answer, Cell
from napkin.render.chart import Chart, Series, axis, spoken, titled
from napkin.render.page import DEFAULTED
from napkin.render.screen import Next

SERVING = ("serve/output_tokens_per_second", "serve/tpot", "serve/cost_per_million_output_tokens")
HEADLINES = (
    *(*SERVING, "time", "step/time", "memory/total", "checkpoint/interval", "cost", "energy", "mfu"),
    *("params/total", "flops/total"),
)
"""Quantities explained by default: the first three that both answers have and that differ."""
LISTED = ("hardware", "params")
"""Commands that are compared by listing both sides, because they take a model or an accelerator and no options."""
SHAPLEY = "Shapley 1953, A Value for n-Person Games: the mean over all orders in which the differences can be made"

Names = tuple[str, ...]


def run(inputs: Inputs) -> Answer:
    """Answer for two sides, or for one question and its differences (--against)."""
    sides = inputs.texts("sides")
    if len(sides) == 2 and all(is_profile(word) for word in sides):
        return nested_question.answer_quietly(find("bench"), {"what": OptionText(["compare", *sides])})
    inputs.because(("against",), "two sides are named", "compare COMMAND … --against NAME=VALUE")
    command, a, b, names = read_sides(inputs)
    first, second = _side(command, a, names[0]), _side(command, b, names[1])
    have, get = first.quantities(), second.quantities()
    shared = [path for path in have if path in get]
    if not shared:
        raise NapkinError(f"the two answers of {command.name} share no quantity", "compare answers of the same kind")
    a, b = _alike(a, b, first, second), _alike(b, a, second, first)
    differing = [name for name in dict.fromkeys((*a, *b)) if _text(a, name) != _text(b, name)]
    follows = _following(differing, first, second)
    named = nested_question.paths(inputs.text_or_none("show"), shared)
    moved = [p for p in shared if have[p][0] != get[p][0]]
    shown = named or [p for p in HEADLINES if p in moved][:3] or moved[:3] or shared[:1]
    parts, exact = _contributions(command, a, b, differing, shown)
    answer = Answer(inputs.command.name, notes=[*follows, *_remarks(parts, exact, (first, second))])
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
    answer.extra |= _listed(shared, shown, names, (first, second))
    asked = (command.name, f"A {names[0]}", f"B {names[1]}")
    headline = changes(have, get, shown) if parts and command.name not in LISTED else []
    verdicts = (first.judgement, second.judgement)
    if len(parts) > 1:
        made = of_steps(asked, steps, have, get, headline, verdicts, follows)
    else:
        made = of_sides(asked, have, get, named or shared, headline, verdicts, follows)
    answer.screen = replace(made, next=_next(bool(inputs.command.target), command, b, names[1]))
    answer.plot = [_chart(command, steps, path, have[path], names) for path in shown] if steps else []
    return answer


def _listed(shared: Sequence[str], shown: Sequence[str], names: Names, sides: tuple[Answer, Answer]) -> dict[str, Cell]:
    """Return what JSON lists next to the rows: both sides' quantities, and the verdict and status of each side."""
    have, get = (one.quantities() for one in sides)
    return {
        "quantities": [
            {"path": path, "unit": unit, "a": a, "b": get[path][0], "ratio": float(ratio(get[path][0], a))}
            for path, (a, unit) in ((path, have[path]) for path in shared)
        ],
        "columns": {path: have[path][1] for path in shown},
        "sides": [
            {"name": name, "verdict": one.verdict, "status": one.status} for name, one in zip(names, sides, strict=True)
        ],
    }


def _alike(question: Question, other: Question, answer: Answer, its: Answer) -> Question:
    """Return a question with the options that only the other one states, as this one has them by default: they are no
    difference, and stay when another difference would change the default."""
    same = {
        name: one
        for name, one in other.items()
        if name not in question and name in answer.inputs and name in its.inputs
        if answer.inputs[name].value == its.inputs[name].value and answer.inputs[name].origin == "default"
    }
    return {**question, **same}


def _following(differing: Sequence[str], first: Answer, second: Answer) -> list[str]:
    """Return a note on inputs that were not given and change with the differences, software first."""
    both = {name: (first.inputs.get(name), second.inputs.get(name)) for name in {**first.inputs, **second.inputs}}
    apart = {
        name: sides
        for name, sides in both.items()
        if name not in differing and (all(sides) or any(one and one.origin == "assumed" for one in sides))
        if all(one is None or one.origin in DEFAULTED for one in sides)
    }
    values = {name: [one.value if one else "none" for one in sides] for name, sides in apart.items()}
    found = {name: f"{name} {a} → {b}" for name, (a, b) in values.items() if a != b}
    if not differing or not found:
        return []
    guessed = [name for name in found if any(one and one.origin == "assumed" for one in apart[name])]
    listed = ", ".join(found[name] for name in sorted(found, key=lambda name: name not in guessed))
    held = f"; state --{guessed[0]} to hold it" if guessed else ""
    return [f"with {', '.join(differing)} {'change' if len(differing) > 1 else 'changes'} {listed}{held}"]


def _remarks(parts: Collection[tuple[str, ...]], exact: bool, sides: tuple[Answer, Answer]) -> list[str]:
    """Return notes on the contributions, and the notes and verdicts of both sides."""
    notes = []
    if not exact:
        notes.append(f"{len(parts)} differences: contributions are means over {attribution.SAMPLED} orders")
    for part in parts:
        if len(part) > 1:
            notes.append(f"{', '.join(part)} count as one difference: they cannot be changed separately")
    for side, one in zip("AB", sides, strict=True):
        notes += [note for note in one.notes if note not in notes]
        if one.verdict:
            notes.append(f"{side}: {one.verdict}")
    return notes


def _next(changed: bool, command: Command, b: Question, named: str) -> Next | str:
    """Return B's question as the next command; changed: B is A with other options, or with another launch file."""
    files = {one.where.split(":")[0] for one in b.values() if one.origin == FROM_FILE}
    file = named.split(", ")[0]
    if file in files:
        typed = {name: one.text for name, one in b.items() if one.origin != FROM_FILE}
        pieces = pieces_of(command.name, {}, {name: one for name, one in typed.items() if isinstance(one, str | bool)})
        return " ".join([*pieces[:1], f"--from {quoted(file)}", *pieces[1:]])
    if changed:
        texts = {name: one.text for name, one in b.items() if isinstance(one.text, (str, bool))}
        return Next({**texts, "against": None, "show": None}, command.name)
    if command.name in LISTED:
        return Next({"accelerator" if command.name == "hardware" else "model": named}, command.name, keep=())
    return Next({"run": named}, command.name, keep=())


def _side(command: Command, question: Question, name: str) -> Answer:
    try:
        return nested_question.answer_quietly(command, question)
    except NapkinError as problem:
        raise problem.at(name, name) from None


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
    """Return the contribution of each difference to each quantity: one by one if each can be changed separately, else
    the layout or all of them as one."""
    layout = tuple(name for name in differing if name in DEGREES)
    rest = [(name,) for name in differing if name not in DEGREES]
    singly = [(name,) for name in differing]
    together = [tuple(differing)] if differing else []
    only = None if any(path.endswith(("/low", "/high")) for path in shown) else shown  # ends come with their quantity
    for parts in (singly, [layout, *rest] if len(layout) > 1 else singly, together):

        def ask(done: frozenset[Names]) -> Sequence[float] | None:
            taken = [name for part in done for name in part]
            question = {name: one for name, one in a.items() if name not in taken}
            question |= {name: b[name] for name in taken if name in b}
            try:
                found = nested_question.answer_quietly(command, question, only, {}).quantities()
            except NapkinError:
                return None
            return [found[path][0] for path in shown] if all(path in found for path in shown) else None

        result = attribution.attribute(parts, ask)
        if result is not None:
            return result.by, result.exact
    raise AssertionError("both ends have an answer, so one change leads from one to the other")


def _change(path: str, unit: str, parts: dict[Names, tuple[float, ...]], at: int) -> term.Term:
    """Return the total change as the sum of its contributions."""
    leaves = [
        term.leaf(f"{path}/change/{'+'.join(part)}", adds[at], unit, term.TRUE, SHAPLEY) for part, adds in parts.items()
    ]
    return term.add(f"{path}/change", *leaves)


def _chart(
    command: Command, steps: Sequence[Contribution], path: str, start: tuple[float, str], names: tuple[str, str]
) -> Chart:
    """Draw a waterfall for one quantity, from A to B; names: those of A and B."""
    value, unit = start
    scale, name = axis([value, value + sum(one.adds[path] for one in steps)], unit)
    labels = [f"{one.name}: {one.a} → {one.b}"[:60] for one in steps]
    series = Series(path, labels, [one.adds[path] / scale for one in steps])
    title = f"what changes {spoken(path)} ({command.name})"
    ends = (f"A: {names[0]}"[:40], "B" if len(names[1]) > 36 else f"B: {names[1]}")
    return Chart("waterfall", title, titled(spoken(path), name), "", [series], middle=value / scale, ends=ends)


COMMAND = Command(
    "compare",
    "Compare two runs, models or machines, and attribute the difference to each option (Shapley values)",
    run,
    brief="Compare two runs, models or machines, and explain why they differ",
    options=("against", "show", *DRAWS),
    arguments=("sides",),
    examples=(
        "compare h100 b200",
        "compare train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --price 2 "
        "--against hardware=b200,mfu=0.35,price=4",
    ),
)

"""An answer for the browser page, as plain data: the same parsing, command, JSON and wording as in a shell.

    answered("memory", {"model": "llama3-8b", "gpus": "8", "hardware": "h100"})

The page has no texts of its own: it shows the answer's Screen, Charts and terms.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from napkin.cli import OUT_OF_RANGE, answer_of
from napkin.cli.reader import Line, read
from napkin.cli.web_form import QUESTIONS
from napkin.commands.command import Command, find, named
from napkin.commands.signature import AllButAdvice, OptionText
from napkin.errors import NapkinError, escaped
from napkin.options.command_line import Text, pieces_of
from napkin.render.answer import Answer
from napkin.render.columns import clauses
from napkin.render.json import to_json
from napkin.render.page import assumed_words, next_pieces
from napkin.render.paint import TONES
from napkin.render.screen import Bar, Table
from napkin.render.svg import colored, figures
from napkin.render.term_table import table_of
from napkin.term import expression
from napkin.units import human

Plain = dict[str, object]
ASKED = frozenset(question.command for question in QUESTIONS)
ANSI = {"32": "good", "31": "bad", "33": "open"}
WIDE = 10**6
"""Width of the page in columns; nothing is cut."""


def answered(
    name: str, texts: Mapping[str, Text], advice: bool = True, explain: bool = False, width: float = 640
) -> Plain:
    """Return the answer of a command to options given by name, or the errors in them.

    texts    option → its text as typed, True or False for a flag
    advice   include remedies, even if they take long to find
    explain  include the tree of every quantity
    width    of pictures, in pixels
    """
    pieces = pieces_of(name, texts)
    try:
        command = find(name)
        line = read(command, _words(command, texts))
        answer = _asked(command, line, advice)
    except NapkinError as problem:
        return _none(problem, name, texts)
    except OverflowError:
        return _none(NapkinError(*OUT_OF_RANGE), name, texts)
    return {
        "line": pieces,
        "status": answer.status,
        "problems": [one for problem in answer.problems for one in _problems(problem, name, texts)],
        "json": to_json(answer, explain),
        "screen": _screen(answer),
        "figures": figures(answer.plot, width),
        "colors": colored(answer.plot),
        "tree": _tree(answer) if explain else None,
        "remedies": _remedies(answer),
    }


def _none(problem: NapkinError, name: str, texts: Mapping[str, Text]) -> Plain:
    """Return an empty answer with the reason."""
    return {"line": pieces_of(name, texts), "status": problem.status, "problems": _problems(problem, name, texts)}


def _words(command: Command, texts: Mapping[str, Text]) -> list[str]:
    """Return the command-line words of these options."""
    arguments = [str(texts[name]) for name in command.arguments if name in texts]
    options = [(name, text) for name, text in texts.items() if name not in command.arguments]
    flags = [f"--{'' if text else 'no-'}{name}" for name, text in options if isinstance(text, bool)]
    valued = [f"--{name}={text}" for name, text in options if not isinstance(text, bool)]
    return [*flags, *valued, *(["--", *arguments] if arguments else [])]


def _asked(command: Command, line: Line, advice: bool) -> Answer:
    """Return the answer with its pictures; an impossible question (status 1) has an answer too."""
    drawn = {**line.given, "plot": OptionText("page.svg")} if "plot" in command.names else line.given
    answer = answer_of(command, drawn, None, line.unused, True, None if advice else AllButAdvice())
    answer.inputs.pop("plot", None)  # no one asked for a file
    return answer


def _problems(problem: NapkinError, name: str, texts: Mapping[str, Text]) -> list[Plain]:
    """Return each problem with the option that it is about, if it names one."""
    distinct = {one.message: one for one in problem.errors}.values()
    return [
        {"message": escaped(one.message), "hint": escaped(one.hint or ""), "option": _about(one.message, name, texts)}
        for one in list(distinct)[:10]
    ]


def _about(message: str, name: str, texts: Mapping[str, Text]) -> str:
    """Return the option that a message names first, or whose text it quotes; "" if it does neither."""
    taken = find(name).names
    if message.startswith(("MODEL", "./config.json", "config.json")) and "model" in taken:
        return "model"
    quoting = [option for option, text in texts.items() if f"'{text}'" in message]
    return next((word for word in [*re.findall(r"--([a-z][a-z0-9-]*)", message), *quoting] if word in taken), "")


def _screen(answer: Answer) -> Plain:
    """Return the lines of the answer's screen, as wide as they are."""
    screen = answer.screen
    return {
        "question": clauses(screen.question, WIDE) if screen.question else "",
        "headline": [{"text": part, "tone": _tone(part.partition(":")[0], screen.verdict)} for part in screen.headline],
        "table": _table(screen.table),
        "remarks": list(screen.remarks),
        "more": _table(screen.more),
        "assumed": [*answer.assumed, *assumed_words(answer.inputs)],
        "next": None if screen.next is None else _line(" ".join(next_pieces(screen.next, answer))),
        "notes": list(answer.notes),
    }


def _tone(*words: str) -> str:
    return next((ANSI[TONES[word]] for word in words if word in TONES and TONES[word] in ANSI), "")


def _table(table: Table | None) -> Plain | None:
    if table is None or not table.rows:
        return None
    columns = [{"name": one.name, "right": one.right, "remark": one.remark} for one in table.columns]
    return {"columns": columns, "rows": [[_cell(cell) for cell in row] for row in table.rows]}


def _cell(cell: str | Bar) -> object:
    if isinstance(cell, str):
        return cell
    return {"start": min(max(cell.start, 0.0), 1.0), "end": min(max(cell.end, 0.0), 1.0), "free": cell.mark != "█"}


def _line(text: str) -> Plain:
    """Return a command line and the form fields that it corresponds to; no fields if the page cannot ask it."""
    said = shlex.split(text)[1:]
    if said[0] not in ASKED:
        return {"text": text, "command": "", "texts": {}}
    command, words = named(said)
    given = read(command, words).given
    texts = {name: one.text for name, one in given.items() if isinstance(one.text, (str, bool))}
    return {"text": text, "command": command.name if len(texts) == len(given) else "", "texts": texts}


def _remedies(answer: Answer) -> list[Plain]:
    """Return the remedies, each as a command line to follow."""
    found = answer.extra.get("suggestions")
    rows: Sequence[object] = found if isinstance(found, (list, tuple)) else ()
    return [
        {
            "change": row.get("change"),
            "extra": row.get("extra_time"),
            "low": row.get("low"),
            "high": row.get("high"),
            **_line(str(row["command"])),
        }
        for row in rows
        if isinstance(row, dict) and row.get("command")
    ]


def _tree(answer: Answer) -> Plain:
    """Return every term by path: its value, formula, kind, source and parts; and the paths that are published."""
    published = answer.finite()
    terms = {
        path: {
            "value": human(entry.term.value, entry.term.unit),
            "formula": expression(entry.term) if entry.term.parts else "",
            "kind": entry.term.kind,
            "source": entry.term.source,
            "parts": entry.parts,
        }
        for path, entry in table_of(published).items()
    }
    return {"terms": terms, "published": [term.name for term in published]}

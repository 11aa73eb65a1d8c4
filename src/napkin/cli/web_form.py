"""The form of the browser page: the options of each question, as the registry declares them.

tools/page.py writes it as a file, so that the form is there before Python is. Every option of a command becomes a field
without being named here; this module says which fields come first, their initial values, and the stops of sliders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from napkin import __version__
from napkin.cli.known import offered
from napkin.cli.option_texts import default_of, what
from napkin.commands.command import Command, find
from napkin.options import output
from napkin.options.option import Option
from napkin.options.registry import GROUPS
from napkin.record import record


@record
class Question:
    """A question of the page: its command, its title, the fields shown first, and their initial texts.

    kept  fields that take over values from another question; None: those shown first
    """

    command: str
    title: str
    first: tuple[str, ...]
    start: Mapping[str, str]
    kept: tuple[str, ...] | None = None


_LAYOUT = ("hardware", "gpus", "zero", "tp", "pp", "micro-batch", "seq", "recompute", "lora-rank")
_RUN = {"hardware": "h100", "gpus": "8", "zero": "3"}
QUESTIONS = (
    Question(
        "train-time",
        "How long?",
        ("params", "tokens", "gpus", "hardware", "mfu", "within", "model"),
        {"params": "70B", "tokens": "15T", "gpus": "1024", "hardware": "h100", "mfu": "0.5"},
    ),
    Question(
        "max-params",
        "Largest model",
        ("gpus", "hardware", "precision", "optimizer", "like", "zero"),
        {"gpus": "8", "hardware": "h100"},
        kept=("gpus", "hardware", "precision", "optimizer"),  # a layout needs a shape
    ),
    Question("memory", "Does it fit?", ("model", *_LAYOUT), {"model": "llama3-8b", **_RUN}),
    Question("step", "A step", ("model", *_LAYOUT, "global-batch"), {"model": "llama3-8b", **_RUN}),
    Question(
        "mfu",
        "My MFU",
        ("model", "tokens-per-second", "gpus", "hardware", "seq"),
        {"model": "llama3-8b", "tokens-per-second": "64000", "gpus": "8", "hardware": "h100"},
        kept=("model", "hardware", "seq"),  # a speed is of its own number of GPUs
    ),
    Question("params", "Parameters", ("model",), {"model": "llama3-8b"}),
    Question("flops", "FLOPs", ("model", "seq", "batch"), {"model": "llama3-8b"}),
)


def _powers(low: int, high: int) -> list[str]:
    """Return the powers of two from low to high."""
    return [str(2**k) for k in range(low, high + 1)]


def _decades(digits: Iterable[str], units: Iterable[str]) -> list[str]:
    """Return one to three digits with each unit of 1000: 1B, 1.5B, …, 10B, …, 700B."""
    ones = list(digits)
    tens = [f"{float(one) * scale:g}" for scale in (1, 10, 100) for one in ones]
    return [f"{number}{unit}" for unit in units for number in tens]


_DEGREE = _powers(0, 6)
STOPS: Mapping[str, list[str]] = {
    "params": [*_decades(("1", "1.5", "2", "3", "4", "5", "7", "8"), ("M", "B"))[16:], "1T", "1.5T", "2T"],
    "tokens": _decades(("1", "1.5", "2", "3", "5", "7"), ("B", "T")),
    "gpus": _powers(0, 15),
    "seq": _powers(9, 20),
    "micro-batch": _DEGREE,
    "global-batch": _powers(0, 13),
    "batch": _DEGREE,
    "tp": _powers(0, 5),
    "pp": _DEGREE,
    "cp": _DEGREE,
    "ep": _powers(0, 8),
    "lora-rank": _powers(0, 9),
    "mfu": [f"{percent / 100:g}" for percent in range(5, 76)],
    "within": [f"{days}d" for days in (1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365)],
    "tokens-per-second": _decades(("1", "1.2", "1.5", "2", "3", "4", "5", "6", "7", "8", "9"), ("k", "M"))[:55],
}
"""Option → the texts that its slider stops at, the lowest first."""

HIDDEN = frozenset((*(option.name for option in output.OPTIONS), "run", "from", "plot", "theme"))
"""Options of files and output forms, which a page does not need."""
TWO_WAYS = ("sp", "packing")
"""Flags whose absence differs from `--no-…`."""


def fields_of(command: Command) -> list[Option]:
    """Return the options of a command that are fields of the page."""
    taken = {*command.names, *command.figures}
    return [
        option
        for _, options in GROUPS
        for option in options
        if option.name in taken and option.name not in HIDDEN and (option.metavar != "FILE" or option.name == "model")
    ]


def _field(option: Option, command: Command) -> dict[str, object]:
    """Return the form field of an option."""
    names = list(offered(option.name))
    kind = "two-way" if option.name in TWO_WAYS else "flag" if option.flag else "choice" if option.choices else "text"
    return {
        "name": option.name,
        "argument": option.name in command.arguments,
        "kind": kind,
        "help": what(option, command),
        "default": default_of(option, command),
        "unit": "" if option.unit == "1" or option.flag else option.unit,
        "metavar": option.metavar,
        "choices": list(option.choices),
        "names": names if names and not option.choices else [],
        "stops": STOPS.get(option.name, []),
    }


def form() -> dict[str, object]:
    """Return the form of every question as plain data; lists of names are given once, by option."""
    lists: dict[str, object] = {}
    questions = []
    for question in QUESTIONS:
        command = find(question.command)
        fields = {option.name: _field(option, command) for option in fields_of(command)}
        for name, field in fields.items():
            names = field.pop("names")
            if names:
                lists[name] = names
            field["listed"] = bool(names)
        groups = [
            {
                "heading": heading,
                "fields": [one.name for one in options if one.name in fields and one.name not in question.first],
            }
            for heading, options in GROUPS
        ]
        questions.append(
            {
                "command": question.command,
                "title": question.title,
                "summary": command.summary,
                "first": list(question.first),
                "start": dict(question.start),
                "takes": list(question.first if question.kept is None else question.kept),
                "fields": fields,
                "groups": [group for group in groups if group["fields"]],
            }
        )
    return {"version": __version__, "questions": questions, "lists": lists}

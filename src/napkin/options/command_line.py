"""Command lines to paste: what an answer proposes next, the command of a row, the hint of an error. One builder for all
of them, so that a line keeps every option of its question."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from napkin.options.machine import FIGURES
from napkin.options.output import COMMON, DRAWS
from napkin.options.registry import OPTIONS

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import TypeVar

    Given = TypeVar("Given")

Text = str | bool | Sequence[str] | None
"""An option's text as typed: True or False for a flag, several words, None if it is left out."""
Texts = Mapping[str, Text]

OVERRULED = {
    "nodes": "gpus",
    "grad-accum": "global-batch",
    **dict.fromkeys(("profile", *FIGURES), "hardware"),
}
"""Option → the one that says the same in another way, or that it belongs to: where that changes, this is left out."""
WRITTEN = frozenset((*COMMON, *DRAWS))
"""Options of how an answer is written: another question does not inherit them."""
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-")
NAMES = tuple(OPTIONS)


def quoted(text: str) -> str:
    """Return a word for a POSIX shell: in quotes if it holds more than letters, digits and plain signs."""
    return text if text and SAFE.issuperset(text) else "'" + text.replace("'", "'\"'\"'") + "'"


def option_piece(name: str, text: Text) -> str:
    """Return an option as it is typed: `--gpus 8`, `--sp`, `--no-sp`."""
    if isinstance(text, bool):
        return f"--{name}" if text else f"--no-{name}"
    return f"--{name} {_words(text)}"


def changed(given: Mapping[str, Given], changes: Mapping[str, Given | None]) -> dict[str, Given]:
    """Return the options of a question with others in place of some and of those that say the same in another way; None
    leaves one out."""
    kept = {name: one for name, one in given.items() if OVERRULED.get(name) not in changes}
    both: dict[str, Given | None] = {**kept, **changes}
    return {name: one for name, one in both.items() if one is not None}


def texts_of(given: Texts, changes: Texts, keep: Container[str] | None) -> dict[str, Text]:
    """Return the options of a command line by name; the arguments are those of `pieces_of`."""
    kept = {name: text for name, text in given.items() if name not in WRITTEN and (keep is None or name in keep)}
    return changed(kept, changes)


def pieces_of(
    command: str, given: Texts, changes: Texts = MappingProxyType({}), keep: Container[str] | None = None
) -> list[str]:
    """Return a command line as pieces that belong together: the words up to the arguments, then an option each.

    given    options of the question            changes  options of the line that differ; None leaves one out
    keep     options of the question that the command takes; None: all
    """
    texts = texts_of(given, changes, keep)
    arguments = sorted((name for name in texts if OPTIONS[name].positional), key=NAMES.index)
    options = [option_piece(name, text) for name, text in texts.items() if not OPTIONS[name].positional]
    words = [_words(texts[name]) for name in arguments]
    if any(word[:1] == "-" and word != "-" for word in words):  # behind `--`, where no word is an option
        return [f"napkin {command}", *options, " ".join(["--", *words])]
    return [" ".join(["napkin", command, *words]), *options]


def pieces_in(line: str) -> list[str]:
    """Return a command line as pieces that belong together: what comes before the options, then an option each."""
    first, *options = line.split(" --")
    return [first, *(f"--{option}" for option in options)]


def typed(text: object) -> Text:
    """Return an option's value, as a file or a line states it, as it can be typed again."""
    if isinstance(text, bool):
        return text
    return [str(word) for word in text] if isinstance(text, (list, tuple)) else str(text)


def _words(text: Text) -> str:
    return " ".join(quoted(word) for word in text) if isinstance(text, (list, tuple)) else quoted(str(text))

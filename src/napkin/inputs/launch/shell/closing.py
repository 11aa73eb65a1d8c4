"""Find what a shell script opens and never closes: bash does not run such a script."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.inputs.launch.shell.words import Statement, closing_bracket, closing_quote, statements
from napkin.record import record

_CLOSES = {
    "if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac", "{": "}", "(": ")",
}  # fmt: skip
"""The word that opens a compound command → the word that closes it."""
_BEFORE_COMMAND = ("then", "elif", "else", "do", "!", "time")


@record
class Opened:
    """What is opened and never closed: its line, its name in messages, and what closes it."""

    line: int
    name: str
    closed_by: str

    @property
    def hint(self) -> str:
        return f"close it with {self.closed_by}: bash runs no such script"


def unclosed(text: str) -> Opened | None:
    """Return what a script opens and never closes, the innermost; None if all is closed or it cannot be told."""
    every = list(statements(text))
    return _mark(text, every[-1] if every else Statement((), 1)) or _command(every)


def _mark(text: str, last: Statement) -> Opened | None:
    """Return the quote or bracket that the last word opens: unclosed, it reaches to the end of the script.

    A word with a here-document is left aside, as quotes in it are text.
    """
    tail = next((one for one in (last.into, *last.words[-1:]) if one and text.endswith(one)), "")
    if "<<" in tail:
        return None
    before = text.count("\n", 0, len(text) - len(tail)) + 1
    at, outer = 0, None
    while at < len(tail):
        if tail[at] == "#" and tail[at - 1 : at].isspace():
            end = tail.find("\n", at)
            at = len(tail) if end < 0 else end
        elif tail[at] in "'\"`":
            end = closing_quote(tail, at)
            if end >= len(tail):
                return Opened(before + tail.count("\n", 0, at), "a quote", repr(tail[at]))
            at = end + 1
        else:
            if tail.startswith(("$(", "${", "=("), at) and closing_bracket(tail, at + 1) >= len(tail):
                sign = tail[at + 1]
                name = f"{tail[at]}{sign}".lstrip("=")
                outer = Opened(before + tail.count("\n", 0, at), repr(name), repr(")" if sign == "(" else "}"))
            at += 2 if tail[at] == "\\" else 1
    return outer


def _command(every: Iterable[Statement]) -> Opened | None:
    """Return the compound command that is never closed."""
    stack: list[tuple[str, int]] = []
    pattern = False
    for one in every:
        words = list(one.words)
        if "[[" in words and "]]" not in words:  # a condition that a separator in it splits
            return None
        if pattern and words[:1] != ["esac"]:
            if ")" not in words:
                continue
            words = words[words.index(")") + 1 :]
        pattern = False
        closing = _followed(words, one.line, stack)
        if closing:
            wrong = any(_CLOSES[word] == closing for word, _ in stack)
            return _opened(*stack[-1]) if wrong else None
        pattern = bool(stack) and stack[-1][0] == "case" and (one.ends == ";;" or "in" in words)
    return _opened(*stack[-1]) if stack else None


def _opened(word: str, line: int) -> Opened:
    return Opened(line, repr(word), repr(_CLOSES[word]))


def _followed(words: list[str], line: int, stack: list[tuple[str, int]]) -> str:
    """Follow the words that open or close commands. Return one that does not close the innermost; "" if all do."""
    at = 0
    if words[:1] == ["function"]:
        at = 2
    if words[at + (at == 0) :][:2] == ["(", ")"]:
        at += 2 + (at == 0)
    while at < len(words):
        word = words[at]
        if word in ("for", "select", "case"):
            stack.append((word, line))
            return _rest(words[at + 1 :], stack) if word != "case" else ""
        if word in _CLOSES:
            stack.append((word, line))
        elif word in _CLOSES.values():
            if not stack or _CLOSES[stack[-1][0]] != word:
                return word
            stack.pop()
        elif word not in _BEFORE_COMMAND:
            break
        at += 1
    return _rest(words[at:], stack)


def _rest(words: list[str], stack: list[tuple[str, int]]) -> str:
    """Follow the brackets behind a command's words: `(cd run; torchrun train.py)`."""
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth < 0:
            if not stack or stack[-1][0] != "(":
                return ")"
            stack.pop()
            depth = 0
    return ""

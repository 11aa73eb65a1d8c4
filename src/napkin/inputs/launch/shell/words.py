"""Split a shell script into statements of raw words: comments, quotes, arrays, here-documents, continued lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from napkin.record import record

SEPARATORS = (";;", "&&", "||", ";", "|", "&", "\n")
_HERE = re.compile(r"<<(-?)\s*(\\?)(['\"]?)([A-Za-z_]\w*)\3")


@record
class Statement:
    """One simple command.

    words   with their quotes                         here  text of its here-document
    quoted  the here-document is not expanded         ends  what separates the command from the next
    into    the file that its output is written to, with its quotes; "" if none     appends  to what is there
    """

    words: tuple[str, ...]
    line: int
    here: str | None = None
    quoted: bool = False
    ends: str = "\n"
    into: str = ""
    appends: bool = False


_REDIRECTION = re.compile(r"(?:\d*>{1,2}[&|]?|\d*<(?=[ \t&])&?|&>{1,2})(?!<)[ \t]*(?=[^\s;|])")
"""What sends a command's input or output elsewhere; a word follows. `<path>` stands for a value to fill in."""
_OUTPUT = (">", ">>", "1>", "1>>")
_BEFORE_ARITHMETIC = ("if", "elif", "while", "until", "for", "!", "then", "do", "else", "{")


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a script in order."""
    at, line, words, begun = 0, 1, [], 1
    into, appends = "", False
    while at < len(text):
        char = text[at]
        if char in " \t\r":
            at += 1
        elif text.startswith(("\\\n", "\\\r\n"), at):
            at, line = text.index("\n", at) + 1, line + 1
        elif char == "\\" and at + 1 == len(text):  # bash drops it
            at += 1
        elif char == "#" and (at == 0 or text[at - 1] in " \t\n;"):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif (found := _HERE.match(text, at)) and not text.startswith("<<<", at):
            stop = text.find("\n", at)
            rest = text[found.end() : stop if stop >= 0 else len(text)].strip()
            here, length = _here_document(text, stop + 1 if stop >= 0 else len(text), found[4], bool(found[1]))
            if (sent := _REDIRECTION.match(rest)) is not None and sent[0].strip() in _OUTPUT:
                into, appends = _word(rest, sent.end())[0], ">>" in sent[0]
            words += [rest] if rest and not rest.startswith((">", "|")) else []
            line += text.count("\n", at, length)
            at = length
            yield Statement(tuple(words), begun, here, bool(found[2] or found[3]), "\n", into, appends)
            words, begun, into, appends = [], line, "", False
        elif not _compares(words) and (found := _REDIRECTION.match(text, at)) is not None:
            start = found.end() + (text[found.end()] in "<>")
            after = bracket(text, start) if text.startswith("(", start) else _word(text, start)[1]
            if found[0].strip() in _OUTPUT:
                into, appends = text[start:after], ">>" in found[0]
            line += text.count("\n", at, after)
            at = after
        elif (sign := next((one for one in SEPARATORS if text.startswith(one, at)), None)) is not None:
            at += len(sign)
            if sign in ("&&", "||") and "[[" in words and "]]" not in words:  # part of the condition
                words.append(sign)
                continue
            if words or sign == ";;":
                yield Statement(tuple(words), begun, None, False, sign, into, appends)
            words, into, appends = [], "", False
            line += sign == "\n"
            begun = line
        else:
            arithmetic = text.startswith("((", at) and all(word in _BEFORE_ARITHMETIC for word in words)
            word, after = (text[at : (end := bracket(text, at))], end) if arithmetic else _word(text, at)
            if not words:
                begun = line
            words.append(word)
            line += text.count("\n", at, after)
            at = after
    if words:
        yield Statement(tuple(words), begun, None, False, "\n", into, appends)


def _here_document(text: str, start: int, mark: str, dashed: bool) -> tuple[str, int]:
    """Return a here-document and its end. An unterminated one extends to the end of the text."""
    at = start
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        row = text[at:stop]
        if (row.lstrip("\t") if dashed else row).rstrip("\r") == mark:
            return text[start:at], min(stop + 1, len(text))
        at = stop + 1
    return text[start:], len(text)


_CLOSING = {"(": ")", "{": "}", "[": "]"}


def _compares(words: list[str]) -> bool:
    """Return whether a statement is a condition, in which < and > compare."""
    return any(word in ("[[", "[") or word.startswith("((") for word in words[:5])


def _word(text: str, at: int) -> tuple[str, int]:
    """Return the word that begins here, with quotes, brackets and arrays, and its end."""
    start = at
    while at < len(text):
        char = text[at]
        if char == "\\":
            if text.startswith(("\\\n", "\\\r\n"), at):
                break
            at += 2
        elif char in "'\"`":
            at = quoted_end(text, at)
        elif text.startswith(("$(", "${"), at):
            at = bracket(text, at + 1)
        elif char == "(" and at > start and text[at - 1] == "=":
            at = bracket(text, at)
        elif char in " \t\r\n;|&" or (char in "()" and at > start):
            break
        elif char in "()":
            at += 1
            break
        else:
            at += 1
    return text[start : max(at, start + 1)], max(at, start + 1)


def quoted_end(text: str, at: int) -> int:
    """Return the index at which a quoted text ends."""
    return min(closing_quote(text, at) + 1, len(text))


def closing_quote(text: str, at: int) -> int:
    """Return the index of the quote that closes the one here, from the text's length on if none does. In single quotes
    a backslash is plain text, except after a dollar sign."""
    mark = text[at]
    escapes = mark != "'" or text[at - 1 : at] == "$"
    at += 1
    while at < len(text) and text[at] != mark:
        if text[at] == "\\" and escapes:
            at += 1
        elif mark == '"' and text.startswith(("$(", "${"), at):
            at = bracket(text, at + 1) - 1
        at += 1
    return at


def bracket(text: str, at: int) -> int:
    """Return the index at which a bracket that opens here has closed."""
    return min(closing_bracket(text, at) + 1, len(text))


def closing_bracket(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one here, from the text's length on if none does."""
    opening = text[at]
    closing, depth = _CLOSING[opening], 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char in "'\"":
            at = closing_quote(text, at)
        elif char == "#" and text[at - 1] in " \t\n" and opening == "(":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if not depth:
                break
        at += 1
    return at

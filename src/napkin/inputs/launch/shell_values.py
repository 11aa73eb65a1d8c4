"""Expand the words of a shell script: variables, defaults, arithmetic and arrays. Nothing is run.

The origin of a value is marked inside the text with characters that no file contains: DEFAULTED name END before a
value that an environment variable would override, OPENED what END in place of an unknown value.
"""

from __future__ import annotations

import re

from napkin.inputs.launch.values import calculated
from napkin.units import Unreadable

DEFAULTED, OPENED, END = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"[{DEFAULTED}{OPENED}]([^{END}]*){END}")
_PLACE = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_]\w*|[0-9@*#?$!]))")
_PARAMETER = re.compile(r"!?([A-Za-z_]\w*|[0-9@*#]+)(\[[@*\d]+\])?(?:(:?[-=+?])(.*)|(.*))?$", re.S)
DEEPEST = 40
LONGEST = 100_000
"""Longest variable, in characters, and longest array, in words: a limit on scripts that double one."""


def clean(text: str) -> str:
    """Return a text without origin marks."""
    return text.translate({ord(one): None for one in (DEFAULTED, OPENED, END)})


def marks(text: str) -> tuple[str, tuple[str, ...], str]:
    """Return a text without marks, the variables that override its defaults, and its unknown part ("" if none)."""
    defaulted = tuple(dict.fromkeys(one[1:-1] for one in _each(text, DEFAULTED)))
    unknown = ", ".join(dict.fromkeys(one[1:-1] for one in _each(text, OPENED)))
    return _MARK.sub("", text), defaulted, unknown


def _each(text: str, sign: str) -> list[str]:
    return [found[0] for found in _MARK.finditer(text) if found[0][0] == sign]


def opened(what: str) -> str:
    """Return the mark of an unknown value."""
    return f"{OPENED}{'_'.join(clean(what).split())[:60]}{END}"  # a single word, because texts are split at blanks


def defaulted(name: str, text: str) -> str:
    """Return a text marked as a default that an argument or external variable `name` would override ("" for none)."""
    return f"{DEFAULTED}{name}{END}{text}" if name and name not in marks(text)[1] else text


class Variables:
    """The variables of a script while it is read.

    Arrays are lists of expanded elements.     used  names that were looked up
    known  names of variables that are set before the script starts
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.arrays: dict[str, list[str]] = {}
        self.used: set[str] = set()
        self.known: set[str] = set()

    def assign(self, name: str, value: str, more: bool = False) -> None:
        """Set a variable, or append to it."""
        if name in self.arrays and more:
            self.arrays[name].append(value)
            return
        self.arrays.pop(name, None)
        whole = (self.texts.get(name, "") if more else "") + value
        self.texts[name] = whole if len(whole) <= LONGEST else opened(f"{name}, which is too long")

    def assign_array(self, name: str, words: list[str], more: bool = False) -> None:
        """Set an array, or append to it."""
        before = self.arrays.get(name, [self.texts[name]] if name in self.texts else []) if more else []
        if len(before) + len(words) > LONGEST or sum(map(len, words)) > LONGEST:
            self.forget(name, f"{name}, which is too long")
            return
        self.texts.pop(name, None)
        self.arrays[name] = [*before, *words]

    def add_words(self, name: str, words: list[str]) -> None:
        """Append words to an array, or to a text."""
        if name in self.arrays:
            self.assign_array(name, words, more=True)
        else:
            self.assign(name, " " + " ".join(words), more=True)

    def forget(self, name: str, why: str) -> None:
        """Mark a variable as unknown."""
        self.arrays.pop(name, None)
        self.texts[name] = opened(why)

    def value(self, name: str) -> str | None:
        """Return a variable's text, or None if the script does not set it."""
        self.used.add(name)
        if name in self.arrays:
            return " ".join(self.arrays[name])
        return self.texts.get(name)

    def words(self, raw: str) -> list[str]:
        """Return the words that a raw word expands to, with quotes removed and unquoted expansions split at blanks."""
        pieces: list[list[str]] = [[]]
        for text, quoted in _parts(raw):
            expanded = text if quoted == "'" else self.expand(text)
            whole = raw.strip('"')
            if quoted == '"' and re.fullmatch(r"\$\{[A-Za-z_]\w*\[@\]\}", whole) and whole[2:-4] in self.arrays:
                self.used.add(whole[2:-4])
                return list(self.arrays[whole[2:-4]])
            if quoted:
                pieces[-1].append(expanded)
                continue
            split = re.split(r"(\s+)", expanded)
            for part in split:
                if part.isspace():
                    pieces.append([])
                elif part:
                    pieces[-1].append(part)
        return ["".join(parts) for parts in pieces if parts]

    def text(self, raw: str) -> str:
        """Return a raw word as one text."""
        return "".join(text if quoted == "'" else self.expand(text) for text, quoted in _parts(raw))

    def expand(self, text: str, depth: int = 0) -> str:
        """Return a text with variables and arithmetic expanded; command substitutions are unknown."""
        if depth > DEEPEST or ("$" not in text and "`" not in text):
            return text
        text = re.sub(r"`[^`]*`", lambda found: opened(f"the output of {found[0]}"), text)
        result: list[str] = []
        at, size = 0, 0
        while at < len(text):
            if size > LONGEST:
                return opened("a text that is too long")
            before = len(result)
            if text.startswith("\\$", at):
                result.append("$")
                at += 2
            elif text.startswith("$((", at):
                end = _closed(text, at + 1)
                result.append(self._arithmetic(text[at + 3 : end - 2], depth))
                at = end
            elif text.startswith("$[", at) and "]" in text[at:]:  # the old form of $((…))
                end = text.index("]", at) + 1
                result.append(self._arithmetic(text[at + 2 : end - 1], depth))
                at = end
            elif text.startswith("$(", at):
                end = _closed(text, at + 1)
                result.append(self._output(text[at:end], depth))
                at = end
            elif text.startswith("${", at):
                end = _closed(text, at + 1)
                result.append(self._parameter(text[at + 2 : end - 1], depth))
                at = end
            elif found := _PLACE.match(text, at):
                result.append(self._parameter(found[2], depth))
                at = found.end()
            else:
                result.append(text[at])
                at += 1
            size += sum(len(part) for part in result[before:] if len(part) > 1)
        return "".join(result)

    def _output(self, command: str, depth: int) -> str:
        """Return the output of `$(expr 16 / $n)` or `$(echo $WORDS)`; of other commands it is unknown."""
        program, _, rest = command[2:-1].strip().partition(" ")
        if re.search(r"[|<>;&`]", rest) or program not in ("expr", "echo"):
            return opened(f"the output of {command}")
        return self._arithmetic(rest.replace("\\*", "*"), depth) if program == "expr" else self.expand(rest, depth + 1)

    def _parameter(self, inner: str, depth: int) -> str:
        """Return the expansion of `${inner}`."""
        found = _PARAMETER.match(inner)
        if found is None:
            return opened(f"${{{inner}}}")
        name, _, sign, word, rest = found.groups()
        value = self.value(name)
        if inner.startswith("#"):
            return opened(f"${{{inner}}}")
        if sign in (":-", ":=", "-", "="):
            if value is not None and (value or sign[0] != ":"):
                return value
            return f"{DEFAULTED}{'$' if name.isdigit() else ''}{name}{END}{self.text_of(word, depth + 1)}"
        if sign in (":+", "+"):
            return self.text_of(word, depth + 1) if value else ""
        if name in "@*":
            return self.texts.get("@", "")
        if rest and not rest.startswith("["):
            return opened(f"${{{inner}}}")
        if value is None:
            return opened(f"${name}")
        return value

    def text_of(self, word: str, depth: int) -> str:
        """Return the text of a default without its quotes."""
        return "".join(part if quoted == "'" else self.expand(part, depth) for part, quoted in _parts(word))

    def _arithmetic(self, inner: str, depth: int) -> str:
        """Return the value of `$((inner))`; names without a dollar sign are variables too."""
        text = self.expand(inner, depth + 1)
        plain, defaulted, unknown = marks(text)
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", plain)):
            found, more, open_too = marks(self.value(name) or opened(f"${name}"))
            defaulted += more
            unknown = unknown or open_too
            plain = re.sub(rf"\b{name}\b", found or "0", plain)
        if unknown:
            return opened(unknown)
        try:
            number = calculated(plain)
        except Unreadable:
            return opened(f"$(({inner}))")
        return "".join(f"{DEFAULTED}{name}{END}" for name in dict.fromkeys(defaulted)) + str(int(number))


def _closed(text: str, at: int) -> int:
    """Return the index at which the bracket that opens here closes."""
    from napkin.inputs.launch.shell_words import _bracket

    return _bracket(text, at)


def _parts(raw: str) -> list[tuple[str, str]]:
    """Return a raw word as (text, quoting) pieces: single, double or none."""
    found: list[tuple[str, str]] = []
    at, plain = 0, ""
    while at < len(raw):
        char = raw[at]
        if char == "\\" and at + 1 < len(raw):
            plain += "" if raw[at + 1] == "\n" else ("\\$" if raw[at + 1] == "$" else raw[at + 1])
            at += 2
        elif char in "'\"":
            found += [(plain, "")] if plain else []
            plain = ""
            from napkin.inputs.launch.shell_words import _quoted

            end = _quoted(raw, at)
            inner = raw[at + 1 : end - 1] if raw[end - 1 : end] == char and end - at > 1 else raw[at + 1 : end]
            if char == '"':
                inner = inner.replace("\\\n", "").replace('\\"', '"')
            found.append((inner, char))
            at = end
        elif raw.startswith(("$(", "${"), at):
            end = _closed(raw, at + 1)
            plain += raw[at:end]
            at = end
        else:
            plain += char
            at += 1
    return [*found, (plain, "")] if plain else found

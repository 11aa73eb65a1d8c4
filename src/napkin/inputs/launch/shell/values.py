"""Expand the words of a shell script: variables, defaults, arithmetic and arrays. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from napkin.inputs.launch.shell.arithmetic import evaluated
from napkin.inputs.launch.shell.edits import edited
from napkin.inputs.launch.shell.marks import DEFAULTED, END, OPENED, marks, opened
from napkin.inputs.launch.shell.outputs import output_of
from napkin.inputs.launch.shell.words import bracket, quoted_end

_PLACE = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_]\w*|[0-9@*#?$!]))")
_PARAMETER = re.compile(r"(!?)([A-Za-z_]\w*|[0-9@*#]+)(\[[^\]]*\])?(?:(:?[-=+?])(.*)|(.*))?$", re.S)
_ALL = re.compile(r"\$(?:\{([A-Za-z_]\w*)\[@\]\}|(@)|\{(@)\})")
"""A quoted word that stands for every element of an array, or for every argument."""
_UNSET = re.compile(rf"{OPENED}\$(\w+){END}")
"""The value of `NAME=$1` where the script is given no argument, or of `NAME=$OTHER` that it does not set."""
GPUS_OF_NODE = "SLURM_GPUS_ON_NODE"
DEEPEST = 40
DEEPEST_COMMAND = 8
"""Commands whose output is part of another one's, `$(echo $(…))`."""
LONGEST = 100_000
"""Longest variable, in characters, and longest array, in words: a limit on scripts that double one."""


class Variables:
    """The variables of a script while it is read.

    Arrays are lists of expanded elements, maps are arrays with names for elements.     used  names that were looked up
    known  names of variables that are set before the script starts
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.arrays: dict[str, list[str]] = {}
        self.maps: dict[str, dict[str, str]] = {}
        self.used: set[str] = set()
        self.known: set[str] = set()
        self._inside = 0

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

    def assign_element(self, name: str, index: str, value: str) -> None:
        """Set one element of an array or map; an array of which an index is unknown is forgotten."""
        key, _, unknown = marks(self.text_of(index, 0))
        if unknown:
            self.forget(name, f"${name}, of which an element is set by {unknown}")
        elif name in self.maps or not key.isdecimal():
            self.maps.setdefault(name, {})[key] = value
        else:
            before = self.arrays.get(name, [self.texts.pop(name)] if name in self.texts else [])
            if int(key) < len(before):
                self.arrays[name] = [*before[: int(key)], value, *before[int(key) + 1 :]]
            elif int(key) == len(before):
                self.arrays[name] = [*before, value]
            else:
                self.forget(name, f"${name}, of which elements are not set")

    def unset(self, name: str) -> None:
        """Remove a variable."""
        for kind in (self.texts, self.arrays, self.maps):
            kind.pop(name, None)

    def give(self, arguments: Sequence[str]) -> None:
        """Set the arguments $1, $2, … of a script or function."""
        for name in [one for one in self.texts if one.isdecimal()]:
            del self.texts[name]
        self.texts |= {str(number): text for number, text in enumerate(arguments, 1)}
        self.texts["@"], self.texts["#"] = " ".join(arguments), str(len(arguments))
        self.arrays["@"] = list(arguments)

    def copied(self) -> Variables:
        """Return the variables as they are now."""
        now = Variables()
        now.texts, now.arrays = dict(self.texts), dict(self.arrays)
        now.maps = {name: dict(one) for name, one in self.maps.items()}
        return now

    def restore(self, before: Variables, names: Iterable[str] | None = None) -> None:
        """Put variables back as they were: those named, or all."""
        if names is None:
            self.texts, self.arrays, self.maps = before.texts, before.arrays, before.maps
            return
        for name in names:
            self.unset(name)
            if name in before.texts:
                self.texts[name] = before.texts[name]
            if name in before.arrays:
                self.arrays[name] = before.arrays[name]
            if name in before.maps:
                self.maps[name] = before.maps[name]

    def add_words(self, name: str, words: list[str]) -> None:
        """Append words to an array, or to a text."""
        if name in self.arrays:
            self.assign_array(name, words, more=True)
        else:
            self.assign(name, " " + " ".join(words), more=True)

    def forget(self, name: str, why: str) -> None:
        """Mark a variable as unknown."""
        self.arrays.pop(name, None)
        self.maps.pop(name, None)
        self.texts[name] = opened(why)

    def value(self, name: str) -> str | None:
        """Return a variable's text, or None if the script does not set it."""
        self.used.add(name)
        if name in self.arrays:
            return " ".join(self.arrays[name])
        if name in self.maps:
            return " ".join(self.maps[name].values())
        return self.texts.get(name)

    def _element(self, name: str, index: str, depth: int) -> str | None:
        """Return one element of an array or map, or None if it is not set."""
        self.used.add(name)
        key, _, unknown = marks(self.text_of(index, depth + 1))
        if unknown:
            return opened(unknown)
        if name in self.maps:
            return self.maps[name].get(key)
        listed = self.arrays.get(name, [self.texts[name]] if name in self.texts else [])
        at, _, unknown = marks(self._arithmetic(key, depth + 1))
        if unknown:
            return opened(unknown)
        return listed[int(at)] if -len(listed) <= int(at) < len(listed) else None

    def words(self, raw: str) -> list[str]:
        """Return the words that a raw word expands to, with quotes removed and unquoted expansions split at blanks."""
        pieces: list[list[str]] = [[]]
        for text, quoted in _parts(raw):
            expanded = text if quoted == "'" else self.expand(text)
            whole = _ALL.fullmatch(raw.strip('"')) if quoted == '"' else None
            name = next(filter(None, whole.groups())) if whole is not None else ""
            if name in self.arrays:
                self.used.add(name)
                return list(self.arrays[name])
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
        text = re.sub(r"`(\(?)([^`]*)`", lambda at: f"$({' (' if at[1] else ''}{at[2]})", text)  # $(( is arithmetic
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
                end = bracket(text, at + 1)
                result.append(self._arithmetic(text[at + 3 : end - 2], depth))
                at = end
            elif text.startswith("$[", at) and "]" in text[at:]:  # the old form of $((…))
                end = text.index("]", at) + 1
                result.append(self._arithmetic(text[at + 2 : end - 1], depth))
                at = end
            elif text.startswith("$(", at):
                end = bracket(text, at + 1)
                result.append(self._output(text[at:end]))
                at = end
            elif text.startswith("${", at):
                end = bracket(text, at + 1)
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

    def _output(self, command: str) -> str:
        """Return the output of a command that napkin can work out; of others it is unknown."""
        if self._inside >= DEEPEST_COMMAND:
            return opened("a command that is nested too deeply")
        self._inside += 1
        found = output_of(command[2:-1], self.words, self.expand, lambda: self.value(GPUS_OF_NODE))
        self._inside -= 1
        return found if found is not None else opened(f"the output of {command}")

    def _parameter(self, inner: str, depth: int) -> str:
        """Return the expansion of `${inner}`."""
        if inner.startswith("#") and len(inner) > 1:
            return self._length(inner[1:])
        found = _PARAMETER.match(inner)
        if found is None:
            return opened(f"${{{inner}}}")
        indirect, name, index, sign, word, rest = found.groups()
        if indirect:
            return self._named(name, index, rest)
        whole = index in (None, "[@]", "[*]")
        value = self.value(name) if whole else self._element(name, index[1:-1], depth)
        if index is None and len(self.arrays.get(name, ())) > 1 and name != "@":
            value = self.arrays[name][0]
        if sign in (":-", ":=", "-", "="):
            unset = _UNSET.fullmatch(value) if value is not None and sign[0] == ":" else None
            if value is not None and unset is None and (value or sign[0] != ":"):
                return value
            source = unset[1] if unset is not None else name
            default = f"{DEFAULTED}{'$' if source.isdigit() else ''}{source}{END}{self.text_of(word, depth + 1)}"
            if sign[-1] == "=" and whole:
                self.assign(name, default)
            return default
        if sign in (":+", "+"):
            return self.text_of(word, depth + 1) if value else ""
        if name in "@*":
            return self.texts.get("@", "")
        if value is None:
            return opened(f"${name}{index or ''}")
        return self._edited(value, rest, depth) if rest else value

    def _edited(self, value: str, how: str, depth: int) -> str:
        """Return the expansion of `${NAME<how>}` for a variable's value."""
        (plain, names, unknown), (done, _, unknown_too) = marks(value), marks(self.expand(how, depth + 1))
        changed = None if unknown or unknown_too else edited(plain, done.replace('"', ""))
        if changed is None:
            return opened(unknown or unknown_too or f"${{…{how}}}")
        return "".join(f"{DEFAULTED}{name}{END}" for name in names) + changed

    def _named(self, name: str, index: str | None, rest: str | None) -> str:
        """Return the expansion of `${!NAME}`, the value of the variable that a variable names, or the keys of a map."""
        if index in ("[@]", "[*]"):
            return " ".join(self.maps[name]) if name in self.maps else opened(f"${{!{name}{index}}}")
        target, _, unknown = marks(self.value(name) or "")
        value = self.value(target) if target.isidentifier() and not unknown and not rest else None
        return value if value is not None else opened(f"${{!{name}}}")

    def _length(self, inner: str) -> str:
        """Return the expansion of `${#NAME}`, the letters of a text, and `${#NAME[@]}`, the elements of an array."""
        name, _, index = inner.partition("[")
        elements = list(self.maps.get(name, {}).values()) or self.arrays.get(name)
        measured = elements if index else ([self.texts[name]] if name in self.texts else None)
        self.used.add(name)
        if measured is None or any(marks(one)[2] for one in measured):
            return opened(f"${{#{inner}}}")
        return str(len(measured) if index else len(marks(measured[0])[0]))

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
        number = evaluated(plain)
        if number is None:
            return opened(f"$(({inner}))")
        return "".join(f"{DEFAULTED}{name}{END}" for name in dict.fromkeys(defaulted)) + str(number)


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
            end = quoted_end(raw, at)
            inner = raw[at + 1 : end - 1] if raw[end - 1 : end] == char and end - at > 1 else raw[at + 1 : end]
            if char == '"':
                inner = inner.replace("\\\n", "").replace('\\"', '"')
            found.append((inner, char))
            at = end
        elif raw.startswith(("$(", "${"), at):
            end = bracket(raw, at + 1)
            plain += raw[at:end]
            at = end
        else:
            plain += char
            at += 1
    return [*found, (plain, "")] if plain else found

"""Follow the assignments of a shell script: texts, arrays, maps, and what an undecided branch makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from napkin.inputs.launch.shell.branches import Branches
from napkin.inputs.launch.shell.marks import defaulted, marks, opened
from napkin.inputs.launch.shell.values import Variables
from napkin.inputs.launch.shell.words import statements

SET = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.S)
_FLAG = re.compile(r"(?<!\S)(?:(--[A-Za-z][\w.\-]*)|([+~]*[A-Za-z_]\w*\.[\w.\-/@]*=))")
_NAMED = re.compile(r"\[([^\]]*)\]=(.*)", re.S)


class Assignments:
    """Sets variables, as far as the branches around an assignment are decided.

    undecided  unknown values that branches depend on → why
    """

    def __init__(self, variables: Variables, branches: Branches, undecided: dict[str, str]) -> None:
        self.variables = variables
        self.branches = branches
        self.undecided = undecided

    def set(self, found: re.Match[str]) -> None:
        """Follow `NAME=value`, `NAME+=value`, `NAME=(…)` and `NAME[key]=value`."""
        name, index, more, raw = found.groups()
        listed = raw.startswith("(") and not index
        words = self._listed(raw) if listed else [self.variables.text(raw)]
        if self.branches.unsure:
            text = " ".join(words)
            self._unsure(name, text, bool(more) or bool(re.search(rf"\$\{{?{name}\b", raw)))
        elif index:
            self.variables.assign_element(name, index[1:-1], words[0])
        elif listed and (name in self.variables.maps or (words and all(map(_NAMED.fullmatch, words)))):
            self._map(name, words, bool(more))
        elif listed:
            self.variables.assign_array(name, words, bool(more))
        elif self.branches.repeats and re.search(rf"\b{name}\b", raw) and marks(words[0])[0].isdecimal():
            self.variables.forget(name, f"${name}, which a loop changes")
        else:
            absent = self.branches.left_out if not _FLAG.search(words[0]) else ""
            self.variables.assign(name, defaulted(absent, words[0]), bool(more))

    def _listed(self, raw: str) -> list[str]:
        """Return the words of an array."""
        inner = raw[1:-1] if raw.endswith(")") else raw[1:]
        parts = [part for one in statements(inner.replace("\n", " \\\n")) for part in one.words]
        return [part for word in parts for part in self.variables.words(word)]

    def _map(self, name: str, words: Sequence[str], more: bool) -> None:
        """Follow `NAME=([key]=value …)`."""
        if not more:
            self.variables.unset(name)
            self.variables.maps[name] = {}
        for word in words:
            if found := _NAMED.fullmatch(word):
                self.variables.assign_element(name, found[1], found[2])

    def _unsure(self, name: str, text: str, more: bool) -> None:
        """Follow an assignment in an undecided branch.

        Options in it may or may not be given. Any other value becomes unknown, or stays as it was if the branch
        requires a script argument.
        """
        branch = self.branches.undecided
        why = f"${name}, set in an undecided branch ({branch.kind if branch is not None else 'if'})"
        before = self.variables.value(name)
        flags = _flags(text.replace(before, " ", 1) if before and more else text)
        given = _flags(before or "")
        if flags or given:
            changed = flags if more else list(dict.fromkeys([*given, *flags]))
            self.variables.add_words(name, [part for one in changed for part in _open_option(one, why)])
        elif self.branches.with_arguments:
            argument = next(one.argument for one in self.branches.stack if one.argument and one.state is None)
            if before is not None and name not in self.variables.arrays:
                self.variables.assign(name, defaulted(name if argument == "$@" else argument, before))
        elif name in self.variables.texts or not more:
            self.variables.forget(name, why)
        else:
            self.undecided.setdefault(name, "gets more options in an undecided branch")


def _flags(text: str) -> list[str]:
    """Return the options named in a text: `--name`, or Hydra's `block.key=`."""
    return list(dict.fromkeys(found[1] or found[2] for found in _FLAG.finditer(text)))


def _open_option(flag: str, why: str) -> list[str]:
    """Return the words of an option with an unknown value."""
    return [flag + opened(why)] if flag.endswith("=") else [flag, opened(why)]

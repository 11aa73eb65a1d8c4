"""Follow the commands of a shell script: assignments, what the shell does itself, functions and other scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from napkin.inputs.launch.shell.assignments import SET, Assignments
from napkin.inputs.launch.shell.branches import Branches
from napkin.inputs.launch.shell.conditions import assignment
from napkin.inputs.launch.shell.functions import Functions
from napkin.inputs.launch.shell.marks import clean, marks
from napkin.inputs.launch.shell.values import Variables
from napkin.inputs.launch.shell.words import Statement, statements
from napkin.record import replace

_WRITERS = ("cat", "echo", "printf", "tee")


def read_into(variables: Variables, words: Sequence[str], one: Statement) -> None:
    """Follow `read NAME <<EOF` and `IFS=, read -r FIRST REST <<< "$TEXT"`; what another command prints is unknown."""
    here = next((at for at, word in enumerate(words) if word.startswith("<<<")), None)
    names = [word for word in words[1:here] if word.isidentifier()]
    given = "".join(words[here:]).removeprefix("<<<") if here is not None else ""
    into_array = any(word.startswith("-") and "a" in word for word in words[1:here])
    if one.here is not None and names:
        variables.assign(names[-1], " ".join(_here(variables, one, " ").split()))
    elif not given or not names or (len(names) > 1 and marks(variables.text(given))[2]):
        for name in names:
            variables.forget(name, f"${name}, which is read")
    elif into_array:
        text = variables.text(given)
        variables.assign_array(names[0], _split(variables, text) if not marks(text)[2] else [text])
    else:
        parts = _split(variables, variables.text(given), len(names) - 1) if len(names) > 1 else [variables.text(given)]
        for name, text in zip_longest(names, parts, fillvalue=""):
            variables.assign(name, text)


def _split(variables: Variables, text: str, most: int = -1) -> list[str]:
    """Return the parts of a text between the separators that IFS gives, `most` of them split off."""
    sign = marks(variables.texts.pop("IFS", ""))[0]
    return text.split(sign or None, most)


def write_to(files: dict[str, str], variables: Variables, words: Sequence[str], one: Statement, unsure: bool) -> None:
    """Keep the text of a file that the script writes: `cat > FILE <<EOF`, `echo TEXT > FILE`.

    files  path → text     unsure  it is unknown whether the command runs
    """
    path = marks(variables.text(one.into or words[-1]))[0]
    if words[0] not in _WRITERS or not path or path == "/dev/null":
        return
    if unsure or (one.here is None and words[0] in ("cat", "tee")):
        files.pop(path, None)
        return
    if one.here is not None:
        text = _here(variables, one, "")
    else:
        text = " ".join(variables.text(word) for word in words[1:] if word not in ("-e", "-n")) + "\n"
    files[path] = (files.get(path, "") if one.appends else "") + text


def _here(variables: Variables, one: Statement, joint: str) -> str:
    """Return a here-document, its variables expanded; `joint` takes the place of an escaped line end."""
    text = one.here or ""
    return text if one.quoted else variables.expand(text.replace("\\\n", joint))


_DECLARE = ("export", "declare", "local", "readonly", "typeset")
_SKIPPED = (
    "ls", "mkdir", "cd", "echo", "printf", "trap", "module", "conda", "wait", "true", "false", "rm", "cp", "mv",
    "date", "ulimit", "sleep", "pip", "which", "nvidia-smi", "break", "continue", "chmod", "touch", "cat", "tee",
    "find", "xargs", "tar", "git", "kill", "head", "tail", "sed", "grep", "awk", "pushd", "popd",
)  # fmt: skip
_AFTER_COMMAND = ("|", "|&", ">", ">>", "&>", "2>", "2>&1", "&", "&&", "||", ";")
MOST_COMMANDS = 200
MOST_SOURCED = 20
"""Scripts that one script reads with `source`, each counted as often as it is read."""


class Commands:
    """The commands of a script, followed in order.

    found    line and expanded words of each command      spare     commands that would run only with arguments
    files    those that the script writes: path → text    exported  names of exported variables
    undecided  unknown values that branches depend on     known     variables set before the script starts
    ended    the word that ended the script or function: exit, return or ""
    uncalled   functions are read that the script does not call
    """

    def __init__(self, name: str, known: Mapping[str, str], follow: Callable[[Iterable[Statement]], None]) -> None:
        self.name = name
        self.variables = Variables()
        before = {"0": name, "BASH_SOURCE": name, **known}
        self.variables.texts |= before
        self.variables.used |= {*before, "@", "#"}
        self.variables.known |= set(before)
        self.found: list[tuple[int, list[str]]] = []
        self.spare: list[tuple[int, list[str]]] = []
        self.undecided: dict[str, str] = {}
        self.exported: set[str] = set()
        self.files: dict[str, str] = {}
        self.branches = Branches()
        self.functions = Functions(self.variables)
        self.ended = ""
        self.uncalled = False
        self._assignments = Assignments(self.variables, self.branches, self.undecided)
        self._follow = follow
        self._sourced = 0

    def run(self, words: list[str], one: Statement) -> None:
        """Follow assignments or a command."""
        if words[0] in _DECLARE:
            self._declare(words)
            return
        while words and (found := SET.fullmatch(words[0])):
            self._assignments.set(found)
            if len(words) > 1:
                self.exported.add(found[1])
            words = words[1:]
        if not words or self._builtin(words, one):
            return
        if inner := _quoted_line(words):
            self._follow(replace(each, line=one.line) for each in statements(inner))
            return
        if one.into or (words[0] == "tee" and one.here is not None):
            write_to(self.files, self.variables, words, one, self.branches.unsure)
        if words[0] in _SKIPPED:
            return
        expanded = [part for word in words for part in self._argument(word)]
        if expanded and expanded[0] in self.functions.bodies:
            self._call(expanded[0], expanded[1:], given=self._passes_own(words[1:]))
        elif expanded:
            self._command(expanded, one)

    def _command(self, expanded: list[str], one: Statement) -> None:
        """Keep a command, or follow the script that it runs."""
        if len(self.found) >= MOST_COMMANDS or self._run(expanded):
            return
        aside = self.uncalled or self.branches.with_arguments
        (self.spare if aside else self.found).append((one.line, expanded))
        if self.branches.unsure and any(part.startswith("--") for part in expanded):
            self.undecided.setdefault(clean(" ".join(expanded[:3]))[:60], "is started in an undecided branch")

    def _call(self, name: str, arguments: Sequence[str], given: bool) -> None:
        """Follow a function."""
        self.functions.call(name, arguments, given, self._follow)
        self.ended = "" if self.ended == "return" else self.ended

    def _passes_own(self, words: Sequence[str]) -> bool:
        """Return whether the arguments of a call are known: those of the script itself are not."""
        return "@" in self.variables.texts or not any(one.strip('"') in ("$@", "$*", "${@}") for one in words)

    def _declare(self, words: Sequence[str]) -> None:
        """Follow `export NAME=value` and its like."""
        for word in words[1:]:
            name = word.partition("=")[0].partition("[")[0]
            if words[0] == "local":
                self.functions.declare_local(name)
            if "A" in (words[1] if words[1].startswith("-") else "") and name.isidentifier():
                self.variables.maps.setdefault(name, {})
            if found := SET.fullmatch(word):
                self._assignments.set(found)
            if words[0] == "export":
                self.exported.add(name)

    def _builtin(self, words: list[str], one: Statement) -> bool:
        """Follow a command of the shell itself. Return whether the command is one."""
        head = words[0]
        if head in ("exit", "return"):
            if self.branches.certain and not self.uncalled:
                self.ended = head
        elif head == "eval":
            self._eval(words[1:], one)
        elif head in ("source", "."):
            self._source(self.variables.text(words[1]) if len(words) > 1 else "")
        elif head == "set":
            if "--" in words:
                self.variables.give([part for raw in words[words.index("--") + 1 :] for part in self._argument(raw)])
        elif head == "shift":
            by = words[1] if len(words) > 1 else "1"
            if "@" in self.variables.arrays and by.isdecimal():
                self.variables.give(self.variables.arrays["@"][int(by) :])
        elif head == "unset":
            for word in words[1:]:
                self.variables.unset(word)
        elif head == "let" or head.startswith("(("):
            for arithmetic in (word.strip("'\"") for word in words[1:]) if head == "let" else (head[2:-2],):
                if found := SET.fullmatch(assignment(arithmetic) or ""):
                    self._assignments.set(found)
        elif head in ("read", "mapfile", "readarray"):
            read_into(self.variables, words, one)
        elif head == ":":
            for word in words[1:]:
                self.variables.text(word)
        elif head in ("command", "type", "hash") and words[1:2] != [] and words[1].startswith("-"):
            pass  # asks where a program is
        else:
            return False
        return True

    def _eval(self, words: Sequence[str], one: Statement) -> None:
        """Follow the command line that a text holds; one with unknown parts is split at blanks."""
        parts = [part for word in words for part in self.variables.words(word)]
        text = " ".join(parts)
        if not any(marks(text)[1:]):
            self._follow(replace(each, line=one.line) for each in statements(text))
            return
        split = [word for part in parts for word in part.split()]
        end = next((at for at, word in enumerate(split) if word in _AFTER_COMMAND), len(split))
        if split[:end]:
            self._command(split[:end], one)

    def _source(self, written: str) -> None:
        """Follow a script that `source` reads, if it is beside this one or above it."""
        from napkin.inputs.launch.settings_files import path_of
        from napkin.inputs.load import read_text

        plain, _, unknown = marks(written)
        self._sourced += 1
        if unknown:  # a folder that is not known is taken for the script's own
            plain = plain.lstrip("/")
        if not plain or plain.startswith("~") or self._sourced > MOST_SOURCED or not self._is_near(plain):
            return
        sets = "it may set what the command passes on"
        if plain.startswith("<"):  # source <(curl …)
            self.undecided.setdefault("source <(…)", f"is the output of a command; {sets}")
            return
        path = path_of(self.name, plain)
        if path is None and not plain.endswith("activate"):
            self.undecided.setdefault(f"source {plain[:50]}", f"was not found; {sets}")
        if path is not None:
            before = self.variables.texts["BASH_SOURCE"]
            self.variables.texts["BASH_SOURCE"] = path
            self._follow(statements(clean(read_text(path))))
            self.variables.texts["BASH_SOURCE"] = before
            self.ended = "" if self.ended == "return" else self.ended

    def _is_near(self, path: str) -> bool:
        """Return whether a path is relative, or shares a folder with this script: /etc/profile is the machine's."""
        if not path.startswith("/"):
            return True
        folders = [os.path.dirname(os.path.abspath(one)) for one in (path, self.name)]
        return os.path.commonpath(folders) != os.sep

    def _run(self, words: Sequence[str]) -> bool:
        """Follow the script that a command runs, if it is here. Return whether it is."""
        from napkin.inputs.launch.shell.children import child_of, shell_of_its_own
        from napkin.inputs.load import read_text

        found = child_of(self.name, words, self.files) if self._sourced < MOST_SOURCED else None
        if found is None:
            return False
        self._sourced += 1
        path, arguments = found
        text = self.files[path] if path in self.files else clean(read_text(path))
        with shell_of_its_own(self.variables, self.exported | self.variables.known, arguments):
            self._follow(statements(text))
        self.ended = ""
        return True

    def _argument(self, word: str) -> Iterator[str]:
        """Yield a word's expansion, and split a quoted command line (`bash -c "…"`) into words."""
        for part in self.variables.words(word):
            if " --" in part or (part.startswith("--") and " " in part):
                yield from part.split()
            else:
                yield part


def _quoted_line(words: Sequence[str]) -> str:
    """Return the command line that `bash -c "…"` runs, or "" for other words."""
    shells = [at for at, word in enumerate(words) if word.rsplit("/", 1)[-1] in ("bash", "sh")]
    for at in range(shells[0] + 1 if shells else len(words), len(words) - 1):
        if words[at] in ("-c", "-lc", "-ec") and words[at + 1][:1] in ("'", '"'):
            inner = words[at + 1][1:-1]
            return re.sub(r'\\(["`\\$])', r"\1", inner) if words[at + 1][0] == '"' else inner
        if not words[at].startswith("-") and not words[at - 1].startswith("-"):
            break
    return ""

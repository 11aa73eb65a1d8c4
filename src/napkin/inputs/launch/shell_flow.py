"""Follow a shell script's assignments, arrays, if and case as far as values are known. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from napkin.inputs.launch.shell_conditions import Branch, asks_if_empty, compared
from napkin.inputs.launch.shell_values import Variables, clean, defaulted, marks, opened
from napkin.inputs.launch.shell_words import Statement, statements

_SET = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.S)
_FLAG = re.compile(r"(?<!\S)(?:(--[A-Za-z][\w.\-]*)|([+~]*[A-Za-z_]\w*\.[\w.\-/@]*=))")
_DECLARE = ("export", "declare", "local", "readonly", "typeset")
_SKIPPED = (
    "{",
    "}",
    "(",
    ")",
    "do",
    "done",
    "fi",
    "esac",
    "then",
    "else",
    "set",
    "shift",
    "cd",
    "mkdir",
    "echo",
    "ls",
    "return",
    "exit",
    "trap",
    "unset",
    "module",
    "conda",
    "printf",
    "wait",
    "true",
    "false",
    "rm",
    "cp",
    "mv",
    "date",
    "ulimit",
    "sleep",
    "pip",
    "which",
    "nvidia-smi",
    "break",
    "continue",
    ":",
    "chmod",
    "function",
)
MOST_COMMANDS = 200
MOST_SOURCED = 20
"""Scripts that one script reads with `source`, each counted as often as it is read."""


class Script:
    """A script, followed as it runs without arguments.

    commands   line and expanded words of each command    spare     commands that would run only with arguments
    undecided  unknown values that branches depend on     exported  names of exported variables
    known      variables set before the script starts
    """

    def __init__(self, text: str, name: str, known: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.variables = Variables()
        self.variables.texts |= known or {}
        self.variables.used |= set(known or ())
        self.variables.known |= set(known or ())
        self.commands: list[tuple[int, list[str]]] = []
        self.spare: list[tuple[int, list[str]]] = []
        self.undecided: dict[str, str] = {}
        self.exported: set[str] = set()
        self._stack: list[Branch] = []
        self._sourced = 0
        for one in statements(text):
            self._statement(one)

    @property
    def _taken(self) -> bool:
        return all(one.state is not False for one in self._stack)

    @property
    def _unsure(self) -> bool:
        return any(one.state is None for one in self._stack)

    @property
    def _with_arguments(self) -> bool:
        return any(one.argument and one.state is None for one in self._stack)

    @property
    def _left_out(self) -> str:
        """The script argument whose absence makes this statement run; "" if none."""
        return next((one.argument for one in reversed(self._stack) if one.argument and one.state), "")

    def _statement(self, one: Statement) -> None:
        words = list(one.words)
        while words and words[0] in ("then", "else", "do", "{", "(", "!", ")", "}"):
            if words.pop(0) == "else":
                self._else()
        if not words:
            if one.ends == ";;":
                self._end_of_pattern()
            return
        if not self._control(words, one):
            if self._taken:
                self._simple(words, one)
            if one.ends == ";;":
                self._end_of_pattern()

    def _control(self, words: list[str], one: Statement) -> bool:
        """Follow if, case and loops. Return whether the statement was one."""
        head = words[0]
        if head == "if":
            self._stack.append(self._condition(words[1:]) if self._taken else Branch("if", False))
        elif head == "elif" and self._stack:
            top = self._stack[-1]
            decided = top.done
            self._else()
            if top.state is True and not decided:
                top.state = self._holds(words[1:]) if all(b.state is not False for b in self._stack) else False
                top.done = bool(top.state)
                top.argument = top.argument if top.state is not None else ""
        elif head in ("fi", "done", "esac"):
            kind = {"fi": ("if",), "done": ("for", "while", "until", "select"), "esac": ("case",)}[head]
            if self._stack and self._stack[-1].kind in kind:
                self._stack.pop()
        elif head in ("for", "while", "until", "select"):
            counts = head in ("while", "until") and "$#" in " ".join(words)
            self._stack.append(Branch(head, None if counts else True, argument="$@" if counts else ""))
            if head in ("for", "select") and len(words) > 1 and words[1].isidentifier():
                self.variables.forget(words[1], f"${words[1]}, of a loop")
        elif head == "case":
            subject = self.variables.text(words[1]) if len(words) > 1 and self._taken else ""
            self._stack.append(Branch("case", False, subject=subject))
            if "in" in words[2:]:
                self._pattern(words[words.index("in", 2) + 1 :], one)
        elif self._stack and self._stack[-1].kind == "case" and self._stack[-1].waits:
            self._pattern(words, one)
        else:
            return False
        return True

    def _condition(self, words: Sequence[str]) -> Branch:
        """Return the branch that an `if` opens.

        A test for whether a script argument or an external variable is empty is followed as if it were empty.
        """
        raw = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        inverted = bool(raw) and raw[0] == "!"
        texts = [self.variables.text(word) for word in (raw[1:] if inverted else raw)]
        empty, name = asks_if_empty(texts)
        if not name or name in self.variables.texts or words[0] not in ("[", "[[", "test", "!"):
            return Branch("if", self._holds(words))
        argument = f"${name}" if name.isdigit() else name
        self.undecided.setdefault(f"${name}", "is assumed unset, so the script's defaults apply")
        return Branch("if", True if empty is not inverted else None, argument=argument)

    def _else(self) -> None:
        """Switch to the other branch of the innermost `if`."""
        if self._stack and self._stack[-1].kind == "if":
            top = self._stack[-1]
            if top.argument:
                top.state, top.done = (None if top.done else True), True
            elif top.state is None or top.maybe:
                top.state, top.maybe = None, True
            else:
                top.done = top.done or bool(top.state)
                top.state = not top.done

    def _pattern(self, words: list[str], one: Statement) -> None:
        """Read `pattern) statement` of a `case`."""
        if not words:
            return
        top = self._stack[-1]
        close = next((at for at, word in enumerate(words) if word == ")" or word.endswith(")")), None)
        if close is None:
            top.patterns += "".join(words) + "|"
            return
        patterns = (top.patterns + "".join(words[: close + 1])).rstrip(")").lstrip("(").split("|")
        top.patterns = ""
        plain, _, unknown = marks(top.subject)
        top.waits = False
        if unknown:
            top.state = None
            self.undecided.setdefault(unknown, "decides a branch of the script but is set elsewhere")
        else:
            hit = any(fnmatchcase(plain, marks(self.variables.text(p.strip()))[0]) for p in patterns)
            top.state = hit and not top.done
            top.done = top.done or hit
        rest = words[close + 1 :]
        if rest:
            self._statement(Statement(tuple(rest), one.line, one.here, one.quoted, one.ends))
        elif one.ends == ";;":
            self._end_of_pattern()

    def _end_of_pattern(self) -> None:
        for top in reversed(self._stack):
            if top.kind == "case":
                top.state, top.waits = False, True
                return

    def _holds(self, words: Sequence[str]) -> bool | None:
        """Return whether a condition holds, or None if unknown."""
        raw = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        inverted = bool(raw) and raw[0] == "!"
        texts = [marks(self.variables.text(word)) for word in (raw[1:] if inverted else raw)]
        unknown = next((what for _, _, what in texts if what), "")
        if unknown or not words or words[0] not in ("[", "[[", "test", "!"):
            variable = unknown or " ".join(words)[:60]
            self.undecided.setdefault(variable, "decides a branch of the script but is unknown")
            return None
        found = compared([text for text, _, _ in texts])
        if found is None:
            self.undecided.setdefault(" ".join(words)[:60], "is a condition that napkin does not follow")
            return None
        return found is not inverted

    def _simple(self, words: list[str], one: Statement) -> None:
        """Record assignments or a command."""
        if words[0] in _DECLARE:
            exported = words[0] == "export"
            for word in words[1:]:
                if found := _SET.fullmatch(word):
                    self._assign(found)
                if exported:
                    self.exported.add(word.partition("=")[0])
            return
        while words and (found := _SET.fullmatch(words[0])):
            self._assign(found)
            if len(words) > 1:
                self.exported.add(found[1])
            words = words[1:]
        if not words:
            return
        if words[0] == "read" and one.here is not None:
            text = one.here if one.quoted else self.variables.expand(one.here.replace("\\\n", " "))
            self.variables.assign(words[-1], " ".join(text.split()))
            return
        if inner := _quoted_line(words):
            for statement in statements(inner):
                self._statement(statement)
            return
        if words[0] in ("source", ".") and len(words) > 1:
            self._follow(self.variables.text(words[1]))
            return
        if words[0] in _SKIPPED or words[0].endswith("()") or len(self.commands) >= MOST_COMMANDS:
            return
        expanded = [part for word in words for part in self._argument(word)]
        if self._run(expanded):
            return
        (self.spare if self._with_arguments else self.commands).append((one.line, expanded))
        if self._unsure and any(part.startswith("--") for part in expanded):
            self.undecided.setdefault(clean(" ".join(expanded[:3]))[:60], "is started in an undecided branch")

    def _follow(self, written: str) -> None:
        """Follow a script that `source` reads, if it is beside this one or above it."""
        from napkin.inputs.launch.settings_files import path_of
        from napkin.inputs.load import read_text

        plain, _, unknown = marks(written)
        self._sourced += 1
        if unknown or plain.startswith(("/", "~")) or self._sourced > MOST_SOURCED:
            return
        path = path_of(self.name, plain)
        if path is None and not plain.endswith("activate"):
            self.undecided.setdefault(f"source {plain[:50]}", "was not found; it may set what the command passes on")
        for one in statements(clean(read_text(path))) if path is not None else ():
            self._statement(one)

    def _run(self, words: Sequence[str]) -> bool:
        """Follow the script that a command runs, if it is here. Return whether it is."""
        from napkin.inputs.launch.shell_children import child_of, shell_of_its_own
        from napkin.inputs.load import read_text

        found = child_of(self.name, words) if self._sourced < MOST_SOURCED else None
        if found is None:
            return False
        self._sourced += 1
        path, arguments = found
        with shell_of_its_own(self.variables, self.exported | self.variables.known, arguments):
            for one in statements(clean(read_text(path))):
                self._statement(one)
        return True

    def _argument(self, word: str) -> Iterator[str]:
        """Yield a word's expansion, and split a quoted command line (`bash -c "…"`) into words."""
        for part in self.variables.words(word):
            if " --" in part or (part.startswith("--") and " " in part):
                yield from part.split()
            else:
                yield part

    def _assign(self, found: re.Match[str]) -> None:
        name, index, more, raw = found.groups()
        listed = raw.startswith("(") and not index
        words = self._listed(raw) if listed else [self.variables.text(raw)]
        if self._unsure:
            self._assign_unsure(name, " ".join(words), bool(more) or bool(re.search(rf"\$\{{?{name}\b", raw)))
        elif listed:
            self.variables.assign_array(name, words, bool(more))
        else:
            absent = self._left_out if not _FLAG.search(words[0]) else ""
            self.variables.assign(name, defaulted(absent, words[0]), bool(more))

    def _listed(self, raw: str) -> list[str]:
        """Return the words of an array."""
        inner = raw[1:-1] if raw.endswith(")") else raw[1:]
        parts = [part for one in statements(inner.replace("\n", " \\\n")) for part in one.words]
        return [part for word in parts for part in self.variables.words(word)]

    def _assign_unsure(self, name: str, text: str, more: bool) -> None:
        """Record an assignment in an undecided branch.

        Options in it may or may not be given. Any other value becomes unknown, or stays as it was if the branch
        requires a script argument.
        """
        what = next((one.kind for one in self._stack if one.state is None), "if")
        why = f"${name}, set in an undecided branch ({what})"
        before = self.variables.value(name)
        flags = _flags(text.replace(before, " ", 1) if before and more else text)
        given = _flags(before or "")
        if flags or given:
            changed = flags if more else [*given, *flags]
            self.variables.add_words(name, [part for one in changed for part in _open_option(one, why)])
        elif self._with_arguments:
            argument = next(one.argument for one in self._stack if one.argument and one.state is None)
            if before is not None and name not in self.variables.arrays:
                self.variables.assign(name, defaulted(name if argument == "$@" else argument, before))
        elif name in self.variables.texts or not more:
            self.variables.forget(name, why)
        else:
            self.undecided.setdefault(name, "gets more options in an undecided branch")


def _quoted_line(words: Sequence[str]) -> str:
    """Return the command line that `bash -c "…"` runs, or "" for other words."""
    for at in range(1, len(words) - 1):
        shell = words[at - 1].rsplit("/", 1)[-1]
        if words[at] in ("-c", "-lc") and shell in ("bash", "sh") and words[at + 1][:1] in ("'", '"'):
            return words[at + 1][1:-1]
    return ""


def _flags(text: str) -> list[str]:
    """Return the options named in a text: `--name`, or Hydra's `block.key=`."""
    return list(dict.fromkeys(found[1] or found[2] for found in _FLAG.finditer(text)))


def _open_option(flag: str, why: str) -> list[str]:
    """Return the words of an option with an unknown value."""
    return [flag + opened(why)] if flag.endswith("=") else [flag, opened(why)]

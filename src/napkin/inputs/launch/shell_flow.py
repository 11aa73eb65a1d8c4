"""A shell script followed as far as its own text decides: assignments, arrays, if and case on values that are known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from napkin.inputs.launch.shell_values import Variables, marks
from napkin.inputs.launch.shell_words import Statement, statements
from napkin.units import plain

_SET = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.S)
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


class Script:
    """A script that was followed. commands: expanded words of what it would start; undecided: what its branches turn on
    that is not known; exported: names of exported variables. known: variables that are set before it starts."""

    def __init__(self, text: str, name: str, known: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.variables = Variables()
        self.variables.texts |= known or {}
        self.variables.used |= set(known or ())
        self.commands: list[list[str]] = []
        self.undecided: dict[str, str] = {}
        self.exported: set[str] = set()
        self._stack: list[_Branch] = []
        for one in statements(text):
            self._statement(one)

    @property
    def _taken(self) -> bool:
        return all(one.state is not False for one in self._stack)

    @property
    def _unsure(self) -> bool:
        return any(one.state is None for one in self._stack)

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
        """Follow if, case and loops; whether the statement was one."""
        head = words[0]
        if head == "if":
            self._stack.append(_Branch("if", self._holds(words[1:]) if self._taken else False))
        elif head == "elif" and self._stack:
            self._else()
            top = self._stack[-1]
            if top.state is True and not top.done:
                top.state = self._holds(words[1:]) if all(b.state is not False for b in self._stack) else False
                top.done = top.done or bool(top.state)
        elif head in ("fi", "done", "esac"):
            kind = {"fi": ("if",), "done": ("for", "while", "until", "select"), "esac": ("case",)}[head]
            if self._stack and self._stack[-1].kind in kind:
                self._stack.pop()
        elif head in ("for", "while", "until", "select"):
            self._stack.append(_Branch(head, True))
            if head in ("for", "select") and len(words) > 1 and words[1].isidentifier():
                self.variables.forget(words[1], f"${words[1]} of a loop")
        elif head == "case":
            subject = self.variables.text(words[1]) if len(words) > 1 and self._taken else ""
            self._stack.append(_Branch("case", False, subject=subject))
            if "in" in words[2:]:
                self._pattern(words[words.index("in", 2) + 1 :], one)
        elif self._stack and self._stack[-1].kind == "case" and self._stack[-1].waits:
            self._pattern(words, one)
        else:
            return False
        return True

    def _else(self) -> None:
        """Turn to the other branch of the innermost if."""
        if self._stack and self._stack[-1].kind == "if":
            top = self._stack[-1]
            if top.state is None or top.maybe:
                top.state, top.maybe = None, True
            else:
                top.done = top.done or bool(top.state)
                top.state = not top.done

    def _pattern(self, words: list[str], one: Statement) -> None:
        """Read `pattern) statement` of a case."""
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
            self.undecided.setdefault(unknown, "decides a branch of the script and is set elsewhere")
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
        """Return whether a condition holds; None where it is not known."""
        raw = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        inverted = bool(raw) and raw[0] == "!"
        texts = [marks(self.variables.text(word)) for word in (raw[1:] if inverted else raw)]
        unknown = next((what for _, _, what in texts if what), "")
        if unknown or not words or words[0] not in ("[", "[[", "test", "!"):
            variable = unknown or " ".join(words)[:60]
            self.undecided.setdefault(variable, "decides a branch of the script and is not known here")
            return None
        found = _compared([text for text, _, _ in texts])
        if found is None:
            self.undecided.setdefault(" ".join(words)[:60], "is a condition that napkin does not follow")
            return None
        return found is not inverted

    def _simple(self, words: list[str], one: Statement) -> None:
        """Take assignments, or a command."""
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
        if words[0] in _SKIPPED or words[0].endswith("()") or len(self.commands) >= MOST_COMMANDS:
            return
        expanded = [part for word in words for part in self._argument(word)]
        self.commands.append(expanded)
        if self._unsure and any(part.startswith("--") for part in expanded):
            self.undecided.setdefault(" ".join(expanded[:3])[:60], "is started in a branch that is not decided here")

    def _argument(self, word: str) -> Iterator[str]:
        """Yield a word's expansion; a quoted command line (`bash -c "…"`) is split into its words."""
        for part in self.variables.words(word):
            if " --" in part or (part.startswith("--") and " " in part):
                yield from part.split()
            else:
                yield part

    def _assign(self, found: re.Match[str]) -> None:
        name, index, more, raw = found.groups()
        if self._unsure:
            what = next((one.kind for one in self._stack if one.state is None), "if")
            if name in self.variables.texts or not more:
                self.variables.forget(name, f"${name}, set in a branch ({what}) that is not decided here")
            else:
                self.undecided.setdefault(name, "gets more options in a branch that is not decided here")
            return
        if raw.startswith("(") and not index:
            inner = raw[1:-1] if raw.endswith(")") else raw[1:]
            listed = [part for one in statements(inner.replace("\n", " \\\n")) for part in one.words]
            words = [part for word in listed for part in self.variables.words(word)]
            self.variables.assign_array(name, words, bool(more))
        else:
            self.variables.assign(name, self.variables.text(raw), bool(more))


def _quoted_line(words: Sequence[str]) -> str:
    """Return the command line that `bash -c "…"` runs, "" where the words are none."""
    for at in range(1, len(words) - 1):
        shell = words[at - 1].rsplit("/", 1)[-1]
        if words[at] in ("-c", "-lc") and shell in ("bash", "sh") and words[at + 1][:1] in ("'", '"'):
            return words[at + 1][1:-1]
    return ""


class _Branch:
    """An if, case or loop that is open. state: taken, not taken, or not known (None); done: a branch was taken."""

    def __init__(self, kind: str, state: bool | None, subject: str = "") -> None:
        self.kind = kind
        self.state = state
        self.done = bool(state)
        self.maybe = state is None
        self.subject = subject
        self.waits = kind == "case"
        self.patterns = ""


def _compared(words: list[str]) -> bool | None:
    """Return what a test says of texts that are known; None where napkin does not know the test."""
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (not words[1]) is (words[0] == "-z")
    if len(words) != 3:
        return None
    left, sign, right = words
    if sign in ("=", "==", "!="):
        return fnmatchcase(left, right) is (sign != "!=")
    numbers = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
    a, b = plain(left), plain(right)
    if sign in numbers and a is not None and b is not None:
        return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[sign]
    return None

"""Follow a shell script's branches, loops and lists of commands as far as values are known. Nothing is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from napkin.inputs.launch.shell.commands import Commands
from napkin.inputs.launch.shell.conditions import SUCCESS, Status, is_test, tested
from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.shell.words import Statement, statements
from napkin.record import replace

_QUERIES = ("command", "which", "type", "grep", "hash", "pgrep", "diff", "cmp")
"""Commands whose success answers a question."""
DEEPEST = 30
"""Levels of functions, texts that eval runs, and scripts that scripts run."""
MOST_STATEMENTS = 50_000
"""Statements that are followed in one script, with those of its functions each time that they are called."""


class Script:
    """A script, followed as it runs without arguments; what it runs and sets is in `commands`."""

    def __init__(self, text: str, name: str, known: Mapping[str, str] | None = None) -> None:
        self.commands = Commands(name, known or {}, self._follow_inner)
        self.variables, self.branches = self.commands.variables, self.commands.branches
        self._status, self._joint = SUCCESS, ""
        self._followed = self._inside = 0
        self._follow_all(statements(text))
        self._read_uncalled()

    def _follow_all(self, every: Iterable[Statement]) -> None:
        for one in every:
            if self.commands.ended or self._followed > MOST_STATEMENTS:
                return
            self._followed += 1
            self._statement(one)

    def _follow_inner(self, every: Iterable[Statement]) -> None:
        """Follow the statements that one statement stands for; whether they succeed is not followed."""
        if self._inside >= DEEPEST:
            return
        self._inside += 1
        joint, depth, self._joint = self._joint, len(self.branches.stack), ""
        self._follow_all(every)
        self._inside -= 1
        del self.branches.stack[depth:]
        self._joint, self._status = joint, SUCCESS

    def _read_uncalled(self) -> None:
        """Read the functions that the script only defines: something else may call them."""
        self.commands.ended, self.commands.uncalled = "", True
        for name in self.commands.functions.uncalled:
            self.branches.stack.clear()
            self._follow_all(self.commands.functions.bodies[name])

    def _statement(self, one: Statement) -> None:
        if self.commands.functions.defining is not None:
            self.commands.functions.define(one, self.branches.taken)
            return
        words = list(one.words)
        joint, self._joint = self._joint, one.ends if one.ends in ("&&", "||") else ""
        if self.branches.waits and words and words[0] != "esac":
            self._pattern(words, one)
            return
        inverted = False
        while words and words[0] in ("then", "do", "else", "{", "(", "!", "}", ")"):
            inverted = inverted is not (words[0] == "!")
            self._reserved(words.pop(0), joint)
        if words and not self._begins(words, one):
            closes = 0
            while words[-1:] == [")"] and "(" not in words:
                words.pop()
                closes += 1
            if words:
                self._listed(replace(one, words=tuple(words)), joint, inverted)
            for _ in range(closes):
                self._reserved(")", "")
        if one.ends == ";;":
            self.branches.end_pattern()

    def _begins(self, words: list[str], one: Statement) -> bool:
        """Begin a function, a branch or a loop. Return whether the statement does only that."""
        return self.commands.functions.begins(words, one, self.branches.taken) or self._control(words, one)

    def _reserved(self, word: str, joint: str) -> None:
        """Follow a word that begins or ends a branch or a group."""
        if word in ("then", "do"):
            self._say(self._status)
            self.branches.decide(self._status)
            self._status = SUCCESS
        elif word == "else":
            self.branches.switch()
        elif word in ("{", "("):
            group = self.branches.open_after(word, self._runs(joint))
            group.saved = self.variables.copied() if word == "(" else None
        elif word in ("}", ")"):
            closed = self.branches.close(word)
            if closed is not None and closed.saved is not None:
                self.variables.restore(closed.saved)

    def _runs(self, joint: str) -> Status:
        """Return whether a command runs after the one before it and `&&` or `||`."""
        if not joint:
            return SUCCESS
        runs = self._status if joint == "&&" else self._status.inverted()
        self._say(runs)
        return runs

    def _say(self, status: Status) -> None:
        """Keep what is unknown of a status that decides a branch."""
        what, why = status.unknown
        if what and self.branches.taken:
            self.commands.undecided.setdefault(what, why)

    def _listed(self, one: Statement, joint: str, inverted: bool) -> None:
        """Follow a command of a list joined by `&&` and `||`."""
        if not self.branches.taken:
            return
        if is_test(one.words):
            status = tested(one.words, self.variables)
        else:
            runs = self._runs(joint)
            status = SUCCESS
            if runs.holds is not False:
                if joint:
                    self.branches.open_after("and", runs)
                status = self._success(one.words)
                self.commands.run(list(one.words), one)
                if joint:
                    self.branches.stack.pop()
        status = status.inverted() if inverted else status
        self._status = self._status.joined(status, joint == "&&") if joint else status

    def _success(self, words: Sequence[str]) -> Status:
        """Return whether a command that is no test succeeds."""
        text, _, unknown = marks(self.variables.text(words[0])) if len(words) == 1 else (words[0], (), "")
        if text in ("true", "false", ":"):
            return Status(text != "false")
        if unknown or words[0] in _QUERIES or self.branches.opening:
            return Status(None, "", (unknown or " ".join(words)[:60], "decides a branch of the script but is unknown"))
        return SUCCESS

    def _control(self, words: list[str], one: Statement) -> bool:
        """Follow if, case and loops. Return whether the statement was only that."""
        head = words[0]
        if head in ("if", "elif"):
            if head == "if":
                self.branches.begin_if()
            else:
                self.branches.begin_elif()
            self._status = SUCCESS
            inverted = False
            while words[1:] and words[1] == "!":
                inverted = not inverted
                words.pop(1)
            if words[1:]:
                self._listed(replace(one, words=tuple(words[1:])), "", inverted)
        elif head in ("fi", "done", "esac"):
            self.branches.close(head)
            self._status = SUCCESS
        elif head in ("while", "until"):
            self.branches.begin_loop(head, "$#" in " ".join(words))
        elif head in ("for", "select"):
            self.branches.open(head, True)
            if len(words) > 1 and words[1].isidentifier() and self.branches.taken:
                self._loop(words[1], words[2:] if head == "for" else [])
        elif head == "case":
            subject = self.variables.text(words[1]) if len(words) > 1 and self.branches.taken else ""
            self.branches.open("case", False, subject=subject)
            if "in" in words[2:] and words[-1] != "in":
                self._pattern(words[words.index("in", 2) + 1 :], one)
        else:
            return False
        return True

    def _loop(self, name: str, words: Sequence[str]) -> None:
        """Set the variable of a loop: to its value, where it has one; several leave it open."""
        values = [part for raw in words[1:] for part in self.variables.words(raw)] if words[:1] == ["in"] else []
        if len(values) == 1 and not marks(values[0])[2] and not any(sign in values[0] for sign in "{*?["):
            self.variables.assign(name, values[0])
            self.branches.stack[-1].once = True
        else:
            self.variables.forget(name, f"${name}, of a loop")

    def _pattern(self, words: list[str], one: Statement) -> None:
        """Read `pattern) statement` of a `case`."""
        top = self.branches.stack[-1]
        close = next((at for at, word in enumerate(words) if word == ")" or word.endswith(")")), None)
        if close is None:
            top.patterns += "".join(words) + "|"
            return
        patterns = (top.patterns + "".join(words[: close + 1])).rstrip(")").lstrip("(").split("|")
        top.patterns = ""
        unknown = self.branches.match([marks(self.variables.text(part.strip()))[0] for part in patterns])
        if unknown and all(each.state is not False for each in self.branches.stack[:-1]):
            self.commands.undecided.setdefault(unknown, "decides a branch of the script but is set elsewhere")
        rest = words[close + 1 :]
        if rest:
            self._statement(replace(one, words=tuple(rest)))
        elif one.ends == ";;":
            self.branches.end_pattern()

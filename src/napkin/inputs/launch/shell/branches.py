"""The branches, loops and groups of a shell script around a statement, and whether they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from napkin.inputs.launch.shell.conditions import Status
from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.shell.values import Variables

LOOPS = ("for", "while", "until", "select")
_ENDS = {"fi": ("if",), "done": LOOPS, "esac": ("case",), "}": ("{",), ")": ("(",)}


class Branch:
    """An unfinished if, case, loop or group.

    state     taken, not taken, or unknown (None)     done  a branch was already taken
    argument  a script argument or external variable that decides by being set (None) or unset (True)
    opening   its condition is being read             held  the state after it, where the condition decides nothing
    decides   the condition sets the state            waits  for a pattern of `case`
    again     the condition is that of an `elif`       saved  the variables before a subshell
    certain   no argument or external variable could change the state
    once      a loop that has one round
    """

    def __init__(self, kind: str, state: bool | None, subject: str = "", argument: str = "") -> None:
        self.kind = kind
        self.state = state
        self.argument = argument
        self.done = bool(state)
        self.maybe = state is None
        self.subject = subject
        self.waits = kind == "case"
        self.patterns = ""
        self.certain = True
        self.opening = self.decides = False
        self.again = self.once = False
        self.held: bool | None = state
        self.saved: Variables | None = None


class Branches:
    """The unfinished branches around a statement, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Branch] = []

    @property
    def taken(self) -> bool:
        return all(one.state is not False for one in self.stack)

    @property
    def unsure(self) -> bool:
        return any(one.state is None for one in self.stack)

    @property
    def opening(self) -> bool:
        """Whether the statement is part of a condition."""
        return bool(self.stack) and self.stack[-1].opening

    @property
    def waits(self) -> bool:
        """Whether a pattern of `case` follows."""
        return bool(self.stack) and self.stack[-1].kind == "case" and self.stack[-1].waits

    @property
    def repeats(self) -> bool:
        """Whether the statement is in a loop that may have several rounds."""
        return any(one.kind in LOOPS and not one.once for one in self.stack)

    @property
    def with_arguments(self) -> bool:
        return any(one.argument and one.state is None for one in self.stack)

    @property
    def certain(self) -> bool:
        """Whether a statement runs whatever the arguments and external variables are."""
        return all(one.state is True and one.certain for one in self.stack)

    @property
    def left_out(self) -> str:
        """The script argument whose absence makes this statement run; "" if none."""
        return next((one.argument for one in reversed(self.stack) if one.argument and one.state), "")

    @property
    def undecided(self) -> Branch | None:
        """The outermost branch of which it is unknown whether it is taken."""
        return next((one for one in self.stack if one.state is None), None)

    def open(self, kind: str, state: bool | None, subject: str = "", argument: str = "") -> Branch:
        """Add a branch, a loop or a group."""
        self.stack.append(Branch(kind, state, subject, argument))
        return self.stack[-1]

    def open_after(self, kind: str, runs: Status) -> Branch:
        """Add a group, or a command of a list, that runs after another one succeeded or failed."""
        top = self.open(kind, runs.holds, argument=runs.argument)
        top.certain = runs.certain
        return top

    def close(self, word: str) -> Branch | None:
        """End the innermost branch that a word ends (`fi`, `done`, `esac`, a bracket), and return it."""
        if self.stack and self.stack[-1].kind in _ENDS[word]:
            return self.stack.pop()
        return None

    def begin_if(self) -> None:
        """Begin the condition of an `if`."""
        reached = self.taken
        top = self.open("if", reached)
        top.opening, top.decides, top.held = True, reached, False

    def begin_elif(self) -> None:
        """Begin the condition of an `elif`."""
        if not self.stack or self.stack[-1].kind != "if":
            return
        top = self.stack[-1]
        decided = top.done
        self.switch()
        top.opening, top.held, top.again = True, top.state, True
        top.decides = top.state is True and not decided
        if not top.decides:
            top.state = False

    def begin_loop(self, kind: str, counts: bool) -> None:
        """Begin a loop whose condition is not followed; its body is read once.

        counts  it goes through the script's arguments, of which there are none
        """
        top = self.open(kind, None if counts else True, argument="$@" if counts else "")
        top.certain = not counts
        top.opening, top.held, top.state = True, top.state, False

    def decide(self, status: Status) -> None:
        """End a condition (`then`, `do`)."""
        if not self.opening:
            return
        top = self.stack[-1]
        top.opening = False
        if not top.decides:
            top.state = top.held
            return
        top.state, top.done = status.holds, bool(status.holds)
        top.certain = top.certain and status.certain
        if not top.again:
            top.argument, top.maybe = status.argument, status.holds is None
        elif top.state is None:
            top.argument = ""
        top.decides = False

    def switch(self) -> None:
        """Switch to the other branch of the innermost `if`."""
        if self.stack and self.stack[-1].kind == "if":
            top = self.stack[-1]
            if top.argument:
                top.state, top.done = (None if top.done else True), True
            elif top.state is None or top.maybe:
                top.state, top.maybe = None, True
            else:
                top.done = top.done or bool(top.state)
                top.state = not top.done

    def match(self, patterns: Sequence[str]) -> str:
        """Enter a pattern of the innermost `case`. Return what is unknown of its subject; "" if nothing."""
        top = self.stack[-1]
        plain, names, unknown = marks(top.subject)
        top.waits, top.certain = False, top.certain and not names
        if unknown:
            top.state = None
        else:
            hit = any(fnmatchcase(plain, pattern) for pattern in patterns)
            top.state = hit and not top.done
            top.done = top.done or hit
        return unknown

    def end_pattern(self) -> None:
        """Leave a pattern of the innermost `case` (`;;`)."""
        for top in reversed(self.stack):
            if top.kind == "case":
                top.state, top.waits = False, True
                return

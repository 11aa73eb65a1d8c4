"""Words of a command line → options by name. Every problem is found in one go, each with its hint."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs, OptionText
from napkin.errors import NapkinError, Problems, did_you_mean
from napkin.options.option import Option
from napkin.options.registry import OPTIONS, spelled

HELP = {"--help": "help", "-h": "help", "--help-all": "help-all"}
TRUTH = {"true": True, "false": False}


class Reader:
    """Reads the words after a command's name.

    given     options by name, in the order in which they were given last
    problems  what could not be understood
    help      "help" or "help-all" where it is asked for
    """

    def __init__(self, command: Command, words: Sequence[str]) -> None:
        self.command = command
        self.given: dict[str, OptionText] = {}
        self.problems: list[NapkinError] = []
        self.help = ""
        self._taken = {*command.names, *command.figures}
        self._words = words
        self._at = 0
        self._read()

    def _read(self) -> None:
        loose: list[str] = []
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if word == "--":
                loose += self._words[self._at :]
                break
            if word in HELP:
                self.help = HELP[word]
            elif is_option(word):
                self._option(word)
            else:
                loose.append(word)
        self._arguments(loose)

    def _option(self, word: str) -> None:
        """Read an option, with its value from the same word (`--x=V`) or the next one."""
        head, equals, tail = word.partition("=")
        spelling = head.lstrip("-").replace("_", "-").lower()
        value = tail if equals else None
        option = self._find(spelling) if head.startswith("--") else self._short(head)
        if option is not None and option.flag:
            self._flag(option, head, value, True)
            return
        negated = self._find(spelling[3:]) if option is None and spelling.startswith("no-") else None
        if negated is not None and negated.flag:
            self._flag(negated, head, value, False)
        elif option is None:
            self._unknown(head, spelling)
        else:
            if value is None:
                value = self._next()
            if value is None:
                self._problem(f"{head}: its value is missing", f"{head} {option.metavar}: {option.help}")
                return
            self._put(option, [value] if option.many else value, head)

    def _find(self, spelling: str) -> Option | None:
        """Return the option of this command with that name, or with that other spelling."""
        name = spelled(spelling, self._taken)
        return None if name is None else OPTIONS[name]

    def _short(self, letter: str) -> Option | None:
        return next((o for name in self.command.takes if (o := OPTIONS[name]).short == letter), None)

    def _flag(self, option: Option, head: str, value: str | None, meaning: bool) -> None:
        """Read a flag; `true` or `false` may follow it, as other tools write it."""
        if value is None and self._at < len(self._words) and self._words[self._at].lower() in TRUTH:
            value = self._next()
        if value is None:
            self._put(option, meaning, head)
        elif value.lower() in TRUTH:
            self._put(option, TRUTH[value.lower()] is meaning, head)
        else:
            self._problem(f"{head}: a flag takes no value, and {value[:60]!r} is given", f"write {head} alone")

    def _next(self) -> str | None:
        """Return the next word where it can be a value."""
        if self._at >= len(self._words) or is_option(self._words[self._at]):
            return None
        self._at += 1
        return self._words[self._at - 1]

    def _put(self, option: Option, text: object, head: str) -> None:
        self.given.pop(option.name, None)
        self.given[option.name] = OptionText(text, where="" if head == option.shown else head)

    def _unknown(self, head: str, spelling: str) -> None:
        known = [OPTIONS[name].shown for name in (*self.command.takes, *self.command.figures)]
        begun = [name for name in known if name.startswith(f"--{spelling}")] if len(spelling) > 1 else []
        close = f"did you mean {' or '.join(begun[:3])}?" if begun else did_you_mean(f"--{spelling}", known)
        self._problem(
            f"{self.command.name} has no option {head[:60]}",
            close or f"napkin {self.command.name} --help lists the options",
        )

    def _arguments(self, loose: list[str]) -> None:
        """Give the words without dashes to the command's arguments, in their order."""
        for name in self.command.arguments:
            option = OPTIONS[name]
            if not loose:
                return
            if name in self.given:
                continue
            taken = loose if option.many else loose[:1]
            loose = loose[len(taken) :]
            self._put(option, taken if option.many else taken[0], option.shown)
        for word in loose:
            takes = " ".join(OPTIONS[name].metavar for name in self.command.arguments) or "no words without dashes"
            self._problem(f"unexpected word {word[:60]!r}", f"napkin {self.command.name} takes {takes}, then options")

    def _problem(self, message: str, hint: str) -> None:
        self.problems.append(NapkinError(message, hint))


def is_option(word: str) -> bool:
    """Whether a word is an option and not a value: `-` and negative numbers are values."""
    return word.startswith("-") and len(word) > 1 and not (word[1].isdigit() or word[1] == ".")


def read(command: Command, words: Sequence[str]) -> Reader:
    """Return what the words say. Raises NapkinError (2) with all that is wrong: unknown options, missing and unreadable
    values, surplus words."""
    reader = Reader(command, words)
    if reader.problems and not reader.help:
        found = [*reader.problems, *_unreadable(command, reader.given)]
        raise found[0] if len(found) == 1 else Problems(found)
    return reader


def _unreadable(command: Command, given: dict[str, OptionText]) -> Sequence[NapkinError]:
    """Return what is wrong with the values that were given."""
    try:
        Inputs(command, given)
    except Problems as several:
        return several.problems
    except NapkinError as one:
        return (one,)
    return ()

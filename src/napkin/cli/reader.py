"""Words of a command line → options by name. All problems are reported at once, each with a hint."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.cli.other_tools import OtherTools, PastedLine
from napkin.cli.words import is_option
from napkin.commands.command import WRAPPERS, Command
from napkin.commands.inputs import Inputs
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError, Problems
from napkin.options.option import Option
from napkin.options.registry import OPTIONS
from napkin.units import Unreadable

HELP = {"--help": "help", "-h": "help", "--help-all": "help-all", "-hh": "help-all"}


class Line(OtherTools):
    """A command line, parsed as far as possible."""

    def __init__(self, command: Command, words: Sequence[str], megatron: bool = False) -> None:
        super().__init__(command, words, megatron)
        self._after_flags: dict[str, str] = {}
        self.surplus = False
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
            elif not self._is_unit_of_value(word):
                self._after_flags[word] = self._flag_before()
                loose.append(word)
        self._arguments(loose)
        if self._shape:
            self._model_of_shape()
        if self._megatron and "samples" in self.given:
            self._fill_samples()
        if self._modules:
            self._fill_modules()
        if {"trainer", "zero"} <= set(self.given):
            self._fill_framework()
        if self._several:
            self._ask_sweep()

    def _is_unit_of_value(self, word: str) -> bool:
        """Return whether a word is the unit of the number before it, and append it to that number: `--within 14 days`,
        `--params 7 B`."""
        head, number = self._words[max(self._at - 3, 0)], self._words[max(self._at - 2, 0)]
        name = head.lstrip("-")
        one = self.given.get(name)
        if not (word.isalpha() and number.replace(".", "", 1).isdigit() and one is not None and one.text == number):
            return False
        if not _reads(name, number + word) and _reads(name, number):
            return False  # else the refusal is about both words
        self.given[name] = OptionText(number + word, where=one.where, shared=one.shared)
        return True

    def _flag_before(self) -> str:
        """Return the option before the current word, if it takes no value."""
        name = self._words[self._at - 2].lstrip("-") if self._at > 1 else ""
        return name if name in self._taken and OPTIONS[name].flag else ""

    def _option(self, word: str) -> None:
        """Read an option, with its value from the same word (`--x=V`) or the next one."""
        head, equals, tail = word.partition("=")
        value = tail if equals else None
        spelling = head.lstrip("-—–").replace("_", "-").lower()
        if not head.startswith("--"):
            option = self._short(head)
            if option is None:
                self._misdashed(head, spelling)
                return
        elif head.startswith("---"):
            self._misdashed(head, spelling)
            return
        elif self._megatron and self._of_megatron(head, spelling, value):
            return
        else:
            option = OPTIONS[spelling] if spelling in self._taken else None
        if option is not None:
            self._value(option, head, value)
        elif spelling[:3] == "no-" and spelling[3:] in self._taken and OPTIONS[spelling[3:]].flag:
            self._flag(OPTIONS[spelling[3:]], head, value, False)
        else:
            self._otherwise(head, spelling, value)

    def _arguments(self, loose: list[str]) -> None:
        """Assign the words without dashes to the command's positional arguments, in order."""
        plain = [word for word in loose if not self._misplaced(word, len(loose) > 1)]
        for name in self.command.arguments:
            option = OPTIONS[name]
            if name in self.given and plain and name == "model" and not _is_shape(plain[0]):
                self._second_model(plain.pop(0))
            if name in self.given or not plain:
                continue
            if _is_another_size(option, plain[0]):
                break
            taken = plain if option.many else plain[:1]
            plain = plain[len(taken) :]
            if option.many and not all(word.strip() for word in taken):
                self._problem(f"{option.shown}: it is empty", "give a value")
                continue
            self._put(option, taken if option.many else taken[0], option.shown)
        stated = str(self.given["size"].text) if "size" in self.given else ""
        if plain and _is_shape(stated) and all(word.isdigit() for word in plain):
            shape = "x".join((stated, *plain))
            self._problem(f"unexpected words {' '.join(plain)[:60]!r}", f"write a shape as one word: {shape}")
            return
        other = "against" in self._taken and bool(plain) and plain[0].startswith("--")  # an option past a bare --
        for word in plain[:1] if other or self.command.name in WRAPPERS else plain:
            from napkin.cli.refusals import unexpected_word

            self.surplus = True
            self.problems.append(unexpected_word(self.command, word, self.given, self._after_flags.get(word, "")))

    def _second_model(self, word: str) -> None:
        """Refuse a MODEL next to an option that means MODEL, unless both say the same."""
        first = self.given["model"]
        if str(first.text).lower() != word.lower():
            self._problem(
                f"a contradiction: MODEL {word[:60]} and {first.where} {str(first.text)[:60]} are two models",
                "leave out one of the two",
            )

    def _misplaced(self, word: str, among_others: bool) -> bool:
        """Reject a word that belongs to an option, such as `seq=8192`, or `h100` next to a model. Return whether it was
        one."""
        head, equals, text = word.partition("=")
        if equals and "{" not in head and "/" not in head:
            from napkin.options.registry import spelled

            name = spelled(head.rpartition(".")[2], self._taken)
            if name is not None:
                self._problem(f"unexpected word {word[:60]!r}", f"--{name} {text[:60]}")
                return True
        if among_others and "hardware" in self._taken and "model" in self.command.arguments:
            from napkin.cli.spellings import is_accelerator

            if len(word) < 60 and is_accelerator(word):
                self._problem(f"unexpected word {word!r}", f"--hardware {word}")
                return True
        return False

    def _model_of_shape(self) -> None:
        """Take the shape that a Megatron launch states as MODEL."""
        from napkin.cli.megatron import config_of, trains_predictions

        if "mtp" in self._taken and trains_predictions(self._shape):
            self.given.setdefault("mtp", OptionText(True, where="--mtp-num-layers"))
        if "model" in self.given:
            self.unused += [f"--{name}" for name in self._shape]
            return
        try:
            self.given["model"] = OptionText(config_of(self._shape, self.given), where="MODEL")
        except NapkinError as problem:
            self.problems.append(problem)

    def _ask_sweep(self) -> None:
        """Reject a list or range for an option that takes one value, with the `sweep` command that answers it."""
        from napkin.cli.refusals import ask_sweep

        self.problems += ask_sweep(self.command, self.given, self._several)


def _reads(name: str, text: str) -> bool:
    """Return whether an option accepts a text as its value."""
    try:
        OPTIONS[name].parse(text)
    except Unreadable:
        return False
    return True


def _is_shape(word: str) -> bool:
    """Return whether a word states the shape of an operation: `4096x4096`, `1024`."""
    return word.lower().replace("x", "").isdigit()


def _is_another_size(option: Option, word: str) -> bool:
    """Return whether a word is a size such as `300B`, given for an argument that takes one of a few words: it belongs
    to an option."""
    if not option.choices or word.lower() in option.choices:
        return False
    from napkin.cli.spellings import is_size

    return is_size(word)


def read(command: Command, words: Sequence[str]) -> Line:
    """Return the parsed command line. Raises NapkinError (2) with every problem: unknown options, missing and
    unreadable values, surplus words."""
    try:
        line = Line(command, words)
    except PastedLine:
        line = Line(command, words, megatron=True)
    if line.problems and not line.help:
        from napkin.cli.refusals import refuse_missing_command, refuse_trainer_line

        refuse_missing_command(command, words)
        refuse_trainer_line(command, words)
        found = [*line.problems, *_unreadable(command, line.given, line.surplus)]
        raise found[0] if len(found) == 1 else Problems(found)
    return line


def _unreadable(command: Command, given: dict[str, OptionText], surplus: bool) -> Sequence[NapkinError]:
    """Return the errors of the given values, or of names that nothing has.

    surplus: a word is left, which a name that nothing has may lack
    """
    from napkin.commands.unknown_names import read_all_unknown

    try:
        inputs = Inputs(command, given)
        return [] if surplus else read_all_unknown(inputs)
    except Problems as several:
        return several.problems
    except NapkinError as one:
        return (one,)

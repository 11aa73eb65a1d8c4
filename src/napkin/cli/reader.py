"""Words of a command line → options by name. Every problem is found in one go, each with its hint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from napkin.commands.command import WRAPPERS, Command
from napkin.commands.inputs import Inputs
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError, Problems
from napkin.options.option import Option
from napkin.options.registry import OPTIONS

HELP = {"--help": "help", "-h": "help", "--help-all": "help-all", "-hh": "help-all"}
TRUTH = {"true": True, "false": False}
DASHES = ("-", "—", "–")


class Line:
    """What a command line says, as far as it can be understood.

    given     options by name, in the order in which they were given last
    problems  what could not be understood
    help      "help" or "help-all" where it is asked for
    unused    options of a pasted launch line that change nothing here
    """

    def __init__(self, command: Command, words: Sequence[str], megatron: bool = False) -> None:
        self.command = command
        self.given: dict[str, OptionText] = {}
        self.problems: list[NapkinError] = []
        self.help = ""
        self.unused: list[str] = []
        self._words = words
        self._at = 0
        self._megatron = megatron
        self._shape: dict[str, str] = {}
        self._several: dict[str, str] = {}
        self._after_flags: dict[str, str] = {}
        self._counted = ""
        self._taken = {*command.names, *command.figures}
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
                self._after_flags[word] = self._flag_before()
                if not self._is_unit_of_value(word):
                    loose.append(word)
        self._arguments(loose)
        if self._shape:
            self._model_of_shape()
        if self._several:
            self._ask_sweep()

    def _is_unit_of_value(self, word: str) -> bool:
        """Whether a word is the unit of the number before it, which it joins: `--within 14 days`, `--params 7 B`."""
        head, number = self._words[max(self._at - 3, 0)], self._words[max(self._at - 2, 0)]
        name = head.lstrip("-")
        one = self.given.get(name)
        if not (word.isalpha() and number.replace(".", "", 1).isdigit() and one is not None and one.text == number):
            return False
        from napkin.units import Unreadable

        try:
            OPTIONS[name].parse(number + word)
        except Unreadable:
            return False
        self.given[name] = OptionText(number + word, where=one.where, shared=one.shared)
        return True

    def _flag_before(self) -> str:
        """Return the option before the current word, where it takes no value."""
        name = self._words[self._at - 2].lstrip("-") if self._at > 1 else ""
        return name if name in self._taken and OPTIONS[name].flag else ""

    # --- options ---

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

    def _short(self, letter: str) -> Option | None:
        return next((o for name in self.command.takes if (o := OPTIONS[name]).short == letter), None)

    def _value(self, option: Option, head: str, value: str | None) -> None:
        """Read the value of an option, a flag's too."""
        if option.flag:
            self._flag(option, head, value, True)
            return
        text = self._next() if value is None else value
        if text is None:
            self._problem(f"{head}: its value is missing", option.usage)
        else:
            self._put(option, [text] if option.many else text, head)

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

    def _ahead(self) -> str | None:
        """Return the next word where it can be a value."""
        if self._at >= len(self._words) or is_option(self._words[self._at]) or self._words[self._at] == "--":
            return None
        return self._words[self._at]

    def _next(self) -> str | None:
        word = self._ahead()
        self._at += word is not None
        return word

    def _put(self, option: Option, text: object, head: str) -> None:
        """Keep an option's text; the last wins."""
        if isinstance(text, str) and not option.flag:
            if option.name in ("max", "min", "precision") and self._has_another_value(option, text, head):
                return
            if option.name in ("hardware", "gpus") and self._machine(option, text, head):
                return
            if ("," in text or ".." in text) and self._is_several(option, text):
                self._several[option.name] = text
                self.given.pop(option.name, None)
                return
        self._several.pop(option.name, None)
        self.given.pop(option.name, None)
        self.given[option.name] = OptionText(text, where="" if head == option.shown else head, shared=self._megatron)

    def _has_another_value(self, option: Option, text: str, head: str) -> bool:
        """Refuse a value that the option does not have, but people expect; whether it was one."""
        from napkin.options.meanings import VALUES

        hint = VALUES[option.name].get(text.strip().lower().replace("_", "-"))
        if hint is not None and text.strip().lower() not in option.choices:
            self._problem(f"{head}: {text[:60]!r} is not one of its values", hint)
            return True
        return False

    def _is_several(self, option: Option, text: str) -> bool:
        from napkin.cli.spellings import is_several
        from napkin.commands.command import MODULES

        name = self.command.target or self.command.name
        own = name in WRAPPERS or option.name in ("over", "by") or name not in MODULES
        return not own and is_several(option, text, self.command.reads.get(option.name, option.parse))

    def _machine(self, option: Option, text: str, head: str) -> bool:
        """Read `8xh100` where an accelerator or a count of them belongs; whether that is what it was."""
        letters = any(c.isalpha() for c in text) if option.name == "gpus" else any(c in "xX×*:" for c in text)
        if not letters or not any(c.isdigit() for c in text):
            return False
        from napkin.cli.spellings import is_accelerator, machine

        found = machine(text)
        if not {"gpus", "hardware"} <= self._taken:
            return False
        if found is None:
            wrong = option.name == "gpus" and is_accelerator(text)
            if wrong:
                self._problem(f"{head}: {text!r} is an accelerator, not a number", f"--hardware {text} --gpus 8")
            return wrong
        for name, value in zip(("gpus", "hardware"), found, strict=True):
            self.given.pop(name, None)
            self.given[name] = OptionText(value, where=head)
        return True

    # --- names of other tools ---

    def _otherwise(self, head: str, spelling: str, value: str | None) -> None:
        """Read an option under another name than its own."""
        from napkin.cli.spellings import is_megatron
        from napkin.options import meanings, synonyms

        if not self._megatron and is_megatron(self._words):
            raise _PastedLine
        names = dict.fromkeys((spelling, spelling.rpartition(".")[2]))
        if self._megatron and self._of_another_command(head, names, value):
            return
        for name in names:
            same = synonyms.named(name, self._taken)
            if same is not None:
                self._value(self._in_its_place(OPTIONS[same]), head, value)
                return
            means = meanings.meanings(name)
            if means is None and name[:3] == "no-":
                means = meanings.meanings(name[3:])
                means = {"": means["false"]} if means and "false" in means else None
            if means is not None:
                self._mean(head, means, value)
                return
        self._unknown(head, spelling, value)

    def _in_its_place(self, option: Option) -> Option:
        """Return the option that a name means in this line."""
        from napkin.cli.spellings import is_count_of
        from napkin.options.synonyms import INSTEAD

        other = INSTEAD.get(option.name)
        if other in self._taken and "--inference" in self._words:
            return OPTIONS[other]
        if option.name == "hardware" and "gpus" in self._taken and is_count_of(self._ahead()):
            return OPTIONS["gpus"]  # --gpu 8
        return option

    def _mean(self, head: str, means: Mapping[str, str], value: str | None) -> None:
        """Read a spelling with another form of value than the option that it means."""
        from napkin.cli.spellings import filled, meaning

        found = meaning(means, value, self._ahead())
        if found is None:
            self._problem(f"{head}: its value is missing", f"for example {head} {next(iter(means))}".rstrip("*# "))
            return
        value = self._ahead() if found.used else value
        self._at += found.used
        shown = head if value is None else f"{head} {value}"
        if found.refusal:
            hint = filled(found.refusal, {**self._texts(), "epochs": value or ""})
            self._problem(f"{shown[:80]} is not an option of napkin {self.command.name}", hint)
            return
        for name, _ in found.options:
            if name not in self._taken and self._megatron:
                self.unused.append(head)
                return
            if name not in self._taken:
                meant = " ".join(f"--{n} {t}".rstrip() for n, t in found.options)
                self._problem(f"{shown[:80]} means {meant}", f"--{name} is not an option of {self.command.name}")
                return
        for name, text in found.options:
            self._put(OPTIONS[name], True if OPTIONS[name].flag else text, shown)

    def _texts(self) -> dict[str, str]:
        """Return the options of the whole line as texts, for hints that compute with them."""
        pairs = zip(self._words, self._words[1:], strict=False)
        return {word[2:]: text for word, text in pairs if word.startswith("--")}

    def _of_megatron(self, head: str, spelling: str, value: str | None) -> bool:
        """Read an option of a line pasted from a Megatron launch; whether Megatron gives it a meaning of its own."""
        from napkin.options import launches, meanings

        means = meanings.meanings(spelling, launches.MEGATRON_MEANS)
        if means is not None:
            self._mean(head, means, value)
            return True
        number = launches.others(launches.SHAPE).get(spelling)
        if number is not None and "model" in self._taken:
            self._shape[spelling] = "true" if number == "0" else (self._next() if value is None else value) or ""
            return True
        unused = launches.others(launches.MEGATRON_UNUSED)
        for names in launches.CHANGES_NOTHING.values():
            unused |= launches.others(names)
        if spelling not in unused:
            return False
        self.unused.append(head)
        if value is None:
            self._skip(unused[spelling])
        return True

    def _of_another_command(self, head: str, names: Iterable[str], value: str | None) -> bool:
        """Pass over an option of a launch that this command does not have, but others do; whether it was one."""
        from napkin.options.registry import spelled

        found = [option for name in names if (option := spelled(name, OPTIONS)) is not None]
        if not found or any(spelled(name, self._taken) for name in names):
            return False
        self.unused.append(head)
        if value is None and not OPTIONS[found[0]].flag:
            self._next()
        return True

    def _skip(self, number: str) -> None:
        """Pass over the values of an option: so many, or all (`*`)."""
        left = len(self._words) if number == "*" else int(number)
        while left and self._next() is not None:
            left -= 1

    def _unknown(self, head: str, spelling: str, value: str | None) -> None:
        """Refuse an option that no table knows, with the nearest one."""
        from napkin.cli.refusals import unknown_option

        if value is None:
            self._next()  # its value, which is no problem of its own
        self.problems.append(unknown_option(self.command, head, spelling))

    def _misdashed(self, head: str, spelling: str) -> None:
        """Refuse `-tp` and `—gpus`, with the option that is meant."""
        from napkin.cli.refusals import misdashed

        self._next()
        self.problems.append(misdashed(self.command, head, spelling))

    # --- words without dashes ---

    def _arguments(self, loose: list[str]) -> None:
        """Give the words without dashes to the command's arguments, in their order."""
        plain = [word for word in loose if not self._misplaced(word, len(loose) > 1)]
        for name in self.command.arguments:
            option = OPTIONS[name]
            if name in self.given and plain and name == "model" and not _is_shape(plain[0]):
                self._second_model(plain.pop(0))
            if name in self.given or not plain:
                continue
            taken = plain if option.many else plain[:1]
            plain = plain[len(taken) :]
            self._put(option, taken if option.many else taken[0], option.shown)
        if plain and "size" in self.given and all(word.isdigit() for word in plain):
            shape = "x".join((str(self.given["size"].text), *plain))
            self._problem(f"unexpected words {' '.join(plain)[:60]!r}", f"write a shape as one word: {shape}")
            return
        for word in plain:
            from napkin.cli.refusals import unexpected_word

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
        """Refuse a word that belongs to an option: `seq=8192`, or `h100` next to a model; whether it was one."""
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
        from napkin.cli.megatron import config_of

        if "model" in self.given:
            self.unused += [f"--{name}" for name in self._shape]
            return
        try:
            self.given["model"] = OptionText(config_of(self._shape, self.given), where="MODEL")
        except NapkinError as problem:
            self.problems.append(problem)

    def _ask_sweep(self) -> None:
        """Refuse lists and ranges where one value belongs, with the sweep that answers them."""
        from napkin.cli.refusals import ask_sweep

        self.problems += ask_sweep(self.command, self.given, self._several)

    def _problem(self, message: str, hint: str) -> None:
        self.problems.append(NapkinError(message, hint))


class _PastedLine(Exception):
    """The line is one of Megatron-LM: what was read before that was seen may mean something else."""


def is_option(word: str) -> bool:
    """Return whether a word is an option and not a value: `-` and negative numbers are values."""
    return word.startswith(DASHES) and len(word) > 1 and not (word[1].isdigit() or word[1] == ".")


def _is_shape(word: str) -> bool:
    """Return whether a word states the shape of an operation: `4096x4096`, `1024`."""
    return word.lower().replace("x", "").isdigit()


def read(command: Command, words: Sequence[str]) -> Line:
    """Return what the words say. Raises NapkinError (2) with all that is wrong: unknown options, missing and unreadable
    values, surplus words."""
    try:
        line = Line(command, words)
    except _PastedLine:
        line = Line(command, words, megatron=True)
    if line.problems and not line.help:
        found = [*line.problems, *_unreadable(command, line.given)]
        raise found[0] if len(found) == 1 else Problems(found)
    return line


def _unreadable(command: Command, given: dict[str, OptionText]) -> Sequence[NapkinError]:
    """Return what is wrong with the values that were given."""
    try:
        Inputs(command, given)
    except Problems as several:
        return several.problems
    except NapkinError as one:
        return (one,)
    return ()

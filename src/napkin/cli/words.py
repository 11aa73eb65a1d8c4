"""The words of a command line, read in order, with the values of its options."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.command import WRAPPERS, Command
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError
from napkin.options.option import Option, words_of
from napkin.options.registry import OPTIONS

TRUTH = {"true": True, "false": False}
DASHES = ("-", "—", "–")
HINTED = (
    *("adapter", "attention", "framework", "max", "min", "optimizer", "precision", "quantized", "task", "trainer"),
    *("recompute", "zero"),
)
"""The options in VALUES of options/meanings.py, a module loaded only for values that these options do not have."""


class Words:
    """The words of a line and the result of parsing them so far.

    given     options by name, in the order of their last occurrence
    problems  what could not be understood
    help      "help" or "help-all" if it is asked for
    unused    options of a pasted launch line that have no effect here
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
        self._modules: list[str] = []
        self._several: dict[str, str] = {}
        self._taken = {*command.names, *command.figures}

    def _short(self, letter: str) -> Option | None:
        return next((o for name in self.command.takes if (o := OPTIONS[name]).short == letter), None)

    def _value(self, option: Option, head: str, value: str | None) -> None:
        """Read the value of an option or a flag."""
        if option.flag:
            self._flag(option, head, value, True)
            return
        text = self._next() if value is None else value
        if text is None:
            self._problem(f"{head}: its value is missing", option.usage)
        elif option.name == "over":
            self._axis(text, head)
        else:
            before = self.given.get(option.name) if option.many and not option.positional else None
            earlier = before.text if before is not None and isinstance(before.text, list) else []
            self._put(option, [*earlier, text] if option.many else text, head)

    def _axis(self, text: str, head: str) -> None:
        """Keep the values of --over; repeated for another option it is --by."""
        swept = text.partition("=")[0]
        for name in ("over", "by"):
            held = self.given.get(name)
            if held is None or str(held.text).partition("=")[0] == swept:
                self._put(OPTIONS[name], text, head)
                return
        self._problem(f"{head} {swept[:60]}: two options are swept already", "a sweep takes --over and --by")

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
        """Return the next word if it can be a value."""
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
            if option.name in HINTED and self._has_another_value(option, text, head):
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
        """Reject a value that users expect but the option does not have; return whether it was one."""
        own = self.command.reads.get(option.name, option.parse)
        if text.strip().lower() in words_of(own):
            return False
        from napkin.options.meanings import VALUES

        means, word = VALUES[option.name], text.strip().lower().replace("_", "-")
        hint = means.get(word) or (means.get("*.json") if word.endswith(".json") else None)
        if hint is not None:
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
        """Read `8xh100` given as an accelerator or as a count; return whether it was that."""
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

    def _problem(self, message: str, hint: str) -> None:
        self.problems.append(NapkinError(message, hint))


def is_option(word: str) -> bool:
    """Return whether a word is an option and not a value: `-` and negative numbers are values."""
    return word.startswith(DASHES) and len(word) > 1 and not (word[1].isdigit() or word[1] == ".")

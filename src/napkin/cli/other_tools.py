"""Options under the names of other tools, lines pasted from a Megatron launch, and unknown options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from napkin.cli.words import Words
from napkin.commands.signature import OptionText
from napkin.errors import PRINTED
from napkin.options.option import Option
from napkin.options.registry import OPTIONS
from napkin.options.training import PARAMETERS_TOO


class PastedLine(Exception):
    """The line is a Megatron-LM launch; the words read before this was recognized may mean something else."""


class OtherTools(Words):
    """Words that are not options of the command. Each is a synonym of an option, has no effect here, or is rejected
    with a hint."""

    @cached_property
    def _is_pasted(self) -> bool:
        from napkin.cli.spellings import is_megatron

        return is_megatron(self._words)

    def _otherwise(self, head: str, spelling: str, value: str | None) -> None:
        """Read an option given under a synonym."""
        from napkin.options import meanings, synonyms

        if not self._megatron and self._is_pasted:
            raise PastedLine
        names = dict.fromkeys((spelling, spelling.rpartition(".")[2]))
        if self._megatron and self._of_another_command(head, names, value):
            return
        for name in names:
            same = synonyms.named(name, self._taken)
            if same is not None:
                self._value(self._in_its_place(OPTIONS[same], value), head, value)
                return
            means = None if name in OPTIONS else meanings.meanings(name)  # else one of another command
            if means is None and name[:3] == "no-":
                means = meanings.meanings(name[3:])
                means = {"": means["false"]} if means and "false" in means else None
            if means is not None:
                self._mean(head, means, value)
                return
        self._unknown(head, spelling, value)

    def _of_another_command(self, head: str, names: Iterable[str], value: str | None) -> bool:
        """Skip an option of a launch that only other commands have; return whether it was one."""
        from napkin.options.registry import spelled

        found = [option for name in names if (option := spelled(name, OPTIONS)) is not None]
        if not found or any(spelled(name, self._taken) for name in names):
            return False
        self.unused.append(head)
        if value is None and not OPTIONS[found[0]].flag:
            self._next()
        return True

    def _in_its_place(self, option: Option, value: str | None) -> Option:
        """Return the option that a name refers to in this line; value: that of `--name=value`."""
        from napkin.cli.spellings import is_count_of
        from napkin.options.synonyms import INSTEAD

        other = INSTEAD.get(option.name)
        if other in self._taken and "--inference" in self._words:
            return OPTIONS[other]
        if option.name == "hardware" and "gpus" in self._taken and is_count_of(value or self._ahead()):
            return OPTIONS["gpus"]  # --gpu 8
        return option

    def _mean(self, head: str, means: Mapping[str, str], value: str | None) -> None:
        """Read a synonym whose value has another form than the option's."""
        from napkin.cli.spellings import filled
        from napkin.options.meaning import meaning

        found = meaning(means, value, self._ahead())
        if found is None:
            self._problem(f"{head}: its value is missing", _example(head, means))
            return
        value = self._ahead() if found.used else value
        self._at += found.used
        shown = head if value is None else f"{head} {value}"
        given = bool(found.unless) and self._has(found.unless)
        if given and not found.options:
            self.unused.append(shown)
            return
        if found.refusal and not given:
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

    def _has(self, name: str) -> bool:
        """Return whether the line has an option, under any of its names."""
        from napkin.options.synonyms import SAME

        names = {name, *SAME[name].split()}
        return any(word.partition("=")[0].lstrip("-").replace("_", "-").lower() in names for word in self._words)

    def _texts(self) -> dict[str, str]:
        """Return the options of the entire line as texts, for hints that compute with them."""
        pairs = zip(self._words, self._words[1:], strict=False)
        first = {"params": self._words[0]} if self._words and not self._words[0].startswith("-") else {}
        return {**first, **{word[2:]: text for word, text in pairs if word.startswith("--")}}

    def _of_megatron(self, head: str, spelling: str, value: str | None) -> bool:
        """Read an option of a line pasted from a Megatron launch; return whether Megatron gives it another meaning."""
        from napkin.options import launches, meanings

        means = meanings.meanings(spelling, launches.MEGATRON_MEANS)
        if means is not None:
            self._mean(head, means, value)
            return True
        if spelling == "recompute-modules" and "recompute" in self._taken:
            while (word := self._next()) is not None:
                self._modules.append(word)
            return True
        overlap = launches.OVERLAPS.get(spelling)
        if overlap is not None and "async-dp" in self._taken:
            if "async-dp" not in self.given or overlap == PARAMETERS_TOO:
                self._put(OPTIONS["async-dp"], overlap, head)
            return True
        amount = launches.MEGATRON_AMOUNT.get(spelling)
        if amount is not None and "tokens" in self._taken:
            self._value(OPTIONS[amount], head, value)
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

    def _fill_samples(self) -> None:
        """Take the samples of a launch as full sequences, unless their length is given."""
        if self.given.get("seq") is None or any(name in self.given for name in ("sample-tokens", "lengths")):
            return
        if self.given["samples"].where == "--train-samples":
            self.given["sample-tokens"] = OptionText(self.given["seq"].text, where="--train-samples", shared=True)

    def _fill_modules(self) -> None:
        """Take the modules of a launch as the parts that selective recomputation names; nothing else reads them."""
        again = self.given.get("recompute")
        if again is None or again.text != "selective":
            self.unused.append("--recompute-modules")
            return
        self._put(OPTIONS["recompute"], f"selective:{'+'.join(self._modules)}", "--recompute-modules")
        if "framework" in self._taken and "framework" not in self.given:  # the one that recomputes modules by name
            self.given["framework"] = OptionText("megatron-core", where="--recompute-modules", shared=True)

    def _fill_framework(self) -> None:
        """Take FSDP as the framework if a line states sharding in FSDP's words (`--fsdp full_shard`) and a library for
        which a ZeRO stage means another one."""
        stage = self.given["zero"]
        if "framework" in self.given or not any(word in stage.where.lower() for word in ("fsdp", "shard")):
            return
        from napkin.training.trainers import TRAINERS

        trainer = TRAINERS.get(str(self.given["trainer"].text).lower())
        if trainer is not None and trainer.implied(int(str(stage.text))) not in ("", "fsdp") and trainer.has("fsdp"):
            self.given["framework"] = OptionText("fsdp", where=stage.where)

    def _skip(self, number: str) -> None:
        """Skip the values of an option: this many, or all (`*`)."""
        left = len(self._words) if number == "*" else int(number)
        while left and self._next() is not None:
            left -= 1

    def _unknown(self, head: str, spelling: str, value: str | None) -> None:
        """Refuse an option that no table knows, with the nearest one."""
        from napkin.cli.refusals import unknown_option

        if value is None:
            self._next()  # its value, which is not a problem of its own
        self.problems.append(unknown_option(self.command, head, spelling, len(self.problems) < PRINTED))

    def _misdashed(self, head: str, spelling: str) -> None:
        """Refuse `-tp` and `—gpus`, with the option that is meant."""
        from napkin.cli.refusals import misdashed

        self._next()
        self.problems.append(misdashed(self.command, head, spelling))


def _example(head: str, means: Mapping[str, str]) -> str:
    """Return a hint for a synonym without its value: what the first of its values means."""
    word, meaning = next(iter(means.items()))
    if meaning.startswith(("!", "?")):
        return meaning[1:]
    value = "X" if word in ("*", "#") else word
    return f"{head} {value} is {meaning.replace('{}', 'X')}"

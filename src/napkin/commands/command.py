"""A command: its options, its defaults, and the function that answers. Asked the same way by the command line, by run
files, and by the commands that ask others (check, sweep, compare)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from napkin.errors import NapkinError, Problems, did_you_mean
from napkin.options.machine import FIGURES
from napkin.options.option import Option
from napkin.options.output import COMMON, DRAWS
from napkin.options.registry import OPTIONS, canonical
from napkin.render.answer import Answer, Shown
from napkin.term import ASSUMED, GIVEN, SEEN, Term, leaf
from napkin.units import Unreadable

MODULES: dict[str, tuple[str, str]] = {
    "train-time": ("train_time", "How long a training run takes, or what it would need"),
    "max-params": ("max_params", "The largest model whose training state fits"),
    "roofline": ("roofline", "Compute or memory bound: intensity against the accelerator's ridge"),
    "mfu": ("mfu", "Model FLOPs utilization from a measured time or throughput"),
    "memory": ("memory", "Bytes of a training step, bucket by bucket"),
    "step": ("step", "Seconds of a training step, where they go, and how sure that is"),
    "calibrate": ("calibrate", "What your own measured steps say about the shipped constants"),
    "validate": ("validate", "Predicted against measured, for hundreds of published runs"),
    "tensor": ("tensor", "A tensor's bytes, strides, views and offsets"),
    "dtype": ("dtype", "Number formats, and what a value becomes in each"),
    "optimizer": ("optimizer", "What an optimizer keeps for each parameter"),
    "checkpoint": ("checkpoint", "Bytes of a checkpoint, how long it takes to write, how often to write one"),
    "data": ("data", "Bytes of a corpus of token ids"),
    "init": ("init", "How weights are initialized, and what that does to the scale of activations"),
    "params": ("params", "Parameters of a model, exactly"),
    "flops": ("flops", "FLOPs of one training step, by operation and convention"),
    "hardware": ("hardware", "The accelerators that napkin knows, or one with its sources"),
    "models": ("models", "The published architectures that napkin knows, or one with its citation"),
    "plan": ("plan", "Every layout of a machine, ranked: which is fastest, and what fits"),
    "sweep": ("sweep", "Any question over a list or range of an option: a table or a plot"),
    "compare": ("compare", "Two runs, models or machines, and what each difference contributes"),
    "sensitivity": ("sensitivity", "Which input moves an answer most, and where a decision flips"),
    "check": ("check", "Limits on any answer, for CI"),
    "bench": ("bench", "What this machine really does: FLOP/s, bandwidth, a training step"),
}
"""Command → (module in napkin.commands, one line of help)."""

WRAPPERS = ("sweep", "compare", "sensitivity")
"""Commands that ask another one: `sweep train-time` takes its own options and those of train-time."""


IN_POWERS_OF_TWO = ("seq", "target-seq", "batch", "micro-batch", "global-batch", "vocab")
"""Options whose `8k` many people mean as 8,192: a note says what it is here."""


class OptionText:
    """An option's text as the user gave it, and where: `--gpus`, or `run.yaml:3: gpus`."""

    __slots__ = ("origin", "text", "where")

    def __init__(self, text: Any, origin: str = "given", where: str = "") -> None:
        self.text = text
        self.origin = origin
        self.where = where


class Inputs:
    """The resolved inputs of one question, seen only by what reads it. All that is read is shown in the answer."""

    def __init__(self, command: Command, given: Mapping[str, OptionText], only: Container[str] | None = None) -> None:
        self.command = command
        self.only = only
        self.shown: dict[str, Shown] = {}
        self.notes: list[str] = []
        self.figures_used = False
        problems: list[NapkinError] = []
        for name, one in given.items():
            try:
                self._accept(name, one)
            except NapkinError as problem:
                problems.append(problem)
        if problems:
            raise problems[0] if len(problems) == 1 else Problems(problems)

    def _accept(self, name: str, one: OptionText) -> None:
        option = OPTIONS[name]
        where = one.where or option.shown
        value: Any
        if option.flag:
            if not isinstance(one.text, bool):
                raise NapkinError(f"{where}: {one.text!r} is neither true nor false", "write true or false")
            value = one.text
        elif option.many:
            value = tuple(one.text)
        else:
            value = self._read(option, one.text, where)
        text = None if isinstance(one.text, (bool, tuple, list)) else str(one.text)
        self.shown[name] = Shown(value, text, one.origin, option.unit)

    def _read(self, option: Option, text: Any, where: str) -> Any:
        if isinstance(text, bool) or text is None or isinstance(text, (list, dict)):
            shown = "nothing" if text is None else repr(text)[:60]
            raise NapkinError(f"{where}: {shown} is not a number or a text", option.help)
        written = repr(text) if isinstance(text, float) else str(text)
        if any(not c.isprintable() for c in written):
            raise NapkinError(f"{where}: {written[:60]!r} holds control characters", "write it in plain characters")
        try:
            value = self.command.reads.get(option.name, option.parse)(written)
        except Unreadable as problem:
            raise NapkinError(f"{where}: {problem.reason}", problem.hint) from None
        if option.name in IN_POWERS_OF_TWO and written.strip().lower().endswith("k"):
            binary = f"{written.strip()[:-1].rstrip()}Ki"
            self.note(f"{where} {written.strip()} is {value:,}; {value * 1024 // 1000:,} is {binary}")
        return value

    def wants(self, path: str) -> bool:
        """Whether this quantity of the answer is read. A command that asks another often reads few of them."""
        return self.only is None or path in self.only

    def __contains__(self, name: str) -> bool:
        return name in self.shown and self.shown[name].origin != "default"

    def get(self, name: str) -> Any:
        """Return the value, the command's default where none was given, or None."""
        shown = self.shown.get(name)
        if shown is None and name in self.command.defaults:
            self.default(name, self.command.defaults[name])
            shown = self.shown[name]
        return None if shown is None else shown.value

    def need(self, name: str, why: str = "") -> Any:
        """Return the value; an error that names it where it is missing."""
        value = self.get(name)
        if value is None:
            raise NapkinError(f"{OPTIONS[name].shown} is missing{f': {why}' if why else ''}", OPTIONS[name].help)
        return value

    def default(self, name: str, text: str | bool) -> Any:
        """Take `text` for an option that was not given; shown with origin default. Returns the value."""
        if name not in self.shown:
            self._accept(name, OptionText(text, "default"))
        return self.shown[name].value

    def redefault(self, name: str, text: str) -> None:
        """Take another default for an option that was not given."""
        if name not in self:
            self.shown.pop(name, None)
            self.default(name, text)

    def record(self, name: str, value: Any, origin: str, unit: str = "1", text: str | None = None) -> None:
        """Show an input that no option carries (what a preset or a class default says)."""
        self.shown[name] = Shown(value, text, origin, unit)

    def origin(self, name: str) -> str:
        return self.shown[name].origin

    def term(self, name: str, path: str = "") -> Term:
        """Return the option's value as a leaf of the tree."""
        shown = self.shown[name]
        kind = {"default": ASSUMED, "evidence": SEEN}.get(shown.origin, GIVEN)
        return leaf(path or name.replace("-", "_"), shown.value, shown.unit, kind)

    def note(self, text: str) -> None:
        """Add a remark for stderr and for the JSON's notes."""
        if text not in self.notes:
            self.notes.append(text)


class Command:
    """name, summary; arguments and options by name; run: Inputs → Answer; examples that the tests run.

    reads     how this command reads an option's text, where it takes more than others do (plan: --gpus 1024..16384)
    target    for a wrapper, the command that it asks: its options are taken too
    keeps     --output names a file of the command's own (bench: the profile), and the answer goes to stdout"""

    __slots__ = ("arguments", "defaults", "examples", "keeps", "name", "options", "reads", "run", "summary", "target")

    def __init__(
        self,
        name: str,
        summary: str,
        run: Callable[[Inputs], Answer],
        options: Sequence[str],
        arguments: Sequence[str] = (),
        defaults: Mapping[str, str | bool] | None = None,
        examples: Sequence[str] = (),
        target: Command | None = None,
        reads: Mapping[str, Callable[[str], Any]] | None = None,
        keeps: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        self.run = run
        self.options = (*options, *(o for o in COMMON if o not in options))
        self.arguments = tuple(arguments)
        self.defaults = dict(defaults or {})
        self.examples = tuple(examples)
        self.target = target
        self.reads = dict(reads or {})
        self.keeps = keeps

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.arguments, *self.options)

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures of the accelerator that can be given in place of the table's."""
        return FIGURES if "hardware" in self.options else ()

    def around(self, target: Command) -> Command:
        """Return this wrapper, asking `target`."""
        if target.name in WRAPPERS:
            raise NapkinError(f"{self.name} cannot ask {target.name}", "name a command that answers by itself")
        own = tuple(name for name in self.options if name not in COMMON)
        theirs = tuple(name for name in target.options if name not in own)
        return Command(
            f"{self.name} {target.name}",
            self.summary,
            self.run,
            (*own, *theirs),
            target.arguments,
            self.defaults,
            self.examples,
            target,
            target.reads,
        )


def find(name: str) -> Command:
    """Return the command of that name, or a wrapper with the one it asks (`sweep train-time`); only their own modules
    are loaded."""
    outer, _, inner = name.partition(" ")
    if outer not in MODULES:
        raise NapkinError(
            f"no such command {outer!r}", did_you_mean(outer, MODULES) or "napkin --help lists the commands"
        )
    from importlib import import_module

    command: Command = import_module(f"napkin.commands.{MODULES[outer][0]}").COMMAND
    return command.around(find(inner)) if inner and outer in WRAPPERS else command


def named(words: Sequence[str]) -> tuple[Command, list[str]]:
    """Return the command that a command line begins with (two words for a wrapper and what it asks), and the rest."""
    together = 2 if words[0] in WRAPPERS and len(words) > 1 and words[1] in MODULES else 1
    return find(" ".join(words[:together])), list(words[together:])


def ask(command: Command, given: Mapping[str, OptionText], only: Container[str] | None = None) -> Answer:
    """Answer one question. only: the quantities that will be read; others may be omitted where they take long."""
    inputs = Inputs(command, given, only)
    answer = command.run(inputs)
    if not inputs.figures_used and command.target is None:
        for name in FIGURES:
            if name in given and "hardware" in command.options and "hardware" not in given:
                raise NapkinError(f"--{name} needs --hardware", "it takes the place of a figure of that accelerator")
            if name in given:
                raise NapkinError(f"--{name}: {command.name} does not take it", "put it in a file: --hardware-file")
    skipped = {*COMMON, *DRAWS}
    for name, shown in inputs.shown.items():
        if name not in skipped:
            answer.inputs.setdefault(name, shown)
    answer.notes = [*inputs.notes, *(n for n in answer.notes if n not in inputs.notes)]
    return answer


def accepted(
    command: Command, options: Mapping[str, Any], origin: str, where: Callable[[str], str]
) -> dict[str, OptionText]:
    """Return options by any spelling as OptionText by canonical name; unknown names are all refused at once."""
    result: dict[str, OptionText] = {}
    problems: list[NapkinError] = []
    for key, value in options.items():
        name = canonical(str(key))
        if name not in command.names and name not in command.figures:
            place = where(str(key)) or f"--{key}"
            problems.append(
                NapkinError(f"{place}: {command.name} has no such option", did_you_mean(name, command.names))
            )
            continue
        if name in result:
            problems.append(NapkinError(f"{where(str(key)) or name}: is given twice under two spellings"))
            continue
        result[name] = OptionText(value, origin, where(str(key)))
    if problems:
        raise problems[0] if len(problems) == 1 else Problems(problems)
    return result

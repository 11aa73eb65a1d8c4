"""A command: its options, its defaults, and the function that answers. The command line, run files and commands that
run others (check, sweep, compare) all call it the same way."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from napkin._tables import commands as _index
from napkin.commands.inputs import Inputs
from napkin.commands.signature import OptionText, Signature
from napkin.errors import NapkinError, Problems, did_you_mean
from napkin.options.machine import FIGURES
from napkin.options.output import COMMON
from napkin.options.registry import OPTIONS, spelled
from napkin.record import record, replace
from napkin.render.answer import Answer

MODULES: dict[str, tuple[str, str]] = _index.COMMANDS
"""Command → (module in napkin.commands, one line of help)."""

WRAPPERS = ("sweep", "compare", "sensitivity")
"""Commands that run another one: `sweep train-time` takes its own options and those of train-time."""


WRITTEN = frozenset((*COMMON, "plot"))
"""Options of the output, which the code that writes it reads."""

PROBED = frozenset(
    (
        *FIGURES,
        "nodes",
        "gpus-per-node",
        "dropout",
        "dtype",
        "attention",
        "optimizer-form",
        "optimizer-in-backward",
        "implementation",
        "loss",
        "kernels",
        "async-tp",
        "async-dp",
        "async-ep",
        "dispatcher",
        "graphs",
        "schedule",
        "host-memory",
    )
)
"""Options that often have no effect for internal reasons (no traffic leaves the node, the kernel saves no mask). The
question is answered without them as well, and a note says if the answer is the same."""


@record
class Command(Signature):
    """A command: its signature and the function that answers."""

    run: Callable[[Inputs], Answer]

    def around(self, target: Command) -> Command:
        """Return this wrapper around the command `target`."""
        if target.name in WRAPPERS:
            raise NapkinError(f"{self.name} cannot ask {target.name}", "name a command that answers by itself")
        return replace(
            self,
            name=f"{self.name} {target.name}",
            options=(*self.options, *(name for name in target.takes if name not in self.options)),
            arguments=target.arguments,
            reads=target.reads,
            target=target.name,
            verdicts=(),
            success="",
        )


def find(name: str) -> Command:
    """Return the command with that name, or a wrapper with the command that it runs (`sweep train-time`). Only their
    own modules are loaded."""
    outer, _, inner = name.partition(" ")
    if outer not in MODULES:
        raise NapkinError(
            f"no such command {outer!r}", did_you_mean(outer, MODULES) or "napkin --help lists the commands"
        )
    from importlib import import_module

    command: Command = import_module(f"napkin.commands.{MODULES[outer][0]}").COMMAND
    return command.around(find(inner)) if inner and outer in WRAPPERS else command


def named(words: Sequence[str]) -> tuple[Command, list[str]]:
    """Return the command that a command line begins with (two words for a wrapper and its command), and the remaining
    words."""
    together = 2 if words[0] in WRAPPERS and len(words) > 1 and words[1] in MODULES else 1
    return find(" ".join(words[:together])), list(words[together:])


def ask(
    command: Command,
    given: Mapping[str, OptionText],
    only: Container[str] | None = None,
    spare: dict[str, NapkinError] | None = None,
) -> Answer:
    """Answer one question; reject options that have no effect.

    only   the quantities that will be read; others may be omitted if they take long
    spare  collects the errors for options that have no effect, for one of several questions with the same options
    """
    if "phases" in given:
        from napkin.commands.phases import answer_phases  # only if a run file has parts

        return answer_phases(command, given, lambda part, idle: ask(command, part, only, idle))
    inputs = Inputs(command, given, only)
    inputs.depends(("theme",), "plot" in given, "no plot is drawn", "--plot FILE draws one")
    try:
        answer = command.run(inputs)
    except NapkinError as problem:
        from napkin.commands.places import at_their_places
        from napkin.commands.unknown_names import read_unknown_names

        raise at_their_places(read_unknown_names(problem, inputs), given) from None
    unused = {name: why for name, why in inputs.unused().items() if name not in WRITTEN}
    probed = [name for name in given if name in PROBED and name not in unused]
    if unused or (probed and spare is None):
        from napkin.commands.unused import check_unused, note_without_effect

        if spare is None:
            unused |= dict.fromkeys(note_without_effect(inputs, answer, probed, command.run))
        check_unused(inputs, unused, spare)
    for name, shown in inputs.told().items():
        if name not in WRITTEN and name not in unused:
            answer.inputs.setdefault(name, shown)
    answer.notes = [*inputs.notes, *(n for n in answer.notes if n not in inputs.notes)]
    answer.assumed = [*inputs.assumed, *(words for words in answer.assumed if words not in inputs.assumed)]
    return answer


def _is_count(value: object) -> bool:
    """Return whether a value given for an accelerator counts them, and does not name one (4090)."""
    if not str(value).isdigit():
        return False
    from napkin.inputs.hardware import find

    try:
        find(str(value))
    except NapkinError:
        return True
    return False


def accepted(
    command: Signature, options: Mapping[str, object], origin: str, where: Callable[[str], str], shared: bool = False
) -> dict[str, OptionText]:
    """Return options, given in any spelling, as OptionText by canonical name. All unknown options, and all values of
    others that cannot be read or are names that nothing has, are reported at once.

    shared: the options are for several commands, so options of other commands are kept
    """
    result: dict[str, OptionText] = {}
    problems: list[NapkinError] = []
    taken = {*command.names, *command.figures}
    for key, value in options.items():
        name = spelled(str(key), (*taken, *OPTIONS) if shared else taken)
        name = "gpus" if name == "hardware" != str(key) and "gpus" in taken and _is_count(value) else name  # gpu: 8
        meant: Mapping[str, object] | None = {name: value} if name is not None else None
        place = where(str(key)) or f"--{key}"
        if name is None:
            from napkin.commands.other_tools import options_meant

            try:
                meant = options_meant(str(key), value, taken, place)
            except NapkinError as problem:
                problems.append(problem)
                continue
        if meant is None:
            problems.append(
                NapkinError(
                    f"{place}: {command.name} has no such option",
                    did_you_mean(str(key), command.names) or f"napkin {command.name} --help lists the options",
                )
            )
            continue
        if any(one in result for one in meant):
            problems.append(
                NapkinError(f"{where(str(key)) or name}: is given twice under two spellings", "keep one of them")
            )
            continue
        result |= {one: OptionText(text, origin, where(str(key)), shared) for one, text in meant.items()}
    if problems:
        from napkin.commands.places import at_their_places
        from napkin.commands.unknown_names import read_all_unknown

        try:
            problems += [at_their_places(one, result) for one in read_all_unknown(Inputs(command, result))]
        except NapkinError as unreadable:
            problems += unreadable.errors
        raise problems[0] if len(problems) == 1 else Problems(problems)
    return result

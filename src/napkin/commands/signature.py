"""The signature of a command, and the text of an option as the user gave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from napkin.options.machine import FIGURES
from napkin.options.option import Parsed
from napkin.options.output import COMMON
from napkin.record import record

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

Readers = Mapping[str, Callable[[str], Parsed]]
"""How a command reads the text of some options, in place of the options' own parsers."""


@record
class Signature:
    """The signature of a command: its name, options and help.

    summary    what it answers      brief  the same in the list of commands
    options    names of its options             arguments  names of its positional arguments
    defaults   option → default text               examples  command lines, which the tests run
    reads      parsers of options that accept more here than in other commands (plan: --gpus 1024..16384)
    target     for a wrapper, the name of the command that it runs, whose options it takes as well
    opens      it reads the files of --from itself
    keeps      --output names a file that the command itself writes (bench: the profile); the answer goes to stdout
    verdicts   possible verdicts, which a limit can name
    success    the verdict that means that --must-fit, a deadline or a budget holds
    """

    name: str
    summary: str
    _: KW_ONLY
    brief: str = ""
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    defaults: Mapping[str, str | bool] = MappingProxyType({})
    examples: tuple[str, ...] = ()
    reads: Readers = MappingProxyType({})
    target: str = ""
    opens: bool = False
    keeps: bool = False
    verdicts: tuple[str, ...] = ()
    success: str = ""

    @property
    def takes(self) -> tuple[str, ...]:
        """Every option, including those that all commands have."""
        return tuple(dict.fromkeys((*self.options, *COMMON)))

    @property
    def names(self) -> tuple[str, ...]:
        """Every argument and option."""
        return (*self.arguments, *self.takes)

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures of the accelerator that can be given in place of the table's."""
        return FIGURES if "hardware" in self.options else ()


class OptionText:
    """An option's text as the user gave it, and where: `--gpus`, or `run.yaml:3: gpus`.

    A run file gives parsed values too: numbers, booleans, lists.
    shared: the option comes from a source for several commands (a run file that names no command, a launch line); if
    this command does not use it, that is a note and not an error."""

    __slots__ = ("origin", "shared", "text", "where")

    def __init__(self, text: object, origin: str = "given", where: str = "", shared: bool = False) -> None:
        self.text = text
        self.origin = origin
        self.where = where
        self.shared = shared


ADVICE = "suggestions"
"""What an answer advises in addition to its quantities."""


class AllButAdvice:
    """All quantities of an answer without advice: what a command that runs another needs."""

    def __contains__(self, path: object) -> bool:
        return path != ADVICE

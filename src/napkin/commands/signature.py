"""What a command is called and takes, and an option's text as the user gave it."""

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
    """What a command is called and what it takes.

    summary    what it answers      brief  the same in the list of commands
    options    names of the options of its own      arguments  names of the words that need no dashes
    defaults   option → the text it has if none was given   examples  command lines, which the tests run
    reads      how this command reads an option's text, if it takes more than others do (plan: --gpus 1024..16384)
    target     for a wrapper, the name of the command that it asks: its options are taken too
    opens      it reads the files of --from itself
    keeps      --output names a file of the command's own (bench: the profile), and the answer goes to stdout
    verdicts   the words that the answer's verdict may be, which a limit can name
    success    that of them with which what the question asks to hold does hold: --must-fit, a deadline, a budget
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
        """Every option, those that all commands have included."""
        return (*self.options, *(name for name in COMMON if name not in self.options))

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
    shared: it is given if several commands read their options (a run file that names no command, a launch line), so
    that a note and no error says that this command does not use it.
    """

    __slots__ = ("origin", "shared", "text", "where")

    def __init__(self, text: object, origin: str = "given", where: str = "", shared: bool = False) -> None:
        self.text = text
        self.origin = origin
        self.where = where
        self.shared = shared


ADVICE = "suggestions"
"""What an answer advises in addition to its quantities."""


class AllButAdvice:
    """All quantities of an answer, but no advice: what a command that asks another reads of it."""

    def __contains__(self, path: object) -> bool:
        return path != ADVICE

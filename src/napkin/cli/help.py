"""Help of a command, rendered by typer from the registry of options. Only help imports this module: an answer never
loads typer."""

from __future__ import annotations

import inspect
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, cast

import typer
from typer.core import TyperCommand

from napkin.cli.option_texts import said
from napkin.cli.reader import read
from napkin.commands.command import Command, named
from napkin.options.option import Option
from napkin.options.registry import GROUPS, OPTIONS, SECOND_LEVEL
from napkin.options.training import UNTIMED
from napkin.render.terminal import width_of

WIDTH, NARROWEST = 80, 40
"""Most and fewest columns of help, whatever the terminal has."""
LINES = 58
NAMES = 22
"""Width of the column of option names; a longer name gets its own line."""
EXAMPLES = 2
_TWO_WAYS = ("sp", "moe")
"""Flags whose `--no-` form is not a default."""


class _Shown(Protocol):
    """A parameter as typer makes it; click's own type has no heading."""

    name: str
    opts: list[str]
    secondary_opts: list[str]
    metavar: str | None
    rich_help_panel: str


class _Context(Protocol):
    """The part of click's context that help reads."""

    @property
    def command_path(self) -> str: ...


class _Formatter(Protocol):
    """The part of click's formatter that help uses."""

    width: int

    def write(self, string: str) -> None: ...


class GroupedCommand(TyperCommand):
    """A command whose help has its options under headings, each with its default.

    examples  command lines     words  the positional arguments, as the usage line has them
    says  help text by parameter name: typer 0.20 with click 8.5 drops that of an argument
    """

    examples: Sequence[str] = ()
    words: Sequence[str] = ()
    says: Mapping[str, str] = MappingProxyType({})
    width: int = WIDTH

    def format_help(self, ctx: _Context, formatter: _Formatter) -> None:
        """Write usage, what the command answers, examples, and the options of each group."""
        formatter.width = self.width
        shown = cast("list[_Shown]", self.params)
        formatter.write(f"Usage: {' '.join((ctx.command_path, *self.words, '[OPTIONS]'))}\n")
        formatter.write("\n" + textwrap.fill(self.help or "", self.width) + "\n")
        if self.examples:
            formatter.write("\nExamples:\n" + "".join(_example(line, self.width) for line in self.examples))
        groups: dict[str, list[_Shown]] = {}
        for param in shown:
            if param.name != "help":
                groups.setdefault(param.rich_help_panel, []).append(param)
        for heading, params in groups.items():
            entries = (_entry(_names(param), self.says[param.name], self.width) for param in params)
            formatter.write(f"\n{heading}:\n" + "".join(entries))
        formatter.write(f"\n{textwrap.fill(self.epilog, self.width)}\n" if self.epilog else "")


def _is_argument(param: _Shown) -> bool:
    return not param.opts[0].startswith("-")


def _metavar(param: _Shown) -> str:
    return str(param.metavar or "")


def _names(param: _Shown) -> str:
    """Return the names of an option with the placeholder of its value, or an argument's."""
    names = "" if _is_argument(param) else ", ".join((*sorted(param.opts, key=len), *param.secondary_opts))
    return f"{names} {_metavar(param)}".strip()


def _entry(names: str, text: str, width: int) -> str:
    """Return the lines of one option: its names, and the text in the second column; below it if that is narrow."""
    indent = NAMES + 2 if width > WIDTH - NAMES else 6
    lines = textwrap.wrap(text, width - indent, break_on_hyphens=False) or [""]
    head = f"  {names}"
    if len(head) > NAMES and len(head) + 2 + len(text) <= width:
        return f"{head}  {text}\n"
    if len(head) <= NAMES < indent:
        head = head.ljust(indent) + lines.pop(0)
    return "\n".join([head.rstrip(), *(" " * indent + line for line in lines)]) + "\n"


def _example(line: str, width: int) -> str:
    """Return an example, with a line continuation if it is long."""
    words = line.replace(" --", "\n--").replace(" ", "\0").replace("\n", " ")  # an option stays with its value
    lines = textwrap.wrap(f"napkin\0{words}", width - 5, break_on_hyphens=False, break_long_words=False)
    return "  " + " \\\n        ".join(lines).replace("\0", " ") + "\n"


def _parameter(option: Option, group: str, command: Command) -> inspect.Parameter:
    """Return the parameter that typer shows: an option, or a positional argument of this command (MODEL in most)."""
    kind = inspect.Parameter.KEYWORD_ONLY
    shown: dict[str, Any] = {"help": said(option, command), "rich_help_panel": group}
    short = (option.short,) if option.short else ()
    annotation: object
    value: object
    if option.name in command.arguments:
        annotation = list[str] | None if option.many else str | None
        value = typer.Argument(None, metavar=option.metavar, **shown)
    elif option.flag:
        names = f"--{option.name}/--no-{option.name}" if option.name in _TWO_WAYS else f"--{option.name}"
        annotation, value = bool | None, typer.Option(None, names, *short, **shown)
    else:
        annotation = str | None
        value = typer.Option(None, f"--{option.name}", *short, metavar=option.metavar, **shown)
    return inspect.Parameter(option.key, kind, default=value, annotation=annotation)


def _function(command: Command, names: Sequence[str]) -> Callable[..., None]:
    """Return a function with the signature that typer reads."""

    def call(**values: object) -> None:
        pass

    grouped = [(group, option) for group, options in GROUPS for option in options if option.name in names]
    grouped += [("Other", OPTIONS[name]) for name in names if OPTIONS[name] not in [option for _, option in grouped]]
    headings = list(dict.fromkeys(group for group, _ in grouped))
    grouped.sort(key=lambda one: (headings.index(one[0]), one[1].name not in command.arguments))
    parameters = [_parameter(option, group, command) for group, option in grouped]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def text_of(command: Command, everything: bool, width: int = WIDTH) -> str:
    """Return a command's help: all of it if `everything` or if it fits, else the options that people use most and those
    of its first examples."""
    refused = UNTIMED if "stack" in command.names else ()  # by the commands that predict a step
    names = [name for name in (*command.names, *command.figures) if name not in refused]
    complete = _rendered(command, names, command.examples, "", width)
    if everything or complete.count("\n") <= LINES:
        return complete
    used = {name for line in command.examples[:EXAMPLES] for name in read(*named(shlex.split(line))).given}
    first = [name for name in names if name in used or name not in SECOND_LEVEL]
    more = f"napkin {command.name} --help-all lists {len(names) - len(first)} more options and examples."
    return _rendered(command, first, command.examples[:EXAMPLES], more, width)


def _rendered(command: Command, names: Sequence[str], examples: Sequence[str], epilog: str, width: int) -> str:
    """Return the help with these options, as typer's command writes it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name=command.name, cls=GroupedCommand, help=f"{command.summary}.", epilog=epilog)(
        _function(command, names)
    )
    made: Any = typer.main.get_command(app)
    made.examples, made.width = examples, width
    made.words = _arguments(command, names)
    made.says = {OPTIONS[name].key: said(OPTIONS[name], command) for name in names}
    text: str = made.get_help(typer.Context(made, info_name=f"napkin {command.name}"))  # nothing is parsed
    return text.rstrip() + "\n"


def _arguments(command: Command, names: Sequence[str]) -> list[str]:
    """Return the positional arguments in their order; in brackets those that an example of this command leaves out."""
    lines = [named(shlex.split(line)) for line in command.examples]
    given = [{*read(asked, words).given} for asked, words in lines if asked.name == command.name]
    shown = {name: OPTIONS[name].metavar for name in command.arguments if name in names}
    return [word if all(name in one for one in given) else f"[{word}]" for name, word in shown.items()]


def show(command: Command, everything: bool = False) -> None:
    """Print a command's help, as wide as the terminal, but at most 80 columns."""
    width = min(WIDTH, max(NARROWEST, width_of(sys.stdout)))
    print(text_of(command, everything, width), end="")

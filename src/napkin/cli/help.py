"""Help and completion, which typer renders from the registry of options. Imported for them only: an answer never loads
typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

from napkin.commands.command import MODULES, Command, find
from napkin.options.option import Option
from napkin.options.registry import OPTIONS


def _parameter(option: Option, argument: bool) -> inspect.Parameter:
    """Return the parameter that typer shows; argument: a word of its own in this command (MODEL in most)."""
    kind = inspect.Parameter.KEYWORD_ONLY
    annotation: Any
    default: Any
    short = (option.short,) if option.short else ()
    if argument and option.many:
        annotation, default = list[str] | None, typer.Argument(None, help=option.help, metavar=option.metavar)
    elif argument:
        annotation, default = str | None, typer.Argument(None, help=option.help, metavar=f"[{option.metavar}]")
    elif option.flag:
        name = f"--{option.name}" if option.name in _ONE_WAY else f"--{option.name}/--no-{option.name}"
        annotation, default = bool | None, typer.Option(None, name, *short, help=option.help)
    else:
        annotation = str | None
        default = typer.Option(None, f"--{option.name}", *short, help=option.help, metavar=option.metavar)
    return inspect.Parameter(option.key, kind, default=default, annotation=annotation)


_ONE_WAY = ("json", "csv", "markdown", "explain", "verbose", "quiet", "paths")


def _function(command: Command) -> Callable[..., None]:
    """Return a function with the signature that typer reads."""

    def call(**values: Any) -> None:
        pass

    names = (*command.names, *command.figures)
    parameters = [_parameter(OPTIONS[name], name in command.arguments) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    examples = "\n\n\b\n" + "\n".join(f"  napkin {example}" for example in command.examples)
    call.__doc__ = command.summary + "." + (examples if command.examples else "")
    return call


def show(command: Command) -> None:
    """Print a command's help."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(name=command.name, help=None)(_function(command))
    typer.main.get_command(app).main(["--help"], prog_name=f"napkin {command.name}", standalone_mode=False)


def completion(words: list[str]) -> int:
    """Run shell completion, which needs every command."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    for name in MODULES:
        command = find(name)
        app.command(name=name, help=command.summary)(_function(command))
    result = typer.main.get_command(app).main(words, prog_name="napkin", standalone_mode=True)
    return int(result or 0)

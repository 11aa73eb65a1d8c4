"""Words of the command line → options by name, through typer. The signature that typer reads is made from the
registry, so that an option is declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer

from napkin.commands.command import MODULES, Command, find
from napkin.commands.inputs import OptionText
from napkin.errors import NapkinError, did_you_mean
from napkin.options.option import Option
from napkin.options.registry import OPTIONS

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # click's own class, wherever this typer keeps its click
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]


def _parameter(option: Option, argument: bool) -> inspect.Parameter:
    """Return the parameter that typer reads; argument: a word of its own in this command (MODEL in most)."""
    kind = inspect.Parameter.KEYWORD_ONLY
    annotation: Any
    default: Any
    if argument and option.many:
        annotation, default = list[str] | None, typer.Argument(None, help=option.help, metavar=option.metavar)
    elif argument:
        annotation, default = str | None, typer.Argument(None, help=option.help, metavar=f"[{option.metavar}]")
    elif option.flag:
        name = f"--{option.name}" if option.name in _ONE_WAY else f"--{option.name}/--no-{option.name}"
        short = ("-v",) if option.name == "verbose" else ()
        annotation, default = bool | None, typer.Option(None, name, *short, help=option.help)
    else:
        short = ("-o",) if option.name == "output" else ()
        annotation = str | None
        default = typer.Option(None, f"--{option.name}", *short, help=option.help, metavar=option.metavar)
    return inspect.Parameter(option.key, kind, default=default, annotation=annotation)


_ONE_WAY = ("json", "csv", "markdown", "explain", "verbose", "quiet", "paths")


def _function(
    command: Command, receive: Callable[[dict[str, Any]], None], figures: Sequence[str] = ()
) -> Callable[..., None]:
    def call(**values: Any) -> None:
        receive(values)

    parameters = [_parameter(OPTIONS[name], name in command.arguments) for name in (*command.names, *figures)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    examples = "\n\n\b\n" + "\n".join(f"  napkin {example}" for example in command.examples)
    call.__doc__ = command.summary + "." + (examples if command.examples else "")
    return call


def _app() -> typer.Typer:
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def parse(command: Command, words: list[str]) -> dict[str, OptionText] | None:
    """Return options by name, or None where help was printed. Raises NapkinError (2) for what is not understood."""
    received: dict[str, Any] = {}
    app = _app()
    prepared = _prepared(command, words)
    wanted = {word.partition("=")[0] for word in prepared}
    figures = [name for name in command.figures if wanted & {f"--{name}", "--help", "-h"}]
    app.command(name=command.name, help=None)(_function(command, received.update, figures))
    try:
        shown_help = typer.main.get_command(app).main(
            prepared, prog_name=f"napkin {command.name}", standalone_mode=False
        )
    except _USAGE_ERROR as problem:
        raise _translated(command, problem) from None
    except _CLICK_ERROR as problem:
        raise NapkinError(problem.format_message()) from None
    except (typer.Abort, EOFError):
        raise KeyboardInterrupt from None
    if not received:
        return None if shown_help == 0 or not command.names else {}
    given: dict[str, OptionText] = {}
    for name in (*command.names, *figures):
        value = received.get(OPTIONS[name].key)
        if value is not None and value != [] and value != ():
            given[name] = OptionText(value)
    return given


def _prepared(command: Command, words: list[str]) -> list[str]:
    """Replace hidden aliases and underscores by the option's name; keep a last negative number an argument."""
    names = {f"--{alias}": f"--{name}" for name in command.takes for alias in OPTIONS[name].aliases}
    result: list[str] = []
    for at, word in enumerate(words):
        if word == "--":
            return [*result, *words[at:]]
        if word.startswith("--"):
            head, equals, tail = word.partition("=")
            head = head.replace("_", "-")
            word = names.get(head, head) + equals + tail
            if word.startswith("--no-") and f"--{word[5:]}" in names:
                word = "--no-" + names[f"--{word[5:]}"][2:]
        result.append(word)
    before = result[-2] if len(result) > 1 else ""
    if result and result[-1][:1] == "-" and result[-1][1:2].isdigit() and not before.startswith("--"):
        result.insert(-1, "--")
    return result


def _translated(command: Command, problem: Any) -> NapkinError:
    """Return click's error in napkin's words, with the nearest option."""
    name = getattr(problem, "option_name", None)
    if isinstance(name, str) and type(problem).__name__ == "NoSuchOption":
        known = [f"--{option}" for option in (*command.takes, *command.figures)]
        return NapkinError(
            f"no such option {name}", did_you_mean(name, known) or f"napkin {command.name} --help lists the options"
        )
    message = " ".join(problem.format_message().split()).rstrip(".")
    return NapkinError(message[:1].lower() + message[1:], f"napkin {command.name} --help shows the usage")


def completion(words: list[str]) -> int:
    """Run shell completion, which needs every command."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    for name in MODULES:
        command = find(name)
        app.command(name=name, help=command.summary)(_function(command, lambda values: None))
    result = typer.main.get_command(app).main(words, prog_name="napkin", standalone_mode=True)
    return int(result or 0)

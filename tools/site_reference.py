"""The reference pages of the documentation site, from the records that the program itself reads.

`pages()` returns them as Markdown by file name, for tools/site.py. Nothing here is written by hand: a new option,
command, optimizer, framework, accelerator, model or architecture is on its page with the next build.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from napkin._tables.architectures import MODULES, WRAPPERS
from napkin._tables.commands import COMMANDS
from napkin._tables.hardware import ACCELERATORS
from napkin.cli.known import offered
from napkin.cli.option_texts import said
from napkin.cli.overview import ASKED
from napkin.cli.reader import read
from napkin.commands.command import WRAPPERS as ASKING
from napkin.commands.command import Command, ask, find, named
from napkin.counting.conventions import SOURCES
from napkin.formats.table import FORMATS, Format
from napkin.inputs.presets import all_fields
from napkin.options.registry import GROUPS, OPTIONS
from napkin.render.answer import Answer, is_end
from napkin.term import Term, expression
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.trainer import Trainer
from napkin.training.trainers import TRAINERS
from napkin.units import human

FEW = 16
"""Names that a cell lists; more are counted."""
ASKS_OTHERS = (*ASKING, "bench", "calibrate", "check", "read", "validate")
"""Commands whose quantities are those of another, or of a machine or a file."""


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return [*lines, *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows), ""]


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _values(name: str) -> str:
    """Return the values that an option offers, or how many there are."""
    names = offered(name)
    return _code(names) if len(names) <= FEW else f"{len(names)} names: {_code(names[:4])} …"


def _option_rows(names: Iterable[str], command: Command) -> Iterable[Sequence[object]]:
    for name in names:
        option = OPTIONS[name]
        metavar = "" if option.flag or name in command.arguments else f" {option.metavar}"
        shown = option.name.upper() if name in command.arguments else f"--{option.name}"
        yield f"`{shown}{metavar}`", said(option, command), "" if option.unit == "1" else option.unit, _values(name)


def command_page(command: Command) -> str:
    """Return the page of a command: what it answers, examples, and its options by group."""
    arguments = " ".join(OPTIONS[name].metavar for name in command.arguments)
    out = [f"# napkin {command.name}", "", f"{command.summary}.", "", "```sh"]
    out += [f"napkin {command.name} {arguments} [OPTIONS]".replace("  ", " "), "```", ""]
    if command.examples:
        out += ["## Examples", "", "```sh", *(f"napkin {line}" for line in command.examples), "```", ""]
    for heading, options in GROUPS:
        mine = [option.name for option in options if option.name in (*command.names, *command.figures)]
        if mine:
            out += [
                f"## {heading}",
                "",
                *_table(("option", "what it is", "unit", "values"), _option_rows(mine, command)),
            ]
    if command.verdicts:
        out += ["## Verdicts", "", ", ".join(command.verdicts), ""]
    return "\n".join(out)


def commands_page() -> str:
    """Return the list of commands by what people ask."""
    out = ["# Commands", ""]
    listed: set[str] = set()
    left = [name for name in COMMANDS if not any(name in commands for _, commands in ASKED)]
    for question, names in (*ASKED, ("Other", tuple(left))):
        own = [name for name in names if name in COMMANDS and name not in listed]
        if own:
            listed.update(own)
            rows = [(f"[{name}](commands/{name}.md)", COMMANDS[name][1]) for name in own]
            out += [f"## {question}", "", *_table(("command", "what it answers"), rows)]
    return "\n".join(out)


def options_page(commands: Sequence[Command]) -> str:
    """Return every option by group, with the commands that take it."""
    out = ["# Options", "", "Every option, declared once. A run file uses the same names.", ""]
    for heading, options in GROUPS:
        rows = []
        for option in options:
            takers = [one.name for one in commands if option.name in (*one.names, *one.figures)]
            every = len(takers) == len(commands)
            links = "every command" if every else ", ".join(f"[{n}](commands/{n}.md)" for n in takers)
            default = f" (default: {option.default})" if option.default else ""
            shown = f"`{option.shown}{'' if option.flag or option.positional else ' ' + option.metavar}`"
            rows.append((shown, option.help + default, "" if option.unit == "1" else option.unit, links))
        out += [f"## {heading}", "", *_table(("option", "what it is", "unit", "in"), rows)]
    return "\n".join(out)


def answers(command: Command) -> list[tuple[str, Answer]]:
    """Return the answers to a command's examples, and the lines that asked for them."""
    found = []
    for example in command.examples:
        asked, words = named(shlex.split(example))
        found.append((example, ask(asked, read(asked, words).given)))
    return found


def _nodes(answer: Answer) -> Iterable[Term]:
    for term in answer.finite():
        yield from term.walk()


def paths_page(asked: dict[str, list[tuple[str, Answer]]]) -> str:
    """Return the paths that each command's examples publish, with their units."""
    out = [
        "# Paths",
        "",
        "What `--json`, `--paths` and `check` call each quantity, as the examples of each command publish",
        "",
    ]
    out[2] += " them. `/low` and `/high` are the ends of an estimate's interval. Paths are public: they change with a"
    out[2] += " major version only."
    for name, found in asked.items():
        units: dict[str, str] = {}
        for _, answer in found:
            for path, (_, unit) in answer.quantities().items():
                if not is_end(path):
                    units.setdefault(path, unit)
        if units:
            rows = [(f"`{path}`", unit) for path, unit in units.items()]
            out += [f"## {name}", "", *_table(("path", "unit"), rows)]
    return "\n".join(out)


def formulas_page(asked: dict[str, list[tuple[str, Answer]]]) -> str:
    """Return the formulas of each command's first example as the program states them, and their constants."""
    out = ["# Formulas", ""]
    out += ["Each published quantity and what it is computed from, down to its leaves, for an example of each command:"]
    out += ["what `--explain` prints, without the numbers. `source` says where a formula or a constant is from.", ""]
    for name, found in asked.items():
        if not found:
            continue
        example, answer = found[0]
        formulas: dict[str, tuple[str, str]] = {}
        constants: dict[str, tuple[str, str, str]] = {}
        for term in _nodes(answer):
            if term.parts:
                formulas.setdefault(term.name, (expression(term), term.source))
            elif term.source:
                constants.setdefault(term.name, (human(term.value, term.unit), term.kind, term.source))
        out += [f"## {name}", "", "```sh", f"napkin {example}", "```", ""]
        if formulas:
            rows = [(f"`{path}`", f"`{said}`", source) for path, (said, source) in formulas.items()]
            out += _table(("quantity", "formula", "source"), rows)
        if constants:
            out += _table(("constant", "value", "kind", "source"), [(f"`{n}`", *rest) for n, rest in constants.items()])
    return "\n".join(out)


def optimizers_page() -> str:
    """Return what each optimizer keeps for a parameter."""
    rows = [
        (
            f"`{name}`",
            ", ".join(f"{s.name}{'' if s.layout == 'whole' else f' ({s.layout})'}" for s in one.states) or "nothing",
            _code(one.forms),
            f"{one.source}{'. ' + one.note if one.note else ''}",
        )
        for name, one in OPTIMIZERS.items()
    ]
    text = "What each keeps for a tensor of parameters, and the implementations of its step."
    return "\n".join(["# Optimizers", "", text, "", *_table(("--optimizer", "keeps", "forms", "source"), rows)])


def _means(trainer: Trainer) -> str:
    """Return the framework that each ZeRO stage means in a library: `deepspeed: 1, 2, 3`."""
    return "; ".join(f"{one.framework}: {', '.join(map(str, one.implied))}" for one in trainer.backends if one.implied)


def _divides(trainer: Trainer) -> str:
    """Return what a library divides over ranks on each of its frameworks: `fsdp: tp, cp`."""
    found = []
    for one in trainer.backends:
        has = {
            "tp": one.divides.tensor,
            "cp": one.divides.context,
            "ulysses": one.divides.heads,
            "pp": one.divides.staged,
        }
        found.append(f"{one.framework}: {', '.join(name for name, there in has.items() if there) or 'nothing'}")
    return "; ".join(found)


def frameworks_page() -> str:
    """Return the frameworks, the libraries on top of them, precision policies and conventions of FLOPs."""
    frameworks = [(f"`{n}`", one.says, f"`{one.implementation}`", one.source) for n, one in FRAMEWORKS.items()]
    trainers = [
        (f"`{n}`", one.framework, _means(one), _divides(one), f"`{one.full}`", one.source)
        for n, one in TRAINERS.items()
    ]
    policies = [
        (f"`{n}`", one.param, one.grad, one.compute, one.state, one.master or "none") for n, one in POLICIES.items()
    ]
    out = ["# Frameworks, trainers, precision", "", "## Frameworks", ""]
    out += _table(("--framework", "what it is", "implementation", "facts from"), frameworks)
    heads = ("--trainer", "default framework", "a ZeRO stage means", "divides", "16 bits mean", "facts from")
    out += ["## Trainers", "", *_table(heads, trainers)]
    out += ["## Precision policies", ""]
    out += _table(("--precision", "parameters", "gradients", "compute", "states", "master"), policies)
    out += ["## Conventions of FLOPs", ""]
    out += _table(("--flops", "source"), [(f"`{name}`", source) for name, source in SOURCES.items()])
    return "\n".join(out)


def accelerators_page() -> str:
    """Return the accelerators with their figures and sources."""
    rows = []
    for name, one in ACCELERATORS.items():
        peaks = ", ".join(f"{kind} {human(peak, 'FLOP/s')}" for kind, peak in one["peaks"].items())
        memory = f"{one.get('memory_label', '')} {one.get('memory_type', '')}".strip()
        speed = one.get("memory_bandwidth")
        rows.append((f"`{name}`", one["name"], peaks, memory, human(speed, "byte/s") if speed else "", one["source"]))
    head = ("--hardware", "name", "dense peaks", "memory", "bandwidth", "source")
    text = "Peaks are dense. `napkin hardware NAME` shows every figure of one with its source."
    return "\n".join(["# Accelerators", "", text, "", *_table(head, rows)])


def models_page() -> str:
    """Return the presets."""
    rows = [
        (f"`{name}`", one["organisation"], one["published"], f"`{one['config']['model_type']}`", one["source"])
        for name, one in all_fields()
    ]
    head = ("MODEL", "organization", "year", "model_type", "source")
    return "\n".join(["# Models", "", f"{len(rows)} presets.", "", *_table(head, rows)])


def architectures_page() -> str:
    """Return every model_type that a config.json may have, by the family that describes it."""
    families: dict[str, list[str]] = {}
    for kind, module in MODULES.items():
        families.setdefault(module, []).append(kind)
    groups: dict[str, list[tuple[str, str]]] = {}
    for module, kinds in families.items():
        group, _, name = module.partition(".")
        groups.setdefault(group, []).append((f"`{name}`", _code(kinds)))
    out = ["# Architectures", "", f"{len(MODULES)} values of `model_type`, by the module that describes them.", ""]
    for group, rows in sorted(groups.items()):
        out += [f"## {group.replace('_', ' ').capitalize()}", "", *_table(("module", "model_type"), sorted(rows))]
    out += ["## Multimodal models around a language model", ""]
    out += _table(("model_type", "language model"), [(f"`{kind}`", f"`{text}`") for kind, text in WRAPPERS.items()])
    return "\n".join(out)


def formats_page() -> str:
    """Return the number formats with their ranges."""
    rows = [
        (f"`{name}`", one.bits, f"{float(one.largest):.5g}", f"2^{one.lowest}", f"2^-{one.fraction}", one.source)
        for name, one in FORMATS.items()
        if isinstance(one, Format)
    ]
    head = ("format", "bits", "largest element", "smallest normal", "epsilon", "source")
    return "\n".join(["# Number formats", "", *_table(head, rows)])


def pages() -> dict[str, str]:
    """Return every reference page by its file name below reference/."""
    commands = [find(name) for name in COMMANDS]
    asked = {one.name: answers(one) for one in commands if one.name not in ASKS_OTHERS}
    return {
        "commands.md": commands_page(),
        **{f"commands/{one.name}.md": command_page(one) for one in commands},
        "options.md": options_page(commands),
        "paths.md": paths_page(asked),
        "formulas.md": formulas_page(asked),
        "models.md": models_page(),
        "architectures.md": architectures_page(),
        "accelerators.md": accelerators_page(),
        "optimizers.md": optimizers_page(),
        "frameworks.md": frameworks_page(),
        "formats.md": formats_page(),
    }

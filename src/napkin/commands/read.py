"""`napkin read FILE`: what napkin reads from a framework's launch file. Nothing is computed or run."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.inputs.launch.read import combined, read_launch
from napkin.inputs.launch.reading import DIMENSIONS, Reading
from napkin.inputs.launch.stated import Said
from napkin.inputs.load import printable
from napkin.options.registry import OPTIONS
from napkin.render.answer import Answer, Shown
from napkin.render.screen import Column, Screen, Table

MOST_ROWS = 18
"""Number of options on a screen of 24 lines, which also lists what was not understood."""

LONGEST_PATH = 44
"""Maximum characters of a file's path, so that the name of its format fits on the line."""


def run(inputs: Inputs) -> Answer:
    """Answer with the options that the files state."""
    paths = (*inputs.texts("launch"), *inputs.texts("from"))
    if not paths:
        raise NapkinError("FILE is missing: which launch file?", "napkin read train.yaml")
    return answer(combined([read_launch(path) for path in paths]))


def answer(reading: Reading) -> Answer:
    """Answer with one reading."""
    shown = {
        name: Shown(one.value, one.given or None, one.origin, _unit(name), one.where)
        for name, one in reading.inputs.items()
    }
    rows = [
        {"option": name, "value": one.value, "origin": one.origin, "where": one.where}
        for name, one in reading.inputs.items()
    ]
    found = Answer("read", inputs=shown, rows=rows, screen=_screen(reading))
    found.extra = {
        "format": reading.format.name,
        "shape": {name: reading.shape[name] for name in DIMENSIONS if name in reading.shape},
        "ignored": list(reading.ignored),
        "not_modelled": [{"key": one.key, "why": one.why} for one in reading.not_modelled],
        "refused": [{"key": one.key, "why": one.why} for one in reading.refused],
    }
    return found


def _unit(name: str) -> str:
    option = OPTIONS.get(name)
    return option.unit if option is not None else "1"


def _screen(reading: Reading) -> Screen:
    known = sum(one.value is not None for one in reading.inputs.values())
    open_ones = len(reading.inputs) - known
    parts = [f"{known} options"]
    for number, what in (
        (open_ones, "left open"),
        (len(reading.not_modelled), "not modeled"),
        (len(reading.refused), "refused"),
        (len(reading.ignored), "irrelevant"),
    ):
        parts += [f"{number} {what}"] if number else []
    rows = [
        (name, "asked" if one.value is None else _written(one.value), one.origin, _first(one.where))
        for name, one in reading.inputs.items()
    ]
    if reading.shape:
        words = ", ".join(f"{name} {reading.shape[name]}" for name in DIMENSIONS if name in reading.shape)
        rows.append(("shape", words, "", ""))
    columns = (Column("option"), Column("value"), Column("origin", drop=2), Column("where", drop=1, remark=True))
    return Screen(
        (_ending(reading.source.name), reading.format.says),
        (", ".join(parts),),
        table=Table(columns, rows),
        remarks=(*_listed("refused", reading.refused), *_listed("not modeled", reading.not_modelled)),
        listing=True,
    )


def _ending(path: str) -> str:
    """Return a path for one line; a long path is cut at the front, because its end identifies the file."""
    return path if len(path) <= LONGEST_PATH else f"…{path[1 - LONGEST_PATH :]}"


LONGEST_WHERE = 44
"""Characters of the keys that the table shows for an option; the JSON has all."""


def _first(where: str) -> str:
    """Return as many keys as fit, at least one."""
    keys = where.split(", ")
    while len(keys) > 1 and len(", ".join(keys)) > LONGEST_WHERE:
        keys.pop()
    shown = ", ".join(keys)
    return shown if shown == where else f"{shown}, …"


LONGEST_SHOWN = 200
"""Characters of a value that the table shows; the JSON has all."""


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _listed(what: str, said: Sequence[Said]) -> list[str]:
    return [f"{what}: {printable(one.key)}: {one.why}" for one in said]


COMMAND = Command(
    "read",
    "Show what napkin reads from the launch file of a training framework",
    run,
    brief="Show what napkin reads from a framework's launch file",
    options=(),
    arguments=("launch",),
    opens=True,
    examples=("read configs/launch/lora-8b.yaml", "read --from configs/launch/lora-8b.yaml"),
)

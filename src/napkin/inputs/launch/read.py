"""Read one launch file, or several together: which format it is, and what it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from napkin.errors import NapkinError
from napkin.inputs.launch.format import LaunchFormat, apply, open_reading
from napkin.inputs.launch.neighbors import refuse_neighbor
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT, StatedOption
from napkin.inputs.launch.syntax import read_source

MODULES = """primus ms_swift automodel roll open_instruct easy_r1 verl nemo_rl openrlhf megatron nemo megatron_bridge
    llamafactory axolotl torchtune torchtitan nanotron llm_foundry olmo litgpt maxtext gpt_neox
    deepspeed accelerate hf_python hf_trainer nanogpt hf_config meta_params"""
"""Modules of the formats, in the order in which they are tried: the one with the more telling marks first."""


def formats() -> Iterator[LaunchFormat]:
    """Yield every format that napkin reads."""
    for module in MODULES.split():
        found: LaunchFormat = import_module(f"napkin.inputs.launch.formats.{module}").FORMAT
        yield found


def read_launch(path: str) -> Reading:
    """Return what a launch file says. Raises NapkinError (2) for a file that is none, with its line where it has one;
    Refused (3) for a program."""
    return reading_of(read_source(path))


def reading_of(source: LaunchFile) -> Reading:
    """Return what a source says, in the first format that recognizes it."""
    for format in formats():
        if format.is_this(source):
            refuse_neighbor(source, told=True)
            reading = open_reading(format, source)
            apply(format, reading)
            return reading.finish()
    refuse_neighbor(source, told=False)
    shown = ", ".join(list(source.values)[:3])
    raise NapkinError(
        f"{source.name}: is of no format that napkin knows (it begins with {shown[:100]})",
        "formats: " + ", ".join(dict.fromkeys(format.name for format in formats())),
    )


def merge_into(reading: Reading, other: Reading, key: str) -> None:
    """Take what a file says that `reading`'s file names in `key`."""
    for option, entry in other.inputs.items():
        mine = reading.inputs.get(option)
        if mine is None or mine.value is None or (mine.origin == DEFAULT and entry.origin != DEFAULT):
            where = f"{key}, {other.source.name}: {entry.where}"
            reading.inputs[option] = StatedOption(entry.value, entry.origin, where, entry.place, entry.given)
    reading.not_modelled += [one for one in other.not_modelled if one not in reading.not_modelled]
    reading.refused += [one for one in other.refused if one not in reading.refused]
    reading.told(key)


def combined(readings: Sequence[Reading]) -> Reading:
    """Return several files as one reading: what one states fills what another leaves open or to a default. Two values
    that differ are a contradiction (2)."""
    first = readings[0]
    if len(readings) == 1:
        return first
    from napkin.inputs.launch.together import join

    return join(readings)

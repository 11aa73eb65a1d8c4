"""Read one or several launch files: detect the format and read its keys."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module

from napkin.errors import NapkinError, listed
from napkin.inputs.file_roles import OF_LAUNCHES, other_role
from napkin.inputs.launch.checks import leave_frozen_open, take_launcher
from napkin.inputs.launch.format import LaunchFormat, apply, open_reading
from napkin.inputs.launch.names import AUTOCAST, MASTER, PURE
from napkin.inputs.launch.neighbors import SIZES, refuse_neighbor
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.remaining import finish
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import ASSUMED, DEFAULT, DERIVED, StatedOption
from napkin.inputs.launch.syntax import read_source
from napkin.inputs.load import printable

LAUNCHERS = ("accelerate", "deepspeed")
"""Formats that describe how a model is distributed, not what is trained."""
SOFT = (DEFAULT, ASSUMED)


def join(readings: Sequence[Reading], typed: Collection[str] = ()) -> Reading:
    """Return one reading of two files.

    A value wins over a default or open value of the other file; a launcher's file decides the precision. Two different
    values are a contradiction (2), unless the option is `typed` on the command line, which wins over both.
    """
    trainer = next((one for one in readings if one.format.name not in LAUNCHERS), readings[0])
    whole = Reading(trainer.source, trainer.format)
    for one in readings:
        for option, entry in one.inputs.items():
            _take(whole, option, _placed(entry, one), option in typed)
        whole.shape |= one.shape
        whole.config, whole.unbuilt = one.config or whole.config, one.unbuilt or whole.unbuilt
        whole.ignored += [key for key in one.ignored if key not in whole.ignored]
        whole.not_modelled += [said for said in one.not_modelled if said not in whole.not_modelled]
        whole.refused += [said for said in one.refused if said not in whole.refused]
    _precision(whole, readings)
    return whole


def _placed(entry: StatedOption, reading: Reading) -> StatedOption:
    """Return an entry whose keys are prefixed by the name of its file."""
    return StatedOption(entry.value, entry.origin, f"{reading.source.name}: {entry.where}", entry.place, entry.given)


def _take(whole: Reading, option: str, entry: StatedOption, settled: bool) -> None:
    mine = whole.inputs.get(option)
    if mine is None or mine.value is None:
        whole.inputs[option] = entry if mine is None or entry.value is not None else mine
        return
    if entry.value is None or entry.value == mine.value:
        return
    if mine.origin in SOFT:
        whole.inputs[option] = entry
    elif not settled and entry.origin not in SOFT and option not in ("precision", "trainer", "framework"):
        raise NapkinError(
            f"--{option} {entry.value} ({entry.where}) contradicts {mine.value} ({mine.where})",
            "give files of the same run",
        )


def _precision(whole: Reading, readings: Sequence[Reading]) -> None:
    """Set the precision that the launcher makes of the trainer's (accelerate/accelerator.py, prepare_model).

    FSDP under autocast upcasts trained weights to fp32; DeepSpeed keeps 16-bit weights with an fp32 copy.
    """
    launchers = [one for one in readings if one.format.name in LAUNCHERS]
    frameworks = [one.inputs["framework"] for one in launchers if "framework" in one.inputs]
    stated = whole.inputs.get("precision")
    if not frameworks or stated is None or whole.value_of("adapter"):
        return
    whole.inputs["framework"] = frameworks[0]
    own = [one.inputs["precision"] for one in readings if one not in launchers and "precision" in one.inputs]
    of_launcher = [one.inputs["precision"] for one in launchers if one.value_of("precision") is not None]
    kind = frameworks[0].value
    if of_launcher:
        entry = of_launcher[0]
        whole.inputs["precision"] = StatedOption(entry.value, DERIVED, _where(entry, *own), entry.place)
    elif own and own[0].value in (PURE, AUTOCAST):
        policy = {"deepspeed": MASTER, "fsdp": AUTOCAST}.get(str(kind), own[0].value)
        whole.inputs["precision"] = StatedOption(policy, DERIVED, _where(own[0], frameworks[0]), own[0].place)


def _where(*entries: StatedOption) -> str:
    return listed([one.where for one in entries]).replace(" and ", ", ")


MODULES = """nemo_recipe fms_fsdp modalities veomni primus oat ms_swift automodel roll slime open_instruct
    easy_r1 skyrl skyrl_sft areal verl nemo_rl openrlhf deepspeed_chat alpaca_lora megatron nemo
    megatron_bridge llamafactory llamafactory_v1 axolotl torchtune prime_rl torchtitan oumi hyperpod
    arctic_training nanotron llm_foundry olmo lingua litgpt maxtext gpt_neox levanter deepspeed
    accelerate xtuner nanogpt hf_python hf_trainer peft_adapter hf_config meta_params"""
"""Format modules in the order in which they are tried, the most specific first."""


def formats() -> Iterator[LaunchFormat]:
    """Yield every format that napkin reads."""
    for module in MODULES.split():
        found: LaunchFormat = import_module(f"napkin.inputs.launch.formats.{module}").FORMAT
        yield found


def read_launch(path: str) -> Reading:
    """Return the reading of a launch file.

    Raises NapkinError (2), with the line if known, for a file in no known format, and Refused (3) for a program.
    """
    return reading_of(read_source(path))


def reading_of(source: LaunchFile) -> Reading:
    """Return the reading of a source in the first format that recognizes it."""
    for format in formats():
        if format.is_this(source):
            refuse_neighbor(source, told=True)
            reading = open_reading(format, source)
            apply(format, reading)
            take_launcher(reading)
            leave_frozen_open(reading)
            return finish(reading)
    refuse_neighbor(source, told=False)
    block = _wrapped(source)
    if block:
        return reading_of(source.renamed({block: ""}))
    if source.missing:
        raise NapkinError(
            f"{source.name}: its settings are in {source.missing[0][:200]}, which was not found",
            "give that file: napkin read FILE",
        )
    from napkin.inputs.launch.shell.options import unsourced

    if not (source.program or source.module) and (unfound := unsourced(source.name, source.unread)):
        raise unfound
    if source.syntax == "shell" and source.command:
        named = source.program or source.module.removesuffix(".py").replace("/", ".")
        started = named or " ".join([one for one in source.command if one not in ("", "exec")][:2])
        raise NapkinError(
            f"{source.name}: starts {printable(started, 100)}, whose options napkin does not know", _of_program(source)
        )
    shown = ", ".join(list(source.values)[:3])
    if not source.values:
        raise NapkinError(f"{source.name}: holds no options of a training program", SIZES)
    keys = {key.partition(".")[0]: None for key in source.values}
    known = SIZES + "; formats: " + ", ".join(dict.fromkeys(format.name for format in formats()))
    raise NapkinError(
        f"{source.name}: has no format that napkin knows (it begins with {shown[:100]})",
        other_role(keys, ("cells", *OF_LAUNCHES)) or known,
    )


def _wrapped(source: LaunchFile) -> str:
    """Return the one block of a project's own file that is a framework's file; "" if there is none, or several."""
    if not source.is_mapping:
        return ""
    blocks = dict.fromkeys(key.partition(".")[0] for key in source.values if "." in key)
    found = [one for one in blocks if _kind(source.under(one)) == _kind(source.renamed({one: ""})) != ""]
    return found[0] if len(found) == 1 else ""


def _kind(source: LaunchFile) -> str:
    """Return the name of the first format that recognizes a source; "" if none does."""
    return next((format.name for format in formats() if format.is_this(source)), "")


def _of_program(source: LaunchFile) -> str:
    """Return a hint for a launch line of an unknown program: its source, if that is beside the line, or options."""
    from napkin.inputs.launch.settings_files import path_of

    path = path_of(source.name, source.script) if source.script else None
    return f"give its source: --from {os.path.normpath(path)}; or {SIZES}" if path is not None else SIZES


def merge_into(reading: Reading, other: Reading, key: str) -> None:
    """Merge the reading of a file that is named by `key`."""
    for option, entry in other.inputs.items():
        mine = reading.inputs.get(option)
        stated = entry.value is not None and entry.origin != DEFAULT
        if mine is None or mine.value is None or (mine.origin == DEFAULT and stated):
            where = f"{key}, {other.source.name}: {entry.where}"
            reading.inputs[option] = StatedOption(entry.value, entry.origin, where, entry.place, entry.given)
    reading.not_modelled += [one for one in other.not_modelled if one not in reading.not_modelled]
    reading.refused += [one for one in other.refused if one not in reading.refused]
    reading.told(key)


def combined(readings: Sequence[Reading], typed: Collection[str] = ()) -> Reading:
    """Return several files as one reading.

    A value in one file fills what another leaves open or at its default. Two different values are a contradiction (2),
    unless the option is `typed` on the command line.
    """
    first = readings[0]
    if len(readings) == 1:
        return first

    return join(readings, typed)

"""Read accelerate's settings from a launch line: the file that it names, and the line's own options, which win."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.remaining import finish
from napkin.inputs.launch.source import FileValue, LaunchFile
from napkin.inputs.load import Document

LAUNCHERS = ("accelerate", "accelerate.commands.launch")
KINDS = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM"}
"""Switches of `accelerate launch` → the configuration file's distributed_type (accelerate/commands/launch.py)."""
DEEPSPEED = (
    "deepspeed_config_file",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "zero3_init_flag",
    "zero3_save_16bit_model",
)
BLOCKS = {"fsdp_": "fsdp_config", "megatron_lm_": "megatron_lm_config", "parallelism_config_": "parallelism_config"}
"""Prefix of an option → the configuration file's block."""
PLAIN = ("mixed_precision", "num_processes", "num_machines", "dynamo_backend")
"""Options with the configuration file's own names."""


def take_accelerate(reading: Reading) -> bool:
    """Read the settings of `accelerate launch`. Return whether there are any, or a file of them that was not found."""
    from napkin.inputs.launch.format import apply, open_reading
    from napkin.inputs.launch.formats.accelerate import FORMAT
    from napkin.inputs.launch.read import merge_into
    from napkin.inputs.launch.shared import take_linked

    source = reading.source
    linked = take_linked(reading, "config_file")
    stated = _options(source) if any(one in source.command for one in LAUNCHERS) else {}
    if source.plain("m") in LAUNCHERS:
        reading.told("m")
    if linked is None and "config_file" in source:
        reading.omit("config_file", "the launcher's file was not found; it sets the GPU count and the sharding")
    if linked is None and "distributed_type" not in stated:
        return False
    file = linked.source if linked is not None else source
    values = {**(file.values if linked is not None else {}), **stated}
    both = LaunchFile(file.name, "yaml", values, file.document if linked is not None else Document(source.name, None))
    both.parts = (source,)
    inner = open_reading(FORMAT, both)
    apply(FORMAT, inner)
    finish(inner)
    if linked is not None:
        merge_into(reading, inner, "config_file")
    else:
        reading.inputs = {**inner.inputs, **reading.inputs}
        reading.not_modelled += inner.not_modelled
        reading.refused += inner.refused
    reading.told(*(key for key, value in source.values.items() if any(value is one for one in stated.values())))
    reading.told(*KINDS)
    return True


def ask_sharding(reading: Reading) -> bool:
    """Leave open what the launcher's file sets where it was not found. Return whether that is so."""
    if not any(one in reading.source.command for one in LAUNCHERS) or reading.source.plain("config_file") is None:
        return False
    for name in ("gpus", "zero"):
        if name not in reading.inputs:
            reading.ask(name, "config_file", absent=reading.source.plain("config_file"))
    return True


def _options(source: LaunchFile) -> Mapping[str, FileValue]:
    """Return the launcher's options by the keys of its configuration file."""
    found: dict[str, FileValue] = {}
    for switch, kind in KINDS.items():
        value = source.get(switch)
        if value is not None and value.value is not False:
            found["distributed_type"] = FileValue(value.key, kind, value.variables)
    shards = "distributed_type" in found
    for key, value in source.values.items():
        block = next((name for prefix, name in BLOCKS.items() if key.startswith(prefix)), None)
        if key in PLAIN:
            found[key] = value
        elif shards and key in DEEPSPEED:
            found[f"deepspeed_config.{key}"] = value
        elif shards and block is not None and key != block:
            found[f"{block}.{key}"] = value
    return found

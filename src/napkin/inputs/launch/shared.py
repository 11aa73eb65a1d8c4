"""Read settings that several formats share: FSDP, DeepSpeed, linked files and the length of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from napkin.errors import NapkinError
from napkin.inputs.launch import values
from napkin.inputs.launch.checks import take_hybrid
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.settings_files import path_of
from napkin.inputs.launch.source import FileValue, LaunchFile
from napkin.inputs.launch.values import calculated, flag, number, whole, word
from napkin.units import Unreadable

SHARDING = {
    "full_shard": 3,
    "1": 3,
    "shard_grad_op": 2,
    "2": 2,
    "no_shard": 0,
    "3": 0,
    "hybrid_shard": 3,
    "4": 3,
    "hybrid_shard_zero2": 2,
    "_hybrid_shard_zero2": 2,
    "5": 2,
}
"""torch.distributed.fsdp.ShardingStrategy by name or number → ZeRO stage."""
DURATION = re.compile(r"(\d[\d_]*(?:\.\d*)?(?:[eE]\+?\d+)?)\s*([a-zA-Z]*)")
"""A number and its unit: `4800ba`, `2e12T`, `1_000`."""
CLOCK = re.compile(r"(?=\d)(\d+h)?(\d+m)?(\d+s)?|\d+sec", re.IGNORECASE)
"""A time by the clock (composer/core/time.py, Time.from_timedelta)."""
PLACES = {
    "cpu": True,
    "nvme": True,
    "true": True,
    **dict.fromkeys(("none", "false", "null", "cuda", "", "auto"), False),
}
"""DeepSpeed's offload device → whether it is off the GPU."""
NAMED_FSDP = """fsdp_forward_prefetch fsdp_backward_prefetch fsdp_transformer_layer_cls_to_wrap fsdp_auto_wrap_policy
    fsdp_min_num_params fsdp_use_orig_params fsdp_limit_all_gathers fsdp_ignored_modules fsdp_config.*prefetch*
    fsdp_config.*layer_cls_to_wrap fsdp_config.*auto_wrap_policy fsdp_config.*use_orig_params
    fsdp_config.*min_num_params
    fsdp_config.*limit_all_gathers fsdp_config.*ignored_modules fsdp.*prefetch fsdp.limit_all_gathers
    fsdp.use_orig_params"""
WHY_FSDP = "FSDP wrapping and prefetching; napkin assumes the framework's defaults"
IDLE_FSDP = """fsdp_config.*state_dict_type fsdp_config.*sync_module_states fsdp_config.*cpu_ram_efficient_loading
    fsdp_config.*cpu_offload_pin_memory fsdp_config.load_planner fsdp_config.xla fsdp_config.verbose
    fsdp_config.*final_state_dict_type fsdp_final_state_dict_type"""


def take_duration(reading: Reading, key: str, units: Mapping[str, str]) -> None:
    """Set the length of a run from a number with a unit. A clock time leaves the steps open, and a text that is no
    duration is an error (2).

    units  lowercase unit ("" for none) → the option that it counts
    """
    found = reading.read(key, lambda value: _duration(value, units))
    if found is not None:
        reading.put(found[0], found[1], key)
    elif reading.find(key) is not None:
        reading.ask("steps", key)


def _duration(value: object, units: Mapping[str, str]) -> tuple[str, int | float] | None:
    """Return the option that a duration counts, and its amount; None for a clock time."""
    text = str(value).strip()
    if CLOCK.fullmatch(text):
        return None
    found = DURATION.fullmatch(text)
    option = units.get(found[2].lower()) if found is not None else None
    if found is None or option is None:
        known = ", ".join(one for one in units if one)
        raise Unreadable(f"{values.shown(text)} is not a duration", f"a number and one of {known}")
    amount = calculated(found[1])
    return option, int(amount) if amount == int(amount) else amount


def find(reading: Reading, block: str, *words: str) -> str:
    """Return the first key present in a block, with or without the `fsdp_` prefix; the first candidate if none is."""
    tries = [f"{block}.{prefix}{one}" if block else f"{prefix}{one}" for one in words for prefix in ("fsdp_", "")]
    return next((one for one in tries if reading.source.get(one) is not None), tries[0])


def take_fsdp(reading: Reading, block: str, version_key: str = "") -> None:
    """Read FSDP's sharding, CPU offload and activation checkpointing as accelerate and axolotl write them.

    Source: accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin.
    """
    strategy = find(reading, block, "sharding_strategy")
    version = version_key or find(reading, block, "version")
    again = find(reading, block, "reshard_after_forward")
    reshard = reading.source.plain(again)
    number = reading.read(version, whole)
    newer = number == 2
    if number in (1, 2):
        reading.put("fsdp-version", str(number), version)
    if reading.find(strategy) is not None and not newer:
        reading.put("zero", reading.read(strategy, word(SHARDING)), strategy)
        if "hybrid" in str(reading.source.plain(strategy)).lower() or str(reading.source.plain(strategy)) in "45":
            take_hybrid(reading, strategy)
    elif reshard is not None and not isinstance(reshard, bool) and str(reshard).lower() in SHARDING:
        reading.put("zero", SHARDING[str(reshard).lower()], again)
    elif reshard is not None:
        reading.put("zero", 3 if reading.read(again, flag) else 2, again)
    elif reading.find(strategy) is not None:
        reading.put("zero", reading.read(strategy, word(SHARDING)), strategy)
    else:
        reading.default("zero", 3, strategy, again)
    reading.told(version)
    offload = find(reading, block, "offload_params", "cpu_offload")
    reading.switch("offload", "optimizer,parameters", offload)
    alone = find(reading, block, "cpu_ram_efficient_loading")
    if reading.read(alone, flag) is False and "quantized" in reading.inputs:
        reading.put("loading", "gpu", alone)
    checkpoint = find(reading, block, "activation_checkpointing")
    reading.switch("recompute", "full", checkpoint)


def device_of(reading: Reading, key: str) -> bool:
    """Return whether DeepSpeed offloads to the host: `cpu`, `{device: cpu}`, true."""
    for one in (f"{key}.device", f"{key}_device", key):
        value = reading.source.plain(one)
        if value is not None and not isinstance(value, dict):
            return bool(reading.read(one, word(PLACES)))
    return False


def take_deepspeed_block(reading: Reading, block: str, optimizer_key: str, param_key: str) -> None:
    """Read DeepSpeed's offload: optimizer states from stage 1, parameters only in stage 3."""
    stage = reading.value_of("zero")
    away = [
        (what, key)
        for what, key, least in (("optimizer", optimizer_key, 1), ("parameters", param_key, 3))
        if device_of(reading, key) and (stage or 0) >= least
    ]
    if away:
        keys = [
            one for _, key in away for one in (f"{key}.device", f"{key}_device", key) if one in reading.source.values
        ]
        reading.put("offload", ",".join(what for what, _ in away), *(keys or [block]))
    left = reading.open_among(
        *(f"{key}{end}" for key in (optimizer_key, param_key) for end in ("", ".device", "_device"))
    )
    if left and stage != 0:
        reading.ask("offload", *left)
    for key, least in ((optimizer_key, 1), (param_key, 3)):
        if device_of(reading, key) and stage is not None and stage < least:
            reading.disable(key, f"has no effect in ZeRO stage {stage}: it needs stage {least}", "zero", "offload")


def linked_path(reading: Reading, key: str) -> str | None:
    """Return the path of the file that a key names, or None if it does not exist.

    Searches the naming file's folder, its parents (scripts are started from there), and the working directory.
    """
    value = reading.source.plain(key)
    if not isinstance(value, str) or not value.strip():
        return None
    names = (reading.source.name, *(one.name for one in reading.source.parts))
    return next((path for name in names if (path := path_of(name, value)) is not None), None)


def take_linked(reading: Reading, key: str) -> Reading | None:
    """Return the reading of the file that a key names, or None if it does not exist and no script writes it."""
    from napkin.inputs.launch.read import read_launch, reading_of
    from napkin.inputs.launch.shell.files import written_by
    from napkin.inputs.launch.syntax import source_of

    stated = reading.find(key)
    path = linked_path(reading, key)
    try:
        own = written_by(reading.source, stated.value, source_of) if stated is not None else None
        if own is not None:
            return reading_of(own)
        return read_launch(path) if path is not None else None
    except NapkinError as problem:
        raise problem.at(f"{reading.source.place(key)}") from None


def settings_of(reading: Reading, key: str) -> LaunchFile | None:
    """Return the keys of the file that a key names, or None if it does not exist and no script writes it."""
    from napkin.inputs.launch.shell.files import written_by
    from napkin.inputs.launch.syntax import read_source, source_of

    stated = reading.find(key)
    own = written_by(reading.source, stated.value, source_of) if stated is not None else None
    path = linked_path(reading, key) if own is None else None
    return read_source(path) if path is not None else own


def adopt_settings(reading: Reading, key: str, placed: Callable[[str], str]) -> bool:
    """Add the keys of the file that a key names, below the source's own. Return whether the file is there.

    placed  a key of the file → its key in the source
    """
    file = settings_of(reading, key)
    if file is None:
        return False
    inner = {
        placed(name): FileValue(f"{key}: {one.key}", one.value, one.variables) for name, one in file.values.items()
    }
    reading.source.values = {**inner, **reading.source.values}
    reading.told(key)
    return True


def take_fsdp_file(reading: Reading, key: str = "fsdp_config") -> None:
    """Read the file of FSDP's settings that TrainingArguments name: its keys are those of the block.

    Source: transformers/training_args.py, TrainingArguments.fsdp_config.
    """
    stated = reading.find(key)
    if stated is None or not (isinstance(stated.value, values.Open) or str(stated.value).endswith(".json")):
        return
    if adopt_settings(reading, key, lambda name: f"{key}.{name}"):
        return
    reading.omit(key, f"{stated.value} was not found; it may set recomputation and FSDP's version")
    if reading.find("gradient_checkpointing") is None:
        reading.ask("recompute", key)


SHIPPED = {
    "deepspeed_configs": {
        "zero1": (1, ""),
        "zero1_torch_compile": (1, ""),
        "zero2": (2, "optimizer"),
        "zero2_torch_compile": (2, "optimizer"),
        "zero3": (3, ""),
        "zero3_bf16": (3, ""),
        "zero3_bf16_cpuoffload_all": (3, "optimizer,parameters"),
        "zero3_bf16_cpuoffload_params": (3, "parameters"),
    },
    "examples/deepspeed": {
        "ds_z0_config": (0, ""),
        "ds_z2_config": (2, ""),
        "ds_z2_offload_config": (2, "optimizer"),
        "ds_z3_config": (3, ""),
        "ds_z3_offload_config": (3, "optimizer,parameters"),
    },
    "configs/ds_configs": {
        "stage2_no_offloading_accelerate": (2, ""),
        "stage3_no_offloading": (3, ""),
        "stage3_no_offloading_accelerate": (3, ""),
        "stage3_offloading": (3, "optimizer,parameters"),
        "stage3_offloading_accelerate": (3, "optimizer,parameters"),
    },
}
"""DeepSpeed files shipped with axolotl, LLaMA-Factory and open-instruct → (ZeRO stage, offload).

Their repositories, HEAD of July 2026. axolotl's zero2 has offloaded the optimizer since 2023.
"""


def shipped_file(path: str) -> tuple[int, str] | None:
    """Return the settings of a DeepSpeed file that a framework ships, or None for any other path."""
    folder, _, name = path.replace("\\", "/").removeprefix("./").rpartition("/")
    known = next((files for at, files in SHIPPED.items() if folder == at or folder.endswith(f"/{at}")), {})
    stem, _, kind = name.rpartition(".")
    return known.get(stem) if kind in ("json", "conf") else None


def take_deepspeed_file(reading: Reading, key: str = "deepspeed") -> bool:
    """Read the DeepSpeed settings that a trainer's file names or embeds. Return whether there are any.

    If the named file does not exist, ZeRO stage and offload are left open: its name does not determine them.
    """
    from napkin.inputs.launch.read import merge_into

    if reading.source.plain(key) is True and "deepspeed_config" in reading.source:  # deepspeed.add_config_arguments
        reading.told(key)
        key = "deepspeed_config"
    if key not in reading.source:
        return False
    value = reading.find(key)
    if value is None and not any(True for _ in reading.source.inside(f"{key}.zero_optimization")):
        return False
    reading.put("framework", "deepspeed", key, origin="derived")
    if value is None:
        stage = f"{key}.zero_optimization.stage"
        reading.put("zero", reading.read(stage, values.natural) or 0, stage)
        block = f"{key}.zero_optimization"
        take_deepspeed_block(reading, block, f"{block}.offload_optimizer", f"{block}.offload_param")
        return True
    linked = take_linked(reading, key)
    known = shipped_file(str(value.value)) if linked is None else None
    if known is not None:
        reading.assume("zero", known[0], key)
        if known[1]:
            reading.assume("offload", known[1], key)
        reading.omit(key, f"{value.value} was not found; assumed to be the file that its framework ships")
    elif linked is None:
        for option in ("zero", "offload"):
            reading.ask(option, key, absent=value.value)
        reading.omit(key, f"{value.value} was not found; its ZeRO stage and offload are unknown")
    else:
        merge_into(reading, linked, key)
    return True


def take_amount(reading: Reading, epochs_key: str, default: float) -> None:
    """Read the length of the run: a step limit wins over epochs, which default to `default`."""
    steps, epochs = reading.read("max_steps", number), reading.read(epochs_key, number)
    if steps and steps > 0:
        reading.put("steps", int(steps), "max_steps")
    elif epochs:
        reading.put("epochs", epochs, epochs_key)
    else:
        reading.default("epochs", default, epochs_key)


def take_liger(reading: Reading, key: str) -> None:
    """Read a flag for Liger-Kernel: its loss, and its kernels in place of the class's."""
    if reading.read(key, flag):
        reading.put("loss", "fused", key)
        reading.put("kernels", "liger", key)

"""Readings that several formats share: FSDP's and DeepSpeed's settings, files that name other files, adapters."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from napkin.errors import NapkinError
from napkin.inputs.launch import values
from napkin.inputs.launch.values import calculated, flag, number, whole, word
from napkin.units import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.inputs.launch.reading import Reading

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
"""torch.distributed.fsdp.ShardingStrategy, by name and by number → ZeRO stage."""
DURATION = re.compile(r"(\d[\d_]*(?:\.\d*)?(?:[eE]\+?\d+)?)\s*([a-zA-Z]*)")
"""A number and its unit: `4800ba`, `2e12T`, `1_000`."""
PLACES = {
    "cpu": True,
    "nvme": True,
    "true": True,
    **dict.fromkeys(("none", "false", "null", "cuda", "", "auto"), False),
}
"""Where DeepSpeed keeps what it offloads → whether that is off the device."""
NAMED_FSDP = """fsdp_forward_prefetch fsdp_backward_prefetch fsdp_transformer_layer_cls_to_wrap fsdp_auto_wrap_policy
    fsdp_min_num_params fsdp_use_orig_params fsdp_limit_all_gathers fsdp_ignored_modules fsdp_config.*prefetch*
    fsdp_config.*layer_cls_to_wrap fsdp_config.*auto_wrap_policy fsdp_config.*use_orig_params
    fsdp_config.*min_num_params
    fsdp_config.*limit_all_gathers fsdp_config.*ignored_modules fsdp.*prefetch fsdp.limit_all_gathers
    fsdp.use_orig_params"""
WHY_FSDP = "which modules FSDP gathers together, and when, is the framework's usual in napkin"
IDLE_FSDP = """fsdp_config.*state_dict_type fsdp_config.*sync_module_states fsdp_config.*cpu_ram_efficient_loading
    fsdp_config.*cpu_offload_pin_memory fsdp_config.load_planner fsdp_config.xla fsdp_config.verbose
    fsdp_config.*final_state_dict_type fsdp_final_state_dict_type"""


def take_duration(reading: Reading, key: str, units: Mapping[str, str]) -> None:
    """Put how long a run is, from a number and a unit in one text; ask for it where they cannot be read.

    units  the unit in small letters ("" where none is written) → the option that it counts for
    """
    value = reading.find(key)
    if value is None:
        return
    found = DURATION.fullmatch(str(value.value).strip())
    option = units.get(found[2].lower()) if found is not None else None
    if found is None or option is None:
        reading.ask("steps", key)
        return
    try:
        amount = calculated(found[1])
    except Unreadable:
        reading.ask("steps", key)
        return
    reading.put(option, int(amount) if amount == int(amount) else amount, key)


def find(reading: Reading, block: str, *words: str) -> str:
    """Return the key of a block that is there, of its names with `fsdp_` or without; the first where none is."""
    tries = [f"{block}.{prefix}{one}" if block else f"{prefix}{one}" for one in words for prefix in ("fsdp_", "")]
    return next((one for one in tries if reading.source.get(one) is not None), tries[0])


def take_fsdp(reading: Reading, block: str, version_key: str = "") -> None:
    """Read FSDP's settings as accelerate and axolotl write them (accelerate/utils/dataclasses.py,
    FullyShardedDataParallelPlugin): what is sharded, what is on the host, which layers are recomputed."""
    strategy = find(reading, block, "sharding_strategy")
    version = version_key or find(reading, block, "version")
    again = find(reading, block, "reshard_after_forward")
    reshard = reading.source.plain(again)
    newer = reading.read(version, whole) == 2
    if reading.find(strategy) is not None and not newer:
        reading.put("zero", reading.read(strategy, word(SHARDING)), strategy)
        if "hybrid" in str(reading.source.plain(strategy)).lower() or str(reading.source.plain(strategy)) in "45":
            reading.assume("dp-shard", None, strategy)
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
    if reading.read(offload, flag):
        reading.put("offload", "optimizer,parameters", offload)
    checkpoint = find(reading, block, "activation_checkpointing")
    if reading.read(checkpoint, flag):
        reading.put("recompute", "full", checkpoint)


def device_of(reading: Reading, key: str) -> bool:
    """Return whether DeepSpeed keeps something on the host: `cpu`, `{device: cpu}`, true."""
    for one in (f"{key}.device", f"{key}_device", key):
        value = reading.source.plain(one)
        if value is not None and not isinstance(value, dict):
            return bool(reading.read(one, word(PLACES)))
    return False


def take_deepspeed_block(reading: Reading, block: str, optimizer_key: str, param_key: str) -> None:
    """Read what DeepSpeed keeps on the host: states from stage 1 on, parameters in stage 3 only."""
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
            reading.contradict(key, f"has no effect in ZeRO stage {stage}: it needs stage {least}", "zero", "offload")


FOLDERS_ABOVE = 2
"""Folders above a launch script in which the files that it names are looked for."""


def linked_path(reading: Reading, key: str) -> str | None:
    """Return the path of the file that a key names; None where it is not there. It is looked for next to the file that
    names it, in a folder above, where scripts are started, or from where napkin runs."""
    value = reading.source.plain(key)
    if not isinstance(value, str) or not value.strip():
        return None
    folder = os.path.dirname(reading.source.name)
    above = [os.path.join(folder, *[os.pardir] * ups, value) for ups in range(FOLDERS_ABOVE + 1)]
    return next((path for path in (*above, value) if os.path.isfile(path)), None)


def take_linked(reading: Reading, key: str) -> Reading | None:
    """Return what a file that a key names says; None where it is not there."""
    from napkin.inputs.launch.read import read_launch

    path = linked_path(reading, key)
    if path is None:
        return None
    try:
        return read_launch(path)
    except NapkinError as problem:
        raise problem.at(f"{reading.source.place(key)}") from None


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
"""DeepSpeed files that axolotl, LLaMA-Factory and open-instruct keep under these names: stage, and what is on the host
(their repositories, HEAD of July 2026; axolotl's zero2 has put the optimizer on the host since 2023)."""


def shipped_file(path: str) -> tuple[int, str] | None:
    """Return what a framework's own DeepSpeed file says, where a path names one; None for any other."""
    folder, _, name = path.replace("\\", "/").removeprefix("./").rpartition("/")
    known = next((files for at, files in SHIPPED.items() if folder == at or folder.endswith(f"/{at}")), {})
    stem, _, kind = name.rpartition(".")
    return known.get(stem) if kind in ("json", "conf") else None


def take_deepspeed_file(reading: Reading, key: str = "deepspeed") -> bool:
    """Read the DeepSpeed settings that a trainer's file names or holds; whether there are any. A file that is not here
    is asked for: its name does not say what is in it."""
    from napkin.inputs.launch.read import merge_into

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
        reading.omit(key, f"{value.value} is not here: it is taken for the one that its framework ships")
    elif linked is None:
        reading.ask("zero", key)
        reading.ask("offload", key)
        reading.omit(key, f"{value.value} is not here: its ZeRO stage and what it keeps on the host are not known")
    else:
        merge_into(reading, linked, key)
    return True


def take_amount(reading: Reading, epochs_key: str, default: float) -> None:
    """Read how long is trained: a limit on steps wins over epochs, of which there are `default` unless stated."""
    steps, epochs = reading.read("max_steps", number), reading.read(epochs_key, number)
    if steps and steps > 0:
        reading.put("steps", int(steps), "max_steps")
    elif epochs:
        reading.put("epochs", epochs, epochs_key)
    else:
        reading.default("epochs", default, epochs_key)

"""Read the parallel layout of verl's actor: FSDP or Megatron."""

from __future__ import annotations

from napkin.inputs.launch.checks import check_gpus, take_heads_exchanged
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import A
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import Open, either, flag, product, whole


def is_sft(source: LaunchFile) -> bool:
    """Return whether the file runs verl's SFT trainer."""
    alone = "engine" in source and "model.path" in source and "actor_rollout_ref" not in source
    return alone or "model.partial_pretrain" in source or any("sft_trainer" in one for one in source.command)


def is_megatron(source: LaunchFile) -> bool:
    """Return whether the actor trains in Megatron-core."""
    chosen = str(source.plain(f"{A}.strategy") or "").lower() == "megatron"
    named = any("megatron" in str(source.plain(one)).lower() for one in ("config_name", "model_engine", "engine"))
    return chosen or named or f"{A}.megatron" in source


def _check_engine(reading: Reading) -> None:
    """Refuse engines other than FSDP and Megatron, which use other keys (VeOmni, torchtitan, Automodel)."""
    for key in (f"{A}.strategy", "model_engine", "engine", "model.strategy", "engine.strategy"):
        kind = str(reading.source.plain(key) or "").lower()
        if kind and kind not in ("fsdp", "fsdp2", "megatron", "dp"):
            reading.refuse(key, f"napkin does not know verl's engine {kind[:40]!r}", "framework")


def take_layout(reading: Reading) -> None:
    """Read the actor's parallel degrees, ZeRO stage and offload."""
    _check_engine(reading)
    if is_megatron(reading.source):
        _take_megatron(reading)
    else:
        _take_fsdp(reading)


def _take_megatron(reading: Reading) -> None:
    source = reading.source
    degrees = "engine" if is_sft(source) else f"{A}.megatron"
    keys = [key for key in (f"{A}.strategy", "config_name", f"{A}.megatron") if key in source]
    reading.derive("framework", "megatron-core", *keys)
    reading.derive("implementation", "megatron", *keys)
    found = {}
    for name, option in (
        ("tensor_model_parallel_size", "tp"),
        ("pipeline_model_parallel_size", "pp"),
        ("context_parallel_size", "cp"),
        ("expert_model_parallel_size", "ep"),
        ("expert_tensor_parallel_size", "etp"),
        ("virtual_pipeline_model_parallel_size", "vp"),
    ):
        key = f"{degrees}.{name}"
        size = reading.take(option, key, whole)
        if size:
            found[key] = size if option in ("tp", "pp", "cp") else 1
    dense, gpus = product(list(found.values())), reading.value_of("gpus")
    first = f"{degrees}.tensor_model_parallel_size"
    if first not in source:
        older = f"{A}.ppo_micro_batch_size"  # before 2025 the default was 4 (trainer/config/ppo_megatron_trainer.yaml)
        reading.ask("tp", first) if older in source else reading.default("tp", 1, first)
    if gpus and found and gpus % dense == 0 and all(is_known(reading, one) for one in ("tp", "pp", "cp")):
        where = "trainer.n_gpus_per_node"
        reading.derive("dp", gpus // dense, where, *found)
    if (reading.value_of("tp") or 1) > 1:
        reading.take("sp", f"{degrees}.sequence_parallel", flag, default=True)
    divided, sharded = f"{degrees}.use_distributed_optimizer", f"{degrees}.use_megatron_fsdp"
    if reading.read(sharded, flag):  # optim_grads_params (utils/megatron_utils.py)
        reading.put("zero", 3, sharded)
    elif (on := reading.read(divided, flag)) is not None:
        reading.put("zero", 1 if on else 0, divided)
    reading.default("zero", 1, divided)
    if not is_sft(source):  # between an actor's phases; an SFT step has none
        _take_offload(reading, degrees)
    check_gpus(reading, "trainer.n_gpus_per_node")


def _take_fsdp(reading: Reading) -> None:
    source = reading.source
    named = ("engine.strategy", "model.strategy") if is_sft(source) else (f"{A}.strategy",)
    keys = [key for key in named if source.plain(key)]
    strategy = str(source.plain(keys[0])) if keys else ""
    if strategy:
        reading.derive("framework", "fsdp", *keys)
        reading.derive("fsdp-version", "2" if strategy.lower() == "fsdp2" else "1", *keys)
    else:
        reading.default("framework", "fsdp", f"{A}.strategy")
    block = f"{A}.fsdp_config" if not is_sft(source) else "engine" if "engine" in source else "model.fsdp_config"
    reading.take("zero", f"{block}.reshard_after_forward", either(3, 2), default=3)
    size = reading.read(f"{block}.fsdp_size", whole)
    stated = reading.find(f"{block}.fsdp_size")
    if size and size >= (reading.value_of("gpus") or size + 1):  # all ranks (utils/fsdp_utils.py, create_device_mesh)
        reading.told(f"{block}.fsdp_size")
    elif size:
        reading.put("dp-shard", size, f"{block}.fsdp_size")
    elif stated is not None and isinstance(stated.value, Open):
        reading.ask("dp-shard", f"{block}.fsdp_size")
    if reading.read(f"{block}.cpu_offload", flag) and reading.read(f"{block}.offload_params", flag):
        reading.put("offload", "optimizer,parameters", f"{block}.cpu_offload", f"{block}.offload_params")
    policy = f"{block}.offload_policy"
    if reading.read(policy, flag):  # of FSDP2 (trainer/config/engine/fsdp.yaml)
        reading.refuse(policy, "weights and states stay on the host in the update too, which is not modeled for verl")
    _take_offload(reading, block)
    cuts = (f"{A}.", f"{A}.fsdp_config.", "engine.", "")
    take_heads_exchanged(reading, "|".join(f"{cut}ulysses_sequence_parallel_size" for cut in cuts))


def _take_offload(reading: Reading, block: str) -> None:
    """Read what the host holds while the actor does not train; parameters take their gradients with them. Without the
    optimizer they leave the GPU while the engine generates, and its states stay (workers/fsdp_workers.py)."""
    keys = {"parameters": f"{block}.param_offload", "optimizer": f"{block}.optimizer_offload"}
    away = [word for word, key in keys.items() if reading.read(key, flag)]
    if away == ["parameters"]:
        reading.put("rollout-offload", "parameters", *keys.values())
    elif away:
        reading.put("offload", ",".join(sorted(away)), *keys.values())


def is_known(reading: Reading, option: str) -> bool:
    """Return whether a degree is either omitted or set to a known value, not left open by a shell variable."""
    return option not in reading.inputs or reading.value_of(option) is not None

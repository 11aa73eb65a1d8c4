"""torchtune's YAML."""

from __future__ import annotations

import re

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.names import lora_targets, model_of, take_optimizer
from napkin.inputs.launch.precisions import adapters, fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, names, number, whole

LENGTHS = "tokenizer.max_seq_len|dataset.max_seq_len"
"""The longest sample: the tokenizer's since torchtune 0.3, the data set's before."""
OF_TASKS = {"dpo": "dpo", "grpo": "grpo", "ppo": "ppo", "orpo": "orpo", "simpo": "simpo", "kto": "kto", "kd": "distill"}
"""What a loss's name holds → task."""
CHUNKED = ("linearcrossentropyloss", "cewithchunkedoutputloss")
_BUILDER = re.compile(r"^(?:(q?lora|q?dora)_)?(.+)$")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is torchtune's YAML."""
    return any(key.endswith("_component_") for key in source.values) and source.has_any(
        "model._component_", "policy_model._component_", "optimizer._component_", "base_model_path"
    )


def _model_key(reading: Reading) -> str:
    return next(
        (k for k in ("model._component_", "policy_model._component_") if k in reading.source), "model._component_"
    )


def _model(reading: Reading) -> None:
    """Read the model's builder: torchtune.models.llama3_1.lora_llama3_1_8b is LoRA on Llama 3.1 8B."""
    key = _model_key(reading)
    value = reading.source.plain(key)
    if not isinstance(value, str):
        reading.ask("model", key)
        return
    found = _BUILDER.match(value.rsplit(".", 1)[-1])
    method, name = (found[1], found[2]) if found else (None, value)
    preset = _preset(name)
    reading.put("model", preset, key) if preset else reading.ask("model", key, given=name)
    block = key.rpartition(".")[0]
    if method:
        reading.put("adapter", "dora" if "dora" in method or reading.read(f"{block}.use_dora", flag) else "lora", key)
        rank = reading.read(f"{block}.lora_rank", whole)
        reading.put("lora-rank", rank, f"{block}.lora_rank") if rank else reading.default(
            "lora-rank", 8, f"{block}.lora_rank"
        )
        take_adapter_dropout(reading, f"{block}.lora_dropout")
        _targets(reading, block)
    if (method and method.startswith("q")) or reading.read(f"{block}.quantize_base", flag):
        reading.put("quantized", "nf4", key)


def _teacher(reading: Reading) -> None:
    """Read the teacher's builder, which distillation recipes name."""
    key = "teacher_model._component_"
    value = reading.source.plain(key)
    if not isinstance(value, str):
        return
    reading.derive("task", "distill", key, *[one for one in ("kd_loss._component_",) if one in reading.source])
    found = _BUILDER.match(value.rsplit(".", 1)[-1])
    preset = _preset(found[2] if found else value)
    reading.put("reference", preset, key) if preset else reading.ask("reference", key, given=value)


def _preset(builder: str) -> str | None:
    """Return the preset of a builder: `qwen2_5_1_5b` is qwen2.5-1.5b.

    Underscores between digits are points or precede the size. A family with one size may have a preset without the
    size.
    """
    gaps = [found.start() for found in re.finditer(r"(?<=\d)_(?=\d)", builder)][:6]
    for bits in range(2 ** len(gaps)):
        letters = list(builder)
        for at, gap in enumerate(gaps):
            letters[gap] = "-" if bits >> at & 1 else "."
        name = "".join(letters).replace("_", "-")
        found, _ = model_of(name)
        if found:
            return found
    alone, _ = model_of(re.sub(r"_[\d_]+b(?:_.*)?$", "", builder).replace("_", "-"))
    return alone


def _targets(reading: Reading, block: str) -> None:
    listed = reading.find(f"{block}.lora_attn_modules")
    if listed is None:
        reading.ask("lora-targets", f"{block}.lora_attn_modules")
        return
    words = names(listed.value)
    keys = [f"{block}.lora_attn_modules"]
    for key, more in (
        ("apply_lora_to_mlp", ["gate_proj", "up_proj", "down_proj"]),
        ("apply_lora_to_output", ["lm_head"]),
    ):
        if reading.read(f"{block}.{key}", flag):
            words += more
            keys.append(f"{block}.{key}")
    reading.put("lora-targets", lora_targets(words), *keys)


def _layout(reading: Reading) -> None:
    """Read the recipe from the launch line, else infer it from keys that only one recipe has.

    The distributed recipe shards everything, the single-device recipe nothing.
    """
    source = reading.source
    recipe = next((one for one in source.command if one.removesuffix(".py").endswith("_single_device")), None)
    shared = [
        key
        for key in (
            "fsdp",
            "custom_sharded_layers",
            "fsdp_cpu_offload",
            "fsdp_reshard_after_forward",
            "tensor_parallel_dim",
            "tensor_parallel_plan",
            "data_parallel_shard_dim",
            "data_parallel_replicate_dim",
            "fsdp_sharding_strategy",
            "context_parallel_dim",
        )
        if key in source
    ]
    reading.take("tp", "tensor_parallel_dim", whole)
    reading.take("cp", "context_parallel_dim", whole)
    size = reading.read("data_parallel_shard_dim", whole)
    if size and "data_parallel_shard_dim" in source:
        reading.put("dp-shard", size, "data_parallel_shard_dim")
    whole_layers = reading.read("fsdp_reshard_after_forward", flag)
    if shared:
        key = "fsdp_reshard_after_forward" if whole_layers is not None else shared[0]
        reading.derive("zero", 2 if whole_layers is False else 3, key)
    elif recipe is not None:
        reading.derive("gpus", 1, "device")
    elif _one_device(reading):
        reading.assume(
            "gpus", 1, "optimizer._component_", *(["optimizer_in_bwd"] if "optimizer_in_bwd" in source else [])
        )
    else:
        reading.ask("gpus", "device")
        reading.default("zero", 3, "fsdp_reshard_after_forward")  # several GPUs: one has nothing to shard
    reading.switch("optimizer-in-backward", True, "optimizer_in_bwd")
    if reading.read("fsdp_cpu_offload", flag) or reading.read("fsdp.cpu_offload", flag):
        reading.put(
            "offload", "optimizer,parameters", *[k for k in ("fsdp_cpu_offload", "fsdp.cpu_offload") if k in source]
        )


def _one_device(reading: Reading) -> bool:
    name = str(reading.source.plain("optimizer._component_") or "").lower()
    return name.startswith("bitsandbytes") or bool(reading.read("optimizer_in_bwd", flag))


def _precision(reading: Reading) -> None:
    """Read the precision: everything, optimizer states included, is in the recipe's dtype."""
    kind = reading.read("dtype", fixed_dtype) or "bf16"
    put = reading.put if "dtype" in reading.source else reading.default
    if kind == "fp16":
        reading.refuse("dtype", "torchtune's recipes refuse fp16", "precision")
        return
    if reading.value_of("adapter"):
        frozen = "nf4" if reading.value_of("quantized") else kind
        put("precision", adapters(frozen, kind, kind), "dtype")
    else:
        put("precision", "bf16-pure" if kind == "bf16" else "fp32", "dtype")


def _amount(reading: Reading) -> None:
    epochs, most = reading.read("epochs", number), reading.read("max_steps_per_epoch", whole)
    if epochs and most:
        reading.derive("steps", int(epochs * most), "epochs", "max_steps_per_epoch")
    elif epochs:
        reading.put("epochs", epochs, "epochs")
    reading.take("steps", "num_steps", whole)


def _others(reading: Reading) -> None:
    _teacher(reading)
    take_optimizer(reading, "optimizer._component_")
    reading.switch("optimizer-form", "fused", "optimizer.fused")
    loss = str(reading.source.plain("loss._component_") or "").rsplit(".", 1)[-1].lower()
    if loss in CHUNKED:
        compiled = reading.read("compile", lambda value: flag(value) if not isinstance(value, dict) else None)
        reading.put("loss", "chunked" if compiled else "chunked-eager", "loss._component_")
    elif loss == "crossentropyloss":
        reading.put("loss", "torch", "loss._component_")
    elif any(one in loss for one in OF_TASKS):
        reading.put("task", next(task for one, task in OF_TASKS.items() if one in loss), "loss._component_")
    elif loss:
        reading.omit("loss", f"napkin does not know the memory of {loss[:40]!r}")
    if reading.value_of("task") is None:
        reading.assume("task", "sft", "dataset")
    reading.take("seq", LENGTHS, whole)
    if "seq" not in reading.inputs:
        reading.ask("seq", "tokenizer.max_seq_len")
    for key, option, word in (
        ("enable_activation_checkpointing", "recompute", "full"),
        ("enable_activation_offloading", "offload", "activations"),
    ):
        on = reading.read(key, flag)
        if on:
            before = reading.value_of(option)
            reading.put(option, f"{before},{word}" if before and option == "offload" else word, key)
        elif on is False and option == "recompute":
            reading.put(option, "none", key)
    reading.take("packing", "dataset.packed", flag)
    if reading.read("compile", lambda value: flag(value) if not isinstance(value, dict) else None):
        reading.put("compile", True, "compile")


FORMAT = LaunchFormat(
    "torchtune",
    "torchtune's YAML",
    "meta-pytorch/torchtune recipes/*.py, torchtune/models/*/_model_builders.py",
    is_this,
    fixed={"trainer": "torchtune", "implementation": "torchtune"},
    keys=(
        Key("batch_size", "micro-batch", whole),
        Key("gradient_accumulation_steps", "grad-accum", whole, 1),
    ),
    rules=(
        KeyRule(
            "model._component_ policy_model._component_ model.lora_rank model.lora_attn_modules "
            "model.lora_dropout model.apply_lora_to_mlp "
            "model.apply_lora_to_output model.quantize_base model.use_dora",
            "model adapter lora-rank lora-dropout lora-targets quantized",
            "the builder's name: lora_, qlora_, family, size",
            _model,
        ),
        KeyRule(
            "fsdp custom_sharded_layers fsdp_cpu_offload fsdp_reshard_after_forward tensor_parallel_dim "
            "context_parallel_dim data_parallel_shard_dim data_parallel_replicate_dim device optimizer_in_bwd",
            "zero tp cp dp-shard gpus offload optimizer-in-backward",
            "keys of the distributed recipe: ZeRO 3, or 2 without resharding",
            _layout,
        ),
        KeyRule("dtype", "precision", "everything in this dtype, optimizer states included", _precision),
        KeyRule("epochs max_steps_per_epoch num_steps", "epochs steps", "a limit on steps wins", _amount),
        KeyRule(
            "optimizer._component_ optimizer.fused loss._component_ tokenizer.max_seq_len dataset.max_seq_len "
            "dataset.packed compile enable_activation_checkpointing enable_activation_offloading "
            "teacher_model._component_ kd_loss._component_",
            "optimizer optimizer-form loss task reference seq recompute offload packing compile",
            "max_seq_len null means the longest sample, so give --seq",
            _others,
        ),
    ),
    ignored="""device checkpointer optimizer lr_scheduler clip_grad_norm model.lora_alpha
        metric_logger log_every_n_steps log_level log_peak_memory_stats profiler dataset_val batch_size_val
        tensor_parallel_plan._component_ shuffle seed cudnn_deterministic_mode collate_fn fsdp""",
    not_modelled={
        "quantizer": "quantization-aware training",
        "custom_sharded_layers": "separately sharded layers",
        "enable_fp8_training fp8_recipe_name": "fp8 layers",
        "ac_mode ac_option": "selection of recomputed layers",
        "data_parallel_replicate_dim": "shard replication",
        "teacher_model ref_model teacher_checkpointer kd_loss kd_ratio": "another post-training model",
        "tensor_parallel_plan": "selection of sharded layers",
    },
    refused={
        "quantizer._component_": "quantization-aware training",
        "model.decoder_trainable model.encoder_trainable model.fusion_trainable": "parts of the model are trained",
    },
)

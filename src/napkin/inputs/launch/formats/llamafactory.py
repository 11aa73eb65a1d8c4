"""LLaMA-Factory's YAML."""

from __future__ import annotations

from napkin.inputs.launch.checks import refuse_prediction
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.hf.accelerate_line import take_accelerate
from napkin.inputs.launch.lora import take_adapter_dropout, take_saved
from napkin.inputs.launch.low_rank import take_switched
from napkin.inputs.launch.names import MASTER, MEGATRON, PURE, take_model, take_optimizer, take_targets
from napkin.inputs.launch.precisions import adapters, take_fp8
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shapes import layers_of
from napkin.inputs.launch.shared import (
    IDLE_FSDP,
    NAMED_FSDP,
    WHY_FSDP,
    take_amount,
    take_deepspeed_file,
    take_fsdp,
    take_liger,
)
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.towers import take_towers
from napkin.inputs.launch.values import Open, calculated, either, flag, natural, whole, word

STAGES = {"pt": "pretrain", "sft": "sft", "rm": "rm", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}
CORE = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "recompute_granularity",
    "use_distributed_optimizer",
    "virtual_pipeline_model_parallel_size",
)
UPCAST = "amp-bf16"


OPTIMIZERS = {"use_adam_mini": "adam-mini", "use_muon": "muon"}
SWITCHED = ("use_galore", "use_apollo", "use_badam", *OPTIMIZERS)
"""Switches of an optimizer, in the order in which LLaMA-Factory asks for them."""
OWN = ("template", "cutoff_len", "lora_target", "dataset_dir", "quantization_bit", "freeze_trainable_layers")
"""Options of LLaMA-Factory that tell its launch lines from those of a program of one's own with --finetuning_type."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is LLaMA-Factory's YAML or launch line."""
    stage = source.plain("stage")
    staged = "stage" in source and (stage is None or isinstance(stage, Open) or str(stage).lower() in STAGES)
    typed = "finetuning_type" in source and (source.is_mapping or source.has_any(*OWN))
    return (staged or typed) and "model_name_or_path" in source


def _model(reading: Reading) -> None:
    take_model(reading, "model_name_or_path")


def _task(reading: Reading) -> None:
    task = reading.read("stage", word(STAGES))
    loss = str(reading.source.plain("pref_loss") or "").lower()
    if task == "dpo" and loss in ("orpo", "simpo"):
        reading.put("task", loss, "pref_loss", "stage")
    elif task:
        reading.put("task", task, "stage")
    else:
        reading.default("task", "sft", "stage")


def _seq(reading: Reading) -> None:
    reading.take("seq", "cutoff_len", whole)
    usual = 1024 if reading.source.program == "train_bash.py" else 2048  # until May 2024: src/llmtuner/hparams
    reading.default("seq", usual, "cutoff_len")
    packs = reading.read("packing|neat_packing", flag)
    if packs is not None:
        reading.put("packing", packs, *[k for k in ("packing", "neat_packing") if k in reading.source])


def _amount(reading: Reading) -> None:
    take_amount(reading, "num_train_epochs", 3)


def _adapter(reading: Reading) -> None:
    kind = str(reading.source.plain("finetuning_type") or "lora").lower()
    if reading.open_among("finetuning_type"):
        reading.ask("adapter", "finetuning_type")
    elif kind == "lora":
        here = "finetuning_type" in reading.source
        reading.put("adapter", "lora", "finetuning_type", origin="from file" if here else "default")
        reading.switch("adapter", "dora", "use_dora")
        reading.take("lora-rank", "lora_rank", whole, default=8)
        take_adapter_dropout(reading, "lora_dropout")
        targets = reading.find("lora_target")
        if targets is not None:
            take_targets(reading, "lora_target", targets.value)
        else:
            reading.default("lora-targets", "all", "lora_target")
        take_saved(reading, "additional_target|modules_to_save")
    elif kind == "freeze":
        _freeze(reading)
    elif kind == "full":
        reading.told("finetuning_type")
        reading.ignored.append("finetuning_type") if not reading.value_of("adapter") else None
    else:
        reading.refuse("finetuning_type", f"napkin does not support {kind[:40]!r}", "adapter")
    bits = reading.read("quantization_bit", natural)
    if bits:
        _quantized(reading, bits)
    elif bits is None and reading.find("quantization_bit") is not None:
        reading.ask("quantized", "quantization_bit")


def _freeze(reading: Reading) -> None:
    """Read the number of trained last layers (default 2); earlier layers are frozen."""
    layers = reading.read("freeze_trainable_layers", lambda value: int(calculated(value)))
    trained, total = 2 if layers is None else layers, layers_of(reading.value_of("model"))
    if total is None or not 0 < trained <= total:
        reading.ask("freeze-layers", "freeze_trainable_layers", "finetuning_type")
    elif layers is None:
        reading.default("freeze-layers", total - trained, "freeze_trainable_layers")
    else:
        reading.derive(
            "freeze-layers", total - trained, "freeze_trainable_layers", "model_name_or_path", "finetuning_type"
        )
    reading.derive("freeze-head", True, "finetuning_type")


def _quantized(reading: Reading, bits: int) -> None:
    method = str(reading.source.plain("quantization_method") or "bnb").lower()
    if method not in ("bnb", "bitsandbytes") or bits not in (4, 8):
        reading.refuse(
            "quantization_method" if "quantization_method" in reading.source else "quantization_bit",
            f"napkin does not support {bits}-bit {method[:30]}",
            "quantized",
        )
        reading.ask("quantized", "quantization_bit")
        return
    if bits == 8:
        reading.put("quantized", "int8", "quantization_bit")
        return
    kind = str(reading.source.plain("quantization_type") or "nf4").lower()
    double = reading.read("double_quantization", flag)
    keys = [k for k in ("quantization_bit", "quantization_type", "double_quantization") if k in reading.source]
    reading.put("quantized", "int4" if kind != "nf4" else "nf4" if double is False else "nf4-dq", *keys)


TOWERS = ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model")


def _towers(reading: Reading) -> None:
    take_towers(reading, *TOWERS)


def _framework(reading: Reading) -> None:
    core = [key for key in CORE if key in reading.source]
    if core:
        reading.derive("framework", "megatron-core", *core)
        _of_megatron(reading)
    elif not take_accelerate(reading) and not take_deepspeed_file(reading) and reading.source.plain("fsdp"):
        reading.derive("framework", "fsdp", "fsdp")
        take_fsdp(reading, "fsdp_config")


def _of_megatron(reading: Reading) -> None:
    """Read the keys of mcore_adapter, which trains in Megatron-core."""
    for key, option in (
        ("tensor_model_parallel_size", "tp"),
        ("pipeline_model_parallel_size", "pp"),
        ("expert_model_parallel_size", "ep"),
        ("context_parallel_size", "cp"),
        ("virtual_pipeline_model_parallel_size", "vp"),
    ):
        reading.take(option, key, whole)
    if reading.read("sequence_parallel", flag) is not None:
        on = bool(reading.read("sequence_parallel", flag)) and (reading.value_of("tp") or 1) > 1
        reading.put("sp", on, "sequence_parallel")
    sharded = reading.read("use_distributed_optimizer", flag)
    if sharded is not None or reading.open_among("use_distributed_optimizer"):
        reading.put("zero", 1 if sharded else 0, "use_distributed_optimizer")
    reading.take("recompute", "recompute_granularity", word({"full": "full", "selective": "selective"}), default="none")
    reading.default("optimizer", "adamw", "optim")


def _formats(reading: Reading) -> None:
    _precision(reading)
    take_fp8(reading, "fp8")


def _precision(reading: Reading) -> None:
    """Read the precision: trained weights are fp32 unless pure_bf16 or ZeRO 3 is set, and others stay as they were
    loaded (model/adapter.py)."""
    keys = [
        key
        for key in ("bf16", "fp16", "pure_bf16", "finetuning_type", "quantization_bit", "deepspeed")
        if key in reading.source
    ]
    pure, framework = reading.read("pure_bf16", flag), reading.value_of("framework")
    narrow = "bf16" if reading.read("bf16", flag) or pure else "fp16" if reading.read("fp16", flag) else None
    if framework == "megatron-core":
        reading.derive("precision", MEGATRON if narrow == "bf16" else "fp16-mixed" if narrow else "fp32", *keys)
    elif reading.value_of("adapter") or ("freeze-layers" in reading.inputs and narrow and not pure):
        frozen = reading.value_of("quantized") or narrow or "bf16"
        kept = "bf16" if pure else "fp32"
        policy = adapters(frozen, kept, narrow or "fp32", framework == "deepspeed")
        reading.derive("precision", policy, *keys)
    elif narrow is None:
        reading.default("precision", "fp32", "bf16")
    elif pure:
        reading.put("precision", PURE, "pure_bf16")
    elif framework == "deepspeed":
        policy = MASTER if narrow == "bf16" else "fp16-mixed"
        known = reading.value_of("zero") is not None
        reading.derive("precision", policy, *keys) if known else reading.assume("precision", policy, *keys)
    else:
        policy = UPCAST if narrow == "bf16" else "param=fp32,grad=fp32,compute=fp16,state=fp32"
        reading.derive("precision", policy, *keys)


def _optimizer(reading: Reading) -> None:
    """Read the optimizer: a switch of LLaMA-Factory's own goes before optim (trainer_utils.py,
    create_custom_optimizer)."""
    on = next((key for key in SWITCHED if reading.read(key, flag)), None)
    if on in ("use_galore", "use_apollo"):
        bits = "8bit" in str(reading.source.plain("optim")) and on == "use_galore"
        factored = str(reading.source.plain("optim")) == "adafactor" and on == "use_galore"
        base = "adafactor" if factored else "adamw-8bit" if bits else "adamw"
        take_switched(reading, on.removeprefix("use_"), base)
        reading.told("optim")
    elif on in OPTIMIZERS:
        reading.put("optimizer", OPTIMIZERS[on], on)
        reading.told("optim")
    elif on is not None:
        reading.ask("optimizer", on)
        reading.refuse(on, "BAdam trains blocks alternately, which napkin does not model", "optimizer")
    elif left := reading.open_among(*SWITCHED):
        reading.ask("optimizer", *left)
    else:
        take_optimizer(reading, "optim")
        reading.default("optimizer", "adamw", "optim")


def _others(reading: Reading) -> None:
    refuse_prediction(reading)
    if reading.value_of("recompute") is None and reading.value_of("framework") != "megatron-core":
        reading.take("recompute", "disable_gradient_checkpointing", either("none", "full"), default="full")
    _optimizer(reading)
    kernel = {"fa2": "flash", "fa3": "cudnn", "sdpa": "flash", "disabled": "eager", "auto": "flash", "true": "flash"}
    found = reading.read("flash_attn", word(kernel))
    if found:
        soft = str(reading.source.plain("flash_attn")) in ("sdpa", "auto")
        reading.put("attention", found, "flash_attn", origin="assumed" if soft else "from file")
    else:
        reading.default("attention", "flash", "flash_attn")
    for key in ("enable_liger_kernel", "use_liger_kernel"):  # the second is transformers' own
        take_liger(reading, key)
    reading.switch("trainer", "unsloth", "use_unsloth")


FORMAT = LaunchFormat(
    "llama-factory",
    "LLaMA-Factory's YAML",
    "hiyouga/LLaMA-Factory src/llamafactory/hparams/*.py, src/llamafactory/model/{adapter,model_utils/quantization}.py",
    is_this,
    fixed={"trainer": "llama-factory"},
    keys=(
        Key("per_device_train_batch_size", "micro-batch", whole, 8),
        Key("gradient_accumulation_steps", "grad-accum", whole, 1),
    ),
    rules=(
        KeyRule("model_name_or_path", "model", "a preset's name; for a fine-tune, give MODEL", _model),
        KeyRule("stage pref_loss", "task", "pt pretrain, sft, rm, ppo, dpo, kto; pref_loss orpo and simpo", _task),
        KeyRule(
            "cutoff_len packing neat_packing", "seq packing", "default 2048; the sequence length, or the pack's", _seq
        ),
        KeyRule("max_steps num_train_epochs", "steps epochs", "max_steps wins unless -1; 3 epochs", _amount),
        KeyRule(
            "finetuning_type lora_rank lora_dropout lora_target use_dora additional_target modules_to_save "
            "quantization_bit quantization_method quantization_type double_quantization freeze_trainable_layers",
            "adapter lora-rank lora-dropout lora-targets modules-to-save quantized freeze-layers freeze-head",
            "LoRA of rank 8 on all linear layers; 4-bit is nf4 with double quantization",
            _adapter,
        ),
        KeyRule(" ".join(TOWERS), "freeze", "tower and projector are frozen by default", _towers),
        KeyRule(
            "deepspeed fsdp fsdp_config use_distributed_optimizer tensor_model_parallel_size "
            "pipeline_model_parallel_size expert_model_parallel_size context_parallel_size sequence_parallel "
            "virtual_pipeline_model_parallel_size recompute_granularity",
            "framework zero offload tp pp ep cp vp sp recompute",
            "a DeepSpeed file is read if it is found; Megatron's keys mean mcore_adapter",
            _framework,
        ),
        KeyRule("bf16 fp16 pure_bf16 fp8", "precision", "trained weights in fp32 unless pure_bf16 or ZeRO 3", _formats),
        KeyRule(
            "disable_gradient_checkpointing optim flash_attn enable_liger_kernel use_liger_kernel use_unsloth "
            f"{' '.join(SWITCHED)} galore_rank galore_layerwise apollo_rank apollo_layerwise",
            "recompute optimizer optimizer-in-backward attention loss kernels trainer",
            "full recomputation by default",
            _others,
        ),
    ),
    ignored=f"""ddp_find_unused_parameters
        preprocessing_batch_size tokenized_path  interleave_probs mix_strategy
        overwrite_cache new_special_tokens compute_accuracy   data_shared_file_system
        dataset_dir tool_format ignore_pad_token_for_loss val_size {IDLE_FSDP}""",
    not_modelled={
        "kt_*": "settings of KTransformers",
        NAMED_FSDP: WHY_FSDP,
        "max_samples": "the maximum number of samples per data set",
        "lora_target_parameters": "adapters on parameters outside linear layers",
        "moe_* overlap_* bias_activation_fusion apply_rope_fusion recompute_method recompute_num_layers "
        "variable_seq_lengths": "Megatron-core settings",
        "group_by_length": "length grouping reduces padding",
        "galore_* apollo_* badam_*": "settings of the optimizer",
        "image_max_pixels video_max_pixels image_min_pixels video_maxlen freeze_vision_tower "
        "freeze_multi_modal_projector "
        "freeze_language_model": "image tokens, and the trained parts of a multimodal model",
        "rope_scaling shift_attn": "attention variant or kernel",
        "resize_vocab": "resized embedding",
        "pref_beta ref_model reward_model* reference_model": "another post-training model",
        "upcast_layernorm upcast_lmhead_output": "selection of fp32 modules",
        "ray_num_workers placement_strategy": "GPUs that Ray uses",
        "fsdp_config": WHY_FSDP,
    },
    refused={
        "use_llama_pro": "trains only added blocks",
        "use_kt": "KTransformers keeps the experts on the host and computes them there",
        "mixture_of_depths": "tokens skip layers",
        "oft_*": "OFT adapters, not LoRA",
    },
)

"""axolotl's YAML."""

from __future__ import annotations

from napkin.inputs.launch.axolotl_layout import take_checkpointing, take_formats, take_layout
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_layers, take_saved
from napkin.inputs.launch.names import (
    take_attention,
    take_model,
    take_optimizer,
    take_targets,
)
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import (
    IDLE_FSDP,
    NAMED_FSDP,
    WHY_FSDP,
    take_amount,
)
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, names, whole

TASKS = {"dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo", "grpo": "grpo", "gdpo": "grpo"}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is axolotl's YAML; a line that starts a program of one's own with such options is not."""
    if source.syntax == "shell" and source.program:
        return False
    return "base_model" in source and source.has_any("micro_batch_size", "sequence_len", "sample_packing", "adapter")


def _model(reading: Reading) -> None:
    take_model(reading, "base_model")


def _task(reading: Reading) -> None:
    value = reading.find("rl")
    if value is not None:
        task = TASKS.get(str(value.value).lower())
        if task is None:
            reading.ask("task", "rl")
            reading.refuse("rl", f"napkin does not support task {str(value.value)[:40]!r}", "task")
        else:
            reading.put("task", task, "rl")
    elif reading.read("reward_model|process_reward_model", flag):
        reading.put("task", "rm", *reading.written("reward_model", "process_reward_model"))
    elif reading.source.states("pretraining_dataset"):
        reading.derive("task", "pretrain", "pretraining_dataset")
    else:
        reading.default("task", "sft", "rl")


def _amount(reading: Reading) -> None:
    take_amount(reading, "num_epochs", 1)


def _accumulation(reading: Reading) -> None:
    """Read gradient accumulation; `batch_size` counts samples per rank and optimizer step."""
    steps, total = reading.read("gradient_accumulation_steps", whole), reading.read("batch_size", whole)
    micro = reading.value_of("micro-batch")
    if steps:
        reading.put("grad-accum", steps, "gradient_accumulation_steps")
    elif total and micro:
        reading.derive("grad-accum", max(total // micro, 1), "batch_size", "micro_batch_size")
    else:
        reading.default("grad-accum", 1, "gradient_accumulation_steps")


def _trained(reading: Reading) -> None:
    """Refuse a list of trained parameters in full training; adapters train only themselves."""
    if reading.source.states("unfrozen_parameters") and not reading.value_of("adapter"):
        reading.refuse("unfrozen_parameters", "only the named parameters are trained", "freeze-layers")


def _adapter(reading: Reading) -> None:
    kind = str(reading.source.plain("adapter") or "").lower()
    if kind in ("lora", "qlora"):
        dora = reading.read("peft_use_dora", flag)
        reading.put("adapter", "dora" if dora else "lora", "adapter", *(["peft_use_dora"] if dora else []))
        rank = reading.read("lora_r", whole)
        reading.put("lora-rank", rank, "lora_r") if rank else reading.ask("lora-rank", "lora_r")
        take_adapter_dropout(reading, "lora_dropout")
        _targets(reading)
        take_layers(reading, "peft_layers_to_transform")
        take_saved(reading, "lora_modules_to_save")
    elif kind:
        reading.refuse("adapter", f"napkin does not support adapter {kind[:40]!r}", "adapter")
    four, eight = reading.read("load_in_4bit", flag), reading.read("load_in_8bit", flag)
    if four or (kind == "qlora" and four is None and not eight):
        left = reading.open_among("load_in_4bit", "load_in_8bit")
        keys = ["load_in_4bit"] if four else left or ["adapter"]
        doubled = f"{BNB}.bnb_4bit_use_double_quant"
        once = reading.read(doubled, flag) is False
        reading.put("quantized", "nf4" if once else "nf4-dq", *keys, *([doubled] if once else []))
    elif eight:
        reading.put("quantized", "int8", "load_in_8bit")
    if reading.read("quantize_moe_experts", flag) and reading.value_of("quantized"):
        reading.put("quantize-experts", True, "quantize_moe_experts")
    if reading.source.plain("gptq") is True:
        reading.put("quantized", "int4", "gptq")


def _targets(reading: Reading) -> None:
    every = reading.read("lora_target_linear", flag)
    listed = reading.find("lora_target_modules")
    if every:
        reading.put("lora-targets", "all", "lora_target_linear", "lora_target_modules")
    elif listed is not None:
        take_targets(reading, "lora_target_modules", listed.value)
    else:
        reading.ask("lora-targets", "lora_target_modules", "lora_target_linear")


LIGER_KERNELS = ("liger_rms_norm", "liger_rope", "liger_glu_activation")
LORA_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
"""Functions of a layer and its adapter in one, which are on by default unless a file states one of them."""


def _kernels(reading: Reading) -> None:
    """Read Liger's kernels and axolotl's functions of adapters, which may run together. Without a fused loss, Liger's
    kernels leave that of the class, or its cross entropy in place of the logits."""
    stated = any(reading.source.states(key) for key in LORA_KERNELS)
    each = [reading.read(key, flag) for key in LORA_KERNELS]
    own = all(each) if stated else None
    if all(reading.read(key, flag) for key in LIGER_KERNELS):
        adapts = reading.source.plain("adapter") in ("lora", "qlora") and not reading.source.states("rl")
        joined = adapts and not reading.source.plain("trust_remote_code") if own is None else own
        reading.derive("kernels", "axolotl-liger" if joined else "liger", *LIGER_KERNELS, *LORA_KERNELS)
        if "loss" not in reading.inputs and not reading.source.states("rl"):
            in_place = reading.read("liger_cross_entropy", flag)
            reading.derive("loss", "in-place" if in_place else "torch", "liger_cross_entropy", *LIGER_KERNELS)
    elif stated:
        reading.derive("kernels", "axolotl" if own else "none", *LORA_KERNELS)


def _others(reading: Reading) -> None:
    """Read optimizer, attention, packing, loss, kernels and compilation."""
    take_optimizer(reading, "optimizer")
    reading.default("optimizer", "adamw", "optimizer")
    if reading.find("attn_implementation") is not None:
        take_attention(reading, "attn_implementation")
    elif reading.read("flash_attention", flag):
        reading.put("attention", "flash", "flash_attention")
    elif reading.read("xformers_attention", flag):
        reading.put("attention", "efficient", "xformers_attention")
    elif reading.read("eager_attention", flag):
        reading.put("attention", "eager", "eager_attention")
    elif reading.read("sdp_attention", flag):
        reading.assume("attention", "flash", "sdp_attention")
    elif reading.read("flex_attention", flag):
        reading.omit("flex_attention", "napkin does not model flex attention")
    if reading.take("packing", "sample_packing", flag) is not None:
        reading.told("pad_to_sequence_len")
    _plugins(reading)
    _kernels(reading)
    reading.switch("compile", True, "torch_compile")


BNB = "bnb_config_kwargs"
"""A block whose keys replace those of bitsandbytes' configuration (loaders/model.py)."""
REFUSED_PLUGINS = {
    "hatchery": "the training runs on a remote service",
    "spectrum": "only the layers that it selects are trained",
    "grokfast": "keeps a running mean of the gradients",
    "mora": "the adapter is MoRA",
    "densemixer": "every expert computes every token",
}
"""Plugins under axolotl/integrations that change what a step computes or keeps."""
FUSED_LOSS, EXPERTS = "cut_cross_entropy", "expert_parallel"


def _plugins(reading: Reading) -> None:
    """Read the plugins: a fused loss, expert parallelism, or what napkin does not model."""
    plugins = [one.lower() for one in names(reading.source.plain("plugins") or [])]
    if reading.read("cut_cross_entropy|liger_fused_linear_cross_entropy", flag) or any(
        FUSED_LOSS in one for one in plugins
    ):
        keys = ("plugins", "cut_cross_entropy", "liger_fused_linear_cross_entropy")
        reading.derive("loss", "fused", *[key for key in keys if key in reading.source])
    for one in plugins:
        part = next((part for part in one.split(".") if part in REFUSED_PLUGINS), "")
        if part:
            reading.refuse("plugins", f"{part}: {REFUSED_PLUGINS[part]}")
    if any(FUSED_LOSS not in one and EXPERTS not in one for one in plugins):
        reading.omit("plugins", "what other plugins change")


FORMAT = LaunchFormat(
    "axolotl",
    "axolotl's YAML",
    "axolotl-ai-cloud/axolotl src/axolotl/utils/{config/__init__,schemas/config}.py, src/axolotl/loaders/model.py",
    is_this,
    fixed={"trainer": "axolotl"},
    keys=(
        Key("micro_batch_size", "micro-batch", whole, 1),
        Key("sequence_len", "seq", whole, 512),
    ),
    rules=(
        KeyRule(
            "base_model", "model", "a preset's name; a copy is assumed to match, for a fine-tune give MODEL", _model
        ),
        KeyRule("rl reward_model pretraining_dataset", "task", "rl; pretraining_dataset: pretrain; else sft", _task),
        KeyRule("gradient_accumulation_steps batch_size", "grad-accum", "batch_size / micro_batch_size", _accumulation),
        KeyRule("max_steps num_epochs", "steps epochs", "max_steps wins", _amount),
        KeyRule(
            "adapter lora_r lora_dropout lora_target_linear lora_target_modules lora_modules_to_save "
            "load_in_4bit load_in_8bit peft_use_dora peft_layers_to_transform "
            f"quantize_moe_experts {BNB}.bnb_4bit_use_double_quant",
            "adapter lora-rank lora-dropout lora-targets modules-to-save quantized quantize-experts",
            "4-bit is nf4 with double quantization",
            _adapter,
        ),
        KeyRule("unfrozen_parameters", "", "refused in full training", _trained),
        KeyRule(
            "tensor_parallel_size context_parallel_size sequence_parallel_degree dp_shard_size dp_replicate_size "
            "expert_parallel_size fsdp fsdp_config fsdp_version deepspeed",
            "tp cp ep dp-shard gpus framework zero offload",
            "FSDP's settings as in accelerate, with or without fsdp_; a DeepSpeed file is read if it is found",
            take_layout,
        ),
        KeyRule(
            "bf16 fp16 bfloat16 float16 fp8",
            "precision",
            "bf16-pure; FSDP: amp-bf16; DeepSpeed: bf16-mixed",
            take_formats,
        ),
        KeyRule(
            "gradient_checkpointing activation_offloading", "recompute offload", "true means full", take_checkpointing
        ),
        KeyRule(
            "optimizer attn_implementation flash_attention xformers_attention eager_attention sdp_attention "
            "sample_packing pad_to_sequence_len plugins cut_cross_entropy torch_compile liger_rms_norm liger_rope "
            "liger_glu_activation lora_mlp_kernel lora_qkv_kernel lora_o_kernel",
            "optimizer attention packing loss kernels compile",
            "cross-entropy plugins: fused loss",
            _others,
        ),
    ),
    ignored=f"""model_type tokenizer_type is_llama_derived_model is_mistral_derived_model
        gradient_checkpointing_kwargs fsdp_final_state_dict_type tf32 strict group_by_length.none
        dataset_processes dataset_keep_in_memory dataloader* hf_use_auth_token  special_tokens tokens
        added_tokens_overrides chat_template* weight_decay adam_beta* max_grad_norm curriculum_sampling
        eval_table* eot_tokens processor_type ddp_find_unused_parameters cosine_* eta_min use_swanlab
        use_tensorboard auto_resume_from_checkpoints save_first_step shuffle_merged_datasets skip_prepare_dataset
        base_model_config base_model_ignore_patterns revision_of_model loss_watchdog* total_num_tokens
        sample_packing_eff_est roundrobin reinit_weights {IDLE_FSDP}""",
    not_modelled={
        NAMED_FSDP: WHY_FSDP,
        "unfrozen_parameters": "selection of trained parameters",
        "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel": "fused adapter kernels",
        "lora_target_parameters": "adapters on parameters outside linear layers",
        "liger_*": "fused kernels",
        "group_by_length": "length grouping reduces padding",
        "eval_sample_packing sample_packing_* multipack*": "sample packing",
        "model_config overrides_of_model_config": "model configuration overrides",
        "resize_token_embeddings_to_32x": "resized embedding",
        "pad_to_sequence_len": "padding of rows",
        "trl vllm": "the generation engine",
        "rl_beta dpo_beta orpo_alpha": "the weight of the preference loss",
        "ring_attn_func heads_k_stride": "context parallelism implementation",
        "fsdp_config": WHY_FSDP,
    },
    refused={
        "lisa_n_layers lisa_step_interval": "layers are trained alternately",
        "optim_target_modules": "optimizer states of these modules are low-rank",
        "relora_steps relora": "adapters are merged and restarted",
        "unfreeze_layers": "selection of trained layers",
    },
)

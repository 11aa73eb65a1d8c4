"""oumi's configuration: TRL's and transformers' arguments in blocks, under names of its own."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_machine
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.formats import hf_trainer
from napkin.inputs.launch.hf import lengths
from napkin.inputs.launch.hf.adapter import adapter
from napkin.inputs.launch.hf.names import amount
from napkin.inputs.launch.hf.precision import precision
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import device_of, take_fsdp
from napkin.inputs.launch.source import FileValue, LaunchFile
from napkin.inputs.launch.values import flag, names, whole, word

RENAMED = {
    "model.model_name": "model_name_or_path",
    "model.model_max_length": "max_length",
    "model.torch_dtype_str": "torch_dtype",
    "model.attn_implementation": "attn_implementation",
    "model.enable_liger_kernel": "use_liger_kernel",
    "training.enable_gradient_checkpointing": "gradient_checkpointing",
    "training.optimizer": "optim",
    "training.compile": "torch_compile",
    "training.mixed_precision_dtype": "mixed_precision",
    "training.grpo": "",
    "training.gkd": "",
    "training.gold": "",
    "training.trainer_kwargs": "",
    "training": "",
    "peft.q_lora": "load_in_4bit",
    "peft": "",
    "data.train.pack": "packing",
    "fsdp.mixed_precision": "fsdp_mixed_precision",
}
"""Keys and blocks, the more specific first → names of TRL and transformers."""
TASKS = {
    "trl_sft": "sft",
    "trl_dpo": "dpo",
    "trl_kto": "kto",
    "trl_grpo": "grpo",
    "trl_gkd": "gkd",
    "hf": None,
    "oumi": None,
    "verl_grpo": None,
    "trl_gold": None,
}
"""trainer_type → task; those without one are told apart by other keys, or refused."""
STAGES = {**{f"zero_{stage}": stage for stage in range(4)}, **{str(stage): stage for stage in range(4)}}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is oumi's training configuration."""
    return source.has_all("model.model_name", "training") and source.has_any("data", "training.trainer_type")


def _translated(source: LaunchFile) -> LaunchFile:
    """Return the source with TRL's names. bf16 is off unless a key says otherwise (training_params.py, to_hf)."""
    found = source.renamed(RENAMED)
    for name in ("fsdp_mixed_precision", "deepspeed.precision"):
        if name in found.values and found.values.get("mixed_precision") is None:
            found.values["mixed_precision"] = found.values.pop(name)
    found.values.setdefault("mixed_precision", FileValue("training.mixed_precision_dtype", "no"))
    return found


def _model(reading: Reading) -> None:
    hf_trainer.read_model(reading)
    frozen = names(reading.source.plain("model.freeze_layers") or [])
    if frozen and all("vis" in one for one in frozen):
        reading.put("freeze", "vision", "model.freeze_layers")
    elif frozen:
        reading.refuse("model.freeze_layers", "only part of the weights is trained", "freeze-layers")
    if reading.source.plain("model.adapter_model") is not None:
        reading.omit("model.adapter_model", "adapters of an earlier run, whose rank is not in the file")


def _task(reading: Reading) -> None:
    """Read trainer and task; transformers' and oumi's own trainer run next-token prediction."""
    kind = str(reading.source.plain("trainer_type") or "hf").lower()
    if kind in ("verl_grpo", "trl_gold"):
        reading.refuse("trainer_type", f"napkin does not read oumi's settings of {kind}", "task")
        reading.told("verl_config_overrides")
    reading.derive("trainer", "trl" if kind.startswith("trl") else "hf-trainer", "trainer_type")
    task = reading.read("trainer_type", word(TASKS, lambda _: None))
    scratch = reading.read("model.load_pretrained_weights", flag) is False
    if scratch and task in (None, "sft"):
        reading.derive("task", "pretrain", "model.load_pretrained_weights", "trainer_type")
    elif task is not None:
        reading.derive("task", task, "trainer_type")
    else:
        reading.assume("task", "sft", "trainer_type")


def _seq(reading: Reading) -> None:
    if reading.value_of("task") == "grpo" or reading.source.states("max_length"):
        lengths.seq(reading)
    else:
        reading.ask("seq", "max_length")


def _adapter(reading: Reading) -> None:
    """Read LoRA of rank 8; 4-bit weights are fp4 unless bnb_4bit_quant_type says nf4 (peft_params.py)."""
    if not reading.read("use_peft", flag):
        reading.told("use_peft", *(key for key in reading.source.values if key.startswith("lora_")))
        reading.source.values.pop("load_in_4bit", None)
        return
    reading.default("lora-rank", 8, "lora_r")
    reading.default("lora-dropout", 0.0, "lora_dropout")
    adapter(reading)
    if reading.value_of("quantized") is None:
        return
    bits = reading.read("q_lora_bits", whole) or 4
    if bits != 4:
        reading.derive("quantized", f"int{bits}", "load_in_4bit", "q_lora_bits")
    elif reading.source.plain("bnb_4bit_quant_type") is None:
        reading.put("quantized", "int4", "load_in_4bit")


def _layout(reading: Reading) -> None:
    """Read FSDP or DeepSpeed; the GPU count is the launcher's."""
    take_machine(reading)
    if reading.read("fsdp.enable_fsdp", flag):
        reading.derive("framework", "fsdp", "fsdp.enable_fsdp")
        take_fsdp(reading, "fsdp")
    elif reading.read("deepspeed.enable_deepspeed", flag):
        reading.derive("framework", "deepspeed", "deepspeed.enable_deepspeed")
        if reading.find("deepspeed.deepspeed_config_path") is not None:
            reading.ask("zero", "deepspeed.deepspeed_config_path")
            return
        reading.take("zero", "deepspeed.zero_stage", word(STAGES), default=0)
        parts = {"optimizer": "deepspeed.offload_optimizer", "parameters": "deepspeed.offload_param"}
        away = [part for part, key in parts.items() if key in reading.source and device_of(reading, key)]
        if away:
            reading.put("offload", ",".join(away), *(parts[part] for part in away))


def _others(reading: Reading) -> None:
    """Read the rest; recomputation is off by default, and TRL before 1.5 keeps all logits."""
    reading.default("recompute", "none", "gradient_checkpointing")
    if reading.value_of("task") == "sft" and not reading.read("use_liger_kernel", flag):
        reading.default("loss", "torch", "loss_type")
    on = reading.read("gradient_checkpointing", flag)
    hf_trainer.others(reading)
    if on is False:
        reading.put("recompute", "none", "gradient_checkpointing")
    reading.switch("compile", True, "model.compile")


FORMAT = LaunchFormat(
    "oumi",
    "oumi's configuration",
    "oumi-ai/oumi src/oumi/core/configs/params/{model,training,peft,fsdp,deepspeed}_params.py",
    is_this,
    keys=(
        Key("per_device_train_batch_size", "micro-batch", whole, 8),
        Key("gradient_accumulation_steps", "grad-accum", whole, 1),
    ),
    rules=(
        KeyRule(
            "model.model_name model.freeze_layers", "model", "a preset's name; for a fine-tune, give MODEL", _model
        ),
        KeyRule(
            "training.trainer_type model.load_pretrained_weights",
            "trainer task",
            "TRL_SFT, TRL_DPO, TRL_KTO, TRL_GRPO, TRL_GKD; sft is assumed for HF and OUMI",
            _task,
        ),
        KeyRule("model.model_max_length training.grpo", "seq", "GRPO: prompt + completion", _seq),
        KeyRule("training.max_steps training.num_train_epochs", "steps epochs", "max_steps wins", amount),
        KeyRule(
            "training.use_peft peft.lora_r peft.lora_dropout peft.lora_target_modules peft.q_lora peft.q_lora_bits "
            "peft.bnb_4bit_quant_type peft.use_bnb_nested_quant",
            "adapter lora-rank lora-dropout lora-targets quantized",
            "LoRA of rank 8; the peft block without use_peft has no effect",
            _adapter,
        ),
        KeyRule(
            "training.grpo",
            "samples-per-prompt max-prompt-tokens max-response-tokens rollout reference",
            "GRPO: the reference is the model with adapters disabled",
            hf_trainer.rollout,
        ),
        KeyRule(
            "fsdp deepspeed", "framework zero offload dp-shard", "FULL_SHARD 3, HYBRID_SHARD within nodes", _layout
        ),
        KeyRule(
            "model.torch_dtype_str training.mixed_precision_dtype fsdp.mixed_precision deepspeed.precision",
            "precision",
            "weights in torch_dtype_str; no autocast unless a key sets one",
            precision,
        ),
        KeyRule(
            "training.optimizer model.attn_implementation training.enable_gradient_checkpointing "
            "model.enable_liger_kernel data.train.pack training.compile",
            "optimizer attention recompute loss kernels packing compile",
            "no recomputation by default",
            _others,
        ),
    ),
    ignored=hf_trainer.FORMAT.ignored
    + """ model.tokenizer* model.trust_remote_code model.chat_template* model.processor_kwargs model.model_revision
        model.tool_call_parser model.shard_for_eval data.validation data.test data.train.datasets data.train.stream
        data.train.collator* data.train.target_col data.train.seed data.train.mixture* data.train.use_async_dataset
        log_model_summary include_performance_metrics include_alternative_mfu_metrics empty_device_cache_steps
        nccl_default_timeout_minutes dep_log_level log_examples save_epoch save_final_model metrics_function
        label_ignore_index try_resume_from_last_checkpoint telemetry reward_function* lora_init_weights lora_alpha
        dataloader_main_process_only lora_task_type peft_save_mode bnb_4bit_quant_storage bnb_4bit_compute_dtype
        use_deterministic fsdp.state_dict_type fsdp.sync_module_states deepspeed.steps_per_print
        deepspeed.zero_allow_untested_optimizer deepspeed.stage3_gather_16bit_weights_on_model_save
        deepspeed.gradient_clipping""",
    not_modelled={
        "fsdp": "FSDP wrapping and prefetching; napkin assumes the framework's defaults",
        "deepspeed": "DeepSpeed's buffers and reduction",
        "model.model_kwargs": "arguments of the model's class",
        "model.device_map": "layers spread over several GPUs in one process",
        "data.train": "batching of the data",
        "lora_bias lora_target_parameters llm_int8_skip_modules": "adapter settings",
        **hf_trainer.FORMAT.not_modelled,
    },
    refused=hf_trainer.FORMAT.refused,
    translated=_translated,
)

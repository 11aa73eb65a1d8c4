"""ms-swift's launch lines and YAML: `swift sft`, `swift rlhf`, `megatron sft`."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora, take_saved
from napkin.inputs.launch.low_rank import take_galore_of_swift
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.ms_swift_layout import (
    ANSWER,
    MICRO,
    STEPS,
    TASKS,
    command_of,
    is_megatron,
    take_batch,
    take_gpus,
    take_layout,
)
from napkin.inputs.launch.names import (
    AUTOCAST,
    MASTER,
    MEGATRON,
    PURE,
    take_attention,
    take_model,
    take_optimizer,
)
from napkin.inputs.launch.precisions import adapters, dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import of_trl, take_engine_of_trl, take_moved, take_other_model
from napkin.inputs.launch.shared import take_amount, take_liger
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT, FROM_FILE
from napkin.inputs.launch.towers import take_towers
from napkin.inputs.launch.values import flag, number, whole

RLHF = ("dpo", "orpo", "simpo", "kto", "rm", "ppo", "grpo", "gkd")
"""Values of rlhf_type that are napkin tasks under the same name."""
TUNER = "tuner_type|train_type|sft_type"
TARGETS = "target_modules|lora_target_modules|target_regex"


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is ms-swift's or a fork's: its command, or a tuner type together with a model."""
    named = source.has_any(*TUNER.split("|")) and source.has_any("model", "model_id_or_path", "model_type")
    known = (
        source.has_any("rlhf_type", "tuner_type", "sft_type")
        if source.syntax == "shell"
        else ("learning_rate" in source)
    )
    return command_of(source)[1] != "" or (named and known)


def _model(reading: Reading) -> None:
    take_model(reading, "model", "model_id_or_path", "model_type")
    path = reading.inputs.get("model")
    if path is not None and path.value is None and path.given and reading.find("model_type") is not None:
        take_model(reading, "model_type")
        if reading.value_of("model") is None:
            reading.inputs["model"] = path
        else:
            reading.told("model", "model_id_or_path")


def _task(reading: Reading) -> None:
    """Read the task from the subcommand; refuse a head that is not a language model's."""
    kind = command_of(reading.source)[1]
    stated = reading.source.plain("rlhf_type")
    if stated is not None and str(stated).lower() not in RLHF:
        reading.ask("task", "rlhf_type")
        reading.refuse("rlhf_type", f"napkin does not support task {str(stated)[:40]!r}", "task")
    elif stated is not None:
        reading.put("task", str(stated).lower(), "rlhf_type")
        take_other_model(reading, "reference", "teacher_model")
    elif kind == "rlhf" or "rlhf_type" in reading.source:
        reading.default("task", "dpo", "rlhf_type")
    else:
        reading.derive("task", TASKS.get(kind, "sft"), "swift")
    head = str(reading.source.plain("task_type") or "causal_lm").lower()
    if head != "causal_lm":
        reading.refuse("task_type", f"napkin does not model the head {head[:40]!r}")


def _seq(reading: Reading) -> None:
    """Read max_length: the sequence length, or the prompt's in GRPO. It defaults to the model's own."""
    length = reading.read("max_length", whole)
    if reading.value_of("task") == "grpo":
        answer = reading.read(ANSWER, whole) or 512
        if length:
            reading.derive("seq", length + answer, "max_length", ANSWER)
        else:
            reading.ask("seq", "max_length")
    elif length:
        reading.put("seq", length, "max_length")
    else:
        reading.ask("seq", "max_length")
    reading.take("packing", "packing", flag)


def _distilled(reading: Reading) -> None:
    """Read GKD's engine, where it has one, and the share of steps for which it generates. A sample with its response
    has at most max_length tokens."""
    length, answer = reading.read("max_length", whole), reading.read(ANSWER, whole) or 512
    if take_engine_of_trl(reading) and length and length > answer:
        reading.derive("max-response-tokens", answer, ANSWER)
        reading.derive("max-prompt-tokens", length - answer, "max_length", ANSWER)
        reading.take("on-policy", "lmbda", number)
        reading.default("samples-per-prompt", 1, "num_generations")
    elif ANSWER in reading.source:
        reading.omit(ANSWER, "length of the responses that the student generates")


def _rollout(reading: Reading) -> None:
    """Read GRPO's engine, lengths and reference, which is the model with adapters disabled where it has any."""
    if reading.value_of("task") == "gkd":
        _distilled(reading)
    if reading.value_of("task") != "grpo":
        return
    length = reading.read("max_length", whole)
    of_trl(reading, (length or 0, 512), 0.04)  # swift/arguments/rlhf_args.py
    if length:
        reading.put("max-prompt-tokens", length, "max_length")
    take_moved(reading, {"optimizer": "offload_optimizer", "parameters": "offload_model"})


def _adapter(reading: Reading) -> None:
    """Read the adapter: LoRA of rank 8 on all linear layers by default, full training with Megatron."""
    megatron = is_megatron(reading.source)
    at = reading.named(*TUNER.split("|"))
    stated = reading.source.plain(at)
    kind = str(stated).lower() if stated is not None else "full" if megatron else "lora"
    if stated is None and reading.find(at) is not None:
        reading.ask("adapter", at)
    elif kind == "lora":
        take_lora(reading, "lora_rank", TARGETS, 8, "all")
        reading.put("adapter", "lora", at, origin=DEFAULT if stated is None else FROM_FILE)
        if reading.value_of("lora-targets") == "default":
            reading.put("lora-targets", "all", reading.named(*TARGETS.split("|")))
        take_adapter_dropout(reading, "lora_dropout|lora_dropout_p", 0.05)  # swift/llm/argument/tuner_args.py
        take_saved(reading, "modules_to_save|lora_modules_to_save")
        reading.switch("adapter", "dora", "use_dora")
    elif kind != "full":
        reading.refuse(at, f"napkin does not support adapter {kind[:40]!r}", "adapter")
    bits, at = reading.read("quant_bits|quantization_bit", whole), reading.named("quant_bits", "quantization_bit")
    method = str(reading.source.plain("quant_method") or "bnb").lower()
    if bits in (4, 8) and method in ("bnb", "hqq", "eetq", "quanto"):
        double = reading.read("bnb_4bit_use_double_quant", flag) is not False
        four = ("nf4-dq" if double else "nf4") if method == "bnb" else "int4"
        keys = [key for key in ("quant_bits", "quantization_bit", "quant_method") if key in reading.source]
        reading.derive("quantized", four if bits == 4 else "int8", *keys)
    elif bits is None and reading.find(at) is not None:
        reading.ask("quantized", at)
    elif bits:
        reading.refuse(at, f"napkin does not support {bits}-bit quantization by {method[:20]!r}", "quantized")


def _precision(reading: Reading) -> None:
    """Read the precision: weights are loaded in torch_dtype, by default the model's own dtype, assumed bf16."""
    loaded = reading.read("torch_dtype|dtype", dtype)
    key = "torch_dtype" if "torch_dtype" in reading.source or "dtype" not in reading.source else "dtype"
    narrow = "bf16" if loaded in (None, "auto") else loaded
    state = reading.derive if loaded else reading.assume
    framework = reading.value_of("framework")
    if framework == "megatron-core":
        if reading.value_of("adapter"):
            state("precision", "frozen=bf16,param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32", key)
        else:
            core.take_precision(reading, MEGATRON)
        return
    if reading.value_of("adapter"):
        policy = adapters(reading.value_of("quantized") or narrow, "fp32", narrow, framework == "deepspeed")
    elif narrow == "bf16":
        policy = {"deepspeed": MASTER, "fsdp": AUTOCAST}.get(str(framework), PURE)
    elif narrow == "fp16":
        policy = "fp16-mixed" if framework == "deepspeed" else "param=fp32,grad=fp32,compute=fp16,state=fp32"
    else:
        policy = "fp32"
    state("precision", policy, key)


def _others(reading: Reading) -> None:
    if is_megatron(reading.source):
        core.take_optimizer(reading)
        core.take_attention(reading)
        core.take_loss(reading)
        core.take_gradients(reading)
        core.take_predictions(reading)
        if (
            not reading.take("steps", "train_iters", whole)
            and reading.find("num_train_epochs", "max_epochs") is not None
        ):
            take_amount(reading, reading.named("num_train_epochs", "max_epochs"), 1)
        return
    take_amount(reading, "num_train_epochs", 3)
    if reading.read("use_galore", flag):
        word = str(reading.source.plain("optim") or "adamw_torch")
        take_galore_of_swift(reading, "adamw-8bit" if "8bit" in word else "adamw" if "adamw" in word else word)
        reading.told("optim", "galore_update_proj_gap", "galore_scale", "galore_optim_per_parameter")
    else:
        take_optimizer(reading, "optim", "optimizer")
    reading.default("optimizer", "adamw", "optim")
    take_attention(reading, "attn_impl")
    reading.switch("attention", "flash", "use_flash_attn")
    on = reading.read("gradient_checkpointing", flag)
    if on is not None and reading.value_of("recompute") is None:
        reading.put("recompute", "full" if on else "none", "gradient_checkpointing")
    reading.default("recompute", "full", "gradient_checkpointing")
    take_liger(reading, "use_liger_kernel")
    frozen = [key for key in ("freeze_parameters", "trainable_parameters") if reading.source.states(key)]
    for key in frozen:
        if not reading.value_of("adapter") and reading.source.plain(key) is not False:
            reading.refuse(key, "only part of the weights is trained", "freeze-layers")


TOWERS = ("freeze_vit", "freeze_aligner", "freeze_llm")


def _towers(reading: Reading) -> None:
    take_towers(reading, *TOWERS)
    if reading.value_of("model") is None and reading.read("freeze_llm", flag):
        reading.refuse("freeze_llm", "the language model is frozen; only the other parts are trained", "freeze")


FORMAT = LaunchFormat(
    "ms-swift",
    "ms-swift's launch lines",
    "modelscope/ms-swift swift/arguments, swift/trainers/arguments.py, swift/megatron/arguments, swift/config",
    is_this,
    fixed={"trainer": "ms-swift"},
    keys=(
        Key("tensor_model_parallel_size", "tp", whole),
        Key("pipeline_model_parallel_size", "pp", whole),
        Key("context_parallel_size", "cp", whole),
        Key("expert_model_parallel_size", "ep", whole),
        Key("expert_tensor_parallel_size", "etp", whole),
        Key("virtual_pipeline_model_parallel_size", "vp", whole, silent=True),
        Key("decoder_first_pipeline_num_layers", "first-stage-layers", whole),
        Key("decoder_last_pipeline_num_layers", "last-stage-layers", whole),
    ),
    rules=(
        KeyRule("model model_id_or_path model_type", "model", "a preset's name; for a fine-tune, give MODEL", _model),
        KeyRule("rlhf_type task_type", "task", "pt, sft, or rlhf_type", _task),
        KeyRule("nproc_per_node nnodes", "gpus", "NPROC_PER_NODE × NNODES", take_gpus),
        KeyRule(f"max_length {ANSWER} packing", "seq packing", "GRPO: prompt + response", _seq),
        KeyRule(
            f"{TUNER} lora_rank lora_dropout|lora_dropout_p target_modules|lora_target_modules|target_regex "
            "modules_to_save use_dora quant_bits quantization_bit quant_method bnb_4bit_use_double_quant",
            "adapter lora-rank lora-dropout lora-targets modules-to-save quantized",
            "LoRA of rank 8 on all linear layers; full training with Megatron",
            _adapter,
        ),
        KeyRule(" ".join(TOWERS), "freeze", "tower and aligner are frozen by default", _towers),
        KeyRule(
            f"num_generations {ANSWER} use_vllm vllm_mode vllm_enforce_eager beta lmbda "
            "offload_optimizer offload_model",
            "samples-per-prompt max-prompt-tokens max-response-tokens rollout rollout-tp rollout-eager rollout-offload "
            "reference on-policy",
            "GRPO as in TRL; the reference is the model with adapters disabled; GKD's own engine",
            _rollout,
        ),
        KeyRule(
            "deepspeed fsdp sequence_parallel_size deepspeed_autotp_size use_distributed_optimizer sequence_parallel "
            f"recompute_granularity recompute_method recompute_num_layers recompute_modules {core.OVERLAPPED}",
            "framework zero offload cp tp sp recompute async-dp",
            "zero0 to zero3, with or without _offload, or FSDP2; Megatron: the distributed optimizer",
            take_layout,
        ),
        KeyRule(
            f"{MICRO} batch_size {STEPS} micro_batch_size global_batch_size",
            "micro-batch grad-accum global-batch",
            "accumulation defaults to a global batch of 16",
            take_batch,
        ),
        KeyRule("torch_dtype dtype bf16 fp16 fp8_format", "precision", "the weights' dtype, default bf16", _precision),
        KeyRule(
            "max_steps num_train_epochs max_epochs train_iters optim optimizer use_galore galore_rank "
            "galore_target_modules galore_proj_type attn_impl attention_backend "
            "gradient_checkpointing use_liger_kernel freeze_parameters trainable_parameters",
            "steps epochs optimizer attention recompute loss kernels",
            "recomputes by default; Megatron: selective",
            _others,
        ),
    ),
    ignored="""lora_alpha lora_bias model_author model_name system template use_hf use_chat_template
        agent_template enable_thinking add_non_thinking_prefix split_dataset_ratio load_from_cache_file streaming
        lazy_tokenize strict truncation_strategy gradient_checkpointing_kwargs ddp_timeout acc_strategy no_save_optim
        no_save_rng finetune merge_lora report_to log_completions lr min_lr clip_grad num_workers stop_words
        dataloader_persistent_workers external_plugins max_grad_norm weight_decay adam_beta1 adam_beta2
        bnb_4bit_compute_dtype bnb_4bit_quant_type check_model loss_scale stream m no_initialization columns
        node_rank master_addr master_port cached_dataset cached_val_dataset load_args ignore_args_error""",
    not_modelled={
        "freeze_vit freeze_aligner freeze_llm vit_gradient_checkpointing vit_lr aligner_lr": "settings of other towers",
        "vllm* use_vllm sleep_level offload_model offload_optimizer offload_bridge async_generate move_model_batches "
        "teacher* reward* steps_per_generation num_iterations generation_batch_size dynamic_sample max_turns "
        "multi_turn_scheduler": "sample generation and scoring",
        "beta rpo_alpha loss_type epsilon* temperature top_p top_k num_generations": "post-training settings",
        "padding_free group_by_length": "padding-free batches",
        "moe_* router_aux_loss_coef experts_impl": "token routing to experts",
        "cross_entropy_* *_fusion": "fused kernels",
        "optimizer_cpu_offload optimizer_offload_fraction use_precision_aware_optimizer exp_avg_dtype "
        "exp_avg_sq_dtype main_grads_dtype main_params_dtype": "placement and format of optimizer states",
        "fp8_*": "fp8 recipe and layer selection",
        "zero_hpz_partition_size": "secondary parameter partition (ZeRO++ hpZ)",
        "use_logits_to_keep": "selection of computed logits",
        "device_map max_memory": "layers spread over several GPUs in one process",
    },
    refused={
        "lisa_activated_layers": "layers are trained alternately",
    },
)

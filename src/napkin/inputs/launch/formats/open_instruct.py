"""open-instruct's launch scripts and YAML: SFT and DPO with accelerate, GRPO with Ray and DeepSpeed."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_heads_exchanged
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.names import MASTER, take_model
from napkin.inputs.launch.precisions import adapters, full_policy
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_updates
from napkin.inputs.launch.shared import take_deepspeed_file, take_liger
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, names, natural, number, product, whole, word

PROGRAMS = {
    "finetune.py": "sft",
    "dpo_tune.py": "dpo",
    "dpo_tune_cache.py": "dpo",
    "dpo.py": "dpo",
    "grpo_fast.py": "grpo",
    "grpo.py": "grpo",
}
"""Programs of open_instruct/ → task. reward_modeling.py and the older PPO use other keys."""
OF_OLMO_CORE = ("dpo.py", "grpo.py")
"""Programs that train with OLMo-core's FSDP."""
MARKS = ("with_tracking", "use_slow_tokenizer", "checkpointing_steps", "dataset_mixer_list", "use_qlora")
ENGINES = ("vllm_num_engines", "vllm_tensor_parallel_size")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file starts one of open-instruct's programs, or is the YAML of one."""
    if source.syntax == "shell":
        return _program(source) != ""
    marked = sum(key in source for key in MARKS) > 1 and "per_device_train_batch_size" in source
    return marked and source.is_mapping and "model_name_or_path" in source


def _program(source: LaunchFile) -> str:
    """Return the program of open_instruct/ that a script starts, directly or through mason.py."""
    paths = (one.rsplit("/", 2) for one in (*source.command, source.module))
    started = (path[-1] for path in paths if len(path) > 1 and path[-2] == "open_instruct")
    return next((name for name in started if name in PROGRAMS), "")


def _generates(reading: Reading) -> bool:
    return bool(reading.value_of("task") == "grpo")


def _task(reading: Reading) -> None:
    """Read the task from the program; in YAML only DPO has a loss name or num_epochs."""
    program = _program(reading.source)
    loss = str(reading.source.plain("loss_type" if "loss_type" in reading.source else "dpo_loss_type") or "").lower()
    marks = [key for key in ("loss_type", "dpo_loss_type", "beta", "dpo_beta", "num_epochs") if key in reading.source]
    if program in PROGRAMS:
        reading.derive("task", PROGRAMS[program], program)
    elif marks:
        reading.derive("task", "dpo", *marks)
    else:
        reading.assume("task", "sft", "model_name_or_path")
    if loss == "simpo" and reading.value_of("task") == "dpo":
        reading.derive("task", "simpo", *[key for key in ("loss_type", "dpo_loss_type") if key in reading.source])
    elif reading.value_of("task") == "dpo":
        reading.default(
            "reference", "precomputed", "loss_type"
        )  # reference log-probabilities are cached before training
    if not _generates(reading):
        reading.derive("trainer", "accelerate", program or "model_name_or_path")


def _machine(reading: Reading) -> None:
    """Read accelerate's GPU count and the layout; mason.py starts it on several nodes."""
    source = reading.source
    if _generates(reading):
        return
    if source.has_all("gpus", "num_nodes") and any(one.endswith("mason.py") for one in source.command):
        sizes = [reading.read(key, whole) for key in ("gpus", "num_nodes")]
        whole_machine = product([size or 1 for size in sizes]) if all(sizes) else None
        reading.derive("gpus", whole_machine, "gpus", "num_nodes")
        reading.told("num_processes", "num_machines")
    else:
        reading.take("gpus", "num_processes", whole)
    if _program(source) in OF_OLMO_CORE:
        reading.derive("framework", "fsdp", _program(source))
        reading.default("zero", 3, "fsdp_shard_degree")
        reading.take("dp-shard", "fsdp_shard_degree", whole)
    elif "deepspeed_config_file" in source:
        take_deepspeed_file(reading, "deepspeed_config_file")
    elif reading.find("zero_stage") is not None:
        reading.derive("framework", "deepspeed", "zero_stage")
        reading.take("zero", "zero_stage", natural)
        _offload(reading, "offload_optimizer", "offload_param")
    take_heads_exchanged(reading, "sequence_parallel_size")
    for key, option in (
        ("context_parallel_degree", "cp"),
        ("tensor_parallel_degree", "tp"),
    ):
        reading.take(option, key, whole)


def _offload(reading: Reading, optimizer: str, parameters: str) -> None:
    away = [what for what, key in (("optimizer", optimizer), ("parameters", parameters)) if reading.read(key, flag)]
    if away:
        reading.put("offload", ",".join(away), *[key for key in (optimizer, parameters) if key in reading.source])


def _batch(reading: Reading) -> None:
    if _generates(reading):
        return
    reading.take("micro-batch", "per_device_train_batch_size", whole, default=8)
    reading.take("grad-accum", "gradient_accumulation_steps", whole, default=1)
    if reading.take("seq", "max_seq_length", whole) is None:
        reading.ask("seq", "max_seq_length")
    reading.take("packing", "packing", flag)
    if reading.take("steps", "max_train_steps", whole, silent=True):
        reading.told("num_train_epochs", "num_epochs")
    else:
        reading.take("epochs", "num_train_epochs|num_epochs", number)
        reading.default("epochs", 2, "num_train_epochs")


def _adapter(reading: Reading) -> None:
    """Read LoRA, on all linear layers of a block, and the precision: weights are loaded in bf16."""
    if _generates(reading):
        reading.put("precision", MASTER, "model_dtype", origin="default")
        return
    quantized, on = reading.read("use_qlora", flag), reading.read("use_lora", flag)
    master = reading.value_of("framework") == "deepspeed"
    mixed = reading.read("mixed_precision", word({"bf16": "bf16", "fp16": "fp16", "no": "no"}))
    autocast = None if mixed in (None, "no") else mixed
    if quantized or on:
        key = "use_lora" if on else "use_qlora"
        reading.put("adapter", "lora", key, origin="derived")
        reading.take("lora-rank", "lora_rank", whole, default=64)
        reading.default("lora-targets", "all", key)
        take_adapter_dropout(reading, "lora_dropout", 0.1)
        if quantized:
            reading.put("quantized", "nf4-dq", "use_qlora")
        policy = adapters("nf4" if quantized else "bf16", "fp32", master=master)
    else:
        policy = full_policy("bf16", autocast, reading.value_of("framework") == "fsdp", master)
    keys = [key for key in ("mixed_precision", "deepspeed_config_file", "zero_stage") if key in reading.source]
    reading.derive("precision", policy, *keys) if keys else reading.default("precision", policy, "mixed_precision")


def _others(reading: Reading) -> None:
    if reading.read("use_8bit_optimizer", flag):
        reading.put("optimizer", "adamw-8bit", "use_8bit_optimizer")
    elif reading.read("dpo_use_paged_optimizer", flag):
        reading.put("optimizer", "paged-adamw", "dpo_use_paged_optimizer")
    reading.default("optimizer", "adamw", "use_8bit_optimizer")
    reading.take("recompute", "gradient_checkpointing", either("full", "none"), default="none")
    take_liger(reading, "use_liger_kernel")
    reading.default("attention", "flash", "use_flash_attn")
    if reading.read("use_flash_attn", flag) is False:
        reading.put("attention", "efficient", "use_flash_attn")


def _grpo(reading: Reading) -> None:
    """Read GRPO: learners and engines have separate GPUs; rows pack several responses into pack_length tokens."""
    if not _generates(reading):
        return
    source = reading.source
    samples = reading.read("num_samples_per_prompt_rollout", whole) or 4
    prompts = reading.read("num_unique_prompts_rollout", whole) or 16
    parts = reading.read("num_mini_batches", whole) or 1
    _put(reading, "samples-per-prompt", samples, "num_samples_per_prompt_rollout")
    if prompts % parts == 0:
        _put(reading, "global-batch", prompts // parts, "num_unique_prompts_rollout", "num_mini_batches")
    take_updates(reading, prompts, prompts // parts, "num_mini_batches")
    take_longest(reading, "max_prompt_token_length", "response_length", (256, 256))
    longest = (reading.value_of("max-prompt-tokens") or 0) + (reading.value_of("max-response-tokens") or 0)
    _put(reading, "seq", longest, "max_prompt_token_length", "response_length")
    rows = reading.read("per_device_train_batch_size", whole) or 1
    packed = rows * (reading.read("pack_length", whole) or 512)
    where = [key for key in ("per_device_train_batch_size", "pack_length") if key in source]
    if longest and packed % longest == 0:
        _put(reading, "micro-batch", packed // longest, *(where or ["pack_length"]))
    else:
        reading.ask("micro-batch", *(where or ["pack_length"]))
    _engines(reading)
    program = _program(source)
    if program not in OF_OLMO_CORE:
        reading.derive("framework", "deepspeed", program)
        reading.take("zero", "deepspeed_stage", natural, default=0)
        _offload(reading, "deepspeed_offload_optimizer", "deepspeed_offload_param")
    else:
        reading.derive("framework", "fsdp", program)
        reading.default("zero", 3, "fsdp_shard_degree")
    take_heads_exchanged(reading, "sequence_parallel_size")
    _reference(reading, program)
    episodes = reading.read("total_episodes", number)
    if not reading.take("steps", "num_training_steps", whole, silent=True) and episodes:
        reading.derive("steps", int(episodes // (samples * prompts)) or 1, "total_episodes")


def _reference(reading: Reading, program: str) -> None:
    """Read the reference, which grpo_fast.py loads whatever beta is, and grpo.py where beta is above 0 too
    (grpo_fast.py, PolicyTrainerRayProcess; grpo_olmo_core_actor.py)."""
    kept, weight = reading.read("load_ref_policy", flag), reading.read("beta", number)
    weighed = program in OF_OLMO_CORE and weight is not None
    used = kept is not False and not (weighed and weight == 0)
    keys = [key for key in ("load_ref_policy", *(["beta"] if weighed else [])) if key in reading.source]
    if keys:
        reading.derive("reference", "same" if used else "none", *keys)
    reading.default("reference", "same", "load_ref_policy")


def _engines(reading: Reading) -> None:
    """Read the GPU count of the learners and of the engines."""
    trainers = reading.find("num_learners_per_node")
    listed = [natural(one) for one in names(trainers.value)] if trainers is not None else [1]
    engines, ranks = (reading.read(key, natural) or 1 for key in ENGINES)
    where = [key for key in ("num_learners_per_node", *ENGINES) if key in reading.source]
    learners = sum(one or 0 for one in listed)
    if reading.read("single_gpu_mode", flag):
        share = reading.read("vllm_gpu_memory_utilization", number) or 0.9
        reading.derive("rollout", f"colocated:{share:g}", "single_gpu_mode", "vllm_gpu_memory_utilization")
        reading.derive("gpus", 1, "single_gpu_mode")
    elif None in listed or reading.open_among(*where):
        reading.ask("gpus", *where)
    else:
        _put(reading, "rollout", f"separate:{engines * ranks}", *ENGINES)
        _put(reading, "gpus", learners + engines * ranks, "num_learners_per_node", *ENGINES)
    _put(reading, "rollout-tp", ranks, ENGINES[1])
    reading.take("rollout-eager", "vllm_enforce_eager", flag)


def _put(reading: Reading, option: str, value: object, *keys: str) -> None:
    """Set an option from the keys that the file has; if none, as the default of the first."""
    there = [key for key in keys if key in reading.source]
    reading.derive(option, value, *there) if there else reading.default(option, value, keys[0])


FORMAT = LaunchFormat(
    "open-instruct",
    "open-instruct's launch scripts and YAML",
    "allenai/open-instruct open_instruct/{finetune,dpo_utils,grpo_utils,data_loader,grpo_fast}.py",
    is_this,
    rules=(
        KeyRule(
            "model_name_or_path", "model", "a preset's name", lambda reading: take_model(reading, "model_name_or_path")
        ),
        KeyRule(
            "loss_type dpo_loss_type beta dpo_beta",
            "task trainer reference",
            "from the program; DPO's reference log-probabilities are cached",
            _task,
        ),
        KeyRule(
            "gpus num_nodes num_processes num_machines deepspeed_config_file zero_stage offload_optimizer "
            "offload_param fsdp_shard_degree sequence_parallel_size context_parallel_degree tensor_parallel_degree",
            "gpus framework zero offload dp-shard cp tp",
            "accelerate's settings, or mason.py's GPUs × nodes",
            _machine,
        ),
        KeyRule(
            "per_device_train_batch_size gradient_accumulation_steps max_seq_length packing max_train_steps "
            "num_train_epochs num_epochs",
            "micro-batch grad-accum seq packing steps epochs",
            "a limit on steps wins",
            _batch,
        ),
        KeyRule(
            "use_lora use_qlora lora_rank lora_dropout mixed_precision",
            "adapter lora-rank lora-targets lora-dropout quantized precision",
            "rank 64 on a block's seven linear layers; weights in bf16",
            _adapter,
        ),
        KeyRule(
            "use_8bit_optimizer dpo_use_paged_optimizer gradient_checkpointing use_liger_kernel use_flash_attn",
            "optimizer recompute loss kernels attention",
            "flags",
            _others,
        ),
        KeyRule(
            "num_samples_per_prompt_rollout num_unique_prompts_rollout num_mini_batches max_prompt_token_length "
            "response_length pack_length num_learners_per_node vllm_num_engines vllm_tensor_parallel_size "
            "single_gpu_mode deepspeed_stage deepspeed_offload_optimizer deepspeed_offload_param load_ref_policy beta "
            "total_episodes num_training_steps",
            "samples-per-prompt global-batch updates seq micro-batch gpus rollout rollout-tp rollout-eager zero "
            "reference steps",
            "GRPO: prompts per step; engines on separate GPUs",
            _grpo,
        ),
    ),
    ignored="""exp_name do_not_randomize_output_dir config_name model_revision tokenizer* dataset* max_train_samples
        preprocessing_num_workers overwrite_cache clip_grad_norm learning_rate logging_steps lora_alpha
        lr_scheduler_type output_dir warmup_ratio weight_decay timeout report_to seed checkpointing_steps
        keep_last_n_checkpoints with_tracking wandb* push_to_hub hf_* try_* cache_dataset_only gs_bucket_path
        oe_eval* add_bos use_slow_tokenizer cluster workspace priority image pure_docker_mode preemptible
        budget description env secret no_* num_evals save_freq checkpoint_state* local_eval* ground_truths_key
        sft_messages_key apply_* non_stop_penalty* stop_strings temperature kl_estimator reward* verifi* code_*
        llm_judge* eval_* chat_template* beaker* task_name artifact* deepspeed_multinode_launcher use_deepspeed
        main_process_port machine_rank dynamo_backend config_file colocate* inflight* backend* system_prompt*
        active_sampling filter_zero* max_*_retries clip_* rho_* tools tool_* max_tool*""",
    not_modelled={
        "vllm_*": "settings of the generation engine",
        "deepspeed_zpg zero_hpz_partition_size fsdp_num_replicas": "shard replication",
        "load_balancing_loss load_balancing_weight": "an auxiliary expert loss",
        "async_steps": "limit on the engine's weight staleness",
        "masked_mean_* num_epochs": "passes over the samples of a step",
        "activation_memory_budget": "a share of the bytes of activations within which torch.compile saves them",
        "compile_model shard_degree": "compilation, and groups of shards",
        "async_mode gather_whole_model": "weight transfer to the engine",
        "concatenated_forward": "whether chosen and rejected run in one forward pass",
    },
)

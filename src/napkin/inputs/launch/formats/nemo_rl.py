"""NeMo RL's YAML and launch lines (Hydra overrides): GRPO, SFT, DPO, reward models and distillation."""

from __future__ import annotations

from napkin.inputs.launch.checks import check_batch, check_gpus
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.names import AUTOCAST, FP8, FP32, MASTER, MEGATRON, lora_targets, take_model
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_other_model, take_updates
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import either, flag, names, natural, number, product, whole

P = "policy"
D, M, G = f"{P}.dtensor_cfg", f"{P}.megatron_cfg", f"{P}.generation"
TASKS = {"grpo": "grpo", "ppo": "ppo", "sft": "sft", "dpo": "dpo", "rm": "rm", "distillation": "distill"}
"""Algorithm blocks → task."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is NeMo RL's settings."""
    named = source.has_any(f"{P}.model_name", f"{P}.max_total_sequence_length", f"{P}.train_global_batch_size")
    return named and any(block in source for block in (*TASKS, P))


def _block(reading: Reading) -> str:
    """Return from the algorithm's block, or ""."""
    return next((block for block in TASKS if block in reading.source), "")


def _task(reading: Reading) -> None:
    block = _block(reading)
    estimator = f"{block}.adv_estimator.name"
    if block == "grpo" and str(reading.source.plain(estimator)).lower() == "opd":
        reading.ask("task", estimator)
        reading.refuse(estimator, "on-policy distillation by teachers on GPUs of their own", "task")
    elif block:
        reading.derive("task", TASKS[block], block)
    else:
        reading.ask("task", "grpo")


def _model(reading: Reading) -> None:
    key = f"{P}.model_name"
    take_model(reading, key) if reading.find(key) is not None else reading.ask("model", key)


def _machine(reading: Reading) -> None:
    keys = ("cluster.gpus_per_node", "cluster.num_nodes")
    sizes = [reading.read(key, whole) for key in keys]
    stated = [key for key in keys if key in reading.source]
    if all(sizes):
        reading.derive("gpus", product([size or 1 for size in sizes]), *keys)
    elif stated:
        reading.ask("gpus", *stated)
    block = _block(reading)
    steps, epochs = f"{block}.max_num_steps", f"{block}.max_num_epochs"
    most, passes = reading.read(steps, whole), reading.read(epochs, number)
    if most and most < UNLIMITED:
        reading.put("steps", most, steps)
    elif passes:
        reading.put("epochs", passes, epochs)


UNLIMITED = 10**6
"""Values of max_num_steps that mean no limit (grpo_math_1B.yaml)."""


def _megatron(reading: Reading) -> bool:
    return bool(reading.read(f"{M}.enabled", flag))


def _layout(reading: Reading) -> None:
    """Read the degrees of the enabled backend: DTensor (FSDP2 with tensor parallelism) or Megatron."""
    megatron = _megatron(reading)
    block, other = (M, D) if megatron else (D, M)
    if not reading.read(f"{other}.enabled", flag):
        reading.ignore(other)
    words = MEGATRON_DEGREES if megatron else DTENSOR_DEGREES
    if block in reading.source:
        reading.derive("framework", "megatron-core" if megatron else "fsdp", f"{block}.enabled")
    else:
        reading.default("framework", "fsdp", f"{block}.enabled")
    if megatron:
        reading.derive("implementation", "megatron", f"{block}.enabled")
    for option, name in words.items():
        reading.take(option, f"{block}.{name}", whole)
    if (reading.value_of("tp") or 1) > 1:
        together = reading.read(f"{block}.sequence_parallel", flag)
        reading.put("sp", bool(together), f"{block}.sequence_parallel")
    if megatron:
        reading.take("zero", f"{M}.optimizer.use_distributed_optimizer", either(1, 0), default=1)
        core.take_overlap(reading, f"{M}.distributed_data_parallel_config.")
    else:
        state = reading.derive if f"{D}.enabled" in reading.source else reading.default
        state("zero", 3, f"{D}.enabled")
        reading.switch("offload", "optimizer,parameters", f"{D}.cpu_offload")
    check_gpus(reading, "cluster.gpus_per_node")


MEGATRON_DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
DTENSOR_DEGREES = {"tp": "tensor_parallel_size", "cp": "context_parallel_size", "ep": "expert_parallel_size"}


def _batch(reading: Reading) -> None:
    """Read the batch, which counts responses for GRPO and samples otherwise (a preference pair is one)."""
    micro, total, longest = (
        f"{P}.{name}" for name in ("train_micro_batch_size", "train_global_batch_size", "max_total_sequence_length")
    )
    for key, option in ((micro, "micro-batch"), (longest, "seq")):
        found = reading.read(key, whole)
        reading.put(option, found, key) if found else reading.ask(option, key)
    if reading.read(f"{P}.dynamic_batching.enabled", flag):
        reading.ask("micro-batch", f"{P}.dynamic_batching.enabled", micro)
    batch = reading.take("global-batch", total, whole)
    if reading.value_of("task") in ("grpo", "ppo", "distill"):
        _rollout(reading, batch or 0)
        tokens = (f"{P}.sequence_packing.enabled", f"{P}.dynamic_batching.enabled")
        if not any(reading.read(key, flag) for key in tokens):  # else it says tokens of a micro-batch
            reading.take("logprob-micro-batch", f"{P}.logprob_batch_size", whole)
    elif batch:
        check_batch(reading, total)
    if reading.value_of("task") == "sft":
        reading.take("packing", f"{P}.sequence_packing.enabled", flag)


def _rollout(reading: Reading, trained: int) -> None:
    """Read the generation engine and the responses per step.

    Prompt and response share the sequence length. If a response may fill it alone, the prompt length is unknown.
    """
    block = _block(reading)
    prompts, samples = f"{block}.num_prompts_per_step", f"{block}.num_generations_per_prompt"
    count, each = reading.read(prompts, whole), reading.read(samples, natural)
    if each:
        reading.put("samples-per-prompt", each, samples)
        if trained % each == 0 and trained:
            reading.derive("global-batch", trained // each, f"{P}.train_global_batch_size", samples)
        if count:
            passes = reading.read(f"{block}.ppo_epochs", whole) or 1
            take_updates(reading, count * each * passes, trained, prompts, samples, f"{P}.train_global_batch_size")
    share, ranks = f"{G}.vllm_cfg.gpu_memory_utilization", f"{G}.vllm_cfg.tensor_parallel_size"
    reading.take("rollout-tp", ranks, whole)
    reading.take("rollout-eager", f"{G}.vllm_cfg.enforce_eager", flag)
    shared = reading.read(f"{G}.colocated.enabled", flag)
    if shared is False:
        _apart(reading)
    else:
        part = reading.read(share, number)
        reading.derive("rollout", f"colocated:{part or 0.6:g}", share)
    behind = f"{block}.async_{block}.max_trajectory_age_steps"
    if reading.read(f"{block}.async_{block}.enabled", flag):
        reading.derive("off-policy-steps", reading.read(behind, natural) or 1, behind)
    weight = reading.read("loss_fn.reference_policy_kl_penalty", number)
    key = "loss_fn.reference_policy_kl_penalty"
    if weight is not None:
        reading.derive("reference", "same" if weight else "none", key)
    if block == "ppo":
        take_other_model(reading, "critic", "value.model_name")
    if block == "distillation":
        take_other_model(reading, "reference", "teacher.model_name")


def _apart(reading: Reading) -> None:
    """Read the GPU count of generation: entire nodes, or a part of a single node."""
    block = f"{G}.colocated.resources"
    nodes, each = reading.read(f"{block}.num_nodes", whole), reading.read(f"{block}.gpus_per_node", whole)
    node = reading.read("cluster.gpus_per_node", whole)
    if nodes and (each or node):
        reading.derive("rollout", f"separate:{nodes * (each or node or 1)}", f"{block}.num_nodes")
    elif each:
        reading.derive("rollout", f"separate:{each}", f"{block}.gpus_per_node")
    else:
        reading.ask("rollout", f"{block}.num_nodes", f"{block}.gpus_per_node")


def _others(reading: Reading) -> None:
    block = M if _megatron(reading) else D
    reading.take("recompute", f"{block}.activation_checkpointing", either("full", "none"), default="none")
    _precision(reading)
    _adapters(reading)
    named = f"{M}.optimizer.optimizer" if _megatron(reading) else f"{P}.optimizer.name"
    word = str(reading.source.plain(named) or "adamw").rpartition(".")[2].lower()
    if word in ("adam", "adamw", "fusedadam"):
        reading.default("optimizer", "adamw", named)
    else:
        reading.ask("optimizer", named)
    fused, listed = (reading.read(f"{P}.optimizer.kwargs.{name}", flag) for name in ("fused", "foreach"))
    if fused or listed is False:
        form = "fused" if fused else "forloop"
        reading.put("optimizer-form", form, f"{P}.optimizer.kwargs.{'fused' if fused else 'foreach'}")
    weight = reading.read("dpo.reference_policy_kl_penalty", number)
    if reading.value_of("task") == "dpo" and weight is not None:
        reading.derive("reference", "same", "dpo.reference_policy_kl_penalty")


def _precision(reading: Reading) -> None:
    """Read the precision.

    Megatron keeps fp32 main weights. DTensor loads weights in fp32, which FSDP2 casts for compute
    (nemo_rl/models/policy/workers/dtensor_policy_worker.py, MixedPrecisionPolicy).
    """
    key = f"{P}.precision"
    word = str(reading.source.plain(key) or "bfloat16").lower()
    if word in ("float32", "fp32"):
        policy = FP32
    elif word not in ("bfloat16", "bf16"):
        reading.ask("precision", key)
        return
    elif _megatron(reading):
        _megatron_precision(reading, key)
        return
    else:
        policy = AUTOCAST
    reading.derive("precision", policy, key)


def _megatron_precision(reading: Reading, key: str) -> None:
    """Read Megatron's precision; gradients are kept in bf16 unless they are reduced in fp32 (megatron/setup.py)."""
    wide = f"{M}.distributed_data_parallel_config.grad_reduce_in_fp32"
    policy = MEGATRON if reading.read(wide, flag) else MASTER
    if reading.read(f"{M}.fp8_cfg.enabled", flag):
        policy = MEGATRON.replace("compute=bf16", "compute=fp8") if policy == MEGATRON else FP8
    state = reading.derive if reading.find(wide) is not None else reading.default
    state("precision", policy, key, wide)
    for name in ("use_precision_aware_optimizer", "optimizer_cpu_offload"):
        if reading.read(f"{M}.optimizer.{name}", flag):
            reading.omit(f"{M}.optimizer.{name}", "placement and format of optimizer states")


def _adapters(reading: Reading) -> None:
    block = f"{M}.peft" if _megatron(reading) else f"{D}.lora_cfg"
    if not reading.read(f"{block}.enabled", flag):
        return
    reading.put("adapter", "lora", f"{block}.enabled", origin="derived")
    reading.take("lora-rank", f"{block}.dim", whole, default=8)
    take_adapter_dropout(reading, f"{block}.dropout")
    wanted = reading.find(f"{block}.target_modules")
    targets = names(wanted.value) if wanted is not None else []
    if targets and not reading.read(f"{block}.match_all_linear", flag):
        reading.put("lora-targets", lora_targets(targets), f"{block}.target_modules")
    else:
        reading.default("lora-targets", "all", f"{block}.match_all_linear")


GRPO = within(
    "grpo",
    "normalize_* use_leave* val_* max_val* stop_* seed overlong_filtering advantage_* reward_* adv_estimator "
    "seq_logprob* invalid_* malformed_* async_grpo max_num_* max_rollout_turns* calculate_* skip_* log_* *penalty*",
)
"""Settings of rewards, advantages and validation; others change what a step generates (dynamic sampling)."""
FORMAT = LaunchFormat(
    "nemo-rl",
    "NeMo RL's settings",
    "NVIDIA-NeMo/RL examples/configs/{grpo_math_1B,sft,dpo,rm}.yaml, nemo_rl/models/policy",
    is_this,
    fixed={"trainer": "nemo-rl"},
    rules=(
        KeyRule("grpo.* ppo.* sft.* dpo.* rm.* distillation.*", "task", "from the algorithm's block", _task),
        KeyRule(f"{P}.model_name", "model", "a preset's name", _model),
        KeyRule("cluster.gpus_per_node cluster.num_nodes", "gpus steps epochs", "GPUs of a node × nodes", _machine),
        KeyRule(
            f"{D}.* {M}.enabled {M}.tensor_model_parallel_size {M}.pipeline_model_parallel_size "
            f"{M}.context_parallel_size {M}.expert_model_parallel_size {M}.expert_tensor_parallel_size "
            f"{M}.sequence_parallel {M}.optimizer.use_distributed_optimizer "
            f"{M}.distributed_data_parallel_config.overlap_grad_reduce "
            f"{M}.distributed_data_parallel_config.overlap_param_gather",
            "framework implementation tp pp cp ep etp sp zero offload async-dp",
            "degrees of the enabled backend, DTensor (FSDP2) or Megatron",
            _layout,
        ),
        KeyRule(
            f"{P}.train_micro_batch_size {P}.train_global_batch_size {P}.max_total_sequence_length "
            f"grpo.num_prompts_per_step grpo.num_generations_per_prompt ppo.num_prompts_per_step "
            f"ppo.num_generations_per_prompt ppo.ppo_epochs value.model_name teacher.model_name "
            "distillation.num_prompts_per_step distillation.num_generations_per_prompt "
            f"{G}.vllm_cfg.gpu_memory_utilization "
            f"{G}.vllm_cfg.enforce_eager "
            f"{G}.vllm_cfg.tensor_parallel_size {G}.colocated.* loss_fn.reference_policy_kl_penalty "
            "grpo.async_grpo.enabled grpo.async_grpo.max_trajectory_age_steps ppo.async_ppo.enabled "
            f"ppo.async_ppo.max_trajectory_age_steps {P}.sequence_packing.enabled "
            f"{P}.dynamic_batching.enabled {P}.logprob_batch_size",
            "micro-batch logprob-micro-batch global-batch seq samples-per-prompt updates rollout rollout-tp "
            "rollout-eager off-policy-steps reference critic packing",
            "prompts per update = responses per optimizer step / responses per prompt; the engine and its GPUs",
            _batch,
        ),
        KeyRule(
            f"{M}.activation_checkpointing {M}.peft.* {M}.fp8_cfg.enabled {M}.optimizer.optimizer "
            f"{M}.distributed_data_parallel_config.grad_reduce_in_fp32 "
            f"{P}.optimizer.name {P}.optimizer.kwargs.fused {P}.optimizer.kwargs.foreach {P}.precision "
            "dpo.reference_policy_kl_penalty",
            "recompute precision adapter lora-rank lora-dropout lora-targets optimizer optimizer-form",
            "from the enabled backend",
            _others,
        ),
    ),
    ignored=f"""defaults checkpointing logger env data.* ppo {GRPO} sft dpo rm distillation loss_fn value_loss_fn
        {M}.optimizer {M}.scheduler {M}.env_vars {M}.converter_type {M}.peft {M}.fp8_cfg {D}.env_vars {D}.lora_cfg
        {P}.tokenizer {P}.optimizer.kwargs {P}.scheduler {P}.max_grad_norm {P}.sequence_packing {P}.dynamic_batching
        {P}.make_sequence_length_divisible_by {P}.generation_batch_size {G}.temperature {G}.top_p {G}.top_k
        {G}.stop_token_ids {G}.stop_strings {G}.backend {G}.vllm_cfg.precision {G}.vllm_cfg.max_model_len
        {G}.max_new_tokens {G}.colocated""",
    not_modelled={
        G: "settings of the generation engine",
        f"{P}.logprob_batch_size {P}.logprob_chunk_size": "batch size of log-probability passes",
        f"{P}.offload_optimizer_for_logprob": "optimizer offload during log-probability passes",
        f"{P}": "training settings of the model",
        "cluster": "process placement",
        "grpo.*dynamic_sampling* grpo.batch_multiplier": "prompts that are drawn again",
        "value": "placement and batch of the critic",
        "teacher": "placement and batch of the teacher",
    },
)

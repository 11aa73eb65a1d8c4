"""SkyRL's launch lines and YAML: reinforcement learning with FSDP or Megatron, and vLLM."""

from __future__ import annotations

from napkin.inputs.launch.checks import check_gpus, take_heads_exchanged
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.names import AUTOCAST, MEGATRON, take_model, take_targets
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_other_model, take_padding, take_updates
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import either, flag, natural, number, product, whole

T, P, G = "trainer", "trainer.policy", "generator"
E = f"{G}.inference_engine"
M, F = f"{P}.megatron_config", f"{P}.fsdp_config"
ENGINES = f"{E}.num_engines|{G}.num_inference_engines"
ENGINE_TP = f"{E}.tensor_parallel_size|{G}.inference_engine_tensor_parallel_size"
EAGER = f"{E}.enforce_eager|{G}.enforce_eager"
SHARE = f"{E}.gpu_memory_utilization|{G}.gpu_memory_utilization"
"""Keys of the engines; the second names are of skyrl-train until 2026."""
PLACED = f"{T}.placement.policy_num"
TASKS = {"grpo": "grpo", "gae": "ppo", "rloo": "rloo"}
DEGREES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
}
MIXED = f"{F}.mixed_precision.param_dtype"
SETTINGS = "settings of the generation engine"


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is SkyRL's configuration of reinforcement learning."""
    serves = source.module.endswith("entrypoints/serve.py")
    named = source.has_any(f"{P}.model.path", f"{PLACED}_gpus_per_node")
    return named and source.has_any(G, f"{T}.algorithm") and not serves


def _task(reading: Reading) -> None:
    key = f"{T}.algorithm.advantage_estimator"
    kind = reading.find(key)
    name = str(kind.value).lower() if kind is not None else ""
    if name.startswith("reinforce"):  # no critic, like RLOO
        reading.assume("task", "rloo", key)
    elif name in TASKS:
        reading.put("task", TASKS[name], key)
    elif kind is not None:
        reading.ask("task", key)
    reading.default("task", "grpo", key)
    take_model(reading, f"{P}.model.path")
    if reading.value_of("task") == "ppo":
        take_other_model(reading, "critic", f"{T}.critic.model.path")
    steps = reading.take("steps", f"{T}.max_training_steps", whole, silent=True)
    if steps is None:
        reading.take("epochs", f"{T}.epochs", number, default=1)


def _machine(reading: Reading) -> None:
    """Read the GPUs of the policy, and where the engines generate: on these, or on GPUs of their own."""
    keys = (f"{PLACED}_gpus_per_node", f"{PLACED}_nodes")
    shared = reading.read(f"{T}.placement.colocate_all", flag)
    stated = [key for key in keys if key in reading.source]
    sizes = [reading.read(key, whole) for key in stated]
    if reading.open_among(f"{T}.placement.colocate_all", *keys) or not all(sizes):
        reading.ask("gpus", *stated or keys)
    elif stated:
        reading.derive("gpus", product([size or 1 for size in sizes]), *stated)
    else:
        reading.default("gpus", 1, *keys)
    reading.take("rollout-tp", ENGINE_TP, whole)
    reading.take("rollout-eager", EAGER, flag)
    if shared is False:
        _engines_apart(reading)
        return
    share = reading.read(SHARE, number)
    share_key = reading.named(*SHARE.split("|"))
    if reading.open_among(share_key):
        reading.ask("rollout", share_key)
    elif share:
        reading.derive("rollout", f"colocated:{share:g}", share_key)
    else:
        reading.default("rollout", "colocated:0.8", *SHARE.split("|"))
    # workers/worker_dispatch.py: model and optimizer leave the GPUs before the engines wake up
    reading.default("rollout-offload", "optimizer,parameters", f"{T}.placement.colocate_all")


def _engines_apart(reading: Reading) -> None:
    """Add the engines' GPUs, and the reference's if it has its own."""
    names = (ENGINES, ENGINE_TP, *(f"{E}.{kind}_parallel_size" for kind in ("pipeline", "data")))
    keys = [reading.named(*one.split("|")) for one in names]
    sizes = [reading.read(key, whole) or 1 for key in keys]
    trainers = reading.inputs["gpus"]
    if reading.open_among(*keys) or trainers.value is None:
        reading.ask("rollout", keys[0])
        reading.ask("gpus", *trainers.where.split(", "))
        return
    apart = reading.read(f"{T}.placement.colocate_policy_ref", flag) is False
    where = [f"{T}.placement.ref_num_{name}" for name in ("nodes", "gpus_per_node")] if apart else []
    others = product([reading.read(key, whole) or 1 for key in where]) if apart else 0
    reading.derive("rollout", f"separate:{product(sizes)}", *keys[:2])
    reading.derive("gpus", trainers.value + product(sizes) + others, *trainers.where.split(", "), keys[0], *where)


def is_megatron(source: LaunchFile) -> bool:
    """Return whether SkyRL trains with Megatron."""
    return str(source.plain(f"{T}.strategy") or "fsdp").lower() == "megatron"


def take_layout(reading: Reading) -> None:
    """Read the strategy, and how it divides the model."""
    key = f"{T}.strategy"
    kind = str(reading.source.plain(key) or "fsdp").lower()
    if kind == "megatron":
        _take_megatron(reading, key)
    elif kind in ("fsdp", "fsdp2"):
        _take_fsdp(reading, key)
    else:
        reading.ask("framework", key)
        reading.refuse(key, f"napkin does not know SkyRL's strategy {kind[:40]!r}", "framework")


def _take_megatron(reading: Reading, key: str) -> None:
    reading.derive("framework", "megatron-core", key)
    reading.derive("implementation", "megatron", key)
    for name, option in DEGREES.items():
        reading.take(option, f"{M}.{name}", whole)
    if (reading.value_of("tp") or 1) > 1:
        reading.derive("sp", True, f"{M}.tensor_model_parallel_size")
    reading.default("zero", 1, key)
    part, again = f"{M}.transformer_config_kwargs.recompute", f"{T}.gradient_checkpointing"
    if reading.read(again, flag) is False:
        reading.put("recompute", "none", again)
    elif f"{part}_granularity" in reading.source:
        core.take_recompute(reading, *(f"{part}_{name}" for name in core.RECOMPUTE))
    else:
        reading.default("recompute", "full", again, f"{part}_granularity")
    narrow = reading.read(f"{M}.ddp_config.grad_reduce_in_fp32", flag) is False
    policy = MEGATRON.replace("grad=fp32", "grad=bf16") if narrow else MEGATRON
    reading.default("precision", policy, f"{M}.ddp_config.grad_reduce_in_fp32")
    if reading.value_of("rollout-offload") is None:  # the engines have GPUs of their own, which gpus counts too
        return
    check_gpus(reading, f"{PLACED}_gpus_per_node")


def _take_fsdp(reading: Reading, key: str) -> None:
    reading.derive("framework", "fsdp", key) if key in reading.source else reading.default("framework", "fsdp", key)
    reading.default("fsdp-version", "2", key)
    reshard = f"{F}.reshard_after_forward"
    again = reading.read(reshard, lambda value: flag(value) if str(value).lower() in ("true", "false") else True)
    if again is not None:
        reading.put("zero", 3 if again else 2, reshard)
    reading.default("zero", 3, reshard)
    reading.take("dp-shard", f"{F}.fsdp_size", whole, silent=True)
    reading.switch("offload", "optimizer,parameters", f"{F}.cpu_offload")
    take_heads_exchanged(reading, f"{P}.sequence_parallel_size")
    reading.take("recompute", f"{T}.gradient_checkpointing", either("full", "none"), default="full")
    if str(reading.source.plain(MIXED) or "bf16").lower() not in ("bf16", "bfloat16"):
        reading.ask("precision", MIXED)
    reading.default("precision", AUTOCAST, MIXED)


def _batch(reading: Reading) -> None:
    """Read the batch: an update trains on policy_mini_batch_size prompts with n_samples_per_prompt samples each."""
    micro, tokens = f"{T}.micro_train_batch_size_per_gpu", f"{T}.max_tokens_per_microbatch"
    if (reading.read(tokens, lambda value: None if value == -1 else whole(value)) or 0) > 0:
        reading.ask("micro-batch", tokens)
    else:
        reading.take("micro-batch", micro, whole, default=1)
        reading.take("logprob-micro-batch", f"{T}.micro_forward_batch_size_per_gpu", whole)
    mini, drawn = f"{T}.policy_mini_batch_size", f"{T}.train_batch_size"
    prompts = reading.take("global-batch", mini, whole)
    reading.default("global-batch", 256, mini)
    generated = reading.read(drawn, whole) or 1024
    if not reading.open_among(drawn, mini):
        take_updates(reading, generated, prompts or 256, drawn, mini)
    reading.take("samples-per-prompt", f"{G}.n_samples_per_prompt", natural, default=5)
    passes = f"{T}.update_epochs_per_batch"
    if (reading.read(passes, whole) or 1) > 1:
        reading.omit(passes, "passes over the same responses")
    else:
        reading.ignore(passes)
    packed = (f"{T}.remove_microbatch_padding", f"{T}.use_sample_packing")
    take_padding(reading, *packed)
    reading.default("padding", False, *packed)
    _lengths(reading)
    behind = f"{T}.fully_async.max_staleness_steps"
    program = str(reading.source.plain("m") or "")
    if reading.read(f"{T}.fully_async.enabled", flag) or "async" in program or behind in reading.source:
        one = "main_async" in program  # a step ahead (examples/train/async)
        reading.take("off-policy-steps", behind, natural, default=1 if one else 4)


def _lengths(reading: Reading) -> None:
    """Read the maximum lengths: of the first prompt, of what an engine reads in later turns, and of a response."""
    first, answer, later = f"{T}.max_prompt_length", f"{G}.sampling_params.max_generate_length", f"{G}.max_input_length"
    sizes = [reading.read(first, whole) or 512, reading.read(answer, whole) or 1024]
    turns = reading.read(f"{G}.max_turns", whole) or 1
    read = reading.read(later, whole)
    stated = [key for key in (first, answer, later) if key in reading.source]
    if reading.open_among(first, answer, later):
        reading.ask("seq", *stated)
    elif turns > 1 and read:  # all turns of a conversation are trained on
        reading.derive("seq", read + sizes[1], later, answer)
        reading.derive("max-prompt-tokens", sizes[0], first)
        reading.derive("max-response-tokens", read + sizes[1] - sizes[0], first, answer, later)
        return
    elif stated:
        reading.derive("seq", sum(sizes), first, answer)
    else:
        reading.default("seq", sum(sizes), first, answer)
    take_longest(reading, first, answer, (512, 1024))


def take_adapter(reading: Reading) -> int | None:
    """Read LoRA, on all linear layers by default; return its rank."""
    key, targets = f"{P}.model.lora.rank", f"{P}.model.lora.target_modules"
    rank = reading.read(key, natural)
    if rank:
        reading.put("adapter", "lora", key, origin="derived")
        reading.put("lora-rank", rank, key)
        found = reading.find(targets)
        take_targets(reading, targets, found.value) if found is not None else reading.default(
            "lora-targets", "all", targets
        )
        reading.take("lora-dropout", f"{P}.model.lora.dropout", number)
    return rank


def _others(reading: Reading) -> None:
    """Read adapters, attention, the optimizer and the reference model."""
    rank = take_adapter(reading)
    flash = reading.read(f"{T}.flash_attn", flag)
    if flash:
        reading.put("attention", "flash", f"{T}.flash_attn")
    reading.default("optimizer", "adamw", f"{P}.optimizer_config")
    penalties = (f"{T}.algorithm.use_kl_loss", f"{T}.algorithm.use_kl_in_reward")
    used = [reading.read(one, flag) for one in penalties]
    same = "adapters-off" if rank else "same"
    if reading.open_among(*penalties):
        reading.ask("reference", *penalties)
    elif any(used):
        reading.derive("reference", same, *[one for one in penalties if one in reading.source])
    elif used[0] is False:
        reading.derive("reference", "none", penalties[0])
    else:
        reading.default("reference", same, penalties[0])


FORMAT = LaunchFormat(
    "skyrl",
    "SkyRL's settings",
    "NovaSky-AI/SkyRL skyrl/train/config/config.py, skyrl/train/utils/utils.py",
    is_this,
    rules=(
        KeyRule(
            f"{T}.algorithm.advantage_estimator {P}.model.path {T}.critic.model.path {T}.epochs {T}.max_training_steps",
            "task model critic epochs steps",
            "grpo, gae is ppo; reinforce++ has no critic, as rloo",
            _task,
        ),
        KeyRule(
            f"{PLACED}_gpus_per_node {PLACED}_nodes {T}.placement.colocate_all {T}.placement.colocate_policy_ref "
            f"{T}.placement.ref_num_gpus_per_node {T}.placement.ref_num_nodes {ENGINES} {ENGINE_TP} {EAGER} {SHARE} "
            f"{E}.pipeline_parallel_size {E}.data_parallel_size",
            "gpus rollout rollout-tp rollout-eager rollout-offload",
            "the policy's GPUs; engines on them, or on GPUs of their own, which gpus counts too",
            _machine,
        ),
        KeyRule(
            f"{T}.strategy {M}.* {F}.reshard_after_forward {F}.fsdp_size {F}.cpu_offload {MIXED} "
            f"{P}.sequence_parallel_size {T}.gradient_checkpointing",
            "framework implementation fsdp-version zero tp pp cp ep etp sp dp-shard offload recompute precision",
            "FSDP2 with fp32 shards and bf16 compute, or Megatron's degrees with its distributed optimizer",
            take_layout,
        ),
        KeyRule(
            f"{T}.micro_train_batch_size_per_gpu {T}.micro_forward_batch_size_per_gpu {T}.max_tokens_per_microbatch "
            f"{T}.policy_mini_batch_size {T}.train_batch_size {G}.n_samples_per_prompt {T}.update_epochs_per_batch "
            f"{T}.remove_microbatch_padding {T}.use_sample_packing {T}.max_prompt_length {G}.max_turns "
            f"{G}.sampling_params.max_generate_length {G}.max_input_length "
            f"{T}.fully_async.enabled {T}.fully_async.max_staleness_steps",
            "micro-batch logprob-micro-batch global-batch updates samples-per-prompt padding seq max-prompt-tokens "
            "max-response-tokens off-policy-steps",
            "prompts per update; micro-batches that count tokens leave --micro-batch open",
            _batch,
        ),
        KeyRule(
            f"{P}.model.lora.rank {P}.model.lora.target_modules {P}.model.lora.dropout {T}.flash_attn "
            f"{T}.algorithm.use_kl_loss {T}.algorithm.use_kl_in_reward",
            "adapter lora-rank lora-targets lora-dropout attention optimizer reference",
            "AdamW; a reference by default",
            _others,
        ),
    ),
    ignored=f"""m data environment isolated extra with with_editable env_file project directory frozen
        {P}.optimizer_config
        {within(T, "logger project_name run_name tags seed *_path *_interval resume_* max_ckpts_to_keep eval_* dump_*")}
        {within(T, "print_* num_logger_* log_* enable_ray_gpu_monitor disable_fast_tokenizer")}
        {within(f"{T}.algorithm", "kl_* *clip* lambd gamma loss_reduction grpo_norm_by_std advantage_* temperature")}
        {within(f"{T}.algorithm", "zero_variance_* value_* policy_loss_type off_policy_correction max_seq_len")}
        {P}.torch_profiler_config {P}.record_memory {P}.model.lora.alpha {P}.model.lora.init_method
        {P}.model.lora.lora_sync_path {T}.critic.optimizer_config {G}.eval_* {G}.chat_template*
        {G}.sampling_params.temperature {G}.sampling_params.top_p {G}.sampling_params.min_p
        {G}.sampling_params.top_k {G}.sampling_params.logprobs {G}.sampling_params.stop""",
    not_modelled={
        f"{M}.optimizer_config_kwargs": "placement and format of optimizer states",
        f"{M}.moe_*": "token routing to experts",
        f"{M}.mtp_* {T}.mtp": "heads that predict further tokens",
        f"{M}.*": "settings of Megatron",
        f"{F}.*": "FSDP's settings",
        f"{T}.ref": "the reference model is on the policy's GPUs",
        f"{T}.critic": "the critic, a second trained model on the same GPUs",
        f"{T}.placement": "where the other models run",
        f"{T}.algorithm.dynamic_sampling": "prompts that are drawn again",
        f"{T}.algorithm.use_entropy_loss {T}.algorithm.entropy_*": "entropy over the vocabulary",
        f"{T}.fully_async": "how far the engine's weights lag behind",
        G: SETTINGS,
        f"{T}.*": "training settings",
    },
)

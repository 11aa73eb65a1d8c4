"""verl's launch lines (Hydra overrides) and configuration files."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.names import AUTOCAST, MEGATRON, take_model, take_optimizer, take_targets
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import A, R, of_verl
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import flag, natural, number, product, whole
from napkin.inputs.launch.verl_layout import is_known, is_megatron, is_sft, take_layout

M = "actor_rollout_ref.model"
TASKS = {
    "grpo": "grpo",
    "gae": "ppo",
    "rloo": "rloo",
    "grpo_passk": "grpo",
    "grpo_vectorized": "grpo",
    "rloo_vectorized": "rloo",
}


HYPERPOD = {"trainer": "hyperpod.trainer", "training_config": ""}
"""Blocks of SageMaker HyperPod's recipes, whose training_config holds verl's settings, GPUs and nodes too."""


def _unwrapped(source: LaunchFile) -> LaunchFile:
    return source.renamed(HYPERPOD) if _is_wrapped(source) else source


def _is_wrapped(source: LaunchFile) -> bool:
    return source.has_any("training_config.actor_rollout_ref", "training_config.engine")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is verl's settings, or a recipe of HyperPod that holds them."""
    named = any(one.startswith("verl.") for one in source.command)
    tuned = source.has_all("model.partial_pretrain", "data.train_files")
    return named or tuned or source.has_any("actor_rollout_ref", "algorithm.adv_estimator") or _is_wrapped(source)


def _model(reading: Reading) -> None:
    keys = ("model.partial_pretrain", "model.path") if is_sft(reading.source) else (f"{M}.path",)
    if reading.find(*keys) is None:
        reading.ask("model", *keys[:1])
    else:
        take_model(reading, *keys)


def _task(reading: Reading) -> None:
    if is_sft(reading.source):
        reading.derive("task", "sft", "model.partial_pretrain")
        return
    kind = reading.find("algorithm.adv_estimator")
    if kind is None and "algorithm.adv_estimator" in reading.source:  # null: a program of its own, as SPPO's recipe
        reading.ask("task", "algorithm.adv_estimator")
        return
    if kind is None:
        reading.default("task", "ppo", "algorithm.adv_estimator")
        return
    name = str(kind.value).lower()
    if name.startswith(("reinforce", "remax", "opo", "gpg")):  # no critic, like RLOO
        reading.assume("task", "rloo", "algorithm.adv_estimator")
        return
    task = TASKS.get(name)
    reading.put("task", task, "algorithm.adv_estimator") if task else reading.ask("task", "algorithm.adv_estimator")


def _machine(reading: Reading) -> None:
    keys = [
        key
        for key in ("trainer.n_gpus_per_node", "trainer.nnodes", "nproc_per_node", "nnodes")
        if key in reading.source
    ]
    sizes = [reading.read(key, whole) for key in keys]
    if keys and all(sizes):
        reading.derive("gpus", product([size or 1 for size in sizes]), *keys)
    elif keys:
        reading.ask("gpus", *keys)
    elif is_sft(reading.source):  # torchrun's options decide
        reading.ask("gpus", "model.partial_pretrain", "model.path")
    else:
        reading.default("gpus", 8, "trainer.n_gpus_per_node", "trainer.nnodes")
    epochs, steps = reading.read("trainer.total_epochs", number), reading.read("trainer.total_training_steps", whole)
    if steps:
        reading.put("steps", steps, "trainer.total_training_steps")
    elif epochs or reading.open_among("trainer.total_epochs"):
        reading.put("epochs", epochs, "trainer.total_epochs")


def _batch(reading: Reading) -> None:
    """Read the batch: an optimizer step trains on ppo_mini_batch_size prompts with rollout.n samples each."""
    if is_sft(reading.source):
        for key, option in (
            ("data.micro_batch_size_per_gpu", "micro-batch"),
            ("data.train_batch_size", "global-batch"),
            ("data.max_length", "seq"),
        ):
            reading.take(option, key, whole)
        if "micro-batch" not in reading.inputs and reading.find("data.micro_batch_size") is not None:
            _micro_of_all(reading, "data.micro_batch_size")
        newer = any(one.endswith("verl.trainer.sft_trainer") for one in reading.source.command)
        if reading.read("data.use_dynamic_bsz", flag) or (newer and "data.use_dynamic_bsz" not in reading.source):
            reading.ask("micro-batch", "data.use_dynamic_bsz", "data.max_token_len_per_gpu")
        reading.default("micro-batch", 4, "data.micro_batch_size_per_gpu")
        reading.default("global-batch", 256, "data.train_batch_size")
        reading.default("seq", 1024, "data.max_length")
        return
    micro = f"{A}.ppo_micro_batch_size_per_gpu"
    if reading.read(f"{A}.use_dynamic_bsz", flag):
        tokens = f"{A}.ppo_max_token_len_per_gpu"
        reading.ask("micro-batch", f"{A}.use_dynamic_bsz", tokens)
        reading.take("micro-batch-tokens", tokens, whole, default=16384)
    else:
        found = reading.read(micro, whole)
        if found is None and reading.find(micro) is None and f"{A}.ppo_micro_batch_size" in reading.source:
            _micro_of_all(reading, f"{A}.ppo_micro_batch_size")
        else:
            reading.put("micro-batch", found, micro) if found else reading.ask("micro-batch", micro)
    sizes = {key: reading.read(f"data.{key}", whole) for key in ("max_prompt_length", "max_response_length")}
    total = sum(size or 512 for size in sizes.values())
    where = [f"data.{key}" for key in sizes]
    if all(sizes.values()):
        reading.derive("seq", total, *where)
    elif any(f"data.{key}" in reading.source and sizes[key] is None for key in sizes):
        reading.ask("seq", *where)
    else:
        reading.default("seq", total, *where)


def _micro_of_all(reading: Reading, key: str) -> None:
    """Read the micro-batch of verl before 2025, which counts samples on all data-parallel ranks.

    Until February 2025 it counted prompts; with several samples per prompt the file does not tell which.
    """
    machine = ("trainer.n_gpus_per_node", "trainer.nnodes")
    several = (reading.read(f"{R}.n", natural) or 1) > 1
    total, gpus = reading.read(key, whole), reading.value_of("gpus")
    ranks = reading.value_of("dp") or (gpus and gpus // (reading.value_of("cp") or 1))
    if total and ranks and total >= ranks and all(is_known(reading, one) for one in ("tp", "cp")):
        state = reading.assume if several else reading.derive
        state("micro-batch", total // ranks, key, *[one for one in machine if one in reading.source])
    else:
        reading.ask("micro-batch", key)


def _others(reading: Reading) -> None:
    source = reading.source
    on = reading.read(f"{M}.enable_gradient_checkpointing|model.enable_gradient_checkpointing", flag)
    key = f"{M}.enable_gradient_checkpointing"
    key = key if key in source else "model.enable_gradient_checkpointing"
    if is_megatron(source):
        block = "engine" if is_sft(source) else f"{A}.megatron"
        part = f"{block}.override_transformer_config.recompute"
        core.take_recompute(reading, *(f"{part}_{name}" for name in core.RECOMPUTE))
    elif on is not None:
        reading.put("recompute", "full" if on else "none", key)
    elif f"{A}.ppo_micro_batch_size" in source and f"{A}.ppo_micro_batch_size_per_gpu" not in source:
        reading.ask("recompute", key, why="its default changed in January 2025")  # 9fca71d2c; the newer name is as old
    else:
        reading.default("recompute", "full", f"{M}.enable_gradient_checkpointing")
    _optimizer(reading)
    ranks = (f"{M}.lora_rank", f"{M}.lora.rank", "model.lora_rank")
    rank = reading.read("|".join(ranks), natural)
    if rank:
        at = next(one for one in ranks if one in source)
        reading.put("adapter", "lora", at, origin="derived")
        reading.put("lora-rank", rank, at)
        targets = reading.find(f"{M}.target_modules", "model.target_modules")
        if targets is not None:
            at = next(one for one in (f"{M}.target_modules", "model.target_modules") if one in source)
            take_targets(reading, at, targets.value)
        else:
            reading.default("lora-targets", "all", f"{M}.target_modules")
    _precision(reading)


def _optimizer(reading: Reading) -> None:
    """Read the optimizer's class; its other settings are rates, except override_optimizer_config."""
    named = [one for one in (f"{A}.optim.optimizer", "optim.optimizer") if one in reading.source]
    take_optimizer(reading, *named)
    reading.default("optimizer", "adamw", f"{A}.optim.optimizer")
    for block in (f"{A}.optim", "optim"):
        for key in reading.source.inside(f"{block}.override_optimizer_config"):
            if reading.find(key) is not None:
                reading.omit(key, "placement and format of optimizer states")


def _precision(reading: Reading) -> None:
    """Read the precision: Megatron's, or fp32 shards under FSDP, which computes in bf16 unless the file says fp16."""
    source, block = reading.source, f"{A}.fsdp_config"
    if is_megatron(source):
        own = reading.named(f"{A}.megatron.dtype", "engine.dtype")
        eight = f"{'engine' if is_sft(source) else f'{A}.megatron'}.override_transformer_config.fp8"
        if reading.read(own, fixed_dtype) == "fp16":
            reading.put("precision", "fp16-mixed", own)
        elif str(source.plain(eight) or "none").lower() not in ("none", "null", "false"):
            reading.derive("precision", MEGATRON.replace("compute=bf16", "compute=fp8"), eight)
        reading.default("precision", MEGATRON, own)
        return
    keys = (f"{block}.model_dtype", "model.fsdp_config.model_dtype", "engine.model_dtype")
    narrow = reading.named(f"{block}.dtype", f"{block}.mixed_precision.param_dtype", "engine.dtype")
    kept, computed = reading.read("|".join(keys), fixed_dtype), reading.read(narrow, fixed_dtype)
    if computed == "fp16":
        policy = f"param={kept or 'fp32'},grad={kept or 'fp32'},compute=fp16,state={kept or 'fp32'}"
        reading.derive("precision", policy, narrow, *[one for one in keys if one in source])
    elif kept == "bf16":
        reading.put("precision", "bf16-pure", *[one for one in keys if one in source])
    else:
        reading.default("precision", AUTOCAST, keys[0])


def _rollout(reading: Reading) -> None:
    if not is_sft(reading.source):
        of_verl(reading)
    _program(reading)


def _program(reading: Reading) -> None:
    """Report a program that is not verl's: its own configuration may set what the line omits."""
    started = [one for one in reading.source.command if one.endswith(".py") and "=" not in one]
    module = reading.source.plain("m")
    started += [str(module)] if isinstance(module, str) else []
    for one in started:
        if not one.startswith("verl.") and "verl/" not in one:
            reading.omit(one, "is not verl's own program; verl's defaults are taken for what the line omits")


ENGINE = "settings of the generation engine"
TRAINER = within(
    "trainer",
    "project_name experiment_name logger *_freq val_* log_* *_dir *_path resume_* critic_warmup *ckpt* device "
    "use_legacy* esi_* *timeout* stats_* seed run_name remote* *save* checkpoint* default_* total_*",
)
DATA = within(
    "data",
    "tokenizer use_shm *_files *_file *_path *_dir train_data val_data *_key *_keys *_kwargs *_max_samples *_data_num "
    "val_* return_* *shuffle* seed *_workers truncation pad_mode trust_remote_code custom_cls sampler datagen "
    "filter_overlong_prompts chat_template multiturn balance_dp_token image_patch_size ignore_input_ids_mismatch "
    "reward_fn_key enable_thinking* tool_* messages_* cache* num_workers",
)
"""Settings of verl's data sets that change neither memory nor time; others may, such as a fork's batch sizes."""
ALGORITHM = within(
    "algorithm", "gamma lam norm_adv* kl_penalty kl_ctrl clip_* cliprange* adv_params loss* *pf_ppo* mask_*"
)
"""Settings of rewards, advantages, reports and checkpoints. Those of verl's forks change what a step generates."""
FORMAT = LaunchFormat(
    "verl",
    "verl's settings",
    "volcengine/verl verl/trainer/config, verl/workers",
    is_this,
    fixed={"trainer": "verl"},
    rules=(
        KeyRule(f"{M}.path model.partial_pretrain", "model", "a preset's name", _model),
        KeyRule("algorithm.adv_estimator", "task", "grpo; gae is ppo; rloo", _task),
        KeyRule(
            "trainer.n_gpus_per_node trainer.nnodes trainer.total_epochs trainer.total_training_steps",
            "gpus epochs steps",
            "GPUs of a node × nodes",
            _machine,
        ),
        KeyRule(
            f"{A}.strategy {A}.megatron.* {A}.fsdp_config.* {A}.ulysses_sequence_parallel_size",
            "framework zero tp pp cp ulysses ep dp sp offload",
            "FSDP full shard, or Megatron's degrees of the actor",
            take_layout,
        ),
        KeyRule(
            f"{A}.ppo_micro_batch_size_per_gpu {A}.ppo_micro_batch_size {A}.ppo_mini_batch_size {R}.n "
            f"{A}.use_dynamic_bsz {A}.ppo_max_token_len_per_gpu data.max_prompt_length data.max_response_length "
            "data.train_batch_size",
            "micro-batch micro-batch-tokens global-batch seq",
            "prompts per mini-batch; prompt + response",
            _batch,
        ),
        KeyRule(
            f"{M}.enable_gradient_checkpointing {M}.lora_rank {A}.fsdp_config.model_dtype {A}.optim.optimizer",
            "recompute adapter lora-rank precision optimizer",
            "fp32 shards, bf16 compute",
            _others,
        ),
        KeyRule(
            f"{R}.n {R}.gpu_memory_utilization {R}.tensor_model_parallel_size {R}.enforce_eager "
            f"{A}.use_kl_loss {M}.use_remove_padding "
            "actor_rollout_ref.hybrid_engine rollout.nnodes rollout.n_gpus_per_node rollout.total_rollout_steps "
            "async_training.require_batches "
            f"{R}.log_prob_micro_batch_size_per_gpu {R}.log_prob_use_dynamic_bsz "
            "algorithm.use_kl_in_reward critic.model.path reward_model.model.path",
            "samples-per-prompt updates max-prompt-tokens max-response-tokens rollout rollout-tp rollout-eager padding "
            "logprob-micro-batch reference critic reward gpus off-policy-steps samples",
            "colocated, or on GPUs of their own without the hybrid engine; maximum lengths of prompts and responses; "
            "give mean lengths for times",
            _rollout,
        ),
    ),
    ignored=f"""hyperpod display_name instance_types elastic_policy run version ray_cluster mlflow
        *trainer_callbacks *._target_ *profiler* config_path config_name m {DATA} {A}.optim {M}.lora_alpha
        {TRAINER} {ALGORITHM} hydra ray_init
        critic.optim module nproc_per_node nnodes {A}.clip_ratio* {A}.grad_clip {A}.shuffle {A}.kl_loss_*
        {A}.entropy* {A}.loss_agg_mode {A}.policy_loss {M}.trust_remote_code {M}.external_lib
        {R}.temperature {R}.top_p {R}.top_k {R}.do_sample {R}.val_kwargs {R}.load_format optim reward_model.enable""",
    not_modelled={
        "data": "settings of the data that verl does not have",
        R: ENGINE,
        "actor_rollout_ref.ref": "the reference model is on the same GPUs",
        "critic": "the critic, a second trained model on the same GPUs",
        "reward_model custom_reward_function reward_manager": "the reward is not part of the training step",
        f"{A}.fsdp_config.wrap_policy {A}.fsdp_config.forward_prefetch": "FSDP wrapping",
        f"{A}.*": "training settings of the actor",
        f"{M}": "model settings",
        "actor_rollout_ref": "sample generation",
        "async_training": "how far the engine's weights lag behind, and how they are sent",
        "data.train_batch_size data.gen_batch_size": "prompts per generation batch",
        "algorithm.use_kl_in_reward": "a reference model",
        "algorithm.filter_groups": "prompts that are drawn again",
        "trainer.balance_batch": "the division of sequences among ranks",
        "use_remove_padding": "padding-free batches",
    },
    refused={"reward_model.model.update": "trains the reward model too (PRIME)"},
    translated=_unwrapped,
)

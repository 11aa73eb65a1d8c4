"""ROLL's YAML: RL with the actor in Megatron or FSDP2 and vLLM or SGLang; SFT and DPO pipelines."""

from __future__ import annotations

import re

from napkin.inputs.launch.checks import check_gpus, take_heads_exchanged
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.names import AUTOCAST, MEGATRON, PURE, take_attention, take_model, take_optimizer
from napkin.inputs.launch.precisions import adapters, fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_other_model, take_updates
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import degree, either, flag, natural, number, product, whole, word

ROLES = {"actor_train": "grpo", "sft_train": "sft"}
"""Blocks of the trained model → task; for RL the advantage estimator decides."""
ESTIMATORS = {"gae": "ppo", "grpo": "grpo", "reinforce": "grpo", "agentic_reinforce": "grpo", "step_reinforce": "grpo",
              "gigpo": "grpo"}  # fmt: skip
"""adv_estimator → the task with the same work: gae has a critic, the others none."""
DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
INFER = "actor_infer.strategy_args.strategy_config"
GROUP = "train_env_manager.group_size"
"""The trajectories of agents from one start; rollout_batch_size counts trajectories (agentic_config.py)."""
_RANGE = re.compile(r"list\(range\((\d+),(\d+)\)\)")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file configures a ROLL pipeline that trains."""
    return any(f"{role}.{part}" in source for role in ROLES for part in ("strategy_args", "training_args"))


def _role(reading: Reading) -> str:
    return next((role for role in ROLES if role in reading.source), "actor_train")


def _config(reading: Reading, name: str = "") -> str:
    """Return the key of a strategy setting of the trained role."""
    return f"{_role(reading)}.strategy_args.strategy_config" + (f".{name}" if name else "")


def _megatron(reading: Reading) -> bool:
    return str(reading.source.plain(f"{_role(reading)}.strategy_args.strategy_name") or "").startswith("megatron")


def devices(value: object) -> list[int] | None:
    """Return the devices of `list(range(0,8))`, a sum of such ranges, or a list; None for anything else."""
    if isinstance(value, list):
        return [int(one) for one in value] if all(type(one) is int for one in value) else None
    text = re.sub(r"\s", "", str(value))
    found = [_RANGE.fullmatch(part) for part in text.split("+")]
    if any(one is None for one in found):
        return None
    ends = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if any(high - low > 10**6 for low, high in ends):
        return None
    return [at for low, high in ends for at in range(low, high)]


def _task(reading: Reading) -> None:
    """Read the task: SFT and DPO have their own blocks; RL with gae has a critic and is PPO."""
    role = _role(reading)
    if role != "actor_train":
        reading.derive("task", ROLES[role], f"{role}.strategy_args.strategy_name")
    elif "chosen_key" in reading.source or "beta" in reading.source:
        reading.derive("task", "dpo", *[key for key in ("beta", "chosen_key") if key in reading.source])
    elif reading.find("adv_estimator") is None:
        reading.default("task", "ppo", "adv_estimator")
    else:
        reading.take("task", "adv_estimator", word(ESTIMATORS))
    take_model(reading, f"{role}.model_args.model_name_or_path", "pretrain")


def _layout(reading: Reading) -> None:
    """Read the training GPUs and their layout."""
    role = _role(reading)
    mapping = f"{role}.device_mapping"
    found = devices(reading.source.plain(mapping))
    if found:
        reading.derive("gpus", len(set(found)), mapping)
    else:
        reading.ask("gpus", mapping)
    name = f"{role}.strategy_args.strategy_name"
    if _megatron(reading):
        _megatron_layout(reading, name)
    elif str(reading.source.plain(name) or "").startswith("fsdp2"):
        reading.derive("framework", "fsdp", name)
        reading.derive("fsdp-version", "2", name)
        reading.take("zero", _config(reading, "reshard_after_forward"), either(3, 2), default=3)
        size = reading.read(_config(reading, "fsdp_size"), natural)
        if size and 1 < size < (reading.value_of("gpus") or size):
            reading.put("dp-shard", size, _config(reading, "fsdp_size"))
        reading.take("ep", _config(reading, "ep_size"), whole)
        take_heads_exchanged(reading, f"{role}.model_args.ulysses_size", degree)
        reading.switch("offload", "optimizer,parameters", _config(reading, "offload_policy"))
    else:
        kind = str(reading.source.plain(name) or "no strategy")
        reading.refuse(name, f"napkin does not know ROLL's strategy {kind[:40]!r}", "zero")
    check_gpus(reading, mapping)


def _megatron_layout(reading: Reading, name: str) -> None:
    reading.derive("framework", "megatron-core", name)
    reading.derive("implementation", "megatron", name)
    for option, key in DEGREES.items():
        reading.take(option, _config(reading, key), whole)
    reading.take("vp", _config(reading, "virtual_pipeline_model_parallel_size"), whole)
    together, sharded = _config(reading, "sequence_parallel"), _config(reading, "use_distributed_optimizer")
    if (reading.value_of("tp") or 1) > 1:
        reading.take("sp", together, flag, default=False)
    reading.take("zero", sharded, either(1, 0), default=0)


def _batch(reading: Reading) -> None:
    """Read the batch: a rank accumulates micro-batches of per_device_train_batch_size.

    RL trains on the responses to rollout_batch_size prompts in as many optimizer steps as that takes
    (configs/base_config.py, set_max_steps).
    """
    block = f"{_role(reading)}.training_args"
    micro = reading.take("micro-batch", f"{block}.per_device_train_batch_size", whole)
    reading.default("micro-batch", 8, f"{block}.per_device_train_batch_size")
    dynamic = f"{_role(reading)}.use_dynamic_batching_in_train"
    if reading.read(dynamic, flag):
        reading.ask("micro-batch", dynamic)
    steps = reading.take("grad-accum", f"{block}.gradient_accumulation_steps", whole)
    reading.default("grad-accum", 1, f"{block}.gradient_accumulation_steps")
    if reading.value_of("task") in ("grpo", "ppo"):
        _rollout(reading, (micro or 8) * (steps or 1))
        reading.take("steps", "max_steps", whole, default=500)
        return
    if not reading.take("seq", "sequence_length", whole):
        reading.ask("seq", "sequence_length")
    if not reading.take("steps", f"{block}.max_steps", lambda value: None if value == -1 else whole(value), True):
        reading.take("epochs", f"{block}.num_train_epochs", number)


def _rollout(reading: Reading, trained: int) -> None:
    """Read the prompts per step and the engine. trained: samples per optimizer step on one rank."""
    each = "num_return_sequences_in_group"
    agents = "train_env_manager" in reading.source
    answers = GROUP if agents else f"actor_infer.generating_args.num_return_sequences|{each}"
    samples = reading.take("samples-per-prompt", answers, whole)
    if samples is None:
        reading.ask("samples-per-prompt", GROUP if agents else each)
    _lengths(reading)
    ranks = [reading.value_of(one) or 1 for one in ("tp", "pp", "cp")]
    gpus, prompts = reading.value_of("gpus"), reading.read("rollout_batch_size", whole)
    at = f"{_role(reading)}.training_args.gradient_accumulation_steps"
    if gpus and samples and gpus % product(ranks) == 0:
        total = trained * (gpus // product(ranks))
        drawn = (prompts or 128) * (1 if agents else samples)
        if total % samples == 0:
            reading.derive("global-batch", min(total, drawn) // samples, at, "rollout_batch_size", each)
        take_updates(reading, drawn, total, "rollout_batch_size", at)
    _engine(reading)
    _reference(reading)
    if reading.value_of("task") == "ppo":
        take_other_model(reading, "critic", "critic.model_args.model_name_or_path", "reward_pretrain")


def _lengths(reading: Reading) -> None:
    """Read the lengths: sequence_length wins over response_length (base_config.py, rlvr_config.py).

    Responses get what the prompt leaves of it; an agent's turns share what the first prompt leaves.
    """
    prompt, answer, both = "prompt_length", "response_length", "sequence_length"
    if reading.find(both) is None and reading.find(answer) is not None:
        take_longest(reading, prompt, answer, (1024, 0))
        sizes = [reading.value_of("max-prompt-tokens"), reading.value_of("max-response-tokens")]
        keys = [key for key in (prompt, answer) if key in reading.source]
        reading.derive("seq", sum(sizes), *keys) if all(sizes) else reading.ask("seq", *keys)
        return
    longest, first = reading.take("seq", both, whole), reading.read(prompt, whole)
    if longest is None:
        reading.ask("seq", both)
    elif first and longest > first:
        reading.put("max-prompt-tokens", first, prompt)
        reading.derive("max-response-tokens", longest - first, both, prompt)
    reading.told(answer)


def _reference(reading: Reading) -> None:
    """Read the reference, which runs with use_kl_loss or init_kl_coef > 0 (default 0.2; base_config.py)."""
    weight = reading.read("init_kl_coef", number)
    used = [key for key in ("use_kl_loss", "enable_reference") if reading.read(key, flag)]
    used += ["init_kl_coef"] if weight is None or weight > 0 else []
    which = "adapters-off" if _lora(reading) else "same"
    if not used:
        reading.derive("reference", "none", "init_kl_coef")
    elif used == ["init_kl_coef"] and weight is None:
        reading.default("reference", which, "init_kl_coef")
    else:
        reading.derive("reference", which, *used)


def _engine(reading: Reading) -> None:
    """Read the engine: on the training GPUs or on others."""
    mine, others = (devices(reading.source.plain(f"{one}.device_mapping")) for one in ("actor_train", "actor_infer"))
    share = f"{INFER}.gpu_memory_utilization|{INFER}.mem_fraction_static"
    reading.take("rollout-tp", f"{INFER}.tensor_parallel_size|{INFER}.tp_size", whole)
    reading.take("rollout-eager", f"{INFER}.enforce_eager|{INFER}.disable_cuda_graph", flag)
    if mine is None or others is None:
        reading.ask("rollout", "actor_infer.device_mapping")
    elif not set(mine) & set(others):
        reading.derive("rollout", f"separate:{len(set(others))}", "actor_infer.device_mapping")
        reading.derive("gpus", len({*mine, *others}), "actor_train.device_mapping", "actor_infer.device_mapping")
    elif set(others) == set(mine):
        part = reading.read(share, number)
        key = reading.named(*share.split("|"))
        if part:
            reading.derive("rollout", f"colocated:{part:g}", "actor_infer.device_mapping", key)
        else:
            reading.ask("rollout", key)
    else:
        reading.ask("rollout", "actor_infer.device_mapping")
    behind = reading.read("async_generation_ratio", number)
    if behind:
        reading.derive("off-policy-steps", max(1, int(behind)), "async_generation_ratio")


def _lora(reading: Reading) -> bool:
    return reading.find(f"{_role(reading)}.model_args.lora_target") is not None


def _model_args(reading: Reading) -> None:
    """Read precision, adapters, recomputation and attention (configs/model_args.py, mcore_adapter training_args.py)."""
    block = f"{_role(reading)}.model_args"
    if _lora(reading):
        take_lora(reading, f"{block}.lora_rank", f"{block}.lora_target", 8, None)
        take_adapter_dropout(reading, f"{block}.lora_dropout")
    again = _config(reading, "recompute_granularity")
    off = reading.read(f"{block}.disable_gradient_checkpointing", flag)
    if _megatron(reading):
        core.take_recompute(
            reading,
            again,
            _config(reading, "recompute_method"),
            _config(reading, "recompute_num_layers"),
            _config(reading, "recompute_modules"),
        )
    elif off is not None:
        reading.put("recompute", "none" if off else "full", f"{block}.disable_gradient_checkpointing")
    else:
        reading.default("recompute", "full", f"{block}.disable_gradient_checkpointing")
    take_attention(reading, f"{block}.attn_implementation", f"{block}.flash_attn")
    take_optimizer(reading, f"{_role(reading)}.training_args.optim")
    reading.default("optimizer", "adamw", f"{_role(reading)}.training_args.optim")
    _precision(reading, f"{block}.dtype")


def _precision(reading: Reading, key: str) -> None:
    loaded = reading.read(key, fixed_dtype) or "bf16"
    kept = _config(reading, "param_dtype")
    if loaded == "fp16":
        reading.ask("precision", key)
    elif reading.value_of("adapter"):
        reading.derive("precision", adapters(loaded, "fp32", loaded), key)
    elif loaded == "fp32":
        reading.derive("precision", "fp32", key)
    elif _megatron(reading):
        state = reading.derive if key in reading.source else reading.default
        state("precision", MEGATRON, key)  # mcore_adapter: gradients are reduced in fp32 under bf16
    elif reading.read(kept, fixed_dtype) == "bf16":
        reading.derive("precision", PURE, kept)
    else:
        reading.default("precision", AUTOCAST, kept)


FORMAT = LaunchFormat(
    "roll",
    "ROLL's settings",
    "alibaba/ROLL roll/configs/{base_config,model_args,training_args}.py, roll/distributed/strategy, mcore_adapter",
    is_this,
    rules=(
        KeyRule(
            "adv_estimator beta chosen_key pretrain",
            "task model",
            "gae is PPO; the other estimators have no critic",
            _task,
        ),
        KeyRule(
            "actor_train.device_mapping sft_train.device_mapping actor_train.strategy_args sft_train.strategy_args",
            "gpus framework implementation tp pp cp ep etp vp sp zero dp-shard offload",
            "device_mapping gives the GPUs; Megatron's degrees, or FSDP2",
            _layout,
        ),
        KeyRule(
            "actor_train.training_args sft_train.training_args rollout_batch_size num_return_sequences_in_group "
            "prompt_length response_length sequence_length max_steps actor_infer.device_mapping "
            f"{INFER} use_kl_loss init_kl_coef enable_reference async_generation_ratio",
            "micro-batch grad-accum global-batch seq steps epochs samples-per-prompt updates max-prompt-tokens "
            "max-response-tokens rollout rollout-tp rollout-eager off-policy-steps reference critic",
            "updates of per_device_train_batch_size × accumulation × ranks; steps of rollout_batch_size prompts",
            _batch,
        ),
        KeyRule(
            "actor_train.model_args sft_train.model_args",
            "precision recompute attention adapter lora-rank lora-targets lora-dropout optimizer",
            "dtype, disable_gradient_checkpointing, flash_attn, lora_target",
            _model_args,
        ),
    ),
    ignored="""hydra exp_name seed logging_dir output_dir system_envs checkpoint_config track_with tracker_kwargs
        save_steps logging_steps eval_steps resume_from_checkpoint defaults validation rpc_timeout profiler*
        report_length_and_rewards value_clip reward_* advantage_clip dual_clip_loss norm_mean_type
        norm_std_type max_len_mask difficulty_* whiten_* error_max_len_clip length_loss_weight *_loss_coef
        *clip* actor_train.worker_cls actor_train.name sft_train.name actor_train.data_args
        sft_train.data_args actor_infer.generating_args actor_infer.data_args actor_train.system_envs
        actor_train.generating_args *.model_type *.lora_alpha *.template prompt_key query_key response_key
        label_key messages loss_agg_mode init_kl_coef max_grad_norm l2 critic_warmup target_kl gamma lambd
        kl_* *_key pg_variant actor_train.pg_variant num_gpus_per_node num_nodes global_template user
        local_dir actor_train.training_args.num_train_epochs actor_train.model_args.flash_attn render_*
        offload_nccl rollout_* *_gamma *_weight default_history_length model_name""",
    not_modelled={
        INFER: "settings of the generation engine",
        "actor_infer": "sample generation",
        "critic": "placement of the critic",
        "reference": "placement of the reference",
        "rewards reward train_env_manager val_env_manager custom_envs *_env*": "sample scoring",
        "*.strategy_config.*": "settings of the training strategy",
        "*.infer_batch_size *.use_dynamic_batching* *.max_tokens_per_microbatch* *.sequence_*": "batching of a pass",
        "*.use_remove_padding *.use_sequence_packing": "padding-free batches",
        "*.offload_nccl is_offload*": "offload between phases of a step",
        "ppo_epochs": "passes over the samples of a step",
        "*.freeze_module_prefix": "frozen towers",
        "is_num_return_sequences_expand is_use_additional_prompts use_additional_prompts max_running_requests "
        "max_additional_running_prompts env_manager_cls batch_adjust_mode max_actions_per_traj max_tokens_per_step "
        "*_scheduler*": "sample generation",
    },
)

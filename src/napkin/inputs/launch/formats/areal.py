"""AReaL's YAML: asynchronous reinforcement learning, and fine-tuning, on engines that `sglang:d4t2` sizes."""

from __future__ import annotations

from napkin.inputs.launch.areal_layout import (
    ACTOR,
    ARCHON,
    EAGER,
    ENGINE,
    OLDER,
    engines,
    take_archon_recompute,
    take_layout,
)
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.names import MEGATRON, PURE, take_attention, take_model, take_targets
from napkin.inputs.launch.precisions import adapters, fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_other_model
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import flag, natural, number, whole

OF_DATA = {"rl": "grpo", "sft": "sft", "rw": "rm", "dpo": "dpo"}
TRAJECTORY = ("max_tokens_per_trajectory",)
TURNS = ("max_turns",)
"""Keys of workflows with several turns: the tokens of a conversation, and its turns."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is AReaL's experiment."""
    return source.has_all("experiment_name", "trial_name", "actor.path") and source.has_any("cluster", OLDER, ACTOR)


def _task(reading: Reading) -> None:
    take_model(reading, "actor.path")
    key = "train_dataset.type"
    kind = OF_DATA.get(str(reading.source.plain(key) or "").lower())
    generates = reading.source.has_any("gconfig", "rollout")
    if reading.source.states("teacher.path"):
        reading.ask("task", "teacher.path")
    elif generates and reading.source.states("critic.path"):
        reading.derive("task", "ppo", "critic.path")
        take_other_model(reading, "critic", "critic.path")
    elif kind and kind != "grpo":
        reading.put("task", kind, key)
    elif generates:
        reading.derive("task", "grpo", *[one for one in ("gconfig", "rollout") if one in reading.source])
    else:
        reading.ask("task", key)
    steps = reading.take("steps", "total_train_steps", whole, silent=True)
    if steps is None:
        reading.take("epochs", "total_train_epochs", number)


def _batch(reading: Reading) -> None:
    """Read the batch: train_dataset.batch_size prompts (or rows) a step, divided among ppo_n_minibatches updates."""
    total, parts = "train_dataset.batch_size", "actor.ppo_n_minibatches"
    drawn, updates = reading.read(total, whole), reading.read(parts, whole)
    generates = reading.source.has_any("gconfig", "rollout")
    if reading.open_among(total, parts) or drawn is None:
        reading.ask("global-batch", total)
    elif not generates:
        reading.put("global-batch", drawn, total)
    elif drawn % (updates or 1):
        reading.contradict(parts, f"{drawn} prompts are no multiple of {updates} mini-batches", "global-batch")
    else:
        reading.derive("global-batch", drawn // (updates or 1), total, *([parts] if updates else []))
        if updates and updates > 1:
            reading.put("updates", updates, parts)
    tokens = "actor.mb_spec.max_tokens_per_mb"
    reading.ask("micro-batch", tokens if tokens in reading.source else "actor.mb_spec.n_mbs")
    longest, answer = "train_dataset.max_length", "gconfig.max_new_tokens"
    if not generates:
        reading.take("seq", longest, whole)
        if "seq" not in reading.inputs:
            reading.ask("seq", longest)
        return
    reading.take("samples-per-prompt", "gconfig.n_samples", natural, default=1)
    take_longest(reading, longest, answer, (0, 0))
    _lengths(reading, longest, answer)
    reading.take("off-policy-steps", "rollout.max_head_offpolicyness", natural)
    reading.derive("padding", False, tokens)
    reading.take("micro-batch-tokens", tokens, whole)
    weight = reading.read("actor.kl_ctl", number)
    same = "adapters-off" if reading.read("actor.use_lora", flag) else "same"
    if weight is not None:
        used = weight > 0 and reading.source.states("ref")  # areal/trainer/rl_trainer.py
        reading.derive("reference", same if used else "none", "actor.kl_ctl")
    elif "ref" not in reading.source:
        reading.default("reference", "none", "ref")
    else:
        reading.derive("reference", same, "ref.path")


def _lengths(reading: Reading, longest: str, answer: str) -> None:
    """Read the sequence length: prompt and answer, or several turns within the longest conversation.

    longest, answer  the keys of the longest prompt and of the longest answer of a turn
    """
    source = reading.source
    limits = [key for key in (*TRAJECTORY, "gconfig.max_tokens", "rollout.agent.engine_max_tokens") if key in source]
    limit = next((size for key in limits if (size := reading.read(key, whole))), None)
    turns = [key for key in source.values if key.rpartition(".")[2] in TURNS or key in TRAJECTORY]
    turns += ["rollout.agent"] if source.states("rollout.agent") else []
    sizes = [reading.read(key, whole) for key in (longest, answer)]
    whole_turn = sum(size or 0 for size in sizes) if all(sizes) else None
    reading.told(*TRAJECTORY, "gconfig.max_tokens")
    if turns and limit:
        reading.derive("seq", limit, limits[0], *[key for key in turns if key != limits[0]])
        if sizes[0] and limit > sizes[0]:
            reading.derive("max-response-tokens", limit - sizes[0], limits[0], longest)
    elif turns or whole_turn is None:
        reading.ask("seq", *(turns[:1] or (longest, answer)))
    elif limit and limit < whole_turn:
        reading.derive("seq", limit, limits[0], longest, answer)
    else:
        reading.derive("seq", whole_turn, longest, answer)


def _others(reading: Reading) -> None:
    """Read recomputation, adapters, precision, attention and the optimizer."""
    megatron = reading.value_of("framework") == "megatron-core"
    again, part = "actor.gradient_checkpointing", "actor.megatron.recompute"
    on = reading.read(again, flag)
    if (engines(reading) or ("",))[0] == ARCHON and on is not None:
        take_archon_recompute(reading)
    elif on and megatron and f"{part}_granularity" in reading.source:
        core.take_recompute(reading, *(f"{part}_{name}" for name in core.RECOMPUTE))
    elif on is not None:
        reading.put("recompute", "full" if on else "none", again)
    reading.default("recompute", "none", again)
    held = reading.read("actor.dtype", fixed_dtype) or "bf16"
    policy = (MEGATRON if megatron else PURE) if held == "bf16" else "fp32"
    if reading.read("actor.use_lora", flag):
        reading.put("adapter", "lora", "actor.use_lora", origin="derived")
        reading.take("lora-rank", "actor.lora_rank", whole, default=32)
        targets = reading.find("actor.target_modules")
        if targets is not None and targets.value:
            take_targets(reading, "actor.target_modules", targets.value)
        reading.default("lora-targets", "all", "actor.target_modules")
        policy = adapters(held, held, held)
    if held == "fp16":
        reading.ask("precision", "actor.dtype")
    elif "actor.dtype" in reading.source:
        reading.derive("precision", policy, "actor.dtype")
    reading.default("precision", policy, "actor.dtype")
    take_attention(reading, "actor.attn_impl")
    kind = str(reading.source.plain("actor.optimizer.type") or "adam").lower()
    known = {"adam": "adamw", "adam_bf16": "adamw", "adamw": "adamw", "sgd": "sgd"}.get(kind)
    if known is None:
        reading.ask("optimizer", "actor.optimizer.type")
    elif "actor.optimizer.type" in reading.source:
        reading.put("optimizer", known, "actor.optimizer.type")
    reading.default("optimizer", "adamw", "actor.optimizer.type")


FORMAT = LaunchFormat(
    "areal",
    "AReaL's YAML",
    "inclusionAI/AReaL areal/api/cli_args.py, areal/api/alloc_mode.py, areal/trainer/rl_trainer.py",
    is_this,
    rules=(
        KeyRule(
            "actor.path critic.path teacher.path train_dataset.type total_train_epochs total_train_steps",
            "model task critic epochs steps",
            "the data set's type; ppo with a critic",
            _task,
        ),
        KeyRule(
            f"{ACTOR} {ENGINE} {OLDER} {' '.join(EAGER.values())} "
            "actor.fsdp.offload_params actor.fsdp.per_layer_optim_step actor.megatron.ddp.use_distributed_optimizer "
            "actor.megatron.virtual_pipeline_parallel_size "
            "actor.archon.reshard_after_forward_policy actor.archon.offload_params actor.archon.enable_compile "
            "actor.archon.pp_schedule",
            "gpus rollout rollout-tp rollout-eager tp pp cp ep etp dp framework implementation zero vp sp offload",
            "sglang:d4t2 generates on 8 GPUs of its own, fsdp:d8, megatron:d2p2t2 or archon:d8 trains; "
            "2025: allocation_mode",
            take_layout,
        ),
        KeyRule(
            "train_dataset.batch_size train_dataset.max_length actor.ppo_n_minibatches actor.mb_spec.max_tokens_per_mb "
            "max_tokens_per_trajectory rollout.agent.engine_max_tokens "
            "actor.mb_spec.n_mbs gconfig.n_samples gconfig.max_new_tokens rollout.max_head_offpolicyness actor.kl_ctl",
            "global-batch updates micro-batch micro-batch-tokens seq samples-per-prompt max-prompt-tokens "
            "max-response-tokens off-policy-steps padding reference",
            "prompts of a step; micro-batches count tokens; a reference if kl_ctl is above 0",
            _batch,
        ),
        KeyRule(
            "actor.gradient_checkpointing actor.megatron.recompute_granularity actor.dtype actor.use_lora "
            "actor.lora_rank actor.target_modules actor.attn_impl actor.optimizer.type",
            "recompute precision adapter lora-rank lora-targets attention optimizer",
            "16-bit weights and states under FSDP; fp32 main weights in Megatron",
            _others,
        ),
    ),
    ignored=f"""*.experiment_name *.trial_name *.fileroot *.scheduling_spec *.scheduling_strategy.* *.tokenizer_path
        *.random_seed vllm.seed ref.path ref.backend ref.init_from_scratch ref.disable_dropout sglang.model_path
        vllm.model *.skip_tokenizer_init rollout.dump_to_file experiment_name trial_name seed
        tokenizer_path cluster scheduler launcher saver recover evaluator
        stats_logger perf_tracer valid_dataset train_dataset eval_gconfig async_training enable_offload
        {within("actor", "experiment_name trial_name optimizer init_from_scratch disable_dropout scheduling_spec")}
        {within("actor", "scheduling_strategy weight_update_mode temperature reward_* adv_norm eps_clip* c_clip")}
        {within("actor", "*_norm discount gae_lambda kl_* max_new_tokens lora_alpha peft_type grad_reduce_dtype")}
        {within("actor", "use_decoupled_loss behav_* group_reward_norm mask_* log_agent_* rejection_sampling")}
        {within("gconfig", "min_new_tokens greedy temperature top_p top_k stop* max_tokens lora_name ignore_eos")}""",
    not_modelled={
        "rollout sglang vllm gconfig": "settings of the generation engine",
        "ref": "the reference model is on the actor's GPUs",
        "critic": "the critic, a second trained model on the same GPUs",
        "teacher": "a teacher",
        "dynamic_bs actor.dynamic_sampling": "prompts that are drawn again",
        "actor.megatron actor.archon actor.fsdp": "settings of the engine",
        "actor.*": "training settings of the actor",
        "reward_fn workflow agent": "the reward is not part of the training step",
    },
)

"""DeepSpeed-Chat's launch lines: `deepspeed main.py --zero_stage 2` of its three steps and of its DPO."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_machine
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import MASTER, take_model
from napkin.inputs.launch.precisions import adapters
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_other_model, take_updates
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, natural, whole, word

OWN = """data_split lora_dim num_padding_at_beginning lora_module_name only_optimize_lora actor_zero_stage
    enable_hybrid_engine"""
BATCHES = "per_device_train_batch_size|per_device_training_batch_size|per_device_mini_train_batch_size"
LAYERS = ("layers.", "transformer.h.", "h.", "layer.")
"""Ends of --lora_module_name that match every linear layer of the blocks."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a launch line is DeepSpeed-Chat's."""
    return (
        source.syntax == "shell"
        and source.has_any("zero_stage", "actor_zero_stage")
        and "deepspeed" in source
        and source.has_any(*OWN.split())
        and source.has_any("model_name_or_path", "actor_model_name_or_path")
    )


def _is_rl(reading: Reading) -> bool:
    return reading.source.has_any("actor_model_name_or_path", "actor_zero_stage")


def _of_actor(reading: Reading, key: str) -> str:
    """Return the name of an option: the last step has one for the actor and one for the critic."""
    return f"actor_{key}" if _is_rl(reading) else key


def _model(reading: Reading) -> None:
    take_model(reading, "model_name_or_path", "actor_model_name_or_path")
    if not _is_rl(reading):
        return
    take_other_model(reading, "critic", "critic_model_name_or_path")
    take_other_model(reading, "reward", "critic_model_name_or_path")  # rlhf_engine.py, _init_reward
    reading.default("reference", "same", "enable_ema")  # a copy, with LoRA too (_init_ref)


def _task(reading: Reading) -> None:
    """Read the step: RLHF by its keys, reward models by their padding, DPO by its beta."""
    if _is_rl(reading):
        reading.derive("task", "ppo", "actor_model_name_or_path")
    elif "beta" in reading.source:
        reading.derive("task", "dpo", "beta")
    elif "num_padding_at_beginning" in reading.source:
        reading.derive("task", "rm", "num_padding_at_beginning")
    else:
        reading.assume("task", "sft", "data_split")


def _seq(reading: Reading) -> None:
    if not _is_rl(reading):
        reading.take("seq", "max_seq_len", whole, default=512)
        return
    keys = ("max_prompt_seq_len", "max_answer_seq_len")
    take_longest(reading, *keys, (256, 256))
    sizes = [reading.read(key, whole) for key in keys]
    total = sum(size or 256 for size in sizes)
    reading.derive("seq", total, *keys) if all(sizes) else reading.default("seq", total, *keys)


def _rollout(reading: Reading) -> None:
    """Read the prompts of a step: one response each, generation batches split into training batches."""
    if not _is_rl(reading):
        return
    reading.default("samples-per-prompt", 1, "per_device_generation_batch_size")
    mini, drawn = reading.value_of("micro-batch"), reading.read("per_device_generation_batch_size", whole)
    steps = reading.value_of("grad-accum") or 1
    if mini:
        rounds = reading.read("generation_batches", whole) or 1
        keys = ("per_device_generation_batch_size", *BATCHES.split("|"))
        present = [one for one in keys if one in reading.source] or [keys[0]]
        take_updates(reading, (drawn or mini) * rounds, mini * steps, *present)
    reading.default("rollout", "none", "enable_hybrid_engine")
    first, second = (reading.read(f"{role}_zero_stage", natural) or 0 for role in ("actor", "critic"))
    if first != second:
        reading.omit("critic_zero_stage", "the critic's ZeRO stage, taken as the actor's")


def _sharding(reading: Reading) -> None:
    """Read the launcher and ZeRO: --offload moves optimizer states, in stage 3 also parameters (ds_utils.py)."""
    take_machine(reading)
    key = _of_actor(reading, "zero_stage")
    stage = reading.take("zero", key, natural)
    if "zero" not in reading.inputs:
        reading.default("zero", 0, key)
        stage = 0
    if reading.read("offload", flag) and stage is None:
        reading.ask("offload", "offload", key)
    elif reading.read("offload", flag) and stage:
        reading.put("offload", "optimizer,parameters" if stage == 3 else "optimizer", "offload")
    reading.told("deepspeed", "offload")


def _adapter(reading: Reading) -> None:
    """Read LoRA. Without only_optimize_lora, embeddings, norms and biases are trained too (module/lora.py)."""
    key, scope = _of_actor(reading, "lora_dim"), _of_actor(reading, "lora_module_name")
    rank = reading.read(key, natural)
    narrow = reading.read("dtype", word({"fp16": "fp16", "bf16": "bf16"})) or "fp16"
    if rank:
        reading.put("adapter", "lora", key, origin="derived")
        reading.put("lora-rank", rank, key)
        named = str(reading.source.plain(scope) or "decoder.layers.")
        if named.rstrip(".").endswith(tuple(one.rstrip(".") for one in LAYERS)):
            reading.put("lora-targets", "all", scope, origin="from file" if scope in reading.source else "default")
        else:
            reading.ask("lora-targets", scope)
        if not reading.read("only_optimize_lora", flag):
            why = "embeddings, norms and biases are trained in addition to LoRA without --only_optimize_lora"
            reading.refuse(key, why, "adapter")
        reading.told("only_optimize_lora")
        policy = adapters(narrow, "fp32", narrow, master=True)
    else:
        policy = MASTER if narrow == "bf16" else "fp16-mixed"
    state = reading.derive if "dtype" in reading.source else reading.default
    state("precision", policy, "dtype")


def _others(reading: Reading) -> None:
    key = _of_actor(reading, "gradient_checkpointing")
    on = reading.read(key, flag)
    reading.put("recompute", "full" if on else "none", key) if on is not None else reading.default(
        "recompute", "none", key
    )
    reading.default("optimizer", "adamw", "offload")
    reading.default("attention", "flash", "model_name_or_path")
    if reading.read("enable_ema", flag):
        reading.refuse("enable_ema", "keeps a second copy of the actor", "ema")


FORMAT = LaunchFormat(
    "deepspeed-chat",
    "DeepSpeed-Chat's launch lines",
    "microsoft/DeepSpeedExamples applications/DeepSpeed-Chat/training/step*/main.py, dschat/rlhf/rlhf_engine.py, "
    "dschat/utils/{ds_utils,module/lora}.py",
    is_this,
    fixed={"framework": "deepspeed"},
    keys=(
        Key(BATCHES, "micro-batch", whole, 16),
        Key("gradient_accumulation_steps", "grad-accum", whole, 1),
        Key("num_train_epochs", "epochs", whole, 1),
    ),
    rules=(
        KeyRule(
            "model_name_or_path actor_model_name_or_path critic_model_name_or_path",
            "model critic reward reference",
            "the reward model starts from the critic's",
            _model,
        ),
        KeyRule("num_padding_at_beginning beta", "task", "the step, by its keys; else SFT", _task),
        KeyRule("max_seq_len max_prompt_seq_len max_answer_seq_len", "seq", "512; RLHF: prompt + answer", _seq),
        KeyRule(
            "per_device_generation_batch_size generation_batches enable_hybrid_engine",
            "samples-per-prompt updates max-prompt-tokens max-response-tokens rollout",
            "one response per prompt, generated by the training process",
            _rollout,
        ),
        KeyRule(
            "zero_stage actor_zero_stage critic_zero_stage offload num_gpus num_nodes",
            "gpus zero offload",
            "--offload: optimizer states, in stage 3 also parameters",
            _sharding,
        ),
        KeyRule(
            "lora_dim actor_lora_dim lora_module_name actor_lora_module_name only_optimize_lora dtype",
            "adapter lora-rank lora-targets precision",
            "fp16 by default; LoRA without --only_optimize_lora is refused",
            _adapter,
        ),
        KeyRule(
            "gradient_checkpointing actor_gradient_checkpointing enable_ema",
            "recompute optimizer attention",
            "none by default",
            _others,
        ),
    ),
    ignored="""data_output_path data_split sft_only_data_path unsupervised_dataset* num_padding_at_beginning print_loss
        print_answers* local_rank lora_learning_rate actor_lora_learning_rate critic_lora_learning_rate
        actor_learning_rate critic_learning_rate actor_weight_decay critic_weight_decay add_eot_token eot_token
        end_of_conversation_token eval_iters master_port include exclude hostfile align_overflow""",
    not_modelled={
        "critic_lora_dim critic_lora_module_name critic_gradient_checkpointing critic_dropout": "the critic's settings",
        "dropout actor_dropout disable_dropout disable_actor_dropout disable_critic_dropout": "the model's dropout",
        "offload_reference_model offload_reward_model": "placement of the models that are not trained",
        "release_inference_cache inference_tp_size tp_gather_partition_size unpin_actor_parameters": "generation",
        "enable_mixed_precision_lora": "ZeRO++'s quantized weights",
        "compute_fp32_loss": "the loss's number format",
        "ppo_epochs": "passes over the samples of a step",
        "unsup_coef": "the loss on the unsupervised data",
    },
)

"""OpenRLHF's launch lines, in both option spellings."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.names import MASTER, take_attention, take_model, take_targets
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import of_openrlhf, take_other_model
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, natural, number, product, whole

TASKS = {
    "train_sft": "sft",
    "train_dpo": "dpo",
    "train_rm": "rm",
    "train_ppo_ray": "ppo",
    "train_ppo": "ppo",
    "train_kto": "kto",
    "train_kd": "distill",
    "train_prm": "sft",  # a loss on the language model's logits at the last token of each step
    "train_grpo": "grpo",
}
ROLES = ("ref", "reward", "critic", "actor")
USUAL = {
    "train_sft": (8, 2048, 2),
    "train_dpo": (8, 512, 1),
    "train_kto": (8, 2048, 1),
    "train_kd": (8, 2048, 1),
    "train_rm": (1, 512, 1),
    "train_prm": (1, 2048, 1),
    "train_ppo": (4, 2048, 1),
    "train_ppo_ray": (4, 2048, 1),
}
"""Program → its defaults: micro-batch, sequence length, epochs."""
OLDER = ("train_batch_size", "rollout_batch_size", "prompt_max_len", "generate_max_len", "actor_num_gpus_per_node")
"""Options of the older spelling; its PPO defaults to micro-batches of 4."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is OpenRLHF's options."""
    return bool(_program(source)) or source.has_all("ds.zero_stage", "train.batch_size")


def _program(source: LaunchFile) -> str:
    words = [*source.command, *(str(one.value) for key, one in source.values.items() if key in ("m", "module"))]
    own = next((name for name in TASKS for word in words if "openrlhf" in word and word.endswith(name)), "")
    return own or (next((name for name in TASKS for word in words if name in word), "") if _is_fork(source) else "")


def _is_fork(source: LaunchFile) -> bool:
    """Return whether a launch line has the options of OpenRLHF's older spelling, whatever program it starts."""
    ours = any("openrlhf" in str(one.value) for key, one in source.values.items() if key in ("m", "module"))
    return not ours and source.has_all("pretrain", "zero_stage", "train_batch_size", "micro_train_batch_size")


def _first(reading: Reading, *keys: str) -> str:
    return next((key for key in keys if key in reading.source), keys[0])


def _task(reading: Reading) -> None:
    program = _program(reading.source)
    estimator = str(
        reading.source.plain(_first(reading, "algo.advantage.estimator", "advantage_estimator")) or ""
    ).lower()
    task = TASKS.get(program)
    if task == "ppo" and estimator in ("rloo", "group_norm", "dr_grpo"):
        task = "rloo" if estimator == "rloo" else "grpo"
    if task is None:
        reading.ask("task", "openrlhf.cli")
    elif task == "ppo" and estimator.startswith("reinforce"):  # no critic, like RLOO
        reading.assume("task", "rloo", _first(reading, "algo.advantage.estimator", "advantage_estimator"))
    else:
        key = _first(reading, "module", "m")
        reading.put("task", task, key if key in reading.source else f"openrlhf.cli.{program}", origin="derived")
    for key in ("model.beta", "beta"):
        if key in reading.source:
            reading.ignore(key)
    if _is_fork(reading.source):
        what = "is not OpenRLHF's own program; OpenRLHF's defaults are taken for what the line omits"
        reading.omit(str(reading.source.plain(_first(reading, "module", "m")) or reading.source.program), what)


def _model(reading: Reading) -> None:
    keys = ("actor.model_name_or_path", "model.model_name_or_path", "pretrain", "actor_pretrain")
    if reading.find(*keys) is None:
        reading.ask("model", keys[1])
    else:
        take_model(reading, *keys)


def _machine(reading: Reading) -> None:
    """Read the GPU count: each role has its own nodes × GPUs, unless they are colocated (colocate_all)."""
    for dot in (".", "_"):
        each = f"actor{dot}num_gpus_per_node"
        if each not in reading.source:
            continue
        sizes = {}
        for role in ROLES:
            keys = (f"{role}{dot}num_nodes", f"{role}{dot}num_gpus_per_node")
            found = [reading.read(key, natural) for key in keys]
            if all(found):
                sizes[role] = product([one or 1 for one in found])
        together = _first(reading, "train.colocate_all", "colocate_all_models")
        if reading.read(together, flag):
            reading.derive("gpus", sizes.get("actor"), each, f"actor{dot}num_nodes", together)
        else:
            reading.ask("gpus", each, together)
            reading.omit(each, "each role has separate GPUs, and the line does not say how many share a node")
        return
    key = _first(reading, "num_gpus", "nproc_per_node")
    count = reading.read(key, whole)
    if count:
        nodes = reading.read("num_nodes|nnodes", whole) or 1
        reading.derive("gpus", count * nodes, key)


def _amounts(reading: Reading) -> None:
    """Read micro-batch, sequence length and epochs, with each program's own defaults.

    PPO counts epochs over the prompts as episodes; its max_epochs are passes over the samples of a step.
    """
    program = _program(reading.source)
    micro, longest, epochs = USUAL.get(program, (None, None, None))
    if program == "train_ppo_ray" and not reading.source.has_any(*OLDER):
        micro = 1
    reading.take("micro-batch", "train.micro_batch_size|micro_train_batch_size", whole)
    reading.take("seq", "data.max_len|max_len", whole)
    usual: list[tuple[str, object, str]] = [("micro-batch", micro, "train.micro_batch_size")]
    times, once = "train.max_epochs|max_epochs", "train.num_episodes|num_episodes"
    if program.startswith("train_ppo"):
        reading.take("epochs", once, number)
        usual += [("epochs", epochs, "train.num_episodes")]
        if (reading.read(times, number) or 1) != 1:
            reading.omit(reading.named(*times.split("|")), "passes over the samples of a step")
        else:
            reading.told(*times.split("|"))
    else:
        reading.take("epochs", times, number)
        usual += [("epochs", epochs, "train.max_epochs")]
    if not reading.source.has_any("prompt_max_len", "generate_max_len"):
        usual += [("seq", longest, "data.max_len")]
    for option, value, key in usual:
        if value is not None:
            reading.default(option, value, key)


def _batch(reading: Reading) -> None:
    if reading.read("train.dynamic_batch_enable|use_dynamic_batch", flag):
        reading.inputs.pop("micro-batch", None)
        reading.ask(
            "micro-batch",
            *[
                key
                for key in ("train.dynamic_batch_enable", "use_dynamic_batch", "train.max_tokens_per_gpu")
                if key in reading.source
            ],
        )
        if reading.value_of("task") in ("ppo", "grpo", "rloo"):
            tokens = "train.max_tokens_per_gpu"
            reading.take("micro-batch-tokens", tokens, whole, default=16192)
    parts = ("prompt_max_len", "generate_max_len")
    stated = [key for key in parts if reading.find(key) is not None]
    if stated:
        sizes = [reading.read(key, whole) if key in stated else 1024 for key in parts]
        reading.derive("seq", sum(size or 0 for size in sizes), *stated)


def _setup(reading: Reading) -> None:
    keys = ("model.gradient_checkpointing_enable", "actor.gradient_checkpointing_enable", "gradient_checkpointing")
    on = [key for key in keys if reading.read(key, flag)]
    reading.put("recompute", "full", *on) if on else reading.default("recompute", "none", keys[0])
    if reading.find("ds.attn_implementation", "attn_implementation") is not None:
        take_attention(reading, "ds.attn_implementation", "attn_implementation")
    elif reading.read("flash_attn", flag):
        reading.put("attention", "flash", "flash_attn")
    reading.default("optimizer", "adamw", "adam")
    away = _first(reading, "ds.adam_offload", "adam_offload")
    reading.switch("offload", "optimizer", away)
    for names_, option in (
        (("ds.ring_attn_size", "ring_attn_size"), "cp"),
        (("ds.tensor_parallel_size", "ds_tensor_parallel_size"), "tp"),
    ):
        key = _first(reading, *names_)
        reading.take(option, key, whole)


def _adapter(reading: Reading) -> None:
    key = _first(reading, "ds.lora.rank", "lora_rank")
    rank = reading.read(key, natural)
    if reading.open_among(key):
        reading.ask("adapter", key)
    if rank:
        reading.put("adapter", "lora", key, origin="derived")
        reading.put("lora-rank", rank, key)
        take_adapter_dropout(reading, "ds.lora.dropout|lora_dropout")
        targets = reading.find("ds.lora.target_modules", "target_modules")
        if targets is not None:
            take_targets(reading, _first(reading, "ds.lora.target_modules", "target_modules"), targets.value)
        else:
            reading.default("lora-targets", "all", "ds.lora.target_modules")
    four = _first(reading, "ds.load_in_4bit", "load_in_4bit")
    reading.switch("quantized", "nf4-dq", four)
    kind = _first(reading, "ds.param_dtype", "param_dtype")
    narrow = reading.read(kind, fixed_dtype)
    there = kind if kind in reading.source else "bf16" if "bf16" in reading.source else ""
    policy = {"bf16": MASTER, None: MASTER, "fp16": "fp16-mixed"}.get(narrow, "fp32")
    if rank:
        frozen = "nf4" if reading.value_of("quantized") else "bf16"
        policy = f"frozen={frozen},param=bf16,grad=bf16,compute=bf16,state=fp32,master=fp32"
    reading.put("precision", policy, there) if there else reading.default("precision", policy, "ds.param_dtype")


def _rollout(reading: Reading) -> None:
    if reading.value_of("task") == "distill":
        take_other_model(
            reading, "reference", "teacher_model", "kd.teacher_model_name_or_path", "teacher.model_name_or_path"
        )
    if reading.value_of("task") in ("ppo", "grpo", "rloo"):
        of_openrlhf(reading)


def _amount(reading: Reading) -> None:
    key = _first(reading, "data.max_samples", "max_samples")
    most = reading.read(key, number)
    if most:
        reading.assume("samples", int(most), key)


FORMAT = LaunchFormat(
    "openrlhf",
    "OpenRLHF's options",
    "OpenRLHF/OpenRLHF openrlhf/cli/*.py, openrlhf/utils/deepspeed",
    is_this,
    fixed={"trainer": "openrlhf", "framework": "deepspeed"},
    keys=(
        Key("train.batch_size|train_batch_size", "global-batch", whole, 128),
        Key("ds.zero_stage|zero_stage", "zero", natural, 2),
    ),
    rules=(
        KeyRule("openrlhf.cli.train_*", "task", "train_sft, train_dpo, train_rm, train_ppo_ray, …", _task),
        KeyRule("actor.model_name_or_path model.model_name_or_path pretrain", "model", "a preset's name", _model),
        KeyRule(
            "actor.num_nodes actor.num_gpus_per_node train.colocate_all num_gpus nproc_per_node",
            "gpus",
            "the actor's GPUs, if all roles share them",
            _machine,
        ),
        KeyRule(
            "train.micro_batch_size|micro_train_batch_size data.max_len|max_len train.max_epochs|max_epochs "
            "train.num_episodes|num_episodes",
            "micro-batch seq epochs",
            "each program's defaults; PPO counts episodes",
            _amounts,
        ),
        KeyRule(
            "train.dynamic_batch_enable train.max_tokens_per_gpu prompt_max_len generate_max_len",
            "micro-batch micro-batch-tokens seq",
            "a dynamic batch counts tokens",
            _batch,
        ),
        KeyRule(
            "model.gradient_checkpointing_enable actor.gradient_checkpointing_enable gradient_checkpointing "
            "ds.attn_implementation flash_attn ds.adam_offload adam_offload ring_attn_size",
            "recompute attention offload cp",
            "flags",
            _setup,
        ),
        KeyRule(
            "ds.lora.rank lora_rank ds.lora.dropout|lora_dropout ds.lora.target_modules target_modules "
            "ds.param_dtype param_dtype bf16 load_in_4bit",
            "adapter lora-rank lora-dropout lora-targets quantized precision",
            "DeepSpeed's bf16; LoRA on all linear layers",
            _adapter,
        ),
        KeyRule(
            "rollout.batch_size rollout.n_samples_per_prompt vllm.num_engines vllm.tensor_parallel_size "
            "vllm.gpu_memory_utilization vllm.enforce_eager|vllm_enforce_eager "
            "algo.kl.init_coef reward.model_name_or_path critic.model_name_or_path "
            "teacher_model ds.packing_samples|packing_samples ds.enable_sleep|deepspeed_enable_sleep",
            "samples-per-prompt updates rollout rollout-tp rollout-eager rollout-offload padding reference reward "
            "critic",
            "GRPO and PPO: prompts per step; colocated with colocate_all",
            _rollout,
        ),
        KeyRule("data.max_samples max_samples", "samples", "the maximum number of samples", _amount),
    ),
    ignored="""ckpt logger eval adam actor.adam critic.adam data algo.kl input_key output_key apply_chat_template
        chosen_key rejected_key module m learning_rate l2 input_template ds.lora.alpha lora_alpha use_wandb
        actor_learning_rate critic_learning_rate init_kl_coef normalize_reward save_path ckpt_path save_hf_ckpt
        load_checkpoint prompt_data label_key reward.normalize_enable hostfile working_dir runtime_env_json address
        temperature gamma lambd eps_clip max_ckpt_num pretrain_mode""",
    not_modelled={
        "vllm vllm_*": "settings of the generation engine",
        "reward reward_* remote_rm_url critic critic_* ref ref_*": "other post-training models",
        "rollout rollout_batch_size n_samples_per_prompt micro_rollout_batch_size": "sample generation",
        "teacher_model teacher teacher_offload kd kd_coef": "execution of the teacher",
        "ds.packing_samples packing_samples": "padding-free batches",
        "train.colocate_all colocate_*": "placement of models on GPUs",
        "model.aux_loss_coef aux_loss_coef": "an auxiliary expert loss",
        "train.max_tokens_per_gpu": "tokens per dynamic batch",
        "ds.overlap_comm overlap_comm ds.zpg zpg grad_accum_dtype ds.grad_accum_dtype": "DeepSpeed's buffers",
        "algo": "advantage estimation",
        "use_liger_kernel ds.use_liger_kernel": "fused kernels",
    },
)

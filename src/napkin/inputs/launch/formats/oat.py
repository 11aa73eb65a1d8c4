"""oat's launch lines: online reinforcement learning, and offline preference learning and fine-tuning."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora
from napkin.inputs.launch.names import FP16, FP32, MASTER, MEGATRON, take_model
from napkin.inputs.launch.precisions import adapters, fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_chunked_loss, take_longest, take_other_model, take_updates
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, natural, number, product, whole, word

TASKS = {
    "dpo": "dpo", "ipo": "dpo", "lr_dpo": "dpo", "slic": "dpo", "bnf": "dpo", "simpo": "simpo", "sft": "sft",
    "ppo": "ppo",
}  # fmt: skip
CRITICS = {"ppo": "ppo", "grpo": "grpo", "drgrpo": "grpo"}
RL = ("run_ppo", "run_math_rl")
ALGORITHM = "algo|dap_algo"
MARKS = ("pi_buffer_maxlen_per_device", "rollout_batch_size_per_device")


def is_this(source: LaunchFile) -> bool:
    """Return whether a launch line has oat's options."""
    return source.syntax == "shell" and (bool(_program(source)) or source.has_any(*MARKS))


def _program(source: LaunchFile) -> str:
    """Return oat's program without its package; "" if the line starts one of a project's own."""
    words = [
        source.module,
        *(str(one.value).replace(".", "/") for key, one in source.values.items() if key == "module"),
    ]
    found = next((one for one in words if one.startswith("oat/experiment/")), "")
    return found.rpartition("/")[2].removesuffix(".py")


def _is_offline(source: LaunchFile) -> bool:
    return _program(source).startswith("run_offline") or source.has_any("preference_data", "chat_data")


def _task(reading: Reading) -> None:
    """Read the task: a kind of critic in reinforcement learning, else an algorithm, by default DPO."""
    take_model(reading, "pretrain")
    source = reading.source
    key = reading.named(*ALGORITHM.split("|"))
    stated = reading.read(key, word(TASKS))
    if _program(source) in RL or stated == "ppo" or ("critic_type" in source and not stated):
        reading.take("task", "critic_type", word(CRITICS), default="grpo")
    elif stated == "dpo" and str(source.plain(key)).lower() != "dpo":
        reading.assume("task", stated, key)  # its loss takes the same passes
    elif stated:
        reading.put("task", stated, key)
    reading.default("task", "dpo", "algo")
    if not _is_rl(reading) and not _is_offline(source):
        reading.refuse("rollout_batch_size_per_device", "the pairs are generated while training, which napkin does "
                       "not model in preference learning", "task")  # fmt: skip
    if reading.value_of("task") == "ppo":
        take_other_model(reading, "critic", "critic_pretrain")


def _is_rl(reading: Reading) -> bool:
    return reading.value_of("task") in ("grpo", "ppo")


def _machine(reading: Reading) -> None:
    """Read the GPUs: of learners and engines, one half each unless collocated (interface.py, get_program)."""
    if _is_offline(reading.source):
        launched = reading.named("num_gpus", "gpus")  # --gpus is what the program expects to be there
        count = reading.read(launched, whole)
        if count and launched == "num_gpus":
            reading.put("gpus", count, launched)
        elif count:
            reading.assume("gpus", count, launched)
        return
    each, groups = reading.read("gpus", whole), reading.read("num_groups", whole) or 1
    keys = [key for key in ("gpus", "num_groups") if key in reading.source]
    if reading.open_among(*keys):
        reading.ask("gpus", *keys)
    elif each:
        reading.derive("gpus", product([each, groups]), *keys)
    else:
        reading.default("gpus", 8 * groups, "gpus")
    if not _is_rl(reading):
        return
    share, total = reading.read("vllm_gpu_ratio", number), reading.value_of("gpus")
    where = [key for key in ("collocate", "vllm_gpu_ratio") if key in reading.source]
    if reading.read("collocate", flag):
        reading.derive("rollout", f"colocated:{share or 0.25:g}", *where)
    elif total and (each or 8) % 2 == 0:
        reading.derive("rollout", f"separate:{total // 2}", "collocate", *keys)
    else:
        reading.ask("rollout", "collocate", *keys)
    reading.take("rollout-tp", "num_gpus_per_actor", whole)
    if "asynchronous" in reading.source and reading.read("asynchronous", flag):
        reading.put("off-policy-steps", 1, "asynchronous")


def _batch(reading: Reading) -> None:
    """Read the batch: train_batch_size samples or pairs of all learners; rollout_batch_size counts prompts."""
    reading.take("micro-batch", "train_batch_size_per_device", whole, default=1)
    samples, trained = reading.read("num_samples", whole) or 2, reading.read("train_batch_size", whole) or 128
    if not _is_rl(reading):
        reading.take("global-batch", "train_batch_size", whole, default=128)
    else:
        keys = [key for key in ("train_batch_size", "num_samples") if key in reading.source]
        if trained % samples:
            reading.ask("global-batch", *keys)
        elif keys:
            reading.derive("global-batch", trained // samples, *keys)
        else:
            reading.default("global-batch", trained // samples, "train_batch_size")
        reading.take("samples-per-prompt", "num_samples", natural, default=2)
        take_updates(reading, _kept(reading, samples), trained, "rollout_batch_size", *keys)
        if (reading.read("num_ppo_epochs", whole) or 1) > 1:
            reading.omit("num_ppo_epochs", "passes over the samples of a step")
    reading.take("epochs", "num_prompt_epoch", number, default=1)


def _kept(reading: Reading, samples: int) -> int:
    """Return the responses of a round that the learners' buffers keep."""
    generated = (reading.read("rollout_batch_size", whole) or 128) * samples
    longest, total = reading.read("pi_buffer_maxlen_per_device", whole), reading.value_of("gpus")
    apart = str(reading.value_of("rollout") or "").partition("separate:")[2]
    learners = (total or 0) - int(apart or 0)
    return min(generated, longest * learners) if longest and learners else generated


def _length(reading: Reading) -> None:
    """Read the length: the longest prompt and answer, or in fine-tuning on chats the longest sample."""
    prompt, answer = "prompt_max_length", "generate_max_length"
    if reading.value_of("task") == "sft" and "preference_data" not in reading.source:
        if reading.take("seq", "max_model_len", whole) is None:
            reading.ask("seq", "max_model_len")
        return
    sizes = [reading.read(key, whole) for key in (prompt, answer)]
    keys = [key for key in (prompt, answer) if key in reading.source]
    total = (sizes[0] or 1024) + (sizes[1] or 512)
    reading.derive("seq", total, *keys) if keys else reading.default("seq", total, prompt, answer)
    if _is_rl(reading):
        take_longest(reading, prompt, answer, (1024, 512))


def _switch(reading: Reading, key: str, usual: bool) -> tuple[bool, str]:
    """Return a switch, which `--no-KEY` turns off, and the key that states it."""
    off = f"no_{key}"
    if off in reading.source:
        reading.told(off)
        return False, off
    found = reading.read(key, flag)
    return (usual if found is None else found), key


def _setup(reading: Reading) -> None:
    reading.take("zero", "zero_stage", natural, default=2)
    states, model = reading.read("adam_offload", flag), reading.read("model_offload", flag)
    saved = reading.read("activation_offloading", flag)
    away = {"optimizer": states, "parameters": model and reading.value_of("zero") == 3, "activations": saved}
    moved = [what for what, on in away.items() if on]
    keys = [key for key in ("adam_offload", "model_offload", "activation_offloading") if key in reading.source]
    if moved:
        reading.put("offload", ",".join(moved), *keys)
    again, key = _switch(reading, "gradient_checkpointing", False)
    if key in reading.source:
        reading.put("recompute", "full" if again else "none", key)
    reading.default("recompute", "none", "gradient_checkpointing")
    flash, key = _switch(reading, "flash_attn", True)
    if key in reading.source:
        reading.put("attention", "flash" if flash else "eager", key)
    reading.default("attention", "flash", "flash_attn")
    chunked, key = _switch(reading, "use_fused_lm_head", True)
    newer = "dap_algo" not in reading.source and reading.value_of("zero") != 3
    if chunked and (key in reading.source or newer):
        take_chunked_loss(reading, key, key in reading.source)
    reading.default("optimizer", "adamw", "adam_offload")


def _precision(reading: Reading) -> None:
    """Read LoRA and the precision: DeepSpeed's bf16 unless it is off."""
    rank = reading.read("lora_rank", natural)
    if reading.open_among("lora_rank"):
        reading.ask("adapter", "lora_rank")
    elif rank:
        take_lora(reading, "lora_rank", "target_modules", 0, "q,k,v,o,down,up,gate")
        take_adapter_dropout(reading, "lora_dropout")
    reading.switch("quantized", "nf4-dq", "load_in_4bit")
    half = reading.read("fp16", flag)
    wide = reading.read("grad_accum_dtype", fixed_dtype) == "fp32"
    narrow, key = _switch(reading, "bf16", not half)
    policy = FP16 if half else FP32 if not narrow else MEGATRON if wide else MASTER
    if rank:
        frozen = reading.value_of("quantized") or ("fp16" if half else "bf16" if narrow else "fp32")
        policy = adapters(str(frozen), "fp32", "fp16" if half else "bf16" if narrow else "fp32", master=True)
    stated = [one for one in ("fp16", key, "grad_accum_dtype") if one in reading.source]
    if reading.open_among("lora_rank"):
        reading.ask("precision", "lora_rank")
        return
    reading.derive("precision", policy, *stated) if stated else reading.default("precision", policy, "bf16")


def _reference(reading: Reading) -> None:
    """Read whether a reference is kept: a whole model, also next to adapters (learners/rl.py, learners/dap.py)."""
    weights = ("beta", "kl_penalty_coef")
    used = [reading.read(key, number) for key in weights]
    stated = [key for key in weights if key in reading.source]
    if not _is_rl(reading):
        if reading.value_of("task") == "dpo":
            reading.default("reference", "same", "ref_pretrain")
    elif reading.open_among(*weights):
        reading.ask("reference", *stated)
    elif any(used) or used[0] is None:
        reading.derive("reference", "same", *stated) if any(used) else reading.default("reference", "same", "beta")
    else:
        reading.derive("reference", "none", *stated)
    take_other_model(reading, "reference", "ref_pretrain")


FORMAT = LaunchFormat(
    "oat",
    "oat's launch lines",
    "sail-sg/oat oat/{args,interface,model}.py, oat/learners, oat/algorithms/ppo.py, oat/utils/deepspeed.py",
    is_this,
    fixed={"framework": "deepspeed"},
    rules=(
        KeyRule(
            f"pretrain critic_type {ALGORITHM} critic_pretrain",
            "model task critic",
            "run_ppo and run_math_rl: by the critic; else the algorithm, DPO by default",
            _task,
        ),
        KeyRule(
            "gpus num_groups collocate vllm_gpu_ratio num_gpus_per_actor asynchronous num_gpus",
            "gpus rollout rollout-tp off-policy-steps",
            "one half of the GPUs generates, unless collocated",
            _machine,
        ),
        KeyRule(
            "train_batch_size train_batch_size_per_device num_samples rollout_batch_size pi_buffer_maxlen_per_device "
            "num_ppo_epochs num_prompt_epoch",
            "global-batch micro-batch samples-per-prompt updates epochs",
            "prompts of an update = train_batch_size / num_samples",
            _batch,
        ),
        KeyRule(
            "prompt_max_length generate_max_length max_model_len",
            "seq max-prompt-tokens max-response-tokens",
            "prompt + answer; in fine-tuning the longest sample",
            _length,
        ),
        KeyRule(
            "zero_stage adam_offload model_offload activation_offloading gradient_checkpointing flash_attn "
            "use_fused_lm_head",
            "zero offload recompute attention loss optimizer",
            "flags",
            _setup,
        ),
        KeyRule(
            "lora_rank target_modules lora_dropout load_in_4bit bf16 fp16 grad_accum_dtype",
            "adapter lora-rank lora-targets lora-dropout quantized precision",
            "DeepSpeed's bf16; LoRA on all linear layers",
            _precision,
        ),
        KeyRule("beta kl_penalty_coef ref_pretrain", "reference", "a copy, unless beta is 0", _reference),
    ),
    ignored="""m module learning_rate critic_learning_rate lr_* lora_alpha eval_* wb_* use_wb *_key *_data *_split
        save_* max_save_* rnd_seed debug prompt_template temperature top_p top_k oracle oracle_type tokenizer
        apply_chat_template sync_params_every adam_beta_* l2 max_norm cliprange* whiten_* gamma lam vf_coef
        rollout_batch_size_per_device online_evaluation logging_steps best_of_n_eval num_bon bon_temperature
        no_extract_content extract_content verifier_version master_addr master_port shm_size_mb launch_type
        group_rank dump_all_buffer dump_replay_every ignore_no_eos""",
    not_modelled={
        "enable_prefix_caching vllm_sleep max_model_len": "settings of the generation engine",
        "remote_rm_url remote_rm_client_workers preference_oracle oracle_batch_size": "sample scoring",
        "ref_offload": "placement of the reference",
        "max_train max_queries max_sgd_steps": "limits of the amount of training",
        "gradient_checkpointing_use_reentrant": "activation checkpointing settings",
        "zpg": "DeepSpeed's buffers",
        "critic": "execution of the critic",
    },
    refused={
        "learn_rm learn_rm_only": "a reward model is trained as well",
        "dry_run": "a test of lengths, no training",
    },
)

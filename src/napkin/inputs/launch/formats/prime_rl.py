"""prime-rl's TOML: reinforcement learning on GPUs of the trainer and of vLLM, or fine-tuning."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.names import AUTOCAST, PURE, take_attention, take_model, take_optimizer, take_targets
from napkin.inputs.launch.precisions import adapters, fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_chunked_loss, take_other_model
from napkin.inputs.launch.shapes import has_experts
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import Open, either, flag, natural, number, whole, word

ORC, D = "orchestrator", "deployment"
GROUP = f"{ORC}.group_size|{ORC}.rollouts_per_example"
ANSWER = f"{ORC}.train.sampling.max_completion_tokens|{ORC}.sampling.max_completion_tokens|{ORC}.sampling.max_tokens"
ENGINE_TP = "inference.vllm.tensor_parallel_size|inference.parallel.tp"
EAGER = "inference.vllm.enforce_eager|inference.model.enforce_eager"
SHARE = "inference.vllm.gpu_memory_utilization|inference.gpu_memory_utilization"
OLDER = (
    f"{ORC}.rollouts_per_example", f"{ORC}.env", f"{ORC}.sampling", f"{ORC}.buffer", f"{ORC}.environment",
    "trainer_gpu_ids", "inference_gpu_ids", "async_level", "max_async_level", f"{ORC}.max_async_level",
    f"{ORC}.mask_truncated_completions",
)  # fmt: skip
"""Keys of files before c5afcaa2e (June 2026), when nothing was recomputed, offloaded or compiled by default."""
NEWER = (
    "monitors", "run", "resume", "inference.vllm", f"{ORC}.train.source", f"{ORC}.algo", f"{ORC}.concurrency",
    "model.full_offload", "trainer.model.full_offload",
)  # fmt: skip
"""Keys of files since then. A file with neither leaves these defaults open."""
LISTS = ("trainer_gpu_ids", "inference_gpu_ids")
DTYPES = {"float32": AUTOCAST, "bfloat16": PURE}


def _block(source: LaunchFile) -> str:
    """Return the block of the trained model's settings: the trainer's in reinforcement learning."""
    return "trainer.model" if _is_rl(source) else "model"


def _is_rl(source: LaunchFile) -> bool:
    return ORC in source


def _default(reading: Reading, option: str, older: object, newer: object, *keys: str) -> None:
    """Set an option to the default of the file's time; None leaves it unset. A file of neither time leaves it open."""
    source = reading.source
    if not source.has_any(*OLDER, *NEWER) and older != newer:
        if option not in reading.inputs:
            reading.ask(option, *keys, why="its default changed in June 2026")
        return
    value = older if source.has_any(*OLDER) else newer
    if value is not None:
        reading.default(option, value, *keys)


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is prime-rl's configuration of a whole run."""
    rl = _is_rl(source) and source.has_any("trainer", "inference", D, "model.name", f"{ORC}.batch_size", *LISTS)
    tuned = source.has_all("model.name", "data.seq_len") and "model.flavor" not in source
    return source.syntax == "toml" and (rl or tuned)


def _task(reading: Reading) -> None:
    take_model(reading, reading.named("trainer.model.name", "model.name"))
    if _is_rl(reading.source):
        key = f"{ORC}.algo.type"
        kind = str(reading.source.plain(key) or "grpo").lower()
        if kind == "grpo" and key not in reading.source:
            reading.default("task", "grpo", key)
        else:
            reading.put("task", "grpo", key) if kind == "grpo" else reading.ask("task", key)
        own = [one for one in _sources(reading.source) if "algo" in one]
        if own:
            reading.ask("task", f"{ORC}.train.source")
        reading.default("reference", "none", key)  # the engine's log-probabilities stand in for a reference
        take_other_model(reading, "reward", f"{ORC}.reward_model.name")
    else:
        reading.derive("task", "sft", "data.seq_len")
    reading.take("steps", "max_steps|trainer.max_steps", whole, silent=True)


def _sources(source: LaunchFile) -> list[dict[str, object]]:
    """Return the tables of sources of prompts, which may have algorithms of their own."""
    listed = source.plain(f"{ORC}.train.source")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _machine(reading: Reading) -> None:
    """Read the GPUs of the trainer, and those of the engine on top of them."""
    source = reading.source
    if source.has_any(*LISTS):
        _of_lists(reading)
        return
    if D not in source:
        reading.default("gpus", 2, f"{D}.num_train_gpus", f"{D}.num_infer_gpus") if _is_rl(source) else reading.ask(
            "gpus", f"{D}.num_train_gpus"
        )
        if _is_rl(source):
            reading.default("rollout", "separate:1", f"{D}.num_infer_gpus")
        return
    several = str(source.plain(f"{D}.type") or "single_node").lower() == "multi_node"
    unit = "nodes" if several else "gpus"
    train, infer, node = f"{D}.num_train_{unit}", f"{D}.num_infer_{unit}", f"{D}.gpus_per_node"
    copies = f"{D}.num_infer_replicas"
    each = (reading.read(node, whole) or 8) if several else 1
    trainers = each * (reading.read(train, whole) or (2 if several else 1))
    keys = [key for key in (train, infer, node, copies) if key in source]
    engines = reading.read(infer, natural)
    if reading.open_among(*keys) or (several and engines is None and _is_rl(source)):
        reading.ask("gpus", *keys or [train])
        reading.ask("rollout", infer)
    elif _is_rl(source):
        generating = each * (1 if engines is None else engines) * (reading.read(copies, whole) or 1)
        reading.derive("gpus", trainers + generating, *keys)
        reading.derive("rollout", f"separate:{generating}", infer, *[one for one in (node, copies) if one in source])
    else:
        reading.derive("gpus", trainers, *keys or [train])


def _of_lists(reading: Reading) -> None:
    """Read the GPUs by number; where both lists name the same, the engine shares them."""
    found = [getattr(reading.find(key), "value", None) for key in LISTS]
    if any(isinstance(one, Open) or not isinstance(one, list) for one in found):
        reading.ask("gpus", *LISTS)
        reading.ask("rollout", LISTS[1])
        return
    train, infer = ({str(one) for one in each} for each in found if isinstance(each, list))
    reading.derive("gpus", len(train | infer), *LISTS)
    if train & infer:
        share = reading.read(SHARE, number) or 0.9
        reading.derive(
            "rollout", f"colocated:{share:g}", *LISTS, *[one for one in SHARE.split("|") if one in reading.source]
        )
    else:
        reading.derive("rollout", f"separate:{len(infer)}", LISTS[1])


def _is_on(reading: Reading, key: str) -> bool:
    """Return whether a block of settings, empty or not, is given; TOML has no null, which is "None" there."""
    keys = list(reading.source.inside(key))
    return bool(keys) and (keys != [key] or str(reading.source.plain(key)).lower() not in ("none", "false"))


def _layout(reading: Reading) -> None:
    """Read FSDP's sharding, the parallel degrees and what is offloaded."""
    block = _block(reading.source)
    reading.take("zero", f"{block}.reshard_after_forward", either(3, 2), default=3)
    for name, option in (("cp", "cp"), ("tp", "tp")):
        reading.take(option, f"{block}.{name}", whole)
    if str(reading.source.plain(f"{block}.ep") or "").lower() == "auto":
        reading.ask("ep", f"{block}.ep")
    else:
        reading.take("ep", f"{block}.ep", whole)
    copies, islands = f"{block}.dp_replicate", f"{D}.nodes_per_fsdp_group"
    number_of, ranks = reading.read(copies, whole) or 1, reading.value_of("gpus")
    engines = str(reading.value_of("rollout") or "").partition("separate:")[2]
    trainers = (ranks - int(engines or 0)) // number_of if ranks else 0
    if number_of > 1 and trainers:
        reading.derive("dp-shard", trainers, copies)
    elif number_of > 1 or islands in reading.source:
        reading.ask("dp-shard", copies if copies in reading.source else islands)
    if "ep" not in reading.inputs and trainers and has_experts(reading.value_of("model")):
        _default(reading, "ep", 1, min(trainers, 8), f"{block}.ep")
    whole_model, states = f"{block}.fsdp_cpu_offload", f"{block}.optim_cpu_offload"
    saved = f"{block}.ac_offloading"
    away = {"optimizer,parameters": whole_model, "optimizer": states}
    moved = [what for what, key in away.items() if reading.read(key, flag)]
    keys = [key for key in (whole_model, states, saved) if key in reading.source]
    kept = ["activations"] if _is_on(reading, saved) else []
    if moved or states in reading.source:
        found = ",".join([*moved[:1], *kept])
        reading.put("offload", found, *keys) if found else None
    else:
        usual = ["activations"] * (saved not in reading.source or bool(kept))
        _default(reading, "offload", ",".join(kept) or None, ",".join(["optimizer", *usual]), states)
    if reading.source.states(f"{block}.full_offload"):
        reading.refuse(f"{block}.full_offload", "the optimizer runs on the host during backward", "offload")


def _batch(reading: Reading) -> None:
    """Read the batch: samples of a step, packed into micro-batches of one sequence."""
    if not _is_rl(reading.source):
        for option, key, usual in (
            ("global-batch", "data.batch_size", 128),
            ("micro-batch", "data.micro_batch_size", 1),
            ("seq", "data.seq_len", 128),
        ):
            reading.take(option, key, whole)
            reading.default(option, usual, key)
        reading.derive("packing", True, "data.seq_len")
        return
    total, group = f"{ORC}.batch_size", reading.named(*GROUP.split("|"))
    samples, several = reading.read(total, whole), reading.read(GROUP, natural) or 1
    if samples and samples % several == 0 and not reading.open_among(group):
        reading.derive("global-batch", samples // several, total, *([group] if group in reading.source else []))
    else:
        reading.ask("global-batch", total if total in reading.source else f"{ORC}.token_batch_size")
    reading.take("samples-per-prompt", GROUP, natural)
    reading.default("samples-per-prompt", 1, *GROUP.split("|"))
    reading.default("micro-batch", 1, "trainer.model.seq_len")
    reading.default("padding", False, "trainer.model.seq_len")
    reading.take("seq", f"seq_len|trainer.model.seq_len|{ORC}.seq_len", whole)
    reading.default("seq", 2048, "seq_len")
    answer = reading.take("max-response-tokens", ANSWER, whole)
    length = reading.value_of("seq")
    if answer and length and length > answer:  # a sample is cut at the length of a sequence
        where = [one for one in (*ANSWER.split("|"), "seq_len", "trainer.model.seq_len") if one in reading.source]
        reading.derive("max-prompt-tokens", length - answer, *where)
    behind = reading.named(f"{ORC}.max_off_policy_steps", f"{ORC}.max_async_level", "max_async_level", "async_level")
    reading.take("off-policy-steps", behind, natural)
    _default(reading, "off-policy-steps", 1, 8, behind)
    reading.take("rollout-tp", ENGINE_TP, whole)
    reading.take("rollout-eager", EAGER, flag)


def _others(reading: Reading) -> None:
    """Read recomputation, adapters, precision, attention, compilation, the loss and the optimizer."""
    source, block = reading.source, _block(reading.source)
    again = f"{block}.ac"
    if again in source and not _is_on(reading, again):
        reading.put("recompute", "none", again)
    elif again in source:
        mode = reading.read(f"{again}.mode", word({"full": "full", "selective": "selective"})) or "full"
        every = reading.read(f"{again}.freq", whole) or 1
        keys = [one for one in (f"{again}.mode", f"{again}.freq") if one in source] or [again]
        if mode == "selective":
            reading.ask("recompute", *keys)
            reading.refuse(keys[0], "recomputes parts of a block that napkin does not model", "recompute")
        else:
            reading.derive("recompute", "full" if every == 1 else f"every:{every}", *keys)
    else:
        _default(reading, "recompute", "none", "full", again)
    held = reading.read(f"{block}.optimization_dtype", fixed_dtype) or "fp32"
    keys = [f"{block}.optimization_dtype"]
    policy = PURE if held == "bf16" else AUTOCAST
    blocks = (f"{block}.lora", f"{block}.experimental.lora")
    lora = next((one for one in blocks if _is_on(reading, one)), "")
    if lora:
        reading.put("adapter", "lora", lora, origin="derived")
        reading.take("lora-rank", f"{lora}.rank", whole, default=16)
        found = reading.find(f"{lora}.target_modules")
        if found is not None:
            take_targets(reading, f"{lora}.target_modules", found.value)
        reading.default("lora-targets", "all", f"{lora}.target_modules")
        reading.take("lora-dropout", f"{lora}.dropout", number)
        policy = adapters(held, held)
    if source.states(f"{block}.quantization"):
        reading.ask("precision", f"{block}.quantization.type")
    elif keys[0] in source:
        reading.derive("precision", policy, *keys)
    reading.default("precision", policy, *keys)
    take_attention(reading, f"{block}.attn")
    compiled = f"{block}.compile"
    if compiled in source:
        reading.put("compile", _is_on(reading, compiled), compiled)
    _default(reading, "compile", False, True, compiled)
    chunk = f"{block}.fused_lm_head_token_chunk_size"
    size = reading.find(chunk)
    if str(size.value).isdecimal() if size is not None else not source.has_any(*OLDER):
        take_chunked_loss(reading, chunk, size is not None)
    optimizer = "trainer.optim.type" if _is_rl(source) else "optim.type"
    take_optimizer(reading, optimizer)
    reading.default("optimizer", "adamw", optimizer)


BOTH = ("model", "trainer.model")


def _keys(names: str) -> str:
    return " ".join(f"{block}.{name}" for block in BOTH for name in names.split())


FORMAT = LaunchFormat(
    "prime-rl",
    "prime-rl's TOML",
    "PrimeIntellect-ai/prime-rl packages/prime-rl-configs/src/prime_rl/configs/{trainer,orchestrator,rl,sft}.py",
    is_this,
    fixed={"framework": "fsdp"},
    rules=(
        KeyRule(
            f"{_keys('name')} {ORC}.algo.type max_steps trainer.max_steps",
            "model task steps reference reward",
            "grpo with an orchestrator, else sft",
            _task,
        ),
        KeyRule(
            f"{within(D, 'type num_train_gpus num_infer_gpus num_train_nodes num_infer_nodes gpus_per_node')} "
            f"{D}.num_infer_replicas {' '.join(LISTS)} {SHARE}",
            "gpus rollout",
            "the engine's GPUs come on top of the trainer's; a GPU in both lists is shared",
            _machine,
        ),
        KeyRule(
            _keys("reshard_after_forward cp tp ep dp_replicate fsdp_cpu_offload optim_cpu_offload")
            + f" {D}.nodes_per_fsdp_group",
            "framework zero tp cp ep dp-shard offload",
            "FSDP; states and activations are offloaded by default, except in files with keys of 2025",
            _layout,
        ),
        KeyRule(
            f"data.batch_size data.micro_batch_size data.seq_len {ORC}.batch_size {GROUP} seq_len "
            f"trainer.model.seq_len {ORC}.seq_len {ANSWER} {ORC}.max_off_policy_steps {ORC}.max_async_level "
            "max_async_level async_level "
            f"{ENGINE_TP} {EAGER}",
            "global-batch micro-batch seq packing samples-per-prompt padding max-prompt-tokens max-response-tokens "
            "off-policy-steps rollout-tp rollout-eager",
            "prompts of a step = samples / samples of a prompt, packed into sequences",
            _batch,
        ),
        KeyRule(
            _keys("ac.mode ac.freq optimization_dtype lora.rank lora.target_modules lora.dropout attn")
            + " "
            + _keys("experimental.lora.rank experimental.lora.target_modules experimental.lora.dropout")
            + " "
            + _keys("fused_lm_head_token_chunk_size")
            + " trainer.optim.type optim.type",
            "recompute precision adapter lora-rank lora-targets lora-dropout attention compile loss optimizer",
            "fp32 shards, bf16 compute",
            _others,
        ),
    ),
    ignored=f"""dist_timeout_seconds matmul_precision monitors wandb ckpt log slurm run output_dir clean
        dry_run env_vars resume heartbeat gc renderer
        tokenizer scheduler optim trainer.optim trainer.scheduler trainer.ckpt trainer.log trainer.gc trainer.monitors
        trainer.loss trainer.tokenizer trainer.metrics_server trainer.*_path data val eval
        {within(ORC, "train eval env renderer log monitors ckpt client tokenizer collect_* buffer heartbeat *_timeout")}
        {within(ORC, "sampling.temperature algo.* output_dir num_train_workers pad_to_multiple_of lora_name")}
        {_keys("trust_remote_code lora.alpha experimental.lora.alpha ac_offloading compile dist_timeout_seconds")}""",
    not_modelled={
        "inference weight_broadcast rollout_transport": "settings of the generation engine",
        _keys("vlm"): "a vision tower",
        _keys("ac"): "what is recomputed",
        _keys("reduce_dtype moe_* ep_comm_backend deepep_* impl cp_style debug index_cache"): "settings of the model",
        f"{ORC}.concurrency {ORC}.oversampling_factor": "how many samples are generated at a time",
        f"{ORC}.curriculum {ORC}.filter_* {ORC}.token_batch_size": "prompts that are drawn again",
        f"{ORC}.model": "the engine's model",
        "trainer.*": "training settings",
    },
)

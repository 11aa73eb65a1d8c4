"""EasyR1's settings: a YAML file, or a launch line that overrides one."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_heads_exchanged
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import AUTOCAST, take_model, take_optimizer, take_targets
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_padding, take_updates
from napkin.inputs.launch.shared import linked_path
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, natural, number, product, whole

A, R = "worker.actor", "worker.rollout"
TASKS = {"grpo": "grpo", "gae": "ppo", "rloo": "rloo"}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is EasyR1's settings."""
    return f"{A}.model" in source or (f"{A}.global_batch_size" in source and R in source)


def _base(reading: Reading) -> None:
    """Fill a launch line from the file that it names; if the file is missing, those settings are unknown."""
    path = linked_path(reading, "config")
    if path is not None:
        from napkin.inputs.launch.syntax import read_source

        reading.source.values = {**read_source(path).values, **reading.source.values}
        reading.told("config")
    elif "config" in reading.source:
        reading.omit("config", "was not found; it holds the settings that the line omits")
        for option, key in (
            ("micro-batch", f"{A}.micro_batch_size_per_device_for_update"),
            ("global-batch", f"{A}.global_batch_size"),
            ("seq", "data.max_response_length"),
            ("samples-per-prompt", f"{R}.n"),
            ("task", "algorithm.adv_estimator"),
        ):
            if key not in reading.source:
                reading.ask(option, "config")


def _task(reading: Reading) -> None:
    key = "algorithm.adv_estimator"
    kind = str(reading.source.plain(key) or "").lower()
    if kind.startswith(("reinforce", "remax")):  # no critic, like RLOO
        reading.assume("task", "rloo", key)
    elif kind in TASKS:
        reading.put("task", TASKS[kind], key)
    elif kind:
        reading.ask("task", key)
    reading.default("task", "grpo", key)
    take_model(reading, f"{A}.model.model_path")


def _layout(reading: Reading) -> None:
    """Read the GPU count, FSDP sharding, Ulysses and offload."""
    sizes = [reading.read(key, whole) for key in ("trainer.n_gpus_per_node", "trainer.nnodes")]
    where = [key for key in ("trainer.n_gpus_per_node", "trainer.nnodes") if key in reading.source]
    if where and not reading.open_among(*where):
        reading.derive("gpus", product([sizes[0] or 8, sizes[1] or 1]), *where)
    else:
        reading.default("gpus", 8, "trainer.n_gpus_per_node")
    reading.default("framework", "fsdp", f"{A}.strategy")
    key = f"{A}.fsdp.enable_full_shard"
    reading.take("zero", key, either(3, 2), default=3)
    take_heads_exchanged(reading, f"{A}.ulysses_size")
    away = [
        (what, key)
        for what, key in (
            ("optimizer", f"{A}.offload.offload_optimizer"),
            ("parameters", f"{A}.offload.offload_params"),
        )
        if reading.read(key, flag)
    ]
    if away:
        reading.put("offload", ",".join(what for what, _ in away), *[key for _, key in away])


def _batch(reading: Reading) -> None:
    """Read the batch: an update trains on global_batch_size prompts with rollout.n samples each."""
    micro = f"{A}.micro_batch_size_per_device_for_update"
    if reading.read(f"{A}.dynamic_batching", flag):
        reading.ask("micro-batch", f"{A}.dynamic_batching")
    else:
        reading.take("micro-batch", micro, whole, default=4)
    mini, drawn = f"{A}.global_batch_size", "data.rollout_batch_size"
    reading.take("logprob-micro-batch", f"{A}.micro_batch_size_per_device_for_experience", whole)
    prompts = reading.take("global-batch", mini, whole)
    reading.default("global-batch", 256, mini)
    take_updates(reading, reading.read(drawn, whole) or 0, prompts or 0, drawn, mini)
    reading.take("samples-per-prompt", f"{R}.n", natural, default=1)
    where = ("data.max_prompt_length", "data.max_response_length")
    if any(key in reading.source for key in where):
        take_longest(reading, *where, (0, 0))
    sizes = [reading.read(key, whole) for key in where]
    if all(sizes):
        reading.derive("seq", sum(size or 0 for size in sizes), *where)
    elif "seq" not in reading.inputs:
        reading.ask("seq", *where)


def _others(reading: Reading) -> None:
    """Read adapters, precision, recomputation and the optimizer."""
    key = f"{A}.model.lora.rank"
    rank = reading.read(key, natural)
    if rank:
        reading.put("adapter", "lora", key, origin="derived")
        reading.put("lora-rank", rank, key)
        targets = f"{A}.model.lora.target_modules"
        found = reading.find(targets)
        take_targets(reading, targets, found.value) if found is not None else reading.default(
            "lora-targets", "all", targets
        )
    kept = reading.read(f"{A}.fsdp.torch_dtype", fixed_dtype)
    if kept == "bf16":
        reading.put("precision", "bf16-pure", f"{A}.fsdp.torch_dtype")
    else:
        reading.default("precision", AUTOCAST, f"{A}.fsdp.torch_dtype")
    reading.take("recompute", f"{A}.model.enable_gradient_checkpointing", either("full", "none"), default="full")
    kind = str(reading.source.plain(f"{A}.optim.strategy") or "adamw")
    if kind == "adamw_bf16":
        reading.ask("optimizer", f"{A}.optim.strategy")
        reading.refuse(f"{A}.optim.strategy", "napkin does not model AdamW with Kahan summation", "optimizer")
    elif f"{A}.optim.strategy" in reading.source:
        take_optimizer(reading, f"{A}.optim.strategy")
    reading.default("optimizer", "adamw", f"{A}.optim.strategy")


def _engine(reading: Reading) -> None:
    """Read the colocated generation engine and the reference model."""
    share = reading.read(f"{R}.gpu_memory_utilization", number)
    if share:
        reading.derive("rollout", f"colocated:{share:g}", f"{R}.gpu_memory_utilization")
    else:
        reading.default("rollout", "colocated:0.6", f"{R}.gpu_memory_utilization")
    reading.take("rollout-tp", f"{R}.tensor_parallel_size", whole)
    reading.take("rollout-eager", f"{R}.enforce_eager", flag)
    take_padding(reading, f"{A}.padding_free")
    off = reading.read("algorithm.disable_kl", flag)
    used = "adapters-off" if reading.value_of("lora-rank") else "same"
    if off is not None:
        reading.put("reference", "none" if off else used, "algorithm.disable_kl")
    else:
        reading.default("reference", used, "algorithm.disable_kl")


FORMAT = LaunchFormat(
    "easy-r1",
    "EasyR1's settings",
    "hiyouga/EasyR1 examples/config.yaml, verl/workers/{actor,rollout}/config.py",
    is_this,
    fixed={"trainer": "verl"},
    keys=(
        Key("trainer.total_epochs", "epochs", number, silent=True),
        Key("trainer.max_steps", "steps", whole, silent=True),
    ),
    rules=(
        KeyRule("config", "", "the file whose settings a launch line overrides", _base),
        KeyRule(f"algorithm.adv_estimator {A}.model.model_path", "task model", "grpo, gae is ppo", _task),
        KeyRule(
            f"trainer.n_gpus_per_node trainer.nnodes {A}.strategy {A}.fsdp.enable_full_shard {A}.ulysses_size "
            f"{A}.offload.offload_optimizer {A}.offload.offload_params",
            "gpus framework zero cp offload",
            "GPUs of a node × nodes; FSDP",
            _layout,
        ),
        KeyRule(
            f"{A}.micro_batch_size_per_device_for_update {A}.micro_batch_size_per_device_for_experience "
            f"{A}.dynamic_batching {A}.global_batch_size {R}.n "
            "data.rollout_batch_size data.max_prompt_length data.max_response_length",
            "micro-batch logprob-micro-batch global-batch updates samples-per-prompt max-prompt-tokens "
            "max-response-tokens seq",
            "prompts per update; a dynamic batch counts tokens, so give --micro-batch",
            _batch,
        ),
        KeyRule(
            f"{A}.model.lora.rank {A}.model.lora.target_modules {A}.fsdp.torch_dtype {A}.optim.strategy "
            f"{A}.model.enable_gradient_checkpointing",
            "adapter lora-rank lora-targets precision recompute optimizer",
            "fp32 shards, bf16 compute",
            _others,
        ),
        KeyRule(
            f"{R}.gpu_memory_utilization {R}.tensor_parallel_size {R}.enforce_eager algorithm.disable_kl "
            f"{A}.padding_free",
            "rollout rollout-tp rollout-eager reference padding",
            "colocated",
            _engine,
        ),
    ),
    ignored=f"""data algorithm.gamma algorithm.lam algorithm.*kl_* algorithm.filter_*
        trainer m {A}.optim {A}.max_grad_norm {A}.clip_* {A}.loss_* {A}.model.trust_remote_code
        {A}.model.lora.alpha {A}.model.lora.exclude_modules {A}.fsdp.enable_rank0_init {R}.temperature {R}.top_p
        {R}.val_override_config {R}.disable_tqdm worker.reward""",
    not_modelled={
        "algorithm.online_filtering": "prompts that are drawn again",
        R: "settings of the generation engine",
        "worker.ref": "the reference model is on the same GPUs",
        "worker.critic": "the critic, a second trained model on the same GPUs",
        f"{A}.*": "training settings of the actor",
    },
)

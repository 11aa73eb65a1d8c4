"""Read RL settings: the generation engine, sequence lengths, and the reference, reward and critic models.

Files give maximum prompt and response lengths. Time depends on mean lengths, which the command line sets.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import Open, flag, natural, number, whole

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
"""verl's blocks of the actor and of the rollout engine."""
OF_FORKS = (f"{R}.n_agent", "data.n_samples")
"""Keys of samples per prompt in Search-R1's and PRIME's forks of verl and their derivatives."""


def take_longest(reading: Reading, prompt: str, answer: str, usual: tuple[int, int]) -> None:
    """Read the maximum prompt and response lengths. usual: (prompt, response) defaults, in tokens."""
    for option, key, default in (
        ("max-prompt-tokens", prompt, usual[0]),
        ("max-response-tokens", answer, usual[1]),
    ):
        found = reading.read(key, whole)
        name = reading.named(*key.split("|"))
        if found:
            reading.put(option, found, name)
        elif name in reading.source:
            reading.ask(option, name)
        elif default:
            reading.default(option, default, name)


def take_updates(reading: Reading, generated: int, trained: int, *keys: str) -> None:
    """Read the optimizer steps per batch of responses. generated, trained: samples per step and per update."""
    if trained and generated > trained and generated % trained == 0:
        reading.derive("updates", generated // trained, *keys)


def take_chunked_loss(reading: Reading, key: str, stated: bool) -> None:
    """Set a loss over parts of the tokens; over log-probabilities it is counted over all of them, and that is said.

    stated  the file states it: else it is the framework's default
    """
    if reading.value_of("task") not in ("pretrain", "sft"):
        reading.omit(key, "log-probabilities of parts of the tokens are counted as those of all tokens")
    elif stated:
        reading.put("loss", "chunked", key)
    else:
        reading.default("loss", "chunked", key)


def take_padding(reading: Reading, *keys: str) -> None:
    """Read whether sequences are padded, from the key that says that their padding is removed."""
    name = reading.named(*keys)
    free = reading.read(name, flag)
    if free is not None:
        reading.derive("padding", not free, name)


def of_verl(reading: Reading) -> None:
    """Read verl's rollout: a step generates train_batch_size prompts, an update uses ppo_mini_batch_size."""
    source = reading.source
    samples = reading.read(f"{R}.n", natural)
    prompts = reading.read(f"{A}.ppo_mini_batch_size", whole) or 256
    mini = f"{A}.ppo_mini_batch_size"
    # DAPO draws gen_batch_size prompts until train_batch_size of them differ (recipe/dapo/dapo_ray_trainer.py)
    keeps = reading.read("algorithm.filter_groups.enable", flag)
    batches = "data.train_batch_size" if keeps else "data.gen_batch_size|data.train_batch_size"
    drawn = reading.read(batches, natural)  # 0 where an asynchronous trainer counts for itself (fully_async_policy)
    forks = reading.named(*OF_FORKS)
    others = reading.read(forks, natural)
    if others and others > 1:
        _of_fork(reading, forks, others * (samples or 1), (drawn or 1024, prompts), (mini, f"{R}.n"))
        samples, drawn = None, prompts
    elif mini in source and drawn and drawn < prompts:  # one update; since July 2025 an error (workers/config/actor.py)
        reading.derive("global-batch", drawn, batches.split("|")[-1], mini)
        reading.disable(mini, f"{prompts} prompts are more than the step's {drawn}; newer verl refuses", "global-batch")
    elif mini in source:
        reading.put("global-batch", prompts, mini)
    else:
        reading.default("global-batch", prompts, mini)
    if samples:
        reading.put("samples-per-prompt", samples, f"{R}.n")
    else:
        reading.default("samples-per-prompt", 1, f"{R}.n")
    take_updates(reading, drawn or 1024, prompts, "data.train_batch_size", mini)
    take_longest(reading, "data.max_prompt_length", "data.max_response_length", (512, 512))
    take_padding(reading, "actor_rollout_ref.model.use_remove_padding")
    if not reading.read(f"{R}.log_prob_use_dynamic_bsz|{A}.use_dynamic_bsz", flag):
        reading.take("logprob-micro-batch", f"{R}.log_prob_micro_batch_size_per_gpu", whole)
    _engine_of_verl(reading)
    reading.take("rollout-tp", f"{R}.tensor_model_parallel_size", whole)
    reading.take("rollout-eager", f"{R}.enforce_eager", flag)
    penalties = (f"{A}.use_kl_loss", "algorithm.use_kl_in_reward")
    stated = [key for key in penalties if key in source]
    used = [reading.read(key, flag) for key in penalties]
    if any(used):
        reading.derive("reference", _reference(reading), *stated)
    elif source.is_mapping and "algorithm.kl_ctrl" in source and penalties[1] not in source:
        reading.assume("reference", _reference(reading), "algorithm.kl_ctrl")  # verl before March 2025: always one
    elif stated:
        reading.derive("reference", "none", *stated)
    elif "algorithm.kl_ctrl" in source:  # of the reward's penalty, which verl has had off since March 2025
        reading.ask("reference", "algorithm.kl_ctrl.kl_coef")
    else:
        reading.default("reference", "none", *penalties)
    if reading.value_of("task") == "ppo":
        take_other_model(reading, "critic", "critic.model.path")
    for updated in ("reward_model.model.update", "reward_model.prime_model.update"):
        if str(reading.source.plain(updated) or "none").lower() != "none":  # recipe/prime
            reading.refuse(updated, "the reward model is trained as well", "reward")
    if reading.read("reward_model.enable", flag):
        take_other_model(reading, "reward", "reward_model.model.path")


def _engine_of_verl(reading: Reading) -> None:
    """Read where verl generates: on the actor's GPUs, or on a pool of its own (one_step_off, fully_async)."""
    pool, hybrid = ("rollout.nnodes", "rollout.n_gpus_per_node"), "actor_rollout_ref.hybrid_engine"
    apart = reading.read(hybrid, flag) is False
    if apart or reading.source.has_any(*pool):
        _pool_of_verl(reading, hybrid, pool)
        return
    share = reading.read(f"{R}.gpu_memory_utilization", number)
    if share:
        reading.derive("rollout", f"colocated:{share:g}", f"{R}.gpu_memory_utilization")
    elif reading.find(f"{R}.gpu_memory_utilization") is not None:
        reading.ask("rollout", f"{R}.gpu_memory_utilization")
    else:
        reading.default("rollout", "colocated:0.5", f"{R}.gpu_memory_utilization")


def _pool_of_verl(reading: Reading, hybrid: str, pool: tuple[str, str]) -> None:
    """Read the engine's own pool of GPUs, which come on top of trainer's (experimental/*/config/*.yaml: 1 × 8).

    The fully asynchronous trainer takes require_batches mini-batches at a time; samples are prompts.
    """
    stated = [key for key in pool if key in reading.source]
    if not stated or reading.open_among(*pool):
        reading.ask("rollout", *(stated or [hybrid]))
        reading.ask("gpus", *(stated or [hybrid]))
        return
    nodes, each = (reading.read(key, whole) or usual for key, usual in zip(pool, (1, 8), strict=True))
    reading.derive("rollout", f"separate:{nodes * each}", *stated)
    trainers = reading.inputs.get("gpus")
    if trainers is not None and trainers.value:
        reading.derive("gpus", trainers.value + nodes * each, *trainers.where.split(", "), *stated)
    reading.derive("off-policy-steps", 1, *stated)
    reading.take("updates", "async_training.require_batches", whole)
    reading.take("samples", "rollout.total_rollout_steps", whole)


def _of_fork(reading: Reading, key: str, samples: int, sizes: tuple[int, int], where: tuple[str, str]) -> None:
    """Read samples per prompt from forks of verl, whose mini-batch counts samples.

    sizes  prompts per step, samples per mini-batch     where  keys of the mini-batch and of verl's own sample count
    """
    reading.put("samples-per-prompt", samples, key, *[one for one in where[1:] if one in reading.source])
    drawn, trained = sizes
    if trained % samples:
        reading.ask("global-batch", where[0])
        reading.omit(key, f"{trained} samples per mini-batch are not a multiple of the samples per prompt")
        return
    reading.derive("global-batch", trained // samples, where[0], key)
    take_updates(reading, drawn * samples, trained, "data.train_batch_size", where[0], key)


def of_openrlhf(reading: Reading) -> None:
    """Read OpenRLHF's rollout: a step generates rollout.batch_size prompts, an update uses train.batch_size samples."""
    samples = reading.read("rollout.n_samples_per_prompt|n_samples_per_prompt", natural) or 1
    drawn = reading.read("rollout.batch_size|rollout_batch_size", whole) or 1024
    trained = reading.value_of("global-batch") or 128
    keys = ("train.batch_size", "train_batch_size", "rollout.n_samples_per_prompt", "n_samples_per_prompt")
    if trained % samples == 0:
        reading.derive("global-batch", trained // samples, *[key for key in keys if key in reading.source])
    named = [one for one in keys[2:] if one in reading.source]
    if named:
        reading.put("samples-per-prompt", samples, *named)
    else:
        reading.default("samples-per-prompt", 1, keys[2])
    take_updates(reading, drawn * samples, trained, "rollout.batch_size", "rollout_batch_size", *keys[:2])
    if reading.source.has_any("prompt_max_len", "generate_max_len"):
        take_longest(reading, "prompt_max_len", "generate_max_len", (0, 0))
    take_padding(reading, "ds.packing_samples", "packing_samples")
    share = reading.read("vllm.gpu_memory_utilization|vllm_gpu_memory_utilization", number)
    shared = reading.read("train.colocate_all|colocate_all_models", flag)
    engines = reading.read("vllm.num_engines|vllm_num_engines", natural)
    ranks = reading.read("vllm.tensor_parallel_size|vllm_tensor_parallel_size", whole)
    if shared and engines:
        reading.derive("rollout", f"colocated:{share or 0.95:g}", *_there(reading, "gpu_memory_utilization"))
    elif engines:
        reading.derive("rollout", f"separate:{engines * (ranks or 1)}", *_there(reading, "num_engines"))
        trainers = reading.value_of("gpus")
        if trainers:
            reading.derive("gpus", trainers + engines * (ranks or 1), *_there(reading, "num_engines"))
    if ranks:
        reading.put("rollout-tp", ranks, *_there(reading, "tensor_parallel_size"))
    reading.take("rollout-eager", "vllm.enforce_eager|vllm_enforce_eager", flag)
    sleeps = ("ds.enable_sleep", "deepspeed_enable_sleep")
    take_moved(reading, {"optimizer": next((key for key in sleeps if key in reading.source), sleeps[0])})
    weight = reading.read("algo.kl.init_coef|init_kl_coef", number)
    if weight is not None:
        used = _reference(reading) if weight else "none"
        # older releases (v0.4.1, cli/train_ppo_ray.py) and their forks load a reference whatever its weight
        say = reading.derive if weight or "init_kl_coef" not in reading.source else reading.assume
        say("reference", used, *[k for k in ("algo.kl.init_coef", "init_kl_coef") if k in reading.source])
    for option, role in (("reward", "reward"), ("critic", "critic")):
        if option == "reward" or reading.value_of("task") == "ppo":
            take_other_model(reading, option, f"{role}.model_name_or_path", f"{role}_pretrain")


def of_trl(reading: Reading, sizes: tuple[int, int], usual_beta: float | None = None) -> None:
    """Read TRL's GRPO, whose batch counts responses.

    sizes  default prompt and response lengths, in tokens      usual_beta  of a fork: TRL's depends on its release
    """
    samples = reading.read("num_generations", whole)
    if samples:
        reading.put("samples-per-prompt", samples, "num_generations")
    else:
        usual = 2 if reading.value_of("task") == "rloo" else 8
        reading.default("samples-per-prompt", usual, "num_generations")
    take_longest(reading, "max_prompt_length", "max_completion_length", sizes)
    if not take_engine_of_trl(reading) and (served := _server(reading)):
        reading.ask("rollout", served)
    weight = reading.read("beta", number)
    if weight is not None:
        reading.derive("reference", _reference(reading) if weight else "none", "beta")
    elif usual_beta and "beta" not in reading.source:
        reading.default("reference", _reference(reading), "beta")


def take_engine_of_trl(reading: Reading) -> bool:
    """Read the vLLM that shares the trainer's GPUs; return whether there is one."""
    if not (reading.read("use_vllm", flag) and str(reading.source.plain("vllm_mode") or "").lower() == "colocate"):
        return False
    share = reading.read("vllm_gpu_memory_utilization", number) or 0.3
    reading.derive("rollout", f"colocated:{share:g}", "vllm_mode", "vllm_gpu_memory_utilization")
    reading.take("rollout-tp", "vllm_tensor_parallel_size", whole)
    reading.take("rollout-eager", "vllm_enforce_eager", flag)  # ms-swift's
    return True


def take_moved(reading: Reading, keys: Mapping[str, str]) -> None:
    """Read which states (→ the switch of each) wait on the host while an engine on the trainer's GPUs generates."""
    if not str(reading.value_of("rollout") or "").startswith("colocated"):
        return
    if reading.open_among(*keys.values()):
        reading.ask("rollout-offload", *keys.values())
    elif moved := [state for state, key in keys.items() if reading.read(key, flag)]:
        reading.put("rollout-offload", ",".join(moved), *keys.values())


def _server(reading: Reading) -> str:
    """Return the key that says that a vLLM server generates, on GPUs that the file does not count; "" if none."""
    if str(reading.source.plain("vllm_mode") or "").lower() == "server":
        return "vllm_mode"
    keys = (key for key, value in reading.source.values.items() if key.startswith("vllm_server") and value.value)
    return next(keys, "") if reading.read("use_vllm", flag) else ""


def _reference(reading: Reading) -> str:
    """Return the source of reference log-probabilities: the model with adapters disabled, or a copy."""
    return "adapters-off" if reading.value_of("lora-rank") else "same"


def _there(reading: Reading, name: str) -> list[str]:
    """Return OpenRLHF's engine key in the file's spelling."""
    keys = (f"vllm.{name}", f"vllm_{name}")
    return [key for key in keys if key in reading.source] or [keys[0]]


def take_other_model(reading: Reading, option: str, *keys: str) -> None:
    """Read another model if napkin has its preset; otherwise the key stays not modeled."""
    from napkin.inputs.launch.names import model_of

    found = reading.find(*keys)
    if found is not None and isinstance(found.value, Open) and found.value.rest:  # $HOME/models/Qwen2.5-3B
        name, _ = model_of(found.value.rest)
        if name:
            reading.assume(option, name, *keys)
        return
    if found is None or not isinstance(found.value, str):
        return
    name, _ = model_of(found.value)
    if name is not None:
        reading.put(option, name, *keys)
    else:
        reading.omit(
            next(key for key in keys if key in reading.source), f"--{option}: a model that napkin does not know"
        )

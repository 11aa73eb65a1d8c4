"""slime's launch scripts: RL and SFT with the actor in Megatron-LM, and responses by SGLang."""

from __future__ import annotations

import re

from napkin.inputs.launch.checks import check_gpus
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.megatron import model as sizes
from napkin.inputs.launch.names import MEGATRON, take_model
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_longest, take_updates
from napkin.inputs.launch.shapes import layers_of
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, whole, word

ESTIMATORS = {"grpo": "grpo", "gspo": "grpo", "cispo": "grpo", "ppo": "ppo",
              "reinforce_plus_plus": "rloo", "reinforce_plus_plus_baseline": "rloo"}  # fmt: skip
"""advantage_estimator → the task with the same work: ppo has a critic, the others none."""
ONLY = ("only_train_params_name_list", "freeze_params_name_list", "freeze_indexer")
"""Options that leave weights untrained."""
QAT = "OPEN_TRAINING_INT4_FAKE_QAT_FLAG"
"""The variable that rounds trained weights to int4 in each forward pass (docs/en/advanced/low-precision.md)."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a launch line is slime's or a fork's."""
    return (
        source.syntax == "shell"
        and "rollout_batch_size" in source
        and source.has_any("num_rollout", "num_epoch")
        and source.has_any("actor_num_gpus_per_node", "actor_num_nodes", "hf_checkpoint")
    )


def _model(reading: Reading) -> None:
    """Read the model by its checkpoint's name, whose config.json slime holds the sizes against, or by its sizes."""
    take_model(reading, "hf_checkpoint")
    if reading.inputs.pop("quantized", None) is not None:
        reading.omit("hf_checkpoint", "the engine's weights are quantized; those that are trained are not")
    named, stated = layers_of(reading.value_of("model")), reading.read("num_layers", whole)
    if reading.value_of("model") is not None and (stated is None or named == stated):
        reading.told(*sizes.SHAPE.split(), "tokenizer_type", "tokenizer_model")
    elif stated is not None:
        sizes.take_shape(reading)
        sizes.take_decoder(reading, "tokenizer_type", "tokenizer_model", "hf_checkpoint")
        reading.told("hf_checkpoint")
    elif "model" not in reading.inputs:
        reading.ask("model", "hf_checkpoint")


def _task(reading: Reading) -> None:
    """Read the task: SFT by its loss, else the advantage estimator's."""
    loss = str(reading.source.plain("loss_type") or "policy_loss").lower()
    estimator = "advantage_estimator"
    if loss == "sft_loss":
        reading.put("task", "sft", "loss_type")
    elif loss != "policy_loss" or reading.open_among("loss_type", estimator):
        reading.ask("task", *reading.written("loss_type", estimator))
    elif reading.find(estimator) is None:
        reading.default("task", "grpo", estimator)
    else:
        found = reading.read(estimator, word(ESTIMATORS))
        say = reading.assume if found == "rloo" else reading.put
        say("task", found, estimator)
    backend = str(reading.source.plain("train_backend") or "megatron").lower()
    if backend != "megatron":
        reading.refuse("train_backend", f"napkin does not read slime's {backend[:20]!r} backend", "zero")


def _layout(reading: Reading) -> None:
    """Read the actor's GPUs and layout: the distributed optimizer is always on (megatron_utils/arguments.py)."""
    nodes, each = reading.read("actor_num_nodes", whole), reading.read("actor_num_gpus_per_node", whole)
    keys = ("actor_num_nodes", "actor_num_gpus_per_node")
    if reading.source.has_any(*keys):
        reading.derive("gpus", (nodes or 1) * (each or 8), *keys)
    else:
        reading.default("gpus", 8, *keys)
    core.take_division(reading, zero=1)
    core.take_overlap(reading, omitted=False)
    core.take_tensor_overlap(reading, omitted=False)
    core.take_expert_slices(reading, "num_experts")
    core.take_offload(reading)
    check_gpus(reading, "actor_num_gpus_per_node")


def _batch(reading: Reading) -> None:
    """Read the batch. global_batch_size counts responses; a step trains on those to rollout_batch_size prompts."""
    dynamic = "use_dynamic_batch_size"
    if reading.read(dynamic, flag):
        reading.ask("micro-batch", dynamic, "max_tokens_per_gpu")
        if reading.value_of("task") != "sft":
            reading.take("micro-batch-tokens", "max_tokens_per_gpu", whole)
            reading.derive("padding", False, dynamic)  # slime/backends/megatron_utils/data.py, get_batch
    else:
        reading.take("micro-batch", "micro_batch_size", whole, default=1)
    prompts = reading.read("rollout_batch_size", whole)
    samples = reading.read("n_samples_per_prompt", whole) or 1
    trained, times = reading.read("global_batch_size", whole), reading.read("num_steps_per_rollout", whole)
    drawn = (prompts or 0) * samples
    if times and drawn:
        trained = drawn // times
    keys = ("global_batch_size", "num_steps_per_rollout", "rollout_batch_size", "n_samples_per_prompt")
    where = [key for key in keys if key in reading.source]
    each = 1 if reading.value_of("task") == "sft" else samples
    if not trained or reading.open_among(*where) or trained % each:
        reading.ask("global-batch", *where)
    else:
        reading.derive("global-batch", trained // each, *where)
    if reading.value_of("task") == "sft":
        reading.take("epochs", "num_epoch", number, silent=True)
        reading.ask("seq", "max_tokens_per_gpu")
        return
    if "n_samples_per_prompt" in reading.source:
        reading.put("samples-per-prompt", samples, "n_samples_per_prompt")
    else:
        reading.default("samples-per-prompt", 1, "n_samples_per_prompt")
    take_updates(reading, drawn, trained or 0, *where)
    if not reading.take("steps", "num_rollout", whole, silent=True):
        reading.take("epochs", "num_epoch", number, silent=True)
    reading.told("num_epoch")
    _lengths(reading)


def _lengths(reading: Reading) -> None:
    """Read the lengths: the context holds prompt and response, and without it or a longest prompt the sum is open."""
    prompt, answer, both = "rollout_max_prompt_len", "rollout_max_response_len", "rollout_max_context_len"
    take_longest(reading, prompt, answer, (0, 0))
    if reading.take("seq", both, whole, silent=True):
        return
    parts = [reading.value_of("max-prompt-tokens"), reading.value_of("max-response-tokens")]
    if all(parts):
        reading.derive("seq", sum(parts), prompt, answer)
    else:
        reading.ask("seq", *(key for key in (prompt, answer, both) if key in reading.source))


def _rollout(reading: Reading) -> None:
    """Read the engines: on the actor's GPUs, or on others; and the reference, which KL needs."""
    if reading.value_of("task") == "sft":
        return
    share, others = reading.read("sglang_mem_fraction_static", number), reading.read("rollout_num_gpus", whole)
    actors = reading.value_of("gpus")
    if reading.read("colocate", flag):
        _offload(reading)
        if share and (others is None or others == actors):
            reading.derive("rollout", f"colocated:{share:g}", "colocate", "sglang_mem_fraction_static")
        else:
            reading.ask("rollout", "sglang_mem_fraction_static", "rollout_num_gpus")
    elif others:
        reading.derive("rollout", f"separate:{others}", "rollout_num_gpus")
        if actors:
            reading.derive("gpus", actors + others, "actor_num_nodes", "actor_num_gpus_per_node", "rollout_num_gpus")
    else:
        reading.ask("rollout", "rollout_num_gpus")
    pipes = reading.read("sglang_pp_size|sglang_pipeline_parallel_size", whole) or 1
    engine = reading.read("rollout_num_gpus_per_engine", whole)
    if engine:
        reading.derive("rollout-tp", engine // pipes or 1, "rollout_num_gpus_per_engine")
    else:
        reading.default("rollout-tp", 1, "rollout_num_gpus_per_engine")
    reading.take("rollout-eager", "sglang_disable_cuda_graph", flag)
    if reading.source.program == "train_async.py":
        reading.derive("off-policy-steps", 1, "train_async.py")
    weights = [key for key in ("use_kl_loss", "kl_coef") if reading.read(key, number if key == "kl_coef" else flag)]
    if weights:
        reading.derive("reference", "same", *weights)
        reading.omit("ref_load", "the reference's weights wait on the host, and take the actor's place for its passes")
    else:
        reading.default("reference", "none", "use_kl_loss", "kl_coef")


def _offload(reading: Reading) -> None:
    """Read what waits on the host while engines on the actor's GPUs generate: the actor, unless it stays (arguments.py:
    offload_train and offload_rollout are the default with colocate)."""
    if reading.read("no_offload_train", flag):
        reading.told("no_offload_train")
    else:
        reading.derive("rollout-offload", "optimizer,parameters", "colocate")
    if reading.read("no_offload_rollout", flag):
        reading.refuse("no_offload_rollout", "the engine keeps its memory while the actor trains", "rollout")


def _others(reading: Reading) -> None:
    core.take_precision(reading, MEGATRON)
    core.take_optimizer(reading)
    core.take_dropout(reading)
    core.take_attention(reading)
    core.take_loss(reading)
    core.take_gradients(reading)
    for key in ONLY:
        if reading.source.states(key) and reading.source.plain(key) is not False:
            reading.refuse(key, "only part of the weights is trained", "freeze-layers")
    if re.search(rf"{QAT}\W+1\b", " ".join(reading.source.command)):  # in Ray's --runtime-env-json
        reading.omit(QAT, "trained weights are rounded to int4 in each forward pass; their copies are not counted")
    if reading.read("enable_mtp_training", flag):
        core.take_predictions(reading)
    else:
        reading.told("mtp_num_layers")  # its layers are not updated


FORMAT = LaunchFormat(
    "slime",
    "slime's launch scripts",
    "THUDM/slime slime/utils/arguments.py, slime/backends/megatron_utils/arguments.py, slime/ray/placement_group.py",
    is_this,
    fixed={"framework": "megatron-core", "implementation": "megatron"},
    keys=tuple(one for one in core.LAYOUT if one.option not in ("micro-batch", "global-batch", "seq", "steps")),
    rules=(
        KeyRule(
            f"hf_checkpoint {sizes.SHAPE}",
            "model",
            "the checkpoint's name, if its layers are those stated; else the sizes",
            _model,
        ),
        KeyRule("loss_type advantage_estimator train_backend", "task", "sft_loss: SFT; ppo has a critic", _task),
        KeyRule(
            "actor_num_nodes actor_num_gpus_per_node sequence_parallel recompute_activations recompute_granularity "
            "recompute_method recompute_num_layers recompute_modules use_distributed_optimizer "
            f"{core.OVERLAPPED}",
            "gpus zero sp recompute async-dp",
            "nodes × GPUs of the actor; the distributed optimizer is always on",
            _layout,
        ),
        KeyRule(
            "rollout_batch_size n_samples_per_prompt global_batch_size num_steps_per_rollout micro_batch_size "
            "use_dynamic_batch_size max_tokens_per_gpu num_rollout num_epoch rollout_max_prompt_len "
            "rollout_max_response_len rollout_max_context_len",
            "global-batch updates micro-batch micro-batch-tokens padding samples-per-prompt steps epochs "
            "max-prompt-tokens max-response-tokens seq",
            "the global batch counts responses, a dynamic batch tokens",
            _batch,
        ),
        KeyRule(
            "colocate no_offload_train no_offload_rollout rollout_num_gpus rollout_num_gpus_per_engine "
            "sglang_mem_fraction_static sglang_pp_size sglang_disable_cuda_graph use_kl_loss kl_coef ref_load",
            "rollout rollout-tp rollout-eager rollout-offload off-policy-steps reference gpus",
            "engines on the actor's GPUs, which it leaves meanwhile, or on others, which count too; train_async.py is "
            "one step behind",
            _rollout,
        ),
        KeyRule(
            "bf16 fp16 fp8_format optimizer hidden_dropout attention_dropout attention_backend "
            f"{' '.join(core.FLASH)} transformer_impl cross_entropy_loss_fusion cross_entropy_fusion_impl "
            f"mtp_num_layers enable_mtp_training {' '.join(ONLY)}",
            "precision optimizer dropout attention loss mtp",
            "bf16 with fp32 gradient buffers, unless fp16",
            _others,
        ),
    ),
    ignored=core.IGNORED
    + """ prompt_data input_key label_key metadata_key tool_key multimodal_keys apply_chat_template* rollout_shuffle
        rollout_seed rollout_temperature rollout_top_* rollout_stop* rollout_skip* rm_* reward_key custom_rm_path
        custom_generate* custom_reward* group_rm balance_data balance_by_flops eval* n_samples_per_eval_prompt
        kl_loss_coef kl_loss_type entropy_coef eps_clip* value_clip gamma lambd normalize_advantages use_wandb
        use_tensorboard use_tis tis_clip* disable_*normalization disable_compute* skip_eval* ref_ckpt_step ref_load
        runtime_env_json address num_gpus_per_node debug_train_only calculate_per_token_loss seq_length
        max_position_embeddings dynamic_sampling_filter_path use_fault_tolerance rollout_health_check* train_env_vars
        no_save_optim accumulate_allreduce_grads_in_fp32 start_rollout_id""",
    not_modelled={
        "sglang_* rollout_function_path rollout_external* use_rollout*": "settings of the generation engine",
        "over_sampling_batch_size partial_rollout mask_offpolicy* buffer_filter_path": "sample generation",
        "log_probs_max_tokens_per_gpu log_probs_chunk_size": "batch size of log-probability passes",
        "offload* no_offload* update_weight* release_train keep_old_actor": "placement and transfer of weights",
        "critic_* num_critic_only_steps": "placement and batch of the critic",
        "opd_* use_opd": "a teacher next to the reward",
        "use_routing_replay": "token routing to experts",
        "overlap_cpu_optimizer*": "placement and format of optimizer states",
    }
    | core.NOT_MODELLED,
    refused={"lora_rank": "trains adapters, which napkin does not read in slime's lines (miles)"},
)

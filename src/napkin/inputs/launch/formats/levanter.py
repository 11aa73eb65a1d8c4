"""Levanter's YAML, for TPUs and GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import AUTOCAST, FP32, PURE, model_of, take_model, take_optimizer, take_targets
from napkin.inputs.launch.precisions import adapters
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shapes import vocabulary_of
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import flag, number, whole
from napkin.record import record

M, T = "model", "trainer"
SIZES = ("seq_len", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")
LLAMA = (
    *("max_position_embeddings", "hidden_size", "intermediate_size"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
)


@record
class ModelClass:
    """A class of src/levanter/models.

    model_type  transformers'
    sizes       defaults of SIZES
    fields      transformers' fields for SIZES; "": it has none
    head_dim    the field of the head size; "": it has none
    tied        default of tie_word_embeddings
    scaled      its inner width is a multiple of its width, by default (mlp_scale)
    more        (dimension, key, transformers' field, default) of further sizes"""

    model_type: str
    sizes: tuple[int, ...]
    fields: tuple[str, ...] = LLAMA
    head_dim: str = "head_dim"
    tied: bool = False
    scaled: bool = False
    more: tuple[tuple[str, str, str, int], ...] = ()


CLASSES: Mapping[str, ModelClass] = {
    "gpt2": ModelClass(
        "gpt2",
        (1024, 768, 3072, 12, 12, 12),
        ("n_positions", "n_embd", "n_inner", "n_layer", "n_head", ""),
        head_dim="",
        tied=True,
        scaled=True,
    ),
    "llama": ModelClass("llama", (2048, 4096, 11008, 32, 32, 32)),
    "mistral": ModelClass("mistral", (8192, 4096, 14336, 32, 32, 8)),
    "mixtral": ModelClass(
        "mixtral",
        (8192, 4096, 14336, 32, 32, 8),
        more=(
            ("experts", "n_routed_experts", "num_local_experts", 8),
            ("top_k", "num_experts_per_tok", "num_experts_per_tok", 2),
        ),
    ),
    "olmo2": ModelClass("olmo2", (4096, 4096, 11008, 32, 32, 32)),
    "qwen": ModelClass("qwen2", (2048, 4096, 11008, 32, 32, 32)),
    "qwen3": ModelClass("qwen3", (2048, 4096, 11008, 32, 32, 32)),
}
"""The classes by model.type."""
DTYPES = {"f32": "fp32", "float32": "fp32", "full": "fp32", "bf16": "bf16", "bfloat16": "bf16", "half": "bf16"}
OF_TUNING = (
    "supervised_data", "chat_train_urls", "dataset_type", "max_tune_length", "messages_field", "model_name_or_path",
)  # fmt: skip
POLICIES = {("fp32", "bf16"): AUTOCAST, ("bf16", "bf16"): PURE, ("fp32", "fp32"): FP32}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Levanter's configuration of training."""
    return source.has_any(f"{T}.train_batch_size", f"{T}.num_train_steps") and source.has_any(
        f"{T}.mp", f"{T}.tensor_parallel_axes", f"{T}.fsdp_axis", f"{T}.model_axis_size"
    )


def _named_data(source: LaunchFile) -> LaunchFile:
    """Return the source with a data set's name in the block of data (examples/alpaca)."""
    return source.renamed({"data": "data.id"}) if isinstance(source.plain("data"), str) else source


def _model(reading: Reading) -> None:
    """Read the checkpoint that training starts from, or the sizes of a class, with its defaults."""
    source = reading.source
    start = reading.named("initialize_from_hf", "model_name_or_path")
    stated = reading.find(start)
    named = stated is not None and isinstance(stated.value, str) and stated.value.lower() not in ("true", "false")
    kind = str(source.plain(f"{M}.type") or "gpt2").lower()
    sized = source.has_any(*(f"{M}.{name}" for name in SIZES[1:]))
    if named and (start == "model_name_or_path" or reading.read("use_hf_model_config", flag) or not sized):
        take_model(reading, start)
    elif kind not in CLASSES:
        reading.ask("model", f"{M}.type")
        reading.refuse(f"{M}.type", f"napkin does not know Levanter's model {kind[:40]!r}", "model")
    else:
        _class(reading, CLASSES[kind])
    length = next(
        (key for key in ("train_seq_len", f"{M}.seq_len", "max_tune_length", "max_train_length") if key in source), ""
    )
    if length:
        reading.take("seq", length, whole)
    elif kind in CLASSES and not named:
        reading.default("seq", CLASSES[kind].sizes[0], f"{M}.seq_len")
    else:
        reading.ask("seq", "train_seq_len")
    tuned = [key for key in OF_TUNING if key in source]
    reading.derive("task", "sft", *tuned) if tuned else reading.default("task", "pretrain", OF_TUNING[0])


def _class(reading: Reading, made: ModelClass) -> None:
    """Read the sizes of a class, and the vocabulary of the tokenizer."""
    source = reading.source
    sizes = {name: reading.read(f"{M}.{name}", whole) or made.sizes[at] for at, name in enumerate(SIZES)}
    fields = dict(zip(SIZES, made.fields, strict=True))
    if made.scaled and f"{M}.intermediate_dim" not in source:
        sizes["intermediate_dim"] = (reading.read(f"{M}.mlp_scale", whole) or 4) * sizes["hidden_dim"]
    if not fields["num_kv_heads"]:
        sizes["num_kv_heads"] = sizes["num_heads"]
    words = ("layers", "hidden", "heads", "kv_heads", "ffn")
    keys = ("num_layers", "hidden_dim", "num_heads", "num_kv_heads", "intermediate_dim")
    for word, key in zip(words, keys, strict=True):
        reading.dimension(word, sizes[key], f"{M}.{key}")
    tied = reading.read(f"{M}.tie_word_embeddings", flag)
    reading.dimension("tied", made.tied if tied is None else tied, f"{M}.tie_word_embeddings")
    tokenizer = str(source.plain("data.tokenizer") or source.plain("tokenizer") or "")
    blocks = [key for key, one in source.values.items() if key.startswith("data.") and one.key != "data"]
    usual = bool(blocks) and not source.has_any(*OF_TUNING)
    vocab = vocabulary_of(model_of(tokenizer or "gpt2")[0]) if tokenizer or usual else None  # src/levanter/data/text.py
    reading.dimension("vocab", vocab, "data.tokenizer", "tokenizer")
    head = reading.read(f"{M}.head_dim", whole)
    reading.dimension("head_dim", head, f"{M}.head_dim")
    reading.describe(*(f"{M}.{key}" for key in keys), f"{M}.type")
    if vocab is None:
        reading.ask("model", "data.tokenizer")
        reading.shape.clear()
        return
    found = {field: sizes[name] for name, field in fields.items() if field}
    if head and made.head_dim:
        found[made.head_dim] = head
    for word, key, field, usually in made.more:
        found[field] = reading.read(f"{M}.{key}", whole) or usually
        reading.dimension(word, found[field], f"{M}.{key}")
    common = {"model_type": made.model_type, "vocab_size": vocab, "tie_word_embeddings": reading.shape["tied"]}
    reading.build(lambda: {**common, **found})


def _layout(reading: Reading) -> None:
    """Read the sharding: over all devices, which the launcher knows, unless fsdp_axis is null."""
    axis, model_axis = f"{T}.fsdp_axis", f"{T}.model_axis_size"
    if axis in reading.source and reading.find(axis) is None:
        reading.put("zero", 0, axis)
    else:
        reading.derive("zero", 3, axis) if axis in reading.source else reading.default("zero", 3, axis)
    reading.take("tp", model_axis, whole)
    for key in (f"{T}.replica_ici_axis_size", f"{T}.replica_dcn_axis_size"):
        if (reading.read(key, whole) or 1) > 1:
            reading.ask("dp-shard", key)
    reading.ask("gpus", f"{T}.num_devices")  # all that JAX sees


def _batch(reading: Reading) -> None:
    """Read the batch: train_batch_size over all devices, at once unless per_device_parallelism says how many."""
    total, each = f"{T}.train_batch_size", f"{T}.per_device_parallelism"
    stated = reading.find(total)
    if stated is not None and isinstance(stated.value, list):
        reading.ask("global-batch", total)
        reading.omit(total, "a batch that grows")
    elif reading.take("global-batch", total, whole) is None:
        reading.default("global-batch", 512, total)
    micro = reading.read(each, lambda value: None if value == -1 else whole(value))
    if micro:
        reading.put("micro-batch", micro, each)
    else:
        reading.default("grad-accum", 1, each) if each not in reading.source else reading.derive("grad-accum", 1, each)


def _others(reading: Reading) -> None:
    """Read the precision, recomputation, adapters and the optimizer."""
    key = f"{T}.mp"
    text = str(reading.source.plain(key) or "f32")
    parts = {one[0]: DTYPES.get(two, two) for one, two in re.findall(r"\b([pc]\w*)=(\w+)", text)}
    usual = DTYPES.get(text, "fp32" if parts else text)
    param, compute = parts.get("p", usual), parts.get("c", usual)
    policy = POLICIES.get((param, compute))
    if reading.source.states("lora") or "peft_save_path" in reading.source:  # src/levanter/main/lora_lm.py
        reading.put("adapter", "lora", "lora.r" if "lora" in reading.source else "peft_save_path", origin="derived")
        reading.take("lora-rank", "lora.r", whole, default=8)
        targets = reading.find("lora.target_modules")
        if targets is not None:
            take_targets(reading, "lora.target_modules", targets.value)
        reading.default("lora-targets", "all", "lora.target_modules")
        reading.take("lora-dropout", "lora.dropout", number)
        policy = adapters(compute, param, compute)  # trainer_state.py, cast_params_by_trainability
    if reading.open_among(key) or policy is None:
        reading.ask("precision", key)
    elif key in reading.source:
        reading.derive("precision", policy, key)
    reading.default("precision", FP32, key)
    again = f"{M}.gradient_checkpointing"
    kind = reading.find(again)
    if kind is not None and str(kind.value).lower() in ("true", "false", "recompute"):
        reading.put("recompute", "none" if str(kind.value).lower() == "false" else "full", again)
    elif again in reading.source:
        reading.ask("recompute", again)
        reading.refuse(again, "saves parts of a block that napkin does not model", "recompute")
    reading.default("recompute", "full", again)
    if str(reading.source.plain("optimizer.type") or "adam").lower() == "adam":  # optax.adamw
        found = "optimizer.type" in reading.source
        reading.put("optimizer", "adamw", "optimizer.type") if found else reading.default(
            "optimizer", "adamw", "optimizer.type"
        )
    else:
        take_optimizer(reading, "optimizer.type")


FORMAT = LaunchFormat(
    "levanter",
    "Levanter's YAML",
    "stanford-crfm/levanter src/levanter/{trainer,trainer_state}.py, src/levanter/models, src/levanter/optim",
    is_this,
    keys=(Key(f"{T}.num_train_steps", "steps", whole, 400_000),),
    rules=(
        KeyRule(
            f"{M}.type {' '.join(f'{M}.{name}' for name in SIZES)} {M}.head_dim {M}.mlp_scale {M}.tie_word_embeddings "
            f"{M}.n_routed_experts {M}.num_experts_per_tok data.tokenizer tokenizer initialize_from_hf "
            "model_name_or_path use_hf_model_config train_seq_len max_tune_length max_train_length",
            "model seq task",
            "the checkpoint that is named, or a class's sizes with its defaults",
            _model,
        ),
        KeyRule(
            f"{T}.fsdp_axis {T}.model_axis_size {T}.replica_ici_axis_size {T}.replica_dcn_axis_size {T}.num_devices",
            "zero tp dp-shard gpus",
            "sharded over all devices, which the file does not count",
            _layout,
        ),
        KeyRule(
            f"{T}.train_batch_size {T}.per_device_parallelism",
            "global-batch micro-batch grad-accum",
            "over all devices; -1 takes the batch at once",
            _batch,
        ),
        KeyRule(
            f"{T}.mp {M}.gradient_checkpointing optimizer.type lora.r lora.target_modules lora.dropout peft_save_path",
            "precision recompute optimizer adapter lora-rank lora-targets lora-dropout",
            "p is the weights' type and their states', c the computation's",
            _others,
        ),
    ),
    ignored=f"""data optimizer tokenizer epoch z_loss_weight eval_* hf_* merged_* messages_field input_role output_role
        chat_train_urls supervised_data dataset_type lora.alpha trust_remote_code mixture_* initialize_from*
        {within(T, "tracker wandb checkpointer id seed steps_per_eval max_eval_batches per_device_eval_parallelism")}
        {within(T, "batch_axis load_checkpoint* initialize_from log_* profiler* ray distributed shutdown_* watch")}
        {within(T, "crash_on_* allow_* require_accelerator jax_config")}
        {within(M, "initializer_range *_pdrop layer_norm_epsilon scale_attn_* activation_function rope*")}
        {M}.reference_*""",
    not_modelled={
        f"{T}.tensor_parallel_axes {T}.axis_resources {T}.parameter_axis_resources": "which dimensions are divided",
        f"{M}.flash_attention* {M}.use_flash_attention {M}.attn_backend {M}.upcast_attn": "the attention kernel",
        f"{M}.use_bias {M}.use_layer_norm_weight {M}.scan_layers {M}.hybrid_norm {M}.cross_entropy*": "model settings",
        f"{M}.*": "model settings",
        f"{T}.quantization {T}.model_averaging {T}.*": "training settings",
    },
    translated=_named_data,
)

"""LitGPT's YAML."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.names import model_of, take_optimizer
from napkin.inputs.launch.precisions import adapters
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, whole, word

OWN: dict[str, dict[str, int | bool]] = {
    "micro-llama-300m": {
        "layers": 12,
        "hidden": 1024,
        "heads": 16,
        "kv_heads": 4,
        "ffn": 5632,
        "vocab": 32_000,
        "positions": 2048,
        "gated": True,
        "tied": False,
    },
}
"""Models by their names in litgpt/config.py that only LitGPT uses."""
LORA = {
    "query": (True, ["q"]),
    "key": (False, ["k"]),
    "value": (True, ["v"]),
    "projection": (False, ["o"]),
    "mlp": (False, ["gate", "up", "down"]),
    "head": (False, ["lm_head"]),
}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is LitGPT's YAML."""
    return source.has_any("train.global_batch_size", "train.micro_batch_size", "train.max_tokens") and source.has_any(
        "checkpoint_dir", "model_name", "model_config", "lora_r", "precision", "devices"
    )


def _pretrains(reading: Reading) -> bool:
    return reading.source.has_any(
        "model_name", "initial_checkpoint_dir", "model_config"
    ) and not reading.source.has_any("lora_r", "checkpoint_dir")


def _model(reading: Reading) -> None:
    if reading.find("model_config.n_layer") is not None:
        _described(reading)
        return
    key = "model_name" if reading.find("model_name") is not None else "checkpoint_dir"
    name = reading.source.plain(key)
    if not isinstance(name, str):
        reading.ask("model", "model_name", "checkpoint_dir")
        return
    own = OWN.get(name.lower())
    if own is not None:
        reading.shape.update(own)
        reading.describe(key)
        reading.config = {
            "model_type": "llama",
            "num_hidden_layers": own["layers"],
            "hidden_size": own["hidden"],
            "num_attention_heads": own["heads"],
            "num_key_value_heads": own["kv_heads"],
            "intermediate_size": own["ffn"],
            "vocab_size": own["vocab"],
            "max_position_embeddings": own["positions"],
            "tie_word_embeddings": False,
        }
        return
    text = "/".join(name.strip("/").split("/")[-2:]) if key == "checkpoint_dir" else name
    found, _ = model_of(text)
    reading.put("model", found, key) if found else reading.ask("model", key, given=text)


def _described(reading: Reading) -> None:
    block = "model_config"
    for one, key in (
        ("layers", "n_layer"),
        ("hidden", "n_embd"),
        ("heads", "n_head"),
        ("kv_heads", "n_query_groups"),
        ("ffn", "intermediate_size"),
        ("vocab", "padded_vocab_size"),
    ):
        reading.dimension(one, reading.read(f"{block}.{key}", whole), f"{block}.{key}")
    reading.describe(f"{block}.n_layer", f"{block}.n_embd")
    from napkin.inputs.foreign import translated

    data = reading.source.document.data[block]
    reading.build(lambda: (translated(data, reading.source.name) or (None, ""))[0])


def _machine(reading: Reading) -> None:
    """Read the GPU count, devices × num_nodes, and sharding and recomputation.

    More than one GPU is FSDP. Full finetuning recomputes every block; pretraining recomputes none.
    """
    value = reading.find("devices")
    count = reading.read("devices", whole)
    nodes = reading.read("num_nodes", whole) or 1
    if value is None:
        reading.default("gpus", None if _pretrains(reading) else 1, "devices")
    elif count is None:
        reading.ask("gpus", "devices")
    else:
        reading.derive("gpus", count * nodes, "devices", "num_nodes")
    many = (reading.value_of("gpus") or 2) > 1
    known = reading.value_of("gpus") is not None
    full = not _pretrains(reading) and "lora_r" not in reading.source
    if _pretrains(reading):
        reading.assume("zero", 3 if many else 0, "devices") if not known else reading.derive(
            "zero", 3 if many else 0, "devices"
        )
        reading.derive("compile", True, "model_name")
        if many:
            reading.ask("dp-shard", "devices")
    elif known:
        reading.derive("zero", 3 if many else 0, "devices")
    if full:
        reading.derive("recompute", "full" if many and known else "none", "devices")
    else:
        reading.derive("recompute", "none", "model_name" if _pretrains(reading) else "lora_r")


def _adapter(reading: Reading) -> None:
    if not any(key.startswith("lora_") for key in reading.source.values):
        return
    reading.put("adapter", "lora", "lora_r", origin="derived")
    reading.take("lora-rank", "lora_r", whole, default=8)
    take_adapter_dropout(reading, "lora_dropout", 0.05)  # litgpt/finetune/lora.py, setup
    targets: list[str] = []
    keys = []
    for part, (default, words) in LORA.items():
        on = reading.read(f"lora_{part}", flag)
        if on is not None:
            keys.append(f"lora_{part}")
        if default if on is None else on:
            targets += words
    reading.put("lora-targets", ",".join(targets), *(keys or ["lora_query"]), origin="derived" if keys else "default")
    kinds = {"bnb.nf4": "nf4", "bnb.nf4_dq": "nf4-dq", "bnb.int8": "int8", "bnb.int8_training": "int8"}
    if reading.find("quantize") is not None:
        found = reading.read("quantize", word(kinds, lambda _: None))
        if found:
            reading.put("quantized", found, "quantize")
        else:
            reading.ask("quantized", "quantize")
            reading.refuse("quantize", f"napkin does not support {reading.source.plain('quantize')!s:.40}", "quantized")


def _precision(reading: Reading) -> None:
    kind = reading.read(
        "precision",
        word(
            {
                "bf16_true": "bf16",
                "bf16_mixed": "amp",
                "32_true": "fp32",
                "16_true": "fp16",
                "16_mixed": "amp16",
                "32": "fp32",
            }
        ),
    )
    put = reading.put if kind else reading.default
    kind = kind or "amp"
    if reading.value_of("adapter"):
        quantized = reading.value_of("quantized")
        kept = {"amp": "fp32", "amp16": "fp32"}.get(kind, kind)
        compute = {"amp": "bf16", "amp16": "fp16"}.get(kind, kind)
        put("precision", adapters(quantized or kept, kept, compute), "precision")
        return
    policies = {
        "bf16": "bf16-pure",
        "amp": "amp-bf16",
        "fp32": "fp32",
        "fp16": "param=fp16,grad=fp16,state=fp16",
        "amp16": "param=fp32,grad=fp32,compute=fp16,state=fp32",
    }
    put("precision", policies[kind], "precision")


def _amount(reading: Reading) -> None:
    steps, tokens = reading.read("train.max_steps", whole), reading.read("train.max_tokens", whole)
    epochs = reading.read("train.epochs", number)
    if steps:
        reading.put("steps", steps, "train.max_steps")
    elif tokens:
        reading.put("tokens", tokens, "train.max_tokens")
    elif epochs:
        reading.put("epochs", epochs, "train.epochs")
    elif _pretrains(reading):
        reading.default("tokens", 3_000_000_000_000, "train.max_tokens")
    else:
        reading.default("epochs", 5, "train.epochs")


def _batch(reading: Reading) -> None:
    pretrains = _pretrains(reading)
    for key, option, default in (
        ("train.micro_batch_size", "micro-batch", 4 if pretrains else 1),
        ("train.global_batch_size", "global-batch", 512 if pretrains else 16),
    ):
        reading.take(option, key, whole, default=default)
    length = reading.read("train.max_seq_length", whole)
    reading.put("seq", length, "train.max_seq_length") if length else reading.ask("seq", "train.max_seq_length")


def _others(reading: Reading) -> None:
    take_optimizer(reading, *[key for key in ("optimizer.class_path", "optimizer") if reading.find(key) is not None])
    reading.default("optimizer", "adamw", "optimizer")
    if _pretrains(reading):
        reading.default("task", "pretrain", "model_name")
    else:
        reading.assume("task", "sft", *reading.written("data", "checkpoint_dir")[:1])


FORMAT = LaunchFormat(
    "litgpt",
    "LitGPT's YAML",
    "Lightning-AI/litgpt litgpt/{pretrain,finetune/full,finetune/lora,args}.py",
    is_this,
    fixed={"framework": "litgpt", "implementation": "litgpt"},
    rules=(
        KeyRule("model_name checkpoint_dir model_config", "model", "a name, a checkpoint folder, or sizes", _model),
        KeyRule(
            "devices num_nodes",
            "gpus zero recompute compile",
            "more than one device is FSDP; full finetuning recomputes every block; pretraining is compiled",
            _machine,
        ),
        KeyRule(
            "lora_r lora_dropout lora_query lora_key lora_value lora_projection lora_mlp lora_head quantize",
            "adapter lora-rank lora-dropout lora-targets quantized",
            "query and value by default",
            _adapter,
        ),
        KeyRule("precision", "precision", "bf16-true bf16-pure, bf16-mixed amp-bf16", _precision),
        KeyRule(
            "train.max_steps train.max_tokens train.epochs", "steps tokens epochs", "a limit on steps wins", _amount
        ),
        KeyRule(
            "train.micro_batch_size train.global_batch_size train.max_seq_length",
            "micro-batch global-batch seq",
            "per device; over all ranks; null means the longest sample",
            _batch,
        ),
        KeyRule("optimizer.class_path optimizer", "optimizer task", "AdamW", _others),
    ),
    ignored="""out_dir logger_name seed eval data tokenizer_dir resume optimizer train.save_interval train.log_interval
        train.lr_warmup_steps train.lr_warmup_fraction train.min_lr train.max_norm access_token lora_alpha num_nodes
        initial_checkpoint_dir log""",
    not_modelled={
        "train.tie_embeddings": "tied embeddings",
    },
)

"""Lingua's YAML: pre-training of a Llama with FSDP2."""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.inputs.foreign import translated
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat, apply, open_reading
from napkin.inputs.launch.formats.meta_params import take_meta_sizes
from napkin.inputs.launch.names import AUTOCAST, FP32
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.remaining import finish
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, whole

D = "distributed"


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Lingua's configuration of training."""
    return source.has_all(f"{D}.fsdp_type", "model.dim", "model.n_layers", "data.seq_len")


OF_MODEL = LaunchFormat(
    "lingua",
    "Lingua's model",
    "",
    is_this,
    rules=(
        KeyRule(
            "dim n_layers n_heads n_kv_heads head_dim multiple_of ffn_dim_multiplier vocab_size weight_tying",
            "model",
            "",
            lambda reading: take_meta_sizes(reading, multiple=256, tied="weight_tying"),
        ),
    ),
    ignored="seed rope_theta norm_eps init_base_std init_std_factor max_seqlen",
    not_modelled={"sliding_window": "sliding-window attention"},
    refused={
        "n_future_head": "heads that predict further tokens",
        "conv_size lru_dim_multiplier state_dim n_groups": "a recurrent model",
    },
)


def _config(reading: Reading) -> dict[str, object] | None:
    """Return the config.json of the model, whose vocabulary the file may leave to the tokenizer."""
    sizes = {"multiple_of": 256, **reading.source.document.data["model"]}
    if sizes.get("vocab_size", -1) == -1:
        raise NapkinError(
            f"{reading.source.name}: the vocabulary size depends on the tokenizer file, which is not read",
            "name the model: napkin memory MODEL --from FILE",
        )
    return (translated(sizes, reading.source.name) or (None, ""))[0]


def _model(reading: Reading) -> None:
    inner = open_reading(OF_MODEL, reading.source.under("model"))
    apply(OF_MODEL, inner)
    inner.build(lambda: _config(reading))
    finish(inner)
    reading.adopt(inner, "model")
    if "model_type" in reading.source:
        reading.refuse("model_type", "a recurrent model", "model")


def _layout(reading: Reading) -> None:
    """Read how the model is divided. Layers stay gathered after forward (apps/main/transformer.py,
    build_fsdp_grouping_plan), as in ZeRO-2; GPUs that no key counts are shards (apps/main/train.py)."""
    kind = f"{D}.fsdp_type"
    stage = {"full_shard": 2, "no_shard": 0}.get(str(reading.source.plain(kind)).lower())
    if stage is None:
        reading.refuse(kind, "napkin does not know this way to divide a model", "zero")
    else:
        reading.derive("zero", stage, kind)
    reading.take("tp", f"{D}.tp_size", whole)
    shards, copies = (reading.read(f"{D}.dp_{one}", whole) for one in ("shard", "replicate"))
    keys = [key for key in (f"{D}.dp_shard", f"{D}.dp_replicate", f"{D}.tp_size") if key in reading.source]
    if shards and shards > 1:
        reading.derive("gpus", shards * (copies or 1) * (reading.value_of("tp") or 1), *keys)
        if copies and copies > 1:
            reading.put("dp-shard", shards, f"{D}.dp_shard")
    else:
        reading.ask("gpus", f"{D}.dp_shard")
    again = f"{D}.selective_activation_checkpointing"
    if reading.read(again, flag):
        reading.put("recompute", "operations", again)
    elif again in reading.source:
        reading.put("recompute", "none", again)
    reading.default("recompute", "none", again)
    reading.take("compile", f"{D}.compile", flag)
    held = f"{D}.model_dtype"
    narrow = reading.read(held, fixed_dtype) or "bf16"
    policy = FP32 if narrow == "fp32" else AUTOCAST.replace("bf16", narrow)
    if reading.source.states(f"{D}.float8_recipe"):
        reading.ask("precision", f"{D}.float8_recipe")
    elif held in reading.source:
        reading.derive("precision", policy, held)
    reading.default("precision", policy, held)
    reading.default("optimizer", "adamw", "optim")
    reading.default("optimizer-form", "fused", "optim")


FORMAT = LaunchFormat(
    "lingua",
    "Lingua's YAML",
    "facebookresearch/lingua apps/main/{train,transformer}.py, lingua/{distributed,transformer,data,optim}.py",
    is_this,
    fixed={"task": "pretrain", "framework": "fsdp"},
    keys=(
        Key("data.batch_size", "micro-batch", whole, 2),
        Key("data.seq_len", "seq", whole, 2048),
        Key("grad_acc_steps", "grad-accum", whole, 1),
        Key("steps", "steps", whole, 1000),
    ),
    rules=(
        KeyRule(
            "model model_type", "model", "Meta's keys: the MLP is 8/3 of the width, rounded up to multiple_of", _model
        ),
        KeyRule(
            f"{D}.fsdp_type {D}.dp_shard {D}.dp_replicate {D}.tp_size {D}.selective_activation_checkpointing "
            f"{D}.compile {D}.model_dtype {D}.float8_recipe optim",
            "zero gpus dp-shard tp recompute compile precision optimizer optimizer-form",
            "fp32 shards computed in bf16; layers stay gathered after forward",
            _layout,
        ),
    ),
    ignored=f"""name dump_dir seed gc_collect_freq probe_freq optim data checkpoint profiling logging env eval
        async_eval_gpus {D}.matmul_allow_tf32 {D}.allow_bf16_reduced_precision_reduction {D}.detect_anomaly
        {D}.compile_cache_size_limit {D}.spawn_method {D}.float8_filter setup slurm stool""",
)

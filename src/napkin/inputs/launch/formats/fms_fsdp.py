"""fms-fsdp's launch lines: pretraining of Llama under FSDP, with a configuration class's fields as flags."""

from __future__ import annotations

import re
from fractions import Fraction

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import model_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, whole

OWN = ("fsdp_activation_checkpointing", "sharding_strategy", "model_variant", "use_dummy_dataset")
STAGES = {"fsdp": 3, "hsdp": 3, "ddp": 0}
"""sharding_strategy → ZeRO stage; other words are fsdp (utils/train_utils.py, get_policies)."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file launches fms-fsdp's training of a language model."""
    return source.program.startswith("main_training") and source.has_any(*OWN)


def _model(reading: Reading) -> None:
    """Read the variant: llama3_8b_4k is Llama 3's 8B; before variants had a family, Llama 2's 7b."""
    key = "model_variant"
    variant = reading.source.plain(key) if key in reading.source else "7b"
    plain = re.sub(r"_\d+k$", "", str(variant or "").lower())
    name, _ = model_of(f"llama2-{plain}" if re.fullmatch(r"[\d.]+b", plain) else plain.replace("_", "-"))
    if key not in reading.source:
        reading.default("model", "llama2-7b", key)
    elif name and not reading.open_among(key):
        reading.put("model", name, key)
    else:
        reading.ask("model", key, given=str(variant))


def _sharding(reading: Reading) -> None:
    """Read the sharding: fully, within a node and replicated over nodes (hsdp, the default), or none."""
    key = "sharding_strategy"
    if reading.open_among(key):
        reading.ask("zero", key)
        return
    kind = str(reading.source.plain(key) or "hsdp").lower()
    if key in reading.source:
        reading.put("zero", STAGES.get(kind, 3), key)
    else:
        reading.default("zero", 3, key)
    each = reading.read("nproc_per_node", whole)
    if kind == "hsdp" and each:
        keys = (key, "nproc_per_node") if key in reading.source else ("nproc_per_node",)
        reading.derive("dp-shard", each, *keys)
    elif kind == "hsdp":
        reading.ask("dp-shard", "nproc_per_node")


def _recompute(reading: Reading) -> None:
    """Read recomputation: of a share of the blocks, spread evenly (policies/ac_handler.py)."""
    key, share = "fsdp_activation_checkpointing", "selective_checkpointing"
    on = reading.read(key, flag)
    if not on:
        reading.put("recompute", "none", key) if on is False else reading.default("recompute", "none", key)
        reading.told(share)
        return
    try:
        part = Fraction(str(reading.source.plain(share) if share in reading.source else 1))
    except (ValueError, ZeroDivisionError):
        reading.ask("recompute", share)
        return
    keys = (key, share) if share in reading.source else (key,)
    if part >= 1:
        reading.derive("recompute", "full", *keys)
    elif part > 0 and part.numerator == 1:
        reading.derive("recompute", f"every:{part.denominator}", *keys)
    elif part == 0:
        reading.derive("recompute", "none", *keys)
    else:
        reading.ask("recompute", share)


def _precision(reading: Reading) -> None:
    """Read the precision: FSDP keeps fp32 shards and computes in bf16."""
    reading.take("precision", "mixed_precision", either("amp-bf16", "fp32"))
    reading.default("precision", "amp-bf16", "mixed_precision")
    reading.derive("task", "pretrain", "fms-fsdp")
    reading.default("optimizer", "adamw", "optimizer")
    reading.default("attention", "flash", "attention")


FORMAT = LaunchFormat(
    "fms-fsdp",
    "fms-fsdp's launch lines",
    "foundation-model-stack/fms-fsdp fms_fsdp/config/training.py, utils/{train_utils,config_utils}.py",
    is_this,
    fixed={"framework": "fsdp"},
    keys=(
        Key("batch_size", "micro-batch", whole, 2),
        Key("seq_length", "seq", whole, 4096),
        Key("num_steps", "steps", whole, 1_000_000),
        Key("use_torch_compile", "compile", flag, True),
    ),
    rules=(
        KeyRule("model_variant", "model", "llama2_7b, llama3_8b_4k, …; Llama 2's 7B by default", _model),
        KeyRule(
            "sharding_strategy nproc_per_node",
            "zero dp-shard",
            "fsdp, hsdp (within a node; the default) or ddp",
            _sharding,
        ),
        KeyRule(
            "fsdp_activation_checkpointing selective_checkpointing",
            "recompute",
            "a share of the blocks: 1/3 is every third",
            _recompute,
        ),
        KeyRule("mixed_precision", "precision task optimizer attention", "fp32 shards, bf16 compute", _precision),
    ),
    ignored="""ckpt_load_path ckpt_save_path use_dummy_dataset data_path file_type col_name tokenizer_path datasets
        weights vocab_size bos_token eos_token bol_token eol_token strip_tokens logical_shards num_workers low_cpu_fsdp
        training_stage learning_rate grad_clip_thresh seed resuming_dataset resuming_from_ckpt use_profiler
        profiler_rank0_only report_interval checkpoint_interval tracker tracker_dir tracker_project_name tracker_run_id
        initial_lr""",
    not_modelled={"tp_size model_arch model_path speculator_* stage2_* n_speculator_heads": "a speculator's training"},
)

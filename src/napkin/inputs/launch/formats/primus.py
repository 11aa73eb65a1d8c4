"""Primus' YAML: a framework's keys that override Primus' presets."""

from __future__ import annotations

import re

from napkin.inputs.launch.format import KeyRule, LaunchFormat, apply, open_reading
from napkin.inputs.launch.lora import take_lora
from napkin.inputs.launch.megatron import core, model
from napkin.inputs.launch.names import MEGATRON, model_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.remaining import finish
from napkin.inputs.launch.shapes import layers_of
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT
from napkin.inputs.launch.values import flag, number

PRE, POST = "modules.pre_trainer", "modules.post_trainer"
"""Blocks of pre-training, and of fine-tuning on Megatron-LM or Megatron-Bridge."""
_OF_FILE = re.compile(r"(?:[-_](?:nanoo_)?(?:fp8|bf16))?(?:-pretrain)?(?:\.ya?ml)?$", re.I)
"""Parts of a model file's name that are not the model's name."""
OF_RECIPE = ("seq", "steps", "micro-batch", "samples")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Primus' YAML."""
    block = _block(source)
    return f"{block}.framework" in source or (f"{block}.overrides" in source and "work_group" in source)


def _block(source: LaunchFile) -> str:
    return POST if POST in source else PRE


def _model(reading: Reading) -> None:
    key = f"{_block(reading.source)}.model"
    name = reading.source.plain(key)
    if not isinstance(name, str):
        reading.ask("model", key)
        return
    found, _ = model_of(_OF_FILE.sub("", name))
    reading.put("model", found, key) if found else reading.ask("model", key, given=name)


def _megatron(reading: Reading) -> None:
    layers = layers_of(reading.given_model)
    if layers:
        reading.shape["layers"] = layers
    core.take_division(reading, zero=1)
    core.take_predictions(reading)
    core.take_overlap(reading, omitted=None if reading.source.missing else False)
    core.take_precision(reading, MEGATRON)
    core.take_optimizer(reading)
    core.take_attention(reading)
    core.take_loss(reading)
    core.take_gradients(reading)
    reading.shape.clear()
    for key in model.SHAPE.split():
        value = reading.find(key)
        if value is not None and key not in (
            "max_position_embeddings",
            "make_vocab_size_divisible_by",
            "mtp_num_layers",
            "",
        ):
            reading.refuse(key, "changes the named model", "model")


OF_MEGATRON = LaunchFormat(
    "primus",
    "Primus over Megatron-LM",
    "",
    is_this,
    fixed={"framework": "megatron-core", "implementation": "megatron"},
    keys=core.LAYOUT,
    rules=(
        KeyRule(
            "use_distributed_optimizer use_torch_fsdp2 sequence_parallel recompute_granularity recompute_method "
            "recompute_num_layers recompute_modules bf16 fp16 fp8 optimizer attention_backend "
            f"{core.OVERLAPPED}",
            "",
            "",
            _megatron,
        ),
    ),
    ignored=core.IGNORED
    + " disable_compile_dependencies wandb_project trainable no_save_optim finetune valid_data_path",
    not_modelled=core.NOT_MODELLED,
)


def _overrides(reading: Reading) -> None:
    """Read the overrides with the keys of the framework that they configure."""
    from napkin.inputs.launch.formats import maxtext, torchtitan

    block = _block(reading.source)
    kind = str(reading.source.plain(f"{block}.framework") or "megatron").lower()
    source = reading.source.under(f"{block}.overrides")
    if kind.startswith("torchtitan"):
        tables = torchtitan.FORMAT
    elif kind.startswith("maxtext"):
        tables = LaunchFormat(
            "primus",
            "Primus over MaxText",
            "",
            is_this,
            rules=(
                *maxtext.RULES_TRAIN,
                KeyRule("weight_dtype dtype", "", "", lambda one: maxtext.precision(one, "bf16")),
                KeyRule("remat_policy opt_type attention", "", "", lambda one: maxtext.others(one, "cudnn")),
            ),
            ignored=maxtext.IGNORED,
            not_modelled=maxtext.NAMED,
        )
    elif kind in ("megatron", "megatron_bridge"):
        tables = OF_MEGATRON
        if kind != "megatron":  # a function of Megatron-Bridge sets what the overrides omit
            source.missing = (
                f"the recipe {source.plain('flavor') or source.plain('recipe') or 'of its defaults'!s:.60}",
            )
    else:
        reading.refuse(f"{block}.framework", f"napkin does not read overrides of {kind[:40]!r}")
        return
    inner = open_reading(tables, source)
    inner.given_model = reading.value_of("model")
    apply(tables, inner)
    if block == POST:
        _tuned(inner)
    finish(inner)
    inner.inputs.pop("model", None)
    for option in OF_RECIPE:
        entry = inner.inputs.get(option)
        if entry is not None and entry.origin == DEFAULT and tables is not OF_MEGATRON and "${" not in entry.where:
            inner.inputs.pop(option)  # Primus has its own preset for it
    reading.adopt(inner, f"{block}.overrides")
    if block == POST:
        reading.derive("task", "sft", f"{block}.framework")


def _tuned(reading: Reading) -> None:
    """Read what the overrides of fine-tuning add: LoRA, packing and the loss (primus/configs/modules/megatron/
    sft_trainer.yaml; in Megatron-Bridge `peft` names the adapter)."""
    from napkin.inputs.launch.formats.nemo import take_core_targets

    named = str(reading.source.plain("peft") or "none").lower()
    if reading.read("lora.enabled", flag) or named == "lora":
        at, rank = ("lora.enabled", "lora.dim") if "lora.enabled" in reading.source else ("peft", "peft_dim")
        take_lora(reading, rank, "lora.target_modules", 32, "all")
        if reading.find("lora.target_modules") is not None:
            take_core_targets(reading, "lora.target_modules")
        reading.put("adapter", "lora", at)
        reading.take("lora-dropout", "lora.dropout", number)
    elif named not in ("none", "null", "false"):
        reading.refuse("peft", f"napkin does not support adapter {named[:40]!r}", "adapter")
    reading.told("lora", "peft", "peft_alpha", "stage", "sft_dataset_name", "sft_conversation_format", "hf_path")
    reading.take("packing", "enable_packed_sequences|packed_sequence", flag)
    if reading.read("enable_fused_linear_ce", flag):
        reading.derive("loss", "chunked", "enable_fused_linear_ce")


FORMAT = LaunchFormat(
    "primus",
    "Primus' YAML",
    "AMD-AGI/Primus primus/configs/**",
    is_this,
    rules=(
        KeyRule(f"{PRE}.model {POST}.model", "model", "Primus' model file", _model),
        KeyRule(
            f"{PRE}.framework {PRE}.overrides {POST}.framework {POST}.overrides",
            "task",
            "the keys of Megatron-LM, torchtitan or MaxText; "
            "Primus sets bf16 and the distributed optimizer, and bf16 weights in MaxText",
            _overrides,
        ),
    ),
    ignored=f"{PRE}.config {POST}.config work_group user_name exp_name workspace platform",
    not_modelled={
        "env.XLA_PYTHON_CLIENT_MEM_FRACTION": "XLA's memory fraction",
        "env": "environment",
        "modules": "another module",
    },
)

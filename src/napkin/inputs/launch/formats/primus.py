"""Primus' YAML: a framework's keys that override Primus' presets."""

from __future__ import annotations

import re

from napkin.inputs.launch.format import KeyRule, LaunchFormat, apply, open_reading
from napkin.inputs.launch.megatron import core, model
from napkin.inputs.launch.names import MEGATRON, model_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shapes import layers_of
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT

T = "modules.pre_trainer"
V = f"{T}.overrides"
_OF_FILE = re.compile(r"(?:[-_](?:nanoo_)?(?:fp8|bf16))?(?:-pretrain)?(?:\.ya?ml)?$", re.I)
"""Parts of a model file's name that are not the model's name."""
OF_RECIPE = ("seq", "steps", "micro-batch", "samples")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Primus' YAML."""
    return f"{T}.framework" in source or (f"{T}.overrides" in source and "work_group" in source)


def _model(reading: Reading) -> None:
    key = f"{T}.model"
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
            "recompute_num_layers recompute_modules bf16 fp16 fp8 optimizer attention_backend",
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

    kind = str(reading.source.plain(f"{T}.framework") or "megatron").lower()
    source = reading.source.under(V)
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
        reading.refuse(f"{T}.framework", f"napkin does not read overrides of {kind[:40]!r}")
        return
    inner = open_reading(tables, source)
    inner.given_model = reading.value_of("model")
    apply(tables, inner)
    inner.finish()
    inner.inputs.pop("model", None)
    for option in OF_RECIPE:
        entry = inner.inputs.get(option)
        if entry is not None and entry.origin == DEFAULT and tables is not OF_MEGATRON and "${" not in entry.where:
            inner.inputs.pop(option)  # Primus has its own preset for it
    reading.adopt(inner, V)


FORMAT = LaunchFormat(
    "primus",
    "Primus' YAML",
    "AMD-AGI/Primus primus/configs/**",
    is_this,
    rules=(
        KeyRule(f"{T}.model", "model", "Primus' model file", _model),
        KeyRule(
            f"{T}.framework {V}",
            "",
            "the keys of Megatron-LM, torchtitan or MaxText; "
            "Primus sets bf16 and the distributed optimizer, and bf16 weights in MaxText",
            _overrides,
        ),
    ),
    ignored=f"{T}.config work_group user_name exp_name workspace platform",
    not_modelled={
        "env.XLA_PYTHON_CLIENT_MEM_FRACTION": "XLA's memory fraction",
        "env": "environment",
        "modules": "another module",
    },
)

"""peft's adapter_config.json: an adapter and the model that it is on."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.hf.virtual_tokens import SETTINGS, take_virtual_tokens
from napkin.inputs.launch.lora import take_adapter_dropout, take_excluded, take_layers, take_ranks, take_saved
from napkin.inputs.launch.names import take_model, take_targets
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import Open, flag, whole

HEADS = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
"""Tasks whose model has another head than a language model's."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is peft's adapter_config.json."""
    return source.is_mapping and "peft_type" in source


def _model(reading: Reading) -> None:
    if reading.find("base_model_name_or_path") is None:
        reading.ask("model", "base_model_name_or_path")
    else:
        take_model(reading, "base_model_name_or_path")
    if str(reading.source.plain("task_type") or "") in HEADS:
        reading.refuse("task_type", "the model has a classification head, which a config.json describes", "model")


def _kind(reading: Reading) -> None:
    """Read LoRA's kind and rank, or virtual tokens."""
    if take_virtual_tokens(reading, "peft_type"):
        return
    kind = str(reading.source.plain("peft_type"))
    if kind != "LORA":
        reading.refuse("peft_type", f"napkin does not read the settings of {kind[:40]}", "adapter")
        return
    dora = reading.read("use_dora", flag)
    reading.put("adapter", "dora" if dora else "lora", "use_dora" if dora else "peft_type")
    reading.take("lora-rank", "r", whole, default=8)
    take_adapter_dropout(reading, "lora_dropout")


def _targets(reading: Reading) -> None:
    """Read the modules with adapters: without any, peft's own for the model type. Virtual tokens are on none."""
    if "virtual-tokens" in reading.inputs:
        if reading.find("modules_to_save") is not None:
            reading.refuse("modules_to_save", "modules beside virtual tokens are not modeled", "adapter")
        return
    if reading.source.get("target_modules") is None and "target_modules" in reading.source:
        raise reading.source.error("target_modules", "is a block of keys, but names are expected")
    value = reading.find("target_modules")
    extra = reading.source.plain("target_parameters")
    if value is not None:
        take_targets(reading, "target_modules", value.value)
    elif not extra:
        reading.default("lora-targets", "default", "target_modules")
    if extra and not isinstance(extra, Open):
        named = [str(one) for one in (extra if isinstance(extra, list) else [extra])]
        before = str(reading.value_of("lora-targets") or "")
        reading.put("lora-targets", ",".join([*([before] if before else []), *named]), "target_parameters")
    take_excluded(reading, "exclude_modules")
    take_layers(reading, "layers_to_transform")
    take_ranks(reading, "rank_pattern")
    take_saved(reading, "modules_to_save")
    if str(reading.source.plain("bias") or "none") != "none":
        reading.refuse("bias", "biases are trained too", "adapter")
    for key, why in (
        ("trainable_token_indices", "rows of the embedding are trained too"),
        ("layer_replication", "layers are repeated"),
        ("lora_bias", "the adapters have biases"),
        ("use_qalora", "the adapters' inputs are pooled"),
    ):
        if reading.source.states(key) and reading.source.plain(key) is not False:
            reading.refuse(key, why, "adapter")


FORMAT = LaunchFormat(
    "peft-adapter",
    "peft's adapter_config.json",
    "huggingface/peft src/peft/tuners/lora/config.py, tuners/tuners_utils.py",
    is_this,
    rules=(
        KeyRule("base_model_name_or_path task_type", "model", "the model that the adapter is on", _model),
        KeyRule(
            f"peft_type r lora_dropout use_dora {' '.join(SETTINGS)}",
            "adapter lora-rank lora-dropout",
            "LoRA and DoRA; rank 8 by default. Or prompt tuning, p-tuning and prefix tuning",
            _kind,
        ),
        KeyRule(
            "target_modules target_parameters exclude_modules layers_to_transform rank_pattern modules_to_save bias "
            "lora_bias trainable_token_indices layer_replication use_qalora",
            "lora-targets modules-to-save",
            "names, all-linear or a regular expression, with ranks of their own; else peft's choice for the model type",
            _targets,
        ),
    ),
    ignored="""auto_mapping revision inference_mode task_type lora_alpha alpha_pattern use_rslora init_lora_weights
        fan_in_fan_out peft_version runtime_config loftq_config eva_config corda_config layers_pattern megatron_core
        qalora_group_size ensure_weight_tying""",
    not_modelled={
        "megatron_config arrow_config use_bdlora velora_config monteclora_config kasa_config lora_ga_config "
        "alora_invocation_tokens": "a variant of LoRA",
    },
)

"""TrainingArguments that a program nests in blocks of its own: `training:`, `model:`, `lora:`."""

from __future__ import annotations

from napkin.inputs.launch.hf.trl import NAMED
from napkin.inputs.launch.source import LaunchFile
from napkin.options.launches import TRAINING_ARGUMENTS

TRAINED = ("training", "training_args", "training_arguments", "training_config", "train", "trainer", "trainer_args")
ADAPTERS = ("lora", "peft", "peft_config", "lora_config", "qlora", "adapter")
MODELS = ("model", "model_config", "model_args")
NAMES = ("name", "name_or_path", "path", "hf_id", "id", "base", "base_model", "model_id", "model_name_or_path")
OF_ADAPTERS = {"r": "lora_r", "rank": "lora_r", "alpha": "lora_alpha", "dropout": "lora_dropout"}
QUANTIZED = ("quantization", "quantization_config", "bnb", "bnb_config")


LAUNCHER = "accelerate_launch_args"
"""The block in which fms-hf-tuning's job configuration keeps the options of `accelerate launch`
(foundation-model-stack/fms-hf-tuning build/accelerate_launch.py)."""


def flattened(source: LaunchFile) -> LaunchFile:
    """Return the source without the blocks in which a program nests TrainingArguments, the model and LoRA."""
    if source.is_mapping and LAUNCHER in source:
        source = source.renamed({LAUNCHER: ""})
        source.command = ("accelerate", "launch")
    block = next((one for one in TRAINED if sum(f"{one}.{key}" in source for key in TRAINING_ARGUMENTS) >= 2), None)
    if block is None or not source.is_mapping:
        return source
    names = {block: ""}
    for one in ADAPTERS:
        names = {**{f"{one}.{key}": name for key, name in OF_ADAPTERS.items()}, f"{one}.enabled": "use_peft", **names}
        names[one] = ""
    for one in MODELS:
        key = next((f"{one}.{key}" for key in NAMES if f"{one}.{key}" in source.values), None)
        names = {**({key: "model_name_or_path"} if key else {}), **names, one: ""}
    found = source.renamed({**names, **dict.fromkeys((*QUANTIZED, *NAMED), "")})
    bases = (value.value for key, value in found.values.items() if key.rpartition(".")[2] == "extends")
    found.missing = (*found.missing, *(one for one in bases if isinstance(one, str)))
    return found

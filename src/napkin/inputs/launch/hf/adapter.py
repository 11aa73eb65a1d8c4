"""Read LoRA and quantization as programs with Hugging Face's TrainingArguments spell them."""

from __future__ import annotations

from napkin.inputs.launch.hf.trl import NAMED
from napkin.inputs.launch.lora import (
    take_adapter_dropout,
    take_excluded,
    take_layers,
    take_lora,
    take_ranks,
    take_saved,
)
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import adopt_settings
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import ASSUMED, DEFAULT
from napkin.inputs.launch.values import Open, flag, natural, word

RANKS = ("lora_r", "lora_rank", "peft_lora_r", "lora_dim")
"""Spellings of LoRA's rank; the third is TRL's before 0.8 (examples/scripts/sft.py)."""
SWITCHES = ("use_peft", "use_lora", "use_qlora", "lora_enable", "use_peft_lora")
MODES = (
    "train_mode|training_mode|tuning_mode|tuning_type|train_type|finetuning_mode|finetune_type|peft_method|peft_type|"
    "adapter_type|finetuning_type"
)
"""Keys that name the method in one word."""
METHODS = {
    "full": "full",
    "sft_full": "full",
    "full_finetune": "full",
    "lora": "lora",
    "qlora": "qlora",
    "qlora_4bit": "qlora",
}
TARGETS = "lora_target_modules|lora_target|target_modules|lora_modules|trainable"
FOUR = ("load_in_4bit", "use_qlora", "use_4bit_quantization")
DOUBLED = ("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant", "double_quant")
KINDS = ("bnb_4bit_quant_type", "quant_type")
OF_QLORA = ("source_max_len", "target_max_len", "double_quant", "full_finetune")
"""Arguments of qlora.py, next to `bits`."""


FILES = ("lora_config", "lora_config_file", "lora_config_path", "peft_config_file", "peft_config_path")
"""A program's own names of the file of its LoraConfig."""
IN_FILES = {"r": "lora_r", "target_modules": "lora_target_modules"}
"""peft's names in such a file → those of a line."""


def adapter(reading: Reading) -> None:
    """Read LoRA and the quantization of the frozen weights, with the file that a line names for the adapter's settings.

    If that file is not there, what the line does not state itself is left open.
    """
    key = next((one for one in FILES if reading.find(one) is not None), "")
    value = reading.find(key)
    named = value is not None and (isinstance(value.value, Open) or str(value.value).endswith((".json", ".yaml")))
    gone = named and not adopt_settings(reading, key, lambda name: IN_FILES.get(name, name))
    _adapter(reading)
    if value is not None and gone:
        reading.omit(key, f"{value.value} was not found; it sets the adapter")
        for option in ("adapter", "lora-rank", "lora-targets", "lora-dropout"):
            stated = reading.inputs.get(option)
            if option == "adapter" if stated is None else stated.origin in (DEFAULT, ASSUMED):
                reading.ask(option, key, absent=value.value)


def _adapter(reading: Reading) -> None:
    """Read LoRA and the quantization of the frozen weights.

    LoRA's numbers alone do not say that it is used: programs differ in the default of their switch, so that is assumed.
    """
    switch = reading.named(*SWITCHES)
    on, method = reading.read(switch, flag), reading.read(MODES, word(METHODS, lambda _: None))
    if on is None and reading.find(switch) is not None:
        reading.ask("adapter", switch)
    elif on or (on is None and method in ("lora", "qlora")):
        _lora(reading, switch)
    elif on is None and method is None and is_qlora(reading.source):
        if not reading.read("full_finetune", flag):
            _lora(reading, "full_finetune", 64, "all", 0.0)
            if reading.find(*RANKS) is None:
                reading.put("adapter", "lora", "full_finetune", origin=DEFAULT)
    elif on is None and method is None and reading.find(*RANKS) is not None:
        _lora(reading, switch)
        reading.assume("adapter", reading.value_of("adapter"), reading.named(*RANKS))
    stated = reading.named(*MODES.split("|"))
    if method is not None:
        reading.told(stated)
    elif reading.find(stated) is not None and str(reading.source.plain(stated)).lower() not in NAMED:
        reading.ask("adapter", stated)
        reading.omit(stated, "a way of training that napkin does not know")
    if on is False or method == "full":
        reading.told(*RANKS, "lora_dropout", *TARGETS.split("|"))
    quantization(reading, method)


def is_qlora(source: LaunchFile) -> bool:
    """Return whether a launch line is qlora.py's or that of a program with its arguments, whose defaults are its own:
    4-bit weights, a paged AdamW and full recomputation (artidoro/qlora qlora.py, TrainingArguments)."""
    named = "qlora" in source.program.lower() and source.has_all("source_max_len", "target_max_len")
    return named or ("bits" in source and source.has_any(*OF_QLORA))


def _named_qlora(reading: Reading) -> str:
    """Return the key whose text names QLoRA beside an adapter, where no key states the format of the weights."""
    named = (
        key
        for key in ("output_dir", "run_name", "hub_model_id", "save_path", "config_name")
        if "qlora" in str(reading.source.plain(key) or "").lower()
    )
    return next(named, "") if reading.value_of("adapter") and "quantized" not in reading.inputs else ""


def _lora(reading: Reading, switch: str, rank: int = 16, targets: str | None = None, dropout: float = 0.05) -> None:
    """Read LoRA, with TRL's defaults unless others are given (trl/trainer/model_config.py, ModelConfig)."""
    if switch == "lora_enable":  # LLaVA's train.py and its derivatives
        rank, targets = 64, "all"
    take_lora(reading, "|".join(RANKS), TARGETS, rank, targets)
    # peft/tuners/lora/config.py, LoraConfig
    take_adapter_dropout(reading, "lora_dropout", 0.0 if reading.source.syntax == "python" else dropout)
    take_excluded(reading, "lora_exclude_modules|exclude_modules|peft_config.exclude_modules")
    take_layers(reading, "layers_to_transform|peft_config.layers_to_transform")
    take_ranks(reading, "rank_pattern|peft_config.rank_pattern")
    take_saved(reading, "lora_modules_to_save|modules_to_save")
    reading.switch("adapter", "lora", switch)
    reading.told(switch, "use_peft", "use_lora", "use_qlora")
    reading.switch("adapter", "dora", "use_dora")


def quantization(reading: Reading, method: str | None) -> None:
    """Read the format of the frozen weights. method: what a key names the way of training."""
    four = reading.read("|".join(FOUR), flag)
    if four or (four is None and method == "qlora"):
        kind = next((found for key in KINDS if (found := reading.source.plain(key)) is not None), "nf4")
        double = reading.read("|".join(DOUBLED), flag)
        keys = (*FOUR, *DOUBLED) if four else (*MODES.split("|"), *DOUBLED)
        reading.put("quantized", ("nf4-dq" if double else "nf4") if kind == "nf4" else "int4", *keys)
    elif reading.read("load_in_8bit|use_8bit_quantization", flag):
        reading.put("quantized", "int8", "load_in_8bit", "use_8bit_quantization")
    elif reading.read("bits", natural) in (4, 8):  # LLaVA's and qlora.py's, with double quantization
        reading.put("quantized", "nf4-dq" if reading.read("bits", natural) == 4 else "int8", "bits")
    elif reading.find("bits") is None and reading.value_of("adapter") and is_qlora(reading.source):
        reading.default("quantized", "nf4-dq", "bits")
    elif four is None and reading.find("load_in_4bit") is not None:
        reading.ask("quantized", "load_in_4bit")
    elif reading.find("q_lora") is not None and reading.read("q_lora", flag) is not False:
        reading.ask("quantized", "q_lora")  # FastChat and Qwen quantize differently
    elif four is None and (named := _named_qlora(reading)):
        reading.ask("quantized", named)
    if reading.value_of("quantized") is not None:
        reading.told(*KINDS, *DOUBLED)

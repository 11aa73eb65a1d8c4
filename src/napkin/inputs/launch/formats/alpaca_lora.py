"""alpaca-lora's launch lines: `finetune.py --base_model M --micro_batch_size 4 --cutoff_len 512`, and its forks'."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_machine
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora
from napkin.inputs.launch.names import take_model
from napkin.inputs.launch.precisions import adapters
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, whole

BITS = ("load_in_8bit", "load_in_4bit", "load_8bit", "load_4bit", "bits", "use_8bit", "use_4bit", "qlora")
"""Options of forks for the format of the frozen weights, which the original fixes."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a line starts a program of one's own with alpaca-lora's names for model, batch and length."""
    return (
        source.syntax == "shell"
        and source.program != ""
        and source.has_all("base_model", "micro_batch_size", "cutoff_len")
        and not source.has_any("per_device_train_batch_size", "gradient_accumulation_steps")
    )


def _machine(reading: Reading) -> None:
    """Read the GPUs of torchrun. Started with python alone, the program spreads the layers over what it sees."""
    take_machine(reading)
    if "gpus" not in reading.inputs:
        reading.ask("gpus", "nproc_per_node")


def _adapter(reading: Reading) -> None:
    take_lora(reading, "lora_r", "lora_target_modules", 8, "q,v")
    take_adapter_dropout(reading, "lora_dropout", 0.05)
    kind = reading.find("adapter_name")
    if kind is not None and str(kind.value).lower() != "lora":
        reading.ask("adapter", "adapter_name")
    elif kind is not None:
        reading.put("adapter", "lora", "adapter_name")
    elif "lora_r" not in reading.source:
        reading.assume("adapter", "lora", "lora_r")


def _fixed(reading: Reading) -> None:
    """Assume what finetune.py fixes and its forks change: int8 weights, fp16, AdamW, and the recomputation that
    prepare_model_for_int8_training turns on."""
    stated = next((key for key in BITS if key in reading.source), None)
    if stated is not None:
        reading.ask("quantized", stated)
        reading.ask("precision", stated)
    else:
        reading.assume("quantized", "int8", "base_model")
        reading.assume("precision", adapters("int8", "fp32", "fp16"), "base_model")
    reading.assume("optimizer", "adamw", "base_model")
    on = reading.read("use_gradient_checkpointing", flag)
    if on is None:
        # LLM-Adapters, which has adapter_name, passes use_gradient_checkpointing, False (finetune.py at 063e3d4)
        reading.assume("recompute", "none" if "adapter_name" in reading.source else "full", "base_model")
    else:
        reading.put("recompute", "full" if on else "none", "use_gradient_checkpointing")
    reading.default("attention", "flash", "base_model")


FORMAT = LaunchFormat(
    "alpaca-lora",
    "alpaca-lora's launch lines",
    "tloen/alpaca-lora finetune.py; AGI-Edgerunners/LLM-Adapters finetune.py",
    is_this,
    fixed={"trainer": "hf-trainer"},
    keys=(
        Key("micro_batch_size", "micro-batch", whole, 4),
        Key("batch_size", "global-batch", whole, 128),
        Key("cutoff_len", "seq", whole, 256),
        Key("num_epochs", "epochs", number, 3),
    ),
    rules=(
        KeyRule(
            "base_model",
            "model",
            "a preset's name; for a fine-tune, give MODEL",
            lambda reading: take_model(reading, "base_model"),
        ),
        KeyRule("nproc_per_node nnodes", "gpus", "torchrun's processes", _machine),
        KeyRule(
            "lora_r lora_dropout lora_target_modules",
            "adapter lora-rank lora-dropout lora-targets",
            "LoRA of rank 8 on q and v",
            _adapter,
        ),
        KeyRule(
            " ".join((*BITS, "use_gradient_checkpointing", "adapter_name")),
            "quantized precision optimizer recompute attention",
            "int8 weights, fp16, AdamW and recomputation are assumed; an option of a fork's own leaves the format open",
            _fixed,
        ),
    ),
    ignored="""data_path output_dir learning_rate val_set_size lora_alpha train_on_inputs add_eos_token wandb_*
    resume_from_checkpoint prompt_template_name prompt_template master_port""",
    not_modelled={"group_by_length": "length grouping reduces padding"},
)

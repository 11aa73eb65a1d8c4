"""Which program reads a file of TrainingArguments: TRL or transformers' Trainer, and the task it trains."""

from __future__ import annotations

import re

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag

ARGUMENTS = [
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "max_steps",
    "gradient_checkpointing",
    "learning_rate",
    "bf16",
    "per_device_batch_size",
]


OF_TRL = [
    "max_seq_length",
    "max_length",
    "packing",
    "beta",
    "dataset_text_field",
    "use_peft",
    "lora_r",
    "num_generations",
    "max_prompt_length",
    "max_completion_length",
    "dataset_mixture",
    "dataset_mixer",
    "chat_template",
    "dataset_name",
    "loss_type",
    "use_liger",
    "use_vllm",
    "reward_funcs",
    "desirable_weight",
    "undesirable_weight",
    "lora_target_modules",
    "padding_free",
]


OLDER = ["max_seq_length", "evaluation_strategy", "use_liger"]
"""Keys that TRL and transformers had dropped (TRL 0.20, July 2025) when TRL began to recompute and to run bf16 unless
told otherwise (0.21, August 2025, trl#3510; bf16 in 0.19)."""


GROUPED = ("num_generations", "reward_funcs", "max_completion_length")


TEACHER = "teacher_model_name_or_path"


WEAK = ("max_seq_length", "max_length", "beta", "loss_type", "dataset_name", "chat_template", "packing")
"""Keys of TRL's that other programs have too: transformers' own examples take a dataset_name and a max_seq_length."""


PROGRAMS = {
    "sft": "sft",
    "dpo": "dpo",
    "grpo": "grpo",
    "kto": "kto",
    "orpo": "orpo",
    "reward": "rm",
    "rloo": "rloo",
    "ppo": "ppo",
    "gkd": "gkd",
}
"""TRL's subcommands, and its scripts by how their names begin (examples/scripts, trl/scripts) → their task."""


NO_DECODER = re.compile(
    r"run_(glue|qa|ner|swag|mlm|classification|xnli|seq2seq_qa|image|audio|speech|mim|semantic)\w*\.py"
)


def task_of_program(source: LaunchFile) -> str | None:
    """Return the task that TRL's subcommand or script says."""
    if "trl" in source.command:
        return next((PROGRAMS[one] for one in source.command if one in PROGRAMS), None)
    return next((task for word, task in PROGRAMS.items() if re.match(rf"{word}(_|\.py|$)", source.program)), None)


def is_trl(reading: Reading) -> bool:
    """Return whether a file is TRL's: one of its keys, of which a launch line needs one that only TRL has, or TRL's
    program."""
    source = reading.source
    marks = OF_TRL
    if source.syntax == "python":
        return "trl" in source.command
    if source.syntax == "shell":
        if source.program.startswith("run_"):
            return False
        marks = [key for key in OF_TRL if key not in WEAK]
    return source.has_any(*marks) or task_of_program(source) is not None


def has_trl_defaults(reading: Reading) -> bool:
    """Return whether what the file leaves out is as TRL sets it today: bf16 and full recomputation."""
    return is_trl(reading) and not reading.source.has_any(*OLDER)


def take_trainer(reading: Reading) -> None:
    """Read the trainer: unsloth, TRL, or transformers' Trainer."""
    marks = [key for key in OF_TRL if key in reading.source]
    if reading.read("use_unsloth", flag):
        reading.derive("trainer", "unsloth", "use_unsloth")
    elif is_trl(reading):
        reading.derive("trainer", "trl", *(marks[:2] or ["trl"]))
    else:
        reading.derive("trainer", "hf-trainer", *[key for key in ARGUMENTS if key in reading.source][:2])


def take_task(reading: Reading) -> None:
    """Read the task. Only GRPO has distinctive keys; DPO, ORPO and KTO share beta, so beta leaves the task open."""
    grouped = [key for key in GROUPED if key in reading.source]
    stated = task_of_program(reading.source)
    if reading.source.syntax == "shell" and NO_DECODER.fullmatch(reading.source.program):
        reading.refuse(reading.source.program, "does not train a causal language model", "task")
    if stated is not None:
        reading.derive("task", stated, "trl")
    elif grouped:
        reading.derive("task", "grpo", *grouped)
    elif TEACHER in reading.source:
        reading.derive("task", "gkd", TEACHER)
    elif reading.source.has_any("desirable_weight", "undesirable_weight"):
        reading.derive("task", "kto", "desirable_weight", "undesirable_weight")
    elif reading.source.has_any("simpo_gamma", "gamma_beta_ratio") or str(reading.source.plain("loss_type")) == "simpo":
        reading.derive("task", "simpo", *reading.written("simpo_gamma", "gamma_beta_ratio", "loss_type"))
    elif reading.source.has_any("beta", "max_prompt_length", "precompute_ref_log_probs"):
        keys = [k for k in ("beta", "max_prompt_length", "precompute_ref_log_probs") if k in reading.source]
        reading.ask("task", *keys)
    elif "center_rewards_coefficient" in reading.source:
        reading.derive("task", "rm", "center_rewards_coefficient")
    elif is_trl(reading):
        reading.assume("task", "sft", *[key for key in OF_TRL if key in reading.source][:2])

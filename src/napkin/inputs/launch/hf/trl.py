"""Tell TRL from transformers' Trainer in a file of TrainingArguments, and read the task."""

from __future__ import annotations

import re

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, word
from napkin.options.launches import TRAINING_ARGUMENTS

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
"""Keys removed from TRL and transformers before TRL enabled recomputation and bf16 by default.

Removed in TRL 0.20 (July 2025); recomputation is the default since 0.21 (August 2025, trl#3510), bf16 since 0.19.
"""


GROUPED = ("num_generations", "reward_funcs", "max_completion_length")


TEACHER = "teacher_model_name_or_path"


OF_DISTILLATION = ("lmbda", "seq_kd", "use_uld_loss")
"""Keys of on-policy distillation (trl GKDConfig, GOLDConfig), which generates samples too."""


WEAK = ("max_seq_length", "max_length", "beta", "loss_type", "dataset_name", "chat_template", "packing")
"""TRL keys that other programs share: transformers' examples take dataset_name and max_seq_length."""


UNMISTAKABLE = (
    "use_peft", "num_generations", "reward_funcs", "max_completion_length", "max_prompt_length", "dataset_mixture",
    "dataset_mixer", "dataset_text_field", "desirable_weight", "undesirable_weight", "padding_free", "use_vllm",
)  # fmt: skip
"""Keys that no program but TRL's has; one of its own may have the others."""


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
"""TRL's subcommands and script prefixes (examples/scripts, trl/scripts) → task."""


NAMED = {**{one: one for one in PROGRAMS.values()}, "pretrain": "pretrain", "pt": "pretrain", "simpo": "simpo"}
"""Words for the task in a program's own key; peft's task_type, CAUSAL_LM, is none."""


NO_DECODER = re.compile(
    r"run_(glue|qa|ner|swag|mlm|classification|xnli|seq2seq_qa|image|audio|speech|mim|semantic)\w*\.py"
)


ONLINE = re.compile(r"(run_)?(dpo_online|online_dpo|nash_md|xpo)\w*\.py")
"""Programs that generate the responses that they prefer between; napkin has no such task."""


def task_of_program(source: LaunchFile) -> str | None:
    """Return the task of TRL's subcommand or script, or of a program named like one, or None."""
    if "trl" in source.command:
        return next((PROGRAMS[one] for one in source.command if one in PROGRAMS), None)
    name = source.program.lower().removeprefix("run_")
    return next((task for word, task in PROGRAMS.items() if re.match(rf"{word}(_|\.py|$)", name)), None)


SCRIPTS = re.compile(
    r"(run_)?(sft|dpo|grpo|kto|orpo|reward|reward_modeling|rloo|ppo|gkd|ppo_tldr|rloo_tldr|sft_vlm|sft_video_llm|dpo_vlm|"
    r"grpo_vlm|grpo_agent|sft_gpt_oss|sft_gemma3|sft_vlm_gemma3)\.py"
)
"""TRL's own scripts (examples/scripts, trl/scripts) and the alignment handbook's."""


def is_named_alike(source: LaunchFile) -> bool:
    """Return whether only a program's name tells it to be TRL's: it is no script of TRL's, or names its model otherwise
    than these do, or it has no name and only keys do."""
    own = SCRIPTS.fullmatch(source.program) is None
    other = (
        source.syntax == "shell" and "model_name_or_path" not in source and source.has_any("base_model", "model_path")
    )
    return "trl" not in source.command and (own or other)


def is_assumed(source: LaunchFile) -> bool:
    """Return whether TRL is only assumed: by a program's name, or by keys that a program of one's own may have."""
    return is_named_alike(source) and not source.has_any(*UNMISTAKABLE)


def _hinted(program: str) -> str | None:
    """Return the task that the name of a program of one's own says: `train_llm_dpo.py`."""
    found = {NAMED[one] for one in re.findall(r"[a-z]+", program.lower()) if one in NAMED and one != "pt"}
    return found.pop() if len(found) == 1 else None


def is_trl(reading: Reading) -> bool:
    """Return whether a file is TRL's, by its keys or its program.

    A launch line needs a key that only TRL has.
    """
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
    """Return whether omitted keys have TRL's current defaults: bf16 and full recomputation."""
    return is_trl(reading) and not reading.source.has_any(*OLDER)


def take_trainer(reading: Reading) -> None:
    """Read the trainer: unsloth, TRL, or transformers' Trainer."""
    marks = [key for key in OF_TRL if key in reading.source]
    if reading.read("use_unsloth", flag):
        reading.derive("trainer", "unsloth", "use_unsloth")
    elif is_trl(reading):
        say = reading.assume if is_assumed(reading.source) else reading.derive
        say("trainer", "trl", *(marks[:2] or [reading.source.program or "trl"]))
    else:
        reading.derive("trainer", "hf-trainer", *[key for key in TRAINING_ARGUMENTS if key in reading.source][:2])


def _take_sampled(reading: Reading, keys: list[str]) -> None:
    """Read a task that generates samples: GRPO, unless a program's name says another or a teacher is part of it."""
    hinted = _hinted(reading.source.program)
    taught = [key for key in reading.source.values if key.startswith("teacher") or key in OF_DISTILLATION]
    if taught:
        reading.ask("task", *taught[:2], *keys)
    elif hinted in ("rloo", "gkd", "ppo"):
        reading.assume("task", hinted, reading.source.program)
    elif keys == ["max_completion_length"]:  # GKD has it too
        reading.assume("task", "grpo", *keys)
    else:
        reading.derive("task", "grpo", *keys)


def take_task(reading: Reading) -> None:
    """Read the task. Only GRPO has distinctive keys; DPO, ORPO and KTO share beta, so beta leaves the task open."""
    grouped = [key for key in GROUPED if key in reading.source]
    stated, key = (
        task_of_program(reading.source),
        reading.named("task_type", "training_type", "training_method", "method"),
    )
    named = None if stated else reading.read(key, word(NAMED, lambda _: None))
    if reading.source.syntax == "shell" and NO_DECODER.fullmatch(reading.source.program):
        reading.refuse(reading.source.program, "does not train a causal language model", "task")
    if ONLINE.fullmatch(reading.source.program):
        reading.refuse(reading.source.program, "generates the responses that it trains on, a task napkin lacks", "task")
    if stated is not None:
        say = reading.assume if is_named_alike(reading.source) else reading.derive
        say("task", stated, reading.source.program or "trl")
    elif named is not None:
        reading.put("task", named, key)
    elif grouped:
        _take_sampled(reading, grouped)
    elif TEACHER in reading.source:
        reading.derive("task", "gkd", TEACHER)
    elif reading.source.has_any("desirable_weight", "undesirable_weight"):
        reading.derive("task", "kto", "desirable_weight", "undesirable_weight")
    elif reading.source.has_any("simpo_gamma", "gamma_beta_ratio") or str(reading.source.plain("loss_type")) == "simpo":
        reading.derive("task", "simpo", *reading.written("simpo_gamma", "gamma_beta_ratio", "loss_type"))
    elif (hinted := _hinted(reading.source.program)) is not None:
        reading.assume("task", hinted, reading.source.program)
    elif (reward := next((key for key in reading.source.values if key.startswith("reward_model")), None)) is not None:
        reading.ask("task", reward)
    elif reading.source.has_any("beta", "max_prompt_length", "precompute_ref_log_probs"):
        keys = [k for k in ("beta", "max_prompt_length", "precompute_ref_log_probs") if k in reading.source]
        reading.ask("task", *keys)
    elif "center_rewards_coefficient" in reading.source:
        reading.derive("task", "rm", "center_rewards_coefficient")
    elif is_trl(reading):
        reading.assume("task", "sft", *[key for key in OF_TRL if key in reading.source][:2])

"""Options of reinforcement learning: lengths of prompts and answers, the engine, the models next to the policy."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option

GROUP = "Reinforcement learning"


def engine(text: str) -> str:
    """Read where answers are generated: none, colocated:SHARE of each GPU's memory, or separate:GPUS."""
    word, _, size = text.strip().lower().partition(":")
    try:
        if word == "none" and not size:
            return word
        if word == "colocated":
            return f"{word}:{units.fraction(size or '0.5')}"
        if word == "separate" and size:
            return f"{word}:{units.positive_count(size)}"
    except units.Unreadable:
        pass
    raise units.Unreadable(f"{text.strip()[:60]!r} is not understood", "none, colocated:0.5 or separate:4")


OPTIONS = (
    Option("prompt-tokens", units.positive_count, "Mean tokens of a prompt", "token", "N"),
    Option("max-prompt-tokens", units.positive_count, "Longest prompt, for memory", "token", "N", default="the mean"),
    Option("response-tokens", units.positive_count, "Mean tokens of a generated answer", "token", "N"),
    Option(
        "max-response-tokens",
        units.positive_count,
        "Longest answer, which the step waits for",
        "token",
        "N",
        default="the mean",
    ),
    Option("samples-per-prompt", units.positive_count, "Answers to each prompt", metavar="N"),
    Option("updates", units.positive_count, "Optimizer steps on the answers of a step, each on its part", metavar="N"),
    Option(
        "off-policy-steps",
        units.count,
        "Steps by which the answers may be older than the weights: they are generated meanwhile",
        metavar="N",
        default="0, one after the other",
    ),
    Option(
        "rollout",
        engine,
        "Engine: colocated:SHARE of the memory, separate:GPUS, none",
        metavar="WHERE",
        default="colocated, the trainer's share",
    ),
    Option("rollout-tp", units.degree, "Tensor-parallel ranks of the engine", metavar="N", default="as it needs"),
    Option("reward", units.words, "Reward model, or none", metavar="MODEL", default="none"),
    Option("critic", units.words, "Model of values, or none", metavar="MODEL", default="the policy's in PPO"),
)

LENGTHS = ("prompt-tokens", "max-prompt-tokens", "response-tokens", "max-response-tokens", "samples-per-prompt")
ROLLOUT = (*LENGTHS, "updates", "off-policy-steps", "rollout", "rollout-tp", "reward", "critic")
"""What reinforcement learning takes in addition to a step."""

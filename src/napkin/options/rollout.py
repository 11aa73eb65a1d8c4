"""Options of reinforcement learning: lengths of prompts and responses, the engine, the models next to the policy.
Options of serving: the requests in flight, the engine, bounds on latency."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag

MOVED = ("optimizer", "parameters")
"""States that a trainer may move to the host between the phases of a step."""


def engine(text: str) -> str:
    """Read where responses are generated: none, colocated:SHARE of each GPU's memory (the trainer's share where none is
    stated), or separate:GPUS."""
    word, _, size = text.strip().lower().partition(":")
    try:
        if word == "none" and not size:
            return word
        if word == "colocated":
            return f"{word}:{units.fraction(size)}" if size else word
        if word == "separate" and size:
            return f"{word}:{units.positive_count(size)}"
    except units.Unreadable:
        pass
    raise units.Unreadable(f"{text.strip()[:60]!r} is not understood", "none, colocated:0.5 or separate:4")


def moved(text: str) -> tuple[str, ...]:
    """Read the states that a trainer moves to the host between phases, separated by commas; none: it moves none."""
    found = dict.fromkeys(word.strip().lower() for word in text.split(","))
    if [*found] == ["none"]:
        return ()
    for word in found:
        if word not in MOVED:
            raise units.Unreadable(f"{word[:40]!r} is not one of {', '.join(MOVED)}", "for example optimizer")
    return tuple(found)


OPTIONS = (
    Option("prompt-tokens", units.positive_count, "Mean prompt length", "token", "N"),
    Option("max-prompt-tokens", units.positive_count, "Longest prompt, for memory", "token", "N", default="the mean"),
    Option("response-tokens", units.positive_count, "Mean response length", "token", "N"),
    Option(
        "max-response-tokens",
        units.positive_count,
        "Longest response, which the step waits for",
        "token",
        "N",
        default="the mean",
    ),
    Option("samples-per-prompt", units.positive_count, "Responses per prompt", metavar="N"),
    Option(
        "updates",
        units.positive_count,
        "Optimizer steps per batch of responses, each on --global-batch prompts of it",
        metavar="N",
    ),
    Option(
        "off-policy-steps",
        units.count,
        "Steps that responses may lag behind the weights; generation then overlaps training",
        metavar="N",
        default="0, no overlap",
    ),
    Option(
        "on-policy",
        units.fraction,
        "Share of steps of distillation on responses that an engine generates; the others have those of the data",
        metavar="X",
        default="0.5 in GKD, else 1",
    ),
    Option(
        "rollout",
        engine,
        "Generation engine: colocated:SHARE (of memory), separate:GPUS, none",
        metavar="WHERE",
        default="colocated, with the trainer's share of memory",
    ),
    Option(
        "rollout-tp", units.degree, "Tensor-parallel ranks of the generation engine", metavar="N", default="as needed"
    ),
    flag("rollout-eager", "The engine launches each kernel from Python, without CUDA graphs (vLLM's enforce_eager)"),
    Option(
        "rollout-offload",
        moved,
        "States moved to the host while responses are generated, and back: optimizer, parameters",
        metavar="WHAT,…",
        default="as the library does",
    ),
    Option(
        "micro-batch-tokens",
        units.positive_count,
        "Tokens per GPU of a micro-batch into which sequences are packed, in place of --micro-batch",
        "token",
        "N",
        default="as in the library",
    ),
    Option(
        "logprob-micro-batch",
        units.positive_count,
        "Micro-batch of passes without gradients, in sequences per GPU",
        "sequence",
        "N",
        default="as in the library",
    ),
    flag("padding", "Pad sequences to one length; default: as the library does"),
    Option("reward", units.words, "Reward model, or none", metavar="MODEL", default="none"),
    Option("critic", units.words, "Value model, or none", metavar="MODEL", default="as the policy, in PPO"),
)

LENGTHS = ("prompt-tokens", "max-prompt-tokens", "response-tokens", "max-response-tokens", "samples-per-prompt")
ROLLOUT = (
    *LENGTHS,
    "updates",
    "off-policy-steps",
    "on-policy",
    "rollout",
    "rollout-tp",
    "rollout-eager",
    "rollout-offload",
    "micro-batch-tokens",
    "logprob-micro-batch",
    "padding",
    "reward",
    "critic",
)
"""What reinforcement learning takes in addition to a step."""


SERVING = (
    Option("concurrency", units.positive_count, "Requests in flight, over all GPUs", metavar="N"),
    Option("engine", units.words, "vllm, sglang, tensorrt-llm, llama.cpp or gpt-fast", metavar="NAME", default="vllm"),
    Option(
        "memory-share", units.fraction, "Share of GPU memory that the engine takes", metavar="X", default="the engine's"
    ),
    Option("max-tpot", units.duration, "Longest time per output token, e.g. 50ms", "second", "TIME"),
    Option("max-ttft", units.duration, "Longest time to the first token, e.g. 2s", "second", "TIME"),
)

REQUESTS = ("batch", "concurrency", "prompt-tokens", "response-tokens")
"""The load of an engine."""

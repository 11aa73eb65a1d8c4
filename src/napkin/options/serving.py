"""Options of serving: the requests in flight, the engine, bounds on latency."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option

GROUP = "Serving"

OPTIONS = (
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

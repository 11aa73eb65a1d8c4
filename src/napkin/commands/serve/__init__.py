"""`napkin serve`: tokens per second, latency, KV cache and price of a model that is served."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.options.machine import accelerators
from napkin.options.model import MODEL_OPTIONS
from napkin.options.option import choice
from napkin.options.output import DRAWS
from napkin.options.rollout import REQUESTS
from napkin.planning.verdicts import FITS, VERDICTS
from napkin.render.answer import Answer

STATED = ("gpus", "nodes", "tp", "pp", "ep", "dp", "max", "min", "max-tpot", "max-ttft", "concurrency")
"""Options that say how many GPUs serve, or ask it."""


def run(inputs: Inputs) -> Answer:
    """Answer for a model on an accelerator, or on the cheapest of several."""
    if isinstance(inputs.peek("hardware"), list):
        from napkin.commands.serve.market import run_market

        return run_market(inputs)
    from napkin.commands.serve.answer import answer
    from napkin.commands.serve.question import read

    found = answer(read(inputs))
    if not any(name in inputs for name in STATED) and found.inputs["gpus"].value != 1:
        found.assumed.append("the fewest GPUs")
    return found


COMMAND = Command(
    "serve",
    "Throughput, latency, KV cache and price of serving a model, and how many requests fit",
    run,
    brief="Throughput, latency and price of serving a model",
    options=(
        "hardware",
        "hardware-file",
        "gpus",
        "nodes",
        "gpus-per-node",
        "tp",
        "pp",
        "ep",
        "dp",
        *REQUESTS,
        "dtype",
        "cache-dtype",
        "engine",
        "memory-share",
        "profile",
        "price",
        "max",
        "min",
        "max-tpot",
        "max-ttft",
        "must-fit",
        "confidence",
        *MODEL_OPTIONS,
        *DRAWS,
    ),
    reads={"max": choice("batch", "concurrency"), "min": choice("gpus"), "hardware": accelerators},
    arguments=("model",),
    verdicts=VERDICTS,
    success=FITS,
    examples=(
        "serve llama3-8b --hardware h100 --batch 32",
        "serve llama3-70b --gpus 8 --hardware h100 --concurrency 256 --prompt-tokens 2000 --response-tokens 500",
        "serve deepseek-v3 --gpus 8 --hardware h200 --dtype fp8 --max batch",
        "serve llama3-70b --gpus 4 --hardware h100 --max-tpot 40ms",
        "serve llama3-70b --hardware any --concurrency 256 --max-tpot 50ms",
    ),
)

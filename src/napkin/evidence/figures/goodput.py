"""Published goodput of entire runs, by kind of run."""

from __future__ import annotations

from napkin.term import SEEN, leaf
from napkin.timing.goodput import Goodput

PUBLISHED = {
    "production": Goodput(
        leaf("goodput", 0.88, "1", SEEN, "whole-run over good-step utilization of seven published runs, 0.66 to 1.0"),
        0.13,
    ),
    "benchmark": Goodput(
        leaf("goodput", 0.93, "1", SEEN, "tokens at the median step's rate over run start to target, 23 MLPerf runs"),
        0.032,
        "benchmark",
    ),
    "speedrun": Goodput(
        leaf("goodput", 1, "1", SEEN, "the clock stops for validation: KellerJordan/modded-nanogpt, train_gpt.py"),
        0.0,
        "speedrun",
    ),
}
"""Whole-run utilization over that of a good step, and its spread, by kind of run.

production  seven published runs for which both are known lie between 0.66 and 1.0 (BLOOM 0.88, Llama 3.1 405B 0.86,
            GLM-130B 0.77, PaLM 0.66 with its ramps)
benchmark   the runs of MLPerf training v3.1 and v5.0 whose median step is in the evidence too: evaluations and the
            first steps are inside the time to the target
speedrun    the time to a loss by a clock that validation stops"""
TUNING_BENCHMARK = Goodput(
    leaf("goodput", 0.88, "1", SEEN, "samples at the median step's rate over run start to target, 22 MLPerf runs"),
    0.05,
    "benchmark",
)
"""Of a benchmark of fine-tuning, which stops to evaluate after as few as 384 samples: Llama 2 70B with LoRA in MLPerf
training v4.0 (median 0.88 of 11 runs; 0.67 on 1,024 GPUs, 0.80 to 0.88 on fewer) and v5.0 (0.88 of 11; 0.86 to
0.90)."""
WHY = {
    "production": "checkpoints, interruptions, evaluation and slow steps take the rest; 0.66 to 1.0 in published runs",
    "benchmark": "evaluations and the first steps take the rest of the time to the target, as in MLPerf's logs",
    "speedrun": "a speedrun's clock stops for evaluation",
}
"""Kind of run → what takes the rest of calendar time."""


NOTE_PREDICTED = (
    "time is calendar time: time/uninterrupted over the goodput, which follows from failures, restarts and checkpoints "
    "at published rates and from the other losses of published runs; --goodput takes your own"
)
"""Note of an answer whose goodput is predicted from failures."""


def published(kind: str, tunes: bool = False) -> Goodput:
    """Return the published goodput of runs of a kind. tunes: of fine-tuning."""
    return TUNING_BENCHMARK if tunes and kind == TUNING_BENCHMARK.run_kind else PUBLISHED[kind]


def note(goodput: Goodput) -> str:
    """Return the note of an answer that uses published goodput."""
    share = f"{goodput.share.value:.3g}"
    return (
        f"time is calendar time: time/uninterrupted over a goodput of {share} ({WHY[goodput.run_kind]}); "
        "--goodput takes your own"
    )

"""The share of a long run's time that is kept work: checkpoints, interruptions and evaluation take the rest."""

from __future__ import annotations

import math

HOURS_PER_INTERRUPTION = 5e4
"""Accelerator-hours between interruptions: 5.1e4 in Llama 3.1 405B (419 unexpected in 54 days on 16,384 GPUs; Llama 3
paper, section 3.3.4), 6e4 in BLOOM (a GPU lost about weekly on 384; its chronicles). Published range 2e4 to 1e5."""
EVALUATION = 0.01
"""Share of a run spent evaluating: 0.7 % in BLOOM (12 minutes per 1,000 steps of 105 s; its chronicles)."""


def goodput(gpus: int, write: float = 60.0, restart: float = 1800.0) -> float:
    """Return the share of the time that is kept work: 1 − δ/τ − (τ/2 + R)·n/m − e with τ = √(2·δ·m/n).

    δ seconds that a checkpoint stalls, R seconds of a restart, m accelerator-hours per interruption, n accelerators
    (Young 1974 for τ)."""
    between = HOURS_PER_INTERRUPTION * 3600 / gpus
    every = math.sqrt(2 * write * between)
    return max(0.0, 1 - write / every - (every / 2 + restart) / between - EVALUATION)

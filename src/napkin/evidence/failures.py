"""How often large training jobs are interrupted, what checkpoints cost, how long a restart takes, as published."""

from __future__ import annotations

import math
from collections.abc import Iterable

from napkin.record import record
from napkin.term import SEEN, Term, divide, leaf
from napkin.timing.interruptions import Interruptions

HOUR = 3600.0


@record
class FailureRow:
    """Unplanned interruptions of a job, and the GPU-hours in which they happened."""

    failures: float
    gpu_hours: float
    source: str


FAILURES = (
    FailureRow(419, 16_384 * 54 * 24, "Llama 3 405B, arXiv:2407.21783, table 5: unexpected interruptions in 54 days"),
    FailureRow(90, 1_024 * 56 * 24, "OPT-175B: metaseq, projects/OPT/chronicles, final_update.md: restarts in 56 days"),
    FailureRow(1, 384 * 7 * 24, "BLOOM: bigscience train/tr11-176B-ml/chronicles.md: a GPU about every week"),
    FailureRow(10, 504 * 55 * 24, "504 B200, arXiv:2605.09370, abstract: GPU failures in 55 days"),
    FailureRow(0.03, 8 * 7 * 24, "Imbue 70B, From bare metal to a 70B model: 3 % of machines of 8 GPUs a week"),
)
BLOCKED = (
    (40.0, "BLOOM, 2.3 TB: chronicles.md"),
    (6.77, "Megatron's save, 2,048 GPUs: ByteRobust, arXiv:2509.16293, table 8"),
    (7.14, "the same, 4,096 GPUs"),
    (13.02, "the same, 8,192 GPUs"),
    (12.98, "the same, 16,384 GPUs"),
    (6.3, "7B, asynchronous: PyTorch blog, Distributed Asynchronous Checkpointing"),
)
"""Seconds that a checkpoint blocks training, and where they are stated."""
DETECTED = 60.0
"""Seconds until a failure is noticed (ByteRobust, arXiv:2509.16293, section 2)."""
RESTARTED = (
    (DETECTED + 454, "requeue, 2,048 GPUs: ByteRobust, arXiv:2509.16293, table 7"),
    (DETECTED + 545, "the same, 4,096 GPUs"),
    (DETECTED + 635, "the same, 8,192 GPUs"),
    (DETECTED + 768, "the same, 16,384 GPUs"),
    (1800.0, "diagnosis by hand: Minder, arXiv:2411.01791"),
)
"""Seconds from a failure to the next step where a job is queued again."""
SWAPPED = (
    (DETECTED + 46, "hot update, 2,048 GPUs: ByteRobust, arXiv:2509.16293, table 7"),
    (DETECTED + 51, "the same, 4,096 GPUs"),
    (DETECTED + 54, "the same, 8,192 GPUs"),
    (DETECTED + 65, "the same, 16,384 GPUs"),
)
"""The same where machines that stand by take over."""
USUAL_GPUS = 2_330
"""Geometric mean of the GPUs of the published runs whose whole-run and good-step utilization are both known: BLOOM 384,
GLM-130B 768, PaLM 6,144, Llama 3.1 405B 16,384."""


def middle(values: Iterable[float]) -> tuple[float, float]:
    """Return the geometric mean and σ of the logarithm."""
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return math.exp(mean), math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1))


def published(whole: Term, spare: bool) -> Interruptions:
    """Return the failures of published runs; whole: their share of training; spare: whether machines stand by."""
    gpu_mtbf, of_mtbf = middle(row.gpu_hours * HOUR / row.failures for row in FAILURES)
    write, of_write = middle(seconds for seconds, _ in BLOCKED)
    restart, of_restart = middle(seconds for seconds, _ in (SWAPPED if spare else RESTARTED))
    usual, _ = middle(seconds for seconds, _ in RESTARTED)
    failing = Interruptions(
        leaf("gpu_mtbf", gpu_mtbf, "GPU-second", SEEN, f"geometric mean of {len(FAILURES)} published runs"),
        leaf("checkpoint/blocked", write, "second", SEEN, f"geometric mean of {len(BLOCKED)} published figures"),
        leaf("restart", usual, "second", SEEN, "ByteRobust, arXiv:2509.16293; Minder, arXiv:2411.01791"),
        leaf("goodput/rest", 1, "1"),
        (of_mtbf, of_write, of_restart),
    )
    usual_gpus = leaf("gpus/published", USUAL_GPUS, "GPU", SEEN, "of the runs that the share is of")
    at = failing.available(usual_gpus).renamed("goodput/available/published")
    rest = divide("goodput/rest", whole.renamed("goodput/published"), at)
    again = leaf("restart", restart, "second", SEEN, failing.restart.source)
    return Interruptions(failing.gpu_mtbf, failing.write, again, rest, failing.spreads)

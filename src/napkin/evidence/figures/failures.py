"""Published figures on interruptions of large training jobs, checkpoint times and restart times."""

from __future__ import annotations

import math
from collections.abc import Iterable

from napkin.record import record
from napkin.term import SEEN, Term, divide, leaf
from napkin.timing.interruptions import NODE, CheckpointWrite, Interruptions

HOUR = 3600.0


@record
class FailureRow:
    """Unplanned interruptions of a job, and the GPU-hours of the period."""

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


@record
class SaveRow:
    """Time that saving a checkpoint blocked training: bytes, GPUs, seconds."""

    states: float
    gpus: int
    seconds: float
    source: str


MIXED = 14
"""Bytes that a checkpoint holds of a parameter in mixed precision: bf16, and an fp32 master and two moments."""
SAVED = (
    SaveRow(70e9 * MIXED, 2_048, 6.77, "Megatron's save, 70B: ByteRobust, arXiv:2509.16293, table 8"),
    SaveRow(70e9 * MIXED, 4_096, 7.14, "the same, 70B"),
    SaveRow(256e9 * MIXED, 8_192, 13.02, "the same, 256B"),
    SaveRow(256e9 * MIXED, 16_384, 12.98, "the same, 256B"),
)
"""Jobs in which each GPU writes less than 0.5 GB, so that most of the time is fixed."""
WRITTEN = (
    (2.3e12 / 40 / (384 / NODE), "BLOOM, 2.3 TB in 40 s on 384 GPUs: bigscience train/tr11-176B-ml/chronicles.md"),
    (0.16 * 250e9 / (504 / NODE), "504 B200, 16 % of a ceiling of 250 GB/s: arXiv:2605.09370"),
)
"""Byte/s of shared storage for each machine of a job."""
HELD = (2.3e12 / 384, 130e9 * MIXED / 768, 540e9 * MIXED / 6_144, 405e9 * MIXED / 16_384)
"""Bytes of a checkpoint for each GPU of the published runs that the share of the calendar time is of: BLOOM, GLM-130B,
PaLM, Llama 3.1 405B."""
DETECTED = 60.0
"""Seconds until a failure is noticed (ByteRobust, arXiv:2509.16293, section 2)."""
RESTARTED = (
    (DETECTED + 454, "requeue, 2,048 GPUs: ByteRobust, arXiv:2509.16293, table 7"),
    (DETECTED + 545, "the same, 4,096 GPUs"),
    (DETECTED + 635, "the same, 8,192 GPUs"),
    (DETECTED + 768, "the same, 16,384 GPUs"),
    (1800.0, "diagnosis by hand: Minder, arXiv:2411.01791"),
)
"""Seconds from a failure to the next step if the job is requeued."""
SWAPPED = (
    (DETECTED + 46, "hot update, 2,048 GPUs: ByteRobust, arXiv:2509.16293, table 7"),
    (DETECTED + 51, "the same, 4,096 GPUs"),
    (DETECTED + 54, "the same, 8,192 GPUs"),
    (DETECTED + 65, "the same, 16,384 GPUs"),
)
"""The same if standby machines take over."""
USUAL_GPUS = 2_330
"""Geometric mean of the GPUs of the published runs whose whole-run and good-step utilization are both known: BLOOM 384,
GLM-130B 768, PaLM 6,144, Llama 3.1 405B 16,384."""


def middle(values: Iterable[float]) -> tuple[float, float]:
    """Return the geometric mean and σ of the logarithm."""
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return math.exp(mean), math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1))


def written() -> tuple[CheckpointWrite, float]:
    """Return the time that published checkpoints blocked training, and σ of its logarithm."""
    rate, of_rate = middle(each for each, _ in WRITTEN)
    fixed, of_fixed = middle(row.seconds - row.states / (row.gpus / NODE) / rate for row in SAVED)
    each, _ = middle(HELD)
    write = CheckpointWrite(
        leaf("checkpoint/fixed", fixed, "second", SEEN, f"{len(SAVED)} jobs: {SAVED[0].source}, less their writing"),
        leaf("checkpoint/rate", rate, "byte/s/node", SEEN, "; ".join(source for _, source in WRITTEN)),
        leaf("checkpoint/bytes_per_gpu", each, "byte/GPU", SEEN, "geometric mean of four published runs"),
    )
    return write, max(of_rate, of_fixed)


def published_mtbf() -> tuple[Term, float]:
    """Return the mean time between interruptions of one GPU in published runs, and σ of its logarithm."""
    gpu_mtbf, spread = middle(row.gpu_hours * HOUR / row.failures for row in FAILURES)
    return leaf("gpu_mtbf", gpu_mtbf, "GPU-second", SEEN, f"geometric mean of {len(FAILURES)} published runs"), spread


def published(whole: Term, spare: bool, on: float = USUAL_GPUS) -> Interruptions:
    """Return the failures of published runs; whole: their goodput, on that many GPUs; spare: whether there are standby
    machines."""
    gpu_mtbf, of_mtbf = published_mtbf()
    restart, of_restart = middle(seconds for seconds, _ in (SWAPPED if spare else RESTARTED))
    usual, _ = middle(seconds for seconds, _ in RESTARTED)
    write, of_write = written()
    failing = Interruptions(
        gpu_mtbf,
        write,
        leaf("restart", usual, "second", SEEN, "ByteRobust, arXiv:2509.16293; Minder, arXiv:2411.01791"),
        leaf("goodput/rest", 1, "1"),
        (of_mtbf, of_write, of_restart),
    )
    usual_gpus = leaf("gpus/published", on, "GPU", SEEN, "of the runs that the share is of")
    at = failing.available(usual_gpus).renamed("goodput/available/published")
    rest = divide("goodput/rest", whole.renamed("goodput/published"), at)
    again = leaf("restart", restart, "second", SEEN, failing.restart.source)
    return Interruptions(failing.gpu_mtbf, failing.write, again, rest, failing.spreads)

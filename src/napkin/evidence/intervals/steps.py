"""Prediction intervals: the errors on published steps whose entire source was held out.

Errors within one source are not independent, so every source has the same weight. Most of what is known before a run
says nothing of its error (docs/accuracy.md). What the prediction rests on widens it: constants of the chip and of the
software, pooled toward a prior by the number of sources that measured them, with its spread if none did; that of
exposed data-parallel communication, by its share of the step; and how much releases differ on mixtures of experts
(`own`). Far from all evidence, the distance does too:

    |ln error| ≈ s = √(base² + (SLOPE·d)² + own²)

The interval is ×/÷ exp(q·s) with q the quantile of |ln error|/s over sources. Multiplicative, because errors are as
often ×1.2 as ÷1.2. It rests on one of three classes of evidence, of which `own` makes the later ones wider:

    measured   another source measured this software on such chips
    described  the software's code is described (software/stacks.py); no other source measured it there
    unknown    the software is not known

A quantile for each class would rest on few sources of the last two: it scored worse on sources that were left out."""

from __future__ import annotations

import math
from collections.abc import Iterable

from napkin.evidence.intervals.ranking import over_sources
from napkin.record import fields, record


@record
class RunPoint:
    """Features by which runs are compared; params, seq and gpus as natural logarithms."""

    generation: str
    stack: str
    experts: bool
    bits: int
    params: float
    seq: float
    gpus: float


MEASURED, DESCRIBED, UNKNOWN = "measured", "described", "unknown"
CLASSES = (MEASURED, DESCRIBED, UNKNOWN)
NORMAL_90 = 1.645
"""σ of a normal spread to which one side of its 90 % interval reaches."""
MEAN_OF_NORMAL = math.sqrt(2 / math.pi)
"""Mean of |x| over σ, where x is normal: what a constant's σ adds to a mean error."""
UNKNOWN_SPREAD = 0.08
"""σ of software factors around their middle (rates/priors.py)."""
HOST_SPREAD = 0.4
"""assumed: σ of ln(seconds) in which a host other than those of published steps launches kernels."""
NETWORK_SPREAD = 0.5
"""assumed: σ of ln byte/s per accelerator between nodes of which nothing is stated, downwards: most nodes of 8 × A100
or H100 have the rate of NVIDIA's own, AWS's p4d.24xlarge (4 network cards of 100 Gbit/s) and Google's A3 (4 of 200) a
quarter of it."""
SLOT_SPREAD = math.log(2)
"""assumed: σ of ln(rate) of slots that no source describes: half the lanes, or the generation before, halve it."""
HOST_LINK_SPREAD = math.log(4) / NORMAL_90
"""σ of ln(rate) of copies between GPU and host, downwards: at 90 % a fourth. 16 GPUs that share a host's links and
memory copy at 3.0 GB/s each where one alone has 12 (Rajbhandari et al. 2021, arXiv:2104.07857, figure 2b)."""
LIBRARY_SPREAD = 0.35
"""σ of ln(rate) of matmuls that a loop of PyTorch's own layers runs on AMD's accelerators, downwards: the library and
which of its solutions runs differ by release and setting (pytorch/pytorch pull requests 114894 and 120480). Steps of
four such sources take 1.14, 1.08, 0.68 and 0.5 times as long as predicted, σ 0.39 of ln t."""
EXPERTS_SPREAD = 0.10
"""σ of ln t of a mixture of experts, on top of the model's: one configuration measured again, in another release,
spreads by 10 % (21 groups of rows that repeat, 48 degrees of freedom; dense ones by 6 %)."""
SLOPE = 0.05
"""assumed: mean error of a run at distance 1 from the evidence. No row of the evidence lies as far from the others as a
new architecture would, so that the rows alone cannot show how errors grow out there."""
LN_8, LN_10, LN_20 = math.log(8), math.log(10), math.log(20)


def distance(a: RunPoint, b: RunPoint) -> float:
    """Return the root of a sum of squares in which differences count as follows.

    Another architecture, model type or tenfold size is 1; another stack or number format is ½; a factor of 8 in
    sequence length and of 20 in the number of GPUs are 1."""
    return _distances(a, ((b.generation, b.stack, b.experts, b.bits, b.params, b.seq, b.gpus),))[0]


def _distances(a: RunPoint, points: Iterable[tuple[str, str, int, int, float, float, float]]) -> list[float]:
    """Return the distances to points, given as their fields."""
    generation, stack, experts, bits, params, seq, gpus = (getattr(a, name) for name in fields(RunPoint))
    return [
        math.sqrt(
            ((params - p) / LN_10) ** 2
            + ((seq - s) / LN_8) ** 2
            + ((gpus - n) / LN_20) ** 2
            + ((generation != g) + (experts != e))
            + (0.25 * (stack != k) + 0.25 * (bits != b))
        )
        for g, k, e, b, p, s, n in points
    ]


def point(generation: str, stack: str, experts: bool, bits: int, params: float, seq: float, gpus: float) -> RunPoint:
    """Return the point of a run: its categories, and logarithms of parameters, sequence length and GPUs."""
    return RunPoint(generation, stack, experts, bits, math.log(params), math.log(seq), math.log(gpus))


@record
class SeenStep:
    """One row of the evidence: its point, and ln(predicted / measured) with its source held out.

    far: its distance to the nearest row of another source; own: see scale"""

    id: str
    source: str
    at: RunPoint
    error: float
    far: float
    own: float = 0.0


def scale(base: float, far: float, own: float = 0.0) -> float:
    """Return s. base: mean error next to the evidence; far: distance to it; own: mean error from uncertainty about the
    constants that the run rests on."""
    return math.sqrt(base**2 + (SLOPE * far) ** 2 + own**2)


Row = tuple[str, str, str, str, int, int, float, float, float, float, float, float]
"""A SeenStep as a table row: id, source, the fields of its point, error, far, own. Only the few rows that an answer
names become records."""


def own_error(at: RunPoint, chip: float, software: float, exposed: float = 0.0) -> float:
    """Return `own` of a run from σ of its chip's and of its software's constant. exposed: σ of that of exposed
    data-parallel communication, times the share of the step that it takes."""
    known = max(software, UNKNOWN_SPREAD) if at.stack == UNKNOWN else software
    return MEAN_OF_NORMAL * math.hypot(chip, known, exposed, EXPERTS_SPREAD if at.experts else 0.0)


def seen_step(row: Row) -> SeenStep:
    """Return a row of the table as a record."""
    return SeenStep(row[0], row[1], RunPoint(row[2], row[3], bool(row[4]), *row[5:9]), *row[9:])


def nearest(at: RunPoint, rows: Iterable[Row], count: int = 3, without: str = "") -> list[tuple[float, SeenStep]]:
    """Return the rows most similar to a run, nearest first, at most one per source and model size."""
    kept = [row for row in rows if row[1] != without]
    far_of = _distances(at, [row[2:9] for row in kept])
    ranked = sorted(zip(far_of, kept, strict=True), key=lambda pair: pair[0])
    chosen: list[tuple[float, SeenStep]] = []
    for far, row in ranked:
        one = seen_step(row)
        if all((one.source, one.at.params) != (other.source, other.at.params) for _, other in chosen):
            chosen.append((far, one))
        if len(chosen) == count:
            break
    return chosen


def class_of(at: RunPoint, rows: Iterable[Row], without: str = "") -> str:
    """Return the class of evidence of a prediction; without: a source to hold out."""
    if at.stack == UNKNOWN:
        return UNKNOWN
    same = any(row[1] != without and row[2] == at.generation and row[3] == at.stack for row in rows)
    return MEASURED if same else DESCRIBED


def widened(
    half: float,
    host: float = 0.0,
    slots: float = 0.0,
    kernel: float = 0.0,
    launches: float = 0.0,
    network: float = 0.0,
    clock: float = 0.0,
    moved: float = 0.0,
    dispatch: float = 0.0,
    library: float = 0.0,
) -> float:
    """Return half an interval with what no published step shows.

    host        |ln t| of a host that updates the optimizer's states some σ slower, as many as the level is
    slots       |ln t| of slots that no source describes, that many σ slower
    kernel      ln t of one attention kernel over another, of which one ran: the interval reaches from one's end to the
                other's
    launches    |ln t| of a host that launches kernels that many σ slower
    network     |ln t| of a network between nodes this many σ slower, where nothing is stated of it
    dispatch    |ln t| of an all-to-all of each token's copies, where kernels that send it once to a node may run or not
    moved       |ln t| of copies between GPU and host this many σ slower
    library     |ln t| of matmuls that a library other than those of published steps runs, this many σ slower
    clock       ln t at the lowest voltage over the prediction's, where the voltage may be at its lowest or not"""
    return math.hypot(half, host, slots, launches, network, moved, dispatch, library) + abs(kernel) + clock


def quantile(level: float, rows: Iterable[Row], base: float, without: str = "") -> float:
    """Return the level's quantile of |error|/s, every source weighing the same."""
    return over_sources(
        ((source, abs(error) / scale(base, far, own)) for _, source, *_, error, far, own in rows if source != without),
        level,
    )

"""The sequence lengths of a fine-tuning row: those of a typical micro-batch, for time, and of the longest ones, for
memory. Lengths that a row does not state are ranges.

Lengths of a data set are taken as lognormal with its mean m and the standard deviation c·m. The longest of n samples
has m·exp(σz − σ²/2) tokens, with σ² = ln(1 + c²) and z the mean of the largest of n standard normal numbers."""

from __future__ import annotations

import math

from napkin.evidence.figures.largest import largest_of
from napkin.evidence.rows.row import RowFields
from napkin.record import record, replace

SPREAD = (0.6, 0.3, 0.9)
"""Standard deviation of the lengths of a data set over their mean: the likely one, the least, the most. Of characters
in public data sets: GPTeacher's Toolformer 0.25 and Roleplay 0.28, GSM8K 0.41 (gururise/AlpacaDataCleaned
dataset_extensions); samples of Alpaca 0.70 to 0.84, of preferences 0.83 and 0.98, of tool calls 0.86
(hiyouga/LLaMA-Factory data). Their longest samples are 0.46 to 1.12 times as long as the law says, the median 0.87."""
SAMPLES = 10_000
"""Samples of a run on each GPU if a row does not say. Assumed."""
LEAST_OF_CUT = 0.25
"""The longest samples over the length at which a row cuts them, at the least. Assumed."""
USUAL = (1024, 256, 4096)
"""Tokens of the longest samples if a row says nothing: the likely figure, the least, the most. Assumed."""


@record
class RowLengths:
    """Tokens of a row's sequences.

    seq      of a typical one, with its padding
    longest  in the longest micro-batch: the likely figure, the least, the most; all equal if lengths do not vary
    untimed  why its speed is not predicted, ""
    varied   micro-batches differ in length, in no order        padded  each is padded to the longest of its micro-batch
    """

    seq: int
    longest: tuple[int, int, int]
    untimed: str = ""
    varied: bool = False
    padded: bool = False

    def several(self, most: int, untimed: str) -> RowLengths:
        """Return lengths of a pass over one to this many sequences, as one sequence of all their tokens."""
        likely, least, longest = self.longest
        return replace(self, longest=(likely, least, longest * most), untimed=untimed)

    def waits(self, ranks: int, micro: int, sums: int) -> tuple[float, float, float]:
        """Return the slowdown of a step because ranks wait for the one with the most tokens: the likely ratio, the
        least, the most. `sums`: micro-batches between two waits."""
        if not self.varied or ranks <= 1:
            return (1.0, 1.0, 1.0)
        likely, least, most = (_slowest(ranks, micro, sums, self.padded, spread) for spread in SPREAD)
        return (likely, least, most)


def _slowest(ranks: int, micro: int, sums: int, padded: bool, spread: float) -> float:
    """Return the tokens of the rank with the most over those of the mean rank."""
    if not padded:
        return 1.0 + spread * largest_of(ranks) / math.sqrt(micro * sums)
    most = 1.0 + spread * largest_of(micro * ranks)
    return 1.0 + (most / _padding(micro, spread) - 1.0) / math.sqrt(sums)


def _padding(micro: int, spread: float) -> float:
    """Return the mean of the longest of a micro-batch over the mean sample."""
    return 1.0 + spread * largest_of(micro)


def mean_of(row: RowFields, samples: int) -> float | None:
    """Return the mean tokens of a sample; of padded rows with their padding. samples: of a step."""
    step = row.number("measured.mean_tokens_per_step")
    return row.number("measured.mean_tokens_per_sample") or (step / samples if step else None)


def lengths_of(row: RowFields, micro: int, samples: int, seen: float = 0.0, joins: bool = False) -> RowLengths:
    """Return the lengths. micro: sequences of a forward pass; samples: of a step; seen: of the whole run on a GPU, 0 if
    unknown; joins: its software joins the sequences of a micro-batch unless told otherwise."""
    stated, cut, mean = row.count("layout.seq"), row.count("layout.seq_max"), mean_of(row, samples)
    packed, padded = row.flag("layout.packed"), _is_padded(row, joins)
    if stated is not None:
        return RowLengths(stated, (stated, stated, stated))
    if mean is not None:
        alike = "sorted" in row.text("layout.padded")
        likely, least, most = (_longest(mean, micro, seen or SAMPLES, padded, alike, each, cut) for each in SPREAD)
        return RowLengths(round(mean), (likely, least, most), varied=not alike, padded=padded)
    untimed = "how long its sequences are is not stated"
    seldom = _tail(seen, SPREAD[0]) / _tail(SAMPLES, SPREAD[0]) if seen else 1.0
    if cut is None:
        likely, least, most = USUAL
        return RowLengths(likely, (round(likely * seldom), round(least * seldom), most), untimed)
    if packed:
        return RowLengths(cut, (cut, cut, cut))
    lowest = cut * LEAST_OF_CUT * seldom
    usual = min(max(USUAL[0] * seldom, lowest), cut)
    joined = 1.0 if padded else _joined(micro, seen or SAMPLES, SPREAD[0]) / _tail(seen or SAMPLES, SPREAD[0])
    likely, low = (round(one * joined) for one in (usual, lowest))
    return RowLengths(cut, (likely, low, cut), untimed, varied=True, padded=padded)


def _is_padded(row: RowFields, joins: bool) -> bool:
    """Return whether each sequence is padded to the longest of its micro-batch."""
    free, how = row.flag("layout.padding_free"), row.part("layout").get("padded")
    said = free or row.flag("layout.packed") or "padding-free" in row.text("layout.kernels") or how is False
    usual = joins and free is None and not how
    return not (said or usual)


def _tail(samples: float, spread: float) -> float:
    """Return the longest of so many samples over their mean."""
    variance = math.log(1.0 + spread**2)
    return math.exp(math.sqrt(variance) * largest_of(samples) - variance / 2)


def _joined(micro: int, samples: float, spread: float) -> float:
    """Return the tokens of the largest micro-batch over the mean one where sequences are joined: one with the longest
    sample, or one whose sum is the largest."""
    one = (_tail(samples, spread) + micro - 1) / micro
    return max(one, 1.0 + spread * largest_of(samples / micro) / math.sqrt(micro))


def _longest(mean: float, micro: int, samples: float, padded: bool, alike: bool, spread: float, cut: int | None) -> int:
    """Return the tokens of a sequence in the longest micro-batch. mean: with padding; alike: to sequences that are as
    long."""
    if padded:
        longest = mean * _tail(samples, spread) / (1.0 if alike else _padding(micro, spread))
    else:
        longest = mean * _joined(micro, samples, spread)
    return round(max(min(longest, cut), mean) if cut else max(longest, mean))

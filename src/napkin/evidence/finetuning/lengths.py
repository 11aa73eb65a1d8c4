"""The sequence lengths of a fine-tuning row: those of a typical micro-batch, for time, and of the longest ones, for
memory. Lengths that a row does not state are ranges."""

from __future__ import annotations

import math

from napkin.evidence.rows.row import RowFields
from napkin.record import record, replace

LONGER = 4.0
"""The longest sequence of a data set over its mean one. Assumed."""
SPREAD = (0.5, 0.3, 0.7)
"""Standard deviation of the lengths of a data set over their mean: the likely one, the least, the most. Assumed."""
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


def _largest_of(count: int) -> float:
    """Return the mean of the largest of n standard normal numbers (Blom 1958: the quantile (n − 3/8) / (n + 1/4))."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def _slowest(ranks: int, micro: int, sums: int, padded: bool, spread: float) -> float:
    """Return the tokens of the rank with the most over those of the mean rank."""
    if not padded:
        return 1.0 + spread * _largest_of(ranks) / math.sqrt(micro * sums)
    mean = 1.0 + spread * _largest_of(micro)
    most = 1.0 + spread * _largest_of(micro * ranks)
    return 1.0 + (most / mean - 1.0) / math.sqrt(sums)


def mean_of(row: RowFields, samples: int) -> float | None:
    """Return the mean tokens of a sample; of padded rows with their padding. samples: of a step."""
    step = row.number("measured.mean_tokens_per_step")
    return row.number("measured.mean_tokens_per_sample") or (step / samples if step else None)


def lengths_of(row: RowFields, micro: int, samples: int, joins: bool = False) -> RowLengths:
    """Return the lengths. micro: sequences of a forward pass; samples: of a step; joins: its software joins the
    sequences of a micro-batch unless told otherwise."""
    stated, cut, mean = row.count("layout.seq"), row.count("layout.seq_max"), mean_of(row, samples)
    packed, padded = row.flag("layout.packed"), _is_padded(row, joins)
    if stated is not None:
        return RowLengths(stated, (stated, stated, stated))
    if mean is not None:
        likely, least, most = (_longest(round(mean), micro, padded, part, cut) for part in (1.0, 0.5, 2.0))
        alike = "sorted" in row.text("layout.padded")
        return RowLengths(round(mean), (likely, least, most), varied=not alike, padded=padded)
    untimed = "how long its sequences are is not stated"
    if cut is None:
        return RowLengths(USUAL[0], USUAL, untimed)
    if packed:
        return RowLengths(cut, (cut, cut, cut))
    quarter = cut / LONGER
    usual = min(max(USUAL[0], quarter), cut)
    joined = 1.0 if padded else _excess(micro) / LONGER
    likely, low = (round(one * joined) for one in (usual, quarter))
    return RowLengths(cut, (likely, low, cut), untimed, varied=True, padded=padded)


def _is_padded(row: RowFields, joins: bool) -> bool:
    """Return whether each sequence is padded to the longest of its micro-batch."""
    free = row.flag("layout.padding_free")
    said = free or row.flag("layout.packed") or "padding-free" in row.text("layout.kernels")
    usual = joins and free is None and not row.text("layout.padded")
    return not (said or usual)


def _excess(micro: int) -> float:
    """Return the longest micro-batch over the mean one where sequences are joined: the excess falls with the root of
    their number."""
    return 1.0 + (LONGER - 1.0) / math.sqrt(micro)


def _longest(mean: int, micro: int, padded: bool, part: float, cut: int | None) -> int:
    """Return the tokens of a sequence in the longest micro-batch; part: of the excess over the mean."""
    ratio = LONGER if padded else _excess(micro)
    longest = round(mean * (1.0 + part * (ratio - 1.0)))
    return max(min(longest, cut), mean) if cut else longest

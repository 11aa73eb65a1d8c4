"""What stands around attention where its maps are not those of queries and keys alone: two that are subtracted
(Differential Transformer, arXiv:2410.05258), or one that the values mask (Dynamic Mask Attention, arXiv:2508.02124)."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import HEADS, NOT_TIMED, Elementwise, View, Weight
from napkin.record import record


@record
class HalfHeads(View):
    """One half of the heads of `width` numbers a token, twice: a copy laid out by heads."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Difference(Elementwise):
    """The results of two maps put together, head by head, the second half of the heads then subtracted from the first,
    times λ = exp(q₁·k₁) − exp(q₂·k₂) + a constant, of four learnt vectors of `head_dim` numbers. Half as many heads, of
    twice the size, are left."""

    heads: int
    head_dim: int

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, (self.head_dim,)) for name in ("q_first", "k_first", "q_second", "k_second"))

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class DynamicMask(Elementwise):
    """What is added to the scores of every query with a key: exp(a·softplus(x)) of that key, for each of `heads`
    key/value heads, masked where it comes later; in sequences of more than `keep` keys the largest so many alone.
    Each serves `queries` query heads."""

    heads: int
    keep: int
    queries: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("a", (self.heads,), HEADS),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

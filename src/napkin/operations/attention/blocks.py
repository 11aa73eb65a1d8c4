"""Attention of blocks of a sequence to a few others (BigBird, arXiv:2007.14062)."""

from __future__ import annotations

from napkin.operations.attention.core import AttentionCore
from napkin.operations.work import PairRule
from napkin.record import record


@record
class BlockAttention(AttentionCore):
    """softmax(q·kᵀ)·v of blocks of `block` tokens: the first and the last see all, every other sees both of these, its
    neighbors, itself and `random` more. FLOP: 4·b·a·d·pairs, in every convention of counting pairs.

    Sequences of up to (5 + 2·random) blocks see everything. A longer one is padded to whole blocks."""

    block: int = 64
    random: int = 3

    @property
    def longest_full(self) -> int:
        """Return the length up to which every token sees every other."""
        return (5 + 2 * self.random) * self.block

    def own_rule(self, exact: bool) -> PairRule:
        """Return the products that the class runs, which are the same whether or not pairs count exactly."""
        return PairRule("own", "block_pairs", (("block", self.block), ("random", self.random)))

    def depends_on_shapes(self, length: int) -> bool:
        """Return False if the attention is sparse: what it keeps is counted as full attention's, which is more."""
        return length <= self.longest_full

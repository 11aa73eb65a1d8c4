"""Attention of blocks of a sequence to a few others (BigBird, arXiv:2007.14062)."""

from __future__ import annotations

from napkin.elementwise import Number, ceil_div, where
from napkin.operations.attention import AttentionCore
from napkin.operations.work import Work
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

    def own_pairs(self, work: Work) -> Number:
        """Count the products that the class runs: the second block and the last but one have one neighbor that all see
        anyway."""
        found: Number = 0
        for length, count in work.lengths or ((work.length, 1),):
            blocks = ceil_div(length, self.block)
            ends = 2 * blocks + 2 * (4 + self.random)
            sparse = self.block**2 * (ends + (blocks - 4) * (5 + self.random))
            found = found + count * where(length > self.longest_full, sparse, length * length)
        return work.sequences * found

    def depends_on_shapes(self, length: int) -> bool:
        """Return False where the attention is sparse: what it keeps is counted as full attention's, which is more."""
        return length <= self.longest_full

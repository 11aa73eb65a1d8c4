"""Attention with one key for all heads, which is their value too, over a window and compressed runs (DeepSeek-V4)."""

from __future__ import annotations

from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS_CAST, RMS_FP32, Gating, Operations
from napkin.operations.attention.compressed import Compressor, GroupedMatmul, RunIndexer
from napkin.operations.attention.core import AttentionCore
from napkin.operations.linear import Matmul
from napkin.operations.roles import COLUMN, QUERY, ROW
from napkin.record import record

WINDOW, CHOSEN, ALL = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
"""Only a window; next to it, runs of tokens that an indexer chooses; or all runs, of more tokens each."""
CLAMPED = Gating(clamped=True)


@record
class RunIndexSizes:
    """Sizes of the indexer that chooses runs of tokens: its heads, their elements, and how many runs it chooses."""

    heads: int
    size: int
    chosen: int


@record
class SharedKeyAttention:
    """Attention with one key for all heads, which is their value too: a block that reads [batch, seq, width].

    Queries have a low rank. The result is rotated back, and the output projection is two: one for each group of heads,
    then one of all.

    rate   tokens of a compressed run (0: only the window)
    index  chooses among the runs; None: all are seen
    """

    width: int
    heads: int
    head_dim: int
    q_rank: int
    groups: int
    out_rank: int
    window: int
    rope: Rope
    rate: int = 0
    index: RunIndexSizes | None = None

    def __call__(self, source: str) -> Operations:
        wide, rope, index = self.heads * self.head_dim, self.rope, self.index
        operations: Operations = (
            Matmul("q_a", (source,), self.width, self.q_rank),
            RMS_FP32("q_a_norm", "q_a", self.q_rank),
            Matmul("q", ("q_a_norm",), self.q_rank, wide, False, COLUMN, role=QUERY),
            RMS_CAST("q_norm", "q", self.head_dim, self.heads),
            rope("q_rope", "q_norm", self.heads, self.head_dim),
            Matmul("kv", (source,), self.width, self.head_dim),
            RMS_FP32("kv_norm", "kv", self.head_dim),
            rope("kv_rope", "kv_norm", 1, self.head_dim),
            *self._runs(source),
        )
        core = AttentionCore(
            "attention",
            ("q_rope", "kv_rope", "kv_rope", *(("runs",) if self.rate else ())),
            self.heads,
            1,
            self.head_dim,
            self.head_dim,
            window=self.window,
            sinks=True,
            shared=True,
            compressed=self.rate,
            chosen=index.chosen if index is not None else None,
        )
        return (
            *operations,
            core,
            rope("out_rope", "attention", self.heads, self.head_dim),
            GroupedMatmul("o_a", ("out_rope",), self.groups, wide // self.groups, self.out_rank),
            Matmul("o", ("o_a",), self.groups * self.out_rank, self.width, False, ROW),
        )

    def _runs(self, source: str) -> Operations:
        """Return the compressed runs of tokens and what chooses among them."""
        rate, rotary, index = self.rate, self.rope.dim, self.index
        if not rate:
            return ()
        runs = Compressor("runs", (source,), self.width, self.head_dim, rate, rotary, index is not None)
        if index is None:
            return (runs,)
        reads, sizes = (source, "q_a_norm"), (self.width, self.q_rank, index.heads, index.size)
        return (runs, RunIndexer("indexer", reads, *sizes, rate, rotary))

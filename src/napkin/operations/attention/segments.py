"""Attention with scores by the distance of two tokens of a segment, or by their segments (CPM-Ant)."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number, ceil_div
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.eager import batched, causal_mask
from napkin.operations.attention.kernels import position_bias
from napkin.operations.embedding import Embedding, PositionBias
from napkin.operations.lowering import Lowering
from napkin.operations.roles import SHARED_TENSOR
from napkin.operations.shapes import Value
from napkin.operations.work import Work
from napkin.record import record

IDS = "int32"
"""The type of the class's ids of tokens, segments and buckets."""
UNREAD_IDS = 3
"""Ids of each token that the class holds while its layers run and that nothing saves: contexts, positions, spans."""


@record
class NarrowEmbedding(Embedding):
    """A lookup by 32-bit ids, which the class makes of those that the step gives."""

    def lower(self, run: Lowering) -> Value:
        tape, rows = run.tape, run.tokens // run.split.sequence
        stored = "fp32" if tape.autocast else tape.compute
        ids = tape.new(rows, IDS, "ids", no_grad=True)
        out = tape.new(rows * self.width, stored, "embedded")
        out = tape.record("embedding", (ids,), out, (ids,), weight=self.rows * self.width * BYTES[stored])
        return Value(out, self.width)


@record
class SegmentBias(PositionBias):
    """A learned score for each head and bucket: of distances within a segment, of pairs of segments else, so that each
    sequence has its own. Returns the embeddings that it reads, for the layers to begin with."""

    def scores(self, work: Work) -> Number:
        return work.tokens * work.length * self.heads

    def lower(self, run: Lowering) -> Value:
        """Look up a bias for each pair of tokens, and copy all of them by heads."""
        tape, heads = run.tape, ceil_div(self.heads, run.split.tensor)
        pairs = run.b * run.own * run.s
        stored = "fp32" if tape.autocast else tape.compute
        buckets = tape.new(pairs, IDS, "buckets", no_grad=True)
        rows = tape.new(pairs * heads, stored, "bias")
        rows = tape.record("embedding", (buckets,), rows, (buckets,), weight=self.buckets * heads * BYTES[stored])
        run.bias = tape.copy(rows, "bias by heads")
        mask = tape.new(pairs, IDS, "mask", no_grad=True)
        ids = tape.new(run.tokens * UNREAD_IDS + run.b, IDS, "ids and lengths", no_grad=True)
        for what, tensor in ((self.name, run.bias), ("mask", mask), ("ids", ids)):
            tensor.storage.shared = True
            run.shared_tensors[SHARED_TENSOR + what] = Value(tensor, 1)
        return run.read(self)


@record
class SegmentAttention(AttentionCore):
    """softmax(q·kᵀ/√d + bias)·v, whose weights of masked keys are set to 0 once more."""

    def eager(
        self, run: Lowering, qkv: tuple[Tensor, ...], rows_apart: tuple[bool, ...], heads: Number, kv_heads: Number
    ) -> Tensor:
        """Each mask is compared anew before it is used, and its comparison saved."""
        tape = run.tape
        q, k, v = (t.view(rows_apart=apart) for t, apart in zip(qkv, rows_apart, strict=True))
        scores = tape.scale(batched(run, q, k, heads, run.b * heads * run.own * run.s, "scores"))
        scores = tape.add(scores, position_bias(run, self, heads))
        weights = self._masked(run, tape.softmax(self._masked(run, scores)))
        out = batched(run, tape.dropout(weights, run.dropout), v, heads, run.tokens * heads * self.v_dim, "values")
        return tape.copy(out, "attended")

    def _masked(self, run: Lowering, x: Tensor) -> Tensor:
        """Return scores or weights where the mask lets them pass."""
        return run.tape.record("masked_fill", (x,), run.tape.new(x.count, x.dtype, "masked"), (causal_mask(run),))

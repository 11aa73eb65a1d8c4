"""Attention with scores by content and by distance (Transformer-XL, arXiv:1901.02860; XLNet, arXiv:1906.08237)."""

from __future__ import annotations

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import BYTES, Tensor, select
from napkin.elementwise import Number
from napkin.operations.bases import Module, Ordinary
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.roles import COLUMN, HEADS, SHARED_TENSOR
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class DistanceKeys(Module):
    """A key of each distance, made of sinusoids by a linear layer without bias, for each sequence anew: 2s distances
    of a sequence that sees both ways, s + 1 of one that sees back. FLOP: 2·b·distances·d_in·d_out."""

    d_in: int
    d_out: int
    causal: bool

    def distances(self, length: Number) -> Number:
        """Return how many distances there are."""
        return length + 1 if self.causal else 2 * length

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.d_out, self.d_in), COLUMN),)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.sequences * self.distances(work.length), self.d_in, self.d_out),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Multiply the sinusoids, one fp32 table for all layers.

        Dropout makes them a tensor for each sequence; without it, each layer repeats them, in the layer's type."""
        tape = run.tape
        rows = self.distances(run.s) * self.d_in
        if "sinusoids" not in run.masks:
            table = tape.new(rows, "fp32", "sinusoids", no_grad=True)
            if run.dropout:
                table = tape.new(rows * run.b, "fp32", "sinusoids", no_grad=True)
            table.storage.shared = True
            run.masks["sinusoids"] = table
            run.shared_tensors[SHARED_TENSOR + self.name] = Value(table, self.d_in)
        table = run.masks["sinusoids"]
        stored = "fp32" if tape.autocast else tape.compute
        if not run.dropout:
            table = select(run.b == 1, table, tape.new(rows * run.b, stored, "for each sequence", no_grad=True))
        table = tape.lowered(tape.cast(table, stored))
        count = self.d_in * self.d_out
        out = tape.new(table.count // self.d_in * self.d_out, table.dtype, "keys")
        grads = count * BYTES[stored]
        made = tape.record("linear", (table,), out, for_weight=(table,), weight=grads)
        tape.nodes[-1].cached = _only_cached(tape, count)
        return Value(made, self.d_out)


def _only_cached(tape: Tape, count: Number) -> Number:
    """Return the bytes of autocast's copy of a weight that no product saves: only autocast's cache holds it."""
    return count * BYTES[tape.autocast] if tape.autocast and not tape.frozen else 0


@record
class Einsum(Matmul):
    """A linear layer by torch.einsum with a parameter of the attention's module, whose heads are a dimension of their
    own. `folded`: its inputs are its last dimensions, which each product copies to the front."""

    folded: bool = False

    @property
    def bare(self) -> bool:
        return True

    def lower(self, run: Lowering) -> Value:
        tape, x = run.tape, run.read(self)
        ways = run.split.tensor
        d_in, d_out = (self.d_in // ways, self.d_out) if self.folded else (self.d_in, self.d_out // ways)
        read = tape.lowered(x.tensor)
        kept = []
        if self.folded:
            kept.append(tape.new(d_in * d_out, read.dtype, "weight put to the front", no_grad=True))
        elif tape.autocast:
            kept.append(tape.weight_copy(d_in * d_out, f"{self.name}/weight"))
        stored = "fp32" if tape.autocast else tape.compute
        out = tape.new(read.count // d_in * d_out, read.dtype, "output")
        grads = d_in * d_out * BYTES[stored]
        made = tape.record("linear", (read,), out, kept, for_weight=(read,), weight=grads)
        if self.folded:
            tape.nodes[-1].cached = _only_cached(tape, d_in * d_out)
        return Value(made, self.d_out, not self.folded, not self.folded)


@record
class ShiftedAttention(Ordinary):
    """softmax((q + u)·kᵀ + shift((q + w)·rᵀ))·v, reading q, k, v and the distances' keys r; u and w are learned for
    each head. FLOP: 2·b·a·d·(2s² + s·distances). A third vector and two segments' keys serve segments only."""

    heads: int
    head_dim: int
    causal: bool

    def weights(self) -> tuple[Weight, ...]:
        shape = (self.heads, self.head_dim)
        used = tuple(Weight(name, shape, HEADS) for name in ("content_bias", "distance_bias"))
        segments = (("segment_bias", shape), ("segments", (2, *shape)))
        return (*used, *(Weight(name, of, HEADS, trained=False) for name, of in segments))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        distances = work.length + 1 if self.causal else 2 * work.length
        batch = work.sequences * self.heads
        shapes = (
            ("scores", self.head_dim, work.length),
            ("distances", self.head_dim, distances),
            ("values", work.length, self.head_dim),
        )
        return tuple(gemm(name, work.length, k, n, batch, weight=False) for name, k, n in shapes)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return work.tokens * self.heads * work.length

    def attention_width(self) -> Number:
        return 2 * self.heads * self.head_dim

    def division(self) -> str:
        return HEADS

    def lower(self, run: Lowering) -> Value:
        """Run both products, of which the second is cut into diagonals by a view and an index."""
        tape = run.tape
        q, k, v, r = (run.read(self, i).tensor for i in range(4))
        width, rows = self.heads * self.head_dim, run.b * self.heads * run.s
        if self.causal and "masks" not in run.masks:  # which queries see which keys, and the same without their own
            masks = tape.new(2 * run.s * run.s, "fp32" if tape.autocast else tape.compute, "masks", no_grad=True)
            masks.storage.shared = True
            run.masks["masks"] = masks
            run.shared_tensors[SHARED_TENSOR + self.name] = Value(masks, 1)

        def biased() -> Tensor:
            return tape.add(q, run.weight(width))

        scores = tape.matmul(biased(), k, rows * run.s, "scores")
        far = tape.matmul(biased(), r, rows * (run.s + 1 if self.causal else 2 * run.s), "scores of distances")
        index = tape.new(run.s, "int64", "keys", no_grad=True)
        content = scores
        far = tape.slice(far, far.count - rows, apart=True)
        near = tape.record("index", (far,), tape.new(scores.count, far.dtype, "scores of pairs"), (index,))
        scores = tape.scale(tape.add(scores, near))
        if self.causal:
            scores = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
        weights = tape.dropout(tape.softmax(scores), run.dropout)
        out = tape.matmul(weights, v, run.tokens * width, "values")
        tape.hold(content, near, scores, weights)  # variables of the function
        run.scopes.local(q)
        return Value(tape.copy(out, "attended"), width, True, True)

"""Operations around attention whose maps are not softmax(q·kᵀ) only: two that are subtracted
(Differential Transformer, arXiv:2410.05258), or one that the values mask (Dynamic Mask Attention, arXiv:2508.02124)."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, sized
from napkin.elementwise import Number, where
from napkin.operations.bases import Elementwise, View
from napkin.operations.implementations import EAGER
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS
from napkin.operations.shapes import Value
from napkin.operations.work import Weight, Work
from napkin.record import record


@record
class HalfHeads(View):
    """One half of the heads of `width` elements per token, twice: a copy laid out by heads."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read a half, write it twice; backward the two are added."""
        return 3 * self.width, 3 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        half = run.tape.slice(x.tensor, x.tensor.count // 2)
        return Value(run.tape.copy(half.view(x.tensor.count), "half, twice"), x.width, x.divided, x.gathered, True)


@record
class AttentionDifference(Elementwise):
    """The difference of two attention maps' results, head by head.

    The second half of the heads, times λ = exp(q₁·k₁) − exp(q₂·k₂) + a constant, is subtracted from the first; λ has
    four learned vectors of `head_dim` elements. Half as many heads, of twice the size, are left.
    """

    heads: int
    head_dim: int

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, (self.head_dim,)) for name in ("q_first", "k_first", "q_second", "k_second"))

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward read the gradient and the second, and write two."""
        return 6 * self.heads * self.head_dim, 8 * self.heads * self.head_dim

    def lower(self, run: Lowering) -> Value:
        """Subtract the scaled second map; the multiplication saves λ and a view of both maps' results."""
        tape, first = run.tape, run.read(self)
        results = tuple(run.read(self, i).tensor for i in range(2))
        dtype = results[0].dtype
        both = tape.record("cat", results, tape.new(2 * results[0].count, dtype, "both maps"))
        upper, lower = (tape.slice(both, results[0].count) for _ in range(2))
        share = strength(run, self)
        weighed = tape.record(
            "mul", (lower, share), tape.new(lower.count, dtype, "weighed"), (lower, share), broadcast=True
        )
        return Value(tape.add(upper, weighed), first.width, first.divided, first.gathered)


@record
class DynamicMask(Elementwise):
    """What is added to the scores of every query with a key: exp(a·softplus(x)) of that key, for each of `heads`
    key/value heads, masked if it comes later; in sequences of more than `keep` keys only this many of the largest.
    Each serves `queries` query heads."""

    heads: int
    keep: int
    queries: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("a", (self.heads,), HEADS),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is added to them."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        """Return what is added for each pair of a query and a key."""
        return work.tokens * self.heads * self.queries * work.length

    def lower(self, run: Lowering) -> Value:
        """softplus keeps what it reads, the product its result, exp its own; each masking keeps its condition; the
        choice of the largest, through which no gradient passes, nothing: places and a one for each chosen pair live
        next to the mask until it is filled."""
        tape = run.tape
        x = tape.raised(run.read(self).tensor)
        heads = self.heads // run.split.tensor
        plus = tape.record("softplus", (x,), tape.new(x.count, x.dtype, "softplus"), (x,))
        scaled = tape.raised(tape.multiply(plus, run.weight(heads)))
        grown = tape.new(scaled.count, scaled.dtype, "exp")
        grown = tape.record("exp", (scaled,), grown, (grown,))
        rows = run.b * heads * run.own
        later = tape.new(run.b * run.own * run.s, "bool", "later", no_grad=True)
        stored = "fp32" if tape.autocast else tape.compute
        additive = sized(later.count, stored) * (run.attention != EAGER)  # eager attention's is given so
        mask = tape.new(rows * run.s, grown.dtype, "masked")
        mask = tape.record("masked_fill", (grown,), mask, (later,), forward_scratch=additive)
        longer = where(run.s > self.keep, 1, 0)
        others = tape.new(rows * run.s * longer, "bool", "others", no_grad=True)
        chosen = longer * (additive + sized(rows * run.s, stored) + sized(rows * self.keep, "int64"))
        masked = tape.new(rows * run.s, mask.dtype, "masked")
        mask = tape.record("masked_fill", (mask,), masked, (others,), forward_scratch=chosen)
        repeated = mask.view(mask.count * self.queries)  # of one head a view
        if self.queries > 1 and self.heads > 1:
            repeated = tape.copy(repeated, "repeated")
        return Value(repeated, self.heads * self.queries, True, True, True)


def strength(run: Lowering, op: AttentionDifference) -> Tensor:
    """λ: sums in fp32, which exp keeps, cast to the type that queries have."""
    tape, parts = run.tape, []
    for _ in range(2):
        product = tape.multiply(run.weight(op.head_dim), run.weight(op.head_dim))
        total = tape.record("sum", (product,), tape.new(1, "fp32", "sum"))
        grown = tape.new(1, "fp32", "exp")
        parts.append(
            tape.cast(tape.record("exp", (total,), grown, (grown,)), "fp32" if tape.autocast else tape.compute)
        )
    return tape.shift(tape.add(parts[0], parts[1]))

"""Operations of attention over compressed keys (DeepSeek-V4): each run of past tokens is pooled to one key, and an
indexer may choose among these."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor, select
from napkin.elementwise import Number, ceil_div
from napkin.operations.adapters.adapted import linear
from napkin.operations.attention.indexer import ONLY_FORWARD, unkept
from napkin.operations.bases import Module
from napkin.operations.facts import Cache, LinearPart, Served
from napkin.operations.implementations import Implementation
from napkin.operations.linear import BlockMatmul
from napkin.operations.lowering import Lowering
from napkin.operations.norms import Norm
from napkin.operations.rotary import Rotary
from napkin.operations.rotary_tables import by_angles
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, chosen_by, gemm
from napkin.record import record


@record
class Compressor(Module):
    """One key of `head_dim` elements for each run of `rate` tokens: Σ over the run of softmax(gate + position)·value,
    normalized, its last `rotary` elements rotated (RoPE). FLOP: 4·T·h·d, twice that where overlapping.

    overlapping  a run's key is made of its own tokens and of those of the run before, each token giving both its own
                 values and gates"""

    d_in: int
    head_dim: int
    rate: int
    rotary: int
    overlapping: bool = False

    @property
    def wide(self) -> int:
        """Return the elements of values, and of gates, per token."""
        return self.head_dim * (1 + self.overlapping)

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("value", (self.wide, self.d_in)),
            ("gate", (self.wide, self.d_in)),
            ("positions", (self.rate, self.wide)),
            ("norm", (self.head_dim,)),
        )
        return tuple(Weight(name, shape) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        parts = ("value", "gate")
        return tuple(gemm(f"{self.name}/{part}", work.tokens, self.d_in, self.wide) for part in parts)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return tuple(LinearPart(f"{self.module}.{part}", self.d_in, self.wide) for part in ("kv_proj", "gate_proj"))

    def traffic(self) -> tuple[Number, Number]:
        return 16 * self.wide, 24 * self.wide

    def lower(self, run: Lowering) -> Value:
        """Values and gates of each run weighed and added up; an overlapping one lays both series out again first."""
        x = run.read(self).tensor
        values, gates = (
            linear(run, part, x, label=f"{self.name}/{what}")
            for part, what in zip(self.linear_parts(run.implementation), ("value", "gate"), strict=True)
        )
        return Value(compressed(run, self, values, gates), self.head_dim)


@record
class RunIndexer(Module):
    """Chooses the runs that each query sees: small queries from the latent query, its own compressor for their keys,
    and a weight for each head; score = Σ_h w_h·relu(q_h·k). Reads the layer's normalized input and the latent query.
    The loss's gradient does not reach its weights: a choice has none."""

    d_in: int
    q_rank: int
    heads: int
    head_dim: int
    rate: int
    rotary: int

    @property
    def keys(self) -> Compressor:
        sizes = self.d_in, self.head_dim, self.rate, self.rotary
        return Compressor(f"{self.name}/keys", self.reads[:1], *sizes, True, module=self.module)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return (
            *self.keys.linear_parts(implementation),
            LinearPart(f"{self.module}.q_b_proj", self.q_rank, self.heads * self.head_dim),
            LinearPart(f"{self.module}.scorer.weights_proj", self.d_in, self.heads),
        )

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            *((weight.name, weight.shape) for weight in self.keys.weights()),
            ("query", (self.heads * self.head_dim, self.q_rank)),
            ("head_weights", (self.heads, self.d_in)),
        )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        t, runs = work.tokens, work.length // self.rate
        products = (
            *self.keys.gemms(work),
            gemm(f"{self.name}/query", t, self.q_rank, self.heads * self.head_dim),
            gemm(f"{self.name}/head_weights", t, self.d_in, self.heads),
            gemm(f"{self.name}/scores", self.heads, self.head_dim, runs, t, weight=False),
        )
        return chosen_by(work, products)

    def remark(self) -> str:
        return ONLY_FORWARD

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return work.tokens * (work.length // self.rate)

    def cache(self, over: Served) -> Cache | None:
        """Return one key for each run of tokens, on every rank."""
        return Cache(self.name, growing=over.context // self.rate * self.head_dim)

    def lower(self, run: Lowering) -> Value:
        """Choose runs: a choice has no gradient, so that nothing is kept.

        The scores of every query with every run, for each head, come and go in fp32."""
        tape = run.tape
        x, latent = run.read(self).tensor, run.read(self, 1).tensor
        outer, tape.recomputed = tape.recomputed, True
        pairs = run.tokens * (run.own // self.rate)

        *parts, queries, head_weights = self.linear_parts(run.implementation)
        values, gates = (unkept(run, part, x) for part in parts)
        key = compressed(run, self.keys, values, gates)
        query = unkept(run, queries, latent)
        rotated = tape.record("rotary", (query,), tape.new(query.count, query.dtype, "rotated"))
        scores = tape.matmul(tape.cast(rotated, "fp32"), tape.cast(key, "fp32"), pairs * self.heads, "scores")
        positive = tape.scale(tape.relu(scores))
        weights = tape.scale(tape.cast(unkept(run, head_weights, x), "fp32"))
        weighed = tape.multiply(positive, weights)
        total = tape.record("sum", (weighed,), tape.new(pairs, "fp32", "summed"))
        chosen = tape.record("topk", (total,), tape.new(run.tokens, "int64", "chosen runs"))
        tape.hold(values, gates, key, query, rotated, chosen)
        tape.recomputed = outer
        return Value(chosen, 1)


@record
class BlockIndexer(Module):
    """Chooses the blocks of `block` keys that each query sees, by the largest of q·k in each: small queries of its own
    heads and one key per token, normalized, `rotary` elements rotated. The loss's gradient does not reach its
    weights."""

    d_in: int
    heads: int
    head_dim: int
    block: int
    rotary: int

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("query", (self.heads * self.head_dim, self.d_in)),
            ("key", (self.head_dim, self.d_in)),
            ("query_norm", (self.head_dim,)),
            ("key_norm", (self.head_dim,)),
        )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        t, s = work.tokens, work.length
        products = (
            gemm(f"{self.name}/query", t, self.d_in, self.heads * self.head_dim),
            gemm(f"{self.name}/key", t, self.d_in, self.head_dim),
            gemm(f"{self.name}/scores", s, self.head_dim, s, work.sequences * self.heads, weight=False),
        )
        return chosen_by(work, products)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        widths = ("q_proj", self.heads * self.head_dim), ("k_proj", self.head_dim)
        return tuple(LinearPart(f"{self.module}.{name}", self.d_in, width) for name, width in widths)

    def remark(self) -> str:
        return ONLY_FORWARD

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return work.tokens * self.heads * ceil_div(work.length, self.block)

    def cache(self, over: Served) -> Cache | None:
        """Cache one key per token, on every rank."""
        return Cache(self.name, growing=over.context * self.head_dim)

    def lower(self, run: Lowering) -> Value:
        """Choose blocks of keys; the scores of all queries and keys, per head, are temporaries in fp32."""
        tape = run.tape
        x = run.read(self).tensor
        outer, tape.recomputed = tape.recomputed, True
        style = Norm("norm", (), self.head_dim, arithmetic="fp32", unit_offset=True)
        made = []
        for part in self.linear_parts(run.implementation):
            normed = style.normalized(run, unkept(run, part, x), False)
            made.append(tape.record("rotary", (normed,), tape.new(normed.count, normed.dtype, "rotated")))
        pairs = run.tokens * run.s * self.heads
        scores = tape.matmul(tape.cast(made[0], "fp32"), tape.cast(made[1], "fp32"), pairs, "scores")
        masked = tape.record("masked_fill", (scores,), tape.new(pairs, scores.dtype, "masked"))
        blocks = run.tokens * self.heads * ceil_div(run.s, self.block)
        best = tape.record("max", (masked,), tape.new(blocks, masked.dtype, "best of a block"))
        chosen = tape.record("topk", (best,), tape.new(run.tokens * self.heads, "int64", "chosen blocks"))
        tape.hold(*made, masked, chosen)
        tape.recomputed = outer
        return Value(chosen, 1)


@record
class GroupedMatmul(BlockMatmul):
    """A block-diagonal linear layer whose blocks are cut from one matrix: heads in groups, a map for each group."""

    def __post_init__(self) -> None:
        self._is_module()

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        """Return a linear layer of one group's inputs and all groups' outputs."""
        return (LinearPart(self.module, self.d_in, self.blocks * self.d_out, fails=self.blocks > 1),)

    def lower(self, run: Lowering) -> Value:
        """Run one batched matmul per group.

        Tokens and heads are folded by a copy, and the result is concatenated by one; autocast casts the weight, of
        which each matmul sees a view, on every pass."""
        tape = run.tape
        x = run.read(self)
        copied: Tensor = tape.copy(x.tensor, "by groups")
        read: Tensor = tape.lowered(copied)
        kept: list[Tensor] = []
        count: Number = self.blocks * self.d_in * self.d_out // (run.split.tensor if x.divided else 1)
        if tape.autocast:
            kept.append(tape.new(count, tape.autocast, "weight", no_grad=True))
        out = tape.new(read.count // self.d_in * self.d_out, read.dtype, "output")
        stored = "fp32" if tape.autocast else tape.compute
        out = tape.record("bmm", (read,), out, kept, for_weight=(read,), weight=count * BYTES[stored])
        if self.blocks > 1:
            out = select(run.tokens == 1, out, tape.copy(out, "by tokens"))
        return Value(out, self.blocks * self.d_out, x.divided, x.gathered)


def compressed(run: Lowering, op: Compressor, values: Tensor, gates: Tensor) -> Tensor:
    """Return the keys of all complete runs."""
    tape = run.tape
    runs = run.b * (run.own // op.rate)
    count = runs * op.rate * op.wide
    values = tape.slice(values, count)
    gates = tape.add(tape.slice(gates, count), run.fp32_weight(op.rate * op.wide))
    if op.overlapping:
        values, gates = (tape.copy(part, "runs and those before") for part in (values, gates))
    weights = tape.cast(tape.softmax(gates, "fp32"), values.dtype)
    product = tape.multiply(values, weights)
    summed = "fp32" if tape.autocast else product.dtype
    keys = tape.record("sum", (product,), tape.new(runs * op.head_dim, summed, "summed"))
    keys = Norm("norm", (), op.head_dim, arithmetic="fp32").normalized(run, keys, False)
    angles = [tape.new(runs * op.rotary, keys.dtype, what, no_grad=True) for what in ("cos", "sin")]
    style = Rotary(op.name, (), 1, op.head_dim, op.rotary, "interleaved", True)
    return by_angles(run, style, keys, angles[0], angles[1])

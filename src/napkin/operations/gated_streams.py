"""Operations of networks whose residual streams are read and written through learned gates, and into which tables of
hashed runs of tokens add what they hold (Qwen4-Exp). Symbols as in base.py; n streams of h elements per token."""

from __future__ import annotations

from napkin.autograd.tensors import promoted, sized
from napkin.elementwise import Number
from napkin.operations.attention.indexer import unkept
from napkin.operations.bases import Elementwise, Module
from napkin.operations.embedding import Embedding
from napkin.operations.facts import Cache, LinearPart, Served
from napkin.operations.implementations import Implementation
from napkin.operations.lowering import Lowering
from napkin.operations.roles import COLUMN, VOCABULARY
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class OuterProduct(Elementwise):
    """Each of n elements per token, read first, times the `width` elements read second: n streams."""

    width: int
    streams: int

    def traffic(self) -> tuple[Number, Number]:
        wide = self.width * self.streams
        return 2 * (self.width + wide), 2 * (self.width + 2 * wide)

    def lower(self, run: Lowering) -> Value:
        few, x = run.read(self).tensor, run.read(self, 1).tensor
        out = run.tape.new(x.count * self.streams, promoted(few, x), "streams")
        return Value(run.tape.record("mul", (few, x), out, (few, x), broadcast=True), self.width * self.streams)


@record
class Agreement(Elementwise):
    """σ(±√|k·q/√h|) of each stream's keys, read first, and queries: n elements per token. The sign is the product's."""

    width: int
    streams: int

    def traffic(self) -> tuple[Number, Number]:
        wide = self.width * self.streams
        return 8 * wide, 12 * wide

    def lower(self, run: Lowering) -> Value:
        """Clamp the product's magnitude, take the root and restore the sign; each step saves its own tensors."""
        tape = run.tape
        product = tape.multiply(run.read(self).tensor, run.read(self, 1).tensor)
        count = product.count // self.width
        summed = tape.new(count, "fp32" if tape.autocast else product.dtype, "agreement")
        scaled = tape.scale(tape.record("sum", (product,), summed))
        size = tape.record("abs", (scaled,), tape.new(count, scaled.dtype, "size"), (scaled,))
        cut = tape.record("clamp", (size,), tape.new(count, size.dtype, "cut"), (size,))
        root = tape.new(count, cut.dtype, "root")
        root = tape.record("sqrt", (cut,), root, (root,))
        sign = tape.record("sign", (scaled,), tape.new(count, scaled.dtype, "sign"))
        return Value(tape.sigmoid(tape.multiply(root, sign)), self.streams)


@record
class NgramTable(Embedding):
    """A look-up of `heads` rows for each token, by hashes of the runs of tokens that end with it, `reach` tokens
    further back at most: `width` elements in total."""

    heads: int = 1
    reach: int = 1

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.rows, self.width // self.heads), VOCABULARY),)

    def lower(self, run: Lowering) -> Value:
        """Slice the row ids from those of the tokens and their predecessors."""
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        rows = (run.tokens + run.b * self.reach) * self.heads
        ids = tape.new(rows, "int64", "rows", no_grad=True)
        out = tape.new(run.tokens * self.width, stored, "looked up")
        grads = self.rows * (self.width // self.heads) * sized(1, stored)
        return Value(tape.record("embedding", (ids,), out, (ids,), weight=grads), self.width)


@record
class DilatedConv(Elementwise):
    """A causal depthwise convolution along the sequence, of `kernel` steps `dilation` tokens apart: no matmuls."""

    channels: int
    kernel: int
    dilation: int

    @property
    def reach(self) -> int:
        """Return how many tokens back the kernel reads."""
        return (self.kernel - 1) * self.dilation

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.channels, 1, self.kernel), COLUMN),)

    def traffic(self) -> tuple[Number, Number]:
        return 6 * self.channels, 10 * self.channels

    def cache(self, over: Served) -> Cache | None:
        """Cache the inputs that the kernel reaches back to, on every rank."""
        return Cache(self.name, fixed=self.channels * self.reach)

    def lower(self, run: Lowering) -> Value:
        """Zeros are put before each sequence, laid out by channels."""
        x = run.read(self)
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        rows = run.tokens + run.b * self.reach
        padded = tape.record("pad", (x.tensor,), tape.new(rows * self.channels, x.tensor.dtype, "padded"))
        padded = tape.lowered(padded)
        kept = [padded]
        count = self.channels * self.kernel
        if tape.autocast:
            kept.append(tape.weight_copy(count, f"{self.name}/weight"))
        out = tape.new(run.tokens * self.channels, padded.dtype, "convolved")
        return Value(tape.record("conv", (padded,), out, kept, weight=count * sized(1, stored)), self.channels)


@record
class RunChoice(Module):
    """Chooses the runs of `rate` tokens that each query sees: queries of `heads` heads and one key per token from one
    product, the keys of a run averaged, and normalized as the queries are. The loss's gradient does not reach its
    weights: a choice has none. FLOP: 2·T·h·(H + 1)·D and 2·T·H·D·⌊s/rate⌋."""

    d_in: int
    heads: int
    head_dim: int
    rate: int

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("query_key", ((self.heads + 1) * self.head_dim, self.d_in)),
            ("query_norm", (self.head_dim,)),
            ("key_norm", (self.head_dim,)),
        )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return (LinearPart(f"{self.module}.index_qk_proj", self.d_in, (self.heads + 1) * self.head_dim),)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        made = (self.heads + 1) * self.head_dim
        return (
            gemm(f"{self.name}/query_key", work.tokens, self.d_in, made),
            gemm(f"{self.name}/scores", self.heads, self.head_dim, work.length // self.rate, work.tokens, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return work.tokens * (work.length // self.rate)

    def cache(self, over: Served) -> Cache | None:
        """Cache one key per token, on every rank."""
        return Cache(self.name, growing=over.context * self.head_dim)

    def lower(self, run: Lowering) -> Value:
        """Choose keys; only the mask of queries and keys outlives the choice."""
        tape = run.tape
        x = run.read(self)
        before, tape.recomputed = tape.recomputed, True
        (part,) = self.linear_parts(run.implementation)
        made = unkept(run, part, x.tensor)
        mask = tape.record("topk", (made,), tape.new(run.tokens * run.s, "bool", "chosen keys"))
        tape.recomputed = before
        return Value(mask, 1, x.divided)

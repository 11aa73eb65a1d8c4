"""Recurrences over the sequence and the convolutions around them."""

from __future__ import annotations

from napkin.autograd.tape import WEIGHT, sized
from napkin.elementwise import Number
from napkin.operations import mixers
from napkin.operations.base import (
    COLUMN,
    HEADS,
    Elementwise,
    Gemm,
    Ordinary,
    Weight,
    Work,
    division_of,
    gemm,
)
from napkin.operations.facts import Cache, Served
from napkin.operations.lowering import Lowering, Value
from napkin.operations.mixers import Sizes
from napkin.operations.primitives import ceil_div, is_array
from napkin.operations.scans import SCANS
from napkin.record import record

WKV_STATE = 3
"""Elements of a channel's state in the wkv recurrence."""


@record
class Conv(Ordinary):
    """A convolution of `kernel` steps along the sequence, each of `channels` outputs reading `group` channels.

    Depthwise (group 1) it is elementwise work in a fused kernel and no matrix product; a full one (group > 1) is the
    product (T × group·kernel)(group·kernel × channels). FLOP: 2·T·group·kernel·channels."""

    channels: int
    kernel: int
    bias: bool = True
    shard: str = COLUMN
    group: int = 1

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.channels, self.group, self.kernel), self.shard)
        return (weight, Weight("bias", (self.channels,), self.shard)) if self.bias else (weight,)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        if self.group == 1:
            return ()
        return (gemm(self.name, work.tokens, self.group * self.kernel, self.channels),)

    def remark(self) -> str:
        return "depthwise convolutions are elementwise work and count 0" if self.group == 1 else ""

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.channels, 8 * self.channels

    def division(self) -> str:
        return division_of(self.shard)

    def cache(self, over: Served) -> Cache | None:
        """The last kernel − 1 inputs."""
        return Cache(self.name, fixed=ceil_div(self.channels * self.group, over.ranks) * (self.kernel - 1))

    def lower(self, run: Lowering) -> Value:
        """A convolution keeps its input; parts of several products are put together first."""
        first = run.read(self)
        inputs = tuple(run.read(self, i).tensor for i in range(len(self.reads)))
        count = run.tokens * self.channels // (run.split.tensor if first.divided else 1)
        joined = inputs[0]
        if len(inputs) > 1:
            whole = run.made_of(self.reads)
            joined = whole or run.tape.record("cat", inputs, run.tape.new(count, joined.dtype, "joined"))
        by_blocks = run.code.mixer == "apart" and run.program.blocked
        if self.group > 1 or run.code.mixer == "torch" or by_blocks:
            joined = run.tape.copy(run.tape.lowered(joined), "input by channels")
        out = run.tape.new(count, joined.dtype, "convolved")
        if run.code.mixer == "torch" and self.group == 1:  # padded to both sides: the result is cut from a longer one
            out.places[0][1].size = out.size // run.own * (run.own + self.kernel - 1)
        stored = "fp32" if run.tape.autocast else run.tape.compute
        grads = sum(weight.count for weight in self.weights()) * sized(1, stored)
        kept = [joined]
        if run.tape.autocast and (run.code.mixer == "torch" or self.group > 1):
            count = self.channels * self.group * self.kernel
            cached = run.tape.weight_copy(count, f"{self.name}/weight")
            kept.append(run.tape.new(count, cached.dtype, "weight", fixed=True) if run.code.conv_view else cached)
        convolved = run.tape.record("conv", (joined,), out, kept, weight=grads)
        return Value(convolved, self.channels, first.divided, first.gathered)


@record
class ConvPair(Ordinary):
    """Two causal convolutions along the sequence, one after the other, of `kernels` steps each: a depthwise one, and
    one whose `channels` outputs each read the `group` channels of their head (Compressed Convolutional Attention,
    arXiv:2510.04476). FLOP of the second: 2·T·group·kernel·channels."""

    channels: int
    group: int
    kernels: tuple[int, int]

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("depthwise", (self.channels, 1, self.kernels[0])),
            ("heads", (self.channels, self.group, self.kernels[1])),
        )
        return tuple(
            weight
            for name, shape in shapes
            for weight in (Weight(name, shape, COLUMN), Weight(f"{name}_bias", shape[:1], COLUMN))
        )

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.group * self.kernels[1], self.channels),)

    def traffic(self) -> tuple[Number, Number]:
        return 8 * self.channels, 16 * self.channels

    def cache(self, over: Served) -> Cache | None:
        """The last kernel − 1 inputs of each."""
        return Cache(self.name, fixed=ceil_div(self.channels, over.ranks) * (sum(self.kernels) - 2))

    def lower(self, run: Lowering) -> Value:
        """Zeros are put before each sequence, laid out by channels; both convolutions keep what they read."""
        x = run.read(self)
        tape = run.tape
        ways = run.split.tensor if x.divided else 1
        channels = self.channels // ways
        first, second = self.kernels
        stored = "fp32" if tape.autocast else tape.compute
        rows = run.tokens + run.b * (first + second - 2)
        tensor = tape.lowered(tape.record("pad", (x.tensor,), tape.new(rows * channels, x.tensor.dtype, "padded")))
        for what, group, kernel in (("depthwise", 1, first), ("heads", self.group, second)):
            rows = rows - run.b * (kernel - 1)
            kept = [tensor]
            weights = channels * group * kernel
            if tape.autocast:
                kept.append(tape.weight_copy(weights, f"{self.name}/{what}"))
            out = tape.new(rows * channels, tensor.dtype, f"{what} convolved")
            tensor = tape.record("conv", (tensor,), out, kept, weight=(weights + channels) * sized(1, stored))
        return Value(tensor, self.channels, x.divided, x.gathered)


@record
class HalfShifted(Ordinary):
    """Values of which one half is made of a token itself, read first, and one half of the token before: `width` numbers
    a token. What stands before a sequence is made of zeros, `d_in` of them, with the same weights.
    FLOP: 2·b·d_in·width/2."""

    width: int
    d_in: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.sequences, self.d_in, self.width // 2),)

    def traffic(self) -> tuple[Number, Number]:
        """Two copies."""
        return 8 * self.width, 8 * self.width

    def cache(self, over: Served) -> Cache | None:
        """The values of the token before."""
        return Cache(self.name, fixed=ceil_div(self.width // 2, over.ranks))

    def lower(self, run: Lowering) -> Value:
        """The product of zeros keeps them; both halves are put together anew."""
        now, later = run.read(self), run.read(self, 1)
        tape = run.tape
        half = self.width // 2
        stream = "fp32" if tape.autocast else tape.compute
        zeros = tape.new(run.b * self.d_in, stream, "zeros", fixed=True)
        weight = tape.given(self.d_in * half, stream, "weight", kind=WEIGHT)
        zeros = tape.lowered(zeros)
        start = tape.record("linear", (zeros, weight), tape.new(run.b * half, zeros.dtype, "start"), (zeros,))
        before = tape.record("cat", (start, later.tensor), tape.new(later.tensor.count, later.tensor.dtype, "before"))
        joined = tape.new(now.tensor.count + before.count, now.tensor.dtype, "joined")
        return Value(tape.record("cat", (now.tensor, before), joined), self.width, now.divided, now.gathered)


@record
class ForgetGate(Elementwise):
    """How much of a recurrence's state each channel keeps, as a logarithm: −exp(A)·softplus(x + b), with a learned A of
    each of `heads` and b of each of their `head_dim` channels (Kimi Delta Attention, arXiv:2510.26692, section 3).

    form      how the reference code computes it, in fp32:
        guarded   softplus written out, but for numbers so large that it changes nothing
        softplus  one kernel
        bounded   floor·σ(exp(A)·(x + b)) in its place: no less than `floor`
    narrowed  cast to the stream's type
    """

    heads: int
    head_dim: int
    form: str = "guarded"
    narrowed: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("decay", (self.heads,), HEADS), Weight("bias", (self.heads * self.head_dim,), HEADS))

    def traffic(self) -> tuple[Number, Number]:
        """A 16-bit input, an fp32 result; backward reads the gradient of the result too."""
        return 6 * self.heads * self.head_dim, 12 * self.heads * self.head_dim

    def lower(self, run: Lowering) -> Value:
        """The decays of a recurrence with one for each channel."""
        x = run.read(self)
        ways = run.split.tensor if x.divided else 1
        heads = self.heads // ways
        decays = mixers.forget(run.tape, x.tensor, heads, self.head_dim, self.form)
        if self.narrowed:
            decays = run.tape.cast(decays, "fp32" if run.tape.autocast else run.tape.compute)
        return Value(decays, self.heads * self.head_dim, x.divided, x.gathered)


@record
class Scan(Ordinary):
    """A recurrence over the sequence with a state of `state` numbers a channel: `heads` × `head_dim` channels.

    kind     selective (Mamba), ssd (Mamba-2), delta (gated delta rule), kda (the same, each channel with a decay of its
             own), lightning, mlstm (xLSTM), wkv (RWKV), rg_lru
    chunk    tokens that a chunked form handles by matrix products
    doubled  the delta rule's write strengths reach up to 2

    The matrix products are those of the plain chunked form, c tokens a chunk, n = ⌈s/c⌉ chunks, p head size, N state:
        selective   the state's read-out, 2·b·s·a·p·N; the recurrence itself is elementwise
        ssd         per head 2·n·c·(c·N + c·p + 2·N·p) within and between chunks, and 2·(n+1)²·N·p carries the states
        delta, kda  per head 2·n·c·(2·c·N + c·p + 3·N·p); the triangular solve is no matrix product
        mlstm       per head 2·n·c·(c·N + c·p + 2·N·p + N), the last of them the normaliser's
        lightning   per head 2·(N + p)·Σ(chunk length)² + 4·s·N·p, the last chunk as short as it is
        wkv, rg_lru elementwise
    """

    kind: str
    heads: int
    head_dim: int
    state: int
    groups: int = 1
    chunk: int = 0
    doubled: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        p, state, c = self.head_dim, self.state, self.chunk
        if self.kind == "selective":
            return (gemm("read_out", self.heads * p, state, 1, work.tokens, weight=False),)
        if self.kind not in ("ssd", "delta", "kda", "lightning", "mlstm"):
            return ()
        each = work.sequences * self.heads
        if self.kind == "lightning":
            whole, rest = each * (work.length // c), work.length % c
            found = (
                gemm("scores", c, state, c, whole, weight=False),
                gemm("values", c, c, p, whole, weight=False),
                gemm("last_scores", rest, state, rest, each, weight=False),
                gemm("last_values", rest, rest, p, each, weight=False),
                gemm("read_out", work.length, state, p, each, weight=False),
                gemm("states", state, work.length, p, each, weight=False),
            )
            return tuple(one for one in found if is_array(one.flops) or one.flops)
        chunks = ceil_div(work.length, c)
        within = each * chunks
        common = (
            gemm("scores", c, state, c, within, weight=False),
            gemm("values", c, c, p, within, weight=False),
            gemm("states", state, c, p, within, weight=False),
            gemm("read_out", c, state, p, within, weight=False),
        )
        if self.kind == "ssd":
            carry = gemm("carry", chunks + 1, chunks + 1, p * state, each, weight=False)
            return (*common, carry)
        if self.kind == "mlstm":
            return (*common, gemm("normaliser", c, state, 1, within, weight=False))
        keys = gemm("keys", c, state, c, within, weight=False)
        corrections = gemm("corrections", c, state, p, within, weight=False)
        return (*common, keys, corrections)

    def remark(self) -> str:
        return "a scan counts the matrix products of its plain chunked form, not its elementwise work"

    def traffic(self) -> tuple[Number, Number]:
        """Inputs, gates and outputs once; the state stays on chip."""
        return 8 * self.heads * self.head_dim, 16 * self.heads * self.head_dim

    def cache(self, over: Served) -> Cache | None:
        """heads · head_dim · state elements; of the wkv recurrence numerator, denominator and largest exponent of a
        channel; of an mLSTM the normalizer with the largest exponent too."""
        each = WKV_STATE if self.kind == "wkv" else self.state or 1
        normalizer = self.state + 1 if self.kind == "mlstm" else 0
        return Cache(self.name, fixed=ceil_div(self.heads, over.ranks) * (self.head_dim * each + normalizer))

    def lower(self, run: Lowering) -> Value:
        """A recurrence, by the kernel or the code that runs it."""
        first = run.read(self)
        ways = run.split.tensor if first.divided else 1
        size = Sizes(
            run.b, run.own, self.heads // ways, self.head_dim, self.state, ceil_div(self.groups, ways), self.chunk
        )
        read = [run.read(self, index).tensor for index in range(len(self.reads))]
        run.tape.again = False
        out = SCANS[self.kind](run, self, read, size)
        return Value(out, self.heads * self.head_dim, first.divided, first.gathered)

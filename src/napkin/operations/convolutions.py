"""Convolutions along the sequence, and values of the previous token."""

from __future__ import annotations

from napkin.autograd.tensors import INPUT, WEIGHT, sized
from napkin.elementwise import Number
from napkin.operations.bases import Module, Ordinary
from napkin.operations.facts import CONVOLUTION, Cache, Served
from napkin.operations.lowering import Lowering
from napkin.operations.primitives import ceil_div
from napkin.operations.roles import COLUMN
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, division_of, gemm
from napkin.record import record, replace


@record
class Conv(Ordinary):
    """Convolution of `kernel` steps along the sequence, each of `channels` outputs reading `group` channels.

    Depthwise (group 1) it is elementwise work in a fused kernel; otherwise it is the matmul
    (T × group·kernel)(group·kernel × channels). FLOP: 2·T·group·kernel·channels."""

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

    def pattern(self) -> str:
        return CONVOLUTION

    def remark(self) -> str:
        return "depthwise convolutions are elementwise work and count 0" if self.group == 1 else ""

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.channels, 8 * self.channels

    def division(self) -> str:
        return division_of(self.shard)

    def cache(self, over: Served) -> Cache | None:
        """Cache the last kernel − 1 inputs."""
        return Cache(self.name, fixed=ceil_div(self.channels * self.group, over.ranks) * (self.kernel - 1))

    def lower(self, run: Lowering) -> Value:
        """Run the convolution, which saves its input; several inputs are concatenated first."""
        first = run.read(self)
        inputs = tuple(run.read(self, i).tensor for i in range(len(self.reads)))
        count = run.tokens * self.channels // (run.split.tensor if first.divided else 1)
        joined = inputs[0]
        if len(inputs) > 1:
            whole = run.made_of(self.reads)
            joined = whole or run.tape.record("cat", inputs, run.tape.new(count, joined.dtype, "joined"))
        by_blocks = run.implementation.mixer == "apart" and run.program.blocked
        if self.group > 1 or run.implementation.mixer == "torch" or by_blocks:
            joined = run.tape.copy(run.tape.lowered(joined), "input by channels")
        out = run.tape.new(count, joined.dtype, "convolved")
        if (
            run.implementation.mixer == "torch" and self.group == 1
        ):  # padded to both sides: the result is cut from a longer one
            out.storage.size = out.size // run.own * (run.own + self.kernel - 1)
        stored = "fp32" if run.tape.autocast else run.tape.compute
        grads = sum(weight.count for weight in self.weights()) * sized(1, stored)
        kept = [joined]
        if run.tape.autocast and (run.implementation.mixer == "torch" or self.group > 1):
            count = self.channels * self.group * self.kernel
            kept.append(run.tape.weight_copy(count, f"{self.name}/weight"))
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
        """Cache the last kernel − 1 inputs of each."""
        return Cache(self.name, fixed=ceil_div(self.channels, over.ranks) * (sum(self.kernels) - 2))

    def lower(self, run: Lowering) -> Value:
        """Zeros are put before each sequence, laid out by channels; both convolutions save what they read."""
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
class FrameConv(Module):
    """Convolution over frames of sound, or over rows and columns of patches: `channels` outputs of `d_in` channels and
    `kernel` steps (of both directions together), with a bias. Each token is `frames` frames of the input and `rate`
    results; it reads the batch itself if it reads nothing. FLOP: 2·T·rate·d_in·kernel·channels."""

    d_in: int
    channels: int
    kernel: int
    frames: int
    rate: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.channels, self.d_in, self.kernel)), Weight("bias", (self.channels,)))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        one = gemm(self.name, work.tokens * self.rate, self.d_in * self.kernel, self.channels)
        return (one if self.reads else replace(one, backward=1),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Run torch's convolution, which saves its input; autocast casts the batch's features too."""
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        if self.reads:
            x = run.read(self).tensor
        else:
            x = tape.given(run.tokens * self.frames * self.d_in, stored, "features", kind=INPUT, no_grad=True)
        x = tape.lowered(x)
        count = self.channels * self.d_in * self.kernel
        kept = [x, *([tape.weight_copy(count, f"{self.name}/weight")] if tape.autocast else [])]
        out = tape.new(run.tokens * self.rate * self.channels, x.dtype, "convolved")
        grads = (count + self.channels) * sized(1, stored)
        return Value(tape.record("conv", (x,), out, kept, weight=grads), self.channels * self.rate)


@record
class HalfShifted(Ordinary):
    """Values of `width` elements per token, one half computed from the token itself, read first, one from the previous
    token. The first token's predecessor is `d_in` zeros, multiplied by the same weights. FLOP: 2·b·d_in·width/2."""

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
        """Cache the values of the previous token."""
        return Cache(self.name, fixed=ceil_div(self.width // 2, over.ranks))

    def lower(self, run: Lowering) -> Value:
        """Run the linear layer on zeros, which it saves, and concatenate both halves."""
        now, later = run.read(self), run.read(self, 1)
        tape = run.tape
        half = self.width // 2
        stream = "fp32" if tape.autocast else tape.compute
        zeros = tape.new(run.b * self.d_in, stream, "zeros", no_grad=True)
        weight = tape.given(self.d_in * half, stream, "weight", kind=WEIGHT)
        zeros = tape.lowered(zeros)
        start = tape.record("linear", (zeros, weight), tape.new(run.b * half, zeros.dtype, "start"), (zeros,))
        before = tape.record("cat", (start, later.tensor), tape.new(later.tensor.count, later.tensor.dtype, "before"))
        joined = tape.new(now.tensor.count + before.count, now.tensor.dtype, "joined")
        return Value(tape.record("cat", (now.tensor, before), joined), self.width, now.divided, now.gathered)

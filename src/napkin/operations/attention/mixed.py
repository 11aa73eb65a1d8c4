"""Operations of ConvBERT's mixed attention (arXiv:2008.02496): a separable convolution, a convolution whose kernel is
made from each token, and linear layers of groups of channels."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Module, Ordinary
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class SeparableConvolution(Module):
    """A depthwise convolution of `kernel` steps along the sequence, then a linear map of the channels, with a bias.
    FLOP: 2·T·d_in·d_out; depthwise it is elementwise work."""

    d_in: int
    d_out: int
    kernel: int

    def weights(self) -> tuple[Weight, ...]:
        return (
            Weight("depthwise", (self.d_in, 1, self.kernel)),
            Weight("pointwise", (self.d_out, self.d_in, 1)),
            Weight("bias", (self.d_out, 1)),
        )

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out),)

    def remark(self) -> str:
        return "depthwise convolutions are elementwise work and count 0"

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.d_in + 4 * self.d_out, 8 * self.d_in + 2 * self.d_out

    def lower(self, run: Lowering) -> Value:
        """Both convolutions save what they read, which lies by channels; the bias is added in place."""
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        read = tape.lowered(run.read(self).tensor)

        def convolved(x: Tensor, count: Number, width: int, what: str) -> Tensor:
            kept = [x, *((tape.weight_copy(count, f"{self.name}/{what}"),) if tape.autocast else ())]
            out = tape.new(run.tokens * width, x.dtype, what)
            return tape.record("conv", (x,), out, kept, weight=count * BYTES[stored])

        made = convolved(read, self.d_in * self.kernel, self.d_in, "depthwise")
        made = convolved(made, self.d_in * self.d_out, self.d_out, "pointwise")
        made = tape.record("add", (made, run.weight(self.d_out)), made.view(), alias=True)
        run.scopes.local(made)
        return Value(made.view(rows_apart=True), self.d_out)


@record
class TokenConvolution(Ordinary):
    """Σ over `kernel` steps of each channel of `width`, weighed by shares that the token has for each of `heads`, read
    second. FLOP: 2·T·kernel·width."""

    heads: int
    width: int
    kernel: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        size = self.width // self.heads
        return (gemm(self.name, size, self.kernel, 1, batch=work.tokens * self.heads, weight=False),)

    def traffic(self) -> tuple[Number, Number]:
        """Lay the channels out, unfold each step's neighbors, and lay these out by tokens; the other way round."""
        return 6 * (1 + self.kernel) * self.width, 6 * (1 + self.kernel) * self.width

    def division(self) -> str:
        return HEADS

    def lower(self, run: Lowering) -> Value:
        """Every step's neighbors are a copy of the channels, and these are copied again by tokens."""
        tape = run.tape
        x, shares = (run.read(self, i).tensor for i in range(2))
        by_channels = tape.copy(x, "by channels")
        unfolded = tape.new(x.count * self.kernel, x.dtype, "unfolded")
        by_tokens = tape.copy(tape.record("unfold", (by_channels,), unfolded), "by tokens")
        out = tape.matmul(by_tokens, shares, x.count, "convolved")
        run.scopes.local(shares, out)
        return Value(out, self.width, True)


@record
class GroupedLinear(Module):
    """A linear layer of each of `groups` groups of channels, with a bias. FLOP: 2·T·d_in·d_out / groups."""

    d_in: int
    d_out: int
    groups: int

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.groups, self.d_in // self.groups, self.d_out // self.groups))
        return (weight, Weight("bias", (self.d_out,)))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        sizes = self.d_in // self.groups, self.d_out // self.groups
        return (gemm(self.name, work.tokens, *sizes, batch=self.groups),)

    def traffic(self) -> tuple[Number, Number]:
        """Copy the groups' results to each token, and add the bias, whose gradient is a sum."""
        return 8 * self.d_out, 6 * self.d_out

    def lower(self, run: Lowering) -> Value:
        tape, x = run.tape, run.read(self)
        read = tape.lowered(x.tensor)
        count = self.d_in * self.d_out // self.groups
        stored = "fp32" if tape.autocast else tape.compute
        kept = (tape.weight_copy(count, f"{self.name}/weight"),) if tape.autocast else ()
        out = tape.new(run.tokens * self.d_out, read.dtype, "output")
        out = tape.record("bmm", (read,), out, kept, for_weight=(read,), weight=count * BYTES[stored])
        return Value(tape.add(tape.copy(out, "by tokens"), run.weight(self.d_out)), self.d_out)

"""Sequences that are padded: to whole blocks before a stack's layers, or in a layer, so that its blocks lie between
those of other layers; and linear layers that run over what is padded."""

from __future__ import annotations

from napkin.autograd.tensors import select
from napkin.elementwise import Number
from napkin.operations.base import Timer
from napkin.operations.bases import View
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Work
from napkin.record import record, replace


@record
class PadToBlocks(View):
    """Zeros behind each sequence, of `width` elements per token, up to whole blocks."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read and write a copy; the gradient is copied without the zeros."""
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        length = run.blocks_of(run.own)
        padded = run.tape.new(run.b * length * self.width, x.tensor.dtype, "padded")
        return replace(x, tensor=select(length == run.own, x.tensor, run.tape.record("pad", (x.tensor,), padded)))


@record
class CutToLength(View):
    """A view of each sequence of `width` elements per token without what was padded; it goes on with those tokens."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Nothing of a view; backward writes zeros next to its gradient."""
        return 0, 2 * self.width

    def lower(self, run: Lowering) -> Value:
        x, padded = run.read(self), run.own
        run.to_length()
        cut = run.tape.slice(x.tensor, run.tokens * self.width, apart=True)
        return replace(x, tensor=select(padded == run.own, x.tensor, cut))


@record
class Stagger(View):
    """Zeros around each sequence, of `width` elements per token: half a block of `block` tokens on each side."""

    width: int
    block: int

    def traffic(self) -> tuple[Number, Number]:
        """Read and write a copy; the gradient is copied without the zeros."""
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        count = x.tensor.count + run.b * self.block * self.width
        return replace(x, tensor=run.tape.record("pad", (x.tensor,), run.tape.new(count, x.tensor.dtype, "staggered")))


@record
class Unstagger(View):
    """A view of each sequence without these zeros."""

    width: int
    block: int

    def traffic(self) -> tuple[Number, Number]:
        """Nothing of a view; backward writes zeros around its gradient."""
        return 0, 2 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        count = x.tensor.count - run.b * self.block * self.width
        return replace(x, tensor=run.tape.slice(x.tensor, count, apart=True))


@record
class PaddedMatmul(Matmul):
    """A linear layer over `more` tokens of each sequence than the layer has. FLOP: 2·b·(s + more)·d_in·d_out."""

    more: int = 0

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return super().gemms(replace(work, length=work.length + self.more))

    def time(self, timer: Timer) -> None:
        timer.gemms(self)

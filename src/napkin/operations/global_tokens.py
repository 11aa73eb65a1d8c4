"""A few learned tokens next to each sequence, a second stream through an encoder's layers (PEGASUS-X,
arXiv:2208.04347)."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, INPUT_LABEL
from napkin.elementwise import Number
from napkin.operations.bases import Lookup, View
from napkin.operations.lowering import Lowering
from napkin.operations.norms import Norm
from napkin.operations.shapes import Value
from napkin.operations.views import Reused
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record, replace


@record
class GlobalTokens(Lookup):
    """The learned tokens of each sequence that the first layer reads: `tokens` of `width` elements."""

    tokens: int
    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.tokens, self.width)),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: they are few."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        ids = tape.new(self.tokens, "int64", "ids", no_grad=True)
        out = tape.new(run.b * self.tokens * self.width, stored, "embedded")
        table = self.tokens * self.width * BYTES[stored]
        return Value(tape.record("embedding", (ids,), out, (ids,), weight=table), self.width)


@record
class GlobalInput(View):
    """The global tokens that a layer gets from the one before."""

    tokens: int
    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the tensor is there already."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        stored = "fp32" if run.tape.autocast else run.tape.compute
        given = run.tape.given(run.b * self.tokens * self.width, stored, INPUT_LABEL)
        run.takes(given)
        return Value(given, self.width)


@record
class GlobalNorm(Norm):
    """A norm of the global tokens."""

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: they are few."""
        return 0, 0


@record
class OnGlobal(Reused):
    """A module of the layer that runs again, on `tokens` global tokens of each sequence.

    more  tokens of each sequence that the layer's stream does not have, in the module's first run
    used  the loss depends on its result; else nothing is kept for it, and it has no backward pass
    """

    tokens: int = 1
    more: int = 0
    used: bool = True

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return products_of(self.of.gemms(replace(work, length=self.tokens - self.more, lengths=())), self.used)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: they are few."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return 0

    def lower(self, run: Lowering) -> Value:
        outer, run.tape.recomputed = run.tape.recomputed, run.tape.recomputed or not self.used
        made = super().lower(run)
        run.tape.recomputed = outer
        return made


@record
class WithGlobal(View):
    """The stream of `width` elements per token, returned by the layer next to the global tokens, which it reads second
    if the loss depends on them."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: both are there already."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        returned = [run.read(self, i).tensor for i in range(len(self.reads))]
        return Value(run.tape.record("return", returned, returned[0].view(), alias=True), self.width)


def products_of(products: tuple[Gemm, ...], used: bool) -> tuple[Gemm, ...]:
    """Return matmuls, without a backward pass where nothing depends on their result."""
    return products if used else tuple(replace(one, backward=0) for one in products)

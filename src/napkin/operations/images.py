"""What a multimodal model does with images around its layers: pixels, learned tokens next to the patches, and features
put in the places of the sequence that are kept for them."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, INPUT, select
from napkin.elementwise import Number, where
from napkin.operations.bases import Elementwise, Ordinary, View
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.roles import EXPERT
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record


@record
class Pixels(View):
    """The pixels of each patch, `elements` of them: an input in fp32, cast to the type of the weights."""

    elements: int

    def traffic(self) -> tuple[Number, Number]:
        """Read 32 bits and write 16; no gradient comes back."""
        return 6 * self.elements, 0

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        given = tape.given(run.tokens * self.elements, "fp32", "pixels", kind=INPUT, no_grad=True)
        return Value(tape.cast(given, "fp32" if tape.autocast else tape.compute), self.elements)


@record
class PatchConv(Matmul):
    """A convolution whose windows are the patches: a matmul of each patch's pixels, d_in of them, to `d_out`.
    FLOP: 2·T·d_in·d_out. Unlike a linear layer it keeps autocast's copy of its weight, though pixels need no
    gradient. Neither peft's `all-linear` nor quantization takes it."""

    @property
    def bare(self) -> bool:
        return True

    def lower(self, run: Lowering) -> Value:
        made = super().lower(run)
        tape = run.tape
        if tape.autocast and run.implementation.tuning is None:
            tape.keep(tape.weight_copy(self.d_in * self.d_out, f"{self.name}/weight"))
        return made


@record
class ParameterProduct(Matmul):
    """A product with a parameter of its module, which is not a linear layer."""

    @property
    def bare(self) -> bool:
        return True


@record
class ClassTokens(Elementwise):
    """Learned vectors of `width`, `tokens` of them, concatenated with the patches of each image."""

    tokens: int
    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.tokens, self.width)),)

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        parts = (run.weight(self.tokens * self.width), x.tensor)
        out = run.tape.new(run.tokens * self.width, x.tensor.dtype, "with learned tokens")
        return Value(run.tape.record("cat", parts, out), self.width)


@record
class Patches(View):
    """The patches of an image, `width` elements for each token.

    without  as many of the tower's tokens are left out: a view of one image, which keeps their place, and a copy of
             several
    ordered  put into another order: a copy
    """

    width: int
    without: int = 0
    ordered: bool = False

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self).tensor
        copied = run.tape.copy(x, "patches")
        if self.ordered:
            return Value(copied, self.width)
        whole = x.size + run.b * self.without * self.width * BYTES[x.dtype]
        x.storage.size = where(run.b == 1, whole, x.size)
        return Value(select(run.b == 1, x, copied), self.width)


@record
class Reorder(View):
    """Groups of `merged` tokens, of `width` elements each, in the order of a list of indices, which is kept."""

    width: int
    merged: int = 1

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self).tensor
        index = run.tape.new(run.tokens // self.merged, "int64", "order", no_grad=True)
        taken = run.tape.new(x.count, x.dtype, "reordered")
        return Value(run.tape.record("index", (x,), taken, (index,)), self.width)


@record
class Pool(View):
    """The mean over `merged` neighboring patches, of `width` elements: the patches are copied into an order by
    channels, and the copy is kept."""

    width: int
    merged: int

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width * self.merged, 4 * self.width * self.merged

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        copied = tape.copy(run.read(self).tensor, "by channels")
        out = tape.new(run.tokens * self.width, copied.dtype, "mean")
        return Value(tape.record("avg_pool", (copied,), out, (copied,)), self.width)


@record
class PlaceImages(View):
    """The sequence with images' features, of `width` elements for each token, in the places that are kept for them
    (masked_scatter, which keeps the mask of these places)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        places = run.tape.new(run.tokens, "bool", "places of images", no_grad=True)
        out = run.tape.new(x.tensor.count, x.tensor.dtype, "with images")
        return Value(run.tape.record("masked_scatter", (x.tensor,), out, (places,)), self.width)


@record
class ImageExperts(Ordinary):
    """Experts, and their router, that only the tokens of images run through (ERNIE 4.5 VL): a step without images
    computes nothing with them. Gated ones of `inner` elements, `experts` of them, of which `chosen` serve a token."""

    hidden: int
    inner: int
    experts: int
    chosen: int

    def weights(self) -> tuple[Weight, ...]:
        return (
            Weight("router", (self.experts, self.hidden)),
            Weight("balance", (1, self.experts)),
            Weight("gate_up", (2 * self.inner, self.hidden), EXPERT, self.experts, 0),
            Weight("down", (self.hidden, self.inner), EXPERT, self.experts, 0),
        )

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: it does not run."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        return Value(run.weight(0), 0)

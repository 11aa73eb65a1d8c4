"""What a multimodal model does with images around its layers: pixels, learned tokens next to the patches, and features
put in the places of the sequence that are kept for them."""

from __future__ import annotations

from napkin.autograd.tensors import INPUT
from napkin.elementwise import Number
from napkin.operations.lowering import Lowering, Value
from napkin.operations.ordinary import Elementwise, View
from napkin.operations.work import Weight
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
        given = tape.given(run.tokens * self.elements, "fp32", "pixels", kind=INPUT, fixed=True)
        return Value(tape.cast(given, "fp32" if tape.autocast else tape.compute), self.elements)


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
class PlaceImages(View):
    """The sequence with images' features, of `width` elements for each token, in the places that are kept for them
    (masked_scatter, which keeps the mask of these places)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        places = run.tape.new(run.tokens, "bool", "places of images", fixed=True)
        out = run.tape.new(x.tensor.count, x.tensor.dtype, "with images")
        return Value(run.tape.record("masked_scatter", (x.tensor,), out, (places,)), self.width)


@record
class Softmax(Elementwise):
    """Probabilities over `width` scores, which are kept."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.softmax(x.tensor), x.width, x.divided, x.gathered)

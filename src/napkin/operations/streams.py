"""Operations of networks whose layers do more than read one stream and hand it on: several streams side by side (AltUp,
Baykal et al. 2023, arXiv:2301.13310), activations cut by their spread, experts with a learned weight each.

Symbols as in base.py; n streams of h elements per token. The weights of AltUp are in ordinary linear layers and norms:
here is what joins them.
"""

from __future__ import annotations

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Elementwise
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class Streaming(Elementwise, abstract=True):
    """The base of these operations: elementwise work that moves its own bytes."""

    width: int


@record
class SelectStream(Streaming):
    """One of the streams, `width` elements per token: a view, or a copy."""

    copied: bool = False

    def traffic(self) -> tuple[int, int]:
        """Read and write a copy; nothing of a view."""
        return (4 * self.width, 4 * self.width) if self.copied else (0, 0)

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        part = run.tape.slice(x.tensor, x.tensor.count * self.width // x.width, apart=True)
        return Value(run.tape.copy(part, "copied") if self.copied else part, self.width, x.divided, x.gathered)


@record
class StackStreams(Streaming):
    """Streams of equal width concatenated: a new tensor of `width` elements per token."""

    def traffic(self) -> tuple[int, int]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        parts = tuple(run.read(self, i).tensor for i in range(len(self.reads)))
        joined = run.tape.new(parts[0].count * len(parts), parts[0].dtype, "stacked")
        return Value(run.tape.record("cat", parts, joined), self.width)


@record
class StreamMean(Streaming):
    """The mean of all streams, of `width` elements per token."""

    streams: int

    def traffic(self) -> tuple[int, int]:
        both = 2 * (self.streams + 1) * self.width
        return both, both

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.mean(x.tensor, x.tensor.count * self.width // x.width), self.width)


@record
class Magnitude(Streaming):
    """The root mean square of `width` elements: one element per token."""

    def traffic(self) -> tuple[int, int]:
        return 2 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        """mean(x²)^½."""
        x, tape = run.read(self).tensor, run.tape
        return Value(tape.power(tape.mean(tape.power(x), x.count // self.width)), 1)


@record
class Rescale(Streaming):
    """A tensor of `width` elements per token, brought to the magnitude that is read second."""

    def traffic(self) -> tuple[int, int]:
        return 4 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        """x·m / √max(mean(x²), ε)."""
        tape = run.tape
        x = tape.cast(run.read(self).tensor, "fp32" if tape.autocast else tape.compute)
        square = tape.mean(tape.power(x), x.count // self.width)
        least = tape.record("clamp", (square,), tape.new(square.count, square.dtype, "clamped"), (square,))
        own = tape.new(square.count, square.dtype, "magnitude")
        own = tape.record("sqrt", (least,), own, (own,))
        scaled = tape.multiply(x, run.read(self, 1).tensor)
        out = tape.new(x.count, scaled.dtype, "rescaled")
        return Value(tape.record("div", (scaled, own), out, (scaled, own)), self.width)


@record
class Blend(Streaming):
    """AltUp's prediction: each stream plus a sum of all, by n² coefficients of each token that are read second.
    FLOP: 2·T·h·n²."""

    streams: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        n = self.streams
        return (gemm(self.name, self.width, n, n, work.tokens, weight=False),)

    def traffic(self) -> tuple[int, int]:
        both = 2 * self.streams * self.width  # the streams that are added; the product moves its own
        return both, both

    def lower(self, run: Lowering) -> Value:
        """x + x·c, the sum in place; what the product made lies with streams last, and is put in order."""
        x, coefficients = run.read(self), run.read(self, 1).tensor
        tape = run.tape
        made = tape.matmul(x.tensor, coefficients, x.tensor.count, "predicted")
        made = tape.copy(added(run, made, x.tensor), "in order")
        return Value(tape.cast(made, x.tensor.dtype), x.width)


@record
class Correct(Streaming):
    """AltUp's correction: every predicted stream plus a multiple (1 + a coefficient, read third) of what the layer made
    (read second) beyond the stream that it worked on."""

    streams: int

    def traffic(self) -> tuple[int, int]:
        return 2 * (2 * self.streams + 1) * self.width, 2 * (2 * self.streams + 2) * self.width

    def lower(self, run: Lowering) -> Value:
        """predictions + (activated − active prediction)·(1 + c), the difference repeated for every stream."""
        predictions, activated, coefficients = (run.read(self, i).tensor for i in range(3))
        tape = run.tape
        active = tape.slice(predictions, activated.count, apart=True)
        beyond = tape.add(activated, active)
        repeated = tape.copy(beyond.view(predictions.count), "repeated")
        share = tape.multiply(repeated, tape.shift(coefficients))
        return Value(tape.cast(added(run, share, predictions), activated.dtype), self.width * self.streams)


@record
class AddToOthers(Streaming):
    """A tensor of `width` elements per token, added in place to all streams but the first. What else it reads are
    variables of the layer's forward function, which lives until then."""

    streams: int

    def traffic(self) -> tuple[int, int]:
        others = self.streams - 1
        return 2 * (2 * others + 1) * self.width, 2 * (others + 1) * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        out = added(run, x.tensor, run.read(self, 1).tensor)
        run.tape.hold(*(run.read(self, i).tensor for i in range(2, len(self.reads))))
        return Value(out, x.width)


@record
class GaussianTopK(Streaming):
    """max(x − c, 0) over `width` elements per token: the cut c is their mean and this many of their deviations, as if
    they were normally distributed, so that about a given share of them stays (Gemma 3n)."""

    def traffic(self) -> tuple[int, int]:
        return 6 * self.width, 8 * self.width  # read for the cut, and again for the result

    def lower(self, run: Lowering) -> Value:
        """relu(x − (mean + f·deviation)): the deviation's backward needs x and itself."""
        x, tape = run.read(self), run.tape
        rows = x.tensor.count // (self.width // (run.split.tensor if x.divided else 1))
        mean = tape.mean(x.tensor, rows)
        deviation = tape.new(rows, x.tensor.dtype, "deviation")
        deviation = tape.record("std", (x.tensor,), deviation, (x.tensor, deviation))
        factor = tape.new(1, x.tensor.dtype, "deviations", no_grad=True)
        cut = tape.add(mean, tape.multiply(deviation, factor))
        return Value(tape.relu(tape.add(x.tensor, cut)), x.width, x.divided, x.gathered)


@record
class ClampedMatmul(Matmul):
    """A linear layer whose weight is clamped to an interval on every pass."""

    def lower(self, run: Lowering) -> Value:
        """Clamp the weight into a new tensor, which the linear layer saves; autocast casts it each time."""
        x, tape = run.read(self), run.tape
        if run.implementation.tuning is not None:
            return super().lower(run)
        count = self.d_in * self.d_out
        weight = run.weight(count)
        cut = tape.record("clamp", (weight,), tape.new(count, weight.dtype, "clamped weight"), (weight,))
        read, cut = tape.lowered(x.tensor), tape.lowered(cut)
        out = tape.new(read.count // self.d_in * self.d_out, read.dtype, "output")
        return Value(tape.record("linear", (read, cut), out, (read, cut)), self.d_out)


@record
class ExpertScale(Elementwise):
    """The weights of a token's chosen experts, each multiplied by a learned scalar of its expert. Reads a router."""

    experts: int
    top_k: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.experts,)),)

    def traffic(self) -> tuple[Number, Number]:
        """Gather the scales, read the scores and write the products; backward as a product's."""
        return 6 * self.top_k, 10 * self.top_k

    def lower(self, run: Lowering) -> Value:
        """Gather the scales of the chosen experts, by indices that the router saves."""
        x, tape = run.read(self), run.tape
        scales = run.weight(self.experts)
        taken = tape.record("index", (scales,), tape.new(x.tensor.count, scales.dtype, "of the chosen"))
        return Value(tape.multiply(x.tensor, taken), x.width)


def added(run: Lowering, to: Tensor, what: Tensor) -> Tensor:
    """Add in place, in the dtype of the first tensor."""
    return run.tape.record("add", (to, what), to.view(), alias=True)

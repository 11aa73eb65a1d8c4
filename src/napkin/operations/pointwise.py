"""Elementwise operations."""

from __future__ import annotations

from napkin.autograd.tensors import INPUT, WEIGHT
from napkin.elementwise import Number
from napkin.operations.lowering import Lowering, Value
from napkin.operations.ordinary import NOT_TIMED, Elementwise
from napkin.operations.work import Weight
from napkin.record import record, replace


@record
class Activation(Elementwise):
    """An elementwise non-linearity over `width` numbers a token, by its name in config.json: silu, gelu, gelu_new,
    gelu_pytorch_tanh, relu, relu2, … `learned` scalars belong to it (xIELU has two). `upcast`: computed in fp32 and
    cast back. `fused`: it runs in the kernel of the multiplication that reads it."""

    width: int
    function: str
    learned: int = 0
    upcast: bool = False
    fused: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scalars", (self.learned,)),) if self.learned else ()

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward reads two and writes one. Nothing within the kernel of a multiplication."""
        return (0, 0) if self.fused else (4 * self.width, 6 * self.width)

    def fused_into_multiplication(self) -> Activation:
        return replace(self, fused=True)

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        if self.fused:  # the multiplication's kernel runs it
            return x
        if self.upcast:
            wide = run.activated(run.tape.cast(x.tensor, "fp32"), self.function)
            return Value(run.tape.cast(wide, x.tensor.dtype), x.width, x.divided, x.gathered)
        return Value(run.activated(x.tensor, self.function), x.width, x.divided, x.gathered)


@record
class Dropout(Elementwise):
    """Dropout of `width` numbers a token that no residual addition carries (after the embeddings)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.dropout(x.tensor, run.dropout), x.width, x.divided, x.gathered)


@record
class Jitter(Elementwise):
    """Noise of a router: `width` numbers a token, each multiplied in place by a random factor near 1, in training."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def lower(self, run: Lowering) -> Value:
        """x·noise, in place: the noise is kept."""
        x = run.read(self)
        noise = run.tape.new(x.tensor.count, x.tensor.dtype, "noise", fixed=True)
        out = run.tape.record("mul", (x.tensor, noise), x.tensor.view(), (noise,))
        return Value(out, x.width, x.divided, x.gathered)


@record
class Softcap(Elementwise):
    """cap·tanh(x/cap) over `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.capped(x.tensor), x.width, x.divided, x.gathered)


@record
class Clamp(Elementwise):
    """Values cut to an interval, `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        out = run.tape.new(x.tensor.count, x.tensor.dtype, "clamped")
        return Value(run.tape.record("clamp", (x.tensor,), out, (x.tensor,)), x.width, x.divided, x.gathered)


@record
class Multiply(Elementwise):
    """An elementwise product of two tensors of `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward reads three and writes two."""
        return 6 * self.width, 10 * self.width

    def multiplies(self) -> tuple[str, ...]:
        return self.reads

    def lower(self, run: Lowering) -> Value:
        values = [run.read(self, i) for i in range(2)]
        if self.reads[0] in run.program.gates:
            gated = run.gated(values[0].tensor, values[1].tensor)
            return Value(gated, self.width, values[1].divided, values[1].gathered)
        wide = max(values, key=lambda v: v.width if isinstance(v.width, int) else 0)
        other = values[1] if wide is values[0] else values[0]
        product = run.tape.multiply(wide.tensor, other.tensor)
        return Value(product, self.width, wide.divided, wide.gathered)


@record
class Scale(Elementwise):
    """Multiplication by a constant, or by a learned vector of `width` (`learned`). `cast`: the constant is held as an
    integer tensor, which each pass casts to the activations' type. `positions`: each position has a constant of its
    own, in fp32 (Llama 4's temperature of attention). `vector`: constants of each of the `width` numbers, held with the
    weights. `sequences`: each sequence has one, in fp32. `held`: the format that the one constant is held in, which
    each pass casts. `masks`: the constant is each token's mask, in the activations' format, or held as booleans."""

    width: int
    learned: bool = False
    cast: bool = False
    positions: bool = False
    sequences: bool = False
    vector: bool = False
    held: str = ""
    masks: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.width,)),) if self.learned else ()

    def replaces(self) -> str:
        return self.reads[0]

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        if self.positions or self.sequences:
            factor = run.factor if self.positions else None
            factor = run.masks.get("factors", factor)
            if factor is None:
                factor = run.tape.new(run.own if self.positions else run.b, "fp32", "factor", fixed=True)
                if run.implementation.tempers_once:
                    factor.places[0][1].shared = True
                    run.masks["factors"] = factor
                run.factor = factor if self.positions else None  # one for all that this layer scales
            scaled = run.tape.multiply(x.tensor, factor)
            return Value(run.tape.cast(scaled, x.tensor.dtype), x.width, x.divided, x.gathered, x.heads_first)
        if self.vector:
            stored = "fp32" if run.tape.autocast else run.tape.compute
            constants = run.tape.given(self.width, stored, "constants", kind=WEIGHT, fixed=True)
            return Value(run.tape.multiply(x.tensor, constants), x.width, x.divided, x.gathered)
        if self.masks:
            dtype = self.held or x.tensor.dtype
            mask = run.tape.new(run.tokens, dtype, "mask of tokens", fixed=True)
            if dtype == "fp32" and "tokens" in run.masks:  # the step's own, which no cast copies
                mask = run.tape.given(run.tokens, dtype, "mask of tokens", kind=INPUT, fixed=True)
            run.masks["tokens"] = mask
            if self.held:
                filled = run.tape.new(x.tensor.count, x.tensor.dtype, "filled")
                return Value(run.tape.record("masked_fill", (x.tensor,), filled, (mask,)), x.width)
            return Value(run.tape.multiply(x.tensor, mask), x.width, x.divided, x.gathered)
        if self.cast or (self.held and self.held != x.tensor.dtype):
            factor = run.tape.new(1, x.tensor.dtype, "factor", fixed=True)
            return Value(run.tape.multiply(x.tensor, factor), x.width, x.divided, x.gathered)
        if not self.learned:
            return Value(run.tape.scale(x.tensor), x.width, x.divided, x.gathered)
        weight = run.weight(self.width)
        return Value(run.tape.multiply(x.tensor, weight), x.width, x.divided, x.gathered)


@record
class Add(Elementwise):
    """A sum of tensors of `width` numbers a token (the residual); `dropout` marks the branch read second."""

    width: int
    dropout: bool = False

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward adds up the gradients of the two branches."""
        return 6 * self.width, 6 * self.width

    def residual(self) -> Number | None:
        return self.width

    def lower(self, run: Lowering) -> Value:
        first = run.read(self)
        total = first.tensor
        for index in range(1, len(self.reads)):
            other = run.read(self, index).tensor
            if self.dropout:
                other = run.tape.dropout(other, run.dropout)
            total = run.tape.add(total, other)
        return Value(total, self.width, first.divided, first.gathered)


@record
class GroupMean(Elementwise):
    """The mean of the heads of each group: `width` numbers a token are left."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        mean = run.tape.mean(x.tensor, x.tensor.count * self.width // x.width)
        return Value(mean, self.width, x.divided, x.gathered)

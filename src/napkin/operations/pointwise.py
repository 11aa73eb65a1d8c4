"""Elementwise operations: activations, dropout, scaling, sums and products."""

from __future__ import annotations

from napkin.autograd.tensors import INPUT, WEIGHT
from napkin.elementwise import Number
from napkin.operations.base import Operation
from napkin.operations.bases import Elementwise
from napkin.operations.facts import ACTIVATION, PRODUCT, SUM
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Weight
from napkin.record import record, replace


@record
class Activation(Elementwise):
    """An elementwise activation function of `width` elements per token.

    function  its name in config.json: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, …
    learned   number of learned scalars (xIELU has two)
    upcast    computed in fp32 and cast back
    fused     runs in the kernel of the multiplication that reads it
    """

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

    def pattern(self) -> str:
        return ACTIVATION

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
    """Dropout of `width` elements per token outside of a residual addition (after the embeddings)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the factor of eager software holds it (evidence/rates/priors.py), and a rate of 0 runs
        nothing."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.dropout(x.tensor, run.dropout), x.width, x.divided, x.gathered)


@record
class Fourier(Elementwise):
    """The real part of a Fourier transform over the sequence and the `width` elements of each token (FNet). No matmul,
    no weights."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return 16 * self.width, 16 * self.width

    def remark(self) -> str:
        return "Fourier transforms are not matmuls and count 0"

    def lower(self, run: Lowering) -> Value:
        """Run torch.fft in fp32, which saves nothing."""
        x = run.read(self)
        wide = run.tape.cast(x.tensor, "fp32")
        made = run.tape.record("fft", (wide,), run.tape.new(2 * wide.count, "fp32", "complex"))
        return Value(run.tape.slice(made, wide.count), x.width, x.divided, x.gathered)


@record
class Jitter(Elementwise):
    """Router jitter: `width` elements per token, multiplied in place by random factors near 1 in training."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Write the noise, read both and write their product; backward read two and write one."""
        return 8 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        """x·noise, in place: the noise is kept."""
        x = run.read(self)
        noise = run.tape.new(x.tensor.count, x.tensor.dtype, "noise", no_grad=True)
        out = run.tape.record("mul", (x.tensor, noise), x.tensor.view(), (noise,))
        return Value(out, x.width, x.divided, x.gathered)


@record
class Softcap(Elementwise):
    """cap·tanh(x/cap) over `width` elements per token."""

    width: int

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, width=rows) if reads_logits and self.width == before else self

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward reads two and writes one."""
        return 4 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.capped(x.tensor), x.width, x.divided, x.gathered)


@record
class Clamp(Elementwise):
    """Clamp to an interval, `width` elements per token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward reads two and writes one."""
        return 4 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        out = run.tape.new(x.tensor.count, x.tensor.dtype, "clamped")
        return Value(run.tape.record("clamp", (x.tensor,), out, (x.tensor,)), x.width, x.divided, x.gathered)


@record
class Softmax(Elementwise):
    """Probabilities over `width` scores, which are kept."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.softmax(x.tensor), x.width, x.divided, x.gathered)


@record
class Multiply(Elementwise):
    """Elementwise product of two tensors of `width` elements per token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward reads three and writes two."""
        return 6 * self.width, 10 * self.width

    def pattern(self) -> str:
        return PRODUCT

    def multiplies(self) -> tuple[str, ...]:
        return self.reads

    def lower(self, run: Lowering) -> Value:
        values = [run.read(self, i) for i in range(2)]
        if self.reads[0] in run.program.gates:
            gated = run.gated(values[0].tensor, values[1].tensor, dense=True)
            return Value(gated, self.width, values[1].divided, values[1].gathered)
        wide = max(values, key=lambda v: v.width if isinstance(v.width, int) else 0)
        other = values[1] if wide is values[0] else values[0]
        product = run.tape.multiply(wide.tensor, other.tensor)
        return Value(product, self.width, wide.divided, wide.gathered)


@record
class Scale(Elementwise):
    """Multiplication of `width` elements per token by a constant.

    learned    by a learned vector of `width`
    cast       the constant is stored as an integer tensor, which each pass casts to the activations' dtype
    positions  one fp32 constant per position (Llama 4's attention temperature)
    sequences  one fp32 constant per sequence
    vector     one constant per element, stored with the weights
    held       dtype that the constant is stored in, which each pass casts
    once       one tensor of positions' constants serves all layers; else each makes its own
    masks      by each token's mask, in the activations' dtype or, where `held`, as booleans
    """

    width: int
    learned: bool = False
    cast: bool = False
    positions: bool = False
    sequences: bool = False
    vector: bool = False
    held: str = ""
    masks: bool = False
    once: bool = False

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, width=rows) if reads_logits and self.width == before else self

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
                factor = run.tape.new(run.own if self.positions else run.b, "fp32", "factor", no_grad=True)
                if self.once:
                    factor.storage.shared = True
                    run.masks["factors"] = factor
                run.factor = factor if self.positions else None  # one for all that this layer scales
            scaled = run.tape.multiply(x.tensor, factor)
            return Value(run.tape.cast(scaled, x.tensor.dtype), x.width, x.divided, x.gathered, x.heads_first)
        if self.vector:
            stored = "fp32" if run.tape.autocast else run.tape.compute
            constants = run.tape.given(self.width, stored, "constants", kind=WEIGHT, no_grad=True)
            return Value(run.tape.multiply(x.tensor, constants), x.width, x.divided, x.gathered)
        if self.masks:
            dtype = self.held or x.tensor.dtype
            mask = run.tape.new(run.tokens, dtype, "mask of tokens", no_grad=True)
            if dtype == "fp32" and "tokens" in run.masks:  # the step's own, which no cast copies
                mask = run.tape.given(run.tokens, dtype, "mask of tokens", kind=INPUT, no_grad=True)
            run.masks["tokens"] = mask
            if self.held:
                filled = run.tape.new(x.tensor.count, x.tensor.dtype, "filled")
                return Value(run.tape.record("masked_fill", (x.tensor,), filled, (mask,)), x.width)
            return Value(run.tape.multiply(x.tensor, mask), x.width, x.divided, x.gathered)
        if self.cast or (self.held and self.held != x.tensor.dtype):
            factor = run.tape.new(1, x.tensor.dtype, "factor", no_grad=True)
            return Value(run.tape.multiply(x.tensor, factor), x.width, x.divided, x.gathered)
        if not self.learned:
            return Value(run.tape.scale(x.tensor), x.width, x.divided, x.gathered)
        weight = run.weight(self.width)
        return Value(run.tape.multiply(x.tensor, weight), x.width, x.divided, x.gathered)


@record
class Add(Elementwise):
    """Sum of tensors of `width` elements per token (the residual). `dropout`: on all inputs but the first. `renamed`:
    of embeddings, it takes the first one's name in the class."""

    width: int
    dropout: bool = False
    renamed: bool = False

    def replaces(self) -> str:
        return self.reads[0] if self.renamed else ""

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward adds up the gradients of the two branches."""
        return 6 * self.width, 6 * self.width

    def pattern(self) -> str:
        return SUM

    def residual(self) -> Number | None:
        return self.width

    def lower(self, run: Lowering) -> Value:
        first = run.read(self)
        total = first.tensor
        for index in range(1, len(self.reads)):
            other = run.read(self, index).tensor
            if self.dropout:
                other = run.tape.dropout(other, run.dropout)
            run.scopes.result_is_there()
            total = run.tape.add(total, other)
        return Value(total, self.width, first.divided, first.gathered)


@record
class GroupMean(Elementwise):
    """Mean over the heads of each group: of `of` elements per token `width` remain."""

    width: int
    of: int

    def traffic(self) -> tuple[Number, Number]:
        """Read all heads and write the mean; backward the other way."""
        return 2 * (self.of + self.width), 2 * (self.of + self.width)

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        mean = run.tape.mean(x.tensor, x.tensor.count * self.width // x.width)
        return Value(mean, self.width, x.divided, x.gathered)


@record
class ResidualGate(Elementwise):
    """α ⊙ residual + β ⊙ branch, read in this order, with β = σ(w/t) and α = √max(σ(−w/t)·(1 + β), ε) of a learned
    vector w of `width`, which stays in fp32."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("gate", (self.width,)),)

    def traffic(self) -> tuple[Number, Number]:
        return 6 * self.width, 8 * self.width

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        residual, branch = run.read(self), run.read(self, 1)
        share = tape.scale(tape.given(self.width, "fp32", "gate", kind=WEIGHT))
        added = tape.sigmoid(share)
        square = tape.multiply(tape.sigmoid(tape.scale(share)), tape.shift(added))
        cut = tape.record("clamp", (square,), tape.new(square.count, square.dtype, "cut"), (square,))
        root = tape.new(cut.count, cut.dtype, "root")
        kept = tape.record("sqrt", (cut,), root, (root,))
        total = tape.add(tape.multiply(residual.tensor, kept), tape.multiply(branch.tensor, added))
        out = tape.cast(total, residual.tensor.dtype)
        return Value(out, residual.width, residual.divided, residual.gathered)

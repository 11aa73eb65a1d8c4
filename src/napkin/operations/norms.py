"""Normalizations."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Elementwise
from napkin.operations.implementations import Running
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS, REPLICATED
from napkin.operations.shapes import Value
from napkin.operations.work import Weight, division_of
from napkin.record import record

INPUT_BY_RSTD = ("fp32_rstd", "fp32_rstd_inline")


@record
class Norm(Elementwise):
    """Normalization over the last `width` elements.

    kind         rms, l2 (by the root of the sum of squares), layer, or affine: weight and bias only (MobileBERT)
    arithmetic   how the reference implementation computes it:
        fused       one kernel in the input's dtype (F.layer_norm, F.rms_norm); default of a layer norm
        fused_fp32  that kernel on an fp32 copy of the input, cast back
        fp32_norm   elementary operations: normalized in fp32, cast back, times the weight; default of an RMS norm
        fp32_rstd   the same, but the 16-bit input is multiplied by the fp32 rstd (T5)
        fp32_rstd_inline  that, in one expression with the weight (CPM-Ant)
        fp32        elementary operations: the weight is also applied in fp32, then cast back
        cast_rstd   elementary operations: rstd, computed in fp32, is cast to the input's dtype and multiplies it
    groups       vectors of `width` per token (heads, for query and key norms)
    unit_offset  the weight is stored as its difference from 1 (Gemma)
    weight, bias  which of them exist; shared over the groups unless `per_group`
    power        the reciprocal deviation is a power of the variance, which is kept
    gated        multiplied by the activation (`gate`) of a gate, read second (Mamba-2)
    """

    width: int
    kind: str = "rms"
    groups: int = 1
    unit_offset: bool = False
    weight: bool = True
    bias: bool = False
    per_group: bool = False
    gated: bool = False
    shard: str = REPLICATED
    arithmetic: str = ""
    gate: str = "silu"
    power: bool = False

    def __post_init__(self) -> None:
        if not self.arithmetic:
            object.__setattr__(self, "arithmetic", "fused" if self.kind == "layer" else "fp32_norm")

    def weights(self) -> tuple[Weight, ...]:
        shape = (self.groups, self.width) if self.per_group else (self.width,)
        present = (("weight", self.weight), ("bias", self.bias))
        return tuple(Weight(name, shape, self.shard) for name, there in present if there)

    def normalizes(self) -> bool:
        return True

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward reads two and writes one."""
        return 4 * self.width * self.groups, 6 * self.width * self.groups

    def elementary(self) -> tuple[Number, Number]:
        """Forward: cast to fp32, square, mean, product with the reciprocal root, cast back, product with the weight.
        Backward: those of the products, both ways, of the square and of the casts, and the sum of both gradients
        (transformers models/llama/modeling_llama.py, LlamaRMSNorm.forward)."""
        if self.kind != "rms" or self.arithmetic != "fp32_norm":
            return 0, 0
        every = self.width * self.groups
        return (6 + 8 + 4 + 8 + 6 + 4) * every, (6 + 6 + 6 + 8 + 12 + 4 + 4 + 12 + 12 + 6) * every

    def division(self) -> str:
        return division_of(self.shard)

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        out = self.normalized(run, x.tensor, x.divided)
        run.tape.hold(x.tensor)
        if x.tensor is run.distances:  # every layer reads the one table
            out.storage.shared = True
            run.distances = out
        if self.gated and self.name not in run.program.inside:
            gate = run.read(self, 1).tensor
            if self.reads[1] in run.program.slices:
                gate = run.tape.copy(gate, "gate")  # a group's heads lie apart
            out = run.tape.multiply(out, run.activated(run.tape.cast(gate, "fp32"), self.gate))
            out = run.tape.cast(out, x.tensor.dtype)
        return Value(out, x.width, x.divided, x.gathered, x.heads_first)

    def normalized(self, run: Lowering, x: Tensor, divided: bool) -> Tensor:
        """Return the norm of x, in one kernel or in elementary operations, depending on the implementation."""
        tape = run.tape
        if self.kind == "affine":
            scaled = tape.multiply(x, run.weight(self.width))
            return tape.add(scaled, run.weight(self.width)) if self.bias else scaled
        width = self.width // (run.split.tensor if divided and self.groups == 1 else 1)
        rows = x.count // width
        arithmetic = "fused" if run.implementation.norms in ("fused", "own") else self.arithmetic
        out_dtype = "fp32" if self.gated and arithmetic == "fp32" else x.dtype  # the gate comes before the cast
        size = width * (self.groups if self.per_group else 1)
        if run.implementation.norms == "fp32" and self.kind == "rms":
            arithmetic = "fp32"
        learned = (self.weight + self.bias) * size * BYTES["fp32" if tape.autocast else tape.compute]
        if run.implementation.norms == "lowered" and tape.autocast:
            return self.autocast_normalized(run, x, rows, size, learned)
        if arithmetic == "fused":
            return self.in_one_kernel(run, x, rows, size, learned)
        if arithmetic == "fused_fp32":
            return tape.cast(self.in_one_kernel(run, tape.cast(x, "fp32"), rows, size, learned), out_dtype)
        if arithmetic == "cast_rstd":
            rstd = tape.rsqrt(tape.shift(tape.mean(tape.power(tape.cast(x, "fp32")), rows)))
            return tape.multiply(x, tape.cast(rstd, out_dtype), "normalized")
        return self.written_out(run, x, rows, size, arithmetic, out_dtype)

    def written_out(
        self, run: Lowering, x: Tensor, rows: Number, size: Number, arithmetic: str, out_dtype: str
    ) -> Tensor:
        """Return the norm in elementary operations, in fp32. size: elements of the weight."""
        tape = run.tape
        given, x = x, tape.cast(x, "fp32")
        if self.kind == "layer":
            mean = tape.mean(x, rows)
            deviation = tape.add(x, mean)
            centered = tape.add(x, mean)
        else:
            deviation = centered = x
        if arithmetic in INPUT_BY_RSTD:
            centered = given
        variance = (tape.sum if self.kind == "l2" else tape.mean)(tape.power(deviation), rows)
        divides = self.kind == "layer" and arithmetic == "fp32_norm"
        shifted_variance = tape.shift(variance)
        if self.power:
            rstd = tape.power(shifted_variance)
        else:
            rstd = (run.implementation.rstd or _by_rsqrt)(run, shifted_variance)
        out = (tape.divide if divides else tape.multiply)(centered, rstd, "normalized")
        if not self.weight:
            return tape.cast(out, out_dtype)
        weight = run.weight(size)
        if arithmetic == "fp32":
            if self.unit_offset or self.gated or self.kind == "layer" or run.implementation.fp32_norm_weight:
                weight = tape.cast(weight, "fp32")
            if self.unit_offset:
                weight = tape.shift(weight, "1 + weight")
            return tape.cast(tape.multiply(out, weight), out_dtype)
        if arithmetic in INPUT_BY_RSTD:  # cast to the weight's type
            out_dtype = weight.dtype
        product = tape.multiply(tape.cast(out, out_dtype), weight)
        tape.hold(variance, *(() if arithmetic == "fp32_rstd_inline" else (out,)))
        return product

    def in_one_kernel(self, run: Lowering, x: Tensor, rows: Number, size: Number, learned: Number) -> Tensor:
        """Run F.rms_norm or F.layer_norm; or the implementation's own kernel, which works in the input's type under
        autocast too and writes the input's gradient over the output's."""
        if self.kind != "layer" and run.implementation.norms == "own":
            rstd = run.tape.new(rows, "fp32", "rstd", no_grad=True)
            out = run.tape.new(x.count, x.dtype, "normalized")
            return run.tape.record("rms_norm", (x,), out, (x, rstd), weight=learned, scratch=-x.size)
        if self.kind != "layer":
            return run.tape.rms_norm(x, rows, learned)
        shifted = [run.tape.scale(run.weight(size))] if self.unit_offset else []
        return run.tape.layer_norm(x, rows, shifted, learned)

    def autocast_normalized(self, run: Lowering, x: Tensor, rows: Number, size: Number, learned: Number) -> Tensor:
        """Run a layer norm outside of autocast, its arguments cast to 16 bits on every pass."""
        tape = run.tape
        lowered = [tape.cast(run.weight(size), tape.autocast) for there in (self.weight, self.bias) if there]
        x = tape.lowered(x)
        mean, rstd = (tape.new(rows, "fp32", what, no_grad=True) for what in ("mean", "rstd"))
        out = tape.new(x.count, x.dtype, "normalized")
        return tape.record("layer_norm", (x,), out, (x, mean, rstd, *lowered), weight=learned)


def _by_rsqrt(run: Running, variance: Tensor) -> Tensor:
    """Return the reciprocal deviation, which is kept for backward."""
    return run.tape.rsqrt(variance)


@record
class ScaledNorm(Elementwise):
    """An RMS norm of the input times a learned vector, which is stored as its difference from 1."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.width,), REPLICATED),)

    def normalizes(self) -> bool:
        return True

    def traffic(self) -> tuple[Number, Number]:
        return 8 * self.width, 14 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(scaled_norm(run, x.tensor, self.width), x.width, x.divided, x.gathered)


def scaled_norm(run: Lowering, x: Tensor, width: int) -> Tensor:
    """Return the norm of a tensor that a learned vector multiplies first: product and norm in fp32, rounded between."""
    tape = run.tape
    weight = tape.cast(tape.shift(run.weight(width), "1 + weight"), "fp32")
    rounded = tape.cast(tape.multiply(tape.cast(x, "fp32"), weight), x.dtype)
    wide = tape.cast(rounded, "fp32")
    rstd = tape.rsqrt(tape.shift(tape.mean(tape.power(wide), x.count // width)))
    return tape.cast(tape.multiply(wide, rstd, "normalized"), x.dtype)


@record
class UnitNorm(Elementwise):
    """x·√width/‖x‖ over each of `groups` vectors of `width` elements; `learned`: and by a learned factor of each."""

    width: int
    groups: int
    learned: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.groups,), HEADS),) if self.learned else ()

    def traffic(self) -> tuple[Number, Number]:
        return 6 * self.width * self.groups, 10 * self.width * self.groups

    def lower(self, run: Lowering) -> Value:
        """Length, clamped from below, and its reciprocal are kept next to what they divide."""
        x = run.read(self)
        tape = run.tape
        rows = x.tensor.count // self.width
        wide = "fp32" if tape.autocast else x.tensor.dtype
        length = tape.new(rows, wide, "length")
        length = tape.record("norm", (x.tensor,), length, (x.tensor, length))
        cut = tape.record("clamp", (length,), tape.new(rows, wide, "cut"), (length,))
        inverse = tape.new(rows, wide, "reciprocal")
        inverse = tape.record("reciprocal", (cut,), inverse, (inverse,))
        out = tape.multiply(x.tensor, tape.scale(inverse), "normalized")
        if self.learned:
            out = tape.multiply(out, run.weight(self.groups))
        return Value(out, x.width, x.divided, x.gathered)

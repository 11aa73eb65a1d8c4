"""Compressed convolutional attention on the tape: what stands between its products and its core, and what runs along
beside the stream."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import WEIGHT, sized
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.norms import UnitNorm
from napkin.operations.pointwise import Affine, GroupMean
from napkin.operations.recurrence import ConvPair, Delayed
from napkin.operations.views import Carried


def conv_pair(run: Lowering, op: Any) -> Value:
    """Zeros are put before each sequence, laid out by channels; both convolutions keep what they read."""
    x = run.read(op)
    tape = run.tape
    ways = run.split.tensor if x.divided else 1
    channels = op.channels // ways
    first, second = op.kernels
    stored = "fp32" if tape.autocast else tape.compute
    rows = run.tokens + run.b * (first + second - 2)
    tensor = tape.lowered(tape.record("pad", (x.tensor,), tape.new(rows * channels, x.tensor.dtype, "padded")))
    for what, group, kernel in (("depthwise", 1, first), ("heads", op.group, second)):
        rows = rows - run.b * (kernel - 1)
        kept = [tensor]
        weights = channels * group * kernel
        if tape.autocast:
            kept.append(tape.weight_copy(weights, f"{op.name}/{what}"))
        out = tape.new(rows * channels, tensor.dtype, f"{what} convolved")
        tensor = tape.record("conv", (tensor,), out, kept, weight=(weights + channels) * sized(1, stored))
    return Value(tensor, op.channels, x.divided, x.whole)


def delayed(run: Lowering, op: Any) -> Value:
    """The product of zeros keeps them; both halves are put together anew."""
    now, later = run.read(op), run.read(op, 1)
    tape = run.tape
    half = op.width // 2
    stream = "fp32" if tape.autocast else tape.compute
    zeros = tape.new(run.b * op.d_in, stream, "zeros", fixed=True)
    weight = tape.given(op.d_in * half, stream, "weight", kind=WEIGHT)
    zeros = tape.lowered(zeros)
    start = tape.record("linear", (zeros, weight), tape.new(run.b * half, zeros.dtype, "start"), (zeros,))
    before = tape.record("cat", (start, later.tensor), tape.new(later.tensor.count, later.tensor.dtype, "before"))
    joined = tape.new(now.tensor.count + before.count, now.tensor.dtype, "joined")
    return Value(tape.record("cat", (now.tensor, before), joined), op.width, now.divided, now.whole)


def unit_norm(run: Lowering, op: Any) -> Value:
    """Length, cut from below, and its reciprocal are kept beside what they divide."""
    x = run.read(op)
    tape = run.tape
    rows = x.tensor.count // op.width
    wide = "fp32" if tape.autocast else x.tensor.dtype
    length = tape.new(rows, wide, "length")
    length = tape.record("norm", (x.tensor,), length, (x.tensor, length))
    cut = tape.record("clamp", (length,), tape.new(rows, wide, "cut"), (length,))
    inverse = tape.new(rows, wide, "reciprocal")
    inverse = tape.record("reciprocal", (cut,), inverse, (inverse,))
    out = tape.multiply(x.tensor, tape.scale(inverse), "normalised")
    if op.learnt:
        out = tape.multiply(out, run.weight(op.groups))
    return Value(out, x.width, x.divided, x.whole)


def group_mean(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    mean = run.tape.mean(x.tensor, x.tensor.count * op.width // x.width)
    return Value(mean, op.width, x.divided, x.whole)


def affine(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    shifted = run.tape.add(x.tensor, run.weight(op.width))
    return Value(run.tape.multiply(shifted, run.weight(op.width)), op.width, x.divided, x.whole)


def carried(run: Lowering, op: Any) -> Value:
    tape = run.tape
    dtype = ("fp32" if op.wide else tape.autocast) if tape.autocast else tape.compute
    return Value(tape.new(run.tokens * op.width, dtype, "from the layer before"), op.width)


RULES: Rules = {
    Affine: affine,
    Carried: carried,
    ConvPair: conv_pair,
    Delayed: delayed,
    GroupMean: group_mean,
    UnitNorm: unit_norm,
}

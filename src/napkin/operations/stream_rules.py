"""Several streams, lent tensors and activations cut by their spread on the tape (operations: streams.py)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import Tensor
from napkin.operations.base import LENT
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.streams import (
    AddToOthers,
    Blend,
    ClampedMatmul,
    Correct,
    ExpertScale,
    GaussianTopK,
    Magnitude,
    Rescale,
    Stack,
    Stream,
    StreamMean,
)
from napkin.operations.views import Lend


def lend(run: Lowering, op: Any) -> Value:
    """What is lent is one tensor, however many layers keep it."""
    x = run.read(op)
    for _, storage in x.tensor.places:
        storage.shared = True
    run.lent[LENT + op.name] = x
    return x


def stream(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    part = run.tape.slice(x.tensor, x.tensor.count * op.width // x.width, apart=True)
    return Value(run.tape.copy(part, "copied") if op.copied else part, op.width, x.divided, x.whole)


def stack(run: Lowering, op: Any) -> Value:
    parts = tuple(run.read(op, i).tensor for i in range(len(op.reads)))
    joined = run.tape.new(parts[0].count * len(parts), parts[0].dtype, "stacked")
    return Value(run.tape.record("cat", parts, joined), op.width)


def stream_mean(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    return Value(run.tape.mean(x.tensor, x.tensor.count * op.width // x.width), op.width)


def magnitude(run: Lowering, op: Any) -> Value:
    """mean(x²)^½."""
    x, tape = run.read(op).tensor, run.tape
    return Value(tape.power(tape.mean(tape.power(x), x.count // op.width)), 1)


def rescale(run: Lowering, op: Any) -> Value:
    """x·m / √max(mean(x²), ε)."""
    tape = run.tape
    x = tape.cast(run.read(op).tensor, "fp32" if tape.autocast else tape.compute)
    square = tape.mean(tape.power(x), x.count // op.width)
    least = tape.record("clamp", (square,), tape.new(square.count, square.dtype, "clamped"), (square,))
    own = tape.new(square.count, square.dtype, "magnitude")
    own = tape.record("sqrt", (least,), own, (own,))
    scaled = tape.multiply(x, run.read(op, 1).tensor)
    out = tape.new(x.count, scaled.dtype, "rescaled")
    return Value(tape.record("div", (scaled, own), out, (scaled, own)), op.width)


def blend(run: Lowering, op: Any) -> Value:
    """x + x·c, the sum in place; what the product made lies with streams last, and is put in order."""
    x, coefficients = run.read(op), run.read(op, 1).tensor
    tape = run.tape
    made = tape.matmul(x.tensor, coefficients, x.tensor.count, "predicted")
    made = tape.copy(added(run, made, x.tensor), "in order")
    return Value(tape.cast(made, x.tensor.dtype), x.width)


def added(run: Lowering, to: Tensor, what: Tensor) -> Tensor:
    """A sum in place, in the type of what it is added to."""
    return run.tape.record("add", (to, what), to.view(), alias=True)


def correct(run: Lowering, op: Any) -> Value:
    """predictions + (activated − active prediction)·(1 + c), the difference repeated for every stream."""
    predictions, activated, coefficients = (run.read(op, i).tensor for i in range(3))
    tape = run.tape
    active = tape.slice(predictions, activated.count, apart=True)
    beyond = tape.add(activated, active)
    repeated = tape.copy(beyond.view(predictions.count), "repeated")
    share = tape.multiply(repeated, tape.shift(coefficients))
    return Value(tape.cast(added(run, share, predictions), activated.dtype), op.width * op.streams)


def add_to_others(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    return Value(added(run, x.tensor, run.read(op, 1).tensor), x.width)


def clamped_matmul(run: Lowering, op: Any) -> Value:
    """The cut weight is a tensor of its own, which the product keeps; autocast casts it each time."""
    x, tape = run.read(op), run.tape
    if run.code.tuning is not None:
        return run.matmul(op)
    count = op.d_in * op.d_out
    weight = run.weight(count)
    cut = tape.record("clamp", (weight,), tape.new(count, weight.dtype, "clamped weight"), (weight,))
    read, cut = tape.lowered(x.tensor), tape.lowered(cut)
    out = tape.new(read.count // op.d_in * op.d_out, read.dtype, "output")
    return Value(tape.record("linear", (read, cut), out, (read, cut)), op.d_out)


def gaussian_top_k(run: Lowering, op: Any) -> Value:
    """relu(x − (mean + f·deviation)): the deviation's backward needs x and itself."""
    x, tape = run.read(op), run.tape
    rows = x.tensor.count // (op.width // (run.split.tensor if x.divided else 1))
    mean = tape.mean(x.tensor, rows)
    deviation = tape.new(rows, x.tensor.dtype, "deviation")
    deviation = tape.record("std", (x.tensor,), deviation, (x.tensor, deviation))
    factor = tape.new(1, x.tensor.dtype, "deviations", fixed=True)
    cut = tape.add(mean, tape.multiply(deviation, factor))
    return Value(tape.relu(tape.add(x.tensor, cut)), x.width, x.divided, x.whole)


def expert_scale(run: Lowering, op: Any) -> Value:
    """The numbers of the chosen, taken out by indices that the router keeps."""
    x, tape = run.read(op), run.tape
    scales = run.weight(op.experts)
    taken = tape.record("index", (scales,), tape.new(x.tensor.count, scales.dtype, "of the chosen"))
    return Value(tape.multiply(x.tensor, taken), x.width)


RULES: Rules = {
    AddToOthers: add_to_others,
    Blend: blend,
    ClampedMatmul: clamped_matmul,
    Correct: correct,
    ExpertScale: expert_scale,
    GaussianTopK: gaussian_top_k,
    Lend: lend,
    Magnitude: magnitude,
    Rescale: rescale,
    Stack: stack,
    Stream: stream,
    StreamMean: stream_mean,
}

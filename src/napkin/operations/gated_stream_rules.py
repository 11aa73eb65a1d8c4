"""Gated streams and tables of hashed runs on the tape (operations: gated_streams.py)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import promoted, sized
from napkin.operations.gated_streams import Agreement, DilatedConv, NgramTable, Outer, RunChoice
from napkin.operations.lowering import Lowering, Rules, Value


def outer(run: Lowering, op: Any) -> Value:
    few, x = run.read(op).tensor, run.read(op, 1).tensor
    out = run.tape.new(x.count * op.streams, promoted(few, x), "streams")
    return Value(run.tape.record("mul", (few, x), out, (few, x), spread=True), op.width * op.streams)


def agreement(run: Lowering, op: Any) -> Value:
    """The product's size is cut from below, and its sign multiplied in behind the root: each step keeps its own."""
    tape = run.tape
    product = tape.multiply(run.read(op).tensor, run.read(op, 1).tensor)
    count = product.count // op.width
    summed = tape.new(count, "fp32" if tape.autocast else product.dtype, "agreement")
    scaled = tape.scale(tape.record("sum", (product,), summed))
    size = tape.record("abs", (scaled,), tape.new(count, scaled.dtype, "size"), (scaled,))
    cut = tape.record("clamp", (size,), tape.new(count, size.dtype, "cut"), (size,))
    root = tape.new(count, cut.dtype, "root")
    root = tape.record("sqrt", (cut,), root, (root,))
    sign = tape.record("sign", (scaled,), tape.new(count, scaled.dtype, "sign"))
    return Value(tape.sigmoid(tape.multiply(root, sign)), op.streams)


def ngrams(run: Lowering, op: Any) -> Value:
    """The rows' numbers are cut from those of the tokens with what stands before them."""
    tape = run.tape
    stored = "fp32" if tape.autocast else tape.compute
    rows = (run.tokens + run.b * op.reach) * op.heads
    ids = tape.new(rows, "int64", "rows", fixed=True)
    out = tape.new(run.tokens * op.width, stored, "looked up")
    grads = op.rows * (op.width // op.heads) * sized(1, stored)
    return Value(tape.record("embedding", (ids,), out, (ids,), weight=grads), op.width)


def dilated(run: Lowering, op: Any) -> Value:
    """Zeros are put before each sequence, laid out by channels."""
    x = run.read(op)
    tape = run.tape
    stored = "fp32" if tape.autocast else tape.compute
    rows = run.tokens + run.b * op.reach
    padded = tape.record("pad", (x.tensor,), tape.new(rows * op.channels, x.tensor.dtype, "padded"))
    padded = tape.lowered(padded)
    kept = [padded]
    count = op.channels * op.kernel
    if tape.autocast:
        kept.append(tape.weight_copy(count, f"{op.name}/weight"))
    out = tape.new(run.tokens * op.channels, padded.dtype, "convolved")
    return Value(tape.record("conv", (padded,), out, kept, weight=count * sized(1, stored)), op.channels)


def choice(run: Lowering, op: Any) -> Value:
    """What the choice is made of goes with it: a mask of queries and keys is left."""
    tape = run.tape
    x = run.read(op)
    before, tape.again = tape.again, True
    read = tape.lowered(x.tensor)
    made = tape.new(run.tokens * (op.heads + 1) * op.head_dim, read.dtype, "queries and keys")
    tape.record("linear", (read,), made)
    mask = tape.record("topk", (made,), tape.new(run.tokens * run.s, "bool", "chosen keys"))
    tape.again = before
    return Value(mask, 1, x.divided)


RULES: Rules = {
    Agreement: agreement,
    DilatedConv: dilated,
    NgramTable: ngrams,
    Outer: outer,
    RunChoice: choice,
}

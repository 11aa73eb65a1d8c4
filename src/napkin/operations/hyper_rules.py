"""Hyper-connections on the tape: the weights of reading, writing and mixing, made in fp32."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import WEIGHT, Tensor, promoted
from napkin.elementwise import Number
from napkin.operations.hyper_connections import Collapse, Fan, Spread
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.norms import Norm


def fan(run: Lowering, op: Any) -> Value:
    x = run.read(op).tensor
    return Value(run.tape.copy(x.view(x.count * op.streams), "streams"), op.width * op.streams)


def learnt(run: Lowering, count: Number) -> Tensor:
    """Small weights that the classes store in fp32 whatever the rest is in."""
    return run.tape.given(count, "fp32", "weight", kind=WEIGHT)


def collapse(run: Lowering, op: Any) -> Value:
    """What the branch reads; the weights of its result and of the streams are left for the spread."""
    tape = run.tape
    x = run.read(op).tensor
    n, tokens = op.streams, x.count // (op.width * op.streams)
    outer = tape.autocast, tape.compute
    if op.behind:
        tape.autocast, tape.compute = "", "fp32"
    wide = tape.cast(x, "fp32")
    if op.behind:
        made = tape.linear(wide, op.width * n, op.made, weight=f"{op.name}/weight")
        variance = tape.mean(tape.power(wide), tokens)
        made = tape.multiply(made, tape.rsqrt(tape.shift(variance)), "normalised")
    else:
        style = Norm("input_norm", (), op.width * n, weight=False, arithmetic="narrow")
        made = tape.linear(run.normalised(wide, style, False), op.width * n, op.made, weight=f"{op.name}/weight")

    def part(count: int) -> Tensor:
        scaled = tape.multiply(tape.slice(made, tokens * count), learnt(run, 1))
        return tape.add(scaled, learnt(run, count))

    reads = tape.shift(tape.sigmoid(part(n)))
    if not op.last:
        writes = tape.scale(tape.sigmoid(part(n)))
        run.values[f"{op.name}/writes"] = Value(tape.shift(writes) if op.behind else writes, n)
        if op.mixes:
            run.values[f"{op.name}/mixes"] = Value(doubly_stochastic(run, part(n * n), op.iterations, n), n * n)
    product = tape.new(x.count, promoted(x, reads), "weighted")
    product = tape.record("mul", (x, reads), product, (x, reads), spread=True)
    read = tape.cast(tape.record("sum", (product,), tape.new(tokens * op.width, product.dtype, "read")), x.dtype)
    tape.autocast, tape.compute = outer
    return Value(read, op.width)


def doubly_stochastic(run: Lowering, logits: Tensor, iterations: int, n: int) -> Tensor:
    """Softmax, then divided by the sums of columns, rows, columns, …: each division keeps what it divides and by
    what."""
    tape = run.tape
    share = tape.shift(tape.softmax(logits))
    for _ in range(max(2 * iterations - 1, 1)):
        total = tape.shift(tape.record("sum", (share,), tape.new(share.count // n, share.dtype, "sums")))
        divided = tape.new(share.count, share.dtype, "divided")
        share = tape.record("div", (share, total), divided, (share, total))
    return share


def spread(run: Lowering, op: Any) -> Value:
    tape = run.tape
    branch, x = run.read(op, 1).tensor, run.read(op, 2).tensor
    writes, stream = run.values[f"{op.reads[0]}/writes"].tensor, x
    if op.mixes:
        writes = tape.cast(writes, x.dtype)
        mixes = tape.cast(run.values[f"{op.reads[0]}/mixes"].tensor, x.dtype)
    else:  # in fp32
        branch = tape.cast(branch, "fp32")
    out = tape.new(x.count, promoted(writes, branch), "written")
    out = tape.record("mul", (writes, branch), out, (writes, branch), spread=True)
    stream = tape.matmul(mixes, x, x.count, "mixed") if op.mixes else tape.cast(x, "fp32")
    total = tape.add(out, stream)
    return Value(total if op.mixes else tape.cast(total, x.dtype), op.width * op.streams)


RULES: Rules = {Collapse: collapse, Fan: fan, Spread: spread}

"""Scores by distance, short convolutions and shared experts with shares on the tape, as transformers writes them out
(models/inkling)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import BYTES, Tensor
from napkin.operations.hyper_rules import learnt
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.relative import DistanceBias, SharedExperts, ShortConvolution, SinkRouter


def distance_bias(run: Lowering, op: Any) -> Value:
    """The scores of all distances, of which each pair takes its own, and zero outside."""
    tape = run.tape
    scores = tape.linear(run.read(op).tensor, op.rank, op.extent, weight=f"{op.name}/profiles")
    index = tape.new(run.own * run.s, "int64", "distances", fixed=True)
    pairs = tape.new(run.tokens * op.heads * run.s, scores.dtype, "scores of pairs")
    pairs = tape.record("gather", (scores,), pairs, (scores, index))
    outside = tape.new(run.own * run.s, "bool", "outside", fixed=True)
    cut = tape.new(pairs.count, pairs.dtype, "scores within")
    return Value(tape.record("masked_fill", (pairs,), cut, (outside,)), op.heads, True)


def short_convolution(run: Lowering, op: Any) -> Value:
    """The kernel (causal_conv1d) keeps its input; autocast does not reach it."""
    x = run.read(op)
    tape = run.tape
    wide = tape.cast(x.tensor, "fp32")
    made = tape.new(x.tensor.count, "fp32", "convolved")
    convolved = tape.record("conv", (wide,), made, (wide,), weight=op.channels * op.kernel * BYTES["fp32"])
    return Value(tape.cast(tape.add(convolved, wide), x.tensor.dtype), x.width, x.divided, x.whole)


def sink_router(run: Lowering, op: Any) -> Value:
    """All in fp32, outside of autocast; the choice has no gradient."""
    x = run.read(op)
    tape = run.tape
    rows = x.tensor.count // op.d_in
    every = op.experts + op.shared
    outer = tape.compute, tape.autocast
    kept: list[Tensor] = []
    if tape.compute != "fp32" and not tape.autocast:
        kept.append(tape.new(op.d_in * every, "fp32", "wide weight", fixed=True))
    if tape.autocast:
        tape.compute, tape.autocast = "fp32", ""
    logits = tape.linear(tape.cast(x.tensor, "fp32"), op.d_in, every)
    index = tape.new(rows * op.top_k, "int64", "chosen", fixed=True)
    best = tape.new(rows * op.top_k, "fp32", "best")
    best = tape.record("gather", (logits,), best, (logits, index, *kept))
    count = rows * (op.top_k + op.shared)
    joined = tape.record("cat", (best, tape.slice(logits, rows * op.shared)), tape.new(count, "fp32", "joined"))
    logs = tape.record("logsigmoid", (joined,), tape.new(count, "fp32", "log-sigmoid"), (joined,))
    total = tape.new(rows, "fp32", "log-sum-exp")
    total = tape.record("logsumexp", (logs,), total, (logs, total))
    shares = tape.new(count, "fp32", "shares")
    shares = tape.record("exp", (tape.add(logs, total),), shares, (shares,))
    shares = tape.multiply(tape.scale(shares), learnt(run, 1))
    tape.compute, tape.autocast = outer
    return Value(tape.cast(shares, x.tensor.dtype), op.top_k + op.shared)


def shared_experts(run: Lowering, op: Any) -> Value:
    """Each product reads all tokens once for each expert: a view, of which autocast makes a whole copy each time. What
    the experts make is added up in fp32."""
    x, weights = run.read(op), run.read(op, 1)
    tape = run.tape
    rows = x.tensor.count // op.d_model * op.experts
    size = op.experts * op.d_model * op.d_ff
    stored = "fp32" if tape.autocast else tape.compute

    def batched(read: Tensor, d_out: int, what: str, spread: bool = False) -> Tensor:
        if spread and tape.autocast and read.dtype == "fp32":
            copied = tape.new(read.count * op.experts, tape.autocast, "for each expert")
            read = tape.record("cast", (read,), copied)
        read = tape.lowered(read)
        kept = [read]
        if tape.autocast:
            kept.append(tape.new(size, tape.autocast, "weight", fixed=True))
        made = tape.new(rows * d_out, read.dtype, what)
        return tape.record("bmm", (read,), made, kept, weight=size * BYTES[stored])

    gate, up = (batched(x.tensor, op.d_ff, what, spread=True) for what in ("gate", "up"))
    hidden = tape.multiply(run.activated(gate, op.function), up)
    hidden = tape.multiply(hidden, weights.tensor)
    down = tape.cast(batched(hidden, op.d_model, "down"), "fp32")
    total = tape.record("sum", (down,), tape.new(x.tensor.count, "fp32", "summed"))
    return Value(tape.cast(total, x.tensor.dtype), op.d_model, x.divided, x.whole)


RULES: Rules = {
    DistanceBias: distance_bias,
    SharedExperts: shared_experts,
    ShortConvolution: short_convolution,
    SinkRouter: sink_router,
}

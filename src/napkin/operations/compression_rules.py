"""Compressed keys on the tape, as transformers writes them out (models/deepseek_v4)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import BYTES, Tensor, select
from napkin.elementwise import Number, ceil_div
from napkin.operations.attention import Rotary
from napkin.operations.attention_rules import by_angles
from napkin.operations.compression import BlockIndexer, Compressor, GroupedMatmul, RunIndexer
from napkin.operations.hyper_rules import learnt
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.norms import Norm


def compressor(run: Lowering, op: Any) -> Value:
    """Values and gates of each run weighed and added up; an overlapping one lays both series out anew first."""
    tape = run.tape
    x = run.read(op).tensor
    values, gates = (tape.linear(x, op.d_in, op.wide, weight=f"{op.name}/{part}") for part in ("value", "gate"))
    return Value(compressed(run, op, values, gates), op.head_dim)


def compressed(run: Lowering, op: Compressor, values: Tensor, gates: Tensor) -> Tensor:
    """The keys of all whole runs."""
    tape = run.tape
    runs = run.b * (run.own // op.rate)
    count = runs * op.rate * op.wide
    values = tape.slice(values, count)
    gates = tape.add(tape.slice(gates, count), learnt(run, op.rate * op.wide))
    if op.overlapping:
        values, gates = (tape.copy(part, "runs and those before") for part in (values, gates))
    weights = tape.cast(tape.softmax(gates, "fp32"), values.dtype)
    product = tape.multiply(values, weights)
    summed = "fp32" if tape.autocast else product.dtype
    keys = tape.record("sum", (product,), tape.new(runs * op.head_dim, summed, "summed"))
    keys = run.normalised(keys, Norm("norm", (), op.head_dim, arithmetic="fp32"), False)
    angles = [tape.new(runs * op.rotary, keys.dtype, what, fixed=True) for what in ("cos", "sin")]
    style = Rotary(op.name, (), 1, op.head_dim, op.rotary, "interleaved", True)
    return by_angles(run, style, keys, angles[0], angles[1])


def unkept(run: Lowering, read: Tensor, d_in: int, d_out: int) -> Tensor:
    """A product whose result leads to a choice alone: autocast's copy of its weight stays in the cache."""
    tape = run.tape
    read = tape.lowered(read)
    copy = d_in * d_out * BYTES[tape.autocast] if tape.autocast else 0
    made = tape.new(read.count // d_in * d_out, read.dtype, "output")
    return tape.record("linear", (read,), made, cached=copy)


def block_indexer(run: Lowering, op: Any) -> Value:
    """The choice of blocks: the scores of every query with every key, for each head, come and go in fp32."""
    tape = run.tape
    x = run.read(op).tensor
    outer, tape.again = tape.again, True
    style = Norm("norm", (), op.head_dim, arithmetic="fp32", unit_offset=True)
    made = []
    for width in (op.heads * op.head_dim, op.head_dim):
        normed = run.normalised(unkept(run, x, op.d_in, width), style, False)
        made.append(tape.record("rotary", (normed,), tape.new(normed.count, normed.dtype, "rotated")))
    pairs = run.tokens * run.s * op.heads
    scores = tape.matmul(tape.cast(made[0], "fp32"), tape.cast(made[1], "fp32"), pairs, "scores")
    masked = tape.record("masked_fill", (scores,), tape.new(pairs, scores.dtype, "masked"))
    blocks = run.tokens * op.heads * ceil_div(run.s, op.block)
    best = tape.record("max", (masked,), tape.new(blocks, masked.dtype, "best of a block"))
    chosen = tape.record("topk", (best,), tape.new(run.tokens * op.heads, "int64", "chosen blocks"))
    tape.hold(*made, masked, chosen)
    tape.again = outer
    return Value(chosen, 1)


def run_indexer(run: Lowering, op: Any) -> Value:
    """The choice of runs: nothing that it makes outlives it, for a choice has no gradient. The scores of every query
    with every run, for each head, come and go in fp32."""
    tape = run.tape
    x, latent = run.read(op).tensor, run.read(op, 1).tensor
    outer, tape.again = tape.again, True
    pairs = run.tokens * (run.own // op.rate)

    keys = op.keys
    values, gates = (unkept(run, x, op.d_in, keys.wide) for _ in range(2))
    key = compressed(run, keys, values, gates)
    query = unkept(run, latent, op.q_rank, op.heads * op.head_dim)
    rotated = tape.record("rotary", (query,), tape.new(query.count, query.dtype, "rotated"))
    scores = tape.matmul(tape.cast(rotated, "fp32"), tape.cast(key, "fp32"), pairs * op.heads, "scores")
    positive = tape.scale(tape.relu(scores))
    weights = tape.scale(tape.cast(unkept(run, x, op.d_in, op.heads), "fp32"))
    weighed = tape.multiply(positive, weights)
    total = tape.record("sum", (weighed,), tape.new(pairs, "fp32", "summed"))
    chosen = tape.record("topk", (total,), tape.new(run.tokens, "int64", "chosen runs"))
    tape.hold(values, gates, key, query, rotated, chosen)
    tape.again = outer
    return Value(chosen, 1)


def grouped_matmul(run: Lowering, op: Any) -> Value:
    """Batched products, one a group: tokens and heads folded by a copy, the result put together by one; autocast casts
    the weight, of which each product sees a view, on every pass."""
    tape = run.tape
    x = run.read(op)
    copied: Tensor = tape.copy(x.tensor, "by groups")
    kept: list[Tensor] = [tape.lowered(copied)]
    count: Number = op.blocks * op.d_in * op.d_out // (run.split.tensor if x.divided else 1)
    if tape.autocast:
        kept.append(tape.new(count, tape.autocast, "weight", fixed=True))
    out = tape.new(kept[0].count // op.d_in * op.d_out, kept[0].dtype, "output")
    stored = "fp32" if tape.autocast else tape.compute
    out = tape.record("bmm", (kept[0],), out, kept, weight=count * BYTES[stored])
    if op.blocks > 1:
        out = select(run.tokens == 1, out, tape.copy(out, "by tokens"))
    return Value(out, op.blocks * op.d_out, x.divided, x.whole)


RULES: Rules = {
    BlockIndexer: block_indexer,
    Compressor: compressor,
    GroupedMatmul: grouped_matmul,
    RunIndexer: run_indexer,
}

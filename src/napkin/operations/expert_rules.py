"""Experts on the tape: routers, the order that they put tokens in, and experts' products."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import BYTES, WEIGHT_COPY, Tensor, promoted, sized
from napkin.elementwise import Number, ceil_div
from napkin.operations.experts import BalanceLoss, ExpertMatmul, Experts, Router
from napkin.operations.lowering import Lowering, Rules, Value

GROUPED_BYTES = 16
"""torch's grouped product raises an error for rows that are no multiple of this (GroupedMMUtils.h)."""


def router(run: Lowering, op: Any) -> Value:
    """The choice of experts; its value is what weighs the chosen. No gradient passes through the choice itself (biases,
    groups, masks): whatever autograd saves for it goes with it."""
    x = run.read(op)
    tape, code = run.tape, run.code
    k, e = op.top_k, op.experts
    rows = x.tensor.count // op.d_in
    outer = tape.compute, tape.autocast
    if code.router_apart and tape.autocast:
        tape.compute, tape.autocast = "fp32", ""
    tensor = tape.cast(x.tensor, "fp32") if op.upcast else x.tensor
    if op.noise:
        noise = tape.new(tensor.count, tensor.dtype, "noise", fixed=True)
        tensor = tape.record("mul", (tensor, noise), tensor.view(), (noise,))
    logits = tape.linear(tensor, op.d_in, e, op.bias, f"{op.name}/weight")
    made_in = logits.dtype
    if op.softcap:
        logits = run.capped(tape.cast(logits, "fp32"))
    if code.router == "sparsemixer":
        return Value(sparsemixer(run, logits, rows, k, e), k)
    chosen = tape.new(rows * k, "int64", "chosen", fixed=True)
    wide = logits if code.native_scores else tape.cast(logits, "fp32")
    kept = [chosen]
    if op.masked:
        kept.append(tape.new(rows * e, "bool", "outside the groups", fixed=True))
    if op.upcast and not code.fp32_router and tape.compute != "fp32":
        kept.append(tape.new(op.d_in * e, "fp32", "wide weight", fixed=True))
    if op.score.endswith("_top_k"):
        read = logits if op.score == "sigmoid_top_k" else wide
        if op.balanced:  # gathered by a choice with a bias: gather keeps what it reads
            kept.append(read)
        best = tape.record("topk", (read,), tape.new(rows * k, read.dtype, "best"), kept)
        if op.score == "sigmoid_top_k":
            weights = tape.sigmoid(best)
        else:
            weights = tape.softmax(best, "" if code.native_scores == "raised" else best.dtype)
    else:
        asked = wide.dtype if code.native_scores == "kept" else ""
        if op.score == "sqrtsoftplus":
            scores = root_softplus(run, wide)
        else:
            scores = tape.sigmoid(wide) if op.score == "sigmoid" else tape.softmax(wide, asked)
        weights = tape.record("topk", (scores,), tape.new(rows * k, scores.dtype, "weights"), kept)
    if op.normalise:
        weights = shares(run, weights, rows)
    if code.masked_choice:
        none = tape.new(rows * k, "bool", "no expert", fixed=True)
        weights = tape.record("masked_fill", (weights,), tape.new(rows * k, weights.dtype, "masked"), (none,))
    tape.compute, tape.autocast = outer
    if code.router != "scores":
        weights = tape.cast(weights, x.tensor.dtype if code.router == "tokens" else made_in)
    return Value(weights, k)


def root_softplus(run: Lowering, x: Tensor) -> Tensor:
    """√softplus(x): the first keeps its input, the second its result."""
    tape = run.tape
    x = tape.raised(x)
    grown = tape.record("softplus", (x,), tape.new(x.count, x.dtype, "softplus"), (x,))
    out = tape.new(x.count, x.dtype, "root")
    return tape.record("sqrt", (grown,), out, (out,))


def balanced(run: Lowering, op: Any) -> Value:
    """Each layer's router logits, their softmax once more, and how many tokens each expert got. What the best of them
    are is read, not how good: no gradient passes through that choice, which then keeps nothing."""
    tape = run.tape
    rows = run.tokens * run.routers * op.each
    probabilities = tape.softmax(tape.new(rows * op.experts, "fp32" if run.code.wide_logits else tape.compute, "x"))
    shares = tape.new(op.experts, "fp32", "shares of tokens", fixed=True)
    loss = tape.new(1, "fp32", "balance")
    return Value(tape.record("balance", (probabilities,), loss, (shares,)), 1)


def shares(run: Lowering, weights: Tensor, rows: Number) -> Tensor:
    """The chosen scores, divided by their sum."""
    tape = run.tape
    summed_in = "fp32" if tape.autocast else weights.dtype
    total = tape.record("sum", (weights,), tape.new(rows, summed_in, "total"))
    if run.code.clamped:
        total = tape.record("clamp", (total,), tape.new(rows, total.dtype, "clamped total"), (total,))
    if run.code.new_shares:
        out = tape.new(weights.count, promoted(weights, total), "divided")
        return tape.record("div", (weights, total), out, (total, weights))
    undivided = tape.new(weights.count, weights.dtype, "undivided")  # copied, for what it was is overwritten
    return tape.record("div", (weights, total), weights.view(), (total, undivided))


def sparsemixer(run: Lowering, logits: Tensor, rows: Number, k: int, e: int) -> Tensor:
    """For each choice: the logits masked around the best, their softmax, and the probability of the chosen."""
    tape = run.tape
    parts = []
    for _ in range(k):
        mask = tape.new(rows * e, "bool", "masked", fixed=True)
        index = tape.new(rows, "int64", "chosen", fixed=True)
        masked = tape.record("masked_fill", (logits,), tape.new(rows * e, logits.dtype, "left"), (mask,))
        gates = tape.softmax(masked)
        one = tape.record("gather", (gates,), tape.new(rows, gates.dtype, "multiplier"), (index,))
        parts.append(tape.record("mixer", (one,), tape.new(rows, one.dtype, "kept multiplier"), (one,)))
    return tape.record("cat", tuple(parts), tape.new(rows * k, parts[0].dtype, "weights"))


def clamped_swiglu(run: Lowering, up: Tensor, count: Number) -> Tensor:
    """(up + 1)·gate·σ(α·gate) of gate and up, cut to an interval (gpt-oss)."""
    tape = run.tape
    parts = []
    for what in ("gate", "up"):
        part = tape.slice(up, count)
        parts.append(tape.record("clamp", (part,), tape.new(count, part.dtype, what), (part,)))
    gate, other = parts
    return tape.multiply(tape.scale(other), tape.multiply(gate, tape.sigmoid(tape.scale(gate))))


def weighted_experts(run: Lowering, op: Any) -> Value:
    """Every expert runs every token, its score multiplied in first: batched products, and a sum (Llama 4)."""
    x, weights = run.read(op), run.read(op, 1)
    tape = run.tape
    stored = "fp32" if tape.autocast else tape.compute
    local = ceil_div(op.experts, run.split.expert)
    tokens = run.split.sent(x.tensor.count // op.d_model)
    rows, inner = tokens * local, op.d_ff // run.split.inner
    repeated = tape.copy(x.tensor.view(rows * op.d_model), "repeated")
    score = tape.record("scatter", (weights.tensor,), tape.new(rows, weights.tensor.dtype, "scores"))
    sent = tape.multiply(repeated, score, "weighted")
    first = inner * (2 if op.gated else 1)
    grads = local * op.d_model * sized(1, stored)

    def product(read: Tensor, width: Number, count: Number, what: str) -> Tensor:
        read = tape.lowered(read)
        kept = [read]
        if tape.autocast:
            kept.append(tape.new(local * op.d_model * width, tape.autocast, f"{what} weight"))
            kept[1].places[0][1].kind = WEIGHT_COPY
        made = tape.new(count, read.dtype, what)
        return tape.record("bmm", (read,), made, kept, weight=grads * width)

    up = product(sent, first, rows * first, "up")
    gate, other = (tape.slice(up, rows * inner) for _ in range(2))
    hidden = tape.multiply(run.activated(gate, op.function), other)
    out = product(hidden, inner, rows * op.d_model, "down")
    total = tape.record("sum", (out,), tape.new(x.tensor.count, out.dtype, "summed"))
    return Value(total, op.d_model, x.divided, x.whole)


def sorted_tokens(run: Lowering, router: str, rows: Number) -> tuple[Tensor, Tensor, Tensor]:
    """How a router's choices are sorted by expert, the tokens that they stand for, and their scores in that order:
    made once for all that follow the router."""
    if router not in run.orders:
        tape, weights = run.tape, run.values[router].tensor
        order, tokens = (tape.new(rows, "int64", what, fixed=True) for what in ("order", "token"))
        scores = tape.record("gather", (weights,), tape.new(rows, weights.dtype, "scores"), (order,))
        run.orders[router] = (order, tokens, scores)
    return run.orders[router]


def expert_matmul(run: Lowering, op: Any) -> Value:
    """One product an expert, of the rows that chose it, put together; index_add keeps what it adds."""
    x = run.read(op)
    tape = run.tape
    rows = run.tokens * op.top_k
    order, tokens, scores = sorted_tokens(run, op.reads[1], rows)
    read = x.tensor
    if op.reads_rows != "sorted":
        sent = tape.new(rows * op.d_in, read.dtype, "sent")
        read = tape.record("gather", (read,), sent, (tokens if op.reads_rows == "tokens" else order,))
    read = tape.lowered(read)
    local = ceil_div(op.experts, run.split.expert)
    kept = [read]
    if tape.autocast:  # of a part of the weight, which autocast casts anew each time
        kept.append(tape.new(local * op.d_in * op.d_out, tape.autocast, "weight", fixed=True))
    grads = local * op.d_in * op.d_out * sized(1, "fp32" if tape.autocast else tape.compute)
    out = tape.record("linear", (read,), tape.new(rows * op.d_out, read.dtype, "output"), kept, weight=grads)
    out = tape.copy(out, "joined")
    if op.makes == "choices":
        restored = tape.new(out.count, out.dtype, "restored")
        out = tape.record("index_add", (out,), restored, (order, out))
    elif op.makes == "tokens":
        out = tape.multiply(out, scores)
        total = tape.new(run.tokens * op.d_out, out.dtype, "summed")
        out = tape.scale(tape.record("index_add", (out,), total, (tokens, out)), "shifted")
        return Value(out, op.d_out, x.divided, x.whole)
    return Value(out, op.top_k * op.d_out, x.divided, x.whole)


def looped_experts(run: Lowering, op: Any) -> Value:
    """Each expert takes its tokens out, runs, and adds what it made, weighted, to the result (index_add keeps what
    it adds). All experts together keep as much however the tokens spread, as long as each has one."""
    x, weights = run.read(op), run.read(op, 1)
    tape = run.tape
    tokens = run.split.sent(x.tensor.count // op.d_model)
    rows = tokens * op.top_k
    inner = op.d_ff // run.split.inner
    local = ceil_div(op.experts, run.split.expert)
    stored = "fp32" if tape.autocast else tape.compute

    def taken(count: Number) -> tuple[Tensor, Tensor]:
        """So many tokens, and where they stand."""
        places = tape.new(2 * count, "int64", "token and choice", fixed=True)
        sent = tape.new(count * op.d_model, x.tensor.dtype, "sent")
        return tape.record("gather", (x.tensor,), sent, (places,), scratch=x.tensor.size), places

    def added(out: Tensor, places: Tensor) -> Tensor:
        """Weighted, and added to the result."""
        score = tape.new(places.count // 2, weights.tensor.dtype, "weight")
        out = tape.multiply(out, tape.record("gather", (weights.tensor,), score, (places,)))
        out = tape.cast(out, x.tensor.dtype)
        total = tape.new(x.tensor.count, out.dtype, "summed")
        return tape.record("index_add", (out,), total, (places, out))

    def product(read: Tensor, width: Number, made: Number, what: str) -> Tensor:
        read = tape.lowered(read)
        kept = [read]
        if tape.autocast and run.code.looped == "modules":
            kept.append(tape.weight_copy(local * width * made, f"{op.name}/{what}"))
        elif tape.autocast:  # of a part of the weight, which autocast casts anew each time
            kept.append(tape.new(local * width * made, tape.autocast, f"{what} weight", fixed=True))
        out = tape.new(rows * made, read.dtype, what)
        return tape.record("linear", (read,), out, kept, weight=local * width * made * BYTES[stored])

    sent, places = taken(rows)
    if op.gated and run.code.looped == "joined":
        both = product(sent, op.d_model, 2 * inner, "up")
        gate, up = (tape.slice(both, rows * inner) for _ in range(2))
        hidden = tape.multiply(run.activated(gate, op.function), up)
    elif op.gated:
        gate, up = (product(sent, op.d_model, inner, what) for what in ("gate", "up"))
        hidden = tape.multiply(run.activated(gate, op.function), up)
    else:
        hidden = run.activated(product(sent, op.d_model, inner, "up"), op.function)
    if op.dropout:
        hidden = tape.dropout(hidden, run.dropout)
    if run.code.casts_down:
        hidden = tape.cast(hidden, stored)
    total = added(product(hidden, inner, op.d_model, "down"), places)
    if op.idle:
        total = tape.add(total, added(*taken(tokens * op.idle)))
    return Value(total, op.d_model, x.divided, x.whole)


def experts(run: Lowering, op: Any) -> Value:
    """Tokens sorted by expert, two grouped products, weighted, put back in order and summed.

    transformers 5 calls torch's grouped product in every precision: on CUDA it takes bf16, fp16 and fp32
    (aten/src/ATen/native/GroupedMMUtils.h) and autocast leaves it alone, so that tokens are cast to the weights'
    type. Below compute capability 8.0 an operator of its own keeps the same (integrations/moe.py)."""
    if op.weighted_input:
        return weighted_experts(run, op)
    if run.code.looped:
        return looped_experts(run, op)
    x, weights = run.read(op), run.read(op, 1)
    tape = run.tape
    rows = run.split.sent(x.tensor.count // op.d_model) * op.top_k
    inner = op.d_ff // run.split.inner
    order, back, pick = (tape.new(rows, "int64", what, fixed=True) for what in ("order", "inverse", "token"))
    offsets = tape.new(ceil_div(op.experts, run.split.expert), "int32", "offsets", fixed=True)
    sent = tape.new(rows * op.d_model, x.tensor.dtype, "sent")
    sent = tape.record("gather", (x.tensor,), sent, (pick,), scratch=x.tensor.size)
    weight = tape.record("gather", (weights.tensor,), tape.new(rows, weights.tensor.dtype, "weight"), (order,))
    stored = "fp32" if tape.autocast else tape.compute
    local = ceil_div(op.experts, run.split.expert)
    sent = tape.cast(sent, stored)
    first = inner * (2 if op.gated else 1)
    up = tape.new(rows * first, stored, "up")
    grads = local * first * op.d_model * BYTES[stored]
    up = tape.record("grouped_mm", (sent,), up, (sent, offsets), weight=grads)
    if op.bias:
        offsets_of_bias = tape.new(rows, "int64", "expert of each", fixed=True)
        up = tape.record("bias", (up,), up.view(), (offsets_of_bias,))
    if op.function == "swiglu_oai":
        hidden = clamped_swiglu(run, up, rows * inner)
    elif op.gated:
        gate, other = (tape.slice(up, rows * inner) for _ in range(2))
        if op.limited:
            gate, other = (tape.record("clamp", (t,), tape.new(t.count, t.dtype, "cut"), (t,)) for t in (gate, other))
        if op.upcast:
            gate, other = (tape.cast(part, "fp32") for part in (gate, other))
            hidden = tape.cast(tape.multiply(run.activated(gate, op.function), other), stored)
        elif run.code.swiglu == "fused":
            hidden = run.gated(gate, other)
        else:
            hidden = tape.multiply(run.activated(gate, op.function), other)
    else:
        hidden = run.activated(up, op.function)
    out = tape.new(rows * op.d_model, stored, "down")
    grads = local * inner * op.d_model * BYTES[stored]
    out = tape.record("grouped_mm", (hidden,), out, (hidden, offsets), weight=grads)
    out = tape.multiply(out, weight)
    ordered = tape.new(out.count, out.dtype, "ordered")
    out = tape.record("gather", (out,), ordered, (back,), scratch=out.size)
    total = tape.record("sum", (out,), tape.new(x.tensor.count, out.dtype, "summed"))
    return Value(tape.cast(total, x.tensor.dtype), op.d_model, x.divided, x.whole)


RULES: Rules = {
    BalanceLoss: balanced,
    ExpertMatmul: expert_matmul,
    Experts: experts,
    Router: router,
}

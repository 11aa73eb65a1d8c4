"""Routers and experts on the tape: choices, orders of tokens, and the ways that implementations run experts."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, promoted
from napkin.elementwise import Number, ceil_div
from napkin.operations.adapters.adapted import CACHED, EACH, ExpertProducts
from napkin.operations.facts import RoutedExperts
from napkin.operations.implementations import Running
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value

GROUPED_BYTES = 16
"""torch's grouped matmul raises an error for rows that are not a multiple of this (GroupedMMUtils.h)."""


def root_softplus(run: Lowering, x: Tensor) -> Tensor:
    """√softplus(x): the first saves its input, the second its result."""
    tape = run.tape
    x = tape.raised(x)
    grown = tape.record("softplus", (x,), tape.new(x.count, x.dtype, "softplus"), (x,))
    out = tape.new(x.count, x.dtype, "root")
    return tape.record("sqrt", (grown,), out, (out,))


def shares(run: Lowering, weights: Tensor, rows: Number) -> Tensor:
    """Return the chosen scores divided by their sum, in place unless the implementation does otherwise."""
    tape = run.tape
    if run.implementation.shares is not None:
        return run.implementation.shares(run, weights, rows)
    total = sum_of_scores(run, weights, rows)
    undivided = tape.new(weights.count, weights.dtype, "undivided")  # copied, for what it was is overwritten
    return tape.record("div", (weights, total), weights.view(), (total, undivided))


def new_shares(run: Running, weights: Tensor, rows: Number) -> Tensor:
    """Return the chosen scores divided by their sum, in a new tensor."""
    return divided_by(run, weights, sum_of_scores(run, weights, rows))


def sum_of_scores(run: Running, weights: Tensor, rows: Number) -> Tensor:
    """Return the sum of each token's chosen scores, which autocast makes in fp32."""
    summed_in = "fp32" if run.tape.autocast else weights.dtype
    return run.tape.record("sum", (weights,), run.tape.new(rows, summed_in, "total"))


def divided_by(run: Running, weights: Tensor, total: Tensor) -> Tensor:
    """Return scores divided by their sum, in a new tensor."""
    out = run.tape.new(weights.count, promoted(weights, total), "divided")
    return run.tape.record("div", (weights, total), out, (total, weights))


def sparsemixer(run: Lowering, logits: Tensor, rows: Number, k: int, e: int) -> Tensor:
    """For each choice: the logits masked around the best, their softmax, and the probability of the chosen."""
    tape = run.tape
    parts = []
    for _ in range(k):
        mask = tape.new(rows * e, "bool", "masked", no_grad=True)
        index = tape.new(rows, "int64", "chosen", no_grad=True)
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
        part = tape.slice(up, count, apart=True)
        parts.append(tape.record("clamp", (part,), tape.new(count, part.dtype, what), (part,)))
    gate, other = parts
    glu = tape.multiply(gate, tape.sigmoid(tape.scale(gate)))
    out = tape.multiply(tape.scale(other), glu)
    tape.hold(gate, other, glu)  # local variables
    return out


def _activated_halves(run: Lowering, op: RoutedExperts, both: Tensor, count: Number) -> Tensor:
    """Return the hidden elements from gate and up that one matmul made."""
    if op.function == "swiglu_oai":
        return clamped_swiglu(run, both, count)
    gate, up = (run.tape.slice(both, count) for _ in range(2))
    return run.tape.multiply(run.activated(gate, op.function), up)


def unrouted_experts(run: Lowering, op: RoutedExperts) -> Value:
    """Every expert runs every token, its score multiplied in first: batched matmuls, and a sum (Llama 4)."""
    x, weights = run.read(op), run.read(op, 1)
    tape = run.tape
    local = ceil_div(op.experts, run.split.expert)
    tokens = run.split.sent(x.tensor.count // op.d_model)
    rows, inner = tokens * local, op.d_ff // run.split.inner
    repeated = tape.copy(x.tensor.view(rows * op.d_model), "repeated")
    score = tape.record("scatter", (weights.tensor,), tape.new(rows, weights.tensor.dtype, "scores"))
    sent = tape.multiply(repeated, score, "weighted")
    first = inner * (2 if op.gated else 1)
    products = ExpertProducts(run, op)
    up = products.product("bmm", tape.lowered(sent), (local, op.d_model, first), "up", casts=CACHED)
    gate, other = (tape.slice(up, rows * inner) for _ in range(2))
    hidden = tape.lowered(tape.multiply(run.activated(gate, op.function), other))
    out = products.product("bmm", hidden, (local, inner, op.d_model), "down", number=-1, casts=CACHED)
    products.close()
    total = tape.record("sum", (out,), tape.new(x.tensor.count, out.dtype, "summed"))
    run.scopes.until_added(sent, out)  # the shared expert runs before the sum
    return Value(total, op.d_model, x.divided, x.gathered)


def sorted_tokens(run: Lowering, router: str, rows: Number) -> tuple[Tensor, Tensor, Tensor]:
    """Return how a router's choices are sorted by expert, the tokens that they belong to, and their scores in that
    order: made once for all that follow the router."""
    if router not in run.orders:
        tape, weights = run.tape, run.values[router].tensor
        order, tokens = (tape.new(rows, "int64", what, no_grad=True) for what in ("order", "token"))
        scores = tape.record("gather", (weights,), tape.new(rows, weights.dtype, "scores"), (order,))
        run.orders[router] = (order, tokens, scores)
    return run.orders[router]


def looped_experts(run: Lowering, op: RoutedExperts) -> Value:
    """Each expert takes its tokens out, runs, and adds what it made, weighted, to the result (index_add keeps what
    it adds). All experts together keep as much however the tokens spread, as long as each has one."""
    x, weights = run.read(op), run.read(op, 1)
    tape = run.tape
    tokens = run.split.sent(x.tensor.count // op.d_model)
    rows = run.split.rows(tokens * op.top_k)
    inner = op.d_ff // run.split.inner
    local = ceil_div(op.experts, run.split.expert)

    def taken(count: Number) -> tuple[Tensor, Tensor]:
        """Return a number of tokens, and their indices."""
        places = tape.new(2 * count, "int64", "token and choice", no_grad=True)
        sent = tape.new(count * op.d_model, x.tensor.dtype, "sent")
        return tape.record("gather", (x.tensor,), sent, (places,), scratch=x.tensor.size), places

    def added(out: Tensor, places: Tensor) -> Tensor:
        """Weighted, and added to the result."""
        score = tape.new(places.count // 2, weights.tensor.dtype, "weight")
        out = tape.multiply(out, tape.record("gather", (weights.tensor,), score, (places,)))
        out = tape.cast(out, x.tensor.dtype)
        total = tape.new(x.tensor.count, out.dtype, "summed")
        return tape.record("index_add", (out,), total, (places, out))

    products = ExpertProducts(run, op)
    casts = CACHED if run.implementation.looped == "modules" else EACH

    def product(read: Tensor, d_in: Number, d_out: Number, what: str, number: int = 0) -> Tensor:
        read = tape.lowered(read)
        return products.product("linear", read, (local, d_in, d_out), what, number=number, casts=casts)

    sent, places = taken(rows)
    if op.gated and run.implementation.looped == "joined":
        both = product(sent, op.d_model, 2 * inner, "up")
        hidden = _activated_halves(run, op, both, rows * inner)
    elif op.gated:
        gate, up = (product(sent, op.d_model, inner, what) for what in ("gate", "up"))
        hidden = tape.multiply(run.activated(gate, op.function), up)
    else:
        hidden = run.activated(product(sent, op.d_model, inner, "up"), op.function)
    if op.dropout:
        hidden = tape.dropout(hidden, run.dropout)
    if run.implementation.before_down is not None:
        hidden = run.implementation.before_down(run, hidden)
    total = added(product(hidden, inner, op.d_model, "down", number=-1), places)
    products.close()
    if op.idle:
        total = tape.add(total, added(*taken(tokens * op.idle)))
    return Value(total, op.d_model, x.divided, x.gathered)

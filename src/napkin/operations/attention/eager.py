"""Attention in elementary operations on the tape (eager attention)."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, select
from napkin.elementwise import Number
from napkin.operations.attention.kernels import expanded, keys_of, mask_with_biases, no_bias, position_bias
from napkin.operations.facts import AttentionCost
from napkin.operations.implementations import ALIBI, ALWAYS, FOLDED, MASKED, SCORES
from napkin.operations.lowering import Lowering, either


def repeat_heads(run: Lowering, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
    """Return the keys or values repeated for each query head: a copy, except for a view of one head of one sequence,
    and of one head that autocast casts."""
    count = x.count // kv_heads * heads
    copied = run.tape.copy(x.view(count), "repeated")
    alone = either(run.b == 1, run.implementation.packed or (run.tape.autocast != "" and x.dtype == "fp32"))
    stays = select(alone, select(kv_heads == 1, expanded(run, x, count), copied), copied)
    return select(heads == kv_heads, x, stays)


def folded(run: Lowering, x: Tensor, heads: Number) -> Tensor:
    """Fold batch and heads into one dimension for a batched matmul: a copy of a transposed view."""
    if not x.rows_apart:
        return x
    copied = run.tape.copy(x, "folded")
    alone = either(run.b == 1, run.implementation.packed)
    return select(either(alone, heads == 1), x, copied)


def batched(run: Lowering, x: Tensor, y: Tensor, heads: Number, count: Number, what: str) -> Tensor:
    """Multiply two matrices for each head, with `count` elements in all products. The arguments of the matmul, as
    autocast casts them, live until it returns, and so do copies from folding."""
    x, y = run.tape.lowered(x), run.tape.lowered(y)
    out = run.tape.matmul(folded(run, x, heads), folded(run, y, heads), count, what)
    run.tape.hold(x, y)
    return out


def eager(run: Lowering, op: AttentionCost, qkv: tuple[Tensor, ...], heads: Number, kv_heads: Number) -> Tensor:
    """Run softmax(q·kᵀ)·v in elementary operations. qkv: query, key and value; kv_heads: heads of the latter
    two."""
    tape, implementation = run.tape, run.implementation
    q, k, v = qkv
    scores_count = run.b * heads * run.own * keys_of(run, op)
    inside = implementation.few_heads == "unchanged"  # each product repeats its own operand
    k = repeat_heads(run, tape.lowered(k) if inside else k, heads, kv_heads)
    v = v if inside else repeat_heads(run, v, heads, kv_heads)
    if FOLDED in implementation.variables:
        q, k, v = (folded(run, t, heads) for t in (q, k, v))
        run.scopes.local(q, k, v)
    repeated = k, v
    weights_type = v.dtype if implementation.softmax == "fp32_scores" else q.dtype
    if implementation.softmax == "fp32_scores":
        q, k = tape.cast(q, "fp32"), tape.cast(k, "fp32")
    multiplied = q, k
    if op.upcast:  # outside of autocast
        q, k = (tape.cast(folded(run, t, heads), "fp32") for t in (q, k))
        scores = tape.record("matmul", (q, k), tape.new(scores_count, "fp32", "scores"), (q, k))
    else:
        scores = batched(run, q, k, heads, scores_count, "scores")
    scores = _masked(run, op, _scaled(run, op, scores), heads)
    if (op.sinks and implementation.sinks != "scaled") or implementation.sinks == "always shifted":
        return with_sinks(run, scores, v, heads, scores_count, op)
    share = beside_sink(run, scores, heads) if op.sinks else None
    weights = tape.softmax(scores, "fp32" if implementation.softmax == "fp32" else "")
    if implementation.softmax != "native":
        weights = tape.cast(weights, weights_type)
    if implementation.softmax == "fp32":
        tape.hold(scores)
    weights = tape.dropout(weights, dropped_share(run, op))
    run.scopes.weights(weights)
    v = repeat_heads(run, tape.lowered(v), heads, kv_heads) if inside else v
    out = batched(run, weights, v, heads, run.tokens * heads * op.v_dim, "values")
    if implementation.softmax == "fp32_scores":  # arguments of the function that has returned
        tape.hold(*multiplied)
    if share is not None:
        out = tape.multiply(out, tape.cast(share, out.dtype))
    out = tape.copy(out, "attended")
    tape.hold(*repeated)
    return out


def _scaled(run: Lowering, op: AttentionCost, scores: Tensor) -> Tensor:
    """Return the scores divided by √d, or with the layer's relative-position scores, which are already divided."""
    relative = [run.values[name].tensor for name in run.program.relative]
    for other in relative:
        scores = run.tape.add(scores, other)
    scores = scores if relative else run.tape.scale(scores)
    if SCORES in run.implementation.variables:
        run.scopes.local(scores)
    return run.capped(scores) if op.softcap else scores


def _masked(run: Lowering, op: AttentionCost, scores: Tensor, heads: Number) -> Tensor:
    """Return the scores with the positions' biases and the mask."""
    tape, implementation = run.tape, run.implementation
    if op.position == "relative":
        scores = tape.add(scores, no_bias(run, op, heads) if op.cross else position_bias(run, op, heads))
    if op.position in ("distance", "dynamic"):
        scores = tape.add(scores, run.read(op, 3).tensor)
    unmasked = op.position != "dynamic"  # else a mask was added
    if unmasked and implementation.mask:
        mask = causal_mask(run)
        scores = tape.record("masked_fill", (scores,), tape.new(scores.count, scores.dtype, "masked"), (mask,))
    elif unmasked and (op.position != "relative" or op.causal):
        scores = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
    if MASKED in implementation.variables:
        run.scopes.local(scores)
    return scores if implementation.masked_scores is None else implementation.masked_scores(run, scores)


def beside_sink(run: Lowering, scores: Tensor, heads: Number) -> Tensor:
    """σ(logsumexp(scores) − sink): the share of all scores together next to the sink's, in fp32. Backward,
    exp(scores − logsumexp) has two temporaries."""
    tape, rows = run.tape, run.b * heads * run.own
    scores = tape.raised(scores)
    total = tape.new(rows, scores.dtype, "log-sum-exp")
    total = tape.record("logsumexp", (scores,), total, (scores, total), scratch=2 * scores.size)
    return tape.sigmoid(tape.cast(tape.add(total, run.weight(heads)), "fp32"))


def dropped_share(run: Lowering, op: AttentionCost) -> float:
    """Return the dropout probability of attention weights."""
    drops = run.implementation.drops == ALWAYS or (run.implementation.drops == ALIBI and op.position == "alibi")
    return run.dropout if drops else 0.0


def causal_mask(run: Lowering) -> Tensor:
    """Return the boolean mask of this layer, or the one that all layers share."""
    if run.implementation.mask == "each":
        return run.tape.new(run.b * run.own * run.s, "bool", "mask", no_grad=True)
    if run.implementation.mask == "layer":
        return run.tape.new(run.own * run.s, "bool", "causal mask", no_grad=True)
    if "mask" not in run.masks:
        run.masks["mask"] = run.tape.new(run.b * run.own * run.s, "bool", "causal mask", no_grad=True)
        run.masks["mask"].storage.shared = True
    return run.masks["mask"]


def with_sinks(run: Lowering, scores: Tensor, v: Tensor, heads: Number, count: Number, op: AttentionCost) -> Tensor:
    """Scores with one learned score a head next to them (where there is one): shifted by their maximum (where the
    implementation does it), normalized, the sink cut off."""
    tape = run.tape
    rows = run.b * heads * run.own
    combined = tape.scale(scores) if op.sinks else scores
    if op.sinks:
        joined = tape.new(count + rows, "fp32" if run.implementation.fp32_sinks else scores.dtype, "with sinks")
        combined = tape.record("copy", (combined.view(count + rows),), joined, alias=True)
    if run.implementation.sinks in ("shifted", "always shifted"):
        peak = tape.new(rows, "int64", "index of maximum", no_grad=True)
        combined = tape.record("max", (combined,), tape.new(combined.count, combined.dtype, "shifted"), (peak,))
    weights = tape.softmax(combined)
    cut = tape.slice(weights, count) if op.sinks else weights
    if run.implementation.softmax == "narrowed":
        cut = tape.cast(cut, v.dtype)
    weights = tape.cast(tape.dropout(cut, dropped_share(run, op)), v.dtype)
    tape.hold(combined)
    out = batched(run, weights, v, heads, run.tokens * heads * op.v_dim, "values")
    return tape.copy(out, "attended")


def written_out(run: Lowering, op: AttentionCost, qkv: tuple[Tensor, ...], heads: Number, kv_heads: Number) -> Tensor:
    """Run scaled_dot_product_attention's math backend, if no kernel takes the heads: elementary operations, in fp32
    (ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math). Each matmul repeats its own operand
    for all heads; all arguments live until the call returns."""
    tape = run.tape
    given = q, k, v = tuple(tape.lowered(t) for t in qkv)
    narrow = q.dtype
    if op.position == ALIBI:
        mask = tape.lowered(mask_with_biases(run, heads))
    else:  # an additive mask of each sequence
        mask = tape.record("where", (), tape.new(run.b * run.own * run.s, narrow, "mask"))
    variables = q, k, v = tuple(tape.cast(t, "fp32") for t in (q, k, v))
    q, k = tape.scale(q), tape.scale(k)
    k = repeat_heads(run, k, heads, kv_heads)
    q, k = (folded(run, t, heads) for t in (q, k))
    scores = tape.record("matmul", (q, k), tape.new(run.b * heads * run.own * run.s, "fp32", "scores"), (q, k))
    weights = tape.new(scores.count, "fp32", "softmax")
    weights = tape.record("softmax", (scores,), weights, (weights,))
    weights = tape.dropout(weights, dropped_share(run, op))
    v = folded(run, repeat_heads(run, v, heads, kv_heads), heads)
    out = tape.new(run.tokens * heads * op.v_dim, "fp32", "values")
    made = tape.record("matmul", (weights, v), out, (weights, v))
    out = tape.cast(made, narrow)
    tape.hold(mask, *given, *variables, scores, made)
    return tape.copy(out, "attended")

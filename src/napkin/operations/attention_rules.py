"""Attention on the tape: rotary tables, masks, kernels, and the same written out."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import BYTES, WEIGHT, Tensor, promoted, select
from napkin.elementwise import Number, ceil_div, is_array, maximum
from napkin.operations.attention import AttentionCore, Rotary
from napkin.operations.embedding import PositionBias, RelativeScores
from napkin.operations.facts import Attention
from napkin.operations.implementations import ALIBI, ALWAYS, CUDNN, EAGER, EFFICIENT, FLASH
from napkin.operations.lowering import Lowering, Rules, Value, either

EFFICIENT_ROWS = 32
"""The memory-efficient kernel pads its log-sum-exp to a multiple of this many queries (torch meta registrations)."""
MASK_KEYS = 8
"""torch pads the rows of a mask for the memory-efficient kernel to a multiple of this (preprocess_mask in
ATen/native/transformers/attention.cpp)."""
FLASH_LARGEST = 256
"""Its largest head (sdp_utils.cpp, check_head_dim_size_flash)."""
FLASH_HEAD = 8
"""torch pads head sizes to a multiple of this for the flash kernel."""
PHILOX = {FLASH: (16, 8), EFFICIENT: (8, 8), CUDNN: (8, 8)}
"""Bytes of the random generator's seed and offset that a kernel keeps, with or without dropout."""


def position_bias(run: Lowering, op: Any) -> Value:
    """A look-up for each pair of query and key, once for all sequences."""
    tape = run.tape
    stored = "fp32" if tape.autocast else tape.compute
    pairs = run.own * run.s
    buckets = tape.new(pairs, "int64", "buckets", fixed=True)
    heads = ceil_div(op.heads, run.split.tensor)
    bias = tape.new(pairs * heads, stored, "bias")
    run.bias = tape.record("embedding", (buckets,), bias, (buckets,), weight=op.buckets * heads * BYTES[stored])
    return Value(run.bias, heads, True)


def biased(run: Lowering, op: AttentionCore, heads: Number, keys: Number) -> Tensor:
    """The position bias as a kernel's additive mask: laid out by heads, what is masked cut out of it."""
    tape = run.tape
    stored = "fp32" if tape.autocast else tape.compute
    pairs = run.own * keys
    if op.cross:  # no distances: zeros, made once
        own = next((one for one in run.program if isinstance(one, PositionBias)), None)
        if own is not None:
            run.zeros = tape.new(pairs * heads, tape.autocast or stored, "no bias", fixed=True)
            run.zeros.places[0][1].shared = own.shared
        assert run.zeros is not None  # a first layer has a table
        return aligned(run, run.zeros, pairs // keys, keys, heads)
    table = run.bias if run.bias is not None else run.weight(pairs * heads)
    bias = Tensor(pairs * heads, stored, table.places)
    if op.causal:
        condition = tape.new(pairs, "bool", "causal mask", fixed=True)
        bias = tape.record("where", (bias,), tape.new(bias.count, stored, "bias within the mask"), (condition,))
    return aligned(run, tape.lowered(tape.copy(bias, "bias by heads")), pairs // keys, keys, heads)


def aligned(run: Lowering, mask: Tensor, queries: Number, keys: Number, heads: Number) -> Tensor:
    """An additive mask as the efficient kernel takes it: rows padded to a multiple of 8, a copy unless they are."""
    rows = ceil_div(keys, MASK_KEYS) * MASK_KEYS
    padded = run.tape.new(queries * rows * heads, mask.dtype, "padded bias")
    return select(rows == keys, mask, run.tape.record("pad", (mask,), padded))


def rotary_table(run: Lowering, op: Any, dtype: str) -> tuple[Tensor, Tensor]:
    """cos and sin of every position: made once, kept by whichever layers' products need them."""
    key = (op.dim, op.table, run.code.by_kind and run.windowed, run.stack)
    if key not in run.tables:
        kept = "fp32" if run.code.rotary_fp32 else dtype
        dim = op.dim // 2 if run.code.half_tables else op.dim
        kept = "fp32" if op.pairing == "complex" or op.wide else kept
        scope, run.tape.scope = run.tape.scope, "rotary"
        rows = run.own * (run.b if run.code.positions == "each" else 1)
        pair = tuple(run.tape.new(rows * dim, kept, what, fixed=True) for what in ("cos", "sin"))
        for tensor in pair:
            tensor.places[0][1].shared = True
        run.tape.scope = scope
        run.tables[key] = (pair[0], pair[1])
    return run.tables[key]


def rotary(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    tape = run.tape
    stream = "fp32" if tape.autocast else tape.compute
    tensor = x.tensor
    if run.code.rotary == "kernel":
        out = tape.new(tensor.count, tensor.dtype, "rotated")
        return Value(tape.record("rotary", (tensor,), out), x.width, x.divided, x.whole)
    if run.code.rotary == "table":
        cos, sin = rotary_table(run, op, stream)
    else:
        cos, sin = widened(run, op, tensor.dtype if run.code.rotary in ("pair", "values") else stream)
    if op.pairing == "complex" and run.code.rotary == "table":
        turns = cos.view()  # a complex64 number of 8 bytes for each pair
        turned = tape.multiply(tape.cast(tensor, "fp32"), turns)
        return Value(tape.cast(turned, tensor.dtype), x.width, x.divided, x.whole)
    out = by_angles(run, op, tensor, cos, sin)
    return Value(out, x.width, x.divided, x.whole, run.code.joins or op.dim != op.head_dim)


def by_angles(run: Lowering, op: Rotary, tensor: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The numbers that rotate, by the given angles, and put together with the rest."""
    tape = run.tape
    narrow = tensor.dtype
    part = tensor if op.dim == op.head_dim else tape.slice(tensor, tensor.count * op.dim // op.head_dim)
    if op.upcast:
        part = tape.cast(part, "fp32")
    turned = tape.multiply(part, cos)
    other = tape.multiply(tape.rotate(part), sin)
    out = tape.add(turned, other)
    if op.upcast or run.code.turned_back or (run.code.rotary_fp32 and run.code.rotary == "table"):
        out = tape.cast(out, narrow)
    if run.code.joins or op.dim != op.head_dim:
        joined = tape.new(tensor.count, out.dtype, "joined")
        out = tape.record("cat", (out,) if op.dim == op.head_dim else (out, tensor), joined)
    return out


def widened(run: Lowering, op: Any, stream: str) -> tuple[Tensor, Tensor]:
    """cos and sin repeated for this layer: for query and key together, or for each."""
    key = (op.dim, op.name if run.code.rotary in ("pair", "each") else "")
    if key not in run.own_tables:
        kept = "fp32" if run.code.rotary_fp32 else stream
        dim = op.dim
        pair = tuple(run.tape.new(run.own * dim, kept, what, fixed=True) for what in ("cos", "sin"))
        run.own_tables[key] = (pair[0], pair[1])
    return run.own_tables[key]


def core(run: Lowering, op: Any) -> Value:
    q, k, v = (run.read(op, i) for i in range(3))
    kernel = run.attention
    if kernel == FLASH and op.qk_dim != op.v_dim and run.code.rotary != "kernel":
        kernel = EFFICIENT  # torch's flash kernel takes one head size for all three
    masked = kernel != EAGER and is_masked(run, op)
    if kernel == FLASH and (masked or op.position in ("relative", "distance") or op.qk_dim > FLASH_LARGEST):
        kernel = EFFICIENT  # flash takes no mask, and no larger heads
    heads = op.heads // run.split.tensor
    kv_heads = heads if k.width == op.heads * op.qk_dim else maximum(op.kv_heads // run.split.tensor, 1)
    width = op.heads * op.v_dim
    written = run.code.ungrouped and kv_heads is not heads and op.kv_heads != op.heads
    tensors = (q.tensor, k.tensor, v.tensor)
    if op.compressed:
        tensors = with_runs(run, op, tensors)
    if run.code.gathers_heads:
        tensors = whole_heads(run, op, tensors)
    if run.code.query_scale:
        factor = run.tape.new(run.own, q.tensor.dtype, "query scale", fixed=True)
        tensors = (run.tape.multiply(q.tensor, factor), *tensors[1:])
    if run.code.joined_qkv:
        whole = run.tape.new(sum((t.count for t in tensors), 0), v.tensor.dtype, "query, key and value")
        tensors = (*tensors[:2], run.tape.slice(whole, v.tensor.count))
    if run.code.repeats:
        keys, values = (repeated_in_kernel(run, t, heads, kv_heads) for t in tensors[1:])
        tensors = (tensors[0], keys, values)
    if run.selective:  # the core runs again in backward: its inputs are all that is kept for it
        run.tape.keep(*tensors)
        run.tape.again = True
    if run.code.laid_by_heads:
        out = by_heads(run, op, tensors, heads)
    elif kernel == EAGER:
        apart = tuple(t.view(rows_apart=not value.heads_first) for t, value in zip(tensors, (q, k, v), strict=True))
        out = eager(run, op, apart, heads, kv_heads)
    elif written:
        apart = tuple(t.view(rows_apart=not value.heads_first) for t, value in zip(tensors, (q, k, v), strict=True))
        out = written_out(run, op, apart, heads, kv_heads)
    else:
        out = by_kernel(run, op, tensors, heads, kv_heads, kernel, masked)
        cut = kernel == FLASH and op.qk_dim % FLASH_HEAD != 0
        if q.heads_first and kernel != EFFICIENT and not cut:  # the result lies as the query does
            out = select(heads == 1, out, run.tape.copy(out, "tokens first"))
    run.tape.again = False
    if run.code.tuning is not None and run.code.tuning.method.startswith("adapter"):
        out = prompted(run, out)
    return Value(out, width, True, True)


def with_runs(run: Lowering, op: AttentionCore, qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The keys of runs put behind those of tokens: one tensor, which is both key and value."""
    query, key, _ = qkv
    more = run.read(op, 3).tensor
    dtype = promoted(key, more)
    joined = run.tape.record("cat", (key, more), run.tape.new(key.count + more.count, dtype, "keys of tokens and runs"))
    return query, joined, joined


def whole_heads(run: Lowering, op: AttentionCore, qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """With more ranks than key/value heads: the joined product's result gathered, of which each rank's key is
    rotated, its value a view that keeps it whole."""
    query, key, value = qkv
    few = run.split.tensor > op.kv_heads
    if not is_array(few) and not few:
        return qkv
    width = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim)
    joined = run.tape.new(run.tokens * width, value.dtype, "gathered query, key and value")
    one = run.tape.slice(run.tape.record("all_gather", (value,), joined), run.tokens * op.v_dim)
    own = run.tape.record("all_gather", (key,), run.tape.new(run.tokens * op.qk_dim, key.dtype, "whole key"))
    return query, select(few, own, key), select(few, one, value)


def keys_of(run: Lowering, op: AttentionCore) -> Number:
    """Keys that a query can see."""
    return run.source if op.cross else run.s + op.runs(run.s) + run.source * op.merged


def is_masked(run: Lowering, op: Attention) -> bool:
    """Whether the kernel gets an explicit mask. One that a window spares is not made, but where the code makes all."""
    if op.merged or op.own_mask or op.anywhere or (op.window is not None and run.code.windows_masked):
        return True
    if run.code.masked or not run.code.window_mask:
        return run.code.masked
    bounds = [bound for bound in (op.window, op.chunk) if bound is not None]
    longest = run.s.max() if is_array(run.s) else run.s
    return bool(bounds) and bool(longest >= min(bounds) - (0 if op.causal else 1))


def prompted(run: Lowering, attended: Tensor) -> Tensor:
    """attended + gate·(attention over the adapter's prompt): the gate keeps what it multiplies."""
    tape = run.tape
    answer = tape.new(attended.count, attended.dtype, "attended prompt")
    gate = tape.given(1, attended.dtype, "gate", kind=WEIGHT)
    return tape.add(attended, tape.multiply(answer, gate))


def repeat_heads(run: Lowering, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
    """Keys or values repeated for each query head: a copy, but a view of one head of one sequence."""
    count = x.count // kv_heads * heads
    copied = run.tape.copy(x.view(count), "repeated")
    alone = either(run.b == 1, False)
    stays = select(alone, select(kv_heads == 1, expanded(run, x, count), copied), copied)
    return select(heads == kv_heads, x, stays)


def expanded(run: Lowering, x: Tensor, count: Number) -> Tensor:
    """A view that repeats x. Backwards its gradient is summed to x's size."""
    return run.tape.record("expand", (x,), x.view(count), alias=True)


def folded(run: Lowering, x: Tensor, heads: Number) -> Tensor:
    """Sequences and heads as one dimension, as a batched product wants them: a copy where they lie apart."""
    if not x.rows_apart:
        return x
    copied = run.tape.copy(x, "folded")
    return select(either(run.b == 1, heads == 1), x, copied)


def eager(run: Lowering, op: AttentionCore, qkv: tuple[Tensor, ...], heads: Number, kv_heads: Number) -> Tensor:
    """softmax(q·kᵀ)·v in elementary operations."""
    tape, code = run.tape, run.code
    q, k, v = qkv
    scores_count = run.b * heads * run.own * keys_of(run, op)
    if code.ungrouped:  # by the product itself
        k, v = tape.lowered(k), tape.lowered(v)
    k, v = repeated = tuple(repeat_heads(run, t, heads, kv_heads) for t in (k, v))
    value_type = v.dtype
    if code.softmax == "wide_scores":
        q, k = tape.cast(q, "fp32"), tape.cast(k, "fp32")
    if op.upcast:  # outside of autocast
        q, k = (tape.cast(folded(run, t, heads), "fp32") for t in (q, k))
        scores = tape.record("matmul", (q, k), tape.new(scores_count, "fp32", "scores"), (q, k))
    else:
        q, k = (folded(run, tape.lowered(t), heads) for t in (q, k))
        scores = tape.matmul(q, k, scores_count, "scores")
    relative = [run.values[one.name].tensor for one in run.program if isinstance(one, RelativeScores)]
    for other in relative:
        scores = tape.add(scores, other)
    scores = scores if relative else tape.scale(scores)
    if op.softcap:
        scores = run.capped(scores)
    if op.position == "distance":
        scores = tape.add(scores, run.read(op, 3).tensor)
    if op.position == "dynamic":
        scores = tape.add(scores, run.read(op, 3).tensor)
    elif code.mask:
        mask = causal_mask(run)
        scores = tape.record("masked_fill", (scores,), tape.new(scores.count, scores.dtype, "masked"), (mask,))
    else:
        scores = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
    if code.floors:  # by then of the mask's type
        scores = tape.raised(scores)
        least = tape.new(1, "fp32", "least", fixed=True)
        scores = tape.record("max", (scores,), tape.new(scores.count, scores.dtype, "cut"), (scores, least))
    if (op.sinks and code.sinks != "scaled") or code.shifts_scores:
        return with_sinks(run, scores, v, heads, scores_count, op)
    share = beside_sink(run, scores, heads) if op.sinks else None
    weights = tape.softmax(scores, "fp32" if code.softmax == "wide" else "")
    weights = tape.cast(weights, value_type)
    if code.softmax == "wide":
        tape.hold(scores)
    weights = tape.dropout(weights, dropped_share(run, op))
    run.scopes.weights(weights)
    out = tape.matmul(weights, folded(run, tape.lowered(v), heads), run.tokens * heads * op.v_dim, "values")
    if share is not None:
        out = tape.multiply(out, tape.cast(share, out.dtype))
    out = tape.copy(out, "attended")
    tape.hold(*repeated)
    return out


def beside_sink(run: Lowering, scores: Tensor, heads: Number) -> Tensor:
    """σ(logsumexp(scores) − sink): the share of all scores together beside the sink's, in fp32."""
    tape, rows = run.tape, run.b * heads * run.own
    scores = tape.raised(scores)
    total = tape.new(rows, scores.dtype, "log-sum-exp")
    total = tape.record("logsumexp", (scores,), total, (scores, total))
    return tape.sigmoid(tape.cast(tape.add(total, run.weight(heads)), "fp32"))


def dropped_share(run: Lowering, op: AttentionCore) -> float:
    """The probability that one of attention's weights is dropped."""
    drops = run.code.drops == ALWAYS or (run.code.drops == ALIBI and op.position == "alibi")
    return run.dropout if drops else 0.0


def by_heads(run: Lowering, op: AttentionCore, qkv: tuple[Tensor, ...], heads: Number) -> Tensor:
    """Written-out attention of tensors that are laid out by heads, the scores of positions added."""
    tape = run.tape
    q, k, v = (run.turned(x) for x in qkv)
    count = run.b * heads * run.own * run.s
    scores = tape.matmul(q, run.over_constant(k), count, "scores")
    for one in run.program:
        if isinstance(one, RelativeScores):
            scores = tape.add(scores, run.values[one.name].tensor)
    mask = tape.new(run.b * run.own * run.s, "bool", "mask", fixed=True)
    scores = tape.record("masked_fill", (scores,), tape.new(count, scores.dtype, "masked"), (mask,))
    weights = tape.dropout(tape.softmax(scores), dropped_share(run, op))
    out = tape.matmul(tape.lowered(weights), v, run.tokens * heads * op.v_dim, "values")
    return tape.copy(out, "attended")


def causal_mask(run: Lowering) -> Tensor:
    """The boolean mask of this layer, or the one of all layers."""
    if run.code.mask == "each":
        return run.tape.new(run.b * run.own * run.s, "bool", "mask", fixed=True)
    if run.code.mask == "layer":
        return run.tape.new(run.own * run.s, "bool", "causal mask", fixed=True)
    if "mask" not in run.masks:
        run.masks["mask"] = run.tape.new(run.b * run.own * run.s, "bool", "causal mask", fixed=True)
        run.masks["mask"].places[0][1].shared = True
    return run.masks["mask"]


def with_sinks(run: Lowering, scores: Tensor, v: Tensor, heads: Number, count: Number, op: AttentionCore) -> Tensor:
    """Scores with one learnt score a head beside them (where there is one): shifted by their maximum (where the code
    does it), normalised, the sink cut off."""
    tape = run.tape
    rows = run.b * heads * run.own
    combined = tape.scale(scores) if op.sinks else scores
    if op.sinks:
        joined = tape.new(count + rows, "fp32" if run.code.wide_sinks else scores.dtype, "with sinks")
        combined = tape.record("copy", (combined.view(count + rows),), joined, alias=True)
    if run.code.sinks == "shifted":
        peak = tape.new(rows, "int64", "index of maximum", fixed=True)
        combined = tape.record("max", (combined,), tape.new(combined.count, combined.dtype, "shifted"), (peak,))
    weights = tape.softmax(combined)
    cut = tape.slice(weights, count) if op.sinks else weights
    weights = tape.cast(cut, v.dtype)
    weights = tape.dropout(weights, dropped_share(run, op))
    out = tape.matmul(weights, folded(run, tape.lowered(v), heads), run.tokens * heads * op.v_dim, "values")
    return tape.copy(out, "attended")


def by_kernel(
    run: Lowering,
    op: AttentionCore,
    qkv: tuple[Tensor, ...],
    heads: Number,
    kv_heads: Number,
    kernel: str,
    masked: bool = False,
) -> Tensor:
    """One fused kernel: keeps query, key, value, result and log-sum-exp, the random generator's state, and a mask
    where it is given one."""
    tape = run.tape
    q, k, v = qkv
    # transformers leaves grouped heads to the kernel only without a mask (integrations/sdpa_attention.py)
    repeated = masked or op.qk_dim > FLASH_LARGEST
    if repeated:
        k, v = (repeated_by_model(run, t, heads, kv_heads) for t in (k, v))
    q, k, v = (tape.lowered(t) for t in (q, k, v))
    rows = run.own
    if kernel == EFFICIENT:
        rows = ceil_div(rows, EFFICIENT_ROWS) * EFFICIENT_ROWS
        if not repeated:
            k, v = (repeated_in_kernel(run, t, heads, kv_heads) for t in (k, v))
    padded = kernel == FLASH and op.qk_dim % FLASH_HEAD != 0
    size = ceil_div(op.v_dim, FLASH_HEAD) * FLASH_HEAD if padded else op.v_dim
    if padded:
        q, k, v = (
            tape.record("pad", (t,), tape.new(t.count // op.qk_dim * size, t.dtype, "padded")) for t in (q, k, v)
        )
    out = tape.new(run.tokens * heads * size, v.dtype, "attended")
    lse = tape.new(run.b * heads * rows, "fp32", "log-sum-exp", fixed=True)
    extra = [tape.new(n, "bool", "philox", fixed=True) for n in PHILOX[kernel]]
    if op.position == "relative":
        extra.append(biased(run, op, heads, keys_of(run, op)))
    if op.position == "distance":
        extra.append(by_distance(run, op, heads, kernel, masked))
    elif masked:
        extra.append(kernel_mask(run, op, heads, kernel))
    out = tape.record("attention", (q, k, v), out, (q, k, v, out, lse, *extra))
    return tape.copy(tape.slice(out, run.tokens * heads * op.v_dim), "cut") if padded else out


def by_distance(run: Lowering, op: AttentionCore, heads: Number, kernel: str, masked: bool) -> Tensor:
    """Scores by distance as a kernel's additive mask, what is masked cut out of it by the mask of all layers with a
    window, or by one of the layer's own."""
    tape = run.tape
    bias = run.read(op, 3).tensor
    pairs = run.own * run.s
    condition = run.masks.get("window") if masked else None
    if condition is None:
        condition = tape.new(pairs, "bool", "causal mask", fixed=True)
        if masked:
            condition.places[0][1].shared = True
            run.masks["window"] = condition
    cut = tape.new(bias.count, bias.dtype, "bias within the mask")
    cut = tape.lowered(tape.record("where", (bias,), cut, (condition,)))
    return aligned(run, cut, run.b * run.own, run.s, heads) if kernel == EFFICIENT else cut


def kernel_mask(run: Lowering, op: AttentionCore, heads: Number, kernel: str) -> Tensor:
    """An additive mask: one for all heads, made anew by each call from a boolean one, or with ALiBi's biases for
    each head, made once for all layers."""
    tape = run.tape
    if op.position == "dynamic":
        made = tape.lowered(run.read(op, 3).tensor)
        return aligned(run, made, run.b * run.own, run.s, heads) if kernel == EFFICIENT else made
    seen = keys_of(run, op)
    keys = ceil_div(seen, MASK_KEYS) * MASK_KEYS if kernel == EFFICIENT else seen
    if op.own_mask:
        return tape.new(run.b * heads * run.own * keys, tape.autocast or tape.compute, "mask", fixed=True)
    if op.position != "alibi":
        return tape.new(run.b * run.own * keys, tape.autocast or tape.compute, "mask", fixed=True)
    rows = run.b * heads * run.own
    if ALIBI not in run.masks:
        stored = "fp32" if tape.autocast else tape.compute
        run.masks[ALIBI] = tape.new(rows * run.s, stored, "mask with biases", fixed=True)
        run.masks[ALIBI].places[0][1].shared = True
    mask = tape.lowered(run.masks[ALIBI])
    return mask if keys == run.s else tape.copy(mask.view(rows * keys), "padded mask")


def written_out(run: Lowering, op: AttentionCore, qkv: tuple[Tensor, ...], heads: Number, kv_heads: Number) -> Tensor:
    """What scaled_dot_product_attention runs where no kernel takes the heads (ATen/native/transformers/
    attention.cpp, _scaled_dot_product_attention_math): elementary operations, in fp32."""
    tape = run.tape
    q, k, v = (tape.lowered(t) for t in qkv)
    narrow = q.dtype
    q, k, v = (tape.cast(t, "fp32") for t in (q, k, v))
    q, k = tape.scale(q), tape.scale(k)
    k, v = (repeat_heads(run, t, heads, kv_heads) for t in (k, v))
    q, k = (folded(run, t, heads) for t in (q, k))
    scores = tape.record("matmul", (q, k), tape.new(run.b * heads * run.own * run.s, "fp32", "scores"), (q, k))
    weights = tape.new(scores.count, "fp32", "softmax")
    weights = tape.record("softmax", (scores,), weights, (weights,))
    weights = tape.dropout(weights, dropped_share(run, op))
    v = folded(run, v, heads)
    out = tape.new(run.tokens * heads * op.v_dim, "fp32", "values")
    out = tape.cast(tape.record("matmul", (weights, v), out, (weights, v)), narrow)
    return tape.copy(out, "attended")


def repeated_by_model(run: Lowering, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
    """Keys or values repeated for each query head: a copy, but a view of a single head."""
    count = x.count // kv_heads * heads
    copied = run.tape.copy(x.view(count), "repeated")
    return select(heads == kv_heads, x, select(kv_heads == 1, expanded(run, x, count), copied))


def repeated_in_kernel(run: Lowering, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
    """A kernel that takes no grouped heads reads keys and values repeated for each query head."""
    copied = run.tape.copy(x.view(x.count // kv_heads * heads), "repeated")
    return select(heads == kv_heads, x, copied)


RULES: Rules = {
    PositionBias: position_bias,
    AttentionCore: core,
    Rotary: rotary,
}

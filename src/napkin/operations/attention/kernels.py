"""Fused attention on the tape: kernels, their masks, and the layout of their inputs."""

from __future__ import annotations

from napkin.autograd.tensors import WEIGHT, Tensor, promoted, select
from napkin.elementwise import Number, ceil_div, is_array, minimum, where
from napkin.operations.facts import AttentionCost
from napkin.operations.implementations import ALIBI, ALWAYS, CUDNN, EFFICIENT, FLASH, PADDING, WITHOUT_FLASH
from napkin.operations.lowering import Lowering

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


def expanded(run: Lowering, x: Tensor, count: Number) -> Tensor:
    """Return an expanded view of x, whose gradient is summed to x's size."""
    return run.tape.record("expand", (x,), x.view(count), alias=True)


def biased(run: Lowering, op: AttentionCost, heads: Number, keys: Number) -> Tensor:
    """Return the position bias as an additive mask: head-major, with -inf where masked."""
    tape = run.tape
    stored = "fp32" if tape.autocast else tape.compute
    pairs = run.own * keys
    if op.cross:
        return aligned(run, no_bias(run, op, heads), pairs // keys, keys, heads)
    table = position_bias(run, op, heads)
    bias = Tensor(table.count, stored, table.storages)
    if op.causal:
        condition = tape.new(pairs, "bool", "causal mask", no_grad=True)
        bias = tape.record("where", (bias,), tape.new(bias.count, stored, "bias within the mask"), (condition,))
    return aligned(run, tape.lowered(tape.copy(bias, "bias by heads")), bias.count // (keys * heads), keys, heads)


def no_bias(run: Lowering, op: AttentionCost, heads: Number) -> Tensor:
    """Return the zeros that cross-attention has for a bias: the first layer's, which are an argument of the others, or
    each layer's own."""
    tape, shared = run.tape, run.program.shares_position_bias
    if shared is not None:
        stored = tape.autocast or tape.compute
        run.zeros = tape.new(run.own * keys_of(run, op) * heads, stored, "no bias", no_grad=True)
        run.zeros.storage.shared = shared
    else:
        assert run.zeros is not None  # a first layer has a table
        run.takes(run.zeros)
    return run.zeros


def position_bias(run: Lowering, op: AttentionCost, heads: Number) -> Tensor:
    """Return the position biases: this layer's, or the first layer's, which are an argument of the others."""
    if run.bias is None:
        return run.weight(run.own * keys_of(run, op) * heads)
    if run.program.shares_position_bias is None:
        run.takes(run.bias)
    return run.bias


def aligned(run: Lowering, mask: Tensor, queries: Number, keys: Number, heads: Number) -> Tensor:
    """Return an additive mask for the memory-efficient kernel: rows padded to a multiple of 8 by a copy if
    necessary."""
    rows = ceil_div(keys, MASK_KEYS) * MASK_KEYS
    padded = run.tape.new(queries * rows * heads, mask.dtype, "padded bias")
    return select(rows == keys, mask, run.tape.record("pad", (mask,), padded))


def with_runs(run: Lowering, op: AttentionCost, qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate the keys of tokens and of compressed runs to one tensor, which is both key and value."""
    query, key, _ = qkv
    more = run.read(op, 3).tensor
    dtype = promoted(key, more)
    joined = run.tape.record("cat", (key, more), run.tape.new(key.count + more.count, dtype, "keys of tokens and runs"))
    return query, joined, joined


def whole_heads(run: Lowering, op: AttentionCost, qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Gather the fused projection's output if there are more ranks than key/value heads. Each rank's key is then
    rotated; its value is a view that keeps the entire output alive."""
    query, key, value = qkv
    few = run.split.tensor > op.kv_heads
    if not is_array(few) and not few:
        return qkv
    width = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim)
    joined = run.tape.new(run.tokens * width, value.dtype, "gathered query, key and value")
    one = run.tape.slice(run.tape.record("all_gather", (value,), joined), run.tokens * op.v_dim)
    own = run.tape.record("all_gather", (key,), run.tape.new(run.tokens * op.qk_dim, key.dtype, "whole key"))
    return query, select(few, own, key), select(few, one, value)


def keys_of(run: Lowering, op: AttentionCost) -> Number:
    """Return the keys that a query can see."""
    if op.chunk is not None and not op.causal:
        return minimum(op.chunk, run.s)
    tuning = run.implementation.tuning
    prefix = 0 if tuning is None else tuning.prefix
    return run.source if op.cross else run.s + op.runs(run.s) + run.source * op.merged + prefix


def is_masked(run: Lowering, op: AttentionCost) -> bool:
    """Return whether the kernel gets an explicit mask. Masks that are unnecessary are not built, unless the
    implementation builds all."""
    given = run.implementation.kernel_mask
    if op.merged or op.own_mask or op.masked or op.anywhere or (op.window is not None and given == "windows"):
        return True
    if given == WITHOUT_FLASH:
        return run.attention != FLASH
    if given in ("", ALWAYS, PADDING):
        return given != ""
    return cuts_keys(run, op)


def cuts_keys(run: Lowering, op: AttentionCost) -> bool:
    """Return whether a window or chunk hides keys in some layout; longer ones have no effect."""
    bounds = [bound for bound in (op.window, op.chunk) if bound is not None]
    longest = run.s.max() if is_array(run.s) else run.s
    return bool(bounds) and bool(longest >= min(bounds) - (0 if op.causal else 1))


def prompted(run: Lowering, attended: Tensor) -> Tensor:
    """attended + gate·(attention over the adapter's prompt): the gate keeps what it multiplies."""
    tape = run.tape
    answer = tape.new(attended.count, attended.dtype, "attended prompt")
    gate = tape.given(1, attended.dtype, "gate", kind=WEIGHT)
    return tape.add(attended, tape.multiply(answer, gate))


def by_kernel(
    run: Lowering,
    op: AttentionCost,
    qkv: tuple[Tensor, ...],
    heads: Number,
    kv_heads: Number,
    kernel: str,
    masked: bool = False,
) -> Tensor:
    """Run one fused kernel, which saves query, key, value, output, log-sum-exp, the random generator's state, and the
    mask, if any."""
    tape = run.tape
    q, k, v = qkv
    # transformers leaves grouped heads to the kernel only without a mask (integrations/sdpa_attention.py)
    repeated = masked or op.qk_dim > FLASH_LARGEST
    if repeated:
        k, v = (repeated_by_model(run, t, heads, kv_heads) for t in (k, v))
    q, k, v = (tape.lowered(t) for t in (q, k, v))
    rows: Number = run.own
    calls: Number = 1
    if run.implementation.packed:
        calls = run.b * ceil_div(run.s, keys_of(run, op))
    if kernel == EFFICIENT:
        each = minimum(run.own, keys_of(run, op)) if run.implementation.packed else run.own
        rows = ceil_div(each, EFFICIENT_ROWS) * EFFICIENT_ROWS * ceil_div(run.own, each)
        if not repeated:
            k, v = (repeated_in_kernel(run, t, heads, kv_heads) for t in (k, v))
    padded = kernel == FLASH and op.qk_dim % FLASH_HEAD != 0
    size = ceil_div(op.v_dim, FLASH_HEAD) * FLASH_HEAD if padded else op.v_dim
    if padded:
        q, k, v = (
            tape.record("pad", (t,), tape.new(t.count // op.qk_dim * size, t.dtype, "padded")) for t in (q, k, v)
        )
    out = tape.new(run.tokens * heads * size, v.dtype, "attended")
    lse = tape.new(run.b * heads * rows, "fp32", "log-sum-exp", no_grad=True)
    extra = [tape.new(n * calls, "bool", "philox", no_grad=True) for n in PHILOX[kernel]]
    if op.position == "relative":
        extra.append(biased(run, op, heads, keys_of(run, op)))
    if op.position == "distance":
        extra.append(by_distance(run, op, heads, kernel, masked))
    elif masked:
        extra.append(kernel_mask(run, op, heads, kernel))
    ahead, back = gathered_bytes(run, q.count, k.count + v.count, out.count)
    kept = (q, k, v, out, lse, *extra)
    out = tape.record("attention", (q, k, v), out, kept, scratch=back, forward_scratch=ahead)
    return tape.copy(tape.slice(out, run.tokens * heads * op.v_dim), "cut") if padded else out


def gathered_bytes(run: Lowering, queries: Number, keys: Number, result: Number) -> tuple[Number, Number]:
    """Return the temporary bytes of torch's attention over context-parallel ranks, forward and backward: it gathers the
    keys and values of all ranks and merges results in fp32 (torch/distributed/tensor/experimental/_context_parallel/
    _attention.py, _AllGatherRotater, _SDPAMerger and _templated_ring_attention_backward).

    Forward, four tensors of the result: so far, of the next ranks' keys, their difference and its share. Backward, in
    fp32, the queries' gradient and its sum with that of half of them; the keys' and values' gradients as they arrive,
    joined, and in flight; in 16 bits, half of the next ranks' queries and all of their keys, less the results."""
    split = run.split
    if not run.implementation.gathers_keys or split.exchanges:
        return 0, 0
    every = 2 * split.context * keys
    ahead = every + 4 * 4 * result
    back = every + (2 * 4 + 1 - 2) * queries + (3 * 4 + 2 - 2) * keys
    return where(split.context > 1, ahead, 0), where(split.context > 1, back, 0)


def by_distance(run: Lowering, op: AttentionCost, heads: Number, kernel: str, masked: bool) -> Tensor:
    """Use scores by distance as a kernel's additive mask, with masked positions removed by a mask that all layers with
    a window share, or by the layer's own."""
    tape = run.tape
    bias = run.read(op, 3).tensor
    pairs = run.own * run.s
    condition = run.masks.get("window") if masked else None
    if condition is None:
        condition = tape.new(pairs, "bool", "causal mask", no_grad=True)
        if masked:
            condition.storage.shared = True
            run.masks["window"] = condition
    cut = tape.new(bias.count, bias.dtype, "bias within the mask")
    cut = tape.lowered(tape.record("where", (bias,), cut, (condition,)))
    return aligned(run, cut, run.b * run.own, run.s, heads) if kernel == EFFICIENT else cut


def kernel_mask(run: Lowering, op: AttentionCost, heads: Number, kernel: str) -> Tensor:
    """Return an additive mask: one for all heads, built in each call from a boolean one, or ALiBi's biases per head,
    built once for all layers."""
    tape = run.tape
    if op.position == "dynamic":
        made = tape.lowered(run.read(op, 3).tensor)
        return aligned(run, made, run.b * run.own, run.s, heads) if kernel == EFFICIENT else made
    if run.implementation.kernel_mask == PADDING:  # expanded, not copied, to all queries and heads
        padding = tape.lowered(run.passed[PADDING])
        return aligned(run, padding, run.b, run.s, 1) if kernel == EFFICIENT else padding
    seen = keys_of(run, op)
    keys = ceil_div(seen, MASK_KEYS) * MASK_KEYS if kernel == EFFICIENT else seen
    if op.own_mask:
        return tape.new(run.b * heads * run.own * keys, tape.autocast or tape.compute, "mask", no_grad=True)
    if op.position != "alibi":
        return tape.new(run.b * run.own * keys, tape.autocast or tape.compute, "mask", no_grad=True)
    rows = run.b * heads * run.own
    mask = tape.lowered(mask_with_biases(run, heads))
    return mask if keys == run.s else tape.copy(mask.view(rows * keys), "padded mask")


def mask_with_biases(run: Lowering, heads: Number) -> Tensor:
    """Return ALiBi's biases as an additive mask, one for all layers."""
    if ALIBI not in run.masks:
        stored = "fp32" if run.tape.autocast else run.tape.compute
        run.masks[ALIBI] = run.tape.new(run.b * heads * run.own * run.s, stored, "mask with biases", no_grad=True)
        run.masks[ALIBI].storage.shared = True
    return run.masks[ALIBI]


def repeated_by_model(run: Lowering, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
    """Return the keys or values repeated for each query head: a copy, but a view of a single head."""
    count = x.count // kv_heads * heads
    copied = run.tape.copy(x.view(count), "repeated")
    return select(heads == kv_heads, x, select(kv_heads == 1, expanded(run, x, count), copied))


def repeated_in_kernel(run: Lowering, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
    """Repeat keys and values for each query head, for a kernel without grouped-query attention."""
    copied = run.tape.copy(x.view(x.count // kv_heads * heads), "repeated")
    return select(heads == kv_heads, x, copied)

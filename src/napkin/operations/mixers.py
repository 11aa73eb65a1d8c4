"""Tensors that recurrent kernels save for backward.

Sources, each an autograd Function whose ctx.save_for_backward the rules follow:
    state-spaces/mamba          mamba_ssm/ops/selective_scan_interface.py (SelectiveScanFn, MambaInnerFn),
                                mamba_ssm/ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn)
    Dao-AILab/causal-conv1d     causal_conv1d/causal_conv1d_interface.py (CausalConv1dFn)
    fla-org/flash-linear-attention  fla/ops/gated_delta_rule/chunk.py (ChunkGatedDeltaRuleFunction),
                                fla/ops/kda/chunk.py (ChunkKDAFunction)
    NX-AI/mlstm_kernels         mlstm_kernels/torch/chunkwise/triton_xl_chunk/fwbw.py (_mlstm_chunkwise_fwbw)
    transformers                models/rwkv/modeling_rwkv.py (RwkvLinearAttention: the wkv kernel of BlinkDL/RWKV-LM);
                                the written-out recurrences of models/minimax and models/recurrent_gemma
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import BYTES, WEIGHT, Tensor, select
from napkin.elementwise import Number, ceil_div, maximum, where
from napkin.record import record

MLSTM_READS = ("queries", "keys", "values", "input gate", "forget gate")
SELECTIVE_CHUNK = 2048
"""Tokens after which the selective scan keeps its state (csrc/selective_scan/selective_scan.cpp, n_chunks)."""


@record
class MixerSizes:
    """One rank's part of a recurrence: b sequences of s tokens, heads of p elements with a state of N elements each,
    groups that share keys, tokens of a chunk."""

    sequences: Number
    length: Number
    heads: Number
    head_dim: int
    state: int
    groups: Number
    chunk: int

    @property
    def tokens(self) -> Number:
        return self.sequences * self.length

    @property
    def channels(self) -> Number:
        return self.heads * self.head_dim


def parameter(tape: Tape, count: Number) -> Tensor:
    """Return a learned vector in its stored dtype."""
    return tape.given(count, "fp32" if tape.autocast else tape.compute, "weight", kind=WEIGHT)


def decay(tape: Tape, count: Number) -> Tensor:
    """−exp(A) in fp32: the exponential keeps its result, the negative is a separate tensor."""
    grown = tape.new(count, "fp32", "exp of decay")
    return tape.scale(tape.record("exp", (parameter(tape, count),), grown, (grown,)), "decay")


def scan_constants(tape: Tape, size: MixerSizes) -> tuple[Tensor, ...]:
    """Return A, D and the bias of Δ in fp32."""
    pair = (tape.cast(parameter(tape, size.channels), "fp32") for _ in range(2))
    return (decay(tape, size.channels * size.state), *pair)


def scan_states(tape: Tape, size: MixerSizes) -> Tensor:
    """Two fp32 elements for each channel, state and chunk."""
    chunks = ceil_div(size.length, SELECTIVE_CHUNK)
    count = size.sequences * size.channels * chunks * 2 * size.state
    return tape.new(count, "fp32", "states", no_grad=True)


def inner(tape: Tape, joined: Tensor, low: Tensor, size: MixerSizes) -> Tensor:
    """mamba_inner_fn, from the input projection to the output's: saves its input laid out by channels, (Δ, B, C) in
    low rank, copies of B and C, the scan's states and result; it runs convolution, Δ and gate again."""
    turned = tape.copy(joined, "input by channels")
    rows = [tape.copy(low.view(size.tokens * size.state), what) for what in ("B", "C")]
    constants = scan_constants(tape, size)
    out = tape.new(size.tokens * size.channels, turned.dtype, "scanned")
    kept = (turned, low, *rows, *constants, scan_states(tape, size), out)
    return tape.record("scan", (turned, low, *constants), out, kept)


def selective(
    tape: Tape, read: tuple[Tensor, Tensor, Tensor, Tensor], gate: Tensor, size: MixerSizes, *, turned: bool
) -> Tensor:
    """selective_scan_fn of u, Δ, B, C and a gate, which it wants with their tokens next to each other: the gate is
    copied, and, except Δ, the others if they were `turned`."""
    u, delta, b, c = read
    copies = [tape.copy(x, what) if turned else x for x, what in ((u, "u"), (b, "B"), (c, "C"))]
    copies.append(tape.copy(gate, "gate"))
    constants = scan_constants(tape, size)
    out = tape.new(delta.count, delta.dtype, "scanned", no_grad=True)
    gated = tape.new(delta.count, delta.dtype, "gated")
    kept = (*copies, delta, *constants, scan_states(tape, size), out)
    gated = tape.record("scan", (*copies, delta, *constants), gated, kept)
    return tape.copy(gated, "tokens first")


def ssd(tape: Tape, joined: Tensor, size: MixerSizes, normed: bool) -> Tensor:
    """mamba_split_conv1d_scan_combined, from the input projection to the output's: saves its input, the scan's result
    and, where it is normed, the reciprocal root mean square of each group in fp32; it runs the rest again."""
    constants = decay(tape, size.heads)
    out = tape.new(size.tokens * size.channels, joined.dtype, "scanned")
    kept = [joined, out, constants]
    if normed:
        kept.append(tape.new(size.tokens * size.groups, "fp32", "rstd", no_grad=True))
    return tape.record("scan", (joined, constants), out, kept)


def delta(tape: Tape, mixed: Tensor, write: Tensor, a: Tensor, size: MixerSizes, doubled: bool) -> Tensor:
    """chunk_gated_delta_rule: keeps queries and keys normalized with their reciprocal norms, a copy of the values, the
    decays summed within chunks, the write strengths and the chunks' triangular matrices.

    `doubled`: strengths reach up to 2. The decay is −exp(A)·softplus(a + bias), in fp32."""
    rows, value_heads = size.tokens, size.heads
    strength = tape.sigmoid(write)
    if doubled:
        strength = tape.scale(strength)
    wide = tape.add(tape.cast(a, "fp32"), parameter(tape, value_heads))
    grown = tape.record("softplus", (wide,), tape.new(rows * value_heads, "fp32", "softplus"), (wide,))
    gate = tape.multiply(grown, decay(tape, value_heads))
    summed = tape.new(rows * value_heads, "fp32", "summed decays")
    solved = tape.new(rows * value_heads * size.chunk, mixed.dtype, "solved", no_grad=True)
    out = tape.new(rows * size.channels, mixed.dtype, "scanned")
    return tape.record("scan", (mixed, strength, gate), out, (*cut(tape, mixed, size), summed, strength, solved))


def cut(tape: Tape, mixed: Tensor, size: MixerSizes) -> tuple[Tensor, ...]:
    """Slice one convolution's result: normalized queries and keys, with their reciprocal norms, and a copy of the
    values."""
    pairs = []
    for what in ("queries", "keys"):
        norms = tape.new(size.tokens * size.groups, "fp32", f"norms of {what}", no_grad=True)
        pairs += [tape.new(size.tokens * size.groups * size.state, mixed.dtype, what), norms]
    return (*pairs, tape.new(size.tokens * size.channels, mixed.dtype, "values"))


def kda(tape: Tape, mixed: Tensor, write: Tensor, gate: Tensor, size: MixerSizes) -> Tensor:
    """chunk_kda: keeps what the delta rule keeps, but the decays of each channel as they are given and summed within
    chunks, and two triangular matrices of each chunk."""
    strength = tape.sigmoid(write)
    summed = tape.new(gate.count, "fp32", "summed decays")
    both = [
        tape.new(size.tokens * size.heads * size.chunk, mixed.dtype, what, no_grad=True)
        for what in ("scores", "solved")
    ]
    out = tape.new(size.tokens * size.channels, mixed.dtype, "scanned")
    kept = (*cut(tape, mixed, size), summed, gate, strength, *both)
    return tape.record("scan", (mixed, strength, gate), out, kept)


def forget(tape: Tape, x: Tensor, heads: Number, head_dim: int, form: str) -> Tensor:
    """Return the decays of each channel in fp32, as layer.ForgetGate says."""
    x = tape.add(tape.cast(x, "fp32"), parameter(tape, heads * head_dim))
    if form == "bounded":
        grown = tape.new(heads, "fp32", "exp of decay")
        grown = tape.record("exp", (parameter(tape, heads),), grown, (grown,))
        return tape.scale(tape.sigmoid(tape.multiply(x, grown)), "decays")
    if form == "softplus":
        grown = tape.record("softplus", (x,), tape.new(x.count, "fp32", "softplus"), (x,))
    else:
        power = tape.new(x.count, "fp32", "exp")
        shifted = tape.shift(tape.record("exp", (x,), power, (power,)), "1 + exp")
        log = tape.record("log", (shifted,), tape.new(x.count, "fp32", "log"), (shifted,))
        small = tape.new(x.count, "bool", "small enough", no_grad=True)
        grown = tape.record("where", (x, log), tape.new(x.count, "fp32", "softplus"), (small,))
    return tape.multiply(grown, decay(tape, heads), "decays")


def mlstm(tape: Tape, read: Sequence[Tensor], size: MixerSizes, *, parts: bool) -> Tensor:
    """Run the chunkwise mLSTM kernel, which saves head-major queries, keys, values and both gates, and for each token
    and head the normalizer and the maximum exponent in fp32; it recomputes the states. A single head is head-major
    already, unless the inputs are `parts` of larger tensors."""
    copies = [tape.copy(x, what) for x, what in zip(read, MLSTM_READS, strict=True)]
    if not parts:
        copies = [select(size.heads == 1, x, copy) for x, copy in zip(read, copies, strict=True)]
    each = [
        tape.new(size.tokens * size.heads, "fp32", what, no_grad=True) for what in ("normaliser", "largest exponent")
    ]
    out = tape.new(size.tokens * size.channels, read[0].dtype, "scanned")
    return tape.record("scan", tuple(copies), out, (*copies, *each))


def wkv(tape: Tape, key: Tensor, value: Tensor, size: MixerSizes) -> Tensor:
    """Run the wkv kernel, which saves key, value, its result and the decay in fp32."""
    out = tape.new(key.count, key.dtype, "scanned")
    weights = tuple(parameter(tape, size.channels) for _ in range(2))
    speed = tape.new(size.channels, "fp32", "decay", no_grad=True)
    return tape.record("scan", (key, value, *weights), out, (key, value, out, speed))


def lightning(tape: Tape, mixed: Tensor, size: MixerSizes) -> Tensor:
    """Written out block by block: each product copies the slices that it reads; the state that every block starts from
    is kept. What the last block makes of its state reaches no output."""
    rows = size.tokens * size.channels
    blocks, rest = size.length // size.chunk, size.length % size.chunk
    count = ceil_div(size.length, size.chunk)
    first = where(blocks > 0, size.chunk, rest)
    last = where(rest > 0, rest, size.chunk)
    each = size.sequences * size.heads
    pairs = each * (blocks * size.chunk * size.chunk + rest * rest)
    dtype = tape.autocast or mixed.dtype
    carried = rows - each * last * size.head_dim
    kept = [tape.new(carried, dtype, "decayed keys")]
    for what in ("queries", "keys", "values", "values again"):  # slices of one sequence fold without a copy
        copy = tape.new(carried if what == "values again" else rows, dtype, what)
        kept.append(select(size.sequences == 1, mixed, copy) if mixed.dtype == dtype else copy)
    kept.append(tape.new(rows - each * first * size.head_dim, dtype, "decayed queries"))
    kept.append(tape.new(pairs, dtype, "decayed scores"))
    kept.append(tape.new(each * count * size.state * size.head_dim, dtype, "states"))
    decays = "fp32" if tape.autocast else mixed.dtype
    kept.append(tape.new(maximum(count - 2, 0) * size.heads, decays, "decays of blocks", no_grad=True))
    return tape.record("scan", (mixed,), tape.new(rows, dtype, "scanned"), kept)


def rg_lru(tape: Tape, x: Tensor, gate: Tensor, forget: Tensor, size: MixerSizes) -> Tensor:
    """Written out: h ← a·h + √(1 − a²)·gate·x with a = exp(−8·forget·softplus(Λ)), token by token in fp32. The module
    refers to the last state until it runs again."""
    weight = parameter(tape, size.channels)
    raised = tape.raised(weight)
    speed = tape.record("softplus", (raised,), tape.new(raised.count, raised.dtype, "softplus"), (raised,))
    log = tape.multiply(tape.scale(forget), speed)

    def exponential(of: Tensor) -> Tensor:
        of = tape.raised(of)
        out = tape.new(of.count, of.dtype, "exp")
        return tape.record("exp", (of,), out, (out,))

    carried, square = exponential(log), tape.scale(exponential(tape.scale(log)))
    root = tape.record("sqrt", (square,), tape.new(square.count, square.dtype, "root"), (square,))
    resets = [tape.new(size.length, "bool", "not at a start", no_grad=True) for _ in range(2)]
    root = tape.record("mul", (root,), tape.new(root.count, root.dtype, "root or 1"), (resets[0],))
    taken = tape.multiply(tape.multiply(x, gate), tape.cast(root, x.dtype))
    carried = tape.record("mul", (carried,), tape.new(carried.count, carried.dtype, "carried"), (resets[1],))
    steps = carried  # what multiplies a state that came from none saves nothing
    if carried.dtype != "fp32":
        steps = tape.new((size.tokens - size.sequences) * size.channels, "fp32", "carried in fp32")
    states = tape.new(size.tokens * size.channels, "fp32", "states")
    out = tape.record("scan", (taken, carried), tape.new(taken.count, x.dtype, "scanned"), (steps, states))
    tape.remember(size.sequences * size.channels * BYTES["fp32"])
    return out

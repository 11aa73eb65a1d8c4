"""The time of the attention core: scores, softmax, values."""

from __future__ import annotations

from napkin import term
from napkin.elementwise import Number, ceil_div, holds_for_all, where
from napkin.operations.facts import AttentionCost
from napkin.operations.primitives import PAIRS
from napkin.record import replace
from napkin.term import Term
from napkin.timing.clock import BYTE, MULTIPLY_ADD, ONE, STACK, TWO, Clock, size
from napkin.timing.efficiency import alignment, depth, halvings

KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, appendix: 2as²b + 2as²b + as²b saved"
READ_SCORES = term.constant("forward_share", 13, "1", KORTHIKANTI)
WRITE_SCORES = term.constant("backward_share", 17, "1", KORTHIKANTI)
"""Unfused attention: the parts of the traffic per score, of 30 in total, that the forward and the backward pass move.
Forward writes and reads 16-bit scores, mask, softmax and dropout; backward reads them again."""
SCORE_PARTS = term.constant("parts", 30, "1", "13 forward, 17 backward")
BACKWARD_FLOPS = term.constant("backward_flops", 2.5, "1", "scores again, then four GEMMs: Dao 2023, arXiv:2307.08691")
SMALL_HEAD, LARGE_HEAD = 64, 128
"""Heads of at most the first size use the matrix unit less efficiently, and those of more than the second in kernels
that keep the results of only so many columns in registers."""
LEAST_ODD = 3
"""Halvings of 64 from which a head size counts as odd, because it is not a multiple of 8."""
for _rule, _pairs in PAIRS.items():
    term.define(_rule, _pairs)


def core_time(clock: Clock, op: AttentionCost, name: str) -> tuple[Term, Term]:
    """Return the seconds of the attention core, forward and backward, for the fused kernel or eager code."""
    flash = term.leaf("flash", clock.layout.flash, "1", term.GIVEN)
    fused, eager = fused_time(clock, op, name), eager_time(clock, op, name)
    return (
        term.choose(f"{name}/forward", flash, fused[0], eager[0]),
        term.choose(f"{name}/backward", flash, fused[1], eager[1]),
    )


def pair_flops(clock: Clock, op: AttentionCost, name: str, pairs: Term, lanes: Number = 1) -> Term:
    """Return the FLOP of scores and values on a rank: 2 · sequences · pairs · heads · (d_qk + d_v) / (t · c). pairs: of
    one head in one sequence. lanes: to whose multiples a kernel pads heads."""
    heads = term.divide(f"{name}/heads", size(f"{name}/all_heads", op.heads), clock.tp)
    dims = (("qk_dim", op.qk_dim), ("v_dim", op.v_dim))
    both = term.add(f"{name}/sizes", *(size(f"{name}/{what}", ceil_div(dim, lanes) * lanes) for what, dim in dims))
    every = term.multiply(f"{name}/all", MULTIPLY_ADD, clock.micro_batch, pairs, heads, both)
    return term.divide(name, every, clock.cp)


def pairs_of(clock: Clock, op: AttentionCost, name: str, exact: bool) -> Term:
    """Return the (query, key) pairs of one head in one sequence: those that the mask allows, or all pairs in eager
    attention. Where lengths s differ, those of a sequence in which the mean token is, E[s²]/E[s] long, for each of its
    tokens. exact: count by the mask to the single pair."""
    layout = clock.layout
    queries, keys = size("queries", layout.sequence), size("keys", layout.keys)
    uneven = None if holds_for_all(layout.uneven == 1) else size("uneven", layout.uneven)
    if uneven is not None:
        queries = term.multiply("queries_of_the_mean_token", queries, uneven)
    pairs = []
    for one in op.pair_rules(exact):
        sizes = [size(f"{name}/{what}", value) for what, value in one.sizes]
        if one.rule:
            pairs.append(term.make(one.rule, f"{name}/{one.name}", (queries, *sizes)))
        else:
            pairs.append(term.multiply(f"{name}/{one.name}", queries, keys))
    if uneven is not None:
        return term.divide(name, term.add(f"{name}/of_the_mean_token", *pairs), uneven)
    return term.add(name, *pairs) if len(pairs) > 1 else pairs[0].renamed(name)


def fused_time(clock: Clock, op: AttentionCost, name: str) -> tuple[Term, Term]:
    """Return the time of the fused kernel: only the allowed pairs; backward has 2.5 × the FLOPs at a lower rate, and
    where the kernel says so all pairs that a window masks."""
    forward = pass_time(clock, op, name)
    masked = clock.rates.masked_backward
    again = forward
    if op.window is not None and not holds_for_all(masked <= 0):
        all_of_them = pass_time(clock, replace(op, window=None), f"{name}/unmasked")
        again = term.choose(f"{name}/again", clock.rate(f"{name}/masked", masked, "1", STACK), all_of_them, forward)
    slower = clock.rate(f"{name}/backward_slowness", clock.rates.attention_backward)
    return forward, term.multiply(f"{name}/fused/backward", BACKWARD_FLOPS, slower, again)


def pass_time(clock: Clock, op: AttentionCost, name: str) -> Term:
    """Return the time of the fused kernel's forward pass over the pairs that the mask allows, or over all where it
    reads that mask: it skips what comes later only where it is told that attention is causal (pytorch/pytorch
    aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h, num_keys). The inner loop of a query tile
    runs over the keys that it reads on this rank; with few keys the rate is lower, as with a short inner loop of a
    GEMM."""
    rates = clock.rates
    pairs = pairs_of(clock, op, f"{name}/pairs", holds_for_all(clock.layout.masked == 0))
    lanes = clock.layout.lanes
    flops = pair_flops(clock, op, f"{name}/flops", pairs, lanes)
    apart = ONE if holds_for_all(clock.layout.exchanges > 0) else clock.cp  # ranks that divide the keys of a head
    keys = term.divide(f"{name}/keys", pairs, size("queries", clock.layout.sequence), apart)
    small = (op.qk_dim <= SMALL_HEAD) & (lanes == 1)  # a padded head is as large as the lanes
    of_size = where(small, rates.small_head, where(op.qk_dim > LARGE_HEAD, rates.large_head, 1.0))
    share = term.multiply(
        f"{name}/share",
        clock.rate("attention", rates.attention),
        depth(f"{name}/filled", keys, clock.rate("half_keys", rates.half_keys)),
        clock.rate("head_size", of_size),
    )
    return term.divide(f"{name}/fused/forward", flops, term.multiply(f"{name}/rate", clock.peak_wide, share))


def eager_time(clock: Clock, op: AttentionCost, name: str) -> tuple[Term, Term]:
    """Return the seconds of eager attention: two batched GEMMs over the full square, and the memory traffic of the
    scores."""
    rates = clock.rates
    square = pairs_of(clock, op, f"{name}/square_pairs", False)
    flops = pair_flops(clock, op, f"{name}/square", square)
    head = size(f"{name}/qk_dim", op.qk_dim)
    fits = alignment(f"{name}/alignment", clock.rate("misaligned", rates.misaligned), head)
    odd = where(halvings(op.qk_dim) > LEAST_ODD, rates.core_odd, 1)
    misfit = term.multiply(f"{name}/misfit", fits, clock.rate(f"{name}/odd_size", odd))
    reached = term.multiply(
        f"{name}/batched_share",
        term.multiply(
            f"{name}/batched_core",
            clock.rate("matmul/16bit", rates.matmul_wide),
            clock.rate("attention/batched", rates.core),
        ),
        misfit,
    )
    gemms = term.divide(f"{name}/batched", flops, term.multiply(f"{name}/batched_rate", clock.peak_wide, reached))
    heads = term.divide(f"{name}/heads", size(f"{name}/all_heads", op.heads), clock.tp)
    scores = term.divide(
        f"{name}/scores", term.multiply(f"{name}/scores/all", clock.micro_batch, square, heads), clock.cp
    )
    read, written = score_time(clock, scores, name)
    return (
        term.add(f"{name}/unfused/forward", gemms, read),
        term.add(
            f"{name}/unfused/backward",
            term.multiply(f"{name}/batched/backward", TWO, gemms),
            written,
        ),
    )


def score_time(clock: Clock, scores: Term, name: str) -> tuple[Term, Term]:
    """Return the time for elementwise operations to move the scores, forward and backward."""
    each = term.divide(
        f"{name}/scores/part",
        term.multiply(f"{name}/scores/bytes", scores, clock.rate("score_bytes", clock.rates.score_bytes, BYTE)),
        SCORE_PARTS,
    )
    read = term.multiply(f"{name}/scores/forward/bytes", READ_SCORES, each)
    written = term.multiply(f"{name}/scores/backward/bytes", WRITE_SCORES, each)
    return clock.move(f"{name}/scores/forward", read), clock.move(f"{name}/scores/backward", written)

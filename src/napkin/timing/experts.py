"""The time of routed experts: grouped GEMMs, permutation, all-to-all. Tokens spread evenly over the experts, or the
fullest rank, for which the others wait, has more of them."""

from __future__ import annotations

from napkin import term
from napkin.elementwise import holds_for_all, where
from napkin.operations.facts import RoutedExperts
from napkin.term import Term
from napkin.timing.clock import BYTE, IN_BACKWARD, IN_FORWARD, ONE, STACK, TWO, WIDE_BYTES, Clock, size, split
from napkin.timing.collectives import copies_to_others, distinct_nodes, in_one_node

THREE = term.constant("3", 3)
GATED_BYTES, PLAIN_BYTES = (6, 10), (4, 6)
"""Bytes of elementwise work per element of the inner width, forward and backward, for 16-bit tensors. With a gate:
forward reads two and writes one, backward reads three and writes two. Without: forward reads one and writes one,
backward reads two and writes one."""
BIAS_FORWARD, BIAS_BACKWARD = 28 / 64, 36 / 64
"""Of the second bias's traffic: its product with the score in fp32, the sum, its copy and its cast write and read 28
bytes an element, backward 36 (NVIDIA/Megatron-LM core_v0.15.0, megatron/core/transformer/moe/experts.py)."""
CLAMPED_FORWARD, CLAMPED_BACKWARD = 8, 15
"""Bytes per element of gate and up, for 16-bit tensors, where kernels of their own clamp them before the activation
(NVIDIA/Megatron-LM core_v0.16.0, megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl). Forward
each is read and written, and again as both are joined. Backward the gate's gradient is masked by one comparison (3 for
the mask, 5 for the choice), that of up, cut at both ends, by two (6, 3 for their conjunction, 5): torch 2.13
torch/csrc/autograd/FunctionsManual.cpp, clamp_backward; and both are joined (4)."""
NARROW_BYTES = term.constant("bytes_of_8_bits", 1, BYTE, "dispatch in FP8, combine in BF16: arXiv:2412.19437, 3.3.2")
"""Bytes of an element dispatched in the low dtype; it returns in 16 bits."""


def expert_time(clock: Clock, op: RoutedExperts, name: str) -> tuple[dict[str, Term], dict[str, Term]]:
    """Return the seconds of routed experts by group, forward and backward."""
    rates, layout = clock.rates, clock.layout
    per_rank = tokens_of_rank(clock, name)
    hidden_size, inner = (size(f"{name}/{what}", getattr(op, what)) for what in ("d_model", "d_ff"))
    routed = routed_rows(clock, op, name, per_rank)
    gemms = gemm_time(clock, op, name, routed)
    work = inner_work(clock, op, name, routed)
    by_masks = mask_time(clock, op, name, per_rank)
    permuted = term.multiply(
        f"{name}/permuted", clock.rate("permutation_bytes", rates.permutation_bytes, BYTE), routed, hidden_size
    )
    if by_masks:
        moves = term.leaf("permutes", 1 - layout.one_hot, "1", term.TRUE, "0 where matmuls with masks take tokens")
        permuted = term.multiply(f"{name}/permuted/moved", moves, permuted)
    biased, of_first = bias_bytes(clock, op, name, routed)
    clamped, masked = clamp_bytes(clock, op, name, routed)
    of_weights = stacked_bytes(clock, op, name)
    cast = term.multiply(
        f"{name}/cast",
        clock.rate("cast_bytes", rates.cast_bytes, BYTE),
        clock.low,
        size("casts", layout.casts),
        routed,
        term.add(f"{name}/cast_sizes", hidden_size, inner),
    )
    exchange = exchange_time(clock, op, name, per_rank, routed)
    found: list[dict[str, Term]] = []
    for way, products, each, share, bias_share, more in (
        ("forward", gemms[0], 0, IN_FORWARD, BIAS_FORWARD, clamped),
        ("backward", gemms[1], 1, IN_BACKWARD, BIAS_BACKWARD, (*of_first, *masked, *of_weights)),
    ):
        moved = term.add(
            f"{name}/elementwise/{way}/bytes",
            inner_bytes(op, f"{name}/elementwise/{way}/inner", each, work),
            term.multiply(f"{name}/elementwise/{way}/permuted", split(f"permuted/{way}", share), permuted),
            *(
                term.multiply(f"{name}/elementwise/{way}/biased", split(f"biased/{way}", bias_share), one)
                for one in biased
            ),
            *more,
        )
        cast_bytes = term.multiply(f"{name}/casts/{way}/bytes", split(f"casts/{way}", share), cast)
        found.append(
            {
                "matmul": term.add(f"{name}/{way}/matmuls", products, by_masks[each]) if by_masks else products,
                "elementwise": clock.move(f"{name}/elementwise/{way}", moved),
                "casts": clock.move(f"{name}/casts/{way}", cast_bytes),
                "expert": exchange,
            }
        )
    return found[0], found[1] if op.learning.runs else {}


def mask_time(clock: Clock, op: RoutedExperts, name: str, per_rank: Term) -> tuple[Term, ...]:
    """Return the seconds, forward and backward, of the matmuls with one-hot masks that take a sequence's s tokens to
    all of its slots and back; none where tokens are permuted. Forward (slots × s)(s × h) and (s × slots)(slots × h);
    backward the gradients of the tokens, of the experts' outputs, and of the scores in the mask of the way back."""
    if holds_for_all(clock.layout.one_hot == 0):
        return ()
    load = term.leaf(
        "expert_load", clock.layout.expert_load, "1", term.GIVEN, "slots of an expert over its mean tokens"
    )
    slots = term.multiply(f"{name}/masks/slots", clock.sequence, size(f"{name}/top_k", op.top_k), load)
    tokens = term.divide(f"{name}/masks/tokens", per_rank, load, clock.micro_batch)
    hidden = size(f"{name}/d_model", op.d_model)
    runs = term.leaf("by_masks", clock.layout.one_hot, "1", term.TRUE, "1 where matmuls with masks take tokens")
    there, back, scores = (
        term.multiply(f"{name}/masks/{what}/run", runs, clock.gemm(f"{name}/masks/{what}", *shape, clock.micro_batch))
        for what, shape in (
            ("to_slots", (slots, tokens, hidden)),
            ("to_tokens", (tokens, slots, hidden)),
            ("scores", (tokens, hidden, slots)),
        )
    )
    return term.add(f"{name}/masks/forward", there, back), term.add(f"{name}/masks/backward", there, back, scores)


def activation_time(clock: Clock, op: RoutedExperts, name: str) -> Term:
    """Return the seconds of the activation of routed experts in one forward pass."""
    work = inner_work(clock, op, name, routed_rows(clock, op, name, tokens_of_rank(clock, name)))
    return clock.move(f"{name}/activation", inner_bytes(op, f"{name}/activation/bytes", 0, work))


def routed_rows(clock: Clock, op: RoutedExperts, name: str, per_rank: Term) -> Term:
    """Return the rows that experts multiply: the tokens of a rank times the experts that each runs."""
    ran = size(f"{name}/experts_of_a_token", where(clock.layout.unrouted > 0, op.experts, op.top_k))
    return term.multiply(f"{name}/routed", per_rank, ran)


def inner_work(clock: Clock, op: RoutedExperts, name: str, routed: Term) -> Term:
    """Return the elements of the experts' inner width, times the traffic of elementwise kernels over the usual."""
    inner = size(f"{name}/d_ff", op.d_ff)
    return term.multiply(f"{name}/inner_elements", routed, inner, clock.rate("elementwise", clock.rates.elementwise))


def inner_bytes(op: RoutedExperts, name: str, way: int, work: Term) -> Term:
    """Return the bytes that the activation moves, forward (0) or backward (1)."""
    each = term.constant(f"bytes_{('forward', 'backward')[way]}", (GATED_BYTES if op.gated else PLAIN_BYTES)[way], BYTE)
    return term.multiply(name, each, work)


def tokens_of_rank(clock: Clock, name: str) -> Term:
    """Return the tokens for the experts of the fullest rank."""
    even, load = term.divide(f"{name}/tokens", clock.tokens, clock.tp), clock.layout.expert_load
    if holds_for_all(load == 1):
        return even
    given = term.leaf("expert_load", load, "1", term.GIVEN, "rows of the fullest rank over the mean")
    return term.multiply(f"{name}/tokens/fullest", even, given)


def bias_bytes(clock: Clock, op: RoutedExperts, name: str, routed: Term) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Return the traffic of the second bias, weighted by each token's score, and that of the gradient of the first one,
    in bytes of terms to add up; none for experts without biases. routed: rows that the rank's experts get."""
    if not op.bias:
        return (), ()
    each = clock.rate("expert_bias_bytes", clock.rates.expert_bias_bytes, BYTE)
    second = term.multiply(f"{name}/biased", each, routed, size(f"{name}/d_model", op.d_model))
    return (second,), (term.multiply(f"{name}/bias_gradient", WIDE_BYTES, routed, first_width(op, name)),)


def clamp_bytes(clock: Clock, op: RoutedExperts, name: str, routed: Term) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Return the traffic of kernels that clamp gate and up, forward and backward, in bytes of terms to add up; none for
    experts that clamp nothing. routed: rows that the rank's experts get."""
    if not op.clamped or holds_for_all(clock.rates.clamps_apart <= 0):
        return (), ()
    apart = clock.rate(f"{name}/clamps_apart", clock.rates.clamps_apart, "1", STACK)
    elements = term.multiply(f"{name}/clamped", apart, routed, first_width(op, name))
    ahead, back = (
        (term.multiply(f"{name}/clamped/{way}", term.constant(f"bytes_clamped_{way}", each, BYTE), elements),)
        for way, each in (("forward", CLAMPED_FORWARD), ("backward", CLAMPED_BACKWARD))
    )
    return ahead, back


def first_width(op: RoutedExperts, name: str) -> Term:
    """Return the width of the first matmul's output: gate and up, or up alone."""
    return size(f"{name}/first_width", (2 if op.gated else 1) * op.d_ff)


def stacked_bytes(clock: Clock, op: RoutedExperts, name: str) -> tuple[Term, ...]:
    """Return the bytes by which the gradient of one tensor of all experts' weights is made where each expert takes its
    own out by index: a tensor of zeros as large as all for each of n (torch/csrc/autograd/FunctionsManual.cpp,
    select_backward_symint), and n − 1 sums of them, two read and one written (input_buffer.cpp, accumulate)."""
    if not op.learning.weights or holds_for_all(clock.layout.stacked <= 0):
        return ()
    matrices = size(f"{name}/matrices", 3 if op.gated else 2)
    local = size(f"{name}/stacked/experts", op.experts / clock.layout.ep)
    inner = size(f"{name}/stacked/width", op.d_ff / clock.layout.etp)
    elements = term.multiply(f"{name}/stacked", local, matrices, size(f"{name}/d_model", op.d_model), inner)
    sums = term.multiply(f"{name}/stacked/summed", THREE, term.subtract(f"{name}/stacked/others", local, ONE))
    each = term.multiply(f"{name}/stacked/each", WIDE_BYTES, term.add(f"{name}/stacked/tensors", local, sums))
    return (term.multiply(f"{name}/stacked/bytes", each, elements),)


def gemm_time(clock: Clock, op: RoutedExperts, name: str, routed: Term) -> tuple[Term, Term]:
    """Return the seconds of grouped GEMMs h → f → h, forward and backward. Ranks that share an expert process all of
    its tokens. routed: rows of a rank, before ranks that share an expert gather them."""
    shares = size("etp", clock.layout.etp)
    local = term.divide(f"{name}/local", size(f"{name}/experts", op.experts), size("ep", clock.layout.ep))
    rows = term.largest(
        f"{name}/rows",
        term.divide(f"{name}/rows/mean", term.multiply(f"{name}/rows/all", routed, shares), local),
        ONE,
    )
    inner = term.divide(f"{name}/inner", size(f"{name}/d_ff", op.d_ff), shares)
    up_width = term.multiply(f"{name}/gate_and_up", inner, TWO) if op.gated else inner
    hidden = size(f"{name}/d_model", op.d_model)
    grouped = grouping(clock, name, local, rows)
    learns = op.learning
    up, up_back = clock.linear(f"{name}/up", rows, hidden, up_width, local, grouped=grouped, learning=learns)
    down, down_back = clock.linear(f"{name}/down", rows, inner, hidden, local, grouped=grouped, learning=learns)
    return term.add(f"{name}/products/forward", up, down), term.add(f"{name}/products/backward", up_back, down_back)


def grouping(clock: Clock, name: str, local: Term, rows: Term) -> Term:
    """Return the rate of a grouped GEMM relative to an ordinary one. The loss occurs between experts, so a single
    expert has none. rows: of each expert. Where experts share tiles, the loss is the tile in which one ends and the
    next one begins, which runs for both."""
    at_least = term.largest(f"{name}/grouped/experts", local, ONE)
    others = term.subtract(f"{name}/grouped/others", ONE, term.divide(f"{name}/grouped/one", ONE, at_least))
    tile = clock.layout.shared_tile
    shared = term.leaf("shared_tile", tile, "1", term.TRUE, "rows of a tile that runs for each expert that it has")
    again = term.multiply(f"{name}/tiles/again", shared, others)
    tiled = term.divide(f"{name}/grouped/tiled", rows, term.add(f"{name}/tiles/rows", rows, again))
    if holds_for_all(tile > 0):
        return tiled
    several = where(clock.layout.looped > 0, 0, 1)
    kernels = term.leaf("one_kernel", several, "1", term.GIVEN, "0 where experts run one after the other")
    lost = term.subtract(f"{name}/grouped/lost", ONE, clock.rate("grouped", clock.rates.grouped))
    apart = term.subtract(f"{name}/grouped", ONE, term.multiply(f"{name}/grouped/all", kernels, lost, others))
    return apart if holds_for_all(tile <= 0) else term.choose(f"{name}/grouped/either", shared, tiled, apart)


def exchange_time(clock: Clock, op: RoutedExperts, name: str, per_rank: Term, routed: Term) -> Term:
    """Return the seconds of dispatch and combine: the slower of link and network, with a token sent once to each node
    or, by an all-to-all of its copies, once to each of its experts there. Ranks that share an expert all-gather its
    tokens after the all-to-all, and reduce-scatter the outputs before the return."""
    group = clock.groups.experts
    ep, top_k = group.ranks, size(f"{name}/top_k", op.top_k)
    sent = term.choose("bytes_sent", clock.low, NARROW_BYTES, WIDE_BYTES)
    one_way = term.multiply(
        f"{name}/one_way",
        term.divide("bytes_one_way", term.add("bytes_both_ways", sent, WIDE_BYTES), TWO),
        size(f"{name}/d_model", op.d_model),
    )
    together = in_one_node("experts_ranks_of_a_node", ep, clock.node, group.stride)
    others = term.subtract("other_ranks_of_a_node", ONE, term.divide("own_share", ONE, together))
    near = term.divide(f"{name}/near", term.multiply(f"{name}/near/bytes", routed, others, TWO, one_way), clock.link)
    nodes = term.choose(
        f"{name}/sent_to",
        term.leaf("sends_copies", clock.layout.sends_copies, "1", term.TRUE, "1: to each of its experts by itself"),
        copies_to_others(f"{name}/copies", ep, together, top_k),
        distinct_nodes(f"{name}/nodes", ep, together, top_k, groups=op.groups, chosen=op.chosen_groups),
    )
    far = term.divide(f"{name}/far", term.multiply(f"{name}/far/bytes", per_rank, nodes, TWO, one_way), clock.network)
    sharing = term.subtract("ranks_sharing", clock.groups.expert_tensor.ranks, ONE)
    shared = term.divide(
        f"{name}/gathered", term.multiply(f"{name}/gathered/bytes", routed, sharing, TWO, one_way), clock.link
    )
    dispatch = clock.rate("dispatch", clock.rates.dispatch)
    slower = term.multiply(f"{name}/all_to_all", dispatch, term.largest(f"{name}/slower", near, far))
    return term.add(f"{name}/exchange", slower, shared)


def shown_exchange(clock: Clock, name: str, exchange: Term, beside: Term) -> Term:
    """Return the seconds of one pass's exchange that nothing hides. Where it runs asynchronously, the other pass of
    another micro-batch computes at the same time for `beside` seconds (arXiv:2412.19437, 3.2.1; NVIDIA/Megatron-LM
    megatron/core/pipeline_parallel/combined_1f1b.py); the first forward and the last backward pass have no such
    partner."""
    first = term.divide(f"{name}/alone", ONE, size("micro_batches", clock.layout.micro_batches))
    least = term.multiply(f"{name}/least", clock.rate("expert/exposed", clock.rates.expert_exposed), exchange)
    longer = term.largest(f"{name}/longer", least, term.subtract(f"{name}/unhidden", exchange, beside))
    return term.add(
        f"{name}/shown",
        term.multiply(f"{name}/shown/alone", first, exchange),
        term.multiply(f"{name}/shown/beside", term.subtract(f"{name}/others", ONE, first), longer),
    )

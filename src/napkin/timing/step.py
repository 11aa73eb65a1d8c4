"""The time of one training step: each operation of each layer by roofline, then pipeline, data parallelism, optimizer.

A layer's operations are folded into seconds for one micro-batch on one GPU, in groups that stay apart to the end, so
that the printed breakdown adds up to the step. Every quantity of a layout may be a number or an array with one entry
per layout. Symbols: b micro-batch, s sequence, T = b·s/cp tokens of a micro-batch on a GPU, h width, t, p, v, c, e, d
tensor, pipeline, interleave, context, expert and data degrees, m micro-batches of a replica.

What hardware and software reach comes in as `Rates`; this file knows no constant of a chip, a library or a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin import term
from napkin.elementwise import Number, ceil_div, is_array, log2, maximum, minimum, where
from napkin.operations.attention import AttentionCore, Rotary
from napkin.operations.base import COLUMN, EXPERT, REPLICATED, ROW, Operation, Work
from napkin.operations.base import MEMORY as ENCODED
from napkin.operations.embedding import Embedding
from napkin.operations.experts import Experts, Router
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.norms import Norm, UnitNorm
from napkin.operations.pointwise import Activation, Add, Affine, Multiply, Scale
from napkin.operations.primitives import causal_pairs, run_pairs
from napkin.operations.recurrence import Conv, ConvPair, Delayed, ForgetGate, Scan
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing import comm
from napkin.timing.efficiency import alignment_share, depth_share, halvings, tile_share
from napkin.training.layout import with_experts

GROUPS = ("matmul", "attention", "elementwise", "casts", "accumulation", "tensor", "context", "expert", "host")
"""What a layer's time is made of. compute: matmul, attention · memory-bound: elementwise, casts, accumulation ·
communication: tensor, context, expert · overhead: host, the time in which kernels wait for their launch."""

COMPUTE, MEMORY, COMMUNICATION = GROUPS[:2], GROUPS[2:5], GROUPS[5:8]

READ_SCORES, WRITE_SCORES = 13, 17
"""Unfused attention, bytes of traffic per score forward and backward in units of the constant: forward writes and
reads 16-bit scores, mask, softmax and dropout; backward re-reads them (Korthikanti et al. 2022, appendix: 2as²b +
2as²b + as²b saved)."""


@record
class Plan:
    """How a step is laid out and computed. Each field a number or one number per layout.

    shards              ranks that share parameters under ZeRO-3 (less than dp where replicas are kept)
    layers_recomputed   share of the layers whose forward runs again in backward
    attention_recomputed, products_recomputed
                        1 where the attention core alone runs again; share of the forward matrix products that do
    flash               1 for a fused attention kernel, 0 where the scores are written to memory
    idle                share of the plain pipeline's idle slots that the schedule keeps: 1 for GPipe and 1F1B, 1/3
                        where weight gradients fill them (zero bubble, ZB-H1: Qi et al. 2023)
    low                 1 where linear layers multiply 8- or 4-bit numbers (their inputs are cast first)
    casts               traffic of casting over the usual: 2 where every row has a scale of its own in both directions
    gradient_bytes      bytes of one gradient element as it is reduced
    optimizer_bytes     bytes that the optimizer moves per parameter of its own part
    etp                 ranks that each expert's width is divided over
    target, source      tokens of the decoder's sequences and of those that its cross-attention reads, in an
                        encoder-decoder (0: `sequence`)
    layers_before, layers_last
                        layers of the fullest stage before the last one and of the last, where they are dealt by hand
                        (0: ⌈L/p⌉, and what is left)
    """

    sequence: Number
    micro_batch: Number
    micro_batches: Number
    tp: Number = 1
    pp: Number = 1
    vp: Number = 1
    cp: Number = 1
    ep: Number = 1
    dp: Number = 1
    sequence_parallel: Number = 0
    zero: Number = 0
    shards: Number = 1
    layers_recomputed: Number = 0
    attention_recomputed: Number = 0
    products_recomputed: Number = 0
    flash: Number = 1
    idle: Number = 1
    low: Number = 0
    casts: Number = 1
    gradient_bytes: Number = 4
    optimizer_bytes: Number = 30
    etp: Number = 1
    target: Number = 0
    source: Number = 0
    layers_before: Number = 0
    layers_last: Number = 0

    @property
    def tokens(self) -> Number:
        """Tokens of a micro-batch on one GPU."""
        return self.micro_batch * self.sequence / self.cp

    @property
    def read(self) -> Number:
        """The same of the sequences that cross-attention reads."""
        return self.micro_batch * self.keys / self.cp

    @property
    def keys(self) -> Number:
        """Tokens of a sequence that cross-attention reads."""
        return where(self.source > 0, self.source, self.sequence)

    def decoding(self) -> Plan:
        """The plan over the decoder's sequences, of an encoder-decoder."""
        return replace(self, sequence=where(self.target > 0, self.target, self.sequence), source=self.sequence)


@record
class Rates:
    """What the machine and the software reach, each a number or one per layout.

    peak, peak_wide     dense FLOP/s of linear layers' dtype and of 16 bits (attention and head)
    bandwidth, link, network, node, units
                        byte/s of memory, of the link one way, of the network card; GPUs that the link joins; matrix
                        units
    matmul, matmul_wide share of the peak that a large matrix product sustains
    attention, attention_backward
                        share of the peak of the fused forward kernel; how much slower its backward runs per FLOP
    core, core_odd      share of `matmul_wide` that unfused attention's batched products reach; of that, with heads of
                        odd size
    score_bytes         traffic of unfused attention per score, forward and backward together
    memory, bus, wire   shares of the memory's, the link's and the network's rate that are reached
    waves, half_depth, misaligned
                        see efficiency.py
    elementwise         traffic of elementwise kernels over the least that is needed
    cast_bytes          traffic of casting per input element of a low-precision linear layer
    loss_bytes          traffic of the loss per logit
    accumulation_bytes  traffic of adding up gradients per weight and micro-batch
    tensor_latency, data_latency
                        seconds of one tensor-parallel collective, and per doubling of the data-parallel group
    tensor_exposed, pipeline_exposed, context_exposed
                        share of that communication that nothing hides
    data_overlap, data_exposed
                        1 where gradients are reduced while the last backward runs; least share that stays exposed
    interference        slow-down of everything else by FSDP's collectives, per second of link time
    grouped             share of `matmul` that grouped products of experts reach
    permutation_bytes   traffic of permuting per routed token and hidden element
    dispatch            time of the all-to-all over bytes/bandwidth
    host_layer, host_experts
                        seconds in which the host launches one layer's kernels
    optimizer_slowness  time of the optimizer over bytes/bandwidth
    fixed               seconds of a step that nothing scales
    stops_early         share of a block's last product that recomputation skips
    stack               time of this software over the common constants'
    """

    peak: Number
    peak_wide: Number
    bandwidth: Number
    link: Number
    network: Number
    node: Number
    units: Number
    matmul: Number
    matmul_wide: Number
    attention: Number
    attention_backward: Number
    core: Number
    core_odd: Number
    score_bytes: Number
    memory: Number
    bus: Number
    wire: Number
    waves: Number
    half_depth: Number
    misaligned: Number
    elementwise: Number
    cast_bytes: Number
    loss_bytes: Number
    accumulation_bytes: Number
    tensor_latency: Number
    data_latency: Number
    tensor_exposed: Number
    pipeline_exposed: Number
    context_exposed: Number
    data_overlap: Number
    data_exposed: Number
    interference: Number
    grouped: Number
    permutation_bytes: Number
    dispatch: Number
    host_layer: Number
    host_experts: Number
    optimizer_slowness: Number
    fixed: Number
    stops_early: Number
    stack: Number


SECOND = "second"


def _zero(name: str) -> Term:
    return term.constant(name, 0, SECOND)


def _plus(name: str, terms: Iterable[Term]) -> Term:
    parts = tuple(terms)
    return term.add(name, *parts) if parts else _zero(name)


def _by(name: str, factor: Term, seconds: Term) -> Term:
    return term.multiply(name, factor, seconds)


class Clock:
    """Seconds of single operations on one GPU, as terms."""

    def __init__(self, rates: Rates, plan: Plan) -> None:
        self.rates, self.plan = rates, plan
        self.memory = term.multiply(
            "memory/rate",
            term.leaf("memory/bandwidth", rates.bandwidth, "byte/s", term.TRUE, "datasheet"),
            term.leaf("memory/share", rates.memory, "1", term.SEEN, "calibration"),
        )
        self.peak = term.leaf("peak", rates.peak, "FLOP/s", term.TRUE, "datasheet")
        self.peak_wide = term.leaf("peak/16bit", rates.peak_wide, "FLOP/s", term.TRUE, "datasheet")

    def move(self, name: str, count: Number) -> Term:
        """Bytes at the memory's rate."""
        return term.divide(name, term.leaf(f"{name}/bytes", count, "byte", term.TRUE), self.memory)

    def product(
        self, name: str, m: Number, k: Number, n: Number, batch: Number = 1, wide: bool = False, share: Number = 1
    ) -> Term:
        """`batch` products (m×k)(k×n): FLOPs at the rate that the shape allows against bytes, joined smoothly.
        `share` takes what else slows the product: alignment, grouping."""
        rates = self.rates
        reached = rates.matmul_wide if wide else rates.matmul
        reached = reached * share * tile_share(m, n, batch, rates.units, rates.waves)
        reached = reached * depth_share(k, rates.half_depth)
        peak = self.peak_wide if wide else self.peak
        flops = term.leaf(f"{name}/flops", 2 * batch * m * k * n, "FLOP", term.TRUE, "2·m·k·n")
        rate = term.multiply(f"{name}/rate", peak, term.leaf(f"{name}/share", reached, "1", term.SEEN, "efficiency.py"))
        operand = 2 if wide else 2 - self.plan.low
        moved = batch * (operand * (m * k + k * n) + 2 * m * n)
        return term.smooth_largest(name, term.divide(f"{name}/compute", flops, rate), self.move(f"{name}/moved", moved))

    def linear(
        self, name: str, m: Number, k: Number, n: Number, batch: Number = 1, wide: bool = False, share: Number = 1
    ) -> tuple[Term, Term]:
        """Forward, and backward: the input's gradient (m×n)(n×k) and the weight's (k×m)(m×n). The rows of all three
        operands are k or n long, so that these two decide how they load."""
        share = share * alignment_share(k, n, self.rates.misaligned)
        forward = self.product(f"{name}/forward", m, k, n, batch, wide, share)
        to_input = self.product(f"{name}/input_gradient", m, n, k, batch, wide, share)
        to_weight = self.product(f"{name}/weight_gradient", k, m, n, batch, wide, share)
        return forward, term.add(f"{name}/backward", to_input, to_weight)

    def link(self) -> Term:
        return term.multiply(
            "link/rate",
            term.leaf("link/bandwidth", self.rates.link, "byte/s", term.TRUE, "datasheet, one way"),
            term.leaf("link/share", self.rates.bus, "1", term.SEEN, "calibration"),
        )

    def transfer(self, name: str, count: Number, bandwidth: Number, latency: Number = 0) -> Term:
        """Bytes over a link at bus bandwidth, plus latency."""
        wire = term.divide(
            f"{name}/wire",
            term.leaf(f"{name}/bytes", count, "byte", term.TRUE),
            term.leaf(f"{name}/bandwidth", bandwidth, "byte/s", term.SEEN, "link or network × share reached"),
        )
        return term.add(name, wire, term.leaf(f"{name}/latency", latency, SECOND, term.SEEN, "calibration"))


@record
class Cost:
    """Seconds of one layer (or of the head) for one micro-batch, by group, and the weights that one GPU holds.

    `backward` is the time in which gradients can be reduced behind the last micro-batch."""

    groups: dict[str, Term]
    backward: Number
    weights: Number
    expert_weights: Number

    @property
    def total(self) -> Number:
        return sum(part.value for part in self.groups.values())


def sharded_names(operations: Iterable[Operation]) -> set[str]:
    """Outputs that tensor parallelism divides: from a column-parallel product on, until a row-parallel one."""
    names: set[str] = set()
    for op in operations:
        shard = getattr(op, "shard", REPLICATED)
        if shard == COLUMN or (shard != ROW and any(read in names for read in op.reads)):
            names.add(op.name)
    return names


def traffic(op: Operation, fused: bool) -> tuple[Number, Number]:
    """Bytes per token that an elementwise operation must move, forward and backward, 16-bit tensors.

    Norm reads and writes (4), backward reads two and writes one (6); a residual sum reads two and writes one, backward
    adds up the gradients of the two branches (6); an activation that feeds a product runs in the product's kernel."""
    if isinstance(op, Norm):
        return 4 * op.width * op.groups, 6 * op.width * op.groups
    if isinstance(op, Add):
        return 6 * op.width, 6 * op.width
    if isinstance(op, Activation):
        return (0, 0) if fused else (4 * op.width, 6 * op.width)
    if isinstance(op, Multiply):
        return 6 * op.width, 10 * op.width
    if isinstance(op, Scale):
        return 4 * op.width, 4 * op.width
    if isinstance(op, Rotary):
        return 4 * op.heads * op.head_dim, 4 * op.heads * op.head_dim
    if isinstance(op, AttentionCore):  # splitting, transposing and joining of q, k and v
        wide = (op.heads + op.kv_heads) * op.qk_dim + op.kv_heads * op.v_dim
        return 2 * wide, 4 * wide
    if isinstance(op, Embedding):
        return 4 * op.width, 8 * op.width
    if isinstance(op, Router):  # fp32 scores, softmax and choice
        return 12 * op.experts, 12 * op.experts
    if isinstance(op, Conv):
        return 4 * op.channels, 8 * op.channels
    if isinstance(op, ConvPair):
        return 8 * op.channels, 16 * op.channels
    if isinstance(op, Delayed):  # two copies
        return 8 * op.width, 8 * op.width
    if isinstance(op, UnitNorm):
        return 6 * op.width * op.groups, 10 * op.width * op.groups
    if isinstance(op, Affine):
        return 8 * op.width, 14 * op.width
    if isinstance(op, ForgetGate):  # a 16-bit input, an fp32 result; backward reads the result's gradient too
        return 6 * op.heads * op.head_dim, 12 * op.heads * op.head_dim
    if isinstance(op, Scan):  # inputs, gates and outputs once; the state stays on chip
        return 8 * op.heads * op.head_dim, 16 * op.heads * op.head_dim
    return op.moved()


def local_weights(op: Operation, plan: Plan) -> tuple[Number, Number]:
    """Parameters of an operation on one GPU before ZeRO: dense ones, and those of experts."""
    dense: Number = 0
    expert: Number = 0
    for weight in op.weights():
        if weight.shard == EXPERT:
            expert = expert + weight.count / (plan.ep * plan.etp)
        else:
            dense = dense + (weight.count if weight.shard == REPLICATED else weight.count / plan.tp)
    return dense, expert


def attention(clock: Clock, op: AttentionCore, name: str) -> tuple[Term, Term]:
    """The core of attention, forward and backward.

    Fused: the allowed pairs alone, backward 2.5 × the FLOPs (scores again, then four products: Dao 2023) at a lower
    rate. Unfused: two batched products over the full square, and the scores' way through memory several times."""
    plan, rates = clock.plan, clock.rates
    heads = op.heads / plan.tp
    queries = plan.sequence
    keys = plan.keys if op.cross else queries
    pairs = causal_pairs(keys, op.window) if op.causal and not op.cross else queries * keys
    if op.compressed:
        pairs = pairs + run_pairs(queries, op.compressed, op.chosen)
    if op.merged:
        pairs, keys = pairs + queries * plan.keys, keys + plan.keys
    every = queries * (keys + op.runs(queries))
    wide = op.qk_dim + op.v_dim
    fused = term.leaf(f"{name}/flops", 2 * plan.micro_batch * pairs * heads * wide / plan.cp, "FLOP", term.TRUE)
    slow_small = where(
        op.qk_dim <= 64, 0.92, 1.0
    )  # heads of 64 feed the matrix unit worse (FlashAttention-2, figure 4)
    rate = term.multiply(
        f"{name}/rate",
        clock.peak_wide,
        term.leaf(f"{name}/share", rates.attention * slow_small, "1", term.SEEN, "calibration"),
    )
    flash_forward = term.divide(f"{name}/fused/forward", fused, rate)
    slower = term.leaf(f"{name}/backward_slowness", rates.attention_backward, "1", term.SEEN, "calibration")
    flash_backward = term.multiply(
        f"{name}/fused/backward", term.leaf("backward_flops", 2.5, "1", term.TRUE, "Dao 2023"), slower, flash_forward
    )
    misfit = rates.misaligned ** halvings(op.qk_dim) * where(halvings(op.qk_dim) > 3, rates.core_odd, 1)
    square = term.leaf(f"{name}/square", 2 * plan.micro_batch * every * heads * wide / plan.cp, "FLOP", term.TRUE)
    batched = term.multiply(
        f"{name}/batched_rate",
        clock.peak_wide,
        term.leaf(f"{name}/batched_share", rates.matmul_wide * rates.core * misfit, "1", term.SEEN, "calibration"),
    )
    scores = plan.micro_batch * every * heads / plan.cp * rates.score_bytes / (READ_SCORES + WRITE_SCORES)
    products = term.divide(f"{name}/batched", square, batched)
    two = term.constant("two", 2)
    plain_forward = term.add(
        f"{name}/unfused/forward", products, clock.move(f"{name}/scores/forward", READ_SCORES * scores)
    )
    plain_backward = term.add(
        f"{name}/unfused/backward",
        term.multiply(f"{name}/batched/backward", two, products),
        clock.move(f"{name}/scores/backward", WRITE_SCORES * scores),
    )
    flash = term.leaf("flash", plan.flash, "1", term.GIVEN)
    return (
        term.choose(f"{name}/forward", flash, flash_forward, plain_forward),
        term.choose(f"{name}/backward", flash, flash_backward, plain_backward),
    )


def experts(clock: Clock, op: Experts, name: str) -> tuple[dict[str, Term], dict[str, Term]]:
    """Routed experts, forward and backward: grouped products, permutation, all-to-all; tokens spread evenly. Ranks that
    share an expert gather their tokens after the all-to-all, and scatter what comes out before it."""
    plan, rates = clock.plan, clock.rates
    routed = plan.tokens / plan.tp * op.top_k
    local = op.experts / plan.ep
    rows = maximum(routed * plan.etp / local, 1)
    inner = op.d_ff / plan.etp
    up, up_back = clock.linear(
        f"{name}/up", rows, op.d_model, inner * (2 if op.gated else 1), local, share=rates.grouped
    )
    down, down_back = clock.linear(f"{name}/down", rows, inner, op.d_model, local, share=rates.grouped)
    inside, spread = (6, 10) if op.gated else (4, 6)
    hidden = routed * op.d_ff * rates.elementwise
    permuted = rates.permutation_bytes * routed * op.d_model
    one_way = (2 - 0.5 * plan.low) * op.d_model  # tokens go out in the low dtype and come back in 16 bits
    together = minimum(plan.ep, rates.node)
    near = routed * (1 - 1 / together) * 2 * one_way / (rates.bus * rates.link)
    far = plan.tokens / plan.tp * comm.distinct_nodes(plan.ep, rates.node, op.top_k) * 2 * one_way
    shared = routed * (plan.etp - 1) * 2 * one_way / (rates.bus * rates.link)
    exchange = term.leaf(
        f"{name}/exchange",
        rates.dispatch * maximum(near, far / (rates.wire * rates.network)) + shared,
        SECOND,
        term.SEEN,
        "dispatch and combine: the slower of link and network, a token sent once to each node; gathered over etp",
    )
    cast = rates.cast_bytes * plan.low * plan.casts * routed * (op.d_model + op.d_ff)
    forward = {
        "matmul": term.add(f"{name}/products/forward", up, down),
        "elementwise": clock.move(f"{name}/elementwise/forward", inside * hidden + 0.4 * permuted),
        "casts": clock.move(f"{name}/casts/forward", 0.4 * cast),
        "expert": exchange,
    }
    backward = {
        "matmul": term.add(f"{name}/products/backward", up_back, down_back),
        "elementwise": clock.move(f"{name}/elementwise/backward", spread * hidden + 0.6 * permuted),
        "casts": clock.move(f"{name}/casts/backward", 0.6 * cast),
        "expert": exchange,
    }
    return forward, backward


def layer_cost(clock: Clock, layer: Layer, kind: str) -> Cost:
    """One layer for one micro-batch: forward, backward, what is recomputed, and gradient accumulation."""
    plan, rates = clock.plan, clock.rates
    tokens, t = plan.tokens, plan.tp
    work = Work(plan.micro_batch, plan.sequence / plan.cp)
    stream = where(plan.sequence_parallel, t, 1)
    sharded = sharded_names(layer.operations)
    fed = {read for op in layer.operations if isinstance(op, Multiply) for read in op.reads}
    forward: dict[str, list[Term]] = {group: [] for group in GROUPS}
    backward: dict[str, list[Term]] = {group: [] for group in GROUPS}
    bytes_forward: Number = 0
    bytes_backward: Number = 0
    inputs: Number = 0
    dense: Number = 0
    expert: Number = 0
    # products that read the same tensor and split the same way run as one: fused q, k, v and gate, up
    fusions: dict[tuple[object, ...], list[Matmul]] = {}
    for op in layer.operations:
        here, there = local_weights(op, plan)
        dense, expert = dense + here, expert + there
        if isinstance(op, Matmul):
            fusions.setdefault((op.reads, op.shard), []).append(op)
        elif isinstance(op, AttentionCore):
            core, core_back = attention(clock, op, f"{kind}/{op.name}")
            forward["attention"].append(core)
            backward["attention"].append(core_back)
        elif isinstance(op, Experts):
            ahead, back = experts(clock, op, f"{kind}/{op.name}")
            for group, seconds in ahead.items():
                forward[group].append(seconds)
            for group, seconds in back.items():
                backward[group].append(seconds)
        else:  # routers, block-diagonal and tabulated products, scans in chunks: their heads or blocks divide
            for one in op.gemms(work):
                name = f"{kind}/{one.name}"
                m, k, n = (maximum(size, 1) for size in (one.m, one.k, one.n))
                both = clock.linear(name, m, k, n, maximum(one.batch / t, 1))
                if is_array(one.flops):  # a product that only some of the layouts make (a last, shorter chunk)
                    made = term.leaf(f"{name}/made", where(one.flops > 0, 1, 0), "1", term.TRUE)
                    both = (_by(f"{name}/forward", made, both[0]), _by(f"{name}/backward", made, both[1]))
                forward["matmul"].append(both[0])
                backward["matmul"].append(both[1])
        first, second = traffic(op, fused=op.name in fed)
        divided = t if op.name in sharded or isinstance(op, AttentionCore) else stream
        bytes_forward = bytes_forward + tokens * first / divided
        bytes_backward = bytes_backward + tokens * second / divided
    last: Term | None = None
    reduced = gathered = 0
    for (_, shard), together in fusions.items():
        k = together[0].d_in / (t if shard == ROW else 1)
        n = sum(op.d_out for op in together) / (t if shard == COLUMN else 1)
        name = f"{kind}/{'+'.join(op.name for op in together)}"
        rows = plan.read if together[0].reads == (ENCODED,) else tokens
        ahead_of, back_of = clock.linear(name, rows, k, n)
        forward["matmul"].append(ahead_of)
        backward["matmul"].append(back_of)
        inputs = inputs + rows * k
        last = ahead_of
        reduced += shard == ROW
        gathered += shard == COLUMN
    elementwise = rates.elementwise
    forward["elementwise"].append(clock.move(f"{kind}/elementwise/forward", elementwise * bytes_forward))
    backward["elementwise"].append(clock.move(f"{kind}/elementwise/backward", elementwise * bytes_backward))
    cast = rates.cast_bytes * plan.low * plan.casts * inputs
    forward["casts"].append(clock.move(f"{kind}/casts/forward", 0.4 * cast))
    backward["casts"].append(clock.move(f"{kind}/casts/backward", 0.6 * cast))
    payload = 2 * tokens * _width(layer)
    once = clock.transfer(
        f"{kind}/tensor/collective",
        comm.all_reduce_bytes(payload, t),
        comm.bus_bandwidth(t, rates.node, 1, rates.bus * rates.link, rates.wire * rates.network),
        # sequence parallelism makes two collectives of each all-reduce: a reduce-scatter and an all-gather
        where(t > 1, rates.tensor_latency * (1 + plan.sequence_parallel), 0),
    )
    exposed = term.leaf("tensor/exposed", rates.tensor_exposed, "1", term.SEEN, "stack")
    forward["tensor"].append(
        term.multiply(f"{kind}/tensor/forward", term.constant("collectives", reduced), exposed, once)
    )
    backward["tensor"].append(
        term.multiply(f"{kind}/tensor/backward", term.constant("collectives", gathered), exposed, once)
    )
    cores = [op for op in layer.operations if isinstance(op, AttentionCore)]
    if cores:
        ring = sum(op.cached for op in cores)
        rows = plan.micro_batch * plan.sequence * 2 * ring / t * comm.gather_share(plan.cp)
        passing = clock.transfer(
            f"{kind}/context/ring",
            rows,
            comm.bus_bandwidth(plan.cp, rates.node, t, rates.bus * rates.link, rates.wire * rates.network),
        )
        shown = term.leaf("context/exposed", rates.context_exposed, "1", term.SEEN, "stack")
        forward["context"].append(_by(f"{kind}/context/forward", shown, passing))
        backward["context"].append(term.multiply(f"{kind}/context/backward", term.constant("two", 2), shown, passing))
    accumulate = clock.move(f"{kind}/accumulation", rates.accumulation_bytes * (dense + expert))
    # what is recomputed runs in the backward pass
    all_layers = term.leaf("layers_recomputed", plan.layers_recomputed, "1", term.GIVEN)
    cores_again = term.leaf("attention_recomputed", plan.attention_recomputed, "1", term.GIVEN)
    products_again = term.leaf("products_recomputed", plan.products_recomputed, "1", term.GIVEN)
    groups: dict[str, Term] = {}
    for group in GROUPS[:-1]:
        ahead_sum = _plus(f"{kind}/{group}/forward", forward[group])
        parts = [ahead_sum, _plus(f"{kind}/{group}/backward", backward[group])]
        parts.append(_by(f"{kind}/{group}/recomputed", all_layers, ahead_sum))
        if group == "attention":
            parts.append(_by(f"{kind}/{group}/core_recomputed", cores_again, ahead_sum))
        if group == "matmul":
            parts.append(_by(f"{kind}/{group}/products_recomputed", products_again, ahead_sum))
            if last is not None:
                skipped = term.leaf("stops_early", rates.stops_early, "1", term.SEEN, "checkpoint stops early")
                early = term.multiply(f"{kind}/{group}/skipped", all_layers, skipped, last)
                groups[group] = term.subtract(f"{kind}/{group}", term.add(f"{kind}/{group}/all", *parts), early)
                continue
        if group == "accumulation":
            parts = [accumulate]
        groups[group] = term.add(f"{kind}/{group}", *parts)
    busy = term.add(f"{kind}/device", *groups.values())
    has_experts = any(isinstance(op, Experts) for op in layer.operations)
    launch = term.leaf(
        f"{kind}/launch", rates.host_experts if has_experts else rates.host_layer, SECOND, term.SEEN, "stack"
    )
    groups["host"] = term.subtract(f"{kind}/host", term.largest(f"{kind}/longer", busy, launch), busy)
    behind = sum(seconds.value for terms in backward.values() for seconds in terms)
    behind = behind + plan.layers_recomputed * sum(seconds.value for terms in forward.values() for seconds in terms)
    return Cost(groups, behind, dense, expert)


def _width(layer: Layer) -> Number:
    """Numbers a token in the residual stream: what the layer's last row-parallel product or sum puts out."""
    for op in reversed(layer.operations):
        if isinstance(op, Matmul) and op.shard == ROW:
            return op.d_out
        if isinstance(op, Add):
            return op.width
    return 0


def head_cost(clock: Clock, model: Model) -> Cost:
    """The logits, always 16 bits, and the loss over them; on the last pipeline stage."""
    plan, rates = clock.plan, clock.rates
    width, rows = model.hidden, model.vocabulary
    local = rows / plan.tp
    forward, backward = clock.linear("head/logits", plan.tokens, width, local, wide=True)
    groups = {group: _zero(f"head/{group}") for group in GROUPS}
    groups["matmul"] = term.add("head/matmul", forward, backward)
    groups["elementwise"] = clock.move("head/loss", rates.loss_bytes * plan.tokens * local)
    groups["accumulation"] = clock.move("head/accumulation", rates.accumulation_bytes * width * local)
    return Cost(groups, backward.value, width * local, 0)


@record
class Step:
    """One step's time with its parts, and what was counted on the way.

    weights    parameters that one GPU updates before ZeRO, worst stage taken as the mean"""

    time: Term
    weights: Number


def _mean(group: str, runs: Sequence[tuple[Number, Cost]], depth: Number) -> Term:
    """Seconds of a group in the mean layer."""
    every = [
        term.multiply(f"{part.name}/all", term.leaf("layers", count, "1", term.TRUE), part)
        for count, part in ((count, cost.groups[group]) for count, cost in runs)
    ]
    return term.divide(f"layer/{group}", _plus(f"layers/{group}", every), term.leaf("depth", depth, "1", term.TRUE))


def step(model: Model, plan: Plan, rates: Rates) -> Step:
    """Seconds of one optimizer step: m micro-batches through the slowest stage, the pipeline's bubble, what of the
    gradients' reduction nothing hides, the optimizer.

    1F1B: m·t_slowest + (p−1)/v·t_mean (Narayanan et al. 2021, section 2.2)."""
    clock = Clock(rates, plan)
    last = clock if len(model.stacks) == 1 else Clock(rates, plan.decoding())
    runs = [
        (count, layer_cost(clock if stack is model.stacks[0] else last, layer, kind))
        for stack in model.stacks
        for kind, count, layer in stack.kinds()
    ]
    head = head_cost(last, model)
    depth: Number = sum(count for count, _ in runs)
    mean = {group: _mean(group, runs, depth) for group in GROUPS}
    layer_seconds = sum(part.value for part in mean.values())
    p, v, m = plan.pp, plan.vp, plan.micro_batches
    # every stage but the last holds ⌈L/p⌉ layers; the last one the rest, and the head
    full = ceil_div(depth, p)
    rest = maximum(depth - (p - 1) * full, 0)
    by_hand = plan.layers_before + plan.layers_last > 0
    full, rest = where(by_hand, plan.layers_before, full), where(by_hand, plan.layers_last, rest)
    head_binds = where(rest * layer_seconds + head.total > full * layer_seconds, 1, 0)
    layers_on = term.leaf("stage/layers", where(head_binds, rest, full), "1", term.TRUE, "slowest pipeline stage")
    head_on = term.leaf("stage/head", head_binds, "1", term.TRUE, "1 where the slowest stage holds the head")
    repeats = term.leaf("micro_batches", m, "1", term.GIVEN)
    stack = term.leaf("stack", rates.stack, "1", term.SEEN, "this software's time over the common constants'")

    def on_stage(group: str) -> Term:
        stage = term.add(
            f"stage/{group}",
            term.multiply(f"stage/{group}/layers", layers_on, mean[group]),
            term.multiply(f"stage/{group}/head", head_on, head.groups[group]),
        )
        return term.multiply(f"step/all/{group}", stack, repeats, stage)

    spent = {group: on_stage(group) for group in GROUPS}
    compute = term.add("step/compute", *(spent[g].renamed(f"step/compute/{g}") for g in COMPUTE))
    moved = term.add("step/memory_bound", *(spent[g].renamed(f"step/memory_bound/{g}") for g in MEMORY))

    # the bubble: p−1 slots of a mean stage, divided among the v chunks of each stage
    stage_mean = term.divide(
        "stage/mean",
        term.add(
            "model/micro_batch",
            term.multiply("model/layers", term.leaf("depth", depth, "1", term.TRUE), _plus("layer", mean.values())),
            _plus("model/head", head.groups.values()),
        ),
        term.leaf("pp", p, "1", term.GIVEN),
    )
    slots = term.divide(
        "bubble/slots",
        term.leaf("bubble/stages", p - 1, "1", term.TRUE, "p − 1"),
        term.leaf("vp", v, "1", term.GIVEN),
    )
    kept = term.leaf("bubble/kept", plan.idle, "1", term.TRUE, "schedule")
    bubble = term.multiply("step/bubble", stack, kept, slots, stage_mean)

    # activations between stages, both ways, for each chunk; divided by t where each rank sends its own part
    width = model.hidden * model.streams
    link, network = rates.bus * rates.link, rates.wire * rates.network
    inside = plan.tp * plan.cp * p <= rates.node
    boundary = clock.transfer(
        "pipeline/boundary",
        where(p > 1, 4 * plan.tokens * width * v / where(plan.sequence_parallel, plan.tp, 1), 0),
        where(inside, link, network),
    )
    between = term.multiply(
        "step/communication/pipeline",
        stack,
        repeats,
        term.leaf("pipeline/exposed", rates.pipeline_exposed, "1", term.SEEN, "stack"),
        boundary,
    )

    # parameters on one GPU; both tables on one GPU where there is no pipeline and they are not tied
    tables = where(p > 1, 1, 1 if model.tied else 2) * head.weights
    dense: Number = sum(count * cost.weights for count, cost in runs) / p + tables
    routed: Number = sum(count * cost.expert_weights for count, cost in runs) / p
    replicas = plan.dp * plan.cp
    expert_replicas = with_experts(replicas, plan.tp, plan.ep, plan.etp)
    bus = comm.bus_bandwidth(replicas, rates.node, plan.tp, link, network)
    reduced = dense * comm.gather_share(replicas) + routed * comm.gather_share(expert_replicas)
    scattered = where(plan.zero == 2, m, 1)  # divided gradients leave no room to add up whole ones: each micro-batch
    reduction = clock.transfer(
        "data/collective",
        (plan.gradient_bytes * scattered + 2) * reduced,  # gradients reduced, 16-bit parameters gathered
        bus,
        where(replicas > 1, rates.data_latency * log2(maximum(replicas, 2)), 0),
    )
    backward: Number = sum(count * cost.backward for count, cost in runs) / p / v
    hidden = term.leaf(
        "data/hidden", rates.data_overlap * backward * scattered, SECOND, term.SEEN, "last backward, where overlapped"
    )
    least = term.leaf("data/exposed", rates.data_exposed, "1", term.SEEN, "calibration")
    replicated = term.largest(
        "data/shown",
        term.subtract("data/unhidden", reduction, hidden),
        term.multiply("data/least", least, reduction),
    )
    # ZeRO-3: parameters gathered for forward and for backward, gradients scattered, every micro-batch
    shards = plan.shards
    sharded_bus = comm.bus_bandwidth(shards, rates.node, plan.tp * plan.cp, link, network)
    passes = m * (4 + plan.gradient_bytes) * (dense + routed) * comm.gather_share(shards)
    copies = plan.dp / shards
    across = 2 * plan.gradient_bytes * (dense + routed) / shards * comm.gather_share(copies)
    gathers = term.add(
        "sharded/transfer",
        clock.transfer("sharded/collectives", passes, sharded_bus),
        clock.transfer("sharded/replicas", across, network),
    )
    work = term.add(
        "step/work",
        compute,
        moved,
        *(spent[g] for g in COMMUNICATION),
        spent["host"],
        bubble,
        between,
    )
    gathers = term.multiply("sharded/transfer/stack", stack, gathers)
    joined = term.subtract("sharded/unhidden", term.smooth_largest("sharded/joined", work, gathers), work)
    disturbed = term.multiply(
        "sharded/interference",
        stack,
        term.leaf("interference", rates.interference, "1", term.SEEN, "calibration"),
        term.divide("sharded/link", term.leaf("sharded/bytes", passes, "byte", term.TRUE), clock.link()),
    )
    data = term.choose(
        "step/communication/data",
        term.leaf("sharded", where(plan.zero == 3, 1, 0), "1", term.GIVEN),
        term.add("sharded/shown", joined, disturbed),
        term.multiply("replicated/shown", stack, replicated),
    )
    communication = term.add(
        "step/communication",
        *(spent[g].renamed(f"step/communication/{g}") for g in COMMUNICATION),
        between,
        data,
    )
    # ZeRO divides states over the ranks that hold the same weights
    parts = where(plan.zero == 0, 1, where(plan.zero == 3, shards, replicas))
    expert_parts = where(plan.zero == 0, 1, where(plan.zero == 3, shards, expert_replicas))
    optimizer = term.multiply(
        "step/optimizer",
        stack,
        term.leaf("optimizer/slowness", rates.optimizer_slowness, "1", term.SEEN, "calibration"),
        clock.move("optimizer/moved", plan.optimizer_bytes * (dense / parts + routed / expert_parts)),
    )
    overhead = term.add(
        "step/overhead",
        spent["host"].renamed("step/overhead/host"),
        term.leaf("step/overhead/fixed", rates.fixed, SECOND, term.SEEN, "calibration"),
    )
    time = term.add("step/time", compute, moved, communication, bubble, optimizer, overhead)
    return Step(time, dense + routed)


def best(steps: Iterable[tuple[Plan, Step]]) -> tuple[Plan, Step]:
    """The fastest of several plans for one row: where the source does not say, its authors took the best."""
    return min(steps, key=lambda pair: pair[1].time.value)


__all__ = ["GROUPS", "Cost", "Plan", "Rates", "Step", "best", "step"]

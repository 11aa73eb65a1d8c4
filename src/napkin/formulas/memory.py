"""Memory of one rank over a training step, moment by moment: forward, loss, backward, optimizer step.

States are divided by how their weights are sharded; activations come from the tape (activations.py), and the live
bytes within a piece's backward pass from replaying it (live.py). Every quantity of a layout may be an array.
Symbols: t, p, c, d, e tensor, pipeline, context, data and expert degrees, m micro-batches, v chunks a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd, prod

from napkin.elementwise import Number, ceil_div, ceiling, floor_div, is_array, maximum, minimum, ratio, where
from napkin.formulas import activations
from napkin.formulas.activations import Pass, total
from napkin.formulas.allocator import EXACT, Flow, Width
from napkin.formulas.frameworks import COST, FRONT, PLAIN, SLOTS, Framework
from napkin.formulas.implementations import EAGER, FROZEN_LAYERS, STORED, Code, Tuning
from napkin.formulas.layer import (
    EXPERT,
    REPLICATED,
    TABLES,
    VOCABULARY,
    AttentionCore,
    Embedding,
    Layer,
    Matmul,
    Model,
    Norm,
    Operation,
    Pattern,
    Reused,
    Rotary,
    Router,
    Stack,
    Weight,
)
from napkin.formulas.live import Replay, replay
from napkin.formulas.lowering import Shape, Split, beside, is_plain
from napkin.formulas.optimizer_step import temporaries
from napkin.formulas.optimizers import OPTIMIZERS, Optimizer, State, state_bytes
from napkin.formulas.order import Counts, Order, order_of
from napkin.formulas.tape import INPUT_LABEL, WEIGHT_COPY, Storage, sized
from napkin.inputs.plan import OPERATIONS, Layout, Precision, held_by
from napkin.record import record, replace

LAYERS_ON_THE_WAY = 2
"""Layers whose activations are on the card while activations are offloaded: one being written, one being read."""
STASHED = 5
"""Tensors on their way to the host at once (torchtune training/_activation_offloading.py, max_fwd_stash_size)."""
BLOCKS_IN_FLIGHT = 2
"""Blocks whose parameters fully sharded data parallelism holds gathered: the one in use and the one prefetched."""


@record
class Setup:
    """What a step runs: everything that its memory depends on, but for the model and the hardware.

    shard    ranks that divide states under ZeRO, fewer than all where whole groups are kept (hybrid sharding); 0: all
    ema      a running mean of the parameters is kept beside them, in the states' type
    offload  what stands in the host's memory between its uses: optimizer, activations, parameters (a rank's own part of
             them and of their gradients, as FSDP's CPUOffloadPolicy keeps both; the optimizer works on them there)
    framework    whose habits beside the code's the run has (frameworks.py)
    in_backward  the optimizer steps each tensor as soon as its gradient is there, which is then let go
    wide_tables  an 8-bit optimizer keeps the states of table and head in 32 bits (transformers' Trainer does)
    frozen   so many first layers, and the table before them, are not trained and keep nothing; None: all are trained
    widths   how far figures can lie from the formulas, on one card and on several: where what is kept was counted on
             the code itself, where not
    """

    code: Code
    layout: Layout
    precision: Precision
    optimizer: Optimizer
    form: str
    attention: str = "flash"
    dropout: float = 0.0
    shard: Number = 0
    ema: bool = False
    offload: tuple[str, ...] = ()
    framework: Framework = PLAIN
    in_backward: bool = False
    wide_tables: bool = False
    frozen: int | None = None
    widths: tuple[tuple[Width, Width], tuple[Width, Width]] = ((EXACT, EXACT), (EXACT, EXACT))

    @property
    def layers_in(self) -> Precision:
        """The policy as the layers see it: sharded fp32 parameters reach them in the compute type."""
        if not self.framework.gathers or self.precision.compute not in ("bf16", "fp16"):
            return self.precision
        return replace(self.precision, param=self.precision.compute)

    @property
    def bucket(self) -> Number:
        """Bytes of the bucket that gradients are reduced in: of the type that they are added up in."""
        return self.framework.bucket * max(sized(1, self.precision.grad), self.framework.accumulator)

    @property
    def shards(self) -> Number:
        """Ranks over which ZeRO divides dense states."""
        return where(self.shard > 0, self.shard, self.layout.dp * self.layout.cp)


# --- weights ---------------------------------------------------------------------------------------------------------


def weights_of(operations: Iterable[Operation]) -> Iterator[Weight]:
    """Parameter tensors of operations, those of shared blocks left out."""
    for op in operations:
        if not isinstance(op, Reused):
            yield from op.weights()


@record
class Held:
    """Elements of weights on one rank before data parallelism divides them: experts' apart, for fewer ranks share
    them. `states`: bytes of the optimizer's states by name, the same way; `frozen`: bytes of weights that are not
    trained, which `dense` and `expert` leave out."""

    dense: Number
    expert: Number
    states: tuple[tuple[str, Number, Number], ...] = ()
    tensors: Number = 0
    frozen: Number = 0

    @property
    def all(self) -> Number:
        return self.dense + self.expert


def divided(weight: Weight, layout: Layout) -> Number:
    """Over how many ranks tensor and expert parallelism divide a tensor."""
    if weight.shard == EXPERT:
        return layout.ep * layout.etp
    return 1 if weight.shard == REPLICATED else layout.tp


def held(operations: Iterable[Operation], setup: Setup) -> Held:
    """What one rank holds of these operations' weights."""
    if setup.code.tuning is not None:
        return tuned(tuple(operations), setup, setup.code.tuning)
    dense: Number = 0
    expert: Number = 0
    frozen: Number = 0
    tensors = 0
    states: dict[str, list[Number]] = {}
    kind = setup.precision.state
    for weight in weights_of(operations):
        ways = divided(weight, setup.layout)
        part = ceil_div(weight.count, ways)
        if not weight.trained:
            frozen = frozen + part * sized(1, setup.precision.param)
            continue
        is_expert = weight.shard == EXPERT
        dense, expert = (dense, expert + part) if is_expert else (dense + part, expert)
        tensors += 1
        shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
        wide = setup.wide_tables and weight.shard == VOCABULARY
        optimizer = OPTIMIZERS[setup.optimizer.name.removesuffix("-8bit")] if wide else setup.optimizer
        for state in optimizer_of(weight, optimizer).kept(shape):
            both = states.setdefault(state.name, [0, 0])
            size = _state_size(state, shape, "fp32" if wide else kind)
            both[is_expert] = both[is_expert] + ceil_div(size, ways)
    return Held(dense, expert, tuple((name, *both) for name, both in states.items()), tensors, frozen)


def optimizer_of(weight: Weight, optimizer: Optimizer) -> Optimizer:
    """AdamW where the optimizer takes matrices alone: for vectors, the table and the head (Muon's authors' advice)."""
    if optimizer.only_matrices and (len(weight.shape) != 2 or weight.copies > 1 or weight.shard == VOCABULARY):
        return OPTIMIZERS["adamw"]
    return optimizer


PROMPT = 10
"""Tokens of the prompt that an adapter's attention reads (LitGPT, adapter_prompt_length)."""


def tuned(operations: tuple[Operation, ...], setup: Setup, tuning: Tuning) -> Held:
    """What one rank holds of a frozen network: its weights as they are stored, and what is trained beside them.

    lora r·(d_in + d_out) a product · adapter a prompt of 10 embeddings and a gate a head · adapter_v2 that, a scale
    and a bias of d_out a product, and the norms' weights"""
    width = sized(1, setup.precision.param)
    stored = STORED.get(tuning.quantised, width)
    trained: list[tuple[int, ...]] = []
    frozen: Number = 0
    for op in operations:
        if isinstance(op, Reused):
            continue
        is_narrow = isinstance(op, Matmul) and not is_plain(op, tuning)
        for weight in op.weights():
            part = ceil_div(weight.count, divided(weight, setup.layout))
            if tuning.method == "adapter_v2" and isinstance(op, Norm):
                trained.append(weight.shape)
            else:
                frozen = frozen + part * (stored if is_narrow and len(weight.shape) > 1 else width)
        if isinstance(op, Matmul):
            pairs, made = beside(op, operations, setup.code, tuning)
            if pairs:
                trained += [(tuning.rank * pairs, op.d_in), (made, tuning.rank)]
            if tuning.method == "adapter_v2":
                trained += [(op.d_out,), (op.d_out,)]
        elif isinstance(op, AttentionCore) and tuning.method.startswith("adapter"):
            trained += [(PROMPT, op.heads * op.v_dim), (op.heads,)]
    states: dict[str, Number] = {}
    for shape in trained:
        matrix = len(shape) == 2
        for state in (setup.optimizer if matrix or not setup.optimizer.only_matrices else OPTIMIZERS["adamw"]).kept(
            shape
        ):
            states[state.name] = states.get(state.name, 0) + _state_size(state, shape, setup.precision.state)
    elements = sum(prod(shape) for shape in trained)
    named = tuple((name, size, 0) for name, size in states.items())
    return Held(elements, 0, named, len(trained), ceiling(frozen))


def _state_size(state: State, shape: tuple[int, ...], kind: str) -> Number:
    return state_bytes(state, shape, sized(1, kind) if kind not in ("mxfp8", "mxfp4", "nvfp4") else 1)


def gathered(parts: Sequence[tuple[Number, Held]]) -> Held:
    """The sum of what several pieces hold, each so many times."""
    names: dict[str, list[Number]] = {}
    for count, part in parts:
        for name, dense, expert in part.states:
            both = names.setdefault(name, [0, 0])
            both[0], both[1] = both[0] + count * dense, both[1] + count * expert
    return Held(
        total(n * p.dense for n, p in parts),
        total(n * p.expert for n, p in parts),
        tuple((name, *both) for name, both in names.items()),
        total(n * p.tensors for n, p in parts),
        total(n * p.frozen for n, p in parts),
    )


# --- stages ----------------------------------------------------------------------------------------------------------


@record
class Stage:
    """What a pipeline stage holds: layers `low` up to `high`, how many of them of each sort, of each kind, and of each
    kind checkpointed; whether the ends.

    chunks   micro-batches in flight, in parts of one of its `parts` model chunks
    delayed  micro-batches of which only the weights' gradients are not made yet (zero-bubble schedules)"""

    index: Number
    low: Number
    high: Number
    sorts: Counts
    layers: tuple[Number, ...]
    checkpointed: tuple[Number, ...]
    first: Number
    last: Number
    chunks: Number
    parts: Number
    delayed: Number
    kinds: tuple[Layer, ...]

    @property
    def in_flight(self) -> Number:
        """Micro-batches whose activations it holds."""
        return ratio(self.chunks, self.parts)


def shares(depth: int, stages: Number, index: Number, partition: str, costs: tuple[int, int]) -> tuple[Number, Number]:
    """The first layer of a stage and the one after its last; `costs`: matrix weights of a layer and of the head.

    even   as evenly as can be, the earlier stages one more       front  ⌈L/p⌉ on each, the last what is left
    slots  the table and the head take a layer's place each       cost   stage i ends with the layer that brings the
    weights multiplied above i + 1 of p equal shares of all (layers and head)"""
    if partition == FRONT:
        each = ceil_div(depth, stages)
        return minimum(index * each, depth), minimum((index + 1) * each, depth)
    if partition == COST:
        layer, head = costs
        crossing = [(depth * layer + head) * i // (stages * layer) + 1 for i in (index, index + 1)]
        low = where(index == 0, 0, minimum(crossing[0], depth))
        return low, where(index == stages - 1, depth, minimum(crossing[1], depth))
    places = depth + 2 * (partition == SLOTS)
    least, more = places // stages, places % stages
    low = index * least + minimum(index, more)
    high = low + least + (index < more) * 1
    if partition == SLOTS:
        return maximum(low - 1, 0), minimum(high - 1, depth)
    return low, high


def _matrix_weights(operations: Iterable[Operation]) -> int:
    return sum(weight.count for weight in weights_of(operations) if len(weight.shape) > 1)


def bounds(step: Step, index: Number) -> tuple[Number, Number]:
    """The first layer of stage `index` and the one after its last."""
    if step.setup.layout.stages:
        return held_by(step.setup.layout.stages, index)
    partition, stack = step.setup.framework.partition, step.stack
    costs = (1, 0)
    if partition == COST:
        costs = (max(_matrix_weights(layer.operations) for layer in stack.layers), _matrix_weights(stack.after))
    return shares(step.order.depth, step.setup.layout.pp, index, partition, costs)


def stage_of(step: Step, index: Number) -> Stage:
    """What stage `index` of a pipeline holds."""
    order, p = step.order, step.setup.layout.pp
    low, high = bounds(step, index)
    sorts = order.between(low, high)
    layers: list[Number] = [0] * len(step.run.kinds)
    again: list[Number] = [0] * len(step.run.kinds)
    for sort, count in zip(order.sorts, sorts, strict=True):
        layers[sort.kind] = layers[sort.kind] + count
        again[sort.kind] = again[sort.kind] + count * sort.again
    return Stage(
        index,
        low,
        high,
        sorts,
        tuple(layers),
        tuple(again),
        (index == 0) * 1,
        (index == p - 1) * 1,
        *in_flight(step.setup.layout, index),
        step.run.kinds,
    )


def places(step: Step) -> tuple[Number, ...]:
    """Stages of which one is the worst, each once; of arrays of layouts some are the same where there are few.

    Micro-batches in flight never grow along the pipeline, so that of stages with equal layers, ends apart, the first is
    the worst. With one sort of layer all but the ends are like the first, which has the table too, or smaller (the
    second is the first that is whole where table and head take a layer's place). Layers that differ repeat with a
    period, and so do the stages of one size: of each segment as many are looked at as differ."""
    found = _places(step)
    return found if is_array(step.setup.layout.pp) else tuple(dict.fromkeys(found))


def _places(step: Step) -> tuple[Number, ...]:
    order, layout = step.order, step.setup.layout
    p, partition = layout.pp, step.setup.framework.partition
    ends = (0 * p, p - 1)
    if len(order.segments) == 1 and order.segments[0].period == 1:
        if layout.stages or layout.schedule == "zero-bubble":
            found = [place for _, begin, end, _ in _runs(step) for place in (begin, begin + 1, end - 2, end - 1)]
            inside = tuple(minimum(maximum(place, 0), p - 1) for place in found)
            return (*ends, *inside)
        return (*ends, minimum(1, p - 1)) if partition == SLOTS else ends
    most = int(maximum(p, 1).max()) if is_array(p) else p
    dealt = partition != COST or layout.stages
    looked = _looked_at(step) if dealt and len(order.segments) < most else None
    if looked is None or len(looked) >= most:
        return (*ends, *(minimum(i, p - 1) for i in range(1, most - 1)))
    inner = [minimum(maximum(i, 0), p - 1) for i in looked]
    return (*ends, *(inner if is_array(p) else sorted(inner)))


def _looked_at(step: Step) -> list[Number]:
    """Stages that differ in their layers, the first of each makeup among them; under a zero-bubble schedule, in which
    the last of them may hold the most, that one too."""
    order, p = step.order, step.setup.layout.pp
    found: list[Number] = []
    for size, begin, end, origin in _runs(step):
        for segment in order.segments:
            here = maximum(begin, floor_div(segment.start - origin, maximum(size, 1)))
            alike = segment.period if is_array(p) else segment.period // gcd(segment.period, max(size, 1))
            found += [here + i for i in range(alike + 1)]
            if step.setup.layout.schedule == "zero-bubble":
                there = minimum(end - 1, floor_div(segment.end - 1 - origin, maximum(size, 1)))
                found += [there - i for i in range(alike + 1)]
    return found if is_array(p) else list(dict.fromkeys(found))


def _runs(step: Step) -> list[tuple[Number, Number, Number, Number]]:
    """(layers of a stage, the first stage, one after the last, origin) of runs of stages of one size: stage i begins
    with layer i · size + origin."""
    layout, partition, depth = step.setup.layout, step.setup.framework.partition, step.order.depth
    if layout.stages:
        found: list[tuple[Number, Number, Number, Number]] = []
        begin = low = 0
        for count, size in layout.stages:
            found.append((size, begin, begin + count, low - begin * size))
            begin, low = begin + count, low + count * size
        return found
    p = layout.pp
    ahead = (partition == SLOTS) * 1
    dealt = depth + 2 * ahead
    least, more = (ceil_div(dealt, p), 0 * p) if partition == FRONT else (dealt // p, dealt % p)
    return [(least + 1, 0 * p, more, -ahead), (least, more, p, more - ahead)]


def in_flight(layout: Layout, index: Number) -> tuple[Number, Number, Number]:
    """(chunks of micro-batches whose activations a stage holds at once, chunks of one, micro-batches whose weight
    gradients wait).

    1F1B holds min(p − i, m); interleaved, of v chunks each, 2(p − i − 1) + (v − 1)p + 1 chunks; GPipe m (Narayanan et
    al. 2021). Zero-bubble (ZB-H1) as 1F1B, and on stage i the gradients of i micro-batches' weights wait, so that all
    stages have p on their way (Qi et al. 2023, arXiv:2401.10241, section 2)."""
    p, v, m = layout.pp, layout.vp, layout.micro_batches
    if layout.schedule == "gpipe":
        return m, 1, 0
    ahead = minimum(p - index, m)
    if layout.schedule == "zero-bubble":
        return ahead, 1, minimum(index, m - ahead)
    chunks = minimum(2 * (p - index - 1) + (v - 1) * p + 1, m * v)
    return where(v > 1, chunks, ahead), v, 0


# --- moments ---------------------------------------------------------------------------------------------------------

BUCKETS = ("parameters", "gradients", "optimizer", "activations", "weight_casts", "inputs", "temporaries")


@record
class Moment:
    """Live bytes at one moment, by bucket."""

    name: str
    parameters: Number
    gradients: Number
    optimizer: Number
    activations: Number
    weight_casts: Number
    inputs: Number
    temporaries: Number

    @property
    def live(self) -> Number:
        return total(getattr(self, bucket) for bucket in BUCKETS)


@record
class Rank:
    """Memory of a rank of one stage.

    saved    one micro-batch's saved activations      casts  autocast's weight copies that it keeps
    each     of them, what each other micro-batch on its way keeps: the head is done with one before the next, but in
             GPipe               delayed  bytes of one that waits for its weights' gradients
    states   bytes of the optimizer's states by name, master weights included
    between  what is live when the forward pass is over, and when the backward pass is
    """

    stage: Stage
    held: Held
    parameters: Number
    gradients: Number
    states: tuple[tuple[str, Number], ...]
    saved: Number
    casts: Number
    each: Number
    delayed: Number
    moments: tuple[Moment, ...]
    between: tuple[Moment, ...] = ()

    @property
    def waiting(self) -> Number:
        """Activations of the other micro-batches on their way."""
        stage = self.stage
        return ceil_div(self.each * (stage.chunks - stage.parts), stage.parts) + stage.delayed * self.delayed

    @property
    def optimizer(self) -> Number:
        return total(size for _, size in self.states)

    @property
    def live(self) -> Number:
        return maximum(*(moment.live for moment in self.moments))

    def flow(self, setup: Setup) -> Flow:
        """What stands at the optimizer step, and what passes in the passes before it."""
        *passes, step = self.moments
        bucket = setup.bucket
        passing = maximum(*(m.activations + m.weight_casts + m.inputs + m.temporaries for m in passes)) - bucket
        layout = setup.layout
        degrees = (layout.tp, layout.pp, layout.cp, layout.dp)
        parts = total(where(d > 1, where(d < layout.gpus, 1, 0), 0) for d in degrees)
        return Flow(step.live, passing, where(layout.gpus > 1, 1 + parts, 0))


@record
class Weights:
    """What one rank holds of what stands before the layers, of a layer of each kind, of what stands after them, and of
    what several layers share; `head` is `after` with the table where both are one, and `table` that table."""

    before: Held
    layers: tuple[Held, ...]
    after: Held
    shared: Held | None
    head: Held
    table: Held


@record
class Step:
    """One model's pass on the tape, with the replay of each piece, its weights and the order of its layers: what all
    stages share. `again`: the replays of layers that are computed again; `first`: of the first layer,
    the last to let go of what layers share."""

    model: Model
    stack: Stack
    setup: Setup
    run: Pass
    before: Replay
    layers: tuple[Replay, ...]
    after: Replay
    weights: Weights
    order: Order
    again: tuple[Replay, ...] = ()
    first: Replay | None = None

    def under(self, setup: Setup) -> Step:
        """The same with another setup that changes nothing on the tape."""
        weights = _weights(self.model, self.stack, setup, self.run.kinds)
        return rerun(replace(self, setup=setup, weights=weights, order=_order(self.run, setup)))


def prepare(model: Model, setup: Setup) -> Step:
    """Run the model's decoder once on the tape, forwards and backwards."""
    layout = setup.layout
    stack = one_stack(model)
    if setup.code.crops:
        stack = cropped(stack, layout.seq)
    two = len(model.stacks) > 1
    split = Split(layout.tp, layout.cp, layout.ep, where(layout.sp == 1, layout.tp, 1), layout.etp)
    run = activations.forward(
        model,
        stack,
        setup.code,
        Shape(layout.micro, layout.target or layout.seq, layout.seq) if two else Shape(layout.micro, layout.seq),
        split,
        setup.layers_in,
        setup.attention,
        setup.dropout,
        layout.recompute.kind == "selective",
    )
    residual = run.after.input
    step = Step(
        model,
        stack,
        setup,
        run,
        replay(run.before.nodes, residual, setup.in_backward),
        tuple(replay(piece.nodes, piece.input, setup.in_backward) for _, piece in run.layers),
        replay(run.after.nodes, 0, setup.in_backward),  # the root gradient stays as long as the backward pass
        _weights(model, stack, setup, run.kinds),
        _order(run, setup),
        first=_first(run, setup.in_backward),
    )
    return rerun(step)


def _first(run: Pass, stepped: bool) -> Replay | None:
    """The first layer's replay, with which the rotary tables go; None where no layer keeps any."""
    number = next((kind for _, runs in run.patterns for _, kind in runs), None)
    if number is None or not run.layers[number][1].shared:
        return None
    piece = run.layers[number][1]
    return replay(piece.nodes, piece.input, stepped, alone=True)


def rerun(step: Step) -> Step:
    """A step with its layers' replays for when they are computed again, where they are."""
    if step.again or step.setup.layout.recompute.kind in ("none", "selective"):
        return step
    stepped = step.setup.in_backward
    return replace(step, again=tuple(replay(p.nodes, p.input, stepped, True) for _, p in step.run.layers))


def _order(run: Pass, setup: Setup) -> Order:
    tuning = setup.code.tuning
    asleep = FROZEN_LAYERS.get(tuning.method, 0) if tuning is not None else setup.frozen or 0
    return order_of(run.patterns, setup.layout.recompute, asleep)


def _weights(model: Model, stack: Stack, setup: Setup, kinds: Iterable[Layer]) -> Weights:
    """A tied head's matrix is the table; on another stage than the table's it is a copy."""
    after = head = held(stack.after, setup)
    table = held((table_of(stack),), setup)
    if model.tied:
        both = where(setup.layout.pp == 1, 1, 0)
        minus = tuple((n, -d * both, -e * both) for n, d, e in table.states)
        states = gathered([(1, after), (1, Held(0, 0, minus))]).states
        tensors = after.tensors - both * table.tensors
        frozen = after.frozen - both * table.frozen
        after = Held(after.dense - both * table.dense, after.expert, states, tensors, frozen)
    layers = tuple(held(layer.operations, setup) for layer in kinds)
    shared = held(model.shared, setup) if model.shared else None
    before = held(stack.before, setup)
    return Weights(before if setup.frozen is None else still(before, setup), layers, after, shared, head, table)


def one_stack(model: Model) -> Stack:
    """The decoder; with an encoder, both as one stack, the encoder's last operations a layer between them."""
    last = model.stacks[-1]
    if len(model.stacks) == 1:
        return last
    before = tuple(op for stack in model.stacks for op in stack.before)
    patterns: list[Pattern] = []
    for stack in model.stacks[:-1]:
        patterns += stack.patterns
        if stack.after:
            patterns.append((1, ((1, Layer(f"end of the {stack.name}", stack.after)),)))
    return Stack("both", before, (*patterns, *last.patterns), last.after)


def table_of(stack: Stack) -> Operation:
    """The token table that a tied head shares: a decoder's own, or the one that it shares with its encoder."""
    tables = [op for op in stack.before if isinstance(op, Embedding) and op.role == "token"]
    return tables[-1] if tables else stack.before[0]


def cropped(stack: Stack, length: Number) -> Stack:
    """A stack whose learnt positions are cut to the sequences that it trains on (nanoGPT's crop_block_size)."""
    before = tuple(
        replace(op, rows=min(op.rows, int(length))) if isinstance(op, Embedding) and op.role == "position" else op
        for op in stack.before
    )
    return replace(stack, before=before)


def rank_of(step: Step, index: Number) -> Rank:
    """Memory of the ranks of stage `index`."""
    setup = step.setup
    layout, precision = setup.layout, setup.precision
    stage = stage_of(step, index)
    parts = parts_of(step, stage)
    mine = gathered(parts)
    shards = setup.shards  # of dense weights
    expert_shards = layout.with_experts(shards)

    def sharded(dense: Number, expert: Number, on: Number) -> Number:
        return where(on, ceil_div(dense, shards) + ceil_div(expert, expert_shards), dense + expert)

    weight, grad = sized(1, precision.param), sized(1, precision.grad)
    parameters = sharded(mine.dense * weight + mine.frozen, mine.expert * weight, layout.zero >= 3)
    gradients = sharded(mine.dense * grad, mine.expert * grad, layout.zero >= 2)
    if setup.framework.keeps_stage:  # summed whole over a pipeline's micro-batches, reduced after the last
        gradients = where((layout.pp > 1) & (layout.zero >= 2), mine.all * grad, gradients)
    gradients = gradients + setup.framework.accumulator * mine.all
    if setup.in_backward:
        gradients = maximum(0, *(n for n, _, _ in _tensor_sizes(step))) * grad
    counted = () if setup.optimizer.paged else mine.states  # the allocator sees no managed memory
    states = [(name, sharded(dense, expert, layout.zero >= 1)) for name, dense, expert in counted]
    if precision.master is not None:
        size = sized(1, precision.master)
        states.append(("master", sharded(mine.dense * size, mine.expert * size, layout.zero >= 1)))
    if "optimizer" in setup.offload:
        states = []
    if "parameters" in setup.offload:
        parameters, gradients = 0 * parameters, 0 * gradients
    if setup.ema:  # no part of the optimizer, which may stand in the host's memory
        size = sized(1, precision.state)
        states.append(("ema", sharded(mine.dense * size, mine.expert * size, layout.zero >= 1)))
    layers, casts, outside = _saved(step, stage)
    saved = layers + outside
    head = 0 if layout.schedule == "gpipe" else stage.last * step.run.after.saved
    rank = Rank(
        stage, mine, parameters, gradients, tuple(states), saved, casts, saved - head, _delayed(step, stage), ()
    )
    moments, between = _moments(step, rank, parts)
    return replace(rank, moments=moments, between=between)


def _delayed(step: Step, stage: Stage) -> Number:
    """Bytes that a micro-batch keeps until its weights' gradients are made, after those of its activations."""
    run = step.run
    layers = _dot(stage.layers, (piece.delayed for _, piece in run.layers))
    return layers + stage.first * run.before.delayed + stage.last * run.after.delayed


def still(part: Held, setup: Setup) -> Held:
    """A piece whose weights are not trained."""
    return Held(0, 0, frozen=part.all * sized(1, setup.precision.param) + part.frozen)


def parts_of(step: Step, stage: Stage) -> list[tuple[Number, Held]]:
    """(how many, what it holds) for the table, each kind of layer and the head on a stage, what layers share, and each
    kind of layer that is frozen."""
    weights, setup = step.weights, step.setup
    shared = [(1, weights.shared)] if weights.shared is not None else []
    layers = list(zip(stage.layers, weights.layers, strict=True))
    frozen: list[tuple[Number, Held]] = []
    if setup.frozen is not None:
        fixed: list[Number] = [0] * len(layers)
        for n, sort in zip(stage.sorts, step.order.sorts, strict=True):
            fixed[sort.kind] = fixed[sort.kind] + n * sort.asleep
        frozen = [(n, still(part, setup)) for n, part in zip(fixed, weights.layers, strict=True)]
        layers = [(n - less, part) for (n, part), less in zip(layers, fixed, strict=True)]
    return [(stage.first, weights.before), *layers, (stage.last, weights.after), *shared, *frozen]


def _saved(step: Step, stage: Stage) -> tuple[Number, Number, Number]:
    """(layers', weight copies', outside) bytes of one micro-batch on a stage."""
    run, recompute = step.run, step.setup.layout.recompute
    casts = stage.first * run.before.casts + stage.last * run.after.casts
    shared: dict[int, tuple[Storage, Number]] = {}  # by storage: it, and how many layers keep it
    for n, sort in zip(stage.sorts, step.order.sorts, strict=True):
        piece = run.layers[sort.kind][1]
        if not sort.again and not sort.asleep:
            casts = casts + n * piece.casts
            for storage in piece.shared:
                shared[id(storage)] = (storage, shared.get(id(storage), (storage, 0))[1] + n)
    size = activations.group_size(recompute, step.order.depth)
    layers = _of_layers(step, stage.sorts, ceil_div(total(stage.checkpointed), size))
    passed = _masks(step, stage, stage.checkpointed) if step.setup.code.passes_mask else 0
    once = [(s.kind, where(keep > 0, s.size * s.kept, 0)) for s, keep in shared.values()]
    tables = total(size for kind, size in once if kind != WEIGHT_COPY)
    casts = casts + total(size for kind, size in once if kind == WEIGHT_COPY)
    before = run.before.saved - run.first * _first_keeps_input(step)  # one tensor, kept twice
    outside = stage.first * before + stage.last * run.after.saved + tables + passed
    return layers, casts, outside


def _first_keeps_input(step: Step) -> bool:
    """Whether the first layer keeps the residual stream as it comes, or is checkpointed and keeps nothing else."""
    if not step.order.segments:
        return False
    sort = step.order.sorts[step.order.segments[0].runs[0][2]]
    piece = step.run.layers[sort.kind][1]
    return not sort.asleep and (sort.again or any(s.label == INPUT_LABEL for s in piece.kept))


def _of_layers(step: Step, counts: Counts, checkpoints: Number) -> Number:
    """Bytes that so many layers of each sort keep, those of them that are checkpointed so many checkpoints."""
    setup = step.setup
    layers: Number = 0
    inputs: Number = 0
    pieces = [piece for _, piece in step.run.layers]
    for n, sort in zip(counts, step.order.sorts, strict=True):
        piece = pieces[sort.kind]
        if sort.asleep and setup.frozen is not None:
            continue
        if sort.again:
            inputs = inputs + n * piece.input
            layers = layers + n * piece.chosen * (setup.layout.recompute.kind == OPERATIONS)
        elif not sort.asleep:
            layers = layers + n * piece.saved
    if activations.group_size(setup.layout.recompute, step.order.depth) > 1:
        inputs = checkpoints * maximum(0, *(piece.input for piece in pieces))
    if "activations" in setup.offload:  # copied to the host as they are made: two layers' worth is on its way
        layers = minimum(layers, LAYERS_ON_THE_WAY * maximum(0, *(piece.saved for piece in pieces)))
        inputs = minimum(inputs, STASHED * maximum(0, *(piece.input for piece in pieces)))
    return layers + inputs


def _moments(
    step: Step, rank: Rank, parts: Sequence[tuple[Number, Held]]
) -> tuple[tuple[Moment, ...], tuple[Moment, ...]]:
    """The moments of a step at which a rank's live bytes can be the largest, and those between its phases."""
    setup, run, stage = step.setup, step.run, rank.stage
    layout, precision = setup.layout, setup.precision
    grad = sized(1, precision.grad)
    tokens = layout.micro * (layout.seq // layout.cp)
    inputs = 2 * tokens * 8
    inputs = stage.first * inputs + buffers(step, stage)
    # gradients stand through the whole pass where several micro-batches add to them
    unsynced = setup.framework.unsynced * where(layout.zero >= 2, where(setup.shards > 1, 1, 0), 0)
    buffered = (setup.framework.accumulator > 0) | setup.framework.wide_gradients
    several = (layout.micro_batches > 1) | buffered
    standing = where(several & (not setup.in_backward), rank.gradients, 0)
    standing = standing + unsynced * total(n * _flat(part, grad) for n, part in parts)
    # a layer's new gradient stands beside the sum that it is added to
    added = unsynced * maximum(0, *(_flat(part, grad) for _, part in parts))
    at_once = 0 if setup.in_backward or "parameters" in setup.offload else where(several, 0, 1)
    growing = at_once * where(layout.zero >= 2, 0, 1)
    sharded = at_once * where(layout.zero >= 2, 1, 0)
    waiting = rank.waiting
    bucket = setup.bucket
    gathered_bytes = _gathered(step, stage, parts) + bucket
    at_the_end = _gathered(step, stage, parts, 0) + bucket if setup.framework.frees_last else gathered_bytes

    def moment(name: str, gradients: Number, kept: Number, casts: Number, temporaries: Number) -> Moment:
        held_now = (at_the_end if name == "loss" else gathered_bytes) + temporaries
        return Moment(
            name,
            rank.parameters,
            gradients,
            rank.optimizer,
            waiting + kept,
            casts,
            inputs,
            held_now,
        )

    # what checkpointed layers' code refers to, but for the tables that other layers keep anyway
    again = total(stage.checkpointed)
    masks = _masks(step, stage, stage.checkpointed)
    tables = _tables(step, stage)
    lent = _lent(step, stage)
    closure = where(again > 0, run.closure + lent, 0) + tables + masks * (not setup.code.passes_mask)
    cached = total(n * piece.casts for n, (_, piece) in zip(stage.checkpointed, run.layers, strict=True))
    cached = cached + total(n * piece.biases for n, (_, piece) in zip(stage.layers, run.layers, strict=True))
    one = stage.last * run.loss
    # what the model's code holds while its layers run
    keeps_stream = again > 0
    if run.layers and any(s.label == INPUT_LABEL for s in run.layers[0][1].kept):
        keeps_stream = again >= 0
    looked_up = stage.first * (run.embedded + where(keeps_stream, 0, run.stream))
    all_masks = _masks(step, stage, stage.layers)
    around = run.closure + tables + where(again > 0, masks * (not setup.code.passes_mask), 0) + looked_up
    around = around + all_masks - where(again > 0, masks, 0) + lent
    to_the_loss = looked_up * (setup.code.frame.embeddings == "loss")
    made_casts = rank.casts + cached - stage.last * run.after.casts
    at_the_head = run.after.burst - run.after.saved - run.after.casts
    forward = moment(
        "forward", standing, rank.saved, rank.casts + cached, closure + to_the_loss + stage.last * at_the_head
    )
    before_head = rank.saved - stage.last * run.after.saved
    if run.layers:
        forward = larger(forward, moment("forward", standing, before_head, made_casts, around + stage.last * run.final))
    after_forward = moment("forward", standing, rank.saved, rank.casts, closure + one + stage.last * run.held)
    closure = closure + stage.last * run.held
    at_loss = closure + 2 * one + stage.last * step.after.peak
    loss = moment("loss", standing, rank.saved, rank.casts, at_loss)
    # backwards through the layers
    kept, casts = rank.saved - stage.last * run.after.saved, rank.casts - stage.last * run.after.casts
    first_made = stage.last * step.weights.head.all * grad  # a tied table's gradient comes from the head first
    if setup.in_backward and step.model.tied:  # the table's step waits for its own part of the gradient
        standing = standing + stage.last * step.weights.table.all * grad

    def gradients_of(made: Number) -> Number:
        return standing + growing * made + sharded * ceil_div(made, setup.shards)

    worst = moment("backward", 0, 0, 0, 0)
    for turn in _turns(step, stage, grad, gradients_of):
        left = kept - turn.gone
        bursting = moment("forward", standing, left, made_casts - turn.later, turn.bursts + around)
        forward = larger(forward, bursting, turn.valid)
        now = moment(
            "backward",
            gradients_of(first_made + turn.made),
            left - turn.shared,
            casts - turn.uncast,
            closure + added + 2 * one + turn.needs - (masks - turn.masks) * (not setup.code.passes_mask),
        )
        worst = larger(worst, now, turn.valid)
    made = first_made + total(n * part.all for n, part in parts[1 : 1 + len(step.layers)]) * grad
    casts = casts - total(
        n * run.layers[sort.kind][1].casts * (not (sort.again or sort.asleep))
        for n, sort in zip(stage.sorts, step.order.sorts, strict=True)
    )
    # the table's two gradients, where the head shares it, are added into a third
    both = where(layout.pp == 1, _table(step) * grad, 0) if step.model.tied else 0
    before = maximum(step.before.peak, step.before.end + both) * (setup.frozen is None)
    end = moment(
        "backward",
        gradients_of(made),
        # what layers share has gone with the first of them
        rank.delayed if layout.schedule == "zero-bubble" else stage.first * run.before.saved,
        casts,
        stage.first * (run.after.input + before) + stage.last * run.held + 2 * one,
    )
    worst = larger(worst, end)
    step_moment = Moment(
        "step",
        rank.parameters,
        rank.gradients,
        rank.optimizer,
        0,
        0,
        inputs,
        optimizer_temporaries(step, rank) + setup.bucket + one,
    )
    after_backward = moment("backward", rank.gradients, 0, 0, one)
    return (forward, loss, worst, step_moment), (after_forward, after_backward)


@record
class Turn:
    """A layer whose backward pass is at its peak.

    valid  whether the stage has it        made   gradients of the layers' weights that are there (bytes)
    later  weight copies of it and of the layers behind it, whether autograd keeps them or autocast's cache
    gone   activations that are free again     shared  those of them that layers share
    uncast autocast's weight copies that are free again
    needs  what the layer's backward holds: its gradients, and what runs again
    masks  causal masks that checkpointed layers up to it refer to
    bursts what the layer's tensors that come and go take in the forward pass beyond what it keeps
    """

    valid: Number
    made: Number
    gone: Number
    shared: Number
    uncast: Number
    needs: Number
    bursts: Number
    later: Number
    masks: Number


Corner = tuple[Number, int, Counts, Number, Number]
"""Whether it is there, its sort, layers of each sort up to it, checkpoints up to it, bytes that run again with it."""


def _turns(step: Step, stage: Stage, grad: Number, gradients_of: Callable[[Number], Number]) -> Iterator[Turn]:
    """Layers of a stage where a backward pass can hold the most, from the last to the first: live bytes change by the
    same step with every layer of a sort, so that the corners of their order are enough (order.py), and of those of one
    sort the one where the steps so far add up to the most. What layers share goes with the last of its sorts."""
    run, order, recompute = step.run, step.order, step.setup.layout.recompute
    chooses = recompute.kind == OPERATIONS
    offloads = "activations" in step.setup.offload
    pieces = [run.layers[sort.kind][1] for sort in order.sorts]
    idle = [sort.asleep and step.setup.frozen is not None for sort in order.sorts]  # no gradient reaches these
    weights = [step.weights.layers[sort.kind].all * grad * (not i) for i, sort in zip(idle, order.sorts, strict=True)]
    copies = [piece.casts * (not (one.again or one.asleep)) for one, piece in zip(order.sorts, pieces, strict=True)]
    cached = [piece.casts * (not one.asleep) + piece.biases for one, piece in zip(order.sorts, pieces, strict=True)]
    reruns = [(p.again - p.chosen * chooses) * one.again for one, p in zip(order.sorts, pieces, strict=True)]
    size = activations.group_size(recompute, order.depth)
    begin, end = order.before(stage.low), order.before(stage.high)
    whole = _of_layers(step, stage.sorts, ceil_div(stage.high - stage.low, size))

    def turn(valid: Number, sort: int, upto: Counts, checkpoints: Number, again: Number) -> Turn:
        done = [a - b for a, b in zip(end, upto, strict=True)]
        ahead = tuple(a - b for a, b in zip(upto, begin, strict=True))
        left = _of_layers(step, ahead, checkpoints)
        one, piece = order.sorts[sort], pieces[sort]
        peak = (step.again if one.again else step.layers)[one.kind].peak
        if step.first is not None and not one.again:
            only = total(a - b for a, b in zip(upto, begin, strict=True)) == 1
            peak = where(only & (stage.first == 1), step.first.peak, peak)
        needs = again + piece.input + peak
        if idle[sort]:
            needs = 0
        elif one.again:  # the layer's tensors come and go once more as it runs again
            needs = maximum(needs, again - reruns[sort] + piece.anew)
        own = piece.input + piece.chosen * chooses if one.again else piece.saved
        bursts = (piece.dropped if one.again or one.asleep else piece.burst) - own * (not one.asleep)
        later = _dot(done, cached) + cached[sort]
        counts: list[Number] = [0] * len(stage.kinds)
        for n, m, other in zip(upto, begin, order.sorts, strict=True):
            counts[other.kind] = counts[other.kind] + (n - m) * other.again
        masks = _masks(step, stage, tuple(counts))
        shared = _let_go(step, stage, ahead)
        return Turn(valid, _dot(done, weights), whole - left, shared, _dot(done, copies), needs, bursts, later, masks)

    stays = [_of_layers(step, tuple(int(i == j) for j in range(len(pieces))), 0) for i in range(len(pieces))]
    inputs = maximum(0, *(piece.input for piece in pieces)) if size > 1 else 0
    steps = (*stays, *weights, *copies, *cached, *reruns, inputs, stage.low, stage.high)

    def corners() -> Iterator[Corner]:
        if size == 1:
            spans = [(stage.low, stage.high)]
            if offloads:  # the first that are still on the card are counted apart
                first = where(total(stage.checkpointed) > 0, STASHED, LAYERS_ON_THE_WAY)
                cut = minimum(stage.low + first, stage.high)
                spans = [(cut, stage.high), (stage.low, cut)]
            for low, high in spans:
                for valid, sort, upto in order.turns(low, high):
                    yield valid, sort, upto, 0, reruns[sort]
            return
        for low, high in order.groups(stage.low, stage.high, size):
            above = order.before(low)
            for valid, sort, upto in order.turns(low, high):
                again = _dot([a - b for a, b in zip(upto, above, strict=True)], reruns)
                yield valid, sort, upto, ceil_div(high - stage.low, size), again

    def held(corner: Corner) -> tuple[object, Number, Number]:
        _, sort, upto, checkpoints, again = corner
        kept = checkpoints * inputs + _dot(upto, stays)
        done = [a - b for a, b in zip(end, upto, strict=True)]
        ahead = [a - b for a, b in zip(upto, begin, strict=True)]
        alike = (sort, *(n > 0 for n in ahead), sum(ahead) == 1)
        backward = kept + gradients_of(_dot(done, weights)) - _dot(done, copies) + again
        return alike, backward, kept - _dot(done, cached)

    found: Iterable[Corner] = corners()
    if not offloads and not any(is_array(number) for number in steps):
        found = largest(found, held)
    for corner in found:
        yield turn(*corner)


def largest(corners: Iterable[Corner], held: Callable[[Corner], tuple[object, Number, Number]]) -> Iterable[Corner]:
    """Of the corners that are alike, the one that holds the most backwards and the one that does forwards."""
    most: dict[object, tuple[Number, Corner]] = {}
    for corner in corners:
        alike, *both = held(corner)
        for way, size in enumerate(both):
            if (alike, way) not in most or size > most[alike, way][0]:
                most[alike, way] = (size, corner)
    return dict.fromkeys(corner for _, corner in most.values())


def _dot(counts: Iterable[Number], sizes: Iterable[Number]) -> Number:
    return total(n * size for n, size in zip(counts, sizes, strict=True))


def _table(step: Step) -> Number:
    """Numbers of the token table on a rank."""
    return total(ceil_div(w.count, divided(w, step.setup.layout)) for w in table_of(step.stack).weights())


def buffers(step: Step, stage: Stage) -> Number:
    """Bytes of the tensors that a stage's code registers beside its parameters (frames.py)."""
    setup, stack = step.setup, step.stack
    length = setup.layout.seq if setup.code.crops else step.model.max_length or setup.layout.seq
    depth = total(stage.layers)
    eager = setup.attention == EAGER or not setup.code.crops
    rotary = {
        (
            op.dim,
            op.table,
            setup.code.by_kind and any(isinstance(o, AttentionCore) and o.window for o in layer.operations),
        )
        for layer in stack.layers
        for op in layer.operations
        if isinstance(op, Rotary)
    }
    dims = {dim for dim, *_ in rotary}
    looked_up = [op.of if isinstance(op, Reused) else op for op in stack.before]
    tables = [op for op in looked_up if isinstance(op, Embedding) and op.role in TABLES]
    found: Number = 0
    for what, kind in setup.code.frame.buffers:
        count: Number = {
            "rotary": total(dim for dim, *_ in rotary),
            "spare rotary": max(dims, default=0),
            "angles": depth * length * max(dims, default=0),
            "masks": depth * length * length * eager,
            "mask": length * length,
            "ids": length,
            "scale": stage.first * len(tables),
            "factors": 2 * stage.first,
            "scalar": depth,
            "scalars": 2 * depth,
        }[what]
        found = found + sized(count, kind or ("fp32" if setup.precision.param == "fp32" else "bf16"))
    if setup.code.frame.buffers:  # routers' biases that no gradient reaches, tables of hashed choices
        for many, layer in zip(stage.layers, stage.kinds, strict=True):
            for op in layer.operations:
                if isinstance(op, Router):
                    table = step.model.vocabulary * op.top_k if op.hashed else 0
                    bias = op.experts if op.balanced == "buffer" else 0
                    found = found + many * (sized(bias, "fp32") + sized(table, "int64"))
    return found


def _masks(step: Step, stage: Stage, counts: Counts) -> Number:
    """Causal masks that so many layers of each kind refer to: one for each window among them, where each has its
    own."""
    by_window: dict[object, Number] = {}
    for again, layer in zip(counts, stage.kinds, strict=True):
        for op in layer.operations:
            if isinstance(op, AttentionCore) and (op.window or op.chunk or step.setup.attention == EAGER):
                window = op.window if "masks" in step.setup.code.frame.closure else None
                by_window[window] = by_window.get(window, 0) + again
    return total(where(again > 0, step.run.mask, 0) for again in by_window.values())


def _tables(step: Step, stage: Stage) -> Number:
    """Rotary tables that checkpointed layers refer to and no other layer keeps."""
    found: Number = 0
    for storage in step.run.tables:
        again, others = _users(step, stage.sorts, storage)
        found = found + where((again > 0) & (others == 0), storage.size, 0)
    return found


def _lent(step: Step, stage: Stage) -> Number:
    """What layers lend each other and none keeps for backward: the code alone holds it."""
    found: Number = 0
    for storage in step.run.lent:
        _, keep = _users(step, stage.sorts, storage)
        found = found + storage.size * where(keep > 0, 1 - minimum(storage.kept, 1), 1)
    return found


def _users(step: Step, counts: Counts, storage: Storage) -> tuple[Number, Number]:
    """Layers among so many of each sort that share a storage: those that are checkpointed, and those that keep it."""
    again: Number = 0
    others: Number = 0
    for n, sort in zip(counts, step.order.sorts, strict=True):
        if any(storage is other for other in step.run.layers[sort.kind][1].shared):
            again, others = again + n * sort.again, others + n * (not (sort.again or sort.asleep))
    return again, others


def _let_go(step: Step, stage: Stage, left: Counts) -> Number:
    """Bytes of what layers share and none of those that are left (of each sort) reads any more."""
    shared = {id(s): s for _, piece in step.run.layers for s in piece.shared if s.kind != WEIGHT_COPY}
    refers = {id(storage) for storage in step.run.tables}
    found: Number = 0
    for key, storage in shared.items():
        again, others = _users(step, stage.sorts, storage)
        there = (others > 0) | ((again > 0) & (key in refers))
        gone = total(_users(step, left, storage)) == 0
        found = found + where(there & gone, storage.size * storage.kept, 0)
    return found


def _flat(part: Held, width: Number) -> Number:
    """Bytes of the gradient of a piece's flat parameter: all of it where any is trained."""
    return where(part.all > 0, part.all * width + part.frozen, 0)


def larger(first: Moment, second: Moment, there: Number = 1) -> Moment:
    """The moment with more live bytes, entry by entry; the first where the second is not there."""
    chosen = (second.live > first.live) & (there > 0)
    return Moment(first.name, *(where(chosen, getattr(second, b), getattr(first, b)) for b in BUCKETS))


def _gathered(
    step: Step, stage: Stage, parts: Sequence[tuple[Number, Held]], in_flight: int = BLOCKS_IN_FLIGHT
) -> Number:
    """Parameters that fully sharded data parallelism holds gathered: the root (table and head), and the blocks in use
    and fetched ahead."""
    setup = step.setup
    weight = sized(1, setup.precision.param)
    compute = sized(1, setup.layers_in.compute) if setup.precision.autocast else weight

    def whole(part: Held) -> Number:
        return part.all * compute + part.frozen

    blocks = maximum(0, *(whole(part) for _, part in parts[1 : 1 + len(step.layers)]))
    ends = stage.first * whole(parts[0][1]), stage.last * whole(parts[1 + len(step.layers)][1])
    root = maximum(*ends) if setup.framework.ends_apart else ends[0] + ends[1]
    in_use = root + in_flight * blocks
    if setup.framework.keeps_stage:
        in_use = where(setup.layout.pp > 1, total(n * whole(part) for n, part in parts), in_use)
    return where(setup.layout.zero >= 3, in_use, 0)


def optimizer_temporaries(step: Step, rank: Rank) -> Number:
    """Buffers of the optimizer step (optimizer_step.py), divided like the states. What Muon leaves to AdamW is a step
    of its own."""
    setup = step.setup
    shards = where(setup.layout.zero >= 1, setup.shards, 1)
    own = ceil_div(setup.framework.step_bytes * rank.held.all, shards)
    if "optimizer" in setup.offload:
        return own * ("parameters" not in setup.offload)
    width = int(sized(1, setup.precision.state))
    kinds = list(_tensor_sizes(step))
    found: Number = own
    for optimizer in {setup.optimizer.name: setup.optimizer, "adamw": OPTIMIZERS["adamw"]}.values():
        sizes = [(n, shape) for n, shape, used in kinds if used.name == optimizer.name]
        whole = rank.held.all if not setup.optimizer.only_matrices else total(n for n, _ in sizes)
        found = maximum(found, ceil_div(temporaries(optimizer, setup.form, sizes, whole, width), shards))
    return found


def _tensor_sizes(step: Step) -> Iterator[tuple[Number, tuple[int, ...], Optimizer]]:
    """(numbers on a rank, shape, optimizer) of the weight tensors in order, each kind of layer once or twice. A tied
    head's matrix is the table."""
    stack, setup = step.stack, step.setup
    layers: list[Operation] = []
    for layer in stack.layers:
        ordered = sorted(layer.operations, key=lambda op: setup.code.frame.norms_last and isinstance(op, Norm))
        layers += ordered * (1 if stack.depth == 1 else 2)
    after = [op for op in stack.after if not (step.model.tied and isinstance(op, Matmul) and op.shard == VOCABULARY)]
    for weight in weights_of([*stack.before, *layers, *after]):
        shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
        yield ceil_div(weight.count, divided(weight, setup.layout)), shape, optimizer_of(weight, setup.optimizer)

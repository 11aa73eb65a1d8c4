"""Memory of one rank over a training step, moment by moment: forward, loss, backward, optimizer step.

States are divided by how their weights are sharded; activations come from the tape (activations.py), and the live
bytes within a piece's backward pass from replaying it (live.py). Every quantity of a layout may be an array.
Symbols: t, p, c, d, e tensor, pipeline, context, data and expert degrees, m micro-batches, v chunks a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from napkin.autograd.tape import INPUT_LABEL, WEIGHT_COPY, Storage, sized
from napkin.elementwise import Number, ceil_div, is_array, maximum, minimum, where
from napkin.footprint import activations
from napkin.footprint.activations import total
from napkin.footprint.allocator import Flow
from napkin.footprint.prepared import Step, table_of
from napkin.footprint.setup import Setup
from napkin.footprint.stages import Stage, stage_of
from napkin.footprint.states import Held, divided, gathered, optimizer_of, still, weights_of
from napkin.operations.base import TABLES, VOCABULARY, Operation
from napkin.operations.implementations import EAGER
from napkin.record import record, replace
from napkin.training.optimizers import OPTIMIZERS, Optimizer
from napkin.training.order import Counts
from napkin.training.recomputation import OPERATIONS

LAYERS_ON_THE_WAY = 2
"""Layers whose activations are on the card while activations are offloaded: one being written, one being read."""


SPARE_POSITIONS = 2
"""Rows of a table of sines before the first position (fairseq's offset, for padding)."""
STASHED = 5
"""Tensors on their way to the host at once (torchtune training/_activation_offloading.py, max_fwd_stash_size)."""


BLOCKS_IN_FLIGHT = 2
"""Blocks whose parameters fully sharded data parallelism holds gathered: the one in use and the one prefetched."""


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
    unsynced = setup.framework.unsynced * where(layout.zero >= 2, where(setup.shards > 1, 1, 0), 0)
    several = setup.adds_up
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
    last = one * (layout.micro_batches > 1)  # the micro-batch before's, until its name is given to the new one
    # what the model's code holds while its layers run
    keeps_stream = again > 0
    if run.layers and any(s.label == INPUT_LABEL for s in run.layers[0][1].kept):
        keeps_stream = again >= 0
    looked_up = stage.first * (run.embedded + where(keeps_stream, 0, run.stream))
    all_masks = _masks(step, stage, stage.layers)
    around = run.closure + tables + where(again > 0, masks * (not setup.code.passes_mask), 0) + looked_up
    around = around + all_masks - where(again > 0, masks, 0) + lent + last
    to_the_loss = looked_up * (setup.code.embeddings == "loss")
    made_casts = rank.casts + cached - stage.last * run.after.casts
    at_the_head = run.after.burst - run.after.saved - run.after.casts
    forward = moment(
        "forward", standing, rank.saved, rank.casts + cached, closure + to_the_loss + stage.last * at_the_head + last
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
    # the head's part of a tied table's gradient waits for the table's own
    waits = where(layout.pp == 1, step.weights.table.all * grad, 0) * setup.lets_go * step.model.tied

    def gradients_of(made: Number) -> Number:
        return standing + waits + growing * made + sharded * ceil_div(made, setup.shards)

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
    own = both * setup.lets_go  # let go in the replay
    before = maximum(step.before.peak, step.before.end + own + both) * (setup.frozen is None)
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
        (*angles, setup.code.by_kind and any(core.window for o in layer.operations if (core := o.attends())))
        for layer in stack.layers
        for op in layer.operations
        if (angles := op.angles()) is not None
    }
    dims = {dim for dim, *_ in rotary}
    tables = [op for op in stack.before if op.owner().embeds() in TABLES]
    found: Number = 0
    for what, kind in setup.code.buffers:
        count: Number = {
            "rotary": total(dim for dim, *_ in rotary),
            "spare rotary": max(dims, default=0),
            "angles": depth * length * max(dims, default=0),
            "masks": depth * length * length * eager,
            "mask": length * length,
            "ids": stage.first * length,
            "sines": stage.first * len(step.model.stacks) * (length + SPARE_POSITIONS) * step.model.hidden,
            "logits": stage.last * step.model.vocabulary,
            "scale": stage.first * len(tables),
            "factors": 2 * stage.first,
            "scalar": depth,
            "scalars": 2 * depth,
        }[what]
        found = found + sized(count, kind or ("fp32" if setup.precision.param == "fp32" else "bf16"))
    if setup.code.buffers:  # routers' biases that no gradient reaches, tables of hashed choices
        for many, layer in zip(stage.layers, stage.kinds, strict=True):
            for op in layer.operations:
                for elements, kind in op.buffers(step.model.vocabulary):
                    found = found + many * sized(elements, kind)
    return found


def _masks(step: Step, stage: Stage, counts: Counts) -> Number:
    """Causal masks that so many layers of each kind refer to: one for each window among them, where each has its
    own."""
    by_window: dict[object, Number] = {}
    for again, layer in zip(counts, stage.kinds, strict=True):
        for op in layer.operations:
            core = op.attends()
            if core is not None and (core.window or core.chunk or step.setup.attention == EAGER):
                window = core.window if "masks" in step.setup.code.closure else None
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
    for storage in step.run.shared_tensors:
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
        found = maximum(found, ceil_div(optimizer.temporaries(setup.form, sizes, whole, width), shards))
    return found


def _tensor_sizes(step: Step) -> Iterator[tuple[Number, tuple[int, ...], Optimizer]]:
    """(numbers on a rank, shape, optimizer) of the weight tensors in order, each kind of layer once or twice. A tied
    head's matrix is the table."""
    stack, setup = step.stack, step.setup
    layers: list[Operation] = []
    for layer in stack.layers:
        ordered = sorted(layer.operations, key=lambda op: setup.code.norms_last and op.normalizes())
        layers += ordered * (1 if stack.depth == 1 else 2)
    after = [op for op in stack.after if not (step.model.tied and op.division() == VOCABULARY)]
    for weight in weights_of([*stack.before, *layers, *after]):
        shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
        yield ceil_div(weight.count, divided(weight, setup.layout)), shape, optimizer_of(weight, setup.optimizer)

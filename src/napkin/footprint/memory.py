"""Memory of one rank over a training step, moment by moment: forward, loss, backward, optimizer step.

States are divided by how their weights are sharded; activations come from the tape (activations.py), and the live
bytes within a piece's backward pass from replaying it (live.py). Every quantity of a layout may be an array.
Symbols: t, p, c, d, e tensor, pipeline, context, data and expert degrees, m micro-batches, v chunks a stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tape import INPUT_LABEL, sized
from napkin.elementwise import Number, ceil_div, maximum, where
from napkin.footprint.activations import total
from napkin.footprint.gathers import flat_gradient, gathered_bytes
from napkin.footprint.kept import dot, mask_bytes, rotary_bytes, saved_bytes, shared_kv_bytes
from napkin.footprint.optimizer_buffers import optimizer_temporaries, table_elements, tensor_sizes
from napkin.footprint.peaks import layer_peaks
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import Moment, Rank, larger
from napkin.footprint.registered import buffers
from napkin.footprint.stages import Stage, stage_of
from napkin.footprint.states import Held, gathered, still
from napkin.record import replace


def rank_of(step: PreparedStep, index: Number) -> Rank:
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
        gradients = maximum(0, *(n for n, _, _ in tensor_sizes(step))) * grad
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
    layers, casts, outside = saved_bytes(step, stage)
    saved = layers + outside
    head = 0 if layout.schedule == "gpipe" else stage.last * step.run.after.saved
    rank = Rank(
        stage, mine, parameters, gradients, tuple(states), saved, casts, saved - head, _delayed(step, stage), ()
    )
    moments, between = _moments(step, rank, parts)
    return replace(rank, moments=moments, between=between)


def _delayed(step: PreparedStep, stage: Stage) -> Number:
    """Bytes that a micro-batch keeps until its weights' gradients are made, after those of its activations."""
    run = step.run
    layers = dot(stage.layers, (piece.delayed for _, piece in run.layers))
    return layers + stage.first * run.before.delayed + stage.last * run.after.delayed


def parts_of(step: PreparedStep, stage: Stage) -> list[tuple[Number, Held]]:
    """(how many, what it holds) for the table, each kind of layer and the head on a stage, what layers share, and each
    kind of layer that is frozen."""
    weights, setup = step.weights, step.setup
    shared = [(1, weights.shared)] if weights.shared is not None else []
    layers = list(zip(stage.layers, weights.layers, strict=True))
    frozen: list[tuple[Number, Held]] = []
    if setup.frozen is not None:
        fixed: list[Number] = [0] * len(layers)
        for n, variant in zip(stage.variants, step.order.variants, strict=True):
            fixed[variant.kind] = fixed[variant.kind] + n * variant.no_grad
        frozen = [(n, still(part, setup)) for n, part in zip(fixed, weights.layers, strict=True)]
        layers = [(n - less, part) for (n, part), less in zip(layers, fixed, strict=True)]
    return [(stage.first, weights.before), *layers, (stage.last, weights.after), *shared, *frozen]


def _moments(
    step: PreparedStep, rank: Rank, parts: Sequence[tuple[Number, Held]]
) -> tuple[tuple[Moment, ...], tuple[Moment, ...]]:
    """Return the moments of a step at which a rank's live bytes can be the largest, and those between its phases."""
    setup, run, stage = step.setup, step.run, rank.stage
    layout, precision = setup.layout, setup.precision
    grad = sized(1, precision.grad)
    tokens = layout.micro * (layout.seq // layout.cp)
    inputs = 2 * tokens * 8
    inputs = stage.first * inputs + buffers(step, stage)
    unsynced = setup.framework.unsynced * where(layout.zero >= 2, where(setup.shards > 1, 1, 0), 0)
    several = setup.adds_up
    standing = where(several & (not setup.in_backward), rank.gradients, 0)
    standing = standing + unsynced * total(n * flat_gradient(part, grad) for n, part in parts)
    # a layer's new gradient stands beside the sum that it is added to
    added = unsynced * maximum(0, *(flat_gradient(part, grad) for _, part in parts))
    at_once = 0 if setup.in_backward or "parameters" in setup.offload else where(several, 0, 1)
    growing = at_once * where(layout.zero >= 2, 0, 1)
    sharded = at_once * where(layout.zero >= 2, 1, 0)
    waiting = rank.waiting
    bucket = setup.bucket
    in_use = gathered_bytes(step, stage, parts) + bucket
    at_the_end = gathered_bytes(step, stage, parts, 0) + bucket if setup.framework.frees_last else in_use

    def moment(name: str, gradients: Number, kept: Number, casts: Number, temporaries: Number) -> Moment:
        held_now = (at_the_end if name == "loss" else in_use) + temporaries
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
    masks = mask_bytes(step, stage, stage.checkpointed)
    tables = rotary_bytes(step, stage)
    lent = shared_kv_bytes(step, stage)
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
    all_masks = mask_bytes(step, stage, stage.layers)
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
    for peak in layer_peaks(step, stage, grad, gradients_of):
        left = kept - peak.gone
        bursting = moment("forward", standing, left, made_casts - peak.later, peak.bursts + around)
        forward = larger(forward, bursting, peak.valid)
        now = moment(
            "backward",
            gradients_of(first_made + peak.made),
            left - peak.shared,
            casts - peak.uncast,
            closure + added + 2 * one + peak.needs - (masks - peak.masks) * (not setup.code.passes_mask),
        )
        worst = larger(worst, now, peak.valid)
    made = first_made + total(n * part.all for n, part in parts[1 : 1 + len(step.layers)]) * grad
    casts = casts - total(
        n * run.layers[variant.kind][1].casts * (not (variant.checkpointed or variant.no_grad))
        for n, variant in zip(stage.variants, step.order.variants, strict=True)
    )
    # the table's two gradients, where the head shares it, are added into a third
    both = where(layout.pp == 1, table_elements(step) * grad, 0) if step.model.tied else 0
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

"""Memory of one rank over a training step: its states, and the phases of the step (moments.py).

States follow the sharding of their weights; activations come from the tape (activations.py), and the live bytes within
a section's backward pass from its replay (live.py). Every quantity of a layout may be an array.
Symbols: t, p, c, d, e tensor, pipeline, context, data and expert degrees, m micro-batches, v chunks a stage.
"""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, maximum, product, ratio, total
from napkin.footprint.gathers import stream_bytes
from napkin.footprint.local_weights import LocalWeights, as_frozen, states_of, sum_weights
from napkin.footprint.moments import moments_of
from napkin.footprint.optimizer_buffers import tensor_sizes
from napkin.footprint.prepared import PreparedStep, layers_asleep, stack_of_step
from napkin.footprint.rank import Made, Rank
from napkin.footprint.rank_weights import weights_on_a_rank
from napkin.footprint.saved_activations import dot, saved_bytes
from napkin.footprint.saving import SHARDED, moment_of_saving
from napkin.footprint.stages import Stage, stage_of
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training.setup import Setup


def rank_of(step: PreparedStep, index: Number) -> Rank:
    """Return the memory of a rank of stage `index`."""
    return with_moments(step, holding(step, index))


def holding(step: PreparedStep, index: Number) -> Rank:
    """Return the memory of a rank of stage `index`, without the phases of its step."""
    setup = step.setup
    layout = setup.layout
    stage = stage_of(step, index)
    mine = sum_weights(parts_of(step, stage))
    parameters, gradients, states = states_of(mine, setup)
    bucket = setup.bucket(step.model.hidden) + product(gradients, setup.copied_to_buckets)
    if setup.in_backward:
        gradients = maximum(0, *(n for n, _, _ in tensor_sizes(step))) * sized(1, setup.precision.grad)
    layers, casts, outside = saved_bytes(step, stage)
    saved = layers + outside
    head = 0 if layout.schedule == "gpipe" else stage.last * step.run.after.saved
    others: Made = ()
    if setup.forwards:
        from napkin.footprint.other_models import held_models

        others = held_models(step, mine)
    late = _delayed(step, stage)
    made = (parameters, gradients, states, saved, casts, saved - head, late)
    return Rank(stage, mine, *made, (), others=others, bucket=bucket)


def with_moments(step: PreparedStep, rank: Rank) -> Rank:
    """Return the rank with the phases of its step."""
    parts = parts_of(step, rank.stage)
    moments, between = moments_of(step, rank, parts)
    if step.setup.save != SHARDED:
        moments = (moment_of_saving(step, rank, parts), *moments)
    return replace(rank, moments=moments, between=between, streams=stream_bytes(step, rank.stage, parts))


def least_states(model: Model, setup: Setup) -> Number:
    """Return a lower bound of the state bytes on the fullest pipeline stage: those of the mean stage, with frozen
    weights as stored."""
    parameters, gradients, states = states_of(weights_of_all(model, setup), setup)
    kept = 0 if setup.in_backward else gradients
    return ratio(parameters + kept + total(size for _, size in states), setup.layout.pp)


def weights_of_all(model: Model, setup: Setup) -> LocalWeights:
    """Return the weights of all pipeline stages together. A tied embedding, which one or two stages hold, counts
    once."""
    model = setup.held(model)
    stack = stack_of_step(model, setup)
    kinds = tuple({id(layer): layer for _, layer in stack.runs}.values())
    held = weights_on_a_rank(model, stack, setup, kinds)
    of_layer = {id(layer): part for layer, part in zip(kinds, held.layers, strict=True)}
    parts: list[tuple[Number, LocalWeights]] = [(1, held.before), (1, held.head)]
    parts += [(1, held.shared)] if held.shared is not None else []
    asleep = layers_asleep(model, setup)
    for count, layer in stack.runs:
        fixed, part = min(asleep, count), of_layer[id(layer)]
        asleep -= fixed
        parts += [(count - fixed, part), (fixed, as_frozen(part, setup))]
    if model.tied:
        parts.append((-1, held.table))
    return sum_weights(parts)


def _delayed(step: PreparedStep, stage: Stage) -> Number:
    """Return the bytes that a micro-batch holds until its weight gradients are computed."""
    run = step.run
    layers = dot(stage.layers, (section.delayed for _, section in run.layers))
    return layers + stage.first * run.before.delayed + stage.last * run.after.delayed


def parts_of(step: PreparedStep, stage: Stage) -> list[tuple[Number, LocalWeights]]:
    """Return (count, weights of one) for the embedding, each layer type and the head on a stage, for what layers share,
    and for each frozen layer type."""
    weights, setup = step.weights, step.setup
    shared = [(1, weights.shared)] if weights.shared is not None else []
    layers = list(zip(stage.layers, weights.layers, strict=True))
    frozen: list[tuple[Number, LocalWeights]] = []
    if setup.freezes:
        fixed: list[Number] = [0] * len(layers)
        for n, variant in zip(stage.variants, step.order.variants, strict=True):
            fixed[variant.kind] = fixed[variant.kind] + n * variant.still
        frozen = [(n, as_frozen(part, setup)) for n, part in zip(fixed, weights.layers, strict=True)]
        layers = [(n - less, part) for (n, part), less in zip(layers, fixed, strict=True)]
    return [(stage.first, weights.before), *layers, (stage.last, weights.after), *shared, *frozen]

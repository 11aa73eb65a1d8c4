"""The time of one training step: layers by roofline, then pipeline, data parallelism, optimizer.

Every quantity of a layout may be a number or an array with one entry per layout. Symbols: b micro-batch, s sequence,
T = b·s/cp tokens of a micro-batch on a GPU, h width, t, p, v, c, e, d tensor, pipeline, interleave, context, expert and
data degrees, m micro-batches of a replica. Where each part is computed:

    layer.py              one layer: GEMMs, attention, elementwise work, casts, accumulation, the host; and the head
    attention.py, experts.py, layer_collectives.py
                          parts of a layer with separate formulas
    slowest_stage.py      the layers on the slowest stage
    pipeline.py           the slowest stage, the bubble, communication between stages
    data_parallel.py      gradients' reduction, ZeRO-3's gathers, the optimizer
    host_link.py          what offloading moves and compute does not hide
    placement.py          which ranks exchange data, and their distance
    clock.py, efficiency.py, collectives.py
                          seconds of single operations
"""

from __future__ import annotations

from napkin import term
from napkin.elementwise import Number, ceil_div, holds_for_all, is_zero
from napkin.operations.model import Layer, Model
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.clock import SECOND, Clock, size
from napkin.timing.data_parallel import data_time, reduction_time, sharded_time, shards_of
from napkin.timing.ends import entries, entry_time, head_time
from napkin.timing.layer import LayerTime, layer_time
from napkin.timing.layer_clock import COMMUNICATION, COMPUTE, GROUPS, MEMORY
from napkin.timing.layer_weights import layer_weights
from napkin.timing.optimizer import optimizer_time
from napkin.timing.pipeline import LayerRuns, Layers, boundary_time, bubble_time, chunks_time, layers_of, stages_of
from napkin.timing.rates import Rates
from napkin.timing.step_layout import StepLayout
from napkin.training.tasks import Passes, Passing


@record
class StepTime:
    """The time of one step with its parts and intermediate counts.

    weights  parameters that one GPU updates before ZeRO, on a mean stage"""

    time: Term
    weights: Number


def layers_of_passes(passes: Passes, layout: StepLayout, rates: Rates) -> tuple[Layers, ...]:
    """Return the time of one micro-batch in the layers and the head of each pass."""
    first = layers_of_step(passes.trained, layout, rates)
    return (first, *(layers_of_step(one.model, _over(layout, one), rates) for one in passes.others))


def _over(layout: StepLayout, one: Passing) -> StepLayout:
    """Return the layout of another pass, which runs over all sequences of the step: micro-batches of its own have about
    equally many."""
    if not one.trained:
        layout = replace(layout, returned_bytes=0, stashes=0)
    if one.micro or one.larger > 1:
        sequences = layout.micro_batch * layout.micro_batches
        count = ceil_div(sequences, one.micro or layout.micro_batch * one.larger)
        layout = replace(layout, micro_batch=ceil_div(sequences, count), micro_batches=count)
    return replace(layout, micro_batch=layout.micro_batch * one.times)


def step_of_passes(
    passes: Passes, layout: StepLayout, rates: Rates, layers: tuple[Layers, ...] | None = None
) -> StepTime:
    """Return the seconds of one optimizer step including the passes without gradients, each as a separate part. layers:
    the result of `layers_of_passes`, if known."""
    each = layers or layers_of_passes(passes, layout, rates)
    found = step(passes.trained, layout, rates, each[0])
    if not passes.others:
        return found
    forward = [
        pass_time(one, step(one.model, _over(layout, one), rates, of_pass))
        for one, of_pass in zip(passes.others, each[1:], strict=True)
    ]
    return replace(found, time=term.add("step/time", *found.time.parts, *forward))


ONCE, OPTIMIZER = ("step/overhead/fixed", "step/overhead/straggling"), "step/optimizer"
"""Parts of a step that its passes share."""


def pass_time(one: Passing, found: StepTime) -> Term:
    """Return the seconds of another pass from those of a separate step: constant parts count once, and a pass without
    gradients has no optimizer."""
    once = ONCE if one.trained else (*ONCE, OPTIMIZER)
    parts = [part for whole in found.time.parts for part in (whole, *whole.parts) if part.name in once]
    less = term.add(f"step/{one.name}/once", *parts)
    return term.subtract(f"step/{one.name}", found.time.renamed(f"step/{one.name}/all"), less)


def image_layers(model: Model, layout: StepLayout, rates: Rates) -> list[tuple[Number, LayerTime]]:
    """Return the time of a vision tower's patch embedding, layers and projector, if there are images."""
    if model.vision is None or holds_for_all(layout.images == 0):
        return []
    (tower,), (projector,) = model.vision.tower.stacks, model.vision.projector.stacks
    clock, last = (Clock(rates, layout.over_images(length)) for length in (layout.tower_tokens, layout.image_tokens))
    patches = (*model.vision.patches.stacks[0].before, *tower.before)
    found = [(count, layer_time(clock, layer, f"tower/{kind}")) for kind, count, layer in tower.kinds()]
    weights, frozen = layer_weights(patches, clock.layout, "tower/patches")
    first = replace(entry_time(clock, patches, "tower/patches", False), weights=weights, frozen=frozen)
    return [(1, first), *found, (1, layer_time(last, Layer("projector", projector.before), "projector"))]


def layers_of_step(model: Model, layout: StepLayout, rates: Rates) -> Layers:
    """Return the time of one micro-batch in the layers and the head."""
    clock = Clock(rates, layout.inside(model))
    last = Clock(rates, layout if len(model.stacks) == 1 else layout.decoding())
    runs = [*image_layers(model, layout, rates), *((1, one) for one in entries(clock, last, model))]
    first = tuple((int(count), place) for place, (count, _) in enumerate(runs))
    order: list[tuple[Number, int]] = []
    for stack in model.stacks:
        place = {id(layer): len(runs) + at for at, layer in enumerate(stack.layers)}
        order += [(count, place[id(layer)]) for count, layer in stack.runs]
        runs += [
            (count, layer_time(clock if stack is model.stacks[0] else last, layer, kind))
            for kind, count, layer in stack.kinds()
        ]
    return layers_of(runs, LayerRuns(tuple(order), first, len(runs)), head_time(last, model))


def step(model: Model, layout: StepLayout, rates: Rates, layers: Layers | None = None) -> StepTime:
    """Return the seconds of one optimizer step: m micro-batches through the slowest stage, the pipeline bubble, exposed
    gradient communication, the optimizer. layers: the result of `layers_of_step`, if known.

    1F1B: m·t_slowest + (p−1)/v·t_mean (Narayanan et al. 2021, section 2.2)."""
    clock = Clock(rates, layout.inside(model))
    stages = stages_of(clock, layers or layers_of_step(model, layout, rates))
    repeats, stack = _repeats(layout), _stack(clock)
    spent = {group: term.multiply(f"step/all/{group}", stack, repeats, stages.slowest(group)) for group in GROUPS}
    compute = term.add("step/compute", *(spent[g].renamed(f"step/compute/{g}") for g in COMPUTE))
    moved = term.add("step/memory_bound", *(spent[g].renamed(f"step/memory_bound/{g}") for g in MEMORY))
    if not is_zero(rates.host_chunk):
        waited = chunks_time(clock, "stage/host/waited", stages.spare())
        chunks = term.multiply("step/all/host/chunks", stack, repeats, waited)
        spent["host"] = term.add("step/all/host/every", spent["host"], chunks)
    bubble = bubble_time(clock, stages.layers, stack)
    between = boundary_time(clock, stages, model.hidden * model.streams, stack, repeats)
    inside = [spent[group] for group in COMMUNICATION]
    work = term.add("step/work", compute, moved, *inside, spent["host"], bubble, between)
    shards = shards_of(clock, stages, model)
    data = data_time(clock, reduction_time(clock, stages, shards, stack), sharded_time(clock, shards, work, stack))
    communication = term.add(
        "step/communication",
        *(spent[g].renamed(f"step/communication/{g}") for g in COMMUNICATION),
        between,
        data,
    )
    overhead = term.add(
        "step/overhead",
        spent["host"].renamed("step/overhead/host"),
        clock.rate("step/overhead/fixed", rates.fixed, SECOND),
        straggling_time(clock),
    )
    optimizer = optimizer_time(clock, shards, stack)
    parts = [compute, moved, communication, bubble, optimizer, overhead]
    if not is_zero(layout.moves):
        from napkin.timing.host_link import offload_time

        parts.append(offload_time(clock, stages, shards, size("stream_width", model.hidden * model.streams), stack))
    time = term.add("step/time", *parts)
    return StepTime(time, shards.weights.value)


def exposed_share(time: Term) -> Number:
    """Return the share of a step's seconds that data-parallel communication takes in addition to the compute."""
    communication = next(part for part in time.parts if part.name == "step/communication")
    exposed = next(part for part in communication.parts if part.name == "step/communication/data")
    share: Number = exposed.value / time.value
    return share


def straggling_time(clock: Clock) -> Term:
    """Return how long a step waits for the slowest of its GPUs: a constant for each doubling of their number."""
    groups, layout = clock.groups, clock.layout
    gpus = term.multiply("gpus", groups.replicas.ranks, clock.tp, size("pp", layout.pp))
    each = clock.rate("step/overhead/doubling", clock.rates.straggle, SECOND)
    return term.multiply("step/overhead/straggling", each, term.log2("doublings", gpus))


def least_step(layout: StepLayout, rates: Rates, layers: Layers) -> Term:
    """Return a lower bound of the step's seconds: the mean stage, which is never slower than the slowest, and the
    bubble."""
    clock = Clock(rates, layout)
    repeats, stack = _repeats(layout), _stack(clock)
    mean = term.multiply("step/stages", stack, repeats, layers.stage_mean(clock.groups.stages.ranks))
    return term.add("step/least", mean, bubble_time(clock, layers, stack))


def _repeats(layout: StepLayout) -> Term:
    return term.leaf("micro_batches", layout.micro_batches, "1", term.GIVEN)


def _stack(clock: Clock) -> Term:
    return clock.rate("stack", clock.rates.stack, source="this software's time over the common constants'")

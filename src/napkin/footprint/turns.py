"""Layers of a stage at which a backward pass can hold the most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from napkin.elementwise import Number, ceil_div, is_array, maximum, minimum, where
from napkin.footprint import activations
from napkin.footprint.activations import total
from napkin.footprint.kept import LAYERS_IN_TRANSIT, STASHED, dot, freed_bytes, kept_by_layers, mask_bytes
from napkin.footprint.prepared import Step
from napkin.footprint.stages import Stage
from napkin.record import record
from napkin.training.order import Counts
from napkin.training.recomputation import OPERATIONS


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


def turns(step: Step, stage: Stage, grad: Number, gradients_of: Callable[[Number], Number]) -> Iterator[Turn]:
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
    whole = kept_by_layers(step, stage.sorts, ceil_div(stage.high - stage.low, size))

    def turn(valid: Number, sort: int, upto: Counts, checkpoints: Number, again: Number) -> Turn:
        done = [a - b for a, b in zip(end, upto, strict=True)]
        ahead = tuple(a - b for a, b in zip(upto, begin, strict=True))
        left = kept_by_layers(step, ahead, checkpoints)
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
        later = dot(done, cached) + cached[sort]
        counts: list[Number] = [0] * len(stage.kinds)
        for n, m, other in zip(upto, begin, order.sorts, strict=True):
            counts[other.kind] = counts[other.kind] + (n - m) * other.again
        masks = mask_bytes(step, stage, tuple(counts))
        shared = freed_bytes(step, stage, ahead)
        return Turn(valid, dot(done, weights), whole - left, shared, dot(done, copies), needs, bursts, later, masks)

    stays = [kept_by_layers(step, tuple(int(i == j) for j in range(len(pieces))), 0) for i in range(len(pieces))]
    inputs = maximum(0, *(piece.input for piece in pieces)) if size > 1 else 0
    steps = (*stays, *weights, *copies, *cached, *reruns, inputs, stage.low, stage.high)

    def corners() -> Iterator[Corner]:
        if size == 1:
            spans = [(stage.low, stage.high)]
            if offloads:  # the first that are still on the card are counted apart
                first = where(total(stage.checkpointed) > 0, STASHED, LAYERS_IN_TRANSIT)
                cut = minimum(stage.low + first, stage.high)
                spans = [(cut, stage.high), (stage.low, cut)]
            for low, high in spans:
                for valid, sort, upto in order.turns(low, high):
                    yield valid, sort, upto, 0, reruns[sort]
            return
        for low, high in order.groups(stage.low, stage.high, size):
            above = order.before(low)
            for valid, sort, upto in order.turns(low, high):
                again = dot([a - b for a, b in zip(upto, above, strict=True)], reruns)
                yield valid, sort, upto, ceil_div(high - stage.low, size), again

    def held(corner: Corner) -> tuple[object, Number, Number]:
        _, sort, upto, checkpoints, again = corner
        kept = checkpoints * inputs + dot(upto, stays)
        done = [a - b for a, b in zip(end, upto, strict=True)]
        ahead = [a - b for a, b in zip(upto, begin, strict=True)]
        alike = (sort, *(n > 0 for n in ahead), sum(ahead) == 1)
        backward = kept + gradients_of(dot(done, weights)) - dot(done, copies) + again
        return alike, backward, kept - dot(done, cached)

    found: Iterable[Corner] = corners()
    if not offloads and not any(is_array(number) for number in steps):
        found = most_held(found, held)
    for corner in found:
        yield turn(*corner)


def most_held(corners: Iterable[Corner], held: Callable[[Corner], tuple[object, Number, Number]]) -> Iterable[Corner]:
    """Of the corners that are alike, the one that holds the most backwards and the one that does forwards."""
    most: dict[object, tuple[Number, Corner]] = {}
    for corner in corners:
        alike, *both = held(corner)
        for way, size in enumerate(both):
            if (alike, way) not in most or size > most[alike, way][0]:
                most[alike, way] = (size, corner)
    return dict.fromkeys(corner for _, corner in most.values())

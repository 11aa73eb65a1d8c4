"""Layers of a stage at which memory can peak in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from napkin.elementwise import Flag, Number, ceil_div, holds_for_all, is_array, maximum, minimum, total, where
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.saved_activations import (
    LAYERS_IN_TRANSIT,
    STASHED,
    dot,
    freed_bytes,
    leaf_of_zeros,
    mask_bytes,
    returned_bytes,
    saved_by_layers,
    shared_storages,
)
from napkin.footprint.stages import Stage
from napkin.record import record
from napkin.training.order import Counts
from napkin.training.recomputation import OPERATIONS


@record
class LayerPeak:
    """A layer at the peak of its backward pass; sizes in bytes.

    valid   whether the stage has it
    made    gradients of the layers' weights that exist
    gone    activations that have been freed      shared  those of them that layers share
    uncast  autocast's copies of weights that have been freed
    needs   bytes of the layer's backward pass: its gradients, and what is recomputed
    bursts  peak of the layer's forward pass beyond what it saves, with the output of the previous layer
    later   copies of weights of this layer and later ones, held by autograd or by autocast's cache
    masks   causal masks that checkpointed layers up to this one refer to
    encodes whether it is one of an encoder's
    seam    gradient of an encoder's output, if the encoder's end is next
    leaf    gradient of the zeros that later layers read in place of position biases
    left    what the graphs that modules hold save of layers recomputed before
    mapped  what the graphs of shared tensors save of layers recomputed before
    below   whether a later layer of this variant is on the stage, before whose forward pass at least as much is saved
    waits   gradients of weights that layers still to be processed read as well
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
    encodes: Flag
    seam: Number
    leaf: Number
    left: Number
    mapped: Number
    below: bool
    waits: Number


Corner = tuple[Number, int, Counts, Number, Number]
"""A candidate layer: whether it exists, its variant, layers of each variant up to it, checkpoints up to it, bytes
recomputed with it."""


class StageLayers:
    """The layers of a stage, with the bytes of each variant.

    weights  gradients of a layer's weights       copies  autocast's copies that autograd saves
    cached   copies that autocast's cache holds   reruns  bytes that a layer recomputes
    idle     whether no gradient reaches the layer    encoder  number of encoder layers
    keeps_inputs  whether layers are checkpointed, which keeps the argument of the module that they are in
    """

    def __init__(self, step: PreparedStep, stage: Stage, grad: Number) -> None:
        order, recompute = step.order, step.setup.layout.recompute
        self.step, self.stage, self.order = step, stage, order
        self.sections = [step.run.layers[variant.kind][1] for variant in order.variants]
        self.chooses = recompute.kind == OPERATIONS
        self.size = recompute.group(order.depth)
        self.begin, self.end = order.before(stage.low), order.before(stage.high)
        pairs = list(zip(order.variants, self.sections, strict=True))
        self.idle = [one.no_grad for one in order.variants]
        self.keeps_inputs = any(one.checkpointed for one in order.variants)
        weights = step.weights.layers
        fixed = [one.still and step.setup.freezes for one in order.variants]
        trained = [
            (weights[one.kind].gradients(grad), not still) for still, one in zip(fixed, order.variants, strict=True)
        ]
        self.weights = [size * some for size, some in trained]
        self.copies = [
            0 if one.no_grad else section.rest_casts if one.checkpointed else section.casts for one, section in pairs
        ]
        self.cached = [
            section.biases if one.no_grad else total((section.casts, section.biases)) for one, section in pairs
        ]
        chosen = [section.chosen if self.chooses else 0 for section in self.sections]
        self.reruns = [p.recomputed - c if one.checkpointed else 0 for (one, p), c in zip(pairs, chosen, strict=True)]
        self.remade = [total(s.saved for s in p.made) if one.checkpointed else 0 for one, p in pairs]
        self.leaks = [section.leaks if one.checkpointed else 0 for one, section in pairs]
        self.mapped = [section.mapped if one.checkpointed else 0 for one, section in pairs]
        self.shared = shared_storages(step, stage)
        self.encoder = sum(one.depth + bool(one.after) for one in step.model.stacks[:-1])

    def corners(self) -> Iterator[Corner]:
        """Yield the layers at which live bytes can peak, from the last to the first."""
        stage, order, size = self.stage, self.order, self.size
        if size == 1:
            spans = [(stage.low, stage.high)]
            if "activations" in self.step.setup.offload:  # the first, which are still on the GPU, are counted apart
                first = where(total(stage.checkpointed) > 0, STASHED, LAYERS_IN_TRANSIT)
                cut = minimum(stage.low + first, stage.high)
                spans = [(cut, stage.high), (stage.low, cut)]
            for low, high in spans:
                for valid, variant, upto in order.corners(low, high):
                    yield valid, variant, upto, 0, self.reruns[variant]
                    yield from self._before(valid, variant, upto)
            return
        for low, high in order.groups(stage.low, stage.high, size):
            above = order.before(low)
            for valid, variant, upto in order.corners(low, high):
                recomputed = dot([a - b for a, b in zip(upto, above, strict=True)], self.reruns)
                yield valid, variant, upto, ceil_div(high - stage.low, size), recomputed

    def _before(self, valid: Number, variant: int, upto: Counts) -> Iterator[Corner]:
        """Yield the layer before a corner, if it has the same variant and adds to gradients that only the corner
        creates."""
        if not self.step.replays.shares(self.order.variants[variant].kind):
            return
        there = total(upto) - 1
        same = self.order.between(maximum(there - 1, 0), there)[variant]
        there = valid & (same > 0) & (there > self.stage.low)
        if is_array(there) or there:
            fewer = tuple(n - (one == variant) for one, n in enumerate(upto))
            yield there, variant, fewer, 0, self.reruns[variant]

    def largest_corners(self, gradients_of: Callable[[Number], Number]) -> Iterable[Corner]:
        """Return, among equal corners, those that hold the most; all of them if layouts are arrays."""
        step, stage = self.step, self.stage
        count = len(self.sections)
        stays = [saved_by_layers(step, tuple(int(i == j) for j in range(count)), 0) for i in range(count)]
        inputs = maximum(0, *(section.input for section in self.sections))
        sizes = (*stays, *self.weights, *self.copies, *self.cached, *self.reruns, inputs, stage.low, stage.high)
        if "activations" in step.setup.offload or any(is_array(number) for number in sizes):
            return self.corners()

        def held(corner: Corner) -> tuple[object, Number, Number]:
            _, variant, upto, checkpoints, recomputed = corner
            kept = checkpoints * inputs + dot(upto, stays)
            done = [a - b for a, b in zip(self.end, upto, strict=True)]
            ahead = [a - b for a, b in zip(upto, self.begin, strict=True)]
            alike = (variant, *(n > 0 for n in ahead), sum(ahead) == 1, sum(done) == 0, sum(upto) == self.encoder)
            made = dot(done, self.weights) + self.reused(tuple(done), variant)[0]
            backward = kept + gradients_of(made) - dot(done, self.copies) + recomputed
            return alike, backward, kept - dot(done, self.cached) + returned_bytes(step, stage, sum(upto) - 1)

        return most_held(self.corners(), held)

    def carried(self, variant: int, done: Counts) -> Number:
        """Return the bytes of the gradients of later layers that a layer adds to."""
        shares = self.step.replays.shares
        own = shares(self.order.variants[variant].kind)
        if not own:
            return 0
        after = list(zip(done, (shares(one.kind) for one in self.order.variants), strict=True))
        found: Number = 0
        for key, size in own.items():
            if isinstance(key, tuple):
                there: Flag = self.rereads(key, done)[1]
            else:
                there = total(n for n, theirs in after if key in theirs) > 0
            found = found + where(there, size, 0)
        return found

    def rereads(self, key: tuple[object, ...], done: Counts) -> tuple[Number, Flag]:
        """Return how many shared weights with the same key have an incomplete gradient after `done` layers, and whether
        those that the next reader needs are among them. Layers read the weights in turn, all of them before any is read
        again."""
        kinds = [one.kind for one in self.order.variants]
        holds = [any(id(op) == key[0] for op in self.step.run.kinds[kind].operations) for kind in kinds]
        reads = [key in self.step.replays.weights(kind) for kind in kinds]
        every = self.order.before(self.order.depth)
        apart = maximum(1, total(n for n, one in zip(every, holds, strict=True) if one))
        complete = total(n for n, one in zip(done, holds, strict=True) if one)
        before = total(n for n, one in zip(done, reads, strict=True) if one) - complete
        return maximum(0, minimum(before, apart) - complete), before >= apart

    def reused(self, done: Counts, variant: int | None = None) -> tuple[Number, Number]:
        """Return the bytes of gradients that `done` layers have computed for weights of other layers, without those
        that a layer of `variant` adds to (carried), and the incomplete part of these."""
        weights = self.step.replays.weights
        used = [weights(one.kind) for one in self.order.variants]
        if not any(used):
            return 0, 0
        own = used[variant] if variant is not None else {}
        ahead = [a - b - n for a, b, n in zip(self.end, self.begin, done, strict=True)]
        found: Number = 0
        waits: Number = 0
        for key, size in {key: size for theirs in used for key, size in theirs.items()}.items():
            assert isinstance(key, tuple)
            many, carries = self.rereads(key, done)
            others = size * (many - where(carries, 1, 0) * (key in own))
            found = found + others
            left = total(n for n, theirs in zip(ahead, used, strict=True) if key in theirs)
            waits = waits + where(left > 0, others, 0)
        return found, waits

    def leaf(self, done: Counts) -> Number:
        """Return the bytes of the gradient of the zeros that `done` layers read."""
        readers = dot(done, [section.leaf > 0 for section in self.sections])
        return where(readers > 0, leaf_of_zeros(self.step, self.stage), 0)

    def needed(self, variant: int, ahead: Counts, recomputed: Number, done: Counts) -> Number:
        """Return the peak bytes of a layer's backward pass. `ahead`: layers up to it on the stage; `done`: layers after
        it."""
        step, one, section = self.step, self.order.variants[variant], self.sections[variant]
        if self.idle[variant]:
            return 0
        peak = step.replay(one.kind, one.checkpointed).peak
        carrying, carried = step.carrying(one.kind, one.checkpointed), self.carried(variant, done)
        if carrying is not None:
            peak = where(carried > 0, carrying.peak, peak)
        if step.first is not None and not one.checkpointed:
            peak = where((total(ahead) == 1) & (self.stage.first == 1), step.first.peak, peak)
        needs = recomputed + self.remade[variant] + section.input + peak
        if one.checkpointed:  # the layer's tensors are allocated once more as it is recomputed
            needs = maximum(needs, recomputed - self.reruns[variant] + section.anew + carried)
        return total((needs, section.waits))

    def burst(self, variant: int) -> Number:
        """Return the bytes of the peak of a layer's forward pass beyond what it saves."""
        one, section = self.order.variants[variant], self.sections[variant]
        if one.no_grad:
            peak = section.dropped
        elif one.checkpointed:
            peak = section.dropped - (section.input + section.chosen if self.chooses else section.input)
        else:
            peak = section.burst - section.saved
        return total((peak, section.held, 0 if self.keeps_inputs else section.argument))

    def seam(self, variant: int, upto: Counts) -> Number:
        """Return the bytes of the gradient of the encoder's output if the next layer is the encoder's end. `upto`: the
        layers of the complete stack up to this one."""
        if not self.encoder:
            return 0
        return where(total(upto) == self.encoder, self.sections[variant].input, 0)

    def masks(self, ahead: Counts) -> Number:
        """Return the bytes of the causal masks that checkpointed layers among these refer to."""
        if not any(section.masks for section in self.sections):
            return 0
        counts: list[Number] = [0] * len(self.stage.kinds)
        for n, one in zip(ahead, self.order.variants, strict=True):
            counts[one.kind] = counts[one.kind] + n * one.checkpointed
        return mask_bytes(self.step, tuple(counts))


def layer_peaks(
    step: PreparedStep, stage: Stage, grad: Number, gradients_of: Callable[[Number], Number]
) -> Iterator[LayerPeak]:
    """Yield the layers of a stage at which memory can peak in the backward pass, from the last to the first.

    Live bytes change by the same amount with every layer of a variant, so it is enough to look at the corners of the
    layer order (order.py), and, for each variant, at the one with the largest sum of changes so far. What layers share
    is freed with the last of its variants. `gradients_of`: bytes allocated once gradients of this many bytes exist."""
    layers = StageLayers(step, stage, grad)
    whole = saved_by_layers(step, stage.variants, ceil_div(stage.high - stage.low, layers.size))
    later: dict[int, Flag] = {}
    for valid, variant, upto, checkpoints, recomputed in layers.largest_corners(gradients_of):
        done = [a - b for a, b in zip(layers.end, upto, strict=True)]
        ahead = tuple(a - b for a, b in zip(upto, layers.begin, strict=True))
        reused, waits = layers.reused(tuple(done), variant)
        yield LayerPeak(
            valid,
            dot(done, layers.weights) + reused,
            whole - saved_by_layers(step, ahead, checkpoints),
            freed_bytes(layers.shared, ahead),
            dot(done, layers.copies),
            layers.needed(variant, ahead, recomputed, tuple(done)),
            total((layers.burst(variant), returned_bytes(step, stage, total(upto) - 1))),
            total((dot(done, layers.cached), layers.cached[variant])),
            layers.masks(ahead),
            total(upto) <= layers.encoder,
            layers.seam(variant, upto),
            layers.leaf(tuple(done)),
            dot(done, layers.leaks),
            dot(done, layers.mapped),
            variant in later and holds_for_all(later[variant]),
            waits,
        )
        if is_array(valid):  # else those that hold the most are in no order
            later[variant] = later[variant] | valid if variant in later else valid


def most_held(corners: Iterable[Corner], held: Callable[[Corner], tuple[object, Number, Number]]) -> Iterable[Corner]:
    """Return, among equal corners, the one that holds the most in the backward pass and the one that does in the
    forward pass."""
    most: dict[object, tuple[Number, Corner]] = {}
    for corner in corners:
        alike, *both = held(corner)
        for way, size in enumerate(both):
            if (alike, way) not in most or size > most[alike, way][0]:
                most[alike, way] = (size, corner)
    return dict.fromkeys(corner for _, corner in most.values())

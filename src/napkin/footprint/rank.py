"""Records of the memory of one rank: live bytes by category at the phases of a step."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.elementwise import Number, ceil_div, holds_for_all, is_array, maximum, minimum, total, where
from napkin.footprint.allocator import SERVER, Flow, workspaces
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.stages import Stage
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.setup import Setup

BUCKETS = ("parameters", "models", "gradients", "optimizer", "activations", "weight_casts", "inputs", "temporaries")


Made = tuple[tuple[str, Number], ...]
"""The parts of a category at one phase: (name, bytes)."""

NOTHING: Mapping[str, Made] = {}


@record
class Moment:
    """Live bytes at one phase, by category.

    models  weights of other models, which only run forward
    made  {category: its parts} for categories with several parts; empty if sizes are arrays
    brief  the most bytes, at any time of the phase, that live no longer than a layer's pass, or the head's and the
           loss's; gathered weights and buckets, which have the same sizes in all phases, are not among them
    """

    name: str
    parameters: Number
    gradients: Number
    optimizer: Number
    activations: Number
    weight_casts: Number
    inputs: Number
    temporaries: Number
    made: Mapping[str, Made] = NOTHING
    models: Number = 0
    brief: Number = 0

    @property
    def passing(self) -> Number:
        """Return the bytes that are allocated and freed in a pass."""
        return self.activations + self.weight_casts + self.inputs + self.temporaries

    @property
    def live(self) -> Number:
        return self.passing + (self.parameters + self.models + self.optimizer) + self.gradients


class MomentSums(Moment):
    """A phase of layouts given as arrays, for which only the sums are needed."""

    def __init__(self, name: str, passing: Number, live: Number, brief: Number = 0) -> None:
        self.__dict__.update(name=name, made=NOTHING, brief=brief, _passing=passing, _live=live)

    @property
    def passing(self) -> Number:
        passing: Number = self.__dict__["_passing"]
        return passing

    @property
    def live(self) -> Number:
        live: Number = self.__dict__["_live"]
        return live


def peers_of(layout: Layout, gathers_keys: bool = False) -> Number:
    """Return the GPUs of its server that a rank sends to within a layer: all others that hold experts or heads, or both
    neighbors in a ring, unless it gathers keys and values from all. Tensor-parallel ranks are next to each other. None
    where the group is of several servers: NCCL takes the fewest channels that any two of its GPUs have (src/graph/
    paths.cc, ncclTopoComputeP2pChannels), which over a network are two."""

    def others(ranks: Number, apart: Number) -> Number:
        return where(ranks * apart > SERVER, 0, ranks - 1)

    context = others(layout.cp, layout.tp)
    context = where(layout.ulysses, context, 0 if gathers_keys else minimum(context, 2))
    return context + others(layout.ep, maximum(layout.tp, layout.etp))


def larger(first: Moment, second: Moment, there: Number = 1) -> Moment:
    """Return the phase with more live bytes, entry by entry; the first if the second does not exist."""
    least, most = first.live, second.live
    chosen = most > least
    if not is_array(chosen):
        found = second if chosen and there > 0 else first
        return replace(found, brief=max(first.brief, second.brief if there > 0 else 0))
    passing = where(chosen, second.passing, first.passing)
    if holds_for_all(there):
        return MomentSums(first.name, passing, maximum(most, least), maximum(first.brief, second.brief))
    chosen, brief = chosen & (there > 0), maximum(first.brief, where(there > 0, second.brief, 0))
    passing = where(chosen, second.passing, first.passing)
    return MomentSums(first.name, passing, where(chosen, most, least), brief)


def waiting_bytes(each: Number, delayed: Number, chunks: Number, parts: Number, late: Number) -> Number:
    """Return the bytes of the other micro-batches in flight. each, delayed: as in `Rank`; chunks, parts: model chunks
    in flight, and chunks per micro-batch; late: micro-batches with delayed weight gradients (stages.in_flight)."""
    return ceil_div(each * (chunks - parts), parts) + late * delayed


@record
class Rank:
    """Memory of a rank of one stage.

    saved    saved activations of one micro-batch      casts  autocast's copies of weights that it saves
    each     bytes of each other micro-batch in flight: except in GPipe, the head finishes one before the next
    delayed  bytes of a micro-batch whose weight gradients are still to be computed
    states   bytes of the optimizer's states by name, with master weights
    between  bytes live after the forward pass, and after the backward pass
    others   bytes of the weights of each other model
    streams  bytes that the allocator keeps for other streams than the default one
    bucket   bytes of the buckets in which gradients are reduced, which live through the step
    """

    stage: Stage
    weights: LocalWeights
    parameters: Number
    gradients: Number
    states: tuple[tuple[str, Number], ...]
    saved: Number
    casts: Number
    each: Number
    delayed: Number
    moments: tuple[Moment, ...]
    between: tuple[Moment, ...] = ()
    others: Made = ()
    streams: Number = 0
    bucket: Number = 0

    def alone(self) -> Rank:
        """Return the same with a single micro-batch in flight."""
        return replace(self, stage=replace(self.stage, chunks=1, parts=1, delayed=0))

    @property
    def waiting(self) -> Number:
        """Activations of the other micro-batches in flight."""
        return waiting_bytes(self.each, self.delayed, self.stage.chunks, self.stage.parts, self.stage.delayed)

    @property
    def optimizer(self) -> Number:
        return total(size for _, size in self.states)

    @property
    def models(self) -> Number:
        """Bytes of the weights of other models."""
        return total(size for _, size in self.others)

    @property
    def least(self) -> Number:
        """A lower bound of the live bytes at the loss: weights, states, and the micro-batches in flight."""
        return self.parameters + self.models + self.optimizer + self.waiting + self.saved

    @property
    def live(self) -> Number:
        return maximum(*(moment.live for moment in self.moments))

    @property
    def in_passes(self) -> Number:
        """The most live bytes of the passes, before the optimizer step."""
        return maximum(*(moment.live for moment in self.moments[:-1]))

    def flow(self, setup: Setup) -> Flow:
        """Return the bytes allocated at the optimizer step, those allocated and freed in the passes before it, and the
        workspaces'."""
        *passes, step = self.moments
        passing = maximum(*(moment.passing for moment in passes)) - self.bucket
        *before, backward = passes
        layout = setup.layout
        degrees = (layout.tp, layout.pp, layout.dp)
        parts = total(where(d > 1, where(d < layout.gpus, 1, 0), 0) for d in degrees)
        parts = parts + where(layout.cp > 1, 1, 0) + where(layout.ep > 1, 1, 0)
        products = workspaces(setup, self.weights.expert > 0)
        groups = where(layout.gpus > 1, 1 + parts, 0)
        if setup.framework.planned:
            groups = total(where(degree > 1, 1, 0) for degree in (layout.tp, layout.dp))
        return Flow(
            step.live,
            passing,
            groups,
            products,
            self.streams,
            peers_of(layout, setup.implementation.gathers_keys),
            setup.framework.planned,
            frozen=setup.implementation.tuning is not None,
            layers=backward.brief,
            head=maximum(0, *(moment.brief for moment in before[1:])),
        )

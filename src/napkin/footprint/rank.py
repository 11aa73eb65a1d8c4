"""Records of the memory of one rank: live bytes by bucket at the moments of a step."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.elementwise import Number, ceil_div, is_array, maximum, where
from napkin.footprint.activations import total
from napkin.footprint.allocator import Flow
from napkin.footprint.stages import Stage
from napkin.footprint.states import Held
from napkin.record import record, replace
from napkin.training.setup import Setup

BUCKETS = ("parameters", "gradients", "optimizer", "activations", "weight_casts", "inputs", "temporaries")


Made = tuple[tuple[str, Number], ...]
"""What a bucket is the sum of at one moment: (name, bytes)."""

NOTHING: Mapping[str, Made] = {}


@record
class Moment:
    """Live bytes at one moment, by bucket.

    made  {bucket: what it is the sum of}, of those that are more than one thing; nothing where sizes are arrays
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

    @property
    def live(self) -> Number:
        return total(getattr(self, bucket) for bucket in BUCKETS)


def larger(first: Moment, second: Moment, there: Number = 1) -> Moment:
    """Return the moment with more live bytes, entry by entry; the first where the second is not there."""
    chosen = (second.live > first.live) & (there > 0)
    if not is_array(chosen):
        return second if chosen else first
    sizes = {b: where(chosen, getattr(second, b), getattr(first, b)) for b in BUCKETS}
    return replace(first, **sizes, made=NOTHING)


@record
class Rank:
    """Memory of a rank of one stage.

    saved    saved activations of one micro-batch      casts  autocast's copies of weights that it keeps
    each     what each other micro-batch in flight keeps: except in GPipe the head is done with one before the next
    delayed  bytes of a micro-batch whose weight gradients are still to be computed
    states   bytes of the optimizer's states by name, with master weights
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
        """Return what is allocated at the optimizer step, and what comes and goes in the passes before it."""
        *passes, step = self.moments
        bucket = setup.bucket
        passing = maximum(*(m.activations + m.weight_casts + m.inputs + m.temporaries for m in passes)) - bucket
        layout = setup.layout
        degrees = (layout.tp, layout.pp, layout.cp, layout.dp)
        parts = total(where(d > 1, where(d < layout.gpus, 1, 0), 0) for d in degrees)
        return Flow(step.live, passing, where(layout.gpus > 1, 1 + parts, 0))

"""Parameters that fully sharded data parallelism holds gathered, and the gradient of a flat parameter."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, maximum, ratio, total, where
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.stages import Stage

BLOCKS_IN_FLIGHT = 2
"""Blocks whose parameters FSDP holds gathered: the one in use and the one prefetched."""


def left_gathered(step: PreparedStep, parts: Sequence[tuple[Number, LocalWeights]]) -> Number:
    """Return the bytes of frozen parameters of blocks that FSDP has gathered and not freed after the backward pass."""
    setup = step.setup
    if not setup.framework.keeps_frozen or setup.implementation.tuning is None:
        return 0
    blocks = parts[1 : 1 + len(step.run.layers)]
    return where(setup.layout.zero >= 3, total(count * (part.frozen - part.scales) for count, part in blocks), 0)


def gathered_bytes(
    step: PreparedStep, stage: Stage, parts: Sequence[tuple[Number, LocalWeights]], in_flight: int = BLOCKS_IN_FLIGHT
) -> Number:
    """Return the bytes of parameters that FSDP (ZeRO-3) holds gathered: the root (embedding and head), and the blocks
    in use and prefetched."""
    setup = step.setup
    policy, tuning = setup.precision, setup.implementation.tuning
    trained, stored = sized(1, policy.gathered), sized(1, policy.network.param)
    narrowed = 1 if tuning is not None and tuning.quantized else ratio(sized(1, policy.network.gathered), stored)

    def whole(part: LocalWeights) -> Number:
        """Return the gathered bytes of a section; packed weights are gathered as stored, without their scales."""
        units = part.dense if setup.framework.experts_apart else part.all
        return units * trained + part.typed(trained) + (part.frozen - part.scales) * narrowed

    blocks = maximum(0, *(whole(part) for _, part in parts[1 : 1 + len(step.run.layers)]))
    ends = stage.first * whole(parts[0][1]), stage.last * whole(parts[1 + len(step.run.layers)][1])
    root = maximum(*ends) if setup.framework.ends_apart else ends[0] + ends[1]
    in_use = root + in_flight * blocks
    if setup.framework.keeps_stage:
        in_use = where(setup.layout.pp > 1, total(n * whole(part) for n, part in parts), in_use)
    return where(setup.layout.zero >= 3, in_use, 0)


def flat_gradient(part: LocalWeights, width: Number) -> Number:
    """Return the bytes of the gradient of a section's flat parameter, which covers the entire section if any of it is
    trained."""
    return where(part.all > 0, part.all * width + part.frozen - part.scales, 0)

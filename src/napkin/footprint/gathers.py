"""Parameters that fully sharded data parallelism holds gathered, and the gradient of a flat parameter."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, maximum, ratio, total, where
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.stages import Stage
from napkin.training.framework import COMPUTE


def left_gathered(step: PreparedStep, parts: Sequence[tuple[Number, LocalWeights]]) -> Number:
    """Return the bytes of frozen parameters of blocks that FSDP has gathered and not freed after the backward pass."""
    setup = step.setup
    if not setup.framework.keeps_frozen or setup.implementation.tuning is None:
        return 0
    blocks = parts[1 : 1 + len(step.run.layers)]
    return where(setup.layout.zero >= 3, total(count * (part.frozen - part.scales) for count, part in blocks), 0)


def _gathered_units(
    step: PreparedStep, stage: Stage, parts: Sequence[tuple[Number, LocalWeights]]
) -> tuple[Number, Number, Number]:
    """Return the gathered bytes of the root (embedding and head), of the largest block, and of all parts."""
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
    return root, blocks, total(n * whole(part) for n, part in parts)


def gathered_bytes(
    step: PreparedStep,
    stage: Stage,
    parts: Sequence[tuple[Number, LocalWeights]],
    in_flight: int | None = None,
    ends: bool = True,
) -> Number:
    """Return the bytes of parameters in the format of the layers: what a compiler has cast, or what FSDP (ZeRO-3) holds
    gathered, the root (embedding and head) and the blocks in use and prefetched.

    parts      the weights of a rank as (count, weights of one): embedding, each type of layer, head
    in_flight  most blocks that are gathered at once, if not as many as in the passes
    ends       an embedding or a head that is a unit of its own is one of them"""
    setup = step.setup
    if setup.framework.autocasts and setup.precision.autocast:
        return cast_bytes(step, stage, parts)
    root, block, every = _gathered_units(step, stage, parts)
    blocks = setup.blocks_in_flight if in_flight is None else in_flight
    in_use = (root if ends or not setup.framework.ends_apart else 0) + blocks * block
    if setup.framework.keeps_stage:
        in_use = where(setup.layout.pp > 1, every, in_use)
    return where(setup.layout.zero >= 3, in_use, 0)


def cast_bytes(step: PreparedStep, stage: Stage, parts: Sequence[tuple[Number, LocalWeights]]) -> Number:
    """Return the bytes of 16-bit copies of fp32 weights that live from a forward pass to the backward pass. The cast is
    an operation of its layer: a checkpointed layer casts again, one layer at a time (Oneflow-Inc/oneflow core/
    job_rewriter/auto_mixed_precision.cpp, a cast has the scope of its variable; checkpointing_pass.cpp)."""
    again = [part.all for _, part in parts[1 : 1 + len(step.run.layers)]]
    cast_again = list(zip(stage.checkpointed, again, strict=True))
    kept = total(n * part.all for n, part in parts) - total(n * one for n, one in cast_again)
    at_once = maximum(0, *(where(n > 0, one, 0) for n, one in cast_again))
    return (kept + at_once) * sized(1, step.setup.precision.compute)


def stream_bytes(step: PreparedStep, stage: Stage, parts: Sequence[tuple[Number, LocalWeights]]) -> Number:
    """Return the bytes that the allocator keeps for the streams of fully_shard and that the peak, on the default
    stream, cannot use: a block serves only the stream that allocated it (PyTorch c10/cuda/CUDACachingAllocator.cpp).

    The gathers' stream allocates a unit's buffer and, before, its rank's shard in the format of the gather, next to the
    shard that comes from the host; a buffer lives until the next unit's is made, so the root's next to a block's, or
    two blocks'. At the peak one block's is in use. The reductions' stream allocates a unit's reduced shard, which is
    freed where the gradient is in another format or on the host (torch/distributed/fsdp/_fully_shard/
    _fsdp_collectives.py, foreach_all_gather and foreach_reduce; _fsdp_param_group.py, wait_for_unshard).

    Quantized weights are taken to be divided by FSDP's first version, which gathers into the parameter itself:
    accelerate does not let fully_shard divide them (utils/fsdp_utils.py, fsdp2_prepare_model)."""
    setup = step.setup
    tuning = setup.implementation.tuning
    if not setup.framework.reduced_in or (tuning is not None and tuning.quantized):
        return 0
    policy, away = setup.precision, "parameters" in setup.offload
    gathered, stored, grad = (sized(1, one) for one in (policy.gathered, policy.param, policy.grad))
    reduced = gathered if setup.framework.reduced_in == COMPUTE else sized(1, setup.framework.reduced_in)
    staged = 1 + ratio(stored, gathered) * (away and stored != gathered)
    other = reduced != grad
    freed = ratio(reduced * (other or away) + grad * (other and away), gathered)
    root, block, _ = _gathered_units(step, stage, parts)
    larger = maximum(root, block)
    gathers = maximum(root + ratio(root, setup.shards) * staged - block, larger + ratio(block, setup.shards) * staged)
    reductions = ratio(larger, setup.shards) * freed
    return where((setup.layout.zero >= 3) & (setup.shards > 1), gathers + reductions, 0)


def flat_gradient(part: LocalWeights, width: Number) -> Number:
    """Return the bytes of the gradient of a section's flat parameter, which covers the entire section if any of it is
    trained."""
    return where(part.all > 0, part.all * width + part.frozen - part.scales, 0)

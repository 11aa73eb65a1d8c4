"""Memory to save a complete sharded state: on each GPU, and in host memory of the first rank.

torch's FSDP with StateDictType.FULL_STATE_DICT gathers the units one by one. With offload_to_cpu and rank0_only of
FullStateDictConfig, which accelerate sets (utils/dataclasses.py, set_state_dict_type), the first rank copies each to
its host; without, torch's default, every rank keeps all of them on its GPU
(torch/distributed/fsdp/_state_dict_utils.py, _full_post_state_dict_hook). DeepSpeed's
stage3_gather_16bit_weights_on_model_save is of the first kind (deepspeed/runtime/engine.py,
_zero3_consolidated_16bit_state_dict); it saves the optimizer's states divided.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, maximum, total
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import Moment, Rank
from napkin.record import record

SHARDED, FULL, ON_GPU = "sharded", "full", "full-on-gpu"
SAVES = (SHARDED, FULL, ON_GPU)
"""How a state is saved: sharded; gathered unit by unit to the first rank's host; gathered on every GPU."""


@record
class Saved:
    """Bytes of a complete state: the largest unit, all weights, and the optimizer states, with any master copy, if they
    are gathered as well."""

    unit: Number
    weights: Number
    states: Number


def saved(step: PreparedStep, rank: Rank, parts: Sequence[tuple[Number, LocalWeights]]) -> Saved:
    """Return what is gathered of a rank's stage, in the dtype of the sharded weights."""
    setup = step.setup
    width = sized(1, setup.precision.param)
    weights = [(n, part.gradients(width) + part.frozen) for n, part in parts]
    last = 1 + len(step.run.layers)
    ends = weights[0][0] * weights[0][1], weights[last][0] * weights[last][1]
    root = maximum(*ends) if setup.framework.ends_apart else ends[0] + ends[1]
    blocks = maximum(0, *(size for _, size in weights[1:last]))
    states: Number = 0
    if not setup.framework.unit_of_module:
        master = 0 if setup.precision.master is None else sized(1, setup.precision.master) * rank.weights.all
        states = total(d + e for _, d, e in rank.weights.states) + master
    return Saved(maximum(root, blocks), total(n * size for n, size in weights), states)


def moment_of_saving(step: PreparedStep, rank: Rank, parts: Sequence[tuple[Number, LocalWeights]]) -> Moment:
    """Return the live bytes while the state is saved after a step, without gradients and activations."""
    found = saved(step, rank, parts)
    gathered = found.unit + (found.weights if step.setup.save == ON_GPU else 0)
    return Moment("save", rank.parameters, 0, rank.optimizer, 0, 0, 0, gathered, models=rank.models)

"""Tensors that the implementation registers next to its parameters."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, total
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.stages import Stage
from napkin.operations.implementations import EAGER
from napkin.operations.roles import TABLES

SPARE_POSITIONS = 2
"""Rows of a table of sines before the first position (fairseq's offset, for padding)."""


def buffers(step: PreparedStep, stage: Stage) -> Number:
    """Return the bytes of the buffers that the modules of a stage register (`buffers` of an implementation)."""
    setup, stack = step.setup, step.stack
    length = setup.layout.seq if setup.implementation.crops else step.model.max_length or setup.layout.seq
    depth = total(stage.layers)
    eager = setup.attention == EAGER or not setup.implementation.crops
    rotary = {
        (*angles, setup.implementation.by_kind and any(core.window for o in layer.operations if (core := o.attends())))
        for layer in stack.layers
        for op in layer.operations
        if (angles := op.angles()) is not None
    }
    widest = max((dim for dim, *_ in rotary), default=0)
    rotating = [i for i, one in enumerate(stage.kinds) if any(op.angles() is not None for op in one.operations)]
    tables = [op for op in stack.before if op.owner().embeds() in TABLES]
    found: Number = 0
    for what, kind in setup.implementation.buffers:
        count: Number = {
            "rotary": total(dim for dim, *_ in rotary),
            "spare rotary": widest,
            "each rotary": total(stage.layers[i] for i in rotating) * widest,
            "angles": depth * length * widest,
            "shared angles": length * widest,
            "masks": depth * length * length * eager,
            "mask": length * length,
            "ids": stage.first * length,
            "sines": stage.first * len(step.model.stacks) * (length + SPARE_POSITIONS) * step.model.hidden,
            "positions": stage.first * length * step.model.hidden,
            "logits": stage.last * step.model.vocabulary,
            "scale": stage.first * len(tables),
            "factors": 2 * stage.first,
            "scalar": depth,
            "scalars": 2 * depth,
        }[what]
        loaded = setup.precision.frozen or setup.precision.param
        found = found + sized(count, kind or ("fp32" if loaded == "fp32" else "bf16"))
    if setup.implementation.buffers:  # routers' biases that no gradient reaches, tables of hashed choices
        for many, layer in zip(stage.layers, stage.kinds, strict=True):
            for op in layer.operations:
                for elements, kind in op.buffers(step.model.vocabulary):
                    found = found + many * sized(elements, kind)
    return found

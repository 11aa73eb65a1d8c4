"""Tensors next to parameters and their gradients: those that the implementation registers, and placeholders that fused
kernels return as gradients of weights.

A linear layer that adds its weight's gradient to the buffer of all gradients by itself still owes autograd one. It
returns an uninitialized tensor of the weight's shape and nominal format, which is kept: one for each shape, for all
layers and micro-batches, of 16 bits where matmuls read 8 (NVIDIA/TransformerEngine transformer_engine/pytorch/module/
base.py, get_dummy_wgrad; the head's: NVIDIA/Megatron-LM megatron/core/tensor_parallel/layers.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, total, where
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.stages import Stage
from napkin.operations.base import Operation
from napkin.operations.implementations import EAGER
from napkin.operations.rewrite import fuse_linears
from napkin.operations.roles import EXPERT, REPLICATED, TABLES
from napkin.training.layout import Layout

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


Form = tuple[int, int, str]
"""Rows and columns of a complete weight, and how it is divided."""


def placeholder_bytes(step: PreparedStep, stage: Stage) -> Number:
    """Return the bytes of the placeholders on a rank of a stage."""
    setup = step.setup
    if not setup.implementation.fuses_gradients or setup.implementation.tuning is not None:
        return 0
    there: dict[Form, Number] = {}
    places = [(stage.last, step.stack.after)]
    places += [(n, layer.operations) for n, layer in zip(stage.layers, stage.kinds, strict=True)]
    for count, operations in places:
        for form in set(_forms(operations)):
            there[form] = there.get(form, 0) + count
    width = sized(1, setup.precision.nominal)
    known: dict[tuple[int, int], int] = {}
    sizes: list[Number] = []
    for (rows, columns, shard), count in there.items():
        ways = _ways(shard, setup.layout)
        earlier = known.get((rows, columns), 0)
        known[rows, columns] = earlier + 1
        new = where(ways > 1, 1, 0) if earlier else 1  # undivided, both are one shape
        sizes.append(where(count > 0, new, 0) * ceil_div(rows * columns, ways) * width)
    return total(sizes)


def _forms(operations: Iterable[Operation]) -> Iterator[Form]:
    """Yield the forms of the weights of linear layers and experts, fused as they are stored."""
    operations = tuple(operations)
    for one in fuse_linears(linear for op in operations if (linear := op.linear()) is not None):
        yield int(one.d_out), int(one.d_in), one.shard
    for op in operations:
        for weight in op.weights():
            if weight.shard == EXPERT and len(weight.shape) > 1:
                yield weight.shape[0], weight.shape[1], EXPERT


def _ways(shard: str, layout: Layout) -> Number:
    """Return over how many ranks a weight of that form is divided. An expert is divided by its own tensor ranks."""
    if shard == EXPERT:
        return layout.etp
    return 1 if shard == REPLICATED else layout.tp

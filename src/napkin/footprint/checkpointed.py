"""The contents of a checkpoint of a training setup: trained weights, any master copy, optimizer states."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Number
from napkin.footprint.states import local_weights
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.record import replace
from napkin.term import TRUE, Term, add, leaf, multiply
from napkin.training.layout import Layout
from napkin.training.setup import Setup


def saved_states(model: Model, setup: Setup) -> Term:
    """Return the bytes of a checkpoint of the trained weights, any master copy, and the optimizer states."""
    alone = replace(setup, layout=Layout(seq=1), shard=0)
    trained: Number = 0
    states: Number = 0
    for count, operations in _operations(setup.trained(model) if setup.freezes else model):
        held = local_weights(operations, alone)
        trained = trained + count * held.all
        states = states + count * sum(dense + expert for _, dense, expert in held.states)
    precision = setup.precision
    weights = leaf("params/trained", trained, "param", TRUE, "those that get a gradient")
    kept = {"parameters": precision.param, "master": precision.master}
    parts = [
        multiply(
            f"checkpoint/{name}", weights, leaf(f"bytes_per_param/{name}", sized(1, kind), "byte/param", TRUE, kind)
        )
        for name, kind in kept.items()
        if kind is not None
    ]
    return add("checkpoint/bytes", *parts, leaf("checkpoint/optimizer", states, "byte", TRUE, setup.optimizer.name))


def _operations(model: Model) -> list[tuple[int, tuple[Operation, ...]]]:
    """Return all operations with weights, those of equal layers once with the number of layers."""
    parts = [] if model.vision is None else [stack for part in model.vision.parts for stack in part.stacks]
    found: list[tuple[int, tuple[Operation, ...]]] = [(1, model.shared)]
    for stack in (*parts, *model.stacks):
        found += [(1, stack.before), (1, stack.after)]
        found += [(count, layer.operations) for _, count, layer in stack.kinds()]
    return found

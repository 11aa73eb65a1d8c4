"""Weights that a class holds and that text alone does not run: layers that attend to an image or to an encoder.

No gradient reaches them, so that an optimizer keeps nothing for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from napkin.architectures.assembly import runs_of
from napkin.architectures.blocks import LAYER, NormStyle, Operations
from napkin.inputs.model import Config
from napkin.operations.idle import Idle
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, stack_of
from napkin.operations.roles import REPLICATED
from napkin.record import replace


def idle(name: str, operations: Operations) -> Idle:
    """Return what is held of operations that do not run: modules of the class, and parameters."""
    return Idle(name, (), tuple(op for op in operations if op.weights() or op.owner() is not op))


def tensors(name: str, shapes: Mapping[str, tuple[int, ...]]) -> Parameters:
    """Return tensors of no linear layer."""
    return Parameters(name, (), tuple(shapes.items()), REPLICATED)


def cross_projections(hidden: int, wide: int, narrow: int, memory: int, *, bias: bool) -> Operations:
    """Return the linear layers of an attention of `hidden` to another network's output of `memory`: queries of `wide`,
    keys and values of `narrow`."""
    return (
        Matmul("cross_q", ("x",), hidden, wide, bias),
        Matmul("cross_k", ("x",), memory, narrow, bias),
        Matmul("cross_v", ("x",), memory, narrow, bias),
        Matmul("cross_o", ("x",), wide, hidden, bias),
    )


def cross_attention(hidden: int, memory: int, norm: NormStyle) -> Operations:
    """Return the linear layers of an attention to another network's output, with biases, and its norm."""
    return (norm("cross_norm", "x", hidden), *cross_projections(hidden, hidden, hidden, memory, bias=True))


def in_each_layer(model: Model, name: str, operations: Operations) -> Model:
    """Return a model of one stack, each layer of which holds these operations too."""
    (stack,) = model.stacks
    held = idle(name, operations)
    return replace(model, stacks=(stack.mapped(lambda layer: replace(layer, operations=(held, *layer.operations))),))


def beside_encoder(model: Model, config: Config, field: str) -> Model:
    """Return a model of one stack, each layer of which also attends to an encoder if the field says so: weights that
    are held."""
    if not config.flag(field, otherwise=False):
        return model
    config.notes.append("cross-attention is counted as parameters; it runs next to an encoder only")
    return in_each_layer(model, "unused_cross_attention", cross_attention(model.hidden, model.hidden, LAYER))


def between_layers(model: Model, waiting: Sequence[int], operations: Operations) -> Model:
    """Return a model of one stack of equal layers, with `waiting[i]` idle layers of these operations counted with the
    i-th."""
    (stack,) = model.stacks
    (usual,) = stack.layers

    def layer(many: int) -> Layer:
        held = tuple(idle(f"cross_layer_{n}", operations) for n in range(many))
        return Layer(usual.kind + "_and_cross" * (many > 0), (*held, *usual.operations))

    return replace(model, stacks=(stack_of(stack.name, stack.before, runs_of(waiting, layer), stack.after),))


def waiting_before(kept: Sequence[int], layers: int) -> list[int]:
    """Return for each of the `kept` layers of a network of `layers` how many others lie before it, behind the previous
    one that is kept; those behind the last count with it."""
    waiting = [later - earlier - 1 for earlier, later in pairwise((-1, *kept))]
    waiting[-1] += layers - 1 - kept[-1]
    return waiting

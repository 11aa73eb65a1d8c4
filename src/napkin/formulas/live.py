"""Live bytes while a tape is replayed backwards, as a trace of every tensor sees them.

autograd's engine runs the nodes in the reverse of their order. Each makes the gradients of its inputs (an addition
hands on the one that it got), then lets go of the gradient that it read and of what it had kept; gradients of weights
stay. Where a gradient is already, the next is added in place if nobody else holds either, else into a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import Number, maximum
from napkin.formulas.tape import SLICE, WEIGHT, Node, Storage, Tensor
from napkin.record import record


@record
class Replay:
    """Live bytes relative to the start of a piece's backward pass, where all that it kept is still there.

    peak     the largest         end      what is left: gradients of weights, and of the input, less what was freed
    weights  gradients of weights that it leaves
    """

    peak: Number
    end: Number
    weights: Number


class _Gradient:
    """A gradient's buffer and how many hold it."""

    __slots__ = ("holders", "size")

    def __init__(self, size: Number) -> None:
        self.size = size
        self.holders = 0


def replay(nodes: Sequence[Node], seed: Number, stepped: bool = False) -> Replay:
    """Run the nodes backwards. `seed`: bytes of the gradient of the last node's output (counted in the start).
    `stepped`: the optimizer takes each weight's gradient as soon as it is there."""
    uses: dict[int, int] = {}
    for node in nodes:
        for storage in _held(node):
            uses[id(storage)] = uses.get(id(storage), 0) + 1
    gradients: dict[int, _Gradient] = {}
    live: Number = 0
    peak: Number = 0
    weights: Number = 0
    if nodes:
        first = _Gradient(seed)
        first.holders = 1
        gradients[id(nodes[-1].output.root)] = first
    for node in reversed(nodes):
        arrived = gradients.pop(id(node.output.root), None)
        before = weights
        given: list[tuple[Tensor, _Gradient]] = []
        if arrived is not None:
            for tensor in node.inputs:
                if tensor.fixed:
                    continue
                if tensor.places[0][1].kind == WEIGHT:
                    weights, live = weights + tensor.size, live + tensor.size
                elif node.alias and tensor.dtype == node.output.dtype:
                    arrived.holders += 1
                    given.append((tensor, arrived))
                elif node.name == SLICE and id(tensor.root) in gradients:
                    continue
                else:
                    made = _Gradient(tensor.root.size if node.name == SLICE else tensor.size)
                    made.holders = 1
                    live = live + made.size
                    given.append((tensor, made))
            weights, live = weights + node.weight, live + node.weight
            peak = maximum(peak, live + node.scratch)
            live = _release(arrived, live)
        if stepped:
            weights, live = before, live - (weights - before)
        for storage in _held(node):
            uses[id(storage)] -= 1
            if uses[id(storage)] == 0:
                live = live - storage.size * storage.kept
        for tensor, gradient in given:
            key = id(tensor.root)
            there = gradients.get(key)
            if there is None:
                gradients[key] = gradient
            elif there.holders == 1 or gradient.holders == 1:
                kept, gone = (there, gradient) if there.holders == 1 else (gradient, there)
                live = _release(gone, live)
                gradients[key] = kept
            else:
                total = _Gradient(there.size)
                total.holders = 1
                live = live + total.size
                peak = maximum(peak, live)
                live = _release(gradient, _release(there, live))
                gradients[key] = total
    return Replay(peak, live, weights)


def _held(node: Node) -> list[Storage]:
    """The storages that a node keeps and that go when its backward has run."""
    return [s for _, s in node.kept if not s.shared]


def _release(gradient: _Gradient, live: Number) -> Number:
    gradient.holders -= 1
    return live - gradient.size if gradient.holders == 0 else live

"""Compute live bytes while a tape runs forward and backward, as a dispatch mode that traces every tensor measures them.

Forward, a tensor that autograd does not save lives until its last reader has run, or until the local variable that
refers to it goes out of scope (scopes.py). Backward, autograd's engine runs the nodes in reverse order. Each computes
the gradients of its inputs (an addition passes on the one that it received), then frees the gradient that it read and
its saved tensors; weight gradients stay. Accumulating into an existing gradient allocates a new tensor: under a
dispatch mode autograd does not accumulate in place (torch/csrc/autograd/input_buffer.cpp, accumulate).
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import (
    ACTIVATION,
    CUT,
    INPUT_LABEL,
    JOINED,
    SLICE,
    WEIGHT,
    WEIGHT_COPY,
    Node,
    Storage,
    Tensor,
    sized,
)
from napkin.elementwise import Number, is_array, maximum, minimum
from napkin.record import record


@record
class Replay:
    """Live bytes of a piece's backward pass, relative to its start, where everything saved is still allocated.

    peak     the maximum
    end      gradients of the weights and of the input, minus what was freed
    weights  gradients of the weights
    """

    peak: Number
    end: Number
    weights: Number


class _Gradient:
    """A gradient's buffer with its reference count."""

    __slots__ = ("holders", "size")

    def __init__(self, size: Number) -> None:
        self.size = size
        self.holders = 1


Given = list[tuple[Tensor, _Gradient]]
"""Tensors with the gradients that a node's backward gives them."""


def replay(
    nodes: Sequence[Node],
    seed: Number,
    stepped: bool = False,
    recomputed: bool = False,
    alone: bool = False,
    waits: Number = 0,
    carried: bool = False,
) -> Replay:
    """Run the nodes backward.

    seed     bytes of the gradient of the last node's output, counted as live at the start
    stepped  each weight's gradient is freed when complete (optimizer in backward, or added to an accumulated one),
             except for the first `waits` bytes: a tied head's, which the embedding's gradient is added to
    recomputed  the saved tensors were recomputed, and are freed as soon as they are read; else after the node's
             gradients have been summed and cast
    alone    no other piece still holds the shared tensors
    carried  a piece that ran before has left gradients of the tensors that both read (an encoder's output, position
             biases), to which its own are added"""
    run = _Backward(nodes, seed, recomputed, alone)
    for tensor in read_by_others(nodes) if carried else ():
        run.gradients[id(tensor)] = _Gradient(tensor.size)
        run.live = run.live + tensor.size
    for node in reversed(nodes):
        before = run.weights
        given = run.step(node)
        if stepped:
            stays = minimum(waits, run.weights - before)
            waits, run.live = waits - stays, run.live - (run.weights - before - stays)
            run.weights = before
        run.accumulate(given)
    return Replay(run.peak, run.live, run.weights)


def before_recomputation(nodes: Sequence[Node]) -> Number:
    """Return the bytes that a piece's backward pass has allocated when it first needs a saved tensor, and with it the
    piece is recomputed: the gradients of sums and casts at its end."""
    run = _Backward(nodes, 0, True, False)
    for node in reversed(nodes):
        if node.kept:
            break
        run.accumulate(run.step(node))
    return run.live


def read_by_others(nodes: Sequence[Node]) -> tuple[Tensor, ...]:
    """Return the tensors with a gradient that nodes read and other pieces read too, those that the nodes make among
    them."""
    roots = {id(x.root): x.root for node in nodes for x in node.inputs if not x.no_grad}
    return tuple(x for x in roots.values() if any(s.shared and s.kind in (ACTIVATION, WEIGHT) for _, s in x.storages))


class _Backward:
    """A backward pass: live bytes relative to its start, their peak, and the gradients that are not yet read."""

    def __init__(self, nodes: Sequence[Node], seed: Number, recomputed: bool, alone: bool) -> None:
        self.recomputed, self.alone = recomputed, alone
        self.live: Number = 0
        self.peak: Number = 0
        self.weights: Number = 0
        self.uses: dict[int, int] = {}
        for node in nodes:
            for storage in _held(node, alone):
                self.uses[id(storage)] = self.uses.get(id(storage), 0) + 1
        self.gradients = {id(nodes[-1].output.root): _Gradient(seed)} if nodes else {}

    def step(self, node: Node) -> Given:
        """Run one node's backward and return the gradients of its inputs."""
        arrived = self.gradients.pop(id(node.output.root), None)
        if arrived is None:  # nothing that the loss depends on
            self.live = self.live - _freed(node, self.uses, self.alone)
            return []
        takers = [tensor for tensor in node.inputs if not tensor.no_grad]
        given = self.input_gradients(node, takers, arrived)
        uncast = is_array(node.uncast_weight) or bool(node.uncast_weight)
        first_made, late = (node.uncast_weight, node.weight) if uncast else (node.weight, 0)
        self.weights, self.live = self.weights + node.weight, self.live + first_made - node.bias
        self.rise(node.scratch)
        if self.recomputed:
            self.live = self.live - _freed(node, self.uses, self.alone)
        if is_array(node.bias) or node.bias:
            self.live = self.live + node.bias
            self.rise()
        for tensor in takers if node.broadcast else ():
            self.rise(_in_turn(tensor, node.output))
            self.live = self.live + tensor.size - node.output.size
        self.live = _release(arrived, self.live)
        if not self.recomputed:
            self.live = self.live - _freed(node, self.uses, self.alone)
        if is_array(late) or late:
            self.rise(late)
            self.live = self.live + late - node.uncast_weight
        return given

    def input_gradients(self, node: Node, takers: Sequence[Tensor], arrived: _Gradient) -> Given:
        """Allocate the gradients of a node's inputs, or pass on the one that arrived."""
        given: Given = []
        if node.broadcast:
            self.live = self.live + node.output.size * len(takers)
        for tensor in takers:
            if node.name == SLICE and id(tensor.root) in self.gradients:
                continue
            is_weight = tensor.storage.kind == WEIGHT
            if node.name == JOINED and is_weight:  # a view of the whole, which lives as long as any of its views
                arrived.holders += 1
                self.weights = self.weights + tensor.size
                continue
            if node.alias and _handed_on(tensor, node.output):
                arrived.holders += 1
                if is_weight:
                    self.weights = self.weights + arrived.size
                else:
                    given.append((tensor, arrived))
                continue
            size = tensor.root.size if node.name in (SLICE, CUT) or node.alias else tensor.size
            self.live = self.live if node.broadcast else self.live + size
            if is_weight:
                self.weights = self.weights + size
            else:
                given.append((tensor, _Gradient(size)))
        return given

    def accumulate(self, given: Given) -> None:
        """Hand gradients to their tensors; where there is one already, their sum is a new tensor."""
        for tensor, gradient in given:
            key = id(tensor.root)
            there = self.gradients.get(key)
            if there is None:
                self.gradients[key] = gradient
                continue
            total = _Gradient(there.size)
            self.live = self.live + total.size
            self.rise()
            self.live = _release(gradient, _release(there, self.live))
            self.gradients[key] = total

    def rise(self, more: Number = 0) -> None:
        """Let the peak include what is live now and `more` temporary bytes."""
        self.peak = maximum(self.peak, self.live + more)


def _handed_on(tensor: Tensor, output: Tensor) -> bool:
    """Return whether an addition passes its gradient to an operand unchanged: no sum over broadcast dimensions, no
    cast."""
    if tensor.dtype != output.dtype:
        return False
    return not _all(tensor.count < output.count) and _all(tensor.count <= tensor.root.count)


def _all(condition: Number) -> bool:
    return bool(condition.all() if is_array(condition) else condition)


def _in_turn(factor: Tensor, product: Tensor) -> Number:
    """Return the bytes allocated while a factor's gradient, of the product's size, is summed to the factor's size and
    cast."""
    summed = 0 if _all(factor.count == product.count) else sized(factor.count, product.dtype)
    if factor.dtype == product.dtype:
        return summed
    return maximum(summed, factor.size + (summed - product.size if is_array(summed) or summed else 0))


KEPT, DROPPED, RECOMPUTED = "kept", "dropped", "recomputed"
"""How a piece runs forward: saving for backward · checkpointed, saving nothing · recomputed in backward until the last
saved tensor exists."""


def forward_peak(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]], way: str) -> Number:
    """Return the peak bytes of tensors that a forward pass creates.

    `holds`: (index of the last node that runs while a local variable refers to a tensor, that tensor). Tensors shared
    with other pieces are not counted; autocast's weight copies are."""
    if way == RECOMPUTED:
        keeps = [number for number, node in enumerate(nodes) if node.kept]
        nodes = nodes[: keeps[-1] + 1] if keeps else ()
    used = _used(nodes, holds)
    last: dict[int, int] = {}
    for number, node in enumerate(nodes):
        for _, storage in (*(place for x in node.inputs for place in x.storages), *node.output.storages, *node.kept):
            last[id(storage)] = number
    for number, tensor in holds:
        for _, storage in tensor.storages:
            last[id(storage)] = max(last.get(id(storage), 0), number)
    there: dict[int, tuple[int, Storage, Number]] = {}  # by storage: its last reader, it, and how much of it was made
    live: Number = 0
    peak: Number = 0
    for number, node in enumerate(nodes):
        if number not in used:
            continue
        early = way == RECOMPUTED and number == len(nodes) - 1
        made = () if early else node.output.storages
        for weight, storage in (*made, *((1, s) for _, s in node.kept)):
            if id(storage) not in there and not storage.shared and storage.label != INPUT_LABEL:
                there[id(storage)] = (last[id(storage)], storage, weight)
                live = live + storage.size * weight
        live = live + node.cached
        peak = maximum(peak, live + node.forward_scratch)
        for key in [key for key, (end, _, _) in there.items() if end == number]:
            _, storage, weight = there[key]
            stays = storage.kept if way != DROPPED or storage.kind == WEIGHT_COPY else 0
            live = live - storage.size * (weight - minimum(stays, weight))
    return peak


def _used(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]]) -> set[int]:
    """Return the indices of the nodes whose result is read, and of the last one; nodes of an untaken branch do not
    run."""
    needed = {id(storage) for _, tensor in holds for _, storage in tensor.storages}
    found: set[int] = set()
    for number in range(len(nodes) - 1, -1, -1):
        node = nodes[number]
        if number == len(nodes) - 1 or any(id(storage) in needed for _, storage in node.output.storages):
            found.add(number)
            needed.update(id(storage) for x in node.inputs for _, storage in x.storages)
            needed.update(id(storage) for _, storage in node.kept)
    return found


def _freed(node: Node, uses: dict[int, int], alone: bool) -> Number:
    """Return the bytes freed after a node's backward: saved tensors that no other node still holds."""
    gone: Number = 0
    for storage in _held(node, alone):
        uses[id(storage)] -= 1
        if uses[id(storage)] == 0:
            gone = gone + storage.size * storage.kept
    return gone


def _held(node: Node, alone: bool) -> list[Storage]:
    """Return the storages saved by a node that are freed after its backward."""
    return [s for _, s in node.kept if alone or not s.shared]


def _release(gradient: _Gradient, live: Number) -> Number:
    gradient.holders -= 1
    return live - gradient.size if gradient.holders == 0 else live

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
from napkin.elementwise import Number, holds_for_all, is_array, is_zero, maximum, minimum, product
from napkin.record import record


@record
class Replay:
    """Live bytes of a piece's backward pass, relative to its start, where everything saved is still allocated.

    peak     the maximum
    end      gradients of the weights and of the input, minus what was freed
    """

    peak: Number
    end: Number


class _Gradient:
    """A gradient's buffer with its reference count."""

    __slots__ = ("holders", "size")

    def __init__(self, size: Number) -> None:
        self.size = size
        self.holders = 1


Given = list[tuple[Tensor, _Gradient]]
"""Tensors with the gradients that a node's backward gives them."""


def replays(
    nodes: Sequence[Node],
    seed: Number,
    recomputed: bool = False,
    alone: bool = False,
    waits: Number = 0,
    carried: bool = False,
) -> tuple[Replay, Replay]:
    """Run the nodes backward; return it where the gradients of weights stay, and where each is freed when it is
    complete (optimizer in backward, or added to an accumulated one).

    seed     bytes of the gradient of the last node's output, counted as live at the start
    recomputed  the saved tensors were recomputed, and are freed as soon as they are read; else after the node's
             gradients have been summed and cast
    alone    no other piece still holds the shared tensors
    waits    of the gradients of weights, these first bytes are not freed: a tied head's, which the embedding's gradient
             is added to
    carried  a piece that ran before has left gradients of the tensors that both read (an encoder's output, position
             biases), to which its own are added"""
    run = _Backward(nodes, seed, recomputed, alone)
    for tensor in read_by_others(nodes) if carried else ():
        run.gradients[id(tensor)] = _Gradient(tensor.size)
        run.live = run.live + tensor.size
    for node in reversed(nodes):
        before = run.weights
        given = run.step(node)
        if run.weights is not before:
            new = run.weights - before
            stays = minimum(waits, new)
            waits, run.let_go = waits - stays, run.let_go + new - stays
        run.accumulate(given)
    return Replay(run.peak, run.live), Replay(run.peak_if_freed, run.live - run.let_go)


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
    """A backward pass: live bytes relative to its start, their peak, and the gradients that are not yet read.

    included       live bytes that the peak includes already
    weights        bytes of the gradients of weights
    let_go         of those, what is gone where each is freed when it is complete
    peak_if_freed  the peak there
    """

    def __init__(self, nodes: Sequence[Node], seed: Number, recomputed: bool, alone: bool) -> None:
        self.recomputed = recomputed
        self.live: Number = 0
        self.peak: Number = 0
        self.included: Number | None = None
        self.weights: Number = 0
        self.let_go: Number = 0
        self.peak_if_freed: Number = 0
        self.freed = _freed(nodes, alone)
        self.gradients = {id(nodes[-1].output.root): _Gradient(seed)} if nodes else {}

    def step(self, node: Node) -> Given:
        """Run one node's backward and return the gradients of its inputs."""
        arrived = self.gradients.pop(id(node.output.root), None)
        if arrived is None:  # nothing that the loss depends on
            self.free(node)
            return []
        takers = [tensor for tensor in node.inputs if not tensor.no_grad]
        given = self.input_gradients(node, takers, arrived)
        late: Number = 0
        if not is_zero(node.weight):
            uncast = not is_zero(node.uncast_weight)
            first_made, late = (node.uncast_weight, node.weight) if uncast else (node.weight, 0)
            self.weights, self.live = self.weights + node.weight, self.live + first_made - node.bias
        self.rise(node.scratch)
        if self.recomputed:
            self.free(node)
        if not is_zero(node.bias):
            self.live = self.live + node.bias
            self.rise()
        for tensor in takers if node.broadcast else ():
            self.rise(_in_turn(tensor, node.output))
            if tensor.count is not node.output.count or tensor.dtype != node.output.dtype:
                self.live = self.live + tensor.size - node.output.size
        self.live = _release(arrived, self.live)
        if not self.recomputed:
            self.free(node)
        if not is_zero(late):
            self.rise(late)
            self.live = self.live + late - node.uncast_weight
        return given

    def free(self, node: Node) -> None:
        """Free what no other node still holds after a node's backward."""
        for storage in self.freed.get(id(node), ()):
            self.live = self.live - product(storage.size, storage.kept)

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
        live = self.live
        if not is_zero(more):
            live = live + more
        elif self.included is live:
            return
        else:
            self.included = live
        self.peak = maximum(self.peak, live)
        if is_zero(self.let_go):
            self.peak_if_freed = self.peak
        else:
            self.peak_if_freed = maximum(self.peak_if_freed, live - self.let_go)


def _handed_on(tensor: Tensor, output: Tensor) -> bool:
    """Return whether an addition passes its gradient to an operand unchanged: no sum over broadcast dimensions, no
    cast."""
    if tensor.dtype != output.dtype:
        return False
    root = tensor.root
    if tensor.count is not output.count and holds_for_all(tensor.count < output.count):
        return False
    return tensor.count is root.count or holds_for_all(tensor.count <= root.count)


def _in_turn(factor: Tensor, product: Tensor) -> Number:
    """Return the bytes allocated while a factor's gradient, of the product's size, is summed to the factor's size and
    cast."""
    alike = factor.count is product.count or holds_for_all(factor.count == product.count)
    summed = 0 if alike else sized(factor.count, product.dtype)
    if factor.dtype == product.dtype:
        return summed
    return maximum(summed, factor.size + (summed - product.size if is_array(summed) or summed else 0))


def forward_peaks(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]]) -> tuple[Number, Number, Number]:
    """Return the peak bytes of tensors that a forward pass creates where it saves for backward, where it saves nothing
    (checkpointed), and where it is recomputed in backward until the last saved tensor exists.

    `holds`: (index of the last node that runs while a local variable refers to a tensor, that tensor). Tensors shared
    with other pieces are not counted; autocast's weight copies are."""
    keeps = [number for number, node in enumerate(nodes) if node.kept]
    again = _moves(nodes[: keeps[-1] + 1] if keeps else (), holds, early=True)
    return *_peaks(_moves(nodes, holds)), _peaks(again)[0]


def forward_peak(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]]) -> Number:
    """Return the peak bytes of tensors that a forward pass creates which saves for backward."""
    return _peaks(_moves(nodes, holds))[0]


_Moved = tuple[Number, Number, Number, Number]
"""Bytes of what a node makes, its temporary bytes, and the bytes of what nothing reads after it: where autograd saves,
and where nothing is saved but autocast's copies of weights."""


def _moves(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]], early: bool = False) -> list[_Moved]:
    """Return what the nodes that run move. early: the pass ends before the last node's output exists."""
    makes = [[id(storage) for _, storage in node.output.storages] for node in nodes]
    reads = [
        [id(storage) for tensor in node.inputs for _, storage in tensor.storages] + [id(s) for _, s in node.kept]
        for node in nodes
    ]
    held = [(number, id(storage)) for number, tensor in holds for _, storage in tensor.storages]
    last: dict[int, int] = {}
    for number, (made, read) in enumerate(zip(makes, reads, strict=True)):
        for key in read:
            last[key] = number
        for key in made:
            last[key] = number
    for number, key in held:
        last[key] = max(last.get(key, 0), number)
    there: set[int] = set()
    ends: dict[int, list[tuple[Number, Number, Storage]]] = {}
    found: list[_Moved] = []
    for number in _used(makes, reads, {key for _, key in held}):
        node = nodes[number]
        new: Number = node.cached
        parts = [] if early and number == len(nodes) - 1 else [*node.output.storages]
        for weight, storage in (*parts, *((1, storage) for _, storage in node.kept)):
            key = id(storage)
            if key not in there and not storage.shared and storage.label != INPUT_LABEL:
                there.add(key)
                size = product(storage.size, weight)
                new = size if is_zero(new) else new + size
                ends.setdefault(last[key], []).append((size, weight, storage))
        found.append((new, node.forward_scratch, *_gone(ends.get(number, ()))))
    return found


def _gone(parts: Sequence[tuple[Number, Number, Storage]]) -> tuple[Number, Number]:
    """Return the bytes of storages that nothing reads any longer, without those that autograd saves, and without
    autocast's copies of weights only. parts: bytes, the part of a storage that is made (1, or 0 on a branch that is not
    taken), and the storage."""
    saving: Number = 0
    dropping: Number = 0
    for size, weight, storage in parts:
        stays = storage.kept
        left = size if is_zero(stays) else product(storage.size, weight - minimum(stays, weight))
        saving = left if is_zero(saving) else saving + left
        less = left if storage.kind == WEIGHT_COPY else size
        dropping = less if is_zero(dropping) else dropping + less
    return saving, dropping


def _used(makes: Sequence[list[int]], reads: Sequence[list[int]], held: set[int]) -> list[int]:
    """Return the indices of the nodes whose result is read, and of the last one, ascending; nodes of an untaken branch
    do not run. makes, reads: the storages of each node; held: those that local variables refer to."""
    needed = set(held)
    found: list[int] = []
    for number in range(len(makes) - 1, -1, -1):
        if not found or not needed.isdisjoint(makes[number]):
            found.append(number)
            needed.update(reads[number])
    return found[::-1]


def _peaks(moves: Sequence[_Moved]) -> tuple[Number, Number]:
    """Return the most live bytes where autograd saves, and where nothing is saved but autocast's copies of weights."""
    live: Number = 0
    low: Number = 0
    peak: Number = 0
    lowest: Number = 0
    for made, scratch, saving, dropping in moves:
        if not is_zero(made):
            live, low = live + made, low + made
        if not is_zero(scratch):
            peak, lowest = maximum(peak, live + scratch), maximum(lowest, low + scratch)
        elif not is_zero(made):  # else no more is live than before
            peak, lowest = maximum(peak, live), maximum(lowest, low)
        if not is_zero(dropping):
            live, low = live - saving, low - dropping
    return peak, lowest


def _freed(nodes: Sequence[Node], alone: bool) -> dict[int, list[Storage]]:
    """Return, by node, the saved storages that are freed after its backward: those that no node before it saves."""
    found: dict[int, list[Storage]] = {}
    seen: set[int] = set()
    for node in nodes:
        for _, storage in node.kept:
            if (alone or not storage.shared) and id(storage) not in seen:
                seen.add(id(storage))
                found.setdefault(id(node), []).append(storage)
    return found


def _release(gradient: _Gradient, live: Number) -> Number:
    gradient.holders -= 1
    return live - gradient.size if gradient.holders == 0 else live

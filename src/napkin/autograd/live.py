"""Compute live bytes while a tape runs backward, as a dispatch mode that traces every tensor measures them (forward:
forward_peaks.py).

Autograd's engine runs the nodes in reverse order. Each computes the gradients of its inputs (an addition passes on the
one that it received), then frees the gradient that it read and its saved tensors. Weight gradients stay. Accumulating
into an existing gradient allocates a new tensor: under a dispatch mode autograd does not accumulate in place
(torch/csrc/autograd/input_buffer.cpp, accumulate)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from napkin.autograd.control_flow import holds_for_all
from napkin.autograd.tensors import (
    ACTIVATION,
    CUT,
    DIFFERENCE,
    JOINED,
    SLICE,
    WEIGHT,
    Node,
    Storage,
    Tensor,
    sized,
)
from napkin.elementwise import Number, is_array, is_zero, maximum, minimum, product
from napkin.record import record


@record
class Replay:
    """Live bytes of a section's backward pass, relative to its start, if everything saved is still allocated.

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
"""Tensors with the gradients that a node's backward computes for them."""


def replays(
    nodes: Sequence[Node],
    seed: Number,
    recomputed: bool = False,
    alone: bool = False,
    waits: Number = 0,
    carried: bool = False,
    late: tuple[int, Number] | None = None,
    waiting: Sequence[Tensor] = (),
) -> tuple[Replay, Replay]:
    """Run the nodes backward. Return two replays: weight gradients stay, or each is freed when it is complete
    (optimizer in backward, or added to an accumulated one).

    seed     bytes of the gradient of the last node's output, counted as live at the start
    recomputed  the saved tensors were recomputed, and are freed as soon as they are read; else after the node's
             gradients have been summed and cast
    alone    no other section still holds the shared tensors
    waits    bytes of weight gradients, the first ones, that are not freed: those of a tied head, to which the
             embedding's gradient is added
    carried  a section that ran before has left gradients of the tensors that both read (an encoder's output, position
             biases), to which its own are added
    late     (number of checkpointed nodes, bytes that are recomputed when they run), if other nodes follow them
    waiting  tensors of which a section that ran before has left a gradient in any case"""
    run = _Backward(nodes, seed, recomputed, alone, carried)
    for tensor in (*waiting, *(read_by_others(nodes) if carried else ())):
        run.gradients[id(tensor.root)] = _Gradient(tensor.size)
        run.live = run.live + tensor.size
    for key, size in weights_of_others(nodes).items() if carried else ():
        run.summed.add(key)
        run.live = run.live + size
    first, more = late or (0, 0)
    run.live = run.live - more
    for number in reversed(range(len(nodes))):
        if number == first - 1:
            run.live = run.live + more
        node = nodes[number]
        for storage in node.remakes:
            run.live = run.live + product(storage.size, storage.kept)
        before = run.weights
        given = run.step(node)
        if run.weights is not before:
            new = run.weights - before
            stays = minimum(waits, new)
            waits, run.let_go = waits - stays, run.let_go + new - stays
        run.accumulate(given)
    return Replay(run.peak, run.live), Replay(run.peak_if_freed, run.live - run.let_go)


def before_recomputation(nodes: Sequence[Node]) -> Number:
    """Return the bytes that a section's backward pass has allocated when it first needs a saved tensor and is
    recomputed: the gradients of sums and casts at its end."""
    run = _Backward(nodes, 0, True, False)
    for node in reversed(nodes):
        if node.kept:
            break
        run.accumulate(run.step(node))
    return run.live


def read_by_others(nodes: Sequence[Node]) -> tuple[Tensor, ...]:
    """Return the tensors with a gradient that both these nodes and other sections read, including those that these
    nodes create."""
    roots = {id(x.root): x.root for node in nodes for x in node.inputs if not x.no_grad}
    return tuple(x for x in roots.values() if any(s.shared and s.kind in (ACTIVATION, WEIGHT) for _, s in x.storages))


def weights_of_others(nodes: Sequence[Node]) -> dict[object, Number]:
    """Return the bytes of the gradients of weights that other sections read as well."""
    return {node.of: node.summed for node in nodes if node.elsewhere}


class _Backward:
    """A backward pass: live bytes relative to its start, their peak, and the gradients that are not yet read.

    included       live bytes that the peak includes already
    weights        bytes of the gradients of weights
    let_go         of those, the bytes freed if each is freed when it is complete
    peak_if_freed  the peak in that case
    """

    def __init__(
        self, nodes: Sequence[Node], seed: Number, recomputed: bool, alone: bool, carried: bool = False
    ) -> None:
        self.recomputed = recomputed
        self.live: Number = 0
        self.peak: Number = 0
        self.included: Number | None = None
        self.weights: Number = 0
        self.let_go: Number = 0
        self.peak_if_freed: Number = 0
        self.summed: set[object] = set()
        self.left = Counter(node.of for node in nodes if node.of is not None)
        complete = {node.of for node in nodes if carried and node.completes}
        others = {node.of: 1 for node in nodes if node.elsewhere and node.of not in complete}
        self.left.update(others)  # another section completes it
        self.freed = _freed(nodes, alone, recomputed)
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
            cast_last = not is_zero(node.uncast_weight) and (node.completes or not node.one_copy)
            first_made, late = (node.uncast_weight, node.made) if cast_last else (node.made, 0)
            self.weights, self.live = self.weights + node.made, self.live + first_made - node.bias
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
        if node.of is not None:
            self.add_up(node)
        return given

    def add_up(self, node: Node) -> None:
        """Add the gradient of a weight that several nodes read; it is complete after the last of them. Each sum is a
        third tensor until both terms are freed."""
        if node.of in self.summed:
            self.rise(node.summed - node.bias)  # the matrix's, then the bias's
            self.live = self.live - node.summed
        self.summed.add(node.of)
        self.left[node.of] -= 1
        if self.left[node.of]:
            self.weights = self.weights - node.made

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
            is_weight = tensor.storage.kind == WEIGHT and not tensor.storage.shared  # else parts are added up
            if node.name == JOINED and is_weight:  # a view of the whole, which lives as long as any of its views
                arrived.holders += 1
                self.weights = self.weights + tensor.size
                continue
            negated = node.name == DIFFERENCE and tensor is node.inputs[1]
            if node.alias and not negated and _handed_on(tensor, node.output):
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
        """Hand gradients to their tensors; if there is one already, their sum is a new tensor."""
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
    """Return the bytes allocated while a factor's gradient, in the product's shape, is summed to the factor's shape and
    cast."""
    alike = factor.count is product.count or holds_for_all(factor.count == product.count)
    summed = 0 if alike else sized(factor.count, product.dtype)
    if factor.dtype == product.dtype:
        return summed
    return maximum(summed, factor.size + (summed - product.size if is_array(summed) or summed else 0))


def _freed(nodes: Sequence[Node], alone: bool, recomputed: bool) -> dict[int, list[Storage]]:
    """Return, by node, the saved storages that are freed after its backward: those that no node before it saves.
    Recomputed tensors belong to a separate graph, which a module can refer to."""
    found: dict[int, list[Storage]] = {}
    seen: set[int] = set()
    for node in nodes:
        for _, storage in node.kept:
            if recomputed and storage.remembered:
                continue
            if (alone or storage.own(recomputed)) and id(storage) not in seen:
                seen.add(id(storage))
                found.setdefault(id(node), []).append(storage)
    return found


def _release(gradient: _Gradient, live: Number) -> Number:
    gradient.holders -= 1
    return live - gradient.size if gradient.holders == 0 else live

"""Peak bytes of a forward pass: each tensor lives until its last reader has run and the local variable that refers to
it goes out of scope (scopes.py)."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import INPUT_LABEL, REMADE, WEIGHT_COPY, Node, Storage, Tensor
from napkin.elementwise import Number, is_zero, maximum, minimum, product

PRODUCTS = ("linear", "frozen", "grouped_mm", "bmm", "matmul", "mul", "gather", "index", "where", "masked_fill")
"""Primitives that save only their operands, indices and conditions among them."""


def forward_peaks(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]]) -> tuple[Number, Number, Number]:
    """Return the peak bytes of tensors that a forward pass creates if it saves for backward, if it saves nothing
    (checkpointed), and if it is recomputed in backward, up to the last saved tensor.

    `holds`: (index of the last node that runs while a local variable refers to a tensor, that tensor). Tensors shared
    with other sections are not counted; autocast's weight copies are."""
    passes = _passes(nodes, holds)
    keeps = [number for number, node in enumerate(nodes) if node.kept]
    again = _passes(nodes, holds, keeps[-1] + 1 if keeps else 0)
    return _peak(passes), _peak(passes, dropped=True), _peak(again)


def forward_peak(nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]]) -> Number:
    """Return the peak bytes of tensors that a forward pass creates which saves for backward."""
    return _peak(_passes(nodes, holds))


_Parts = list[tuple[Number, Storage]]
"""Storages with the share of each that is allocated: 1, or 0 on a branch that is not taken."""


def _passes(
    nodes: Sequence[Node], holds: Sequence[tuple[int, Tensor]], end: int | None = None
) -> list[tuple[Node, _Parts, _Parts]]:
    """Return the nodes that run, each with the tensors that it creates and those that nothing reads after it. end: the
    pass ends before this node, as soon as the last one has saved what it needs (before its output exists if it saves
    only inputs)."""
    makes = [[id(storage) for _, storage in node.output.storages] for node in nodes]
    reads = [
        [id(storage) for tensor in node.inputs for _, storage in tensor.storages] + [id(s) for _, s in node.kept]
        for node in nodes
    ]
    held = [(number, id(storage)) for number, tensor in holds for _, storage in tensor.storages]
    last: dict[int, int] = {}
    for number, keys in enumerate(reads):
        last.update(dict.fromkeys(keys, number))
        last.update(dict.fromkeys(makes[number], number))
    for number, key in held:
        last[key] = max(last.get(key, 0), number)
    there: set[int] = set()
    ends: dict[int, _Parts] = {}
    found = []
    for number in _used(makes, reads, {key for _, key in held}):
        if number == end:
            break
        node = nodes[number]
        unmade = end is not None and number == end - 1 and not _saves_results(node, there)
        new: _Parts = [] if unmade else [*node.output.storages]
        new += [(1, storage) for _, storage in node.kept]
        made = []
        for part in new:
            key = id(part[1])
            if key not in there and part[1].own(end is not None) and part[1].label != INPUT_LABEL:
                there.add(key)
                made.append(part)
                ends.setdefault(last[key], []).append(part)
        found.append((node, made, ends.get(number, [])))
    return found


def _saves_results(node: Node, there: set[int]) -> bool:
    """Return whether a node saves tensors that it creates itself."""
    if node.name in PRODUCTS:
        return False
    return not all(s.shared or s.label == INPUT_LABEL or id(s) in there for _, s in node.kept)


def _used(makes: Sequence[list[int]], reads: Sequence[list[int]], held: set[int]) -> list[int]:
    """Return the indices of the nodes whose result is read, and of the last one, ascending. Nodes of an untaken branch
    do not run. makes, reads: the storages of each node; held: those that local variables refer to."""
    needed = set(held)
    found: list[int] = []
    for number in range(len(makes) - 1, -1, -1):
        if not found or not needed.isdisjoint(makes[number]):
            found.append(number)
            needed.update(reads[number])
    return found[::-1]


def _peak(passes: Sequence[tuple[Node, _Parts, _Parts]], dropped: bool = False) -> Number:
    """Return the peak live bytes. dropped: only autocast's weight copies are saved for backward."""
    live: Number = 0
    peak: Number = 0
    for node, made, gone in passes:
        for weight, storage in made:
            live = live + product(storage.size, weight)
        if not is_zero(node.cached):
            live = live + node.cached
        scratch = not is_zero(node.forward_scratch)
        if made or scratch or not is_zero(node.cached):  # else no more is live than before
            peak = maximum(peak, live + node.forward_scratch if scratch else live)
        for weight, storage in gone:
            gone_early = storage.kind == REMADE or (dropped and storage.kind != WEIGHT_COPY)
            stays = 0 if gone_early else storage.kept
            live = live - product(storage.size, weight if is_zero(stays) else weight - minimum(stays, weight))
    return peak

"""Parts of a recorded pass that run again in backward: what is then not saved, and when it is there again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import ACTIVATION, INPUT_LABEL, REMADE, Node, Storage
from napkin.record import record


@record
class Again:
    """Nodes that run again in backward, before node `until` − 1 runs backward.

    frees_output  nodes before `until` save nothing of their results either; else only the nodes themselves do not
    """

    nodes: tuple[int, ...]
    until: int
    frees_output: bool


def recompute(tape: Tape, parts: Iterable[Again]) -> None:
    """Drop from a pass what some of its nodes save. Their arguments are saved instead (torch's checkpoint saves its
    arguments, and so does Megatron-core's: tensor_parallel/random.py, _save_args_to_ctx)."""
    makers: dict[int, int] = {}
    for number, node in enumerate(tape.nodes):
        for _, storage in node.output.storages:
            makers.setdefault(id(storage), number)
    for part in parts:
        if part.nodes:
            _save_arguments(tape, part.nodes, makers)
            dropped = _results(tape, part, makers) if part.frees_output else _inner(tape, part.nodes, makers)
            for storage in dropped:
                storage.kind = REMADE
            tape.nodes[part.until - 1].remakes += tuple(dropped)


def _save_arguments(tape: Tape, part: Collection[int], makers: Mapping[int, int]) -> None:
    """Save what a part reads of others, with its first node."""
    given = [
        tensor
        for number in part
        for tensor in tape.nodes[number].inputs
        if not tensor.no_grad and not any(_is_own(storage, part, makers) for _, storage in tensor.storages)
    ]
    first = tape.nodes[min(part)]
    held = {id(storage) for _, storage in first.kept}
    first.kept += tuple(pair for pair in tape.keep(*given) if id(pair[1]) not in held)


def _is_own(storage: Storage, part: Collection[int], makers: Mapping[int, int]) -> bool:
    """Return whether a part makes a storage: one that no node puts out is of the node that saves it."""
    if storage.shared or storage.label == INPUT_LABEL or storage.kind != ACTIVATION:
        return False
    return makers.get(id(storage)) in (None, *part)


def _inner(tape: Tape, part: Collection[int], makers: Mapping[int, int]) -> list[Storage]:
    """Return what the nodes of a part make and no other node saves."""
    nodes = tape.nodes
    others = {id(s) for number, node in enumerate(nodes) if number not in part for _, s in node.kept}
    saved = {id(s): s for number in part for _, s in nodes[number].kept if id(s) not in others}
    return [storage for storage in saved.values() if _is_own(storage, part, makers)]


def _results(tape: Tape, part: Again, makers: Mapping[int, int]) -> list[Storage]:
    """Return what the nodes of a part make and save, and what the nodes that read its results save of them: the
    results, or copies of fewer bits. The results are there until the last of these has run."""
    nodes = tape.nodes
    found: dict[int, Storage] = {}
    results = {id(s) for n in part.nodes for _, s in nodes[n].output.storages if _is_own(s, part.nodes, makers)}
    for number in range(min(part.nodes), part.until):
        node = nodes[number]
        if number in part.nodes:
            kept = [s for _, s in node.kept if _is_own(s, part.nodes, makers)]
            tape.holds.append((part.until - 1, node.output))
        elif _reads(node, results):
            kept = [s for _, s in node.kept if s.kind == ACTIVATION and (id(s) in results or s.narrowed)]
        else:
            continue
        found |= {id(storage): storage for storage in kept}
    return list(found.values())


def _reads(node: Node, storages: Collection[int]) -> bool:
    return any(id(storage) in storages for tensor in node.inputs for _, storage in tensor.storages)

"""The parts of a layer that run again in backward by themselves: Megatron-core's `recompute_modules`.

A part either is a checkpoint, which saves its arguments and nothing that it makes but its result, or also frees
its result, which the operations after it would save (NVIDIA/Megatron-LM megatron/core/tensor_parallel/random.py,
checkpoint and CheckpointWithoutOutput; megatron/core/transformer/transformer_config.py, recompute_modules)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from napkin.operations.base import Operation
from napkin.operations.facts import SUM
from napkin.operations.roles import COLUMN, DOWN, KV_LATENT, SHARED_EXPERT
from napkin.options.training import (
    CORE_ATTENTION,
    DENSE_MLP,
    EXPERT_ACTIVATION,
    LATENT_UP,
    LAYER_NORMS,
    MOE_LAYER,
    SHARED_EXPERTS,
)
from napkin.record import record


@record
class RecomputedPart:
    """A part of a layer that runs again in backward.

    operations  names of its operations
    within      of its one operation only what that marks (Lowering.inner): attention's kernel, the experts' activation
    frees_output  its result is freed too, once everything before the operation `until` has run; without `until` once
                the product after the mark has
    """

    module: str
    operations: tuple[str, ...]
    within: bool = False
    frees_output: bool = False
    until: str = ""


@record
class StreamBranch:
    """A norm that reads the residual stream, the operations behind it, and the sum that ends them."""

    norm: Operation
    operations: tuple[Operation, ...]
    sum: str

    @property
    def fused(self) -> bool:
        """Return whether the norm is a part of the linear layers that read it: all are column-parallel
        (megatron/core/models/gpt/gpt_layer_specs.py: TELayerNormColumnParallelLinear; latent attention and experts
        have a norm of their own)."""
        readers = [op.linear() for op in self.operations if self.norm.name in op.reads]
        return all(one is not None and one.shard == COLUMN for one in readers)


def branches_of(operations: Sequence[Operation]) -> list[StreamBranch]:
    """Return the branches of the residual stream of a layer whose norms come first."""
    sums = {op.name for op in operations if op.pattern() == SUM}
    found = []
    for place, op in enumerate(operations):
        if op.normalizes() and (op.reads[0] == "x" or op.reads[0] in sums):
            after = operations[place + 1 :]
            ends = (n for n, one in enumerate(after) if one.name in sums and op.reads[0] in one.reads)
            if (end := next(ends, None)) is not None:
                found.append(StreamBranch(op, tuple(after[:end]), after[end].name))
    return found


def _cores(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    for op in operations:
        if op.attends() is not None:
            yield RecomputedPart(CORE_ATTENTION, (op.name,), within=True)


def _activations(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    for op in operations:
        if op.routed() is not None:
            yield RecomputedPart(EXPERT_ACTIVATION, (op.name,), within=True, frees_output=True)


def _norms(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    for branch in branches_of(operations):
        if not branch.fused:
            yield RecomputedPart(LAYER_NORMS, (branch.norm.name,), frees_output=True, until=branch.sum)


def _latents(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    """Yield the way from the latents to each attention core: back to the column-parallel layers that read them."""
    if not any(op.role == KV_LATENT for op in operations):
        return
    by_name = {op.name: op for op in operations}
    for place, core in enumerate(operations):
        if core.attends() is None:
            continue
        found: set[str] = set()
        todo = [name for name in core.reads if name in by_name]
        while todo:
            op = by_name[todo.pop()]
            layer = op.linear()
            if op.name in found or op.normalizes() or (layer is not None and layer.shard != COLUMN):
                continue
            found.add(op.name)
            todo += [name for name in op.reads if layer is None and name in by_name]
        names = tuple(op.name for op in operations if op.name in found)
        yield RecomputedPart(LATENT_UP, names, frees_output=True, until=operations[place + 1].name)


def _mlps(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    for branch in branches_of(operations):
        if any(op.routed() or op.attends() for op in branch.operations):
            continue
        if any(op.role == DOWN for op in branch.operations):
            first = (branch.norm,) if branch.fused else ()
            yield RecomputedPart(DENSE_MLP, tuple(op.name for op in (*first, *branch.operations)))


def _mixtures(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    for branch in branches_of(operations):
        if any(op.routed() for op in branch.operations):
            yield RecomputedPart(MOE_LAYER, tuple(op.name for op in branch.operations))


def _shared(operations: Sequence[Operation]) -> Iterator[RecomputedPart]:
    names = tuple(op.name for op in operations if op.role == SHARED_EXPERT)
    if names:
        yield RecomputedPart(SHARED_EXPERTS, names)


_PARTS: dict[str, Callable[[Sequence[Operation]], Iterator[RecomputedPart]]] = {
    CORE_ATTENTION: _cores,
    EXPERT_ACTIVATION: _activations,
    LAYER_NORMS: _norms,
    LATENT_UP: _latents,
    DENSE_MLP: _mlps,
    MOE_LAYER: _mixtures,
    SHARED_EXPERTS: _shared,
}


def parts_of(operations: Sequence[Operation], modules: Collection[str]) -> list[RecomputedPart]:
    """Return the parts of a layer that modules name, checkpoints first."""
    parts = [part for module in modules for part in _PARTS[module](operations)]
    return sorted(parts, key=lambda part: part.frees_output)

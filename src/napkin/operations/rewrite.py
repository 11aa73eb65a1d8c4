"""Rewrite a layer as an implementation runs it. Only this module looks at an operation's neighbors.

The folds take the result: memory runs the program (`rewrite`) on a tape, time takes the fused operations (`fuse`) and
the linear layers that run as one GEMM (`fuse_linears`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

from napkin.elementwise import Number
from napkin.operations.base import Operation
from napkin.operations.facts import (
    ACTIVATION,
    BLOCKS,
    CONVOLUTION,
    LINEAR,
    POSITION_BIASES,
    POSITION_SCORES,
    PRODUCT,
    SHARED_POSITION_BIAS,
    SUM,
    LinearLayer,
)
from napkin.operations.implementations import ONE_KERNEL, Implementation
from napkin.operations.lowering import Program
from napkin.operations.roles import (
    COLUMN,
    DOWN,
    KEY,
    MEMORY,
    MIXER,
    MIXER_GATE,
    QKV,
    QUERY,
    ROW,
    SCAN_PARAMETERS,
    VALUE,
    VOCABULARY,
)
from napkin.operations.scopes import ScopeNames
from napkin.operations.work import ALL, Learning
from napkin.record import record

Operations = tuple[Operation, ...]


@record
class FusedLinear:
    """Linear layers that run as one GEMM: d_in → the sum of their d_out. parts: how many."""

    name: str
    reads: tuple[str, ...]
    shard: str
    d_in: Number
    d_out: Number
    learning: Learning = ALL
    parts: int = 1

    @property
    def reads_encoder(self) -> bool:
        """Return whether it runs over the encoder's tokens."""
        return self.reads == (MEMORY,)


def fuse(operations: Operations, implementation: Implementation) -> Operations:
    """Return a layer's operations in the implementation's order, with those that run in a neighbor's kernel marked."""
    if implementation.norms_inline:
        operations = _inline_norms(operations)
    gates = _gates(operations, implementation.swiglu)
    return tuple(op.fused_into_multiplication() if op.name in gates else op for op in operations)


def fuse_linears(layers: Iterable[LinearLayer]) -> list[FusedLinear]:
    """Return linear layers, those that read the same tensor and have the same shard fused (q, k and v; gate and up)."""
    alike: dict[tuple[object, ...], list[LinearLayer]] = {}
    for one in layers:
        alike.setdefault((one.reads, one.shard, one.learning), []).append(one)
    return [
        FusedLinear(
            "+".join(one.name for one in together),
            together[0].reads,
            together[0].shard,
            together[0].d_in,
            sum(one.d_out for one in together),
            together[0].learning,
            len(together),
        )
        for together in alike.values()
    ]


def divided_outputs(operations: Iterable[Operation]) -> set[str]:
    """Return the outputs that tensor parallelism divides: from a column-parallel layer, or a divided head, up to a
    row-parallel one."""
    names: set[str] = set()
    for op in operations:
        division = op.division()
        if division in (COLUMN, VOCABULARY) or (division != ROW and any(read in names for read in op.reads)):
            names.add(op.name)
    return names


def rewrite(operations: Operations, implementation: Implementation) -> Program:
    """Return a layer as an implementation runs it."""
    operations = fuse(operations, implementation)
    gates = _gates(operations, implementation.swiglu)
    cores = [core for op in operations if (core := op.attends()) is not None]
    merged, inside = _mixer_kernels(operations, implementation.mixer)
    biases = [op.pattern() == SHARED_POSITION_BIAS for op in operations if op.pattern() in POSITION_BIASES]
    return Program(
        operations,
        windowed=any(core.window is not None for core in cores),
        blocked=any(op.pattern() == BLOCKS for op in operations),
        gates=frozenset(op.name for op in operations if op.pattern() == ACTIVATION and op.name in gates),
        merged=merged,
        inside=inside,
        slices={op.name: part for op in operations if (part := op.sliced()) is not None},
        rotated_first=_rotated_together(operations, implementation),
        relative=tuple(op.name for op in operations if op.pattern() == POSITION_SCORES),
        normed=frozenset(name for op in operations if op.normalizes() for name in op.reads),
        shares_position_bias=biases[0] if biases else None,
        scopes=_scopes(operations),
    )


def _rotated_together(operations: Operations, implementation: Implementation) -> dict[str, Operation]:
    """Return the rotary embeddings that one function runs with the next operation, a rotary embedding too, by name:
    that one."""
    if implementation.rotary == "pair":
        return {}
    pairs = pairwise(operations)
    return {a.name: b for a, b in pairs if a.angles() is not None and b.angles() is not None}


def _gates(operations: Operations, swiglu: str) -> set[str]:
    """Return the operations that the kernel of a multiplication runs: with the SwiGLU kernel those that are its first
    factor and that nothing else reads, with generated kernels every factor."""
    if swiglu == "generated":
        return {name for op in operations for name in op.multiplies()}
    if swiglu not in ONE_KERNEL:
        return set()
    others = {name for op in operations if not op.multiplies() for name in op.reads}
    return {op.multiplies()[0] for op in operations if op.multiplies()} - others


def _mixer_kernels(operations: Operations, mixer: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the operations fused into the kernel before them, and those that a recurrence's fused kernel recomputes in
    backward: all of its mixer's except the input projection."""
    merged: set[str] = set()
    inside: set[str] = set()
    convolutions = {op.name for op in operations if op.pattern() == CONVOLUTION}
    activations = [op for op in operations if op.pattern() == ACTIVATION]
    for op in operations:
        kind = op.scans()
        if not kind or mixer == "torch":
            continue
        merged |= {one.name for one in activations if one.reads[0] in convolutions}
        if kind == "selective" and mixer == "apart":
            for gated in operations:
                if gated.pattern() == PRODUCT and op.name in gated.reads:
                    merged |= {gated.name, *gated.reads} - {op.name}
        elif kind in ("selective", "ssd"):
            inside |= {one.name for one in operations if one.role in (MIXER, MIXER_GATE, SCAN_PARAMETERS)}
    return frozenset(merged), frozenset(inside)


def _inline_norms(operations: Operations) -> Operations:
    """Move the norms of queries and keys to directly after their linear layers."""
    joined = {op.name for op in operations if op.role in (QUERY, KEY, VALUE, QKV)}
    norms = {op.reads[0]: op for op in operations if op.normalizes() and op.reads[0] in joined}
    moved = {norm.name for norm in norms.values()}
    ordered: list[Operation] = []
    for op in operations:
        if op.name not in moved:
            ordered += [op, norms[op.name]] if op.name in norms else [op]
    return tuple(ordered)


def _scopes(operations: Operations) -> ScopeNames:
    """Return the names that the scopes of a layer's values depend on."""
    feeding = _feeding(operations)
    ends = tuple(_ends(operations))
    norms = frozenset(op.name for op in operations if op.normalizes() and op.name not in feeding)
    pairs = pairwise(operations)
    partial = (a.name for a, b in pairs if a.pattern() == b.pattern() == SUM and a.name in b.reads)
    return ScopeNames(
        rotations=frozenset(op.name for op in operations if op.angles() is not None),
        cores=frozenset(op.name for op in operations if (core := op.attends()) is not None and not core.copied),
        additions=frozenset(op.name for op in operations if op.pattern() == SUM),
        partial=frozenset(partial),
        norms=norms,
        forked=norms & _read_on_both_sides(operations, ends),
        ends=frozenset(ends),
        lasts=frozenset(op.name for op in operations if op.role == DOWN),
    )


def _read_on_both_sides(operations: Operations, ends: Collection[str]) -> set[str]:
    """Return what operations read both before and after one of `ends`."""
    before: set[str] = set()
    found: set[str] = set()
    reads: set[str] = set()
    for op in operations:
        found.update(before.intersection(op.reads))
        reads.update(op.reads)
        if op.name in ends:
            before |= reads
    return found


def _ends(operations: Operations) -> Iterator[str]:
    """Yield the linear layers with which attention returns: the first one after each core."""
    inside = False
    for op in operations:
        if inside and op.linear() is not None:
            yield op.name
        inside = op.attends() is not None or (inside and op.linear() is None)


def _feeding(operations: Operations) -> set[str]:
    """Return the operations between attention's linear layers and its core."""
    by_name = {op.name: op for op in operations}
    found: set[str] = set()
    todo = [name for op in operations if op.attends() is not None for name in op.reads]
    while todo:
        op = by_name.get(todo.pop())
        if op is not None and op.name not in found and op.pattern() != LINEAR:
            found.add(op.name)
            todo += op.reads
    return found

"""What an operation's neighbors change: one pass over a layer for each implementation, before it runs on the tape."""

from __future__ import annotations

from itertools import pairwise

from napkin.operations.attention import AttentionCore, Rotary
from napkin.operations.convolutions import Conv
from napkin.operations.embedding import PositionBias, RelativeScores
from napkin.operations.implementations import Implementation
from napkin.operations.linear import BlockMatmul, Matmul
from napkin.operations.lowering import Lowered, Program
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.recurrence import Scan
from napkin.operations.roles import KEY, MIXER, MIXER_GATE, QKV, QUERY, SCAN_PARAMETERS, VALUE
from napkin.operations.scopes import ScopeNames
from napkin.operations.views import Slice

Operations = tuple[Lowered, ...]


def rewrite(operations: Operations, code: Implementation) -> Program:
    """Return a layer as an implementation runs it."""
    if code.norms_inline:
        operations = _inline_norms(operations)
    merged, inside = _mixer_kernels(operations, code.mixer)
    biases = [op.shared for op in operations if isinstance(op, PositionBias)]
    return Program(
        operations,
        windowed=any(isinstance(op, AttentionCore) and op.window is not None for op in operations),
        blocked=any(isinstance(op, BlockMatmul) for op in operations),
        gates=_gates(operations) if code.swiglu == "fused" else frozenset(),
        merged=merged,
        inside=inside,
        slices={op.name: (op.reads[0], op.width) for op in operations if isinstance(op, Slice)},
        relative=tuple(op.name for op in operations if isinstance(op, RelativeScores)),
        normed=frozenset(name for op in operations if isinstance(op, Norm) for name in op.reads),
        shares_position_bias=biases[0] if biases else None,
        scopes=_scopes(operations),
    )


def _gates(operations: Operations) -> frozenset[str]:
    """Activations that only a multiplication reads."""
    made = {op.name for op in operations if isinstance(op, Activation)}
    others = {name for op in operations if not isinstance(op, Multiply) for name in op.reads}
    products = {op.reads[0] for op in operations if isinstance(op, Multiply)}
    return frozenset((made & products) - others)


def _mixer_kernels(operations: Operations, mixer: str) -> tuple[frozenset[str], frozenset[str]]:
    """Operations whose work the kernel before them does, and those that one kernel of a recurrence runs again in
    backward: all of its mixer's, but for the input projection."""
    merged: set[str] = set()
    inside: set[str] = set()
    convolutions = {op.name for op in operations if isinstance(op, Conv)}
    for op in operations:
        if not isinstance(op, Scan) or mixer == "torch":
            continue
        merged |= {one.name for one in operations if isinstance(one, Activation) and one.reads[0] in convolutions}
        if op.kind == "selective" and mixer == "apart":
            for gated in operations:
                if isinstance(gated, Multiply) and op.name in gated.reads:
                    merged |= {gated.name, *gated.reads} - {op.name}
        elif op.kind in ("selective", "ssd"):
            inside |= {one.name for one in operations if one.role in (MIXER, MIXER_GATE, SCAN_PARAMETERS)}
    return frozenset(merged), frozenset(inside)


def _inline_norms(operations: Operations) -> Operations:
    """Put the norms of queries and keys directly behind the linear layers that make them."""
    joined = {op.name for op in operations if op.role in (QUERY, KEY, VALUE, QKV)}
    norms = {op.reads[0]: op for op in operations if isinstance(op, Norm) and op.reads[0] in joined}
    moved = {norm.name for norm in norms.values()}
    ordered: list[Lowered] = []
    for op in operations:
        if op.name not in moved:
            ordered += [op, norms[op.name]] if op.name in norms else [op]
    return tuple(ordered)


def _scopes(operations: Operations) -> ScopeNames:
    """What the scopes of a layer's values depend on."""
    feeding = _feeding(operations)
    pairs = pairwise(operations)
    partial = (a.name for a, b in pairs if isinstance(a, Add) and isinstance(b, Add) and a.name in b.reads)
    return ScopeNames(
        rotations=frozenset(op.name for op in operations if isinstance(op, Rotary)),
        cores=frozenset(op.name for op in operations if isinstance(op, AttentionCore)),
        additions=frozenset(op.name for op in operations if isinstance(op, Add)),
        partial=frozenset(partial),
        norms=frozenset(op.name for op in operations if isinstance(op, Norm) and op.name not in feeding),
    )


def _feeding(operations: Operations) -> set[str]:
    """Operations between attention's linear layers and its core."""
    by_name = {op.name: op for op in operations}
    found: set[str] = set()
    todo = [name for op in operations if isinstance(op, AttentionCore) for name in op.reads]
    while todo:
        op = by_name.get(todo.pop())
        if op is not None and op.name not in found and not isinstance(op, Matmul):
            found.add(op.name)
            todo += op.reads
    return found

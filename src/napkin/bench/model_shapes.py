"""A model's own matmuls and attention on one GPU after the split: what predicts training, unlike the best shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from napkin.errors import NapkinError
from napkin.operations.attention import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.experts import Experts
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.relative import SinkRouter
from napkin.operations.roles import COLUMN, ROW, VOCABULARY
from napkin.operations.router import Router
from napkin.operations.streams import ClampedMatmul


@dataclass(frozen=True, slots=True)
class ModelMatmul:
    """One matmul of a training step; `count` times in a step. `name` is the operation's and the pass's."""

    name: str
    m: int
    k: int
    n: int
    count: int


@dataclass(frozen=True, slots=True)
class ModelAttention:
    """softmax(q·kᵀ)·v of one layer on one GPU, causal or not; `count` layers have it."""

    name: str
    sequences: int
    length: int
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    causal: bool
    count: int

    @property
    def flops(self) -> int:
        """Forward: 2·b·a·s²·(d_qk + d_v); half of it where causal, since the kernels skip the masked half."""
        full = 2 * self.sequences * self.heads * self.length**2 * (self.qk_dim + self.v_dim)
        return full // 2 if self.causal else full


def gemms(model: Model, tp: int, sequences: int, length: int) -> list[ModelMatmul]:
    """Return each weight's forward (m, k, n), input gradient (m, n, k) and weight gradient (k, m, n), equals merged.

    With sequence parallelism m stays the full gathered token count. An expert sees its average share of the tokens.
    """
    tokens = sequences * length
    found: dict[tuple[int, int, int], list[tuple[str, int]]] = {}
    for count, operations in _parts(model):
        keys = _kv_sources(operations)
        for op in operations:
            for name, m, k, n, times in _weights(op, tp, tokens, keys):
                for direction, shape in (("forward", (m, k, n)), ("input", (m, n, k)), ("weight", (k, m, n))):
                    found.setdefault(shape, []).append((f"{name}.{direction}", count * times))
    return [
        ModelMatmul("+".join(dict.fromkeys(name for name, _ in uses)), *shape, sum(times for _, times in uses))
        for shape, uses in found.items()
    ]


def attentions(model: Model, tp: int, sequences: int, length: int) -> list[ModelAttention]:
    """Return the attention of each layer type, heads divided; windows shorter than the sequence are omitted."""
    found: dict[ModelAttention, int] = {}
    for count, operations in _parts(model):
        for op in operations:
            if isinstance(op, AttentionCore) and not op.cross and (op.window is None or op.window >= length):
                one = ModelAttention(
                    name=op.name,
                    sequences=sequences,
                    length=length,
                    heads=_divided(op.heads, tp, f"{op.name}: heads"),
                    kv_heads=max(1, op.kv_heads // tp),
                    qk_dim=op.qk_dim,
                    v_dim=op.v_dim,
                    causal=op.causal,
                    count=1,
                )
                found[one] = found.get(one, 0) + count
    return [
        ModelAttention(a.name, a.sequences, a.length, a.heads, a.kv_heads, a.qk_dim, a.v_dim, a.causal, count)
        for a, count in found.items()
    ]


def _parts(model: Model) -> list[tuple[int, tuple[Operation, ...]]]:
    parts = []
    for stack in model.stacks:
        parts += [
            (1, stack.before),
            *((count, layer.operations) for _, count, layer in stack.kinds()),
            (1, stack.after),
        ]
    return parts


def _kv_sources(operations: tuple[Operation, ...]) -> dict[str, int]:
    """Return matmul → number of key/value heads, for those that make keys or values: never split below a head."""
    by_name = {op.name: op for op in operations}
    found: dict[str, int] = {}
    for core in operations:
        if not isinstance(core, AttentionCore):
            continue
        for name in core.reads[1:3]:
            op = by_name.get(name)
            while op is not None and not isinstance(op, Matmul):  # back through norms, rotations and clamps
                op = by_name.get(op.reads[0]) if op.reads else None
            if op is not None and op.d_out == core.kv_heads * core.qk_dim:
                found[op.name] = core.kv_heads
    return found


Matmuls = list[tuple[str, int, int, int, int]]
"""(name, m, k, n, times) of the matmuls with a weight on one rank."""


def _weights(op: Operation, tp: int, tokens: int, keys: dict[str, int]) -> Matmuls:
    """Return the matmuls with a weight on one rank; none for kinds that the bench does not time."""
    shapes = MATMULS.get(type(op))
    return [] if shapes is None else shapes(op, tp, tokens, keys)


def _router(op: Router, tp: int, tokens: int, keys: dict[str, int]) -> Matmuls:
    return [(op.name, tokens, op.d_in, op.experts, 1)]


def _experts(op: Experts, tp: int, tokens: int, keys: dict[str, int]) -> Matmuls:
    each = max(1, tokens * op.top_k // op.experts)
    f = _divided(op.d_ff, tp, f"{op.name}: width")
    up = 2 if op.gated else 1
    return [
        (f"{op.name}.up", each, op.d_model, f, up * op.experts),
        (f"{op.name}.down", each, f, op.d_model, op.experts),
    ]


def _linear(op: Matmul, tp: int, tokens: int, keys: dict[str, int]) -> Matmuls:
    shard = op.weights()[0].shard
    k, n = op.d_in, op.d_out
    if op.name in keys:
        n = n // keys[op.name] * max(1, keys[op.name] // tp)
    elif shard in (COLUMN, VOCABULARY):
        n = _divided(n, tp, f"{op.name}: outputs")
    elif shard == ROW:
        k = _divided(k, tp, f"{op.name}: inputs")
    return [(op.name, tokens, k, n, 1)]


MATMULS: dict[type[Operation], Callable[[Any, int, int, dict[str, int]], Matmuls]] = {
    Matmul: _linear,
    ClampedMatmul: _linear,
    Router: _router,
    SinkRouter: _router,
    Experts: _experts,
}
"""Kind of operation → the shapes of its matmuls on one rank."""


def _divided(size: int, tp: int, what: str) -> int:
    if size % tp:
        nearest = max(d for d in range(1, tp + 1) if size % d == 0)
        raise NapkinError(f"--tp: {tp} does not divide {what} ({size})", f"the nearest that does is {nearest}")
    return size // tp

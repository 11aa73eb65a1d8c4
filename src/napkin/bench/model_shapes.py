"""A model's own matmuls and attention on one GPU after the split: what predicts training, unlike the best shape."""

from __future__ import annotations

from dataclasses import dataclass

from napkin.errors import NapkinError
from napkin.operations.base import Operation, Timer
from napkin.operations.facts import AttentionCost, LinearLayer, RoutedExperts
from napkin.operations.model import Model
from napkin.operations.primitives import causal_pairs, square_pairs
from napkin.operations.roles import COLUMN, ROUTER, ROW, VOCABULARY
from napkin.operations.work import Work


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
        shapes = _Shapes(tp, tokens, keys)
        for op in operations:
            op.time(shapes)
        for name, m, k, n, times in shapes.found:
            for direction, shape in (("forward", (m, k, n)), ("input", (m, n, k)), ("weight", (k, m, n))):
                found.setdefault(shape, []).append((f"{name}.{direction}", count * times))
    return [
        ModelMatmul("+".join(dict.fromkeys(name for name, _ in uses)), *shape, sum(times for _, times in uses))
        for shape, uses in found.items()
    ]


def attentions(model: Model, tp: int, sequences: int, length: int) -> list[ModelAttention]:
    """Return the attention of each layer type, heads divided; omitted if it sees fewer or more keys than causal or
    full attention does: windows shorter than the sequence, chunks, blocks, cross-attention."""
    usual = {True: causal_pairs(length), False: square_pairs(length)}
    found: dict[ModelAttention, int] = {}
    for count, operations in _parts(model):
        for op in operations:
            core = op.attends()
            if core is not None and sum(one.pairs(length, 0) for one in core.pair_rules(True)) == usual[core.causal]:
                one = ModelAttention(
                    name=core.name,
                    sequences=sequences,
                    length=length,
                    heads=_divided(core.heads, tp, f"{core.name}: heads"),
                    kv_heads=max(1, core.kv_heads // tp),
                    qk_dim=core.qk_dim,
                    v_dim=core.v_dim,
                    causal=core.causal,
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
    for core in (op.attends() for op in operations):
        if core is None:
            continue
        for name in core.reads[1:3]:
            op = by_name.get(name)
            while op is not None and op.linear() is None:  # back through norms, rotations and clamps
                op = by_name.get(op.reads[0]) if op.reads else None
            linear = None if op is None else op.linear()
            if linear is not None and linear.d_out == core.kv_heads * core.qk_dim:
                found[linear.name] = core.kv_heads
    return found


class _Shapes(Timer):
    """Collects (name, m, k, n, times) of an operation's matmuls with a weight on one rank.

    Linear layers, routers and experts; the bench does not time other matmuls."""

    def __init__(self, tp: int, tokens: int, keys: dict[str, int]) -> None:
        self.tp, self.tokens, self.keys = tp, tokens, keys
        self.found: list[tuple[str, int, int, int, int]] = []

    def gemms(self, op: Operation) -> None:
        """Add a router's linear layer, which every rank runs undivided."""
        if op.expert_part() == ROUTER:
            self.found += [(op.name, int(g.m), int(g.k), int(g.n), 1) for g in op.gemms(Work(1, self.tokens))]

    def linear(self, op: LinearLayer) -> None:
        """Add a linear layer."""
        k, n = op.d_in, op.d_out
        if op.name in self.keys:
            n = n // self.keys[op.name] * max(1, self.keys[op.name] // self.tp)
        elif op.shard in (COLUMN, VOCABULARY):
            n = _divided(n, self.tp, f"{op.name}: outputs")
        elif op.shard == ROW:
            k = _divided(k, self.tp, f"{op.name}: inputs")
        self.found.append((op.name, self.tokens, k, n, 1))

    def attention(self, op: AttentionCost) -> None:
        """Add nothing: scores and values have no weight."""

    def experts(self, op: RoutedExperts) -> None:
        """Add the up- and down-projections of each expert, on its average share of the tokens."""
        each = max(1, self.tokens * op.top_k // op.experts)
        f = _divided(op.d_ff, self.tp, f"{op.name}: width")
        up = 2 if op.gated else 1
        self.found += [
            (f"{op.name}.up", each, op.d_model, f, up * op.experts),
            (f"{op.name}.down", each, f, op.d_model, op.experts),
        ]


def _divided(size: int, tp: int, what: str) -> int:
    if size % tp:
        nearest = max(d for d in range(1, tp + 1) if size % d == 0)
        raise NapkinError(f"--tp: {tp} does not divide {what} ({size})", f"the nearest that does is {nearest}")
    return size // tp

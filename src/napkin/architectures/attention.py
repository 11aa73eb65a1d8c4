"""Softmax attention as a block: projections, what happens to queries and keys, the core, the output projection."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.attention_parts import Heads, OutputGate, QkNorm, QkvProjections, Rope, Scaling, Scores
from napkin.architectures.blocks import RMS, NormStyle, Operations
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Activation, Clamp, Multiply, Scale
from napkin.operations.roles import COLUMN, KEY, QKV, QUERY, ROW, VALUE
from napkin.record import record, replace


@record
class Attention:
    """Multi-head, grouped-query or multi-query attention: a block that reads [batch, seq, width].

        q = x·Wq   k = x·Wk   v = x·Wv   (or one fused projection)     o = softmax(q·kᵀ/√d)·v·Wo

    core      makes the operations that take the core's place
    out_norm  of all heads together, before the output projection
    memory    the other stack's output, which keys and values read (cross-attention)
    prefix    of the operations' names, where a layer has several attentions
    """

    heads: Heads
    projections: QkvProjections = QkvProjections()
    rope: Rope | None = None
    norm: QkNorm | None = None
    scaling: Scaling = Scaling()
    scores: Scores = Scores()
    gate: OutputGate | None = None
    gate_first: bool = False
    out_norm: NormStyle | None = None
    core: Callable[[AttentionCore], Operations] | None = None
    memory: str | None = None
    prefix: str = ""

    def __call__(self, source: str) -> Operations:
        prefix, heads = self.prefix, self.heads
        operations = projected = self._fused(source) if self.projections.fused else self._projected(source)
        before_core, names = self._transformed()
        core = self._core(names)
        operations += before_core
        operations += self.core(core) if self.core is not None else (core,)
        last = operations[-1].name
        if self.projections.gated:
            operations += (
                Activation(prefix + "gate_score", (prefix + "output_gate",), heads.q_width, "sigmoid"),
                Multiply(prefix + "attention_gated", (last, prefix + "gate_score"), heads.q_width),
            )
            last = prefix + "attention_gated"
        if self.gate is not None:
            gating = self.gate(source, last, heads.width, heads.heads, heads.value_dim, prefix)
            if self.gate_first:
                operations = (*projected, gating[0], *operations[len(projected) :], *gating[1:])
            else:
                operations += gating
            last = operations[-1].name
        if self.out_norm is not None:
            operations += (self.out_norm(prefix + "attention_out_norm", last, heads.attended_width),)
            last = prefix + "attention_out_norm"
        bias, out_width = self.projections.out_bias, heads.out_width or heads.width
        return (*operations, Matmul(prefix + "o", (last,), heads.attended_width, out_width, bias, ROW))

    def _role(self, role: str) -> str:
        """Return the role, which a layer's main attention has and others have not."""
        return "" if self.prefix else role

    def _projected(self, source: str) -> Operations:
        """Return q, k and v from a projection each."""
        prefix, heads, how = self.prefix, self.heads, self.projections
        kv_source, kv_width = self.memory or source, heads.memory_width or heads.width
        key_bias = how.bias if how.key_bias is None else how.key_bias
        query, q_out = (prefix + "q_gate", 2 * heads.q_width) if how.gated else (prefix + "q", heads.q_width)
        first: Operations = ()
        q_source, q_width = source, heads.width
        if how.narrow:
            low, q_source, q_width = prefix + "q_narrow", prefix + "q_narrow_norm", how.narrow
            first = (Matmul(low, (source,), heads.width, q_width, how.bias), RMS(q_source, low, q_width))
        operations: Operations = (
            *first,
            Matmul(query, (q_source,), q_width, q_out, how.bias, COLUMN, role="" if how.gated else self._role(QUERY)),
            Matmul(prefix + "k", (kv_source,), kv_width, heads.k_width, key_bias, COLUMN, role=self._role(KEY)),
            Matmul(prefix + "v", (kv_source,), kv_width, heads.v_width, how.bias, COLUMN, role=self._role(VALUE)),
        )
        if how.gated:
            from napkin.operations.views import Slice

            operations += (
                Slice(prefix + "q", (query,), heads.q_width, role=self._role(QUERY)),
                Slice(prefix + "output_gate", (query,), heads.q_width),
            )
        return operations

    def _fused(self, source: str) -> Operations:
        """Return q, k and v as parts of one projection's result."""
        from napkin.operations.views import Slice

        prefix, heads, how = self.prefix, self.heads, self.projections
        qkv, width = prefix + "qkv", heads.q_width + 2 * heads.k_width
        operations: Operations = (Matmul(qkv, (source,), heads.width, width, how.bias, COLUMN, role=self._role(QKV)),)
        if how.clamped:
            operations += (Clamp(f"{qkv}_clamped", (qkv,), width),)
            qkv = f"{qkv}_clamped"
        groups = how.groups if heads.heads > how.groups else 1
        times = heads.heads // heads.kv_heads if how.repeated else 1
        return (
            *operations,
            Slice(prefix + "q", (qkv,), heads.q_width, groups=groups, role=self._role(QUERY)),
            *(
                Slice(prefix + letter, (qkv,), heads.k_width, how.indexed, groups, times, role=self._role(role))
                for letter, role in (("k", KEY), ("v", VALUE))
            ),
        )

    def _transformed(self) -> tuple[Operations, dict[str, str]]:
        """Return what runs between projections and core, and the names of the resulting q, k and v."""
        heads = self.heads
        names = {letter: self.prefix + letter for letter in "qkv"}
        operations: list[Operation] = []

        def add(letter: str, suffix: str, make: Callable[[str, str], Operation]) -> None:
            name = f"{self.prefix}{letter}_{suffix}"
            operations.append(make(name, names[letter]))
            names[letter] = name

        def normalize() -> None:
            if self.norm is not None:
                norm = self.norm
                for letter, count in (("q", heads.heads), ("k", heads.kv_heads)):
                    add(letter, "norm", lambda name, read, count=count: norm(name, read, count, heads.head_dim))  # type: ignore[misc]

        after = self.norm is not None and self.norm.after_rope
        if not after:
            normalize()
        if self.projections.clamped and not self.projections.fused:
            for letter, width in (("q", heads.q_width), ("k", heads.k_width), ("v", heads.v_width)):
                add(letter, "clamped", lambda name, read, width=width: Clamp(name, (read,), width))  # type: ignore[misc]
        if self.scaling.queries:
            add("q", "scaled", lambda name, read: Scale(name, (read,), heads.q_width))
        if self.rope is not None and self.rope.dim:
            rope = self.rope
            for letter, count in (("q", heads.heads), ("k", heads.kv_heads)):
                add(letter, "rope", lambda name, read, count=count: rope(name, read, count, heads.head_dim))  # type: ignore[misc]
        if after:
            normalize()
        if self.scaling.by_position:
            once = self.scaling.once
            add("q", "tempered", lambda name, read: Scale(name, (read,), heads.q_width, positions=True, once=once))
        if self.scaling.values:
            add("v", "scaled", lambda name, read: Scale(name, (read,), heads.v_width))
        return tuple(operations), names

    def _core(self, names: dict[str, str]) -> AttentionCore:
        heads, scores = self.heads, self.scores
        return AttentionCore(
            self.prefix + "attention",
            (names["q"], names["k"], names["v"]),
            heads.heads,
            heads.kv_heads,
            heads.head_dim,
            heads.value_dim,
            window=scores.window,
            causal=scores.causal,
            softcap=scores.softcap,
            sinks=scores.sinks,
            cross=self.memory is not None,
            position=scores.position,
            chunk=scores.chunk,
            upcast=scores.upcast,
            anywhere=scores.anywhere,
            own_mask=scores.own_mask,
            masked=scores.masked,
        )

    def projected(self, **changes: object) -> Attention:
        """Return the same attention with other linear layers (fields of QkvProjections)."""
        return replace(self, projections=replace(self.projections, **changes))

    def scored(self, **changes: object) -> Attention:
        """Return the same attention with other scores (fields of Scores)."""
        return replace(self, scores=replace(self.scores, **changes))


def band_attention(source: str, *, width: int, heads: int, window: int) -> Operations:
    """Return attention over a window to both sides (operations.attention.band.BandAttention), with biases throughout.

    The class holds projections for tokens that attend to all; no gradient reaches them if there are no such tokens.
    """
    from napkin.operations.attention.band import BandAttention
    from napkin.operations.idle import Idle
    from napkin.operations.views import Transpose

    letters = (("q", QUERY), ("k", KEY), ("v", VALUE))
    of_all = tuple(Matmul(f"global_{letter}", ("by_steps",), width, width, True, COLUMN) for letter, _ in letters)
    return (
        Transpose("by_steps", (source,), width),
        *(Matmul(letter, ("by_steps",), width, width, True, COLUMN, role=role) for letter, role in letters),
        BandAttention("attention", ("q", "k", "v"), heads, width // heads, width // heads, window),
        Idle("global", (), of_all),
        Matmul("o", ("attention",), width, width, True, ROW),
    )

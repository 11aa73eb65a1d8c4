"""The parts of an `Attention` block (attention.py): heads, projections, norms, rotary positions, scores, gate."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.blocks import NormStyle, Operations
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.roles import COLUMN
from napkin.operations.rotary import Rotary
from napkin.record import record


@record
class Heads:
    """Sizes of one attention: `heads` query heads and `kv_heads` key/value heads of `head_dim` elements.

    v_dim         elements of a value head, if they are not head_dim
    out_width     width of the output, if it is not the input's
    memory_width  width of what keys and values read in cross-attention, if it is not the input's
    """

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int = 0
    out_width: int = 0
    memory_width: int = 0

    @property
    def value_dim(self) -> int:
        return self.v_dim or self.head_dim

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def k_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def v_width(self) -> int:
        return self.kv_heads * self.value_dim

    @property
    def attended_width(self) -> int:
        """Width of what attention returns, before the output projection."""
        return self.heads * self.value_dim


@record
class QkvProjections:
    """The linear layers around attention.

    bias      of queries, keys and values       out_bias  of the output projection
    key_bias  of the keys, if it differs
    fused     queries, keys and values come from one QKV projection, in which the heads lie in `groups` groups
    indexed   keys and values are taken out of the fused result by an index
    repeated  the one key and value of a group are repeated for its queries
    clamped   the results of the projections are clamped to an interval
    gated     the queries' projection also returns a gate: o = (σ(gate) ⊙ heads)·Wo
    narrow    queries come through a bottleneck of this width, whose result is normalized (0: they do not)
    """

    bias: bool = False
    out_bias: bool = False
    key_bias: bool | None = None
    fused: bool = False
    indexed: bool = False
    groups: int = 1
    repeated: bool = False
    clamped: bool = False
    gated: bool = False
    narrow: int = 0


@record
class QkNorm:
    """Norms of queries and keys: over each `head` (one weight for all heads or, per group, one each) or over `all`
    heads together; before the rotation or after it."""

    style: NormStyle
    over: str = "head"
    after_rope: bool = False

    def __call__(self, name: str, source: str, heads: int, head_dim: int) -> Operation:
        width, groups = (heads * head_dim, 1) if self.over == "all" else (head_dim, heads)
        return self.style(name, source, width, groups)


@record
class Rope:
    """Rotary embedding of the first `dim` elements of each head (fields as in operations.rotary.Rotary)."""

    dim: int
    pairing: str = "half"
    upcast: bool = False
    table: int = 0
    wide: bool = False
    narrow: bool = False
    once: bool = False
    first: bool = False
    fused: bool = False

    def __call__(self, name: str, source: str, heads: int, head_dim: int, role: str = "") -> Rotary:
        how = (self.dim, self.pairing, self.upcast, self.table, self.wide, self.narrow, self.once, self.first)
        return Rotary(name, (source,), heads, head_dim, *how, fused=self.fused, role=role)


@record
class Scaling:
    """Constants that multiply queries (before the rotation), queries by their position (after it; `once`: one tensor of
    factors for all layers), or values."""

    queries: bool = False
    by_position: bool = False
    values: bool = False
    once: bool = False


@record
class Scores:
    """Which keys a query sees and how scores are made (fields as in operations.attention.core.AttentionCore)."""

    window: int | None = None
    chunk: int | None = None
    causal: bool = True
    softcap: bool = False
    sinks: bool = False
    position: str = "none"
    upcast: bool = False
    anywhere: bool = False
    own_mask: bool = False
    masked: bool = False


@record
class Gate:
    """A gate on attention's output, made from the layer's own input by a projection and a function: one value per
    channel, or one per head (`per_head`). `head_bias`: a learned value per head is added; `upcast` as in Activation."""

    per_head: bool = False
    function: str = "sigmoid"
    upcast: bool = False
    bias: bool = False
    head_bias: bool = False

    def __call__(self, source: str, attended: str, width: int, heads: int, size: int, prefix: str = "") -> Operations:
        """Return the gate and `attended` ([…, heads, size]) multiplied by it."""
        wide = heads if self.per_head else heads * size
        last = prefix + "gate_logit"
        operations: list[Operation] = [Matmul(last, (source,), width, wide, self.bias, COLUMN)]
        if self.head_bias:
            from napkin.operations.learned import Parameters

            bias, biased = prefix + "gate_bias", prefix + "gate_biased"
            operations += [Parameters(bias, (), (("weight", (heads,)),)), Add(biased, (last, bias), wide)]
            last = biased
        return (
            *operations,
            Activation(prefix + "gate_score", (last,), wide, self.function, upcast=self.upcast),
            Multiply(prefix + "attention_gated", (attended, prefix + "gate_score"), heads * size),
        )


OutputGate = Callable[[str, str, int, int, int, str], Operations]
"""(source, attended, width, heads, size of a value head, prefix) → the gate and `attended` multiplied by it."""


def gated(source: str, gate: str, width: int, *, fp32: bool) -> Operations:
    """Return x ⊙ σ(gate), computed in fp32 if `fp32`."""
    score, out = f"{gate}_score", f"{source}_gated"
    if not fp32:
        return (Activation(score, (gate,), width, "sigmoid"), Multiply(out, (source, score), width))
    from napkin.operations.views import Cast

    return (
        Cast(f"{gate}_wide", (gate,), width, fp32=True),
        Activation(score, (f"{gate}_wide",), width, "sigmoid"),
        Multiply(f"{out}_wide", (source, score), width),
        Cast(out, (f"{out}_wide",), width),
    )

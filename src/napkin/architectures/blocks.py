"""Blocks of a transformer as tuples of operations, to be read like the table in a paper: norms and feed-forward
networks.

A block takes the name of the tensor that it reads, and its last operation's name is its output; `prefix` keeps the
names of several blocks in one layer apart.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Clamp, Dropout, Jitter, Multiply, Scale
from napkin.operations.roles import COLUMN, DOWN, ROW, SHARED_EXPERT
from napkin.record import record, replace

Operations = tuple[Operation, ...]
Block = Callable[[str], Operations]
"""The name of what it reads → operations."""


# --- norms -----------------------------------------------------------------------------------------------------------


@record
class NormStyle:
    """What all norms of a family share (fields as in operations.norms.Norm)."""

    kind: str = "rms"
    arithmetic: str = "fp32_norm"
    weight: bool = True
    bias: bool = False
    unit_offset: bool = False
    per_group: bool = False
    power: bool = False

    def __call__(self, name: str, source: str, width: int, groups: int = 1) -> Norm:
        return Norm(
            name,
            (source,),
            width,
            kind=self.kind,
            groups=groups,
            unit_offset=self.unit_offset,
            weight=self.weight,
            bias=self.bias,
            per_group=self.per_group,
            arithmetic=self.arithmetic,
            power=self.power,
        )


RMS = NormStyle()
RMS_FP32 = NormStyle(arithmetic="fp32")
RMS_OFFSET = NormStyle(arithmetic="fp32", unit_offset=True)
RMS_BARE = NormStyle(arithmetic="fp32", weight=False)
RMS_CAST = NormStyle(arithmetic="cast_rstd", weight=False)
RMS_T5 = NormStyle(arithmetic="fp32_rstd")
RMS_CPM = NormStyle(arithmetic="fp32_rstd_inline")
LAYER = NormStyle("layer", "fused", bias=True)
LAYER_WRITTEN = NormStyle("layer", "fp32_norm", bias=True)
LAYER_NO_BIAS = NormStyle("layer", "fused")
LAYER_OFFSET = NormStyle("layer", "fused", bias=True, unit_offset=True)
LAYER_BARE = NormStyle("layer", "fused_fp32", weight=False)
LAYER_FP32 = NormStyle("layer", "fp32")
LAYER_PER_HEAD = NormStyle("layer", "fused", per_group=True)
LAYER_FP32_PER_HEAD = NormStyle("layer", "fp32", per_group=True)


# --- feed-forward ----------------------------------------------------------------------------------------------------


@record
class Gating:
    """How a gated network computes activation(gate(x)) ⊙ up(x). `upcast`: in fp32; `clamped`: gate and up are clamped
    to an interval first."""

    upcast: bool = False
    clamped: bool = False


PLAIN = Gating()


def gated_mlp(
    source: str,
    *,
    width: int,
    inner: int,
    function: str = "silu",
    bias: bool = False,
    out_bias: bool | None = None,
    fused: bool = False,
    gating: Gating = PLAIN,
    dropout: bool = False,
    prefix: str = "",
) -> Operations:
    """Return down(activation(gate(x)) ⊙ up(x)): three matrices of width × inner, the first two one matmul where fused.
    `dropout`: before the last. `out_bias`: the last one's, if it is not the others'."""
    gate, up, gated = prefix + "gate", prefix + "up", prefix + "gated"
    clamps = tuple(Clamp(f"{name}_cut", (name,), inner) for name in (gate, up)) if gating.clamped else ()
    reads = tuple(clamp.name for clamp in clamps) or (gate, up)
    activation = Activation(prefix + "activation", (reads[0],), inner, function)
    last = bias if out_bias is None else out_bias
    down = Matmul(prefix + "down", (gated + DROPPED * dropout,), inner, width, last, ROW, role=DOWN)
    at_once = not (fused or gating.upcast or gating.clamped)  # the activation runs before the second matmul
    first: Operations
    if fused:
        from napkin.operations.views import Slice

        first = (
            Matmul(prefix + "gate_up", (source,), width, 2 * inner, bias, COLUMN),
            Slice(gate, (prefix + "gate_up",), inner),
            Slice(up, (prefix + "gate_up",), inner),
            *clamps,
        )
    else:
        first = (
            Matmul(gate, (source,), width, inner, bias, COLUMN),
            *clamps[:1],
            *((activation,) if at_once else ()),
            Matmul(up, (source,), width, inner, bias, COLUMN),
            *clamps[1:],
        )
    if gating.upcast:
        return (*first, *_gated_fp32(activation, reads, gated, inner), down)
    multiplied = Multiply(gated, (activation.name, reads[1]), inner)
    return (*first, *(() if at_once else (activation,)), multiplied, *_dropped(gated, inner, dropout), down)


def _gated_fp32(activation: Activation, reads: tuple[str, ...], gated: str, inner: int) -> Operations:
    """Return activation(gate) ⊙ up, computed in fp32."""
    from napkin.operations.views import Cast

    return (
        *(Cast(f"{name}_wide", (name,), inner, True) for name in reads),
        replace(activation, reads=(f"{reads[0]}_wide",)),
        Multiply(gated + "_wide", (activation.name, f"{reads[1]}_wide"), inner),
        Cast(gated, (gated + "_wide",), inner),
    )


def plain_mlp(
    source: str,
    *,
    width: int,
    inner: int,
    function: str,
    bias: bool = True,
    learned: int = 0,
    dropout: bool = False,
    prefix: str = "",
) -> Operations:
    """Return down(activation(up(x))): two matrices of width × inner. `dropout`: before the second."""
    activated = prefix + "activation"
    return (
        Matmul(prefix + "up", (source,), width, inner, bias, COLUMN),
        Activation(activated, (prefix + "up",), inner, function, learned),
        *_dropped(activated, inner, dropout),
        Matmul(prefix + "down", (activated + DROPPED * dropout,), inner, width, bias, ROW, role=DOWN),
    )


DROPPED = "_dropped"


def _dropped(name: str, width: int, dropout: bool) -> Operations:
    return (Dropout(name + DROPPED, (name,), width),) if dropout else ()


def shared_expert(block: Operations) -> Operations:
    """Mark a feed-forward block as one that every token runs next to the experts that it chooses."""
    return tuple(replace(op, role=SHARED_EXPERT) for op in block)


@record
class Routing:
    """How tokens choose experts (fields as in operations.experts.Router). `jitter`: how often noise multiplies them
    before; `idle`: this many of the `experts` have no weights and return tokens unchanged; `weighted_input`: scores
    multiply what an expert reads, not what it returns; `groups`, `chosen_groups`: a token's experts are in so many of
    as many groups."""

    experts: int
    top_k: int
    bias: bool = False
    score: str = "softmax"
    normalize: bool = False
    upcast: bool = False
    balanced: str = ""
    jitter: int = 0
    idle: int = 0
    softcap: bool = False
    hashed: bool = False
    masked: bool = False
    weighted_input: bool = False
    groups: int = 1
    chosen_groups: int = 1

    @property
    def busy(self) -> int:
        """Experts that have weights."""
        return self.experts - self.idle

    @property
    def chosen(self) -> int:
        """Experts with weights among those that a token chooses, on average over the idle ones."""
        return max(1, round(self.top_k * self.busy / self.experts))

    def router(self, source: str, width: int) -> Operation:
        """Return the router, which reads `source`."""
        from napkin.operations.router import Router

        return Router(
            "router",
            (source,),
            width,
            self.experts,
            self.top_k,
            self.bias,
            self.score,
            self.normalize,
            self.upcast,
            self.balanced,
            softcap=self.softcap,
            hashed=self.hashed,
            masked=self.masked,
        )


def moe(
    source: str,
    *,
    width: int,
    inner: int,
    routing: Routing,
    function: str = "silu",
    gated: bool = True,
    bias: bool = False,
    gating: Gating = PLAIN,
    shared: Block | None = None,
    scaled: bool = False,
    shared_first: bool = False,
) -> Operations:
    """Return Σ over the chosen experts of score · expert(x), each h → f → h, plus always-on shared experts.

    shared  a block whose output is added; `shared_first`: it runs before the router, but for its gate
    scaled  a constant multiplies the sum over the chosen experts
    """
    from napkin.operations.experts import Experts  # a dense model needs neither them nor a router

    sources = (source, *(f"jitter_{i}" for i in range(routing.jitter)))
    noise = tuple(Jitter(name, (read,), width) for read, name in pairwise(sources))
    source = sources[-1]
    experts = Experts(
        "experts",
        (source, "router"),
        width,
        inner,
        routing.busy,
        routing.chosen,
        gated=gated,
        bias=bias,
        function=function,
        weighted_input=routing.weighted_input,
        idle=routing.top_k - routing.chosen,
        upcast=gating.upcast,
        limited=gating.clamped,
        groups=routing.groups,
        chosen_groups=routing.chosen_groups,
    )
    routed: Operations = (routing.router(source, width), experts)
    if scaled:
        routed += (Scale("experts_scaled", ("experts",), width),)
    if shared is None:
        return (*noise, *routed)
    always = shared_expert(shared(source))
    added = Add("moe", (routed[-1].name, always[-1].name), width)
    if shared_first:
        gate = next((n for n, op in enumerate(always) if op.name == GATE), len(always))
        return (*noise, *always[:gate], *routed, *always[gate:], added)
    return (*noise, *routed, *always, added)


GATE = "shared_gate"
"""The linear layer of a gate on shared experts."""


def behind_gate(shared: Block, width: int) -> Block:
    """Return the shared experts, multiplied by σ(x·w)."""

    def block(source: str) -> Operations:
        always = shared(source)
        return (
            *always,
            Matmul(GATE, (source,), width, 1),
            Activation("shared_gate_score", (GATE,), 1, "sigmoid"),
            Multiply("shared_gated", ("shared_gate_score", always[-1].name), width),
        )

    return block

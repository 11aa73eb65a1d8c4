"""Blocks of a transformer as tuples of operations, readable like the table of a paper.

A block takes the name of the tensor that it reads and names its own last operation's output; `prefix` keeps the names
of several blocks in one layer apart. Arrangements say where norms and residual additions stand around two blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from napkin.operations.attention import AttentionCore, BandAttention, Rotary
from napkin.operations.base import (
    COLUMN,
    DOWN,
    KEY,
    KV_LATENT,
    QKV,
    QUERY,
    ROTATED_KEY,
    ROTATED_QUERY,
    ROW,
    SHARED_EXPERT,
    VALUE,
    Operation,
)
from napkin.operations.experts import Experts, Router
from napkin.operations.hyper_connections import Collapse, Spread
from napkin.operations.linear import Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Clamp, Dropout, Jitter, Learnt, Multiply, Scale
from napkin.operations.views import Cast, Concat, Slice, Transpose
from napkin.record import record, replace

Operations = tuple[Operation, ...]
Block = Callable[[str], Operations]
"""A block that is yet to learn what it reads."""
QKV_ROLES = {"q": QUERY, "k": KEY, "v": VALUE}
"""Roles of a self-attention's queries, keys and values; those of a second attention of the layer have none."""


# --- norms -----------------------------------------------------------------------------------------------------------


@record
class NormStyle:
    """What all norms of a family share (fields as in norms.Norm)."""

    kind: str = "rms"
    arithmetic: str = "fp32_norm"
    weight: bool = True
    bias: bool = False
    unit_offset: bool = False
    per_group: bool = False

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
        )


RMS = NormStyle()
RMS_FP32 = NormStyle(arithmetic="fp32")
RMS_OFFSET = NormStyle(arithmetic="fp32", unit_offset=True)
RMS_BARE = NormStyle(arithmetic="fp32", weight=False)
RMS_NARROW = NormStyle(arithmetic="narrow", weight=False)
RMS_T5 = NormStyle(arithmetic="fp32_spread")
LAYER = NormStyle("layer", "fused", bias=True)
LAYER_WRITTEN = NormStyle("layer", "fp32_norm", bias=True)
LAYER_NO_BIAS = NormStyle("layer", "fused")
LAYER_OFFSET = NormStyle("layer", "fused", bias=True, unit_offset=True)
LAYER_BARE = NormStyle("layer", "fused_fp32", weight=False)
LAYER_FP32 = NormStyle("layer", "fp32")
LAYER_PER_HEAD = NormStyle("layer", "fused", per_group=True)
LAYER_FP32_PER_HEAD = NormStyle("layer", "fp32", per_group=True)


# --- attention -------------------------------------------------------------------------------------------------------


@record
class Rope:
    """Rotary embedding of the first `dim` numbers of each head (fields as in layer.Rotary)."""

    dim: int
    pairing: str = "half"
    upcast: bool = False
    table: int = 0
    wide: bool = False

    def __call__(self, name: str, source: str, heads: int, head_dim: int, role: str = "") -> Rotary:
        one = (self.dim, self.pairing, self.upcast, self.table, self.wide)
        return Rotary(name, (source,), heads, head_dim, *one, role=role)


@record
class Gate:
    """What multiplies attention's output: one number a channel, or one a head (`per_head`), made from the layer's own
    input by a product and a function (`upcast` as in layer.Activation). `head_bias`: one learnt number a head is added
    to all that head's."""

    per_head: bool = False
    function: str = "sigmoid"
    upcast: bool = False
    bias: bool = False
    head_bias: bool = False

    def __call__(self, source: str, attended: str, width: int, heads: int, size: int, prefix: str = "") -> Operations:
        """The gate, and `attended` multiplied by it: `heads` heads of `size` numbers."""
        wide = heads if self.per_head else heads * size
        last = prefix + "gate_logit"
        operations: list[Operation] = [Matmul(last, (source,), width, wide, self.bias, COLUMN)]
        if self.head_bias:
            bias, biased = prefix + "gate_bias", prefix + "gate_biased"
            operations += [Learnt(bias, (), (("weight", (heads,)),)), Add(biased, (last, bias), wide)]
            last = biased
        return (
            *operations,
            Activation(prefix + "gate_score", (last,), wide, self.function, upcast=self.upcast),
            Multiply(prefix + "attention_gated", (attended, prefix + "gate_score"), heads * size),
        )


def attention(
    source: str,
    *,
    width: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    bias: bool = False,
    out_bias: bool = False,
    fused: bool = False,
    rope: Rope | None = None,
    norm: NormStyle | None = None,
    norm_over: str = "head",
    norm_after_rope: bool = False,
    clamp: bool = False,
    window: int | None = None,
    chunk: int | None = None,
    causal: bool = True,
    softcap: bool = False,
    sinks: bool = False,
    position: str = "none",
    memory: str | None = None,
    memory_width: int | None = None,
    key_bias: bool | None = None,
    out_width: int | None = None,
    output_gate: bool = False,
    tempered: bool = False,
    scaled: bool = False,
    upcast: bool = False,
    indexed: bool = False,
    groups: int = 1,
    spread: bool = False,
    out_norm: NormStyle | None = None,
    gate: Gate | None = None,
    v_dim: int | None = None,
    value_scale: bool = False,
    instead: Callable[[AttentionCore], Operations] | None = None,
    anywhere: bool = False,
    own_mask: bool = False,
    prefix: str = "",
) -> Operations:
    """Multi-head, grouped-query or multi-query attention: a query heads and kv key/value heads of d numbers.

        q = x·Wq   k = x·Wk   v = x·Wv   (or one fused product)     o = softmax(q·kᵀ/√d)·v·Wo

    norm over each `head` (d numbers, one weight for all heads or, per group, one each) or over `all` heads together.
    memory       the other stack's output, which keys and values read (cross-attention), and its width where it differs
    key_bias     where the keys' bias differs from the queries' and values'
    out_width    width of the output where it is not the input's
    tempered     each query is multiplied by a factor of its position
    scaled       queries are scaled apart, before they turn
    upcast, anywhere, own_mask  as in AttentionCore
    indexed      keys and values are taken out of the fused product by an index
    groups       in the fused product the heads stand in so many groups, each with its queries, keys and values
    spread       the one key and value of a group are repeated for its queries
    out_norm     of all heads together, before the output product
    output_gate  the queries' product also makes a gate: o = (σ(gate) ⊙ heads)·Wo
    gate         multiplies the heads before the output product
    v_dim        numbers of a value's head, where they are not d
    value_scale  a constant multiplies the values
    instead      makes what stands in the core's place
    """
    v_dim = v_dim or head_dim
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    operations: list[Operation] = []
    names = {letter: prefix + letter for letter in "qkv"}
    roles = {letter: "" if prefix else role for letter, role in QKV_ROLES.items()}
    widths = {"q": q_width, "k": kv_width, "v": kv_heads * v_dim}
    if fused:
        qkv = prefix + "qkv"
        made = q_width + 2 * kv_width
        operations.append(Matmul(qkv, (source,), width, made, bias, COLUMN, role="" if prefix else QKV))
        if clamp:
            operations.append(Clamp(f"{qkv}_clamped", (qkv,), made))
            qkv = f"{qkv}_clamped"
        groups = groups if heads > groups else 1
        operations.append(Slice(names["q"], (qkv,), q_width, groups=groups, role=roles["q"]))
        times = heads // kv_heads if spread else 1
        operations += [
            Slice(names[letter], (qkv,), kv_width, indexed, groups, times, role=roles[letter]) for letter in "kv"
        ]
    else:
        read = {letter: source if memory is None or letter == "q" else memory for letter in "qkv"}
        biases = {"q": bias, "k": bias if key_bias is None else key_bias, "v": bias}
        projected = names | {"q": prefix + "q_gate"} if output_gate else names
        sizes = widths | {"q": 2 * q_width} if output_gate else widths
        ins = {letter: width if letter == "q" or memory_width is None else memory_width for letter in "qkv"}
        operations += [
            Matmul(
                projected[letter],
                (read[letter],),
                ins[letter],
                sizes[letter],
                biases[letter],
                COLUMN,
                role=roles[letter] if projected[letter] == names[letter] else "",
            )
            for letter in "qkv"
        ]
        if output_gate:
            operations += [
                Slice(names["q"], (projected["q"],), q_width, role=roles["q"]),
                Slice(prefix + "output_gate", (projected["q"],), q_width),
            ]

    def normed() -> None:
        if norm is not None:
            for letter, count in (("q", heads), ("k", kv_heads)):
                each, groups = (count * head_dim, 1) if norm_over == "all" else (head_dim, count)
                operations.append(norm(f"{prefix}{letter}_norm", names[letter], each, groups))
                names[letter] = f"{prefix}{letter}_norm"

    if not norm_after_rope:
        normed()
    if clamp and not fused:
        for letter in "qkv":
            operations.append(Clamp(f"{prefix}{letter}_clamped", (names[letter],), widths[letter]))
            names[letter] = f"{prefix}{letter}_clamped"
    if scaled:
        operations.append(Scale(f"{prefix}q_scaled", (names["q"],), q_width))
        names["q"] = f"{prefix}q_scaled"
    if rope is not None and rope.dim:
        for letter, count in (("q", heads), ("k", kv_heads)):
            operations.append(rope(f"{prefix}{letter}_rope", names[letter], count, head_dim))
            names[letter] = f"{prefix}{letter}_rope"
    if norm_after_rope:
        normed()
    if tempered:
        operations.append(Scale(f"{prefix}q_tempered", (names["q"],), q_width, positions=True))
        names["q"] = f"{prefix}q_tempered"
    if value_scale:
        operations.append(Scale(f"{prefix}v_scaled", (names["v"],), widths["v"]))
        names["v"] = f"{prefix}v_scaled"
    core = AttentionCore(
        prefix + "attention",
        (names["q"], names["k"], names["v"]),
        heads,
        kv_heads,
        head_dim,
        v_dim,
        window=window,
        causal=causal,
        softcap=softcap,
        sinks=sinks,
        cross=memory is not None,
        position=position,
        chunk=chunk,
        upcast=upcast,
        anywhere=anywhere,
        own_mask=own_mask,
    )
    operations += instead(core) if instead is not None else (core,)
    last = operations[-1].name
    if output_gate:
        operations += [
            Activation(prefix + "gate_score", (prefix + "output_gate",), q_width, "sigmoid"),
            Multiply(prefix + "attention_gated", (last, prefix + "gate_score"), q_width),
        ]
        last = prefix + "attention_gated"
    if gate is not None:
        operations += gate(source, last, width, heads, v_dim, prefix)
        last = operations[-1].name
    if out_norm is not None:
        operations.append(out_norm(prefix + "attention_out_norm", last, heads * v_dim))
        last = prefix + "attention_out_norm"
    return (*operations, Matmul(prefix + "o", (last,), heads * v_dim, out_width or width, out_bias, ROW))


def band_attention(source: str, *, width: int, heads: int, window: int) -> Operations:
    """Attention over a window to both sides (layer.BandAttention), biases throughout. The projections of tokens that
    attend to all are held by the class, and reached by no gradient where there are none."""
    names = ("query", "key", "value")
    projections = tuple(one for name in names for one in ((name, (width, width)), (f"{name}_bias", (width,))))
    return (
        Transpose("by_steps", (source,), width),
        *(Matmul(letter, ("by_steps",), width, width, True, COLUMN, role=role) for letter, role in QKV_ROLES.items()),
        BandAttention("attention", ("q", "k", "v"), heads, width // heads, width // heads, window),
        Learnt("global", (), projections, COLUMN, trained=False),
        Matmul("o", ("attention",), width, width, True, ROW),
    )


def gated(source: str, gate: str, width: int, *, wide: bool) -> Operations:
    """x ⊙ σ(gate), in fp32 where `wide`."""
    score, out = f"{gate}_score", f"{source}_gated"
    if not wide:
        return (Activation(score, (gate,), width, "sigmoid"), Multiply(out, (source, score), width))
    return (
        Cast(f"{gate}_wide", (gate,), width, wide=True),
        Activation(score, (f"{gate}_wide",), width, "sigmoid"),
        Multiply(f"{out}_wide", (source, score), width),
        Cast(out, (f"{out}_wide",), width),
    )


def latent_attention(
    source: str,
    *,
    width: int,
    heads: int,
    q_rank: int | None,
    kv_rank: int,
    nope: int,
    rope: Rope,
    v_dim: int,
    norm: NormStyle = RMS,
    bias: bool = False,
    window: int | None = None,
    index: Callable[[str, str], Operation] | None = None,
    scaled: bool = False,
    rotates: bool = True,
    head_gate: bool = False,
    head_scores: bool = False,
    gate: str = "",
    sinks: bool = False,
    anywhere: bool = False,
    latents_scaled: bool = False,
    key_norm: bool = False,
    prefix: str = "",
) -> Operations:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    q  = norm(x·Wqa)·Wqb  (or x·Wq without a rank)       each head: nope numbers, then rope.dim rotary ones
    [c, kr] = x·Wkva      [kn, v] = norm(c)·Wkvb         k = [kn, rotary kr, the same for every head]

    index   makes the operation that chooses the keys, from the names of the input and of the latent query
    scaled  queries and the latent of keys and values are multiplied by constants (LongCat-Flash, arXiv 2509.01322)
    rotates    else what would be rotary numbers stay as they are, and queries whole (Kimi Linear, arXiv 2510.26692)
    head_gate  each head is multiplied by σ(x·w), made in fp32, with a w of its own (Ling 3.0)
    gate    all heads' numbers are multiplied by σ of a product: own, of the input (Hy4), or joined with that of the
            queries, which then reads the latent query before and after its norm, and in fp32 (A.X K2)
    head_scores  each head is multiplied by σ(x·w) with a w of its own, in the activations' type (dots3.note)
    latents_scaled  both latents are multiplied by constants, that of keys and values first copied out of its product
    key_norm  the rotary key is normalised before it is turned
    sinks, anywhere  as in AttentionCore
    """
    qk_dim = nope + rope.dim
    operations: list[Operation] = []

    query_latent = prefix + ("q_a_norm_scaled" if latents_scaled else "q_a_norm")

    def last(name: str) -> str:
        return f"{prefix}{name}_scaled" if scaled else prefix + name

    def scale(name: str, size: int) -> Operations:
        return (Scale(f"{prefix}{name}_scaled", (prefix + name,), size),) if scaled else ()

    if gate == "own":
        operations.append(Matmul(prefix + "output_gate", (source,), width, heads * v_dim, False, COLUMN))
    if q_rank is None:
        operations.append(Matmul(prefix + "q", (source,), width, heads * qk_dim, False, COLUMN, role=QUERY))
    elif gate == "joined":
        both, made = (prefix + "q_a_norm", prefix + "q_a"), prefix + "q_gate"
        operations += [
            Matmul(prefix + "q_a", (source,), width, q_rank, bias),
            norm(*both, q_rank),
            Concat(prefix + "q_latents", both, 2 * q_rank),
            Matmul(made, (prefix + "q_latents",), 2 * q_rank, heads * (qk_dim + v_dim), False, COLUMN),
            Slice(prefix + "q", (made,), heads * qk_dim, role=QUERY),
            Slice(prefix + "output_gate", (made,), heads * v_dim),
        ]
    else:
        operations += [
            Matmul(prefix + "q_a", (source,), width, q_rank, bias),
            norm(prefix + "q_a_norm", prefix + "q_a", q_rank),
            *((Scale(query_latent, (prefix + "q_a_norm",), q_rank),) if latents_scaled else ()),
            Matmul(prefix + "q", (query_latent,), q_rank, heads * qk_dim, False, COLUMN, role=QUERY),
        ]
    latent = prefix + ("kv_a_norm_scaled" if scaled or latents_scaled else "kv_a_norm")
    operations += [
        Matmul(prefix + "kv_a", (source,), width, kv_rank + rope.dim, bias, role=KV_LATENT),
        Slice(prefix + "kv_latent", (prefix + "kv_a",), kv_rank, copied=latents_scaled),
        Slice(prefix + "k_shared", (prefix + "kv_a",), rope.dim),
        norm(prefix + "kv_a_norm", prefix + "kv_latent", kv_rank),
        *((Scale(latent, (prefix + "kv_a_norm",), kv_rank),) if latent != prefix + "kv_a_norm" else ()),
        Matmul(prefix + "kv_b", (latent,), kv_rank, heads * (nope + v_dim), False, COLUMN),
        Slice(prefix + "k_nope", (prefix + "kv_b",), heads * nope),
        Slice(prefix + "v", (prefix + "kv_b",), heads * v_dim, role=VALUE),
    ]
    query, shared = prefix + "q", prefix + "k_shared"
    if key_norm:
        operations.append(norm(prefix + "k_shared_norm", shared, rope.dim))
        shared = prefix + "k_shared_norm"
    if rotates:
        operations += [
            Slice(prefix + "q_nope", (query,), heads * nope),
            Slice(prefix + "q_pe", (query,), heads * rope.dim),
            *scale("q_nope", heads * nope),
            *scale("q_pe", heads * rope.dim),
            rope(prefix + "q_rope", last("q_pe"), heads, rope.dim, role=ROTATED_QUERY),
            rope(prefix + "k_rope", shared, 1, rope.dim, role=ROTATED_KEY),
            Concat(prefix + "q_joined", (last("q_nope"), prefix + "q_rope"), heads * qk_dim),
        ]
        query, shared = prefix + "q_joined", prefix + "k_rope"
    operations.append(Concat(prefix + "k", (prefix + "k_nope", shared), heads * qk_dim, first_type=True, role=KEY))
    if index is not None:
        operations.append(index(source, query_latent))
    core = AttentionCore(
        prefix + "attention",
        (query, prefix + "k", prefix + "v"),
        heads,
        heads,
        qk_dim,
        v_dim,
        window=window,
        sinks=sinks,
        anywhere=anywhere,
    )
    operations.append(core)
    attended = core.name
    if gate:
        operations += gated(core.name, prefix + "output_gate", heads * v_dim, wide=gate == "joined")
        attended = operations[-1].name
    if head_scores:
        operations += Gate(per_head=True)(source, core.name, width, heads, v_dim, prefix)
        attended = operations[-1].name
    if head_gate:
        operations += [
            Matmul(prefix + "head_gate", (source,), width, heads, shard=COLUMN),
            Cast(prefix + "head_gate_wide", (prefix + "head_gate",), heads, wide=True),
            Activation(prefix + "head_gate_score", (prefix + "head_gate_wide",), heads, "sigmoid"),
            Cast(prefix + "head_gate_narrow", (prefix + "head_gate_score",), heads),
            Multiply(prefix + "attention_gated", (core.name, prefix + "head_gate_narrow"), heads * v_dim),
        ]
        attended = prefix + "attention_gated"
    return (*operations, Matmul(prefix + "o", (attended,), heads * v_dim, width, bias, ROW))


# --- feed-forward ----------------------------------------------------------------------------------------------------


def gated_mlp(
    source: str,
    *,
    width: int,
    inner: int,
    function: str = "silu",
    bias: bool = False,
    out_bias: bool | None = None,
    fused: bool = False,
    dropout: bool = False,
    norm: NormStyle | None = None,
    upcast: bool = False,
    limited: bool = False,
    prefix: str = "",
) -> Operations:
    """down(activation(gate(x)) ⊙ up(x)): three matrices of width × inner, the first two in one product where fused.
    `dropout`, `norm`: before the last. `out_bias`: the last one's, where it is not the others'. `upcast`: activation
    and ⊙ run in fp32. `limited`: gate and up are cut to an interval."""
    gate, up = prefix + "gate", prefix + "up"
    cuts = [Clamp(f"{name}_cut", (name,), inner) for name in (gate, up)] if limited else []
    read = [cut.name for cut in cuts] or [gate, up]
    activation = Activation(prefix + "activation", (read[0],), inner, function)
    first: Operations
    if fused:
        first = (
            Matmul(prefix + "gate_up", (source,), width, 2 * inner, bias, COLUMN),
            Slice(gate, (prefix + "gate_up",), inner),
            Slice(up, (prefix + "gate_up",), inner),
            *cuts,
        )
    else:  # the activation runs before the second product, but where something stands between it and the first
        first = (
            Matmul(gate, (source,), width, inner, bias, COLUMN),
            *cuts[:1],
            *(() if limited or upcast else (activation,)),
            Matmul(up, (source,), width, inner, bias, COLUMN),
            *cuts[1:],
        )
    gated = prefix + "gated"
    last = bias if out_bias is None else out_bias
    if upcast:
        return (
            *first,
            *(Cast(f"{name}_wide", (name,), inner, True) for name in read),
            replace(activation, reads=(f"{read[0]}_wide",)),
            Multiply(gated + "_wide", (activation.name, f"{read[1]}_wide"), inner),
            Cast(gated, (gated + "_wide",), inner),
            Matmul(prefix + "down", (gated,), inner, width, last, ROW, role=DOWN),
        )
    if fused or limited:
        first += (activation,)
    return (
        *first,
        Multiply(gated, (activation.name, read[1]), inner),
        *_dropped(gated, inner, dropout),
        *((norm(gated + "_norm", gated, inner),) if norm else ()),
        Matmul(
            prefix + "down",
            (gated + "_norm" if norm else gated + DROPPED * dropout,),
            inner,
            width,
            last,
            ROW,
            role=DOWN,
        ),
    )


def plain_mlp(
    source: str,
    *,
    width: int,
    inner: int,
    function: str,
    bias: bool = True,
    learnt: int = 0,
    dropout: bool = False,
    prefix: str = "",
) -> Operations:
    """down(activation(up(x))): two matrices of width × inner. `dropout`: before the second."""
    activated = prefix + "activation"
    return (
        Matmul(prefix + "up", (source,), width, inner, bias, COLUMN),
        Activation(activated, (prefix + "up",), inner, function, learnt),
        *_dropped(activated, inner, dropout),
        Matmul(prefix + "down", (activated + DROPPED * dropout,), inner, width, bias, ROW, role=DOWN),
    )


DROPPED = "_dropped"


def _dropped(name: str, width: int, dropout: bool) -> Operations:
    return (Dropout(name + DROPPED, (name,), width),) if dropout else ()


def shared_expert(block: Operations) -> Operations:
    """Mark a feed-forward block as one that every token runs next to its chosen experts."""
    return tuple(replace(op, role=SHARED_EXPERT) for op in block)


@record
class Routing:
    """How tokens choose experts (fields as in layer.Router). `jitter`: how often noise multiplies them before; `idle`:
    so many experts, of `experts` in all, have no weights and hand tokens on; `limited`: as in layer.Experts."""

    experts: int
    top_k: int
    bias: bool = False
    score: str = "softmax"
    normalise: bool = False
    upcast: bool = False
    balanced: str = ""
    jitter: int = 0
    idle: int = 0
    softcap: bool = False
    hashed: bool = False
    masked: bool = False
    limited: bool = False


def moe(
    source: str,
    *,
    width: int,
    inner: int,
    routing: Routing,
    function: str = "silu",
    gated: bool = True,
    bias: bool = False,
    weighted_input: bool = False,
    shared: Block | None = None,
    shared_gate: bool = False,
    scaled: bool = False,
    averaged: bool = False,
    upcast: bool = False,
) -> Operations:
    """Σ over the chosen experts of score · expert(x), each h → f → h, plus always-on shared experts.

    shared       a block whose output is added; `shared_gate` multiplies it by σ(x·w) first
    scaled       a constant multiplies what the chosen experts made together
    averaged     the sum with the shared block's output is divided by two
    upcast       as in layer.Experts
    """
    noise: Operations = ()
    for i in range(routing.jitter):
        noise += (Jitter(f"jitter_{i}", (source,), width),)
        source = f"jitter_{i}"
    router = Router(
        "router",
        (source,),
        width,
        routing.experts,
        routing.top_k,
        routing.bias,
        routing.score,
        routing.normalise,
        routing.upcast,
        routing.balanced,
        softcap=routing.softcap,
        hashed=routing.hashed,
        masked=routing.masked,
    )
    busy = routing.experts - routing.idle
    chosen = max(1, round(routing.top_k * busy / routing.experts))
    experts = Experts(
        "experts",
        (source, "router"),
        width,
        inner,
        busy,
        chosen,
        gated=gated,
        bias=bias,
        function=function,
        weighted_input=weighted_input,
        idle=routing.top_k - chosen,
        upcast=upcast,
        limited=routing.limited,
    )
    routed: Operations = (router, experts)
    if scaled:
        routed += (Scale("experts_scaled", ("experts",), width),)
    if shared is None:
        return (*noise, *routed)
    always = shared_expert(shared(source))
    last = always[-1].name
    if shared_gate:
        always += (
            Matmul("shared_gate", (source,), width, 1, role=SHARED_EXPERT),
            Activation("shared_gate_score", ("shared_gate",), 1, "sigmoid"),
            Multiply("shared_gated", ("shared_gate_score", last), width),
        )
        last = "shared_gated"
    total = Add("moe_sum" if averaged else "moe", (routed[-1].name, last), width)
    halved = (Scale("moe", (total.name,), width),) if averaged else ()
    return (*noise, *routed, *always, total, *halved)


# --- arrangements: where norms and residual additions stand ----------------------------------------------------------


def _scaled(operations: Operations, name: str, width: int, scale: bool) -> Operations:
    return (*operations, Scale(name, (operations[-1].name,), width)) if scale else operations


def pre_norm(
    width: int,
    norm: NormStyle,
    attend: Block,
    feed: Block,
    *,
    dropout: tuple[bool, bool] = (False, False),
    scale: bool = False,
    residual_after_norm: bool = False,
    weighted: bool = False,
) -> Operations:
    """y = x + attend(norm(x)); z = y + feed(norm(y)). `scale`: a constant multiplies each branch before its addition.
    `residual_after_norm`: the normalised tensor, not x, is what the branch is added to. `weighted`: a learnt vector
    multiplies what the branch is added to."""
    first = _scaled(attend("attention_norm"), "attention_scaled", width, scale)
    second = _scaled(feed("mlp_norm"), "mlp_scaled", width, scale)
    base = ("attention_norm", "mlp_norm") if residual_after_norm else ("x", "attention_residual")
    weights: tuple[Operations, Operations] = ((), ())
    if weighted:
        names = ("attention_base", "mlp_base")
        weights = (
            (Scale(names[0], (base[0],), width, learnt=True),),
            (Scale(names[1], (base[1],), width, learnt=True),),
        )
        base = names
    return (
        norm("attention_norm", "x", width),
        *first,
        *weights[0],
        Add("attention_residual", (base[0], first[-1].name), width, dropout[0]),
        norm("mlp_norm", "attention_residual", width),
        *second,
        *weights[1],
        Add("mlp_residual", (base[1], second[-1].name), width, dropout[1]),
    )


def hyper_connected(
    width: int,
    norm: NormStyle,
    attend: Block,
    feed: Block,
    *,
    streams: int,
    mixes: bool = True,
    iterations: int = 0,
    behind: bool = False,
) -> Operations:
    """Each branch reads a sum of the residual streams and writes to all (fields as in hyper_connections.Collapse)."""
    operations: Operations = ()
    last = "x"
    for branch, name in ((attend, "attention"), (feed, "mlp")):
        read = f"{name}_read"
        made = branch(f"{name}_norm")
        operations += (
            Collapse(read, (last,), width, streams, mixes, iterations, behind=behind),
            norm(f"{name}_norm", read, width),
            *made,
            Spread(f"{name}_residual", (read, made[-1].name, last), width, streams, mixes),
        )
        last = f"{name}_residual"
    return operations


def sandwich_norm(width: int, norm: NormStyle, attend: Block, feed: Block, *, scale: bool = False) -> Operations:
    """y = x + norm(attend(norm(x))); z = y + norm(feed(norm(y))): four norms a layer. `scale` as in pre_norm."""
    first, second = attend("attention_norm"), feed("mlp_norm")
    first += (norm("attention_post_norm", first[-1].name, width),)
    second += (norm("mlp_post_norm", second[-1].name, width),)
    first, second = _scaled(first, "attention_scaled", width, scale), _scaled(second, "mlp_scaled", width, scale)
    return (
        norm("attention_norm", "x", width),
        *first,
        Add("attention_residual", ("x", first[-1].name), width),
        norm("mlp_norm", "attention_residual", width),
        *second,
        Add("mlp_residual", ("attention_residual", second[-1].name), width),
    )


def output_norm(width: int, norm: NormStyle, attend: Block, feed: Block) -> Operations:
    """y = x + norm(attend(x)); z = y + norm(feed(y)): norms on the branches' outputs alone."""
    first, second = attend("x"), feed("attention_residual")
    return (
        *first,
        norm("attention_post_norm", first[-1].name, width),
        Add("attention_residual", ("x", "attention_post_norm"), width),
        *second,
        norm("mlp_post_norm", second[-1].name, width),
        Add("mlp_residual", ("attention_residual", "mlp_post_norm"), width),
    )


def post_norm(
    width: int, norm: NormStyle, attend: Block, feed: Block, *, dropout: tuple[bool, bool] = (False, False)
) -> Operations:
    """y = norm(x + attend(x)); z = norm(y + feed(y)): the first Transformer."""
    first, second = attend("x"), feed("attention_norm")
    return (
        *first,
        Add("attention_residual", ("x", first[-1].name), width, dropout[0]),
        norm("attention_norm", "attention_residual", width),
        *second,
        Add("mlp_residual", ("attention_norm", second[-1].name), width, dropout[1]),
        norm("mlp_norm", "mlp_residual", width),
    )


def parallel(
    width: int,
    norm: NormStyle,
    attend: Block,
    feed: Block,
    *,
    norms: int = 1,
    dropout: tuple[bool, bool] = (False, False),
    dropout_sum: bool = False,
) -> Operations:
    """y = x + attend(norm(x)) + feed(norm(x)), with one norm for both branches or one each.
    `dropout`: on each branch; `dropout_sum`: once, on the sum of both."""
    mlp_source = "mlp_norm" if norms == 2 else "attention_norm"
    first, second = attend("attention_norm"), feed(mlp_source)
    if dropout[0]:
        first += (Dropout("attention_dropped", (first[-1].name,), width),)
    if dropout[1]:
        second += (Dropout("mlp_dropped", (second[-1].name,), width),)
    if norms == 2:  # each branch runs whole before the next
        second = (norm("mlp_norm", "x", width), *second)
    return (
        norm("attention_norm", "x", width),
        *first,
        *second,
        Add("branches", (first[-1].name, second[-1].name), width),
        Add("residual", ("x", "branches"), width, dropout_sum),
    )

"""Inkling's language model: no positions but scores by distance, short convolutions of keys, values and of what each
branch returns, and shared experts that the router weights.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/inkling/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.blocks import RMS, Block, Operations, gated_mlp
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.reading import activation, chosen_experts, depth, indices, listed, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.experts import Experts
from napkin.operations.implementations import EAGER, EFFICIENT, HF
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add, Multiply, Scale
from napkin.operations.relative import DistanceBias, SharedExperts, ShortConvolution, SinkRouter
from napkin.operations.roles import COLUMN, KEY, LM_HEAD, QUERY, ROW, SHARED_EXPERT, VALUE
from napkin.operations.views import Slice
from napkin.record import record, replace

FULL, WINDOWED = "hybrid", "hybrid_sliding"
SPARSE, DENSE = "sparse", "dense"
PERIOD = 6
"""Every PERIOD-th layer sees all keys, if a config does not say which (InklingTextConfig)."""


class InklingPlan(NamedTuple):
    """What sets one layer apart from the others."""

    attention: str
    feed: str


class InklingSizes(NamedTuple):
    """Sizes of attention in one layer type. `extent`: the largest distance with its own score."""

    heads: int
    kv_heads: int
    size: int
    extent: int
    window: int | None
    tempered: bool


@record
class InklingReading:
    """What a config.json says of Inkling's language model.

    rank       elements of a head from which scores by distance are made
    kernel     tokens that a short convolution sees
    real_rows  rows of the vocabulary that are not padding
    """

    sizes: Dimensions
    plans: Sequence[InklingPlan]
    attentions: Mapping[str, InklingSizes]
    networks: Mapping[str, Block]
    rank: int
    kernel: int
    real_rows: int


IGNORED = (
    "shared_expert_sink", "number_of_conv_states", "route_scale", "logits_mup_width_multiplier",
    "rms_norm_eps_moe_gate", "log_scaling_alpha", "chain_hidden_post_norm", "mtp_hidden_states_first",
    "mtp_local_layer_ids",
    "tie_word_embeddings",  # the class never ties them
)  # fmt: skip
"""Fields that change no count."""
ONLY = {
    "norm_after_topk": True, "use_sconv": True, "use_embed_norm": True, "use_gate_bias": True, "use_global_scale": True,
    "gate_activation": "sigmoid", "q_bias": False, "o_bias": False, "final_logit_softcapping": None,
}  # fmt: skip
"""Fields of which the class knows one value."""


def read(config: Config) -> InklingReading:
    """Read a config.json."""
    config.ignore(*IGNORED)
    for field, value in ONLY.items():
        config.must_be(field, value)
    hidden, layers = width(config), depth(config)
    kinds, feeds = _kinds(config, layers), _feeds(config, layers)
    attentions = _attentions(config, kinds)
    networks = _networks(config, hidden, feeds)
    modules = config.optional_integer("num_mtp_layers", least=0)
    if modules:
        config.notes.append(f"{modules} multi-token prediction layers of the checkpoint not counted")
    rows, real_rows = config.integer("vocab_size"), config.optional_integer("unpadded_vocab_size")
    sizes = sizes_over(config, [(one.heads, one.kv_heads, one.size) for one in attentions.values()])
    return InklingReading(
        sizes,
        [InklingPlan(*one) for one in zip(kinds, feeds, strict=True)],
        attentions,
        networks,
        config.integer("d_rel"),
        config.integer("conv_kernel_size"),
        rows if real_rows is None else real_rows,
    )


def sizes_over(config: Config, attentions: Sequence[tuple[int, int, int]]) -> Dimensions:
    """Return the dimensions of a model whose layers have several attentions, of (heads, KV heads, head size) each."""
    heads, kv_heads, size = zip(*attentions, strict=True)
    most = config.optional_integer("max_position_embeddings")
    return dimensions_of(config, width(config), depth(config), gcd(*heads), gcd(*kv_heads), max(size), most, tie=False)


def layer(of: InklingReading, plan: InklingPlan) -> Layer:
    """Return a layer, with a short convolution of what each branch returns."""
    hidden, kernel = of.sizes.hidden, of.kernel
    attend = partial(_attention, width=hidden, rank=of.rank, kernel=kernel, own=of.attentions[plan.attention])
    branches = ((attend, "attention"), (of.networks[plan.feed], "mlp"))
    name = ("sliding" if plan.attention == WINDOWED else "full") + ("_moe" if plan.feed == SPARSE else "_dense")
    return Layer(name, pre_norm(hidden, RMS, *(_convolved(one, hidden, kernel, label) for one, label in branches)))


def inkling(config: Config) -> Model:
    """Return Inkling's language model."""
    of = read(config)
    sizes, hidden, rows = of.sizes, of.sizes.hidden, of.sizes.vocabulary
    after = _head(head(hidden, rows, norm=RMS, none=sizes.headless), hidden, of.real_rows, rows)
    return decoder_only(sizes, embedding(rows, hidden, norm=RMS), runs_of(of.plans, partial(layer, of)), after)


def _head(after: Operations, width: int, real_rows: int, rows: int) -> Operations:
    """Divide what the head reads by a constant, and drop the logits of rows that pad the vocabulary."""
    operations: list[Operation] = []
    for op in after:
        if op.role == LM_HEAD:
            operations.append(Scale("final_scaled", op.reads, width))
            op = replace(op, reads=("final_scaled",))
        operations.append(op)
    if operations[-1].role == LM_HEAD and real_rows < rows:
        operations.append(Slice("logits_real", ("lm_head",), real_rows))
    return tuple(operations)


def _convolved(block: Block, width: int, kernel: int, name: str) -> Block:
    """Return the block with a short convolution of its result."""

    def of(source: str) -> Operations:
        operations = block(source)
        return (*operations, ShortConvolution(f"{name}_conv", (operations[-1].name,), width, kernel))

    return of


def _attentions(config: Config, kinds: Sequence[str]) -> dict[str, InklingSizes]:
    """Read the sizes of attention in each layer type that there is."""
    window = config.integer("sliding_window_size")
    floor = config.real("log_scaling_n_floor", required=False)
    found: dict[str, InklingSizes] = {}
    for kind, prefix in ((FULL, ""), (WINDOWED, "swa_")):
        names = [prefix + name for name in ("num_attention_heads", "num_key_value_heads", "head_dim")]
        if kind not in kinds:
            config.ignore(*names)
            continue
        heads, kv_heads, size = map(config.integer, names)
        if heads % kv_heads:
            raise config.wrong(names[1], f"{heads} attention heads are not a multiple of {kv_heads} key/value heads")
        near = kind == WINDOWED
        extent = window if near else config.integer("rel_extent")
        found[kind] = InklingSizes(
            heads, kv_heads, size, extent, window if near else None, floor is not None and not near
        )
    config.ignore("rel_extent")
    return found


def _attention(source: str, *, width: int, rank: int, kernel: int, own: InklingSizes) -> Operations:
    """Return attention whose scores depend on the distance, with short convolutions of keys and values."""
    wide, narrow = own.heads * own.size, own.kv_heads * own.size
    query, bias = "q_norm", "distance_bias"
    operations: Operations = (
        Matmul("q", (source,), width, wide, False, COLUMN, role=QUERY),
        Matmul("k", (source,), width, narrow, False, COLUMN, role=KEY),
        ShortConvolution("k_conv", ("k",), narrow, kernel),
        Matmul("v", (source,), width, narrow, False, COLUMN, role=VALUE),
        ShortConvolution("v_conv", ("v",), narrow, kernel),
        Matmul("relative", (source,), width, own.heads * rank, False, COLUMN),
        RMS("q_norm", "q", own.size, own.heads),
        RMS("k_norm", "k_conv", own.size, own.kv_heads),
        DistanceBias(bias, ("relative",), own.heads, rank, own.extent),
    )
    if own.tempered:
        query, bias = "q_tempered", "bias_tempered"
        operations += (
            Scale(query, ("q_norm",), wide, positions=True),
            Scale(bias, ("distance_bias",), own.heads, positions=True),
        )
    core = AttentionCore(
        "attention",
        (query, "k_norm", "v_conv", bias),
        own.heads,
        own.kv_heads,
        own.size,
        own.size,
        window=own.window,
        position="distance",
    )
    return (*operations, core, Matmul("o", ("attention",), wide, width, False, ROW))


def _networks(config: Config, hidden: int, feeds: list[str]) -> dict[str, Block]:
    """Read the feed-forward of each layer type that there is."""
    function = activation(config, "hidden_act")
    config.ignore("intermediate_size", "moe_intermediate_size", "dense_intermediate_size")
    config.ignore("n_routed_experts", "num_experts_per_tok", "n_shared_experts")
    # if it is stated, the experts' width has the other name
    dense_stated = config.optional_integer("dense_intermediate_size")
    networks: dict[str, Block] = {}
    if DENSE in feeds:
        inner = config.integer("intermediate_size") if dense_stated is None else dense_stated
        networks[DENSE] = partial(_dense, width=hidden, inner=inner, function=function)
    if SPARSE in feeds:
        experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
        networks[SPARSE] = partial(
            _sparse,
            width=hidden,
            inner=config.integer("moe_intermediate_size" if dense_stated is None else "intermediate_size"),
            experts=experts,
            top_k=top_k,
            shared=config.integer("n_shared_experts"),
            function=function,
        )
    return networks


def _dense(source: str, *, width: int, inner: int, function: str) -> Operations:
    """Return a gated network whose result is multiplied by one learned scalar."""
    operations = gated_mlp(source, width=width, inner=inner, function=function)
    return (
        *operations,
        Parameters("scale", (), (("global_scale", (1,)),)),
        Multiply("scaled", (operations[-1].name, "scale"), width),
    )


def _sparse(source: str, *, width: int, inner: int, experts: int, top_k: int, shared: int, function: str) -> Operations:
    """Return a mixture whose router weights the shared experts too."""
    return (
        SinkRouter("router", (source,), width, experts, top_k, balanced="buffer", shared=shared),
        Slice("shared_shares", ("router",), shared, copied=True),
        Slice("shares", ("router",), top_k, copied=True),
        Experts("experts", (source, "shares"), width, inner, experts, top_k, function=function),
        SharedExperts("shared/experts", (source, "shared_shares"), width, inner, shared, function, role=SHARED_EXPERT),
        Add("moe", ("experts", "shared/experts"), width),
    )


def _kinds(config: Config, layers: int) -> list[str]:
    """Read the attention of each layer: listed, or by the indices of those with a window, or every PERIOD-th
    without."""
    local = indices(config, "local_layer_ids", layers)
    stated = config.items("local_layer_ids", required=False) is not None
    given = listed(config, "layer_types", layers, (FULL, WINDOWED))
    if given is not None:
        return given
    return [WINDOWED if (i in local if stated else (i + 1) % PERIOD) else FULL for i in range(layers)]


def _feeds(config: Config, layers: int) -> list[str]:
    """Read whether each layer is dense or a mixture of experts: listed, or dense in the first layers."""
    given = config.items("mlp_layer_types", required=False)
    dense = config.optional_integer("dense_mlp_idx", least=0) or 0
    if given is None:
        return [DENSE if i < dense else SPARSE for i in range(layers)]
    if len(given) != layers or set(map(str, given)) - {SPARSE, DENSE}:
        raise config.wrong("mlp_layer_types", f"is not a list of {layers} times sparse or dense")
    return [str(entry) for entry in given]


INKLING = Architecture(
    "inkling_text",
    inkling,
    config_class="InklingTextConfig",
    aliases={
        "model_max_length": "max_position_embeddings",
        "num_local_experts": "n_routed_experts",
        "sconv_kernel_size": "conv_kernel_size",
        "sliding_window": "sliding_window_size",
    },
    implementation=replace(HF, kernels=(EFFICIENT, EAGER), fp32_weights=("/weight", "mlp.gate/scale")),
    wrappers=(Wrapper("inkling_mm_model"),),
    defaults={
        "conv_kernel_size": 4, "d_rel": 16, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 24576,
        "layer_types": None, "local_layer_ids": None, "log_scaling_n_floor": None,
        "max_position_embeddings": 131072, "mlp_layer_types": None, "moe_intermediate_size": 3072,
        "n_routed_experts": 256, "n_shared_experts": 2, "num_attention_heads": 64, "num_experts_per_tok": 6,
        "num_key_value_heads": 8, "rel_extent": 1024, "sliding_window_size": 512, "swa_head_dim": 128,
        "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "unpadded_vocab_size": None,
        "vocab_size": 201024,
    },
    modules={
        "relative": "self_attn.r_proj", "shared/experts": "mlp.shared_experts",
    },
)  # fmt: skip

ARCHITECTURES = (INKLING,)

"""Gemma 4: layers that share keys and values, inputs of each layer's own, and experts next to the MLP.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures import arrangements, assembly, reading
from napkin.architectures.blocks import RMS_BARE, Operations, gated_mlp
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.architectures.shared_kv import (
    BORROWS,
    IMPLEMENTATION,
    NORM,
    WORDS,
    SharedHeads,
    attention,
    capped,
    kinds_of,
    layer_input,
    layers_inputs,
    sharing,
)
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.experts import Experts
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add, Scale
from napkin.operations.router import Router
from napkin.operations.streams import (
    ExpertScale,
)
from napkin.operations.views import Slice
from napkin.record import record, replace


class _LayerType(NamedTuple):
    """What sets one layer of Gemma 4 apart."""

    kind: str
    mode: str


@record
class _Gemma4:
    """Gemma 4, as config.json describes it.

    plans    of each layer                heads    {kind: sizes of attention}
    inner    width of the MLP             function of the MLP and the experts
    doubled  layers that share keys and values have an MLP twice as wide
    input_rows, input_width  of the embedding of each layer's own input; 0: none
    mixture  the experts' operations
    softcap  the logits have a soft cap
    """

    sizes: Dimensions
    plans: Sequence[_LayerType]
    heads: Mapping[str, SharedHeads]
    inner: int
    function: str
    doubled: bool
    input_rows: int
    input_width: int
    mixture: Operations
    softcap: bool


def gemma4(config: Config) -> Model:
    """Return Gemma 4's language model: full attention has heads of its own size, and keys and values of one projection
    where asked for; inputs of each layer's own; experts next to the MLP of every layer."""
    read = _read(config)
    sizes = read.sizes
    before = assembly.embedding(sizes.vocabulary, sizes.hidden, scale=True)
    if read.input_width:
        inputs = layers_inputs(read.input_rows, sizes.hidden, sizes.layers, read.input_width)
        before += (*inputs, Slice("stream", ("embedding_scaled",), sizes.hidden))
    return decoder_only(
        sizes,
        before,
        assembly.runs_of(read.plans, partial(_layer, read)),
        assembly.head(sizes.hidden, sizes.vocabulary, norm=NORM, softcap=read.softcap, none=sizes.headless),
    )


def _read(config: Config) -> _Gemma4:
    hidden, layers = reading.width(config), reading.depth(config)
    total = config.integer("num_attention_heads")
    config.must_be("use_bidirectional_attention", "vision")
    kinds = [*kinds_of(config, layers, 6)[:-1], FULL]  # the last one's, whatever the file says
    heads = _heads_by_kind(config, hidden, total, kinds)
    windowed, function = heads[WINDOWED], reading.activation(config, "hidden_activation")
    input_rows, input_width = _inputs(config)
    max_length = config.optional_integer("max_position_embeddings")
    return _Gemma4(
        dimensions_of(config, hidden, layers, total, windowed.kv_heads, windowed.head_dim, max_length),
        [_LayerType(*one) for one in zip(kinds, sharing(config, kinds), strict=True)],
        heads,
        config.integer("intermediate_size"),
        function,
        config.flag("use_double_wide_mlp"),
        input_rows,
        input_width,
        _mixture(config, hidden, function),
        capped(config),
    )


def _inputs(config: Config) -> tuple[int, int]:
    """Read rows and width of the embedding of each layer's own input; 0 if there is none."""
    if "hidden_size_per_layer_input" not in config.defaults:  # files of the other class name what theirs does not have
        config.must_be("hidden_size_per_layer_input", 0)
        config.must_be("enable_moe_block", False)
        config.ignore("vocab_size_per_layer_input")
        return 0, 0
    each = config.integer("hidden_size_per_layer_input", least=0)
    if not each:
        config.ignore("vocab_size_per_layer_input")
        return 0, 0
    return config.integer("vocab_size_per_layer_input"), each


def _layer(read: _Gemma4, plan: _LayerType) -> Layer:
    hidden = read.sizes.hidden
    inner = read.inner * (1 + (read.doubled and plan.mode == BORROWS))
    name = "full" if plan.kind == FULL else "sliding"
    feed = gated_mlp("mlp_norm", width=hidden, inner=inner, function=read.function)
    operations = arrangements.sandwich_norm(
        hidden,
        NORM,
        lambda source: attention(source, read.heads[plan.kind], plan.mode, name),
        lambda source: (*feed, *read.mixture),
    )
    if read.input_width:
        operations += (
            *layer_input("mlp_residual", hidden, read.input_width, read.function),
            Add("per_layer_residual", ("mlp_residual", "per_layer_norm"), hidden),
        )
    operations += (Scale("layer_scaled", (operations[-1].name,), hidden),)
    return Layer("_".join((name, *WORDS[plan.mode])), operations)


def _heads_by_kind(config: Config, hidden: int, heads: int, kinds: Sequence[str]) -> dict[str, SharedHeads]:
    """Read the sizes of both kinds of attention. A file of later releases lists what full layers have of their own
    under per_layer_config, an earlier one says it for all of them."""
    one_product = config.flag("attention_k_eq_v")
    head_dim = config.integer("head_dim")
    kv_heads = reading.kv_heads_of(config, heads)
    own = {WINDOWED: (head_dim, kv_heads)}
    if "per_layer_config" in config.fields:
        config.ignore("global_head_dim", "num_global_key_value_heads")
        own |= _listed(config, heads, kinds, head_dim, kv_heads)
    else:
        few = config.optional_integer("num_global_key_value_heads") if one_product else None
        config.ignore("num_global_key_value_heads")
        if few is not None and heads % few:
            raise config.wrong("num_global_key_value_heads", f"{heads} attention heads are not a multiple of {few}")
        own[FULL] = (config.integer("global_head_dim"), few or kv_heads)
    bias, window = config.flag("attention_bias"), config.integer("sliding_window")
    return {
        kind: SharedHeads(
            hidden,
            heads,
            few,
            size,
            bias,
            window if kind == WINDOWED else None,
            one_product and kind == FULL,
        )
        for kind, (size, few) in own.items()
    }


def _listed(
    config: Config, heads: int, kinds: Sequence[str], head_dim: int, kv_heads: int
) -> dict[str, tuple[int, int]]:
    """Read head size and key/value heads of each kind of attention, from a mapping of layers to what they have
    instead."""
    field = "per_layer_config"
    given = config.mapping(field, required=False) or {}
    sizes = {"head_dim": [head_dim] * len(kinds), "num_key_value_heads": [kv_heads] * len(kinds)}
    for layer, changes in given.items():
        if not (isinstance(layer, str) and layer.isdecimal() and int(layer) < len(kinds) and isinstance(changes, dict)):
            raise config.wrong(field, f"{printable(repr(layer), 60)} is not a layer with a mapping of its own")
        for name, value in changes.items():
            if name not in sizes:
                raise config.refuse(field, f"napkin does not know what {printable(repr(name), 60)} changes here")
            if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value > LARGEST_DIMENSION:
                raise config.wrong(field, f"{printable(repr(value), 60)} is not a whole number")
            sizes[name][int(layer)] = value
    found: dict[str, tuple[int, int]] = {}
    for kind, *both in zip(kinds, sizes["head_dim"], sizes["num_key_value_heads"], strict=True):
        if found.setdefault(kind, (both[0], both[1])) != tuple(both):
            raise config.wrong(field, f"layers of {kind} differ")
        if heads % both[1]:
            raise config.wrong(field, f"{heads} attention heads are not a multiple of {both[1]} key/value heads")
    return found


def _mixture(config: Config, hidden: int, function: str) -> Operations:
    """Read the experts, which read what the MLP's norm reads, and both branches' norms and sum; nothing if there are
    none."""
    if not config.flag("enable_moe_block", otherwise=False):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
        return ()
    experts, chosen = reading.chosen_experts(config, "num_experts", "top_k_experts")
    inner = config.integer("moe_intermediate_size")
    return (
        NORM("mlp_branch_norm", "down", hidden),
        RMS_BARE("router_norm", "attention_residual", hidden),
        Scale("router_weighted", ("router_norm",), hidden, learned=True),
        Scale("router_scaled", ("router_weighted",), hidden),
        Router("router", ("router_scaled",), hidden, experts, chosen, normalize=True),
        ExpertScale("expert_weights", ("router",), experts, chosen),
        NORM("experts_norm", "attention_residual", hidden),
        Experts("experts", ("experts_norm", "expert_weights"), hidden, inner, experts, chosen, function=function),
        NORM("experts_branch_norm", "experts", hidden),
        Add("branches", ("mlp_branch_norm", "experts_branch_norm"), hidden),
    )


GEMMA4_TEXT = Architecture(
    "gemma4_text",
    gemma4,
    config_class="Gemma4TextConfig",
    defaults={
        "attention_bias": False, "attention_k_eq_v": False, "enable_moe_block": False,
        "final_logit_softcapping": None, "global_head_dim": 512, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 256, "intermediate_size": 9216,
        "layer_types": None, "max_position_embeddings": 131072, "moe_intermediate_size": None,
        "num_attention_heads": 8, "num_experts": None, "num_global_key_value_heads": None, "num_key_value_heads": 4,
        "num_kv_shared_layers": 0, "per_layer_config": None, "sliding_window": 512, "tie_word_embeddings": True,
        "top_k_experts": None, "use_bidirectional_attention": None, "use_double_wide_mlp": False,
        "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
    },
    implementation=IMPLEMENTATION,
    wrappers=(
        Wrapper("gemma4", "Gemma4Config", implementation=replace(IMPLEMENTATION, token_ids="copied")),
        Wrapper("gemma4_assistant", refused="reads another model's keys and has no training step of its own"),
    ),
    modules={
        "per_layer_embedding": "model.embed_tokens_per_layer", "router": "router.proj", "experts": "experts",
        "per_layer_gate": "per_layer_input_gate", "per_layer_model_projection": "model.per_layer_model_projection",
    },
)  # fmt: skip
GEMMA4_UNIFIED_TEXT = like(
    GEMMA4_TEXT,
    "gemma4_unified_text",
    config_class="Gemma4UnifiedTextConfig",
    defaults={
        "max_position_embeddings": 262144, "sliding_window": 1024, "use_bidirectional_attention": "vision",
        "enable_moe_block": REQUIRED, "hidden_size_per_layer_input": REQUIRED, "moe_intermediate_size": REQUIRED,
        "num_experts": REQUIRED, "top_k_experts": REQUIRED, "vocab_size_per_layer_input": REQUIRED,
    },
    wrappers=(
        Wrapper(
            "gemma4_unified", "Gemma4UnifiedConfig",
            implementation=replace(IMPLEMENTATION, token_ids="copied", kernel_mask="always"),
        ),
        Wrapper("gemma4_unified_assistant", refused="reads another model's keys and has no training step of its own"),
    ),
)  # fmt: skip

ARCHITECTURES = (
    GEMMA4_TEXT,
    GEMMA4_UNIFIED_TEXT,
)

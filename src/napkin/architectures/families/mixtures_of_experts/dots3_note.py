"""dots3.note's language model: latent attention whose sizes depend on the layer type, keys that an indexer chooses
in some layers and windows in the others.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/dots3_note/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention_parts import Gate, Rope, Scores
from napkin.architectures.blocks import RMS, Block, Routing, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions_of
from napkin.architectures.latent_attention import LATENTS, LatentAttention, LatentSizes
from napkin.architectures.mixture import Feed
from napkin.architectures.reading import FULL, WINDOWED, activation, checked, chosen_experts, depth, on, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.attention.indexer import Indexer
from napkin.operations.implementations import FP32_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import record, replace

INDEXED = "indexed_attention"
SPARSE, DENSE = "sparse", "dense"
NAMES = {INDEXED: "indexed", WINDOWED: "sliding", FULL: "full"}
SIZES = (
    "num_attention_heads",
    "num_key_value_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "head_dim",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
"""What a layer may have of its own."""
IN_WINDOWS = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
"""Layers with a window, if a config says nothing of them (Dots3NoteTextConfig)."""
WINDOW = 512
"""Tokens of a window, if a config does not say."""


class DotsPlan(NamedTuple):
    """What sets one layer apart from the others."""

    attention: str
    feed: str


@record
class DotsReading:
    """What a config.json says of dots3.note's language model: attention and feed-forward of each layer type that there
    is."""

    sizes: Dimensions
    plans: Sequence[DotsPlan]
    attentions: Mapping[str, LatentAttention]
    networks: Mapping[str, Block]


def read(config: Config) -> DotsReading:
    """Read a config.json."""
    config.ignore("mlp_bias", "output_router_logits", "swa_rope_theta", "rope_interleave", "norm_topk_prob")
    config.ignore("index_n_heads", "index_head_dim", "index_topk")
    hidden, layers = width(config), depth(config)
    kinds, feeds = _kinds(config, layers), _feeds(config, layers)
    sizes = _sizes(config, kinds)
    attentions = _attentions(config, hidden, sizes)
    networks = _networks(config, hidden, feeds)
    modules = config.optional_integer("num_nextn_predict_layers", least=0)
    if modules:
        config.notes.append(f"{modules} multi-token prediction modules of the checkpoint not counted")
    heads = gcd(*(one["num_attention_heads"] for one in sizes.values()))
    widest = max(one["qk_nope_head_dim"] + one["qk_rope_head_dim"] for one in sizes.values())
    length = config.optional_integer("max_position_embeddings")
    return DotsReading(
        dimensions_of(config, hidden, layers, heads, heads, widest, length),
        [DotsPlan(*one) for one in zip(kinds, feeds, strict=True)],
        attentions,
        networks,
    )


def layer(of: DotsReading, plan: DotsPlan) -> Layer:
    """Return a layer."""
    name = f"{NAMES[plan.attention]}_{'moe' if plan.feed == SPARSE else 'dense'}"
    return Layer(name, pre_norm(of.sizes.hidden, RMS, of.attentions[plan.attention], of.networks[plan.feed]))


def dots3_note(config: Config) -> Model:
    """Return dots3.note's language model."""
    of = read(config)
    return decoder_of(of.sizes, runs_of(of.plans, partial(layer, of)), RMS)


def _attentions(config: Config, hidden: int, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, LatentAttention]:
    """Read the attention of each layer type that there is, of these sizes."""
    window = config.optional_integer("sliding_window")
    if window is None:
        window = config.optional_integer("sliding_window_size") or WINDOW
    config.ignore("sliding_window_size")
    found = {
        kind: LatentAttention(
            LatentSizes(
                width=hidden,
                heads=one["num_attention_heads"],
                q_rank=one["q_lora_rank"],
                kv_rank=one["kv_lora_rank"],
                nope=one["qk_nope_head_dim"],
                v_dim=one["v_head_dim"],
            ),
            Rope(
                one["qk_rope_head_dim"],
                "interleaved",
                table=list(NAMES).index(kind),
                wide=kind == INDEXED,
                narrow=True,
            ),
            bias=on(config, "attention_bias"),
            gate=Gate(per_head=True),
            scores=Scores(window=window if kind == WINDOWED else None),
            scaled=LATENTS,
            key_norm=True,
        )
        for kind, one in sizes.items()
    }
    if INDEXED in found:
        found[INDEXED] = _indexed(config, found[INDEXED], hidden, sizes[INDEXED])
    return found


def _indexed(config: Config, attend: LatentAttention, hidden: int, sizes: Mapping[str, int]) -> LatentAttention:
    """Return attention to the keys that an indexer chooses."""
    index_heads, size = config.integer("index_n_heads"), config.integer("index_head_dim")
    rotary = sizes["qk_rope_head_dim"]
    if rotary > size:
        raise config.wrong("index_head_dim", f"{size} is less than the {rotary} elements that rotate")

    def index(source: str, latent: str) -> Indexer:
        return Indexer("indexer", (source, latent), hidden, sizes["q_lora_rank"], index_heads, size, rotary)

    return replace(attend, scores=Scores(window=config.integer("index_topk"), anywhere=True), index=index)


def _networks(config: Config, hidden: int, feeds: list[str]) -> dict[str, Block]:
    """Read the feed-forward of each layer type that there is."""
    config.ignore("intermediate_size", "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok")
    config.ignore("n_shared_experts", "n_group", "topk_group", "topk_method", "scoring_func")
    config.ignore("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size")
    network = partial(gated_mlp, width=hidden, function=activation(config, "hidden_act"))
    found: dict[str, Block] = {}
    if DENSE in feeds:
        found[DENSE] = partial(network, inner=config.integer("intermediate_size"))
    if SPARSE in feeds:
        found[SPARSE] = _experts(config, network, hidden)
    return found


def _experts(config: Config, network: Feed, hidden: int) -> Block:
    """Read a mixture of experts; `network`: of the shared ones."""
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    groups = config.integer("n_group")
    if config.divides("n_group", experts, groups, "experts") < 2:
        raise config.wrong("n_group", f"{groups} groups of {experts} experts have fewer than two each")
    own = config.optional_integer("moe_shared_expert_intermediate_size")
    shared = own if own is not None else config.integer("shared_experts_intermediate_size")
    normalize = config.flag("norm_topk_prob", otherwise=True)
    return partial(
        moe,
        width=hidden,
        inner=config.integer("moe_intermediate_size"),
        routing=Routing(experts, top_k, score="sigmoid", normalize=normalize, upcast=True, balanced="buffer"),
        function=activation(config, "hidden_act"),
        shared=partial(network, inner=shared * config.integer("n_shared_experts"), prefix="shared/"),
    )


def _kinds(config: Config, layers: int) -> list[str]:
    """Read the attention of each layer: listed, or the first two and then each fourth without a window. Where all keys
    are seen, use_dsa says whether an indexer chooses among them; files with sizes by the layer say it by the name."""
    by_layer = "per_layer_config" in config.fields
    chosen = config.flag("use_dsa", otherwise=True) if config.has("use_dsa") or not by_layer else None
    windows = config.flag("use_sliding_window", otherwise=True)
    given = config.items("layer_types", required=False)
    if given is None:
        near = [windows and i >= 2 and i % 4 != 1 for i in range(layers)]
        given = [WINDOWED if one else FULL if chosen is False else INDEXED for one in near]
    given = checked(config, "layer_types", given, layers, NAMES)
    if chosen is None:
        return given
    return [WINDOWED if entry == WINDOWED else INDEXED if chosen else FULL for entry in given]


def _feeds(config: Config, layers: int) -> list[str]:
    """Read whether each layer is dense or a mixture of experts: listed, or mixtures behind the first, all or each n-th
    of them."""
    given = config.items("mlp_layer_types", required=False)
    first = config.optional_integer("first_k_dense_replace", least=0)
    every = config.raw("moe_layer_freq", required=False)
    if given is not None:
        if len(given) != layers or set(map(str, given)) - {SPARSE, DENSE}:
            raise config.wrong("mlp_layer_types", f"is not a list of {layers} times sparse or dense")
        return [str(entry) for entry in given]
    if isinstance(every, list):
        if len(every) != layers or any(entry not in (0, 1) for entry in every):
            raise config.wrong("moe_layer_freq", f"is not a list of {layers} times 0 or 1")
        here = [bool(entry) for entry in every]
    else:
        step = config.optional_integer("moe_layer_freq") or 1
        here = [i % step == 0 for i in range(layers)]
    first = 1 if first is None else first
    return [SPARSE if i >= first and here[i] else DENSE for i in range(layers)]


def _sizes(config: Config, kinds: list[str]) -> dict[str, dict[str, int]]:
    """Read the sizes of attention in each layer type that there is."""
    usual = {field: config.integer(field) for field in SIZES if field != "num_key_value_heads"}
    stated = config.optional_integer("num_key_value_heads")
    usual["num_key_value_heads"] = usual["num_attention_heads"] if stated is None else stated
    if "per_layer_config" in config.fields:
        config.ignore(*(f"swa_{field}" for field in SIZES))
        own = _by_layer(config, kinds)
    else:
        near: dict[str, int] = {f: config.optional_integer(f"swa_{f}") or IN_WINDOWS[f] for f in IN_WINDOWS}
        rotary = config.optional_integer("swa_qk_rope_head_dim")
        near["qk_rope_head_dim"] = near["head_dim"] - near["qk_nope_head_dim"] if rotary is None else rotary
        own = {kind: near if kind == WINDOWED else {} for kind in kinds}
    found = {kind: {**usual, **own[kind]} for kind in dict.fromkeys(kinds)}
    for kind, one in found.items():
        field = "swa_qk_rope_head_dim" if kind == WINDOWED else "qk_rope_head_dim"
        if one["num_key_value_heads"] != one["num_attention_heads"]:
            raise config.wrong("num_key_value_heads", f"is not num_attention_heads in layers of {kind}")
        if one["qk_rope_head_dim"] < 2 or one["qk_rope_head_dim"] % 2:
            raise config.wrong(field, f"{one['qk_rope_head_dim']} elements do not rotate in pairs")
        if kind == WINDOWED and one["head_dim"] != one["qk_nope_head_dim"] + one["qk_rope_head_dim"]:
            raise config.wrong("swa_head_dim", "is not qk_nope_head_dim + qk_rope_head_dim in layers with a window")
    return found


def _by_layer(config: Config, kinds: list[str]) -> dict[str, dict[str, int]]:
    """Read what per_layer_config holds for each layer type: the same for all layers of a type."""
    given = config.mapping("per_layer_config", required=False) or {}
    field, own = "per_layer_config", {}
    for key, block in given.items():
        layer = int(key) if str(key).isascii() and str(key).isdigit() and len(str(key)) <= len(str(10**9)) else -1
        if not 0 <= layer < len(kinds) or layer in own or not isinstance(block, dict):
            raise config.wrong(field, f"{printable(repr(key), 40)} is not the number of a layer with its sizes")
        for name, value in block.items():
            if name not in SIZES:
                raise config.refuse(field, f"napkin does not know {printable(repr(name), 60)} by the layer")
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_DIMENSION:
                raise config.wrong(field, f"{name} of layer {layer} is not a whole number from 1")
        own[layer] = block
    found: dict[str, dict[str, int]] = {}
    for layer, kind in enumerate(kinds):
        block = own.get(layer, {})
        if found.setdefault(kind, block) != block:
            raise config.wrong(field, f"layer {layer} differs from others of {kind}")
    return found


DOTS3_NOTE = Architecture(
    "dots3_note_text",
    dots3_note,
    config_class="Dots3NoteTextConfig",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=FP32_ROUTER,
    wrappers=(Wrapper("dots3_note", flat=True),),
    defaults={
        "attention_bias": False, "head_dim": 256, "hidden_act": "silu", "index_head_dim": 128, "index_n_heads": 64,
        "index_topk": 2048, "intermediate_size": 13824, "kv_lora_rank": 512, "layer_types": None,
        "max_position_embeddings": 524288, "mlp_layer_types": None, "moe_intermediate_size": 1536, "n_group": 1,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
        "num_key_value_heads": 128, "q_lora_rank": 1024, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "shared_experts_intermediate_size": 1536, "sliding_window": None, "tie_word_embeddings": False,
        "v_head_dim": 128, "vocab_size": 152064,
    },
    modules={
        "gate_logit": "self_attn.g_proj",
    },
)  # fmt: skip

ARCHITECTURES = (DOTS3_NOTE,)

"""Mistral Large 4: latent attention over chosen keys, with learned temperatures of queries, layers without positions
and layers that read an earlier one's latent.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/mistral_large4/).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS, Block, Operations, Routing, gated_mlp, moe
from napkin.architectures.dimensions import decoder_only, dimensions_of
from napkin.architectures.latent_decoder import each_indexed
from napkin.architectures.layer_plans import by_type
from napkin.architectures.reading import activation, chosen_experts, depth, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.indexer import Indexer
from napkin.operations.implementations import EAGER, EFFICIENT, HF
from napkin.operations.learned import Parameters, Temper
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.roles import (
    COLUMN,
    KEY,
    KV_LATENT,
    QUERY,
    REPLICATED,
    ROTATED_KEY,
    ROTATED_QUERY,
    ROW,
    SHARED_TENSOR,
    VALUE,
)
from napkin.operations.views import Concat, Share, Slice
from napkin.record import record, replace


class _MistralPlan(NamedTuple):
    """What sets a layer apart: experts, an indexer of its own, rotary positions, and whose latent it reads."""

    sparse: bool
    indexed: bool
    rotary: bool
    latent: str


OWN, LENDS, BORROWS = "", "lending", "borrowing"
"""A latent of keys and values: the layer's own; its own, which later layers read too; that of an earlier one."""


@record
class _MistralAttention:
    """Attention of one kind of layer. `index`: makes the operation that chooses the keys, or None."""

    hidden: int
    heads: int
    rank: int
    nope: int
    rotary: int
    v_dim: int
    keys: int
    bias: bool
    plan: _MistralPlan
    index: Indexer | None

    def __call__(self, source: str) -> Operations:
        """Return queries, keys and values from the latent, the choice of keys, the core and the output projection."""
        rotary = self.rotary if self.plan.rotary else 0
        nope, wide = self.nope + self.rotary - rotary, self.nope + self.rotary
        rope = Rope(rotary, "interleaved")
        kind = "rotary" if rotary else "unrotated"
        query: Operations = (Matmul("q", (source,), self.hidden, self.heads * wide, False, COLUMN, role=QUERY),)
        parts = ["q"]
        if rotary:
            query += (
                Slice("q_nope", ("q",), self.heads * nope),
                Slice("q_pe", ("q",), self.heads * rotary),
                rope("q_rope", "q_pe", self.heads, rotary, ROTATED_QUERY),
            )
            parts = ["q_nope", "q_rope"]
        query += (
            Concat("q_joined", tuple(parts), self.heads * wide),
            Temper("q_tempered", ("q_joined",), self.heads, wide),
        )
        latent, key = self._latent(source, rope, rotary, kind)
        up = self.heads * (nope + self.v_dim)
        made: Operations = (
            *query,
            *latent,
            Matmul("kv_b", (key[0],), self.rank, up, False, COLUMN),
            Slice("k_nope", ("kv_b",), self.heads * nope),
            Slice("v", ("kv_b",), self.heads * self.v_dim, role=VALUE),
            Concat("k", ("k_nope", *key[1:]), self.heads * wide, first_type=True, role=KEY),
        )
        if self.index is not None:
            made += (replace(self.index, reads=(source, source), rotary=rotary),)
        core = AttentionCore(
            "attention", ("q_tempered", "k", "v"), self.heads, self.heads, wide, self.v_dim,
            window=self.keys, anywhere=True,
        )  # fmt: skip
        out = Matmul("o", ("attention",), self.heads * self.v_dim, self.hidden, self.bias, ROW)
        return (*made, core, out)

    def _latent(self, source: str, rope: Rope, rotary: int, kind: str) -> tuple[Operations, tuple[str, ...]]:
        """Return the latent of keys and values, and the names of it and of the rotated key."""
        names = (f"{kind}_latent", f"{kind}_key")[: 1 + bool(rotary)]
        if self.plan.latent == BORROWS:
            return (), tuple(SHARED_TENSOR + name for name in names)
        made: Operations = (
            Matmul("kv_a", (source,), self.hidden, self.rank + rotary, self.bias, role=KV_LATENT),
            Slice("kv_latent", ("kv_a",), self.rank),
            RMS("kv_a_norm", "kv_latent", self.rank),
        )
        own: tuple[str, ...] = ("kv_a_norm",)
        if rotary:
            made += (
                Slice("k_shared", ("kv_a",), rotary),
                rope("k_rope", "k_shared", 1, rotary, ROTATED_KEY),
            )
            own += ("k_rope",)
        if self.plan.latent == LENDS:
            made += tuple(Share(name, (read,)) for name, read in zip(names, own, strict=True))
        return made, own


def mistral_large4(config: Config) -> Model:
    """Return Mistral Large 4's language model."""
    hidden, layers = width(config), depth(config)
    heads, function = config.integer("num_attention_heads"), activation(config, "hidden_act")
    nope, rotary = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    config.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "mlp_bias", "q_lora_rank", "norm_topk_prob")
    config.ignore("n_group", "topk_group", "no_rope_layer_interval")
    index_heads, index_size = config.integer("index_n_heads"), config.integer("index_head_dim")
    index = Indexer("indexer", (), hidden, hidden, index_heads, index_size, tempered=True)
    bias, keys = config.flag("attention_bias"), config.integer("index_topk")
    rank, v_dim = config.integer("kv_lora_rank"), config.integer("v_head_dim")
    feeds = {True: _experts(config, hidden, function)}
    inner = config.integer("intermediate_size")
    feeds[False] = partial(gated_mlp, width=hidden, inner=inner, function=function)

    def layer(plan: _MistralPlan) -> Layer:
        chosen = index if plan.indexed else None
        attend = _MistralAttention(hidden, heads, rank, nope, rotary, v_dim, keys, bias, plan, chosen)
        words = ("moe" if plan.sparse else "dense", "" if plan.indexed else "shared_index", plan.latent)
        turned = "rotary" if plan.rotary else "unrotated"
        name = "_".join(word for word in (turned, *words) if word)
        return Layer(name, pre_norm(hidden, RMS, attend, feeds[plan.sparse]))

    plans = map(
        _MistralPlan,
        map(by_type(config, layers), range(layers)),
        each_indexed(config, layers),
        _rotated(config, layers),
        _latents(config, layers),
    )
    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, heads, nope + rotary, length)
    rows, softcap = sizes.vocabulary, config.real("final_logit_softcapping") is not None
    after = head(hidden, rows, norm=RMS, softcap=softcap, none=sizes.headless)
    frequencies = Parameters("frequencies", (), (("alpha", (rotary // 2,)),), REPLICATED)
    return decoder_only(sizes, (frequencies, *embedding(rows, hidden)), runs_of(plans, layer), after)


def _experts(config: Config, hidden: int, function: str) -> Block:
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    inner, number = config.integer("moe_intermediate_size"), config.integer("n_shared_experts")
    shared = partial(gated_mlp, width=hidden, inner=number * inner, function=function, prefix="shared/")
    routing = Routing(experts, top_k, normalize=True, upcast=True)
    return partial(moe, width=hidden, inner=inner, routing=routing, function=function, shared=shared)


def _rotated(config: Config, layers: int) -> list[bool]:
    """Read which layers have rotary positions: all but each fourth if the file does not say."""
    given = config.items("no_rope_layers", required=False)
    if given is None:
        every = config.optional_integer("no_rope_layer_interval") or 4
        return [(i + 1) % every != 0 for i in range(layers)]
    if len(given) < layers or not all(entry in (0, 1) for entry in given):
        raise config.wrong("no_rope_layers", f"is not a list of {layers} times 0 or 1")
    return [bool(entry) for entry in given[:layers]]


def _latents(config: Config, layers: int) -> list[str]:
    """Read whose latent each layer reads, from a list with the number of that layer."""
    given = config.items("kv_source_layers", required=False)
    if given is None:
        return [OWN] * layers
    whole = [entry for entry in given if isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < layers]
    if len(given) != layers or len(whole) != layers or any(n > i or whole[n] != n for i, n in enumerate(whole)):
        raise config.wrong("kv_source_layers", "is not the number of an earlier layer with a latent of its own, each")
    lenders = {n for i, n in enumerate(whole) if n != i}
    return [BORROWS if n != i else LENDS if i in lenders else OWN for i, n in enumerate(whole)]


MISTRAL_LARGE4 = Architecture(
    "mistral_large4_text",
    mistral_large4,
    config_class="MistralLarge4TextConfig",
    aliases={"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"},
    implementation=replace(
        HF, router="scores", kernel_mask="always", kernels=(EFFICIENT, EAGER),
        fp32_router=True, fp32_weights=("mlp.gate/weight", "/alpha"), fp16_excepts=("indexer/head_weights",),
        buffers=(("rotary", "fp32"), ("rotary", "fp32")),
    ),
    wrappers=(
        Wrapper(
            "mistral_large4",
        ),
    ),
    defaults={
        "attention_bias": False, "final_logit_softcapping": 30.0, "first_k_dense_replace": 1, "hidden_act": "silu",
        "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048, "indexer_types": None,
        "intermediate_size": 24576, "kv_lora_rank": 512, "kv_source_layers": None, "layer_types": None,
        "max_position_embeddings": 1048576, "mlp_layer_types": None, "moe_intermediate_size": 6144,
        "n_routed_experts": 128, "n_shared_experts": 1, "no_rope_layers": None, "num_attention_heads": 64,
        "num_experts_per_tok": 4, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "tie_word_embeddings": False,
        "v_head_dim": 128, "vocab_size": 204800,
    },
    modules={"q": "self_attn.q_proj", "embedding": "model.language_model.embed_tokens"},
)  # fmt: skip

ARCHITECTURES = (MISTRAL_LARGE4,)

"""Decoders whose fields do not map one to one: an adapter settles what they mean, then the common one builds."""

from __future__ import annotations

from functools import partial

from napkin.architectures import arrangements, blocks, common
from napkin.architectures.attention import Attention, Heads, QkvProjections, Rope, Scores
from napkin.architectures.blocks import LAYER, LAYER_NO_BIAS, RMS, NormStyle, Operations, Routing
from napkin.architectures.decoder import decoder
from napkin.architectures.decoders import GPT2, TRAITS
from napkin.architectures.traits import Traits
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.base import COLUMN, KEY, VALUE
from napkin.operations.experts import BalanceLoss, ExpertMatmul, Router
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts
from napkin.operations.pointwise import Activation, Multiply
from napkin.operations.views import Concat, Slice
from napkin.record import replace


def gpt_bigcode(config: Config) -> Model:
    """GPT-2 with one key/value head where multi_query says so (SantaCoder, StarCoder)."""
    kv_heads = 1 if config.flag("multi_query") else config.integer("num_attention_heads")
    config.must_be("num_key_value_heads", kv_heads)  # written by later releases, decided by multi_query
    return decoder(config, GPT2, kv_heads=kv_heads)


def hunyuan_moe(config: Config) -> Model:
    """Hunyuan's mixture, whose files write one number for each layer and much that the class does not know."""
    alike = {"moe_topk", "num_experts", "num_shared_expert", "moe_intermediate_size"}
    lists = {f: v for f in alike if isinstance(v := config.fields.get(f), list) and v and v == v[:1] * len(v)}
    config.fields = {**config.fields, **{field: values[0] for field, values in lists.items()}}
    for field, value in (("num_shared_expert", 1), ("use_mixed_mlp_moe", True), ("norm_type", "rms")):
        config.must_be(field, value)
    for field in ("use_cla", "use_mla", "mlp_bias", "add_classification_head", "moe_layer_num_skipped"):
        config.must_be(field, False)
    config.must_be("moe_intermediate_size", config.integer("intermediate_size"))
    heads, head_dim = config.integer("num_attention_heads"), config.optional_integer("head_dim")
    config.must_be("attention_head_dim", head_dim or common.width(config) // heads)
    config.ignore("cla_share_factor", "class_num", "dense_list", "group_limited_greedy", "moe_drop_tokens")
    config.ignore("moe_random_routing_dropped_token", "org_vocab_size", "pool_type", "position_embedding_xdrope")
    config.ignore("use_qk_norm", "use_rotary_pos_emb", "skip_cls_token", "num_media_embeds", "vit_path", "pad_id")
    config.ignore("mask_init_id", "im_end_id", "im_newline_id", "im_start_id", "text_start_id", "text_end_id")
    config.ignore("video_start_id", "video_end_id", "anyres_vit_max_image_size", "anyres_pooling_size")
    return decoder(config, TRAITS["hunyuan_v1_moe"])


def openai_gpt(config: Config) -> Model:
    """The first GPT: norms after the residual additions, none at the end, an inner width of 4h that no field says."""
    traits = replace(GPT2, arrangement="post", final_norm=False, inner="", inner_default=4, function=("afn",))
    return decoder(config, traits)


def phi4_multimodal(config: Config) -> Model:
    """Phi-4-multimodal (arXiv:2503.01743): Phi-3's decoder. Its senses, and the LoRA adapters that its checkpoint holds
    for them, are no part of the language model."""
    config.notes.append(f"the language model of {config.model_type} alone is counted, vision and other senses left out")
    config.ignore("vision_config", "audio_config", "original_max_position_embeddings")
    return decoder(config, TRAITS["phi3"])


def biogpt(config: Config) -> Model:
    """Learnt positions with two rows before the first, as in OPT; the table's vectors scaled by √h."""
    config.ignore("scale_embedding")
    traits = replace(
        GPT2,
        inner="intermediate_size",
        inner_default=0,
        function=("hidden_act",),
        fused=False,
        positions_offset=2,
        embedding_scale=True,
        activation_dropout=True,
    )
    return decoder(config, traits)


def opt(config: Config) -> Model:
    """OPT: biases by one flag, positions with two rows before the first, and for 350M a narrower token table between
    projections, norms after the additions and no final norm."""
    hidden = common.width(config)
    before = config.flag("do_layer_norm_before")
    affine = config.flag("layer_norm_elementwise_affine")
    bias = config.flag("enable_bias")
    narrow = config.optional_integer("word_embed_proj_dim")
    final = not config.flag("_remove_final_layer_norm")
    config.ignore("activation_dropout")
    traits = replace(
        GPT2,
        norm=replace(LAYER, weight=affine, bias=affine),
        arrangement="pre" if before else "post",
        final_norm=before and final,
        bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        inner="ffn_dim",
        inner_default=0,
        fused=False,
        positions_offset=2,
        embedding_dropout=False,
    )
    return decoder(config, traits, table_width=narrow if narrow != hidden else None)


def bloom(config: Config) -> Model:
    """BLOOM: ALiBi, a norm right after the token table."""
    config.must_be("n_inner", None)
    config.ignore(
        "masked_softmax_fusion", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"
    )
    traits = replace(
        GPT2,
        inner="",
        function_is="bloom_gelu",
        positions_offset=None,
        position="alibi",
        embedding_norm=LAYER,
        embedding_dropout=False,
        residual_after_norm="apply_residual_connection_post_layernorm",
    )
    return decoder(config, traits)


def falcon(config: Config) -> Model:
    """Falcon: branches in parallel or not, one norm or two for them, ALiBi or rotary, and three ways to say how many
    key/value heads there are: multi_query wins over num_kv_heads except in the new architecture."""
    heads = config.integer("num_attention_heads")
    new, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn")
    config.must_be("apply_residual_connection_post_layernorm", False)
    stated = common.kv_heads_of(config, heads, "num_kv_heads") if new or not config.flag("multi_query") else 1
    config.ignore("num_kv_heads", "multi_query")
    if not new and stated != heads and not config.flag("multi_query"):
        raise config.refuse("num_kv_heads", f"is not the {heads} heads that this architecture has keys and values for")
    norms = config.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    if new and not parallel:
        raise config.refuse("parallel_attn", "is false in the new decoder architecture, which has parallel branches")
    if norms > 2 or (norms == 2 and not new):
        raise config.refuse("num_ln_in_parallel_attn", f"napkin does not know {norms} norms here")
    alibi = config.flag("alibi")
    traits = Traits(
        norm=LAYER,
        arrangement="parallel" if parallel else "pre",
        parallel_norms=norms,
        bias="bias",
        out_bias="bias",
        mlp_bias="bias",
        own_head_dim=False,
        inner="ffn_hidden_size",
        inner_default=4,
        function=("activation",),
        gated=False,
        fused=True,
        indexed=new or stated == 1 < heads,
        groups=stated if new else 1,
        spread=new,
        rope="" if alibi else "half",
        position="alibi" if alibi else "none",
        dropout=(True, True),
        dropout_sum=True,
        ignored=("rotary",),
    )
    return decoder(config, traits, kv_heads=stated)


def mpt(config: Config) -> Model:
    """MPT: ALiBi, no biases anywhere, an inner width of 4h. Its class drops with attn_pdrop alone, a whole number."""
    config.must_be("expansion_ratio", 4)
    config.must_be("no_bias", True)
    config.must_be("embedding_fraction", 1.0, 1)
    config.must_be("norm_type", "low_precision_layernorm")
    config.ignore("learned_pos_emb", "init_device", "logit_scale")
    if config.has("attn_config"):
        inside = config.nested("attn_config", "mpt.attn_config")
        inside.must_be("alibi", True)
        inside.must_be("attn_type", "multihead_attention")
        inside.must_be("qk_ln", False)
        inside.must_be("prefix_lm", False)
        inside.ignore("model_type", "attn_uses_sequence_id", "alibi_bias_max")
        clamp = bool(inside.real("clip_qkv", required=False))
    else:
        clamp = False
    traits = replace(
        GPT2,
        norm=LAYER_NO_BIAS,
        bias=False,
        out_bias=False,
        mlp_bias=False,
        inner="",
        function_is="gelu",
        positions_offset=None,
        position="alibi",
        dropout=(False, False),
        embedding_dropout=False,
        clamp=clamp,
    )
    return decoder(config, traits, max_length_field="max_seq_len")


def dbrx(config: Config) -> Model:
    """DBRX: fine-grained experts; attention and experts described in blocks of their own."""
    hidden, layers = common.width(config), common.depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = common.head_size(config, hidden, heads, own=False)
    inside = config.nested("attn_config", "dbrx.attn_config")
    kv_heads = common.kv_heads_of(inside, heads, "kv_n_heads")
    config.must_be("num_key_value_heads", kv_heads)
    clamp = inside.real("clip_qkv", required=False) is not None
    inside.ignore("model_type")
    ffn = config.nested("ffn_config", "dbrx.ffn_config")
    ffn.ignore("model_type", "tie_word_embeddings", "uniform_expert_assignment")
    ffn.must_be("hidden_size", hidden)
    named = ffn.mapping("ffn_act_fn", required=False) or {"name": "silu"}
    function = named.get("name")
    if function not in common.FUNCTIONS:
        raise ffn.refuse("ffn_act_fn", f"napkin does not know {function!r}")
    experts, top_k = ffn.integer("moe_num_experts"), ffn.integer("moe_top_k")
    if top_k > experts:
        raise ffn.wrong("moe_top_k", f"chooses {top_k} of {experts} experts")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim), QkvProjections(fused=True, clamped=clamp), rope=Rope(head_dim)
    )
    feed = partial(
        blocks.moe,
        width=hidden,
        inner=ffn.integer("ffn_hidden_size"),
        routing=Routing(
            experts,
            top_k,
            normalise=ffn.real("moe_normalize_expert_weights", required=False) is not None,
            jitter=1 if ffn.real("moe_jitter_eps", required=False) else 0,
        ),
        function=str(function),
    )
    layer = Layer("moe", arrangements.pre_norm(hidden, LAYER_NO_BIAS, attend, feed, dropout=(True, True)))
    balances = config.flag("output_router_logits", otherwise=False)
    balance = BalanceLoss("balance_loss", (), experts, top_k) if balances else None
    return _assembled(config, hidden, heads, kv_heads, head_dim, ((layers, layer),), LAYER_NO_BIAS, balance=balance)


def jetmoe(config: Config) -> Model:
    """JetMoE (arXiv:2404.07413): queries and outputs of attention are chosen among experts, as the feed-forward is;
    keys and values are the same for all choices of a token."""
    hidden, layers = common.width(config), common.depth(config)
    kv_heads, size = config.integer("num_key_value_heads"), config.integer("kv_channels")
    experts, top_k = config.integer("num_local_experts"), config.integer("num_experts_per_tok")
    if top_k > experts:
        raise config.wrong("num_experts_per_tok", f"chooses {top_k} of {experts} experts")
    config.ignore("num_attention_heads")  # the class computes it
    function, inner = common.activation(config, "activation_function"), config.integer("intermediate_size")
    wide, rope = kv_heads * size, Rope(size)

    def router(name: str, source: str) -> Router:
        return Router(name, (source,), hidden, experts, top_k, score="softmax_top_k")

    def product(name: str, source: str, by: str, d_in: int, d_out: int, rows: str, makes: str) -> ExpertMatmul:
        return ExpertMatmul(name, (source, by), d_in, d_out, experts, top_k, rows, makes)

    def attend(source: str) -> Operations:
        return (
            router("attention_router", source),
            product("q", source, "attention_router", hidden, wide, "tokens", "choices"),
            Matmul("kv", (source,), hidden, 2 * wide, False, COLUMN),
            Slice("k", ("kv",), wide, role=KEY),
            Slice("v", ("kv",), wide, role=VALUE),
            rope("q_rope", "q", kv_heads * top_k, size),
            rope("k_rope", "k", kv_heads, size),
            Concat("k_repeated", ("k_rope",), top_k * wide),
            Concat("v_repeated", ("v",), top_k * wide),
            AttentionCore(
                "attention", ("q_rope", "k_repeated", "v_repeated"), kv_heads * top_k, kv_heads * top_k, size, size
            ),
            product("o", "attention", "attention_router", wide, hidden, "choices", "tokens"),
        )

    def feed(source: str) -> Operations:
        return (
            router("router", source),
            product("gate_up", source, "router", hidden, 2 * inner, "tokens", "sorted"),
            Slice("gate", ("gate_up",), top_k * inner),
            Slice("up", ("gate_up",), top_k * inner),
            Activation("activation", ("gate",), top_k * inner, function),
            Multiply("gated", ("activation", "up"), top_k * inner),
            product("down", "gated", "router", inner, hidden, "sorted", "tokens"),
        )

    layer = Layer("moe", arrangements.pre_norm(hidden, RMS, attend, feed))
    balances = config.flag("output_router_logits", otherwise=False)
    # the class records the logits of attention's router twice
    balance = BalanceLoss("balance_loss", (), experts, top_k, each=3) if balances else None
    return _assembled(config, hidden, kv_heads * top_k, kv_heads, size, ((layers, layer),), RMS, balance=balance)


def grok(config: Config) -> Model:
    """Grok-1: four norms a layer, experts of a gated GELU; soft-capped scores, scaled table and logits (xai-org/grok-1,
    model.py and run.py)."""
    hidden, layers = common.width(config), common.depth(config)
    heads = config.integer("num_attention_heads", default=False)
    kv_heads = config.integer("num_key_value_heads", default=False)
    common.kv_heads_of(config, heads)
    head_dim = common.head_size(config, hidden, heads)
    config.ignore("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale")
    config.must_be("hidden_act", "gelu")
    experts, top_k = config.integer("num_experts"), config.integer("num_experts_per_tok")
    if top_k > experts:
        raise config.wrong("num_experts_per_tok", f"chooses {top_k} of {experts} experts")
    attend = Attention(Heads(hidden, heads, kv_heads, head_dim), rope=Rope(head_dim), scores=Scores(softcap=True))
    feed = partial(
        blocks.moe,
        width=hidden,
        inner=config.integer("intermediate_size"),
        routing=Routing(experts, top_k, upcast=True),
        function="gelu",
    )
    layer = Layer("moe", arrangements.sandwich_norm(hidden, RMS, attend, feed))
    return _assembled(config, hidden, heads, kv_heads, head_dim, ((layers, layer),), RMS, scale=True)


def _assembled(
    config: Config,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    runs: Parts,
    norm: NormStyle,
    scale: bool = False,
    balance: BalanceLoss | None = None,
) -> Model:
    rows = config.integer("vocab_size")
    none = common.headless(config)
    return common.decoder_only(
        config,
        common.embedding(rows, hidden, scale=scale),
        runs,
        common.head(hidden, rows, norm=norm, scale=scale, balance=balance, none=none),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=rows,
        max_length=config.optional_integer("max_position_embeddings"),
        tie=common.tied(config) and not none,
    )

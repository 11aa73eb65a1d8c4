"""BLOOM and MPT: GPT-2 with ALiBi instead of learned positions."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import Arrangement, pre_norm
from napkin.architectures.blocks import LAYER, LAYER_NO_BIAS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, Inner, always, constant, scored
from napkin.architectures.dimensions import dimensions
from napkin.architectures.families.decoders.gpt2 import DROPPED, SAME_HEADS
from napkin.architectures.reading import on
from napkin.architectures.record import Architecture, ConfigClass
from napkin.inputs.model import Config
from napkin.operations.implementations import FOLDED, HF_EAGER, NEVER, QKV, SCORES
from napkin.operations.model import Model
from napkin.record import replace


def bloom(config: Config) -> Model:
    """Return BLOOM: ALiBi, a norm right after the embedding."""
    config.must_be("n_inner", None)
    config.ignore(
        "masked_softmax_fusion", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"
    )
    return _BLOOM(config)


def _bloom_arrangement(config: Config) -> Arrangement:
    after = on(config, "apply_residual_connection_post_layernorm")
    return partial(pre_norm, dropout=DROPPED, residual_after_norm=after)


def mpt(config: Config) -> Model:
    """Return MPT: ALiBi, no biases, an inner width of 4h. Its class drops with attn_pdrop only, a whole number."""
    config.must_be("expansion_ratio", 4)
    config.must_be("no_bias", True)
    config.must_be("embedding_fraction", 1.0, 1)
    config.must_be("norm_type", "low_precision_layernorm")
    config.ignore("learned_pos_emb", "init_device", "logit_scale")
    clamp = False
    if config.has("attn_config"):
        inside = config.nested("attn_config", "mpt.attn_config")
        inside.must_be("alibi", True)
        inside.must_be("attn_type", "multihead_attention")
        inside.must_be("qk_ln", False)
        inside.must_be("prefix_lm", False)
        inside.ignore("model_type", "attn_uses_sequence_id", "alibi_bias_max")
        clamp = bool(inside.real("clip_qkv", required=False))
    return replace(_MPT, attention=lambda config, usual: usual.projected(clamped=clamp).scored(position="alibi"))(
        config
    )


_BLOOM = Decoder(
    norm=LAYER,
    arrangement=_bloom_arrangement,
    sizes=SAME_HEADS,
    bias=True,
    out_bias=True,
    fused=True,
    rotary=None,
    attention=scored(position="alibi"),
    inner=Inner("", times=4),
    function=constant("bloom_gelu"),
    gated=False,
    mlp_bias=True,
    embedding=Embedded(norm=LAYER),
    only=(("add_cross_attention", (False,)),),
)
_MPT = replace(
    _BLOOM,
    norm=LAYER_NO_BIAS,
    arrangement=always(pre_norm),
    sizes=partial(dimensions, kv_heads="", own_head_dim=False, max_length="max_seq_len"),
    bias=False,
    out_bias=False,
    function=constant("gelu"),
    mlp_bias=False,
    embedding=Embedded(),
)

BLOOM = Architecture(
    "bloom",
    bloom,
    config_class="BloomConfig",
    aliases={"n_embed": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"},
    implementation=replace(
        HF_EAGER, norms_last=False, closure=("mask", "alibi"), weights_to="loop", variables=(QKV, FOLDED, SCORES)
    ),
    defaults={
        "apply_residual_connection_post_layernorm": False, "num_attention_heads": 8, "tie_word_embeddings": True,
        "vocab_size": 250880,
    },
    modules={
        "embedding": "transformer.word_embeddings", "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
    },
)  # fmt: skip
MPT = Architecture(
    "mpt",
    mpt,
    config_class="MptConfig",
    aliases={"d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"},
    implementation=replace(HF_EAGER, mask="shared", drops=NEVER, norms_last=False, weights_to="loop"),
    defaults={
        "embedding_fraction": 1.0, "expansion_ratio": 4, "learned_pos_emb": True, "max_seq_len": 2048,
        "no_bias": True, "norm_type": "low_precision_layernorm", "num_attention_heads": 16,
        "tie_word_embeddings": True, "vocab_size": 50368,
    },
    blocks=(
        ConfigClass(
            "mpt.attn_config",
            "MptAttentionConfig",
            {
                "alibi": True, "attn_type": "multihead_attention", "attn_uses_sequence_id": False, "prefix_lm": False,
                "qk_ln": False,
            },
        ),
    ),
    modules={
        "embedding": "transformer.wte", "qkv": "attn.Wqkv", "o": "attn.out_proj", "up": "ffn.up_proj",
        "down": "ffn.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (BLOOM, MPT)

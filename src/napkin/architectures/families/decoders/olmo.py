"""OLMo 1 to 3, OLMoE and FlexOlmo."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import output_norm
from napkin.architectures.blocks import LAYER_BARE, RMS, RMS_FP32
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, always, clamped, constant
from napkin.architectures.dimensions import dimensions
from napkin.architectures.layer_plans import every
from napkin.architectures.mixture import Mixture
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROTARY, HF
from napkin.operations.model import Model
from napkin.record import replace

_EXPERTS = Mixture("num_experts", inner="intermediate_size", normalize="norm_topk_prob", balances=True)

OLMO = Architecture(
    "olmo",
    Decoder(norm=LAYER_BARE, bias="attention_bias", out_bias="attention_bias", attention=clamped("clip_qkv")),
    config_class="OlmoConfig",
    implementation=FP32_ROTARY,
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 50304,
    },
)  # fmt: skip
_ABSENT = (
    *("alibi", "attention_layer_norm", "embedding_layer_norm", "include_bias", "layer_norm_with_affine"),
    *("multi_query_attention", "norm_after", "scale_logits"),
)
"""What the models that its authors published do not have."""
_OWN_CODE = Decoder(
    sizes=partial(dimensions, own_head_dim=False),
    norm=LAYER_BARE,
    attention=clamped("clip_qkv"),
    fused=True,
    function=constant("silu"),
    feed_forward=lambda config, usual: partial(usual, fused=True),
    only=(
        *((field, (False,)) for field in _ABSENT),
        ("activation_type", ("swiglu",)),
        ("block_type", ("sequential",)),
        ("layer_norm_type", ("default",)),
        ("rope", (True,)),
    ),
    ignored=(
        *("alibi_bias_max", "attention_dropout", "attention_layer_norm_with_affine", "bias_for_layer_norm", "init_fn"),
        *("block_group_size", "emb_init_std", "embedding_dropout", "flash_attention", "init_cutoff_factor"),
        *("init_device", "init_std", "precision", "residual_dropout", "rope_full_precision", "rope_theta"),
        "scale_emb_init",
    ),
)


def hf_olmo(config: Config) -> Model:
    """Return OLMo 1 as its own code names its fields (olmo/config.py and olmo/model.py of github.com/allenai/OLMo): the
    tables have `embedding_size` rows, and one matrix as wide as `mlp_hidden_size` makes a gate and what it
    multiplies."""
    hidden = config.integer("hidden_size", default=False)
    both = config.optional_integer("mlp_hidden_size") or config.integer("mlp_ratio") * hidden
    config.restate("intermediate_size", both // 2)
    config.restate("vocab_size", config.optional_integer("embedding_size") or config.integer("vocab_size"))
    config.ignore("mlp_ratio")
    return _OWN_CODE(config)


HF_OLMO = Architecture(
    "hf_olmo",
    hf_olmo,
    implementation=FP32_ROTARY,
    aliases={
        "d_model": "hidden_size", "max_sequence_length": "max_position_embeddings", "n_heads": "num_attention_heads",
        "n_kv_heads": "num_key_value_heads", "n_layers": "num_hidden_layers", "weight_tying": "tie_word_embeddings",
    },
    defaults={
        "activation_type": "swiglu", "embedding_size": 50304, "mlp_ratio": 4, "num_attention_heads": 12,
        "num_key_value_heads": None, "tie_word_embeddings": True, "vocab_size": 50257,
    },
    modules={
        "qkv": "att_proj", "o": "attn_out", "gate_up": "ff_proj", "down": "ff_out",
        "embedding": "model.transformer.wte", "lm_head": "model.transformer.ff_out",
    },
)  # fmt: skip
OLMO2 = Architecture(
    "olmo2",
    Decoder(
        norm=RMS_FP32,
        arrangement=always(output_norm),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS_FP32, over="all"),
    ),
    config_class="Olmo2Config",
    implementation=replace(FP32_ROTARY, norms_inline=True),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 50304,
    },
)  # fmt: skip
OLMO3 = like(
    OLMO2,
    "olmo3",
    windows=every(4),
    config_class="Olmo3Config",
    implementation=replace(FP32_ROTARY, by_kind=True, norms_inline=True),
    defaults={"layer_types": None, "sliding_window": 4096},
)  # fmt: skip
OLMOE = Architecture(
    "olmoe",
    Decoder(
        sizes=partial(dimensions, own_head_dim=False),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS, over="all"),
        attention=clamped("clip_qkv"),
        experts=_EXPERTS,
    ),
    config_class="OlmoeConfig",
    aliases={"num_local_experts": "num_experts"},
    implementation=replace(HF, norms_inline=True),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 2048, "max_position_embeddings": 4096,
        "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 50304,
    },
)  # fmt: skip
FLEX_OLMO = like(
    OLMO2,
    "flex_olmo",
    experts=_EXPERTS,
    config_class="FlexOlmoConfig",
    aliases={"num_local_experts": "num_experts"},
    defaults={"max_position_embeddings": 4096, "num_experts": 7, "num_experts_per_tok": 5, "vocab_size": 100352},
)  # fmt: skip

ARCHITECTURES = (OLMO, HF_OLMO, OLMO2, OLMO3, OLMOE, FLEX_OLMO)

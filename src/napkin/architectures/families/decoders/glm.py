"""GLM-4 and its relatives without latent attention."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.blocks import RMS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, RotaryPositions, always
from napkin.architectures.dimensions import dimensions
from napkin.architectures.mixture import SIGMOID
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROUTER, PARTIAL_ROTARY
from napkin.operations.model import Model
from napkin.record import replace


def chatglm(config: Config) -> Model:
    """Return ChatGLM2, ChatGLM3 or the first GLM-4, whose code comes with their weights (modeling_chatglm.py).
    `architectures` names the network below the head, with which all of them are published."""
    if config.has("position_encoding_2d"):
        raise config.refuse("position_encoding_2d", "is ChatGLM-6B's of 2023, which napkin does not know")
    config.fields = {name: value for name, value in config.fields.items() if name != "architectures"}
    return _CHATGLM(config)


_CHATGLM = Decoder(
    sizes=partial(dimensions, max_length="seq_length"),
    bias="attention_bias",
    fused=True,
    rotary=RotaryPositions("interleaved", part=0.5),
    feed_forward=lambda config, usual: partial(usual, fused=True),
    only=(
        ("multi_query_attention", (True,)),
        ("add_bias_linear", (False,)),
        ("rmsnorm", (True,)),
        ("post_layer_norm", (True,)),
        ("apply_residual_connection_post_layernorm", (False,)),
        ("fp32_residual_connection", (False,)),
        ("pre_seq_len", ()),
        ("quantization_bit", (0, None)),
        ("rotary_percent", (0.5,)),
    ),
    ignored=(
        "apply_query_key_layer_scaling",
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "interleaved_qkv",
        "original_rope",
        "prefix_projection",
        "rope_ratio",
    ),
)

GLM = Architecture(
    "glm",
    Decoder(
        bias="attention_bias",
        rotary=RotaryPositions("interleaved", part=0.5),
        feed_forward=lambda config, usual: partial(usual, fused=True),
    ),
    config_class="GlmConfig",
    implementation=replace(PARTIAL_ROTARY, rotary="layer"),
    defaults={
        "attention_bias": True, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 13696,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_key_value_heads": 2,
        "tie_word_embeddings": False, "vocab_size": 151552,
    },
)  # fmt: skip
CHATGLM = Architecture(
    "chatglm",
    chatglm,
    implementation=GLM.implementation,
    aliases={
        "add_qkv_bias": "attention_bias", "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim",
        "multi_query_group_num": "num_key_value_heads", "num_layers": "num_hidden_layers",
        "padded_vocab_size": "vocab_size",
    },
    defaults={"hidden_act": "silu", "tie_word_embeddings": False},
    modules={
        "embedding": "transformer.embedding.word_embeddings", "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense", "gate_up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
        "lm_head": "transformer.output_layer",
    },
)  # fmt: skip
GLM4 = like(
    GLM,
    "glm4",
    arrangement=always(sandwich_norm),
    config_class="Glm4Config",
)
GLM4V = like(
    GLM4,
    "glm4v_text",
    bias=True,
    sizes=partial(dimensions, own_head_dim=False),
    config_class="Glm4vTextConfig",
    implementation=replace(PARTIAL_ROTARY, positions="each"),
    wrappers=(
        Wrapper("glm46v"),
        Wrapper("glmga"),
        Wrapper("glm4v", config_class="Glm4vConfig"),
    ),
    defaults={
        "attention_bias": REQUIRED, "head_dim": REQUIRED, "max_position_embeddings": 32768,
        "tie_word_embeddings": None,
    },
    modules={
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip
GLM_OCR = like(
    GLM4V,
    "glm_ocr_text",
    bias=False,
    sizes=dimensions,
    rotary=RotaryPositions("interleaved"),
    config_class="GlmOcrTextConfig",
    wrappers=(Wrapper("glm_ocr", config_class="GlmOcrConfig"),),
    defaults={
        "head_dim": None, "intermediate_size": 4096, "max_position_embeddings": 131072, "num_attention_heads": 16,
        "num_key_value_heads": 8, "vocab_size": 59392,
    },
)  # fmt: skip
GLM4_MOE = Architecture(
    "glm4_moe",
    Decoder(
        bias="attention_bias",
        sizes=partial(dimensions, floor=True),
        rotary=RotaryPositions(part=0.5),
        qk_norm=NormedHeads(RMS, switch="use_qk_norm"),
        experts=SIGMOID,
        predicts=True,
    ),
    config_class="Glm4MoeConfig",
    aliases={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    implementation=replace(FP32_ROUTER, joins=True),
    defaults={
        "norm_topk_prob": True, "attention_bias": False, "first_k_dense_replace": 1, "hidden_act": "silu",
        "intermediate_size": 10944, "max_position_embeddings": 131072, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_attention_heads": 96, "num_experts_per_tok": 8,
        "num_key_value_heads": 8, "tie_word_embeddings": False, "use_qk_norm": False, "vocab_size": 151552,
    },
)  # fmt: skip
# GLM-4.5's class, and names of fields of the code that Sarvam published
SARVAM_MOE = like(
    GLM4_MOE,
    "sarvam_moe",
    rotary=RotaryPositions(),
    config_class="SarvamMoEConfig",
    aliases={
        **GLM4_MOE.aliases, "num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts",
        "use_qkv_bias": "attention_bias",
    },
    defaults={
        "head_dim": 64, "intermediate_size": 8192, "moe_intermediate_size": 1024, "num_attention_heads": 64,
        "num_experts_per_tok": 6, "num_key_value_heads": 4, "use_qk_norm": True, "vocab_size": 262144,
    },
)  # fmt: skip
GLM4V_MOE = Architecture(
    "glm4v_moe_text",
    Decoder(
        sizes=partial(dimensions, floor=True),
        bias="attention_bias",
        rotary=RotaryPositions(part=0.5),
        experts=replace(SIGMOID, balances=True),
    ),
    config_class="Glm4vMoeTextConfig",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(FP32_ROUTER, joins=True, positions="each", fp32_logits=True),
    wrappers=(Wrapper("glm4v_moe", config_class="Glm4vMoeConfig"),),
    defaults={
        "attention_bias": True, "first_k_dense_replace": 1, "hidden_act": "silu", "intermediate_size": 10944,
        "max_position_embeddings": 65536, "moe_intermediate_size": 1408, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_attention_heads": 96, "num_experts_per_tok": 8, "num_key_value_heads": 8,
        "tie_word_embeddings": False, "vocab_size": 151424,
    },
    modules={
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip

ARCHITECTURES = (GLM, CHATGLM, GLM4, GLM4V, GLM_OCR, GLM4_MOE, SARVAM_MOE, GLM4V_MOE)

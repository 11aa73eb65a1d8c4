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
from napkin.operations.implementations import PARTIAL_ROTARY, SIGMOID_ROUTER
from napkin.record import replace

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
    implementation=replace(SIGMOID_ROUTER, joins=True),
    defaults={
        "norm_topk_prob": True, "attention_bias": False, "first_k_dense_replace": 1, "hidden_act": "silu",
        "intermediate_size": 10944, "max_position_embeddings": 131072, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_attention_heads": 96, "num_experts_per_tok": 8,
        "num_key_value_heads": 8, "tie_word_embeddings": False, "use_qk_norm": False, "vocab_size": 151552,
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
    implementation=replace(SIGMOID_ROUTER, joins=True, positions="each", fp32_logits=True),
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

ARCHITECTURES = (GLM, GLM4, GLM4V, GLM_OCR, GLM4_MOE, GLM4V_MOE)

"""DeepSeek-V1 to V3.2 and what has their multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

from __future__ import annotations

from functools import partial

from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import Routing
from napkin.architectures.decoder import Decoder
from napkin.architectures.dimensions import dimensions
from napkin.architectures.latent_decoder import LatentDecoder, each_indexed
from napkin.architectures.layer_plans import after_first, all_sparse, by_type, listed_or
from napkin.architectures.mixture import Mixture, counted
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER, EFFICIENT, FP32_ROUTER, HF, ROUTED, SIGMOID_ROUTER
from napkin.operations.model import Model
from napkin.record import replace

DEEPSEEK = Architecture(
    "deepseek",
    Decoder(
        bias="attention_bias",
        out_bias="attention_bias",
        experts=Mixture(
            "n_routed_experts", where=after_first, shared=counted("n_shared_experts"), normalize="norm_topk_prob"
        ),
    ),
)


def _by_groups(config: Config, routing: Routing) -> Routing:
    """Return the router, which masks the scores of groups that are not chosen where the file limits them."""
    return replace(routing, masked=config.raw("topk_method", required=False) == "group_limited_greedy")


OCR_EXPERTS = Mixture(
    "n_routed_experts",
    where=listed_or(all_sparse),
    shared=counted("n_shared_experts"),
    upcast=True,
    routing=_by_groups,
)
DEEPSEEK_OCR2 = like(
    DEEPSEEK,
    "deepseek_ocr2_text",
    sizes=partial(dimensions, own_head_dim=False),
    mlp_bias="mlp_bias",
    experts=OCR_EXPERTS,
    ignored=("topk_method", "n_group", "topk_group"),  # which experts, not how many
    config_class="DeepseekOcr2TextConfig",
    aliases={"num_experts": "n_routed_experts"},
    wrappers=(Wrapper("deepseek_ocr2"),),
    implementation=replace(HF, router="scores", fp32_router=True, fp32_weights=FP32_ROUTER.fp32_weights),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "mlp_bias": False, "mlp_layer_types": None, "moe_intermediate_size": 1407, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_attention_heads": 32, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 102400,
    },
)  # fmt: skip
UNLIMITED_OCR = like(
    DEEPSEEK_OCR2,
    "unlimited_ocr_text",
    experts=replace(OCR_EXPERTS, where=by_type),
    config_class="UnlimitedOcrTextConfig",
    wrappers=(Wrapper("unlimited_ocr"),),
    ignored=("topk_method", "n_group", "topk_group", "sliding_window", "layer_types"),
    defaults={
        "intermediate_size": 6848, "max_position_embeddings": 32768, "moe_intermediate_size": 896,
        "num_attention_heads": 10, "num_key_value_heads": 10, "num_experts_per_tok": 6, "vocab_size": 129280,
    },
)  # fmt: skip
_LATENT = LatentDecoder(Rope(0, "complex", upcast=True), softmax=True, rank_stated=True)
_UNCOMPRESSED = Decoder(
    sizes=partial(dimensions, own_head_dim=False),
    experts=Mixture("n_routed_experts", where=after_first, shared=counted("n_shared_experts")),
    ignored=(
        *("kv_lora_rank", "lm_head", "n_group", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "rm_head"),
        *("topk_group", "topk_method", "v_head_dim"),
    ),
)


def deepseek_v2(config: Config) -> Model:
    """Return DeepSeek-V2's network, or the one with Llama's attention that its own code (modeling_deepseekv2.py, which
    comes with DeepSeek-VL2-tiny and DeepSeek-OCR) builds where `use_mla` is false."""
    if config.flag("use_mla", otherwise=True):
        return _LATENT(config)
    return _UNCOMPRESSED(config)


DEEPSEEK_V2 = Architecture(
    "deepseek_v2",
    deepseek_v2,
    config_class="DeepseekV2Config",
    wrappers=(
        Wrapper("deepseek_vl_v2", within=("language_config", "deepseek_v2"), ignored=("candidate_resolutions",
                "global_view_pos", "tile_tag", "tie_word_embeddings")),
    ),
    aliases={"num_experts": "n_routed_experts"},
    implementation=replace(
        HF, router="scores", fp32_router=True, fp32_weights=FP32_ROUTER.fp32_weights,
        registers_first=(ROUTED,),
    ),
    defaults={
        "attention_bias": False, "first_k_dense_replace": 0, "head_dim": None, "hidden_act": "silu",
        "intermediate_size": 11008, "kv_lora_rank": 512, "max_position_embeddings": 2048, "mlp_bias": False,
        "moe_intermediate_size": 1407, "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 32,
        "num_experts_per_tok": None, "num_key_value_heads": None, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "tie_word_embeddings": False, "topk_method": "greedy", "v_head_dim": 128,
        "vocab_size": 102400,
    },
)  # fmt: skip
DEEPSEEK_V3 = Architecture(
    "deepseek_v3",
    LatentDecoder(),
    config_class="DeepseekV3Config",
    aliases={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    implementation=FP32_ROUTER,
    wrappers=(
        Wrapper("kimi_k25", implementation=replace(FP32_ROUTER, token_ids="copied")),
        Wrapper("kimi_vl"),
    ),
    defaults={
        "norm_topk_prob": True, "n_group": 8, "topk_group": 4, "attention_bias": False, "first_k_dense_replace": 3,
        "hidden_act": "silu", "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 4096,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
        "num_experts_per_tok": 8, "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "tie_word_embeddings": False, "v_head_dim": 128, "vocab_size": 129280,
    },
)  # fmt: skip


def _sarvam_mla(config: Config) -> Model:
    """Return DeepSeek-V3's network, of which earlier files state a derived size."""
    config.ignore("q_head_dim")
    return DEEPSEEK_V3.build(config)


# DeepSeek-V3's class, and names of fields of the code that Sarvam published
SARVAM_MLA = like(
    DEEPSEEK_V3,
    "sarvam_mla",
    build=_sarvam_mla,
    config_class="SarvamMLAConfig",
    aliases={
        **DEEPSEEK_V3.aliases, "num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts",
    },
    defaults={
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "intermediate_size": 16384,
        "n_routed_experts": 128, "num_attention_heads": 64, "num_key_value_heads": None, "q_lora_rank": None,
        "vocab_size": 262144,
    },
)  # fmt: skip
DEEPSEEK_V32 = like(
    DEEPSEEK_V3,
    "deepseek_v32",
    where=by_type,
    indexer=each_indexed,
    config_class="DeepseekV32Config",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(
        FP32_ROUTER, kernel_mask="always", kernels=(EFFICIENT, EAGER), fp16_excepts=("indexer/head_weights",)
    ),
    defaults={
        "head_dim": 64, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "layer_types": None,
        "max_position_embeddings": 163840, "mlp_bias": False, "mlp_layer_types": None, "n_group": REQUIRED,
        "norm_topk_prob": REQUIRED, "topk_group": REQUIRED,
    },
)  # fmt: skip
KIMI_K2 = like(
    DEEPSEEK_V3,
    "kimi_k2",
    aliases={},
    defaults={
        "attention_bias": REQUIRED, "first_k_dense_replace": REQUIRED, "hidden_act": REQUIRED,
        "intermediate_size": REQUIRED, "kv_lora_rank": REQUIRED, "max_position_embeddings": REQUIRED,
        "moe_intermediate_size": REQUIRED, "n_group": REQUIRED, "n_routed_experts": REQUIRED,
        "n_shared_experts": REQUIRED, "norm_topk_prob": REQUIRED, "num_attention_heads": REQUIRED,
        "num_experts_per_tok": REQUIRED, "num_key_value_heads": REQUIRED, "q_lora_rank": REQUIRED,
        "qk_nope_head_dim": REQUIRED, "qk_rope_head_dim": REQUIRED, "tie_word_embeddings": REQUIRED,
        "topk_group": REQUIRED, "v_head_dim": REQUIRED, "vocab_size": REQUIRED,
    },
)  # fmt: skip
YOUTU = like(
    DEEPSEEK_V3,
    "youtu",
    where=None,
    config_class="YoutuConfig",
    aliases={},
    implementation=HF,
    defaults={
        "first_k_dense_replace": REQUIRED, "intermediate_size": 6144, "max_position_embeddings": 131072,
        "moe_intermediate_size": REQUIRED, "n_group": REQUIRED, "n_routed_experts": REQUIRED,
        "n_shared_experts": REQUIRED, "norm_topk_prob": REQUIRED, "num_attention_heads": 16,
        "num_experts_per_tok": REQUIRED, "num_key_value_heads": 16, "tie_word_embeddings": True,
        "topk_group": REQUIRED, "vocab_size": 128256,
    },
)  # fmt: skip
MINICPM3 = like(
    DEEPSEEK_V3,
    "minicpm3",
    rotary=Rope(0),
    where=None,
    scaled=True,
    config_class="MiniCPM3Config",
    aliases={},
    implementation=HF,
    defaults={
        "first_k_dense_replace": REQUIRED, "head_dim": None, "intermediate_size": 6400, "kv_lora_rank": 256,
        "max_position_embeddings": 32768, "mlp_bias": False, "moe_intermediate_size": REQUIRED,
        "n_group": REQUIRED, "n_routed_experts": REQUIRED, "n_shared_experts": REQUIRED,
        "norm_topk_prob": REQUIRED, "num_attention_heads": 40, "num_experts_per_tok": REQUIRED,
        "num_key_value_heads": 40, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
        "tie_word_embeddings": True, "topk_group": REQUIRED, "v_head_dim": None, "vocab_size": 73448,
    },
)  # fmt: skip
MISTRAL4 = like(
    DEEPSEEK_V3,
    "mistral4",
    softmax=True,
    native=True,
    config_class="Mistral4Config",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(SIGMOID_ROUTER, native_scores="raised", query_scale=True),
    defaults={
        "first_k_dense_replace": 0, "intermediate_size": 12288, "kv_lora_rank": 256,
        "max_position_embeddings": 1048576, "n_group": REQUIRED, "n_routed_experts": 128,
        "norm_topk_prob": REQUIRED, "num_attention_heads": 32, "num_experts_per_tok": 4, "num_key_value_heads": 32,
        "q_lora_rank": 1024, "qk_nope_head_dim": 64, "topk_group": REQUIRED, "vocab_size": 131072,
    },
    modules={
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip
GLM4_MOE_LITE = like(
    DEEPSEEK_V3,
    "glm4_moe_lite",
    where=by_type,
    config_class="Glm4MoeLiteConfig",
    aliases={"head_dim": "qk_rope_head_dim", "num_local_experts": "n_routed_experts"},
    defaults={
        "first_k_dense_replace": REQUIRED, "intermediate_size": 10240, "max_position_embeddings": 202752,
        "mlp_layer_types": None, "moe_intermediate_size": 1536, "n_group": REQUIRED, "n_routed_experts": 64,
        "num_attention_heads": 20, "num_experts_per_tok": 4, "num_key_value_heads": 20, "q_lora_rank": 768,
        "qk_nope_head_dim": 192, "topk_group": REQUIRED, "v_head_dim": 256, "vocab_size": 154880,
    },
)  # fmt: skip
GLM_MOE_DSA = like(
    DEEPSEEK_V32,
    "glm_moe_dsa",
    config_class="GlmMoeDsaConfig",
    defaults={
        "index_n_heads": 32, "indexer_types": None, "intermediate_size": 12288, "max_position_embeddings": 202752,
        "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
        "v_head_dim": 256, "vocab_size": 154880,
    },
)  # fmt: skip

ARCHITECTURES = (
    DEEPSEEK_OCR2,
    UNLIMITED_OCR,
    DEEPSEEK,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    SARVAM_MLA,
    DEEPSEEK_V32,
    KIMI_K2,
    YOUTU,
    MINICPM3,
    MISTRAL4,
    GLM4_MOE_LITE,
    GLM_MOE_DSA,
)

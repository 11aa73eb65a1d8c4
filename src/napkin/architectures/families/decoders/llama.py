"""Llama and models that are close to it."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import LAYER, RMS, RMS_BARE, RMS_FP32, Operations
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, Headed, NormedHeads, RotaryPositions, always
from napkin.architectures.dimensions import dimensions
from napkin.architectures.layer_plans import EVERYWHERE, all_but_each, but_each
from napkin.architectures.mixture import Feed, Mixture, counted
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, SIGMOID_ROUTER
from napkin.record import replace


def _bitnet_attention(config: Config, usual: Attention) -> Attention:
    """Normalize what the output projection reads (BitNet b1.58, arXiv:2402.17764)."""
    return replace(usual, out_norm=RMS)


def _bitnet_mlp(config: Config, usual: Feed) -> Feed:
    """Normalize what the last matmul reads."""
    inner = config.integer("intermediate_size")

    def feed(source: str) -> Operations:
        *first, down = usual(source)
        norm = RMS("gated_norm", first[-1].name, inner)
        return (*first, norm, replace(down, reads=(norm.name,)))

    return feed


OF_LLAVA = (
    *("freeze_mm_mlp_adapter", "freeze_mm_vision_resampler", "tune_mm_mlp_adapter", "tune_mm_vision_resampler"),
    *("unfreeze_mm_vision_tower", "use_mm_proj", "tokenizer_model_max_length", "tokenizer_padding_side"),
)
"""Fields of LLaVA's own files (llava/model/language_model/llava_llama.py and its neighbors) about images."""
LLAMA = Architecture(
    "llama",
    Decoder(bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    config_class="LlamaConfig",
    wrappers=(
        Wrapper(
            "glmasr",
            text={
                "vocab_size": 59264, "intermediate_size": 6144, "num_attention_heads": 16, "num_key_value_heads": 4,
                "max_position_embeddings": 8192,
            },
        ),
        Wrapper(
            "voxtral",
            text={
                "vocab_size": 131072, "intermediate_size": 8192, "num_key_value_heads": 8, "head_dim": 128,
                "max_position_embeddings": 131072,
            },
        ),
        Wrapper("deepseek_vl"),
        Wrapper("deepseek_vl_hybrid"),
        Wrapper("idefics3", path="model.text_model"),
        Wrapper("janus", ignored=("vq_config",), besides="image generator"),
        Wrapper("llava"),
        Wrapper("llava_llama", flat=True, ignored=OF_LLAVA),
        Wrapper("llava_next"),
        Wrapper("llava_next_video"),
        Wrapper("perception_lm"),
        Wrapper("smolvlm", path="model.text_model"),
        Wrapper("video_llava"),
        Wrapper("vipllava"),
    ),
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 11008,
        "max_position_embeddings": 2048, "mlp_bias": False, "num_attention_heads": 32, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 32000,
    },
)  # fmt: skip
# Llama's class, and names of fields of the code that LG published
EXAONE = like(
    LLAMA,
    "exaone",
    config_class="ExaoneConfig",
    aliases={"activation_function": "hidden_act", "num_layers": "num_hidden_layers"},
    defaults={
        "intermediate_size": 14336, "max_position_embeddings": 4096, "num_key_value_heads": 8, "vocab_size": 102400,
    },
)  # fmt: skip
ARCEE = like(
    LLAMA,
    "arcee",
    gated=False,
    config_class="ArceeConfig",
    defaults={"hidden_act": "relu2", "intermediate_size": 18432, "max_position_embeddings": 4096},
)  # fmt: skip
COSMOS3_EDGE = like(
    ARCEE,
    "cosmos3_edge_text",
    config_class="Cosmos3EdgeTextConfig",
    implementation=replace(HF, positions="each"),
    wrappers=(Wrapper("cosmos3_edge"),),
    modules={"up": "mlp.fc1", "down": "mlp.fc2"},
    defaults={
        "head_dim": 128, "intermediate_size": 9216, "max_position_embeddings": 131072, "num_attention_heads": 16,
        "num_key_value_heads": 8, "vocab_size": 131072,
    },
)  # fmt: skip
EMU3 = like(
    LLAMA,
    "emu3_text_model",
    config_class="Emu3TextConfig",
    wrappers=(Wrapper("emu3", ignored=("vq_config", "vocabulary_map")),),
    defaults={
        "intermediate_size": 14336, "max_position_embeddings": 9216, "num_key_value_heads": 8, "vocab_size": 184622,
    },
)  # fmt: skip
CWM = like(
    LLAMA,
    "cwm",
    bias=False,
    out_bias=False,
    windows=all_but_each(4),
    config_class="CwmConfig",
    defaults={
        "attention_bias": REQUIRED, "head_dim": 128, "intermediate_size": 21504, "layer_types": None,
        "max_position_embeddings": 131072, "num_attention_heads": 48, "num_key_value_heads": 8,
        "sliding_window": 8192, "vocab_size": 128256,
    },
)  # fmt: skip
INTERNLM2 = Architecture(
    "internlm2",
    Decoder(bias="bias", out_bias="bias", fused=True),
    modules={
        "qkv": "attention.wqkv", "o": "attention.wo", "gate": "feed_forward.w1", "up": "feed_forward.w3",
        "down": "feed_forward.w2", "embedding": "model.tok_embeddings", "lm_head": "output",
    },
)  # fmt: skip
INTERNLM3 = like(
    LLAMA,
    "internlm3",
    config_class="InternLM3Config",
    aliases={"bias": "mlp_bias", "qkv_bias": "attention_bias"},
    defaults={
        "head_dim": 128, "intermediate_size": 10240, "max_position_embeddings": 32768, "num_key_value_heads": 2,
        "vocab_size": 128512,
    },
)  # fmt: skip
IQUESTCODER = like(
    LLAMA,
    "iquestcoder",
    only=(("clip_qkv", ()), ("use_sliding_window", (False,))),
    config_class="IQuestCoderConfig",
    defaults={
        "head_dim": 128, "intermediate_size": 27648, "max_position_embeddings": 131072, "num_attention_heads": 40,
        "num_key_value_heads": 8, "vocab_size": 76800,
    },
)  # fmt: skip
JAIS2 = like(
    LLAMA,
    "jais2",
    norm=LAYER,
    gated=False,
    config_class="Jais2Config",
    defaults={
        "attention_bias": True, "hidden_act": "relu2", "intermediate_size": 26624, "max_position_embeddings": 8192,
        "mlp_bias": True, "num_attention_heads": 26, "vocab_size": 150272,
    },
)  # fmt: skip
SEED_OSS = like(
    LLAMA,
    "seed_oss",
    out_bias="attention_out_bias",
    arrangement=always(partial(pre_norm, dropout=(True, True))),
    config_class="SeedOssConfig",
    defaults={
        "attention_bias": True, "attention_out_bias": False, "head_dim": 128, "intermediate_size": 27648,
        "max_position_embeddings": 524288, "num_attention_heads": 80, "num_key_value_heads": 8,
        "vocab_size": 155136,
    },
)  # fmt: skip
SMOLLM3 = like(
    LLAMA,
    "smollm3",
    rotates=but_each("no_rope_layer_interval"),
    windows=replace(EVERYWHERE, switch="use_sliding_window"),
    config_class="SmolLM3Config",
    defaults={
        "head_dim": REQUIRED, "layer_types": None, "max_position_embeddings": 32768, "num_attention_heads": 16,
        "num_key_value_heads": 4, "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False,
        "vocab_size": 128256,
    },
)  # fmt: skip
BITNET = like(
    LLAMA,
    "bitnet",
    sizes=partial(dimensions, square=True),
    mlp_bias=False,
    attention=_bitnet_attention,
    feed_forward=_bitnet_mlp,
    config_class="BitNetConfig",
    defaults={
        "head_dim": REQUIRED, "hidden_act": "relu2", "intermediate_size": 6912, "mlp_bias": REQUIRED,
        "num_attention_heads": 20, "num_key_value_heads": 5, "vocab_size": 128256,
    },
)  # fmt: skip
ARIA = like(
    LLAMA,
    "aria_text",
    experts=Mixture(
        "moe_num_experts",
        "moe_topk",
        inner="intermediate_size",
        shared=counted("moe_num_shared_experts", least=1),
        score="softmax_top_k",
        function="silu",
    ),
    config_class="AriaTextConfig",
    implementation=replace(SIGMOID_ROUTER, native_scores="raised", looped_in_4="joined"),
    wrappers=(Wrapper("aria", config_class="AriaConfig"),),
    defaults={"intermediate_size": 4096, "moe_num_experts": 8, "moe_num_shared_experts": 2, "moe_topk": 2},
    modules={
        "router": "mlp.router",
    },
)  # fmt: skip
HELIUM = Architecture(
    "helium",
    Decoder(
        norm=RMS_FP32,
        sizes=partial(dimensions, square=True),
        bias="attention_bias",
        mlp_bias="mlp_bias",
        rotary=RotaryPositions("interleaved"),
    ),
    config_class="HeliumConfig",
    implementation=replace(HF, rotary="layer", fp32_norm_weight=True),
    defaults={
        "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 7040,
        "max_position_embeddings": 4096, "mlp_bias": False, "num_attention_heads": 20, "num_key_value_heads": 20,
        "tie_word_embeddings": False, "vocab_size": 48000,
    },
)  # fmt: skip
NANOCHAT = Architecture(
    "nanochat",
    Decoder(
        norm=RMS_BARE,
        bias="attention_bias",
        out_bias="attention_bias",
        gated=False,
        qk_norm=NormedHeads(RMS_BARE, after_rope=True),
        embedding=Embedded(norm=RMS_BARE),
        head=Headed(softcap="final_logit_softcapping"),
    ),
    config_class="NanoChatConfig",
    defaults={
        "attention_bias": False, "hidden_act": "relu2", "intermediate_size": 8192, "max_position_embeddings": 2048,
        "num_attention_heads": 6, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 50304,
    },
    modules={
        "up": "mlp.fc1", "down": "mlp.fc2",
    },
)  # fmt: skip

ARCHITECTURES = (
    COSMOS3_EDGE,
    EMU3,
    LLAMA,
    ARCEE,
    EXAONE,
    CWM,
    INTERNLM2,
    INTERNLM3,
    IQUESTCODER,
    JAIS2,
    SEED_OSS,
    SMOLLM3,
    BITNET,
    ARIA,
    HELIUM,
    NANOCHAT,
)

"""Models whose code comes with their weights: files as their publishers write them, and the totals of their weights."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import NapkinError
from tests.conftest import model_of

LING: dict[str, Any] = {
    "architectures": ["BailingMoeV2ForCausalLM"], "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu",
    "auto_map": {"AutoConfig": "configuration_bailing_moe_v2.BailingMoeV2Config"}, "hidden_size": 4096,
    "intermediate_size": 9216, "max_position_embeddings": 32768, "model_type": "bailing_moe",
    "moe_intermediate_size": 1024, "moe_router_enable_expert_bias": True, "n_group": 8, "norm_topk_prob": True,
    "num_attention_heads": 32, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 32,
    "num_key_value_heads": 4, "num_nextn_predict_layers": 0, "num_shared_experts": 1, "output_dropout": 0.0,
    "partial_rotary_factor": 0.5, "rope_scaling": None, "router_dtype": "fp32", "routed_scaling_factor": 2.5,
    "score_function": "sigmoid", "tie_word_embeddings": False, "topk_group": 4, "use_bias": False,
    "use_qk_norm": True, "use_qkv_bias": False, "use_rmsnorm": True, "vocab_size": 157184,
}  # fmt: skip
LLADA: dict[str, Any] = {
    "activation_type": "silu", "alibi": False, "attention_layer_norm": False, "auto_map": {"AutoConfig": "x.Y"},
    "architectures": ["LLaDAModelLM"], "block_type": "llama", "d_model": 4096, "embedding_size": 126464,
    "include_bias": False, "layer_norm_type": "rms", "max_sequence_length": 4096, "mlp_hidden_size": 12288,
    "mlp_ratio": 4, "model_type": "llada", "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "rope": True,
    "vocab_size": 126464, "weight_tying": False,
}  # fmt: skip
DREAM: dict[str, Any] = {
    "architectures": ["DreamModel"], "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
    "max_position_embeddings": 131072, "model_type": "Dream", "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "tie_word_embeddings": False, "use_mrope": False, "vocab_size": 152064,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def total(fields: dict[str, Any]) -> int:
    return int(params(model_of(fields))["params/total"].value)


@pytest.mark.parametrize(
    ("fields", "weights"),
    [
        (LLADA, 8_015_581_184),  # safetensors total of GSAI-ML/LLaDA-8B-Instruct
        (DREAM, 7_615_616_512),  # of Dream-org/Dream-v0-Instruct-7B, which began as Qwen2.5-7B
        (  # of openbmb/MiniCPM-2B-sft-bf16, whose file does not state the tie that its class has
            {
                "architectures": ["MiniCPMForCausalLM"], "dim_model_base": 256, "hidden_act": "silu",
                "hidden_size": 2304, "intermediate_size": 5760, "max_position_embeddings": 4096,
                "model_type": "minicpm", "num_attention_heads": 36, "num_hidden_layers": 40,
                "num_key_value_heads": 36, "scale_depth": 1.4, "scale_emb": 12, "vocab_size": 122753,
            },
            2_724_880_896,
        ),
    ],
)  # fmt: skip
def test_published_totals(fields: dict[str, Any], weights: int) -> None:
    assert total(fields) == weights


def test_ling_flash_by_hand() -> None:
    """102.890B with the routers' biases, as its safetensors list; scores and biases are of 31 layers."""
    h, inner, heads, kv, size = 4096, 1024, 32, 4, 128
    attention = h * (heads + 2 * kv) * size + heads * size * h + 2 * size + 2 * h
    sparse = 256 * 3 * h * inner + 3 * h * inner + 256 * h
    count = 2 * 157184 * h + h + 32 * attention + 3 * h * 9216 + 31 * sparse
    assert total(LING) == count
    assert round((count + 31 * 256) / 1e6) == 102_890


def test_ling_1_scores_experts_by_a_softmax() -> None:
    first = {**LING, "score_function": "softmax", "moe_router_enable_expert_bias": False}
    assert total(first) == total(LING)
    with pytest.raises(NapkinError, match="score_function") as caught:
        model_of({**LING, "score_function": "cosine"})
    assert caught.value.status == 3


@pytest.mark.parametrize(
    ("model_type", "more"), [("xverse", 0), ("aquila", 0), ("skywork", 0), ("orion", 5 * 64), ("zhinao", 2 * 3 * 64)]
)
def test_relatives_of_llama(model_type: str, more: int) -> None:
    """Orion's norms have a bias each; 360Zhinao's queries, keys and values have one."""
    assert total({**SMALL, "model_type": model_type}) == total({**SMALL, "model_type": "llama"}) + more


def test_tokens_of_masked_models_see_all_others() -> None:
    for fields in (LLADA, DREAM):
        core = next(one for op in model_of(fields).stacks[0].layers[0].operations if (one := op.attends()) is not None)
        assert not core.causal


INTERN_VIT: dict[str, Any] = {
    "hidden_act": "gelu", "hidden_size": 1024, "image_size": 448, "intermediate_size": 4096, "num_channels": 3,
    "model_type": "intern_vit_6b", "norm_type": "layer_norm", "num_attention_heads": 16, "num_hidden_layers": 24,
    "patch_size": 14, "qk_normalization": False, "qkv_bias": True, "use_flash_attn": True,
}  # fmt: skip
INTERNVL_CHAT: dict[str, Any] = {
    "architectures": ["InternVLChatModel"], "auto_map": {"AutoConfig": "x.Y"}, "downsample_ratio": 0.5,
    "dynamic_image_size": True, "force_image_size": 448, "hidden_size": 4096, "max_dynamic_patch": 12,
    "model_type": "internvl_chat", "pad2square": False, "ps_version": "v2", "select_layer": -1,
    "template": "internvl2_5", "use_thumbnail": True, "vision_config": INTERN_VIT,
    "llm_config": {
        "architectures": ["InternLM2ForCausalLM"], "bias": False, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "internlm2",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": False,
        "vocab_size": 92553,
    },
}  # fmt: skip
MIMO: dict[str, Any] = {
    "architectures": ["MiMoForCausalLM"], "attention_bias": True, "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 11008, "max_position_embeddings": 32768, "model_type": "mimo", "num_attention_heads": 32,
    "num_hidden_layers": 36, "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    "use_mrope": False, "use_sliding_window": False, "vocab_size": 151680,
}  # fmt: skip


def test_internvl_as_its_publisher_writes_it() -> None:
    """The safetensors total of OpenGVLab/InternVL2_5-8B."""
    assert params_of(model_of(INTERNVL_CHAT))[1].value == 8_075_365_376


def test_mimo_as_its_publisher_writes_it() -> None:
    """The safetensors total of XiaomiMiMo/MiMo-7B-Base without its prediction module."""
    assert total(MIMO) == 7_622_619_136


ALONE = "language model only"


@pytest.mark.parametrize(
    ("whole", "missing"),
    [
        (
            {
                "model_type": "llava_llama",
                "mm_hidden_size": 1024,
                "mm_vision_tower": "clip",
                "tune_mm_mlp_adapter": False,
            },
            ALONE,
        ),
        ({"model_type": "phi3_v", "img_processor": {"name": "clip_vision_model"}, "embd_layer": {}}, ""),
        (
            {"model_type": "phi4mm", "vision_lora": {"r": 256}, "audio_processor": {}, "embd_layer": {}},
            "language model only",
        ),
    ],
)
def test_fields_of_text_next_to_those_of_images(whole: dict[str, Any], missing: str) -> None:
    """Of Phi-3-vision the tower is counted too."""
    found = model_of({**SMALL, "num_key_value_heads": 4, **whole})
    assert params(found)["params/total"].value == total({**SMALL, "model_type": "llama"})
    assert found.missing == missing


def test_a_language_model_under_another_key_is_said_to_be_alone() -> None:
    """DeepSeek-VL2's is DeepSeek-V2's class."""
    held = {"model_type": "deepseek_v2", **dict.fromkeys(("hidden_size", "num_attention_heads"), 64)}
    held |= {"num_hidden_layers": 2, "num_experts_per_tok": 6}
    found = model_of({"model_type": "deepseek_vl_v2", "language_config": held, "tile_tag": "2D"})
    assert params(found)["params/total"].value == total(held)
    assert found.missing == "language model only"

"""Models whose code comes with their weights: files as their publishers write them, and the totals of their weights."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
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

"""Weights that loading a checkpoint in 16 bits leaves in fp32, and what goes with them."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.counting.params import params
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import model


def test_weights_that_loading_keeps_in_fp32_count_so() -> None:
    """transformers 5.23 keeps T5's `wo` in fp32 if it loads a model in fp16, in bf16 not; the router of a mixture of
    ERNIE 4.5 in both. Each brings 2 bytes more of parameter and gradient, and 4 of Adam's states."""
    t5: dict[str, Any] = {
        "model_type": "t5",
        "d_model": 32,
        "d_ff": 48,
        "d_kv": 8,
        "num_heads": 4,
        "num_layers": 3,
        "vocab_size": 100,
        "feed_forward_proj": "relu",
    }
    ernie: dict[str, Any] = {
        "model_type": "ernie4_5_moe",
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 2,
        "moe_layer_start_index": 0,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "moe_num_experts": 6,
        "moe_k": 2,
        "vocab_size": 100,
        "max_position_embeddings": 64,
    }
    for fields, in_fp16, in_bf16 in ((t5, 2 * 3 * 32 * 48, 0), (ernie, 2 * 32 * 6, 2 * 32 * 6)):
        of = model(**fields)
        count = params(of)["params/total"].value
        for kind, wide in (("fp16", in_fp16), ("bf16", in_bf16)):
            pure = replace(POLICIES["bf16-pure"], param=kind, grad=kind, compute=kind, state=kind)
            code = implementation_of("hf", of.family)
            setup = Setup(code, Layout(seq=32), pure, find("sgd-momentum")[0], "foreach", "eager")
            rank = rank_of(prepare(of, setup), 0)
            fixed = 2 * 6 * 2 if fields is ernie else 0  # the routers' biases, which no gradient reaches, in fp32
            assert rank.parameters == 2 * (count + wide) + fixed
            trained = count - 2 * 6 if fields is ernie else count
            assert rank.gradients == rank.optimizer == 2 * (trained + wide)


HY_V4: dict[str, Any] = {
    "model_type": "hy_v4", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 104, "vocab_size": 160, "n_routed_experts": 4,
    "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1, "n_shared_experts": 2,
    "mlp_layer_types": ["sparse", "dense", "dense", "sparse"], "kv_lora_rank": 20, "q_lora_rank": 28,
    "qk_rope_head_dim": 16, "qk_nope_head_dim": 8, "v_head_dim": 24, "index_n_heads": 3, "index_head_dim": 16,
    "index_topk": 128, "indexer_types": ["full", "shared", "shared", "shared"], "attention_bias": True,
    "max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": False,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
INKLING_2: dict[str, Any] = {
    "model_type": "inkling2_text", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 6, "vocab_size": 97, "max_position_embeddings": 32, "n_routed_experts": 5,
    "num_experts_per_tok": 1, "moe_intermediate_size": 24, "swa_num_attention_heads": 2, "swa_num_key_value_heads": 1,
    "d_rel": 8, "swa_head_dim": 24, "head_dim": 16, "conv_kernel_size": 3, "rel_extent": 12, "sliding_window_size": 16,
    "log_scaling_n_floor": 8, "unpadded_vocab_size": 97, "tie_word_embeddings": False, "hidden_act": "silu",
    "n_layers_per_attn_res_block": 3, "scoring_func": "sigmoid", "log_scaling_alpha": 0.1,
}  # fmt: skip


def test_indexers_and_queries_of_blocks_stay_in_fp32() -> None:
    """Bytes of the classes' parameters, built in bf16 on the meta device with transformers 5.24 and what
    _keep_in_fp32_modules_strict names in fp32: Hy4's indexer (its keys' norm, its heads' weights), Inkling 2's queries
    over earlier blocks and routers."""
    for fields, elements, size in ((HY_V4, 224_133, 505_236), (INKLING_2, 66_240, 135_552)):
        of = model(**fields)
        assert params(of)["params/total"].value == elements
        code = implementation_of("hf", of.family)
        setup = Setup(code, Layout(seq=32), POLICIES["bf16-pure"], find("adamw")[0], "foreach", "eager")
        assert rank_of(prepare(of, setup), 0).parameters == size


FIXED: dict[str, tuple[dict[str, Any], int]] = {
    # router: a matrix of 4 experts in each of two layers, created in fp32
    "hunyuan_v1_moe": ({"num_experts": 4, "moe_topk": 2, "head_dim": 8}, 2 * 4 * 32),
    # the bias of each expert in the second layer (expert_bias)
    "afmoe": ({"num_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_dense_layers": 1}, 7),
    # decay of each of 3 heads in the second layer, created in fp32
    "olmo_hybrid": (
        {
            "layer_types": ["full_attention", "linear_attention"], "linear_num_value_heads": 3,
            "linear_num_key_heads": 3, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        },
        3,
    ),
    # dt_bias of 3 heads of 8 in the second layer, and the router of 6 experts there
    "kimi_linear": (
        {
            "layer_types": ["full_attention", "linear_attention"], "num_experts": 6, "num_experts_per_token": 2,
            "moe_intermediate_size": 24, "num_shared_experts": 1, "mlp_layer_types": ["dense", "sparse"],
            "kv_lora_rank": 24, "q_lora_rank": None, "qk_rope_head_dim": 16, "qk_nope_head_dim": 8, "v_head_dim": 24,
            "linear_num_heads": 3, "linear_head_dim": 8,
        },
        3 * 8 + 6 * 32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("model_type", FIXED)
def test_what_a_class_keeps_or_creates_in_fp32_stays_in_fp32(model_type: str) -> None:
    """A loaded weight keeps the type that its class gives it (transformers 5.24, core_model_loading.py): four bytes for
    what _keep_in_fp32_modules_strict names, and for weights made with dtype=torch.float32."""
    own, wide = FIXED[model_type]
    of = model(
        model_type=model_type, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=48, vocab_size=97, max_position_embeddings=64, tie_word_embeddings=False, **own,
    )  # fmt: skip
    setup = Setup(
        implementation_of("hf", of.family), Layout(seq=32), POLICIES["bf16-pure"], find("adamw")[0], "foreach", "eager"
    )
    every = params(of)["params/total"].value
    assert rank_of(prepare(of, setup), 0).parameters == 2 * (every + wide)


def test_a_tied_fsmt_has_one_table() -> None:
    """FSMTForConditionalGeneration of transformers 5.23, vocabularies of 50 and 60: the target's table serves all."""
    fields: dict[str, Any] = {
        "model_type": "fsmt", "src_vocab_size": 50, "tgt_vocab_size": 60, "d_model": 16, "encoder_layers": 1,
        "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "max_position_embeddings": 1024,
    }  # fmt: skip
    for tied, count in ((True, 38_304), (False, 40_064)):
        assert params(model(**fields | {"tie_word_embeddings": tied}))["params/total"].value == count

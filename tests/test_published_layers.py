"""Models whose code comes with their weights and whose layers differ: published totals, and sums by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import NapkinError
from tests.conftest import model_of

OPENELM: dict[str, Any] = {
    "activation_fn_name": "swish", "architectures": ["OpenELMForCausalLM"], "auto_map": {"AutoConfig": "x.Y"},
    "ffn_dim_divisor": 256, "ffn_with_glu": True, "head_dim": 64, "max_context_length": 2048, "model_dim": 1280,
    "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
    "model_type": "openelm", "normalization_layer_name": "rms_norm", "normalize_qk_projections": True,
    "num_gqa_groups": 4, "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4, "num_transformer_layers": 16,
    "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4, "qkv_multipliers": [0.5, 1.0], "rope_freq_constant": 10000,
    "rope_max_length": 4096, "share_input_output_layers": True, "vocab_size": 32000,
}  # fmt: skip
MINIMAX: dict[str, Any] = {
    "architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": ([0] * 7 + [1]) * 10, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 6144, "intermediate_size": 9216, "layernorm_mlp_alpha": 3.556,
    "max_position_embeddings": 10240000, "model_type": "minimax_text_01", "num_attention_heads": 64,
    "num_experts_per_tok": 2, "num_hidden_layers": 80, "num_key_value_heads": 8, "num_local_experts": 32,
    "postnorm": True, "rotary_dim": 64, "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid",
    "tie_word_embeddings": False, "vocab_size": 200064,
}  # fmt: skip
FALCON: dict[str, Any] = {
    "alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["RWForCausalLM"],
    "bias": False, "parallel_attn": True, "vocab_size": 65024,
}  # fmt: skip
NAS: dict[str, Any] = {
    "architectures": ["DeciLMForCausalLM"], "attention_bias": False, "auto_map": {"AutoConfig": "x.Y"},
    "hidden_act": "silu", "hidden_size": 96, "intermediate_size": None, "mlp_bias": False,
    "model_type": "nemotron-nas", "num_attention_heads": 6, "num_hidden_layers": 5, "num_key_value_heads": None,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "tie_word_embeddings": False, "vocab_size": 100,
    "block_configs": [
        {"attention": {"n_heads_in_group": 3, "no_op": False}, "ffn": {"ffn_mult": 5.25, "no_op": False}},
        {"attention": {"n_heads_in_group": 6, "window_length": None}, "ffn": {"no_op": True}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.0}},
        {"attention": {"replace_with_linear": True}, "ffn": {"replace_with_linear": True}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
    ],
}  # fmt: skip
HUNYUAN: dict[str, Any] = {
    "add_classification_head": False, "architectures": ["HunYuanForCausalLM"], "attention_bias": False,
    "cla_share_factor": 2, "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "mlp_bias": False,
    "model_type": "hunyuan", "moe_topk": 1, "norm_type": "hf_rms", "num_attention_heads": 8, "num_experts": 4,
    "num_hidden_layers": 4, "num_key_value_heads": 2, "num_shared_expert": 1, "tie_word_embeddings": True,
    "use_cla": True, "use_mixed_mlp_moe": True, "use_qk_norm": True, "use_rotary_pos_emb": True, "vocab_size": 100,
}  # fmt: skip
STEP3: dict[str, Any] = {
    "architectures": ["Step3TextForCausalLM"], "head_dim": 256, "hidden_size": 7168, "intermediate_size": 18432,
    "max_position_embedding": 65536, "max_seq_len": 65536, "model_type": "step3_text", "moe_intermediate_size": 5120,
    "moe_layers_enum": ",".join(map(str, range(4, 60))), "moe_num_experts": 48, "moe_top_k": 3,
    "norm_expert_weight": False, "num_attention_groups": 1, "num_attention_heads": 64, "num_hidden_layers": 61,
    "share_expert_dim": 5120, "share_q_dim": 2048, "vocab_size": 128815,
}  # fmt: skip


def total(fields: dict[str, Any]) -> int:
    return int(params(model_of(fields))["params/total"].value)


@pytest.mark.parametrize(
    ("fields", "weights"),
    [
        (OPENELM, 271_527_168),  # safetensors total of apple/OpenELM-270M
        (MINIMAX, 456_089_655_296),  # of MiniMaxAI/MiniMax-Text-01
        (  # of stabilityai/stablelm-3b-4e1t
            {
                "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 6912, "max_position_embeddings": 4096,
                "model_type": "stablelm_epoch", "norm_eps": 1e-5, "num_attention_heads": 32, "num_heads": 32,
                "num_hidden_layers": 32, "num_key_value_heads": 32, "rope_pct": 0.25, "rotary_scaling_factor": 1.0,
                "tie_word_embeddings": False, "use_qkv_bias": False, "vocab_size": 50304,
            },
            2_795_443_200,
        ),
        (  # of tiiuae/falcon-40b and falcon-7b
            {**FALCON, "model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60},
            41_303_293_952,
        ),
        (
            {**FALCON, "model_type": "RefinedWebModel", "hidden_size": 4544, "multi_query": True, "n_head": 71,
             "n_layer": 32},
            6_921_720_704,
        ),
    ],
)  # fmt: skip
def test_published_totals(fields: dict[str, Any], weights: int) -> None:
    assert total(fields) == weights


def test_nemotron_nas_layer_by_layer() -> None:
    """Widths are ⅔ · ffn_mult · h, rounded up to a multiple of 256; the last layer is empty."""
    h, heads, size = 96, 6, 16
    first = h + 2 * h * h + 2 * h * (heads // 3) * size + h + 3 * h * 512  # ⅔ · 5.25 · 96 = 336
    second = h + 2 * h * h + 2 * h * 1 * size
    third = h + 3 * h * 256  # ⅔ · 2 · 96 = 128
    fourth = 2 * (h + h * h)
    assert total(NAS) == 2 * 100 * h + h + first + second + third + fourth


def test_nemotron_nas_refuses_what_it_does_not_know() -> None:
    sinks = {"attention": {"n_heads_in_group": 3, "num_sink_tokens": 4}, "ffn": {"ffn_mult": 1.0}}
    with pytest.raises(NapkinError, match="num_sink_tokens") as caught:
        model_of({**NAS, "block_configs": [sinks] * 5})
    assert caught.value.status == 3
    with pytest.raises(NapkinError, match="4 entries for 5 layers"):
        model_of({**NAS, "block_configs": NAS["block_configs"][:4]})
    with pytest.raises(NapkinError, match="no groups of 4"):
        model_of({**NAS, "block_configs": [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1}}] * 5})


def test_decilm_has_key_value_heads_by_the_layer() -> None:
    """Llama with two key/value heads, of which the second layer has one: 2 · 64 · 16 weights fewer."""
    small = {
        "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_hidden_layers": 2, "tie_word_embeddings": False, "vocab_size": 100,
    }  # fmt: skip
    llama = total({**small, "model_type": "llama", "num_key_value_heads": 2})
    assert total({**small, "model_type": "deci", "num_key_value_heads_per_layer": [2, 1]}) == llama - 2 * 64 * 16
    with pytest.raises(NapkinError, match="not a multiple of 3"):
        model_of({**small, "model_type": "deci", "num_key_value_heads_per_layer": [2, 3]})


def test_hunyuan_large_shares_keys_between_two_layers() -> None:
    h, inner, kv = 64, 96, 2 * 8
    layer = 2 * h * h + 2 * 8 + 2 * h + (4 + 1) * 3 * h * inner + 4 * h
    assert total(HUNYUAN) == 100 * h + h + 4 * layer + 2 * 2 * h * kv
    assert total({**HUNYUAN, "use_cla": False}) == total(HUNYUAN) + 2 * 2 * h * kv


def test_step3_by_hand() -> None:
    """316B, as its report says of the language model."""
    h, wide = 7168, 64 * 256
    attention = h * (2048 + 2 * 256) + 2048 + 2048 * wide + wide * h + 2 * h
    sparse = 49 * 3 * h * 5120 + 48 * h
    count = 2 * 128815 * h + h + 61 * attention + 5 * 3 * h * 18432 + 56 * sparse
    assert total(STEP3) == count
    assert round(count / 1e9) == 316


def test_arctic_by_hand() -> None:
    h, inner = 64, 96
    fields = {
        "hidden_act": "silu", "hidden_size": h, "intermediate_size": inner, "model_type": "arctic",
        "moe_layer_frequency": 1, "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "num_local_experts": 4, "parallel_attn_mlp_res": True, "use_residual": True,
        "vocab_size": 100,
    }  # fmt: skip
    layer = 2 * h * h + 2 * h * 32 + 3 * h * h + 4 * 3 * h * inner + 4 * h + 3 * h
    assert total(fields) == 2 * 100 * h + h + 2 * layer


def test_telechat_has_biases_of_output_projections() -> None:
    h, inner = 64, 96
    fields = {
        "apply_residual_connection_post_layernorm": False, "embed_layernorm": False, "ffn_hidden_size": inner,
        "hidden_size": h, "logn": True, "model_type": "telechat", "n_head": 4, "n_layer": 2, "seq_length": 2048,
        "tie_word_embeddings": False, "training_seqlen": 2048, "vocab_size": 100,
    }  # fmt: skip
    assert total(fields) == 2 * 100 * h + h + 2 * (4 * h * h + h + 3 * h * inner + h + 2 * h)


def test_plamo_by_hand() -> None:
    h, inner = 64, 96
    fields = {
        "hidden_size": h, "intermediate_size": inner, "max_position_embeddings": 4096, "model_type": "plamo",
        "n_shared_head": 4, "num_attention_heads": 8, "num_hidden_layers": 2, "tie_word_embeddings": False,
        "vocab_size": 100,
    }  # fmt: skip
    assert total(fields) == 2 * 100 * h + h + 2 * (2 * h * h + 2 * h * 16 + 3 * h * inner + h)


def test_openpangu_has_biases_in_attention_and_one_of_four_key_value_heads() -> None:
    h, inner = 64, 96
    fields = {
        "bias": True, "hidden_act": "silu", "hidden_size": h, "intermediate_size": inner, "model_type": "PanguEmbedded",
        "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "vocab_size": 100,
    }  # fmt: skip
    layer = 2 * (h * h + h) + 2 * (h * 16 + 16) + 3 * h * inner + 2 * h
    assert total(fields) == 2 * 100 * h + h + 2 * layer


def test_phi_2_as_its_first_code_names_its_fields() -> None:
    """The tensors of microsoft/phi-2."""
    fields = {
        "activation_function": "gelu_new", "architecture": {"block_cls": "parallel", "mlp": {"mlp_cls": "fused_mlp"}},
        "architectures": ["MixFormerSequentialForCausalLM"], "auto_map": {"AutoConfig": "x.Y"}, "flash_rotary": False,
        "fused_dense": False, "model_type": "mixformer-sequential", "n_embd": 2560, "n_head": 32, "n_head_kv": None,
        "n_inner": None, "n_layer": 32, "n_positions": 2048, "rotary_dim": 32, "tie_word_embeddings": False,
        "vocab_size": 51200,
    }  # fmt: skip
    assert total(fields) == total(fields | {"model_type": "phi-msft"}) == 2_779_683_840


def test_phi_3_small_has_biases_although_attention_bias_is_false() -> None:
    """The tensors of microsoft/Phi-3-small-8k-instruct."""
    fields = {
        "architectures": ["Phi3SmallForCausalLM"], "attention_bias": False, "auto_map": {"AutoConfig": "x.Y"},
        "blocksparse_block_size": 64, "blocksparse_num_local_blocks": 16, "blocksparse_vert_stride": 8,
        "dense_attention_every_n_layers": 2, "ff_dim_multiplier": None, "ff_intermediate_size": 14336,
        "gegelu_limit": 20.0, "hidden_act": "gegelu", "hidden_size": 4096, "max_position_embeddings": 8192,
        "model_type": "phi3small", "mup_embedding_multiplier": 10.0, "mup_width_multiplier": 8.0,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 100352,
    }  # fmt: skip
    assert total(fields) == 7_392_272_384
    assert "block-sparse attention is counted as attention to all tokens" in model_of(fields).notes


def test_moss_is_codegen_with_a_bias_of_the_head() -> None:
    """fnlp/moss-moon-003: 12 h² + 7 h a layer."""
    h, rows = 6144, 107_008
    fields = {
        "activation_function": "gelu_new", "architectures": ["MossForCausalLM"], "auto_map": {"AutoConfig": "x.Y"},
        "groupsize": 128, "model_type": "moss", "n_ctx": 2048, "n_embd": h, "n_head": 24, "n_inner": None,
        "n_layer": 34, "n_positions": 2048, "rotary_dim": 64, "tie_word_embeddings": False, "vocab_size": rows,
        "wbits": 8,
    }  # fmt: skip
    assert total(fields) == 34 * (12 * h * h + 7 * h) + 2 * h + 2 * rows * h + rows


DEEPSEEK_OCR: dict[str, Any] = {
    "first_k_dense_replace": 1, "hidden_size": 1280, "intermediate_size": 6848, "kv_lora_rank": None, "lm_head": True,
    "max_position_embeddings": 8192, "moe_intermediate_size": 896, "n_group": 1, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_attention_heads": 10, "num_experts_per_tok": 6, "num_hidden_layers": 12,
    "num_key_value_heads": 10, "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "rm_head": False,
    "topk_group": 1, "topk_method": "greedy", "use_mla": False, "v_head_dim": 0, "vocab_size": 129_280,
}  # fmt: skip
"""The language model of deepseek-ai/DeepSeek-OCR, whose file states it twice."""


def test_deepseek_without_latent_attention_by_hand() -> None:
    h = 1280
    outer = {
        "architectures": ["DeepseekOCRForCausalLM"], "candidate_resolutions": [[1024, 1024]], "model_type":
        "deepseek_vl_v2", "language_config": {**DEEPSEEK_OCR, "architectures": ["DeepseekV2ForCausalLM"]},
        "projector_config": {"model_type": "mlp_projector"}, "vision_config": {"model_type": "vision"},
    }  # fmt: skip
    sparse = 64 * h + (64 + 2) * 3 * h * 896
    layers = 12 * (4 * h * h + 2 * h) + 3 * h * 6848 + 11 * sparse
    assert total(outer) == total(outer | DEEPSEEK_OCR) == layers + h + 2 * 129_280 * h
    with pytest.raises(NapkinError, match="hidden_size"):
        total(outer | DEEPSEEK_OCR | {"hidden_size": 2560})


def test_the_first_minicpm_v_has_minicpms_decoder() -> None:
    """openbmb/MiniCPM-V-2."""
    h, rows = 2304, 122_753
    fields = {
        "architectures": ["MiniCPMV"], "auto_map": {"AutoConfig": "x.Y"}, "dim_model_base": 256,
        "drop_vision_last_layer": True, "hidden_act": "silu", "hidden_size": h, "intermediate_size": 5760,
        "max_position_embeddings": 4096, "max_slice_nums": 9, "mm_use_im_start_end": True, "model_type": "minicpmv",
        "num_attention_heads": 36, "num_hidden_layers": 40, "num_key_value_heads": 36, "query_num": 64,
        "scale_depth": 1.4, "scale_emb": 12, "scale_resolution": 448, "tie_word_embeddings": False,
        "vision_encoder": "vit_so400m_patch14_siglip_384.webli", "vocab_size": rows,
    }  # fmt: skip
    assert total(fields) == 40 * (4 * h * h + 3 * h * 5760 + 2 * h) + h + 2 * rows * h


def test_qwen_vl_is_qwen_with_a_tower_that_is_not_counted() -> None:
    text = {
        "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128, "model_type": "qwen", "no_bias": True,
        "num_attention_heads": 32, "num_hidden_layers": 32, "seq_length": 2048, "tie_word_embeddings": False,
        "vocab_size": 151936,
    }  # fmt: skip
    whole = model_of(text | {"visual": {"heads": 16, "image_size": 448, "layers": 48, "width": 1664}})
    assert params(whole)["params/total"].value == total(text) == 7_721_324_544
    assert whole.missing == "language model only"


def test_idle_experts_of_longcat_are_named() -> None:
    fields = {
        "hidden_size": 32, "num_layers": 2, "num_attention_heads": 2, "ffn_hidden_size": 64, "n_routed_experts": 4,
        "moe_topk": 2, "expert_ffn_hidden_size": 16, "zero_expert_num": 3, "model_type": "longcat_flash",
        "vocab_size": 100, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    }  # fmt: skip
    assert any(note.endswith(f"{2 * 3 * 2 * 16 * 32:,} parameters") for note in model_of(fields).notes)


def test_t5_refuses_a_gate_that_its_activation_contradicts() -> None:
    fields = {
        "d_model": 64, "d_ff": 96, "num_layers": 2, "num_heads": 4, "d_kv": 16, "vocab_size": 100,
        "feed_forward_proj": "gated-gelu", "is_gated_act": False,
    }  # fmt: skip
    for model_type in ("t5", "mt5", "umt5"):
        with pytest.raises(NapkinError, match="contradicts feed_forward_proj"):
            model_of(fields | {"model_type": model_type})


JINA: dict[str, Any] = {
    "architectures": ["JinaBertForMaskedLM"], "auto_map": {"AutoModel": "x.Y"}, "emb_pooler": "mean",
    "feed_forward_type": "geglu", "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
    "max_position_embeddings": 8192, "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12,
    "position_embedding_type": "alibi", "type_vocab_size": 2, "vocab_size": 30528,
}  # fmt: skip


def test_own_code_under_the_model_type_of_a_class_by_hand() -> None:
    """jinaai/jina-embeddings-v2-base-en: no table of positions, one matrix for the gate and what it multiplies."""
    h, inner, rows = 768, 3072, 30_528
    layer = 4 * (h * h + h) + 2 * h * inner + inner * h + h + 4 * h
    body = rows * h + 2 * h + 2 * h + 12 * layer
    assert total(JINA) == body + h * h + h + 2 * h + rows
    assert total(JINA | {"feed_forward_type": "original"}) == total(JINA) - 12 * (h * inner - inner)
    assert total(JINA | {"auto_map": None}) != total(JINA)  # transformers' class reads none of these fields


def test_fields_that_only_a_files_own_code_may_read_are_refused() -> None:
    fields = {
        "architectures": ["FastGPT2LMHeadModel"], "attention_head_type": "multiquery", "model_type": "gpt2",
        "auto_map": {"AutoModel": "x.Y"}, "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100,
    }  # fmt: skip
    with pytest.raises(NapkinError, match="attention_head_type: FastGPT2LMHeadModel may read it"):
        total(fields)
    assert total(fields | {"architectures": ["GPT2LMHeadModel"]}) == total(fields | {"auto_map": None})
    kimi = {"architectures": ["GPT2_LMHeadModel"]}  # as files and transformers spell Kimi's class differently
    assert total(fields | kimi) == total(fields | {"auto_map": None})


def test_own_code_of_a_type_that_napkin_knows_reads_what_its_record_reads() -> None:
    """rednote-hilab/dots.ocr states attention_bias, and the language model's layers are Qwen2's."""
    fields = {
        "architectures": ["DotsOCRForCausalLM"], "attention_bias": True, "auto_map": {"AutoModel": "x.Y"},
        "hidden_act": "silu", "hidden_size": 1536, "intermediate_size": 8960, "model_type": "dots_ocr",
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "tie_word_embeddings": False,
        "vocab_size": 151_936,
    }  # fmt: skip
    h = 1536
    layer = 2 * h * h + 2 * h * 256 + h + 2 * 256 + 3 * h * 8960 + 2 * h
    assert total(fields) == 28 * layer + h + 2 * 151_936 * h


MINIMIND: dict[str, Any] = {
    "architectures": ["MiniMindLM"], "auto_map": {"AutoModel": "x.Y"}, "dim": 768, "hidden_dim": 2048,
    "max_seq_len": 8192, "model_type": "minimind", "multiple_of": 64, "n_heads": 8, "n_kv_heads": 2, "n_layers": 16,
    "n_routed_experts": 4, "n_shared_experts": True, "norm_topk_prob": True, "num_experts_per_tok": 2,
    "use_moe": False, "vocab_size": 6400,
}  # fmt: skip
"""jingyaogong/MiniMind2."""


def test_minimind_by_hand() -> None:
    """Its authors call it 104M, and the one with experts 145M of half as many layers."""
    h, inner = 768, 2048
    attention, mlp = 2 * h * h + 2 * h * 192, 3 * h * inner
    assert total(MINIMIND) == 6400 * h + h + 16 * (attention + mlp + 2 * h)
    sparse = MINIMIND | {"hidden_dim": None, "n_layers": 8, "use_moe": True}
    hidden = {"hidden_size": 640, "dim": None}  # as later files spell it: 8/3 of 640, rounded up to 64, is 1,728
    e = 640
    assert total(sparse) == 6400 * h + h + 8 * (attention + 4 * h + 5 * mlp + 2 * h)
    layer = 2 * e * e + 2 * e * 160 + 4 * e + 5 * 3 * e * 1728 + 2 * e
    assert total(sparse | hidden) == 6400 * e + e + 8 * layer


OLMO: dict[str, Any] = {
    "activation_type": "swiglu", "alibi": False, "architectures": ["OLMoForCausalLM"], "attention_layer_norm": False,
    "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "sequential", "clip_qkv": None,
    "d_model": 2048, "embedding_size": 50304, "include_bias": False, "layer_norm_type": "default",
    "layer_norm_with_affine": False, "max_sequence_length": 2048, "mlp_hidden_size": None, "mlp_ratio": 8,
    "model_type": "hf_olmo", "multi_query_attention": False, "n_heads": 16, "n_layers": 16, "rope": True,
    "vocab_size": 50280, "weight_tying": True,
}  # fmt: skip


def test_olmo_as_its_own_code_names_its_fields() -> None:
    """The tensors of allenai/OLMo-1B and allenai/OLMo-7B, which transformers' files of both hold too."""
    large = {"d_model": 4096, "mlp_hidden_size": 22016, "n_heads": 32, "n_layers": 32, "weight_tying": False}
    assert total(OLMO) == 1_176_764_416
    assert total(OLMO | large) == 6_888_095_744
    with pytest.raises(NapkinError, match="layer_norm_with_affine"):
        total(OLMO | {"layer_norm_with_affine": True})


def test_phi_3_vision_by_its_published_file() -> None:
    """The tensors of microsoft/Phi-3-vision-128k-instruct, 8,293,242,880 bytes of bf16."""
    fields = {
        "architectures": ["Phi3VForCausalLM"], "auto_map": {"AutoModel": "x.Y"}, "hidden_size": 3072,
        "embd_layer": {"embedding_cls": "image", "projection_cls": "mlp", "use_hd_transform": True},
        "img_processor": {"image_dim_out": 1024, "name": "clip_vision_model", "num_img_tokens": 144},
        "intermediate_size": 8192, "model_type": "phi3_v", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 32, "vocab_size": 32064,
    }  # fmt: skip
    assert params_of(model_of(fields))[-1].value == 4_146_621_440


LAYOUTLMV3: dict[str, Any] = {
    "architectures": ["LayoutLMv3Model"], "coordinate_size": 8, "hidden_size": 48, "intermediate_size": 60,
    "max_position_embeddings": 40, "model_type": "layoutlmv3", "num_attention_heads": 4, "num_hidden_layers": 2,
    "second_input_size": 112, "shape_size": 8, "vocab_size": 99,
}  # fmt: skip


def test_layoutlmv3_by_hand() -> None:
    h, inner = 48, 60
    tables = (99 + 40 + 2) * h + 2 * 1024 * 8 + 2 * 1024 * 8 + 2 * h + (32 + 2 * 64) * 4
    layers = 2 * (4 * (h * h + h) + 2 * h * inner + inner + h + 4 * h)
    patches = 3 * 16 * 16 * h + h + h + 197 * h + 4 * h
    assert total(LAYOUTLMV3) == tables + layers + patches
    assert total(LAYOUTLMV3 | {"visual_embed": False}) == tables + layers
    far = {"has_relative_attention_bias": False, "has_spatial_attention_bias": False}
    assert total(LAYOUTLMV3 | far) == tables + layers + patches - (32 + 2 * 64) * 4
    with pytest.raises(NapkinError, match="coordinate_size"):
        total(LAYOUTLMV3 | {"coordinate_size": 9})


@pytest.mark.parametrize(
    ("kind", "labels", "head"),
    [
        ("TokenClassification", 9, 48 * 9 + 9),
        ("TokenClassification", 10, 48 * 48 + 48 + 48 * 10 + 10),  # LayoutLMv3ClassificationHead
        ("SequenceClassification", 3, 48 * 48 + 48 + 48 * 3 + 3),
        ("QuestionAnswering", 2, 48 * 48 + 48 + 48 * 2 + 2),
    ],
)
def test_the_heads_of_layoutlmv3_by_hand(kind: str, labels: int, head: int) -> None:
    named = {"architectures": [f"LayoutLMv3For{kind}"], "num_labels": labels}
    assert total(LAYOUTLMV3 | named) - total(LAYOUTLMV3) == head

"""Decoders whose records are not in their family's module yet. Each moves there; then this module goes."""

from __future__ import annotations

from importlib import import_module

from napkin.architectures.record import Architecture, Wrapper
from napkin.operations.implementations import (
    ALIBI,
    EAGER,
    EFFICIENT,
    FLASH,
    FP32_ROTARY,
    HF,
    HF_EAGER,
    IDS,
    NEVER,
    PARTIAL_ROTARY,
    ROTARY,
    SIGMOID_ROUTER,
    Implementation,
)
from napkin.record import replace

_BUILDERS: dict[str, str] = {
    "decoders:build": (
        "afmoe apertus arcee aria_text bitnet codegen cohere cohere2 ctrl cwm deepseek dots1 ernie4_5 "
        "ernie4_5_moe exaone4 exaone_moe flex_olmo flint gemma gemma2 gemma3_text glm glm4 glm4_moe "
        "glm4v_moe_text glm4v_text gpt-sw3 gpt2 gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite "
        "granite_swa granitemoe granitemoe_swa granitemoeshared helium hunyuan_v1_dense hy_v3 hyperclovax "
        "internlm2 internlm3 iquestcoder jais2 kolibri1 llama llama4_text mellum minicpm minimax_m2 ministral "
        "ministral3 mistral mixtral nanochat nemotron olmo olmo2 olmo3 olmoe persimmon phi phi3 phimoe qwen2 "
        "qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_moe qwen3_vl_moe_text qwen3_vl_text seed_oss "
        "smollm3 solar_open stablelm starcoder2 vaultgemma xglm"
    ),
    "minimax_m3:build": "minimax_m3_vl_text",
    "deepseek_v4:build": "deepseek_v4",
    "dots3_note:build": "dots3_note_text",
    "inkling:build": "inkling_text",
    "latent:build": (
        "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa hy_v4 kimi_k2 minicpm3 mistral4 youtu"
    ),
    "latent:longcat": "longcat_flash",
    "maps:diffllama": "diffllama",
    "maps:doge": "doge",
    "special:biogpt": "biogpt",
    "special:bloom": "bloom",
    "special:dbrx": "dbrx",
    "special:falcon": "falcon",
    "special:gpt_bigcode": "gpt_bigcode",
    "special:grok": "grok-1",
    "special:hunyuan_moe": "hunyuan_v1_moe",
    "special:jetmoe": "jetmoe",
    "special:mpt": "mpt",
    "special:openai_gpt": "openai-gpt",
    "special:opt": "opt",
    "special:phi4_multimodal": "phi4_multimodal",
    "uneven:beam": "beam",
    "uneven:cohere2_moe": "cohere2_moe",
    "uneven:cohere_compass": "cohere_compass_text",
    "uneven:laguna": "laguna",
    "uneven:mimo_v2_flash": "mimo_v2_flash",
}
ADAPTERS = {model_type: builder for builder, names in _BUILDERS.items() for model_type in names.split()}

HOLDERS: dict[str, str] = {
    "aria": "aria_text",
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "cohere_compass": "cohere_compass_text",
    "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama",
    "dots3_note": "dots3_note_text",
    "exaone4_5": "exaone4",
    "fast_vlm": "qwen2",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "glm46v": "glm4v_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "got_ocr2": "qwen2",
    "idefics2": "mistral",
    "idefics3": "llama",
    "inkling_mm_model": "inkling_text",
    "internvl": "qwen2",
    "janus": "llama",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "lighton_ocr": "qwen3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral",
    "ovis2": "qwen2",
    "paligemma": "gemma",
    "perception_lm": "llama",
    "qianfan_ocr": "qwen3",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
}

_FLAT = ("dots3_note", "fuyu", "qwen2_vl", "qwen2_5_vl")

_IMPLEMENTATIONS: dict[str, Implementation] = {
    "afmoe": replace(HF, router="scores", new_shares=True),
    "apertus": replace(HF, buffers=(ROTARY, ("scalars", ""))),
    "aria_text": replace(SIGMOID_ROUTER, native_scores="raised"),
    "codegen": replace(
        HF_EAGER,
        softmax="wide_scores",
        rotary="pair",
        rotary_fp32=True,
        buffers=(("angles", "fp32"),),
        norms_last=False,
    ),
    "ctrl": replace(HF, softmax="native", drops=NEVER),
    "dots1": replace(SIGMOID_ROUTER, norms_inline=True),
    "ernie4_5": replace(FP32_ROTARY, rotary="layer", drops=NEVER),
    "ernie4_5_moe": replace(
        FP32_ROTARY,
        rotary="layer",
        router="tokens",
        new_shares=True,
        clamped=True,
        fp32_router=True,
        router_apart=True,
        wide_logits=True,
        drops=NEVER,
    ),
    "exaone_moe": SIGMOID_ROUTER,
    "flex_olmo": replace(FP32_ROTARY, norms_inline=True),
    "flint": replace(
        SIGMOID_ROUTER,
        softmax="native",
        new_shares=True,
        fp32_router=True,
        router_apart=True,
        wide_logits=True,
        sinks="joined",
        kernels=(EAGER,),
        norms_inline=True,
    ),
    "gemma": replace(HF, buffers=(ROTARY, ("scale", ""))),
    "gemma2": replace(HF_EAGER, buffers=(ROTARY, ("scale", ""))),
    "gemma3_text": replace(HF, by_kind=True, buffers=(ROTARY, ("scale", ""))),
    "glm": replace(PARTIAL_ROTARY, rotary="layer"),
    "glm4": replace(PARTIAL_ROTARY, rotary="layer"),
    "glm4_moe": replace(SIGMOID_ROUTER, joins=True),
    "glm4v_moe_text": replace(SIGMOID_ROUTER, joins=True, positions="each", wide_logits=True),
    "glm4v_text": replace(PARTIAL_ROTARY, positions="each"),
    "gpt-sw3": replace(HF, softmax="native", passes_mask=True, norms_last=False, closure=("tables", "masks")),
    "gpt2": replace(HF, softmax="native", passes_mask=True, norms_last=False, closure=("tables", "masks")),
    "gpt_neo": replace(
        HF_EAGER, softmax="wide_scores", buffers=(("masks", "bool"),), norms_last=False, closure=("mask",)
    ),
    "gpt_neox": replace(PARTIAL_ROTARY, norms_last=False),
    "gpt_neox_japanese": replace(HF_EAGER, softmax="native", joins=True),
    "gpt_oss": replace(HF_EAGER, softmax="native", half_tables=True, native_scores="kept"),
    "gptj": replace(HF_EAGER, softmax="wide_scores", rotary="pair", buffers=(("angles", "fp32"),), norms_last=False),
    "granite_swa": replace(HF_EAGER, sinks="scaled", buffers=(ROTARY, ("spare rotary", "fp32"))),
    "granitemoe": replace(HF, router="tokens", wide_logits=True),
    "granitemoe_swa": replace(
        HF_EAGER, router="tokens", wide_logits=True, sinks="scaled", buffers=(ROTARY, ("spare rotary", "fp32"))
    ),
    "granitemoeshared": replace(HF, router="tokens", wide_logits=True),
    "helium": replace(HF, rotary="layer", wide_weight=True),
    "hy_v3": replace(SIGMOID_ROUTER, new_shares=True),
    "kolibri1": replace(SIGMOID_ROUTER, new_shares=True),
    "llama4_text": replace(HF, softmax="native"),
    "mellum": replace(HF, by_kind=True, norms_inline=True),
    "minimax_m2": replace(PARTIAL_ROTARY, router="scores", norms_inline=True),
    "ministral3": replace(HF, query_scale=True),
    "mixtral": replace(HF, router="scores"),
    "nemotron": replace(PARTIAL_ROTARY, norms="lowered"),
    "olmo": FP32_ROTARY,
    "olmo2": replace(FP32_ROTARY, norms_inline=True),
    "olmo3": replace(FP32_ROTARY, by_kind=True, norms_inline=True),
    "olmoe": replace(HF, norms_inline=True),
    "persimmon": PARTIAL_ROTARY,
    "phi": PARTIAL_ROTARY,
    "phi3": replace(PARTIAL_ROTARY, cuts=True),
    "phimoe": replace(HF, router="sparsemixer"),
    "qwen2_5_vl_text": replace(HF, positions="each"),
    "qwen2_vl_text": replace(HF, positions="each"),
    "qwen3": replace(HF, norms_inline=True),
    "qwen3_moe": replace(HF, norms_inline=True),
    "qwen3_vl_moe_text": replace(HF, positions="each"),
    "qwen3_vl_text": replace(HF, positions="each"),
    "solar_open": SIGMOID_ROUTER,
    "stablelm": PARTIAL_ROTARY,
    "vaultgemma": replace(HF, buffers=(ROTARY, ("scale", ""))),
    "xglm": replace(HF_EAGER, softmax="native", floors=True, buffers=(("sines", ""),), closure=("masks",)),
    "minimax_m3_vl_text": replace(PARTIAL_ROTARY, router="scores"),
    "deepseek_v4": replace(SIGMOID_ROUTER, rotary="each", wide_sinks=True, new_shares=True, kernels=(EAGER,)),
    "dots3_note_text": replace(SIGMOID_ROUTER, turned_back=True),
    "inkling_text": replace(HF, kernels=(EFFICIENT, EAGER)),
    "axk1": SIGMOID_ROUTER,
    "axk2": replace(SIGMOID_ROUTER, masked=True, kernels=(EFFICIENT, EAGER)),
    "deepseek_v2": replace(HF, router="scores"),
    "deepseek_v3": SIGMOID_ROUTER,
    "deepseek_v32": replace(SIGMOID_ROUTER, masked=True, kernels=(EFFICIENT, EAGER)),
    "glm4_moe_lite": SIGMOID_ROUTER,
    "glm_moe_dsa": replace(SIGMOID_ROUTER, masked=True, kernels=(EFFICIENT, EAGER)),
    "hy_v4": replace(SIGMOID_ROUTER, wide_sinks=True, kernels=(EAGER,)),
    "kimi_k2": SIGMOID_ROUTER,
    "mistral4": replace(SIGMOID_ROUTER, native_scores="raised", query_scale=True),
    "longcat_flash": replace(HF, looped="joined"),
    "diffllama": replace(HF, drops=NEVER),
    "doge": replace(HF, masked=True, kernels=(FLASH, EFFICIENT, EAGER), norms_inline=True),
    "biogpt": replace(HF, softmax="native"),
    "bloom": replace(HF_EAGER, norms_last=False, closure=("mask", "alibi")),
    "dbrx": replace(SIGMOID_ROUTER, new_shares=True, looped="apart"),
    "falcon": replace(HF, softmax="native", drops=ALIBI, ungrouped=True, turned=True, masked=True),
    "gpt_bigcode": replace(HF, buffers=(("mask", "bool"),), norms_last=False),
    "hunyuan_v1_moe": replace(HF, fp32_router=True),
    "jetmoe": replace(HF, router="tokens", wide_logits=True),
    "mpt": replace(HF_EAGER, mask="shared", drops=NEVER, norms_last=False),
    "openai-gpt": replace(
        HF_EAGER,
        softmax="native",
        positions="buffer",
        functions=(("gelu", "gelu_new"),),
        buffers=(IDS, ("masks", "")),
        norms_last=False,
    ),
    "opt": replace(HF, positions="each", closure=("each ids", "mask")),
    "phi4_multimodal": PARTIAL_ROTARY,
    "beam": replace(SIGMOID_ROUTER, rotary_fp32=True, by_kind=True, fp32_router=True, tempers_once=True),
    "cohere2_moe": replace(HF, router="tokens", new_shares=True),
    "cohere_compass_text": replace(HF, by_kind=True, positions="each"),
    "laguna": replace(PARTIAL_ROTARY, by_kind=True, router="tokens", new_shares=True, wide_logits=True),
    "mimo_v2_flash": replace(
        SIGMOID_ROUTER, softmax="native", shifts_scores=True, joins=True, by_kind=True, kernels=(EAGER,)
    ),
    "kimi_k25": replace(SIGMOID_ROUTER, copies_ids=True),
}


def record_of(model_type: str) -> Architecture:
    """Return the record of a decoder."""
    module, function = ADAPTERS[model_type].split(":")
    return Architecture(
        model_type,
        getattr(import_module(f"napkin.architectures.{module}"), function),
        implementation=_IMPLEMENTATIONS.get(model_type, HF),
    )


def wrapper_of(model_type: str) -> Wrapper:
    """Return the record of a multimodal model_type that contains one of these decoders."""
    return Wrapper(
        model_type,
        flat=model_type in _FLAT,
        unread="final_logit_softcapping" if model_type == "gemma3" else "",
        implementation=_IMPLEMENTATIONS.get(model_type),
    )

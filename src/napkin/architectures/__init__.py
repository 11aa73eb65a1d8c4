"""model_type → adapter. An adapter turns a config.json into a Model; only the one that is asked for is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module

from napkin.errors import Refused, did_you_mean
from napkin.inputs.load import printable
from napkin.inputs.model import Config, class_facts
from napkin.operations.model import Model
from napkin.record import replace

_ADAPTERS: dict[str, str] = {
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
    "kimi:bailing_hybrid": "bailing_hybrid",
    "kimi:kimi_linear": "kimi_linear",
    "deepseek_v4:build": "deepseek_v4",
    "dots3_note:build": "dots3_note_text",
    "inkling:build": "inkling_text",
    "latent:build": (
        "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa hy_v4 kimi_k2 minicpm3 mistral4 youtu"
    ),
    "latent:longcat": "longcat_flash",
    "deberta:deberta": "deberta",
    "deberta:deberta_v2": "deberta-v2",
    "encoder_decoder:bart": "bart",
    "encoder_decoder:blenderbot": "blenderbot",
    "encoder_decoder:blenderbot_small": "blenderbot-small",
    "encoder_decoder:led": "led",
    "encoder_decoder:m2m_100": "m2m_100",
    "encoder_decoder:marian": "marian",
    "encoder_decoder:mbart": "mbart",
    "encoder_decoder:mvp": "mvp",
    "encoder_decoder:nllb_moe": "nllb-moe",
    "encoder_decoder:pegasus": "pegasus",
    "encoder_decoder:plbart": "plbart",
    "encoder_decoder:switch_transformers": "switch_transformers",
    "encoder_decoder:t5": "mt5 t5",
    "encoder_decoder:umt5": "umt5",
    "encoders:albert": "albert",
    "encoders:bert": "bert",
    "encoders:bert_generation": "bert-generation",
    "encoders:distilbert": "distilbert",
    "encoders:electra": "electra",
    "encoders:ernie": "ernie",
    "encoders:esm": "esm",
    "encoders:eurobert": "eurobert",
    "encoders:gte": "gte",
    "encoders:jina_embeddings_v3": "jina_embeddings_v3",
    "encoders:longformer": "longformer",
    "encoders:megatron_bert": "megatron-bert",
    "encoders:modernbert": "modernbert",
    "encoders:modernbert_decoder": "modernbert-decoder",
    "encoders:mpnet": "mpnet",
    "encoders:nomic_bert": "nomic_bert",
    "encoders:rembert": "rembert",
    "encoders:roberta": "camembert data2vec-text roberta xlm-roberta",
    "encoders:roberta_prelayernorm": "roberta-prelayernorm",
    "encoders:roformer": "roformer",
    "encoders:xlm_roberta_xl": "xlm-roberta-xl",
    "mobilebert:mobilebert": "mobilebert",
    "delta:olmo_hybrid": "olmo_hybrid",
    "delta:qwen3_5": "qwen3_5_text",
    "delta:qwen3_5_moe": "qwen3_5_moe_text",
    "delta:qwen3_next": "qwen3_next",
    "gemma:gemma3n": "gemma3n_text",
    "gemma:gemma4": "gemma4_text gemma4_unified_text",
    "recurrent:lfm2": "lfm2",
    "recurrent:lfm2_moe": "lfm2_moe",
    "recurrent:lfm3": "lfm3",
    "recurrent:minimax": "minimax",
    "recurrent:recurrent_gemma": "recurrent_gemma",
    "recurrent:rwkv": "rwkv",
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
    "t5gemma:t5gemma": "t5gemma",
    "t5gemma:t5gemma2": "t5gemma2",
    "state_space:bamba": "bamba",
    "state_space:falcon_h1": "falcon_h1",
    "state_space:falcon_mamba": "falcon_mamba",
    "state_space:granite_moe_hybrid": "granitemoehybrid",
    "state_space:jamba": "jamba",
    "state_space:mamba": "mamba",
    "state_space:mamba2": "mamba2",
    "state_space:nemotron_h": "nemotron_h",
    "qwen4_exp:build": "qwen4_exp_text",
    "xlstm:xlstm": "xlstm",
    "zamba:zamba": "zamba",
    "zamba:zamba2": "zamba2",
    "zaya:zaya": "zaya",
}

ADAPTERS: dict[str, str] = {
    model_type: adapter for adapter, model_types in _ADAPTERS.items() for model_type in model_types.split()
}
"""model_type → module:function in this package."""

WRAPPERS: dict[str, str] = {
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
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
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
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    "lighton_ocr": "qwen3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "minicpmv4_6": "qwen3_5_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral",
    "nemotron_h_omni": "nemotron_h",
    "ovis2": "qwen2",
    "paligemma": "gemma",
    "perception_lm": "llama",
    "qianfan_ocr": "qwen3",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen4_exp": "qwen4_exp_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
}
"""Multimodal model_type → the model_type that its text_config has where it does not say."""

_FLAT = ("dots3_note", "fuyu", "qwen2_vl", "qwen2_5_vl")
"""Those whose published files hold the language model's fields on the outer level."""

_APART = ("gemma3n", "gemma4", "gemma4_unified", "kimi_k25")
"""Those whose code treats text otherwise than their language model's own class, which is the family of all others."""

_PREDICTION = "mtp_config"
"""Where a published file says what its multi-token prediction layers are, outside of the language model's fields."""

_HELPERS = ("gemma4_assistant", "gemma4_unified_assistant")
"""Those that read another model's keys and hidden states, and have no loss."""

_UNREAD = {"gemma3": "final_logit_softcapping"}
"""A language model's field that the class holding it does not heed."""

_OTHER_SENSES = re.compile(
    r"(vision|visual|image|video|audio|speech|mm|boi|eoi|boa|eoa|projector|projection|multimodal|spatial|media|vt|merge"
    r"|pixel_shuffle|downsample|alignment|adapter|anyres|use_image|perceiver|resampler|tokens_per"
    r"|scale_factor|qformer|num_query_tokens|high_res_vision|patch_size|num_channels)(_.*)?"
)


def build(config: Config, assume_ignorable: Sequence[str] = ()) -> Model:
    """The model that a config.json describes. Refused (3): a model_type or a field that napkin does not know."""
    text = text_model(config)
    model = _adapter(text)(text)
    config.finish(assume_ignorable)
    family = config.model_type if config.model_type in _APART else text.model_type
    return replace(model, notes=(*model.notes, *config.notes), family=family)


def _adapter(config: Config) -> Callable[[Config], Model]:
    name = config.model_type
    if name not in ADAPTERS:
        raise Refused(
            f"{config.document.place(*config.prefix, 'model_type')}: napkin does not know {printable(name, 60)!r}",
            did_you_mean(name, (*ADAPTERS, *WRAPPERS)) or "docs/adding-an-architecture.md shows how to add it",
        )
    module, function = ADAPTERS[name].split(":")
    adapter: Callable[[Config], Model] = getattr(import_module(f"{__name__}.{module}"), function)
    return adapter


def text_model(config: Config) -> Config:
    """The language model of a multimodal config, with what the outer level says about it; else the config itself."""
    stored = config.raw("quantization_config", required=False)
    if stored is not None:
        method = stored.get("quant_method") if isinstance(stored, dict) else None
        how = f", stored as {printable(method, 40)}" if isinstance(method, str) else ""
        config.notes.append(f"a quantised checkpoint{how}: its logical parameters are counted")
    if not (config.model_type in WRAPPERS or (config.model_type not in ADAPTERS and config.has("text_config"))):
        return config
    name = printable(config.model_type, 40)
    if config.model_type in _HELPERS:
        raise config.refuse("model_type", f"{name} reads another model's keys and has no training step of its own")
    config.notes.append(f"the language model of {name} alone is counted, vision and other senses left out")
    config.ignore(*(field for field in config.fields if _OTHER_SENSES.fullmatch(field)), "architectures")
    if config.model_type in _FLAT and not config.has("text_config"):
        config.model_type = WRAPPERS[config.model_type]
        config.defaults, config.aliases = class_facts(config.model_type)
        return config
    if config.raw(_PREDICTION, required=False) is not None:
        config.notes.append("multi-token prediction layers of the checkpoint not counted")
    text = config.nested("text_config", WRAPPERS.get(config.model_type) or None)
    if config.model_type in _UNREAD:
        text.fields = {**text.fields, _UNREAD[config.model_type]: None}
    _settle_tie(config, text)
    config.ignore(*(f for f, value in config.fields.items() if f in text.fields and text.fields[f] == value))
    return text


def _settle_tie(config: Config, text: Config) -> None:
    """tie_word_embeddings may stand on either level; where neither says it, both classes must agree."""
    field = "tie_word_embeddings"
    outer = config.raw(field, required=False)
    if config.has(field) and text.has(field) and text.raw(field) != outer:
        release = _release(config)
        if release is None:
            raise config.refuse(
                field, "contradicts text_config's, and releases differ in which they follow", "make them agree"
            )
        if release >= 5:  # the whole's since transformers 5, the language model's before
            text.origins[field] = config.origins[field]
            text.fields = {**text.fields, field: outer}
        return
    if outer is None or text.has(field):
        return
    if not config.has(field) and text.defaults.get(field) not in (None, outer):
        raise config.refuse(field, "is missing, and the two classes' defaults differ", f"add {field}: true or false")
    text.origins[field] = (outer, config.origins[field][1])
    text.fields = {**text.fields, field: outer}
    text.used.add(field)


def _release(config: Config) -> int | None:
    """The major version of transformers that wrote the file, where it says so."""
    written = config.raw("transformers_version", required=False)
    found = re.match(r"(\d{1,3})\.", written) if isinstance(written, str) else None
    return int(found[1]) if found else None

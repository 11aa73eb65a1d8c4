"""Small configs of a model type, drawn with their flags and functions, and the class of transformers that runs them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import transformers
from special_configs import EXPERTS, SPECIAL, experts_and_ranks

from napkin.architectures import WRAPPERS
from napkin.architectures.masked import NEXT_TOKEN

DROPOUT = 0.1


MASKED, WHOLE = transformers.AutoModelForMaskedLM, transformers.AutoModelForImageTextToText
SPEECH = transformers.AutoModelForSpeechSeq2Seq
SEQUENCES = (transformers.AutoModelForSeq2SeqLM, SPEECH)
HOLDERS = {text: holder for holder, text in reversed(WRAPPERS.items())} | {"mistral4": "mistral3"}
"""Language models → the class that holds them, for those that have no head of their own."""
BORROWED = {"kimi_k2": "deepseek_v3"}
"""Model types that are published to run by another's class (`architectures` of their config.json)."""


class OneClass:
    """A class that no automatic one knows, called like an automatic class."""

    def __init__(self, module: str, name: str) -> None:
        self.made = getattr(getattr(transformers.models, module), name)
        self._model_mapping = {self.made.config_class: self.made}

    def from_config(self, config: Any, **how: Any) -> Any:
        """Return the model."""
        return self.made._from_config(config, **how)


ONE_CLASS = {
    "udop": ("udop", "UdopForConditionalGeneration"),
    "evolla": ("evolla", "EvollaForProteinText2Text"),
    "blip_text_model": ("blip", "BlipTextLMHeadModel"),
    "pix2struct_text_model": ("pix2struct", "Pix2StructTextModel"),
}
"""Language models whose class with a head is under no automatic class."""


TWO_STACKS = ("udop",)
"""Encoder-decoders that no automatic class of such has."""


def head_of(model_type: str) -> Any:
    """Return the automatic class with the head that a model type is trained with."""
    if model_type in ONE_CLASS:
        return OneClass(*ONE_CLASS[model_type])
    whole = transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    if model_type in WRAPPERS or model_type in whole:
        return WHOLE
    if model_type in transformers.models.auto.modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES:
        return SPEECH
    if model_type in transformers.models.auto.modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return transformers.AutoModelForSeq2SeqLM
    masked = transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if model_type in masked:
        return transformers.AutoModelForMaskedLM
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return WHOLE if model_type in HOLDERS and model_type not in causal else transformers.AutoModelForCausalLM


def head_for(fields: dict[str, Any]) -> Any:
    """Return the automatic class with the head of the class that a config names, else of its model type."""
    if any(name.endswith(NEXT_TOKEN) for name in fields.get("architectures", ())):
        return transformers.AutoModelForCausalLM
    return head_of(fields["model_type"])


def _as_decoder(model_type: str, rng: random.Random) -> dict[str, Any]:
    """Draw whether an encoder runs as a decoder, where its class can, and in which of its two classes."""
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type, "")
    if head_of(model_type) is not MASKED or not causal.endswith(NEXT_TOKEN) or rng.random() < 0.5:
        return {}
    own = {"is_decoder": rng.random() < 0.8}
    own["add_cross_attention"] = own["is_decoder"] and rng.random() < 0.3
    return own | ({"architectures": [causal]} if rng.random() < 0.8 else {})


class Shape(NamedTuple):
    """What is drawn for one case."""

    fields: dict[str, Any]
    sequences: int
    length: int
    target: int = 0


def batch_of(shape: Shape, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Return the arguments of one training step; what is not a token has this dtype."""
    ids, labels = (
        torch.arange(shape.sequences * n).view(shape.sequences, n) % 97
        for n in (shape.length, shape.target or shape.length)
    )
    head = head_for(shape.fields)
    if head is SPEECH:
        features = torch.zeros(shape.sequences, shape.fields["num_mel_bins"], 2 * shape.length, dtype=dtype)
        return {"input_features": features, "labels": labels, "use_cache": False}
    return {"input_ids": ids, "labels": labels, **({} if head is MASKED else {"use_cache": False}), **unseen(shape)}


def unseen(shape: Shape) -> dict[str, Any]:
    """Return arguments without which a class does not run on text alone; nothing reads them."""
    if shape.fields["model_type"] == "idefics":
        seen = torch.zeros(shape.sequences, 1, 1, 1)
        return {"image_encoder_embeddings": seen, "image_attention_mask": torch.zeros(shape.sequences, shape.length, 1)}
    if shape.fields["model_type"] == "pp_formulanet_text":
        return {"encoder_outputs": transformers.modeling_outputs.BaseModelOutputWithPooling()}
    if shape.fields["model_type"] == "roc_bert":  # which a tokenizer gives
        ids = torch.zeros(shape.sequences, shape.length, dtype=torch.long)
        return {"input_shape_ids": ids, "input_pronunciation_ids": ids}
    if shape.fields["model_type"] == "udop":
        return {"bbox": torch.zeros(shape.sequences, shape.length, 4)}
    return {}


WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
DEPTH = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
)
INNER = (
    "intermediate_size",
    "ffn_dim",
    "n_inner",
    "dff",
    "ffn_hidden_size",
    "intermediate_size_mlp",
    "d_ff",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "hidden_dim",
)
LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len")
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
FUNCTIONS = (
    *("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "gelu_fast", "gelu_10"),
    *("gelu_python", "gelu_python_tanh", "gelu_accurate", "mish", "leaky_relu", "relu6", "sigmoid", "tanh", "linear"),
)
UNDRAWN = (
    "add_cross_attention",
    "is_decoder",
    "is_encoder_decoder",
    "output_",
    "return_dict",
    "use_cache",
    "use_bidirectional",
    "init",
    "summary",
)
"""Fields that make another network of it, or change nothing here (by the beginning of their names)."""


def draw(model_type: str, rng: random.Random, dropout: float) -> Shape:
    """Draw a small config of a model type, with its flags and functions, and the batch it runs on."""
    if model_type in WRAPPERS:
        shape = draw(WRAPPERS[model_type], rng, dropout)
        tied = shape.fields.get("tie_word_embeddings", False)
        whole = {"model_type": model_type, "text_config": shape.fields, "tie_word_embeddings": tied}
        return shape._replace(fields=whole)
    config = transformers.AutoConfig.for_model(BORROWED.get(model_type, model_type))
    own = {
        name: value
        for name, value in config.to_dict().items()
        if name not in config.attribute_map and not name.startswith(UNDRAWN)
    }
    fields: dict[str, Any] = {"model_type": model_type}

    def put(names: Sequence[str], value: Any) -> None:
        fields.update((name, value) for name in names if name in own)

    heads, size, layers = rng.choice((2, 4, 6)), rng.choice((8, 12, 16, 24)), rng.choice((2, 4))
    length = rng.choice((32, 33, 40, 64))
    put(WIDTH, heads * size)
    put(DEPTH, layers)
    put(HEADS, heads)
    put(("num_key_value_heads", "num_kv_heads"), rng.choice([n for n in (1, 2, heads) if heads % n == 0]))
    if "head_dim" in own and rng.random() < 0.5:
        fields["head_dim"] = rng.choice((8, 16, 20, 24, 264))
    put(INNER, rng.choice((72, 104, 144)))
    put(("vocab_size",), rng.choice((97, 160)))
    put(LENGTH, rng.choice((length, 128)))
    window = rng.choice((None, 16, 4096))
    put(WINDOWS, (window or 4096) if any(own.get(name) is not None for name in WINDOWS) else window)
    put(("layer_types",), [rng.choice(("full_attention", "sliding_attention")) for _ in range(layers)])
    put(("max_window_layers",), rng.choice((0, 1, layers)))
    put(("partial_rotary_factor", "rotary_pct"), rng.choice((0.25, 0.5, 1.0)))
    put(("hidden_act", "hidden_activation", "activation_function", "activation", "afn"), rng.choice(FUNCTIONS))
    put(("clip_qkv",), rng.choice((None, 4.0)))
    put(("attn_logit_softcapping", "final_logit_softcapping"), rng.choice((None, 30.0)))
    if any(name in own for name in (*EXPERTS, "kv_lora_rank")):
        fields.update(experts_and_ranks(rng, own, layers, heads))
    for name, value in own.items():
        if isinstance(value, bool) and name not in fields:
            fields[name] = rng.random() < 0.5 if rng.random() < 0.5 else value
        elif isinstance(value, float) and "drop" in name:
            fields[name] = 0.0 if "layer" in name else dropout
        elif name.endswith("_token_id") and isinstance(value, int):
            fields[name] = 1
    if head_of(model_type) is WHOLE:
        fields["tie_word_embeddings"] = rng.random() < 0.5
    if "layer_types" in fields and not (window and fields.get("use_sliding_window", True)):
        del fields["layer_types"]
    if model_type in SPECIAL:
        fields.update(SPECIAL[model_type](rng, fields))
    fields.update(_as_decoder(model_type, rng))
    if "attention_window" in fields:
        length -= length % 16  # whole windows: what is padded to them is not a token of the batch's
    if "max_source_positions" in fields:
        length = fields["max_source_positions"]
    if "lsh_attn_chunk_length" in fields:  # whole chunks
        length = 64
    if "block_size" in fields and "num_random_blocks" in fields:  # whole blocks
        length = max(length - length % fields["block_size"], 16)
    if "block_per_row" in fields:  # whole blocks, as many as are chosen of them
        length = fields["max_position_embeddings"]
    two = head_of(model_type) in SEQUENCES or model_type in TWO_STACKS
    return Shape(fields, 0, length, rng.choice((length, 24)) if two else 0)


def has_dropout(model_type: str) -> bool:
    """Whether a class has any."""
    fields = draw(model_type, random.Random(0), DROPOUT).fields
    return DROPOUT in fields.get("text_config", fields).values()

"""Moshi's language model (arXiv:2410.00037).

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0 (src/transformers/models/moshi/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import RMS_FP32
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Inner
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.mixture import Feed
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.record import replace


def _untied(config: Config) -> Dimensions:
    """Read the dimensions: one row more than the head, no weights to tie, and no window in the masks."""
    config.ignore("tie_word_embeddings", "sliding_window")
    config.restate("tie_word_embeddings", False)
    return replace(dimensions(config), more_rows=1)


def _halved(config: Config, usual: Feed) -> Feed:
    """Return the gated MLP: one linear layer of `ffn_dim` for gate and up together."""
    joined = config.integer("ffn_dim")
    if joined % 2:
        raise config.wrong("ffn_dim", f"{joined} is odd, and half of it gates the other half")
    return partial(usual, inner=joined // 2, fused=True)


def _moshi(config: Config) -> Model:
    """Return Moshi's temporal transformer with the head for text: what the class with a causal head builds.

    The token embedding has one row more than the head. The codec, the embeddings of its codes and the depth
    transformer are in another class."""
    config.ignore("num_codebooks", "audio_vocab_size", "audio_encoder_config", "depth_decoder_config")
    config.notes.append("the codec, its embeddings and the depth transformer are not counted, as in MoshiForCausalLM")
    return Decoder(norm=RMS_FP32, sizes=_untied, inner=Inner("ffn_dim"), feed_forward=_halved)(config)


MOSHI = Architecture(
    "moshi",
    _moshi,
    config_class="MoshiConfig",
    defaults={
        "ffn_dim": 22528, "head_dim": None, "hidden_act": "silu", "max_position_embeddings": 3000,
        "num_attention_heads": 32, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    implementation=replace(HF, rotary="values", fp32_norm_weight=True, buffers=(("each rotary", "fp32"),)),
    modules={
        "q": "self_attn.q_proj.linear", "k": "self_attn.k_proj.linear", "v": "self_attn.v_proj.linear",
        "o": "self_attn.o_proj.linear", "gate_up": "mlp.fc1", "down": "mlp.fc2",
    },
)  # fmt: skip

ARCHITECTURES = (MOSHI,)

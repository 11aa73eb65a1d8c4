"""Baichuan 1 and 2, whose code comes with their weights: Llama with fused projections. The 7B rotates, the 13B has
ALiBi; both have the model_type `baichuan`."""

from __future__ import annotations

from functools import partial

from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import scored
from napkin.architectures.dimensions import dimensions
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.model import Model
from napkin.record import replace


def baichuan(config: Config) -> Model:
    """Return Baichuan: only the 13B's configuration class has no max_position_embeddings, because it does not rotate
    (configuration_baichuan.py of Baichuan2-7B-Base and Baichuan2-13B-Base). Baichuan 2 states the weight of its z-loss,
    and its head normalizes its weights."""
    config.ignore("z_loss_weight", "_from_model_config")
    if config.has("z_loss_weight"):
        config.notes.append("Baichuan 2 normalizes the weights of its head in each forward pass: that copy is left out")
    if config.has("max_position_embeddings"):
        config.ignore("model_max_length")
        return _ROTATED(config)
    return _ALIBI(config)


_ROTATED = Decoder(fused=True, sizes=partial(dimensions, kv_heads="", own_head_dim=False))
_ALIBI = replace(
    _ROTATED,
    rotary=None,
    sizes=partial(dimensions, kv_heads="", own_head_dim=False, max_length="model_max_length"),
    attention=scored(position="alibi"),
)

BAICHUAN = Architecture(
    "baichuan",
    baichuan,
    defaults={"hidden_act": "silu", "tie_word_embeddings": False},
    modules={"qkv": "self_attn.W_pack"},
)
ARCHITECTURES = (BAICHUAN,)

"""The decoder that Megatron-LM builds from its options, which no class of transformers is: any norm, positions,
activation, biases and experts together (NVIDIA/Megatron-LM megatron/core/models/gpt/gpt_model.py,
megatron/core/transformer/transformer_config.py)."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.blocks import LAYER, RMS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, NormedHeads, RotaryPositions, activation_in, always
from napkin.architectures.families.decoders.gpt2 import DROPPED
from napkin.architectures.layer_plans import all_sparse, listed_or
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.model import Model

NORMS = {"LayerNorm": LAYER, "RMSNorm": RMS}
POSITIONS = ("learned_absolute", "rope", "none")


def megatron(config: Config) -> Model:
    """Return the decoder: pre-norm layers with dropout behind each branch and behind the embedding.

    Query, key and value are one product, of which attention's kernel reads copies (transformer_engine/pytorch/
    attention/dot_product_attention/utils.py, get_qkv_layout): they are kept as if they were made apart."""
    norm = NORMS[config.text("normalization", known=tuple(NORMS))]
    position = config.text("position_embedding_type", known=POSITIONS)
    gated = config.flag("gated")
    experts = Mixture(
        "num_experts",
        where=listed_or(all_sparse),
        shared=as_wide_as("moe_shared_expert_intermediate_size"),
        gated=gated,
    )
    if position != "learned_absolute":
        config.ignore("max_position_embeddings")
    return Decoder(
        norm=norm,
        arrangement=always(partial(pre_norm, dropout=DROPPED)),
        bias="attention_bias",
        out_bias="mlp_bias",
        qk_norm=NormedHeads(norm, switch="qk_layernorm"),
        rotary=RotaryPositions() if position == "rope" else None,
        function=activation_in("hidden_act"),
        gated=gated,
        mlp_bias="mlp_bias",
        experts=experts if config.has("num_experts") else None,
        embedding=Embedded(positions=0 if position == "learned_absolute" else None, dropout=True),
        predicts=True,
    )(config)


MEGATRON = Architecture(
    "megatron",
    megatron,
    defaults={
        "normalization": "LayerNorm", "position_embedding_type": "learned_absolute", "hidden_act": "gelu",
        "gated": False, "attention_bias": True, "mlp_bias": True, "qk_layernorm": False,
        "tie_word_embeddings": True, "num_experts_per_tok": 2,
    },
)  # fmt: skip
ARCHITECTURES = (MEGATRON,)

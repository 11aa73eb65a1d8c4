"""Snowflake Arctic: a dense feed-forward network in each layer, and a mixture of experts in parallel to both branches.

Fields and structure are those of its published code (Snowflake/snowflake-arctic-instruct, configuration_arctic.py and
modeling_arctic.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.arrangements import Arrangement, pre_norm
from napkin.architectures.blocks import Block, NormStyle, Operations, gated_mlp
from napkin.architectures.decoder import Decoder
from napkin.architectures.mixture import Mixture
from napkin.architectures.reading import activation, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.pointwise import Add


def _beside(config: Config) -> Arrangement:
    """Return y = x + attend(norm(x)); z = y + dense(norm(y)) + experts(norm(x)): the dense network is as wide inside as
    outside. The experts read the layer's input unless parallel_attn_mlp_res is false."""
    hidden = width(config)
    config.must_be("parallel_attn_mlp_res", True)
    config.must_be("use_residual", True)
    dense = partial(
        gated_mlp, width=hidden, inner=hidden, function=activation(config, "hidden_act"), prefix="residual_"
    )

    def arranged(width: int, norm: NormStyle, attend: Block, feed: Block) -> Operations:
        experts = feed("experts_norm")
        return (
            *pre_norm(width, norm, attend, dense),
            norm("experts_norm", "x", width),
            *experts,
            Add("experts_residual", ("mlp_residual", experts[-1].name), width),
        )

    return arranged


def _each(config: Config, layers: int) -> Callable[[int], bool]:
    """Refuse experts in some layers only."""
    config.must_be("moe_layer_frequency", 1)
    return lambda i: True


ARCTIC = Architecture(
    "arctic",
    Decoder(
        arrangement=_beside,
        bias="attention_bias",
        out_bias="attention_bias",
        experts=Mixture(inner="intermediate_size", where=_each, normalize=True, upcast=True),
        ignored=(
            *("enc_index", "enable_expert_tensor_parallelism", "moe_eval_capacity_factor", "moe_min_capacity"),
            *("moe_token_dropping", "moe_train_capacity_factor", "num_local_experts", "quantization"),
        ),
    ),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "moe_layer_frequency": 1, "num_experts_per_tok": 1,
        "parallel_attn_mlp_res": True, "tie_word_embeddings": False, "use_residual": True,
    },
    modules={
        "residual_gate": "residual_mlp.w1", "residual_down": "residual_mlp.w2", "residual_up": "residual_mlp.w3",
        "router": "block_sparse_moe.gate",
    },
)  # fmt: skip

ARCHITECTURES = (ARCTIC,)

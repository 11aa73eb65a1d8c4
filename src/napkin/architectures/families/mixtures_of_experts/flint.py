"""Flint and Kolibri: sigmoid routing, rotary positions only in layers with a window."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.blocks import RMS, RMS_FP32
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, always, scored
from napkin.architectures.layer_plans import Windows, every, in_windows_if_any, laid_out, stepped
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import EAGER, SIGMOID_ROUTER
from napkin.record import replace


def _flint_windows(i: int, layers: int) -> str:
    """Full attention in the first two layers, in each fourth one from the second on, and in the last."""
    return FULL if i < 2 or i % 4 == 1 or i == layers - 1 else WINDOWED


def _after_two(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in each n-th layer, except those listed as dense: the first two if no list says it."""
    sparse = stepped(config, layers)
    if config.items("mlp_only_layers", required=False) is not None:
        return sparse
    return lambda i: i > 1 and sparse(i)


FLINT = Architecture(
    "flint",
    Decoder(
        norm=RMS_FP32,
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS_FP32),
        windows=Windows(laid_out(_flint_windows)),
        rotates=in_windows_if_any,
        attention=scored(sinks=True, upcast=True),
        experts=Mixture(
            "num_experts",
            where=_after_two,
            shared=as_wide_as("shared_expert_intermediate_size"),
            score="sigmoid",
            normalize="norm_topk_prob",
            upcast=True,
            balances=True,
        ),
    ),
    config_class="FlintConfig",
    implementation=replace(
        SIGMOID_ROUTER,
        softmax="narrowed",
        shares=new_shares,
        fp32_router=True,
        router_apart=True,
        fp32_logits=True,
        sinks="joined",
        fp32_weights=("mlp.gate/weight", "/sinks"),
        kernels=(EAGER,),
        norms_inline=True,
    ),
    defaults={
        "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
        "intermediate_size": 6144, "layer_types": None, "max_position_embeddings": 262144, "mlp_only_layers": None,
        "moe_intermediate_size": 512, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 256,
        "num_experts_per_tok": 6, "num_key_value_heads": 4, "shared_expert_intermediate_size": 1024,
        "sliding_window": 513, "tie_word_embeddings": False, "vocab_size": 150144,
    },
    modules={
        "shared/gate": "mlp.shared_expert.gate_proj", "shared/up": "mlp.shared_expert.up_proj",
        "shared/down": "mlp.shared_expert.down_proj",
    },
)  # fmt: skip
KOLIBRI1 = Architecture(
    "kolibri1",
    Decoder(
        arrangement=always(sandwich_norm),
        qk_norm=NormedHeads(RMS),
        windows=every(5),
        rotates=in_windows_if_any,
        experts=Mixture(
            shared=as_wide_as("shared_expert_intermediate_size"),
            score="sigmoid_top_k",
            normalize="norm_topk_prob",
            upcast=True,
            balanced="buffer",
        ),
    ),
    config_class="Kolibri1Config",
    aliases={"num_experts": "num_local_experts"},
    implementation=replace(SIGMOID_ROUTER, shares=new_shares),
    defaults={
        "head_dim": 128, "hidden_act": "silu", "layer_types": None, "max_position_embeddings": 262144,
        "moe_intermediate_size": 512, "norm_topk_prob": False, "num_attention_heads": 48, "num_experts_per_tok": 6,
        "num_key_value_heads": 4, "num_local_experts": 384, "shared_expert_intermediate_size": 512,
        "sliding_window": 513, "tie_word_embeddings": False, "vocab_size": 128000,
    },
)  # fmt: skip

ARCHITECTURES = (FLINT, KOLIBRI1)

"""Beam (reflection): four norms per layer around residuals scaled by depth, gated attention, rotary positions only in
layers with a window; activations and matmuls of the feed-forward in fp32."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.attention_parts import Gate, Scaling
from napkin.architectures.blocks import RMS_FP32, Gating, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Headed, NormedHeads, Vary, always
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.layer_plans import Windows, as_parameters_say, laid_out, listed_or
from napkin.architectures.mixture import SIGMOID
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import ROUTED, SIGMOID_ROUTER
from napkin.record import replace


def _by_position(config: Config, sizes: Dimensions) -> Vary:
    """Multiply queries of layers without rotary positions by a factor of their position."""
    return lambda usual, plan: replace(usual, scaling=Scaling(by_position=plan.table is None, once=True))


def _windows(i: int, layers: int) -> str:
    return WINDOWED if (i + 1) % 6 and i + 1 < layers else FULL


BEAM = Architecture(
    "beam",
    Decoder(
        norm=RMS_FP32,
        arrangement=always(partial(sandwich_norm, scale=True)),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS_FP32),
        windows=Windows(laid_out(_windows), required=True),
        rotates=as_parameters_say,
        attention=lambda config, usual: replace(usual, gate=Gate(head_bias=True)),
        layer=_by_position,
        feed_forward=lambda config, usual: partial(usual, gating=Gating(upcast=True)),
        head=Headed(softcap="final_logit_softcapping", fp32=True),
        experts=replace(
            SIGMOID,
            experts="num_experts",
            where=listed_or(lambda config, layers: lambda i: i >= 3),
            shared=None,
            block=partial(moe, scaled=True, gating=Gating(upcast=True)),
        ),
    ),
    config_class="BeamConfig",
    implementation=replace(
        SIGMOID_ROUTER, rotary_fp32=True, by_kind=True, fp32_router=True, fp32_weights=("mlp.gate/weight",),
        registers_first=(ROUTED,),
    ),
    defaults={
        "attention_bias": False, "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "silu",
        "intermediate_size": 20480, "layer_types": None, "max_position_embeddings": 8192, "mlp_layer_types": None,
        "moe_intermediate_size": 2560, "n_group": 8, "norm_topk_prob": True, "num_attention_heads": 48,
        "num_experts": 256, "num_experts_per_tok": 8, "num_key_value_heads": 8, "sliding_window": 512,
        "tie_word_embeddings": False, "topk_group": 4, "vocab_size": 151936,
    },
    modules={
        "gate_logit": "self_attn.gate_proj",
    },
)  # fmt: skip

ARCHITECTURES = (BEAM,)

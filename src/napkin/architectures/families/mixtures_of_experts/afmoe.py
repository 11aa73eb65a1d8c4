"""AFMoE (Arcee's Trinity): four norms per layer, gated attention, rotary positions only in layers with a window."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.attention_parts import Gate
from napkin.architectures.blocks import RMS_FP32, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, NormedHeads, always
from napkin.architectures.layer_plans import every, in_windows
from napkin.architectures.mixture import Mixture, counted
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import HF
from napkin.record import replace


def _after_dense(config: Config, layers: int) -> Callable[[int], bool]:
    """Dense for the first num_dense_layers."""
    dense = config.integer("num_dense_layers", least=0)
    return lambda i: i >= dense


# unknown to the class
AFMOE = Architecture(
    "afmoe",
    Decoder(
        norm=RMS_FP32,
        arrangement=always(sandwich_norm),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS_FP32),
        windows=replace(every(4, "global_attn_every_n_layers"), required=True),
        rotates=in_windows,
        attention=lambda config, usual: replace(usual, gate=Gate(), gate_first=True),
        embedding=Embedded(scale="mup_enabled"),
        experts=Mixture(
            "num_experts",
            where=_after_dense,
            shared=counted("num_shared_experts"),
            score="sigmoid",
            normalize=True,
            balanced="parameter",
            block=partial(moe, shared_first=True),
        ),
        only=(("route_norm", (True,)), ("score_func", ("sigmoid",))),
        ignored=("num_expert_groups", "num_limited_groups", "use_grouped_mm"),
    ),
    config_class="AfmoeConfig",
    implementation=replace(
        HF, router="scores", shares=new_shares, fp32_weights=("router.gate/balance",),
        fp16_excepts=("norm/weight",),
    ),
    defaults={
        "attention_bias": False, "global_attn_every_n_layers": 4, "head_dim": 128, "hidden_act": "silu",
        "intermediate_size": 6144, "layer_types": None, "max_position_embeddings": 16384,
        "moe_intermediate_size": 1408, "mup_enabled": False, "num_attention_heads": 16, "num_dense_layers": 1,
        "num_experts": 64, "num_experts_per_tok": 6, "num_key_value_heads": None, "num_shared_experts": 2,
        "sliding_window": 1024, "tie_word_embeddings": False, "vocab_size": 200192,
    },
    modules={
        "gate_logit": "self_attn.gate_proj", "router": "mlp.router.gate",
    },
)  # fmt: skip

ARCHITECTURES = (AFMOE,)

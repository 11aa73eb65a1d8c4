"""EXAONE 4 and K-EXAONE: rotary positions only in layers with a window."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.arrangements import output_norm, pre_norm
from napkin.architectures.blocks import RMS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, always
from napkin.architectures.layer_plans import Windows, by_type, every, in_windows_if_any
from napkin.architectures.mixture import SIGMOID, counted
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROUTER
from napkin.record import replace


def _pattern(config: Config, layers: int) -> Callable[[int], str]:
    """sliding_window_pattern: a period, or letters as in LLLG (local and global), repeated."""
    value = config.raw("sliding_window_pattern", required=False)
    if isinstance(value, str) and value and not set(value) - set("LG"):
        return lambda i: WINDOWED if value[i % len(value)] == "L" else FULL
    return every(4, "sliding_window_pattern").pattern(config, layers)


EXAONE4 = Architecture(
    "exaone4",
    Decoder(
        arrangement=always(output_norm), qk_norm=NormedHeads(RMS), windows=Windows(_pattern), rotates=in_windows_if_any
    ),
    config_class="Exaone4Config",
    wrappers=(Wrapper("exaone4_5", former="exaone4_5_text"),),
    defaults={
        "hidden_act": "silu", "intermediate_size": 16384, "layer_types": None, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 4096, "sliding_window_pattern": 4,
        "tie_word_embeddings": False, "vocab_size": 102400,
    },
)  # fmt: skip
EXAONE_MOE = like(
    EXAONE4,
    "exaone_moe",
    arrangement=always(pre_norm),
    experts=replace(SIGMOID, experts="num_experts", where=by_type, shared=counted("num_shared_experts")),
    config_class="ExaoneMoeConfig",
    implementation=FP32_ROUTER,
    defaults={
        "first_k_dense_replace": 1, "mlp_layer_types": None, "moe_intermediate_size": 1024, "norm_topk_prob": True,
        "num_experts": 64, "num_experts_per_tok": 8, "num_shared_experts": 1,
    },
)  # fmt: skip

ARCHITECTURES = (EXAONE4, EXAONE_MOE)

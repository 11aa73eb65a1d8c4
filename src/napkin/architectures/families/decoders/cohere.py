"""Cohere's Command models: parallel branches under one norm, scaled logits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from napkin.architectures.arrangements import parallel
from napkin.architectures.blocks import LAYER_FP32, LAYER_FP32_PER_HEAD, RMS, Block, Operations, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Headed, Inner, NormedHeads, RotaryPositions, always
from napkin.architectures.dimensions import dimensions
from napkin.architectures.layer_plans import (
    AS_LISTED,
    Seen,
    Windows,
    as_parameters_say,
    every,
    in_windows_if_any,
    laid_out,
    listed_or,
)
from napkin.architectures.mixture import Mixture, counted
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.operations.pointwise import Scale
from napkin.record import replace


def _averaged_moe(source: str, *, width: int, shared: Block | None, **options: Any) -> Operations:
    """Return a mixture whose sum with the shared experts is divided by two."""
    operations = moe(source, width=width, shared=shared, **options)
    if shared is None:
        return operations
    return (*operations[:-1], replace(operations[-1], name="moe_sum"), Scale("moe", ("moe_sum",), width))


def cohere2_moe(config: Config) -> Model:
    """Return Command A+: experts after a dense prefix whose pattern of windows is its own; rotary positions in layers
    with a window, and in all of the prefix if it has none."""
    prefix = config.optional_integer("first_k_dense_replace", least=0) or 0
    own = config.integer("prefix_dense_sliding_window_pattern")
    period = config.integer("sliding_window_pattern")
    strategy = config.text("shared_expert_combination_strategy", known=("average", "sum"))
    choose = config.text("expert_selection_fn", known=("softmax", "sigmoid"))

    def kind(i: int, layers: int) -> str:
        place, turn = (i, own) if i < prefix else (i - prefix, period)
        return WINDOWED if (place + 1) % turn else FULL

    def rotates(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
        kinds = seen.kinds or [FULL] * len(sparse)
        everywhere = [own == 1 and not routed for routed in sparse]
        return [0 if one == WINDOWED or always else None for one, always in zip(kinds, everywhere, strict=True)]

    narrow = config.optional_integer("prefix_dense_intermediate_size") is not None
    config.ignore("prefix_dense_intermediate_size")
    rms = config.real("rms_norm_eps", required=False) is not None
    for field, value in (("use_qk_norm", False), ("use_parallel_block", True), ("use_gated_activation", True)):
        config.must_be(field, value)
    config.ignore("position_embedding_type", "use_embedding_sharing", "use_parallel_embedding")
    made = replace(
        _COHERE,
        norm=RMS if rms else LAYER_FP32,
        inner=Inner("prefix_dense_intermediate_size" if narrow else "intermediate_size"),
        windows=Windows(laid_out(kind), required=True),
        rotates=rotates,
        experts=Mixture(
            "num_experts",
            inner="intermediate_size",
            where=listed_or(lambda config, layers: lambda i: i >= prefix),
            shared=counted("num_shared_experts"),
            score=f"{choose}_top_k",
            normalize="norm_topk_prob" if choose == "sigmoid" else False,
            block=_averaged_moe if strategy == "average" else moe,
        ),
    )
    config.ignore("norm_topk_prob")
    return made(config)


_COHERE = Decoder(
    norm=LAYER_FP32,
    arrangement=always(partial(parallel, in_turn=True)),
    bias="attention_bias",
    out_bias="attention_bias",
    rotary=RotaryPositions("interleaved", upcast=True, once=True),
    head=Headed(scale=True),
)

COHERE = Architecture(
    "cohere",
    replace(_COHERE, qk_norm=NormedHeads(LAYER_FP32_PER_HEAD, switch="use_qk_norm")),
    config_class="CohereConfig",
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 22528, "max_position_embeddings": 8192,
        "num_attention_heads": 64, "num_key_value_heads": None, "tie_word_embeddings": True, "use_qk_norm": False,
        "vocab_size": 256000,
    },
)  # fmt: skip
COHERE2 = Architecture(
    "cohere2",
    replace(
        _COHERE,
        windows=every(4, "sliding_window_pattern"),
        rotates=in_windows_if_any,
        ignored=(
            "layer_switch",
            "order_of_interleaved_layers",
            "position_embedding_type",
            "use_embedding_sharing",
            "use_gated_activation",
            "use_parallel_block",
            "use_parallel_embedding",
        ),
    ),
    config_class="Cohere2Config",
    aliases={"_sliding_window_pattern": "sliding_window_pattern"},
    wrappers=(
        Wrapper("aya_vision"),
        Wrapper(
            "cohere2_vision",
            config_class="Cohere2VisionConfig",
            defaults={"alignment_intermediate_size": 36864, "downsample_factor": 2},
        ),
    ),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 22528, "layer_types": None,
        "max_position_embeddings": 8192, "num_attention_heads": 64, "num_key_value_heads": None,
        "sliding_window": 4096, "sliding_window_pattern": 4, "tie_word_embeddings": True, "vocab_size": 256000,
    },
)  # fmt: skip
COHERE2_MOE = Architecture(
    "cohere2_moe",
    cohere2_moe,
    config_class="Cohere2MoeConfig",
    implementation=replace(HF, router="tokens", shares=new_shares),
    defaults={
        "attention_bias": False, "expert_selection_fn": "softmax", "head_dim": 128, "hidden_act": "silu",
        "intermediate_size": 22528, "layer_types": None, "max_position_embeddings": 8192, "mlp_layer_types": None,
        "norm_topk_prob": True, "num_attention_heads": 64, "num_experts": 8, "num_experts_per_tok": 2,
        "num_key_value_heads": None, "num_shared_experts": 0, "prefix_dense_intermediate_size": None,
        "prefix_dense_sliding_window_pattern": 1, "shared_expert_combination_strategy": "average",
        "sliding_window": 4096, "sliding_window_pattern": 4, "tie_word_embeddings": True, "vocab_size": 256000,
    },
)  # fmt: skip
COHERE_COMPASS = Architecture(
    "cohere_compass_text",
    replace(
        _COHERE,
        sizes=partial(dimensions, own_head_dim=False),
        rotary=RotaryPositions(),
        windows=replace(AS_LISTED, required=True),
        rotates=as_parameters_say,
    ),
    config_class="CohereCompassTextConfig",
    implementation=replace(HF, by_kind=True, positions="each"),
    wrappers=(Wrapper("cohere_compass", config_class="CohereCompassConfig"),),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 22528, "layer_types": None,
        "max_position_embeddings": 8192, "num_attention_heads": 64, "num_key_value_heads": None,
        "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size": 256000,
    },
)  # fmt: skip

ARCHITECTURES = (COHERE, COHERE2, COHERE2_MOE, COHERE_COMPASS)

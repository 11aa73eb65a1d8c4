"""GPT-J, GPT-NeoX and their relatives: rotary positions, layer norms, plain MLPs, often parallel branches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import parallel, pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import LAYER, LAYER_OFFSET, LAYER_PER_HEAD
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import (
    Embedded,
    Headed,
    Inner,
    NormedHeads,
    RotaryPositions,
    Vary,
    activation_in,
    always,
    where,
)
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.families.decoders.gpt2 import DROPPED, SAME_HEADS, SHORT_NAMES
from napkin.architectures.layer_plans import EVERYWHERE, Plan
from napkin.architectures.record import Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, HF_EAGER, MASKED, PARTIAL_ROTARY, QKV, ROTATED, SCORES
from napkin.record import replace


def _grouped(config: Config, usual: Attention) -> Attention:
    """Lay the heads in four groups in the fused projection, one per core of a TPU v4."""
    return usual.projected(groups=4)


def _mark_last(config: Config, plans: Sequence[Plan]) -> Sequence[Plan]:
    return [*plans[:-1], replace(plans[-1], last=True)]


def _last_bias(config: Config, sizes: Dimensions) -> Vary:
    """Give only the last layer's output projection a bias."""
    return lambda usual, plan: usual.projected(out_bias=True) if plan.last else usual


GPTJ = Architecture(
    "gptj",
    Decoder(
        norm=LAYER,
        arrangement=always(partial(parallel, dropout=DROPPED)),
        sizes=SAME_HEADS,
        rotary=RotaryPositions("interleaved"),
        inner=Inner("n_inner", times=4),
        function=activation_in("activation_function"),
        gated=False,
        mlp_bias=True,
        embedding=Embedded(dropout=True),
        head=Headed(bias=True),
        ignored=("rotary",),
    ),
    config_class="GPTJConfig",
    aliases=SHORT_NAMES,
    implementation=replace(
        HF_EAGER,
        softmax="fp32_scores",
        rotary="pair",
        joins=True,
        variables=(ROTATED,),
        buffers=(("angles", "fp32"),),
        norms_last=False,
        weights_to="loop",
    ),
    defaults={
        "activation_function": "gelu_new", "max_position_embeddings": 2048, "n_inner": None,
        "num_attention_heads": 16, "tie_word_embeddings": False, "vocab_size": 50400,
    },
    modules={
        "embedding": "transformer.wte", "q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj",
        "o": "attn.out_proj", "up": "mlp.fc_in", "down": "mlp.fc_out",
    },
)  # fmt: skip
CODEGEN = like(
    GPTJ,
    "codegen",
    fused=True,
    attention=_grouped,
    config_class="CodeGenConfig",
    implementation=replace(
        HF,
        softmax="fp32_scores",
        rotary="pair",
        joins=True,
        variables=(QKV, ROTATED),
        rotary_fp32=True,
        joins_narrow=True,
        buffers=(("shared angles", "fp32"),),
        norms_last=False,
        weights_to="loop",
    ),
    modules={
        "qkv": "attn.qkv_proj",
    },
)  # fmt: skip
# modeling_moss.py of fnlp/moss-moon-003-base; some of its files state how the weights are stored
MOSS = like(CODEGEN, "moss", config_class="", ignored=("rotary", "wbits", "groupsize"))
GPT_NEOX = Architecture(
    "gpt_neox",
    Decoder(
        norm=LAYER,
        arrangement=where(
            "use_parallel_residual", partial(parallel, norms=2, dropout=DROPPED), partial(pre_norm, dropout=DROPPED)
        ),
        sizes=SAME_HEADS,
        bias="attention_bias",
        out_bias="attention_bias",
        fused=True,
        rotary=RotaryPositions(part=0.25),
        gated=False,
        mlp_bias=True,
        embedding=Embedded(dropout=True),
    ),
    config_class="GPTNeoXConfig",
    implementation=replace(PARTIAL_ROTARY, norms_last=False),
    defaults={
        "attention_bias": True, "hidden_act": "gelu", "intermediate_size": 24576, "max_position_embeddings": 2048,
        "num_attention_heads": 64, "tie_word_embeddings": False, "use_parallel_residual": True,
        "vocab_size": 50432,
    },
    modules={
        "embedding": "gpt_neox.embed_in", "qkv": "attention.query_key_value", "o": "attention.dense",
        "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
    },
)  # fmt: skip
GPT_NEOX_JAPANESE = Architecture(
    "gpt_neox_japanese",
    Decoder(
        norm=LAYER,
        arrangement=always(partial(pre_norm, dropout=DROPPED)),
        sizes=SAME_HEADS,
        fused=True,
        plans=_mark_last,
        layer=_last_bias,
        inner=Inner("intermediate_multiple_size", multiplies=True),
        gated=False,
    ),
    config_class="GPTNeoXJapaneseConfig",
    implementation=replace(
        HF_EAGER, softmax="native", joins=True, checkpoints=False, weights_to="loop", variables=(SCORES, MASKED)
    ),
    defaults={
        "hidden_act": "gelu", "intermediate_multiple_size": 4, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "tie_word_embeddings": True, "vocab_size": 32000,
    },
    modules={
        "embedding": "gpt_neox_japanese.embed_in", "qkv": "attention.query_key_value", "o": "attention.dense",
        "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h", "lm_head": "embed_out",
    },
)  # fmt: skip
PERSIMMON = Architecture(
    "persimmon",
    Decoder(
        norm=LAYER,
        arrangement=always(partial(pre_norm, dropout=(False, True))),
        sizes=SAME_HEADS,
        bias=True,
        out_bias=True,
        fused=True,
        rotary=RotaryPositions(part=0.5),
        qk_norm=NormedHeads(LAYER, switch="qk_layernorm"),
        gated=False,
        mlp_bias=True,
    ),
    config_class="PersimmonConfig",
    implementation=replace(PARTIAL_ROTARY, variables=(ROTATED,)),
    wrappers=(Wrapper("fuyu", config_class="FuyuConfig", flat=True),),
    defaults={
        "hidden_act": "relu2", "intermediate_size": 16384, "max_position_embeddings": 16384,
        "num_attention_heads": 64, "qk_layernorm": True, "tie_word_embeddings": False, "vocab_size": 262144,
    },
    modules={
        "qkv": "self_attn.query_key_value", "o": "self_attn.dense", "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
)  # fmt: skip
STABLELM = Architecture(
    "stablelm",
    Decoder(
        norm=LAYER,
        arrangement=where(
            "use_parallel_residual",
            partial(parallel, dropout=(False, True), in_turn=True),
            partial(pre_norm, dropout=(False, True)),
        ),
        sizes=partial(dimensions, own_head_dim=False),
        bias="use_qkv_bias",
        rotary=RotaryPositions(part=0.25),
        qk_norm=NormedHeads(LAYER_PER_HEAD, switch="qk_layernorm"),
    ),
    config_class="StableLmConfig",
    implementation=replace(PARTIAL_ROTARY, variables=(ROTATED,)),
    defaults={
        "hidden_act": "silu", "intermediate_size": 6912, "max_position_embeddings": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 32, "qk_layernorm": False, "tie_word_embeddings": False,
        "use_parallel_residual": False, "use_qkv_bias": False, "vocab_size": 50304,
    },
)  # fmt: skip
STARCODER2 = Architecture(
    "starcoder2",
    Decoder(
        norm=LAYER,
        arrangement=always(partial(pre_norm, dropout=DROPPED)),
        bias="use_bias",
        out_bias="use_bias",
        gated=False,
        mlp_bias="use_bias",
        windows=EVERYWHERE,
        embedding=Embedded(dropout=True),
        only=(("mlp_type", ("default",)), ("norm_type", ("layer_norm",))),
    ),
    config_class="Starcoder2Config",
    defaults={
        "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 12288, "max_position_embeddings": 4096,
        "num_attention_heads": 24, "num_key_value_heads": 2, "sliding_window": None, "tie_word_embeddings": True,
        "use_bias": True, "vocab_size": 49152,
    },
    modules={
        "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
)  # fmt: skip
NEMOTRON = Architecture(
    "nemotron",
    Decoder(
        norm=LAYER_OFFSET,
        bias="attention_bias",
        out_bias="attention_bias",
        gated=False,
        mlp_bias="mlp_bias",
        rotary=RotaryPositions(part=0.5),
    ),
    config_class="NemotronConfig",
    implementation=replace(PARTIAL_ROTARY, norms="lowered"),
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "relu2", "intermediate_size": 24576,
        "max_position_embeddings": 4096, "mlp_bias": False, "num_attention_heads": 48, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 256000,
    },
)  # fmt: skip

ARCHITECTURES = (GPTJ, CODEGEN, MOSS, GPT_NEOX, GPT_NEOX_JAPANESE, PERSIMMON, STABLELM, STARCODER2, NEMOTRON)

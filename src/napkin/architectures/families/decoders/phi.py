"""Phi: parallel branches in the first ones, fused projections in Phi-3, SparseMixer in Phi-3.5-MoE."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.arrangements import parallel, pre_norm
from napkin.architectures.blocks import LAYER, Routing
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import (
    Embedded,
    Headed,
    Inner,
    NormedHeads,
    RotaryPositions,
    activation_in,
    always,
    constant,
)
from napkin.architectures.families.decoders.gpt2 import SHORT_NAMES
from napkin.architectures.layer_plans import EVERYWHERE, all_sparse
from napkin.architectures.mixture import Mixture, jittered
from napkin.architectures.reading import ALONE
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, PARTIAL_ROTARY, ROTATED
from napkin.operations.model import Model
from napkin.record import replace

SPARSEMIXER_CHOOSES = 2
"""Experts that SparseMixer chooses for a token, one after the other (Phi-3.5-MoE; Liu et al. 2024, GRIN MoE,
arXiv:2409.12136): its implementation takes no other number."""


def _sparsemixer(config: Config, routing: Routing) -> Routing:
    """Two experts, chosen one after the other, noise on the tokens before each choice."""
    return jittered("input_jitter_noise", times=2)(config, routing)


def _two(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in every layer. Refused: another number of chosen ones than SparseMixer's."""
    top_k = config.integer("num_experts_per_tok")
    if top_k != SPARSEMIXER_CHOOSES:
        what = f"is {top_k}, but SparseMixer chooses {SPARSEMIXER_CHOOSES} experts"
        raise config.wrong("num_experts_per_tok", what)
    return all_sparse(config, layers)


def phi4_multimodal(config: Config) -> Model:
    """Return Phi-4-multimodal's language model (arXiv:2503.01743), which is Phi-3's decoder. Its other modalities, and
    the LoRA adapters that its checkpoint holds for them, are not counted."""
    config.notes.append(f"{ALONE} {config.model_type} is counted, vision and other modalities are not")
    config.ignore("vision_config", "audio_config", "original_max_position_embeddings")
    return PHI3.build(config)


_DROPPED = (True, True)

PHI = Architecture(
    "phi",
    Decoder(
        norm=LAYER,
        arrangement=always(partial(parallel, dropout=_DROPPED)),
        bias=True,
        out_bias=True,
        mlp_bias=True,
        gated=False,
        rotary=RotaryPositions(part=0.5),
        qk_norm=NormedHeads(LAYER, switch="qk_layernorm"),
        embedding=Embedded(dropout=True),
        head=Headed(bias=True),
    ),
    config_class="PhiConfig",
    implementation=replace(PARTIAL_ROTARY, variables=(ROTATED,)),
    defaults={
        "hidden_act": "gelu_new", "intermediate_size": 8192, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": None, "qk_layernorm": False,
        "tie_word_embeddings": False, "vocab_size": 51200,
    },
    modules={
        "o": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2",
    },
)  # fmt: skip
# the code that came with Phi-1, 1.5 and 2 (modeling_mixformer_sequential.py, then modeling_phi.py): one QKV projection
MIXFORMER = like(
    PHI,
    "mixformer-sequential",
    fused=True,
    inner=Inner("n_inner", times=4),
    function=activation_in("activation_function"),
    config_class="",
    aliases={**SHORT_NAMES, "n_head_kv": "num_key_value_heads"},
    ignored=("architecture", "flash_attn", "flash_rotary", "fused_dense"),
    defaults={
        "activation_function": "gelu_new",
        "hidden_act": REQUIRED,
        "intermediate_size": REQUIRED,
        "n_inner": None,
    },
    modules={"embedding": "layers.0.wte", "qkv": "mixer.Wqkv", "o": "mixer.out_proj"},
)
PHI_MSFT = like(MIXFORMER, "phi-msft")
_OF_PHI4MM = ("img_processor", "audio_processor", "embd_layer", "vision_lora", "speech_lora")
"""Fields of Microsoft's own files (configuration_phi4mm.py) about other modalities and their adapters."""
PHI3 = Architecture(
    "phi3",
    Decoder(
        arrangement=always(partial(pre_norm, dropout=_DROPPED)),
        fused=True,
        feed_forward=lambda config, usual: partial(usual, fused=True),
        windows=EVERYWHERE,
        only=(
            ("attention_bias", (False,)),
            ("mlp_bias", (False,)),
            ("lm_head_bias", (False,)),
            ("full_attn_mod", (1,)),
        ),
        ignored=("interpolate_factor",),
    ),
    config_class="Phi3Config",
    wrappers=(
        Wrapper("phi3_v", flat=True, ignored=("img_processor", "embd_layer")),
        Wrapper("phi4mm", flat=True, ignored=_OF_PHI4MM),
    ),
    implementation=replace(PARTIAL_ROTARY, qkv="apart", registers_first=("o_proj",)),
    defaults={
        "hidden_act": "silu", "intermediate_size": 8192, "max_position_embeddings": 4096,
        "num_attention_heads": 32, "num_key_value_heads": None, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 32064,
    },
)  # fmt: skip


def phi3small(config: Config) -> Model:
    """Return Phi-3-small (modeling_phi3_small.py of microsoft/Phi-3-small-8k-instruct), whose layers, all but each
    `dense_attention_every_n_layers`th, see blocks of the sequence: they are counted in full."""
    config.notes.append("block-sparse attention is counted as attention to all tokens")
    return _PHI3_SMALL(config)


_PHI3_SMALL = Decoder(
    norm=LAYER,
    arrangement=always(partial(pre_norm, dropout=_DROPPED)),
    bias=True,
    out_bias=True,
    fused=True,
    mlp_bias=True,
    feed_forward=lambda config, usual: partial(usual, fused=True),
    function=constant("quick_gelu"),  # of the gate, next to a clamp and an addition
    embedding=Embedded(scale="mup_embedding_multiplier", dropout=True),
    head=Headed(scale="mup_width_multiplier"),
    only=(("ff_dim_multiplier", (None,)),),
    ignored=(
        *("attention_bias", "attention_dropout_prob", "embedding_dropout_prob", "ffn_dropout_prob", "gegelu_limit"),
        *("blocksparse_block_size", "blocksparse_homo_head_pattern", "blocksparse_num_local_blocks", "hidden_act"),
        *("blocksparse_triton_kernel_block_size", "blocksparse_vert_stride", "dense_attention_every_n_layers"),
        *("gegelu_pad_to_256", "mup_attn_multiplier", "mup_use_scaling", "pad_sequence_to_multiple_of_64"),
        *("rope_embedding_base", "rope_position_scale", "reorder_and_upcast_attn"),
    ),
)
PHI3_SMALL = Architecture(
    "phi3small",
    phi3small,
    aliases={"ff_intermediate_size": "intermediate_size"},
    defaults={"tie_word_embeddings": True},
    modules={"qkv": "self_attn.query_key_value", "o": "self_attn.dense", "gate_up": "mlp.up_proj"},
)
PHIMOE = Architecture(
    "phimoe",
    Decoder(
        norm=LAYER,
        bias="attention_bias",
        out_bias="attention_bias",
        windows=EVERYWHERE,
        head=Headed(bias="lm_head_bias"),
        experts=Mixture(
            inner="intermediate_size", where=_two, score="sparsemixer", routing=_sparsemixer, balances=True
        ),
    ),
    config_class="PhimoeConfig",
    implementation=replace(HF, router="sparsemixer", linear_router=True),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 6400, "lm_head_bias": False,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_key_value_heads": 8, "num_local_experts": 16, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 32064,
    },
    modules={
        "router": "mlp.router",
    },
)  # fmt: skip
PHI4_MULTIMODAL = Architecture(
    "phi4_multimodal",
    phi4_multimodal,
    config_class="Phi4MultimodalConfig",
    implementation=PARTIAL_ROTARY,
    defaults={
        "hidden_act": "silu", "intermediate_size": 8192, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 200064,
    },
)  # fmt: skip

ARCHITECTURES = (PHI, MIXFORMER, PHI_MSFT, PHI3, PHI3_SMALL, PHIMOE, PHI4_MULTIMODAL)

"""Decoders that only image-text models have: Chameleon, GIT, Kosmos 2 and 2.5, Molmo (by modeling_molmo.py, which comes
with its weights), Molmo 2, Muse Glimmer."""

from __future__ import annotations

from napkin.architectures.arrangements import output_norm, post_norm, pre_norm, sandwich_norm
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Gate, QkNorm
from napkin.architectures.blocks import LAYER, RMS, RMS_BARE, RMS_OFFSET, NormStyle, Operations
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import (
    Embedded,
    Headed,
    Inner,
    NormedHeads,
    activation_in,
    always,
    scored,
    where,
)
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.families.decoders.llama import LLAMA
from napkin.architectures.families.decoders.qwen1 import halves
from napkin.architectures.layer_plans import by_base, every
from napkin.architectures.mixture import Feed
from napkin.architectures.reading import ALONE
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import HF, HF_EAGER, IDS
from napkin.operations.model import Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import SEGMENT, TOKEN
from napkin.record import replace

CHAMELEON = like(
    LLAMA,
    "chameleon",
    arrangement=where("swin_norm", output_norm, pre_norm),
    qk_norm=NormedHeads(NormStyle("layer", "fused", bias=True, per_group=True)),
    ignored=("vq_config", "vocabulary_map", "model_parallel_size"),
    config_class="ChameleonConfig",
    defaults={
        "head_dim": REQUIRED, "max_position_embeddings": 4096, "num_key_value_heads": 32, "swin_norm": False,
        "vocab_size": 65536,
    },
)  # fmt: skip


def _gated_by_input(config: Config, usual: Attention) -> Attention:
    """Multiply each head's result by a gate that the layer's input makes."""
    return replace(usual, gate=Gate())


MUSE_GLIMMER = Architecture(
    "muse_glimmer_text",
    Decoder(
        norm=RMS_OFFSET,
        arrangement=always(sandwich_norm),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS_BARE),
        windows=every(4),
        rotates=by_base("layer_rope_theta"),
        attention=_gated_by_input,
        function=activation_in("hidden_activation"),
        embedding=Embedded(norm=RMS_BARE),
        head=Headed(scale=True, softcap="final_logit_softcapping"),
        ignored=("output_multiplier", "qk_scale_factor"),
    ),
    config_class="MuseGlimmerTextConfig",
    wrappers=(
        Wrapper(
            "muse_glimmer",
            ignored=("out_hidden_size", "projector_hidden_size", "projector_hidden_act"),
        ),
    ),
    defaults={
        "attention_bias": False, "final_logit_softcapping": 20.0, "head_dim": 128, "hidden_activation": "silu",
        "intermediate_size": 19968, "layer_types": None, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_key_value_heads": 2, "sliding_window": 2048, "tie_word_embeddings": False,
        "vocab_size": 202048,
    },
    modules={"gate_logit": "self_attn.gate_proj"},
)  # fmt: skip


def _wider_table(config: Config) -> Dimensions:
    """Read the dimensions: the table has rows beyond the vocabulary that the head knows."""
    return replace(dimensions(config), more_rows=config.integer("additional_vocab_size", least=0))


_MOLMO2 = Decoder(
    sizes=_wider_table,
    arrangement=where("norm_after", output_norm, pre_norm),
    bias="attention_bias",
    attention=lambda config, usual: replace(
        usual, norm=QkNorm(RMS, {"qwen3": "head", "olmo": "all"}[config.text("qk_norm_type", known=("qwen3", "olmo"))])
    ),
    ignored=("rope_scaling_layers",),
)


MOLMO2 = Architecture(
    "molmo2_text",
    _MOLMO2,
    config_class="Molmo2TextConfig",
    aliases={"qkv_bias": "attention_bias"},
    wrappers=(Wrapper("molmo2"),),
    defaults={
        "additional_vocab_size": 128, "attention_bias": False, "head_dim": 128, "hidden_act": "silu",
        "intermediate_size": 12288, "max_position_embeddings": 36864, "norm_after": False,
        "num_attention_heads": 32, "num_key_value_heads": 8, "qk_norm_type": "qwen3", "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
)  # fmt: skip


def _molmo_sizes(config: Config) -> Dimensions:
    """Read Molmo's dimensions: the table is padded to `embedding_size` and has rows for tokens of images besides."""
    config.ignore("vocab_size")
    rows = config.optional_integer("embedding_size") or config.integer("vocab_size")
    return replace(dimensions(config, own_head_dim=False), vocabulary=rows, more_rows=MOLMO_ROWS)


MOLMO_ROWS = 128
"""Rows of Molmo's table for tokens of images (`additional_vocab_size` of config_molmo.py, which no file states)."""
_MOLMO = Decoder(
    sizes=_molmo_sizes,
    arrangement=where("norm_after", output_norm, pre_norm),
    bias="qkv_bias",
    fused=True,
    qk_norm=NormedHeads(RMS, over="all", switch="attention_layer_norm"),
    feed_forward=halves,
    only=(("layer_norm_type", ("rms",)), ("clip_qkv", (None,)), ("weight_tying", (False,))),
    ignored=("use_position_ids",),
)


def molmo(config: Config) -> Model:
    """Return Molmo's language model (arXiv:2409.17146), all that its file describes."""
    config.notes.append(f"{ALONE} molmo is counted, vision and other modalities are not")
    return _MOLMO(config)


MOLMO = Architecture(
    "molmo",
    molmo,
    defaults={
        "attention_layer_norm": False, "hidden_act": "silu", "norm_after": False, "qkv_bias": False,
        "tie_word_embeddings": False,
    },
    modules={"qkv": "att_proj", "o": "attn_out", "up": "ff_proj", "down": "ff_out", "embedding": "wte"},
)  # fmt: skip
GIT = Architecture(
    "git",
    Decoder(
        norm=LAYER,
        arrangement=always(post_norm),
        bias=True,
        out_bias=True,
        rotary=None,
        gated=False,
        mlp_bias=True,
        embedding=Embedded(positions=0, norm=LAYER, dropout=True),
        head=Headed(norm=False, bias=True),
        ignored=("vision_config", "num_image_with_embedding"),
    ),
    config_class="GitConfig",
    implementation=replace(HF_EAGER, softmax="native", buffers=(IDS,)),
    modules={
        "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
        "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
        "embedding": "git.embeddings.word_embeddings", "position_embedding": "git.embeddings.position_embeddings",
        "lm_head": "output",
    },
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 1024,
        "num_attention_heads": 12, "tie_word_embeddings": False, "vocab_size": 30522,
    },
)  # fmt: skip


def _normed_inside(config: Config, usual: Feed) -> Feed:
    """Normalize what the MLP's last matmul reads."""
    inner = config.integer("ffn_dim")

    def feed(source: str) -> Operations:
        *first, down = usual(source)
        norm = LAYER("inner_norm", first[-1].name, inner)
        return (*first, norm, replace(down, reads=(norm.name,)))

    return feed


_KOSMOS = Decoder(
    norm=LAYER,
    bias=True,
    out_bias=True,
    rotary=None,
    gated=False,
    mlp_bias=True,
    attention=scored(position="sinusoidal"),
    inner=Inner("ffn_dim"),
    function=activation_in("activation_function"),
    feed_forward=_normed_inside,
    embedding=Embedded(sines="", scale="scale_embedding", dropout=True),
    only=(("add_cross_attention", (False,)),),
)
KOSMOS_2 = Architecture(
    "kosmos_2_text_model",
    replace(_KOSMOS, attention=lambda config, usual: replace(_KOSMOS.attention(config, usual), out_norm=LAYER)),
    config_class="Kosmos2TextConfig",
    aliases={"attention_heads": "num_attention_heads", "embed_dim": "hidden_size", "layers": "num_hidden_layers"},
    implementation=replace(HF, positions="each", embeddings="", buffers=(("sines", ""),)),
    wrappers=(
        Wrapper(
            "kosmos-2", path="text_model.model", ignored=("latent_query_num",)
        ),
    ),
    modules={
        "embedding": "text_model.model.embed_tokens", "o": "self_attn.out_proj", "up": "ffn.fc1", "down": "ffn.fc2",
        "lm_head": "text_model.lm_head",
    },
    defaults={
        "activation_function": "gelu", "ffn_dim": 8192, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "tie_word_embeddings": True, "vocab_size": 65037,
    },
)  # fmt: skip


def kosmos_2_5(config: Config) -> Model:
    """Return Kosmos 2.5: each token's embedding has one of its segment added, of text or of an image."""
    model = _KOSMOS(config)
    (stack,) = model.stacks
    place = next(n for n, op in enumerate(stack.before) if op.embeds() == TOKEN)
    table, *others = stack.before[place:]
    segments = (
        Embedding("segment_embedding", (), 2, model.hidden, role=SEGMENT),
        Add("with_segment", (table.name, "segment_embedding"), model.hidden),
    )
    moved = tuple(
        replace(op, reads=tuple("with_segment" if name == table.name else name for name in op.reads)) for op in others
    )
    return replace(model, stacks=(replace(stack, before=(*stack.before[:place], table, *segments, *moved)),))


KOSMOS_2_5 = Architecture(
    "kosmos_2_5_text_model",
    kosmos_2_5,
    config_class="Kosmos2_5TextConfig",
    aliases=KOSMOS_2.aliases,
    implementation=KOSMOS_2.implementation,
    wrappers=(
        Wrapper(
            "kosmos-2.5",
            path="text_model.model",
            ignored=("latent_query_num",),
        ),
    ),
    modules={**KOSMOS_2.modules, "segment_embedding": "text_model.model.segment_emb"},
    defaults={
        **KOSMOS_2.defaults, "ffn_dim": 6144, "max_position_embeddings": 4096, "num_attention_heads": 16,
        "vocab_size": 108481,
    },
)  # fmt: skip

ARCHITECTURES = (CHAMELEON, GIT, KOSMOS_2, KOSMOS_2_5, MOLMO, MOLMO2, MUSE_GLIMMER)

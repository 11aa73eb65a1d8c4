"""Idefics' language model (arXiv:2306.16527): Llama with gated layers in between that attend to images, and are skipped
without."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.blocks import RMS_T5, Operations, gated_mlp
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import always
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.families.multimodal.mllama import CROSS_ATTENTION
from napkin.architectures.idle import between_layers, cross_projections, tensors
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.record import replace

IMAGE_WIDTH = 768
"""Width of the vision tower if its block does not say."""


def _sizes(config: Config) -> Dimensions:
    """Read the dimensions: the tables have rows for further tokens, which images are marked with."""
    sizes = dimensions(config, kv_heads="", own_head_dim=False)
    return replace(sizes, vocabulary=sizes.vocabulary + config.integer("additional_vocab_size", least=0))


_TEXT = Decoder(norm=RMS_T5, arrangement=always(partial(pre_norm, dropout=(True, True))), sizes=_sizes)


def idefics(config: Config) -> Model:
    """Return Idefics' language model. Without an image its cross-attention layers do not run; their weights are
    counted with the next layer's."""
    model = _TEXT(config)
    config.ignore("vision_config", "perceiver_config", "use_resampler", "alpha_initializer", "alphas_initializer_range")
    config.ignore("freeze_text_module_exceptions", "freeze_vision_module_exceptions", "freeze_vision_layers")
    frozen = [field for field in ("freeze_text_layers", "freeze_lm_head") if config.flag(field)]
    if frozen:
        config.notes.append(f"{' and '.join(frozen)}: the class freezes these weights; here everything is trained")
    config.notes.append("cross-attention layers are counted as parameters; they run only with images")
    layers, every = model.stacks[0].depth, config.integer("cross_layer_interval")
    waiting = [int(i % every == 0 and i // every < layers // every) for i in range(layers)]
    return between_layers(model, waiting, _cross(config, model))


def _cross(config: Config, model: Model) -> Operations:
    """Return a cross-attention layer: attention, an MLP, two gates."""
    hidden = model.hidden
    block = config.mapping("vision_config", required=False) or {}
    seen = block.get("embed_dim", block.get("hidden_size", IMAGE_WIDTH))
    if isinstance(seen, bool) or not isinstance(seen, int) or seen < 1:
        raise config.wrong("vision_config", "embed_dim is not a width")
    gate = hidden if config.text("alpha_type", known=("float", "vector")) == "vector" else 1
    norms = {"input": (hidden,), "post_attention": (hidden,)}
    if config.flag("qk_layer_norms"):
        norms |= {"q": (model.head_dim,), "k": (model.head_dim,)}
    return (
        *cross_projections(hidden, hidden, hidden, seen, bias=False),
        *gated_mlp("x", width=hidden, inner=config.integer("intermediate_size"), prefix="cross_"),
        tensors("cross_norms", norms),
        tensors("cross_gates", {"attention": (gate,), "mlp": (gate,)}),
    )


IDEFICS = Architecture(
    "idefics",
    idefics,
    config_class="IdeficsConfig",
    implementation=replace(HF, rotary="values", buffers=(("each rotary", "fp32"),)),
    defaults={
        "additional_vocab_size": 0, "alpha_type": "float", "cross_layer_interval": 1, "freeze_lm_head": False,
        "freeze_text_layers": True, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "qk_layer_norms": False, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    modules=CROSS_ATTENTION,
)  # fmt: skip

ARCHITECTURES = (IDEFICS,)

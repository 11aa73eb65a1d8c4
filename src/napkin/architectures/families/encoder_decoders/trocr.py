"""TrOCR's decoder (arXiv:2109.10282), a part of vision-encoder-decoders.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/trocr/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.assembly import embedding, head
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Scaling, Scores
from napkin.architectures.blocks import LAYER, plain_mlp
from napkin.architectures.dimensions import decoder_only, dimensions
from napkin.architectures.encoder_decoder import decoder_alone
from napkin.architectures.reading import activation
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF_EAGER, MASKS
from napkin.operations.model import Layer, Model
from napkin.operations.roles import MEMORY
from napkin.record import replace

OFFSET = 2
"""Rows of the position embedding before the first position."""


def _trocr(config: Config) -> Model:
    """Return the decoder as its own class has it: it holds cross-attention, which runs next to an encoder only."""
    sizes = dimensions(config, kv_heads="", own_head_dim=False)
    hidden, rows = sizes.hidden, sizes.vocabulary
    config.ignore("is_decoder")  # the class sets it
    learned = config.flag("use_learned_position_embeddings")
    shaped = Attention(
        Heads(
            hidden,
            sizes.heads,
            sizes.heads,
            sizes.head_dim,
            memory_width=config.optional_integer("cross_attention_hidden_size") or hidden,
        ),
        projections=QkvProjections(bias=True, out_bias=True),
        scaling=Scaling(queries=True),
    )
    across = replace(shaped, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
    attend = replace(shaped, heads=replace(shaped.heads, memory_width=0))
    feed = partial(
        plain_mlp,
        width=hidden,
        inner=config.integer("decoder_ffn_dim"),
        function=activation(config, "activation_function"),
        dropout=True,
    )
    layer = Layer("decoder", decoder_alone(hidden, LAYER, attend, across, feed, before=False))
    config.notes.append("the class runs only the decoder: its cross-attention is counted, but not used")
    before = embedding(
        rows,
        hidden,
        positions=config.integer("max_position_embeddings") + OFFSET if learned else 0,
        norm=LAYER if config.flag("layernorm_embedding") else None,
        dropout=True,
        scale=config.flag("scale_embedding"),
    )
    return decoder_only(sizes, before, ((sizes.layers, layer),), head(hidden, rows, norm=None, none=sizes.headless))


TROCR = Architecture(
    "trocr",
    _trocr,
    config_class="TrOCRConfig",
    aliases={
        "d_model": "hidden_size", "decoder_attention_heads": "num_attention_heads",
        "decoder_layers": "num_hidden_layers",
    },
    defaults={
        "activation_function": "gelu", "cross_attention_hidden_size": None, "decoder_ffn_dim": 4096,
        "layernorm_embedding": True, "max_position_embeddings": 512, "num_attention_heads": 16,
        "scale_embedding": False, "tie_word_embeddings": True, "use_learned_position_embeddings": True,
        "vocab_size": 50265,
    },
    implementation=replace(
        HF_EAGER, softmax="native", weights_to="attention", positions="each", fp32_loss=False, shifted=False,
        passes=(MASKS,), buffers=(), closure=("masks",),
    ),
    modules={
        "embedding": "model.decoder.embed_tokens", "position_embedding": "model.decoder.embed_positions",
        "o": "self_attn.out_proj", "up": "fc1", "down": "fc2", "lm_head": "output_projection",
    },
)  # fmt: skip

ARCHITECTURES = (TROCR,)

"""DistilBERT (arXiv:1910.01108).

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/distilbert/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections, Scores
from napkin.architectures.blocks import LAYER, plain_mlp
from napkin.architectures.common import (
    activation,
    depth,
    embedding,
    tied,
    width,
)
from napkin.architectures.masked import (
    ENCODER,
    MASKED,
    encoder,
    head_count,
    masked_head,
    purpose_of,
)
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import IDS, ROTARY
from napkin.operations.model import Layer, Model
from napkin.record import replace


def distilbert(config: Config) -> Model:
    """DistilBERT (arXiv:1910.01108): BERT's layers, without segments."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    if config.flag("sinusoidal_pos_embds"):
        config.notes.append("the position table is a fixed sinusoid: counted, as the class holds it, but not trained")
    config.must_be("tie_weights_", True)
    vocabulary = config.integer("vocab_size")
    function = activation(config, "activation")
    purpose = purpose_of(config)
    attend = Attention(
        Heads(hidden, heads, heads, hidden // heads),
        projections=QkvProjections(bias=True, out_bias=True),
        scores=Scores(causal=False),
    )
    feed = partial(plain_mlp, width=hidden, inner=config.integer("hidden_dim"), function=function)
    tie = tied(config) and purpose == MASKED
    return encoder(
        config,
        embedding(vocabulary, hidden, positions=config.integer("max_position_embeddings"), norm=LAYER, dropout=True),
        ((layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(False, True)))),),
        masked_head(hidden, vocabulary, function) if purpose == MASKED else (),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )


DISTILBERT = Architecture(
    "distilbert",
    distilbert,
    config_class="DistilBertConfig",
    aliases={"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"},
    defaults={
        "activation": "gelu", "hidden_dim": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
        "sinusoidal_pos_embds": False, "tie_word_embeddings": True, "vocab_size": 30522,
    },
    implementation=replace(ENCODER, buffers=(ROTARY, IDS)),
)  # fmt: skip

ARCHITECTURES = (DISTILBERT,)

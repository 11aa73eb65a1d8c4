"""Nomic BERT (arXiv:2402.01613).

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/nomic_bert/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.attention import Attention, Heads, Rope, Scores
from napkin.architectures.blocks import LAYER, gated_mlp
from napkin.architectures.common import (
    activation,
    depth,
    embedding,
    head_size,
    width,
)
from napkin.architectures.masked import (
    ENCODER,
    MASKED,
    encoder,
    masked_head,
    purpose_of,
)
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.model import Layer, Model
from napkin.record import replace


def nomic_bert(config: Config) -> Model:
    """Nomic Embed's BERT (arXiv:2402.01613): rotary positions, gated MLPs, norms after the blocks, biases in none."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    vocabulary = config.integer("vocab_size")
    purpose = purpose_of(config)
    function = activation(config, "hidden_act")
    attend = Attention(Heads(hidden, heads, heads, head_dim), scores=Scores(causal=False), rope=Rope(head_dim))
    feed = partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    config.must_be("tie_word_embeddings", True)
    model = encoder(
        config,
        embedding(vocabulary, hidden, segments=config.integer("type_vocab_size"), norm=LAYER, dropout=True),
        ((layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        masked_head(hidden, vocabulary, function) if purpose == MASKED else (),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=purpose == MASKED,
    )
    return replace(model, head_dim=head_dim)


_ROBERTA = replace(ENCODER, positions="each", segments="each")
NOMIC_BERT = Architecture(
    "nomic_bert",
    nomic_bert,
    config_class="NomicBertConfig",
    defaults={
        "head_dim": None, "hidden_act": "silu", "intermediate_size": 3072, "max_position_embeddings": 2048,
        "num_attention_heads": 12, "type_vocab_size": 2, "vocab_size": 30528,
    },
    implementation=replace(_ROBERTA, positions="one"),
)  # fmt: skip

ARCHITECTURES = (NOMIC_BERT,)

"""DistilBERT (arXiv:1910.01108).

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/distilbert/).
"""

from __future__ import annotations

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.blocks import LAYER
from napkin.architectures.families.encoders.bert_network import bert_blocks
from napkin.architectures.masked import ENCODER, MASKED, bert_modules, encoder, masked_head, sizes_of
from napkin.architectures.reading import tied
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import IDS, ROTARY
from napkin.operations.model import Layer, Model
from napkin.record import replace


def distilbert(config: Config) -> Model:
    """Return DistilBERT (arXiv:1910.01108): BERT's layers, without segments."""
    sizes = sizes_of(config, inner="hidden_dim", function="activation")
    if config.flag("sinusoidal_pos_embds"):
        config.notes.append(
            "the position embedding is a fixed sinusoid: counted, as the class holds it, but not trained"
        )
    config.must_be("tie_weights_", True)
    positions = config.integer("max_position_embeddings")
    tie = tied(config) and sizes.purpose == MASKED

    hidden = sizes.hidden
    attend, feed = bert_blocks(hidden, sizes.heads, sizes.inner, sizes.function)
    layer = Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(False, True)))
    return encoder(
        sizes,
        embedding(sizes.vocabulary, hidden, positions=positions, norm=LAYER, dropout=True),
        ((sizes.layers, layer),),
        masked_head(hidden, sizes.vocabulary, sizes.function) if sizes.purpose == MASKED else (),
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
    modules=bert_modules("distilbert", head_dense="vocab_transform", lm_head="vocab_projector") | {
        "q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin", "o": "attention.out_lin",
        "up": "ffn.lin1", "down": "ffn.lin2",
    },
)  # fmt: skip

ARCHITECTURES = (DISTILBERT,)

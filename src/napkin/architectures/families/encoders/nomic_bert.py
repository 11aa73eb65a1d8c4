"""Nomic BERT (arXiv:2402.01613).

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/nomic_bert/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, Rope
from napkin.architectures.blocks import LAYER, gated_mlp
from napkin.architectures.masked import (
    BIDIRECTIONAL,
    ENCODER,
    MASKED,
    bert_modules,
    encoder,
    heads_apart,
    masked_head,
    sizes_of,
)
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.model import Layer, Model
from napkin.record import replace


def nomic_bert(config: Config) -> Model:
    """Return Nomic Embed's BERT (arXiv:2402.01613): rotary positions, gated MLPs, norms after the blocks, biases in
    none."""
    sizes = sizes_of(config, own_head_dim=True)
    segments = config.integer("type_vocab_size")

    hidden, heads, head_dim = sizes.hidden, sizes.heads, sizes.head_dim
    attend = Attention(Heads(hidden, heads, heads, head_dim), scores=BIDIRECTIONAL, rope=Rope(head_dim))
    feed = partial(gated_mlp, width=hidden, inner=sizes.inner, function=sizes.function)
    layer = Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))
    model = encoder(
        sizes,
        embedding(sizes.vocabulary, hidden, segments=segments, norm=LAYER, dropout=True),
        ((sizes.layers, layer),),
        masked_head(hidden, sizes.vocabulary, sizes.function) if sizes.purpose == MASKED else (),
        tie=sizes.purpose == MASKED,
    )
    return heads_apart(model, config)


_ROBERTA = replace(ENCODER, positions="each", segments="each")
NOMIC_BERT = Architecture(
    "nomic_bert",
    nomic_bert,
    config_class="NomicBertConfig",
    defaults={
        "head_dim": None, "hidden_act": "silu", "intermediate_size": 3072, "max_position_embeddings": 2048,
        "num_attention_heads": 12, "tie_word_embeddings": True, "type_vocab_size": 2, "vocab_size": 30528,
    },
    implementation=replace(_ROBERTA, positions="one"),
    modules=bert_modules("nomic_bert") | {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (NOMIC_BERT,)

"""ESM: protein language models.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/esm/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections, Rope, Scaling, Scores
from napkin.architectures.blocks import LAYER, plain_mlp
from napkin.architectures.common import (
    depth,
    embedding,
    width,
)
from napkin.architectures.masked import (
    BARE,
    ENCODER,
    MASKED,
    encoder,
    head_count,
    masked_head,
    must_tie,
    pooler,
    purpose_of,
)
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.base import POSITION, REPLICATED, Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import IDS, ROTARY
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add, Parameters, Scale
from napkin.record import replace


def esm(config: Config) -> Model:
    """ESM-1b (doi:10.1073/pnas.2016239118) and ESM-2 (doi:10.1126/science.ade2574): norms before the blocks, learned or
    rotary positions, queries scaled before they turn. The head that predicts contacts from attention's weights is held
    by the class, and trained apart."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    head_dim, vocabulary = hidden // heads, config.integer("vocab_size")
    config.must_be("is_folding_model", False)
    config.ignore("esmfold_config", "vocab_list", "hidden_act")  # proteins' folds are another class; its own gelu
    rotary = config.text("position_embedding_type", known=("absolute", "rotary")) == "rotary"
    purpose = purpose_of(config)
    if purpose == MASKED:
        must_tie(config)
    attend = Attention(
        Heads(hidden, heads, heads, head_dim),
        projections=QkvProjections(bias=True, out_bias=True),
        scaling=Scaling(queries=True),
        scores=Scores(causal=False),
        rope=Rope(head_dim, upcast=True) if rotary else None,
    )
    feed = partial(plain_mlp, width=hidden, inner=config.integer("intermediate_size"), function="gelu_python")
    before: tuple[Operation, ...] = embedding(vocabulary, hidden)
    if config.flag("token_dropout", otherwise=False):  # masked tokens are zeros, the others are scaled up
        before += (
            Scale("masked_out", (before[-1].name,), hidden, masks=True, held="bool"),
            Scale("scaled_up", ("masked_out",), hidden, sequences=True),
        )
    if not rotary:
        positions = config.integer("max_position_embeddings")
        before += (
            Embedding("position_embedding", (), positions, hidden, role=POSITION),
            Add("positions_added", (before[-1].name, "position_embedding"), hidden),
        )
    if config.flag("emb_layer_norm_before", otherwise=False):
        before += (LAYER("embedding_norm", before[-1].name, hidden),)
    final = LAYER("final_norm", "x", hidden)
    scores = layers * heads
    contacts = Parameters("contacts", (), (("weight", (1, scores)), ("bias", (1,))), REPLICATED, trained=False)
    after = masked_head(hidden, vocabulary, "gelu_python", source="final_norm")
    if purpose == BARE:
        after = pooler(hidden, "final_norm")
    return encoder(
        config,
        (contacts, *before),
        ((layers, Layer("encoder", pre_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        (final, *after),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=purpose == MASKED,
    )


ESM = Architecture(
    "esm",
    esm,
    config_class="EsmConfig",
    defaults={
        "emb_layer_norm_before": None, "intermediate_size": 3072, "is_folding_model": False,
        "max_position_embeddings": 1026, "num_attention_heads": 12, "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    },
    implementation=replace(ENCODER, positions="learned", buffers=(ROTARY, IDS)),
)  # fmt: skip

ARCHITECTURES = (ESM,)

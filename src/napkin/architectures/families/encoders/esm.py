"""ESM: protein language models.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/esm/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope, Scaling
from napkin.architectures.blocks import LAYER, Operations, plain_mlp
from napkin.architectures.idle import idle
from napkin.architectures.masked import (
    BARE,
    BIDIRECTIONAL,
    ENCODER,
    MASKED,
    bert_modules,
    encoder,
    heads_apart,
    masked_head,
    pooler,
    sizes_of,
)
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import IDS, ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add, Scale
from napkin.operations.roles import POSITION
from napkin.record import record, replace


@record
class _EsmEmbedded:
    """The embeddings.

    positions  rows of learned positions     rotary  there are none; queries and keys are rotated
    dropped    rescaled for masked tokens    normed  with a norm
    """

    positions: int
    rotary: bool
    dropped: bool
    normed: bool

    def operations(self, vocabulary: int, hidden: int) -> Operations:
        """Return the embeddings."""
        before = embedding(vocabulary, hidden)
        if self.dropped:  # masked tokens are zeros, the others are scaled up
            before += (
                Scale("masked_out", (before[-1].name,), hidden, masks=True, held="bool"),
                Scale("scaled_up", ("masked_out",), hidden, sequences=True),
            )
        if not self.rotary:
            before += (
                Embedding("position_embedding", (), self.positions, hidden, role=POSITION),
                Add("positions_added", (before[-1].name, "position_embedding"), hidden),
            )
        if self.normed:
            before += (LAYER("embedding_norm", before[-1].name, hidden),)
        return before


def _embedded(config: Config) -> _EsmEmbedded:
    rotary = config.text("position_embedding_type", known=("absolute", "rotary")) == "rotary"
    return _EsmEmbedded(
        0 if rotary else config.integer("max_position_embeddings"),
        rotary,
        config.flag("token_dropout", otherwise=False),
        config.flag("emb_layer_norm_before", otherwise=False),
    )


def esm(config: Config) -> Model:
    """Return ESM-1b (doi:10.1073/pnas.2016239118) and ESM-2 (doi:10.1126/science.ade2574): norms before the blocks,
    learned or rotary positions, queries scaled before the rotation. The class also holds a head that predicts contacts
    from attention's weights and is trained separately."""
    config.must_be("is_folding_model", False)
    config.ignore("esmfold_config", "vocab_list", "hidden_act")  # protein folding is another class; its own gelu
    sizes = sizes_of(config, function="")
    embedded = _embedded(config)

    hidden = sizes.hidden
    attend = Attention(
        Heads(hidden, sizes.heads, sizes.heads, sizes.head_dim),
        projections=QkvProjections(bias=True, out_bias=True),
        scaling=Scaling(queries=True),
        scores=BIDIRECTIONAL,
        rope=Rope(sizes.head_dim, upcast=True, first=True) if embedded.rotary else None,
    )
    feed = partial(plain_mlp, width=hidden, inner=sizes.inner, function="gelu_python")
    final = LAYER("final_norm", "x", hidden)
    scores = sizes.layers * sizes.heads
    contacts = idle("contacts", (Matmul("contacts", ("x",), scores, 1, True, module="esm.contact_head.regression"),))
    after = masked_head(hidden, sizes.vocabulary, "gelu_python", source="final_norm")
    if sizes.purpose == BARE:
        after = pooler(hidden, "final_norm")
    model = encoder(
        sizes,
        (contacts, *embedded.operations(sizes.vocabulary, hidden)),
        ((sizes.layers, Layer("encoder", pre_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        (final, *after),
        tie=sizes.purpose == MASKED,
    )
    return heads_apart(model, config, biases=1)


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
    modules=bert_modules("esm", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)  # fmt: skip

ARCHITECTURES = (ESM,)

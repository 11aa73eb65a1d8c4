"""FNet (arXiv:2105.03824): BERT whose attention is a Fourier transform.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/fnet/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.blocks import LAYER, Operations, plain_mlp
from napkin.architectures.masked import (
    BARE,
    ENCODER,
    MaskedSizes,
    bert_modules,
    encoder,
    heads_apart,
    masked_head,
    pooler,
    purpose_of,
)
from napkin.architectures.reading import activation, depth, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER, IDS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Dropout, Fourier
from napkin.record import replace


def _fnet(config: Config) -> Model:
    """Return FNet: embeddings behind a projection, and layers of a transform without weights and an MLP."""
    config.ignore("use_tpu_fourier_optimizations", "tpu_short_seq_length")
    hidden, layers, function = width(config), depth(config), activation(config, "hidden_act")
    sizes = MaskedSizes(
        config.name,
        hidden,
        layers,
        1,
        hidden,
        config.integer("intermediate_size"),
        function,
        config.integer("vocab_size"),
        purpose_of(config),
        config.integer("max_position_embeddings"),
    )
    bare = sizes.purpose == BARE
    tables = embedding(
        sizes.vocabulary,
        hidden,
        positions=config.integer("max_position_embeddings"),
        segments=config.integer("type_vocab_size"),
        norm=LAYER,
    )
    before: Operations = (
        *tables,
        Matmul("project_in", (tables[-1].name,), hidden, hidden, True),
        Dropout("embedding_dropped", ("project_in",), hidden),
    )
    feed = partial(plain_mlp, width=hidden, inner=sizes.inner, function=function)

    def transform(source: str) -> Operations:
        return (Fourier("transform", (source,), hidden),)

    layer = Layer("encoder", post_norm(hidden, LAYER, transform, feed, dropout=(False, True)))
    head: Operations = () if bare else masked_head(hidden, sizes.vocabulary, function)
    after = (*pooler(hidden, "x", used=bare), *head)  # the class with the masked head has the pooler too
    model = encoder(sizes, before, ((layers, layer),), after, tie=not bare)
    return model if bare else heads_apart(model, config)


FNET = Architecture(
    "fnet",
    _fnet,
    config_class="FNetConfig",
    defaults={
        "hidden_act": "gelu_new", "intermediate_size": 3072, "max_position_embeddings": 512,
        "tie_word_embeddings": True, "type_vocab_size": 4, "vocab_size": 32000,
    },
    implementation=replace(ENCODER, segments="buffer", kernels=(EAGER,), buffers=(IDS, IDS)),
    modules=bert_modules("fnet") | {"project_in": "fnet.embeddings.projection"},
)  # fmt: skip

ARCHITECTURES = (FNET,)

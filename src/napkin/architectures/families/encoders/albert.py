"""ALBERT and ELECTRA: BERT's layers on a narrow embedding.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding, runs_of
from napkin.architectures.attention_parts import Scores
from napkin.architectures.blocks import LAYER, Operations
from napkin.architectures.families.encoders.bert import BERT
from napkin.architectures.families.encoders.bert_network import bert_blocks
from napkin.architectures.idle import beside_encoder
from napkin.architectures.masked import (
    BARE,
    EITHER_TOKEN,
    ENCODER,
    MASKED,
    PRETRAINING,
    bert_modules,
    encoder,
    heads_apart,
    masked_head,
    pooler,
    sizes_of,
)
from napkin.architectures.reading import tied
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation
from napkin.operations.views import run_again
from napkin.record import record, replace


@record
class NarrowEmbeddings:
    """Rows of the embeddings of tokens, positions and segments, and their width."""

    tokens: int
    positions: int
    segments: int
    width: int

    def operations(self, hidden: int, projected: bool) -> Operations:
        """Return the embeddings, and their projection to h: always, or where the widths differ."""
        before = embedding(
            self.tokens, self.width, positions=self.positions, segments=self.segments, norm=LAYER, dropout=True
        )
        if not projected and self.width == hidden:
            return before
        return (*before, Matmul("project_in", (before[-1].name,), self.width, hidden, True))


def embedded(config: Config, vocabulary: int) -> NarrowEmbeddings:
    """Read the embeddings."""
    config.must_be("position_embedding_type", "absolute")
    positions, segments = config.integer("max_position_embeddings"), config.integer("type_vocab_size")
    return NarrowEmbeddings(vocabulary, positions, segments, config.integer("embedding_size"))


def electra(config: Config) -> Model:
    """Return ELECTRA (arXiv:2003.10555): the generator predicts masked tokens, the discriminator (its pre-training
    class) finds replaced tokens with two small layers."""
    sizes = sizes_of(config, named=EITHER_TOKEN, pretraining=True)
    embeds = embedded(config, sizes.vocabulary)
    tie = tied(config) and sizes.purpose == MASKED

    hidden, scores = sizes.hidden, Scores(causal=config.flag("is_decoder", otherwise=False))
    attend, feed = bert_blocks(hidden, sizes.heads, sizes.inner, sizes.function, scores)
    discriminator: Operations = (
        Matmul("replaced_dense", ("x",), hidden, hidden, True),
        Activation("replaced_activation", ("replaced_dense",), hidden, sizes.function),
        Matmul("replaced", ("replaced_activation",), hidden, 1, True),
    )
    generator = masked_head(hidden, sizes.vocabulary, "gelu", table_width=embeds.width)
    model = encoder(
        sizes,
        embeds.operations(hidden, projected=False),
        ((sizes.layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        {BARE: (), MASKED: generator, PRETRAINING: discriminator}[sizes.purpose],
        tie=tie,
    )
    return beside_encoder(model, config, "add_cross_attention")


_MOST_SHARED = 10_000
"""More different layers to share than this are a slip of the keyboard; each is listed."""


def albert(config: Config) -> Model:
    """Return ALBERT (arXiv:1909.11942): a few groups of layers, each used many times, and a narrow token embedding."""
    sizes = sizes_of(config, pretraining=True)
    embeds = embedded(config, sizes.vocabulary)
    groups, inside = _groups(config, sizes.layers)
    if sizes.purpose == PRETRAINING:
        raise config.refuse("architectures", "the size of the sentence-order head is not in the config")

    hidden = sizes.hidden
    attend, feed = bert_blocks(hidden, sizes.heads, sizes.inner, sizes.function)
    once = post_norm(hidden, LAYER, attend, feed, dropout=(True, False))
    parts = [(group, part) for group in range(groups) for part in range(inside)]
    own = {key: [replace(op, name=f"group_{key[0]}_{key[1]}_{op.name}") for op in once] for key in parts}

    def layer(key: tuple[int, int]) -> Layer:
        """Return the layer's operations, each with the weights of its group."""
        return Layer(
            "shared",
            tuple(run_again(op, of) if op.weights() else op for op, of in zip(once, own[key], strict=True)),
        )

    used = ((i * groups // sizes.layers, part) for i in range(sizes.layers) for part in range(inside))
    masked = masked_head(hidden, sizes.vocabulary, sizes.function, table_width=embeds.width)
    model = encoder(
        sizes,
        embeds.operations(hidden, projected=True),
        runs_of(used, layer),
        masked if sizes.purpose == MASKED else pooler(hidden, "x"),
        tie=sizes.purpose == MASKED,
        shared=tuple(op for key in parts for op in own[key]),
    )
    return heads_apart(model, config)


def _groups(config: Config, layers: int) -> tuple[int, int]:
    """Read the number of groups of layers that share weights, and the number of layers in a group."""
    config.must_be("down_scale_factor", 1)
    config.must_be("gap_size", 0)
    config.must_be("net_structure_type", 0)
    config.must_be("num_memory_blocks", 0)
    groups, inside = config.integer("num_hidden_groups"), config.integer("inner_group_num")
    if groups > layers:
        raise config.wrong("num_hidden_groups", f"{groups} groups are more than {layers} layers")
    if groups * inside > _MOST_SHARED:
        raise config.wrong("inner_group_num", f"{groups} groups of {inside} make more than {_MOST_SHARED:,} layers")
    return groups, inside


ELECTRA = like(
    BERT,
    "electra",
    build=electra,
    config_class="ElectraConfig",
    defaults={"embedding_size": 128, "intermediate_size": 1024, "num_attention_heads": 4},
    modules=bert_modules("electra", head_dense="generator_predictions.dense", lm_head="generator_lm_head") | {
        "project_in": "electra.embeddings_project",
    },
)  # fmt: skip
ALBERT = Architecture(
    "albert",
    albert,
    config_class="AlbertConfig",
    defaults={
        "embedding_size": 128, "hidden_act": "gelu_new", "inner_group_num": 1, "intermediate_size": 16384,
        "max_position_embeddings": 512, "num_attention_heads": 64, "num_hidden_groups": 1,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "type_vocab_size": 2, "vocab_size": 30000,
    },
    implementation=replace(ENCODER, checkpoints=False),
    modules=bert_modules("albert", head_dense="predictions.dense", lm_head="predictions.decoder") | {
        "project_in": "albert.encoder.embedding_hidden_mapping_in", "q": "attention.query", "k": "attention.key",
        "v": "attention.value", "o": "attention.dense", "up": "ffn", "down": "ffn_output",
    },
)  # fmt: skip

ARCHITECTURES = (
    ELECTRA,
    ALBERT,
)

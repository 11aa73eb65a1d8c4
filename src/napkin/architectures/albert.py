"""ALBERT and ELECTRA: BERT's layers on a narrow embedding.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from napkin.architectures.arrangements import post_norm
from napkin.architectures.bert import BERT, bert_blocks
from napkin.architectures.blocks import LAYER, Operations
from napkin.architectures.common import (
    activation,
    depth,
    embedding,
    runs_of,
    tied,
    width,
)
from napkin.architectures.masked import (
    BARE,
    ENCODER,
    MASKED,
    PRETRAINING,
    encoder,
    head_count,
    masked_head,
    must_tie,
    pooler,
    purpose_of,
)
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation
from napkin.operations.views import reuse
from napkin.record import replace


def _narrow_embedding(config: Config, table: int, hidden: int, always: bool) -> Operations:
    """Tables of `table` numbers, then a projection to h: always, or where the two differ."""
    before = embedding(
        config.integer("vocab_size"),
        table,
        positions=config.integer("max_position_embeddings"),
        segments=config.integer("type_vocab_size"),
        norm=LAYER,
        dropout=True,
    )
    if not always and table == hidden:
        return before
    return (*before, Matmul("project_in", (before[-1].name,), table, hidden, True))


def electra(config: Config) -> Model:
    """ELECTRA (arXiv:2003.10555): the generator predicts masked tokens, the discriminator (its pre-training class)
    tells replaced ones by two small layers."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    config.must_be("position_embedding_type", "absolute")
    vocabulary, table = config.integer("vocab_size"), config.integer("embedding_size")
    purpose = purpose_of(config, pretraining=True)
    attend, feed = bert_blocks(hidden, heads, config.integer("intermediate_size"), activation(config, "hidden_act"))
    function = activation(config, "hidden_act")
    discriminator: Operations = (
        Matmul("replaced_dense", ("x",), hidden, hidden, True),
        Activation("replaced_activation", ("replaced_dense",), hidden, function),
        Matmul("replaced", ("replaced_activation",), hidden, 1, True),
    )
    generator = masked_head(hidden, vocabulary, "gelu", table_width=table)
    tie = tied(config) and purpose == MASKED
    return encoder(
        config,
        _narrow_embedding(config, table, hidden, always=False),
        ((layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        {BARE: (), MASKED: generator, PRETRAINING: discriminator}[purpose],
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )


_MOST_SHARED = 10_000
"""More different layers to share than this are a slip of the keyboard; each is listed."""


def albert(config: Config) -> Model:
    """ALBERT (arXiv:1909.11942): a few groups of layers, each used many times over, and a narrow token table."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    config.must_be("position_embedding_type", "absolute")
    config.must_be("down_scale_factor", 1)
    config.must_be("gap_size", 0)
    config.must_be("net_structure_type", 0)
    config.must_be("num_memory_blocks", 0)
    vocabulary, table = config.integer("vocab_size"), config.integer("embedding_size")
    groups, inside = config.integer("num_hidden_groups"), config.integer("inner_group_num")
    if groups > layers:
        raise config.wrong("num_hidden_groups", f"{groups} groups are more than {layers} layers")
    if groups * inside > _MOST_SHARED:
        raise config.wrong("inner_group_num", f"{groups} groups of {inside} make more than {_MOST_SHARED:,} layers")
    purpose = purpose_of(config, pretraining=True)
    attend, feed = bert_blocks(hidden, heads, config.integer("intermediate_size"), activation(config, "hidden_act"))
    once = post_norm(hidden, LAYER, attend, feed, dropout=(True, False))
    function = activation(config, "hidden_act")
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the size of the sentence-order head is not in the config")
    if purpose == MASKED:
        must_tie(config)
    parts = [(group, part) for group in range(groups) for part in range(inside)]
    own = {key: [replace(op, name=f"group_{key[0]}_{key[1]}_{op.name}") for op in once] for key in parts}

    def layer(key: tuple[int, int]) -> Layer:
        """The layer's operations, each with weights as that group's."""
        return Layer(
            "shared",
            tuple(reuse(op, of) if op.weights() else op for op, of in zip(once, own[key], strict=True)),
        )

    used = ((i * groups // layers, part) for i in range(layers) for part in range(inside))
    return encoder(
        config,
        _narrow_embedding(config, table, hidden, always=True),
        runs_of(used, layer),
        masked_head(hidden, vocabulary, function, table_width=table) if purpose == MASKED else pooler(hidden, "x"),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=purpose == MASKED,
        shared=tuple(op for key in parts for op in own[key]),
    )


ELECTRA = like(
    BERT,
    "electra",
    build=electra,
    config_class="ElectraConfig",
    defaults={"embedding_size": 128, "intermediate_size": 1024, "num_attention_heads": 4},
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
    implementation=ENCODER,
)  # fmt: skip

ARCHITECTURES = (
    ELECTRA,
    ALBERT,
)

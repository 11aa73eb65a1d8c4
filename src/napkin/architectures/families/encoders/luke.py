"""LUKE (arXiv:2010.01057): RoBERTa next to a vocabulary of entities, which text alone does not run.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/luke/).
"""

from __future__ import annotations

from napkin.architectures.blocks import LAYER
from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.families.encoders.roberta import ROBERTA
from napkin.architectures.idle import idle, in_each_layer, tensors
from napkin.architectures.masked import BARE, bert_modules, purpose_of
from napkin.architectures.record import like
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import EAGER
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.roles import POSITION, SEGMENT
from napkin.operations.views import reuse
from napkin.record import replace


def luke(config: Config) -> Model:
    """Return LUKE. Without entities, what is theirs is counted as parameters and does not run."""
    model = replace(
        Bert(head="gelu", masked_pooler=True)(config), tied=False
    )  # the class ties the entities' head alone
    hidden, bare = model.hidden, purpose_of(config) == BARE
    rows, wide = config.integer("entity_vocab_size"), config.integer("entity_emb_size")
    positions, segments = config.integer("max_position_embeddings"), config.integer("type_vocab_size", least=0)
    config.notes.append("what entities need is counted as parameters; a text-only pass does not run it")
    entities: list[Operation] = [
        Embedding("entity_embedding", (), rows, wide),
        Embedding("entity_positions", (), positions, hidden, role=POSITION),
        Embedding("entity_segments", (), segments, hidden, role=SEGMENT),
        LAYER("entity_norm", "x", hidden),
    ]
    if wide != hidden:
        entities.append(Matmul("entity_dense", ("x",), wide, hidden))
    if not bare:
        entities += [
            Matmul("entity_head_dense", ("x",), hidden, wide, True),
            LAYER("entity_head_norm", "x", wide),
            tensors("entity_head_bias", {"bias": (rows,)}),
        ]
        head = Matmul("entity_head", ("x",), wide, rows)
        entities.append(reuse(head) if config.flag("tie_word_embeddings") else head)
    if config.flag("use_entity_aware_attention"):
        queries = tuple(Matmul(f"{name}_query", ("x",), hidden, hidden, True) for name in ("w2e", "e2w", "e2e"))
        model = in_each_layer(model, "entity_queries", queries)
    (stack,) = model.stacks
    return replace(model, stacks=(replace(stack, before=(idle("entities", tuple(entities)), *stack.before)),))


LUKE = like(
    ROBERTA,
    "luke",
    build=luke,
    config_class="LukeConfig",
    defaults={
        "entity_emb_size": 256, "entity_vocab_size": 500000, "use_entity_aware_attention": True, "vocab_size": 50267,
    },
    implementation=replace(ROBERTA.implementation, kernels=(EAGER,)),
    modules={
        **bert_modules("luke", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
        "entity_embedding": "luke.entity_embeddings.entity_embeddings",
        "entity_positions": "luke.entity_embeddings.position_embeddings",
        "entity_segments": "luke.entity_embeddings.token_type_embeddings",
        "entity_dense": "luke.entity_embeddings.entity_embedding_dense",
        "entity_head_dense": "entity_predictions.transform.dense",
        "entity_head": "entity_predictions.decoder",
        **{f"{name}_query": f"attention.self.{name}_query" for name in ("w2e", "e2w", "e2e")},
    },
)  # fmt: skip

ARCHITECTURES = (LUKE,)

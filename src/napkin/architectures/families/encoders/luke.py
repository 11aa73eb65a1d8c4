"""LUKE (arXiv:2010.01057): RoBERTa next to a vocabulary of entities, which text alone does not run.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/luke/).
"""

from __future__ import annotations

from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.families.encoders.roberta import ROBERTA
from napkin.architectures.idle import Tensors, idle, in_each_layer
from napkin.architectures.masked import BARE, bert_modules, purpose_of
from napkin.architectures.record import like
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER
from napkin.operations.model import Model
from napkin.record import replace


def luke(config: Config) -> Model:
    """Return LUKE. Without entities, what is theirs is counted as parameters and does not run."""
    model = replace(
        Bert(head="gelu", masked_pooler=True)(config), tied=False
    )  # the class ties the entities' head alone
    hidden, bare = model.hidden, purpose_of(config) == BARE
    rows, wide = config.integer("entity_vocab_size"), config.integer("entity_emb_size")
    positions, segments = config.integer("max_position_embeddings"), config.integer("type_vocab_size", least=0)
    config.notes.append("what entities need is counted as parameters; text alone does not run it")
    shapes: dict[str, tuple[int, ...]] = {"entities": (rows, wide), "norm": (2, hidden)}
    shapes |= {"positions": (positions, hidden), "segments": (segments, hidden)}
    if wide != hidden:
        shapes["dense"] = (hidden, wide)
    if not bare:
        shapes |= {"head_dense": (hidden + 1, wide), "head_norm": (2, wide), "head_bias": (rows,)}
        if not config.flag("tie_word_embeddings"):
            shapes["head"] = (rows, wide)
    if config.flag("use_entity_aware_attention"):
        queries: Tensors = tuple((f"{name}_query", (hidden + 1, hidden)) for name in ("w2e", "e2w", "e2e"))
        model = in_each_layer(model, "entity_queries", queries)
    (stack,) = model.stacks
    return replace(model, stacks=(replace(stack, before=(idle("entities", tuple(shapes.items())), *stack.before)),))


LUKE = like(
    ROBERTA,
    "luke",
    build=luke,
    config_class="LukeConfig",
    defaults={
        "entity_emb_size": 256, "entity_vocab_size": 500000, "use_entity_aware_attention": True, "vocab_size": 50267,
    },
    implementation=replace(ROBERTA.implementation, kernels=(EAGER,)),
    modules=bert_modules("luke", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)  # fmt: skip

ARCHITECTURES = (LUKE,)

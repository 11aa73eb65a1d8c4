"""Encoders that are BERT with other embeddings, other linear layers or adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from napkin.architectures.families.encoders.bert import BERT
from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.idle import idle
from napkin.architectures.masked import EITHER_TOKEN, ENCODER, bert_modules
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import IDS
from napkin.operations.learned import Parameters
from napkin.operations.linear import BlockMatmul, Matmul
from napkin.operations.model import Model
from napkin.operations.pointwise import Activation, Add
from napkin.operations.roles import REPLICATED, SEGMENT
from napkin.operations.views import Concat
from napkin.record import replace


def rebuilt(model: Model, change: Callable[[tuple[Operation, ...]], tuple[Operation, ...]]) -> Model:
    """Return the model with other embeddings."""
    (stack,) = model.stacks
    return replace(model, stacks=(replace(stack, before=change(stack.before)),))


def added(before: tuple[Operation, ...], tables: Iterable[Embedding]) -> tuple[Operation, ...]:
    """Return embeddings with more tables, whose rows are added before the norm."""
    at = next(i for i, op in enumerate(before) if op.name == "embedding_norm")
    norm, tables = before[at], tuple(tables)
    last, sums = norm.reads[0], list[Operation]()
    for table in tables:
        sums.append(Add(f"{table.name}_added", (last, table.name), table.width))
        last = sums[-1].name
    return (*before[:at], *tables, *sums, replace(norm, reads=(last,)), *before[at + 1 :])


def each_layer(model: Model, change: Callable[[tuple[Operation, ...]], tuple[Operation, ...]]) -> Model:
    """Return the model with other operations in each layer."""
    (stack,) = model.stacks
    return replace(model, stacks=(stack.mapped(lambda one: replace(one, operations=change(one.operations))),))


def _ernie(config: Config) -> Model:
    """Return ERNIE (arXiv:1904.09223): BERT, with an embedding of a token's task if the config says so (ERNIE 3.0)."""
    rows, width = config.integer("task_type_vocab_size"), config.integer("hidden_size", default=False)
    model = Bert(next_sentence=True, decodes=True, named=EITHER_TOKEN)(config)
    if not config.flag("use_task_id"):
        return model
    table = Embedding("task_embedding", (), rows, width, role=SEGMENT, made=True)
    return rebuilt(model, lambda before: added(before, [table]))


_OF_ANSWERS = (
    *("aggregation_loss_weight", "aggregation_temperature", "allow_empty_column_selection", "answer_loss_cutoff"),
    *("answer_loss_importance", "average_approximation_function", "average_logits_per_cell", "temperature"),
    *("cell_selection_preference", "disable_per_token_loss", "huber_loss_delta", "max_num_columns", "max_num_rows"),
    *("init_cell_selection_weights_to_zero", "positive_label_weight", "reset_position_index_per_cell"),
    *("select_one_column", "use_answer_as_supervision", "use_gumbel_for_aggregation", "use_gumbel_for_cells"),
    *("use_normalized_answer_loss", "num_aggregation_labels", "aggregation_labels", "no_aggregation_label_index"),
)
"""Fields of TAPAS that say how its class answers questions, and how tokens are numbered within a table."""


def _tapas(config: Config) -> Model:
    """Return TAPAS (arXiv:2004.02349): BERT with seven embeddings of a token's place in a table."""
    sizes = config.items("type_vocab_sizes") or []
    for rows in sizes:
        if isinstance(rows, bool) or not isinstance(rows, int) or not 0 < rows <= 10**9:
            raise config.wrong("type_vocab_sizes", "is not a list of numbers of rows")
    width = config.integer("hidden_size", default=False)
    model = Bert(segments=False, pooler=True, only=(("add_cross_attention", (False,)),), ignored=_OF_ANSWERS)(config)
    tables = [Embedding(f"table_embedding_{i}", (), rows, width, role=SEGMENT) for i, rows in enumerate(sizes)]
    return rebuilt(model, lambda before: added(before, tables))


def _roc_bert(config: Config) -> Model:
    """Return RoCBert (arXiv:2205.11820): BERT with embeddings of a character's pronunciation and shape, joined with the
    token's and projected."""
    width = config.integer("hidden_size", default=False)
    model = Bert(decodes=True, named=EITHER_TOKEN)(config)
    tables: list[Embedding] = []
    unused: list[Operation] = []  # the class holds both embeddings in any case
    for what in ("pronunciation", "shape"):
        rows, size = config.integer(f"{what}_vocab_size"), config.integer(f"{what}_embed_dim")
        if config.flag(f"enable_{what}"):
            tables.append(Embedding(f"{what}_embedding", (), rows, size, role=SEGMENT, given=True))
        else:
            weight = (("weight", (rows, size)),)
            unused.append(Parameters(f"unused_{what}_embedding", (), weight, REPLICATED, trained=False))
    if not config.flag("concat_input"):
        return rebuilt(model, lambda before: (*unused, *added(before, tables)))
    total = width + sum(table.width for table in tables)

    def joined(before: tuple[Operation, ...]) -> tuple[Operation, ...]:
        first, *rest = before
        names = (first.name, *(table.name for table in tables))
        projected = Matmul("map_inputs", ("inputs_joined",), total, width, True)
        rest = [replace(op, reads=tuple("map_inputs" if r == first.name else r for r in op.reads)) for op in rest]
        return (*unused, first, *tables, Concat("inputs_joined", names, total), projected, *rest)

    return rebuilt(model, joined)


def _xlm(config: Config) -> Model:
    """Return XLM (arXiv:1901.07291): an MLP four times as wide, a plain head, embeddings of languages if there are
    several."""
    hidden = config.integer("hidden_size", default=False)
    config.restate("intermediate_size", 4 * hidden)
    config.restate("hidden_act", "gelu" if config.flag("gelu_activation") else "relu")
    for field, value in (("causal", False), ("asm", False), ("pre_norm", False), ("is_encoder", True)):
        config.must_be(field, value)
    config.ignore(
        "use_lang_emb",
        "sinusoidal_embeddings",
        "lang_id",
        "embed_init_std",
        "max_vocab",
        "min_count",
        "share_inout_emb",
    )
    languages = config.integer("n_langs")
    model = _XLM(config)
    if languages == 1 or not config.flag("use_lang_emb"):
        return model
    table = Embedding("language_embedding", (), languages, hidden, role=SEGMENT)
    return rebuilt(model, lambda before: added(before, [table]))


_XLM = Bert(segments=False, pooler=False, plain_head=True, named="WithLMHeadModel", biases=1)


def _squeezebert(config: Config) -> Model:
    """Return SqueezeBERT (arXiv:2006.11316): BERT whose linear layers are grouped convolutions of width 1."""
    fields = {"q": "q_groups", "k": "k_groups", "v": "v_groups", "o": "post_attention_groups"}
    fields |= {"up": "intermediate_groups", "down": "output_groups"}
    groups = {name: config.integer(field) for name, field in fields.items()}
    model = Bert(masked_pooler=True, ignored=("embedding_size",))(config)

    def grouped(op: Operation) -> Operation:
        many, dense = groups.get(op.name, 1), op.linear()
        if many == 1 or dense is None:
            return op
        for size in (dense.d_in, dense.d_out):
            config.divides(fields[op.name], size, many, "channels")
        return BlockMatmul(op.name, op.reads, many, dense.d_in // many, dense.d_out // many, dense.bias)

    return each_layer(model, lambda operations: tuple(map(grouped, operations)))


def _xmod(config: Config) -> Model:
    """Return X-MOD (arXiv:2205.06266): RoBERTa with a bottleneck for each language after each layer, one of which a
    text passes through."""
    languages = len({str(name) for name in config.items("languages") or []})
    if not languages:
        raise config.refuse("languages", "lists none: no bottleneck, and nothing that a text passes through")
    for field in ("pre_norm", "adapter_layer_norm"):
        config.must_be(field, False)
    config.ignore("adapter_reuse_layer_norm", "ln_before_adapter", "default_language")
    model = Bert(head="gelu", decodes=True, named=EITHER_TOKEN)(config)
    hidden = model.hidden
    inner = hidden // config.integer("adapter_reduction_factor")
    function = config.text("hidden_act")
    others: list[Operation] = []
    for i in range(1, languages):
        others += [
            Matmul(f"language_{i}_down", ("x",), hidden, inner, True, module="output.adapter_modules.dense1"),
            Matmul(f"language_{i}_up", ("x",), inner, hidden, True, module="output.adapter_modules.dense2"),
        ]

    def adapted(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        last = operations[-1].name
        found: tuple[Operation, ...] = (
            *operations,
            Matmul("adapter_down", (last,), hidden, inner, True),
            Activation("adapter_activation", ("adapter_down",), inner, function),
            Matmul("adapter_up", ("adapter_activation",), inner, hidden, True),
            Add("adapter_residual", (last, "adapter_up"), hidden, True),
        )
        if others:
            found = (idle("other_languages", tuple(others)), *found)
        return found

    return each_layer(model, adapted)


_XLM_NAMES = {"emb_dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"}
XLM = Architecture(
    "xlm",
    _xlm,
    config_class="XLMConfig",
    aliases={**_XLM_NAMES, "n_words": "vocab_size"},
    defaults={
        "gelu_activation": True, "max_position_embeddings": 512, "n_langs": 1, "num_attention_heads": 16,
        "tie_word_embeddings": True, "use_lang_emb": True, "vocab_size": 30145,
    },
    implementation=replace(ENCODER, buffers=(IDS,), checkpoints=False),
    modules={
        "embedding": "transformer.embeddings", "position_embedding": "transformer.position_embeddings",
        "q": "q_lin", "k": "k_lin", "v": "v_lin", "o": "out_lin", "up": "lin1", "down": "lin2",
        "lm_head": "pred_layer.proj",
    },
)  # fmt: skip
FLAUBERT = like(XLM, "flaubert", config_class="FlaubertConfig")
SQUEEZEBERT = like(
    BERT,
    "squeezebert",
    build=_squeezebert,
    config_class="SqueezeBertConfig",
    defaults={
        "intermediate_groups": 4, "k_groups": 4, "output_groups": 4, "post_attention_groups": 1, "q_groups": 4,
        "v_groups": 4,
    },
    implementation=replace(BERT.implementation, checkpoints=False),
    modules=bert_modules("transformer"),
)  # fmt: skip
XMOD = like(
    BERT,
    "xmod",
    build=_xmod,
    config_class="XmodConfig",
    defaults={"adapter_reduction_factor": 2, "languages": ["en_XX"]},
    modules=bert_modules("roberta", head_dense="lm_head.dense", lm_head="lm_head.decoder") | {
        "adapter_down": "output.adapter_modules.dense1", "adapter_up": "output.adapter_modules.dense2",
    },
)  # fmt: skip
ERNIE = like(
    BERT,
    "ernie",
    build=_ernie,
    config_class="ErnieConfig",
    defaults={"task_type_vocab_size": 3, "use_task_id": False},
    modules=bert_modules("ernie") | {"task_embedding": "ernie.embeddings.task_type_embeddings"},
)
TAPAS = like(
    BERT,
    "tapas",
    build=_tapas,
    config_class="TapasConfig",
    defaults={"max_position_embeddings": 1024, "type_vocab_sizes": [3, 256, 256, 2, 256, 256, 10]},
    modules=bert_modules("tapas"),
)
ROC_BERT = like(
    BERT,
    "roc_bert",
    build=_roc_bert,
    config_class="RoCBertConfig",
    defaults={
        "concat_input": True, "enable_pronunciation": True, "enable_shape": True, "pronunciation_embed_dim": 768,
        "pronunciation_vocab_size": 910, "shape_embed_dim": 512, "shape_vocab_size": 24858,
    },
    modules=bert_modules("roc_bert") | {
        "map_inputs": "roc_bert.embeddings.map_inputs_layer",
        "pronunciation_embedding": "roc_bert.embeddings.pronunciation_embed",
        "shape_embedding": "roc_bert.embeddings.shape_embed",
    },
)  # fmt: skip
# arXiv:2101.01321, as it is trained: without quantization
IBERT = Architecture(
    "ibert",
    Bert(head="gelu", only=(("quant_mode", (False,)),), ignored=("force_dequant",)),
    config_class="IBertConfig",
    defaults={**BERT.defaults},
    implementation=replace(ENCODER, buffers=(IDS,), checkpoints=False),
    modules=bert_modules("ibert", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)

ARCHITECTURES = (ERNIE, TAPAS, ROC_BERT, IBERT, XLM, FLAUBERT, SQUEEZEBERT, XMOD)

"""Encoders that are BERT with other embeddings, or with attention that approximates BERT's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from napkin.architectures.families.bert import BERT, Bert
from napkin.architectures.masked import ENCODER, bert_modules, pooler
from napkin.architectures.record import Architecture, Build, like
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import IDS
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import HEADS, POSITION, SEGMENT
from napkin.operations.views import Concat
from napkin.record import replace


def _rebuilt(model: Model, change: Callable[[tuple[Operation, ...]], tuple[Operation, ...]]) -> Model:
    """Return the model with other embeddings."""
    (stack,) = model.stacks
    return replace(model, stacks=(replace(stack, before=change(stack.before)),))


def _added(before: tuple[Operation, ...], tables: Iterable[Embedding]) -> tuple[Operation, ...]:
    """Return embeddings with more tables, whose rows are added before the norm."""
    at = next(i for i, op in enumerate(before) if op.name == "embedding_norm")
    norm, more = before[at], []
    last = norm.reads[0]
    for table in tables:
        total = Add(f"{table.name}_added", (last, table.name), table.width)
        more += [table, total]
        last = total.name
    return (*before[:at], *more, replace(norm, reads=(last,)), *before[at + 1 :])


def _with_pooler(model: Model) -> Model:
    """Return the model with the pooler, which the class with the masked head holds and runs too."""
    (stack,) = model.stacks
    if not stack.after or stack.after[0].name == "pooler":
        return model
    return replace(model, stacks=(replace(stack, after=(*pooler(model.hidden, "x"), *stack.after)),))


def _layoutlm(config: Config) -> Model:
    """Return LayoutLM (arXiv:1912.13318): BERT with embeddings of a token's box, its corners and its size."""
    rows, width = config.integer("max_2d_position_embeddings"), config.integer("hidden_size", default=False)
    model = Bert(ignored=("max_2d_position_embeddings",))(config)
    tables = [Embedding(f"{side}_position_embedding", (), rows, width, role=POSITION) for side in "xyhw"]
    return _rebuilt(_with_pooler(model), lambda before: _added(before, tables))


def _tapas(config: Config) -> Model:
    """Return TAPAS (arXiv:2004.02349): BERT with seven embeddings of a token's place in a table."""
    sizes = config.items("type_vocab_sizes") or []
    for rows in sizes:
        if isinstance(rows, bool) or not isinstance(rows, int) or not 0 < rows <= 10**9:
            raise config.wrong("type_vocab_sizes", "is not a list of numbers of rows")
    width = config.integer("hidden_size", default=False)
    model = Bert(segments=False, pooler=True, only=(("add_cross_attention", (False,)),))(config)
    tables = [Embedding(f"table_embedding_{i}", (), rows, width, role=SEGMENT) for i, rows in enumerate(sizes)]
    return _rebuilt(model, lambda before: _added(before, tables))


def _roc_bert(config: Config) -> Model:
    """Return RoCBert (arXiv:2205.11820): BERT with embeddings of a character's pronunciation and shape, joined with the
    token's and projected."""
    width = config.integer("hidden_size", default=False)
    model = Bert(pooler=True, only=(("add_cross_attention", (False,)),))(config)
    tables = []
    for what in ("pronunciation", "shape"):
        if config.flag(f"enable_{what}"):
            rows, size = config.integer(f"{what}_vocab_size"), config.integer(f"{what}_embed_dim")
            tables.append(Embedding(f"{what}_embedding", (), rows, size, role=SEGMENT))
    if not config.flag("concat_input"):
        return _rebuilt(model, lambda before: _added(before, tables))
    total = width + sum(table.width for table in tables)

    def joined(before: tuple[Operation, ...]) -> tuple[Operation, ...]:
        first, *rest = before
        names = (first.name, *(table.name for table in tables))
        projected = Matmul("map_inputs", ("inputs_joined",), total, width, True)
        rest = [replace(op, reads=tuple("map_inputs" if r == first.name else r for r in op.reads)) for op in rest]
        return (first, *tables, Concat("inputs_joined", names, total), projected, *rest)

    return _rebuilt(model, joined)


_OF_THE_APPROXIMATION = (
    *("attention_type", "block_size", "num_random_blocks", "rescale_embeddings"),
    *("inv_coeff_init_option", "num_landmarks", "segment_means_seq_len"),
    *("hash_code_len", "lsh_backward", "num_hash", "use_expectation", "use_fast_hash"),
    *("approx_mode", "block_per_row", "initial_prior_diagonal_n_blocks", "initial_prior_first_n_blocks"),
)


def _approximate(offset: int, convolution: str = "", *, pools: bool = False) -> Build:
    """Return BERT whose class approximates softmax attention.

    offset       rows of the position embedding in addition to the positions
    convolution  the field of the width of a convolution over the values of each head
    pools        the class with the masked head has the pooler too
    """

    def build(config: Config) -> Model:
        model = Bert(pooler=pools, only=(("add_cross_attention", (False,)),))(config)
        model = _with_pooler(model) if pools else model
        config.notes.append("the class approximates attention; full attention is counted")
        config.ignore(*_OF_THE_APPROXIMATION)
        config.must_be("use_bias", True)
        kernel = config.optional_integer(convolution) if convolution else None
        (stack,) = model.stacks
        before = tuple(
            replace(op, rows=op.rows + offset) if isinstance(op, Embedding) and op.embeds() == POSITION else op
            for op in stack.before
        )
        if kernel:
            tensors = (("weight", (model.heads, 1, kernel, 1)),)
            conv = Parameters("value_convolution", (), tensors, HEADS)
            patterns = tuple(
                (times, tuple((n, Layer(one.kind, (conv, *one.operations))) for n, one in runs))
                for times, runs in stack.patterns
            )
            stack = replace(stack, patterns=patterns)
        return replace(model, stacks=(replace(stack, before=before),))

    return build


LAYOUTLM = like(
    BERT,
    "layoutlm",
    build=_layoutlm,
    config_class="LayoutLMConfig",
    defaults={"max_2d_position_embeddings": 1024},
    modules=bert_modules("layoutlm"),
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
    implementation=replace(ENCODER, buffers=(IDS,)),
    modules=bert_modules("ibert", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)
# arXiv:2007.14062
BIG_BIRD = like(
    BERT,
    "big_bird",
    build=_approximate(0, pools=True),
    config_class="BigBirdConfig",
    defaults={"hidden_act": "gelu_new", "max_position_embeddings": 4096, "vocab_size": 50358},
    modules=bert_modules("bert"),
)
# arXiv:2102.03902
NYSTROMFORMER = like(
    BERT,
    "nystromformer",
    build=_approximate(2, "conv_kernel_size"),
    config_class="NystromformerConfig",
    defaults={
        "conv_kernel_size": 65, "hidden_act": "gelu_new", "max_position_embeddings": 510, "vocab_size": 30000,
    },
    modules=bert_modules("nystromformer"),
)  # fmt: skip
# arXiv:2111.09714
YOSO = like(
    BERT,
    "yoso",
    build=_approximate(2, "conv_window"),
    config_class="YosoConfig",
    defaults={
        "conv_window": None, "max_position_embeddings": 4096, "type_vocab_size": 1, "vocab_size": 50265,
    },
    modules=bert_modules("yoso"),
)  # fmt: skip
# arXiv:2207.10284
MRA = like(
    BERT,
    "mra",
    build=_approximate(2),
    config_class="MraConfig",
    defaults={"max_position_embeddings": 512, "type_vocab_size": 1, "vocab_size": 50265},
    modules=bert_modules("mra"),
)

ARCHITECTURES = (LAYOUTLM, TAPAS, ROC_BERT, IBERT, BIG_BIRD, NYSTROMFORMER, YOSO, MRA)

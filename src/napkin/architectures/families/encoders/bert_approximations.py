"""Encoders that are BERT with attention that approximates BERT's."""

from __future__ import annotations

from math import isqrt

from napkin.architectures.families.encoders.bert import BERT
from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.families.encoders.bert_relatives import each_layer
from napkin.architectures.masked import EITHER_TOKEN, ENCODER, bert_modules
from napkin.architectures.record import like
from napkin.architectures.sparse_attention import block_sparse
from napkin.inputs.model import Config
from napkin.operations.attention.convolved import ConvolvedAttention
from napkin.operations.attention.resolution import BLOCK, ResolutionAttention
from napkin.operations.base import Operation
from napkin.operations.implementations import EAGER
from napkin.operations.learned import Parameters
from napkin.operations.model import Model
from napkin.operations.roles import HEADS
from napkin.record import replace

_APPROXIMATES = "the class approximates attention; full attention is counted"


def _yoso(config: Config) -> Model:
    """Return YOSO (arXiv:2111.09714): BERT whose class samples attention, next to a convolution over the values of each
    head if `conv_window` has a width."""
    model = Bert(pooler=False, offset=2, only=(("add_cross_attention", (False,)), ("use_bias", (True,))))(config)
    config.notes.append(_APPROXIMATES)
    config.ignore("hash_code_len", "lsh_backward", "num_hash", "use_expectation", "use_fast_hash")
    kernel = config.optional_integer("conv_window")
    if not kernel:
        return model
    conv = Parameters("value_convolution", (), (("weight", (model.heads, 1, kernel, 1)),), HEADS)
    return each_layer(model, lambda operations: (conv, *operations))


def _nystromformer(config: Config) -> Model:
    """Return Nyströmformer (arXiv:2102.03902): BERT with a convolution over the values of each head. Its attention is
    full if there are as many landmarks as tokens."""
    model = Bert(pooler=False, offset=2, only=(("add_cross_attention", (False,)),))(config)
    approximates = config.integer("num_landmarks") != config.integer("segment_means_seq_len")
    if approximates:
        config.notes.append(_APPROXIMATES)
    config.ignore("inv_coeff_init_option")
    kernel = config.optional_integer("conv_kernel_size") or 0

    def convolved(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        made: list[Operation] = []
        for op in operations:
            of = op.attends()
            if of is not None:
                sizes = (of.heads, of.kv_heads, of.qk_dim, of.v_dim)
                op = ConvolvedAttention(
                    of.name, of.reads, *sizes, causal=False, kernel=kernel, approximates=approximates
                )
            made.append(op)
        return tuple(made)

    return each_layer(model, convolved)


def _mra(config: Config) -> Model:
    """Return MRA (arXiv:2207.10284): BERT whose attention is exact in some blocks of 32 × 32 tokens."""
    model = Bert(pooler=False, offset=2, only=(("add_cross_attention", (False,)),))(config)
    kind = config.text("approx_mode", known=("full", "sparse"))
    config.ignore("initial_prior_diagonal_n_blocks", "initial_prior_first_n_blocks")
    row = config.integer("max_position_embeddings") // BLOCK
    chosen = min(row * config.integer("block_per_row"), row * row)
    if not chosen:
        raise config.wrong("max_position_embeddings", f"is less than the {BLOCK} tokens of a block")
    config.notes.append(
        "the class's attention returns fp32, which 16-bit weights without autocast refuse; without its CUDA kernels it "
        "attends to nothing"
    )

    def resolved(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        made: list[Operation] = []
        for op in operations:
            of = op.attends()
            if of is not None:
                op = ResolutionAttention(of.name, of.reads, of.heads, of.qk_dim, chosen, kind == "full")
            made.append(op)
        return tuple(made)

    model = replace(model, unit=BLOCK, least=BLOCK * (isqrt(chosen - 1) + 1))
    return each_layer(model, resolved)


def _big_bird(config: Config) -> Model:
    """Return BigBird (arXiv:2007.14062): BERT whose blocks of tokens see a few others."""
    kind = config.text("attention_type", known=("block_sparse", "original_full"))
    network = Bert(masked_pooler=True, decodes=True, named=EITHER_TOKEN, only=(("use_bias", (True,)),))
    model = network(config)
    config.ignore("rescale_embeddings", "block_size", "num_random_blocks")
    if kind == "original_full" or config.flag("add_cross_attention", otherwise=False):
        return model
    core = block_sparse(config)

    def sparse(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        made: list[Operation] = []
        for op in operations:
            found = op.attends()
            made += (op,) if found is None else core(found)
        return tuple(made)

    return each_layer(model, sparse)


# arXiv:2007.14062
BIG_BIRD = like(
    BERT,
    "big_bird",
    build=_big_bird,
    config_class="BigBirdConfig",
    defaults={
        "attention_type": "block_sparse", "block_size": 64, "hidden_act": "gelu_new", "max_position_embeddings": 4096,
        "num_random_blocks": 3, "use_bias": True, "vocab_size": 50358,
    },
    implementation=replace(ENCODER, segments="buffer", kernels=(EAGER,)),
    modules=bert_modules("bert") | {"pooler": "bert.pooler"},
)  # fmt: skip
# arXiv:2102.03902
NYSTROMFORMER = like(
    BERT,
    "nystromformer",
    build=_nystromformer,
    config_class="NystromformerConfig",
    defaults={
        "conv_kernel_size": 65, "hidden_act": "gelu_new", "max_position_embeddings": 510, "num_landmarks": 64,
        "segment_means_seq_len": 64, "vocab_size": 30000,
    },
    implementation=replace(ENCODER, segments="buffer", kernels=(EAGER,)),
    modules=bert_modules("nystromformer"),
)  # fmt: skip
YOSO = like(
    BERT,
    "yoso",
    build=_yoso,
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
    build=_mra,
    config_class="MraConfig",
    defaults={
        "approx_mode": "full", "block_per_row": 4, "max_position_embeddings": 512, "type_vocab_size": 1,
        "vocab_size": 50265,
    },
    implementation=replace(ENCODER, segments="buffer", kernels=(EAGER,)),
    modules=bert_modules("mra"),
)  # fmt: skip

ARCHITECTURES = (BIG_BIRD, NYSTROMFORMER, YOSO, MRA)

"""ConvBERT (arXiv:2008.02496): ELECTRA's encoder with half of the heads' width in a convolution made from each token.

Fields and arrangements are facts of the class of Hugging Face transformers 5.24.0 (src/transformers/models/convbert/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.blocks import LAYER, Block, Operations, plain_mlp
from napkin.architectures.families.encoders.albert import ELECTRA, embedded
from napkin.architectures.masked import MASKED, bert_modules, encoder, masked_head, sizes_of
from napkin.architectures.reading import tied
from napkin.architectures.record import like
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.mixed import GroupedLinear, SeparableConvolution, TokenConvolution
from napkin.operations.implementations import EAGER
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Multiply, Softmax
from napkin.operations.roles import COLUMN, DOWN, KEY, QUERY, ROW, VALUE
from napkin.operations.views import Concat
from napkin.record import replace


def _mixed(source: str, *, hidden: int, heads: int, kernel: int) -> Operations:
    """Return attention of `heads` heads next to a convolution of as many, each half of `hidden` wide."""
    half, size = hidden // 2, hidden // 2 // heads

    def linear(name: str, role: str = "") -> Matmul:
        return Matmul(name, (source,), hidden, half, True, COLUMN, role=role)

    return (
        linear("k", KEY),
        linear("v", VALUE),
        SeparableConvolution("key_convolution", (source,), hidden, half, kernel),
        linear("q", QUERY),
        Multiply("kernel_input", ("key_convolution", "q"), half),
        Matmul("kernel", ("kernel_input",), half, heads * kernel, True, COLUMN),
        Softmax("kernel_shares", ("kernel",), heads * kernel),
        linear("convolution_input"),
        TokenConvolution("convolution", ("convolution_input", "kernel_shares"), heads, half, kernel),
        AttentionCore("attention", ("q", "k", "v"), heads, heads, size, size, causal=False),
        Concat("mixed", ("attention", "convolution"), hidden),
        Matmul("o", ("mixed",), hidden, hidden, True, ROW),
    )


def _grouped_mlp(source: str, *, width: int, inner: int, function: str, groups: int) -> Operations:
    return (
        GroupedLinear("up", (source,), width, inner, groups),
        Activation("activation", ("up",), inner, function),
        GroupedLinear("down", ("activation",), inner, width, groups, role=DOWN),
    )


def _convbert(config: Config) -> Model:
    """Return ConvBERT."""
    config.must_be("is_decoder", False)
    config.must_be("add_cross_attention", False)
    sizes = sizes_of(config)
    hidden, heads = sizes.hidden, max(sizes.heads // config.integer("head_ratio"), 1)
    kernel, groups = config.integer("conv_kernel_size"), config.integer("num_groups")
    config.divides("head_ratio", hidden, 2 * heads, f"(hidden_size, by twice {heads} heads)")
    if kernel % 2 == 0:
        raise config.wrong("conv_kernel_size", f"{kernel} is even: its convolutions would change the length")
    for field, width in (("hidden_size", hidden), ("intermediate_size", sizes.inner)):
        if width % groups:
            raise config.wrong("num_groups", f"{groups} do not divide {field} = {width:,}")
    embeds = embedded(config, sizes.vocabulary)
    attend: Block = partial(_mixed, hidden=hidden, heads=heads, kernel=kernel)
    feed: Block = partial(plain_mlp, width=hidden, inner=sizes.inner, function=sizes.function)
    if groups > 1:
        feed = partial(_grouped_mlp, width=hidden, inner=sizes.inner, function=sizes.function, groups=groups)
    masked = sizes.purpose == MASKED
    head = masked_head(hidden, sizes.vocabulary, "gelu", table_width=embeds.width)
    model = encoder(
        sizes,
        embeds.operations(hidden, projected=False),
        ((sizes.layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        head if masked else (),
        tie=tied(config) and masked,
    )
    return replace(model, heads=heads, kv_heads=heads, head_dim=hidden // 2 // heads)


CONVBERT = like(
    ELECTRA,
    "convbert",
    build=_convbert,
    config_class="ConvBertConfig",
    defaults={
        "conv_kernel_size": 9, "embedding_size": 768, "head_ratio": 2, "intermediate_size": 3072,
        "num_attention_heads": 12, "num_groups": 1,
    },
    implementation=replace(ELECTRA.implementation, kernels=(EAGER,), segments="buffer"),
    modules=bert_modules("convbert", head_dense="generator_predictions.dense", lm_head="generator_lm_head") | {
        "project_in": "convbert.embeddings_project", "key_convolution": "attention.self.key_conv_attn_layer",
        "kernel": "attention.self.conv_kernel_layer", "convolution_input": "attention.self.conv_out_layer",
    },
)  # fmt: skip

ARCHITECTURES = (CONVBERT,)

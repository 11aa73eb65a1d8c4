"""ModernBERT and its decoder, Ettin.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope, Scores
from napkin.architectures.blocks import Block, NormStyle, Operations, gated_mlp
from napkin.architectures.masked import MASKED, MaskedSizes, encoder, sizes_of
from napkin.architectures.reading import FULL, WINDOWED, layer_types, on, tied
from napkin.architectures.record import Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation
from napkin.operations.roles import LM_HEAD, VOCABULARY
from napkin.record import record, replace


@record
class _Head:
    """The head of masked language modeling: its activation, and which of its matmuls have a bias."""

    function: str
    dense_bias: bool
    bias: bool

    def operations(self, sizes: MaskedSizes, norm: NormStyle) -> Operations:
        """Return the head, which reads the final norm."""
        hidden, rows = sizes.hidden, sizes.vocabulary
        return (
            Matmul("head_dense", ("final_norm",), hidden, hidden, self.dense_bias),
            Activation("head_activation", ("head_dense",), hidden, self.function),
            norm("head_norm", "head_activation", hidden),
            Matmul("lm_head", ("head_norm",), hidden, rows, self.bias, VOCABULARY, role=LM_HEAD),
        )


def _head(config: Config) -> _Head:
    return _Head(
        config.optional_text("classifier_activation") or "gelu",
        config.flag("classifier_bias", otherwise=False),
        on(config, "decoder_bias"),
    )


@record
class _ModernBert:
    """ModernBERT, as config.json describes it.

    kinds      of each layer's attention    window  of those with one
    attention  of the layers without a window
    head       None: the class has none     tied    its weight is the embedding's
    """

    sizes: MaskedSizes
    kinds: Sequence[str]
    window: int
    norm: NormStyle
    attention: Attention
    feed: Block
    head: _Head | None
    tied: bool


def modernbert(config: Config, *, causal: bool = False) -> Model:
    """Return ModernBERT (arXiv:2412.13663): norms before the blocks except the very first, rotary positions, gated
    MLPs, and windows of local_attention / 2 tokens to each side in most layers. Its decoder (Ettin, arXiv:2507.11412)
    sees only the window's earlier side, the token itself included, and has separate projections for queries, keys and
    values."""
    read = _read(config, causal)
    sizes, norm = read.sizes, read.norm
    final = norm("final_norm", "x", sizes.hidden)
    return encoder(
        sizes,
        embedding(sizes.vocabulary, sizes.hidden, norm=norm, dropout=True),
        runs_of([(i == 0, kind) for i, kind in enumerate(read.kinds)], partial(_layer, read)),
        (final, *read.head.operations(sizes, norm)) if read.head is not None else (final,),
        tie=read.tied,
        stack="decoder" if causal else "encoder",
    )


def _read(config: Config, causal: bool) -> _ModernBert:
    sizes = sizes_of(config, function="hidden_activation", named="ForCausalLM" if causal else "ForMaskedLM")
    config.ignore("position_embedding_type")  # rotary whatever older files say
    config.ignore("classifier_activation", "classifier_bias", "decoder_bias")  # read where the class has a head
    reach = config.integer("local_attention") // 2
    bias, mlp_bias = on(config, "attention_bias"), on(config, "mlp_bias")
    every = config.integer("global_attn_every_n_layers")
    masked = sizes.purpose == MASKED
    hidden, inner, function = sizes.hidden, sizes.inner, sizes.function
    attention = Attention(
        Heads(hidden, sizes.heads, sizes.heads, sizes.head_dim),
        projections=QkvProjections(bias=bias, out_bias=bias, fused=not causal),
        rope=Rope(sizes.head_dim, upcast=True, first=True),
        scores=Scores(causal=causal),
    )
    return _ModernBert(
        sizes,
        layer_types(config, sizes.layers, lambda i: WINDOWED if i % every else FULL),
        max(1, reach) if causal else reach + 1,
        NormStyle("layer", "fused", bias=on(config, "norm_bias")),
        attention,
        partial(gated_mlp, width=hidden, inner=inner, function=function, bias=mlp_bias, fused=True, dropout=True),
        _head(config) if masked else None,
        masked and tied(config),
    )


def _layer(read: _ModernBert, key: tuple[bool, str]) -> Layer:
    """Return a layer: whether it is the first, and its attention's kind."""
    first, kind = key
    attention = read.attention.scored(window=read.window if kind == WINDOWED else None)
    operations = pre_norm(read.sizes.hidden, read.norm, attention, read.feed, dropout=(True, False))
    if first:  # its input is normalized already
        operations = tuple(_read_input(op) for op in operations if op.name != "attention_norm")
    return Layer(f"{'first_' * first}{kind}", operations)


def _read_input(op: Operation) -> Operation:
    """Return the operation reading the layer's input if it read its norm."""
    return replace(op, reads=tuple("x" if read == "attention_norm" else read for read in op.reads))


modernbert_decoder = partial(modernbert, causal=True)


_MODERN = replace(HF, by_kind=True, shifted=False, closure=("tables",))
MODERNBERT = Architecture(
    "modernbert",
    modernbert,
    config_class="ModernBertConfig",
    defaults={
        "attention_bias": False, "decoder_bias": True, "global_attn_every_n_layers": 3, "hidden_activation": "gelu",
        "intermediate_size": 1152, "layer_types": None, "local_attention": 128, "max_position_embeddings": 8192,
        "mlp_bias": False, "norm_bias": False, "num_attention_heads": 12, "tie_word_embeddings": True,
        "vocab_size": 50368,
    },
    implementation=_MODERN,
    wrappers=(Wrapper("modernvbert"),),
    modules={
        "embedding": "model.embeddings.tok_embeddings", "qkv": "attn.Wqkv", "o": "attn.Wo", "gate_up": "mlp.Wi",
        "down": "mlp.Wo", "head_dense": "head.dense", "lm_head": "decoder",
    },
)  # fmt: skip
MODERNBERT_DECODER = like(
    MODERNBERT,
    "modernbert-decoder",
    build=modernbert_decoder,
    config_class="ModernBertDecoderConfig",
    implementation=replace(HF, by_kind=True, positions="each"),
    modules={
        "q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj", "head_dense": "lm_head.dense",
    },
)  # fmt: skip

ARCHITECTURES = (
    MODERNBERT,
    MODERNBERT_DECODER,
)

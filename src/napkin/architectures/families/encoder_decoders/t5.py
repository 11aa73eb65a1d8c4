"""T5 and its relatives: T5 1.1, Flan-T5, mT5, UMT5, Switch Transformers.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/; whether T5's head is tied as in 4.57.1, which its published
checkpoints follow).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, Scores
from napkin.architectures.blocks import RMS_T5, Block, Operations, gated_mlp, plain_mlp
from napkin.architectures.encoder_decoder import (
    Sparse,
    decoder_layer,
    must_be_both,
    parts_of,
    root_table,
    shared_embedding,
)
from napkin.architectures.reading import FUNCTIONS, depth, tied, width
from napkin.architectures.record import Architecture, like
from napkin.autograd.tensors import Tensor
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.embedding import PositionBias
from napkin.operations.implementations import MASKS, OWN_LABELS, Running
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts, stack_of
from napkin.operations.pointwise import Dropout, Scale
from napkin.operations.roles import LM_HEAD, MEMORY, VOCABULARY
from napkin.record import record, replace


@record
class T5Sizes:
    """What config.json says of a network in T5's style; layers are (encoder, decoder).

    buckets      buckets of distances            decoder_layers  0 if the class is the encoder only
    every_layer  each layer has its own distance biases; else the first of a stack has them for all
    scaled       a constant multiplies what the head reads
    """

    name: str
    hidden: int
    layers: int
    decoder_layers: int
    heads: int
    head_dim: int
    vocabulary: int
    buckets: int
    every_layer: bool
    has_head: bool
    tied: bool
    scaled: bool


def read_sizes(config: Config, every_layer: bool = False, scales: bool = True) -> T5Sizes:
    """Read what config.json says. `scales`: the class scales what a tied head reads."""
    hidden, layers = width(config), depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("d_kv")
    vocabulary = config.integer("vocab_size")
    buckets = config.integer("relative_attention_num_buckets")
    has_decoder, has_head = parts_of(config)
    decoder_layers = 0
    if has_decoder:
        must_be_both(config)
        decoder_layers = config.optional_integer("num_decoder_layers") or layers
    else:
        config.ignore("is_encoder_decoder", "num_decoder_layers")
    config.ignore("relative_attention_max_distance", "n_positions", "scalable_attention")
    if not has_head:
        config.ignore("tie_word_embeddings")
    ties = has_head and tied(config)
    return T5Sizes(
        config.name,
        hidden,
        layers,
        decoder_layers,
        heads,
        head_dim,
        vocabulary,
        buckets,
        every_layer,
        has_head,
        tied=ties,
        scaled=ties and scales,
    )


def _feed(config: Config, hidden: int, inner: int, tanh: bool) -> Block:
    """Read T5's MLP: gated or not, and its activation function. `tanh`: a gated GELU is its approximation."""
    given = config.text("feed_forward_proj")
    gated = given.startswith("gated-")
    function = given.removeprefix("gated-")
    if function not in FUNCTIONS:
        raise config.refuse("feed_forward_proj", f"napkin does not know {printable(given)!r}")
    if tanh and gated and function == "gelu":
        function = "gelu_new"  # the class reads it so
    stated = config.optional_text("dense_act_fn")
    if stated is not None and stated != function:
        raise config.refuse("dense_act_fn", f"contradicts feed_forward_proj {printable(given)!r}")
    if config.raw("is_gated_act", required=False) not in (None, gated):
        raise config.refuse("is_gated_act", f"contradicts feed_forward_proj {printable(given)!r}")
    if gated:
        return partial(gated_mlp, width=hidden, inner=inner, function=function, dropout=True)
    return ungated(hidden, inner, function)


def ungated(hidden: int, inner: int, function: str) -> Block:
    """Return the network without a gate, whose first linear layer has a name of its own."""

    def block(source: str) -> Operations:
        made = plain_mlp(source, width=hidden, inner=inner, function=function, bias=False, dropout=True)
        return (replace(made[0], module="wi"), *made[1:])

    return block


def t5(config: Config, *, every_layer: bool = False, tanh: bool = True, scales: bool = True) -> Model:
    """Return T5 (arXiv:1910.10683), T5 1.1, Flan-T5, mT5: norms before the blocks, no biases, heads of d_kv elements,
    and a learned bias for each head and bucket of distances, which the first layer of each stack has for all (UMT5:
    each layer its own)."""
    feed = _feed(config, width(config), config.integer("d_ff"), tanh)
    sizes = read_sizes(config, every_layer, scales)
    if sizes.has_head and not sizes.tied:
        config.notes.append(
            "untied embeddings: the checkpoint's own head is counted; the class of transformers 5 ties it where it is "
            "built without a checkpoint"
        )
    return network(sizes, feed)


def network(
    sizes: T5Sizes, feed: Block, experts: Block | None = None, sparse: Sparse | None = None, *, apart: bool = False
) -> Model:
    """Return T5's network. `sparse` says which layers have `experts` in place of an MLP; `apart`: where the embeddings
    are not tied, each stack has its own."""
    hidden = sizes.hidden

    def runs(count: int, decoder: bool) -> Parts:
        keys = [(sizes.every_layer or not i, sparse is not None and sparse(i, decoder)) for i in range(count)]
        return runs_of(
            keys, lambda key: _layer(sizes, decoder, key[0], experts if key[1] and experts else feed, key[1])
        )

    before = (*embedding(sizes.vocabulary, hidden), Dropout("embedding_dropped", ("embedding",), hidden))
    final: Operations = (RMS_T5("final_norm", "x", hidden), Dropout("final_dropped", ("final_norm",), hidden))
    own = apart and sizes.has_head and not sizes.tied and sizes.decoder_layers > 0
    root = root_table(before, tied=not own)
    stacks = [stack_of("encoder", (root, *before), runs(sizes.layers, False), final)]
    if sizes.decoder_layers:
        after = (*final, *_head(sizes)) if sizes.has_head else final
        stacks.append(
            stack_of("decoder", before if own else shared_embedding(before), runs(sizes.decoder_layers, True), after)
        )
    return Model(
        name=sizes.name,
        stacks=tuple(stacks),
        tied=sizes.tied,
        hidden=hidden,
        heads=sizes.heads,
        kv_heads=sizes.heads,
        head_dim=sizes.head_dim,
        vocabulary=sizes.vocabulary,
    )


def _layer(sizes: T5Sizes, decoder: bool, distances: bool, feed: Block, routed: bool) -> Layer:
    """Return a layer; `distances`: it has distance biases."""
    shaped = Attention(Heads(sizes.hidden, sizes.heads, sizes.heads, sizes.head_dim))
    attend = replace(shaped, scores=Scores(causal=decoder, position="relative"))
    if decoder:
        across = replace(shaped, scores=Scores(causal=False, position="relative"), memory=MEMORY, prefix="cross_")
        operations = decoder_layer(sizes.hidden, RMS_T5, attend, across, feed, before=True)
    else:
        operations = pre_norm(sizes.hidden, RMS_T5, attend, feed, dropout=(True, True))
    if distances:
        bias = PositionBias("distances", (), sizes.buckets, sizes.heads, not sizes.every_layer)
        operations = (bias, *operations)
    return Layer(("decoder" if decoder else "encoder") + "_experts" * routed, operations)


def _head(sizes: T5Sizes) -> Operations:
    """Return the head, and what scales its input."""
    last, scaled = "final_dropped", Scale("head_scaled", ("final_dropped",), sizes.hidden)
    if sizes.scaled:
        last = scaled.name
    head = Matmul("lm_head", (last,), sizes.hidden, sizes.vocabulary, False, VOCABULARY, role=LM_HEAD)
    return (scaled, head) if sizes.scaled else (head,)


umt5 = partial(t5, every_layer=True)
mt5 = partial(t5, scales=False)


def _cast_to_weight(run: Running, x: Tensor) -> Tensor:
    """Cast the input of an MLP's last linear layer to its weight's type, which autocast casts back."""
    return run.tape.cast(x, "fp32" if run.tape.autocast else run.tape.compute)


IMPLEMENTATION = replace(
    OWN_LABELS, before_down=_cast_to_weight, passes=(MASKS,), closure=("masks",), fp16_excepts=("wo/weight",)
)
MT5 = Architecture(
    "mt5",
    mt5,
    config_class="MT5Config",
    aliases={
        "d_model": "hidden_size", "head_dim": "d_kv", "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
    },
    defaults={
        "d_ff": 1024, "d_kv": 64, "feed_forward_proj": "gated-gelu", "num_attention_heads": 6,
        "num_decoder_layers": None, "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32,
        "tie_word_embeddings": False, "vocab_size": 250112,
    },
    implementation=IMPLEMENTATION,
    modules={
        "root_embedding": "shared", "encoder/embedding": "encoder.embed_tokens",
        "decoder/embedding": "decoder.embed_tokens", "q": "layer.0.SelfAttention.q", "k": "layer.0.SelfAttention.k",
        "v": "layer.0.SelfAttention.v", "o": "layer.0.SelfAttention.o", "encoder/gate": "layer.1.DenseReluDense.wi_0",
        "encoder/up": "layer.1.DenseReluDense.wi_1", "encoder/down": "layer.1.DenseReluDense.wo",
        "cross_q": "layer.1.EncDecAttention.q", "cross_k": "layer.1.EncDecAttention.k",
        "cross_v": "layer.1.EncDecAttention.v", "cross_o": "layer.1.EncDecAttention.o",
        "decoder/gate": "layer.2.DenseReluDense.wi_0", "decoder/up": "layer.2.DenseReluDense.wi_1",
        "decoder/down": "layer.2.DenseReluDense.wo", "encoder/wi": "layer.1.DenseReluDense.wi",
        "decoder/wi": "layer.2.DenseReluDense.wi", "distances": "layer.0.SelfAttention.relative_attention_bias",
    },
)  # fmt: skip
T5 = like(
    MT5,
    "t5",
    build=t5,
    config_class="T5Config",
    defaults={
        "d_ff": 2048, "feed_forward_proj": "relu", "num_attention_heads": 8, "tie_word_embeddings": True,
        "vocab_size": 32128,
    },
)  # fmt: skip
UMT5 = like(
    MT5,
    "umt5",
    build=umt5,
    config_class="UMT5Config",
    defaults={"tie_word_embeddings": True},
)  # fmt: skip

ARCHITECTURES = (T5, MT5, UMT5)

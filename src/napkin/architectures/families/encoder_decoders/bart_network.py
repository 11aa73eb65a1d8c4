"""The network of BART and its relatives: encoder-decoders with biases throughout and one token embedding.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.assembly import embedding, runs_of
from napkin.architectures.attention import Attention, band_attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Scores
from napkin.architectures.blocks import LAYER, Block, Operations, plain_mlp
from napkin.architectures.encoder_decoder import (
    Sparse,
    decoder_alone,
    decoder_layer,
    must_be_both,
    parts_of,
    root_table,
    runs_alone,
    shared_embedding,
)
from napkin.architectures.reading import activation, depth, restrict, tied, width
from napkin.architectures.sparse_attention import attention_windows
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts, stack_of
from napkin.operations.roles import LM_HEAD, MEMORY, SINES, VOCABULARY
from napkin.record import record, replace

ExpertsOf = Callable[[int], Block]
"""Inner width → experts."""


@record
class BartSizes:
    """What config.json says of a network in BART's style; pairs are (encoder, decoder).

    rows       of the token embeddings
    shared     one token embedding serves both stacks
    tied       the head's matrix is the decoder's token embedding
    unused     the class holds a shared token embedding that nothing uses
    alone      the class has the decoder only
    inner      width of the MLP
    positions  rows of the position embeddings: one for both stacks, or each its own
    windows    tokens to both sides that each of the encoder's layers sees; () for all
    """

    name: str
    hidden: int
    layers: tuple[int, int]
    heads: tuple[int, int]
    inner: tuple[int, int]
    function: str
    rows: tuple[int, int]
    positions: tuple[int, ...]
    windows: Sequence[int]
    scale: bool
    has_head: bool
    shared: bool
    tied: bool
    unused: bool
    alone: bool


@record
class Bart:
    """A network in BART's style: an encoder and a decoder with biases throughout, one token embedding for both.

    before          norms are applied before the blocks, and one ends each stack
    offset          rows of the position embedding in addition to the positions
    embedding_norm  a norm after the embeddings
    fixed           the position embedding is a sinusoid that the class holds as a parameter
    computed        it is a sinusoid that is not a parameter
    apart           the stacks' position embeddings have lengths of their own
    may_share       the field that says whether one token embedding serves both stacks, of `decoder_vocab_size` rows in
                    the decoder if not ("": one serves both)
    root            the class holds a shared token embedding next to those of the stacks
    bias            of the linear layers around attention
    bands           the encoder's attention is a band of a window to both sides
    core            makes the operations that take the place of the core of the encoder's attention
    inner_dropout   dropout inside the MLP: (encoder, decoder)
    only            fields, and the values that napkin knows of them
    ignored         fields that change no count
    """

    before: bool = False
    offset: int = 0
    embedding_norm: bool = False
    fixed: bool = False
    computed: bool = False
    apart: bool = False
    may_share: str = ""
    root: bool = True
    bias: bool = True
    bands: bool = False
    core: Callable[[AttentionCore], Operations] | None = None
    inner_dropout: tuple[bool, bool] = (True, True)
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    ignored: tuple[str, ...] = ()

    def __call__(self, config: Config) -> Model:
        """Return the network that a config.json describes."""
        restrict(config, self.only, self.ignored)
        return self.network(self.sizes(config))

    def sizes(self, config: Config) -> BartSizes:
        """Read what a config.json says."""
        hidden, layers = width(config), depth(config)
        decoder_layers = config.integer("decoder_layers", default=False)
        heads, decoder_heads = config.integer("num_attention_heads"), config.integer("decoder_attention_heads")
        for field, count in (("num_attention_heads", heads), ("decoder_attention_heads", decoder_heads)):
            config.divides(field, hidden, count, "(hidden_size)")
        vocabulary = config.integer("vocab_size")
        lengths = ("max_encoder_position_embeddings", "max_decoder_position_embeddings")
        positions = tuple(config.integer(field) for field in (lengths if self.apart else ("max_position_embeddings",)))
        alone = runs_alone(config)
        has_decoder, has_head = (True, True) if alone else parts_of(config)
        if not has_decoder:
            raise config.refuse("architectures", "napkin does not know the encoder of this family by itself")
        if not alone:
            must_be_both(config)
        same = config.flag(self.may_share) if self.may_share else True
        tie = tied(config)
        if same and not (tie or alone):
            config.notes.append(
                "untied embeddings: each stack and the head has its own, and the class of transformers 5 also holds a "
                "shared one that nothing uses"
            )
        self._check(config)
        return BartSizes(
            config.name,
            hidden,
            (layers, decoder_layers),
            (heads, decoder_heads),
            (config.integer("encoder_ffn_dim"), config.integer("decoder_ffn_dim")),
            activation(config, "activation_function"),
            self._rows(config, vocabulary, same, tie),
            positions,
            attention_windows(config, layers) if self.bands else (),
            config.flag("scale_embedding", otherwise=False),
            has_head,
            shared=same and tie and not alone,
            tied=tie and has_head,
            unused=same and not (tie or alone),
            alone=alone,
        )

    def _rows(self, config: Config, vocabulary: int, same: bool, tie: bool) -> tuple[int, int]:
        """Read the rows of the encoder's token embedding and of the decoder's. `same`: one serves both, if they are
        tied."""
        rows = config.optional_integer("decoder_vocab_size") if self.may_share else None
        if not self.may_share or (same and tie):
            config.ignore("decoder_vocab_size")
            return vocabulary, vocabulary
        if same and rows not in (None, vocabulary):
            raise config.refuse("decoder_vocab_size", f"is {rows:,}, and the head has {vocabulary:,} rows")
        return vocabulary, rows or vocabulary

    def _check(self, config: Config) -> None:
        """Refuse fields that contradict what the class does."""
        fixed = self.fixed or self.computed
        config.must_be("normalize_before", self.before)
        config.must_be("normalize_embedding", self.embedding_norm)
        config.must_be("add_final_layer_norm", self.before)
        config.must_be("static_position_embeddings", fixed)
        config.must_be("add_bias_logits", False)
        config.must_be("extra_layer_norm", False)
        if not fixed:
            config.must_be("extra_pos_embeddings", self.offset)
        config.ignore("extra_pos_embeddings", "force_bos_token_to_be_generated")
        config.ignore("do_blenderbot_90_layernorm", "layernorm_variant")  # names of what the class does
        if self.fixed:
            config.notes.append(
                "the position embeddings are fixed sinusoids: counted, as the class holds them, but not trained"
            )

    def network(self, sizes: BartSizes, experts: ExpertsOf | None = None, sparse: Sparse | None = None) -> Model:
        """Return the network. `sparse` says which layers have `experts` in place of an MLP."""

        def runs(decoder: bool) -> Parts:
            layer = partial(self._layer, sizes, experts, decoder)
            if sizes.windows and not decoder:
                return runs_of(sizes.windows, partial(layer, False))
            count = sizes.layers[decoder]
            if sparse is None:
                return ((count, layer(False)),)
            return runs_of((sparse(i, decoder) for i in range(count)), layer)

        both = (sizes.positions[0], sizes.positions[-1])
        before = [self._embedding(sizes, rows, positions) for rows, positions in zip(sizes.rows, both, strict=True)]
        before[1] = tuple(replace(op, decoder=True) if op.embeds() else op for op in before[1])
        if sizes.shared:
            before[1] = shared_embedding(before[1])
        if self.root and (sizes.shared or sizes.unused):
            before[0] = (root_table(before[0], tied=sizes.shared), *before[0])
        final: Operations = (LAYER("final_norm", "x", sizes.hidden),) if self.before else ()
        last = final[-1].name if final else "x"
        head = Matmul("lm_head", (last,), sizes.hidden, sizes.rows[1], False, VOCABULARY, role=LM_HEAD)
        after = (*final, head) if sizes.has_head else final
        heads = sizes.heads[sizes.alone]
        decoder = stack_of("decoder", before[1], runs(True), after)
        return Model(
            name=sizes.name,
            stacks=(decoder,) if sizes.alone else (stack_of("encoder", before[0], runs(False), final), decoder),
            tied=sizes.tied,
            hidden=sizes.hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=sizes.hidden // heads,
            vocabulary=sizes.rows[1],
            max_length=both[sizes.alone],
            max_target=sizes.positions[1] if len(sizes.positions) > 1 and not sizes.alone else None,
        )

    def _embedding(self, sizes: BartSizes, rows: int, positions: int) -> Operations:
        return embedding(
            rows,
            sizes.hidden,
            positions=0 if self.computed else positions + self.offset,
            fixed=self.fixed,
            sines=SINES if self.computed else None,
            norm=LAYER if self.embedding_norm else None,
            dropout=True,
            scale=sizes.scale,
        )

    def _layer(
        self, sizes: BartSizes, experts: ExpertsOf | None, decoder: bool, routed: bool, window: int = 0
    ) -> Layer:
        hidden, heads, inner = sizes.hidden, sizes.heads[decoder], sizes.inner[decoder]
        biased = QkvProjections(bias=self.bias, out_bias=self.bias)
        shaped = Attention(Heads(hidden, heads, heads, hidden // heads), projections=biased)
        attend: Block = replace(shaped, scores=Scores(causal=decoder), core=None if decoder else self.core)
        if window:
            attend = partial(band_attention, width=hidden, heads=heads, window=window)
        drops = self.inner_dropout[decoder]
        feed: Block = partial(plain_mlp, width=hidden, inner=inner, function=sizes.function, dropout=drops)
        if routed and experts is not None:
            feed = experts(inner)
        if decoder:
            across = replace(shaped, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
            make = decoder_alone if sizes.alone else decoder_layer
            operations = make(hidden, LAYER, attend, across, feed, before=self.before)
        else:
            operations = (pre_norm if self.before else post_norm)(hidden, LAYER, attend, feed, dropout=(True, True))
        return Layer(("decoder" if decoder else "encoder") + "_experts" * routed, operations)

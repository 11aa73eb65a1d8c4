"""The network of BERT and its relatives: attention in both directions and an MLP, with biases throughout.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.assembly import embedding, runs_of
from napkin.architectures.attention import Attention, band_attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope, Scores
from napkin.architectures.blocks import LAYER, Block, Operations, gated_mlp, plain_mlp
from napkin.architectures.idle import beside_encoder
from napkin.architectures.masked import (
    BARE,
    BIDIRECTIONAL,
    MASKED,
    MaskedSizes,
    encoder,
    heads_apart,
    masked_head,
    pooler,
    sizes_of,
)
from napkin.architectures.reading import depth, restrict
from napkin.inputs.model import Config
from napkin.operations.embedding import PositionBias
from napkin.operations.linear import Matmul, PerSequence
from napkin.operations.model import Layer, Model, Parts
from napkin.operations.roles import LM_HEAD, VOCABULARY
from napkin.record import record


def bert_blocks(
    hidden: int,
    heads: int,
    inner: int,
    function: str,
    scores: Scores = BIDIRECTIONAL,
    rotary: str = "",
    gated: bool = False,
    fused: bool = False,
) -> tuple[Block, Block]:
    """Return BERT's two blocks: attention in both directions and an MLP, with biases throughout. `fused`: one matmul
    makes the gate and what it multiplies, of a gated MLP."""
    attend = Attention(
        Heads(hidden, heads, heads, hidden // heads),
        projections=QkvProjections(bias=True, out_bias=True),
        scores=scores,
        rope=Rope(hidden // heads, rotary) if rotary else None,
    )
    if gated:
        feed = partial(gated_mlp, width=hidden, inner=inner, function=function, out_bias=True, dropout=True)
        return attend, partial(feed, fused=fused)
    return attend, partial(plain_mlp, width=hidden, inner=inner, function=function)


@record
class _BertSizes:
    """What config.json says of a network in BERT's style.

    embedding  width of the token embedding      head      width of the masked head
    positions  rows of learned positions, or 0   segments  rows of learned segments, or 0
    distances  buckets of distances, or 0        windows   tokens to both sides that each layer sees; () for all
    """

    whole: MaskedSizes
    tied: bool
    embedding: int
    head: int
    positions: int
    segments: int
    distances: int
    windows: Sequence[int]
    causal: bool


@record
class Bert:
    """A network in BERT's style: attention in both directions and an MLP, with biases throughout.

    before          norms are applied before the blocks, and one ends the stack
    embedding_norm  a norm after the embeddings
    positions       learned positions            segments  learned segments
    offset          rows of the position embedding in addition to the positions
    rotary          how queries and keys are rotated, or ""
    distances       a learned bias for each head and bucket of distances, which all layers share
    next_sentence   the pre-training class has a head for it
    pooler          the class without a head has a pooler         masked_pooler  so has the class with the masked head
    gated           the MLP is gated, with a bias on its last linear layer only, by one matmul if it is `fused`
    function        the MLP's activation, if hidden_act does not say it
    alibi           scores fall with the distance
    mlp_dropout     dropout after the MLP
    embedding_size, head_size  fields of the widths of the token embedding and of the masked head, if they have
                    widths of their own
    head            the activation of the masked head, if it is not the layers'
    decodes         the class also runs as a decoder: is_decoder says whether no token sees a later one, and
                    add_cross_attention whether layers also attend to an encoder, which text alone does not run
    named           the end of the name of the class with the head
    plain_head      the head is a linear layer only
    windows         reads the tokens to both sides that each layer sees
    biases          of the head in the class, of which untied embeddings leave one unused when there are two
    only            fields, and the values that napkin knows of them
    ignored         fields that change no count
    """

    before: bool = False
    embedding_norm: bool = True
    positions: bool = True
    offset: int = 0
    segments: bool = True
    rotary: str = ""
    distances: bool = False
    next_sentence: bool = False
    pooler: bool = True
    masked_pooler: bool = False
    gated: bool = False
    fused: bool = False
    function: str = ""
    alibi: bool = False
    mlp_dropout: bool = True
    embedding_size: str = ""
    head_size: str = ""
    head: str = ""
    decodes: bool = False
    named: str | tuple[str, ...] = "ForMaskedLM"
    plain_head: bool = False
    windows: Callable[[Config, int], Sequence[int]] | None = None
    biases: int = 2
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    ignored: tuple[str, ...] = ()

    def __call__(self, config: Config) -> Model:
        """Return the network that a config.json describes."""
        restrict(config, self.only, self.ignored)
        model = heads_apart(self._network(self._sizes(config)), config, biases=self.biases)
        return beside_encoder(model, config, "add_cross_attention") if self.decodes else model

    def _sizes(self, config: Config) -> _BertSizes:
        causal = config.flag("is_decoder", otherwise=False) if self.decodes else False
        windows = self.windows(config, depth(config)) if self.windows is not None else ()
        whole = sizes_of(config, named=self.named, pretraining=self.next_sentence)
        config.must_be("position_embedding_type", "absolute")
        config.must_be("head_dim", whole.head_dim)
        config.ignore("directionality")
        narrow = (config.optional_integer(self.embedding_size) if self.embedding_size else None) or whole.hidden
        head = config.integer(self.head_size) if self.head_size else narrow
        if self.head_size and whole.purpose != BARE:
            config.must_be("tie_word_embeddings", False)
        return _BertSizes(
            whole,
            tied=whole.purpose != BARE and not self.head_size,
            embedding=narrow,
            head=head,
            positions=config.integer("max_position_embeddings") + self.offset if self.positions else 0,
            segments=config.integer("type_vocab_size", least=0) if self.segments else 0,
            distances=config.integer("relative_attention_num_buckets") if self.distances else 0,
            windows=windows,
            causal=causal,
        )

    def _network(self, sizes: _BertSizes) -> Model:
        hidden = sizes.whole.hidden
        final: Operations = (LAYER("final_norm", "x", hidden),) if self.before else ()
        return encoder(
            sizes.whole,
            self._embedding(sizes),
            self._runs(sizes),
            (*final, *self._head(sizes, "final_norm" if self.before else "x")),
            tie=sizes.tied,
        )

    def _embedding(self, sizes: _BertSizes) -> Operations:
        operations = embedding(
            sizes.whole.vocabulary,
            sizes.embedding,
            positions=sizes.positions,
            segments=sizes.segments,
            norm=LAYER if self.embedding_norm else None,
            dropout=True,
        )
        if sizes.embedding != sizes.whole.hidden or self.head_size:
            last = operations[-1].name
            operations = (*operations, Matmul("project_in", (last,), sizes.embedding, sizes.whole.hidden, True))
        if sizes.distances:
            operations = (PositionBias("distances", (), sizes.distances, sizes.whole.heads, spread=True), *operations)
        return operations

    def _runs(self, sizes: _BertSizes) -> Parts:
        position = "relative" if self.distances else "alibi" if self.alibi else "none"
        attend, feed = bert_blocks(
            sizes.whole.hidden,
            sizes.whole.heads,
            sizes.whole.inner,
            self.function or sizes.whole.function,
            scores=Scores(causal=sizes.causal, position=position),
            rotary=self.rotary,
            gated=self.gated,
            fused=self.fused,
        )
        arrange = pre_norm if self.before else post_norm

        def layer(window: int) -> Layer:
            banded = partial(band_attention, width=sizes.whole.hidden, heads=sizes.whole.heads, window=window)
            block = banded if window else attend
            return Layer("encoder", arrange(sizes.whole.hidden, LAYER, block, feed, dropout=(True, self.mlp_dropout)))

        return runs_of(sizes.windows, layer) if sizes.windows else ((sizes.whole.layers, layer(0)),)

    def _head(self, sizes: _BertSizes, source: str) -> Operations:
        hidden, purpose = sizes.whole.hidden, sizes.whole.purpose
        if purpose == BARE:
            return pooler(hidden, source) if self.pooler else ()
        if purpose == MASKED:
            return (
                *(pooler(hidden, source, used=False) if self.masked_pooler else ()),
                *self._masked_head(sizes, source),
            )
        next_sentence = PerSequence("next_sentence", ("pooler_activation",), hidden, 2, True)
        return (*pooler(hidden, source), next_sentence, *self._masked_head(sizes, source))

    def _masked_head(self, sizes: _BertSizes, source: str) -> Operations:
        hidden, rows = sizes.whole.hidden, sizes.whole.vocabulary
        if self.plain_head:
            return (Matmul("lm_head", (source,), hidden, rows, True, VOCABULARY, role=LM_HEAD),)
        return masked_head(hidden, rows, self.head or sizes.whole.function, table_width=sizes.head, source=source)

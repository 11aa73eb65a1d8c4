"""Encoders with the head of masked language modelling: config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections, Rope, Scaling, Scores, band_attention
from napkin.architectures.blocks import LAYER, RMS, Block, NormStyle, Operations, gated_mlp, plain_mlp
from napkin.architectures.common import (
    FULL,
    WINDOWED,
    activation,
    attention_windows,
    depth,
    embedding,
    head_size,
    kv_heads_of,
    layer_types,
    on,
    runs_of,
    tied,
    width,
)
from napkin.architectures.masked import (
    BARE,
    MASKED,
    PRETRAINING,
    encoder,
    head_count,
    masked_head,
    must_tie,
    purpose_of,
)
from napkin.architectures.record import REQUIRED, Architecture, like
from napkin.inputs.model import Config
from napkin.operations.base import LM_HEAD, POSITION, REPLICATED, VOCABULARY, Operation
from napkin.operations.embedding import Embedding, PositionBias
from napkin.operations.implementations import EAGER, HF, IDS, OWN_LABELS, ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Learnt, Scale
from napkin.operations.views import reuse
from napkin.record import record, replace


def _layer_blocks(config: Config, hidden: int, heads: int, style: _Style | None = None) -> tuple[Block, Block]:
    """BERT's two blocks: attention that sees both ways and a plain MLP, biases throughout."""
    style = style or _Style()
    attend = Attention(
        Heads(hidden, heads, heads, hidden // heads),
        projections=QkvProjections(bias=True, out_bias=True),
        scores=Scores(causal=style.causal, position="relative" if style.distances else "none"),
        rope=Rope(hidden // heads, style.rotary) if style.rotary else None,
    )
    inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
    if style.gated:
        return attend, partial(gated_mlp, width=hidden, inner=inner, function=function, out_bias=True, dropout=True)
    return attend, partial(plain_mlp, width=hidden, inner=inner, function=function)


# --- BERT and its kin ------------------------------------------------------------------------------------------------


@record
class _Style:
    """What sets a class apart from BERT's.

    before         norms stand before the blocks, and one ends the stack
    embedding_norm a norm after the embeddings
    positions      learnt positions          segments       learnt segments
    rotary         positions turn queries and keys; how
    distances      a learnt bias a head and bucket of distances, which the whole stack shares
    next_sentence  the pre-training class has a head for it       pooler  the bare class has one
    gated          the MLP is gated, with a bias on its last product alone
    mlp_dropout    the MLP's branch has dropout
    embedding_size, head_size  fields of the token table's width and of the masked head's, where they have their own
    head           the activation of the masked head, where it is not the layers'
    causal         no token sees a later one
    named          the end of the name of the class with the head
    plain_head     the head is the token table alone
    """

    before: bool = False
    embedding_norm: bool = True
    positions: bool = True
    segments: bool = True
    rotary: str = ""
    distances: bool = False
    next_sentence: bool = False
    pooler: bool = True
    gated: bool = False
    mlp_dropout: bool = True
    embedding_size: str = ""
    head_size: str = ""
    head: str = ""
    causal: bool = False
    named: str = "ForMaskedLM"
    plain_head: bool = False


def _bert(config: Config, style: _Style, windows: Sequence[int] = ()) -> Model:
    """BERT's network, or one in that style. `windows`: of each layer, where attention is a band (Longformer)."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    config.must_be("position_embedding_type", "absolute")
    config.must_be("head_dim", hidden // heads)
    config.ignore("directionality")
    vocabulary = config.integer("vocab_size")
    purpose = purpose_of(config, style.named)
    if purpose == PRETRAINING and not style.next_sentence:
        raise config.refuse("architectures", "the class has no pre-training heads")
    attend, feed = _layer_blocks(config, hidden, heads, style)
    stand = pre_norm if style.before else post_norm
    final: Operations = (LAYER("final_norm", "x", hidden),) if style.before else ()
    last = "final_norm" if style.before else "x"
    pooler: Operations = (
        Matmul("pooler", (last,), hidden, hidden, True),
        Activation("pooler_activation", ("pooler",), hidden, "tanh"),
    )
    table = (config.optional_integer(style.embedding_size) if style.embedding_size else None) or hidden
    function = style.head or activation(config, "hidden_act")
    size = config.integer(style.head_size) if style.head_size else table
    masked = masked_head(hidden, vocabulary, function, table_width=size, source=last)
    if style.plain_head:
        masked = (Matmul("lm_head", (last,), hidden, vocabulary, True, VOCABULARY, role=LM_HEAD),)
    next_sentence = Matmul("next_sentence", ("pooler_activation",), hidden, 2, True)
    bare = pooler if style.pooler else ()
    after = {BARE: bare, MASKED: masked, PRETRAINING: (*pooler, next_sentence, *masked)}[purpose]
    tie = purpose != BARE and not style.head_size
    if style.head_size and purpose != BARE:
        config.must_be("tie_word_embeddings", False)
    elif purpose == BARE:
        config.ignore("tie_word_embeddings")
    else:
        must_tie(config)
    before = embedding(
        vocabulary,
        table,
        positions=config.integer("max_position_embeddings") if style.positions else 0,
        segments=config.integer("type_vocab_size", least=0) if style.segments else 0,
        norm=LAYER if style.embedding_norm else None,
        dropout=True,
    )
    if table != hidden or style.head_size:
        before = (*before, Matmul("project_in", (before[-1].name,), table, hidden, True))
    if style.distances:
        buckets = config.integer("relative_attention_num_buckets")
        before = (PositionBias("distances", (), buckets, heads), *before)

    def layer(window: int) -> Layer:
        block = partial(band_attention, width=hidden, heads=heads, window=window) if window else attend
        return Layer("encoder", stand(hidden, LAYER, block, feed, dropout=(True, style.mlp_dropout)))

    return encoder(
        config,
        before,
        runs_of(windows, layer) if windows else ((layers, layer(0)),),
        (*final, *after),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )


def bert(config: Config) -> Model:
    """BERT (arXiv:1810.04805): learnt positions and segments, norms after the blocks. The bare and the pre-training
    class have a pooler, the latter a next-sentence head too."""
    return _bert(config, _Style(next_sentence=True))


def ernie(config: Config) -> Model:
    """ERNIE (arXiv:1904.09223): BERT; embeddings of tasks are refused."""
    config.must_be("use_task_id", False)
    config.ignore("task_type_vocab_size")
    return bert(config)


def roberta(config: Config) -> Model:
    """RoBERTa (arXiv:1907.11692), XLM-RoBERTa, CamemBERT, data2vec: BERT without the next sentence."""
    return _bert(config, _Style(head="gelu"))


def roberta_prelayernorm(config: Config) -> Model:
    """RoBERTa with norms before the blocks (fairseq)."""
    return _bert(config, _Style(before=True, head="gelu"))


def megatron_bert(config: Config) -> Model:
    """Megatron's BERT (arXiv:1909.08053): norms before the blocks, none after the embeddings."""
    return _bert(config, _Style(before=True, embedding_norm=False, next_sentence=True))


def xlm_roberta_xl(config: Config) -> Model:
    """XLM-RoBERTa XL and XXL (arXiv:2105.00572)."""
    return _bert(config, _Style(before=True, embedding_norm=False, mlp_dropout=False, head="gelu"))


def mpnet(config: Config) -> Model:
    """MPNet (arXiv:2004.09297): BERT without segments, and T5's biases of distances, one table for all layers."""
    return _bert(config, _Style(segments=False, distances=True, head="gelu"))


def bert_generation(config: Config) -> Model:
    """BERT for sequence generation (arXiv:1907.12461): BERT without segments, and with the token table alone as a head;
    causal where it is a decoder. One that attends to an encoder is refused."""
    config.must_be("add_cross_attention", False)
    causal = config.flag("is_decoder", otherwise=False)
    return _bert(config, _Style(segments=False, pooler=False, causal=causal, named="Decoder", plain_head=True))


def rembert(config: Config) -> Model:
    """RemBERT (arXiv:2010.12821): a narrow input table, and a wide output table of its own."""
    return _bert(config, _Style(embedding_size="input_embedding_size", head_size="output_embedding_size"))


def gte(config: Config) -> Model:
    """GTE (arXiv:2407.19669): rotary positions, gated MLPs."""
    return _bert(config, _Style(positions=False, rotary="half", gated=True, pooler=False, head="gelu"))


def jina_embeddings_v3(config: Config) -> Model:
    """Jina Embeddings v3 (arXiv:2409.10173), without its adapters: XLM-RoBERTa with rotary positions."""
    return _bert(config, _Style(positions=False, rotary="half", head="gelu"))


def roformer(config: Config) -> Model:
    """RoFormer (arXiv:2104.09864): rotary positions from a fixed table, which the class holds as a parameter."""
    config.must_be("rotary_value", False)
    model = _bert(config, _Style(positions=False, rotary="interleaved", pooler=False, embedding_size="embedding_size"))
    rows = config.integer("max_position_embeddings")
    table = Learnt("sinusoids", (), (("weight", (rows, model.head_dim)),), REPLICATED, trained=False)
    (stack,) = model.stacks
    config.notes.append("the table of positions is fixed sinusoids: counted, as the class holds it, but not trained")
    return replace(model, stacks=(replace(stack, before=(table, *stack.before)),))


def longformer(config: Config) -> Model:
    """Longformer (arXiv:2004.05150): RoBERTa with attention over a window to both sides. Tokens that attend to all, and
    to which all attend, have projections of their own; they are the task's, and none is counted on."""
    return _bert(config, _Style(head="gelu"), attention_windows(config, depth(config)))


def esm(config: Config) -> Model:
    """ESM-1b (doi:10.1073/pnas.2016239118) and ESM-2 (doi:10.1126/science.ade2574): norms before the blocks, learnt or
    rotary positions, queries scaled before they turn. The head that predicts contacts from attention's weights is held
    by the class, and trained apart."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    head_dim, vocabulary = hidden // heads, config.integer("vocab_size")
    config.must_be("is_folding_model", False)
    config.ignore("esmfold_config", "vocab_list", "hidden_act")  # proteins' folds are another class; its own gelu
    rotary = config.text("position_embedding_type", known=("absolute", "rotary")) == "rotary"
    purpose = purpose_of(config)
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the class has no pre-training heads")
    if purpose == MASKED:
        must_tie(config)
    attend = Attention(
        Heads(hidden, heads, heads, head_dim),
        projections=QkvProjections(bias=True, out_bias=True),
        scaling=Scaling(queries=True),
        scores=Scores(causal=False),
        rope=Rope(head_dim, upcast=True) if rotary else None,
    )
    feed = partial(plain_mlp, width=hidden, inner=config.integer("intermediate_size"), function="gelu_python")
    before: tuple[Operation, ...] = embedding(vocabulary, hidden)
    if config.flag("token_dropout", otherwise=False):  # masked tokens are zeros, the others are scaled up
        before += (
            Scale("masked_out", (before[-1].name,), hidden, masks=True, held="bool"),
            Scale("scaled_up", ("masked_out",), hidden, sequences=True),
        )
    if not rotary:
        positions = config.integer("max_position_embeddings")
        before += (
            Embedding("position_embedding", (), positions, hidden, role=POSITION),
            Add("positions_added", (before[-1].name, "position_embedding"), hidden),
        )
    if config.flag("emb_layer_norm_before", otherwise=False):
        before += (LAYER("embedding_norm", before[-1].name, hidden),)
    final = LAYER("final_norm", "x", hidden)
    scores = layers * heads
    contacts = Learnt("contacts", (), (("weight", (1, scores)), ("bias", (1,))), REPLICATED, trained=False)
    pooler: Operations = (
        Matmul("pooler", ("final_norm",), hidden, hidden, True),
        Activation("pooler_activation", ("pooler",), hidden, "tanh"),
    )
    after = pooler if purpose == BARE else masked_head(hidden, vocabulary, "gelu_python", source="final_norm")
    return encoder(
        config,
        (contacts, *before),
        ((layers, Layer("encoder", pre_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        (final, *after),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=purpose == MASKED,
    )


def eurobert(config: Config) -> Model:
    """EuroBERT (arXiv:2503.05500): Llama's layers without the causal mask, the head a single matrix."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    bias, mlp_bias = on(config, "attention_bias"), on(config, "mlp_bias")
    vocabulary = config.integer("vocab_size")
    purpose = purpose_of(config)
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the class has no pre-training heads")
    config.ignore("clf_pooling")
    attend = Attention(
        Heads(hidden, heads, kv_heads_of(config, heads), head_dim),
        projections=QkvProjections(bias=bias, out_bias=bias),
        scores=Scores(causal=False),
        rope=Rope(head_dim),
    )
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_act"),
        bias=mlp_bias,
    )
    final = RMS("final_norm", "x", hidden)
    head = Matmul("lm_head", ("final_norm",), hidden, vocabulary, mlp_bias, VOCABULARY, role=LM_HEAD)
    tie = tied(config) and purpose == MASKED
    model = encoder(
        config,
        embedding(vocabulary, hidden),
        ((layers, Layer("encoder", pre_norm(hidden, RMS, attend, feed))),),
        (final, head) if purpose == MASKED else (final,),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )
    return replace(model, kv_heads=kv_heads_of(config, heads), head_dim=head_dim)


def distilbert(config: Config) -> Model:
    """DistilBERT (arXiv:1910.01108): BERT's layers, without segments."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    if config.flag("sinusoidal_pos_embds"):
        config.notes.append("the position table is a fixed sinusoid: counted, as the class holds it, but not trained")
    config.must_be("tie_weights_", True)
    vocabulary = config.integer("vocab_size")
    function = activation(config, "activation")
    purpose = purpose_of(config)
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the class has no pre-training heads")
    attend = Attention(
        Heads(hidden, heads, heads, hidden // heads),
        projections=QkvProjections(bias=True, out_bias=True),
        scores=Scores(causal=False),
    )
    feed = partial(plain_mlp, width=hidden, inner=config.integer("hidden_dim"), function=function)
    tie = tied(config) and purpose == MASKED
    return encoder(
        config,
        embedding(vocabulary, hidden, positions=config.integer("max_position_embeddings"), norm=LAYER, dropout=True),
        ((layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(False, True)))),),
        masked_head(hidden, vocabulary, function) if purpose == MASKED else (),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )


def _narrow_embedding(config: Config, table: int, hidden: int, always: bool) -> Operations:
    """Tables of `table` numbers, then a projection to h: always, or where the two differ."""
    before = embedding(
        config.integer("vocab_size"),
        table,
        positions=config.integer("max_position_embeddings"),
        segments=config.integer("type_vocab_size"),
        norm=LAYER,
        dropout=True,
    )
    if not always and table == hidden:
        return before
    return (*before, Matmul("project_in", (before[-1].name,), table, hidden, True))


def electra(config: Config) -> Model:
    """ELECTRA (arXiv:2003.10555): the generator predicts masked tokens, the discriminator (its pre-training class)
    tells replaced ones by two small layers."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    config.must_be("position_embedding_type", "absolute")
    vocabulary, table = config.integer("vocab_size"), config.integer("embedding_size")
    purpose = purpose_of(config)
    attend, feed = _layer_blocks(config, hidden, heads)
    function = activation(config, "hidden_act")
    discriminator: Operations = (
        Matmul("replaced_dense", ("x",), hidden, hidden, True),
        Activation("replaced_activation", ("replaced_dense",), hidden, function),
        Matmul("replaced", ("replaced_activation",), hidden, 1, True),
    )
    generator = masked_head(hidden, vocabulary, "gelu", table_width=table)
    tie = tied(config) and purpose == MASKED
    return encoder(
        config,
        _narrow_embedding(config, table, hidden, always=False),
        ((layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        {BARE: (), MASKED: generator, PRETRAINING: discriminator}[purpose],
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )


_MOST_SHARED = 10_000
"""More different layers to share than this are a slip of the keyboard; each is listed."""


def albert(config: Config) -> Model:
    """ALBERT (arXiv:1909.11942): a few groups of layers, each used many times over, and a narrow token table."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    config.must_be("position_embedding_type", "absolute")
    config.must_be("down_scale_factor", 1)
    config.must_be("gap_size", 0)
    config.must_be("net_structure_type", 0)
    config.must_be("num_memory_blocks", 0)
    vocabulary, table = config.integer("vocab_size"), config.integer("embedding_size")
    groups, inside = config.integer("num_hidden_groups"), config.integer("inner_group_num")
    if groups > layers:
        raise config.wrong("num_hidden_groups", f"{groups} groups are more than {layers} layers")
    if groups * inside > _MOST_SHARED:
        raise config.wrong("inner_group_num", f"{groups} groups of {inside} make more than {_MOST_SHARED:,} layers")
    purpose = purpose_of(config)
    attend, feed = _layer_blocks(config, hidden, heads)
    once = post_norm(hidden, LAYER, attend, feed, dropout=(True, False))
    function = activation(config, "hidden_act")
    pooler: Operations = (
        Matmul("pooler", ("x",), hidden, hidden, True),
        Activation("pooler_activation", ("pooler",), hidden, "tanh"),
    )
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the size of the sentence-order head is not in the config")
    if purpose == MASKED:
        must_tie(config)
    parts = [(group, part) for group in range(groups) for part in range(inside)]
    own = {key: [replace(op, name=f"group_{key[0]}_{key[1]}_{op.name}") for op in once] for key in parts}

    def layer(key: tuple[int, int]) -> Layer:
        """The layer's operations, each with weights as that group's."""
        return Layer(
            "shared",
            tuple(reuse(op, of) if op.weights() else op for op, of in zip(once, own[key], strict=True)),
        )

    used = ((i * groups // layers, part) for i in range(layers) for part in range(inside))
    return encoder(
        config,
        _narrow_embedding(config, table, hidden, always=True),
        runs_of(used, layer),
        masked_head(hidden, vocabulary, function, table_width=table) if purpose == MASKED else pooler,
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=purpose == MASKED,
        shared=tuple(op for key in parts for op in own[key]),
    )


# --- ModernBERT ------------------------------------------------------------------------------------------------------


def modernbert(config: Config, *, causal: bool = False) -> Model:
    """ModernBERT (arXiv:2412.13663): norms before the blocks but the very first, rotary positions, gated MLPs, and
    windows of local_attention / 2 tokens to each side in most layers. Its decoder (Ettin, arXiv:2507.11412) sees the
    window's earlier side alone, itself included, and keeps queries, keys and values apart."""
    hidden, layers = width(config), depth(config)
    heads = head_count(config, hidden)
    head_dim = hidden // heads
    vocabulary = config.integer("vocab_size")
    purpose = purpose_of(config, "ForCausalLM" if causal else "ForMaskedLM")
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the class has no pre-training heads")
    config.ignore("position_embedding_type")  # rotary whatever older files say
    config.ignore("classifier_activation")  # read where the class has a head
    norm = NormStyle("layer", "fused", bias=on(config, "norm_bias"))
    reach = config.integer("local_attention") // 2
    window = max(1, reach) if causal else reach + 1
    bias = on(config, "attention_bias")
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_activation"),
        bias=on(config, "mlp_bias"),
        fused=True,
        dropout=True,
    )
    every = config.integer("global_attn_every_n_layers")
    kinds: Sequence[str] = layer_types(config, layers, lambda i: WINDOWED if i % every else FULL)

    def layer(key: tuple[bool, str]) -> Layer:
        first, kind = key
        attend = Attention(
            Heads(hidden, heads, heads, head_dim),
            projections=QkvProjections(bias=bias, out_bias=bias, fused=not causal),
            scores=Scores(window=window if kind == WINDOWED else None, causal=causal),
            rope=Rope(head_dim),
        )
        operations = pre_norm(hidden, norm, attend, feed, dropout=(True, False))
        if first:  # its input is normalised already
            operations = tuple(_read_input(op) for op in operations if op.name != "attention_norm")
        return Layer(f"{'first_' * first}{kind}", operations)

    def _read_input(op: Operation) -> Operation:
        return replace(op, reads=tuple("x" if read == "attention_norm" else read for read in op.reads))

    after: Operations = (norm("final_norm", "x", hidden),)
    tie = False
    if purpose == MASKED:
        tie = tied(config)
        head_bias = config.flag("classifier_bias", otherwise=False)
        after = (
            *after,
            Matmul("head_dense", ("final_norm",), hidden, hidden, head_bias),
            Activation(
                "head_activation", ("head_dense",), hidden, config.optional_text("classifier_activation") or "gelu"
            ),
            norm("head_norm", "head_activation", hidden),
            Matmul("lm_head", ("head_norm",), hidden, vocabulary, on(config, "decoder_bias"), VOCABULARY, role=LM_HEAD),
        )
    return encoder(
        config,
        embedding(vocabulary, hidden, norm=norm, dropout=True),
        runs_of([(i == 0, kind) for i, kind in enumerate(kinds)], layer),
        after,
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
        stack="decoder" if causal else "encoder",
    )


modernbert_decoder = partial(modernbert, causal=True)


# --- Nomic BERT ------------------------------------------------------------------------------------------------------


def nomic_bert(config: Config) -> Model:
    """Nomic Embed's BERT (arXiv:2402.01613): rotary positions, gated MLPs, norms after the blocks, biases in none."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    vocabulary = config.integer("vocab_size")
    purpose = purpose_of(config)
    if purpose == PRETRAINING:
        raise config.refuse("architectures", "the class has no pre-training heads")
    function = activation(config, "hidden_act")
    attend = Attention(Heads(hidden, heads, heads, head_dim), scores=Scores(causal=False), rope=Rope(head_dim))
    feed = partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    config.must_be("tie_word_embeddings", True)
    model = encoder(
        config,
        embedding(vocabulary, hidden, segments=config.integer("type_vocab_size"), norm=LAYER, dropout=True),
        ((layers, Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))),),
        masked_head(hidden, vocabulary, function) if purpose == MASKED else (),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=purpose == MASKED,
    )
    return replace(model, head_dim=head_dim)


# --- records ---------------------------------------------------------------------------------------------------------

_BERT_IMPLEMENTATION = replace(OWN_LABELS, positions="buffer", buffers=(ROTARY, IDS, IDS), closure=("tables",))
_ROBERTA_IMPLEMENTATION = replace(_BERT_IMPLEMENTATION, positions="each", segments="each")
_MODERN_IMPLEMENTATION = replace(HF, by_kind=True, shifted=False, closure=("tables",))
ALBERT = Architecture(
    "albert",
    albert,
    config_class="AlbertConfig",
    defaults={
        "embedding_size": 128, "hidden_act": "gelu_new", "inner_group_num": 1, "intermediate_size": 16384,
        "max_position_embeddings": 512, "num_attention_heads": 64, "num_hidden_groups": 1,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "type_vocab_size": 2, "vocab_size": 30000,
    },
    implementation=_BERT_IMPLEMENTATION,
)  # fmt: skip
BERT = Architecture(
    "bert",
    bert,
    config_class="BertConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "type_vocab_size": 2, "vocab_size": 30522,
    },
    implementation=_BERT_IMPLEMENTATION,
)  # fmt: skip
BERT_GENERATION = Architecture(
    "bert-generation",
    bert_generation,
    config_class="BertGenerationConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 4096, "max_position_embeddings": 512, "num_attention_heads": 16,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "vocab_size": 50358,
    },
    implementation=replace(_BERT_IMPLEMENTATION, wide_loss=True, shifted=True, buffers=(ROTARY, IDS)),
)  # fmt: skip
DISTILBERT = Architecture(
    "distilbert",
    distilbert,
    config_class="DistilBertConfig",
    aliases={"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"},
    defaults={
        "activation": "gelu", "hidden_dim": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
        "sinusoidal_pos_embds": False, "tie_word_embeddings": True, "vocab_size": 30522,
    },
    implementation=replace(_BERT_IMPLEMENTATION, buffers=(ROTARY, IDS)),
)  # fmt: skip
ELECTRA = like(
    BERT,
    "electra",
    build=electra,
    config_class="ElectraConfig",
    defaults={"embedding_size": 128, "intermediate_size": 1024, "num_attention_heads": 4},
)  # fmt: skip
ERNIE = like(
    BERT,
    "ernie",
    build=ernie,
    config_class="ErnieConfig",
    defaults={"task_type_vocab_size": 3, "use_task_id": False},
)  # fmt: skip
ESM = Architecture(
    "esm",
    esm,
    config_class="EsmConfig",
    defaults={
        "emb_layer_norm_before": None, "intermediate_size": 3072, "is_folding_model": False,
        "max_position_embeddings": 1026, "num_attention_heads": 12, "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    },
    implementation=replace(_BERT_IMPLEMENTATION, positions="learnt", buffers=(ROTARY, IDS)),
)  # fmt: skip
EUROBERT = Architecture(
    "eurobert",
    eurobert,
    config_class="EuroBertConfig",
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 3072,
        "max_position_embeddings": 8192, "mlp_bias": False, "num_attention_heads": 12, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 128256,
    },
    implementation=replace(HF, shifted=False, closure=("tables", "ids")),
)  # fmt: skip
GTE = Architecture(
    "gte",
    gte,
    config_class="GteConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 8192, "num_attention_heads": 12,
        "tie_word_embeddings": True, "type_vocab_size": 1, "vocab_size": 250048,
    },
    implementation=replace(OWN_LABELS, segments="each", closure=("tables",)),
)  # fmt: skip
JINA_EMBEDDINGS_V3 = Architecture(
    "jina_embeddings_v3",
    jina_embeddings_v3,
    config_class="JinaEmbeddingsV3Config",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 4096, "max_position_embeddings": 8194, "num_attention_heads": 16,
        "tie_word_embeddings": True, "type_vocab_size": 1, "vocab_size": 250002,
    },
    implementation=replace(_ROBERTA_IMPLEMENTATION, positions="one"),
)  # fmt: skip
LONGFORMER = like(
    BERT,
    "longformer",
    build=longformer,
    config_class="LongformerConfig",
    defaults={"attention_window": 512, "onnx_export": False, "position_embedding_type": REQUIRED},
    implementation=replace(_ROBERTA_IMPLEMENTATION, kernels=(EAGER,), buffers=(ROTARY,)),
)  # fmt: skip
MEGATRON_BERT = like(
    BERT_GENERATION,
    "megatron-bert",
    build=megatron_bert,
    config_class="MegatronBertConfig",
    defaults={"type_vocab_size": 2, "vocab_size": 29056},
    implementation=replace(_BERT_IMPLEMENTATION, segments="each", kernels=(EAGER,), buffers=(ROTARY, IDS)),
)  # fmt: skip
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
    implementation=_MODERN_IMPLEMENTATION,
)  # fmt: skip
MODERNBERT_DECODER = like(
    MODERNBERT,
    "modernbert-decoder",
    build=modernbert_decoder,
    config_class="ModernBertDecoderConfig",
    implementation=replace(HF, by_kind=True, positions="each"),
)  # fmt: skip
MPNET = Architecture(
    "mpnet",
    mpnet,
    config_class="MPNetConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
        "relative_attention_num_buckets": 32, "tie_word_embeddings": True, "vocab_size": 30527,
    },
    implementation=replace(_BERT_IMPLEMENTATION, positions="each", kernels=(EAGER,), buffers=(ROTARY, IDS)),
)  # fmt: skip
NOMIC_BERT = Architecture(
    "nomic_bert",
    nomic_bert,
    config_class="NomicBertConfig",
    defaults={
        "head_dim": None, "hidden_act": "silu", "intermediate_size": 3072, "max_position_embeddings": 2048,
        "num_attention_heads": 12, "type_vocab_size": 2, "vocab_size": 30528,
    },
    implementation=replace(_ROBERTA_IMPLEMENTATION, positions="one"),
)  # fmt: skip
REMBERT = Architecture(
    "rembert",
    rembert,
    config_class="RemBertConfig",
    defaults={
        "hidden_act": "gelu", "input_embedding_size": 256, "intermediate_size": 4608, "max_position_embeddings": 512,
        "num_attention_heads": 18, "output_embedding_size": 1664, "tie_word_embeddings": False, "type_vocab_size": 2,
        "vocab_size": 250300,
    },
    implementation=replace(_BERT_IMPLEMENTATION, segments="each", kernels=(EAGER,), buffers=(ROTARY, IDS)),
)  # fmt: skip
CAMEMBERT = like(
    BERT,
    "camembert",
    build=roberta,
    config_class="CamembertConfig",
    implementation=_ROBERTA_IMPLEMENTATION,
)  # fmt: skip
DATA2VEC_TEXT = like(
    BERT,
    "data2vec-text",
    build=roberta,
    config_class="Data2VecTextConfig",
    implementation=_ROBERTA_IMPLEMENTATION,
)  # fmt: skip
ROBERTA = like(
    BERT,
    "roberta",
    build=roberta,
    config_class="RobertaConfig",
    defaults={"vocab_size": 50265},
    implementation=_ROBERTA_IMPLEMENTATION,
)  # fmt: skip
XLM_ROBERTA = like(
    BERT,
    "xlm-roberta",
    build=roberta,
    config_class="XLMRobertaConfig",
    implementation=_ROBERTA_IMPLEMENTATION,
)  # fmt: skip
ROBERTA_PRELAYERNORM = like(
    ROBERTA,
    "roberta-prelayernorm",
    build=roberta_prelayernorm,
    config_class="RobertaPreLayerNormConfig",
)  # fmt: skip
ROFORMER = Architecture(
    "roformer",
    roformer,
    config_class="RoFormerConfig",
    defaults={
        "embedding_size": None, "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 1536,
        "num_attention_heads": 12, "rotary_value": False, "tie_word_embeddings": True, "type_vocab_size": 2,
        "vocab_size": 50000,
    },
    implementation=replace(_BERT_IMPLEMENTATION, rotary="layer", segments="each", kernels=(EAGER,), buffers=()),
)  # fmt: skip
XLM_ROBERTA_XL = Architecture(
    "xlm-roberta-xl",
    xlm_roberta_xl,
    config_class="XLMRobertaXLConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 10240, "max_position_embeddings": 514, "num_attention_heads": 32,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "type_vocab_size": 1,
        "vocab_size": 250880,
    },
    implementation=_ROBERTA_IMPLEMENTATION,
)  # fmt: skip

ARCHITECTURES = (
    ALBERT,
    BERT,
    BERT_GENERATION,
    DISTILBERT,
    ELECTRA,
    ERNIE,
    ESM,
    EUROBERT,
    GTE,
    JINA_EMBEDDINGS_V3,
    LONGFORMER,
    MEGATRON_BERT,
    MODERNBERT,
    MODERNBERT_DECODER,
    MPNET,
    NOMIC_BERT,
    REMBERT,
    CAMEMBERT,
    DATA2VEC_TEXT,
    ROBERTA,
    XLM_ROBERTA,
    ROBERTA_PRELAYERNORM,
    ROFORMER,
    XLM_ROBERTA_XL,
)

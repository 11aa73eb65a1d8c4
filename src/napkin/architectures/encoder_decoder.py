"""Encoder-decoders: an encoder's stack, and a decoder's that also attends to the encoder's output.

Field names and arrangements are facts of the classes of Hugging Face transformers (src/transformers/models/<model
type>/, 5.23.0; whether T5's head is tied as in 4.57.1, which its published checkpoints follow).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections, Scores, band_attention
from napkin.architectures.blocks import LAYER, RMS_T5, Block, NormStyle, Operations, Routing, gated_mlp, moe, plain_mlp
from napkin.architectures.common import (
    FUNCTIONS,
    activation,
    attention_windows,
    depth,
    embedding,
    runs_of,
    tied,
    width,
)
from napkin.architectures.record import REQUIRED, Architecture, like
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import LM_HEAD, MEMORY, VOCABULARY
from napkin.operations.embedding import PositionBias
from napkin.operations.experts import Experts, Router
from napkin.operations.implementations import EAGER, OWN_LABELS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts, stack_of
from napkin.operations.pointwise import Add, Dropout, Scale
from napkin.operations.views import reuse
from napkin.record import record, replace


def parts_of(config: Config) -> tuple[bool, bool]:
    """(has a decoder, has a head) of the class named under `architectures`; both where none is named."""
    names = [name for name in config.items("architectures", required=False) or [] if isinstance(name, str)]
    if not names or any(name.endswith(("ForConditionalGeneration", "WithLMHeadModel", "MTModel")) for name in names):
        return True, True
    if any(name.endswith("EncoderModel") for name in names):
        config.notes.append("the class is the encoder alone")
        return False, False
    if any(name.endswith("Model") for name in names):
        config.notes.append("the class has no head: none is counted")
        return True, False
    raise config.refuse(
        "architectures",
        f"{printable(names[0], 60)} has another head than a language model's",
        "name the class with the language model's head, or remove the field",
    )


def _must_be_both(config: Config) -> None:
    config.must_be("is_encoder_decoder", True)
    config.must_be("is_decoder", False)
    config.must_be("add_cross_attention", False)


def _cross(hidden: int, norm: NormStyle, across: Block, *, before: bool) -> Operations:
    """The decoder's middle block: y = x + cross(norm(x)), or y = norm(x + cross(x))."""
    if before:
        operations = across("cross_norm")
        return (
            norm("cross_norm", "attention_residual", hidden),
            *operations,
            Add("cross_residual", ("attention_residual", operations[-1].name), hidden, True),
        )
    operations = across("attention_norm")
    return (
        *operations,
        Add("cross_residual", ("attention_norm", operations[-1].name), hidden, True),
        norm("cross_norm", "cross_residual", hidden),
    )


def _decoder_layer(
    hidden: int, norm: NormStyle, attend: Block, across: Block, feed: Block, *, before: bool
) -> Operations:
    """Self-attention, cross-attention, MLP, each with its residual and its norm before or after."""
    both = (pre_norm if before else post_norm)(hidden, norm, attend, feed, dropout=(True, True))
    seam = next(i for i, op in enumerate(both) if op.name == ("attention_residual" if before else "attention_norm"))
    first, rest = both[: seam + 1], both[seam + 1 :]
    follows = "cross_residual" if before else "cross_norm"
    return (*first, *_cross(hidden, norm, across, before=before), *_from(rest, first[-1].name, follows))


def _from(operations: Operations, old: str, new: str) -> Operations:
    """The same operations, reading `new` where they read `old`."""
    return tuple(replace(op, reads=tuple(new if read == old else read for read in op.reads)) for op in operations)


# --- T5 --------------------------------------------------------------------------------------------------------------


def _t5_feed(config: Config, hidden: int, inner: int) -> Block:
    """T5's MLP by its own words: gated or not, and its function."""
    given = config.text("feed_forward_proj")
    gated = given.startswith("gated-")
    function = given.removeprefix("gated-")
    if function not in FUNCTIONS:
        raise config.refuse("feed_forward_proj", f"napkin does not know {printable(given)!r}")
    if gated and function == "gelu":
        function = "gelu_new"  # the class reads it so
    stated = config.optional_text("dense_act_fn")
    if stated is not None and stated != function:
        raise config.refuse("dense_act_fn", f"contradicts feed_forward_proj {printable(given)!r}")
    config.must_be("is_gated_act", gated)
    if gated:
        return partial(gated_mlp, width=hidden, inner=inner, function=function, dropout=True)
    return partial(plain_mlp, width=hidden, inner=inner, function=function, bias=False, dropout=True)


Sparse = Callable[[int, bool], bool]
"""Whether a layer has experts, by its place and whether it is the decoder's."""


def t5(config: Config, *, every_layer: bool = False) -> Model:
    """T5 (arXiv:1910.10683), T5 1.1, Flan-T5, mT5: norms before the blocks, no biases, heads of d_kv numbers, and a
    learnt bias a head and distance bucket that the first layer of each stack keeps for all (UMT5: one each)."""
    feed = _t5_feed(config, width(config), config.integer("d_ff"))
    return _t5(config, feed, every_layer=every_layer)


def _t5(
    config: Config,
    feed: Block,
    *,
    experts: Block | None = None,
    sparse: Sparse | None = None,
    every_layer: bool = False,
) -> Model:
    """T5's network. `sparse` says which layers have `experts` in place of an MLP."""
    hidden, layers = width(config), depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("d_kv")
    vocabulary = config.integer("vocab_size")
    buckets = config.integer("relative_attention_num_buckets")
    has_decoder, has_head = parts_of(config)
    if has_decoder:
        _must_be_both(config)
    else:
        config.ignore("is_encoder_decoder")
    config.ignore("relative_attention_max_distance", "n_positions", "scalable_attention")
    shaped = Attention(Heads(hidden, heads, heads, head_dim))
    across = replace(shaped, scores=Scores(causal=False, position="relative"), memory=MEMORY, prefix="cross_")

    def layer(key: tuple[bool, bool, bool]) -> Layer:
        causal, table, routed = key
        attend = replace(shaped, scores=Scores(causal=causal, position="relative"))
        block = experts if routed and experts is not None else feed
        operations = (
            _decoder_layer(hidden, RMS_T5, attend, across, block, before=True)
            if causal
            else pre_norm(hidden, RMS_T5, attend, block, dropout=(True, True))
        )
        distances = PositionBias("distances", (), buckets, heads, not every_layer)
        name = ("decoder" if causal else "encoder") + "_experts" * routed
        return Layer(name, (distances, *operations) if table else operations)

    def runs(count: int, causal: bool) -> Parts:
        if sparse is not None:
            return runs_of(((causal, every_layer or not i, sparse(i, causal)) for i in range(count)), layer)
        if every_layer:
            return ((count, layer((causal, True, False))),)
        first = (1, layer((causal, True, False)))
        return (first, (count - 1, layer((causal, False, False)))) if count > 1 else (first,)

    table = (*embedding(vocabulary, hidden), Dropout("embedding_dropped", ("embedding",), hidden))
    final: Operations = (RMS_T5("final_norm", "x", hidden), Dropout("final_dropped", ("final_norm",), hidden))
    stacks = [stack_of("encoder", table, runs(layers, False), final)]
    tie = has_head and tied(config)
    if not has_head:
        config.ignore("tie_word_embeddings")
    if has_decoder:
        decoder_layers = config.optional_integer("num_decoder_layers") or layers
        after = final
        if has_head:
            last = "final_dropped"
            if tie:
                after = (*after, Scale("head_scaled", (last,), hidden))
                last = "head_scaled"
            after = (*after, Matmul("lm_head", (last,), hidden, vocabulary, False, VOCABULARY, role=LM_HEAD))
        stacks.append(stack_of("decoder", _again(table), runs(decoder_layers, True), after))
    else:
        config.ignore("num_decoder_layers")
    return Model(
        name=config.name,
        stacks=tuple(stacks),
        tied=tie,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
    )


def _again(operations: Operations) -> Operations:
    """The encoder's token table, which the decoder reads too."""
    return tuple(reuse(op) if op.name == "embedding" else op for op in operations)


umt5 = partial(t5, every_layer=True)


def switch_transformers(config: Config) -> Model:
    """Switch Transformers (arXiv:2101.03961): T5 with experts in some layers, one of which serves a token. In each
    sequence an expert serves `expert_capacity` tokens at most; what it drops is known in the step alone."""
    hidden, inner = width(config), config.integer("d_ff")
    function = config.text("dense_act_fn", known=FUNCTIONS)
    config.must_be("feed_forward_proj", function)
    config.must_be("is_gated_act", False)
    config.must_be("router_dtype", "float32")
    config.must_be("num_selected_experts", 1)
    config.must_be("batch_prioritized_routing", False)
    config.ignore("add_router_probs", "router_type")
    routing = Routing(config.integer("num_experts"), 1, config.flag("router_bias"), upcast=True)

    def step(which: str, layers: int) -> int:
        """One layer in so many has experts; with 0, or with one sparse layer wanted of none, the first of them."""
        stated = config.optional_integer(f"{which}_sparse_step", least=0)
        wanted = config.integer(f"num_sparse_{which}_layers", least=0)
        return stated if stated is not None else layers // wanted if wanted else layers

    layers = depth(config)
    steps = step("encoder", layers), step("decoder", config.optional_integer("num_decoder_layers") or layers)
    experts = partial(
        _routed,
        width=hidden,
        inner=inner,
        function=function,
        routing=routing,
        capacity=config.integer("expert_capacity"),
        noise=bool(config.real("router_jitter_noise", required=False)),
        bias=False,
    )
    feed = partial(plain_mlp, width=hidden, inner=inner, function=function, bias=False, dropout=True)

    def sparse(place: int, causal: bool) -> bool:
        every = steps[causal]
        return every > 0 and (place % every == 1 or every == 1)

    return _t5(config, feed, experts=experts, sparse=sparse)


def _routed(
    source: str, *, width: int, inner: int, function: str, routing: Routing, capacity: int, noise: bool, bias: bool
) -> Operations:
    """Experts that each are an MLP with dropout."""
    router, experts = moe(source, width=width, inner=inner, routing=routing, function=function, gated=False, bias=bias)
    assert isinstance(router, Router)
    assert isinstance(experts, Experts)
    return (replace(router, noise=noise), replace(experts, dropout=True, capacity=capacity))


# --- BART ------------------------------------------------------------------------------------------------------------


@record
class _Kind:
    """before: norms stand before the blocks, and one ends each stack · offset: rows of the position table beyond the
    positions · embedding_norm: a norm after the embeddings · fixed: the position table is a sinusoid, which the class
    holds as a parameter · computed: it is one that is no parameter · apart: the stacks' position tables have lengths of
    their own · bands: the encoder's attention is a band of a window to both sides"""

    before: bool
    offset: int
    embedding_norm: bool
    fixed: bool = False
    computed: bool = False
    apart: bool = False
    bands: bool = False


def _bart(
    config: Config, kind: _Kind, experts: Callable[[int], Block] | None = None, sparse: Sparse | None = None
) -> Model:
    """BART's network. `sparse` says which layers have `experts`, made of their inner width, in place of an MLP."""
    hidden, layers = width(config), depth(config)
    decoder_layers = config.integer("decoder_layers", default=False)
    heads, decoder_heads = config.integer("num_attention_heads"), config.integer("decoder_attention_heads")
    for field, count in (("num_attention_heads", heads), ("decoder_attention_heads", decoder_heads)):
        config.divides(field, hidden, count, "(hidden_size)")
    vocabulary = config.integer("vocab_size")
    fields = ("encoder", "decoder") if kind.apart else ("",)
    lengths = [config.integer(f"max_{which}{'_' if which else ''}position_embeddings") for which in fields]
    has_decoder, has_head = parts_of(config)
    if not has_decoder:
        raise config.refuse("architectures", "napkin does not know the encoder of this family alone")
    _must_be_both(config)
    if not tied(config):
        raise config.refuse("tie_word_embeddings", "releases of the class disagree on how many tables there then are")
    config.must_be("normalize_before", kind.before)
    config.must_be("normalize_embedding", kind.embedding_norm)
    config.must_be("add_final_layer_norm", kind.before)
    config.must_be("static_position_embeddings", kind.fixed or kind.computed)
    config.must_be("add_bias_logits", False)
    config.must_be("extra_layer_norm", False)
    if not (kind.fixed or kind.computed):
        config.must_be("extra_pos_embeddings", kind.offset)
    config.ignore("extra_pos_embeddings", "force_bos_token_to_be_generated")
    config.ignore("do_blenderbot_90_layernorm", "layernorm_variant")  # names of what the class does
    if kind.fixed:
        config.notes.append(
            "the position tables are fixed sinusoids: counted, as the class holds them, but not trained"
        )
    function = activation(config, "activation_function")

    def stack(count: int, each: int, d_ff: int, causal: bool) -> Parts:
        made = partial(layer, each, d_ff, causal)
        if kind.bands and not causal:
            return runs_of(attention_windows(config, count), partial(made, False))
        return ((count, made(False)),) if sparse is None else runs_of((sparse(i, causal) for i in range(count)), made)

    def layer(each: int, d_ff: int, causal: bool, routed: bool, window: int = 0) -> Layer:
        head_dim = hidden // each
        shaped = Attention(Heads(hidden, each, each, head_dim), projections=QkvProjections(bias=True, out_bias=True))
        attend: Block = replace(shaped, scores=Scores(causal=causal))
        if window:
            attend = partial(band_attention, width=hidden, heads=each, window=window)
        across = replace(shaped, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
        feed: Block = partial(plain_mlp, width=hidden, inner=d_ff, function=function, dropout=True)
        if routed and experts is not None:
            feed = experts(d_ff)
        operations = (
            _decoder_layer(hidden, LAYER, attend, across, feed, before=kind.before)
            if causal
            else (pre_norm if kind.before else post_norm)(hidden, LAYER, attend, feed, dropout=(True, True))
        )
        return Layer(("decoder" if causal else "encoder") + "_experts" * routed, operations)

    tables = [
        embedding(
            vocabulary,
            hidden,
            positions=0 if kind.computed else positions + kind.offset,
            fixed=kind.fixed,
            norm=LAYER if kind.embedding_norm else None,
            dropout=True,
            scale=config.flag("scale_embedding", otherwise=False),
        )
        for positions in lengths
    ]
    final: Operations = (LAYER("final_norm", "x", hidden),) if kind.before else ()
    last = final[-1].name if final else "x"
    matmul = Matmul("lm_head", (last,), hidden, vocabulary, False, VOCABULARY, role=LM_HEAD)
    head: Operations = (matmul,) if has_head else ()
    return Model(
        name=config.name,
        stacks=(
            stack_of("encoder", tables[0], stack(layers, heads, config.integer("encoder_ffn_dim"), False), final),
            stack_of(
                "decoder",
                _again(tables[-1]),
                stack(decoder_layers, decoder_heads, config.integer("decoder_ffn_dim"), True),
                (*final, *head),
            ),
        ),
        tied=has_head,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocabulary=vocabulary,
        max_length=lengths[0],
    )


def bart(config: Config) -> Model:
    """BART (arXiv:1910.13461): norms after the blocks; learnt positions, two rows more than there are."""
    return _bart(config, _Kind(before=False, offset=2, embedding_norm=True))


def led(config: Config) -> Model:
    """LED (arXiv:2004.05150): BART with Longformer's attention in the encoder."""
    return _bart(config, _Kind(before=False, offset=0, embedding_norm=True, apart=True, bands=True))


def mvp(config: Config) -> Model:
    """MVP (arXiv:2206.12131): BART; its prompts are refused."""
    config.must_be("use_prompt", False)
    config.ignore("prompt_length", "prompt_mid_dim")
    return bart(config)


def mbart(config: Config) -> Model:
    """mBART (arXiv:2001.08210): BART with norms before the blocks."""
    return _bart(config, _Kind(before=True, offset=2, embedding_norm=True))


plbart = bart
"""PLBART (arXiv:2103.06333)."""


def pegasus(config: Config) -> Model:
    """PEGASUS (arXiv:1912.08777): norms before the blocks, fixed positions."""
    return _bart(config, _Kind(before=True, offset=0, embedding_norm=False, fixed=True))


def blenderbot(config: Config) -> Model:
    """BlenderBot (arXiv:2004.13637), large: norms before the blocks, learnt positions."""
    return _bart(config, _Kind(before=True, offset=0, embedding_norm=False))


def blenderbot_small(config: Config) -> Model:
    """BlenderBot, 90M: norms after the blocks and the embeddings, learnt positions."""
    return _bart(config, _Kind(before=False, offset=0, embedding_norm=True))


def marian(config: Config) -> Model:
    """Marian (arXiv:1804.00344): norms after the blocks, fixed positions; one table for both languages."""
    config.must_be("share_encoder_decoder_embeddings", True)
    config.must_be("decoder_vocab_size", config.integer("vocab_size"))
    return _bart(config, _Kind(before=False, offset=0, embedding_norm=False, fixed=True))


def m2m_100(config: Config) -> Model:
    """M2M-100 (arXiv:2010.11125) and NLLB-200's dense models: norms before the blocks, computed positions."""
    return _bart(config, _Kind(before=True, offset=0, embedding_norm=False, computed=True))


def nllb_moe(config: Config) -> Model:
    """NLLB-200's largest model (arXiv:2207.04672): M2M-100 with experts in some layers, two of which serve a token."""
    config.must_be("router_dtype", "float32")
    config.must_be("output_router_logits", False)
    config.ignore("router_type", "second_expert_policy", "batch_prioritized_routing")
    config.ignore("normalize_router_prob_before_dropping", "moe_eval_capacity_token_fraction")  # who runs, not how many
    routing = Routing(config.integer("num_experts"), 2, config.flag("router_bias"), normalise=True, upcast=True)
    experts = partial(
        _routed,
        width=width(config),
        function=activation(config, "activation_function"),
        routing=routing,
        capacity=config.integer("expert_capacity"),
        noise=False,
        bias=True,
    )
    steps = config.integer("encoder_sparse_step", least=0), config.integer("decoder_sparse_step", least=0)

    def sparse(place: int, causal: bool) -> bool:
        return steps[causal] > 0 and (place + 1) % steps[causal] == 0

    config.notes.append(
        "two experts a token are counted, as the model was trained; the class of transformers 5.23.0 takes its marks "
        "of the chosen for their numbers, and runs its first two experts on every pair of a token and an expert"
    )
    kind = _Kind(before=True, offset=0, embedding_norm=False, computed=True)
    return _bart(config, kind, lambda inner: partial(experts, inner=inner), sparse)


# --- records ---------------------------------------------------------------------------------------------------------

_BART_IMPLEMENTATION = replace(OWN_LABELS, buffers=(("logits", ""),), closure=("masks",))
_T5_IMPLEMENTATION = replace(OWN_LABELS, casts_down=True)
BART = Architecture(
    "bart",
    bart,
    config_class="BartConfig",
    aliases={
        "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
    },
    defaults={
        "activation_function": "gelu", "decoder_attention_heads": 16, "decoder_ffn_dim": 4096,
        "encoder_ffn_dim": 4096, "max_position_embeddings": 1024, "num_attention_heads": 16,
        "tie_word_embeddings": True, "vocab_size": 50265,
    },
    implementation=replace(_BART_IMPLEMENTATION, positions="source"),
)  # fmt: skip
BLENDERBOT = Architecture(
    "blenderbot",
    blenderbot,
    config_class="BlenderbotConfig",
    aliases={
        "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
    },
    defaults={
        "activation_function": "gelu", "decoder_attention_heads": 32, "decoder_ffn_dim": 10240,
        "encoder_ffn_dim": 10240, "max_position_embeddings": 128, "num_attention_heads": 32,
        "tie_word_embeddings": True, "vocab_size": 8008,
    },
    implementation=_BART_IMPLEMENTATION,
)  # fmt: skip
BLENDERBOT_SMALL = like(
    BART,
    "blenderbot-small",
    build=blenderbot_small,
    config_class="BlenderbotSmallConfig",
    defaults={"decoder_ffn_dim": 2048, "encoder_ffn_dim": 2048, "max_position_embeddings": 512},
    implementation=_BART_IMPLEMENTATION,
)  # fmt: skip
LED = like(
    BART,
    "led",
    build=led,
    config_class="LEDConfig",
    defaults={
        "attention_window": 512, "max_decoder_position_embeddings": 1024, "max_encoder_position_embeddings": 16384,
        "max_position_embeddings": REQUIRED,
    },
    implementation=replace(_BART_IMPLEMENTATION, kernels=(EAGER,)),
)  # fmt: skip
M2M_100 = like(
    BART,
    "m2m_100",
    build=m2m_100,
    config_class="M2M100Config",
    defaults={"activation_function": "relu", "vocab_size": 128112},
    implementation=replace(OWN_LABELS, buffers=(("sines", ""),)),
)  # fmt: skip
MARIAN = like(
    BART,
    "marian",
    build=marian,
    config_class="MarianConfig",
    defaults={"decoder_vocab_size": None, "share_encoder_decoder_embeddings": True, "vocab_size": 58101},
    implementation=replace(_BART_IMPLEMENTATION, positions="buffer"),
)  # fmt: skip
MBART = like(
    BART,
    "mbart",
    build=mbart,
    config_class="MBartConfig",
)  # fmt: skip
MVP = like(
    BART,
    "mvp",
    build=mvp,
    config_class="MvpConfig",
    defaults={"prompt_length": 100, "prompt_mid_dim": 800, "use_prompt": False, "vocab_size": 50267},
    implementation=replace(_BART_IMPLEMENTATION, positions="each", kernels=(EAGER,)),
)  # fmt: skip
NLLB_MOE = like(
    M2M_100,
    "nllb-moe",
    build=nllb_moe,
    config_class="NllbMoeConfig",
    defaults={
        "decoder_sparse_step": 4, "encoder_sparse_step": 4, "expert_capacity": 64, "num_experts": 128,
        "router_bias": False,
    },
    implementation=replace(
        OWN_LABELS, router="tokens", fp32_router=True, looped="modules", kernels=(EAGER,), buffers=(("sines", ""),),
    ),
)  # fmt: skip
PEGASUS = like(
    BART,
    "pegasus",
    build=pegasus,
    config_class="PegasusConfig",
    implementation=replace(_BART_IMPLEMENTATION, positions="buffer"),
)  # fmt: skip
PLBART = like(
    BART,
    "plbart",
    build=plbart,
    config_class="PLBartConfig",
    defaults={
        "decoder_attention_heads": 12, "decoder_ffn_dim": 3072, "encoder_ffn_dim": 3072, "num_attention_heads": 12,
        "vocab_size": 50005,
    },
)  # fmt: skip
SWITCH_TRANSFORMERS = Architecture(
    "switch_transformers",
    switch_transformers,
    config_class="SwitchTransformersConfig",
    aliases={"d_model": "hidden_size", "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"},
    defaults={
        "d_ff": 2048, "d_kv": 64, "dense_act_fn": "relu", "expert_capacity": 64, "num_attention_heads": 12,
        "num_decoder_layers": 12, "num_experts": 8, "num_sparse_decoder_layers": 3, "num_sparse_encoder_layers": 3,
        "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "router_bias": False,
        "tie_word_embeddings": True, "vocab_size": 32128,
    },
    implementation=replace(_T5_IMPLEMENTATION, router="tokens", fp32_router=True, looped="modules", kernels=(EAGER,)),
)  # fmt: skip
MT5 = Architecture(
    "mt5",
    t5,
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
    implementation=_T5_IMPLEMENTATION,
)  # fmt: skip
T5 = like(
    MT5,
    "t5",
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

ARCHITECTURES = (
    BART,
    BLENDERBOT,
    BLENDERBOT_SMALL,
    LED,
    M2M_100,
    MARIAN,
    MBART,
    MVP,
    NLLB_MOE,
    PEGASUS,
    PLBART,
    SWITCH_TRANSFORMERS,
    MT5,
    T5,
    UMT5,
)

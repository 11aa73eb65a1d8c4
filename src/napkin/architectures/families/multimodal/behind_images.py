"""Decoders that follow an image encoder and attend to it: BLIP, Pix2Struct, PP-FormulaNet. Their own classes run
them on text alone.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Scaling, Scores
from napkin.architectures.blocks import LAYER, RMS_T5, Operations, gated_mlp, plain_mlp
from napkin.architectures.dimensions import decoder_only, dimensions
from napkin.architectures.encoder_decoder import decoder_alone
from napkin.architectures.idle import cross_attention, idle
from napkin.architectures.masked import bert_modules, heads_apart, masked_head
from napkin.architectures.reading import activation
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.embedding import PositionBias
from napkin.operations.implementations import CUT_AS_GIVEN, HF_EAGER, IDS, MASKS, OWN_LABELS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Dropout
from napkin.operations.roles import LM_HEAD, MEMORY, VOCABULARY
from napkin.record import replace

ALONE = "without an image the cross-attention is counted as parameters, but does not run"


def blip(config: Config) -> Model:
    """Return BLIP's decoder (arXiv:2201.12086): BERT that sees no later token, with cross-attention."""
    sizes = dimensions(config, kv_heads="", own_head_dim=False)
    hidden, rows, function = sizes.hidden, sizes.vocabulary, activation(config, "hidden_act")
    seen = config.integer("encoder_hidden_size")
    config.must_be("label_smoothing", 0.0)
    config.ignore("projection_dim", "chunk_size_feed_forward")
    across: Operations = (
        (idle("unused_cross_attention", cross_attention(hidden, seen, LAYER)),) if config.flag("is_decoder") else ()
    )
    if across:
        config.notes.append(ALONE)
    attend = Attention(
        Heads(hidden, sizes.heads, sizes.heads, sizes.head_dim), projections=QkvProjections(bias=True, out_bias=True)
    )
    feed = partial(plain_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    layer = Layer("decoder", (*across, *post_norm(hidden, LAYER, attend, feed, dropout=(True, True))))
    before = embedding(rows, hidden, positions=sizes.max_length or 0, norm=LAYER, dropout=True)
    after = () if sizes.headless else masked_head(hidden, rows, function)
    model = decoder_only(sizes, before, ((sizes.layers, layer),), after)
    return model if sizes.headless else heads_apart(replace(model, tied=True), config)


_BLIP = replace(
    HF_EAGER, softmax="native", positions="buffer", fp32_loss=False, shifted=False, cuts=CUT_AS_GIVEN, buffers=(IDS,)
)
BLIP = Architecture(
    "blip_text_model",
    blip,
    config_class="BlipTextConfig",
    implementation=replace(_BLIP, checkpoints=False),
    wrappers=(
        Wrapper(
            "blip", path="text_decoder.bert", ignored=("logit_scale_init_value", "label_smoothing"),
            sees="encoder_hidden_size", implementation=_BLIP,
        ),
    ),
    defaults={
        "encoder_hidden_size": 768, "hidden_act": "gelu", "intermediate_size": 3072, "is_decoder": True,
        "label_smoothing": 0.0, "max_position_embeddings": 512, "num_attention_heads": 8, "tie_word_embeddings": True,
        "vocab_size": 30524,
    },
    modules=bert_modules("text_decoder.bert"),
)  # fmt: skip


def pix2struct(config: Config) -> Model:
    """Return Pix2Struct's decoder (arXiv:2210.03347): T5's with gated MLPs."""
    config.restate("architectures", None)  # the class that is named a model has the head too
    sizes = dimensions(config, kv_heads="", own_head_dim=False, max_length="")
    hidden, rows = sizes.hidden, sizes.vocabulary
    config.must_be("d_kv", sizes.head_dim)
    config.must_be("is_decoder", True)
    config.ignore("relative_attention_max_distance", "add_cross_attention", "is_encoder_decoder")
    config.notes.append(ALONE)
    shaped = Attention(Heads(hidden, sizes.heads, sizes.heads, sizes.head_dim), scores=Scores(position="relative"))
    across = replace(shaped, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("d_ff"),
        function=activation(config, "dense_act_fn"),
        dropout=True,
    )
    buckets = config.integer("relative_attention_num_buckets")

    def layer(first: bool) -> Layer:
        operations = decoder_alone(hidden, RMS_T5, shaped, across, feed, before=True)
        bias = (PositionBias("distances", (), buckets, sizes.heads, True),) if first else ()
        return Layer("decoder", (*bias, *operations))

    final: Operations = (RMS_T5("final_norm", "x", hidden), Dropout("final_dropped", ("final_norm",), hidden))
    head = Matmul("lm_head", ("final_dropped",), hidden, rows, False, VOCABULARY, role=LM_HEAD)
    before = (*embedding(rows, hidden), Dropout("embedding_dropped", ("embedding",), hidden))
    return decoder_only(sizes, before, runs_of((not i for i in range(sizes.layers)), layer), (*final, head))


PIX2STRUCT = Architecture(
    "pix2struct_text_model",
    pix2struct,
    config_class="Pix2StructTextConfig",
    implementation=replace(OWN_LABELS, passes=(MASKS,), closure=("masks",)),
    aliases={
        "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers",
        "decoder_attention_heads": "num_attention_heads", "decoder_layers": "num_hidden_layers",
        "encoder_attention_heads": "num_attention_heads", "encoder_layers": "num_hidden_layers",
    },
    wrappers=(Wrapper("pix2struct", path="decoder", ignored=("is_vqa",)),),
    defaults={
        "d_ff": 2048, "d_kv": 64, "dense_act_fn": "gelu_new", "num_attention_heads": 12,
        "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "tie_word_embeddings": False,
        "vocab_size": 50244,
    },
    modules={
        "embedding": "decoder.embed_tokens", "q": "self_attention.attention.query",
        "k": "self_attention.attention.key", "v": "self_attention.attention.value",
        "o": "self_attention.attention.output", "gate": "mlp.DenseReluDense.wi_0", "up": "mlp.DenseReluDense.wi_1",
        "down": "mlp.DenseReluDense.wo", "lm_head": "decoder.lm_head",
        "distances": "self_attention.attention.relative_attention_bias",
        **{
            letter: f"encoder_decoder_attention.attention.{name}"
            for letter, name in (("cross_q", "query"), ("cross_k", "key"), ("cross_v", "value"), ("cross_o", "output"))
        },
    },
)  # fmt: skip


def pp_formulanet(config: Config) -> Model:
    """Return PP-FormulaNet's decoder (arXiv:2503.18382): mBART's."""
    layers = config.integer("decoder_layers", default=False)
    heads = config.integer("decoder_attention_heads")
    config.restate("num_hidden_layers", layers)
    config.restate("num_attention_heads", heads)
    sizes = dimensions(config, kv_heads="", own_head_dim=False)
    hidden = sizes.hidden
    config.ignore("encoder_layers", "encoder_attention_heads", "is_encoder_decoder", "decoder_start_token_id")
    config.notes.append(ALONE)
    shaped = Attention(
        Heads(hidden, heads, heads, sizes.head_dim),
        projections=QkvProjections(bias=True, out_bias=True),
        scaling=Scaling(),
    )
    across = replace(shaped, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
    feed = partial(
        plain_mlp,
        width=hidden,
        inner=config.integer("decoder_ffn_dim"),
        function=activation(config, "activation_function"),
        dropout=True,
    )
    before = embedding(
        sizes.vocabulary,
        hidden,
        positions=config.integer("max_position_embeddings") + 2,
        norm=LAYER,
        dropout=True,
        scale=config.flag("scale_embedding"),
    )
    layer = Layer("decoder", decoder_alone(hidden, LAYER, shaped, across, feed, before=True))
    after = head(hidden, sizes.vocabulary, norm=LAYER, none=sizes.headless)
    return decoder_only(sizes, before, ((layers, layer),), after)


PP_FORMULANET = Architecture(
    "pp_formulanet_text",
    pp_formulanet,
    config_class="PPFormulaNetTextConfig",
    implementation=replace(
        OWN_LABELS, fp32_loss=True, token_ids="copied", passes=(MASKS,), closure=("masks",), buffers=(),
    ),
    aliases={"d_model": "hidden_size"},
    wrappers=(Wrapper("pp_formulanet", path="model.decoder", ignored=("is_encoder_decoder",)),),
    defaults={
        "activation_function": "gelu", "decoder_attention_heads": 16, "decoder_ffn_dim": 2048,
        "max_position_embeddings": 2560, "scale_embedding": True, "tie_word_embeddings": False, "vocab_size": 50000,
    },
    modules={
        "embedding": "model.decoder.embed_tokens", "position_embedding": "model.decoder.embed_positions",
        "o": "self_attn.out_proj", "up": "fc1", "down": "fc2",
    },
)  # fmt: skip

ARCHITECTURES = (BLIP, PIX2STRUCT, PP_FORMULANET)

"""LongT5, whose encoder reads long texts, and FSMT: relatives of T5 and Marian."""

from __future__ import annotations

from napkin.architectures.families.encoder_decoders.bart import MARIAN
from napkin.architectures.families.encoder_decoders.bart_network import Bart
from napkin.architectures.families.encoder_decoders.t5 import T5, t5
from napkin.architectures.record import REQUIRED, like
from napkin.inputs.model import Config
from napkin.operations.learned import Parameters
from napkin.operations.model import Model
from napkin.operations.roles import HEADS, REPLICATED
from napkin.record import replace

_APPROXIMATE = "the encoder's attention sees blocks of its text; full attention is counted"


def _with_encoder_weights(model: Model, each: Parameters, once: Parameters) -> Model:
    """Return the model with more weights in each layer of the encoder, and once before them."""
    encoder, decoder = model.stacks
    found = encoder.mapped(lambda one: replace(one, operations=(each, *one.operations)))
    return replace(model, stacks=(replace(found, before=(*encoder.before, once)), decoder))


def _longt5(config: Config) -> Model:
    """Return LongT5 (arXiv:2112.07916): T5 whose encoder sees windows, and where asked a summary of each block."""
    kind = config.text("encoder_attention_type", known=("local", "transient-global"))
    config.ignore("local_radius", "global_block_size")
    model = t5(config)
    config.notes.append(_APPROXIMATE)
    if kind == "local":
        return model
    norm = Parameters("global_input_norm", (), (("weight", (model.hidden,)),), REPLICATED)
    buckets = config.integer("relative_attention_num_buckets")
    bias = Parameters("global_distances", (), (("weight", (buckets, model.heads)),), HEADS)
    return _with_encoder_weights(model, norm, bias)


_FSMT = Bart(fixed=True, offset=2, may_share="share_encoder_decoder_embeddings", root=False)


def _fsmt(config: Config) -> Model:
    """Return FSMT (WMT19's transformer of fairseq): Marian with a vocabulary for each language, or, tied, the target's
    table for both and the head."""
    source, target = config.integer("src_vocab_size"), config.integer("tgt_vocab_size")
    if config.has("vocab_size") and config.integer("vocab_size") != target:  # another name of the same in the class
        raise config.wrong("vocab_size", f"contradicts tgt_vocab_size {target:,}")
    tied = config.flag("tie_word_embeddings")
    for field, value in (("vocab_size", target if tied else source), ("decoder_vocab_size", target)):
        config.restate(field, value)
    config.restate("share_encoder_decoder_embeddings", tied)
    config.ignore("langs")
    return _FSMT(config)


LONGT5 = like(
    T5,
    "longt5",
    build=_longt5,
    config_class="LongT5Config",
    defaults={"encoder_attention_type": "local"},
    modules={"encoder/distances": "layer.0.LocalSelfAttention.relative_attention_bias"},
)
FSMT = like(
    MARIAN,
    "fsmt",
    build=_fsmt,
    config_class="FSMTConfig",
    implementation=replace(
        MARIAN.implementation, buffers=(), checkpoints=False, head_is_layer=True, weights_to="attention"
    ),
    defaults={
        "activation_function": "relu", "src_vocab_size": 42024, "tgt_vocab_size": 42024, "tie_word_embeddings": False,
        "vocab_size": REQUIRED,
    },
    modules={"lm_head": "model.decoder.output_projection"},
)  # fmt: skip

ARCHITECTURES = (LONGT5, FSMT)

"""Falcon 7B to 180B."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import parallel, pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import LAYER
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Inner, RotaryPositions, activation_in, always
from napkin.architectures.dimensions import dimensions
from napkin.architectures.reading import kv_heads_of
from napkin.architectures.record import Architecture, like
from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.inputs.model import Config
from napkin.operations.implementations import ALIBI, HF, QKV, Running
from napkin.operations.model import Model
from napkin.record import replace


def falcon(config: Config) -> Model:
    """Return Falcon: branches in parallel or not, one norm or two for them, ALiBi or rotary positions, and three ways
    to say how many key/value heads there are: multi_query wins over num_kv_heads except in the new architecture."""
    heads = config.integer("num_attention_heads")
    new, branches = config.flag("new_decoder_architecture"), config.flag("parallel_attn")
    config.must_be("apply_residual_connection_post_layernorm", False)
    kv_heads = kv_heads_of(config, heads, "num_kv_heads") if new or not config.flag("multi_query") else 1
    config.ignore("num_kv_heads", "multi_query")
    if not new and kv_heads != heads and not config.flag("multi_query"):
        raise config.refuse("num_kv_heads", f"is not the {heads} heads that this architecture has keys and values for")
    norms = config.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    if new and not branches:
        raise config.refuse("parallel_attn", "is false in the new decoder architecture, which has parallel branches")
    if norms > 2 or (norms == 2 and not new):
        raise config.refuse("num_ln_in_parallel_attn", f"napkin does not know {norms} norms here")
    alibi = config.flag("alibi")

    def attention(config: Config, usual: Attention) -> Attention:
        laid_out = usual.projected(indexed=new or kv_heads == 1 < heads, groups=kv_heads if new else 1, repeated=new)
        return laid_out.scored(position="alibi" if alibi else "none")

    made = replace(
        _FALCON,
        arrangement=always(
            partial(parallel, norms=norms, dropout_sum=True) if branches else partial(pre_norm, dropout=(True, True))
        ),
        sizes=partial(dimensions, kv_heads=kv_heads, own_head_dim=False),
        rotary=None if alibi else RotaryPositions(),
        attention=attention,
    )
    return made(config)


_FALCON = Decoder(
    norm=LAYER,
    bias="bias",
    out_bias="bias",
    fused=True,
    inner=Inner("ffn_hidden_size", times=4),
    function=activation_in("activation"),
    gated=False,
    mlp_bias="bias",
    ignored=("rotary",),
)


def _transposed(run: Running, x: Tensor, d_in: Number, d_out: Number, bias: bool, label: str) -> Tensor:
    """Run a linear layer that reads its weight transposed (FalconLinear): autocast does not recognize it and casts
    it on every pass, and the bias is a separate addition, in its own dtype."""
    out = run.tape.linear(x, d_in, d_out, bias, label, once=False)
    return run.tape.add(out, run.weight(d_out)) if bias else out


FALCON = Architecture(
    "falcon",
    falcon,
    config_class="FalconConfig",
    aliases={"n_embed": "hidden_size"},
    implementation=replace(
        HF, softmax="narrowed", drops=ALIBI, few_heads="unchanged", linear=_transposed, kernel_mask="always",
        weights_to="loop", closure=("tables", "ids", "masks", "alibi"), variables=(QKV,),
    ),
    defaults={
        "activation": "gelu", "alibi": False, "bias": False, "ffn_hidden_size": None,
        "max_position_embeddings": 2048, "multi_query": True, "new_decoder_architecture": False,
        "num_attention_heads": 71, "num_kv_heads": None, "num_ln_in_parallel_attn": None, "parallel_attn": True,
        "tie_word_embeddings": True, "vocab_size": 65024,
    },
    modules={
        "embedding": "transformer.word_embeddings", "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
    },
)  # fmt: skip


def as_published(config: Config) -> Model:
    """Return Falcon as its first files describe it (configuration_RW.py of tiiuae/falcon-40b and falcon-7b): several
    key/value heads mean the new architecture."""
    config.restate("new_decoder_architecture", config.has("num_kv_heads"))
    return falcon(config)


REFINED_WEB = like(
    FALCON,
    "RefinedWeb",
    build=as_published,
    config_class="",
    aliases={
        "n_embed": "hidden_size", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads",
        "n_layer": "num_hidden_layers",
    },
    defaults={"multi_query": False, "parallel_attn": True},
)  # fmt: skip
REFINED_WEB_MODEL = like(REFINED_WEB, "RefinedWebModel")

ARCHITECTURES = (FALCON, REFINED_WEB, REFINED_WEB_MODEL)

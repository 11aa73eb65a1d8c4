"""GPT-2 and models that are close to it: learned positions, layer norms, plain MLPs, dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import LAYER, LAYER_NO_BIAS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, Headed, Inner, activation_in, always, constant, scored
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.layer_plans import Windows
from napkin.architectures.mixture import Feed
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.implementations import ATTENDED, HF, HF_EAGER, IDS, IN_DROPOUT, MASKS, NEVER
from napkin.operations.roles import SINES
from napkin.record import replace

DROPPED = (True, True)
SAME_HEADS = partial(dimensions, kv_heads="", own_head_dim=False)
"""As many key/value heads as query heads, whose size no field says."""


def alternating(config: Config, layers: int) -> Callable[[int], str]:
    """Read attention_types: [[[global, local], n], …] repeats each pair n times; global and local in turn by
    default."""
    blocks_of = config.items("attention_types", required=False)
    if blocks_of is None:
        return lambda i: WINDOWED if i % 2 else FULL
    kinds: list[str] = []
    for block in blocks_of:
        try:
            names, count = block
            kinds += [{"global": FULL, "local": WINDOWED}[name] for name in names] * min(count, layers)
        except (TypeError, ValueError, KeyError):
            raise config.wrong("attention_types", "is not a list of [[global, local], n]") from None
    if len(kinds) != layers:
        raise config.wrong("attention_types", f"lists {len(kinds)} layers of {layers}")
    return lambda i: kinds[i]


def _upcast(config: Config, usual: Attention) -> Attention:
    """Make the scores a matmul of fp32 tensors where reorder_and_upcast_attn says so."""
    return usual.scored(upcast=config.flag("reorder_and_upcast_attn", otherwise=False))


def _multi_query(config: Config) -> Dimensions:
    """Read one key/value head where multi_query says so; later releases also write the number, which does not
    decide."""
    kv_heads = 1 if config.flag("multi_query") else config.integer("num_attention_heads")
    config.must_be("num_key_value_heads", kv_heads)
    return dimensions(config, kv_heads=kv_heads, own_head_dim=False)


def dropped_inside(config: Config, usual: Feed) -> Feed:
    """Drop out before the last projection."""
    return partial(usual, dropout=True)


LIKE_GPT2 = Decoder(
    norm=LAYER,
    arrangement=always(partial(pre_norm, dropout=DROPPED)),
    sizes=SAME_HEADS,
    bias=True,
    out_bias=True,
    fused=True,
    rotary=None,
    inner=Inner("n_inner", times=4),
    function=activation_in("activation_function"),
    gated=False,
    mlp_bias=True,
    embedding=Embedded(positions=0, dropout=True),
    only=(("add_cross_attention", (False,)),),
)
SHORT_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
}
"""Spellings of OpenAI's GPT-2 and of classes that follow it."""

GPT2 = Architecture(
    "gpt2",
    replace(LIKE_GPT2, attention=_upcast, only=(), crosses="add_cross_attention"),
    config_class="GPT2Config",
    aliases=SHORT_NAMES,
    implementation=replace(
        HF, softmax="narrowed", passes=(MASKS,), norms_last=False, closure=("tables", "masks"),
        variables=(ATTENDED, IN_DROPOUT),
    ),
    defaults={
        "activation_function": "gelu_new", "max_position_embeddings": 1024, "n_inner": None,
        "num_attention_heads": 12, "tie_word_embeddings": True, "vocab_size": 50257,
    },
    modules={
        "embedding": "transformer.wte", "position_embedding": "transformer.wpe", "qkv": "attn.c_attn",
        "o": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
)  # fmt: skip
# GPT-2's class with another tokenizer
GPT_SW3 = like(
    GPT2,
    "gpt-sw3",
)
GPT_BIGCODE = Architecture(
    "gpt_bigcode",
    replace(LIKE_GPT2, sizes=_multi_query),
    config_class="GPTBigCodeConfig",
    aliases=SHORT_NAMES,
    implementation=replace(HF, buffers=(("mask", "bool"),), norms_last=False, variables=(ATTENDED, IN_DROPOUT)),
    defaults={
        "activation_function": "gelu_pytorch_tanh", "max_position_embeddings": 1024, "multi_query": True,
        "n_inner": None, "num_attention_heads": 12, "tie_word_embeddings": True, "vocab_size": 50257,
    },
    modules={
        "embedding": "transformer.wte", "position_embedding": "transformer.wpe", "qkv": "attn.c_attn",
        "o": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
)  # fmt: skip
GPT_NEO = Architecture(
    "gpt_neo",
    replace(
        LIKE_GPT2,
        bias=False,
        fused=False,
        inner=Inner("intermediate_size", times=4),
        windows=Windows(alternating, field="window_size"),
        ignored=("attention_layers", "attention_types"),
    ),
    config_class="GPTNeoConfig",
    aliases={"num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"},
    implementation=replace(
        HF_EAGER, softmax="fp32_scores", buffers=(("masks", "bool"),), norms_last=False, closure=("mask",),
        weights_to="loop", variables=(ATTENDED, IN_DROPOUT),
    ),
    defaults={
        "activation_function": "gelu_new", "intermediate_size": None, "max_position_embeddings": 2048,
        "num_attention_heads": 16, "tie_word_embeddings": True, "vocab_size": 50257, "window_size": 256,
    },
    modules={
        "embedding": "transformer.wte", "position_embedding": "transformer.wpe", "q": "attn.attention.q_proj",
        "k": "attn.attention.k_proj", "v": "attn.attention.v_proj", "o": "attn.attention.out_proj", "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
)  # fmt: skip
# nanoGPT's `bias=False`: no biases in products and norms (karpathy/nanoGPT, model.py); no class of transformers
NANOGPT = replace(
    like(
        GPT2,
        "nanogpt",
        build=replace(LIKE_GPT2, norm=LAYER_NO_BIAS, bias=False, out_bias=False, mlp_bias=False, only=()),
        defaults={"activation_function": "gelu", "vocab_size": 50304},
    ),
    config_class="",
)


def _afn(config: Config) -> str:
    """Read the activation; what OpenAI's class calls gelu is its tanh approximation."""
    function = activation_in("afn")(config)
    return "gelu_new" if function == "gelu" else function


OPENAI_GPT = Architecture(
    "openai-gpt",
    replace(
        LIKE_GPT2,
        arrangement=always(partial(post_norm, dropout=DROPPED)),
        inner=Inner("", times=4),
        function=_afn,
        head=Headed(norm=False),
    ),
    config_class="OpenAIGPTConfig",
    aliases=SHORT_NAMES,
    implementation=replace(
        HF_EAGER,
        softmax="native",
        positions="buffer",
        checkpoints=False,
        buffers=(IDS, ("masks", "")),
        norms_last=False,
    ),
    defaults={
        "afn": "gelu", "max_position_embeddings": 512, "num_attention_heads": 12, "tie_word_embeddings": True,
        "vocab_size": 40478,
    },
    modules={
        "embedding": "transformer.tokens_embed", "position_embedding": "transformer.positions_embed",
        "qkv": "attn.c_attn", "o": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
)  # fmt: skip
CTRL = Architecture(
    "ctrl",
    replace(
        LIKE_GPT2,
        fused=False,
        attention=scored(position="sinusoidal"),
        inner=Inner("dff"),
        function=constant("relu"),
        embedding=Embedded(sines=SINES, scale=True, dropout=True),
        head=Headed(bias=True),
    ),
    config_class="CTRLConfig",
    aliases=SHORT_NAMES,
    implementation=replace(
        HF, softmax="native", drops=NEVER, checkpoints=False, buffers=(("positions", ""),),
        variables=(ATTENDED,),
    ),
    defaults={
        "dff": 8192, "max_position_embeddings": 256, "num_attention_heads": 16, "tie_word_embeddings": True,
        "vocab_size": 246534,
    },
    modules={
        "embedding": "transformer.w", "q": "multi_head_attention.Wq", "k": "multi_head_attention.Wk",
        "v": "multi_head_attention.Wv", "o": "multi_head_attention.dense", "up": "ffn.0", "down": "ffn.2",
    },
)  # fmt: skip

ARCHITECTURES = (GPT2, GPT_SW3, GPT_BIGCODE, GPT_NEO, NANOGPT, OPENAI_GPT, CTRL)

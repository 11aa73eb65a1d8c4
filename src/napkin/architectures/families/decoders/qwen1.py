"""Qwen of 2023, whose code comes with its weights (modeling_qwen.py of Qwen/Qwen-1_8B, -7B, -14B and -72B)."""

from __future__ import annotations

from functools import partial

from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, RotaryPositions, constant
from napkin.architectures.dimensions import dimensions
from napkin.architectures.mixture import Feed
from napkin.architectures.reading import ALONE
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import CUDNN, CUT_AS_GIVEN, EFFICIENT, FLASH, HF, PADDING, QKV, WITHOUT_FLASH
from napkin.operations.model import Model
from napkin.record import replace


def qwen(config: Config) -> Model:
    """Return Qwen: Llama's layers with one QKV projection, whose biases are there whatever `no_bias` says.

    Files of August 2023 state `n_embd`; their class sizes the vocabulary by `padded_vocab_size`, which the later one
    does not read. Qwen-VL's state a vision tower (`visual`)."""
    if config.has("n_embd") and config.has("padded_vocab_size"):
        config.restate("vocab_size", config.raw("padded_vocab_size"))
    config.ignore("padded_vocab_size")
    if config.has("visual"):
        config.ignore("visual")
        config.notes.append(f"{ALONE} {config.model_type} is counted, vision and other modalities are not")
    biased = not config.flag("no_bias")
    return replace(_QWEN, out_bias=biased, mlp_bias=biased)(config)


def halves(config: Config, usual: Feed) -> Feed:
    """Return the MLP, each of whose matrices is half as wide as `intermediate_size` says, rounded down."""
    return partial(usual, inner=config.integer("intermediate_size", least=2) // 2)


_QWEN = Decoder(
    sizes=partial(dimensions, kv_heads="", square=True, max_length="seq_length"),
    bias=True,
    fused=True,
    rotary=RotaryPositions(upcast=True, fused=True),
    function=constant("silu"),
    feed_forward=halves,
    embedding=Embedded(dropout=True),
    only=(
        ("use_cache_quantization", (False,)),
        ("apply_residual_connection_post_layernorm", (False,)),
        ("pos_emb", ("rotary",)),
    ),
    ignored=(
        "activation",
        "attn_dropout_prob",
        "attn_pdrop",
        "bias_dropout_fusion",
        "emb_dropout_prob",
        "embd_pdrop",
        "fp32",
        "max_position_embeddings",
        "n_inner",
        "onnx_safe",
        "params_dtype",
        "resid_pdrop",
        "rotary_emb_base",
        "scale_attn_weights",
        "softmax_in_fp32",
        "tokenizer_type",
        "use_cache_kernel",
        "use_dynamic_ntk",
        "use_flash_attn",
        "use_logn_attn",
    ),
)

QWEN = Architecture(
    "qwen",
    qwen,
    implementation=replace(
        HF, fp32_loss=False, shifted=False, cuts=CUT_AS_GIVEN, kernels=(FLASH, EFFICIENT, CUDNN),
        kernel_mask=WITHOUT_FLASH, late=False, passes=(PADDING,), variables=(QKV,), closure=("tables",),
    ),
    aliases={
        "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim", "n_embd": "hidden_size",
        "n_head": "num_attention_heads", "n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings",
    },
    defaults={
        "head_dim": 128, "intermediate_size": 22016, "no_bias": True, "num_attention_heads": 32,
        "tie_word_embeddings": False, "vocab_size": 151936,
    },
    modules={
        "embedding": "transformer.wte", "qkv": "attn.c_attn", "o": "attn.c_proj", "up": "mlp.w1", "gate": "mlp.w2",
        "down": "mlp.c_proj",
    },
)  # fmt: skip
"""The rotation is the kernel of flash-attn, which the class looks for first (since flash-attn 2.1.2 part of it), and
whose input it casts; the RMS norm runs as elementary operations unless an extension of it is built."""
ARCHITECTURES = (QWEN,)

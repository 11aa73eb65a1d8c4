"""DiffLlama: Llama with the difference of two attention maps, each over one half of the values' heads."""

from __future__ import annotations

from napkin.architectures.blocks import NormStyle, Operations
from napkin.architectures.decoder import Decoder
from napkin.architectures.reading import kv_heads_of
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.implementations import HF, NEVER
from napkin.operations.maps import AttentionDifference, HalfHeads
from napkin.operations.model import Model
from napkin.operations.pointwise import Scale
from napkin.record import replace

RMS_KERNEL = NormStyle(arithmetic="fused", weight=False)


def diffllama(config: Config) -> Model:
    """Return DiffLlama."""
    heads = config.integer("num_attention_heads")
    if kv_heads_of(config, heads) % 2:
        raise config.wrong("num_key_value_heads", "is not even: one half of the values is for each of two maps")
    return _DIFFLLAMA(config)


def differential(core: AttentionCore) -> Operations:
    """Return the usual map with either half of the values' heads, their difference normalized in pairs of heads."""
    query, key, value = core.reads
    halves = tuple(f"{core.name}_{half}_values" for half in ("first", "second"))
    width, size = core.heads * core.v_dim, 2 * core.v_dim
    made = ("attention", "attention_second")
    return (
        *(HalfHeads(half, (value,), core.kv_heads * core.v_dim) for half in halves),
        *(replace(core, name=name, reads=(query, key, half)) for name, half in zip(made, halves, strict=True)),
        AttentionDifference("difference", made, core.heads, core.v_dim),
        RMS_KERNEL("difference_norm", "difference", size, core.heads // 2),
        Scale("difference_scaled", ("difference_norm",), width),
    )


_DIFFLLAMA = Decoder(
    bias="attention_bias",
    out_bias="attention_bias",
    attention=lambda config, usual: replace(usual, core=differential),
    ignored=("lambda_std_dev",),
)

DIFFLLAMA = Architecture(
    "diffllama",
    diffllama,
    config_class="DiffLlamaConfig",
    implementation=replace(HF, drops=NEVER),
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 8192,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 32000,
    },
)  # fmt: skip

ARCHITECTURES = (DIFFLLAMA,)

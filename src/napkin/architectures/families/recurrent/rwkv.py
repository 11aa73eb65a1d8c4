"""RWKV-4: a recurrence for each channel.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.blocks import LAYER
from napkin.architectures.reading import width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_blocks import channel_mix, wkv
from napkin.architectures.recurrent_parts import network, sizes_of
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Layer, Model
from napkin.record import replace


def rwkv(config: Config) -> Model:
    """Return RWKV-4 (arXiv:2305.13048): time mixing, then channel mixing; the first layer has a norm before both."""
    inner = config.optional_integer("attention_hidden_size") or width(config)
    sizes = sizes_of(config, inner, inner, 1)
    hidden = sizes.hidden
    mix = partial(wkv, width=hidden, inner=inner)
    feed = partial(channel_mix, width=hidden, d_ff=config.optional_integer("intermediate_size") or 4 * hidden)
    block = pre_norm(hidden, LAYER, mix, feed)
    later = [replace(op, reads=tuple("first_norm" if name == "x" else name for name in op.reads)) for op in block]
    first = Layer("rwkv_first", (LAYER("first_norm", "x", hidden), *later))
    return network(sizes, ((1, first), *(((sizes.layers - 1, Layer("rwkv", block)),) * (sizes.layers > 1))), norm=LAYER)


RWKV = Architecture(
    "rwkv",
    rwkv,
    config_class="RwkvConfig",
    implementation=replace(HF, fp16_excepts=("/time_decay", "/time_first")),
    aliases={"context_length": "max_position_embeddings"},
    defaults={
        "attention_hidden_size": None, "intermediate_size": None, "max_position_embeddings": 1024,
        "tie_word_embeddings": False, "vocab_size": 50277,
    },
    modules={
        "embedding": "rwkv.embeddings", "mixer_key": "attention.key", "mixer_value": "attention.value",
        "mixer_receptance": "attention.receptance", "mixer_output": "attention.output",
        "channel_key": "feed_forward.key", "channel_value": "feed_forward.value",
        "channel_receptance": "feed_forward.receptance", "lm_head": "head",
    },
)  # fmt: skip

ARCHITECTURES = (RWKV,)

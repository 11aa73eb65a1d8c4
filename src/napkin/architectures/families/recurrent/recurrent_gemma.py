"""RecurrentGemma: RG-LRU blocks, and attention over a window.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import QkvProjections, Rope, Scores
from napkin.architectures.blocks import RMS_OFFSET, Block, gated_mlp
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.reading import activation, head_size, kv_heads_of, on, rotary_dim, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_blocks import rg_lru
from napkin.architectures.recurrent_parts import heads_of, network, positive, sizes_of
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, MASKS, POSITION_IDS
from napkin.operations.model import Layer, Model
from napkin.record import record, replace


@record
class _RecurrentGemma:
    """RecurrentGemma, as config.json describes it: the kind of each layer and the mixer of each kind."""

    sizes: Dimensions
    kinds: Sequence[str]
    mixers: Mapping[str, Block]
    feed: Block


def recurrent_gemma(config: Config) -> Model:
    """Return RecurrentGemma (arXiv:2404.07839): RG-LRU blocks, and local attention, in a repeated pattern."""
    read = _read(config)
    hidden = read.sizes.hidden
    runs = runs_of(read.kinds, lambda kind: Layer(kind, pre_norm(hidden, RMS_OFFSET, read.mixers[kind], read.feed)))
    model = network(read.sizes, runs, norm=RMS_OFFSET, scale=True, softcap=True)
    stack = model.stacks[0]
    factor = tuple(replace(op, held="bf16") if op.name == "embedding_scaled" else op for op in stack.before)
    return replace(model, stacks=(replace(stack, before=factor),))


def _read(config: Config) -> _RecurrentGemma:
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, width(config), heads)
    sizes = sizes_of(config, heads, kv_heads_of(config, heads), head_dim, positions=False)
    pattern = config.items("block_types") or []
    if not pattern or any(entry not in ("recurrent", "attention") for entry in pattern):
        raise config.refuse("block_types", "napkin knows only recurrent and attention")
    config.must_be("embeddings_scale_by_sqrt_dim", True)
    function = activation(config, "hidden_activation", "hidden_act")
    inner = config.optional_integer("lru_width") or sizes.hidden
    config.divides("lru_width", inner, heads, "(lru_width)")
    kernel = config.integer("conv1d_width")
    attention = Attention(
        heads_of(sizes),
        projections=QkvProjections(bias=on(config, "attention_bias"), out_bias=True),
        scores=Scores(window=config.integer("attention_window_size")),
        rope=Rope(rotary_dim(config, head_dim, 0.5)),
    )
    recurrent = partial(rg_lru, width=sizes.hidden, inner=inner, heads=heads, kernel=kernel, function=function)
    d_ff = positive(config, "intermediate_size", config.integer("intermediate_size") // 2, "the feed-forward width")
    return _RecurrentGemma(
        sizes,
        [pattern[i % len(pattern)] for i in range(sizes.layers)],
        {"attention": attention, "recurrent": recurrent},
        partial(gated_mlp, width=sizes.hidden, inner=d_ff, function=function, bias=True),
    )


RECURRENT_GEMMA = Architecture(
    "recurrent_gemma",
    recurrent_gemma,
    config_class="RecurrentGemmaConfig",
    aliases={"layer_types": "layers_block_type", "sliding_window": "attention_window_size"},
    defaults={
        "attention_bias": False, "attention_window_size": 2048,
        "block_types": ["recurrent", "recurrent", "attention"], "conv1d_width": 4,
        "hidden_activation": "gelu_pytorch_tanh", "intermediate_size": 7680, "lru_width": None,
        "num_attention_heads": 10, "num_key_value_heads": None, "tie_word_embeddings": True, "vocab_size": 256000,
    },
    implementation=replace(
        HF, rotary="values", mixer="torch", passes=(MASKS, POSITION_IDS), closure=("tables", "masks"),
        buffers=(("each rotary", "fp32"), ("scale", "bf16")),
    ),
    modules={
        "mixer_linear_y": "temporal_block.linear_y", "mixer_linear_x": "temporal_block.linear_x",
        "mixer_linear_out": "temporal_block.linear_out", "gate": "mlp_block.gate_proj", "up": "mlp_block.up_proj",
        "down": "mlp_block.down_proj", "q": "temporal_block.q_proj", "k": "temporal_block.k_proj",
        "v": "temporal_block.v_proj", "o": "temporal_block.o_proj",
    },
)  # fmt: skip

ARCHITECTURES = (RECURRENT_GEMMA,)

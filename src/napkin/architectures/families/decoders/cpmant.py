"""CPM-Ant (openbmb/cpm-ant-10b): a decoder with learned biases of distances and prompts before each sequence.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/cpmant/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import head
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads
from napkin.architectures.blocks import RMS_CPM, gated_mlp
from napkin.architectures.dimensions import decoder_only, dimensions_of
from napkin.architectures.reading import depth, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.segments import NarrowEmbedding, SegmentAttention, SegmentBias
from napkin.operations.implementations import HF_EAGER
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import SEGMENT
from napkin.record import replace


def _core(of: AttentionCore) -> tuple[SegmentAttention]:
    sizes = (of.heads, of.kv_heads, of.qk_dim, of.v_dim)
    return (SegmentAttention(of.name, of.reads, *sizes, causal=False, position=of.position),)


def _cpmant(config: Config) -> Model:
    """Return CPM-Ant's decoder. Every token sees every other, as the class sets its mask."""
    config.ignore("tie_word_embeddings", "position_bias_max_distance")
    config.restate("tie_word_embeddings", False)  # the embedding has more rows than the head
    hidden, heads = width(config), config.integer("num_attention_heads")
    head_dim, prompt = config.integer("dim_head"), config.integer("prompt_length", least=0)
    sizes = dimensions_of(config, hidden, depth(config), heads, heads, head_dim)
    segments = config.integer("segment_types")
    scored = Attention(Heads(hidden, heads, heads, head_dim)).scored(causal=False, position="relative")
    attend = replace(scored, core=_core)
    feed = partial(gated_mlp, width=hidden, inner=config.integer("dim_ff"), function="gelu", dropout=True)
    layer = Layer("decoder", pre_norm(hidden, RMS_CPM, attend, feed, dropout=(True, True)))
    buckets = segments * segments + config.integer("position_bias_num_buckets")
    rows = sizes.vocabulary + config.integer("prompt_types", least=0) * prompt
    before = (
        NarrowEmbedding("embedding", (), rows, hidden),
        NarrowEmbedding("segment_embedding", (), segments, hidden, role=SEGMENT),
        Add("segments_added", ("embedding", "segment_embedding"), hidden, renamed=True),
        SegmentBias("distances", ("segments_added",), buckets, heads),
    )
    after = head(hidden, sizes.vocabulary, norm=RMS_CPM, none=sizes.headless)
    model = decoder_only(sizes, before, ((sizes.layers, layer),), after)
    if prompt:
        config.notes.append(
            f"the class puts {prompt:,} learned tokens before each sequence: its layers run over them, not its head"
        )
    return replace(model, prompt=prompt)


CPMANT = Architecture(
    "cpmant",
    _cpmant,
    config_class="CpmAntConfig",
    defaults={
        "dim_ff": 10240, "dim_head": 128, "num_attention_heads": 32, "position_bias_num_buckets": 512,
        "prompt_length": 32, "prompt_types": 32, "segment_types": 32, "vocab_size": 30720,
    },
    implementation=replace(
        HF_EAGER, fp32_loss=False, shifted=False, checkpoints=False, buffers=(), closure=(), mask="each"
    ),
    modules={
        "embedding": "cpmant.input_embedding", "segment_embedding": "cpmant.segment_embedding",
        "q": "self_att.self_attention.project_q", "k": "self_att.self_attention.project_k",
        "v": "self_att.self_attention.project_v", "o": "self_att.self_attention.attention_out",
        "gate": "ffn.ffn.w_in.w_0", "up": "ffn.ffn.w_in.w_1", "down": "ffn.ffn.w_out",
    },
)  # fmt: skip

ARCHITECTURES = (CPMANT,)

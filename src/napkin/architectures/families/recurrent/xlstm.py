"""xLSTM: networks of matrix memories, config.json → list of operations.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/xlstm/).
"""

from __future__ import annotations

import math
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, head
from napkin.architectures.blocks import Block, NormStyle, gated_mlp
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.reading import on, tied, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_blocks import MatrixMemory
from napkin.architectures.recurrent_parts import scaled, sizes_of
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Softcap
from napkin.operations.views import Cast
from napkin.record import record


@record
class _XLstm:
    """xLSTM, as config.json describes it; `norm` is the one before each block."""

    sizes: Dimensions
    norm: NormStyle
    mix: Block
    feed: Block


def xlstm(config: Config) -> Model:
    """Return xLSTM (arXiv:2405.04517; at 7 B, arXiv:2503.13427): a matrix memory, then a gated MLP, in each block."""
    read = _read(config)
    sizes = read.sizes
    rows = sizes.vocabulary
    after = head(sizes.hidden, rows, norm=NormStyle(), none=sizes.headless)
    if not sizes.headless:
        after += (Cast("logits_wide", ("lm_head",), rows, fp32=True), Softcap("logits_capped", ("logits_wide",), rows))
    layer = Layer("mlstm", pre_norm(sizes.hidden, read.norm, read.mix, read.feed))
    return decoder_only(sizes, embedding(rows, sizes.hidden), ((sizes.layers, layer),), after)


def _read(config: Config) -> _XLstm:
    hidden, heads = width(config), config.integer("num_heads")
    _check(config)
    key_width, value_width = scaled(config, "qk_dim_factor", hidden), scaled(config, "v_dim_factor", hidden)
    config.divides("qk_dim_factor", key_width, heads, "(queries and keys)")
    head_dim = config.divides("v_dim_factor", value_width, heads, "(values)")
    bias = on(config, "use_bias")
    fused = config.text("weight_mode", known=("single", "fused")) == "fused"
    if tied(config):
        config.notes.append(
            "tie_word_embeddings: the class shares no weights, so embedding and head are counted separately"
        )
    mix = MatrixMemory(
        width=hidden,
        heads=heads,
        key_width=key_width,
        value_width=value_width,
        chunk=config.integer("chunk_size"),
        bias=bias,
        fused=fused,
        norm=NormStyle("layer", "fp32_norm", bias=bias, per_group=True),
    )
    feed = partial(gated_mlp, width=hidden, inner=_inner(config, hidden), bias=bias, fused=fused)
    sizes = sizes_of(config, heads, heads, head_dim, tie=False, positions=False)
    return _XLstm(sizes, NormStyle(bias=bias), mix, feed)


def _check(config: Config) -> None:
    """Refuse (3) what the class does otherwise, and read over what changes no operation."""
    config.must_be("norm_reduction_force_float32", True)
    config.must_be("add_out_norm", True)
    for field in ("add_embedding_dropout", "add_post_blocks_norm", "add_post_norm", "add_qk_norm"):
        config.must_be(field, False)
    config.ignore("igate_bias_init_range", "add_forward_backend_padding", "mlstm_round_up_to_multiple_of")
    config.ignore("mode", "chunkwise_kernel", "sequence_kernel", "step_kernel", "return_last_states", "eps")
    config.ignore("autocast_kernel_dtype", "inference_state_dtype", "max_inference_chunksize", "norm_eps")
    config.ignore("gate_soft_cap", "output_logit_soft_cap")


def _inner(config: Config, hidden: int) -> int:
    """Return the MLP's width: a multiple of ffn_round_up_to_multiple_of, at least hidden_size · ffn_proj_factor."""
    factor, multiple = config.real("ffn_proj_factor"), config.integer("ffn_round_up_to_multiple_of")
    assert factor is not None
    if not 0 < factor * hidden < LARGEST_DIMENSION:
        raise config.wrong("ffn_proj_factor", f"{factor} times {hidden} is not a dimension")
    return int(math.floor((hidden * factor + multiple - 1) / multiple) * multiple)


# --- records ---------------------------------------------------------------------------------------------------------

XLSTM = Architecture(
    "xlstm",
    xlstm,
    config_class="xLSTMConfig",
    aliases={"embedding_dim": "hidden_size", "num_blocks": "num_hidden_layers"},
    defaults={
        "chunk_size": 64, "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "num_heads": 8,
        "qk_dim_factor": 0.5, "tie_word_embeddings": False, "use_bias": False, "v_dim_factor": 1.0,
        "vocab_size": 50304, "weight_mode": "single",
    },
    modules={
        "embedding": "backbone.embeddings", "mixer_qkv": "mlstm_layer.qkv_opreact",
        "mixer_gates": "mlstm_layer.ifgate_preact", "mixer_out_proj": "mlstm_layer.out_proj",
        "gate_up": "ffn.proj_up_gate_z", "down": "ffn.proj_down", "mixer_q": "mlstm_layer.q",
        "mixer_k": "mlstm_layer.k", "mixer_v": "mlstm_layer.v", "mixer_gate": "mlstm_layer.ogate_preact",
        "mixer_input": "mlstm_layer.igate_preact", "mixer_forget": "mlstm_layer.fgate_preact",
        "gate": "ffn.proj_up_gate", "up": "ffn.proj_up",
    },
)  # fmt: skip

ARCHITECTURES = (XLSTM,)

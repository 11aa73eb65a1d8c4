"""Qwen4-Exp: gated residual streams, delta-rule layers, attention over runs of tokens that an indexer chooses, and
embeddings of hashed runs of tokens: config.json → list of operations.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/qwen4_exp/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_OFFSET, Block, Operations, Routing
from napkin.architectures.delta_rule import (
    SPLIT_DELTA,
    gated_delta,
    leave_out_predictions,
    shared_expert_mixture,
    stated_sizes,
)
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.families.recurrent.hashed_runs import HashedRuns, looked_up, read_runs, streams_norm
from napkin.architectures.reading import (
    FULL,
    activation,
    balance_loss,
    chosen_experts,
    depth,
    kv_heads_of,
    on,
    rotary_dim,
    width,
)
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_parts import LINEAR, heads_of, kinds
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.gated_streams import OuterProduct, RunChoice
from napkin.operations.hyper_connections import CopyToStreams
from napkin.operations.implementations import EAGER, EFFICIENT, PARTIAL_ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Multiply, Scale
from napkin.operations.roles import LM_HEAD
from napkin.operations.streams import StreamMean
from napkin.record import record, replace

INDEXED = "indexed_attention"


@record
class _Qwen4Exp:
    """Qwen4-Exp, as config.json describes it.

    kinds    of each layer: LINEAR or INDEXED
    mixers   {kind: block}         feed  the mixture of experts of every layer
    streams  residual streams      rank  of the bottleneck through which their gates come
    """

    sizes: Dimensions
    kinds: Sequence[str]
    mixers: Mapping[str, Block]
    feed: Block
    streams: int
    rank: int
    runs: HashedRuns
    balance: Operation | None


def qwen4_exp(config: Config) -> Model:
    """Return Qwen4-Exp."""
    read = _read(config)
    sizes, streams = read.sizes, read.streams
    hidden, rows = sizes.hidden, sizes.vocabulary
    after = head(hidden, rows, norm=None, balance=read.balance, none=sizes.headless)
    model = decoder_only(
        sizes,
        (*embedding(rows, hidden), CopyToStreams("streams", ("embedding",), hidden, streams)),
        runs_of(list(zip(read.kinds, read.runs.rows, strict=True)), partial(_layer, read)),
        (
            *_read_streams("final", "x", hidden, streams, read.rank),
            *(replace(op, reads=("final_norm",)) if op.role == LM_HEAD else op for op in after),
        ),
    )
    return replace(model, streams=streams)


def _layer(read: _Qwen4Exp, key: tuple[str, int]) -> Layer:
    """Return a layer of a kind, with this many rows of embeddings of runs."""
    kind, rows = key
    hidden, streams, rank = read.sizes.hidden, read.streams, read.rank
    before = looked_up(read.runs, hidden, streams, rows) if rows else ()
    start = before[-1].name if before else "x"
    first = _connected("attention", start, read.mixers[kind], hidden, streams, rank)
    second = _connected("mlp", first[-1].name, read.feed, hidden, streams, rank)
    name = ("delta" if kind == LINEAR else "attention") + "_tables" * bool(rows)
    return Layer(name, (*before, *first, *second))


def _read(config: Config) -> _Qwen4Exp:
    hidden, layers, heads = width(config), depth(config), config.integer("num_attention_heads")
    kv_heads, head_dim = kv_heads_of(config, heads), config.integer("head_dim")
    max_length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, max_length)
    listed = _kinds(config, layers)
    experts, top_k = chosen_experts(config, "num_experts", "num_experts_per_tok")
    leave_out_predictions(config)
    routing = Routing(experts, top_k, normalize=config.flag("norm_topk_prob", otherwise=True))
    return _Qwen4Exp(
        sizes,
        listed,
        {LINEAR: _delta(config), INDEXED: _indexed_attention(config, sizes)},
        shared_expert_mixture(config, routing),
        config.integer("hc_count", least=2),
        config.integer("hc_lowrank"),
        read_runs(config, listed),
        balance_loss(config, experts, top_k),
    )


def _kinds(config: Config, layers: int) -> Sequence[str]:
    """Read what mixes in each layer."""

    def by_interval() -> Sequence[str]:
        interval = config.integer("full_attention_interval")
        return [LINEAR if (i + 1) % interval else INDEXED for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (LINEAR, INDEXED, FULL), by_interval)
    config.ignore("full_attention_interval", "number_of_conv_states")
    return [INDEXED if kind == FULL else kind for kind in listed]


def _indexed_attention(config: Config, sizes: Dimensions) -> Block:
    """Read attention to the runs of tokens that an indexer chooses."""
    config.must_be("attn_output_gate", True)
    config.must_be("indexer_kv_heads", 1)
    index_heads, index_size = config.integer("indexer_n_heads"), config.integer("indexer_head_dim")
    rate, budget = config.integer("indexer_compress_ratio"), config.integer("indexer_budget")
    config.divides("indexer_budget", budget, rate, "(indexer_budget)")
    bias = on(config, "attention_bias")
    attention = Attention(
        heads_of(sizes),
        projections=QkvProjections(bias=bias, out_bias=bias, gated=True),
        norm=QkNorm(RMS_OFFSET),
        rope=Rope(rotary_dim(config, sizes.head_dim, 1.0)),
    )

    def block(source: str) -> Operations:
        choice = RunChoice("indexer", (source,), sizes.hidden, index_heads, index_size, rate)
        return (choice, *attention(source))

    return block


def _delta(config: Config) -> Block:
    gate = config.optional_text("output_gate_type", known=("silu", "sigmoid")) or activation(config, "hidden_act")
    return gated_delta(config, SPLIT_DELTA, stated_sizes(config), gate=gate)


def _read_streams(name: str, source: str, hidden: int, streams: int, rank: int) -> Operations:
    """Return the mean of the normalized streams, each element times a gate that comes through a bottleneck."""
    wide = hidden * streams
    return (
        streams_norm(f"{name}_streams", source, hidden, streams),
        Matmul(f"{name}_mix_low", (f"{name}_streams",), wide, rank),
        Scale(f"{name}_mix_scaled", (f"{name}_mix_low",), rank),
        Activation(f"{name}_mix_act", (f"{name}_mix_scaled",), rank, "silu"),
        Matmul(f"{name}_mix", (f"{name}_mix_act",), rank, wide),
        Activation(f"{name}_mix_gate", (f"{name}_mix",), wide, "sigmoid"),
        Multiply(f"{name}_mixed", (f"{name}_mix_gate", f"{name}_streams"), wide),
        StreamMean(f"{name}_norm", (f"{name}_mixed",), hidden, streams),
    )


def _connected(name: str, source: str, block: Block, hidden: int, streams: int, rank: int) -> Operations:
    """Return x + block(what it reads of the streams), written to each stream with a weight of each token."""
    made = block(f"{name}_norm")
    return (
        *_read_streams(name, source, hidden, streams, rank),
        Matmul(f"{name}_write", (f"{name}_streams",), hidden * streams, streams),
        Scale(f"{name}_write_scaled", (f"{name}_write",), streams),
        Activation(f"{name}_write_gate", (f"{name}_write_scaled",), streams, "sigmoid"),
        Scale(f"{name}_writes", (f"{name}_write_gate",), streams),
        *made,
        OuterProduct(f"{name}_written", (f"{name}_writes", made[-1].name), hidden, streams),
        Add(f"{name}_residual", (source, f"{name}_written"), hidden * streams),
    )


QWEN4_EXP_TEXT = Architecture(
    "qwen4_exp_text",
    qwen4_exp,
    config_class="Qwen4ExpTextConfig",
    defaults={
        "attention_bias": False, "full_attention_interval": 4, "hc_count": 4, "hc_lowrank": 320, "head_dim": 256,
        "heads_per_ngram": 8, "hidden_act": "silu", "layer_types": None, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "make_ngram_vocab_size_divisible_by": 128, "max_position_embeddings": 32768,
        "moe_intermediate_size": 512, "ngram_size": 3, "ngram_vocab_size_base": 20000000, "num_attention_heads": 16,
        "num_experts": 512, "num_experts_per_tok": 10, "num_key_value_heads": 2, "output_gate_type": None,
        "ple_conv_kernel_size": 4, "ple_embed_dim": None, "ple_layer_ids": None,
        "shared_expert_intermediate_size": 512, "tie_word_embeddings": False, "vocab_size": 248320,
    },
    implementation=replace(PARTIAL_ROTARY, positions="each", kernel_mask="always", kernels=(EFFICIENT, EAGER)),
    wrappers=(
        Wrapper("qwen4_exp", "Qwen4ExpConfig"),
    ),
    modules={
        "attention_mix_low": "attn_hyper_connection.input_mix_weight_down",
        "attention_mix": "attn_hyper_connection.input_mix_weight_up",
        "attention_write": "attn_hyper_connection.block_inject_weight",
        "mixer_in_proj_qkv": "linear_attn.in_proj_qkv", "mixer_in_proj_z": "linear_attn.in_proj_z",
        "mixer_in_proj_b": "linear_attn.in_proj_b", "mixer_in_proj_a": "linear_attn.in_proj_a",
        "mixer_out_proj": "linear_attn.out_proj", "mlp_mix_low": "mlp_hyper_connection.input_mix_weight_down",
        "mlp_mix": "mlp_hyper_connection.input_mix_weight_up",
        "mlp_write": "mlp_hyper_connection.block_inject_weight", "shared/gate": "mlp.shared_expert.gate_proj",
        "shared/up": "mlp.shared_expert.up_proj", "shared/down": "mlp.shared_expert.down_proj",
        "final_mix_low": "model.hyper_connection_mixer.input_mix_weight_down",
        "final_mix": "model.hyper_connection_mixer.input_mix_weight_up", "runs_key": "ple.key_proj",
        "runs_value": "ple.value_proj", "indexer": "self_attn.indexer",
    },
)  # fmt: skip

ARCHITECTURES = (QWEN4_EXP_TEXT,)

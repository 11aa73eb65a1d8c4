"""Qwen4-Exp: gated residual streams, delta-rule layers, attention over runs of tokens that an indexer chooses, and
embeddings of hashed runs of tokens: config.json → list of operations.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/qwen4_exp/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention import Attention, QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_OFFSET, Block, Operations, Routing, behind_gate, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.mixing import LINEAR, heads_of, kinds
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
from napkin.architectures.recurrent_blocks import GatedDelta
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.gated_streams import Agreement, DilatedConv, NgramTable, OuterProduct, RunChoice
from napkin.operations.hyper_connections import CopyToStreams
from napkin.operations.implementations import EAGER, EFFICIENT, PARTIAL_ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Multiply, Scale
from napkin.operations.roles import LM_HEAD, NGRAM
from napkin.operations.router import BalanceLoss
from napkin.operations.streams import StreamMean
from napkin.record import record, replace

INDEXED = "indexed_attention"
SPLIT = (("in_proj_qkv", ("q", "k", "v")), ("in_proj_z", ("z",)), ("in_proj_b", ("b",)), ("in_proj_a", ("a",)))
MOST_EMBEDDINGS = 1_000
"""More hashed embeddings than this are a slip of the keyboard; each needs a prime number of its own."""


@record
class _HashedRuns:
    """Embeddings of hashed runs of tokens, as config.json describes them.

    rows    of each layer's embeddings together; 0 where it has none
    width   of what is looked up       reach   tokens of a run before the last
    heads   embeddings in each layer   kernel  of the dilated convolution
    """

    rows: Sequence[int]
    width: int = 0
    reach: int = 0
    heads: int = 0
    kernel: int = 0


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
    runs: _HashedRuns
    balance: BalanceLoss | None


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
    """Return a layer of a kind, and of so many rows of embeddings of runs."""
    kind, rows = key
    hidden, streams, rank = read.sizes.hidden, read.streams, read.rank
    before = _looked_up(read.runs, hidden, streams, rows) if rows else ()
    start = before[-1].name if before else "x"
    first = _connected("attention", start, read.mixers[kind], hidden, streams, rank)
    second = _connected("mlp", first[-1].name, read.feed, hidden, streams, rank)
    name = ("delta" if kind == LINEAR else "attention") + "_tables" * bool(rows)
    return Layer(name, (*before, *first, *second))


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(config: Config) -> _Qwen4Exp:
    hidden, layers, heads = width(config), depth(config), config.integer("num_attention_heads")
    kv_heads, head_dim = kv_heads_of(config, heads), config.integer("head_dim")
    max_length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, max_length)
    listed = _kinds(config, layers)
    experts, top_k = chosen_experts(config, "num_experts", "num_experts_per_tok")
    for field in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if config.optional_integer(field, least=0):
            config.notes.append("the multi-token-prediction layers are left out")
    config.ignore("mtp_use_dedicated_embeddings")
    return _Qwen4Exp(
        sizes,
        listed,
        {LINEAR: _delta(config), INDEXED: _indexed_attention(config, sizes)},
        _mixture(config, experts, top_k),
        config.integer("hc_count", least=2),
        config.integer("hc_lowrank"),
        _read_runs(config, listed),
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
    key_heads, value_heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    if value_heads % key_heads:
        raise config.wrong("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    function = activation(config, "hidden_act")
    return GatedDelta(
        width=width(config),
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=config.integer("linear_key_head_dim"),
        value_dim=config.integer("linear_value_head_dim"),
        kernel=config.integer("linear_conv_kernel_dim"),
        projections=SPLIT,
        function=function,
        gate=config.optional_text("output_gate_type", known=("silu", "sigmoid")) or function,
    )


def _mixture(config: Config, experts: int, top_k: int) -> Block:
    hidden, function = width(config), activation(config, "hidden_act")
    inner = config.integer("shared_expert_intermediate_size")
    shared = partial(gated_mlp, width=hidden, inner=inner, function=function, prefix="shared/")
    return partial(
        moe,
        width=hidden,
        inner=config.integer("moe_intermediate_size"),
        routing=Routing(experts, top_k, normalize=config.flag("norm_topk_prob", otherwise=True)),
        function=function,
        shared=behind_gate(shared, hidden),
        shared_first=True,
    )


# --- putting together ------------------------------------------------------------------------------------------------


def _streams_norm(name: str, source: str, hidden: int, streams: int) -> Norm:
    """Return each stream normalized, with a weight of its own."""
    return replace(RMS_OFFSET, per_group=True)(name, source, hidden, streams)


def _read_streams(name: str, source: str, hidden: int, streams: int, rank: int) -> Operations:
    """Return the mean of the normalized streams, each element times a gate that comes through a bottleneck."""
    wide = hidden * streams
    return (
        _streams_norm(f"{name}_streams", source, hidden, streams),
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


def _looked_up(runs: _HashedRuns, hidden: int, streams: int, rows: int) -> Operations:
    """Return what the embeddings hold of the runs that end with a token, gated by how it agrees with each stream, and a
    dilated convolution of it, added to the streams."""
    wide = hidden * streams
    return (
        NgramTable(
            "runs",
            (),
            rows,
            runs.width,
            role=NGRAM,
            module="ple.ple_embedding.ngram_embedding",
            heads=runs.heads,
            reach=runs.reach,
        ),
        Matmul("runs_key", ("runs",), runs.width, wide),
        _streams_norm("runs_key_norm", "runs_key", hidden, streams),
        Matmul("runs_value", ("runs",), runs.width, hidden),
        _streams_norm("runs_query_norm", "x", hidden, streams),
        Agreement("runs_gate", ("runs_key_norm", "runs_query_norm"), hidden, streams),
        OuterProduct("runs_gated", ("runs_gate", "runs_value"), hidden, streams),
        _streams_norm("runs_norm", "runs_gated", hidden, streams),
        DilatedConv("runs_convolved", ("runs_norm",), wide, runs.kernel, runs.reach + 1),
        Activation("runs_act", ("runs_convolved",), wide, "silu"),
        Add("runs_added", ("runs_gated", "runs_act"), wide),
        Add("runs_residual", ("x", "runs_added"), wide),
    )


# --- embeddings of runs ----------------------------------------------------------------------------------------------


def _read_runs(config: Config, listed: Sequence[str]) -> _HashedRuns:
    """Read the embeddings of hashed runs of tokens; `listed`: what mixes in each layer."""
    places = _places(config, listed)
    config.ignore("seed", "split_ngram_parts")
    if not places:
        config.ignore("ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram")
        config.ignore("ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by")
        return _HashedRuns((0,) * len(listed))
    config.ignore("eos_token_id")
    reach = config.integer("ngram_size", least=2) - 1
    heads = reach * config.integer("heads_per_ngram")
    each = config.optional_integer("ple_embed_dim") or width(config)
    config.divides("ple_embed_dim", each, heads, "(ple_embed_dim)")
    if heads * len(places) > MOST_EMBEDDINGS:
        raise config.wrong("heads_per_ngram", f"{heads * len(places):,} embeddings are more than {MOST_EMBEDDINGS:,}")
    start, multiple = config.integer("ngram_vocab_size_base"), config.integer("make_ngram_vocab_size_divisible_by")
    rows = _rows(len(listed), places, heads, start, multiple)
    return _HashedRuns(rows, each, reach, heads, config.integer("ple_conv_kernel_size"))


def _places(config: Config, listed: Sequence[str]) -> list[int]:
    """Read which layers, from 1, look runs up."""
    layers = len(listed)
    given = config.items("ple_layer_ids", required=False) or []
    for entry in given:
        if isinstance(entry, bool) or not isinstance(entry, int) or not 1 <= entry <= layers:
            raise config.wrong(
                "ple_layer_ids", f"{printable(repr(entry), 60)} is not the number of a layer, 1 to {layers}"
            )
        if listed[entry - 1] != LINEAR:
            raise config.wrong("ple_layer_ids", f"layer {entry} is not one of linear_attention")
    return sorted(set(given))


def _rows(layers: int, places: Sequence[int], heads: int, start: int, multiple: int) -> list[int]:
    """Return the rows of each layer's embeddings together: consecutive primes from `start` on, one for each of `heads`,
    the sum padded to a multiple."""
    found = [0] * layers
    prime = start - 1
    for place in places:
        total = 0
        for _ in range(heads):
            prime = _next_prime(prime)
            total += prime
        found[place - 1] = -(-total // multiple) * multiple
    return found


def _next_prime(after: int) -> int:
    candidate = after + 1
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def _is_prime(number: int) -> bool:
    """Return whether a number is prime: Miller's test, which with these bases is right below 3,215,031,751 (Pomerance,
    Selfridge and Wagstaff 1980)."""
    bases = (2, 3, 5, 7)
    if number < 2 or any(number % base == 0 for base in bases):
        return number in bases
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    odd = (number - 1) >> twos
    return all(
        power in (1, number - 1) or any(pow(power, 2**i, number) == number - 1 for i in range(1, twos))
        for power in (pow(base, odd, number) for base in bases)
    )


# --- records ---------------------------------------------------------------------------------------------------------

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
        "runs_value": "ple.value_proj",
    },
)  # fmt: skip

ARCHITECTURES = (QWEN4_EXP_TEXT,)

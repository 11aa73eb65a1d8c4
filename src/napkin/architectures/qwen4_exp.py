"""Qwen4-Exp: gated residual streams, delta-rule layers, attention over runs of tokens that an indexer chooses, and
tables of hashed runs of tokens: config.json → list of operations.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/qwen4_exp/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.attention import Attention, Heads, QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_OFFSET, Block, Operations, Routing, behind_gate, gated_mlp, moe
from napkin.architectures.common import (
    FULL,
    activation,
    chosen_experts,
    depth,
    embedding,
    head,
    headless,
    kv_heads_of,
    on,
    rotary_dim,
    runs_of,
    tied,
    width,
)
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.mixing import LINEAR, kinds
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import gated_delta
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
from napkin.record import replace

INDEXED = "indexed_attention"
SPLIT = (("in_proj_qkv", ("q", "k", "v")), ("in_proj_z", ("z",)), ("in_proj_b", ("b",)), ("in_proj_a", ("a",)))
MOST_TABLES = 1_000
"""More hashed tables than this are a slip of the keyboard; each needs a prime number of its own."""


def build(config: Config) -> Model:
    """config.json of qwen4_exp_text → Model."""
    hidden, layers = width(config), depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    kv_heads, function = kv_heads_of(config, heads), activation(config, "hidden_act")
    streams, rank = config.integer("hc_count", least=2), config.integer("hc_lowrank")
    config.must_be("attn_output_gate", True)
    bias = on(config, "attention_bias")
    index_heads, index_size = config.integer("indexer_n_heads"), config.integer("indexer_head_dim")
    rate, budget = config.integer("indexer_compress_ratio"), config.integer("indexer_budget")
    config.must_be("indexer_kv_heads", 1)
    config.divides("indexer_budget", budget, rate, "(indexer_budget)")

    def attend(source: str) -> Operations:
        made = Attention(
            Heads(hidden, heads, kv_heads, head_dim),
            projections=QkvProjections(bias=bias, out_bias=bias, gated=True),
            norm=QkNorm(RMS_OFFSET),
            rope=Rope(rotary_dim(config, head_dim, 1.0)),
        )(source)
        return (RunChoice("indexer", (source,), hidden, index_heads, index_size, rate), *made)

    key_heads, value_heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    if value_heads % key_heads:
        raise config.wrong("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    gate = config.optional_text("output_gate_type", known=("silu", "sigmoid")) or function
    mix = partial(
        gated_delta,
        width=hidden,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=config.integer("linear_key_head_dim"),
        value_dim=config.integer("linear_value_head_dim"),
        kernel=config.integer("linear_conv_kernel_dim"),
        projections=SPLIT,
        function=function,
        gate=gate,
    )

    experts, top_k = chosen_experts(config, "num_experts", "num_experts_per_tok")
    feed = partial(
        moe,
        width=hidden,
        inner=config.integer("moe_intermediate_size"),
        routing=Routing(experts, top_k, normalize=config.flag("norm_topk_prob", otherwise=True)),
        function=function,
        shared=behind_gate(
            partial(
                gated_mlp,
                width=hidden,
                inner=config.integer("shared_expert_intermediate_size"),
                function=function,
                prefix="shared/",
            ),
            hidden,
        ),
    )

    def laid_out() -> Sequence[str]:
        interval = config.integer("full_attention_interval")
        return [LINEAR if (i + 1) % interval else INDEXED for i in range(layers)]

    listed = [
        INDEXED if kind == FULL else kind
        for kind in kinds(config, "layer_types", layers, (LINEAR, INDEXED, FULL), laid_out)
    ]
    config.ignore("full_attention_interval", "number_of_conv_states")
    tables = _tables(config, listed)
    for field in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if config.optional_integer(field, least=0):
            config.notes.append("the multi-token-prediction layers are left out")
    config.ignore("mtp_use_dedicated_embeddings")
    looked_up = partial(_looked_up, config, hidden, streams) if any(tables) else None

    def layer(key: tuple[str, int]) -> Layer:
        kind, rows = key
        before = looked_up(rows) if looked_up is not None and rows else ()
        start = before[-1].name if before else "x"
        name = ("delta" if kind == LINEAR else "attention") + "_tables" * bool(rows)
        first = _connected("attention", start, mix if kind == LINEAR else attend, hidden, streams, rank)
        return Layer(name, (*before, *first, *_connected("mlp", first[-1].name, feed, hidden, streams, rank)))

    vocabulary, none = config.integer("vocab_size"), headless(config)
    balances = config.flag("output_router_logits", otherwise=False)
    balance = BalanceLoss("balance_loss", (), experts, top_k) if balances else None
    read = _read("final", "x", hidden, streams, rank)
    after = head(hidden, vocabulary, norm=None, balance=balance, none=none)
    model = decoder_only(
        Dimensions(
            config.name,
            config.model_type,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            vocabulary,
            config.optional_integer("max_position_embeddings"),
            tied(config) and not none,
        ),
        (*embedding(vocabulary, hidden), CopyToStreams("streams", ("embedding",), hidden, streams)),
        runs_of(list(zip(listed, tables, strict=True)), layer),
        (*read, *(replace(op, reads=("final_norm",)) if op.role == LM_HEAD else op for op in after)),
    )
    return replace(model, streams=streams)


def _streams_norm(name: str, source: str, hidden: int, streams: int) -> Norm:
    """Each stream normalized, with a weight of its own."""
    return replace(RMS_OFFSET, per_group=True)(name, source, hidden, streams)


def _read(name: str, source: str, hidden: int, streams: int, rank: int) -> Operations:
    """Return the mean of the normalized streams, each number times a gate that comes through a bottleneck."""
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
    """x + block(what it reads of the streams), written to each stream with a weight of each token."""
    made = block(f"{name}_norm")
    return (
        *_read(name, source, hidden, streams, rank),
        Matmul(f"{name}_write", (f"{name}_streams",), hidden * streams, streams),
        Scale(f"{name}_write_scaled", (f"{name}_write",), streams),
        Activation(f"{name}_write_gate", (f"{name}_write_scaled",), streams, "sigmoid"),
        Scale(f"{name}_writes", (f"{name}_write_gate",), streams),
        *made,
        OuterProduct(f"{name}_written", (f"{name}_writes", made[-1].name), hidden, streams),
        Add(f"{name}_residual", (source, f"{name}_written"), hidden * streams),
    )


def _looked_up(config: Config, hidden: int, streams: int, rows: int) -> Operations:
    """Return what the embeddings hold of the runs that end with a token, gated by how it agrees with each stream, and a
    dilated convolution of it, added to the streams."""
    reach = config.integer("ngram_size") - 1
    each = config.optional_integer("ple_embed_dim") or hidden
    wide = hidden * streams
    return (
        NgramTable("runs", (), rows, each, role=NGRAM, heads=reach * config.integer("heads_per_ngram"), reach=reach),
        Matmul("runs_key", ("runs",), each, wide),
        _streams_norm("runs_key_norm", "runs_key", hidden, streams),
        Matmul("runs_value", ("runs",), each, hidden),
        _streams_norm("runs_query_norm", "x", hidden, streams),
        Agreement("runs_gate", ("runs_key_norm", "runs_query_norm"), hidden, streams),
        OuterProduct("runs_gated", ("runs_gate", "runs_value"), hidden, streams),
        _streams_norm("runs_norm", "runs_gated", hidden, streams),
        DilatedConv("runs_convolved", ("runs_norm",), wide, config.integer("ple_conv_kernel_size"), reach + 1),
        Activation("runs_act", ("runs_convolved",), wide, "silu"),
        Add("runs_added", ("runs_gated", "runs_act"), wide),
        Add("runs_residual", ("x", "runs_added"), wide),
    )


def _tables(config: Config, listed: Sequence[str]) -> list[int]:
    """Rows of each layer's tables together, 0 where it has none: consecutive primes, padded."""
    layers = len(listed)
    given = config.items("ple_layer_ids", required=False) or []
    for entry in given:
        if isinstance(entry, bool) or not isinstance(entry, int) or not 1 <= entry <= layers:
            raise config.wrong(
                "ple_layer_ids", f"{printable(repr(entry), 60)} is not the number of a layer, 1 to {layers}"
            )
        if listed[entry - 1] != LINEAR:
            raise config.wrong("ple_layer_ids", f"layer {entry} is not one of linear_attention")
    config.ignore("seed", "split_ngram_parts")
    found = [0] * layers
    if not given:
        config.ignore("ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram")
        config.ignore("ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by")
        return found
    config.ignore("eos_token_id")
    heads = (config.integer("ngram_size", least=2) - 1) * config.integer("heads_per_ngram")
    each = config.optional_integer("ple_embed_dim") or width(config)
    config.divides("ple_embed_dim", each, heads, "(ple_embed_dim)")
    places = sorted(set(given))
    if heads * len(places) > MOST_TABLES:
        raise config.wrong("heads_per_ngram", f"{heads * len(places):,} tables are more than {MOST_TABLES:,}")
    prime, multiple = config.integer("ngram_vocab_size_base") - 1, config.integer("make_ngram_vocab_size_divisible_by")
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
    """Miller's test, which with these bases is right below 3,215,031,751 (Pomerance, Selfridge and Wagstaff 1980)."""
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
    build,
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
    implementation=replace(PARTIAL_ROTARY, positions="each", masked=True, kernels=(EFFICIENT, EAGER)),
    wrappers=(
        Wrapper("qwen4_exp", "Qwen4ExpConfig"),
    ),
)  # fmt: skip

ARCHITECTURES = (QWEN4_EXP_TEXT,)

"""Projectors in which learned queries attend to a tower's results: as many tokens of each image, whatever its size.
Facts are those of Hugging Face transformers 5.23.0.

A norm of what the queries attend to reads MEMORY, and so do the products behind it: it says that their tokens are the
tower's.
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections
from napkin.architectures.blocks import LAYER, RMS, Block, NormStyle, Operations, gated_mlp, plain_mlp
from napkin.architectures.idle import idle, tensors
from napkin.architectures.masked import BIDIRECTIONAL
from napkin.architectures.reading import DEEPEST
from napkin.architectures.vision.projectors import Projected, Sees
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.roles import MEMORY, REPLICATED
from napkin.operations.views import ConcatTokens, Reused
from napkin.record import replace

BIASED = QkvProjections(bias=True, out_bias=True)
BERT = {
    "vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "cross_attention_frequency": 2,
    "use_qformer_text_input": False,
}  # fmt: skip
PERCEIVER = {
    "hidden_act": "silu", "resampler_n_latents": 64, "resampler_depth": 3, "resampler_n_heads": 16,
    "resampler_head_dim": 96, "num_key_value_heads": 4,
}  # fmt: skip


def _queries(count: int, width: int) -> Parameters:
    return Parameters("queries", (), (("weight", (count, width)),), REPLICATED)


def _depth(config: Config, field: str) -> int:
    found = config.integer(field)
    if found > DEEPEST:
        raise config.wrong(field, f"{found:,} layers are more than {DEEPEST:,}")
    return found


def _joined(made: Block, normed: NormStyle | None, width: int, source: str) -> Operations:
    """Return attention whose keys and values the same products make of the queries themselves and of what they attend
    to; `normed`: a norm of the latter."""
    *ahead, core, out = made(source)
    own = {op.name: op for op in ahead}
    keys = own["k"].linear()
    assert keys is not None
    return (
        *((normed("context_norm", MEMORY, width),) if normed is not None else ()),
        *ahead,
        *(Reused(f"seen_{name}", (MEMORY,), own[name], again=True) for name in ("k", "v")),
        *(ConcatTokens(f"all_{name}", (name, f"seen_{name}"), keys.d_out) for name in ("k", "v")),
        replace(core, reads=("q", "all_k", "all_v"), merged=True),
        out,
    )


def qformer(sees: Sees, instructed: bool = False) -> Projected:
    """Return a Q-former (arXiv:2301.12597): BERT over learned queries, some layers of which attend to the tower's
    results too, and a linear layer. `instructed`: it has tables and MLPs for an instruction's tokens, which wait."""
    config = sees.config.block("qformer_config", "qformer_config", BERT)
    width, heads, rows = (config.integer(f) for f in ("hidden_size", "num_attention_heads", "vocab_size"))
    inner, function, every = (
        config.integer("intermediate_size"), config.text("hidden_act"), config.integer("cross_attention_frequency"),
    )  # fmt: skip
    config.must_be("use_qformer_text_input", False)
    count, each = (
        sees.config.integer("num_query_tokens"),
        config.divides("num_attention_heads", width, heads, "(width)"),
    )
    attend = Attention(Heads(width, heads, heads, each), BIASED, scores=BIDIRECTIONAL)
    across = replace(attend, heads=replace(attend.heads, memory_width=sees.width), memory=MEMORY, prefix="cross_")
    feed = partial(plain_mlp, width=width, inner=inner, function=function)
    text: Operations = ()
    tables: Operations = ()
    if instructed:
        sees.config.notes.append("the Q-former is counted only over its queries, without an instruction's tokens")
        text = (idle("instruction", (*feed("x"), LAYER("instruction_norm", "x", width))),)
        positions = config.integer("max_position_embeddings")
        tables = (idle("instruction", (tensors("tables", {"words": (rows, width), "places": (positions, width)}),)),)

    def both(source: str) -> Operations:
        """Return both attentions; the first one's norm is between them."""
        residual = Add("self_residual", (source, "o"), width)
        return (*attend(source), residual, LAYER("self_norm", "self_residual", width), *across("self_norm"))

    def layer(crossed: bool) -> Layer:
        if not crossed:
            return Layer("queries", (*text, *post_norm(width, LAYER, attend, feed)))
        operations = post_norm(width, LAYER, both, feed)
        moved = tuple(
            replace(op, reads=("self_norm", "cross_o")) if op.name == "attention_residual" else op for op in operations
        )
        return Layer("crossed", (*text, *moved))

    depth = _depth(config, "num_hidden_layers")
    return Projected(
        (*tables, _queries(count, width), LAYER("query_norm", "queries", width)),
        count,
        queries=True,
        layers=runs_of((i % every == 0 for i in range(depth)), layer),
        after=(Matmul("language_projection", ("x",), width, sees.hidden, True),),
    )


def perceiver(sees: Sees) -> Projected:
    """Return Idefics 2's: a gated MLP over each patch, and layers in which latents attend to patches and latents."""
    config, hidden = sees.config.block("perceiver_config", "perceiver_config", PERCEIVER), sees.hidden
    text = sees.config.raw("text_config", required=False)
    stated = text if isinstance(text, dict) else {}
    inner, function = stated.get("intermediate_size", 14_336), stated.get("hidden_act", "silu")
    if not isinstance(inner, int) or not isinstance(function, str):
        raise sees.config.wrong("text_config", "has no width of its MLP")
    each: Operations = (
        Matmul("gate", ("x",), sees.width, inner, module="modality_projection.gate_proj"),
        Activation("activation", ("gate",), inner, function),
        Matmul("up", ("x",), sees.width, inner, module="modality_projection.up_proj"),
        Multiply("gated", ("activation", "up"), inner),
        Matmul("down", ("gated",), inner, hidden, module="modality_projection.down_proj"),
    )
    heads, kv_heads, head_dim = (
        config.integer(f) for f in ("resampler_n_heads", "num_key_value_heads", "resampler_head_dim")
    )
    made = Attention(Heads(hidden, heads, kv_heads, head_dim), scores=BIDIRECTIONAL)
    feed = partial(gated_mlp, width=hidden, inner=4 * hidden, function=config.text("hidden_act"))
    layer = Layer("latents", pre_norm(hidden, RMS, partial(_joined, made, RMS, hidden), feed))
    count = config.integer("resampler_n_latents")
    return Projected(
        (_queries(count, hidden),),
        count,
        each=each,
        queries=True,
        layers=((_depth(config, "resampler_depth"), layer),),
        after=(RMS("norm", "x", hidden),),
    )


def kosmos(sees: Sees) -> Projected:
    """Return Kosmos 2's: a linear layer over each patch, and an attention of learned queries to patches and queries."""
    text, hidden = sees.config.raw("text_config", required=False), sees.hidden
    heads = text.get("attention_heads", 32) if isinstance(text, dict) else 32
    if not isinstance(heads, int) or heads < 1 or hidden % heads:
        raise sees.config.wrong("text_config", "has heads that do not divide its width")
    made = Attention(Heads(hidden, heads, heads, hidden // heads), BIASED, scores=BIDIRECTIONAL)
    count = sees.config.integer("latent_query_num")
    found = (_queries(count, hidden), *_joined(made, None, hidden, "queries"))
    return Projected(found, count, each=(Matmul("dense", ("x",), sees.width, hidden, True),), queries=True)


MINICPMV_HEAD = 128
"""Elements of a head of MiniCPM-V's resampler."""


def minicpmv(sees: Sees) -> Projected:
    """Return MiniCPM-V's (arXiv:2408.01800): a matrix brings each patch to the language model's width, learned queries
    attend to the patches, and a matrix follows. Positions are sines, in the keys only."""
    hidden, heads = sees.hidden, sees.config.divides("hidden_size", sees.hidden, MINICPMV_HEAD, "(hidden_size)")
    count, head = sees.config.integer("query_num"), MINICPMV_HEAD
    found: Operations = (
        _queries(count, hidden),
        LAYER("query_norm", "queries", hidden),
        LAYER("context_norm", MEMORY, hidden),
        Matmul("q", ("query_norm",), hidden, hidden, True),
        *(Matmul(letter, ("context_norm",), hidden, hidden, True) for letter in "kv"),
        AttentionCore("attention", ("q", "k", "v"), heads, heads, head, head, causal=False, cross=True),
        Matmul("o", ("attention",), hidden, hidden, True),
        LAYER("norm", "o", hidden),
        Matmul("proj", ("norm",), hidden, hidden),
    )
    each = (Matmul("kv_proj", ("x",), sees.width, hidden, module="resampler.kv_proj"),) if sees.width != hidden else ()
    return Projected(found, count, each=each, queries=True)


ARIA = {"projector_patch_to_query_dict": {"1225": 128, "4900": 256}}


def aria(sees: Sees) -> Projected:
    """Return Aria's: queries, keys and values go through a matrix each before an attention that has its own, and an MLP
    follows. A table says how many of the queries an image of so many patches has."""
    width, heads, hidden = sees.width, sees.vision.integer("num_attention_heads"), sees.hidden
    table = sees.config.mapping("projector_patch_to_query_dict") or {}
    counts = [count for count in table.values() if isinstance(count, int) and 0 < count < 10**6]
    if len(counts) != len(table) or not counts:
        raise sees.config.wrong("projector_patch_to_query_dict", "is not a table of whole numbers")
    each = sees.vision.divides("num_attention_heads", width, heads, "(hidden_size)")
    found: Operations = (
        _queries(max(counts), width),
        LAYER("query_norm", "queries", width),
        LAYER("context_norm", MEMORY, width),
        Matmul("q_first", ("query_norm",), width, width),
        Matmul("q", ("q_first",), width, width, True),
        *(Matmul(f"{letter}_first", (MEMORY,), width, width) for letter in "kv"),
        *(Matmul(letter, (MEMORY,), width, width, True) for letter in "kv"),
        AttentionCore("attention", ("q", "k", "v"), heads, heads, each, each, causal=False, cross=True),
        Matmul("o", ("attention",), width, width, True),
        Matmul("linear", ("o",), width, width, True),
        LAYER("norm", "linear", width),
        Matmul("linear_in", ("norm",), width, hidden),
        Activation("activation", ("linear_in",), hidden, "gelu_new"),
        Matmul("linear_out", ("activation",), hidden, hidden),
    )
    stated = table.get(str(sees.patches))
    return Projected(found, stated if isinstance(stated, int) else max(counts), queries=True)

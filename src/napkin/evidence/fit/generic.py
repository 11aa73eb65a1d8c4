"""A decoder built from printed dimensions: only the parts that every decoder has; or the preset that a row names where
tables of dimensions do not describe it.

The dimensions may be arrays with one entry per row, where all rows have the same parts.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from napkin.evidence.rows.models import preset_model
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.experts import Experts
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Stack
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.roles import COLUMN, LM_HEAD, ROW, VOCABULARY
from napkin.operations.rotary import Rotary
from napkin.operations.router import Router
from napkin.record import fields

if TYPE_CHECKING:
    from napkin.evidence.rows.printed import PrintedDecoder


def _attention(dims: SimpleNamespace, like: PrintedDecoder, window: int) -> list[Operation]:
    if like.kv_rank:
        down = dims.q_rank + dims.kv_rank + dims.rope
        heads, wide = dims.heads, dims.nope + dims.rope
        source, size = ("compressed", dims.q_rank) if like.q_rank else ("norm", dims.hidden)
        return [
            Matmul("compress", ("norm",), dims.hidden, down),
            Norm("compressed", ("compress",), dims.q_rank + dims.kv_rank),
            Matmul("q", (source,), size, heads * wide, shard=COLUMN),
            Matmul("kv", ("compressed", "compress"), dims.kv_rank, heads * (dims.nope + dims.v_dim), shard=COLUMN),
            Rotary("rotary", ("q",), heads, dims.rope, dims.rope),
            AttentionCore("core", ("rotary", "kv", "kv"), heads, heads, wide, dims.v_dim),
            Matmul("o", ("core",), heads * dims.v_dim, dims.hidden, shard=ROW),
        ]
    size = dims.head_dim
    ops: list[Operation] = [
        Matmul("qkv", ("norm",), dims.hidden, (dims.heads + 2 * dims.kv_heads) * size, shard=COLUMN)
    ]
    read = "qkv"
    if like.gated:  # the gated decoders that tables print are of the Llama family: rotary positions
        ops.append(Rotary("rotary", ("qkv",), dims.heads + dims.kv_heads, size, size))
        read = "rotary"
    ops.append(
        AttentionCore("core", (read, "qkv", "qkv"), dims.heads, dims.kv_heads, size, size, window=window or None)
    )
    return [*ops, Matmul("o", ("core",), dims.heads * size, dims.hidden, shard=ROW)]


def _mlp(prefix: str, hidden: int, width: int, gated: bool, read: str) -> list[Operation]:
    if not gated:
        return [
            Matmul(f"{prefix}up", (read,), hidden, width, shard=COLUMN),
            Activation(f"{prefix}act", (f"{prefix}up",), width, "gelu"),
            Matmul(f"{prefix}down", (f"{prefix}act",), width, hidden, shard=ROW),
        ]
    return [
        Matmul(f"{prefix}gate", (read,), hidden, width, shard=COLUMN),
        Matmul(f"{prefix}up", (read,), hidden, width, shard=COLUMN),
        Activation(f"{prefix}act", (f"{prefix}gate",), width, "silu"),
        Multiply(f"{prefix}glu", (f"{prefix}act", f"{prefix}up"), width),
        Matmul(f"{prefix}down", (f"{prefix}glu",), width, hidden, shard=ROW),
    ]


def _norm_of(like: PrintedDecoder) -> str:
    """Return the norm of a printed decoder: RMSNorm in the gated ones, which are of the Llama family; else layer norms,
    one kernel in every implementation."""
    return "rms" if like.gated else "layer"


def _layer(
    kind: str, dims: SimpleNamespace, like: PrintedDecoder, mlp: list[Operation], out: str, window: int = 0
) -> Layer:
    h = dims.hidden
    return Layer(
        kind,
        (
            Norm("norm", ("x",), h, _norm_of(like)),
            *_attention(dims, like, window),
            Add("residual", ("x", "o"), h),
            Norm("norm2", ("residual",), h, _norm_of(like)),
            *mlp,
            Add("out", ("residual", out), h),
        ),
    )


def decoder(shape: PrintedDecoder) -> Model:
    """Build a model of the dimensions of one row."""
    return decoders(SimpleNamespace(**{name: getattr(shape, name) for name in fields(type(shape))}), shape)


def decoders(dims: SimpleNamespace, like: PrintedDecoder) -> Model:
    """Build the model of many rows: `dims` holds their dimensions as arrays; `like`: one of them, which gives the
    parts, or the preset that all rows are."""
    if like.preset:
        preset = preset_model(like.preset)
        return preset.predicting if like.mtp else preset
    h = dims.hidden
    runs: list[tuple[int, Layer]] = []
    windows = (like.window, 0) if like.window else (0,)  # tables print windows that alternate with full attention
    if like.experts:
        routed: list[Operation] = [
            Router("router", ("norm2",), h, dims.experts, dims.top_k),
            Experts(
                "experts",
                ("norm2", "router"),
                h,
                dims.expert_ffn,
                dims.experts,
                dims.top_k,
                bias=like.expert_bias,
                function="swiglu_oai" if like.expert_clamp else "silu",
                groups=max(like.groups, 1),
                chosen_groups=max(like.chosen_groups, 1),
            ),
        ]
        out = "experts"
        if like.shared_ffn:
            routed += _mlp("shared_", h, dims.shared_ffn, True, "norm2")
            routed.append(Add("mixed", ("experts", "shared_down"), h))
            out = "mixed"
        sparse = (dims.layers - dims.dense_layers) / len(windows)
        runs += [(sparse, _layer(f"moe{w or ''}", dims, like, routed, out, w)) for w in windows]
        if like.dense_layers:
            runs.append(
                (dims.dense_layers, _layer("dense", dims, like, _mlp("", h, dims.ffn, like.gated, "norm2"), "down"))
            )
    else:
        mlp = _mlp("", h, dims.ffn, like.gated, "norm2")
        runs += [(dims.layers / len(windows), _layer(f"layer{w or ''}", dims, like, mlp, "down", w)) for w in windows]
    stack = Stack(
        "decoder",
        (Embedding("x", ("ids",), dims.vocab, h),),
        ((1, tuple(runs)),),
        (
            Norm("final", ("x",), h, _norm_of(like)),
            Matmul("head", ("final",), h, dims.vocab, shard=VOCABULARY, role=LM_HEAD),
        ),
    )
    return Model(like.name, (stack,), like.tied, h, dims.heads, dims.kv_heads, dims.head_dim, dims.vocab)

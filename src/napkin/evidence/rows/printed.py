"""Printed facts of a training step: the decoder's dimensions, and the measured quantity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import printable
from napkin.record import record

LAYERS_OF = "layers_of"
"""Field of a row's model: the preset whose layers it has, where no table of dimensions describes them."""


@record
class PrintedDecoder:
    """A decoder's dimensions as tables print them. 0 means that it has none; vocabulary 0: not stated.

    preset   the preset whose layers are taken as they are, for one that no table describes; "" for all others
    mtp      with its multi-token prediction modules
    groups   of experts, `chosen_groups` of which have those of a token"""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: float
    ffn: int
    vocab: int
    gated: bool
    tied: bool
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    nope: int = 0
    rope: int = 0
    v_dim: int = 0
    window: int = 0
    expert_bias: bool = False
    expert_clamp: bool = False
    preset: str = ""
    mtp: bool = False
    groups: int = 0
    chosen_groups: int = 0


@record
class Measured:
    """The quantity that a row prints, and how its source counts FLOPs where the quantity needs that."""

    quantity: str
    value: float
    rule: str = ""
    peak: float = 0.0


def printed_decoder(row: RowFields) -> PrintedDecoder | None:
    """Return the dimensions that a row states, or None if one is missing that time or memory depends on. Raises the
    row's error for a dimension that is no whole number."""
    layers, hidden = row.count("model.layers"), row.count("model.hidden")
    heads, ffn = row.count("model.heads"), row.count("model.ffn")
    experts = row.part("model").get("experts") or {}
    mla = row.part("model").get("mla") or {}
    if not isinstance(experts, dict) or not isinstance(mla, dict):
        raise row.wrong("model", "experts and mla must be mappings")
    if layers is None or hidden is None:
        return None
    if heads is None:  # head size 128 or the divisor next to it; only attention's alignment depends on it
        heads = min((n for n in range(1, hidden + 1) if hidden % n == 0), key=lambda n: abs(n - hidden / 128))

    def of(block: Mapping[str, Any], key: str) -> int:
        value = block.get(key)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
            raise row.wrong("model", f"{key} {printable(repr(value), 40)} is not a whole number")
        return value

    return PrintedDecoder(
        row.text("model.name"),
        layers,
        hidden,
        heads,
        row.count("model.kv_heads") or heads,
        row.count("model.head_dim") or (hidden // heads if hidden % heads == 0 else hidden / heads),
        ffn or (0 if experts else 4 * hidden),
        row.count("model.vocab") or 0,
        bool(row.flag("model.gated")),
        bool(row.flag("model.tied")),
        of(experts, "count"),
        of(experts, "top_k"),
        of(experts, "ffn"),
        of(experts, "shared_ffn"),
        of(experts, "dense_layers"),
        of(mla, "q_lora_rank"),
        of(mla, "kv_lora_rank"),
        of(mla, "qk_nope_head_dim"),
        of(mla, "qk_rope_head_dim"),
        of(mla, "v_head_dim"),
        row.count("model.window") or 0,
        bool(of(experts, "bias")),
        bool(of(experts, "clamp")),
        row.text(f"model.{LAYERS_OF}"),
        bool(row.flag("model.mtp")),
        of(experts, "groups"),
        of(experts, "chosen_groups"),
    )


def block_weights(dims: PrintedDecoder, experts: int) -> float:
    """Return the weights of the blocks' matrices, this many `experts` of each layer counted."""
    h = dims.hidden
    attention = h * (dims.heads + 2 * dims.kv_heads) * dims.head_dim + dims.heads * dims.head_dim * h
    dense = (3 if dims.gated else 2) * h * dims.ffn
    routed = 3 * h * (experts * dims.expert_ffn + dims.shared_ffn)
    sparse = dims.layers - dims.dense_layers if dims.experts else 0
    return dims.layers * attention + (dims.layers - sparse) * dense + sparse * routed


def step_flops(rule: str, dims: PrintedDecoder, seq: int, sequences: float) -> float | None:
    """Return the FLOPs of a step by the rule that a source counts with; None if it prints no FLOPs.

    narayanan  96·B·s·L·h²·(1 + s/6h + V/16Lh), recomputation counted (Narayanan et al. 2021, equation 3)
    full       per token 6·(matrix weights with logits) + 12·L·heads·head size·s
    causal     the same with 6·L·heads·head size·s"""
    tokens, h, depth = sequences * seq, dims.hidden, dims.layers
    if rule == "narayanan":
        return 96 * tokens * depth * h * h * (1 + seq / (6 * h) + dims.vocab / (16 * depth * h))
    if not rule:
        return None
    weights = block_weights(dims, dims.top_k) + h * dims.vocab
    scores = (6 if rule == "causal" else 12) * depth * dims.heads * dims.head_dim * seq
    return tokens * (6 * weights + scores)


MEASURED = (
    *("step_seconds", "tokens_per_second_per_gpu", "tokens_per_second", "mfu"),
    *("hardware_tflops_per_gpu", "model_tflops_per_gpu"),
)
"""Quantities that a row may state; the first one present counts."""


def measured(
    row: RowFields, dims: PrintedDecoder | None, seq: int, sequences: float | None, count: int
) -> Measured | None:
    """Return step_seconds, else tokens_per_second_per_gpu, else mfu; else the step time that a printed TFLOP/s implies
    by the source's own counting rule."""
    for name in MEASURED:
        row.positive(f"measured.{name}", 1.0 if name == "mfu" else 1e30)
    seconds = row.number("measured.step_seconds")
    if seconds:
        return Measured("step_seconds", seconds)
    rate = row.number("measured.tokens_per_second_per_gpu")
    if rate is None and row.number("measured.tokens_per_second"):
        rate = (row.number("measured.tokens_per_second") or 0) / count
    if rate:
        return Measured("tokens_per_second_per_gpu", rate)
    rule = row.text("convention.rule")
    flops = step_flops(rule, dims, seq, sequences) if dims and sequences else None
    if flops is None:
        return None
    share, peak = row.number("measured.mfu"), row.number("convention.peak_tflops")
    if share and peak:
        return Measured("mfu", share, rule, peak * 1e12)
    for key in ("hardware_tflops_per_gpu", "model_tflops_per_gpu"):
        printed = row.number(f"measured.{key}")
        if printed:
            return Measured("step_seconds", flops / (printed * 1e12 * count), rule)
    return None

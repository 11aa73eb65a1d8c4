"""A step at unit rates: seconds are FLOPs or bytes. What the hand-worked tests of a step share."""

from __future__ import annotations

from typing import Any

from napkin.evidence.fit.generic import decoder
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.record import fields, replace
from napkin.timing.rates import Rates
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout

NONE = {
    *("waves", "half_depth", "half_keys", "tensor_latency", "data_latency"),
    *("data_overlap", "gather_overlap", "data_exposed", "interference", "host_layer", "host_experts", "host_expert"),
    *("host_chunk", "host_unit", "host_module", "fixed", "straggle", "stops_early", "masked_backward", "link_hop"),
    "network_hop",
}
"""Rates that lose time: nothing at 0."""
UNIT = Rates(**{name: 0.0 if name in NONE else 1.0 for name in fields(Rates)} | {"node": 8})
"""One FLOP, one byte in memory, on a link and over the network a second; nothing is hidden, lost or added."""

B, S, L, H, HEADS, KV, D, F, V = 2, 512, 4, 512, 4, 2, 128, 1024, 2048
T = B * S
WAYS = ("forward", "backward")
DENSE = PrintedDecoder("dense", L, H, HEADS, KV, D, F, V, True, False)
PLAIN = replace(DENSE, gated=False)
E, K, EF = 8, 2, 256
MOE = PrintedDecoder("moe", L, H, HEADS, KV, D, 0, V, True, False, experts=E, top_k=K, expert_ffn=EF)
LAYER = H * (HEADS + 2 * KV) * D + HEADS * D * H + 3 * H * F
"""Weights of a dense layer's linear layers."""
ATTENTION = H * (HEADS + 2 * KV) * D + HEADS * D * H
NORMS = 2 * H
LOOKUPS, FINAL = T * (4 + 6) * H, T * (4 + 6) * H
"""Bytes outside the layers. A lookup reads a row and writes it; backward it reads the gradient, and reads and writes
the row that it is added to. The final norm reads and writes; backward it reads two and writes one."""


def parts(shape: PrintedDecoder = DENSE, changed: dict[str, float] | None = None, **layout: Any) -> dict[str, float]:
    """Every term of a step by its name, in seconds; `changed` are rates that are not 1 or 0."""
    plan = StepLayout(**{"sequence": S, "micro_batch": B, "micro_batches": 1, **layout})
    found = step(decoder(shape), plan, replace(UNIT, **(changed or {})))
    return {node.name: float(node.value) for node in found.time.walk()}


def product(m: float, k: float, n: float) -> float:
    """A GEMM (m×k)(k×n): 2mkn FLOP joined smoothly with the bytes of three 16-bit matrices. Every shape here is cut
    into whole tiles of 128×256, or of 256×128."""
    return joined(2 * m * k * n, 2 * (m * k + k * n + m * n))


def joined(x: float, y: float) -> float:
    return float((x**4 + y**4) ** 0.25)


def three(m: float, k: float, n: float) -> tuple[float, float]:
    """Forward; backward: the input's gradient (m×n)(n×k) and the weight's (k×m)(m×n)."""
    return product(m, k, n), product(m, n, k) + product(k, m, n)


def linears(t: int = 1, tokens: float = T) -> tuple[float, float]:
    """Forward and backward of a layer's GEMMs on one of t ranks: q, k, v in one; o; gate and up in one; down."""
    shapes = [
        (H, (HEADS + 2 * KV) * D // t),
        (HEADS * D // t, H),
        (H, 2 * F // t),
        (F // t, H),
    ]
    passes = [three(tokens, k, n) for k, n in shapes]
    return sum(f for f, _ in passes), sum(b for _, b in passes)


PAIRS = S * (S + 1) / 2

WEIGHTS = L * (LAYER + NORMS) + 2 * V * H + H
"""Parameters: layers, embedding, head and the norm before it."""

EXPERT = 3 * H * EF

MOE_DENSE = L * (ATTENTION + NORMS + H * E) + 2 * V * H + H

MATRICES = [(H, (HEADS + 2 * KV) * D), (HEADS * D, H), (H, F), (H, F), (F, H)]
"""Of a dense layer: queries, keys and values in one; output, gate, up, down."""

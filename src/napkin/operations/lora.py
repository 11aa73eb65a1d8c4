"""Adapters on frozen linear layers: which layers have them, and how their weights are stored."""

from __future__ import annotations

from napkin.operations.facts import LinearLayer
from napkin.operations.implementations import Implementation, Tuning
from napkin.operations.lowering import Lowered
from napkin.operations.roles import KEY, QKV, QUERY, VALUE, VOCABULARY

JOINED = (QUERY, KEY, VALUE, QKV)
"""Roles of attention's linear layers, and of the fused projection of all three."""


def lora_pairs(
    op: LinearLayer, program: tuple[Lowered, ...], implementation: Implementation, tuning: Tuning
) -> tuple[int, int]:
    """How many of LoRA's pairs of matrices a product has next to it, and the numbers that they make for a token. A
    fused projection has those of all its parts, with one dropout of their common input."""
    if tuning.method != "lora":
        return 0, 0
    if implementation.joined_qkv and op.role in JOINED:
        if op.role in (KEY, VALUE):
            return 0, 0
        parts = [part for part in program if part.role in tuning.targets and part.role in JOINED]
        return len(parts), sum(getattr(part, "d_out", 0) or getattr(part, "width", 0) for part in parts)
    chosen = (
        op.module in tuning.targets if tuning.targets else op.shard != VOCABULARY
    )  # PEFT's "all-linear": not the head
    return (1, op.d_out) if chosen else (0, 0)


def is_unquantized(op: LinearLayer, tuning: Tuning) -> bool:
    """Whether a frozen product's weight is stored as it was: the head's, except bitsandbytes."""
    return not tuning.quantized or (op.shard == VOCABULARY and tuning.library != "bitsandbytes")

"""Adapters on frozen linear layers: which layers have them, and how their weights are stored."""

from __future__ import annotations

from napkin.operations.facts import LinearLayer, Named
from napkin.operations.implementations import Implementation, Tuning
from napkin.operations.roles import KEY, QKV, QUERY, VALUE, VOCABULARY

JOINED = (QUERY, KEY, VALUE, QKV)
"""Roles of attention's linear layers, and of the fused projection of all three."""
ALL_LINEAR = "all-linear"
"""The target that stands for every linear layer but the head."""


def is_target(op: Named, targets: tuple[str, ...]) -> bool:
    """Return whether LoRA's targets name an operation, as peft matches them (peft 0.17,
    tuners/tuners_utils.py, check_target_module_exists): by the end of the module's path. Its short name does too."""
    path = "." + op.module.lower()
    return any(op.short.lower() == target or path.endswith("." + target) for target in map(str.lower, targets))


def lora_pairs(
    op: LinearLayer, program: tuple[Named, ...], implementation: Implementation, tuning: Tuning
) -> tuple[int, int]:
    """Return how many of LoRA's pairs of matrices a linear layer has, and how many elements they make per token. A
    fused projection has those of all its parts, with one dropout of their common input."""
    if tuning.method != "lora":
        return 0, 0
    if implementation.qkv == "joined" and op.role in JOINED:
        if op.role in (KEY, VALUE):
            return 0, 0
        named = tuning.targets
        parts = [one for one in program if one.role in JOINED and (one.role in named or is_target(one, named))]
        return len(parts), sum(getattr(part, "d_out", 0) or getattr(part, "width", 0) for part in parts)
    chosen = is_target(op, tuning.targets) if tuning.targets else op.shard != VOCABULARY
    return (1, op.d_out) if chosen else (0, 0)


def adapts_embedding(op: Named, tuning: Tuning) -> bool:
    """Return whether LoRA's targets name an embedding."""
    return tuning.method == "lora" and is_target(op, tuning.targets)


def is_unquantized(op: LinearLayer, tuning: Tuning) -> bool:
    """Return whether a frozen product's weight is stored as it was: the head's, except bitsandbytes."""
    return not tuning.quantized or (op.shard == VOCABULARY and tuning.library != "bitsandbytes")

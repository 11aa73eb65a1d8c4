"""Differences between napkin's adapters of a model type and peft's, if both were counted."""

from __future__ import annotations

from napkin._tables.adapter_targets import COMPARED, DIFFERS
from napkin.operations.adapters.named import path_ends
from napkin.operations.adapters.targets import ALL_LINEAR, EVERYTHING

DETAIL = 0.1
"""Relative difference in adapter parameters up to which it is a detail; a larger one means a different set of
modules."""


def compared(family: str) -> bool:
    """Return whether adapters of a model type were counted with peft."""
    return family in COMPARED


def difference(family: str, targets: tuple[str, ...]) -> float:
    """Return the largest difference from peft's count that was seen for these targets, as a share of it; 0 where all
    counts were equal. A target that was not counted by itself may be any of those that differ."""
    seen = DIFFERS.get(family)
    if not seen:
        return 0.0
    targets = tuple(target for target in targets if not target.startswith("-"))
    named = (ALL_LINEAR,) if targets in EVERYTHING else targets
    most = max(seen.values())
    return max(
        max((share for choice, share in seen.items() if _touch(choice, target)), default=most) for target in named
    )


def equal_targets(family: str) -> list[str]:
    """Return single targets of a model type for which napkin's count equals peft's."""
    return [choice for choice, share in DIFFERS.get(family, {}).items() if not share and choice != ALL_LINEAR]


def _touch(choice: str, target: str) -> bool:
    """Return whether a counted set of targets and a target may name the same module."""
    return path_ends(choice, target) or path_ends(target, choice)

"""Which operations an adapter's targets name."""

from __future__ import annotations

from napkin.operations.facts import LinearLayer, Named
from napkin.operations.implementations import Implementation
from napkin.operations.roles import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.tuning import Tuning


def is_target(op: Named, targets: tuple[str, ...]) -> bool:
    """Return whether LoRA's targets name an operation: by the end of its module's path or, where no path was found
    (`resolved` puts a dot before those that were), by its short name."""
    return any(op.short.lower() == target or path_ends(op.module, target) for target in map(str.lower, targets))


def path_ends(path: str, target: str) -> bool:
    """Return whether peft's targets match a path (peft 0.21, tuners/tuners_utils.py, check_target_module_exists)."""
    return ("." + path.lower()).endswith("." + target.removeprefix("."))


def is_chosen(op: LinearLayer, implementation: Implementation, tuning: Tuning) -> bool:
    """Return whether targets name a linear layer; without targets, every one is but the head."""
    if tuning.everything:
        return op.shard != VOCABULARY or implementation.head_is_layer
    return is_target(op, tuning.targets)

"""Steps of warm-up and steps between checkpoints in a launch file. They do not affect a step."""

from __future__ import annotations

from napkin.inputs.launch.source import LaunchFile

WARMUP = ("warmup_steps", "lr_warmup_steps", "lr_warmup_iters", "warmup_iters", "num_warmup_steps", "warmup_num_steps")
SAVES = ("save_steps", "save_interval", "save_freq", "checkpoint_interval", "checkpoint.interval")
NAMES = {"warmup-steps": WARMUP, "save-steps": SAVES}
"""Option → suffixes of keys that give it in optimizer steps, in the formats that napkin reads."""


def pace(source: LaunchFile) -> dict[str, tuple[int, str]]:
    """Return warm-up and checkpoint options of a file as (value, place)."""
    found: dict[str, tuple[int, str]] = {}
    for option, names in NAMES.items():
        for key, value in source.values.items():
            ends = any(key == name or key.endswith(f".{name}") for name in names)
            if ends and isinstance(value.value, int) and not isinstance(value.value, bool) and value.value > 0:
                found.setdefault(option, (value.value, source.place(key)))
    return found

"""How a launch file paces its run: steps of warm-up, steps between checkpoints. They change no step."""

from __future__ import annotations

from napkin.inputs.launch.source import LaunchFile

WARMUP = ("warmup_steps", "lr_warmup_steps", "lr_warmup_iters", "warmup_iters", "num_warmup_steps", "warmup_num_steps")
SAVES = ("save_steps", "save_interval", "save_freq", "checkpoint_interval", "checkpoint.interval")
NAMES = {"warmup-steps": WARMUP, "save-steps": SAVES}
"""Option → the ends of keys that state it as a number of optimizer steps, in the formats that napkin reads."""


def pace(source: LaunchFile) -> dict[str, tuple[int, str]]:
    """Return the options that a file paces its run with, as (value, place)."""
    found: dict[str, tuple[int, str]] = {}
    for option, names in NAMES.items():
        for key, value in source.values.items():
            ends = any(key == name or key.endswith(f".{name}") for name in names)
            if ends and isinstance(value.value, int) and not isinstance(value.value, bool) and value.value > 0:
                found.setdefault(option, (value.value, source.place(key)))
    return found

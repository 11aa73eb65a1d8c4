"""Find the preset with the sizes in a launch file."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.inputs.presets import preset, presets

_SIZES = (
    ("hidden_size", "d_model", "n_embd"),
    ("num_hidden_layers", "n_layers", "n_layer"),
    ("num_attention_heads", "n_heads", "n_head"),
    ("vocab_size",),
)


def preset_with(config: Mapping[str, object]) -> str | None:
    """Return the preset whose config.json agrees on every field that both contain, or None.

    Both must contain width, depth, heads and vocabulary. If several match, returns the one with the shortest name: the
    others are fine-tuned from it.
    """
    alike = []
    for one in presets():
        mine = one.config
        if mine.get("model_type") != config.get("model_type"):
            continue
        sized = all(any(key in mine and mine[key] == config.get(key) for key in keys) for keys in _SIZES)
        skipped = ("max_position_embeddings", "n_positions", "max_seq_len")
        if sized and all(
            mine[key] == value
            for key, value in config.items()
            if key in mine and value is not None and key not in skipped
        ):
            alike.append(one.name)
    return min(alike, key=len, default=None)


def layers_of(name: str | None) -> int | None:
    """Return a preset's number of layers, or None if unknown."""
    return _size_of(name, _SIZES[1])


def has_experts(name: str | None) -> bool:
    """Return whether a preset is a mixture of experts."""
    config = preset(name).config if name is not None else {}
    return any(key in config for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"))


def vocabulary_of(name: str | None) -> int | None:
    """Return a preset's vocabulary size, or None if unknown."""
    return _size_of(name, _SIZES[3])


def _size_of(name: str | None, keys: tuple[str, ...]) -> int | None:
    if name is None:
        return None
    config = preset(name).config
    found = next((config[key] for key in keys if key in config), None)
    return int(found) if found else None

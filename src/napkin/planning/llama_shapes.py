"""A Llama-shaped model of a given size, for questions that need shapes when only a size is known.

The published model of nearest size gives the head size, the key/value heads, the vocabulary, and the proportions of
width, depth and feed-forward. Widths are multiples of its grouped heads and depths multiples of 4, so that the model
divides like published ones; the feed-forward width is adjusted to reach the size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import Document
from napkin.inputs.model import Config
from napkin.inputs.model_file import config_from
from napkin.inputs.presets import preset
from napkin.planning.scaling import DEPTH, HEADS, KV_HEADS, WIDTH

INNER = "intermediate_size"
SHAPES = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
}
"""Published models of the Llama class that are scaled → their parameters."""
SAME = 0.02
"""Relative difference in size below which a published model is taken unchanged."""
GRAIN = 4
"""Layers come in multiples of this, so that pipeline stages divide them."""
MOST = 10**14
"""The largest size to which the widest of them is scaled."""
FARTHEST = 0.05
"""The largest relative difference in size of a model that is still called by that size."""


def config_of_size(size: int, text: str) -> tuple[Config, str]:
    """Return the config of a Llama-shaped model with about `size` parameters, and its shape in words.

    text  the size as the user wrote it

    Refused where no shape has that size."""
    if not 1 <= size <= MOST:
        raise _shapeless(text)
    base = min(SHAPES, key=lambda name: abs(math.log(SHAPES[name] / size)))
    fields: dict[str, object] = dict(preset(base).config)
    described = f"{text} as {base}"
    if abs(SHAPES[base] / size - 1) > SAME:
        shaped = _shaped(fields, size)
        if shaped is None:
            raise _shapeless(text)
        fields |= shaped
        described = f"{text} in Llama's shape: {fields[DEPTH]} layers, {fields[WIDTH]:,} wide"
    name = f"Llama-shaped {text}"
    return config_from(name, Document(name, fields), fields, "assumed"), described


def _shapeless(text: str) -> NapkinError:
    """Return the error for a size without a shape."""
    return NapkinError(f"no model of Llama's shape has {text} parameters", "name a model, or give its config.json")


def _shaped(fields: Mapping[str, Any], size: int) -> dict[str, int] | None:
    """Return the fields of the shape nearest to the proportions of `fields` that has the size; None if none has."""
    found = list(_candidates(fields, size))
    return min(found, key=lambda one: one[0])[1] if found else None


def _candidates(fields: Mapping[str, Any], size: int) -> Iterator[tuple[float, dict[str, int]]]:
    """Yield shapes of about the size, each with its distance from the published proportions."""
    heads, layers, inner = fields[HEADS], fields[DEPTH], fields[INNER]
    head = fields[WIDTH] // heads
    kv_width = fields[KV_HEADS] * head
    embeddings = fields["vocab_size"] * (1 if fields.get("tie_word_embeddings") else 2)
    for count_of_heads in range(fields[KV_HEADS], 8 * heads, fields[KV_HEADS]):
        hidden = count_of_heads * head
        left = size - hidden * (embeddings + 1)
        if left <= 0:
            break
        attention, grain = 2 * hidden * (hidden + kv_width + 1), 128 if hidden >= 1024 else 8
        usual_depth, usual_inner = layers * count_of_heads / heads, inner * count_of_heads / heads
        for depth in range(GRAIN, 4 * layers + 1, GRAIN):
            width = round((left / depth - attention) / (3 * hidden) / grain) * grain
            if width <= 0:
                break
            reached = hidden * (embeddings + 1) + depth * (attention + 3 * hidden * width)
            off = abs(reached / size - 1)
            if off > FARTHEST:
                continue
            distance = abs(math.log(depth / usual_depth)) + abs(math.log(width / usual_inner)) + off
            yield distance, {HEADS: count_of_heads, WIDTH: hidden, DEPTH: depth, INNER: width}

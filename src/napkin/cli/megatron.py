"""The model that a pasted Megatron-LM launch states by its sizes, in place of MODEL."""

from __future__ import annotations

import json
from collections.abc import Mapping

from napkin.commands.signature import OptionText
from napkin.inputs import megatron_shape
from napkin.units import plain


def config_of(shape: Mapping[str, str], given: Mapping[str, OptionText]) -> str:
    """Return the config.json, as text, of the decoder that Megatron-LM builds from these options."""
    length = plain(str(given["seq"].text)) if "seq" in given else None
    return json.dumps(megatron_shape.config_of(shape, length))


def trains_predictions(shape: Mapping[str, str]) -> bool:
    """Return whether a launch trains multi-token prediction modules (megatron/training/arguments.py,
    --mtp-num-layers)."""
    return shape.get("mtp-num-layers", "0") != "0"

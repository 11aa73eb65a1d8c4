"""What CUDA graphs capture of a step, in Megatron-core's settings."""

from __future__ import annotations

import re

from napkin.inputs.launch.reading import Reading
from napkin.options.training import PARTS, WHOLE

KEYS = ("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules")
EVERYTHING = "full_iteration"
ROUTER = "moe_router"
"""The module whose capture `parts` is about: a mixture's layers wait for the host at the router."""


def take_graphs(reading: Reading, section: str = "") -> None:
    """Read what is captured, if anything is: a whole iteration, or parts of layers with the router. Parts of other
    layers change nothing here. section: the keys' own, with its dot (NVIDIA/Megatron-LM
    megatron/core/transformer/transformer_config.py: an implementation, without which nothing is captured, and what it
    captures, cuda_graph_scope until 2026)."""
    impl, *parts = (section + key for key in KEYS)
    how = str(reading.source.plain(impl) or "none").lower()
    if how == "none":
        return
    captured = re.findall(r"\w+", " ".join(str(reading.source.plain(key) or "") for key in parts))
    if how == EVERYTHING or EVERYTHING in captured:
        reading.put("graphs", WHOLE, impl, *parts)
    elif ROUTER in captured:
        reading.put("graphs", PARTS, impl, *parts)

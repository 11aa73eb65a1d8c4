"""Number formats: which there are and their bytes (table.py), their figures, and how a value is rounded to one."""

from __future__ import annotations

from napkin.formats.gguf import GGUF
from napkin.formats.table import (
    BYTES,
    COMPUTE_BITS,
    EXACT_KEPT,
    FORMATS,
    INTEGERS,
    QUANTIZED,
    RECIPES,
    SIXTEENTHS,
    TRAINED,
    Format,
    Integer,
    element_bytes,
    find,
    in_groups,
    scale_bytes,
    stored_bytes,
)  # fmt: skip

__all__ = [
    "BYTES", "COMPUTE_BITS", "EXACT_KEPT", "FORMATS", "GGUF", "INTEGERS", "QUANTIZED", "RECIPES",
    "SIXTEENTHS", "TRAINED", "Format", "Integer", "element_bytes", "find", "in_groups", "scale_bytes",
    "stored_bytes",
]  # fmt: skip

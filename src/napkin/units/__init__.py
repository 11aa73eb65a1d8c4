"""Quantities as people write them (`70B`, `80GiB`, `30d`), units and their algebra, and numbers as people read them."""

from __future__ import annotations

from napkin.units.algebra import combine, exponents, root, same
from napkin.units.numbers import (
    BINARY,
    DECIMAL,
    EXAMPLES,
    LONGEST,
    Unreadable,
    at_least_one,
    count,
    degree,
    dollars,
    exact,
    fraction,
    number,
    plain,
    positive,
    positive_count,
    probability,
    ratio,
)
from napkin.units.printing import OUT_OF_RANGE, duration_unit, figures, human
from napkin.units.quantities import (
    NUMBER_FORMATS,
    SECONDS,
    bandwidth,
    bytes_each,
    compute_rate,
    duration,
    memory,
    number_format,
    power_draw,
    quantity,
    shape,
    size,
    words,
)

__all__ = [
    "BINARY", "DECIMAL", "EXAMPLES", "LONGEST", "NUMBER_FORMATS", "OUT_OF_RANGE", "SECONDS", "Unreadable",
    "at_least_one", "bandwidth", "bytes_each", "combine", "compute_rate", "count", "degree", "dollars", "duration",
    "duration_unit", "exact", "exponents",
    "figures", "fraction", "human", "memory", "number", "number_format", "plain", "positive", "positive_count",
    "power_draw", "probability", "quantity", "ratio", "root", "same", "shape", "size", "words",
]  # fmt: skip

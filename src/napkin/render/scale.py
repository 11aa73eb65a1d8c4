"""One unit for a whole axis or column: numbers in base units → (factor, name) under which they read well."""

from __future__ import annotations

from collections.abc import Iterable

_TIMES = ((365 * 86400.0 * 2, 365 * 86400.0, "years"), (172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"))
_SMALL_TIMES = ((120.0, 60.0, "minutes"), (1.0, 1.0, "seconds"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"))
_SI = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTS = ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "))
_PLURAL = {"param": "parameters", "token": "tokens", "GPU": "GPUs", "GPU-hour": "GPU-hours", "joule": "Wh"}


def axis(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Return what to divide the numbers by, and the unit's name next to the axis ("" where there is none)."""
    largest = max((abs(v) for v in values), default=0.0)
    if unit == "second":
        return next((scale, name) for least, scale, name in (*_TIMES, *_SMALL_TIMES) if largest >= least)
    if unit == "1":
        return 1.0, ""
    if unit in ("param", "token"):
        for least, name in _COUNTS:
            if largest >= least:
                return least, name + _PLURAL[unit]
        return 1.0, _PLURAL[unit]
    base = 3600.0 if unit == "joule" else 1.0
    name = _PLURAL.get(unit, unit.replace("byte", "B"))
    if unit in ("GPU", "GPU-hour", "USD/GPU-hour", "kg"):
        return 1.0, name
    if unit == "USD":
        return next(((least, word + "USD") for least, word in _COUNTS if largest >= least), (1.0, "USD"))
    for least, letter in _SI:
        if largest / base >= least:
            return base * least, letter + name
    return base, name


def titled(name: str, unit: str) -> str:
    """Return an axis title: `time (days)`; the unit alone where it says the same (`GPUs`)."""
    return f"{name} ({unit})" if unit and unit.lower() != name.lower() else unit or name

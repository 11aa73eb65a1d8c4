"""One unit for an entire axis or column: values in base units → (divisor, unit name)."""

from __future__ import annotations

from collections.abc import Iterable

_TIMES = ((365 * 86400.0 * 2, 365 * 86400.0, "years"), (172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"))
_SMALL_TIMES = ((120.0, 60.0, "minutes"), (1.0, 1.0, "seconds"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"))
_SI = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTS = ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "))
_SUMS = (*((scale, scale, name) for scale, name in _COUNTS), (1e4, 1e3, "thousand "))
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (0.0, "bytes"))
_SPOKEN = {
    "memory/total": "memory per GPU",
    "step/time": "time of a step",
    "time/uninterrupted": "time without interruptions",
    "time/published": "time by published runs' MFU",
    "memory/used": "memory used per GPU",
    "carbon": "CO2e",
}
_LETTERS = {"mfu": "MFU", "hfu": "HFU", "gpu": "GPU", "gpus": "GPUs", "flops": "FLOPs", "kv": "KV", "lm": "LM"}
_PLURAL = {"param": "parameters", "token": "tokens", "GPU": "GPUs", "GPU-hour": "GPU-hours", "joule": "Wh"}


def axis(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Return what to divide the numbers by, and the unit's name next to the axis ("" if there is none)."""
    largest = max((abs(v) for v in values), default=0.0)
    if unit == "second":
        return next((scale, name) for least, scale, name in (*_TIMES, *_SMALL_TIMES) if largest >= least)
    if unit == "1":
        return 1.0, ""
    if unit == "byte":
        return next((scale or 1.0, name) for scale, name in _BINARY if largest >= scale)
    if unit in ("param", "token", "GPU-hour"):
        for least, name in _COUNTS:
            if largest >= least:
                return least, name + _PLURAL[unit]
        return 1.0, _PLURAL[unit]
    base = 3600.0 if unit == "joule" else 1.0
    name = _PLURAL.get(unit, unit.replace("byte", "B"))
    if unit == "kg" and largest >= 1000:
        return 1000.0, "t"
    if unit in ("GPU", "USD/GPU-hour", "kg"):
        return 1.0, name
    if unit == "USD":
        return next(((scale, word + unit) for least, scale, word in _SUMS if largest >= least), (1.0, unit))
    for least, letter in _SI:
        if largest / base >= least:
            return base * least, letter + name
    return base, name


def spoken(path: str) -> str:
    """Return a quantity's path in words, for a title: `memory/optimizer` → `memory: optimizer`."""
    if path in _SPOKEN:
        return _SPOKEN[path]
    words = path.replace("/", ": ").replace("_", " ").replace("-", " ").split(" ")
    return " ".join(_LETTERS.get(word.rstrip(":"), word.rstrip(":")) + ":" * word.endswith(":") for word in words)


def titled(name: str, unit: str) -> str:
    """Return an axis title: `time (days)`; the unit alone if it says the same (`GPUs`)."""
    return f"{name} ({unit})" if unit and unit.lower() != name.lower() else unit or name

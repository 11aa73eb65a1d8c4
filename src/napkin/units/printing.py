"""Numbers as people read them: `1.234 TB (1.122 TiB)`, `3.5 h`, `70B parameters`."""

from __future__ import annotations

import math

from napkin.elementwise import Number

_SI = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_WORDED = ((10**12, "T"), (10**9, "B"), (10**6, "M"))


def figures(value: float, digits: int = 4, strip: bool = False) -> str:
    """`value` with four significant digits (`strip`: without trailing zeros) and no exponent if it can be read."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return OUT_OF_RANGE
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}".replace("e+0", "e").replace("e+", "e")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if strip and decimals else text


def _prefixed_text(value: float, unit: str, scales: tuple[tuple[int, str], ...] = _SI, digits: int = 4) -> str:
    if abs(value) >= 1e21:
        return f"{value:.{digits - 1}e} {unit}".replace("e+0", "e").replace("e+", "e")
    for scale, letter in scales:
        if abs(value) >= scale:
            return f"{figures(value / scale, digits)} {letter}{unit}"
    return f"{figures(value, digits)} {unit}".rstrip()


_DURATIONS = (
    (1e-6, 1e-9, "ns"),
    (1e-3, 1e-6, "µs"),
    (1.0, 1e-3, "ms"),
    (120.0, 1.0, "s"),
    (7200.0, 60.0, "min"),
    (172800.0, 3600.0, "h"),
    (2 * 31536000.0, 86400.0, "days"),
    (math.inf, 31536000.0, "years"),
)
"""Below which duration a unit is used, its seconds, and its name."""


def duration_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds and the name of the unit that suits a duration."""
    return next((scale, name) for limit, scale, name in _DURATIONS if abs(seconds) < limit)


def _duration_text(seconds: float, digits: int = 4) -> str:
    if seconds == 0:
        return "0 s"
    scale, name = duration_unit(seconds)
    return f"{figures(seconds / scale, digits)} {name}"


def _size_text(value: float) -> str:
    if abs(value) < 1000:
        return f"{value if isinstance(value, int) else figures(value)} byte" + ("" if value == 1 else "s")
    decimal = _prefixed_text(value, "B")
    for letter, scale in (("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if abs(value) >= scale:
            return f"{decimal} ({figures(value / scale)} {letter}B)"
    return decimal


OUT_OF_RANGE = "out of range"
"""What is written of a number that no float holds."""


def human(value: Number, unit: str, digits: int = 4) -> str:
    """Return a number as people read it: that many significant digits, GB with GiB."""
    if isinstance(value, float) and not math.isfinite(value):
        return OUT_OF_RANGE
    try:
        real = float(value)
    except OverflowError:
        return OUT_OF_RANGE
    if unit == "byte":
        return _size_text(value if isinstance(value, int) and abs(real) < 1000 else real)
    if unit == "second":
        return _duration_text(real, digits)
    if unit in ("param", "token"):
        name = {"param": "parameters", "token": "tokens"}[unit]
        if abs(real) < 1e6:
            return f"{value:,} {name}" if isinstance(value, int) else f"{figures(real, digits)} {name}"
        return _prefixed_text(real, f" {name}", _WORDED, digits).replace("  ", " ")
    if unit == "FLOP":
        if isinstance(value, int) and value < 10**6:
            return f"{value:,} FLOP"
        return f"{real:.{digits - 1}e} FLOP".replace("e+0", "e").replace("e+", "e")
    if unit == "USD":
        return f"${real:,.0f}" if real >= 100 else f"${real:,.4g}"
    if unit == "joule":
        return _prefixed_text(real / 3600, "Wh", digits=digits)
    if unit == "GPU":
        return (f"{value:,}" if isinstance(value, int) else figures(real, digits)) + (" GPU" if value == 1 else " GPUs")
    if unit == "GPU-hour":
        if 1000 <= real < 1e6:
            return f"{real:,.0f} GPU-hours"
        return _prefixed_text(real, " GPU-hours", _WORDED, digits).replace("  ", " ")
    if unit == "1":
        return f"{value:,}" if isinstance(value, int) else figures(real, digits, strip=True)
    if unit in ("byte/GPU", "FLOP/s", "byte/s", "FLOP/s/GPU", "byte/s/GPU", "watt", "watt/GPU"):
        return _prefixed_text(real, unit.replace("byte", "B").replace("watt", "W"), digits=digits)
    return f"{value:,} {unit}" if isinstance(value, int) and abs(value) < 10**15 else f"{figures(real, digits)} {unit}"

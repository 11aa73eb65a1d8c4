"""Numbers as the screen shows them: the best unit, few digits, an interval in one unit."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import Number
from napkin.units import OUT_OF_RANGE, duration_unit, figures, human

SIZES = ((10 * 2**50, "PiB"), (10 * 2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
"""Bytes from which a unit is used: GiB up to 10,000, the usual unit of memory."""
WIDE = 10
"""Ratio of an interval's ends from which each has its own unit."""
COUNTS = ((10**12, "T"), (10**9, "B"), (10**6, "M"))


def size(value: Number, largest: Number | None = None) -> str:
    """Return bytes in binary units; largest: the largest of a column, which determines the unit and decimals."""
    scale, unit = _scale(float(value if largest is None else largest))
    if scale == 1:
        return f"{value:,}" + (" byte" if value == 1 else " bytes") if isinstance(value, int) else f"{value:,.0f} bytes"
    top, shown = float(value if largest is None else largest) / scale, float(value) / scale
    decimals = 0 if top >= 1000 else 1 if top >= 10 else 2
    if abs(shown) < 10**-decimals and value:
        return size(value)
    return f"{shown:,.{decimals}f} {unit}"


def size_of(value: Number, whole: Number) -> str:
    """Return bytes of a capacity with the unit once if both have the same: `55.3 of 79.2 GiB`."""
    (scale, unit), other = _scale(float(value)), _scale(float(whole))
    if (scale, unit) != other or scale == 1:
        return f"{size(value)} of {size(whole)}"
    decimals = 1 if min(value, whole) >= 10 * scale else 2
    return f"{float(value) / scale:,.{decimals}f} of {float(whole) / scale:,.{decimals}f} {unit}"


def _scale(value: float) -> tuple[int, str]:
    for (least, unit), power in zip(SIZES, (50, 40, 30, 20, 10), strict=True):
        if abs(value) >= least:
            return 2**power, unit
    return 1, "bytes"


def amount(value: Number) -> str:
    """Return a count in short form: 70B, 15T, 8.03B; below a million all digits."""
    for scale, letter in COUNTS:
        if abs(value) >= scale:
            return f"{figures(float(value) / scale, 3, strip=True)}{letter}" if value < 10**18 else f"{value:.2e}"
    return f"{value:,}" if isinstance(value, int) else figures(float(value), strip=True)


def to_type(value: Number) -> str:
    """Return a count as `amount` does, for a line to paste: without commas, which separate several values there."""
    return amount(value).replace(",", "")


def compact(value: Number, unit: str) -> str:
    """Return a number as a table cell: bytes in binary units only, parameters without the word, clocks in GHz."""
    if unit == "1/s" and value >= 1e9:
        return f"{figures(float(value) / 1e9)} GHz"
    return size(value) if unit == "byte" else human(value, unit).removesuffix(" parameters")


def share(value: Number) -> str:
    """Return a share in percent: `22%`; `0.7%` and `99.7%` near the ends, `<0.1%` for tiny ones."""
    if value != value:  # of a whole that is out of range
        return "–"
    if 0 < value < 0.0005:
        return "<0.1%"
    return f"{value:.1%}" if 0 < abs(value) < 0.0995 or 0.995 <= value < 0.9995 else f"{value:.0%}"


def briefly(value: Number, unit: str) -> str:
    """Return a number that was given, without trailing zeros: `30 days`."""
    number, blank, word = human(value, unit).partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + blank + word


def limits(seconds: Number | None, dollars: Number | None) -> list[str]:
    """Return a run's deadline and budget as clauses, those that were given."""
    found = [] if seconds is None else [f"within {briefly(seconds, 'second')}"]
    return found if dollars is None else [*found, f"for {human(dollars, 'USD')}"]


def between(low: Number, high: Number, unit: str, value: Number | None = None) -> str:
    """Return an interval with its unit once if both ends have the same: `160 to 386 days`; value: the estimate, which
    determines the unit of a time."""
    if unit == "second" and float(high) < WIDE * float(low):
        scale, name = duration_unit(float(low if value is None else value))
        return f"{figures(float(low) / scale, 3)} to {figures(float(high) / scale, 3)} {name}"
    largest = high if value is None else value
    ends = [size(end, largest) if unit == "byte" else human(end, unit, 3) for end in (low, high)]
    if ends[0] == ends[1] == OUT_OF_RANGE:
        return OUT_OF_RANGE
    words = [end.split(" ", 1) for end in ends]
    if len(words[0]) > 1 and words[0][1:] == words[1][1:]:
        return f"{words[0][0]} to {ends[1]}"
    return f"{ends[0]} to {ends[1]}"


def interval(ends: Sequence[Number] | None, of: Number, unit: str, level: float = 0.9) -> str:
    """Return the interval of a value with its level: `90%: 160 to 386 days`; nothing if there is none."""
    return "" if ends is None else f"{level:.0%}: {between(ends[0], ends[1], unit, of)}"

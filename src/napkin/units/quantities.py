"""Quantities as people write them: `80GiB`, `30d`, `400Gbit/s`, `700W`; shapes, and names of number formats."""

from __future__ import annotations

import math

from napkin.units.numbers import (
    BINARY,
    COUNTS,
    DECIMAL,
    LONGEST,
    Unreadable,
    Value,
    above_zero,
    number,
    positive_count,
    prefixed,
    scaled,
    split,
    value_of,
)

SECONDS = {
    "ns": (1, 10**9),
    "us": (1, 10**6),
    "µs": (1, 10**6),
    "ms": (1, 10**3),
    "s": (1, 1),
    "sec": (1, 1),
    "second": (1, 1),
    "seconds": (1, 1),
    "secs": (1, 1),
    "min": (60, 1),
    "mins": (60, 1),
    "minute": (60, 1),
    "minutes": (60, 1),
    "h": (3600, 1),
    "hr": (3600, 1),
    "hrs": (3600, 1),
    "hour": (3600, 1),
    "hours": (3600, 1),
    "d": (86400, 1),
    "day": (86400, 1),
    "days": (86400, 1),
    "w": (604800, 1),
    "wk": (604800, 1),
    "week": (604800, 1),
    "weeks": (604800, 1),
    "y": (31536000, 1),
    "yr": (31536000, 1),
    "yrs": (31536000, 1),
    "year": (31536000, 1),
    "years": (31536000, 1),
}
MONTHS = ("mo", "mon", "month", "months")
"""Units of time without a length."""
_BYTE = {"bytes": (1, 1), "byte": (1, 1), **prefixed(("b",), bare=False)}
_TIMES: dict[str, dict[str, tuple[int, int]]] = {}


def size(text: str) -> int:
    """Read bytes: `80GB` is 80·10⁹, `80GiB` is 80·2³⁰; a bare `80G` is refused with both readings."""
    digits, exponent, suffix = split(text)
    key = suffix.lower()
    plain = text.strip()
    stem = plain[: len(plain) - len(suffix)].strip()
    if key in DECIMAL and key not in ("", "b"):
        letter = key.upper()
        raise Unreadable(
            f"{plain!r} is ambiguous where bytes belong", f"write {stem}{letter}B (1000s) or {stem}{letter}iB (1024s)"
        )
    if len(suffix) == 2 and suffix[1] == "b" and suffix[0].isupper():
        raise Unreadable(f"{plain!r} is ambiguous: bits or bytes", f"write {stem}{suffix[0]}B for bytes")
    if not key:
        key = "b"
    if key not in _BYTE:
        raise Unreadable(f"{plain!r}: unknown unit {suffix!r}", "for example 80GB, 80GiB, 512MiB")
    value = value_of(digits, exponent, *_BYTE[key], text)
    above_zero(value, text)
    return math.ceil(value)


LEAST_MEMORY = 10**6
"""Bytes below which a number without a unit is no memory: 24 means gigabytes."""


def memory(text: str) -> int:
    """Read the bytes of a memory, as `size` does; a bare `24` is refused with both readings."""
    value = size(text)
    if value < LEAST_MEMORY and not split(text)[2]:
        stem = text.strip()
        raise Unreadable(f"{stem!r} has no unit", f"write {stem}GB (1000s) or {stem}GiB (1024s)")
    return value


def bytes_each(text: str) -> Value:
    """Read the bytes of one element: `16`, `0.5`; a bare `16G` is refused, as in every other place for bytes."""
    digits, exponent, suffix = split(text)
    if suffix.lower() not in ("", "b", "byte", "bytes"):
        return size(text)
    return above_zero(value_of(digits, exponent, 1, 1, text), text)


def duration(text: str) -> Value:
    """Read seconds: `30d`, `12h`, `90s`; a unit is required."""
    digits, exponent, suffix = split(text)
    plain = text.strip()
    if not suffix:
        raise Unreadable(f"{plain!r} has no unit of time", f"write {plain}ms, {plain}s, {plain}h or {plain}d")
    if suffix.lower() == "m":
        stem = plain[:-1].strip()
        hint = f"write {stem}min for minutes, {_in_days(digits, exponent)} for months"
        raise Unreadable(f"{plain!r} is ambiguous: minutes or months", hint)
    if suffix.lower() in MONTHS:
        raise Unreadable(f"{plain!r}: months differ in length", f"write {_in_days(digits, exponent)}, of 30 days each")
    return above_zero(scaled(text, SECONDS, "us, ms, s, min, h, d, w, y"), text)


def _in_days(digits: int, exponent: int) -> str:
    """Return months as days, as they are typed."""
    return f"{value_of(digits * 30, exponent, 1, 1, 'months'):g}d"


def _rate_table(words: tuple[str, ...], bits: bool) -> dict[str, tuple[int, int]]:
    table: dict[str, tuple[int, int]] = {}
    for prefix, scale in (*DECIMAL.items(), *BINARY.items()):
        for word in words:
            table[prefix + word] = (scale, 1)
        if bits and prefix:
            for word in ("bit/s", "bps"):
                table[prefix + word] = (scale, 8)
    return table


def bandwidth(text: str) -> Value:
    """Read bytes per second: `3.35TB/s`, `10GB/s`, `400Gbit/s`."""
    if "bandwidth" not in _TIMES:
        _TIMES["bandwidth"] = _rate_table(("b/s",), bits=True)
    suffix = split(text)[2]
    if suffix.endswith("b/s") and suffix[:1].isupper():
        raise Unreadable(f"{text.strip()!r} is ambiguous: bits or bytes", "write GB/s for bytes, Gbit/s for bits")
    return above_zero(scaled(text, _TIMES["bandwidth"], "for example 3.35TB/s, 400Gbit/s"), text)


def compute_rate(text: str) -> Value:
    """Read FLOP/s: `989T`, `989TFLOP/s`, `9.89e14`."""
    if split(text)[2] == "m":
        number(text)  # complains: milli or million
    if "compute" not in _TIMES:
        _TIMES["compute"] = {**COUNTS, **_rate_table(("flop/s", "flops", "flops/s"), bits=False)}
    return above_zero(scaled(text, _TIMES["compute"], "for example 989TFLOP/s"), text)


def power_draw(text: str) -> Value:
    """Read watts: `700W`, `1.2kW`."""
    if split(text)[2] == "mW":
        raise Unreadable(f"{text.strip()!r} is in milliwatts", "for example 700W; MW is a million watts")
    table = {"": (1, 1), "w": (1, 1), "kw": (1000, 1), "mw": (10**6, 1)}
    return above_zero(scaled(text, table, "for example 700W"), text)


def shape(text: str) -> tuple[int, ...]:
    """Read `4096x4096x4096` or `(4096, 4096, 4096)` as (4096, 4096, 4096): whole numbers above zero."""
    plain = text.strip()
    if plain[:1] + plain[-1:] in ("()", "[]"):
        plain = plain[1:-1].rstrip(",")  # as Python writes a shape
    parts = plain.replace("X", "x").replace("×", "x").replace(",", "x").split("x")
    if len(parts) > 16:
        raise Unreadable(f"{text[:LONGEST]!r} has more than 16 dimensions", "for example 4096x4096")
    try:
        return tuple(positive_count(p) for p in parts)
    except Unreadable as problem:
        raise Unreadable(f"{text[:LONGEST]!r} is not a shape: {problem.reason}", "for example 4096x4096") from None


def words(text: str) -> str:
    """Read any text that is not empty and has no control characters."""
    if not text.strip():
        raise Unreadable("it is empty", "give a value")
    if not text.isprintable():
        raise Unreadable(f"{text[:LONGEST]!r} holds control characters", "write it in plain characters")
    return text.strip()


NUMBER_FORMATS = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "single": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "e2m1": "fp4_e2m1",
}
"""Spelling of a number format → its name in the field."""


def number_format(text: str) -> str:
    """Return the field's name of a number format: `torch.bfloat16` → bf16; other words stay unchanged."""
    word = text.strip().lower().replace("-", "_").removeprefix("torch.")
    return NUMBER_FORMATS.get(word, word)


def quantity(text: str, unit: str) -> Value:
    """Read a text in the base unit `unit`: bytes, durations and rates in their own spellings, else a plain number."""
    reader = {
        "byte": size_or_zero,
        "second": duration_or_zero,
        "byte/s": bandwidth,
        "FLOP/s": compute_rate,
        "FLOP": _flops,
        "joule": _energy,
    }
    return reader.get(unit, number)(text)


def size_or_zero(text: str) -> Value:
    """Read bytes, or 0 without a unit."""
    return 0 if text.strip() == "0" else size(text)


def duration_or_zero(text: str) -> Value:
    """Read seconds, or 0 without a unit."""
    return 0 if text.strip() == "0" else duration(text)


def _flops(text: str) -> Value:
    return number(text.strip()[:-4] if text.strip().lower().endswith("flop") else text)


def _energy(text: str) -> Value:
    table = {"": (1, 1), "j": (1, 1), "kwh": (3_600_000, 1), "mwh": (3_600_000_000, 1), "gwh": (3_600_000_000_000, 1)}
    return scaled(text, table, "for example 350MWh")

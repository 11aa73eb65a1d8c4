"""Quantities as people write them (`70B`, `80GiB`, `30d`), units and their algebra, and numbers as people read them.

Inside napkin everything is in base units: byte, second, FLOP, param, token, GPU, USD, joule, kg. A unit is a text such
as `FLOP/s/GPU`; "1" has no dimension. Powers of 1000 are K M B/G T P, powers of 1024 Ki Mi Gi Ti Pi.
"""

from __future__ import annotations

import math

from napkin.elementwise import Number

Value = int | float

# --- the algebra ---------------------------------------------------------------------------------------------------

_EXPANDED = {"s": {"second": 1}, "watt": {"joule": 1, "second": -1}, "1": {}}
_ORDER = ("byte", "FLOP", "param", "token", "GPU", "USD", "joule", "kg")


def exponents(unit: str) -> dict[str, int]:
    """Return the exponents of a unit: `FLOP/s/GPU` → {FLOP: 1, second: −1, GPU: −1}."""
    result: dict[str, int] = {}
    numerator, *denominators = unit.split("/")
    for text, sign in ((numerator, 1), *((d, -1) for d in denominators)):
        for atom in text.split("-"):
            base, _, power = atom.partition("^")
            for name, exponent in _EXPANDED.get(base, {base: 1}).items():
                result[name] = result.get(name, 0) + sign * exponent * int(power or 1)
    return {name: e for name, e in result.items() if e}


def _written(exps: dict[str, int]) -> str:
    if exps == {"joule": 1, "second": -1}:
        return "watt"
    ranked = sorted(exps.items(), key=lambda item: (_ORDER.index(item[0]) if item[0] in _ORDER else 99, item[0]))
    above = [n if e == 1 else f"{n}^{e}" for n, e in ranked if e > 0]
    below = [("s" if n == "second" else n) + ("" if e == -1 else f"^{-e}") for n, e in ranked if e < 0]
    if below and "s" in below:  # a rate per second first: FLOP/s/GPU
        below.sort(key=lambda n: n != "s")
    return "/".join(["-".join(above) or "1", *below])


def combine(*factors: tuple[str, int]) -> str:
    """Return the unit of a product of powers: (FLOP, 1), (s, −1) → FLOP/s."""
    known = _COMBINED.get(factors)
    if known is None:
        total: dict[str, int] = {}
        for unit, power in factors:
            for name, e in exponents(unit).items():
                total[name] = total.get(name, 0) + power * e
        known = _COMBINED[factors] = _written({n: e for n, e in total.items() if e})
    return known


_COMBINED: dict[tuple[tuple[str, int], ...], str] = {}
"""Products that were asked for before: a tree has few of them, many times."""


def same(*parts: str) -> str:
    """Return the common unit of a sum's parts; raise ValueError where they differ: a defect in a formula."""
    for unit in parts[1:]:
        if unit != parts[0] and exponents(unit) != exponents(parts[0]):
            raise ValueError(f"units differ: {parts[0]} and {unit}")
    return parts[0]


def root(unit: str) -> str:
    """Return the unit of a square root."""
    exps = exponents(unit)
    if any(e % 2 for e in exps.values()):
        raise ValueError(f"no square root of the unit {unit}")
    return _written({n: e // 2 for n, e in exps.items()})


# --- reading -------------------------------------------------------------------------------------------------------


class Unreadable(ValueError):
    """A text that is not the quantity asked for: what is wrong, and a hint."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "p": 10**15, "e": 10**18}
BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
SECONDS = {
    "ns": (1, 10**9),
    "us": (1, 10**6),
    "µs": (1, 10**6),
    "ms": (1, 10**3),
    "s": (1, 1),
    "sec": (1, 1),
    "second": (1, 1),
    "seconds": (1, 1),
    "min": (60, 1),
    "minutes": (60, 1),
    "h": (3600, 1),
    "hour": (3600, 1),
    "hours": (3600, 1),
    "d": (86400, 1),
    "day": (86400, 1),
    "days": (86400, 1),
    "w": (604800, 1),
    "week": (604800, 1),
    "weeks": (604800, 1),
    "y": (31536000, 1),
    "year": (31536000, 1),
    "years": (31536000, 1),
}
_DIGITS = "0123456789"
_LONGEST = 60
_DOUBLE = (2**53 - 1) * 2**971
"""The largest number of fp64."""


def _split(text: str) -> tuple[int, int, str]:
    """Split `1.5e3 GiB` into (15, 2, "GiB"): digits, power of ten, suffix."""
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    stripped = text.strip()
    if not stripped:
        raise Unreadable("a number is missing", "for example 70B, 1.5e12, 80GiB, 30d")
    if len(stripped) > _LONGEST:
        raise Unreadable(f"{shown!r} is too long for a number", f"at most {_LONGEST} characters")
    at = 0
    sign = 1
    if stripped[0] in "+-":
        sign = -1 if stripped[0] == "-" else 1
        at = 1
    digits, exponent, seen_dot, seen_digit = 0, 0, False, False
    while at < len(stripped):
        c = stripped[at]
        if c in _DIGITS:
            digits = digits * 10 + int(c)
            exponent -= seen_dot
            seen_digit = True
        elif c == "." and not seen_dot:
            seen_dot = True
        elif not (c == "_" and seen_digit and at + 1 < len(stripped) and stripped[at + 1] in _DIGITS):
            break
        at += 1
    if not seen_digit:
        raise Unreadable(f"{shown!r} is not a number", "for example 70B, 1.5e12, 80GiB, 30d")
    rest = stripped[at:]
    if rest in ("e", "E"):
        raise Unreadable(f"{shown!r} ends before its exponent", f"for example {shown}9")
    if rest[:1] in ("e", "E") and len(rest) > 1:
        power = rest[2:] if rest[1] in "+-" else rest[1:]
        count = 0
        while count < len(power) and power[count] in _DIGITS:
            count += 1
        if count:
            if count > 4:
                raise Unreadable(f"{shown!r} is out of range", "at most 1e300")
            exponent += int(power[:count]) * (-1 if rest[1] == "-" else 1)
            rest = power[count:]
    if rest[:1] == ",":
        raise Unreadable(f"{shown!r} is not a number", "write thousands as 70000 or 70_000, not with commas")
    if rest[:1] in ("x", "X") and digits == 0:
        raise Unreadable(f"{shown!r} is hexadecimal", "write the number in decimal")
    if abs(exponent) > 400:
        raise Unreadable(f"{shown!r} is out of range", "at most 1e300")
    return sign * digits, exponent, rest.strip()


def _exact(digits: int, exponent: int, top: int, bottom: int, text: str) -> Value:
    """Return digits · 10^exponent · top / bottom: an integer where it is one."""
    numerator = digits * top * (10**exponent if exponent > 0 else 1)
    denominator = bottom * (10**-exponent if exponent < 0 else 1)
    if abs(numerator) > 10**300 * denominator:
        raise Unreadable(f"{text.strip()!r} is out of range", "at most 1e300")
    return numerator // denominator if numerator % denominator == 0 else numerator / denominator


def _scaled(text: str, units: dict[str, tuple[int, int]], example: str) -> Value:
    digits, exponent, suffix = _split(text)
    key = suffix.lower()
    if key not in units:
        raise Unreadable(f"{text.strip()!r}: unknown unit {suffix!r}", example)
    top, bottom = units[key]
    return _exact(digits, exponent, top, bottom, text)


def _prefixed(words: tuple[str, ...], bare: bool) -> dict[str, tuple[int, int]]:
    """Return every spelling of a quantity counted in `words` with its scale; `bare` also allows the prefix alone."""
    table: dict[str, tuple[int, int]] = {}
    for prefix, scale in (*DECIMAL.items(), *BINARY.items()):
        if bare and prefix != "e":  # a bare E is an exponent that was cut off
            table[prefix] = (scale, 1)
        for word in words:
            table[prefix + word] = (scale, 1)
    return table


_COUNT = _prefixed((), bare=True)
_BYTE = {"bytes": (1, 1), "byte": (1, 1), **_prefixed(("b",), bare=False)}
_TIMES: dict[str, dict[str, tuple[int, int]]] = {}


def number(text: str) -> Value:
    """Read a real number, with or without a prefix; `50%` is 0.5."""
    digits, exponent, suffix = _split(text)
    if suffix == "%":
        return _exact(digits, exponent - 2, 1, 1, text)
    if suffix == "m":
        raise _ambiguous_m(text)
    return _scaled(text, _COUNT, "for example 70B, 1.5e12, 0.4, 50%")


def _ambiguous_m(text: str) -> Unreadable:
    plain = text.strip()
    return Unreadable(
        f"{plain!r} is ambiguous: m is million, milli or minute",
        f"write {plain[:-1].strip()}M for million, {plain[:-1].strip()}min for minutes",
    )


def exact(text: str) -> tuple[int, int]:
    """Read a real number as numerator and denominator, without rounding: `0.1` is 1/10; prefixes as in `number`."""
    digits, exponent, suffix = _split(text)
    if suffix != "%" and suffix.lower() not in _COUNT:
        number(text)  # complains
    top = digits * (1 if suffix == "%" else _COUNT[suffix.lower()][0])
    exponent -= 2 * (suffix == "%")
    top, bottom = top * 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
    if abs(top) > _DOUBLE * bottom:
        raise Unreadable(f"{text.strip()!r} is out of range", "at most 1.7976931348623157e308, the largest of fp64")
    return top, bottom


def count(text: str) -> int:
    """Read a whole number that is not negative: `70B` is 70,000,000,000."""
    value = number(text)
    if value != int(value) or "%" in text:
        raise Unreadable(f"{text.strip()!r} is not a whole number", "for example 8, 4096, 70B")
    if value < 0:
        raise Unreadable(f"{text.strip()!r} is negative", "write a number that is not below zero")
    return int(value)


def positive(text: str) -> Value:
    """Read a number above zero."""
    return _above_zero(number(text), text)


def positive_count(text: str) -> int:
    """Read a whole number above zero."""
    return int(_above_zero(count(text), text))


LARGEST_DEGREE = 10**15
"""Beyond any machine, batch or sequence; products of several such counts still fit a float."""


def degree(text: str) -> int:
    """Read a whole number from 1 to 10¹⁵: a parallel degree, a batch size, a length."""
    value = positive_count(text)
    if value > LARGEST_DEGREE:
        raise Unreadable(f"{text.strip()!r} is out of range", "at most 1e15")
    return value


def _above_zero(value: Value, text: str) -> Value:
    if not value > 0:
        raise Unreadable(f"{text.strip()!r} is not above zero", "write a number above zero")
    return value


def fraction(text: str) -> Value:
    """Read a share above 0 and at most 1: `0.4` or `40%`."""
    value = number(text)
    if not 0 < value <= 1:
        percent = 1 < value <= 100 and "%" not in text
        hint = f"{text.strip()}% is {value / 100:g}" if percent else "for example 0.4 or 40%"
        raise Unreadable(f"{text.strip()!r} is not a share above 0 and at most 1", hint)
    return value


def probability(text: str) -> Value:
    """Read a share of at least 0 and below 1."""
    value = number(text)
    if not 0 <= value < 1:
        raise Unreadable(f"{text.strip()!r} is not a share from 0 up to 1", "for example 0.1 or 10%")
    return value


def at_least_one(text: str) -> Value:
    """Read a factor of at least 1."""
    value = number(text)
    if value < 1:
        raise Unreadable(f"{text.strip()!r} is below 1", "1 adds nothing")
    return value


def size(text: str) -> int:
    """Read bytes: `80GB` is 80·10⁹, `80GiB` is 80·2³⁰; a bare `80G` is refused with both readings."""
    digits, exponent, suffix = _split(text)
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
    value = _exact(digits, exponent, *_BYTE[key], text)
    _above_zero(value, text)
    return math.ceil(value)


def bytes_each(text: str) -> Value:
    """Read the bytes of one thing: `16`, `0.5`; a bare `16G` is refused, as it is where bytes belong."""
    digits, exponent, suffix = _split(text)
    if suffix.lower() not in ("", "b", "byte", "bytes"):
        return size(text)
    return _above_zero(_exact(digits, exponent, 1, 1, text), text)


def duration(text: str) -> Value:
    """Read seconds: `30d`, `12h`, `90s`; a unit is required."""
    digits, exponent, suffix = _split(text)
    plain = text.strip()
    if not suffix:
        raise Unreadable(f"{plain!r} has no unit of time", f"write {plain}s, {plain}h or {plain}d")
    if suffix.lower() == "m":
        stem = plain[:-1].strip()
        raise Unreadable(f"{plain!r} is ambiguous: minutes or months", f"write {stem}min for minutes")
    return _above_zero(_scaled(text, SECONDS, "us, ms, s, min, h, d, w, y"), text)


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
    suffix = _split(text)[2]
    if suffix.endswith("b/s") and suffix[:1].isupper():
        raise Unreadable(f"{text.strip()!r} is ambiguous: bits or bytes", "write GB/s for bytes, Gbit/s for bits")
    return _above_zero(_scaled(text, _TIMES["bandwidth"], "for example 3.35TB/s, 400Gbit/s"), text)


def compute_rate(text: str) -> Value:
    """Read FLOP/s: `989T`, `989TFLOP/s`, `9.89e14`."""
    if "compute" not in _TIMES:
        _TIMES["compute"] = {**_COUNT, **_rate_table(("flop/s", "flops", "flops/s"), bits=False)}
    return _above_zero(_scaled(text, _TIMES["compute"], "for example 989TFLOP/s"), text)


def power_draw(text: str) -> Value:
    """Read watts: `700W`, `1.2kW`."""
    table = {"": (1, 1), "w": (1, 1), "kw": (1000, 1), "mw": (10**6, 1)}
    return _above_zero(_scaled(text, table, "for example 700W"), text)


def shape(text: str) -> tuple[int, ...]:
    """Read `4096x4096x4096` as (4096, 4096, 4096): whole numbers above zero."""
    parts = text.strip().replace("X", "x").replace("×", "x").replace(",", "x").split("x")
    if len(parts) > 16:
        raise Unreadable(f"{text[:_LONGEST]!r} has more than 16 dimensions", "for example 4096x4096")
    try:
        return tuple(positive_count(p) for p in parts)
    except Unreadable as problem:
        raise Unreadable(f"{text[:_LONGEST]!r} is not a shape: {problem.reason}", "for example 4096x4096") from None


def words(text: str) -> str:
    """Read any text that is not empty and has no control characters."""
    if not text.strip():
        raise Unreadable("it is empty", "give a value")
    if not text.isprintable():
        raise Unreadable(f"{text[:_LONGEST]!r} holds control characters", "write it in plain characters")
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
    return _scaled(text, table, "for example 350MWh")


# --- writing -------------------------------------------------------------------------------------------------------

_SI = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_WORDED = ((10**12, "T"), (10**9, "B"), (10**6, "M"))


def figures(value: float, digits: int = 4, strip: bool = False) -> str:
    """`value` with four significant digits (`strip`: without trailing zeros) and no exponent where it can be read."""
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
        return f"{figures(real, digits)} J" if real < 3.6e6 else f"{_prefixed_text(real / 3600, 'Wh', digits=digits)}"
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

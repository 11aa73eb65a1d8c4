"""Numbers as people write them: `70B`, `1.5e12`, `4_096`, `50%`.

Powers of 1000 are K M B/G T P, powers of 1024 Ki Mi Gi Ti Pi.
"""

from __future__ import annotations

Value = int | float


class Unreadable(ValueError):
    """Raised for a text that cannot be read as the quantity: what is wrong, and a hint."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


EXAMPLES = "for example 70B, 1.5e12, 80GiB, 30d"
"""The default hint."""
DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "p": 10**15, "e": 10**18}
BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_DIGITS = "0123456789"
LONGEST = 60
MOST_PLAIN = 18
_DOUBLE = (2**53 - 1) * 2**971
"""The largest number of fp64."""


def _without_commas(text: str) -> str:
    """Return the hint for a number with commas: one decimal comma, or groups of three digits."""
    whole, _, rest = text.partition(",")
    if (whole + rest).isalnum() and len(rest) - len(rest.lstrip(_DIGITS)) != 3:
        return f"write {whole}.{rest}: the decimal point is a dot"
    plain = text.replace(",", "")
    return f"write {plain if plain.isalnum() else '70000'}: thousands have no commas"


def split(text: str) -> tuple[int, int, str]:
    """Split `1.5e3 GiB` into (15, 2, "GiB"): digits, power of ten, suffix."""
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    stripped = text.strip()
    if not stripped:
        raise Unreadable("a number is missing", EXAMPLES)
    if len(stripped) > LONGEST:
        raise Unreadable(f"{shown!r} is too long for a number", f"at most {LONGEST} characters")
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
        raise Unreadable(f"{shown!r} is not a number", EXAMPLES)
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
        raise Unreadable(f"{shown!r} is not a number", _without_commas(stripped))
    if rest[:1] in ("x", "X") and digits == 0:
        raise Unreadable(f"{shown!r} is hexadecimal", "write the number in decimal")
    if abs(exponent) > 400:
        raise Unreadable(f"{shown!r} is out of range", "at most 1e300")
    return sign * digits, exponent, rest.strip()


def value_of(digits: int, exponent: int, top: int, bottom: int, text: str) -> Value:
    """Return digits · 10^exponent · top / bottom: an integer if it is one."""
    numerator = digits * top * (10**exponent if exponent > 0 else 1)
    denominator = bottom * (10**-exponent if exponent < 0 else 1)
    if abs(numerator) > 10**300 * denominator:
        raise Unreadable(f"{text.strip()!r} is out of range", "at most 1e300")
    return numerator // denominator if numerator % denominator == 0 else numerator / denominator


def scaled(text: str, units: dict[str, tuple[int, int]], example: str) -> Value:
    """Read a number with one of these units: unit → its factor as numerator and denominator."""
    digits, exponent, suffix = split(text)
    key = suffix.lower()
    if key not in units:
        wrong = f": unknown unit {suffix!r}" if suffix else " has no unit"
        raise Unreadable(f"{text.strip()!r}{wrong}", example)
    top, bottom = units[key]
    return value_of(digits, exponent, top, bottom, text)


def prefixed(words: tuple[str, ...], bare: bool) -> dict[str, tuple[int, int]]:
    """Return every spelling of a quantity counted in `words` with its scale; `bare` also allows the prefix alone."""
    table: dict[str, tuple[int, int]] = {}
    for prefix, scale in (*DECIMAL.items(), *BINARY.items()):
        if bare and prefix != "e":  # a bare E is an exponent that was cut off
            table[prefix] = (scale, 1)
        for word in words:
            table[prefix + word] = (scale, 1)
    return table


WORDED = {"thousand": (10**3, 1), "million": (10**6, 1), "billion": (10**9, 1), "trillion": (10**12, 1)}
COUNTS = {**prefixed((), bare=True), **WORDED}


def number(text: str) -> Value:
    """Read a real number, with or without a prefix; `50%` is 0.5."""
    whole = plain(text)
    if whole is not None:
        return whole
    digits, exponent, suffix = split(text)
    if suffix == "%":
        return value_of(digits, exponent - 2, 1, 1, text)
    if suffix == "m":
        raise _ambiguous_m(text)
    return scaled(text, COUNTS, "for example 70B, 1.5e12, 0.4, 50%")


def _ambiguous_m(text: str) -> Unreadable:
    plain = text.strip()
    return Unreadable(
        f"{plain!r} is ambiguous: m is million, milli or minute",
        f"write {plain[:-1].strip()}M for million, {plain[:-1].strip()}min for minutes",
    )


def exact(text: str) -> tuple[int, int]:
    """Read a real number as numerator and denominator, without rounding: `0.1` is 1/10; prefixes as in `number`."""
    digits, exponent, suffix = split(text)
    if suffix != "%" and suffix.lower() not in COUNTS:
        number(text)  # complains
    top = digits * (1 if suffix == "%" else COUNTS[suffix.lower()][0])
    exponent -= 2 * (suffix == "%")
    top, bottom = top * 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
    if abs(top) > _DOUBLE * bottom:
        raise Unreadable(f"{text.strip()!r} is out of range", "at most 1.7976931348623157e308, the largest of fp64")
    return top, bottom


def plain(text: str) -> int | None:
    """Return the whole number that at most 18 digits 0 to 9 spell, after a minus if it is negative; else None."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= MOST_PLAIN else None


def count(text: str) -> int:
    """Read a whole number that is not negative: `70B` is 70,000,000,000."""
    value = number(text)
    if value != int(value) or "%" in text:
        raise Unreadable(f"{text.strip()!r} is not a whole number", "for example 8, 4096, 70B")
    if value < 0:
        raise Unreadable(f"{text.strip()!r} is negative", "write a number that is not below zero")
    return int(value)


def positive(text: str) -> Value:
    """Read an amount above zero, which no percentage is."""
    value = ratio(text)
    if "%" in text:
        raise Unreadable(f"{text.strip()!r} is a share, not an amount", "write a number without %")
    return value


def ratio(text: str) -> Value:
    """Read a factor above zero: `1.2` or `120%`."""
    return above_zero(number(text), text)


def dollars(text: str) -> Value:
    """Read an amount above zero, also as people write prices: `$3`, `2.5 USD`, `$2.49/hr`."""
    plain = text.strip().removeprefix("$")
    for unit in ("/gpu-hour", "/hour", "/hr", "/h", "usd", "$"):
        if plain.lower().endswith(unit):
            plain = plain[: -len(unit)].rstrip()
    try:
        return positive(plain)
    except Unreadable as problem:
        raise Unreadable(f"{text[:LONGEST]!r} is not an amount of USD: {problem.reason}", "for example 2.5") from None


def positive_count(text: str) -> int:
    """Read a whole number above zero."""
    above_zero(number(text), text)
    return count(text)


LARGEST_DEGREE = 10**15
"""Beyond any machine, batch or sequence; products of several such counts still fit a float."""


def degree(text: str) -> int:
    """Read a whole number from 1 to 10¹⁵: a parallel degree, a batch size, a length."""
    value = positive_count(text)
    if value > LARGEST_DEGREE:
        raise Unreadable(f"{text.strip()!r} is out of range", "at most 1e15")
    return value


def above_zero(value: Value, text: str) -> Value:
    """Return the value; raise Unreadable if it is not above zero."""
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

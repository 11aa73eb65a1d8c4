"""The algebra of units: products, powers, sums and roots of texts such as `FLOP/s/GPU`.

Inside napkin everything is in base units: byte, second, FLOP, param, token, GPU, USD, joule, kg; "1" has no dimension.
"""

from __future__ import annotations

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
"""Cache of products: a tree has few different ones, many times."""


def same(*parts: str) -> str:
    """Return the common unit of a sum's parts; raise ValueError if they differ: a defect in a formula."""
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

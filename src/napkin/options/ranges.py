"""Lists and ranges of an option's values: `1,2,4`, `0.3..0.6:0.05`, `1..64:x2`."""

from __future__ import annotations

import math

from napkin import units
from napkin.errors import NapkinError
from napkin.options.option import Option, Parsed, parsed
from napkin.units import Unreadable

MOST_VALUES = 10_000


def read(option: Option, text: str, where: str) -> Parsed:
    """Return a value of an option in base units; `where` begins an error's message."""
    return parsed(option.parse, text, f"{where}: {option.name}")


def truth(text: str, where: str, option: Option) -> bool:
    """Read true or false."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise NapkinError(f"{where}: {option.name} is {text.strip()[:40]!r}, neither true nor false")
    return word == "true"


_SUFFIX = {"second": "s", "byte": "B", "byte/s": "B/s", "FLOP/s": "FLOP/s", "watt": "W"}


def written(option: Option, value: float) -> str:
    """Write a value in base units as its option reads it: 86400 seconds as `86400s`; a whole number of more digits than
    an option reads, to the precision of fp64."""
    whole = isinstance(value, int) or value.is_integer()
    number = str(int(value)) if whole and abs(value) < 1e15 else repr(value)
    suffix = _SUFFIX.get(option.unit, "")
    return (number if len(number + suffix) <= units.LONGEST else repr(float(value))) + suffix


def is_whole(option: Option) -> bool:
    """Return whether the option takes whole numbers only."""
    if option.parse is units.memory:
        return True
    for half in (0.5, 1.5):
        try:
            option.parse(written(option, half))
        except Unreadable:
            continue
        return False
    return True


def values(option: Option, text: str, where: str) -> list[str] | list[bool]:
    """Return the texts of a list (`1,2,4`) or range: `0.3..0.6:0.05` by steps, `1..64:x2` by factors, `1..64` by
    doubling where the option counts something. A range's end is always among them. Flags give true and false."""
    if option.flag:
        return [truth(word, where, option) for word in text.split(",")]
    if ".." not in text:
        found = [word.strip() for word in text.split(",")]
        for word in found:
            read(option, word, where)
        return found
    first, _, rest = text.partition("..")
    last, colon, step = rest.partition(":")
    low, high = read(option, first, where), read(option, last, where)
    if option.choices and not colon and low in option.choices and high in option.choices:
        numbered = [word for word in option.choices if word.isdigit()]  # the stages of ZeRO
        if {low, high} <= set(numbered) and int(str(low)) <= int(str(high)):
            return [word for word in numbered if int(str(low)) <= int(word) <= int(str(high))]
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        raise NapkinError(f"{where}: {option.name} has no ranges", f"list its values: {where} {option.name}=a,b")
    if high < low:
        raise NapkinError(f"{where}: {text.strip()!r} is an empty range", "the smaller end comes first")
    whole = is_whole(option)
    if not colon and not whole:
        narrow = 0 < low < high < 4 * low and last.strip()[-1:].isdigit()  # a step has the unit of the ends
        shown = f"{(high - low) / 4:.1g}" if narrow else "x2"
        hint = f"for example {first.strip()}..{last.strip()}:{shown}"
        raise NapkinError(f"{where}: {text.strip()!r} has no step", hint)
    if not colon or step.strip()[:1] in ("x", "X", "×"):
        numbers = _by_factor(low, high, _factor(step.strip()[1:] if colon else "2", where), whole)
        if numbers[-1] != high:
            raise NapkinError(f"{where}: the range has more than {MOST_VALUES:,} values", "take a larger factor")
    else:
        by = read(option, step, where)
        assert isinstance(by, (int, float)), "an option whose values are numbers reads numbers only"
        numbers = _by_step(low, high, by, where)
    return [written(option, number) for number in numbers]


def _factor(text: str, where: str) -> float:
    try:
        factor = units.number(text)
    except Unreadable:
        raise NapkinError(f"{where}: {text[:40]!r} is not a factor", "for example 1..64:x2") from None
    if not 1 < factor < math.inf:
        raise NapkinError(f"{where}: a factor is above 1", "for example 1..64:x2")
    return factor


def _by_factor(low: float, high: float, factor: float, whole: bool) -> list[float]:
    found = [low]
    while found[-1] < high and len(found) < MOST_VALUES:
        grown = low * factor ** len(found)
        grown = max(round(grown), found[-1] + 1) if whole else grown
        found.append(high if grown > high * (1 - 1e-12) else grown)
    return found


def _by_step(low: float, high: float, step: float, where: str) -> list[float]:
    count = (high - low) / step
    if count >= MOST_VALUES:
        raise NapkinError(f"{where}: the range has more than {MOST_VALUES:,} values", "take a larger step")
    found: list[float] = [low + i * step for i in range(int(count * (1 + 1e-12)) + 1)]
    found = [f if isinstance(f, int) else float(f"{f:.12g}") for f in found]  # 0.3 + 0.05·i as it is written
    return found if found[-1] >= high * (1 - 1e-12) else [*found, high]

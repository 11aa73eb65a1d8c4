"""Parsers of options whose text is a list: names, lengths, layers of stages, dimensions."""

from __future__ import annotations

from napkin.errors import did_you_mean
from napkin.units import Unreadable, count, number, positive_count, words

MOST_ROWS = 500
"""Rows that `plan --rows` may list: each is evaluated once more, exactly, in some three milliseconds."""
MOST_DOCUMENTS = MOST_STAGES = 10**6
FROZEN_PARTS = ("vision", "projector")
OFFLOADS = ("optimizer", "activations", "parameters")
_STAGES_EXAMPLE = "for example 9,10,10,9 or 9,2x10,9"


def names(text: str) -> tuple[str, ...]:
    """Read names separated by commas; an empty one is refused."""
    found = tuple(name.strip() for name in words(text).split(","))
    if not all(found):
        raise Unreadable(f"{text.strip()[:60]!r} has an empty name in it", "separate names by single commas")
    return found


def lowercase_names(text: str) -> tuple[str, ...]:
    """Read names separated by commas, in lower case; empty ones are dropped, but not all may be."""
    found = tuple(word.strip().lower() for word in words(text).split(",") if word.strip())
    if not found:
        raise Unreadable(f"{text.strip()[:60]!r} names nothing", "separate names by single commas")
    return found


def offloads(text: str) -> tuple[str, ...]:
    """Read the tensors kept in host memory, separated by commas; with parameters, the optimizer runs there too."""
    found = tuple(word.strip().lower() for word in text.split(","))
    for word in found:
        if word not in OFFLOADS:
            hint = did_you_mean(word, OFFLOADS) or "for example optimizer"
            raise Unreadable(f"{word[:40]!r} is not one of {', '.join(OFFLOADS)}, none", hint)
    return tuple(dict.fromkeys(("optimizer", *found))) if "parameters" in found else found


def frozen_parts(text: str) -> str:
    """Read which parts of a multimodal model are frozen, separated by commas; return the last one of them: the vision
    tower, or the projector with the tower before it."""
    found = {word.strip().lower() for word in text.split(",")}
    for word in sorted(found):
        if word not in FROZEN_PARTS:
            hint = did_you_mean(word, FROZEN_PARTS) or "for example vision"
            if word.isdecimal():
                hint = f"--freeze-layers {word[:9]}: the embedding and the first layers"
            raise Unreadable(f"{word[:40]!r} is not one of {', '.join(FROZEN_PARTS)}", hint)
    if "vision" not in found:
        raise Unreadable("a trained tower before a frozen projector is not modeled", "vision,projector")
    return "projector" if "projector" in found else "vision"


def lengths(text: str) -> tuple[int, ...]:
    """Read document lengths separated by commas; `4x1024` is four documents of 1,024 tokens."""
    found: list[int] = []
    for part in text.split(","):
        times, x, length = part.partition("x")
        number = positive_count(times) if x else 1
        if len(found) + number > MOST_DOCUMENTS:
            raise Unreadable("more than a million documents", "for example 4096,2048 or 4x1024")
        found += [positive_count(length if x else part)] * number
    return tuple(found)


def stage_layers(text: str) -> tuple[tuple[int, int], ...]:
    """Read the layers of each stage, separated by commas, as (stages, layers of each) in as few runs as possible;
    `2x10` is two stages of 10."""
    found: list[tuple[int, int]] = []
    total = 0
    for part in words(text).split(","):
        times, x, number = part.partition("x")
        try:
            stages, layers = positive_count(times) if x else 1, count(number if x else part)
        except Unreadable as problem:
            raise Unreadable(problem.reason, _STAGES_EXAMPLE) from None
        total += stages
        if found and found[-1][1] == layers:
            found[-1] = (found[-1][0] + stages, layers)
        else:
            found.append((stages, layers))
    if total > MOST_STAGES:
        raise Unreadable(f"more than {MOST_STAGES:,} stages", _STAGES_EXAMPLE)
    return tuple(found)


def integers(text: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas, negative ones too: `2,0,1` is (2, 0, 1)."""
    try:
        return tuple(_integer(part) for part in text.split(","))
    except ValueError:
        raise Unreadable(f"{text[:60]!r} is not a list of whole numbers", "for example 1,2") from None


def selection(text: str) -> tuple[int | slice, ...]:
    """Read basic indexing: `0:2,:,1` is what Python's brackets would hold."""
    chosen: list[int | slice] = []
    for part in text.split(","):
        ends = part.split(":")
        try:
            if len(ends) > 3:
                raise ValueError
            numbers = [_integer(end) if end.strip() else None for end in ends]
        except ValueError:
            numbers = [None]
        if len(numbers) > 1:
            chosen.append(slice(*numbers))
        elif numbers[0] is None:
            raise Unreadable(f"{part[:60]!r} is neither a number nor start:stop:step", "for example 0:2,:,1")
        else:
            chosen.append(numbers[0])
    return tuple(chosen)


def _integer(text: str) -> int:
    plain = text.strip()
    if not plain.isascii() or len(plain) > 18 or "_" in plain:
        raise ValueError
    return int(plain)


def rows(text: str) -> int:
    """Read a number of rows from 1 to MOST_ROWS."""
    number = positive_count(text)
    if number > MOST_ROWS:
        raise Unreadable(f"{text.strip()!r} rows are too many", f"at most {MOST_ROWS:,}; --csv and --pareto narrow it")
    return number


def confidence(text: str) -> float:
    """Read a confidence level: `80`, `80%` or `0.8` as the share 0.8; from 50 to 98 %."""
    word = text.strip()
    try:
        share = number(word)
    except Unreadable:
        raise Unreadable(f"{word[:40]!r} is not a confidence level", "for example --confidence 80") from None
    share = share / 100 if share > 1 else share
    if not 0.5 <= share <= 0.98:
        raise Unreadable(f"{word[:40]!r} is not between 50 and 98 %", "the evidence supports 50 to 98 %")
    return share

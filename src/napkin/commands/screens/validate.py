"""Screen of `validate`: errors of predictions by quantity, or the rows with the largest errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.evidence.validation.compared import Compared
from napkin.evidence.validation.error_statistics import by_quantity, errors_of
from napkin.render.figures import compact, share
from napkin.render.screen import Column, Next, Screen, Table

UNITS = {
    "step_seconds": "second",
    "tokens_per_second_per_gpu": "token/s/GPU",
    "samples_per_second": "1/s",
    "run_seconds": "second",
    "gen_seconds": "second",
    "logprob_seconds": "second",
    "update_seconds": "second",
    "mfu": "1",
    "device_hours": "GPU-hour",
    "output_tokens_per_second": "token/s",
    "output_tokens_per_second_per_gpu": "token/s/GPU",
    "total_tokens_per_second": "token/s",
    "total_tokens_per_second_per_gpu": "token/s/GPU",
    "prefill_tokens_per_second": "token/s",
    "prefill_tokens_per_second_per_gpu": "token/s/GPU",
    "decode_tokens_per_second": "token/s",
    "requests_per_second": "1/s",
    "kv_cache_tokens": "token",
    **dict.fromkeys(("ttft_ms", "ttft_mean_ms", "ttft_median_ms", "tpot_ms", "tpot_mean_ms", "tpot_median_ms"), "1"),
    **dict.fromkeys(("itl_ms", "itl_mean_ms", "itl_median_ms", "total_latency_ms"), "1"),
    **dict.fromkeys(("kv_cache_gib_per_gpu", "kv_cache_gb_per_gpu", "weights_gib", "weights_gib_per_gpu"), "1"),
    "weights_gb_per_gpu": "1",
}
"""Quantity of a published row → its unit; the others are bytes."""
WORDS = {
    "step_seconds": "step time",
    "tokens_per_second_per_gpu": "tokens/s per GPU",
    "samples_per_second": "samples/s",
    "run_seconds": "time of a run",
    "mfu": "MFU",
    "device_hours": "GPU-hours of a run",
    "memory_used": "memory used",
    "memory_reserved": "memory reserved",
    "memory_allocated": "memory allocated",
    "memory_unstated": "memory, as published",
    "output_tokens_per_second": "output tokens/s",
    "output_tokens_per_second_per_gpu": "output tokens/s per GPU",
    "total_tokens_per_second": "tokens/s, in and out",
    "prefill_tokens_per_second": "tokens/s of prompts",
    "decode_tokens_per_second": "tokens/s of one answer",
    "ttft_ms": "time to first token, ms",
    "tpot_ms": "time per output token, ms",
    "kv_cache_tokens": "tokens of KV cache",
    "kv_cache_gib_per_gpu": "KV cache per GPU, GiB",
    "weights_gib": "weights, GiB",
    "weights_gib_per_gpu": "weights per GPU, GiB",
}
"""Quantity → its name on the screen."""
MOST_REASONS, MOST_NAMES = 5, 3
"""Number of reasons on a screen, and of row names for each."""
BY_QUANTITY = (
    Column("quantity"),
    Column("rows", right=True),
    Column("median", right=True),
    Column("mean", right=True, drop=2),
    Column("90th pct", right=True, drop=1),
    Column("bias", right=True, drop=3),
    Column("in interval", right=True),
)
ROWS = (
    Column("row"),
    Column("quantity", drop=1),
    Column("predicted", right=True, drop=2),
    Column("measured", right=True, drop=2),
    Column("error", right=True),
)


def screen(
    where: str,
    level: float,
    compared: Sequence[Compared],
    worst: int,
    path: str | None,
    wrote: bool,
    told: Sequence[tuple[str, str]],
) -> Screen:
    """Return the screen; worst: the number of rows with the largest errors to list, 0 for the errors by quantity; told:
    what is said of rows' keys that are not read."""
    groups = {quantity: errors_of(rows) for quantity, rows in by_quantity(compared).items()}
    asked = (
        f"Predicted against measured: {len(compared):,} row{'s' * (len(compared) != 1)} of {where}",
        f"{level:.0%} intervals",
    )
    headline = []
    for quantity, found in list(groups.items())[:1]:
        headline.append(f"{_word(quantity)}: median error {share(found.median)}")
        if found.coverage is not None:
            headline.append(f"{share(found.coverage)} of measurements inside their interval")
    following = (
        Next({"file": path, "explain": True, "init": None}) if path else Next({"worst": None if worst else "10"})
    )
    if worst:
        said = unpredicted(compared) if path else []
        unread = grouped(told)
        said += unread[:MOST_REASONS]
        said += [f"{len(unread) - MOST_REASONS:,} more keys are not read (-v)"] if len(unread) > MOST_REASONS else []
        if wrote:
            said.insert(0, f"wrote {where}: replace its rows, whose measurements are placeholders")
        return Screen(asked, headline, table=_worst(compared, worst), remarks=said, next=following, listing=True)
    rows = [
        (
            _word(quantity),
            str(found.rows),
            share(found.median),
            share(found.mean),
            share(found.p90),
            f"{found.bias:+.1%}",
            "–" if found.coverage is None else share(found.coverage),
        )
        for quantity, found in groups.items()
    ]
    return Screen(asked, headline, table=Table(BY_QUANTITY, rows), next=following, listing=True)


def unpredicted(compared: Sequence[Compared]) -> list[str]:
    """Return why rows are not predicted, one sentence per reason, the most frequent first."""
    rows: dict[str, list[str]] = {}
    for one in compared:
        if one.predicted is None and not one.verdict:
            rows.setdefault(one.why, []).append(one.id)
    ranked = sorted(rows.items(), key=lambda pair: -len(pair[1]))
    said = [f"not predicted: {_named(names)}: {why}" for why, names in ranked[:MOST_REASONS]]
    others = sum(len(names) for _, names in ranked[MOST_REASONS:])
    return said + ([f"not predicted: {others:,} more for other reasons (-v)"] if others else [])


def grouped(told: Sequence[tuple[str, str]]) -> list[str]:
    """Return what is said of keys that are not read, once for all rows of which it is, the most frequent first."""
    rows: dict[str, list[str]] = {}
    for name, what in told:
        rows.setdefault(what, []).append(name)
    return [f"{what} ({_named(names)})" for what, names in sorted(rows.items(), key=lambda pair: -len(pair[1]))]


def _named(names: Sequence[str]) -> str:
    """Return the first names, and the number of others."""
    shown = ", ".join(names[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else "")


def _word(quantity: str) -> str:
    return WORDS.get(quantity, quantity.replace("_", " "))


def _worst(compared: Sequence[Compared], count: int) -> Table:
    """Return the rows with the largest errors."""
    known = [one for one in compared if one.error is not None and not one.suspect]
    ranked = sorted(known, key=lambda one: -abs(math.log((one.predicted or 1) / (one.measured or 1))))
    rows = []
    for one in ranked[:count]:
        unit = UNITS.get(one.quantity, "byte")
        sizes = (compact(value, unit) if value is not None else "–" for value in (one.predicted, one.measured))
        error = one.error or 0.0
        rows.append((one.id, _word(one.quantity), *sizes, f"{error:+.0%}" if abs(error) >= 0.0995 else f"{error:+.1%}"))
    return Table(ROWS, rows)

"""Rows of measured serving (schema serving/1): each quantity that was measured next to what napkin predicts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator


from napkin.errors import NapkinError
from napkin.evidence.compared import Compared
from napkin.evidence.published import MAIN

from napkin.evidence.rows import RowFields, WrongRow


from napkin.inputs.load import printable
from napkin.record import record

RATES = (
    *("output_tokens_per_second", "output_tokens_per_second_per_gpu", "total_tokens_per_second"),
    *("total_tokens_per_second_per_gpu", "requests_per_second", "prefill_tokens_per_second"),
    *("prefill_tokens_per_second_per_gpu", "decode_tokens_per_second"),
)
TIMES = (
    *("ttft_ms", "ttft_mean_ms", "ttft_median_ms", "tpot_ms", "tpot_mean_ms", "tpot_median_ms"),
    *("itl_ms", "itl_mean_ms", "itl_median_ms", "total_latency_ms"),
)
BYTES = (
    *("kv_cache_tokens", "kv_cache_gib_per_gpu", "kv_cache_gb_per_gpu"),
    *("weights_gib", "weights_gib_per_gpu", "weights_gb_per_gpu"),
)
QUANTITIES = (*RATES, *TIMES, *BYTES)
"""Keys of `measured` that are predicted."""
ABOUT = re.compile(r"^~?\s*([0-9][0-9.,]*)\s*([kKM]?)$")
THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}


@record
class MeasuredServing:
    """A quantity that a row measured. over: of how many tokens, 0 where the load says it; value None: `why`."""

    name: str
    value: float | None
    over: int = 0
    why: str = ""


def measured(row: RowFields) -> Iterator[MeasuredServing]:
    """Yield each quantity that a row measured itself: what follows from others by arithmetic is left out. A mapping of
    lengths to rates (llama-bench) is a quantity each."""
    stated = row.part("measured")
    derived = stated.get("derived") or ()
    for name in QUANTITIES:
        if name not in stated or name in derived:
            continue
        value = stated[name]
        if isinstance(value, dict):
            for length, one in value.items():
                yield MeasuredServing(name, *_number(row, name, one), over=int(str(length)))
        else:
            yield MeasuredServing(name, *_number(row, name, value))


def _number(row: RowFields, name: str, value: object) -> tuple[float | None]:
    """Return a figure as printed: 30k, ~23."""
    if isinstance(value, str) and (found := ABOUT.match(value)):
        return (float(found[1].replace(",", "")) * THOUSANDS[found[2]],)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return (None,)
    return (float(value),)

"""Quantities as people write them: what is read, what is refused, and the algebra of units."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin import units


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (units.count, "70B", 70_000_000_000),
        (units.count, "70b", 70_000_000_000),
        (units.count, "70 B", 70_000_000_000),
        (units.count, "70_000", 70_000),
        (units.count, "1k", 1000),
        (units.count, "4Ki", 4096),
        (units.count, "15t", 15_000_000_000_000),
        (units.count, "1.5e12", 1_500_000_000_000),
        (units.count, "7billion", 7_000_000_000),
        (units.count, "1.5 trillion", 1_500_000_000_000),
        (units.count, "70.5B", 70_500_000_000),
        (units.size, "80GB", 80 * 10**9),
        (units.size, "80gb", 80 * 10**9),
        (units.size, "80GiB", 80 * 2**30),
        (units.size, "512", 512),
        (units.duration, "30d", 30 * 86400),
        (units.duration, "12h", 43200),
        (units.duration, "1y", 365 * 86400),
        (units.duration, "90 s", 90),
        (units.duration, "2 hrs", 7200),
        (units.duration, "1 minute", 60),
        (units.duration, "1.5min", 90),
        (units.duration, "250us", 0.00025),
        (units.fraction, "50%", 0.5),
        (units.fraction, "0.4", 0.4),
        (units.fraction, "1", 1),
        (units.bandwidth, "3.35TB/s", 3_350_000_000_000),
        (units.bandwidth, "400Gbit/s", 50_000_000_000),
        (units.bandwidth, "400Gbps", 50_000_000_000),
        (units.compute_rate, "989.4T", 989_400_000_000_000),
        (units.compute_rate, "67TFLOP/s", 67_000_000_000_000),
        (units.shape, "4096x4096x8", (4096, 4096, 8)),
    ],
)
def test_read(reader: Callable[[str], object], text: str, value: object) -> None:
    assert reader(text) == value
    assert type(reader(text)) is type(value)


@pytest.mark.parametrize(
    ("reader", "text", "reason", "hint"),
    [
        (units.size, "80G", "ambiguous", "80GB (1000s) or 80GiB"),
        (units.size, "80Gb", "bits or bytes", "80GB"),
        (units.duration, "1m", "ambiguous", "1min"),
        (units.duration, "6mo", "months differ", "180d"),
        (units.duration, "1900", "no unit of time", "1900ms"),
        (units.duration, "30", "no unit", "30d"),
        (units.count, "1m", "ambiguous", "1M for million"),
        (units.fraction, "50", "share", "0.5"),
        (units.fraction, "0", "share", None),
        (units.count, "70,000", "not a number", "70000"),
        (units.count, "0x10", "hexadecimal", "decimal"),
        (units.count, "７", "not a number", None),
        (units.count, "nan", "not a number", None),
        (units.count, "inf", "not a number", None),
        (units.count, "1e400", "out of range", None),
        (units.count, "1e99999", "out of range", None),
        (units.count, "9" * 5000, "too long", None),
        (units.count, "-5", "negative", None),
        (units.count, "1.5", "whole number", None),
        (units.positive_count, "0", "above zero", None),
        (units.count, "", "missing", None),
        (units.count, "7B7", "unknown unit", None),
        (units.bandwidth, "0", "has no unit", None),
        (units.bandwidth, "10Gb/s", "bits or bytes", "Gbit/s"),
        (units.shape, "4x", "not a shape", None),
        (units.shape, "4x-1", "not a shape", None),
        (units.probability, "1", "share", None),
    ],
)
def test_refuse(reader: Callable[[str], object], text: str, reason: str, hint: str | None) -> None:
    with pytest.raises(units.Unreadable) as problem:
        reader(text)
    assert reason in problem.value.reason
    if hint:
        assert hint in str(problem.value.hint)


@given(st.integers(0, 10**15), st.sampled_from(["", "k", "M", "B", "T", "Ki", "Mi", "Gi"]))
def test_counts_convert_exactly(number: int, prefix: str) -> None:
    scale = {**units.DECIMAL, **units.BINARY}[prefix.lower()]
    assert units.count(f"{number}{prefix}") == number * scale


@given(st.integers(1, 10**6), st.sampled_from(["s", "min", "h", "d", "w", "y"]))
def test_durations_convert_exactly(number: int, unit: str) -> None:
    assert units.duration(f"{number}{unit}") == number * units.SECONDS[unit][0]


@given(st.text(max_size=30))
def test_no_text_makes_a_reader_fail_otherwise(text: str) -> None:
    for reader in (units.count, units.size, units.duration, units.fraction, units.bandwidth, units.shape, units.number):
        with contextlib.suppress(units.Unreadable):
            reader(text)


UNITS = st.sampled_from(
    ["byte", "second", "FLOP", "FLOP/s", "FLOP/s/GPU", "GPU", "GPU-hour", "USD/GPU-hour", "1", "watt"]
)


@given(UNITS, UNITS)
def test_a_unit_divided_by_another_and_multiplied_is_itself(a: str, b: str) -> None:
    quotient = units.combine((a, 1), (b, -1))
    assert units.exponents(units.combine((quotient, 1), (b, 1))) == units.exponents(a)


def test_units_combine_as_the_contract_spells_them() -> None:
    assert units.combine(("FLOP/s/GPU", 1), ("GPU", 1)) == "FLOP/s"
    assert units.combine(("USD/GPU-hour", 1), ("GPU-hour", 1)) == "USD"
    assert units.combine(("FLOP", 1), ("byte", -1)) == "FLOP/byte"
    assert units.combine(("watt/GPU", 1), ("GPU", 1), ("second", 1)) == "joule"
    with pytest.raises(ValueError, match="units differ"):
        units.same("byte", "second")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (80 * 10**9, "byte", "80.00 GB (74.51 GiB)"),
        (128, "byte", "128 bytes"),
        (1, "byte", "1 byte"),
        (12434000.0, "second", "143.9 days"),
        (0.0123, "second", "12.30 ms"),
        (6.3e24, "FLOP", "6.300e24 FLOP"),
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
        (40 * 10**9, "param", "40.00 B parameters"),
        (1024, "GPU", "1,024 GPUs"),
        (2000000.0, "USD", "$2,000,000"),
        (0.5, "1", "0.5"),
        (float("inf"), "byte", "out of range"),
    ],
)
def test_human(value: float, unit: str, text: str) -> None:
    assert units.human(value, unit) == text

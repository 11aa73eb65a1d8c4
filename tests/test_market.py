"""`plan` over several accelerators: the cheapest in time, the front of time against money, prices with their dates."""

from __future__ import annotations

import pytest

from napkin.evidence.prices import PRICES
from napkin.term import fold
from tests.conftest import Napkin, answered

LINE = "plan llama3-8b --hardware h100,a100 --gpus 32,64 --tokens 1T"


def test_each_machine_is_the_plan_of_that_machine(napkin: Napkin) -> None:
    rows = napkin(f"{LINE} --json").data["rows"]
    assert {(row["hardware"], row["gpus"]) for row in rows} == {
        (slug, gpus) for slug in ("h100-sxm-80gb", "a100-sxm-80gb") for gpus in (32, 64)
    }
    for row in rows:
        price = PRICES[row["hardware"]]
        assert (row["price"], row["price/date"]) == (price.middle, price.date)
        assert row["cost"] == pytest.approx(row["gpu_hours"] * price.middle)
        assert row["cost/low"] == pytest.approx(row["cost"] * row["low"] / row["time"] * price.low / price.middle)
    own = napkin("plan llama3-8b --hardware a100 --gpus 64 --tokens 1T --price 1.3 --json").values
    one = next(row for row in rows if row["hardware"].startswith("a100") and row["gpus"] == 64)
    assert (one["time"], one["cost"]) == (pytest.approx(own["time"]), pytest.approx(own["cost"]))


def test_the_front_is_what_no_other_beats() -> None:
    rows = [row for row in answered(LINE).rows or () if "cost" in row]
    for row in rows:
        beaten = any(
            float(str(other["time"])) < float(str(row["time"])) and float(str(other["cost"])) < float(str(row["cost"]))
            for other in rows
        )
        assert not (row["pareto"] and beaten)
        assert row["pareto"] or beaten
    assert sum(bool(row["recommended"]) for row in rows) == 1


def test_the_cheapest_in_time_is_recommended(napkin: Napkin) -> None:
    free = napkin(f"{LINE} --json").values
    soon = napkin(f"{LINE} --within 25d --json").values
    assert free["cost"] <= soon["cost"]
    assert soon["time"] <= 25 * 86400 < free["time"] or free["cost"] == soon["cost"]
    fast = napkin(f"{LINE} --min time --json").values
    assert fast["time"] <= soon["time"]
    never = napkin(f"{LINE} --within 1h --json")
    assert (never.status, never.data["verdict"]) == (1, "impossible")
    for term in answered(LINE).terms:
        assert fold(term) == pytest.approx(term.value)


def test_without_a_count_the_fewest_in_time_are_taken(napkin: Napkin) -> None:
    rows = napkin("plan llama3-8b --hardware h100,a100 --tokens 1T --within 30d --json").data["rows"]
    assert all(row["time"] <= 30 * 86400 for row in rows)
    assert rows[0]["gpus"] < rows[1]["gpus"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan llama3-8b --hardware h100,b200 --gpus 64 --tokens 1T", "no price of it is known"),
        ("plan llama3-8b --hardware h100,a100 --gpus 64", "--tokens is missing"),
        ("plan llama3-8b --hardware h100,a100 --tokens 1T", "--gpus is missing"),
        ("plan llama3-8b --hardware h100,,a100 --gpus 8 --tokens 1T", "names nothing"),
        ("plan llama3-8b --hardware h100,a100 --gpus 64 --min gpus --tokens 1T", "a contradiction"),
        ("memory llama3-8b --hardware h100,a100", "is several values"),
    ],
)
def test_what_is_missing_is_named(napkin: Napkin, line: str, said: str) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert said in outcome.errors[0]

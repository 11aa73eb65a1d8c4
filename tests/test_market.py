"""`plan` over several accelerators: the cheapest in time, the front of time against money, prices with their dates."""

from __future__ import annotations

import pytest

from napkin.evidence.figures.prices import PRICES
from napkin.term import fold
from tests.conftest import Napkin, answered

LINE = "plan llama3-8b --hardware h100,a100 --gpus 32,64 --tokens 1T"


def test_each_machine_is_the_plan_of_that_machine(napkin: Napkin) -> None:
    rows = napkin(f"{LINE} --json").data["rows"]
    assert {(row["hardware"], row["gpus"]) for row in rows} == {
        (slug, gpus) for slug in ("h100-sxm-80gb", "a100-sxm-80gb") for gpus in (32, 64)
    }
    for row in rows:
        asked = PRICES[row["hardware"]]
        assert (row["price"], row["price/date"]) == (asked.middle, asked.date)
        assert row["cost"] == pytest.approx(row["gpu_hours"] * asked.middle)
        assert row["cost/low"] == pytest.approx(row["cost"] * row["low"] / row["time"] * asked.low / asked.middle)
    price = PRICES["a100-sxm-80gb"].middle
    own = napkin(f"plan llama3-8b --hardware a100 --gpus 64 --tokens 1T --price {price} --json").values
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


TUNED = "plan llama3-8b --hardware h100,a100 --task sft --adapter lora --lora-rank 16"


@pytest.mark.parametrize(
    "amount",
    [
        "--samples 50k --sample-tokens 400 --epochs 3 --packing",  # 50,000 · 400 · 3
        "--steps 100 --global-batch 150 --seq 4000",  # 100 · 150 · 4,000
    ],
)
def test_the_amount_is_reported_as_for_one_machine(napkin: Napkin, amount: str) -> None:
    found = napkin(f"{TUNED} {amount} --gpus 1 --json")
    assert found.data["inputs"]["tokens"]["value"] == 60_000_000
    assert found.values["cost/per_token"] * 60_000_000 == pytest.approx(found.values["cost"])
    assert "llama3-8b on 60M tokens" in napkin(f"{TUNED} {amount} --gpus 1").out


def test_without_a_limit_each_machine_is_the_smallest_that_fits(napkin: Napkin) -> None:
    run = "--tokens 1B --adapter lora --lora-rank 16 --json"
    counts = {
        one["hardware"]: one["gpus"] for one in napkin(f"plan llama3-8b --hardware h100,rtx-3090 {run}").data["rows"]
    }
    least = napkin(f"plan llama3-8b --hardware rtx-3090 --min gpus {run}")
    assert counts["h100-sxm-80gb"] == 1
    assert counts["rtx-3090"] == least.values["gpus"] > 1


def test_reinforcement_learning_is_compared_by_its_steps(napkin: Napkin) -> None:
    line = (
        "plan qwen2.5-7b --task grpo --prompt-tokens 200 --response-tokens 800 --samples-per-prompt 8 "
        "--global-batch 128 --steps 100 --gpus 8"
    )
    found = napkin(f"{line} --hardware h100,a100 --json")
    own = napkin(f"{line} --hardware a100 --price {PRICES['a100-sxm-80gb'].middle} --json").values
    row = next(row for row in found.data["rows"] if row["hardware"] == "a100-sxm-80gb")
    assert (row["time"], row["cost"]) == (pytest.approx(own["time"]), pytest.approx(own["cost"]))
    assert "qwen2.5-7b on 100 steps" in napkin(f"{line} --hardware h100,a100").out


def test_a_card_that_is_rented_by_the_machine_is_no_cluster(napkin: Napkin) -> None:
    """A price of single machines says nothing of 64 of them on a network."""
    assert PRICES["rtx-4090"].most == 8
    for count in ("--gpus 64", "--within 30d"):
        rows = napkin(f"plan llama3-8b --hardware h100,rtx-4090 --tokens 1T {count} --json").data["rows"]
        assert [row["hardware"] for row in rows if "cost" in row] == ["h100-sxm-80gb"]
        assert "up to 8" in next(row["why"] for row in rows if row["hardware"] == "rtx-4090")
    some = napkin("plan llama3-8b --hardware h100,rtx-4090 --tokens 1B --gpus 8 --json").data["rows"]
    assert all("cost" in row for row in some)


@pytest.mark.parametrize("count", ["0.5k", "5e2", "500.0"])
def test_a_number_of_gpus_is_read_like_any_other(napkin: Napkin, count: str) -> None:
    rows = napkin(f"plan llama3-8b --hardware h100,a100 --tokens 1T --gpus {count} --json").data["rows"]
    assert [row["gpus"] for row in rows] == [500, 500]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan llama3-8b --hardware h100,h800 --gpus 64 --tokens 1T", "no price of it is known"),
        ("plan llama3-8b --hardware h100,a100 --gpus 64", "--tokens is missing"),
        ("plan llama3-8b --hardware h100,a100 --tokens 1T --budget 50000", "--budget does not determine --gpus"),
        ("plan llama3-8b --hardware h100,,a100 --gpus 8 --tokens 1T", "names nothing"),
        ("plan llama3-8b --hardware h100,a100 --gpus 64 --min gpus --tokens 1T", "a contradiction"),
        ("memory llama3-8b --hardware h100,a100", "is several values"),
    ],
)
def test_what_is_missing_is_named(napkin: Napkin, line: str, said: str) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert said in outcome.errors[0]

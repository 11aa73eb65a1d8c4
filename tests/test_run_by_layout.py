"""`train-time` of a MODEL whose layout is given: the step model says what it takes, as `step` and `plan` do."""

from __future__ import annotations

import math

import pytest

from napkin.planning.fewest import EIGHTHS, fewest
from tests.conftest import Napkin

RUN = "gpt2 --tokens 300B --hardware h100"
LAYOUT = "--tp 1 --pp 1 --cp 1 --vp 1 --zero 1 --micro-batch 8 --recompute none --implementation megatron"


def test_a_deadline_finds_the_fewest_gpus_of_this_very_layout(napkin: Napkin) -> None:
    line = f"{RUN} {LAYOUT} --seq 1024 --global-batch 512"
    found = napkin(f"train-time {line} --within 2d --json").data
    gpus, time = found["values"]["gpus"], found["values"]["time"]
    assert found["inputs"]["gpus"]["origin"] == "solved"
    assert found["values"]["time/allowed"] == 2 * 86400
    assert time <= 2 * 86400
    step = napkin(f"step {line.replace('--tokens 300B ', '')} --gpus {gpus} --json").values
    assert time == pytest.approx(300e9 / (512 * 1024) * step["step/time"] / found["values"]["goodput"])
    assert napkin(f"train-time {line} --gpus {gpus} --json").values["time"] == pytest.approx(time)
    fewer = napkin(f"train-time {line} --gpus {gpus // 2} --json").values["time"]
    assert fewer > 2 * 86400


def test_plan_with_every_degree_given_finds_the_same(napkin: Napkin) -> None:
    line = f"{RUN} {LAYOUT} --seq 1024 --global-batch 512 --within 2d"
    mine, plan = napkin(f"train-time {line} --json").values, napkin(f"plan {line} --json").values
    assert mine["gpus"] == plan["gpus"]
    assert mine["time"] == pytest.approx(plan["time"])


def test_degrees_with_dp_say_how_many_gpus(napkin: Napkin) -> None:
    found = napkin("train-time llama3-8b --tokens 1T --hardware h100 --dp 16 --tp 2 --json").data
    assert found["inputs"]["gpus"] == {"value": 32, "origin": "derived", "given": None}
    assert found["values"] == napkin("train-time llama3-8b --tokens 1T --hardware h100 --gpus 32 --tp 2 --json").values


HELD = [("32", "30d", "broken", 1), ("64", "40d", "too close to call", 4), ("64", "90d", "holds", 0)]


@pytest.mark.parametrize(("gpus", "within", "verdict", "status"), HELD)
def test_a_layout_on_given_gpus_is_held_against_the_deadline(
    napkin: Napkin, gpus: str, within: str, verdict: str, status: int
) -> None:
    found = napkin(f"train-time llama3-8b --tokens 1T --hardware h100 --gpus {gpus} --tp 2 --within {within} --json")
    assert found.data["verdict"] == verdict
    assert found.status == status


def test_a_deadline_that_no_number_meets_says_why(napkin: Napkin) -> None:
    found = napkin("train-time llama3-8b --tokens 100B --hardware h100 --within 1h --zero 3 --global-batch 64")
    assert found.status == 1
    assert "no number of GPUs up to" in found.err
    assert "--global-batch 64 is not a multiple" in found.err


def test_the_fewest_are_whole_nodes_and_multiples_of_the_degrees() -> None:
    for need in (1, 3, 5, 8, 9, 17, 40, 100, 1000):
        exact = fewest(lambda n, need=need: n >= need, 8, 1 << 20)  # type: ignore[misc]
        assert exact == (1 << (need - 1).bit_length() if need <= 8 else 8 * math.ceil(need / 8))
        coarse = fewest(lambda n, need=need: n >= need, 8, 1 << 20, 1, EIGHTHS)  # type: ignore[misc]
        assert exact is not None
        assert coarse is not None
        assert exact <= coarse <= max(exact * 9 / 8, exact + 8)
        by_six = fewest(lambda n, need=need: n >= need, 8, 1 << 20, 6)  # type: ignore[misc]
        assert by_six is not None
        assert by_six % 6 == 0
        assert by_six >= need
    assert fewest(lambda n: False, 8, 64) is None

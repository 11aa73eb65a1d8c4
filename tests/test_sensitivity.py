"""`napkin sensitivity`: elasticities of laws that are known, flips against the closed form."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import pytest

from napkin.planning.grid import Request
from napkin.planning.layouts import LayoutQuestion
from napkin.planning.search import Fastest
from tests.conftest import Napkin, Outcome

RUN = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --price 2"
WORK = 6 * 70e9 * 15e12


def rows(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {row["input"]: row for row in outcome.data["rows"]}


def test_time_falls_with_the_rate_and_grows_with_the_work(napkin: Napkin) -> None:
    found = rows(napkin(f"sensitivity {RUN} --json"))
    assert {name: round(row["elasticity"], 2) for name, row in found.items()} == {
        "mfu": -1,
        "peak-flops": -1,
        "gpus": -1,
        "params": 1,
        "tokens": 1,
    }
    assert found["mfu"]["at_low"] == pytest.approx(WORK / (989.4e12 * 0.36 * 1024))
    assert found["mfu"]["at_high"] == pytest.approx(WORK / (989.4e12 * 0.44 * 1024))


def test_an_estimated_input_is_moved_over_its_interval(napkin: Napkin) -> None:
    line = "train-time llama3-8b --tokens 1T --gpus 64 --hardware h100"
    values = napkin(f"{line} --json").values
    outcome = napkin(f"sensitivity {line} --json")
    found = rows(outcome)
    for name in ("mfu", "goodput"):
        ends = values[f"{name}/low"], values[f"{name}/high"]
        assert (found[name]["low"], found[name]["high"]) == pytest.approx(ends)
        assert found[name]["estimated"]
    assert found["mfu"]["at_low"] == pytest.approx(values["time/high"], rel=1e-6)
    assert not found["tokens"]["estimated"]
    assert found["tokens"]["low"] == 0.9e12
    assert any("mfu" in note and "interval of the estimate" in note for note in outcome.data["notes"])


def test_a_machine_without_layouts_is_not_answered_with_another(napkin: Napkin) -> None:
    """29 GPUs are 29 stages; 35 divide neither the model nor the batch, and twice as many are asked."""
    line = "plan llama3-8b --gpus {} --hardware h100 --seq 4096 --global-batch 32"
    moved = rows(napkin(f"sensitivity {line.format(32)} --vary gpus --json"))["gpus"]
    assert (moved["low"], moved["high"]) == (29, 64)
    for gpus, seconds in ((29, moved["at_low"]), (64, moved["at_high"])):
        assert napkin(f"{line.format(gpus)} --json").values["step/time"] == seconds


def test_the_widest_comes_first(napkin: Napkin) -> None:
    swings = [row["swing"] for row in napkin(f"sensitivity {RUN} --json").data["rows"]]
    assert swings == sorted(swings, reverse=True)


def test_energy_moves_with_power_and_not_with_the_number_of_gpus(napkin: Napkin) -> None:
    found = rows(napkin(f"sensitivity {RUN} --show energy --json"))
    assert found["tdp"]["elasticity"] == pytest.approx(1)
    assert found["pue"]["elasticity"] == pytest.approx(1)
    assert "gpus" not in found
    assert found["pue"]["low"] is None  # 1.1 − 10 % is below 1: no such room


def test_a_limit_flips_where_algebra_says(napkin: Napkin) -> None:
    """time ≤ 150 d holds from mfu = 6·N·D/(P·n·150 d) on; the number of GPUs is whole."""
    outcome = napkin([*f"sensitivity {RUN} --json --limit".split(), "time <= 150d"])
    found = rows(outcome)
    assert outcome.data["verdict"] == "broken"
    allowed = 150 * 86400
    assert found["mfu"]["flip"] == pytest.approx(WORK / (989.4e12 * 1024 * allowed), rel=1e-6)
    assert found["mfu"]["becomes"] == "holds"
    assert found["gpus"]["flip"] == -(-WORK // (989.4e12 * 0.4 * allowed))


def test_the_price_at_which_the_other_machine_is_cheaper(napkin: Napkin) -> None:
    """b200 does 2250/989.4 as much an hour: at 8 USD it is cheaper once the h100 costs more than 3.518."""
    found = rows(napkin(f"sensitivity {RUN} --show cost --against hardware=b200,price=8 --json"))
    assert found["price"]["flip"] == pytest.approx(8 * 989.4 / 2250, rel=1e-6)
    assert found["tokens"]["flip"] is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--limit", "tiem <= 150d"], "no such quantity"),
        (["--limit", "time at most 150d"], "not a condition"),
        (["--limit", "time <= 150d", "--against", "price=3"], "two decisions"),
        (["--vary", "hardware"], "is not a number"),
        (["--vary", "speed"], "no option"),
        (["--show", "time,cost"], "one quantity"),
        (["--change", "0"], "not a share"),
    ],
)
def test_what_sensitivity_refuses(napkin: Napkin, more: list[str], words: str) -> None:
    outcome = napkin([*f"sensitivity {RUN}".split(), *more])
    assert outcome.status == 2
    assert words in outcome.err
    assert outcome.out == ""


def test_the_tornado_names_its_inputs(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "tornado.svg"
    assert napkin(f"sensitivity {RUN} --plot {picture}").status == 0
    assert all(words in picture.read_text() for words in ("time (days)", "peak FLOPs", "input lower"))


@pytest.mark.slow
def test_a_deadline_is_moved_without_another_search(napkin: Napkin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadline and tokens leave the layouts as they are; memory bandwidth does not."""
    searches: list[int] = []
    fastest = LayoutQuestion.fastest

    def counted(question: LayoutQuestion, request: Request) -> Fastest:
        searches.append(request.gpus)
        return fastest(question, request)

    monkeypatch.setattr(LayoutQuestion, "fastest", counted)
    line = "plan llama3-8b --gpus 16 --hardware h100 --seq 4096 --global-batch 32 --tokens 100B --within 30d"
    found = rows(napkin(f"sensitivity {line} --vary within,tokens --json"))
    assert searches == [16]
    assert found["tokens"]["flip"] is not None
    moved = rows(napkin(f"sensitivity {line} --vary memory-bandwidth --json"))["memory-bandwidth"]
    assert len(searches) > 2
    bandwidth = f"{moved['low']:.17g}B/s"
    assert napkin(f"{line} --memory-bandwidth {bandwidth} --json").values["time"] == moved["at_low"]


@pytest.mark.slow
def test_the_fit_of_a_plan_flips_where_its_layouts_are_counted(napkin: Napkin) -> None:
    """Whether the chosen layout fits is judged only along with how many do."""
    line = "plan llama3-8b --gpus 16 --hardware h100 --seq 4096 --global-batch 32"
    counted = napkin(f"sensitivity {line} --show layouts/fit --vary memory-size --json")
    assert counted.data["verdict"] == "fits"
    assert rows(counted)["memory-size"]["becomes"] == "too close to call"
    assert "flip" not in rows(napkin(f"sensitivity {line} --vary memory-size --json")).get("memory-size", {})


@pytest.mark.parametrize(
    ("line", "path", "exponent"),
    [
        ("optimal --compute 1e22", "params", 0.51),  # Besiroglu et al. 2024: N grows as C^0.513
        ("train-time --params 70B --tokens 15T --hardware h100 --within 30d --mfu 0.4", "gpus/exact", -1.0),
        ("train-time --params 70B --tokens 15T --gpus 512 --hardware h100 --mfu 0.4", "time", -1.0),
    ],
)
def test_what_was_solved_for_is_watched(napkin: Napkin, line: str, path: str, exponent: float) -> None:
    """The quantity that is given, a deadline or the compute, moves with nothing but itself."""
    rows = napkin(f"sensitivity {line} --json").data
    assert next(iter(rows["values"])) == path
    first = next(row for row in rows["rows"] if row["input"] in ("compute", "mfu"))
    slope = math.log(first["at_high"] / first["at_low"]) / math.log(1.1 / 0.9)
    assert slope == pytest.approx(exponent, abs=0.01)

"""The lecture's first napkin: its numbers, its inverse solves, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Napkin, run_line

LECTURE = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5"


def test_the_lecture_s_first_question(napkin: Napkin) -> None:
    values = napkin(f"{LECTURE} --price 2 --json").values
    assert values["flops/total"] == 6 * 70 * 10**9 * 15 * 10**12
    # 6.3e24 / (1024 · 0.5 · 989.4e12) s
    assert values["time"] == pytest.approx(6.3e24 / (1024 * 0.5 * 989.4e12), rel=1e-12)
    assert values["time"] / 86400 == pytest.approx(143.9, abs=0.05)
    assert values["gpu_hours"] == pytest.approx(1024 * values["time"] / 3600)
    assert values["cost"] == pytest.approx(2 * values["gpu_hours"])
    assert values["energy"] == pytest.approx(1024 * 700 * 1.3 * values["time"] * 1.1)
    assert values["carbon"] == pytest.approx(values["energy"] / 3.6e6 * 0.385)


def test_paths_units_and_inputs_of_the_contract(napkin: Napkin) -> None:
    data = napkin(f"{LECTURE} --price 2 --json").data
    assert data["napkin"] == 1
    assert data["command"] == "train-time"
    for path, unit in {
        "time": "second",
        "flops/total": "FLOP",
        "mfu": "1",
        "gpus": "GPU",
        "tokens": "token",
        "params": "param",
        "gpu_hours": "GPU-hour",
        "cost": "USD",
        "energy": "joule",
    }.items():
        assert data["units"][path] == unit
        assert path in data["values"]
    assert data["inputs"]["params"] == {"value": 70 * 10**9, "origin": "given", "given": "70B"}
    assert data["inputs"]["pue"]["origin"] == "default"


@given(
    st.integers(10**6, 10**13),
    st.integers(10**6, 10**14),
    st.integers(1, 10**5),
    st.floats(0.01, 1, allow_nan=False),
)
def test_every_inverse_solve_undoes_the_forward_one(params: int, tokens: int, gpus: int, mfu: float) -> None:
    machine = "--hardware h100 --json"
    ahead = run_line(f"train-time --params {params} --tokens {tokens} --gpus {gpus} --mfu {mfu!r} {machine}").values
    within = f"--within {ahead['time']!r}s {machine}"
    assert run_line(f"train-time --tokens {tokens} --gpus {gpus} --mfu {mfu!r} {within}").values[
        "params"
    ] == pytest.approx(params, abs=1.5, rel=1e-12)
    assert run_line(f"train-time --params {params} --gpus {gpus} --mfu {mfu!r} {within}").values[
        "tokens"
    ] == pytest.approx(tokens, abs=1.5, rel=1e-12)
    assert run_line(f"train-time --params {params} --tokens {tokens} --gpus {gpus} {within}").values[
        "mfu"
    ] == pytest.approx(mfu, rel=1e-9)
    back = run_line(f"train-time --params {params} --tokens {tokens} --mfu {mfu!r} {within}").values
    assert back["gpus/exact"] == pytest.approx(gpus, rel=1e-9)
    assert back["gpus"] in (gpus, gpus + 1)  # rounded up from a float that may lie a hair above


def test_a_solved_number_of_gpus_keeps_within_the_time(napkin: Napkin) -> None:
    values = napkin("train-time --params 70B --tokens 15T --hardware h100 --mfu 0.4 --within 30d --json").values
    assert isinstance(values["gpus"], int)
    assert values["time"] <= 30 * 86400 < 6.3e24 / ((values["gpus"] - 1) * 0.4 * 989.4e12)


def test_a_budget_ties_two_unknowns(napkin: Napkin) -> None:
    line = "train-time --params 7B --gpus 256 --hardware a100 --mfu 0.45 --price 2 --budget 2000000 --json"
    values = napkin(line).values
    assert values["gpu_hours"] == pytest.approx(1e6)
    assert values["cost"] == pytest.approx(2e6)
    assert values["tokens"] == pytest.approx(312e12 * 0.45 * 1e6 * 3600 / (6 * 7e9), abs=1)


@pytest.mark.parametrize("size", ["--params 7B", "--tokens 1T", "llama3-8b"])
def test_a_budget_alone_buys_tokens_or_parameters(napkin: Napkin, size: str) -> None:
    """2,000,000 USD at 2 an hour are 10⁶ GPU-hours, whatever the number of GPUs: they do as much as on 64."""
    line = f"train-time {size} --hardware a100 --mfu 0.45 --price 2 --budget 2000000 --json"
    values, laid_out = napkin(line).values, napkin(f"{line} --gpus 64").values
    assert not {"gpus", "time", "time/uninterrupted"} & set(values)
    assert values["flops/total"] == pytest.approx(312e12 * 0.45 * 1e6 * 3600)
    for path in ("params", "tokens", "gpu_hours", "cost", "energy", "carbon"):
        assert values[path] == pytest.approx(laid_out[path])


def test_a_budget_alone_with_an_estimated_mfu_has_an_interval(napkin: Napkin) -> None:
    found = napkin("train-time --params 7B --hardware a100 --price 2 --budget 2M --json").data
    low, tokens, high = (found[key]["tokens"] for key in ("low", "values", "high"))
    assert low < tokens < high
    assert "gpu_hours" not in found["low"]


def test_standby_gpus_need_a_number_of_gpus(napkin: Napkin) -> None:
    line = "train-time --params 7B --tokens-per-second-per-gpu 8k --budget 1M --price 2 --hardware h100 --spares 4"
    assert napkin(line).status == 2
    assert "--gpus is missing" in napkin(line).errors[0]
    assert napkin(f"{line} --gpus 64").status == 0


def test_active_parameters_serve_the_token(napkin: Napkin) -> None:
    base = "--params 671B --active-params 37B --tokens 14.8T --gpus 2048 --hardware h800 --mfu 0.3 --json"
    assert napkin(f"train-time {base}").values["flops/total"] == 6 * 37 * 10**9 * 148 * 10**11


@pytest.mark.parametrize(
    ("line", "status", "word"),
    [
        ("--params 70B --hardware h100 --mfu 0.5", 2, "--tokens, --gpus, --within"),
        ("--params 70B --tokens 15T --hardware h100 --mfu 0.5 --price 2 --budget 1M", 2, "product"),
        ("--params 70B --tokens 15T --gpus 8 --hardware mi250x --mfu 0.5 --budget 1M", 2, "--budget needs --price"),
        ("--params 70B --tokens 15T --gpus 8 --mfu 0.5", 2, "--hardware is missing"),
        ("--params 7B --active-params 70B --tokens 15T --gpus 8 --hardware h100 --mfu 0.5", 2, "above --params"),
        ("--params 70B --tokens 15T --gpus 8 --hardware v100 --dtype bf16 --mfu 0.5", 3, "no bf16"),
    ],
)
def test_unreadable_questions_and_too_many_unknowns_are_named(
    napkin: Napkin, line: str, status: int, word: str
) -> None:
    outcome = napkin(f"train-time {line}")
    assert outcome.status == status
    assert word in outcome.err
    assert outcome.out == ""
    assert len(outcome.errors) == 1


def test_an_impossible_answer_is_given_with_a_note(napkin: Napkin) -> None:
    outcome = napkin("train-time --params 70B --tokens 15T --hardware h100 --gpus 8 --within 30d --json")
    assert outcome.status == 1
    assert outcome.data["verdict"] == "impossible"
    assert outcome.values["mfu"] > 1


def test_an_overflowing_answer_is_left_out_with_a_note(napkin: Napkin) -> None:
    outcome = napkin("train-time --params 1e300 --tokens 1e300 --hardware h100 --gpus 8 --mfu 0.4 --json")
    assert outcome.status == 0
    assert "time" not in outcome.values
    assert any("flops/total is out of range" in note for note in outcome.data["notes"])


@given(st.sampled_from(["params", "tokens"]), st.integers(1, 1000))
def test_more_work_never_takes_less_time_and_more_gpus_never_more(name: str, factor: int) -> None:
    sizes = {"params": 10**9, "tokens": 10**11}
    line = "train-time --params {params} --tokens {tokens} --gpus {gpus} --hardware h100 --mfu 0.4 --json"
    base = run_line(line.format(**sizes, gpus=8)).values["time"]
    assert run_line(line.format(**{**sizes, name: sizes[name] * factor}, gpus=8)).values["time"] >= base
    assert run_line(line.format(**sizes, gpus=8 * factor)).values["time"] <= base


# --- without --mfu: published runs ---

ESTIMATED = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --json"


def test_without_mfu_published_runs_say_what_to_expect(napkin: Napkin) -> None:
    data = napkin(ESTIMATED).data
    values = data["values"]
    assert data["inputs"]["mfu"]["origin"] == "evidence"
    assert 0.27 < values["mfu"] < 0.31
    assert values["time"] == pytest.approx(6.3e24 / (1024 * values["mfu"] * 989.4e12))
    assert values["time/low"] < values["time"] < values["time/high"]
    assert values["time/high"] / values["time"] == pytest.approx(values["mfu"] / values["mfu/low"])
    assert any("Llama 3 70B" in run["model"] for run in data["evidence"])
    assert values["mfu/while_running"] == pytest.approx(values["mfu"] / values["goodput"])
    wide, narrow = (napkin(f"{ESTIMATED} --confidence {level}").values for level in (90, 50))
    assert wide["time/high"] > narrow["time/high"]


def test_an_estimated_mfu_solves_the_other_ways_round(napkin: Napkin) -> None:
    solved = napkin("train-time --params 70B --tokens 15T --hardware h100 --within 150d --json").values
    assert solved["gpus/low"] < solved["gpus"] < solved["gpus/high"]
    assert "gpus/exact" in solved
    tokens = napkin("train-time --params 8B --gpus 64 --hardware a100 --within 30d --json").values
    assert tokens["tokens/low"] < tokens["tokens"] < tokens["tokens/high"]
    assert "time/low" not in tokens
    # everything else is given: then the MFU is what is asked for
    asked = napkin("train-time --params 7B --tokens 1T --gpus 64 --hardware h100 --within 30d --json").data
    assert asked["inputs"]["mfu"]["origin"] == "solved"


def test_a_layout_asks_the_step_model(napkin: Napkin) -> None:
    line = "train-time llama3-70b --tokens 15T --gpus 1024 --hardware h100 --tp 8 --pp 4 --global-batch 2048"
    stepped = napkin(f"{line} --seq 8192 --json").data
    step = napkin(
        "step llama3-70b --gpus 1024 --hardware h100 --tp 8 --pp 4 --global-batch 2048 --seq 8192 --json"
    ).values
    exact, named = stepped["values"]["flops/exact"], stepped["values"]["flops/total"]
    # 6·N of the step model's MFU, times what whole runs keep of a good step
    goodput = stepped["values"]["goodput"]
    assert goodput == pytest.approx(0.89, abs=0.015)  # 0.88 on 2,330 GPUs, which fail more often
    assert stepped["values"]["mfu"] == pytest.approx(step["mfu"] * named / exact * goodput, rel=1e-6)


def test_the_solved_quantity_can_be_named(napkin: Napkin) -> None:
    base = "train-time --params 70B --tokens 15T --hardware h100 --mfu 0.4 --within 60d"
    assert napkin(f"{base} --min gpus --json").values == napkin(f"{base} --json").values
    for line, words in (
        (f"{base} --min time", "--within gives"),
        (f"{base} --gpus 64 --min gpus", "--gpus gives"),
        (f"{base} --max tokens", "--tokens gives"),
        (f"{base} --max seq", "not one of"),
    ):
        outcome = napkin(line)
        assert outcome.status == 2
        assert words in outcome.err

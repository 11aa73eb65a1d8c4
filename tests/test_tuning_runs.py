"""How much longer runs of fine-tuning take than their steps, and the commands that answer hours of such runs."""

import math
import os
import pathlib
import runpy

import pytest

from napkin.evidence.intervals.steps import NORMAL_90
from napkin.evidence.predictions import tuning_runs
from tests.conftest import ROOT, Napkin, run_line

THREE = (
    ("a", "one", 1, 0.1, 0.3, 0.3),
    ("b", "one", 4, 0.9, 0.3, 0.3),
    ("c", "two", 16, 0.2, 0.3, 0.3),
    ("d", "three", 1, -0.5, 0.3, 0.3),
)
LINE = "llama3.1-8b --task sft --lora-rank 16 --hardware a100 --gpus 1 --tokens 54.6M --seq 2048 --global-batch 8"


def test_the_usual_run_is_the_middle_source_and_runs_outside_widen_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of the rows are ½, ½, 1 and 1: half of 3 is reached at 0.1 (1 + ½). From there 0.9 lies 0.8 above, where
    the steps reach 0.3, and −0.5 lies 0.6 below."""
    monkeypatch.setattr(tuning_runs, "RUNS", THREE)
    assert tuning_runs.share() == pytest.approx(math.exp(-0.1))
    faster, slower = tuning_runs.spreads()
    assert faster == pytest.approx(math.sqrt(0.6**2 - 0.3**2) / NORMAL_90)
    assert slower == pytest.approx(math.sqrt(0.8**2 - 0.3**2) / NORMAL_90)
    assert tuning_runs.gpus() == pytest.approx(math.sqrt(8))


def test_a_source_is_judged_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_runs, "RUNS", THREE)
    assert tuning_runs.share("one") == pytest.approx(math.exp(0.5))
    assert tuning_runs.spreads("one") == pytest.approx((0.0, math.sqrt(0.7**2 - 0.3**2) / NORMAL_90))
    assert tuning_runs.spreads("three")[0] == 0.0


def test_only_the_slow_end_of_a_run_is_wider_than_its_steps(napkin: Napkin) -> None:
    found = napkin(f"train-time {LINE} --json")
    share, ends = found.values["goodput"], (found.data["low"]["goodput"], found.data["high"]["goodput"])
    assert share == pytest.approx(tuning_runs.share(), rel=0.01)
    assert share / ends[0] > 1.2 > 1.01 > ends[1] / share
    seconds, low, high = (found.data[one]["time"] for one in ("values", "low", "high"))
    step = found.values["time/uninterrupted"], found.data["low"]["time/uninterrupted"]
    assert seconds / low == pytest.approx(step[0] / step[1], rel=0.01)
    assert high / seconds > seconds / low


def test_every_command_that_answers_hours_of_fine_tuning_has_one_interval(napkin: Napkin) -> None:
    asked = napkin(f"train-time {LINE} --json")
    layout = napkin(f"plan {LINE} --json --micro-batch 1").data["rows"][0]
    both = [(asked.data[one]["time"] / asked.values["time"]) for one in ("low", "high")]
    assert [layout["low"] / layout["time"], layout["high"] / layout["time"]] == pytest.approx(both, rel=0.05)
    within = napkin(f"train-time {LINE.replace('--gpus 1', '--within 1h')} --zero 3 --json")
    assert within.values["goodput"] == pytest.approx(asked.values["goodput"], rel=0.02)


def test_pretraining_and_reinforcement_learning_keep_their_own_goodput(napkin: Napkin) -> None:
    plain = napkin("train-time llama3.1-8b --hardware h100 --gpus 8 --tokens 1B --zero 3 --json")
    assert plain.data["high"]["goodput"] > plain.values["goodput"] * 1.05
    told = run_line(
        "train-time qwen2.5-7b --task grpo --gpus 8 --hardware h100 --zero 3 --trainer verl --prompt-tokens 200 "
        "--response-tokens 1000 --samples-per-prompt 8 --global-batch 128 --steps 200 --json"
    )
    assert told.values["goodput"] == pytest.approx(plain.values["goodput"], rel=0.02)


def test_the_errors_of_published_runs_are_those_of_today() -> None:
    tool = runpy.run_path(os.path.join(ROOT, "tools", "tuning_run_accuracy.py"))
    table = pathlib.Path(tool["TABLE"]).read_text(encoding="utf-8")
    assert tool["text"]() == table, "python tools/tuning_run_accuracy.py"

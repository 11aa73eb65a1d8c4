"""A training log beside the prediction: what it says, how much it scatters, and what would explain a gap."""

from __future__ import annotations

import pathlib

import pytest

from napkin.errors import NapkinError
from napkin.inputs.log_file import read_log
from tests.conftest import Napkin

LINE = (
    " iteration {i:8d}/   100 | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.0E-04 |"
    " global batch size:   512 | lm loss: 1.0E+01\n"
)
ASKED = "mfu llama3-70b --gpus 256 --hardware h100 --seq 8192 --tp 8 --pp 4 --stack megatron-core --json --log"


def log_of(tmp_path: pathlib.Path, times: list[float]) -> str:
    path = tmp_path / "train.log"
    path.write_text("> building\n" + "".join(LINE.format(i=i, ms=ms) for i, ms in enumerate(times)), encoding="utf-8")
    return str(path)


def test_a_log_is_its_median_after_warm_up(tmp_path: pathlib.Path) -> None:
    found = read_log(log_of(tmp_path, [60000.0] * 3 + [12000.0, 12100.0, 12200.0] * 9))
    assert found.quantities["step_seconds"] == pytest.approx(12.1)
    assert found.quantities["global_batch"] == 512
    assert found.lines == 26  # 30 lines, a tenth and one left out
    assert found.slow == 0


def test_slow_steps_are_counted(tmp_path: pathlib.Path) -> None:
    found = read_log(log_of(tmp_path, [10000.0] * 16 + [15000.0] * 4))
    assert found.slow == pytest.approx(4 / found.lines)


def test_a_line_is_still_a_line() -> None:
    assert read_log("tps: 7,023  tflops: 411.26  mfu: 41.58%").quantities["tokens_per_second_per_gpu"] == 7023


def test_a_log_without_figures_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "empty.log"
    path.write_text("nothing here 1 2 3\n", encoding="utf-8")
    with pytest.raises(NapkinError, match="no line says"):
        read_log(str(path))


def test_observed_against_predicted(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    line = f"{ASKED} {log_of(tmp_path, [20000.0] * 20)}"
    data = napkin(line).data
    values = data["values"]
    assert values["step/seen"] == pytest.approx(20.0)
    step = napkin(
        "step llama3-70b --gpus 256 --hardware h100 --seq 8192 --tp 8 --pp 4 --global-batch 512 "
        "--stack megatron-core --json"
    ).values["step/time"]
    assert values["step/predicted"] == pytest.approx(step)
    assert values["gap"] == pytest.approx(20.0 / step)


def test_a_gap_that_recomputation_makes_is_named(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    again = napkin(
        "step llama3-70b --gpus 256 --hardware h100 --seq 8192 --tp 8 --pp 4 --global-batch 512 "
        "--stack megatron-core --recompute full --json"
    ).values["step/time"]
    outcome = napkin(f"{ASKED} {log_of(tmp_path, [1000 * again] * 20)}")
    assert any("every layer is recomputed" in note for note in outcome.data["notes"])

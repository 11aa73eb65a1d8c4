"""Training options are the same in every command; what the step model does not time is refused where time is asked."""

from __future__ import annotations

import pytest

from .conftest import run_line

TIMED = [
    "step llama3-8b --gpus 8 --hardware h100",
    "plan llama3-8b --gpus 8 --hardware h100",
    "train-time llama3-8b --gpus 8 --hardware h100 --tokens 1B",
    "mfu llama3-8b --gpus 8 --hardware h100 --step-time 5s --global-batch 8 --seq 4096",
]


@pytest.mark.parametrize("line", TIMED)
def test_what_is_not_timed_is_refused_with_the_command_that_answers(line: str) -> None:
    found = run_line(f"{line} --ema")
    assert found.status == 3
    assert not found.out
    assert "--ema: the time of a step with this ema is not modeled" in found.err
    assert "napkin memory" in found.err


def test_the_options_of_a_step_predict_one_in_every_command() -> None:
    """train-time and mfu take the step's options and mean the same step by them."""
    layout = "--gpus 16 --tp 2 --zero 1 --global-batch 64 --seq 4096 --hardware h100 --momentum 0.9 --optimizer sgd"
    options = f"{layout} --framework megatron-core --attention cudnn --distributed-optimizer --stage-layers 32"
    step = run_line(f"step llama3-8b {options} --json").values["step/time"]
    against = run_line(f"mfu llama3-8b --step-time 5s {options} --json").values
    assert against["step/predicted"] == pytest.approx(step)
    run = run_line(f"train-time llama3-8b --tokens 1T {options} --json").values
    assert run["time/uninterrupted"] == pytest.approx(step * 1e12 / (64 * 4096), rel=1e-6)


def test_a_dtype_and_a_layout_contradict_each_other() -> None:
    for line in TIMED[2:]:
        found = run_line(f"{line} --tp 2 --global-batch 8 --dtype fp8")
        assert found.status == 2
        assert "training takes a policy" in found.err
        assert "--precision fp8-mixed" in found.err
        policy = run_line(f"{line} --tp 2 --global-batch 8 --precision fp8-mixed --json")
        assert policy.status == 0, policy.err
        assert policy.data["inputs"]["dtype"]["value"] == "fp8"


def test_smaller_sharding_groups_keep_gathers_inside_a_node() -> None:
    line = "step llama3-8b --gpus 16 --zero 3 --hardware h100 --network-bandwidth 2GB/s --json"
    whole, node = (run_line(f"{line} {option}").values["step/time"] for option in ("", "--dp-shard 8"))
    assert node < whole
    assert run_line(f"{line.replace('--zero 3', '--zero 1')} --dp-shard 8").status == 3

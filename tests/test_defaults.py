"""Stating a default changes no answer: every option that an answer lists as a default, stated with that value."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from napkin.options.training import SETUP_DEFAULTS
from tests.conftest import Outcome, run_line

LINES = (
    "memory llama3-8b --hardware h100 --gpus 8 --zero 3 --seq 4096",
    "memory llama3-8b --hardware h100 --gpus 8 --lora-rank 16 --task sft --trainer trl",
    "step llama3-8b --gpus 8 --hardware h100 --zero 3",
    "step llama3-70b --gpus 64 --hardware h100 --tp 8 --pp 4",
    "step mixtral-8x7b --gpus 64 --hardware b200 --ep 8 --framework megatron-core",
    "step gpt2 --hardware a100",
    "train-time --params 7B --tokens 1T --gpus 64 --hardware h100",
    "train-time llama3-8b --tokens 1T --gpus 64 --hardware h100 --zero 3",
    "mfu llama3-8b --step-time 2s --global-batch 64 --gpus 8 --hardware h100 --zero 3",
    "optimal --hardware h100 --gpus 64 --within 30d",
    "flops llama3-8b",
    "max-params --hardware h100 --like llama3 --zero 3 --gpus 8",
    "roofline llama3-8b --hardware h100",
    "checkpoint llama3-8b",
)


def stated(name: str, shown: dict[str, Any]) -> list[str]:
    """Return the option with the value that the answer lists."""
    value = shown["value"]
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list):
        return [f"--{name}", ",".join(map(str, value))]
    return [f"--{name}", str(shown["given"] or value)]


def figures(line: list[str]) -> tuple[object, ...]:
    """Return the values, intervals, verdict and exit status of an answer."""
    return figures_of(run_line([*line, "--json"]))


def figures_of(found: Outcome) -> tuple[object, ...]:
    data = found.data
    return data["values"], data.get("low"), data.get("high"), data["verdict"], found.status


@pytest.mark.parametrize("line", LINES)
def test_a_default_that_is_stated(line: str) -> None:
    words = shlex.split(line)
    answer = run_line([*words, "--json"])
    defaults = {name: shown for name, shown in answer.data["inputs"].items() if shown["origin"] == "default"}
    assert defaults
    left_out = figures_of(answer)
    for name, shown in defaults.items():
        assert figures([*words, *stated(name, shown)]) == left_out, name


@pytest.mark.parametrize("name", sorted({*SETUP_DEFAULTS} - {"zero"}))
@pytest.mark.parametrize("line", ["step llama3-70b --gpus 64 --hardware h100", "memory llama3-8b --gpus 8"])
def test_a_default_of_the_setup_that_is_stated(line: str, name: str) -> None:
    """Whatever the software is that the answer then assumes: its own attention kernel is `flash` too."""
    words = shlex.split(line)
    assert figures([*words, f"--{name}", str(SETUP_DEFAULTS[name])]) == figures(words)


def test_what_is_assumed_is_no_default() -> None:
    """Software that is named has a narrower interval than software that is taken to run the layout."""
    line = "step llama3-8b --gpus 8 --hardware h100 --zero 3 --json"
    left_out = run_line(line).data
    stack = left_out["inputs"]["stack"]
    assert stack["origin"] == "assumed"
    named = run_line(f"{line} --stack {stack['value']}").data
    assert named["values"]["step/time"] == left_out["values"]["step/time"]
    assert named["high"]["step/time"] < left_out["high"]["step/time"]

"""What a question lacks is named all at once, each with its hint."""

from __future__ import annotations

import pytest

from tests.conftest import run_line

MISSING = {
    "train-time": ("--hardware", "--params, --tokens, --gpus, --within"),
    "train-time --gpus 8": ("--hardware", "--params, --tokens, --within"),
    "train-time llama3-8b": ("--hardware", "--tokens, --gpus, --within"),
    "train-time 7B --tokens 1T --gpus 8": ("--hardware",),
    "mfu": ("--params", "--hardware", "--tokens-per-second"),
    "mfu 7B": ("--hardware", "--tokens-per-second"),
    "mfu matmul": ("SHAPE", "--hardware", "--time"),
    "plan": ("MODEL", "--hardware"),
    "step": ("MODEL", "--hardware"),
    "step llama3-8b": ("--hardware",),
    "memory --max seq": ("MODEL", "--hardware"),
    "memory llama3-8b --min gpus": ("--hardware",),
    "memory --must-fit": ("MODEL", "--hardware"),
    "max-params": ("--hardware",),
    "roofline matmul": ("SHAPE", "--hardware"),
    "roofline relu": ("SHAPE", "--hardware"),
    "roofline transfer": ("SHAPE", "--link"),
    "data": ("--tokens", "--vocab"),
}


@pytest.mark.parametrize("line", MISSING)
def test_all_that_is_missing_is_named(line: str) -> None:
    outcome = run_line(line)
    assert (outcome.status, outcome.out) == (2, "")
    assert len(outcome.errors) == len(MISSING[line]) == len(outcome.hints)
    for error, name in zip(outcome.errors, MISSING[line], strict=True):
        assert name in error


def test_what_is_given_is_enough() -> None:
    assert run_line("max-params --hardware h100 --gpus 8").status == 0
    assert run_line("train-time 7B --tokens 1T --gpus 8 --hardware h100").status == 0
    assert run_line("roofline transfer 80GB --link pcie5").status == 0

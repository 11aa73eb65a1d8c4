"""A user's script, for the type checker: mypy --strict accepts it and, at each `type: ignore`, rejects what it must (an
ignore that is not needed is an error). tests/test_api.py runs it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import napkin


def questions() -> list[napkin.Result]:
    """Ask with values of every type that the signatures take."""
    fits = napkin.memory("llama3-8b", gpus=8, hardware="h100", zero=3, seq="4Ki", must_fit=True)
    gib: float = fits.total / 2**30
    states: float = fits.optimizer.exp_avg + fits["memory/optimizer/exp_avg_sq"]
    low: float | None = fits.total.low
    assert low is not None
    assert low / 2**30 < gib
    assert states / 2**30 < gib
    took = napkin.train_time(params=70e9, tokens="15T", gpus=1024, hardware="h100", mfu=0.5)
    days: float = took.time / 86400
    assert round(days) == 144
    most = napkin.max_params(gpus=8, hardware="h100")
    deadline = napkin.train_time(params="7B", tokens=1e12, within=timedelta(days=30), hardware="h100", mfu="40%")
    several = napkin.sweep("train-time", params="7B", tokens="1T", hardware="h100", mfu=0.4, over={"gpus": [64, 128]})
    limits = napkin.check(Path("configs/runs/lecture-time.yaml"))
    tensor = napkin.tensor("4x8", dtype="bf16", permute=[1, 0])
    small = napkin.params({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2})
    return [fits, took, most, deadline, several, limits, tensor, small]


def rejected() -> None:
    """Hold what a type checker rejects; running it is an error too."""
    napkin.memory("llama3-8b", gpuz=8)  # type: ignore[call-arg]
    napkin.memory("llama3-8b", zero=7)  # type: ignore[arg-type]
    napkin.memory("llama3-8b", must_fit=[1])  # type: ignore[arg-type]
    napkin.train_time(params="7B", within=30)  # type: ignore[arg-type]
    napkin.bench("matmul")  # type: ignore[attr-defined]
    napkin.lora("llama3-8b")  # type: ignore[attr-defined]

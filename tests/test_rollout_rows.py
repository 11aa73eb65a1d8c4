"""Rows of measured preference training and reinforcement learning: what `memory` and `step` answer for the same run."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.conftest import run_line

ROW = """- id: a
  source: {{title: hand-made}}
  task: {task}
  model: {{preset: llama3-8b}}
  hardware: {{chip: H100 SXM 80GB, count: {count}}}
  method: {{kind: full}}
  layout: {{{layout}}}
  rl: {{{rl}}}
  measured: {{{measured}}}
"""
PAIRS = "micro_batch: 1, grad_accum: 1, seq: 2048, precision: bf16-mixed, recompute: full, stack: deepspeed, zero: 3"
GRPO = "tp: 1, precision: bf16-mixed, stack: megatron-core, trainer: nemo-rl"
SAMPLED = (
    "on_policy: on policy, group: 8, prompts: 64, prompt_length_mean: 200, response_length_mean: 1000, rollout_tp: 1"
)
RATE = "tokens_per_second_per_gpu: 3000"


def validated(tmp_path: pathlib.Path, **row: Any) -> dict[str, dict[str, Any]]:
    file = tmp_path / "finetune.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + ROW.format(**{"measured": RATE, "count": 8, **row}))
    found = run_line(f"validate {file} --json")
    assert found.status == 0, found.err
    return {one["quantity"]: one for one in found.data["rows"]}


@pytest.mark.parametrize(("task", "said", "reference"), [("dpo", "second copy", "same"), ("simpo", "none", "")])
def test_a_row_of_pairs_is_what_memory_and_step_answer(
    tmp_path: pathlib.Path, task: str, said: str, reference: str
) -> None:
    measured = f"peak_bytes: 4e+10, what: allocated, {RATE}"
    rows = validated(tmp_path, task=task, layout=PAIRS, rl=f"reference: {said}", measured=measured)
    line = (
        f"llama3-8b --task {task} --gpus 8 --hardware h100 --seq 2048 --zero 3 --recompute full --framework deepspeed"
    )
    line += f" --reference {reference} --json" if reference else " --json"
    assert rows["memory_allocated"]["predicted"] == run_line(f"memory {line}").values["memory/allocated"]
    step = run_line(f"step {line} --stack fsdp-eager").values
    assert rows["tokens_per_second_per_gpu"]["predicted"] == pytest.approx(step["tokens_per_second_per_gpu"])


def test_where_the_reference_is_must_be_stated(tmp_path: pathlib.Path) -> None:
    found = validated(tmp_path, task="dpo", layout=PAIRS, rl="algorithm: dpo")
    assert "where the reference is" in found["tokens_per_second_per_gpu"]["why"]


def test_a_synchronous_step_is_what_step_answers(tmp_path: pathlib.Path) -> None:
    measured = "step_seconds: 30, gen_seconds: 10, logprob_seconds: 5, update_seconds: 15"
    rows = validated(tmp_path, task="grpo", layout=GRPO, rl=SAMPLED, measured=measured)
    line = (
        "step llama3-8b --task grpo --gpus 8 --hardware h100 --trainer nemo-rl --zero 1 --prompt-tokens 200 "
        "--response-tokens 1000 --samples-per-prompt 8 --global-batch 64 --rollout-tp 1 --precision bf16-mixed --json"
    )
    step = run_line(line).values
    for quantity, path in (
        ("step_seconds", "step/time"),
        ("gen_seconds", "step/generation"),
        ("logprob_seconds", "step/logprobs"),
        ("update_seconds", "step/update"),
    ):
        assert rows[quantity]["predicted"] == pytest.approx(step[path])
        assert rows[quantity]["low"] < rows[quantity]["predicted"] < rows[quantity]["high"]


@pytest.mark.parametrize(
    ("rl", "why"),
    [
        (SAMPLED.replace("on policy,", "1-step Off,"), "how many of its GPUs generate"),
        (SAMPLED.replace("on policy,", "switch,"), "overlap"),
        (SAMPLED.replace("response_length_mean: 1000, ", ""), "how long its answers are"),
        (SAMPLED.replace("prompts: 64, ", ""), "how many answers"),
    ],
)
def test_what_is_not_stated_is_the_reason(tmp_path: pathlib.Path, rl: str, why: str) -> None:
    found = validated(tmp_path, task="grpo", layout=GRPO, rl=rl)
    assert why in found["tokens_per_second_per_gpu"]["why"]

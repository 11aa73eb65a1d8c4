"""What the software and the chip have: pipeline stages of a library, the number formats of an accelerator."""

from __future__ import annotations

import pytest

from napkin.training.frameworks import FRAMEWORKS
from napkin.training.trainers import TRAINERS
from tests.conftest import Napkin

ON_8 = "llama3.2-3b --gpus 8 --hardware h100"
STAGED_ON_MEGATRON = {
    *("accelerate", "areal", "llama-factory", "ms-swift", "nemo", "nemo-rl", "none", "roll", "skyrl", "slime", "verl"),
}
"""Libraries with pipeline_model_parallel_size or pp_degree in their public code."""
BY_DEFAULT = {"none", "nemo-automodel", "nemo", "nemo-rl", "roll", "slime"}
"""Those whose default framework has stages."""


@pytest.mark.parametrize("trainer", sorted(set(TRAINERS) - BY_DEFAULT))
def test_a_library_without_pipeline_stages_is_planned_without_them(napkin: Napkin, trainer: str) -> None:
    """On the framework that it has by default, none of these divides layers: plan finds no such layout, and step and
    memory reject it."""
    rows = napkin(f"plan {ON_8} --trainer {trainer} --rows 100 --json").data["rows"]
    assert {row["pp"] for row in rows} == {1}
    for command in ("step", "memory", "plan"):
        found = napkin(f"{command} {ON_8} --trainer {trainer} --pp 2")
        assert found.status == 2
        assert f"--pp 2: --trainer {trainer} does not divide a model into pipeline stages" in found.err
        assert "hint: " in found.err
    assert napkin(f"plan {ON_8} --trainer {trainer} --max-pp 2").status == 2


def test_libraries_on_megatron_have_its_pipeline(napkin: Napkin) -> None:
    megatron = FRAMEWORKS["megatron-core"]
    assert {name for name, one in TRAINERS.items() if one.has(megatron.name)} == STAGED_ON_MEGATRON
    assert all(TRAINERS[name].on(megatron).divides.staged for name in STAGED_ON_MEGATRON)
    line = f"{ON_8} --trainer ms-swift --framework megatron-core"
    assert napkin(f"step {line} --pp 2").status == 0
    assert 2 in {row["pp"] for row in napkin(f"plan {line} --rows 100 --json").data["rows"]}
    refused = napkin(f"step {ON_8} --trainer ms-swift --pp 2")
    assert "hint: --framework megatron-core" in refused.err


def test_the_frameworks_of_a_library_exist() -> None:
    assert {backend.framework for one in TRAINERS.values() for backend in one.backends} <= set(FRAMEWORKS)


@pytest.mark.parametrize(
    ("card", "policy"), [("v100", "fp16-mixed"), ("t4", "fp16-mixed"), ("gtx-titan-x", "fp32"), ("h100", "bf16-mixed")]
)
@pytest.mark.parametrize(
    "command",
    ["memory", "step", "plan", "max-params", "sensitivity step --vary seq", "train-time --tokens 1B --zero 1"],
)
def test_training_is_in_a_format_that_the_card_has(napkin: Napkin, command: str, card: str, policy: str) -> None:
    """bf16, else fp16, else fp32: one default in every command, the same as when it is stated."""
    model = "" if command == "max-params" else "gpt2"
    line = f"{command} {model} --gpus 2 --hardware {card}"
    usual, stated = (napkin(f"{line} {more} --json") for more in ("", f"--precision {policy}"))
    assert usual.data["inputs"]["precision"]["value"] == policy
    assert usual.data["inputs"]["precision"]["origin"] == "default"
    assert usual.values == stated.values


def test_a_format_that_the_card_lacks_is_refused_with_the_policy_that_it_has(napkin: Napkin) -> None:
    for card, policy, other in (("v100", "bf16-mixed", "fp16-mixed"), ("a100", "fp8-mixed", "bf16-mixed")):
        found = napkin(f"step gpt2 --hardware {card} --precision {policy}")
        assert found.status == 3
        assert found.err.splitlines()[-1] == f"hint: --precision {other}"
        assert napkin(f"step gpt2 --hardware {card} --precision {other}").status == 0


@pytest.mark.parametrize(
    ("trainer", "policy"),
    [("hf-trainer", "amp-fp16"), ("trl", "amp-fp16"), ("openrlhf", "fp16-mixed"), ("nemo", "fp16-mixed")],
)
def test_a_library_trains_what_is_fp16_in_fp32(napkin: Napkin, trainer: str, policy: str) -> None:
    """torch's GradScaler rejects gradients in fp16 (torch/amp/grad_scaler.py, "Attempting to unscale FP16
    gradients."): weights in fp32 under autocast, or an engine with its own fp32 master copies."""
    for command in ("memory", "step"):
        found = napkin(f"{command} gpt2 --hardware v100 --trainer {trainer} --json")
        assert found.data["inputs"]["precision"]["value"] == policy
    adapted = napkin(f"memory gpt2 --hardware v100 --trainer {trainer} --lora-rank 8 --json")
    assert "bf16" not in adapted.data["inputs"]["precision"]["value"]

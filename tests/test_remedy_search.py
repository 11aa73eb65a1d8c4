"""The search for what makes a step fit evaluates no combination whose result nothing depends on."""

from __future__ import annotations

from typing import Any

import pytest

import napkin
from napkin.commands.memory import remedies
from tests.conftest import Napkin


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of each combination that a search evaluates."""
    found: list[dict[str, Any]] = []
    plain = remedies.evaluated

    def counted(question: Any, options: Any, hardware: Any) -> Any:
        found.append(dict(options))
        return plain(question, options, hardware)

    monkeypatch.setattr(remedies, "evaluated", counted)
    return found


def test_more_gpus_are_not_tried_where_sharding_over_the_given_ones_is_enough(asked: list[dict[str, Any]]) -> None:
    """8 B parameters take 16 bytes each, 128 GB; over 8 GPUs 16 GB: ZeRO-3 alone fits into 80 GB."""
    answer: Any = napkin.memory("llama3-8b", gpus=8, hardware="h100").to_dict()
    assert "--zero 3" in [one["change"] for one in answer["suggestions"]]
    assert answer["more_accelerators"] is None
    assert not [options for options in asked if "gpus" in options]


def test_more_gpus_are_tried_where_the_given_ones_need_another_change(asked: list[dict[str, Any]]) -> None:
    """70 B parameters take 1.1 TB of states, 141 GB on each of 8 GPUs."""
    answer: Any = napkin.memory("llama3-70b", gpus=8, hardware="h100").to_dict()
    assert int(answer["more_accelerators"]["command"].split("--gpus ")[1].split()[0]) >= 16
    assert [options for options in asked if "gpus" in options]
    assert len(asked) == len({tuple(sorted(options.items())) for options in asked})  # each once


@pytest.mark.parametrize("gpus", [1, 8])
def test_more_gpus_are_as_few_as_the_question_for_the_fewest_finds(gpus: int) -> None:
    """Full recomputation on 16 GPUs, not a part of it on 128: `--min gpus` says 16 for the same job. 8 B parameters
    take 128 GB of states, more than eight cards of 24 GB hold next to activations."""
    job: dict[str, Any] = {"task": "sft", "hardware": "rtx4090", "seq": 2048}
    fewest = napkin.memory("llama3.1-8b", **job, min="gpus").values["gpus"]
    answer: Any = napkin.memory("llama3.1-8b", **job, gpus=gpus).to_dict()
    assert answer["more_accelerators"]["change"].startswith(f"--gpus {fewest} ")


def test_activations_are_offloaded_from_layers_that_run_again() -> None:
    """Without recomputation 70 B with 32,768 tokens would move terabytes through a link of tens of GB/s."""
    job: dict[str, Any] = {"hardware": "h100", "quantized": "nf4", "lora_rank": 16, "seq": 32768}
    answer: Any = napkin.memory("llama3-70b", **job).to_dict()
    moved = [one["change"] for one in answer["suggestions"] if "activations" in one["change"]]
    assert moved
    assert all("--recompute full" in one for one in moved)


def test_one_gpu_is_offered_qlora_on_a_shorter_sequence(asked: list[dict[str, Any]]) -> None:
    """8 B weights in 4 bits take 5.6 GiB of 12 GB, which the activations of 4,096 tokens do not fit next to. Sharding
    over one rank saves nothing: no suggestion without offloading or more GPUs has it."""
    answer: Any = napkin.memory("llama3-8b", hardware="rtx3060").to_dict()
    changes = [one["change"] for one in answer["suggestions"]]
    short = [one for one in changes if "--lora-rank" in one]
    assert short
    assert all("--quantized nf4" in one and "--seq" in one for one in short)
    assert not [one for one in changes if "--zero" in one and "--offload" not in one and "--gpus" not in one]


LATENT: dict[str, Any] = {"gpus": 256, "pp": 16, "ep": 16, "zero": "1", "seq": 4096}
"""A layout of a model with experts and latent attention, whose norms are no part of the linear layers behind them."""
MODULES = ("selective:moe_act+layernorm+mla_up_proj", "every:2", "selective:layernorm+mla_up_proj+mlp+moe", "full")


def test_megatron_core_is_offered_the_modules_that_it_runs_again_by_name() -> None:
    """Where running again what takes next to no matmuls is not enough, the MLPs too (NVIDIA/Megatron-LM
    megatron/core/transformer/transformer_config.py, recompute_modules)."""
    for hardware, modules in (("b200", MODULES[0]), ("h200", MODULES[2])):
        answer: Any = napkin.memory("deepseek-v3", **LATENT, hardware=hardware, framework="megatron-core").to_dict()
        assert f"--recompute {modules}" in [one["change"] for one in answer["suggestions"]], hardware


def test_a_dense_model_and_other_frameworks_are_offered_no_module_that_they_lack(asked: list[dict[str, Any]]) -> None:
    """A Llama's norms are a part of the linear layers behind them, so that running norms again frees nothing; its MLP
    can run again. DeepSpeed runs blocks again, no modules by name."""
    napkin.memory("llama3-8b", gpus=8, tp=2, seq=8192, micro_batch=4, hardware="h100", framework="megatron-core")
    again = {str(one["recompute"]) for one in asked if "recompute" in one}
    assert "full" in again
    assert {one for one in again if "selective" in one} <= {"selective:mlp"}
    asked.clear()
    napkin.memory("deepseek-v3", **LATENT, hardware="h200", framework="deepspeed")
    assert not [one for one in asked if "selective:" in str(one.get("recompute"))]


def test_each_level_of_recomputation_keeps_less() -> None:
    """The search takes each level of an axis to need less memory than those before it."""
    found: list[Any] = [
        napkin.memory("deepseek-v3", **LATENT, hardware="h200", framework="megatron-core", recompute=one).to_dict()
        for one in ("none", *MODULES)
    ]
    kept = [one["values"]["memory/live"] for one in found]
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == len(kept)


def test_host_memory_serves_with_other_changes_where_neither_is_enough(napkin: Napkin) -> None:
    line = (
        "memory llama3-70b --quantized nf4 --lora-rank 16 --task sft --gpus 4 --hardware 4090 --zero 3 --recompute full"
    )
    here, more = (one["change"] for one in napkin(f"{line} --json").data["suggestions"])
    assert here.startswith("--loss fused --offload optimizer,activations,parameters")
    assert "--tp" not in more  # fine-tuning libraries shard a model of transformers over data-parallel ranks


def test_the_nearest_plan_of_adapters_is_not_that_of_all_weights(napkin: Napkin) -> None:
    line = "plan llama3-70b --quantized nf4 --lora-rank 16 --task sft --gpus 4 --hardware 4090"
    # 70 B weights trained in full would need 45 such cards for their states alone
    assert "--gpus 8 in place of 4" in napkin(line).out

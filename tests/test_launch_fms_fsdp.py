"""fms-fsdp's launch lines: fields of its train_config (fms_fsdp/config/training.py) as flags."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of

LINE = "torchrun --nnodes={nodes} --nproc_per_node=8 {program} {more}\n"


def read(more: str, nodes: str = "4", program: str = "main_training_llama.py") -> dict[str, Any]:
    text = LINE.format(nodes=nodes, program=program, more=more)
    return {name: one.value for name, one in reading_of(source_of(text, "train.sh")).inputs.items()}


def test_what_a_line_omits_has_the_configuration_s_defaults() -> None:
    found = read("--use_dummy_dataset=True")
    asked = ("model", "gpus", "zero", "dp-shard", "micro-batch", "seq", "steps", "recompute", "precision", "compile")
    assert [found[name] for name in asked] == [
        "llama2-7b", 32, 3, 8, 2, 4096, 1_000_000, "none", "amp-bf16", True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "model"),
    [("llama3_8b_4k", "llama3-8b"), ("llama2_70b", "llama2-70b"), ("13b", "llama2-13b"), ("llama3_194m_4k", None)],
)
def test_a_variant_is_a_family_and_a_size(variant: str, model: str | None) -> None:
    assert read(f"--model_variant={variant}")["model"] == model


@pytest.mark.parametrize(
    ("share", "word"), [("1", "full"), ("1/3", "every:3"), ("0.5", "every:2"), ("0", "none"), ("2/3", None)]
)
def test_a_share_of_the_blocks_is_recomputed(share: str, word: str | None) -> None:
    line = f"--fsdp_activation_checkpointing=True --selective_checkpointing={share}"
    assert read(line)["recompute"] == word


@pytest.mark.parametrize(("strategy", "zero", "shard"), [("fsdp", 3, None), ("ddp", 0, None), ("hsdp", 3, 8)])
def test_the_sharding_strategy(strategy: str, zero: int, shard: int | None) -> None:
    found = read(f"--sharding_strategy={strategy}")
    assert (found["zero"], found.get("dp-shard")) == (zero, shard)


def test_nodes_of_the_scheduler_are_asked() -> None:
    assert read("--sharding_strategy=fsdp", nodes="$SLURM_NTASKS")["gpus"] is None


def test_a_speculator_is_another_program() -> None:
    with pytest.raises(NapkinError):
        read("--sharding_strategy=fsdp", program="speculator/train_speculator.py")

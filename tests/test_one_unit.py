"""FSDP's version 2 under transformers' Trainer with adapters: peft's policy makes no block a unit."""

from __future__ import annotations

import pathlib

import pytest

from napkin.evidence import published
from napkin.evidence.finetuning.rows import FineTuning, fine_tuning
from napkin.footprint.allocator import CONTEXT
from napkin.planning.verdicts import evaluate
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS, first_version
from napkin.training.setup import Setup
from napkin.training.trainers import TRAINERS
from tests.conftest import run_line

BLOCK = 218_112_000
"""Parameters of a block of Llama 3 8B: 4,096 · (2 · 4,096 + 2 · 1,024 + 3 · 14,336) + 2 · 4,096."""
ROW = """schema: finetune/1
rows:
- {id: a, source: {title: hand-made}, task: sft, model: {preset: llama3-8b},
   hardware: {chip: H100 SXM 80GB, count: 8},
   method: {kind: lora, lora_rank: 8, lora_targets_canonical: 'q,v'},
   layout: {framework: 'transformers Trainer + FSDP2', stack: fsdp, zero: 3, trainer: TRAINER, micro_batch: 1,
     grad_accum: 1, seq: 1024, recompute: full, precision: bf16, versions: 'accelerate 1.15, transformers 5.24'},
   measured: {peak_bytes: 2.0e+10, what: allocated}}
"""


def row(tmp_path: pathlib.Path, trainer: str) -> FineTuning:
    (tmp_path / "rows.yaml").write_text(ROW.replace("TRAINER", trainer))
    return fine_tuning(published.read(str(tmp_path / "rows.yaml")).tuning[0])


def allocated(asked: FineTuning, setup: Setup) -> float:
    return float(evaluate(asked.model, setup, asked.implementation, None, CONTEXT).reported.allocated.value)


def test_all_blocks_are_gathered_at_once(tmp_path: pathlib.Path) -> None:
    """All 32 in 16 bits, in place of at most two: the one in use and the one prefetched."""
    asked = row(tmp_path, "hf-trainer")
    assert asked.setup.framework.one_unit
    units = replace(asked.setup, framework=replace(asked.setup.framework, one_unit=False))
    more = allocated(asked, asked.setup) - allocated(asked, units)
    assert 30 * BLOCK * 2 < more < 32 * BLOCK * 2


def test_without_adapters_blocks_are_units(tmp_path: pathlib.Path) -> None:
    asked = row(tmp_path, "hf-trainer")
    full = replace(asked.setup, implementation=replace(asked.setup.implementation, tuning=None))
    units = replace(full, framework=replace(full.framework, one_unit=False))
    assert allocated(asked, full) == allocated(asked, units)


@pytest.mark.parametrize(
    ("trainer", "one"),
    [("hf-trainer", True), ("trl", True), ("ms-swift", True), ("llama-factory", True), ("axolotl", False)],
)
def test_libraries_around_transformers_trainer(trainer: str, one: bool) -> None:
    assert TRAINERS[trainer].on(FRAMEWORKS["fsdp"]).one_unit == one
    assert not TRAINERS[trainer].on(first_version(FRAMEWORKS["fsdp"])).one_unit
    assert not TRAINERS[trainer].on(FRAMEWORKS["deepspeed"]).one_unit


def test_memory_says_what_to_do() -> None:
    line = "memory llama3-70b --trainer trl --framework fsdp --zero 3 --gpus 8 --lora-rank 8 --seq 512 --hardware h100"
    first, second = (run_line(f"{line} --fsdp-version {version} --json") for version in (1, 2))
    assert first.data["verdict"] == "fits"
    assert second.data["verdict"] == "does not fit"
    assert any("--fsdp-version 1 gathers block after block" in note for note in second.data["notes"])
    assert not any("at once" in note for note in first.data["notes"])

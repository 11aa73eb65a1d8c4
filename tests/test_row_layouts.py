"""Layouts that rows of training steps state in words: Ulysses, schedules, layers that are recomputed, dates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from napkin._tables import calibration
from napkin.errors import NapkinError
from napkin.evidence.finetuning.layout import recomputed
from napkin.evidence.fit.columns import Columns
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.prose.steps import of_step
from napkin.evidence.rows.recomputation import recomputation, share_of_layers
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import StepRow, step_row
from napkin.evidence.rows.words import schedule_named
from napkin.inputs.load import Document
from napkin.timing.step import StepTime
from tests.conftest import run_line

LLAMA = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 32,
    "ffn": 11008,
    "vocab": 32000,
    "gated": True,
    "tied": False,
}


def row_of(seq: int = 4096, gpus: int = 8, title: str = "our runs", where: str = "log", **layout: Any) -> StepRow:
    """Return a row of Llama 2 7B on A100s."""
    fields = {
        "id": "one",
        "source": {"title": title, "where": where},
        "model": {**LLAMA, "seq": seq},
        "hardware": {"chip": "A100 SXM 80GB", "count": gpus, "per_node": 8},
        "layout": {"framework": "DeepSpeed, transformers", "zero": 3, "micro_batch": 1, "global_batch": 8, **layout},
        "measured": {"step_seconds": 1.0},
    }
    return step_row(recognized(RowFields(Document("rows.yaml", None), 0, fields), of_step))


def timed(row: StepRow) -> StepTime:
    """Return the predicted step of a row."""
    columns = Columns([row])
    assert columns.kept, columns.why
    return columns.steps(columns.groups[0], columns.values(calibration.CONSTANTS))


def part(step: StepTime, name: str) -> float:
    """Return the seconds of a part of the step."""
    return float(np.ravel(next(one for one in step.time.walk() if one.name == name).value)[0])


def test_ulysses_of_a_row_is_that_of_a_command() -> None:
    """Ranks that exchange heads send other bytes than a ring; a row has both as `napkin step` has them."""
    line = (
        "step llama2-7b --gpus 8 --hardware a100-80gb --zero 3 --seq 131072 --recompute full --stack fsdp-eager --json"
    )
    stated: dict[str, Any] = {
        "dp": 1,
        "global_batch": 1,
        "recompute": "full",
        "precision": "bf16",
        "attention": "flash",
    }
    found = {}
    for name in ("cp", "ulysses"):
        row = row_of(131072, **{**stated, name: 8})
        assert (row.cp, row.exchanges, row.dp) == (8, name == "ulysses", 1)
        asked = run_line(f"{line} --{name} 8").data["values"]["step/communication/context"]
        found[name] = part(timed(row), "step/communication/context")
        assert found[name] == pytest.approx(asked, rel=1e-3)
    assert found["ulysses"] != pytest.approx(found["cp"], rel=0.1)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("1F1B", "1f1b"),
        ("1f1b-interleaved", "interleaved"),
        ("Interleaved 1F1B", "interleaved"),
        ("interleaved_1f1b", "interleaved"),
        ("AFAB", "gpipe"),
        ("Zero-Bubble", "zero-bubble"),
        ("ZBVZeroBubble", "zero-bubble"),
        ("a-schedule-of-our-own", "a-schedule-of-our-own"),
    ],
)
def test_schedules_by_their_names(words: str, name: str) -> None:
    assert schedule_named(words) == name


def test_zero_bubble_leaves_a_third_of_the_bubble() -> None:
    """Qi et al. 2023, table 1: the bubble of ZB-H1 is (p − 1)(F + B − W), a third of 1F1B's (p − 1)(F + B + W) where
    the three take equally long; GPipe's is 1F1B's (Huang et al. 2018)."""
    pipeline: dict[str, Any] = {
        "framework": "Megatron-LM",
        "zero": 1,
        "tp": 1,
        "pp": 8,
        "global_batch": 16,
        "recompute": "none",
    }
    bubble = {name: part(timed(row_of(**pipeline, schedule=name)), "step/bubble") for name in ("1F1B", "GPipe", "ZB1P")}
    assert bubble["1F1B"] > 0
    assert bubble["GPipe"] == bubble["1F1B"]
    assert bubble["ZB1P"] == pytest.approx(bubble["1F1B"] / 3)
    assert "several chunks" in row_of(**pipeline, vp=2, schedule="ZBV").why
    assert "not modeled" in row_of(**pipeline, schedule="DualPipe").why


@pytest.mark.parametrize(
    ("words", "pp", "share"),
    [
        ("full, 30 of 80 layers", 4, 3 / 8),
        ("full (10 out of 80 layers)", 1, 1 / 8),
        ("block, 8 layers", 1, 8 / 32),
        ("12/32", 1, 3 / 8),
        ("every 2 layers", 4, 1 / 2),
        ("every 4th block", 1, 1 / 4),
        ("every other block", 1, 1 / 2),
        ("1 in 3 layers", 1, 1 / 3),
        ("25% of the layers", 4, 1 / 4),
        ("half of the layers", 4, 1 / 2),
        ("selective 2", 1, 1 / 2),
        ("selective (4)", 1, 1 / 4),
    ],
)
def test_layers_that_run_again_are_counted(words: str, pp: int, share: float) -> None:
    row = row_of(recompute=words, pp=pp, tp=1)
    assert (row.recompute, row.why) == ("other", "")
    assert row.recompute_layers == pytest.approx(share)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("gradient checkpointing on", "full"),
        ("gradient_checkpointing=True", "full"),
        ("activation checkpointing (full)", "full"),
        ("full activation recompute", "full"),
        ("AC full", "full"),
        ("full/uniform/1", "full"),
        ("uniform, 8 layers", "full"),
        ("all layers", "full"),
        ("every layer", "full"),
        ("unsloth", "full"),
        ("full (offloaded to the CPU)", "full"),
        ("gradient checkpointing with CPU offload", "full"),
        ("selective activation checkpointing", "selective"),
        ("recompute_granularity=selective", "selective"),
        ("core_attn", "selective"),
        ("selective (op)", "selective"),
        ("SAC", "selective"),
        ("no gradient checkpointing", "none"),
        ("without checkpointing", "none"),
        ("off (none)", "none"),
        ("", ""),
        ("layers", ""),
        ("block", ""),
        ("minimal", ""),
        ("full but not attention", ""),
        ("no selective", ""),
        ("full (10 of 80 layers)", ""),
        ("selective (2)", ""),
    ],
)
def test_recomputation_in_words(words: str, kind: str) -> None:
    """Words that say something else, or how much, are no kind; a count is read by itself."""
    assert recomputation(words) == kind
    if "uniform" in words:
        assert share_of_layers(words, 32) is None


@pytest.mark.parametrize(
    ("words", "kind", "period"),
    [
        ("full (default of the tool)", "full", 0),
        ("gradient checkpointing", "full", 0),
        ("gradient_checkpointing=False", "none", 0),
        ("every 4 layers", "every", 4),
        ("half of the layers", "every", 2),
        ("8 of 32 layers", "every", 4),
        ("every:3", "every", 3),
    ],
)
def test_recomputation_of_fine_tuning_in_words(words: str, kind: str, period: int) -> None:
    found = recomputed(words)
    assert (found.kind, found.k if period else 0) == (kind, period)


def test_a_share_that_is_no_period_is_not_modeled() -> None:
    with pytest.raises(NapkinError, match="38% of its layers"):
        recomputed("30 of 80 layers")
    with pytest.raises(NapkinError, match="unknown recomputation"):
        recomputed("activation_memory_budget 0.1")


def test_a_count_of_layers_may_be_of_each_stage() -> None:
    """Megatron-LM's recompute_num_layers counts those of a pipeline stage: the share of the model is not stated."""
    assert "not known" in row_of(recompute="block, 8 layers", pp=4, tp=1).why
    assert share_of_layers("40 of 32 layers", 32) is None


def test_a_share_of_the_layers_takes_that_share_of_a_forward_pass() -> None:
    """8 of 32 layers run again: a quarter of what all of them add, as each layer is the same."""
    none, some, all_ = (
        float(np.ravel(timed(row_of(recompute=words)).time.value)[0]) for words in ("none", "8 of 32 layers", "full")
    )
    assert (some - none) / (all_ - none) == pytest.approx(1 / 4, rel=0.02)


def test_torchtitan_recomputes_unless_it_says_otherwise() -> None:
    """Its default mode is selective, operation by operation; a row that states none has none."""
    named: dict[str, Any] = {"framework": "torchtitan", "compile": True}
    assert row_of(**named).recompute == "selective"
    assert row_of(**named, recompute="none").recompute == "none"
    assert row_of(framework="PyTorch FSDP2").recompute == "none"


def test_what_compiles_is_compiled_whoever_wrote_its_layers() -> None:
    assert row_of(framework="Accelerate, FSDP2, transformers", compile=True).stack == "fsdp-compiled"
    assert row_of(framework="Accelerate, FSDP2, transformers").stack == "fsdp-eager"
    assert row_of(framework="PyTorch with torch.compile").stack == "fsdp-compiled"
    assert row_of(framework="transformers", where="notes before torch.compile").stack == "fsdp-eager"


@pytest.mark.parametrize("name", ["TRL", "LLaMA-Factory", "ms-swift", "PyTorch Lightning", "our own PyTorch code"])
def test_libraries_of_pytorchs_layers(name: str) -> None:
    assert row_of(framework=name).stack == "fsdp-eager"


@pytest.mark.parametrize("name", ["ColossalAI", "Fairseq", "a program of ours"])
def test_software_that_is_not_known_stays_unknown(name: str) -> None:
    assert row_of(framework=name).stack == ""


@pytest.mark.parametrize(
    ("words", "zero"),
    [("full_shard auto_wrap", 3), ("zero3", 3), ("ZeRO-2", 2), ("ZeRO stage 1", 1), ("shard_grad_op", 2), ("DDP", 0)],
)
def test_sharding_in_words(words: str, zero: int) -> None:
    row = row_of(framework="transformers", zero=None, fsdp=words)
    assert (row.zero, row.why) == (zero, "")


@pytest.mark.parametrize(
    ("words", "kernel"),
    [("PyTorch SDPA", "flash"), ("naive", "eager"), ("memory efficient", "efficient"), ("splash", "flash")],
)
def test_attention_in_words(words: str, kernel: str) -> None:
    assert row_of(attention=words).attention == kernel


def test_megatron_before_its_core_by_the_date_of_a_log() -> None:
    """Megatron-LM had neither megatron/core nor fused attention in 2022."""
    megatron: dict[str, Any] = {"framework": "Megatron-LM", "zero": 1, "tp": 2}
    assert row_of(**megatron, where="log of 2022-10-10").stack == "megatron"
    assert row_of(**megatron, where="log of 2023-10-10").stack == "megatron-core"
    assert row_of(**megatron, where="github owner/name#2022").stack == "megatron-core"

"""What rows of fine-tuning say in words: task, what is trained, formats of frozen weights, modules with adapters."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from napkin.evidence.finetuning.software import framework_of, trainer_of
from napkin.evidence.finetuning.words import kind_named, of_tuning, stored_named, targets_named, task_named
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import Document
from tests.conftest import run_line

ALL = "q,k,v,o,gate,up,down"


@pytest.mark.parametrize(
    ("words", "task"),
    [
        ("SFT", "sft"),
        ("DPO", "dpo"),
        ("ORPO", "orpo"),
        ("instruction tuning", "sft"),
        ("Continued pretraining", "sft"),
        ("IPO", "dpo"),
        ("Reward model", "rm"),
        ("DAPO", "grpo"),
        ("a task of ours", "a task of ours"),
    ],
)
def test_tasks_by_their_names(words: str, task: str) -> None:
    assert task_named(words) == task


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("LoRA", "lora"),
        ("QLoRA", "lora"),
        ("rsLoRA", "lora"),
        ("LoRA+", "lora"),
        ("PiSSA", "lora"),
        ("DoRA", "dora"),
        ("Q-DoRA", "dora"),
        ("Full fine-tuning", "full"),
        ("full-parameter", "full"),
        ("full parameter fine-tuning", "full"),
        ("FFT", "full"),
        ("IA3", "ia3"),
        ("full or LoRA by size", "full or lora by size"),
        ("prompt tuning", "prompt"),
    ],
)
def test_kinds_by_their_names(words: str, kind: str) -> None:
    """What changes only scales, rates or first values has LoRA's operations; what is not known stays."""
    assert kind_named(words) == kind


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        ("4-bit", "nf4"),
        ("bnb 4bit", "nf4"),
        ("load_in_4bit", "nf4"),
        ("NF4", "nf4"),
        ("NF4 (double quant)", "nf4-dq"),
        ("nf4 with double quantization", "nf4-dq"),
        ("8bit", "int8"),
        ("LLM.int8()", "int8"),
        ("GPTQ", "int4"),
        ("AWQ 4 bit", "int4"),
        ("GPTQ 8 bit", "int8"),
        ("nf4", ""),
        ("4 bit", ""),
        ("gptq-int4", ""),
        ("mxfp4", ""),
        ("2-bit", ""),
        ("", ""),
    ],
)
def test_formats_of_frozen_weights_in_words(words: str, stored: str) -> None:
    """Empty: the field has one of its own words, or one that is not known."""
    assert stored_named(words) == stored


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        ("attention only", "q,k,v,o"),
        ("QKVO", "q,k,v,o"),
        ("qkv", "q,k,v"),
        ("MLP only", "gate,up,down"),
        ("attention and MLP", ALL),
        ("attn + ffn layers", ALL),
        ('["q_proj", "v_proj"]', "q_proj,v_proj"),
        ("wq, wv", "q,v"),
        ("attention, lm_head", "q,k,v,o,lm_head"),
        ("q k v o gate up down", ""),
        ("q_proj,v_proj", ""),
        ("all-linear", ""),
        ("q_proj,v_proj (attention)", ""),
        ("c_attn,c_proj,w1,w2", ""),
    ],
)
def test_modules_with_adapters_in_words(words: str, targets: str) -> None:
    assert targets_named(words) == targets


def fields_of(**parts: Any) -> dict[str, Any]:
    return {
        "id": "one",
        "source": {"title": "our runs", "where": "log"},
        "task": "sft",
        "model": {"name": "meta-llama/Llama-3.1-8B"},
        "hardware": {"accelerator": "A100 80GB", "count": 1},
        "method": {"kind": "lora", "lora_rank": 16, "lora_targets_canonical": ALL, "quantized": "nf4"},
        "layout": {"framework": "TRL", "micro_batch": 2, "seq": 2048, "packed": True, "precision": "bf16"},
        "measured": {"step_seconds": 1.0},
        **parts,
    }


def test_qlora_is_lora_over_four_bits() -> None:
    """Dettmers et al. 2023 (arXiv:2305.14314): QLoRA's frozen weights are NF4 unless a row says otherwise."""
    for said, stored in ((None, "nf4"), ("int8", "int8")):
        method = {"kind": "QLoRA", **({"quantized": said} if said else {})}
        row = recognized(RowFields(Document("rows.yaml", None), 0, fields_of(method=method)), of_tuning)
        assert (row.text("method.kind"), row.text("method.quantized")) == ("lora", stored)


def test_a_row_in_words_is_a_row_in_names(tmp_path: pathlib.Path) -> None:
    """The same run, once in the names that the fields have and once in a source's words, has one prediction."""
    names = fields_of()
    words = fields_of(
        id="two",
        task="Supervised fine-tuning",
        method={"kind": "QLoRA", "lora_rank": 16, "lora_targets": "attention and MLP", "quantised": "bnb 4bit"},
    )
    path = tmp_path / "rows.yaml"
    path.write_text(json.dumps({"schema": "finetune/1", "rows": [names, words]}))  # JSON is YAML
    rows = run_line(f"validate {path} --json").data["rows"]
    assert rows[0]["predicted"] == rows[1]["predicted"] > 0


def test_what_trains_some_layers_is_not_lora(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.yaml"
    rows = [fields_of(id=kind, method={"kind": kind, "lora_rank": 8}) for kind in ("freeze", "BitFit", "lora")]
    path.write_text(json.dumps({"schema": "finetune/1", "rows": rows}))
    found = run_line(f"validate {path} --json").data["rows"]
    assert ["not modeled" in row.get("why", "") for row in found] == [True, True, False]


def test_sixteen_bits_in_words(tmp_path: pathlib.Path) -> None:
    """float16 is fp16 and not bf16, which a V100 does not multiply; what tf32 reaches is not known."""
    path = tmp_path / "rows.yaml"
    card = {"accelerator": "V100 32GB", "count": 1}
    rows = [
        fields_of(id=word, hardware=card, layout={**fields_of()["layout"], "precision": word})
        for word in ("fp16", "float16", "half", "tf32")
    ]
    path.write_text(json.dumps({"schema": "finetune/1", "rows": rows}))
    fp16, *others, tf32 = run_line(f"validate {path} --json").data["rows"]
    assert fp16["predicted"] > 0
    assert all(row["predicted"] == fp16["predicted"] for row in others)
    assert "tf32" in tf32["why"]


def memory_of(tmp_path: pathlib.Path, **layout: object) -> float:
    path = tmp_path / "rows.yaml"
    usual = {"framework": "Hugging Face Trainer", "micro_batch": 8, "seq": 4096, "packed": True, "precision": "bf16"}
    measured = {"peak_bytes": 1e10, "what": "allocated"}
    lora = {"kind": "lora", "lora_rank": 16, "lora_targets_canonical": ALL, "base_dtype": "bf16"}
    row = fields_of(method=lora, measured=measured, layout={**usual, "recompute": "full", **layout})
    path.write_text(json.dumps({"schema": "finetune/1", "rows": [row]}))
    return float(run_line(f"validate {path} --json").data["rows"][0]["predicted"])


def test_checkpoints_on_the_host_in_words(tmp_path: pathlib.Path) -> None:
    """32 layers keep their inputs of 8 · 4,096 tokens of 4,096 elements in 16 bits, but for a few on their way."""
    whole, moved = memory_of(tmp_path), memory_of(tmp_path, recompute="full (offloaded to the CPU)")
    kept = 32 * 8 * 4096 * 4096 * 2
    assert 0.8 * kept < whole - moved < kept
    assert memory_of(tmp_path, recompute="gradient checkpointing with offload") == moved
    assert memory_of(tmp_path, offload="activations") == moved
    assert memory_of(tmp_path, recompute="unsloth") < whole - 0.8 * kept


@pytest.mark.parametrize("words", ["CCE", "cut_cross_entropy", "cut-cross-entropy"])
def test_a_loss_without_logits_by_its_names(tmp_path: pathlib.Path, words: str) -> None:
    assert memory_of(tmp_path, kernels=words) == memory_of(tmp_path, loss="fused") < memory_of(tmp_path)


def test_a_word_within_another_is_none(tmp_path: pathlib.Path) -> None:
    assert memory_of(tmp_path, kernels="accelerated") == memory_of(tmp_path)


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("liger", True),
        ("LigerPlugin", True),
        ("foak-fast-kernels-liger", True),
        ("TE + triton + fsdp2_prefetch", True),
        ("apex fused", False),
        ("foak with kernels of our own", False),
    ],
)
def test_kernels_that_are_not_known_are_refused(tmp_path: pathlib.Path, words: str, read: bool) -> None:
    row = {
        "id": "one",
        "source": {"title": "t", "where": "w", "tier": "A"},
        "task": "sft",
        "model": {"name": "llama3-8b"},
        "hardware": {"accelerator": "A100 80GB", "count": 1},
        "method": {"kind": "full"},
        "layout": {"micro_batch": 1, "seq": 512, "precision": "bf16-pure", "framework": "torch", "kernels": words},
        "measured": {"peak_bytes": 80e9, "what": "allocated"},
    }
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"schema": "finetune/1", "rows": [row]}))
    (answer,) = run_line(f"validate {file} --json").data["rows"]
    assert ("predicted" in answer) == read
    assert read or answer["why"] == f"states layout.kernels: {words}: not modeled"


@pytest.mark.parametrize(
    ("trainer", "framework", "kernels", "quantized", "apart"),
    [
        ("hf-trainer", "transformers Trainer + FSDP", "", "", True),
        ("hf-trainer", "transformers Trainer + FSDP", "accelerated-peft-bnb", "nf4", True),
        ("hf-trainer", "transformers Trainer + FSDP", "accelerated-peft-bnb-foak", "nf4", False),
        ("hf-trainer", "transformers Trainer + FSDP", "foak-fast-kernels", "", True),
        ("hf-trainer", "transformers Trainer + FSDP2", "", "", False),
        ("axolotl", "axolotl + FSDP2", "", "", True),
        ("nemo-automodel", "NeMo AutoModel (FSDP2)", "", "", False),
    ],
)
def test_whose_adapters_are_fsdp_units(trainer: str, framework: str, kernels: str, quantized: str, apart: bool) -> None:
    """Those that peft's wrap policy or axolotl's own loop wraps; not those of fully_shard around a block, nor those
    that fused kernels of quantized layers keep out of FSDP."""
    layout = {"trainer": trainer, "framework": framework, "kernels": kernels}
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout, "method": {"quantized": quantized}})
    assert framework_of(row, "fsdp", trainer_of(row)).unit_of_adapter is apart

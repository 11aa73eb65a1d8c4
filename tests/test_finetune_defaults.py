"""What the software of a fine-tuning row does where the row does not say, and how far off memory of fine-tuning is."""

from __future__ import annotations

import math
import os
import pathlib
import runpy
from typing import Any

import pytest

from napkin.evidence.finetuning.defaults import attention_of, context_of, dropout_of, gets_mask, may_be_old
from napkin.evidence.finetuning.lengths import RowLengths
from napkin.evidence.finetuning.rows import fine_tuning
from napkin.evidence.intervals import margins
from napkin.evidence.rows.optimizers import optimizer_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.teams import thread_of
from napkin.footprint.allocator import CONTEXT, CONTEXT_EAGER
from napkin.inputs.load import Document
from napkin.operations.frameworks import FRAMEWORKS
from napkin.operations.implementations import HF
from napkin.training.layout import Layout
from napkin.training.trainers import TRAINERS
from tests.conftest import preset as network
from tests.conftest import run_line

ROOT = pathlib.Path(__file__).resolve().parent.parent


def a_row(**layout: Any) -> RowFields:
    return RowFields(Document("rows", None), 0, {"id": "a", "layout": layout})


@pytest.mark.parametrize(
    ("layout", "kernel"),
    [
        ({"versions": "transformers 4.35.2, torch 2.1"}, "eager"),
        ({"versions": "transformers 4.36.0"}, "flash"),
        ({"versions": "transformers 4.35.2", "attention": "flash_attention_2"}, "flash2"),
        ({}, "flash"),
    ],
)
def test_classes_before_4_36_attend_step_by_step(layout: dict[str, str], kernel: str) -> None:
    assert attention_of(a_row(**layout), HF) == kernel


@pytest.mark.parametrize(
    ("layout", "micro", "implementation", "masked"),
    [
        ({"attention": "sdpa"}, 4, "hf", True),
        ({}, 4, "hf", True),
        ({"attention": "sdpa"}, 1, "hf", False),  # no sample is longer than another
        ({"attention": "flash_attention_2"}, 4, "hf", False),  # takes lengths
        ({"attention": "sdpa"}, 4, "torchtune", False),
        ({"attention": "sdpa", "trainer": "unsloth"}, 4, "hf", False),
        ({"versions": "transformers 4.35"}, 4, "hf", False),  # eager
        ({"attention": "sdpa with a mask"}, 1, "hf", True),
    ],
)
def test_padding_is_a_mask_for_torchs_own_attention(
    layout: dict[str, str], micro: int, implementation: str, masked: bool
) -> None:
    row = a_row(**layout)
    lengths = RowLengths(300, (900, 600, 1200), varied=True, padded=True)
    code = FRAMEWORKS.get(implementation, HF)
    assert gets_mask(row, code, lengths, Layout(seq=300, micro=micro)) is masked
    packed = RowLengths(300, (300, 300, 300))
    assert gets_mask(row, code, packed, Layout(seq=300, micro=micro)) is ("mask" in str(layout))


def test_other_implementations_have_kernels_of_their_own() -> None:
    assert attention_of(a_row(versions="transformers 4.30"), FRAMEWORKS["torchtune"]) == "flash"


def test_a_class_drops_as_its_default_configuration_says() -> None:
    """BertConfig: hidden_dropout_prob and attention_probs_dropout_prob 0.1; OPTConfig: dropout 0.1; LlamaConfig: 0."""
    shares = {name: dropout_of(a_row(), network(name), HF) for name in ("bert-large-uncased", "opt-1.3b", "llama3-8b")}
    assert shares == {"bert-large-uncased": 0.1, "opt-1.3b": 0.1, "llama3-8b": 0.0}
    assert dropout_of(a_row(dropout=0), network("opt-1.3b"), HF) == 0
    assert dropout_of(a_row(), network("opt-1.3b"), FRAMEWORKS["megatron"]) == 0


def test_cuda_loads_all_kernels_before_torch_1_13() -> None:
    assert context_of(a_row(versions="torch 1.12.1")) is CONTEXT_EAGER
    assert context_of(a_row(versions="torch 1.13")) is CONTEXT
    assert context_of(a_row()) is CONTEXT


def test_optimizers_loop_over_tensors_before_torch_2() -> None:
    forms = [optimizer_of(a_row(versions=f"torch {version}, transformers 4.30"))[1] for version in ("1.13", "2.0")]
    assert forms == ["forloop", "foreach"]


def test_a_run_that_states_neither_kernel_nor_version_may_be_of_2023() -> None:
    loop, swift = TRAINERS["hf-trainer"], TRAINERS["ms-swift"]
    assert may_be_old(a_row(), loop, HF)
    assert may_be_old(a_row(attention="eager"), loop, HF)  # which is all that its classes knew
    assert not may_be_old(a_row(attention="sdpa"), loop, HF)
    assert not may_be_old(a_row(versions="transformers 4.45"), loop, HF)
    assert not may_be_old(a_row(), swift, HF)


def validated(path: str) -> list[dict[str, Any]]:
    found = run_line(f"validate {path} --json")
    assert found.status == 0, found.err
    rows: list[dict[str, Any]] = found.data["rows"]
    return rows


def test_such_a_run_can_take_what_eager_attention_takes(tmp_path: pathlib.Path) -> None:
    """Its upper end is at least that of the same run with the kernel stated, its prediction that without."""
    row = """- id: {id}
  source: {{title: hand-made}}
  task: sft
  model: {{preset: llama2-7b}}
  hardware: {{chip: A100 SXM 80GB, count: 1}}
  method: {{kind: lora, lora_rank: 8, lora_targets_canonical: 'q,v'}}
  layout: {{micro_batch: 4, seq: 2048, packed: true, recompute: full, precision: bf16-pure, trainer: none{more}}}
  measured: {{peak_bytes: 2e+10, what: allocated}}
"""
    file = tmp_path / "rows.yaml"
    kinds = {"open": "", "eager": ", attention: eager", "flash": ", attention: flash"}
    file.write_text("schema: finetune/1\nrows:\n" + "".join(row.format(id=i, more=m) for i, m in kinds.items()))
    found = {one["id"]: one for one in validated(str(file))}
    assert found["open"]["predicted"] == found["flash"]["predicted"]
    assert found["open"]["low"] == found["flash"]["low"]
    assert found["open"]["high"] == found["eager"]["high"]
    # 4 x 32 heads of 2048 x 2048 scores: at least the fp32 softmax and its 16-bit copy, in one layer at a time
    assert found["eager"]["predicted"] - found["flash"]["predicted"] > 4 * 32 * 2048**2 * (4 + 2)


def test_published_steps_of_bert_on_one_gpu_are_met() -> None:
    """nvidia-smi of the Trainer's documentation of 2022 (huggingface/transformers
    docs/source/en/perf_train_gpu_one.mdx): eight runs of BERT-large, within 8 %, half of them within 4 %."""
    rows = validated(str(ROOT / "configs" / "evidence" / "tuning_memory.yaml"))
    errors = sorted(abs(one["error"]) for one in rows if one["id"].startswith("hfone-"))
    assert len(errors) == 8
    assert errors[3] < 0.04
    assert errors[-1] < 0.08


def test_experts_of_gpt_oss_run_one_after_the_other_in_transformers_4(tmp_path: pathlib.Path) -> None:
    """With their clamped activation; checkpointed, one layer's experts hold about what the grouped products hold."""
    row = """- id: v{version}
  source: {{title: hand-made}}
  task: sft
  model: {{preset: gpt-oss-20b}}
  hardware: {{chip: A100 SXM 80GB, count: 1}}
  method: {{kind: lora, lora_rank: 8, lora_targets_canonical: 'q,k,v,o'}}
  layout: {{micro_batch: 1, seq: 4096, packed: true, precision: bf16-pure, trainer: hf-trainer, attention: eager,
    recompute: full, versions: transformers {version}}}
  measured: {{peak_bytes: 5e+10, what: allocated}}
"""
    file = tmp_path / "rows.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + "".join(row.format(version=one) for one in ("4.56", "5.0")))
    old, new = (one["predicted"] for one in validated(str(file)))
    assert 0.9 < old / new < 1.3


def test_targets_that_a_model_lacks_next_to_others_are_passed_over() -> None:
    """As peft does: Unsloth's notebook of gpt-oss-20b names seven modules, and prints 3,981,312 trained parameters,
    those of rank 8 on four of them in 24 layers of 2,880 with 64 heads and 8 key heads of 64."""
    names = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"
    stated = {
        "task": "sft",
        "model": {"preset": "gpt-oss-20b"},
        "method": {"kind": "lora", "lora_rank": 8, "lora_targets": names, "quantized": "nf4"},
        "layout": {"trainer": "unsloth", "micro_batch": 1, "seq_max": 1024},
    }
    asked = fine_tuning(RowFields(Document("rows", None), 0, stated))
    assert (tuning := asked.setup.implementation.tuning) is not None
    assert sorted(name.strip(".") for name in tuning.targets) == ["k_proj", "o_proj", "q_proj", "v_proj"]
    queries, keys = 64 * 64, 8 * 64
    assert 24 * 8 * (2 * (2880 + queries) + 2 * (2880 + keys)) == 3_981_312


def test_a_thread_is_one_source_whoever_owns_its_repository() -> None:
    assert thread_of("github hiyouga/LLaMA-Factory#7409") == thread_of("hiyouga/LlamaFactory issue #7409") != ""
    assert thread_of("github meta-pytorch/torchtune PR#389 (tables)") == "torchtune#389"
    assert thread_of("github pytorch/torchtune README.md line 125") == ""


def test_each_source_of_fine_tuning_weighs_the_same_and_its_own_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine sources within the ends and one of many rows 0.5 outside: at 90 % the interval need not hold the one; left
    out, or at 95 %, it is as wide as the rest, or as that one."""
    rows = tuple((f"a{n}", f"source {n}", "", "fsdp", 0.01) for n in range(9))
    rows += tuple((f"b{n}", "far", "repository#7", "plain", 0.5) for n in range(30))
    monkeypatch.setattr("napkin._tables.tuning_memory_errors.OUTSIDE", rows)
    margins.tuned.cache_clear()
    try:
        found = margins.tuned("fsdp", 0.9)
        assert (found.high, found.low) == pytest.approx((math.exp(0.01), math.exp(-0.01)))
        assert found.rows == 9
        assert margins.tuned("plain", 0.95).high == pytest.approx(math.exp(0.5))
        assert margins.tuned("plain", 0.95, ("far", "")).high == pytest.approx(math.exp(0.01))
        assert margins.tuned("plain", 0.95, ("another title", "repository#7")).high == pytest.approx(math.exp(0.01))
        assert margins.tuned("plain", 0.95, ("far", "")).rows == 0
    finally:
        margins.tuned.cache_clear()


def test_nine_tenths_of_fine_tuning_lie_in_the_intervals_of_the_other_sources() -> None:
    """Sources weigh the same; of some thirty, the standard error is five hundredths."""
    by_source: dict[str, list[bool]] = {}
    for one in validated(str(ROOT / "configs" / "evidence" / "tuning_memory.yaml")):
        if one["quantity"].startswith("memory") and one["measured"] and one["predicted"]:
            inside = one["low"] <= one["measured"] <= one["high"]
            by_source.setdefault(one["source"], []).append(inside)
    shares = [sum(inside) / len(inside) for inside in by_source.values()]
    assert len(shares) >= 25
    assert sum(shares) / len(shares) == pytest.approx(0.9, abs=0.05)


def test_the_table_is_what_the_tool_writes() -> None:
    tool = runpy.run_path(os.path.join(ROOT, "tools", "tuning_memory_accuracy.py"))
    assert tool["text"]() == pathlib.Path(tool["TABLE"]).read_text(encoding="utf-8"), "tools/tuning_memory_accuracy.py"

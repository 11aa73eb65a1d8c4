"""Every key of a published row is read, under its own name or another one, or said not to be."""

from __future__ import annotations

import copy
import json
import pathlib
import random
import re
from typing import Any

import pytest

from napkin.evidence import published
from napkin.evidence.published import Published
from napkin.evidence.rows.keys import KEYS
from napkin.training.tasks import TASKS
from tests.conftest import run_line

ROOT = pathlib.Path(__file__).parent.parent
EVIDENCE = ROOT / "configs" / "evidence"
MODEL = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "gated": True,
    "tied": False, "seq": 8192,
}  # fmt: skip
MACHINE = {"accelerator": "H100 SXM 80GB", "count": 64, "per_node": 8}
LAYOUT = {"tp": 2, "pp": 2, "dp": 16, "zero": 1, "micro_batch": 1, "global_batch": 128, "framework": "megatron-core"}
BASE: dict[str, dict[str, Any]] = {
    "steps/1": {"model": MODEL, "hardware": MACHINE, "layout": LAYOUT, "measured": {"step_seconds": 6.5}},
    "memory/1": {"model": MODEL, "hardware": MACHINE, "layout": LAYOUT, "memory": {"gib": 55.0, "what": "allocated"}},
    "finetune/1": {
        "task": "sft",
        "model": {"preset": "llama3.2-1b"},
        "hardware": {"accelerator": "A100 SXM 80GB", "count": 8, "per_node": 8},
        "method": {"kind": "lora", "lora_rank": 16, "lora_targets": "q_proj,v_proj"},
        "layout": {
            "trainer": "hf-trainer", "stack": "deepspeed", "zero": 3, "micro_batch": 2, "grad_accum": 4, "seq": 2048,
            "recompute": "full", "precision": "bf16-pure", "packed": True, "attention": "flash",
        },
        "measured": {"peak_bytes": 2 * 2**30, "what": "allocated", "step_seconds": 1.5},
    },
    "endtoend/1": {
        "model": "ours", "params_active": 7e9, "params_total": 7e9, "tokens": 1e12, "accelerator": "A100 SXM 80GB",
        "count": 512, "device_hours": 9e4, "seq_len": 4096, "precision": "bf16",
    },
    "serving/1": {
        "model": {"preset": "llama3.1-8b"},
        "quant": {"weights": "fp8", "kv": "fp8"},
        "hardware": {"accelerator": "H100 SXM 80GB", "count": 2},
        "layout": {"tp": 2},
        "engine": {"name": "vLLM"},
        "load": {"mode": "closed loop", "concurrency": 16, "input_tokens_mean": 1000, "output_tokens_mean": 200},
        "measured": {"output_tokens_per_second": 1500.0},
    },
}  # fmt: skip
Changes = dict[str, Any]
"""Path of a key → its value; None: without it."""


def changed(schema: str, changes: Changes, name: str) -> dict[str, Any]:
    row = {"id": name, **copy.deepcopy(BASE[schema])}
    for path, value in changes.items():
        *blocks, key = path.split(".")
        part = row
        for block in blocks:
            part = part.setdefault(block, {})
        if value is None:
            part.pop(key, None)
        else:
            part[key] = value
    return row


def read(path: pathlib.Path, schema: str, rows: list[dict[str, Any]]) -> Published:
    path.write_text(json.dumps({"schema": schema, "rows": rows}))  # JSON is YAML
    return published.read(str(path))


SAME: dict[str, list[Changes]] = {
    "steps/1": [
        {"layout.tp": None, "layout.tensor_model_parallel_size": 2},
        {"layout.micro_batch": None, "layout.per_device_train_batch_size": 1},
        {"layout.zero": "ZeRO-1"},
        {"layout.zero": None, "layout.zero_stage": 1},
        {"layout.zero": None, "layout.use_distributed_optimizer": True},
        {"layout.zero": None, "zero": 1},
        {"layout.global_batch": None, "layout.grad_accum": 8},
        {"hardware.count": None, "hardware.num_gpus": 64},
        {"hardware.count": None, "layout.gpus": 64},
        {"hardware.count": None, "hardware.nodes": 8},
        {"hardware.per_node": None, "layout.per_node": 8},
        {"hardware.count": None, "hardware.accelerator": "64x H100 SXM 80GB"},
        {"hardware.accelerator": "8x H100 SXM 80GB"},
        {"hardware.accelerator": None, "hardware.gpu": "H100 SXM 80GB"},
        {"model.layers": None, "model.num_hidden_layers": 32},
        {"model.kv_heads": None, "model.num_key_value_heads": 8},
        {"model.seq": None, "layout.seq": 8192},
        {"model.seq": "8192"},
        {"layout.recompute": None, "layout.gradient_checkpointing": False},
        {"layout.tensor_parallel": 2},
        {"measured.step_seconds": None, "measured.step_time_ms": 6500},
        {"measured.step_seconds": None, "step_seconds": 6.5},
        {"layout.learning_rate": 3e-4, "layout.seed": 7, "note": "ours", "author": "us"},
    ],
    "memory/1": [
        {"memory.gib": None, "memory.peak_bytes": 55 * 2**30},
        {"memory.gib": None, "memory.mib": 55 * 1024},
        {"memory.gb": 59.06},
        {"layout.tp": None, "layout.TP": 2},
    ],
    "finetune/1": [
        {"method.lora_rank": None, "method.lora_r": 16},
        {"method.lora_rank": None, "layout.lora_r": 16},
        {"method.kind": "LoRA (r=16, alpha=32)", "method.lora_rank": None},
        {"method.lora_targets": None, "method.target_modules": "q_proj,v_proj"},
        {"layout.grad_accum": None, "layout.gradient_accumulation_steps": 4},
        {"layout.recompute": None, "layout.gradient_checkpointing": True},
        {"layout.stack": "DeepSpeed ZeRO-3", "layout.zero": None},
        {"layout.trainer": "HuggingFace Trainer"},
        {"layout.trainer": "transformers"},
        {"layout.optimizer_form": "FUSED"},
        {"layout.precision": "pure bf16"},
        {"layout.precision": "bf16-true"},
        {"layout.packed": None, "layout.sample_packing": True},
        {"measured.peak_bytes": None, "measured.gib": 2.0},
        {"measured.peak_bytes": None, "measured.what": None, "measured.max_memory_allocated_gib": 2.0},
        {"measured.what": "max_memory_allocated"},
        {"model.num_hidden_layers": 16, "model.hidden_size": 2048, "model.tied": True},
        {"measured.step_seconds": None, "measured.step_time_ms": 1500},
        {"model.name": "Llama 3.2 1B", "model.name_or_path": "meta-llama/Llama-3.2-1B"},
    ],
    "endtoend/1": [
        {"count": None, "num_gpus": 512},
        {"accelerator": None, "hardware": "A100 SXM 80GB"},
        {"device_hours": None, "gpu_hours": 9e4},
        {"params_active": "7B", "params_total": "7B", "tokens": "1T"},
    ],
    "serving/1": [
        {"layout.tp": None, "layout.tensor_parallel_size": 2},
        {"hardware.accelerator": "2x H100 SXM 80GB", "hardware.count": None},
        {"load.concurrency": None, "load.max_concurrency": 16},
        {"load.input_tokens_mean": None, "load.output_tokens_mean": None, "load.isl": 1000, "load.osl": 200},
        {"quant.kv": None, "quant.kv_cache_dtype": "fp8"},
        {"quant.weights": None, "quant.quantization": "FP8"},
        {"engine": None, "engine.software": "vllm 0.8"},
        {"hardware.per_node": 8},
    ],
}  # fmt: skip
"""Rewritten rows of which every key means what the base's does."""


@pytest.mark.parametrize("schema", SAME)
def test_another_name_or_spelling_of_the_same_is_read(tmp_path: pathlib.Path, schema: str) -> None:
    rows = [changed(schema, {}, "base"), *(changed(schema, one, str(one)[:60]) for one in SAME[schema])]
    path = tmp_path / "rows.yaml"
    path.write_text(json.dumps({"schema": schema, "rows": rows}))
    answer = run_line(f"validate {path} --json").data["rows"]
    base = {one["quantity"]: one for one in answer if one["id"] == "base"}
    assert all("predicted" in one for one in base.values())
    for one in answer:
        kept = {key: base[one["quantity"]].get(key) for key in ("predicted", "low", "high")}
        assert {key: one.get(key) for key in kept} == kept, one
        assert one["measured"] == pytest.approx(base[one["quantity"]]["measured"], rel=1e-3), one
    assert len(answer) == len(base) * len(rows)


REFUSED: list[tuple[str, Changes, str]] = [
    ("steps/1", {"layout.micro_bach": 2}, "layout.micro_bach: not read; nearest: micro_batch"),
    ("steps/1", {"layout.frobnicate": 1}, "layout.frobnicate: not read"),
    ("steps/1", {"layout.dispatcher": "pigeons"}, "layout.dispatcher: pigeons is not known"),
    ("steps/1", {"layout.graphs": "most"}, "layout.graphs: most is not known"),
    ("steps/1", {"layout.expert_imbalance": 0.5}, "layout.expert_imbalance: 0.5 is out of range"),
    ("steps/1", {"hardware.power_limit_w": 250}, "hardware.power_limit_w: not read"),
    (
        "steps/1",
        {"model.experts": {"count": 8, "topk": 2, "ffn": 1024}},
        "model.experts.topk: not read; nearest: top_k",
    ),
    ("steps/1", {"model.mtp_layers": 1}, "model.mtp_layers: not read"),
    ("steps/1", {"layout.tensor_parallel": 4}, "layout.tensor_parallel: says 4, and layout.tp says 2: a contradiction"),
    ("steps/1", {"layout.batch_size": 4}, "write micro_batch or global_batch"),
    ("steps/1", {"layout.bf16": True}, "layout.bf16: not read"),
    ("steps/1", {"layout.deepspeed_plugin": {"zero_stage": 3}}, "layout.deepspeed_plugin: not read"),
    ("steps/1", {"setup": {"micro_batch": 4}}, "its keys belong elsewhere (micro_batch: layout.micro_batch)"),
    ("steps/1", {"layouts": {"tp": 4}}, "its keys belong elsewhere (tp: layout.tp)"),
    ("steps/1", {"measured.zero": 3}, "measured.zero: not read: write layout.zero"),
    ("steps/1", {"measured.step_second": 3}, "measured.step_second: not read; nearest: step_seconds"),
    ("steps/1", {"measured.step_time": 3}, "measured.step_time: not read: it has no unit; write step_seconds"),
    ("steps/1", {"hardware.accelerator": "16x H100 SXM 80GB"}, "says 16, and hardware.count says 64: a contradiction"),
    ("steps/1", {"hardware.nodes": 4}, "nodes 4 of 8, and hardware.count says 64: a contradiction"),
    ("steps/1", {"model.seq": "8,192"}, "'8,192' is not a number: write 8192: thousands have no commas"),
    ("steps/1", {"layout.lora_rank": 16}, "not that it trains by LoRA"),
    ("steps/1", {"model.attention": "eager"}, "write layout.attention"),
    ("memory/1", {"memory.gb": 70.0}, "memory.gb: 70, and memory.gib says 55: a contradiction"),
    ("memory/1", {"memory.byts": 5e9}, "memory.byts: not read; nearest: bytes"),
    ("finetune/1", {"method.kind": "lora r=8"}, "says rank 8, and method.lora_rank says 16: a contradiction"),
    ("finetune/1", {"layout.trainer": "axolotol"}, "'axolotol' is not known; nearest: axolotl"),
    ("finetune/1", {"layout.precision": "quarter"}, "'quarter' is not known"),
    ("finetune/1", {"layout.precision": "bf16-puer"}, "'bf16-puer' is not known; nearest: bf16-pure"),
    ("finetune/1", {"layout.attention": "swift-attn"}, "'swift-attn' is not known"),
    ("finetune/1", {"layout.stack": "deepspeed zero-2"}, "layout.zero says 3: a contradiction"),
    ("finetune/1", {"method.kind": "lroa"}, "'lroa' is not known; nearest: lora"),
    ("finetune/1", {"model.layers": 32}, "model.layers: 32: llama3.2-1b has 16"),
    ("finetune/1", {"layout.optimizer_form": "foreach!"}, "'foreach!' is not one of foreach, forloop, fused"),
    ("finetune/1", {"rl": {"autocast": False}}, "rl.autocast: not read: write layout.autocast"),
    ("memory/1", {"measured.kindly": 1, "measured.zero": 3}, "measured.zero: not read: write layout.zero"),
    ("finetune/1", {"layout.etp": 1}, "layout.etp: not read"),
    ("finetune/1", {"method.bias": True}, "method.bias: not read"),
    ("finetune/1", {"measured.what": "resrved"}, "'resrved' is not one of allocated, reserved, used, unstated"),
    ("finetune/1", {"rl": {"tensor_parallel": 4}}, "not read here: write layout.tp"),
    ("finetune/1", {"rl": {"frobnicate": 1}}, "rl.frobnicate: not read"),
    ("serving/1", {"load.request_rate": 4}, "load.request_rate: not read"),
    ("serving/1", {"quant.group_size": 128}, "quant.group_size: not read"),
    (
        "serving/1",
        {"layout.tensor_parallel": 4},
        "layout.tensor_parallel: says 4, and layout.tp says 2: a contradiction",
    ),
    ("serving/1", {"load.concurency": 8}, "load.concurency: not read; nearest: concurrency"),
    ("serving/1", {"engine.tp": 4}, "a contradiction"),
    ("endtoend/1", {"params_activ": 3e9}, "params_activ: not read; nearest: params_active"),
    ("endtoend/1", {"gpus": 256}, "gpus: says 256, and count says 512: a contradiction"),
    ("endtoend/1", {"hardware": {"chip": "H100"}}, "hardware"),
]


@pytest.mark.parametrize(("schema", "changes", "why"), REFUSED)
def test_what_may_change_the_answer_and_is_not_understood_refuses_the_row(
    tmp_path: pathlib.Path, schema: str, changes: Changes, why: str
) -> None:
    path = tmp_path / "rows.yaml"
    rows = [changed(schema, {}, "good"), changed(schema, changes, "bad")]
    path.write_text(json.dumps({"schema": schema, "rows": rows}))
    found = {one["id"]: one for one in run_line(f"validate {path} --json").data["rows"]}
    assert "predicted" in found["good"]
    assert "predicted" not in found["bad"]
    assert why in found["bad"]["why"]


@pytest.mark.parametrize(
    ("schema", "changes", "said"),
    [
        ("steps/1", {"measured.joules": 9e5}, "measured.joules: not read"),
        ("steps/1", {"layout.context_parallel": 2}, "layout.dp: 16 is not read; 64 accelerators leave 8"),
        ("steps/1", {"weather": "rain"}, "weather: not read"),
        ("steps/1", {"layout.frobnicate": False}, "layout.frobnicate: not read"),
        ("steps/1", {"model.seq": "8k"}, "model.seq: 8k is read as 8,000 (8Ki is 8,192)"),
        ("memory/1", {"memory.tb": 0.055}, "memory.tb: not read"),
        ("finetune/1", {"measured.gb": 40.0}, "measured.gb: not read; another figure than the peak in bytes"),
        ("finetune/1", {"layout.trainer": "homemade-9"}, "homemade-9 is not known: read as a plain loop"),
        ("endtoend/1", {"restarts": 12}, "restarts: not read"),
    ],
)
def test_what_is_not_read_and_may_not_matter_is_said(
    tmp_path: pathlib.Path, schema: str, changes: Changes, said: str
) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(json.dumps({"schema": schema, "rows": [changed(schema, changes, "one")]}))
    outcome = run_line(f"validate {path} --json")
    assert all("predicted" in one for one in outcome.data["rows"])
    assert any(said in note and "(one)" in note for note in outcome.data["notes"])
    assert said in " ".join(run_line(f"validate {path}").out.split())


def slip(word: str, drawn: random.Random) -> str:
    """Return a word with two letters exchanged, one lost, one doubled or one replaced."""
    at = drawn.randrange(len(word) - 1)
    changes = (
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + "x" + word[at + 1 :],
    )
    return drawn.choice([one for one in changes if one != word])


@pytest.mark.parametrize("schema", BASE)
def test_no_misspelled_key_is_passed_over_in_silence(tmp_path: pathlib.Path, schema: str) -> None:
    drawn, rows = random.Random(7), []
    base = BASE[schema]
    for block, part in base.items():
        for key in part if isinstance(part, dict) else [block]:
            path, value = (f"{block}.{key}", part[key]) if isinstance(part, dict) else (block, part)
            wrong = f"{path.rpartition('.')[0]}.{slip(key, drawn)}".lstrip(".")
            if len(key) > 2 and not any(
                wrong.rpartition(".")[2] in keys.read.split() for keys in KEYS[schema].values()
            ):
                rows.append(changed(schema, {path: None, wrong: value}, wrong))
    found = read(tmp_path / "rows.yaml", schema, [*rows, changed(schema, {}, "base")])
    said = {one.id for one in found.unread} | {name for name, _ in found.told}
    assert len(rows) > 7
    assert {row["id"] for row in rows} - said == set()
    assert "base" not in said


def test_a_number_that_yaml_cannot_hold_is_one_row_s_problem(tmp_path: pathlib.Path) -> None:
    text = json.dumps({"schema": "steps/1", "rows": [changed("steps/1", {}, "good"), changed("steps/1", {}, "bad")]})
    head, _, tail = text.rpartition("6.5")
    for value, why in (("1e400", "1e400 is not a finite number"), ("yes", "'yes' could be a text or a truth value")):
        (tmp_path / "rows.yaml").write_text(f"{head}{value}{tail}")
        found = {one["id"]: one for one in run_line(f"validate {tmp_path / 'rows.yaml'} --json").data["rows"]}
        assert "predicted" in found["good"]
        assert why in found["bad"]["why"]


@pytest.mark.parametrize("name", ["tuning.yaml", "tuning_memory.yaml", "rollouts.yaml", "example.yaml"])
def test_every_key_of_the_shipped_rows_is_known(name: str) -> None:
    found = published.read(str(EVIDENCE / name))
    assert found.unread == []
    assert {what.partition(":")[0] for _, what in found.told} <= {"rl.rollout_pp", "rl.colocated", "rl.staleness"} | {
        "rl.partial_rollout", "layout.attention", "rl.reshard", "rl.engine_offload"
    }  # fmt: skip


def test_the_page_of_the_keys_names_only_keys_that_are_read() -> None:
    page = (ROOT / "docs" / "rows.md").read_text()
    read_ = {word for blocks in KEYS.values() for keys in blocks.values() for word in keys.read.split()}
    shown = page.partition("## The run")[2]
    named = {word for quoted in re.findall(r"`([^`]+)`", shown) for word in re.findall(r"^[a-z][a-z_]+$", quoted)}
    values = {"full", "lora", "dora", *TASKS, "params", "memory", "mib", "gib", "gb", "finetune", "steps"}
    assert named - read_ - values == set()
    assert len(named & read_) > 100


def test_columns_of_a_table_are_keys(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.csv"
    names = [f"{block}.{key}" for block in ("model", "hardware", "layout") for key in BASE["steps/1"][block]]
    cells = [str(BASE["steps/1"][block][key]) for block, _, key in (name.partition(".") for name in names)]
    for column, value, why in (("measured.step_time_ms", "6500", ""), ("measured.step_fortnights", "1", "step time")):
        path.write_text(f"id,schema,{','.join(names)},{column}\none,steps/1,{','.join(cells)},{value}\n")
        outcome = run_line(f"validate {path} --json")
        assert why in outcome.data["rows"][0].get("why", "")
        assert ("predicted" in outcome.data["rows"][0]) == (why == "")
        assert any(column in note for note in outcome.data["notes"]) == (why != "")

"""Rows of measured serving: what each way of sending requests gives, what is refused, and what holding a source out
changes."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.conftest import run_line

ROW = """- id: {id}
  source: {{title: '{title}'}}
  model: {{preset: {preset}}}
  quant: {quant}
  hardware: {hardware}
  layout: {layout}
  engine: {engine}
  load: {load}
  measured: {measured}
"""
USUAL = {
    "id": "a",
    "title": "hand-made",
    "preset": "llama3.1-8b",
    "quant": "{weights: bf16}",
    "hardware": "{chip: H100 SXM 80GB, count: 1}",
    "layout": "{tp: 1}",
    "engine": "{name: vLLM}",
    "load": "{mode: closed loop, concurrency: 16, input_tokens: 1000, output_tokens: 200}",
    "measured": "{output_tokens_per_second: 1000}",
}
TRTLLM = "TensorRT-LLM performance page, v0.6.1 (static batches)"


def validated(tmp_path: pathlib.Path, *rows: dict[str, str], line: str = "") -> list[dict[str, Any]]:
    file = tmp_path / "serving.yaml"
    file.write_text("schema: serving/1\nrows:\n" + "".join(ROW.format(**{**USUAL, **row}) for row in rows))
    found = run_line(f"validate {file} {line} --json")
    assert found.status == 0, found.err
    return list(found.data["rows"])


def predicted(tmp_path: pathlib.Path, **row: str) -> dict[str, float]:
    return {one["quantity"]: one["predicted"] for one in validated(tmp_path, row)}


def test_rates_and_times_of_a_closed_loop_belong_together(tmp_path: pathlib.Path) -> None:
    measured = "{output_tokens_per_second: 1, output_tokens_per_second_per_gpu: 1, total_tokens_per_second: 1,"
    found = predicted(tmp_path, measured=measured + " requests_per_second: 1, total_latency_ms: 1}")
    assert found["total_tokens_per_second"] == pytest.approx(found["output_tokens_per_second"] * 1200 / 200)
    assert found["requests_per_second"] * found["total_latency_ms"] / 1e3 == pytest.approx(16)  # Little's law
    assert found["output_tokens_per_second_per_gpu"] == found["output_tokens_per_second"]


def test_one_request_decodes_no_faster_than_its_weights_are_read(tmp_path: pathlib.Path) -> None:
    load = "{mode: single, batch: 1, input_tokens: 128, output_tokens: 128}"
    measured = "{decode_tokens_per_second: 100, tpot_ms: 10, ttft_ms: 20}"
    found = predicted(tmp_path, load=load, measured=measured)
    read = (8.03e9 - 128256 * 4096) * 2  # the input embedding is a table: one row
    assert found["decode_tokens_per_second"] < 3.35e12 / read
    assert found["decode_tokens_per_second"] * found["tpot_ms"] == pytest.approx(1000)


def test_rates_over_several_lengths_are_an_entry_each(tmp_path: pathlib.Path) -> None:
    bench = {"engine": "{name: llama.cpp}", "quant": "{weights: Q4_K_M}", "load": "{mode: single, batch: 1}"}
    measured = (
        "{decode_tokens_per_second: {512: 100, 8192: 90}, prefill_tokens_per_second: {512: 5e3}, weights_gib: 4.58}"
    )
    rows = validated(tmp_path, {**bench, "measured": measured})
    assert [one["quantity"] for one in rows].count("decode_tokens_per_second") == 2
    decode = [one["predicted"] for one in rows if one["quantity"] == "decode_tokens_per_second"]
    assert decode[0] > decode[1]
    size = next(one for one in rows if one["quantity"] == "weights_gib")
    assert size["predicted"] == pytest.approx(8030261248 * 4.8944 / 8 / 2**30)
    assert abs(size["error"]) < 0.005


def test_a_fixed_batch_makes_its_tokens_after_its_prompts(tmp_path: pathlib.Path) -> None:
    load = "{mode: static, batch: 64, input_tokens: 1000, output_tokens: %s}"
    long = predicted(tmp_path, load=load % 1000)
    short = predicted(tmp_path, load=load % 10)
    assert short["output_tokens_per_second"] < long["output_tokens_per_second"]


def test_limits_on_latency_cost_tokens(tmp_path: pathlib.Path) -> None:
    machine = {"preset": "llama2-70b", "hardware": "{chip: H200 SXM 141GB, count: 8}", "layout": "{}"}
    machine |= {"quant": "{weights: fp8}", "engine": "{name: TensorRT 10}"}
    rates = []
    for mode in ("offline", "server, with limits", "interactive"):
        load = f"{{mode: '{mode}', dataset: MLPerf Inference, output_tokens_mean: 300}}"
        rates.append(predicted(tmp_path, **machine, load=load)["output_tokens_per_second"])
    assert rates[0] > rates[1] > rates[2] > 0


def test_the_kv_cache_follows_the_engines_memory_fraction(tmp_path: pathlib.Path) -> None:
    row = {"load": "{mode: start-up log}", "measured": "{kv_cache_tokens: 30k, kv_cache_gib_per_gpu: 50}"}
    most = predicted(tmp_path, **row, engine="{name: vLLM, options: 'gpu-memory-utilization 0.95'}")
    less = predicted(tmp_path, **row, engine="{name: vLLM, options: gpu_memory_utilization 0.9}")
    capacity = 79.2  # GiB, as the driver reports an H100
    assert most["kv_cache_gib_per_gpu"] - less["kv_cache_gib_per_gpu"] == pytest.approx(0.05 * capacity, rel=0.01)
    each = 131072  # bytes of a token: 2 · 32 layers · 8 heads · 128 · 2
    assert most["kv_cache_tokens"] == pytest.approx(most["kv_cache_gib_per_gpu"] * 2**30 / each, rel=1e-3)


def test_requests_of_one_length_wait_for_the_prompts_of_the_others(tmp_path: pathlib.Path) -> None:
    measured = "{ttft_ms: 1, tpot_ms: 1, total_latency_ms: 1}"
    alike = predicted(tmp_path, measured=measured)
    load = "{mode: closed loop, concurrency: 16, input_tokens_mean: 1000, output_tokens_mean: 200}"
    spread = predicted(tmp_path, load=load, measured=measured)
    assert alike["ttft_ms"] > 3 * spread["ttft_ms"]
    assert alike["tpot_ms"] < spread["tpot_ms"]
    for found in (alike, spread):
        assert found["ttft_ms"] + 199 * found["tpot_ms"] == pytest.approx(found["total_latency_ms"])


REFUSED = (
    ({"load": "{mode: closed loop, concurrency: 8}"}, "how long its prompts are is not stated"),
    ({"load": "{mode: closed loop, input_tokens: 8, output_tokens: 8}"}, "how many requests are in flight"),
    ({"load": "{mode: static, input_tokens: 8, output_tokens: 8}"}, "the batch is not stated"),
    ({"load": "{mode: production day}"}, "production traffic"),
    ({"load": "{mode: by hand}"}, "how requests arrive is not modeled: by hand"),
    ({"load": "{mode: server, output_tokens: 8, input_tokens: 8}"}, "the limits on its latency are not known"),
    ({"engine": "{name: vLLM, options: 'EAGLE, 3 tokens'}"}, "speculation"),
    ({"load": "{mode: single, prefix_cache_hit_fraction: 0.5}"}, "cached before"),
    ({"hardware": "{chip: Z9, count: 1}"}, "unknown accelerator"),
    ({"hardware": "{chip: H100 SXM 80GB}"}, "how many GPUs"),
    ({"layout": "{tp: 3}", "hardware": "{chip: H100 SXM 80GB, count: 8}"}, "do not divide 8 GPUs"),
    ({"quant": "{weights: as shipped}"}, "how its weights are stored is not known: as shipped"),
    ({"quant": "{}"}, "how its weights are stored is not stated"),
    ({"measured": "{kv_cache_tokens: barely 10k}"}, "printed in words: barely 10k"),
)


@pytest.mark.parametrize(("row", "why"), REFUSED)
def test_missing_or_unmodeled_figures_are_reported(tmp_path: pathlib.Path, row: dict[str, str], why: str) -> None:
    (found,) = validated(tmp_path, row)
    assert "predicted" not in found
    assert why in found["why"]


def test_a_row_that_holds_what_it_cannot_does_not_refuse_the_others(tmp_path: pathlib.Path) -> None:
    wrong, right = validated(tmp_path, {"measured": "{derived: 3, ttft_ms: 4}"}, {"id": "b"})
    assert "measured.derived: is not a list" in wrong["why"]
    assert right["predicted"] > 0


def test_no_speculation_is_none(tmp_path: pathlib.Path) -> None:
    (found,) = validated(tmp_path, {"engine": "{name: SGLang, options: no speculation}"})
    assert found["predicted"] > 0


def test_the_class_of_evidence_is_reported_and_widens_the_interval(tmp_path: pathlib.Path) -> None:
    known, other = validated(tmp_path, {}, {"id": "b", "engine": "{name: an engine of our own}"})
    assert (known["evidence"], other["evidence"]) == ("measured", "engine unknown")
    assert known["low"] < known["predicted"] < known["high"]
    assert other["high"] / other["low"] >= known["high"] / known["low"] * 0.999


def test_constants_do_not_see_the_rows_own_source(tmp_path: pathlib.Path) -> None:
    row = {"engine": "{name: TensorRT-LLM}", "quant": "{weights: fp8, kv: fp8}"}
    own, other = validated(tmp_path, {**row, "title": TRTLLM}, {**row, "id": "b"})
    inside, _ = validated(tmp_path, {**row, "title": TRTLLM}, {**row, "id": "b"}, line="--in-sample")
    assert own["predicted"] != other["predicted"]
    assert inside["predicted"] == other["predicted"]


def test_a_group_over_two_nodes_reduces_over_their_network(tmp_path: pathlib.Path) -> None:
    one = {"hardware": "{chip: H100 SXM 80GB, count: 8, per_node: 8}", "layout": "{tp: 8}"}
    two = {**one, "hardware": "{chip: H100 SXM 80GB, count: 8, per_node: 4}"}
    within, between = (predicted(tmp_path, **row)["output_tokens_per_second"] for row in (one, two))
    assert between < 0.9 * within

"""The evidence: facts are read as they are printed, fits find what made the rows, intervals cover what they say."""

from __future__ import annotations

import itertools
import math
import os
import pathlib
import re
import runpy
import statistics
from typing import Any

import numpy as np
import pytest
import yaml

from napkin._tables import calibration, published_steps
from napkin.counting import conventions, flops, utilization
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.evidence import (
    accuracy,
    chips,
    constants,
    facts,
    footprint,
    goodput,
    one_constant,
    prices,
    published,
    recognize,
    recognize_memory,
    recognize_steps,
    row_networks,
    run_rows,
    runs,
    setups,
    software,
    teams,
)
from napkin.evidence.columns import Columns
from napkin.evidence.compared import Compared
from napkin.evidence.constants import own_error_of
from napkin.evidence.fit import Problem, in_quantity, seconds_of
from napkin.evidence.intervals import CLASSES, Growth, class_of, classes, distance, nearest, own_error, point, quantile
from napkin.evidence.machines import machine
from napkin.evidence.printed import PrintedDecoder
from napkin.evidence.priors import CHIP, PRIORS, prior_of
from napkin.evidence.ranking import nearest_rank, weighted_quantile
from napkin.evidence.recognize_steps import policy_of
from napkin.evidence.row_models import model_of
from napkin.evidence.rows import RowFields
from napkin.evidence.step_rows import StepRow, step_row
from napkin.evidence.validate import point_of, steps
from napkin.inputs import hardware
from napkin.inputs.hardware import find
from napkin.inputs.load import Document
from napkin.inputs.peaks import peak_name
from napkin.record import replace
from napkin.training.precision import precision
from tests.conftest import ROOT, Napkin, preset, run_line

H, F = 256, 384
"""Width and MLP width of small decoders."""

ROW = """
schema: steps/1
rows:
- id: mine
  source: {title: my cluster, where: log}
  model: {name: M, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, seq: 8192, gated: true}
  hardware: {chip: H100 SXM 80GB, count: 64, per_node: 8}
  layout: {stack: megatron-core, tp: 2, pp: 1, dp: 32, micro_batch: 1, global_batch: 256, policy: bf16-mixed}
  measured: {step_seconds: 5.0}
"""


def rows_of(tmp_path: pathlib.Path, text: str) -> list[StepRow]:
    path = tmp_path / "rows.yaml"
    path.write_text(text, encoding="utf-8")
    return published.read(str(path)).steps


# --- reading ---


def test_the_shipped_evidence_is_read_whole() -> None:
    rows = facts.steps()
    assert len(rows) == 846
    assert sum(1 for row in rows if not row.why) >= 787
    assert all(row.why for row in rows if row.measured is None)
    assert len({row.id for row in rows}) == len(rows)
    assert {row.stack for row in rows if not row.why} - {""} <= set(software.STACKS)  # "": software of its own
    for row in rows:
        assert row.chip or row.why
        assert not row.chip or hardware.find(row.chip).peaks


PROSE = {
    "source": ("title", "where"),
    "layout": ("precision", "recompute"),
    "hardware": ("interconnect",),
    "model": ("attention", "position"),
    "convention": ("formula",),
    "memory": ("kind", "unit", "which"),
}
"""Fields that hold a source's own words."""


def without_words(row: RowFields) -> RowFields:
    """Return the row with other words in place of its source's."""
    fields = {**row.fields, "note": "words", "where": "words"}
    for part, names in PROSE.items():
        fields[part] = {key: "words" if key in names else value for key, value in row.part(part).items()}
    return RowFields(row.document, row.index, fields)


def test_no_word_of_the_shipped_evidence_is_read() -> None:
    table = published_steps
    for row in facts.expanded(table.ROWS, table.SOURCES, table.MODELS):
        told = step_row(row)
        assert replace(step_row(without_words(row)), source=told.source, note=told.note) == told
    for row in facts.memory():
        other = without_words(row)
        found, as_shipped = (footprint.compared(one) for one in (other, row))
        assert (found.predicted, found.low, found.high) == (as_shipped.predicted, as_shipped.low, as_shipped.high)
        assert found.why == as_shipped.why


def test_a_user_s_prose_is_read_as_the_shipped_fields_state_it() -> None:
    table = published_steps
    for row in facts.expanded(table.ROWS, table.SOURCES, table.MODELS):
        assert step_row(recognize.recognized(row, recognize_steps.of_step)) == step_row(row)
    for row in facts.memory():
        read = recognize.recognized(row, recognize_memory.of_memory)
        assert footprint.compared(read) == footprint.compared(row)


@pytest.mark.parametrize(
    ("layout", "source", "wanted"),
    [
        ({"framework": "torchtitan", "compile": True}, "", {"stack": "fsdp-compiled", "recompute_kind": "selective"}),
        ({"framework": "torchtitan"}, "", {"stack": "fsdp-eager", "recompute_kind": "selective"}),
        ({}, "NVIDIA Megatron Bridge, container 26.08", {"stack": "megatron-core-2026", "attention": "cudnn"}),
        ({}, "NVIDIA Megatron Bridge, container 26.04", {"stack": "megatron-core", "attention": "cudnn"}),
        ({}, "NVIDIA NeMo performance summary, container 24.07", {"stack": "megatron-core-2024"}),
        ({}, "NVIDIA NeMo performance summary, container 24.12", {"stack": "megatron-core"}),
        ({}, "MLPerf training v3.1 results, gpt3 175B", {"stack": "megatron-mlperf-2023"}),
        ({}, "MLPerf training v5.0 results, llama31_405b", {"stack": "megatron-mlperf"}),
        (
            {"stack": "nanotron", "recompute": "every other layer"},
            "",
            {"stack": "nanotron", "recompute_layers": 0.5, "recompute_kind": "other"},
        ),
        ({"stack": "lean", "recompute": "yes"}, "", {"stack": "lean", "recompute_kind": "full"}),
        ({"stack": "lean", "recompute": "yes", "recompute_kind": "none"}, "", {"stack": "lean"}),
        ({"stack": "lean", "recompute": "unstated"}, "", {"stack": "lean"}),
        (
            {"precision": "fp8 rowwise, fp32 gradients"},
            "",
            {"policy": "fp8-mixed", "scaling": "rowwise", "gradient_dtype": "fp32"},
        ),
        ({"precision": "FP8"}, "", {"policy": "fp8-mixed"}),
        ({"precision": "FP8 hybrid, bf16 elsewhere"}, "", {"policy": "fp8-mixed"}),
        ({"precision": "torch.bfloat16"}, "", {"policy": "bf16-mixed"}),
        ({"precision": "fp16"}, "", {"policy": "fp16-mixed"}),
        ({"precision": "bf16 autocast"}, "", {"policy": "amp-bf16"}),
        ({"precision": "mixed"}, "", {}),
        ({"precision": "bf16", "policy": "fp8-mixed"}, "", {}),
        ({"attention": "FlashAttention-3"}, "", {"attention": "cudnn"}),
        ({"attention": "sdpa (cuDNN)"}, "", {"attention": "cudnn"}),
        ({"attention": "FlashAttention-2"}, "", {"attention": "flash2"}),
        ({"attention": "xformers"}, "", {"attention": "efficient"}),
        ({"attention": "Transformer Engine"}, "", {"attention": "cudnn"}),
        ({"attention": "flash1"}, "", {}),
        ({"stack": "deepspeed", "framework": "accelerate"}, "", {"stack": "fsdp-eager"}),
        ({"stack": "ddp", "compile": True}, "", {"stack": "fsdp-compiled"}),
        ({"stack": "deepspeed", "framework": "Megatron-DeepSpeed"}, "", {"stack": "megatron-deepspeed"}),
        ({"framework": "DeepSpeed, transformers"}, "", {"stack": "fsdp-eager"}),
        # a benchmark compiles where its authors' do: torchtitan's and fms's, not everybody's
        ({"framework": "open_lm (PyTorch FSDP)"}, "OpenLM, benchmarks", {"stack": "fsdp-eager"}),
        ({"framework": "PyTorch FSDP"}, "IBM fms-fsdp training benchmarks", {"stack": "fsdp-compiled"}),
        (
            {},
            "MosaicML LLM Foundry, tables",
            {
                "stack": "fsdp-eager",
                "attention": "flash1",
                "newer_attention": "flash2",
                "chunked_cross_entropy": True,
            },
        ),
        (
            {},
            "MosaicML LLM Foundry, tables of March 2024",
            {"stack": "fsdp-eager", "attention": "flash2", "chunked_cross_entropy": True},
        ),
        (
            {},
            "MosaicML LLM Foundry, tables of June 2023",
            {"stack": "fsdp-eager", "attention": "flash1", "chunked_cross_entropy": True},
        ),
        (
            {"attention": "FlashAttention-2"},
            "MosaicML LLM Foundry, tables",
            {"stack": "fsdp-eager", "attention": "flash2", "chunked_cross_entropy": True},
        ),
        (
            {"loss": "plain"},
            "MosaicML LLM Foundry, tables",
            {"stack": "fsdp-eager", "attention": "flash1", "newer_attention": "flash2", "loss": None},
        ),
        ({"framework": "DeepSpeed ZeRO-3"}, "", {"stack": "fsdp-eager"}),
        ({"framework": "DeepSpeed", "compile": True}, "", {"stack": "fsdp-compiled"}),
        ({"framework": "Megatron-LM with DeepSpeed"}, "", {"stack": "megatron-deepspeed"}),
        ({"loss": "Liger"}, "", {"chunked_cross_entropy": True, "loss": None}),
        (
            {"kernels": "Liger-Kernel"},
            "",
            {"chunked_cross_entropy": True, "layer_kernels": "liger", "kernels": None},
        ),
        ({"kernels": "own"}, "", {}),
        ({"offload": "activations"}, "", {"activation_offload": True, "offload": None}),
        (
            {"offload": "optimizer, activations"},
            "",
            {"optimizer_offload": True, "activation_offload": True, "offload": None},
        ),
        ({"offload": "optimizer, parameters"}, "", {}),
        ({"attention": "sparse"}, "", {}),
        ({"recompute": "full (--checkpoint-activations)"}, "", {"recompute_kind": "full"}),
        ({"recompute": "full (10 of 80 layers)"}, "", {"recompute_kind": "other", "recompute_layers": 10 / 80}),
        ({"recompute": "full (default of XTuner)"}, "", {"recompute_kind": "full"}),
        ({"recompute": "no activation checkpointing"}, "", {"recompute_kind": "none"}),
        ({"batch_tokens": "0.5M"}, "", {"batch_tokens": 2**19}),
    ],
)
def test_what_is_read_in_prose(layout: dict[str, Any], source: str, wanted: dict[str, Any]) -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout, "source": {"title": source}})
    assert recognize_steps.of_step(row)["layout"] == wanted


def test_offloads_in_memory_are_read_by_their_names() -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": {"offload": "optim, params", "loss": "chunked"}})
    assert (
        recognize_memory.of_memory(row)["layout"].items()
        >= {
            "offload": None,
            "optimizer_offload": True,
            "cpu_offload": True,
            "loss": None,
            "chunked_cross_entropy": True,
        }.items()
    )


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        ({"framework": "torchtitan", "stack": "fsdp-eager"}, "torchtitan"),
        ({"framework": "torchtitan", "stack": "deepspeed"}, "deepspeed"),
        ({"framework": "deepspeed", "stack": "fsdp-eager"}, "fsdp"),
        ({"stack": "fsdp-compiled"}, "torchtitan"),
    ],
)
def test_the_framework_of_a_row_of_memory(layout: dict[str, Any], name: str) -> None:
    found = setups.framework_of(RowFields(Document("rows.yaml", None), 0, {"layout": layout}))
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        ({"framework": "transformers Trainer", "zero": 2}, "deepspeed"),
        ({"framework": "HF Trainer + peft"}, "plain"),
        ({"framework": "TRL", "zero": 0}, "plain"),
        ({"framework": "accelerate with FSDP", "zero": 3}, "fsdp"),
        ({"framework": "Colossal-AI, HybridParallelPlugin", "zero": 1}, "colossalai"),
        ({"framework": "verl", "zero": 3}, "deepspeed"),
        ({"framework": "NeMo RL"}, "megatron-core"),
        ({"framework": "our own", "zero": 2}, ""),
    ],
)
def test_the_framework_that_a_library_s_name_says(layout: dict[str, Any], name: str) -> None:
    """One that trains Hugging Face's classes; a stage of ZeRO without a word for what shards is DeepSpeed's."""
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout})
    assert (recognize_memory.of_memory(row)["layout"].get("framework") or "") == name


@pytest.mark.parametrize(
    ("layout", "kernel"),
    [
        ({"framework": "Megatron-LM, local implementation"}, "eager"),
        ({"framework": "Megatron-LM, local implementation", "attention": "flash"}, "flash"),
        ({"framework": "Megatron-LM, transformer_engine"}, ""),
        ({"framework": "DeepSpeed on a local disk", "zero": 2}, ""),
    ],
)
def test_megatrons_own_layers_have_no_attention_kernel(layout: dict[str, Any], kernel: str) -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout})
    assert recognize_memory.of_memory(row)["layout"].get("attention", "") == kernel


@pytest.mark.parametrize(
    ("changes", "block"),
    [
        ({"kv_heads": 2}, (2 * H * H + 2 * H * 2 * 64) + 2 * H * F),
        ({"kv_heads": 4, "experts": 8, "top_k": 2, "expert_ffn": 96}, 4 * H * H + 8 * H + 8 * 2 * H * 96),
        (
            {"gated": True, "kv_heads": 4, "experts": 8, "top_k": 2, "expert_ffn": 96, "shared_ffn": 48},
            4 * H * H + 8 * H + 8 * 3 * H * 96 + 3 * H * 48,
        ),
    ],
)
def test_a_rows_shape_keeps_few_key_heads_and_its_experts(changes: dict[str, Any], block: int) -> None:
    """GPT's MLPs without a gate next to grouped queries or experts, and shared experts: weights of the matrices, by
    hand. Biases, norms and positions are what is left, less than a hundredth."""
    usual = {"kv_heads": 4, "head_dim": 64.0, "ffn": F, "vocab": 512, "gated": False, "tied": True}
    dims = PrintedDecoder("small", 4, H, 4, **{**usual, **changes})
    counted = float(params(model_of(dims, 8))["params/total"].value)
    exact = 4 * block + 512 * H
    assert exact < counted < 1.01 * exact


def test_dense_layers_before_those_with_experts() -> None:
    dims = PrintedDecoder("small", 4, H, 4, 4, 64.0, F, 512, True, True, 8, 2, 96, 0, 1)
    routed, dense = 8 * H + 8 * 3 * H * 96, 3 * H * F
    counted = float(params(model_of(dims, 8))["params/total"].value)
    assert counted == 512 * H + 4 * (4 * H * H + 2 * H) + 3 * routed + dense + H


def test_layers_of_a_row_run_ligers_kernels() -> None:
    """Their loss keeps no logits, and their norms are one kernel; words for a loss alone say nothing of the layers."""
    layout = {"framework": "DeepSpeed, transformers, Liger-Kernel", "tp": 1, "dp": 8, "zero": 3, "micro_batch": 1}
    for changes, norms in (({}, "own"), ({"framework": "DeepSpeed", "loss": "fused"}, "reference")):
        fields = {"layout": {**layout, **changes}, "model": {"preset": "llama3.1-8b", "seq": 4096}}
        row = recognize.recognized(RowFields(Document("rows.yaml", None), 0, fields), recognize_memory.of_memory)
        framework = setups.framework_of(row)
        assert framework is not None
        code = setups.code_for(row, framework, preset("llama3.1-8b"))
        assert (code.loss, code.norms) == ("fused", norms)


def test_a_row_with_a_preset_s_name_and_no_shape_has_the_preset_s(tmp_path: pathlib.Path) -> None:
    layout = "{tp: 1, dp: 8, zero: 3, micro_batch: 1, global_batch: 8, precision: bf16, stack: fsdp-eager}"
    text = f"""schema: steps/1
rows:
- id: x
  source: {{title: hand-made}}
  model: {{MODEL, seq: 8192}}
  hardware: {{chip: H100 SXM 80GB, count: 8}}
  layout: {layout}
  measured: {{step_seconds: 1}}
"""
    shapes = [
        rows_of(tmp_path, text.replace("MODEL", model))[0].shape
        for model in ("preset: llama3.1-8b", "name: meta-llama/Llama 3.1 8B Instruct", "name: Llama 3.1 8B Wide")
    ]
    assert shapes[0] == shapes[1] is not None
    assert shapes[2] is None


def test_the_constants_belong_to_these_facts() -> None:
    """Every row that is counted has its place among the errors; a change of rows needs tools/calibrate.py again."""
    counted = {row.id for row in facts.steps() if not row.why and not row.suspect}
    assert {entry[0] for entry in calibration.SEEN} == counted
    assert set(PRIORS) <= set(calibration.CONSTANTS)
    assert {name for name in calibration.CONSTANTS if name not in PRIORS} == chips.factors()


def test_accelerators_with_figures_of_their_own_have_a_factor() -> None:
    """Most rows of Hopper are of H100 with 700 W, of Ampere of A100 with 312 TFLOP/s at 400 W, whatever its memory. A
    GeForce card's share is not that of its generation."""
    of = {name.removeprefix(CHIP) for name in chips.factors()}
    assert {"H100 SXM 96GB 500W", "GB300 (per GPU)", "TPU v6e"} <= of
    assert not {"RTX 3090", "H100 SXM 80GB", "H200 SXM 141GB", "A100 SXM 40GB", "A100 SXM 80GB"} & of
    assert set(calibration.WITHOUT) == {entry[1] for entry in calibration.SEEN} | {"qwen", "fms-acceleration"}
    for name, value in calibration.CONSTANTS.items():
        assert value > 0, name


def test_a_step_row(tmp_path: pathlib.Path) -> None:
    (row,) = rows_of(tmp_path, ROW)
    assert (row.tp, row.dp, row.seq, row.stack, row.why) == (2, 32, 8192, "megatron-core", "")
    assert row.shape is not None
    assert row.shape.head_dim == 128
    assert seconds_of(row) == 5.0


def test_a_stated_rate_or_mfu_never_reaches_the_prediction(tmp_path: pathlib.Path) -> None:
    plain = rows_of(tmp_path, ROW)
    said = rows_of(tmp_path, ROW.replace("step_seconds: 5.0", "step_seconds: 9.0, mfu: 0.9, model_tflops_per_gpu: 900"))
    assert steps(plain)[0].predicted == steps(said)[0].predicted


def test_a_rate_is_compared_as_a_rate(tmp_path: pathlib.Path) -> None:
    (row,) = rows_of(tmp_path, ROW.replace("step_seconds: 5.0", "tokens_per_second_per_gpu: 8000"))
    assert seconds_of(row) == pytest.approx(256 * 8192 / 8000 / 64)
    assert in_quantity(2 * seconds_of(row), row) == pytest.approx(4000)


def test_tflops_are_turned_into_seconds_by_the_source_s_own_rule() -> None:
    row = next(row for row in facts.steps() if row.id == "megatron-apr2021-1T")
    # Narayanan et al. 2021, table 1 and section 5.1: 1T parameters, batch 3072, 163 TFLOP/s on 3072 GPUs
    assert row.measured is not None
    assert row.measured.quantity == "step_seconds"
    h, depth, s, v = 25600, 128, 2048, 51200
    flops = 96 * 3072 * s * depth * h * h * (1 + s / (6 * h) + v / (16 * depth * h))
    assert row.measured.value == pytest.approx(flops / (163e12 * 3072))


def test_networks_in_words() -> None:
    assert row_networks.network("8x 200 Gbit/s HDR InfiniBand per node (Selene)", 8) == 25e9
    assert row_networks.network("RoCE, 1600 Gbit/s between nodes", 8) == 25e9
    assert row_networks.network("400 Gbit/s RDMA per GPU", 8) == 50e9
    assert row_networks.network("4 * 100Gb RoCE", 8) == 6.25e9
    assert row_networks.network("NVLink 900 GB/s, InfiniBand 8x400 Gb/s", 8) == 50e9
    assert row_networks.network("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 8) == 50e9
    assert row_networks.network("1.6 Tbps", 8) == 25e9
    assert row_networks.network("25 GB/s per GPU", 8) == 25e9
    assert row_networks.network("GPUDirect-TCPX", 8) == 4 * 200e9 / 8 / 8
    assert row_networks.network("carrier pigeons", 8) is None
    # the rate of a port, of which a node has as many as it usually has
    assert row_networks.network("InfiniBand NDR 400G", 8) is None
    assert row_networks.network("NDR 400 Gbit/s per node", 8) == 6.25e9
    assert row_networks.network("8x NDR 400G", 8) == 50e9


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ("AMP bf16", "amp-bf16"),
        ("fp16 (torch.cuda.amp)", "amp-fp16"),
        ("AMP O2, fp16", "fp16-mixed"),  # Apex's and NeMo's level with 16-bit weights
        ("bf16", "bf16-mixed"),
        ("amp", ""),
    ],
)
def test_amp_is_autocast_over_fp32_weights(words: str, policy: str) -> None:
    assert policy_of(words) == policy


def test_ethernet_of_no_stated_rate_is_refused_between_nodes_only() -> None:
    for count, fabric in ((16, "ethernet"), (8, None)):
        hardware = {"count": count, "per_node": 8, "interconnect": "Ethernet, no InfiniBand"}
        row = RowFields(Document("rows.yaml", None), 0, {"layout": {}, "hardware": hardware})
        assert recognize_steps.of_step(row)["hardware"].get("fabric") == fabric


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("layers: 32", "layers: many"), "model.layers: 'many' is not a number"),
        (("layers: 32", "layers: -3"), "model.layers: -3 is out of range"),
        (("gated: true", "gated: 3"), "model.gated"),
        (("schema: steps/1", "schema: steps/9"), "unknown schema"),
        (("schema: steps/1", "schema: [steps/1]"), "unknown schema"),
        (("- id: mine", "- name: mine"), "id: is missing"),
        (("hardware: {chip", "hardware: [1]\n  other: {chip"), "hardware: is not a mapping"),
    ],
)
def test_bad_rows_are_named(tmp_path: pathlib.Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(NapkinError, match=r"rows\.yaml") as found:
        rows_of(tmp_path, ROW.replace(*change))
    assert says in found.value.message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("layers: 32, ", ""), "the number of layers is not stated"),
        (("seq: 8192, ", ""), "the sequence length is not stated"),
        (("measured: {step_seconds: 5.0}", "measured: {}"), "prints no step time"),
        (("layout: {", "layout: {method: lora, "), "trains adapters"),
        (("layout: {", "layout: {whole_run: true, "), "an average over a whole run"),
        (("H100 SXM 80GB", "Abacus 9000"), "unknown accelerator"),
    ],
)
def test_what_cannot_be_predicted_says_why(tmp_path: pathlib.Path, change: tuple[str, str], why: str) -> None:
    (one,) = steps(rows_of(tmp_path, ROW.replace(*change)))
    assert one.predicted is None
    assert why in one.why


# --- fitting ---


def test_a_fit_finds_the_constants_that_made_the_rows() -> None:
    rows = [row for row in facts.steps() if row.id.startswith("foundry-a100-80gb")][:30]
    columns = Columns(rows)
    priors = {name: prior_of(name)[:2] for name in columns.constants if name not in ("one", "zero")}
    true = {**{name: value for name, (value, _) in priors.items()}, "matmul/ampere/16": 0.70, "memory": 0.75}
    problem = Problem(columns, ["one"] * len(columns.kept), priors)
    problem.log_truth = np.log(columns.predict(columns.values(true)))
    found = problem.fit()
    (factor,) = found.sources.values()
    assert np.abs(problem.log_predicted(found.log) - problem.log_truth - factor).max() < 0.01
    assert found.constants()["matmul/ampere/16"] < 0.78


def test_several_sets_of_constants_give_what_each_gives() -> None:
    rows = [row for row in facts.steps() if row.id.startswith(("foundry-h100-80gb", "titan-", "mbridge-26.04-"))]
    columns = Columns(rows)
    one = columns.values({name: prior_of(name)[0] for name in columns.constants if name not in ("one", "zero")})
    other = np.where(one > 0, one * np.linspace(0.9, 1.1, len(one)), 0)
    other[:2] = one[:2]
    np.testing.assert_allclose(
        columns.predict_sets(np.stack([one, other])), [columns.predict(one), columns.predict(other)], rtol=1e-12
    )


def test_a_recipes_own_flags_recompute_for_time_as_for_memory(tmp_path: pathlib.Path) -> None:
    """Recipes of torchtune checkpoint by default (recipes/configs/llama3_1/8B_full_single_device.yaml)."""
    text = ROW.replace("stack: megatron-core", "stack: fsdp-compiled, recompute: SAID")
    by_recipe, full, none = (
        steps(rows_of(tmp_path, text.replace("SAID", said)))[0].predicted for said in ("recipe default", "full", "none")
    )
    assert by_recipe == full
    assert full is not None
    assert none is not None
    assert full > 1.15 * none


def test_one_row_alone_is_what_the_step_command_says(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    """The columns of all rows and a single `napkin step` are one model: the same layout, the same seconds."""
    (row,) = steps(rows_of(tmp_path, ROW), in_sample=True)
    line = "step llama3-8b --tp 2 --dp 32 --zero 1 --micro-batch 1 --global-batch 256 --seq 8192 --hardware h100 --json"
    single = napkin(f"{line} --stack megatron-core").values["step/time"]
    assert row.predicted == pytest.approx(single, rel=0.01)


# --- intervals ---


def test_distance_counts_each_difference_once() -> None:
    here = point("hopper", "megatron-core", False, 16, 8e9, 8192, 64)
    assert distance(here, here) == 0
    assert distance(here, point("hopper", "megatron-core", False, 16, 80e9, 8192, 64)) == pytest.approx(1)
    assert distance(here, point("ampere", "megatron-core", True, 16, 8e9, 8192, 64)) == pytest.approx(math.sqrt(2))


def test_sources_weigh_the_same_in_a_quantile() -> None:
    here = point("hopper", "megatron-core", False, 16, 8e9, 8192, 64)
    place = ("hopper", "megatron-core", 0, 16, here.params, here.seq, here.gpus)
    many = [(f"a{i}", "a", *place, 0.01, 0.0, 0.0) for i in range(100)]
    few = [("b", "b", *place, 0.5, 0.0, 0.0)]
    flat = Growth(1.0, 0.0, 0.0)
    assert quantile(0.5, many + few, flat) == pytest.approx(0.01)
    assert quantile(0.9, many + few, flat) == pytest.approx(0.5)
    assert quantile(0.9, many + few, flat, without="b") == pytest.approx(0.01)
    assert nearest(here, many + few, count=2, without="a")[0][1].source == "b"


def test_a_percentile_is_one_of_the_values_and_never_below_the_median() -> None:
    assert nearest_rank([float(n) for n in range(10, 0, -1)], 0.9) == 9
    assert nearest_rank([float(n) for n in range(1, 12)], 0.9) == 10  # 0.9 · 11 = 9.9
    assert nearest_rank([0.1, 0.3], 0.9) == 0.3
    assert nearest_rank([0.2], 0.9) == 0.2


def test_intervals_cover_what_they_say_and_widen_with_distance() -> None:
    rows = facts.steps()
    for level in (0.5, 0.8, 0.9):
        compared = [one for one in steps(rows, level) if one.covered is not None and not one.suspect]
        groups: dict[str, list[bool]] = {}
        for one in compared:
            groups.setdefault(one.group, []).append(bool(one.covered))
        share = statistics.fmean(statistics.fmean(found) for found in groups.values())
        assert share == pytest.approx(level, abs=0.08)
    near = point("ampere", "fsdp-eager", False, 16, 7e9, 2048, 64)
    far = point("other", "unknown", False, 16, 7e12, 2048, 10**6)
    assert constants.half_width(far, 0.9)[0] > 1.3 * constants.half_width(near, 0.9)[0]


def test_no_constant_is_learnt_from_a_row_that_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its accelerator has no factor, its source's constants are everybody's, and its error is among those of intervals;
    another measured time of it moves no fit."""
    judging = {row.source_key for row in facts.steps() if row.judges}
    learnt = {row.source_key for row in facts.steps() if not row.judges and not row.why and not row.suspect}
    only = judging - learnt
    assert {"xtuner", "internlm", "primus"} <= only
    assert f"{CHIP}MI300X" not in chips.factors()
    for source in only:
        assert constants.constants(source) == constants.constants()
        assert any(entry[1] == source for entry in calibration.SEEN)
    monkeypatch.syspath_prepend(f"{ROOT}/tools")
    import calibrate

    problem = calibrate.problem()
    judges = np.array([row.judges for row in problem.columns.kept])
    assert judges.sum() > 70
    assert not problem.weights(problem.counted)[judges].any()


def test_a_row_never_predicts_itself() -> None:
    rows = [row for row in facts.steps() if row.id.startswith("tpu-trillium-llama3.1-8b")]
    out, inside = steps(rows), steps(rows, in_sample=True)
    assert all(a.predicted != b.predicted for a, b in zip(out, inside, strict=True))


# --- accuracy ---


def test_published_steps_with_their_source_left_out() -> None:
    """The figures of docs/accuracy.md, with room for a new row or two."""
    found = accuracy.errors()
    dense = accuracy.summary(found.out[~found.experts])
    assert dense[1] < 0.07
    assert dense[3] < 0.21
    assert accuracy.summary(found.inside[~found.experts])[1] < 0.05
    experts = accuracy.summary(found.out[found.experts])
    assert experts[2] < 0.24
    assert experts[3] < 0.44
    near = accuracy.scaled_by_nearest(found)
    known = np.isfinite(near) & ~found.experts
    assert accuracy.summary(near[known])[1] < 0.04
    ranked = accuracy.ranking(found)
    assert ranked.pairs > 200
    assert ranked.right / ranked.pairs > 0.78
    assert ranked.regret < 0.03
    # most sources are predicted without a common bias
    assert abs(statistics.median(found.out)) < 0.06


def test_the_class_of_evidence_of_a_step() -> None:
    """Software that another source measured on such chips; that none did; and that is not known."""
    here = point("hopper", "fsdp-eager", False, 16, 7e9, 4096, 8)

    def row(source: str, error: float, era: str = "hopper", stack: str = "fsdp-eager") -> Any:
        return (source, source, era, stack, 0, 16, here.params, here.seq, here.gpus, error, 0.0, 0.0)

    seen = [row("a", 0.1), row("a", 0.1), row("b", 0.1), row("c", 0.4, "volta"), row("d", 0.3, stack="unknown")]
    assert class_of(here, seen, "a") == "measured"
    assert class_of(here, seen[:2], "a") == "described"
    assert class_of(replace(here, generation="ampere"), seen) == "described"
    assert class_of(replace(here, stack="unknown"), seen) == "unknown"
    assert classes(seen) == ["measured", "measured", "measured", "described", "unknown"]
    # less evidence never narrows: `unknown` alone would be 3, and is pooled with `described`; `measured` is apart
    flat = Growth(0.1, 0.0, 0.0)
    assert quantile(0.9, seen, flat, kind="measured") == pytest.approx(1)
    assert quantile(0.9, seen, flat, kind="described") == quantile(0.9, seen, flat, kind="unknown") == pytest.approx(4)
    assert quantile(0.9, [*seen[:3], row("d", 0.3, stack="unknown")], flat, kind="unknown") == pytest.approx(3)


def test_intervals_widen_by_what_is_not_known_of_a_chip_and_its_software() -> None:
    """√((0.1 + 0.05·2)² + (√(2/π)·√(0.3² + 0.4²))²); of unknown software no less than the spread of all."""
    here = point("cdna", "lean", False, 16, 7e9, 4096, 8)
    own = own_error(here, 0.3, 0.4)
    assert own == pytest.approx(0.5 * math.sqrt(2 / math.pi))
    assert Growth(0.1, 0.05, 1.0).at(2.0, False, own) == pytest.approx(math.hypot(0.2, own))
    assert own_error(replace(here, stack="unknown"), 0.0, 0.01) == pytest.approx(0.08 * math.sqrt(2 / math.pi))
    # no source measured a step on MI300X: its interval is wider than that of the same run on H100
    widths = [constants.half_width(replace(here, generation=era), 0.9)[0] for era in ("cdna", "hopper")]
    assert widths[0] > 1.1 * widths[1]


def test_the_posterior_of_a_constant_between_its_prior_and_its_rows() -> None:
    """No rows: the prior. Rows that are exact at 2 on a wide prior at 1: 2."""
    value, spread = one_constant.posterior(1.0, 0.7, lambda _: {})
    assert value == pytest.approx(1)
    assert spread == pytest.approx(0.7, rel=0.02)  # a normal cut at 3σ has 0.987 of its deviation

    def gaps(constant: float) -> dict[str, list[float]]:
        gap = math.log(constant) - math.log(2.0)
        return {"a": [gap] * 4, "b": [gap] * 4}

    value, spread = one_constant.posterior(1.0, 0.7, gaps)
    assert value == pytest.approx(2, rel=0.03)
    assert spread < 0.1


def test_kernels_for_hopper_are_as_fast_as_others_before_it() -> None:
    """FlashAttention 3 is 1.5 to 2.0 times as fast as FlashAttention-2 on Hopper (Shah et al. 2024, abstract), and does
    not exist before it."""
    line = "step llama3-8b --gpus 8 --zero 3 --seq 131072 --recompute full --json"

    def seconds(card: str, kernel: str) -> float:
        return float(run_line(f"{line} --hardware {card} --attention {kernel}").values["step/compute/attention"])

    assert 1.5 < seconds("h100", "flash") / seconds("h100", "cudnn") < 2.1
    assert seconds("a100", "cudnn") == seconds("a100", "flash")


def test_products_in_few_bits_that_nobody_measured_have_a_wider_interval() -> None:
    """CDNA's 8 bits take the share of its 16 bits, and ln 3 more at the interval's end; Hopper's are known."""
    sigma = {"matmul/cdna/16": 0.1, "matmul/hopper/16": 0.1, "matmul/hopper/8": 0.2, "stack/lean": 0.0}
    here = point("cdna", "lean", False, 16, 7e9, 4096, 8)
    mean = math.sqrt(2 / math.pi)
    assert own_error_of(here, sigma) == pytest.approx(0.1 * mean)
    assert own_error_of(replace(here, bits=8), sigma) == pytest.approx(math.hypot(0.1, math.log(3) / 1.645) * mean)
    assert own_error_of(replace(here, generation="hopper", bits=8), sigma) == pytest.approx(0.2 * mean)


def test_fine_tuning_has_the_intervals_of_its_own_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over those of other steps: at the ninth decile of two sources of the same weight, or of the one that is left;
    never narrower."""
    scores = (*(("a", 0.5) for _ in range(8)), ("b", 1.4), ("b", 1.6))
    monkeypatch.setattr(calibration, "TUNED", scores)
    assert constants.tuning_ratio() == pytest.approx(1.6)
    assert constants.tuning_ratio("b") == 1
    line = "step llama3-8b --gpus 8 --hardware h100 --zero 3 --stack fsdp-eager --attention flash2 --json"
    plain, tuned = (run_line(f"{line}{more}") for more in ("", " --lora-rank 8"))
    ends = [math.log(one.data["high"]["step/time"] / one.data["low"]["step/time"]) for one in (plain, tuned)]
    assert ends[1] == pytest.approx(1.6 * ends[0])


def test_rows_of_fine_tuning_are_predicted_without_their_source() -> None:
    """The constant that fine-tuning alone shows is its prior if its one source is left out, and not if another is."""
    name, (prior, spread, _) = "host_module", PRIORS["host_module"]
    assert teams.source_of("Qwen README, Profiling of Memory") == "qwen"
    assert constants.constants("qwen")[name] == pytest.approx(prior, rel=1e-3)
    assert constants.spreads("qwen")[name] == pytest.approx(spread, rel=0.02)
    for source in ("", "bloom", "fms-acceleration"):
        assert constants.constants(source)[name] != pytest.approx(prior, rel=0.02)


def test_a_chip_without_matrix_units_multiplies_at_its_fp32_rate() -> None:
    """P100: 10.6 TFLOP/s of fp32; its 21.2 of fp16 sum in fp16."""
    at = machine(hardware.find("P100 SXM2 16GB"), "fp16")
    assert at.peak == at.peak_wide == 10.6e12


def test_no_fused_attention_before_it_was_published() -> None:
    """Unnamed software of 2021 writes its scores; of 2023 it is taken to be fused."""
    for title, kernel in (("A report of 2021-05-12", "eager"), ("A report of 2023", None)):
        row = RowFields(Document("rows.yaml", None), 0, {"layout": {}, "source": {"title": title}})
        assert recognize_steps.of_step(row)["layout"].get("attention") == kernel


def test_the_intervals_of_each_class_cover_what_they_say() -> None:
    """90 % of held-out steps, sources weighing the same, within two standard errors: at least that for each class, and
    no more than that for classes that share a quantile, because less evidence never narrows an interval."""
    found = [one for one in steps(facts.steps()) if one.covered is not None and not one.suspect]
    growth = Growth(*calibration.GROWTH)
    pools: dict[float, list[str]] = {}
    for kind in CLASSES:
        mean, error = share_covered([one for one in found if one.evidence == kind])
        assert mean > 0.9 - 2 * error, kind
        pools.setdefault(quantile(0.9, calibration.SEEN, growth, kind=kind), []).append(kind)
    for kinds in pools.values():
        mean, error = share_covered([one for one in found if one.evidence in kinds])
        assert mean < 0.9 + 2 * error, kinds


def share_covered(found: list[Compared]) -> tuple[float, float]:
    """Return the share of rows inside their intervals, sources weighing the same, and its standard error."""
    groups: dict[str, list[bool]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(bool(one.covered))
    each = [statistics.fmean(covered) for covered in groups.values()]
    return statistics.fmean(each), statistics.stdev(each) / math.sqrt(len(each))


def test_point_of_a_published_row() -> None:
    row = next(row for row in facts.steps() if row.id.startswith("mbridge-26.08-deepseekv3-gb300"))
    at = point_of(row)
    assert (at.generation, at.stack, at.experts, at.bits) == ("blackwell", "megatron-core", True, 8)
    assert math.exp(at.params) == pytest.approx(671e9, rel=0.02)


# --- whole runs ---


def test_the_rule_of_whole_runs_by_hand() -> None:
    known = runs.judging(runs.evidence(), "production")
    rule = runs.fit(known)
    # a published rule of the same form: a −1.02 ± 0.07, b −0.21 ± 0.09, c 0.35 ± 0.07, d 0.15 ± 0.07; small models on
    # large clusters that were published since (SmolLM 135M) draw c up
    for constant, middle, spread in zip(rule, (-1.02, -0.21, 0.35, 0.15), (0.07, 0.09, 0.13, 0.07), strict=True):
        assert abs(constant - middle) < spread
    assert runs.predicted(rule, runs.features(True, 70e9, 2024)) == pytest.approx(rule[0] + rule[1])
    assert runs.hours(6e18, 1e15, 0.5) == pytest.approx(6e18 / (3600 * 5e14))


def test_a_benchmark_is_judged_by_benchmarks() -> None:
    known = runs.evidence()
    rule = runs.FittedRule(runs.judging(known, "benchmark"), 0.9)
    assert {run.row.run_kind for run in rule.runs} == {"benchmark"}
    asked = runs.PlannedRun(405e9, 405e9, hardware.find("h100"), 1024, run_kind="benchmark")
    found = runs.estimate(asked, rule)
    # MLPerf v5.0: 0.74 to 0.87 of the bf16 peak on 1,024 to 2,560 Hopper GPUs, v3.1 0.5 to 0.7
    assert 0.65 < found.mfu < 0.8
    assert runs.estimate(replace(asked, gpus=8192), rule).mfu < found.mfu
    sixteen = runs.estimate(replace(asked, precision="bf16"), rule)
    assert sixteen.wider
    assert sixteen.low < found.low
    # fewer accelerators than any run had: no extrapolation beyond the peak
    assert runs.estimate(replace(asked, gpus=8), rule).mfu == runs.estimate(replace(asked, gpus=256), rule).mfu


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"source": "mlcommons/training_results_v4.1 Dell/results/XE9680/gpt3"}, "benchmark"),
        ({"run_kind": "speedrun"}, "speedrun"),
        ({"kind": "benchmark"}, "benchmark"),
        ({"source": "x/y records/track_1_short/2025-01-01"}, "speedrun"),
        ({"source": "a paper"}, "production"),
    ],
)
def test_a_row_says_what_kind_of_run_it_is(fields: dict[str, str], kind: str) -> None:
    assert run_rows.run_row(RowFields(Document("rows", None), 0, {"id": "a", **fields})).run_kind == kind


def test_a_submission_is_its_submitters() -> None:
    assert run_rows.submitter("mlcommons/training_results_v5.0 IBM+CoreWeave+NVIDIA/results/a/b") == "NVIDIA"
    assert run_rows.submitter("mlcommons/training_results_v4.1/Dell/results/a") == "Dell"
    assert run_rows.submitter("a model card") == ""


def test_the_goodput_of_benchmarks_is_that_of_their_logs() -> None:
    """steps · median step over run start to target, for each run whose step is in the evidence too."""
    rows = yaml.safe_load(pathlib.Path(ROOT, "configs/evidence/steps.yaml").read_text(encoding="utf-8"))["rows"]
    step = {row["id"]: row["measured"]["step_seconds"] for row in rows if "step_seconds" in row["measured"]}
    rows = yaml.safe_load(pathlib.Path(ROOT, "configs/evidence/runs.yaml").read_text(encoding="utf-8"))["rows"]
    logs = [
        math.log(
            row["tokens"] / row["global_batch_tokens"] * step[row["id"]] * row["count"] / (3600 * row["device_hours"])
        )
        for row in rows
        if row["id"] in step
    ]
    assert len(logs) == 23
    found = goodput.PUBLISHED["benchmark"]
    assert found.share.value == pytest.approx(math.exp(statistics.median(logs)), abs=0.005)
    assert found.spread == pytest.approx(statistics.stdev(logs), abs=0.002)


def test_linear_equations() -> None:
    assert runs.solve([[0.0, 2.0], [1.0, 1.0]], [4.0, 5.0]) == pytest.approx([3.0, 2.0])


def test_an_estimate_names_its_runs() -> None:
    def on(card: str) -> runs.Estimate:
        run = runs.PlannedRun(70e9, 70e9, hardware.find(card), 1024)
        return runs.estimate(run, runs.FittedRule(runs.judging(runs.evidence(), "production"), 0.9))

    found = on("h100")
    assert found.low < found.mfu < found.high
    assert 0.25 < found.mfu < 0.33
    assert "Llama 3 70B" in found.named()
    assert not found.wider
    unseen = on("b200")
    assert unseen.wider
    assert unseen.high / unseen.low > found.high / found.low


def test_faster_accelerators_use_no_larger_share_of_their_peak() -> None:
    """The rule knows a fast accelerator by its peak: whole runs on one that the evidence lacks are judged by those on
    the fastest that it has. One or two nodes are no cluster, and more accelerators never take longer."""

    rule = runs.FittedRule(runs.judging(runs.evidence(), "production"), 0.9)

    def share(card: str, gpus: int = 1024, size: float = 8e9) -> float:
        return runs.estimate(runs.PlannedRun(size, size, hardware.find(card), gpus), rule).mfu

    assert share("h100") == share("h200") == share("b200") == share("mi300x") < share("a100")
    assert share("tpu-v5p") == share("a100")  # 459 TFLOP/s
    assert share("b200", 16) == share("a100", 16)
    for size in (1e9, 7e9, 70e9, 400e9):
        for slower, faster in (("v100-sxm2-16gb", "a100"), ("a100", "h100"), ("h100", "b200"), ("a100", "mi300x")):
            peaks = [hardware.find(card).peak(hardware.find(card).default_dtype) for card in (slower, faster)]
            assert share(faster, size=size) * peaks[1] > share(slower, size=size) * peaks[0]
        counts = [8, 16, 17, 20, 32, 48, 63, 64, 65, 128, 4096]
        for fewer, more in itertools.pairwise(counts):
            assert share("h100", fewer, size) * fewer < share("h100", more, size) * more


def test_the_verdict_on_an_mfu_is_by_what_published_steps_reach() -> None:
    """Of the published steps, each source weighing the same, one in a hundred reaches RARE, half reach GOOD, and nine
    in ten FAIR."""
    by_source: dict[str, list[float]] = {}
    for row in facts.steps():
        if row.why or row.suspect or row.shape is None or not row.global_batch:
            continue
        try:
            model = model_of(row.shape, row.seq)
            peak = find(row.chip).peak(peak_name(precision(row.policy).compute))
        except NapkinError:  # a shape that its table does not describe fully, a chip without such a peak
            continue
        counted = conventions.all_conventions(model, flops.works(model, 1, row.seq))
        done = counted["palm"].value * row.global_batch * row.seq
        by_source.setdefault(row.source_key, []).append(done / (seconds_of(row) * row.gpus * peak))
    assert len(by_source) >= 26
    weighted = [(mfu, 1 / len(every)) for every in by_source.values() for mfu in every]
    assert weighted_quantile(weighted, 0.5) == pytest.approx(utilization.GOOD, abs=0.005)
    assert weighted_quantile(weighted, 0.99) == pytest.approx(utilization.RARE, abs=0.005)
    assert weighted_quantile(weighted, 0.1) == pytest.approx(utilization.FAIR, abs=0.005)


# --- commands ---


def test_validate_over_everything(napkin: Napkin) -> None:
    outcome = napkin("validate --json")
    assert outcome.status == 0
    data = outcome.data
    assert data["values"]["error/step_seconds/median"] < 0.08
    assert data["values"]["error/device_hours/median"] < 0.19
    assert 0.8 < data["values"]["coverage/step_seconds"] <= 1
    assert len(data["rows"]) > 700
    for row in data["rows"]:
        assert row.get("why") or row.get("predicted") is not None


def test_validate_a_file_of_one_s_own(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(ROW, encoding="utf-8")
    (row,) = napkin(f"validate {path} --json").data["rows"]
    assert row["low"] < row["predicted"] < row["high"]
    assert row["error"] == pytest.approx(row["predicted"] / 5.0 - 1)
    outcome = napkin(f"validate {tmp_path / 'none.yaml'}")
    assert outcome.status == 2
    assert outcome.errors


def test_calibrate_finds_one_s_own_factor(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(ROW, encoding="utf-8")
    before = napkin(f"validate {path} --in-sample --json").data["rows"][0]["predicted"]
    slow = ROW.replace("step_seconds: 5.0", f"step_seconds: {1.2 * before!r}")
    path.write_text(slow, encoding="utf-8")
    values = napkin(f"calibrate {path} --json").values
    assert values["factor"] == pytest.approx(1.2)
    assert values["error/before"] == pytest.approx(1 - 1 / 1.2)
    assert values["error/refitted"] < values["error/before"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tp: 2", "tp: 2, zero: 9", "rows.0.layout.zero: 9 is out of range"),
        ("micro_batch: 1", "micro_batch: 0", "rows.0.layout.micro_batch: 0 is out of range"),
        ("tp: 2", "tp: 5", "does not divide the 64 accelerators"),
        ("step_seconds: 5.0", "step_seconds: 0", "rows.0.measured.step_seconds: 0 is out of range"),
        ("step_seconds: 5.0", "mfu: 45", "rows.0.measured.mfu: 45 is out of range"),
        ("policy: bf16-mixed", "policy: [bf16]", "rows.0.layout.policy: ['bf16'] is not a text"),
    ],
)
def test_a_bad_value_of_a_row_is_refused_with_file_line_and_field(
    napkin: Napkin, tmp_path: pathlib.Path, old: str, new: str, said: str
) -> None:
    assert old in ROW
    path = tmp_path / "rows.yaml"
    path.write_text(ROW.replace(old, new), encoding="utf-8")
    outcome = napkin(f"calibrate {path}")
    assert outcome.status == 2
    assert said in outcome.errors[0]
    assert re.match(r"error: .*rows\.yaml:[0-9]+: rows\.0", outcome.errors[0])


@pytest.mark.parametrize("word", ["fabric: string", "chip: H1000"])
def test_a_word_that_is_not_known_leaves_its_row_out_and_says_so(
    napkin: Napkin, tmp_path: pathlib.Path, word: str
) -> None:
    path = tmp_path / "rows.yaml"
    second = ROW.partition("rows:\n")[2].replace("id: ", "id: other-", 1)
    key = word.partition(":")[0]
    changed = (
        re.sub(rf"{key}: [^,}}\n]*", word, second)
        if key in second
        else second.replace("hardware: {", f"hardware: {{{word}, ")
    )
    path.write_text(ROW + changed, encoding="utf-8")
    outcome = napkin(f"calibrate {path}")
    assert outcome.status == 0, outcome.err
    assert "1 measured step of" in outcome.out
    assert "not compared: other-" in outcome.out


def test_the_page_on_accuracy_says_what_the_evidence_says() -> None:
    """docs/accuracy.md is made by tools/accuracy.py; figures may differ in the last digit between machines."""
    page = runpy.run_path(os.path.join(ROOT, "tools", "accuracy.py"))["page"]()
    with open(os.path.join(ROOT, "docs", "accuracy.md"), encoding="utf-8") as stream:
        written = stream.read()
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", written) == number.sub("#", page), "run python tools/accuracy.py"
    for kept, now in zip(number.findall(written), number.findall(page), strict=True):
        assert float(kept) == pytest.approx(float(now), rel=0.01, abs=0.11)


def test_prices_are_dated_and_of_known_cards() -> None:
    for slug, price in prices.PRICES.items():
        assert hardware.shipped()[slug].name
        assert price.low <= price.middle <= price.high
        assert price.date[:2] == "20"
        assert price.source
    assert prices.remark("unheard-of", "X") == ""
    assert prices.PRICES["rtx-4090"].middle == 0.39  # of 0.34, 0.39 and 0.74
    assert prices.PRICES["h100-sxm-80gb"].middle == 3.67  # between 3.49 and 3.85, the third and fourth of six


# --- whom a row comes from ---


def test_the_longest_beginning_of_a_title_or_a_model_s_name_decides() -> None:
    assert teams.source_of("NVIDIA Megatron Bridge performance summary, container 27.01") == "bridge"
    assert teams.source_of("Megatron-LM README 2020, one more page") == "mlm-2020"
    assert teams.source_of("Another performance summary, container 24.07") == ""
    assert [teams.team_of(name) for name in ("GPT-3 175B", "GPT-NeoX 1B", "LLaMA 7B", "Yi 34B")] == [
        "OpenAI",
        "EleutherAI",
        "Meta",
        "",
    ]


def test_every_page_of_the_evidence_is_of_its_own_source() -> None:
    from napkin._tables import published_steps as table

    for key, source in table.SOURCES.items():
        assert {teams.source_of(page) for page in source["pages"]} == {key}

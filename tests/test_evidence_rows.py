"""Published rows are read as they are printed: fields, prose, networks, frameworks, and whom a row comes from."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from napkin._tables import calibration, calibration_held_out, published_steps
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.evidence import published
from napkin.evidence.fit.posterior import in_quantity, seconds_of
from napkin.evidence.prose import recognize
from napkin.evidence.prose.memory import of_memory
from napkin.evidence.prose.steps import of_step, policy_of
from napkin.evidence.rates import chips
from napkin.evidence.rates.priors import CHIP, PRIORS
from napkin.evidence.rows import facts, setups, teams
from napkin.evidence.rows.models import model_of
from napkin.evidence.rows.networks import network
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import StepRow, step_row
from napkin.evidence.software import stacks
from napkin.evidence.validation import memory_check
from napkin.evidence.validation.step_check import steps
from napkin.inputs import hardware
from napkin.inputs.load import Document
from napkin.record import replace
from tests.conftest import answered, preset

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


@pytest.mark.parametrize(
    ("stated", "overlaps"),
    [
        ({}, ""),
        ({"overlap_grad_reduce": False}, "none"),
        ({"overlap_grad_reduce": True}, "gradients"),
        ({"overlap_grad_reduce": True, "overlap_param_gather": True}, "both"),
        ({"async_dp": "none", "overlap_grad_reduce": True}, "none"),
        ({"async_dp": "some"}, "some"),
    ],
)
def test_a_row_says_what_of_data_parallelism_overlaps(stated: dict[str, Any], overlaps: str) -> None:
    found = _row_of({"stack": "megatron-core", **stated})
    assert found.async_dp == overlaps
    assert found.why == ("layout.async_dp: some is not known" if overlaps == "some" else "")


@pytest.mark.parametrize(
    ("framework", "precision", "bytes_of_each"),
    [("Megatron-LM", "bf16", 4), ("Megatron-LM", "fp16", None), ("NeMo on Megatron-core", "bf16", None)],
)
def test_megatron_lm_reduces_fp32_with_bf16_weights(framework: str, precision: str, bytes_of_each: int | None) -> None:
    """megatron/training/arguments.py: accumulate_allreduce_grads_in_fp32 with --bf16."""
    row = _row_fields({"framework": framework, "precision": precision})
    assert step_row(recognize.recognized(row, of_step)).gradient_bytes == bytes_of_each


def _row_fields(layout: dict[str, Any]) -> RowFields:
    row = {
        "id": "one",
        "hardware": {"chip": "H100 SXM 80GB", "count": 8},
        "layout": {"dp": 8, "zero": 1, "micro_batch": 1, "global_batch": 8, **layout},
        "measured": {"step_seconds": 1},
        "model": {"layers": 4, "hidden": 512, "heads": 4, "ffn": 2048, "vocab": 1000, "seq": 512},
    }
    return RowFields(Document("rows.yaml", None), 0, row)


def _row_of(layout: dict[str, Any]) -> StepRow:
    return step_row(_row_fields(layout))


@pytest.mark.parametrize(
    ("stated", "bytes_of_each"),
    [
        ({}, None),
        ({"gradient_dtype": "bf16"}, 2),
        ({"gradient_dtype": "fp32"}, 4),
        ({"gradient_dtype": "fp32", "stack": "megatron-core"}, 4),
        ({"gradient_dtype": "fp32", "stack": "megatron-deepspeed"}, 8),
    ],
)
def test_gradients_are_reduced_in_the_format_that_a_row_states(
    stated: dict[str, str], bytes_of_each: int | None
) -> None:
    """torch FSDP's MixedPrecision(reduce_dtype): 2 bytes an element in bf16, 4 in fp32, else as the software does it;
    DeepSpeed's BF16_Optimizer moves each of 4 twice."""
    layout = {"stack": "fsdp-eager", "dp": 8, "zero": 3, "micro_batch": 1, "global_batch": 8, **stated}
    row = {
        "id": "one",
        "hardware": {"chip": "H100 SXM 80GB", "count": 8},
        "layout": layout,
        "measured": {"step_seconds": 1},
    }
    model = {"layers": 4, "hidden": 512, "heads": 4, "ffn": 2048, "vocab": 1000, "seq": 512}
    assert step_row(RowFields(Document("rows.yaml", None), 0, {**row, "model": model})).gradient_bytes == bytes_of_each


def test_the_shipped_evidence_is_read_whole() -> None:
    rows = facts.steps()
    assert len(rows) == 1410
    assert sum(1 for row in rows if not row.why) >= 817
    assert all(row.why for row in rows if row.measured is None)
    assert len({row.id for row in rows}) == len(rows)
    assert {row.stack for row in rows if not row.why} - {""} <= set(stacks.STACKS)  # "": software of its own
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
        found, as_shipped = (memory_check.compared(one) for one in (other, row))
        assert (found.predicted, found.low, found.high) == (as_shipped.predicted, as_shipped.low, as_shipped.high)
        assert found.why == as_shipped.why


def test_a_user_s_prose_is_read_as_the_shipped_fields_state_it() -> None:
    table = published_steps
    for row in facts.expanded(table.ROWS, table.SOURCES, table.MODELS):
        assert step_row(recognize.recognized(row, of_step)) == step_row(row)
    for row in facts.memory():
        read = recognize.recognized(row, of_memory)
        assert memory_check.compared(read) == memory_check.compared(row)


@pytest.mark.parametrize(
    ("layout", "source", "wanted"),
    [
        ({"framework": "torchtitan", "compile": True}, "", {"stack": "fsdp-compiled", "recompute_kind": "selective"}),
        ({"framework": "torchtitan"}, "", {"stack": "fsdp-eager", "recompute_kind": "selective"}),
        (  # its recipes in MXFP8 alone capture an iteration
            {"precision": "mxfp8"},
            "NVIDIA Megatron Bridge, container 26.08",
            {"stack": "megatron-core-2026", "attention": "cudnn", "policy": "mxfp8-mixed"},
        ),
        (
            {"policy": "mxfp8-mixed"},
            "NVIDIA Megatron Bridge, container 26.06.01",
            {"stack": "megatron-core-2026", "attention": "cudnn"},
        ),
        (
            {"policy": "fp8-mixed"},
            "NVIDIA Megatron Bridge, container 26.08",
            {"stack": "megatron-core", "attention": "cudnn"},
        ),
        (
            {"policy": "mxfp8-mixed"},
            "NVIDIA Megatron Bridge, container 26.04.01",
            {"stack": "megatron-core", "attention": "cudnn"},
        ),
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
        ({"framework": "llmq, C++ and CUDA"}, "", {"stack": "lean"}),
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
        # a program's own kernel, by the program and the date, wherever the row states them
        ({"framework": "Megatron-Bridge"}, "", {"stack": "megatron-core", "attention": "cudnn"}),
        (
            {"framework": "NeMo Framework Launcher", "versions": "May 2023"},
            "",
            {"stack": "megatron-core", "attention": "eager"},
        ),
        ({"framework": "NeMo-Framework-Launcher", "versions": "2024-05"}, "", {"stack": "megatron-core"}),
        ({}, "NeMo Framework Launcher README 2023", {"stack": "megatron-core", "attention": "eager"}),
        ({"framework": "NeMo Framework Launcher"}, "", {"stack": "megatron-core"}),
        ({"framework": "Pax", "precision": "bf16"}, "", {"stack": "xla", "policy": "bf16-mixed", "attention": "eager"}),
        ({"framework": "Pax, Transformer Engine"}, "", {"stack": "xla"}),
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
        ({"batch_tokens": "1.2.3M"}, "", {"batch_tokens": None}),
    ],
)
def test_what_is_read_in_prose(layout: dict[str, Any], source: str, wanted: dict[str, Any]) -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout, "source": {"title": source}})
    assert of_step(row)["layout"] == wanted


@pytest.mark.parametrize(
    ("chip", "count", "stack"),
    [
        ("GB200 (per GPU)", 64, "megatron-core-2026"),  # a rack's link joins 72
        ("GB300 (per GPU)", 256, "megatron-core-2026"),
        ("B300 SXM 288GB", 8, "megatron-core-2026"),  # one node
        ("B300 SXM 288GB", 64, "megatron-core"),
        ("", 8, "megatron-core-2026"),
        ("", 16, "megatron-core"),
    ],
)
def test_whose_recipes_capture_an_iteration(chip: str, count: int, stack: str) -> None:
    """NVIDIA-NeMo/Megatron-Bridge v0.5.0, scripts/performance/configs: cuda_graph_impl."""
    fields = {
        "hardware": {"chip": chip, "count": count},
        "layout": {"precision": "mxfp8"},
        "source": {"title": "NVIDIA Megatron Bridge, container 26.06"},
    }
    assert of_step(RowFields(Document("rows.yaml", None), 0, fields))["layout"]["stack"] == stack


@pytest.mark.parametrize(
    ("layout", "micro_batch"),
    [
        ({"framework": "torchtitan 2024-12", "local_batch": 32, "pp": 16}, 2),  # one micro-batch a stage
        ({"framework": "torchtitan 2024-12", "local_batch": 32, "pp": 16, "vp": 2}, 2),
        ({"framework": "torchtitan 2025-02", "local_batch": 32, "pp": 8, "vp": 2}, 2),  # one a chunk
        ({"framework": "torchtitan 2025-02", "local_batch": 32, "pp": 8}, None),  # of how many chunks is not stated
        ({"framework": "torchtitan 2025-06", "local_batch": 32, "pp": 8}, 1),
        ({"framework": "torchtitan 2024-12", "local_batch": 12, "pp": 8}, None),  # does not divide
        ({"framework": "torchtitan", "local_batch": 32, "pp": 8}, None),
        ({"framework": "torchtitan 2025-06", "local_batch": 32}, None),
        ({"framework": "nanotron 2024-12", "local_batch": 32, "pp": 8}, None),
    ],
)
def test_how_torchtitan_splits_a_rank_s_batch_in_a_pipeline(layout: dict[str, Any], micro_batch: float | None) -> None:
    """pytorch/torchtitan pull requests 781 and 1073: by stages, then by their chunks, then single sequences."""
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout})
    assert of_step(row)["layout"].get("micro_batch") == micro_batch


EXPERTS = {"count": 128, "top_k": 4, "ffn": 2880}


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (
            {"name": "gpt-oss 120B", "layers": 36, "hidden": 2880, "experts": EXPERTS},
            {"experts": {**EXPERTS, "bias": 1, "clamp": 1}, "window": 128},
        ),
        (
            {"name": "openai/gpt-oss-120b", "layers": 36, "hidden": 2880, "experts": {**EXPERTS, "bias": 0}},
            {"experts": {**EXPERTS, "bias": 0, "clamp": 1}, "window": 128},
        ),
        ({"name": "gpt-oss 120B", "layers": 18, "hidden": 2880, "experts": EXPERTS}, {}),  # another depth
        ({"name": "mine 120B", "layers": 36, "hidden": 2880, "experts": EXPERTS}, {}),
        (
            {"name": "Qwen3 30B-A3B", "layers": 48, "hidden": 2048, "experts": EXPERTS},
            {"experts": {**EXPERTS, "bias": 0, "clamp": 0}},
        ),
        ({"name": "Llama 3.1 8B", "layers": 32, "hidden": 4096}, {}),
    ],
)
def test_what_tables_do_not_print_is_the_named_presets(model: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert of_step(RowFields(Document("rows.yaml", None), 0, {"model": model}))["model"] == wanted


def test_offloads_in_memory_are_read_by_their_names() -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": {"offload": "optim, params", "loss": "chunked"}})
    assert (
        of_memory(row)["layout"].items()
        >= {
            "offload": None,
            "optimizer_offload": True,
            "cpu_offload": True,
            "loss": None,
            "chunked_cross_entropy": True,
        }.items()
    )


@pytest.mark.parametrize(
    ("layout", "title", "wanted"),
    [
        ({"framework": "torchtitan 2025-08"}, "", {"framework_version": 202508}),
        ({"framework": "NeMo, container 26.01"}, "", {"framework_version": 202601}),
        ({"framework": "megatron-core (25.09 container)"}, "", {"framework_version": 202509}),
        ({"framework": "megatron-core 0.14"}, "", {"framework_version": 202510}),
        ({"framework": "Megatron-LM core_r0.12.0"}, "", {"framework_version": 202505}),
        ({"framework": "torchtitan"}, "64.14 GiB of torchtitan", {"framework_version": None}),
        # torchtitan's own script, which torchao's benchmarks run, lets the allocator's segments grow
        ({"framework": "torchtitan", "launcher": "./run_train.sh"}, "", {"expandable_segments": True}),
        ({"framework": "torchtitan"}, "torchao float8 benchmark, June 2025", {"expandable_segments": True}),
        ({"framework": "torchtitan"}, "torchao float8 benchmark, December 2024", {"expandable_segments": None}),
        ({"framework": "torchtitan", "launcher": "slurm"}, "", {"expandable_segments": None}),
        (
            {"framework": "megatron-core", "loss": "te fused cross entropy"},
            "",
            {"loss_form": "in-place", "loss": None, "chunked_cross_entropy": None},
        ),
        ({"framework": "torchtitan", "loss": "fused"}, "", {"loss_form": None, "chunked_cross_entropy": True}),
    ],
)
def test_dates_launchers_and_losses_of_memory(layout: dict[str, Any], title: str, wanted: dict[str, Any]) -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout, "source": {"title": title}})
    found = of_memory(row)["layout"]
    assert {name: found.get(name) for name in wanted} == wanted


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
        ({"framework": "OneFlow 0.3.5"}, "oneflow"),
        ({"framework": "our own", "zero": 2}, ""),
    ],
)
def test_the_framework_that_a_library_s_name_says(layout: dict[str, Any], name: str) -> None:
    """One that trains Hugging Face's classes; a stage of ZeRO without a word for what shards is DeepSpeed's."""
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout})
    assert (of_memory(row)["layout"].get("framework") or "") == name


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
    assert of_memory(row)["layout"].get("attention", "") == kernel


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
        row = recognize.recognized(RowFields(Document("rows.yaml", None), 0, fields), of_memory)
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


SHAPELESS = """schema: steps/1
rows:
- id: x
  source: {title: hand-made}
  model: {MODEL, seq: 2048}
  hardware: {chip: H100 SXM 80GB, count: 8}
  layout: {tp: 1, dp: 8, zero: 1, micro_batch: 1, global_batch: 8, precision: bf16, stack: megatron-core}
  measured: {step_seconds: 1}
"""


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma4-26b-a4b", "qwen3-next-80b-a3b", "granite4-micro"])
def test_a_preset_that_no_table_describes_has_its_own_layers(tmp_path: pathlib.Path, name: str) -> None:
    """Windows of some layers, sinks, state spaces, towers without images: the row takes as long as the same step on
    the command line."""
    (row,) = rows_of(tmp_path, SHAPELESS.replace("MODEL", f"preset: {name}"))
    assert row.shape is not None
    assert row.shape.preset == name
    line = f"step {name} --gpus 8 --hardware h100 --zero 1 --micro-batch 1 --global-batch 8 --seq 2048"
    asked = answered(f"{line} --precision bf16-mixed --stack megatron-core").quantities()["step/time"][0]
    (found,) = steps([row])
    assert found.predicted == pytest.approx(asked, rel=1e-6)


@pytest.mark.parametrize(("name", "stack"), [("nemotron3-nano-30b-a3b", ""), ("gpt-oss-120b", "-2026")])
def test_models_with_state_spaces_have_no_captured_iteration(tmp_path: pathlib.Path, name: str, stack: str) -> None:
    """Megatron Bridge's recipes of container 26.06 in MXFP8 capture the iteration of others on racks."""
    text = SHAPELESS.replace("MODEL", f"preset: {name}").replace("hand-made", "Megatron Bridge container 26.06")
    text = text.replace("H100 SXM 80GB", "GB300 (per GPU)").replace(
        "precision: bf16, stack: megatron-core", "precision: mxfp8"
    )
    (row,) = rows_of(tmp_path, text)
    assert row.stack == f"megatron-core{stack}"


def test_such_a_preset_of_another_shape_is_refused(tmp_path: pathlib.Path) -> None:
    for more in ("layers: 12", "window: 256", "experts: {count: 16, top_k: 4, ffn: 2880}"):
        with pytest.raises(NapkinError, match="not a decoder that a table describes"):
            rows_of(tmp_path, SHAPELESS.replace("MODEL", f"preset: gpt-oss-20b, {more}"))


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
    adapted = {"qwen", "fms-acceleration", "soup", "fsdp-qlora"}  # tell what adapters cost, and train nothing whole
    assert set(calibration_held_out.WITHOUT) == {entry[1] for entry in calibration.SEEN} | adapted
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
    assert network("8x 200 Gbit/s HDR InfiniBand per node (Selene)", 8) == 25e9
    assert network("RoCE, 1600 Gbit/s between nodes", 8) == 25e9
    assert network("400 Gbit/s RDMA per GPU", 8) == 50e9
    assert network("4 * 100Gb RoCE", 8) == 6.25e9
    assert network("NVLink 900 GB/s, InfiniBand 8x400 Gb/s", 8) == 50e9
    assert network("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 8) == 50e9
    assert network("1.6 Tbps", 8) == 25e9
    assert network("25 GB/s per GPU", 8) == 25e9
    assert network("GPUDirect-TCPX", 8) == 4 * 200e9 / 8 / 8
    assert network("carrier pigeons", 8) is None
    # the rate of a port, of which a node has as many as it usually has
    assert network("InfiniBand NDR 400G", 8) is None
    assert network("NDR 400 Gbit/s per node", 8) == 6.25e9
    assert network("InfiniBand NDR 400 Gbps between nodes", 4) is network("inter-node NDR 400G", 8) is None
    assert network("8x NDR 400G", 8) == 50e9


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
        assert of_step(row)["hardware"].get("fabric") == fabric


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
        (("tp: 2, ", ""), "the layout is not stated"),  # 32 of 64 accelerators
        (("tp: 2, pp: 1, dp: 32", "zero: 2"), "the layout is not stated"),
    ],
)
def test_what_cannot_be_predicted_says_why(tmp_path: pathlib.Path, change: tuple[str, str], why: str) -> None:
    (one,) = steps(rows_of(tmp_path, ROW.replace(*change)))
    assert one.predicted is None
    assert why in one.why


def test_ranks_that_cover_all_accelerators_leave_one_tensor_parallel_rank(tmp_path: pathlib.Path) -> None:
    for degrees in ("dp: 64", "dp: 64, zero: 2", "pp: 2, dp: 32", "pp: 2, dp: 16, cp: 2"):
        stated, known = (
            steps(rows_of(tmp_path, ROW.replace("tp: 2, pp: 1, dp: 32", whole)))[0]
            for whole in (degrees, f"tp: 1, {degrees}")
        )
        assert stated.predicted is not None
        assert stated.predicted == known.predicted


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

"""Published figures of memory that do not say which they are: what the software's log prints, if it prints one."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from napkin.evidence.prose.memory import of_memory
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.rows.row import RowFields
from napkin.evidence.validation import memory_check
from napkin.inputs.load import Document
from tests.finetune_row import validated


def entry(tmp_path: pathlib.Path, layout: str, what: str) -> dict[str, Any]:
    """Return what `validate` says of a figure of this kind."""
    row = {"layout": layout, "measured": f"peak_bytes: 3e+10, what: {what}"}
    (found,) = validated(tmp_path, row).values()
    return {name: found[name] for name in ("predicted", "low", "high")}


@pytest.mark.parametrize("trainer", ["ms-swift", "unsloth"])
def test_a_library_that_logs_reserved_bytes_publishes_reserved_bytes(tmp_path: pathlib.Path, trainer: str) -> None:
    """modelscope/ms-swift swift/trainers/patcher.py, get_max_reserved_memory; unslothai/notebooks."""
    layout = f"seq: 2048, precision: bf16, trainer: {trainer}, stack: none"
    found = {what: entry(tmp_path, layout, what) for what in ("unstated", "reserved", "used", "allocated")}
    assert found["unstated"] == found["reserved"]
    assert found["allocated"]["predicted"] < found["reserved"]["predicted"] < found["used"]["predicted"]


def test_it_does_under_megatron_too(tmp_path: pathlib.Path) -> None:
    """modelscope/ms-swift swift/megatron/callbacks/print.py: torch.cuda.max_memory_reserved."""
    layout = "seq: 2048, precision: bf16, trainer: ms-swift, stack: megatron-core"
    assert entry(tmp_path, layout, "unstated") == entry(tmp_path, layout, "reserved")


@pytest.mark.parametrize("trainer", ["axolotl", "trl"])
def test_a_figure_may_be_any_of_three_where_a_library_logs_several_or_none(
    tmp_path: pathlib.Path, trainer: str
) -> None:
    """axolotl-ai-cloud/axolotl src/axolotl/core/trainers/base.py logs max_active, max_allocated and device_reserved."""
    layout = f"seq: 2048, precision: bf16, trainer: {trainer}, stack: none"
    found = {what: entry(tmp_path, layout, what) for what in ("unstated", "used", "allocated")}
    assert found["unstated"]["low"] == found["allocated"]["low"]
    assert found["unstated"]["high"] == found["used"]["high"]


def bounds(framework: str, what: str) -> tuple[float, float | None, float | None]:
    """Return the prediction of a figure of this kind for a 1.2B model on eight GPUs, and its interval."""
    fields = {
        "id": "one",
        "source": {"title": "somebody's page"},
        "hardware": {"chip": "A100 SXM 80GB", "count": 8},
        "model": {
            "params": 1_235_814_400,
            "layers": 16,
            "hidden": 2048,
            "heads": 32,
            "kv_heads": 8,
            "ffn": 8192,
            "vocab": 128256,
            "gated": True,
            "tied": True,
            "seq": 2048,
        },
        "layout": {"dp": 8, "micro_batch": 2, "policy": "bf16-mixed", "recompute_kind": "full", "framework": framework},
        "memory": {"what": what, "bytes": 10**10},
    }
    found = memory_check.compared(recognized(RowFields(Document("rows.yaml", None), 0, fields), of_memory))
    assert found.predicted is not None
    return found.predicted, found.low, found.high


@pytest.mark.parametrize(
    ("framework", "figure"), [("torchtitan", "reserved"), ("Colossal-AI", "allocated"), ("litgpt", "allocated")]
)
def test_a_framework_s_log_says_what_a_row_does_not(framework: str, figure: str) -> None:
    """pytorch/torchtitan metrics.py, max_reserved_gib; hpcaitech/ColossalAI examples/language/llama/benchmark.py,
    max_memory_allocated."""
    assert bounds(framework, "unstated") == bounds(framework, figure)
    assert bounds(framework, "unstated") != bounds(framework, "used")


def test_megatron_prints_three_figures() -> None:
    """NVIDIA/Megatron-LM megatron/training/utils.py, report_memory: allocated, reserved, and the most of each."""
    low, high = bounds("Megatron-LM", "unstated")[1:]
    assert high is not None
    assert low is not None
    used = bounds("Megatron-LM", "used")[0]
    assert used is not None
    assert low <= used <= high

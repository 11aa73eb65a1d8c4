"""What fused kernels return in place of weight gradients (footprint/placeholders.py), worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.evidence.rows.models import model_of
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.evidence.rows.row import RowFields
from napkin.evidence.validation.memory_check import compared
from napkin.footprint.memory import rank_of
from napkin.footprint.placeholders import placeholder_bytes
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.stages import stage_of
from napkin.inputs.load import Document
from napkin.operations.experts import Experts
from napkin.operations.implementations import Implementation
from napkin.operations.model import Layer
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES, Precision
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup

H, HEADS, KV, D, F, V, L = 512, 4, 2, 128, 1024, 3072, 4
DENSE = PrintedDecoder("dense", L, H, HEADS, KV, D, F, V, True, False)
MIXED = replace(DENSE, experts=4, top_k=2, expert_ffn=128, dense_layers=1)
QKV, OUT, UP, DOWN, HEAD = (HEADS + 2 * KV) * D * H, HEADS * D * H, 2 * F * H, F * H, V * H
MEGATRON = FRAMEWORKS["megatron-core"]


def step_of(
    shape: PrintedDecoder, version: int | None = None, precision: Precision = POLICIES["bf16-mixed"], **layout: Any
) -> PreparedStep:
    framework = MEGATRON.as_of(version)
    code: Implementation = framework.implements(implementation_of("megatron", "llama"), compiled=False, divided=False)
    code = replace(code, loss="in-place")
    placed = Layout(seq=256, micro=1, micro_batches=4, recompute=Recompute("none"), **layout)
    precision = framework.formats(precision)
    setup = Setup(code, placed, precision, OPTIMIZERS["adamw"], "fused", "flash", 0.0, framework=framework)
    return prepare(model_of(shape, 256), setup)


@pytest.mark.parametrize(
    ("shape", "layout", "stage", "weights"),
    [
        (DENSE, {}, 0, QKV + OUT + UP + DOWN + HEAD),
        (DENSE, {"tp": 2}, 0, (QKV + OUT + UP + DOWN + HEAD) // 2),
        (DENSE, {"pp": 2}, 0, QKV + OUT + UP + DOWN),
        (DENSE, {"pp": 2}, 1, QKV + OUT + UP + DOWN + HEAD),
        # one for each shape, not for each layer or expert; the first stage has the dense layer and a sparse one
        (MIXED, {}, 0, QKV + OUT + UP + DOWN + HEAD + 3 * 128 * H),
        # h × h of the output projection and of an MLP that is as wide are one shape where nothing divides them
        (replace(DENSE, gated=False, ffn=H), {}, 0, QKV + OUT + HEAD),
        (replace(DENSE, gated=False, ffn=H), {"tp": 2}, 0, (QKV + OUT + H * H + HEAD) // 2),
    ],
)
def test_a_placeholder_of_each_shape(shape: PrintedDecoder, layout: dict[str, Any], stage: int, weights: int) -> None:
    step = step_of(shape, **layout)
    assert placeholder_bytes(step, stage_of(step, stage)) == 2 * weights


def test_biases_of_experts_have_none() -> None:
    step = step_of(MIXED)

    def biased(layer: Layer) -> Layer:
        operations = (replace(op, bias=True) if isinstance(op, Experts) else op for op in layer.operations)
        return replace(layer, operations=tuple(operations))

    stage = stage_of(step, 0)
    other = replace(stage, kinds=tuple(biased(layer) for layer in stage.kinds))
    assert placeholder_bytes(step, other) == placeholder_bytes(step, stage)


@pytest.mark.parametrize(
    ("policy", "width"), [("fp8-mixed", 2), ("mxfp8-mixed", 2), ("nvfp4-mixed", 2), ("amp-bf16", 4), ("fp32", 4)]
)
def test_a_placeholder_has_the_weights_own_format(policy: str, width: int) -> None:
    # get_dummy_wgrad(list(weight.main_grad.shape), weight.dtype): that of an 8-bit copy is no weight's
    step = step_of(DENSE, precision=POLICIES[policy])
    assert placeholder_bytes(step, stage_of(step, 0)) == width * (QKV + OUT + UP + DOWN + HEAD)


def test_they_live_through_the_step_and_no_gradient_of_a_linear_layer_is_made() -> None:
    # TransformerEngine 2.3 of April 2025 keeps them; before, each layer returned a tensor that was freed at once
    new, old = rank_of(step_of(DENSE), 0), rank_of(step_of(DENSE, 202503), 0)
    kept = 2 * (QKV + OUT + UP + DOWN + HEAD)
    before, after = ({moment.name: moment for moment in rank.moments} for rank in (old, new))
    assert after["step"].live - before["step"].live == kept
    # at the loss: the head's 16-bit gradient, which the head's backward pass made
    assert after["loss"].live - before["loss"].live == kept - 2 * HEAD


def test_measured_megatron_of_2025_on_four_wide_layers() -> None:
    # MooreThreads/SimuMax at 4dcaae51, docs/b200/b200_release_v1.2_summary.json: 81.59 GiB allocated, 84.7 reserved
    row = {
        "id": "llama3_405b_l4_tp2",
        "source": {"title": "Megatron-LM, TransformerEngine 2.11, 2025-10"},
        "model": {
            "layers": 4,
            "hidden": 16384,
            "heads": 128,
            "kv_heads": 16,
            "ffn": 53248,
            "vocab": 128256,
            "gated": True,
            "tied": False,
            "seq": 4096,
        },
        "hardware": {"chip": "B200 SXM", "count": 8, "per_node": 8},
        "layout": {
            "framework": "megatron-core",
            "framework_version": 202510,
            "tp": 2,
            "pp": 1,
            "dp": 4,
            "zero": 1,
            "sp": True,
            "micro_batch": 1,
            "global_batch": 32,
            "recompute_kind": "none",
            "policy": "bf16-mixed",
            "dropout": 0.0,
            "attention": "flash",
            "loss_form": "in-place",
        },
        "memory": {"what": "allocated", "bytes": int(81.59 * 2**30)},
    }
    found = compared(RowFields(Document("rows", None), 0, row))
    assert found.predicted is not None
    assert found.predicted / 2**30 == pytest.approx(81.59, rel=0.005)

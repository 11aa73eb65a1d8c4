"""What the words of a published row of memory say of its software, its formats and its model."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.evidence.published import with_preset
from napkin.evidence.rows import setups
from napkin.evidence.rows.models import described
from napkin.evidence.validation import memory_check
from napkin.footprint.prepared import prepare
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from tests.test_memory_published import LLAMA, row


@pytest.mark.parametrize(
    ("framework", "title", "zero", "named"),
    [
        ("PyTorch FSDP2, torch.compile", "lightning-thunder, benchmark_litgpt.py", 3, "fsdp"),
        ("PyTorch, torch.compile", "lightning-thunder, benchmark_litgpt.py", None, "plain"),
        ("DDP", "a page on Megatron", None, "plain"),
        ("PyTorch", "a page", 3, "fsdp"),
        ("PyTorch/XLA", "a page", None, None),
        ("own code", "LitGPT resource tables", None, "litgpt"),
        ("", "torchtune README", None, "torchtune"),
        ("Megatron-LM", "Korthikanti et al. 2022", None, "megatron"),
        ("Megatron-DeepSpeed", "BigScience chronicles", None, "megatron-deepspeed"),
        ("TRL", "a page", 2, "deepspeed"),
    ],
)
def test_a_framework_that_a_row_states_counts_before_words_of_its_source(
    framework: str, title: str, zero: int | None, named: str | None
) -> None:
    found = row(layout={"framework": framework, "zero": zero}, source={"title": title})
    assert (found.text("layout.framework") or None) == named


def test_a_policy_may_be_stated_part_by_part() -> None:
    """Precision-aware optimizers keep 16-bit moments next to an fp32 master copy, which no policy's name says."""
    layout = {"tp": 1, "dp": 1, "micro_batch": 1, "recompute": "none"}
    policy = "param=bf16,grad=bf16,compute=bf16,state=bf16,master=fp32"
    found = setups.precision_of(row(layout={**layout, "policy": policy}), FRAMEWORKS["megatron-core"])
    assert (found.param, found.grad, found.state, found.master) == ("bf16", "bf16", "bf16", "fp32")


def test_a_row_that_recomputes_nothing_does_so_on_several_gpus_too() -> None:
    """LitGPT's scripts checkpoint under FSDP; a row that says that it did not, did not."""
    layout = {"dp": 8, "zero": 3, "micro_batch": 1, "framework": "litgpt"}
    hardware = {"chip": "A100 SXM 80GB", "count": 8}
    kinds = [
        setups.setup_of(
            row(layout={**layout, **said}, hardware=hardware), described(row()), FRAMEWORKS["litgpt"]
        ).layout.recompute.kind
        for said in ({}, {"recompute": "none"})
    ]
    assert kinds == ["full", "none"]


def test_a_preset_that_no_table_of_dimensions_describes_is_known_by_its_name() -> None:
    """Gemma 2 has windows in every other layer and norms after its blocks."""
    layout = {"tp": 1, "dp": 1, "micro_batch": 1, "recompute": "full", "framework": "fsdp"}
    found = with_preset(row(model={"preset": "gemma2-2b", "seq": 1024}, layout=layout), named=True)
    assert described(found).depth == 26
    assert memory_check.compared(found).predicted is not None


def test_torch_compile_keeps_the_input_of_an_elementwise_activation_alone() -> None:
    """GPT-2's gelu_new is seven elementwise operations, several of which save a tensor of tokens · 4h; compiled it is
    recomputed from its input, so that the layer keeps what it keeps with one kernel."""
    model = described(row(model={**LLAMA, "kv_heads": 8, "ffn": 2048, "gated": False, "tied": True, "seq": 256}))
    layout: dict[str, Any] = {"tp": 1, "dp": 1, "micro_batch": 1, "recompute": "none", "framework": "plain"}

    def saved(**said: Any) -> float:
        setup = setups.setup_of(row(layout={**layout, **said}), model, PLAIN)
        return float(prepare(model, setup).run.layers[0][1].saved)

    # query, key, value, attention's result and its lse, the stream twice, two norms' outputs and statistics, the MLP's
    # input and output of its activation
    h, tokens, heads = 512, 256, 8
    by_hand = tokens * (2 * h * (3 + 1 + 2 + 2 + 4 + 4) + 4 * heads + 4 * 2 * 2)
    assert saved(compile=True) == pytest.approx(by_hand, rel=0.01)
    assert saved(compile=False) > by_hand + 3 * 2 * tokens * 4 * h

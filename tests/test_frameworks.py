"""What frameworks run: the edition of a date, what compiling changes, and one answer to one question."""

from __future__ import annotations

import pytest

from napkin.architectures import build, implementation_of
from napkin.evidence.prose.memory import of_memory
from napkin.evidence.rows.row import RowFields
from napkin.footprint.memory import weights_of_all
from napkin.footprint.prepared import prepare
from napkin.footprint.rows import Rows
from napkin.inputs.load import Document
from napkin.inputs.model_file import load_config
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.layout import Layout
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import run_line

TITAN = FRAMEWORKS["torchtitan"]


@pytest.mark.parametrize(
    ("compiled", "divided", "version", "loss"),
    [
        (True, False, 202412, ""),  # before torchtitan/components/loss.py compiled it
        (True, False, 202503, ""),  # off since e8977b007 (18 December 2024)
        (True, False, 202504, "compiled"),
        (True, False, 202603, "compiled"),
        (False, False, 202603, ""),
        (True, True, 202603, "dtensor"),  # loss_parallel
        (False, True, 202412, "dtensor"),
        (True, False, None, "chunked-backward"),  # ChunkedLossWrapper, from 27 April 2026 on
        (False, False, 202604, "chunked-backward-eager"),
        (True, True, None, "chunked-backward-divided"),
    ],
)
def test_torchtitan_runs_the_loss_of_its_date(compiled: bool, divided: bool, version: int | None, loss: str) -> None:
    found = TITAN.implements(implementation_of("torchtitan", "llama"), compiled, divided, version)
    assert found.loss == loss
    assert (found.norms == "fused" and found.swiglu == "fused") or not compiled


def test_a_framework_without_editions_keeps_its_loss() -> None:
    base = implementation_of("hf", "llama")
    assert PLAIN.implements(base, compiled=False, divided=False) == base
    assert PLAIN.implements(base, compiled=True, divided=True).loss == base.loss


def test_eight_parts_of_the_loss_need_an_eighth_of_its_logits() -> None:
    """Llama 3 8B, 8,192 tokens: an eighth of the logits, in 16 bits with their gradient where compiled, else 14 bytes
    each; the fp32 gradient of the hidden state is kept in place of all logits."""
    line = "memory llama3-8b --gpus 8 --zero 3 --seq 8192 --recompute operations --framework torchtitan --json"
    eager, compiled, whole = (
        run_line(f"{line} {how}").data["values"] for how in ("", "--compile", "--compile --loss compiled")
    )
    logits, hidden = 8192 * 128256, 8192 * 4096
    saved = "memory/activations/saved"
    assert whole[saved] - compiled[saved] == 2 * logits + 2 * hidden - 4 * hidden  # the head's input, too
    assert eager["memory/at/forward"] - compiled["memory/at/forward"] >= (14 - 4) * logits // 8 - 4 * hidden


def test_a_compiled_loss_saves_its_fp32_copies() -> None:
    line = "memory llama3-8b --gpus 8 --zero 3 --seq 8192 --recompute operations --framework fsdp --json --loss"
    eager, compiled = (run_line(f"{line} {how}").data["values"] for how in ("torch", "compiled"))
    logits = 8192 * 128256
    # eager: 16-bit logits, their fp32 copy and the fp32 log-softmax, then the fp32 gradient; compiled: 16-bit logits
    # and their 16-bit gradient
    assert eager["memory/at/loss"] - compiled["memory/at/loss"] >= (2 + 4) * logits
    assert compiled["memory/at/loss/activations"] < eager["memory/at/loss/activations"]


def test_a_compiled_step_is_not_called_exact() -> None:
    answers = [run_line(f"memory llama3-8b --seq 1024 --json {how}").data for how in ("", "--compile")]
    exact = [any("are exact for" in note for note in answer["notes"]) for answer in answers]
    assert exact == [True, False]


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ({"title": "torchao pretraining logs, June 2025", "where": "pretraining.rst"}, 202506),
        ({"title": "benchmark notes", "where": "benchmarks/llama3_h100_202412_torchtitan.md"}, 202412),
        ({"title": "notes of Sept 2024", "where": "a page"}, 202409),
        ({"title": "200000 steps", "where": "commit 201399f"}, None),
    ],
)
def test_the_date_of_a_source_is_the_version_of_its_software(source: dict[str, str], version: int | None) -> None:
    found = of_memory(RowFields(Document("rows.yaml", None), 0, {"source": source}))
    assert found["layout"].get("framework_version") == version


def test_torchtitan_gathered_embedding_and_head_together_until_july_2025() -> None:
    """Before 83e69410 the last block stayed gathered, too."""
    assert (TITAN.ends_apart, TITAN.at_loss) == (True, 0)
    assert TITAN.as_of(202508) == TITAN
    for version in (0, 202412, 202507):
        old = TITAN.as_of(version)
        assert (old.ends_apart, old.at_loss) == (False, 1)
        assert replace(old, ends_apart=True, at_loss=0) == TITAN
    assert PLAIN.as_of(0) == PLAIN


def test_what_fully_shard_holds_at_the_loss_and_while_layers_run_backward() -> None:
    """Llama 3 8B, 8,192 tokens. At the loss the head with its norm in 16 bits, the gradient of the logits, and loss and
    its gradient; in the last layer's backward pass two blocks, and the head's gradient in fp32 while it is reduced."""
    line = (
        "memory llama3-8b --gpus 8 --zero 3 --seq 8192 --recompute operations --framework torchtitan --compile --json"
    )
    terms = run_line(f"{line} --loss compiled --explain").data["terms"]
    head, block, logits = 128256 * 4096 + 4096, 218_112_000, 8192 * 128256
    assert terms["memory/at/loss/temporaries"]["value"] == 2 * head + 2 * logits + 2 * 2
    assert terms["memory/at/backward/temporaries/gathered"]["value"] == 2 * 2 * block
    assert terms["memory/at/backward/temporaries/reduced_gradients"]["value"] == 4 * head


def test_litgpt_s_head_is_a_weight_of_its_own() -> None:
    """Llama 3.2 1B ties its head: 128,256 · 2,048 weights, of which LitGPT holds two, in one layout and in arrays."""
    line = "llama3.2-1b --micro-batch 1 --seq 512 --precision bf16-pure --json --framework"
    held = [run_line(f"memory {line} {name}").data["values"]["memory/parameters"] for name in ("plain", "litgpt")]
    assert held[1] - held[0] == 2 * 128_256 * 2_048
    model = build(load_config("llama3.2-1b"))
    implementation = replace(implementation_of("litgpt", model.family), loss="")
    for own in (False, True):
        setup = Setup(
            replace(implementation, own_head=own), Layout(seq=512), POLICIES["bf16-pure"], OPTIMIZERS["adamw"], "fused"
        )
        assert Rows(model, setup).model.tied == prepare(model, setup).model.tied == (not own)
        assert weights_of_all(model, setup).all == 1_235_814_400 + own * 128_256 * 2_048
        assert setup.trained(model).tied == (not own)


def test_a_step_updates_litgpt_s_head_too() -> None:
    """The optimizer's time is that of the bytes of all weights: of 1,235.8 M with a tied head, and 262.7 M more."""
    line = "llama3.2-1b --hardware h100-sxm --micro-batch 1 --seq 512 --precision bf16-pure --optimizer-form fused"
    tied, own = (
        run_line(f"step {line} --json --framework {name}").data["values"]["step/optimizer"]
        for name in ("fsdp", "litgpt")
    )
    assert own / tied == pytest.approx(1 + 128_256 * 2_048 / 1_235_814_400, rel=0.01)

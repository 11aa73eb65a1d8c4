"""Attention kernels by their papers, and what is not known of the kernel that ran: intervals that cover both."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import pytest

from napkin.evidence.fit.columns import kernel_of
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.prose.steps import of_step
from napkin.evidence.published import read
from napkin.evidence.rates.priors import PRIORS
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import StepRow, step_row
from napkin.evidence.rows.words import timed_kernel
from napkin.evidence.software.stacks import stack
from napkin.evidence.validation.step_check import steps
from napkin.inputs.load import Document
from tests.conftest import run_line

LONG = "step llama3-8b --gpus 8 --zero 3 --seq 65536 --recompute full --stack fsdp-eager --json --hardware"


def half(found: dict[str, dict[str, float]]) -> float:
    """Return the half-width of the interval of ln(time)."""
    return math.log(found["high"]["step/time"] / found["values"]["step/time"])


def test_the_first_fused_kernels_by_figure_4() -> None:
    """Dao 2023, figure 4 (c, d), forward and backward with a mask on an A100 at 0.5k and 16k tokens, whose queries read
    256 and 8,192 keys on average: FlashAttention 1, Triton's, xformers, each with heads of 64 and 128."""
    at_512, at_16k = (58, 55, 59, 50, 51, 58), (97, 83, 80, 80, 67, 92)
    second = {512: (88, 99), 16384: (171, 189)}

    def filled(name: str, keys: float) -> float:
        return keys / (keys + PRIORS[f"half_keys/{name}"][0])

    shares = [few / many for few, many in zip(at_512, at_16k, strict=True)]
    assert min(shares) < filled("first", 256) / filled("first", 8192) < max(shares)
    assert filled("flash", 256) / filled("flash", 8192) == pytest.approx(88 / 171, abs=0.03)
    for one, kernel in enumerate(("flash1", "flash1", "efficient")):
        value, spread, _ = PRIORS[f"kernel/{kernel}"]
        for head in (0, 1):
            ratio = at_16k[2 * one + head] / second[16384][head]
            assert abs(math.log(ratio / value)) < 1.645 * spread


def test_flash_attention_2_on_b200_by_tritonbench() -> None:
    """meta-pytorch/tritonbench pull request 171: TFLOP/s forward on B200, 8 sequences, 16 heads of 128, no mask. The
    constant is of endless keys."""
    share, spread, _ = PRIORS["attention/blackwell/flash"]
    for keys, rate in ((2048, 352.1), (4096, 353.9), (8192, 361.6)):
        filled = keys / (keys + PRIORS["half_keys/flash"][0])
        assert abs(math.log(rate / 2250 / (share * filled))) < 1.645 * spread


def test_kernels_without_the_instructions_of_blackwell_are_held_to_those_of_older_gpus() -> None:
    """cuDNN's attention is more than twice as fast on B200 as on H200, FlashAttention-2 about as fast; a kernel of no
    stated version takes between the two, and its interval reaches over both."""
    found = {
        (card, kernel): run_line(f"{LONG} {card} --attention {kernel}").data
        for card in ("h200", "b200")
        for kernel in ("flash2", "cudnn", "flash")
    }
    scores = {of: data["values"]["step/compute/attention"] for of, data in found.items()}
    assert scores["h200", "cudnn"] / scores["b200", "cudnn"] > 2
    assert 0.8 < scores["h200", "flash2"] / scores["b200", "flash2"] < 1.25
    assert scores["b200", "cudnn"] < scores["b200", "flash"] < scores["b200", "flash2"]
    first, second, open_ = (found["b200", kernel] for kernel in ("cudnn", "flash2", "flash"))
    assert open_["low"]["step/time"] < first["values"]["step/time"]
    assert open_["high"]["step/time"] > 0.95 * second["values"]["step/time"]


def test_a_kernel_that_the_release_decides_widens_the_interval() -> None:
    """From Hopper on torch's releases differ: the interval reaches from the fast end of a step with cuDNN's kernel to
    the slow end of one without. A kernel stated with its version has no spread, `flash` names none, and on an A100 all
    are one."""
    found = {
        (card, kernel): run_line(f"{LONG} {card}{kernel and f' --attention {kernel}'}").data
        for card in ("h100", "a100")
        for kernel in ("", "flash", "flash2", "cudnn")
    }
    open_, flash, cudnn = (found["h100", kernel] for kernel in ("", "flash2", "cudnn"))
    effect = math.log(flash["values"]["step/time"] / cudnn["values"]["step/time"])
    assert effect > 0.15
    assert open_["values"]["step/time"] == flash["values"]["step/time"]
    assert half(open_) == pytest.approx(half(flash) + effect)
    assert half(found["a100", ""]) == half(found["a100", "flash"]) == half(found["a100", "flash2"])


def test_flash_is_the_kernel_that_the_software_runs() -> None:
    """TransformerEngine runs cuDNN's on Hopper for `flash` too, and FlashAttention-2 where that is named; both keep the
    same tensors."""
    line = "step llama3-70b --gpus 64 --tp 8 --pp 4 --hardware h100 --json --attention"
    found = {kernel: run_line(f"{line} {kernel}").values for kernel in ("flash", "flash2", "cudnn")}
    assert found["flash"]["step/time"] == found["cudnn"]["step/time"] < found["flash2"]["step/time"]
    assert found["flash"]["memory/total"] == found["flash2"]["memory/total"]


@pytest.mark.parametrize(
    ("framework", "card", "kernel"),
    [("torchtitan", "b200", "cudnn"), ("torchtitan", "h100", "flash"), ("megatron-core", "h100", "cudnn")],
)
def test_the_kernel_of_a_framework(framework: str, card: str, kernel: str) -> None:
    """torchtitan pull request 1196 takes cuDNN on B200; TransformerEngine takes it from Hopper on."""
    line = f"step llama3-8b --gpus 8 --zero 1 --framework {framework} --hardware {card} --json"
    assert run_line(line).data["inputs"]["attention"]["value"] == kernel


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ("flash", "flash"),
        ("flash attention", "flash"),
        ("flash_attention_2", "flash2"),
        ("fa2", "flash2"),
        ("FlashAttention-2 (varlen)".lower(), "flash2"),
        ("flash_attention_3", "cudnn"),
        ("sdpa", "flash"),
        ("flex attention", "flash2"),
        ("flex_attention", "flash2"),
    ],
)
def test_words_of_kernels(words: str, kernel: str) -> None:
    assert timed_kernel(words) == kernel


ROW = """schema: steps/1
rows:
- id: a
  source: {title: hand-made}
  model: {layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, gated: true, seq: 65536}
  hardware: {accelerator: H100 SXM 80GB, count: 8, per_node: 8}
  layout: {framework: PyTorch FSDP, dp: 8, zero: 3, micro_batch: 1, global_batch: 8, recompute: full, ATTENTION}
  measured: {step_seconds: 20}
"""


def test_rows_that_name_no_version_of_their_kernel(tmp_path: Path) -> None:
    """`flash` alone is what the software runs; FlashAttention-2 is itself, and as fast as the software's older one."""
    ends = {}
    for kernel in ("flash", "flash_attention_2", "flash_attention_3", ""):
        path = tmp_path / "rows.yaml"
        path.write_text(ROW.replace("ATTENTION", f"attention: {kernel}" if kernel else "tp: 1"))
        [one] = steps(read(str(path)).steps)
        assert one.predicted, one.why
        assert one.low
        assert one.high
        ends[kernel] = (one.predicted, math.log(one.high / one.low) / 2)
    assert ends["flash"] == ends[""]
    second, third = ends["flash_attention_2"], ends["flash_attention_3"]
    assert ends["flash"][0] == second[0]
    assert ends["flash"][1] == pytest.approx(second[1] + math.log(second[0] / third[0]))


def test_a_plan_has_the_interval_of_its_step() -> None:
    """Slots of which nothing is stated, and a kernel that the release decides, widen both alike."""
    for line in (
        "plan llama3-8b --gpus 8 --hardware rtx-4090 --lora-rank 16 --json",
        "plan llama3-8b --gpus 8 --hardware h100 --framework fsdp --seq 32768 --json",
    ):
        plan = run_line(line).data
        row = next(one for one in plan["rows"] if one["recommended"])
        step = run_line([*shlex.split(row["command"])[1:], "--json"]).data
        for end in ("low", "high"):
            assert row[f"step/{end}"] == pytest.approx(step[end]["step/time"])
            assert plan[end]["step/time"] == pytest.approx(step[end]["step/time"])


def test_frameworks_without_a_fused_kernel_run_one_that_is_stated() -> None:
    """Megatron-LM of 2021 writes its scores, unless a row says that it does not."""
    old = stack("megatron")
    assert kernel_of(row_with({"attention": "flash"}), old, "ampere") == "flash"
    assert kernel_of(row_with({}), old, "ampere") == "eager"


def row_with(layout: dict[str, str]) -> StepRow:
    fields = {
        "id": "a",
        "source": {"title": "hand-made"},
        "model": {"layers": 2, "hidden": 64, "heads": 2, "ffn": 256, "vocab": 512, "seq": 64},
        "hardware": {"accelerator": "A100 SXM 80GB", "count": 1},
        "layout": {"micro_batch": 1, "global_batch": 1, **layout},
        "measured": {"step_seconds": 1.0},
    }
    return step_row(recognized(RowFields(Document("rows", None), 0, fields), of_step))

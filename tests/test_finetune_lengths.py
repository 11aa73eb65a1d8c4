"""Lengths of sequences in rows of measured fine-tuning: of the longest for memory, of the mean for time."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import pytest

from napkin.evidence.finetuning.layout import layout_of
from napkin.evidence.finetuning.lengths import RowLengths
from napkin.evidence.predictions.tuning_runs import share, spreads
from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import Document
from tests.conftest import run_line
from tests.finetune_row import PLAIN, ROW, validated


@pytest.mark.parametrize(
    ("gpus", "micro", "mean", "mib"), [(2, 8, 277.2, 57_757), (4, 4, 282.8, 36_992), (8, 2, 267.5, 27_808)]
)
def test_where_lengths_vary_the_cache_holds_what_a_step_frees_a_second_time(
    tmp_path: pathlib.Path, gpus: int, micro: int, mean: float, mib: int
) -> None:
    """Gradients and the optimizer's temporaries too, which are shards: nvidia-smi of full fine-tunes with FSDP
    (foundation-model-stack/fms-acceleration at 876e2ed6, scripts/benchmarks/refs_orca/a100_80gb_mp.csv, rows 0 to 2),
    where max_memory_allocated is 39.2, 28.0 and 22.5 GB."""
    layout = f"micro_batch: {micro}, packed: true, precision: fp16 weights, autocast: false, attention: flash, zero: 3"
    stack = "kernels: padding-free, trainer: hf-trainer, stack: fsdp, versions: 'transformers 4.43.3'"
    row = {
        "model": "mistral-7b-v0.1",
        "count": gpus,
        "method": "kind: full",
        "layout": f"{layout}, {stack}",
        "measured": f"driver_mib: {mib}, mean_tokens_per_sample: {mean}, samples: 2000",
    }
    text = ROW.replace("micro_batch: 4, grad_accum: 1, ", "")
    file = tmp_path / "finetune.yaml"
    usual = {"id": "a", "task": "sft", "chip": "A100 SXM 80GB"}
    file.write_text("schema: finetune/1\nrows:\n" + text.format(**{**usual, **row}))
    (entry,) = run_line(f"validate {file} --json").data["rows"]
    assert (entry["quantity"], entry["measured"]) == ("memory_used", mib * 2**20)
    assert entry["predicted"] == pytest.approx(entry["measured"], rel=0.08)


def test_memory_is_of_the_longest_micro_batch_and_time_of_the_mean_one(tmp_path: pathlib.Path) -> None:
    """Unstated, lengths are lognormal, and their standard deviation is 0.6 of the mean (0.3 to 0.9): σ² = ln 1.36, the
    largest of 10,000 standard normal numbers is 3.836, so that the longest sample has exp(0.5545 · 3.836 − 0.1537) =
    7.195 times the mean. 500 tokens are the mean of the longest of 4 rows, 1 + 0.6 · 1.049 times that of all: 500 /
    1.6295 · 7.195 = 2,208, and never more than the length at which samples are cut."""
    base = "packed: false, attention: flash_attention_2, precision: bf16-pure, trainer: none, stack: none"
    measured = "peak_bytes: 3e+10, what: allocated, samples_per_second: 4"
    mean = f"{measured}, mean_tokens_per_sample: 500"
    found = validated(
        tmp_path,
        {"id": "mean", "layout": base, "measured": mean},
        {"id": "cut", "layout": f"{base}, seq_max: 600", "measured": mean},
        {"id": "all", "layout": f"{base}, seq: 2208", "measured": measured},
        {"id": "short", "layout": f"{base}, seq: 500", "measured": measured},
    )
    one, cut, alike, short = (found[name, "memory_allocated"] for name in ("mean", "cut", "all", "short"))
    assert one["predicted"] == alike["predicted"]
    assert one["low"] < alike["low"]
    assert one["high"] > alike["high"]
    assert cut["predicted"] < one["low"]
    assert short["predicted"] < cut["predicted"]
    times = [found[name, "samples_per_second"]["predicted"] for name in ("mean", "short")]
    assert times[0] == times[1]


def test_the_longest_of_few_samples_is_shorter(tmp_path: pathlib.Path) -> None:
    """The usual 1,024 tokens are the longest of 10,000 samples; 60 steps of 4 take 240, of which the largest of normal
    numbers is 2.794 in place of 3.836: exp(0.5545 · (2.794 − 3.836)) = 0.561 times as long, 575 tokens."""
    base = "packed: false, precision: bf16-pure, trainer: none, stack: none"
    measured = "peak_bytes: 3e+10, what: allocated"
    found = validated(
        tmp_path,
        {"id": "few", "layout": f"{base}, seq_max: 2048", "measured": f"{measured}, steps: 60"},
        {"id": "so", "layout": f"{base}, seq: 575", "measured": measured},
    )
    few, so = (found[name, "memory_allocated"]["predicted"] for name in ("few", "so"))
    assert few == pytest.approx(so, rel=0.001)


def test_a_packed_sequence_holds_both_responses(tmp_path: pathlib.Path) -> None:
    """modelscope/ms-swift swift/dataset/packing.py, create_packed_idx: the lengths of a pair are added up."""
    base = "precision: bf16-pure, trainer: none, stack: none"
    found = validated(
        tmp_path,
        {"id": "packed", "task": "dpo", "layout": f"{base}, packed: true, seq: 4096"},
        {"id": "pairs", "task": "dpo", "layout": f"{base}, seq: 2048"},
        {"id": "twice", "task": "dpo", "layout": f"{base}, seq: 4096"},
    )
    packed, pairs, twice = (found[name, "memory_allocated"]["predicted"] for name in ("packed", "pairs", "twice"))
    assert packed == pytest.approx(pairs, rel=0.01)
    assert twice > 1.2 * pairs


def test_a_cutoff_is_not_how_long_samples_are(tmp_path: pathlib.Path) -> None:
    """The longest sample has the usual 1,024 tokens, but at least a quarter of the length at which samples are cut, and
    at most that length. As lengths vary, the cache has gaps."""
    base = "packed: false, attention: flash_attention_2, precision: bf16-pure, trainer: none, stack: none"
    cuts = {512: 512, 2048: 1024, 16384: 4096}
    rows: list[dict[str, Any]] = []
    for what in ("allocated", "reserved"):
        measured = f"peak_bytes: 3e+10, what: {what}"
        for cut, longest in cuts.items():
            rows.append({"id": f"cut{cut}", "layout": f"{base}, seq_max: {cut}", "measured": measured})
            rows.append({"id": f"all{cut}", "layout": f"{base}, seq: {longest}", "measured": measured})
    found = validated(tmp_path, *rows[:6]) | validated(tmp_path, *rows[6:])
    for cut in cuts:
        varied, alike = (found[f"{name}{cut}", "memory_allocated"] for name in ("cut", "all"))
        assert varied["predicted"] == alike["predicted"]
        varied, alike = (found[f"{name}{cut}", "memory_reserved"] for name in ("cut", "all"))
        assert varied["predicted"] > alike["predicted"]
        assert varied["high"] > alike["high"]


def test_a_row_without_lengths_has_memory_and_no_speed(tmp_path: pathlib.Path) -> None:
    found = validated(tmp_path, {"layout": "precision: bf16"})
    assert found["a", "memory_allocated"]["low"] < found["a", "memory_allocated"]["predicted"]
    assert "how long its sequences are" in found["a", "tokens_per_second_per_gpu"]["why"]


def test_ranks_wait_for_the_one_with_the_longest_rows() -> None:
    """The mean of the larger of two standard normal numbers is 1/√π = 0.564, of the largest of four 1.029."""
    joined = RowLengths(500, (500, 500, 500), varied=True)
    assert joined.waits(2, 1, 1)[0] == pytest.approx(1 + 0.6 * 0.564, rel=0.02)
    assert joined.waits(2, 4, 4)[0] == pytest.approx(1 + 0.6 * 0.564 / 4, rel=0.01)
    padded = RowLengths(500, (500, 500, 500), varied=True, padded=True)
    assert padded.waits(2, 2, 1)[0] == pytest.approx((1 + 0.6 * 1.029) / (1 + 0.6 * 0.564), rel=0.02)
    assert padded.waits(1, 2, 1) == (1, 1, 1)
    assert RowLengths(500, (500, 500, 500)).waits(8, 1, 1) == (1, 1, 1)


def test_hosts_do_not_wait_for_the_one_with_the_longest_rows(tmp_path: pathlib.Path) -> None:
    """A host launches as many kernels for long sequences as for short ones. Of two GPUs with four rows each, one has
    0.6 · 0.564 / √4 = 17 % more than the mean: as much is lost where rows have 4,096 tokens (a little more, in
    attention), and next to nothing where they have 16, so that GPUs wait for their hosts."""
    base = "precision: bf16-pure, trainer: hf-trainer, stack: ddp, zero: 0, loss: fused, padding_free: true"
    rate, lost = "tokens_per_second_per_gpu: 3000", {}
    for mean in (16, 4096):
        found = validated(
            tmp_path,
            {"id": "alike", "count": 2, "layout": f"{base}, seq: {mean}", "measured": rate},
            {"id": "varied", "count": 2, "layout": base, "measured": f"{rate}, mean_tokens_per_sample: {mean}"},
        )
        one, other = (found[name, "tokens_per_second_per_gpu"]["predicted"] for name in ("alike", "varied"))
        lost[mean] = one / other
    assert lost[16] < 1.02
    assert 1.15 < lost[4096] < 1.22


def test_a_run_is_as_long_as_its_samples(tmp_path: pathlib.Path) -> None:
    """64 samples in batches of 4 are 16 steps; tokens that were derived from a rate say nothing."""
    layout, times = f"{PLAIN}, global_batch: 4", "step_seconds: 5, run_seconds: 100"
    found = validated(
        tmp_path,
        {"layout": layout, "measured": f"{times}, samples: 64"},
        {"id": "tokens", "layout": layout, "measured": f"{times}, tokens: {64 * 4096}"},
        {"id": "rate", "layout": layout, "measured": f"{times}, tokens: {64 * 4096}, derived: [tokens]"},
    )
    step = found["a", "step_seconds"]["predicted"]
    assert found["a", "run_seconds"]["predicted"] == pytest.approx(16 * step / share())
    assert found["tokens", "run_seconds"]["predicted"] == pytest.approx(16 * step / share())
    assert "steps" in found["rate", "run_seconds"]["why"]


def test_a_pair_of_preferences_is_one_sample(tmp_path: pathlib.Path) -> None:
    """64 pairs in batches of 4 pairs are 16 steps, each of 8 sequences."""
    layout, times = f"{PLAIN}, global_batch: 4", "step_seconds: 5, run_seconds: 100"
    amounts = {"a": "samples: 64", "b": "steps: 16", "c": f"tokens: {64 * 2 * 4096}"}
    rows = [{"id": name, "task": "dpo", "layout": layout, "measured": f"{times}, {amounts[name]}"} for name in amounts]
    found = validated(tmp_path, *rows)
    for name in amounts:
        steps = 16 * found["a", "step_seconds"]["predicted"]
        assert found[name, "run_seconds"]["predicted"] == pytest.approx(steps / share())


def test_a_run_may_take_longer_than_its_steps(tmp_path: pathlib.Path) -> None:
    """Its clock goes on while it evaluates and saves, as in published runs: its slow end reaches further."""
    layout, times = f"{PLAIN}, global_batch: 4", "step_seconds: 5, run_seconds: 100, samples: 64"
    found = validated(tmp_path, {"layout": layout, "measured": times})
    step, run = (found["a", name] for name in ("step_seconds", "run_seconds"))
    assert run["predicted"] / run["low"] == pytest.approx(step["predicted"] / step["low"])
    _, slower = spreads()
    wider = math.hypot(math.log(step["high"] / step["predicted"]), 1.645 * slower)
    assert math.log(run["high"] / run["predicted"]) == pytest.approx(wider, rel=1e-3)


def test_samples_of_unknown_length_that_are_packed_attend_to_themselves(tmp_path: pathlib.Path) -> None:
    """Attention takes anything from nothing to that of the whole sequence: the middle, and a wider interval."""
    layout = PLAIN.replace("seq: 4096", "seq: 16384")
    joined = layout.replace("seq:", "packed: true, seq_max:")
    found = validated(tmp_path, {"layout": layout}, {"id": "packed", "layout": joined})
    rate = "tokens_per_second_per_gpu"
    whole, packed = found["a", rate], found["packed", rate]
    assert 1.1 < packed["predicted"] / whole["predicted"] < 1.5
    assert packed["high"] / packed["low"] > 1.2 * whole["high"] / whole["low"]
    assert packed["low"] == pytest.approx(whole["low"], rel=0.001)


def test_the_longest_of_joined_micro_batches_is_nearer_to_the_mean(tmp_path: pathlib.Path) -> None:
    """Four rows of 300 tokens in the mean, one of them 7.195 times as long: (7.195 + 3) / 4 times 300."""
    layout = "packed: true, padding_free: true, precision: bf16-pure, trainer: none, stack: none"
    measured = "peak_bytes: 3e+10, what: allocated"
    found = validated(
        tmp_path,
        {"layout": layout, "measured": f"{measured}, mean_tokens_per_sample: 300"},
        {"id": "all", "layout": f"{layout}, seq: 765", "measured": measured},
    )
    assert found["a", "memory_allocated"]["predicted"] == found["all", "memory_allocated"]["predicted"]


def test_the_longest_of_a_run_follows_from_its_samples_and_its_padding() -> None:
    """32,000 samples on two GPUs: the largest of 16,000 standard normal numbers is 3.950. Padded rows of 524 tokens are
    the mean of the longest of 8, 1 + 0.6 · 1.434 means: 524 / 1.8605 · exp(0.5545 · 3.950 − 0.1537) = 2,159."""
    layout = {"trainer": "hf-trainer", "stack": "fsdp", "micro_batch": 8, "grad_accum": 2, "zero": 3, "packed": False}
    measured = {"mean_tokens_per_sample": 524, "steps": 1000}
    row = {"layout": layout, "hardware": {"count": 2}, "measured": measured}
    _, lengths = layout_of(RowFields(Document("rows.yaml", None), 0, row), 1)
    assert lengths.longest[0] == pytest.approx(2159, rel=0.001)
    row["measured"] = {"mean_tokens_per_sample": 524, "samples_per_second": 8, "run_seconds": 4000}
    _, same = layout_of(RowFields(Document("rows.yaml", None), 0, row), 1)
    assert same.longest == lengths.longest


def test_padding_that_a_row_denies_is_none(tmp_path: pathlib.Path) -> None:
    """`padded: false` says what `padding_free: true` does; a text says how the samples are padded."""
    base, measured = "precision: bf16-pure, trainer: none, stack: none", "peak_bytes: 3e+10, what: allocated"
    mean = f"{measured}, mean_tokens_per_sample: 500"
    stated = ("padded: false", "padding_free: true", "padded: to the longest")
    rows = [{"id": one, "layout": f"{base}, {one}", "measured": mean} for one in stated]
    found = validated(tmp_path, *({**row, "id": f"row-{i}"} for i, row in enumerate(rows)))
    denied, free, padded = (found[f"row-{i}", "memory_allocated"]["predicted"] for i in range(3))
    assert denied == free != padded

"""`napkin memory` as a person, a script and a spreadsheet read it: bars that add up, the same figures in every form,
suggestions with what they add, and the largest that fits with its interval."""

from __future__ import annotations

import csv
import io
import json
import math
import pathlib
import re
from typing import Any

import pytest

from napkin.commands.memory import remedies
from napkin.errors import UNDECIDED
from napkin.footprint.rank import BUCKETS
from napkin.planning.remedies import RemedySearch
from napkin.planning.verdicts import FITS, NOT

from .conftest import run_line


def ask_json(line: str) -> dict[str, Any]:
    return run_line(f"{line} --json").data


BASE = "memory llama3-8b --hardware h100-sxm-80gb"
LINES = ["", "--gpus 8 --zero 3 --seq 8192", "--gpus 32 --tp 4 --pp 4 --zero 1", "--gpus 8 --zero 3 --recompute full"]


@pytest.mark.parametrize("line", LINES)
def test_tensors_at_the_peak_and_overhead_add_up_to_the_used_bytes(line: str) -> None:
    answer = ask_json(f"{BASE} {line}")
    values, moment = answer["values"], answer["worst"]["moment"]
    at_the_peak = sum(values.get(f"memory/at/{moment}/{bucket}", 0) for bucket in BUCKETS)  # models: with a task
    assert at_the_peak == values["memory/live"]
    assert at_the_peak + values["memory/overhead"] == pytest.approx(values["memory/used"])


@pytest.mark.parametrize("line", LINES)
def test_the_rows_of_the_screen_add_up_to_what_is_used_and_to_capacity(line: str) -> None:
    shown = run_line(f"{BASE} {line}").out.splitlines()[2:]
    rows = {row[:15].strip(): row for row in shown if re.search(r"^  [a-z ]+ [\d.,]+ GiB", row)}
    gib = {name: float(re.findall(r"([\d.,]+) GiB", row)[0].replace(",", "")) for name, row in rows.items()}
    values = ask_json(f"{BASE} {line}")["values"]
    held = sum(size for name, size in gib.items() if name not in ("free", "missing"))
    assert held == pytest.approx(values["memory/used"] / 2**30, abs=0.06 * len(gib))
    room = held + gib["free"] if "free" in gib else held - gib["missing"]
    assert room == pytest.approx(values["memory/capacity"] / 2**30, abs=0.06 * (len(gib) + 1))


def test_csv_and_markdown_have_every_figure_of_the_json() -> None:
    values = ask_json(BASE)["values"]
    rows = list(csv.DictReader(io.StringIO(run_line(f"{BASE} --csv").out)))
    assert {row["path"]: float(row["value"]) for row in rows} == pytest.approx(values)
    table = run_line(f"{BASE} --markdown").out
    assert "| memory/used |" in table
    assert "| memory/at/loss/temporaries |" in table


def test_the_stages_of_a_pipeline_are_rows_too() -> None:
    stages = ask_json(f"{BASE} --gpus 32 --tp 4 --pp 4 --zero 1")["stages"]
    assert [row["stage"] for row in stages] == [0, 1, 2, 3]
    assert [row["in_flight"] for row in stages] == [4, 3, 2, 1]
    for row in stages:
        assert sum(row[bucket] for bucket in BUCKETS) == row["live"]


@pytest.mark.parametrize(
    "line",
    [
        "llama3-8b --gpus 8 --seq 8192 --micro-batch 2 --global-batch 64",
        "llama3-8b --gpus 8 --seq 8192 --micro-batch 2",
        "mixtral-8x7b --gpus 16 --ep 8 --etp 2 --tp 2 --zero 1",
        "llama3-70b --gpus 64 --pp 4 --zero 1 --global-batch 256",
        "llama3-70b --dp 4 --tp 4",
        "llama3-8b --micro-batch 5",
        "llama3.2-3b --optimizer-form foreach",
        "llama3-8b",  # optimizer states on the host, timed
        "llama3-8b --micro-batch 16 --offload optimizer",
        "llama3-8b --task sft --trainer unsloth --seq 32768",  # the trainer's own offload is part of its step
    ],
)
def test_every_suggestion_fits_and_takes_the_time_that_step_says(line: str) -> None:
    base = f"memory --hardware h100-sxm-80gb {line}"
    answer = ask_json(base)
    assert answer["verdict"] != FITS
    found = answer["suggestions"]
    assert found
    before = ask_json(f"step --hardware h100-sxm-80gb {line}")
    for row in found:
        again = ask_json(f"{base} {row['change']}")
        assert again["verdict"] == FITS, row["change"]
        assert again["values"]["memory/used"] == pytest.approx(row["used"]), row["change"]
        assert run_line(f"{row['command'].removeprefix('napkin ')} --json").data["values"] == again["values"]
        if "extra_time" in row:
            after = ask_json(f"step --hardware h100-sxm-80gb {line} {row['change']}")
            seconds = [speed(one) for one in (before, after)]
            assert row["extra_time"] == pytest.approx(seconds[0] / seconds[1] - 1)
            reach = after["values"]["step/high"] / after["values"]["step/time"]
            assert (1 + row["high"]) / (1 + row["extra_time"]) == pytest.approx(reach)
            assert (1 + row["low"]) * reach == pytest.approx(1 + row["extra_time"])
        else:
            refused = run_line(f"step --hardware h100-sxm-80gb {line} {row['change']}")
            assert refused.status == 3
            assert f"error: {row['untimed']}" in refused.err
    timed = [row["extra_time"] for row in found if "extra_time" in row and row != answer["more_accelerators"]]
    assert timed == sorted(timed) or "--task" in line


def test_a_shorter_sequence_is_suggested_after_what_keeps_its_length() -> None:
    """At 131,072 tokens attention is most of the time, and a shorter sequence the fastest change for each token."""
    answer = ask_json("memory llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 128Ki")
    kept, shorter = (
        [row for row in answer["suggestions"][:-1] if ("--seq" in row["change"]) is named] for named in (False, True)
    )
    assert answer["suggestions"][:-1] == [*kept, *shorter]
    assert min(row["extra_time"] for row in shorter) < min(row["extra_time"] for row in kept)


def test_no_suggestion_needs_every_degree_at_once() -> None:
    """All weights of an 8B model on eight cards of 16 GB: what each rank holds is divided by some degrees, on the same
    GPUs or as few more as serve, and not by tp 8, cp 8 and pp 8 together, which take 512."""
    answer = ask_json("memory llama3.1-8b --hardware v100-sxm2-16gb --gpus 8 --seq 4096")
    changes = [row["change"] for row in answer["suggestions"]]
    assert any("--gpus" not in change for change in changes)
    assert not any(all(f"--{name}" in change for name in ("tp", "cp", "pp")) for change in changes)
    for row in answer["suggestions"]:
        assert ask_json(row["command"].removeprefix("napkin "))["verdict"] == FITS


def test_frozen_weights_in_fp32_are_advised_to_be_in_sixteen_bits() -> None:
    """8.03e9 weights in fp32 take 29.9 GiB of 39.5, in 16 bits half; not where they are in 16 bits already."""
    line = "memory llama3-8b --task sft --lora-rank 16 --seq 2048 --recompute full --hardware a100-40g --micro-batch"
    wide, narrow = (
        [row["change"] for row in ask_json(f"{line} {size} --precision {policy}")["suggestions"]]
        for size, policy in ((1, "amp-bf16"), (8, "param=fp32,compute=bf16,frozen=bf16"))
    )
    assert "--precision param=fp32,compute=bf16,frozen=bf16" in wide
    assert narrow
    assert not any("--precision" in change for change in narrow)


@pytest.mark.parametrize(
    ("line", "adapts"),
    [
        ("llama3-8b --hardware rtx-4090", "--quantized nf4"),  # in bf16 LoRA does not fit 24 GB for sure
        ("llama3-70b --hardware h100 --gpus 8", "--lora-rank 16"),
        ("mixtral-8x7b --hardware a100", "--quantize-experts"),
        ("llama3-8b --hardware h100 --gpus 8", ""),  # sharding is enough
        ("llama3-8b --hardware rtx-4090 --lora-rank 16", ""),  # it is LoRA already
    ],
)
def test_lora_is_a_remedy_where_no_setting_of_the_trainer_is_and_says_so(line: str, adapts: str) -> None:
    answer = ask_json(f"memory {line}")
    assert answer["verdict"] != FITS
    rows = [row for row in answer["suggestions"] if "trains" in row]
    assert bool(rows) == bool(adapts)
    for row in rows:
        assert adapts in row["change"]
        assert row["trains"].startswith("LoRA")
        assert ask_json(row["command"].removeprefix("napkin "))["verdict"] == FITS
    if rows:
        screen = run_line(f"memory {line}").out
        assert "--lora-rank" not in screen.partition("next: ")[2], "what is trained does not change by itself"


def speed(answer: dict[str, Any]) -> float:
    """Tokens per second of the whole job."""
    return float(answer["values"]["tokens_per_second_per_gpu"] * answer["inputs"]["gpus"]["value"])


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("llama3-70b --gpus 8 --seq 8192", True),
        ("llama3-8b --gpus 1", True),
        ("llama3-70b --lora-rank 16", True),  # in 4 bits and recomputed
        ("llama3-405b --tp 8 --dp 1 --seq 8192 --memory-size 2GB", False),
    ],
)
def test_combinations_are_tried_and_the_answer_says_when_none_fits(line: str, fits: bool) -> None:
    answer = ask_json(f"memory --hardware h100-sxm-80gb {line}")
    said = any("nothing that napkin tries makes it fit" in note for note in answer["notes"])
    assert (bool(answer["suggestions"]), said) == (fits, not fits)


def test_the_search_evaluates_about_twenty_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[RemedySearch] = []

    class Watched(RemedySearch):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            searches.append(self)

    monkeypatch.setattr(remedies, "RemedySearch", Watched)
    lines = ("llama3-70b --gpus 8", "llama3-8b --gpus 8 --zero 3 --micro-batch 8 --seq 8192", "mixtral-8x7b --gpus 8")
    for line in lines:
        assert ask_json(f"memory --hardware h100-sxm-80gb {line}")["suggestions"]
    assert [search.evaluations <= 30 for search in searches] == [True] * len(lines)


@pytest.mark.parametrize("what", ["micro-batch", "seq", "layers"])
def test_the_largest_has_ends_that_fit_for_certain_and_may_fit(what: str) -> None:
    base = f"{BASE} --gpus 8 --zero 3 --recompute full"
    answer = ask_json(f"{base} --max {what}")
    path = "max/" + what.replace("-", "_")
    low, best, high = (answer["values"][p] for p in (f"{path}/low", path, f"{path}/high"))
    assert 0 < low <= best <= high
    if what == "layers":
        return
    verdicts = [ask_json(f"{base} --{what} {n}")["verdict"] for n in (low, low + 1, high, high + 1)]
    assert verdicts == [FITS, UNDECIDED, UNDECIDED, NOT]
    certain = ask_json(f"{base} --max {what} --must-fit")
    assert certain["values"][path] == low
    assert certain["verdict"] == FITS


def test_where_nothing_fits_the_answer_is_none_and_says_what_would() -> None:
    outcome = run_line("memory llama3-70b --hardware h100-sxm-80gb --gpus 8 --max micro-batch --json")
    assert outcome.status == 1
    answer = ask_json("memory llama3-70b --hardware h100-sxm-80gb --gpus 8 --max micro-batch")
    assert answer["values"]["max/micro_batch"] == 0
    assert answer["verdict"] == NOT
    assert answer["suggestions"]


def test_learned_positions_end_a_sequence() -> None:
    answer = ask_json("memory gpt2 --hardware a100-40gb --max seq")
    assert answer["values"]["max/seq"] == 1024
    assert answer["binding"]["bucket"] == "positions"


def test_serving_divides_heads_and_never_a_latent() -> None:
    """llama3-70b has 8 key/value heads of 128 in 80 layers; DeepSeek-V3 keeps a latent of 512 + 64 on every rank."""
    one, sixteen = (
        ask_json(f"memory llama3-70b --inference --seq 100 --gpus {n}")["values"]["memory/kv_cache"] for n in (1, 16)
    )
    assert one == 80 * 2 * 8 * 128 * 2 * 100
    assert sixteen == one / 8
    latent = [ask_json(f"memory deepseek-v3 --inference --seq 100 --gpus {n}")["values"] for n in (1, 16)]
    assert [v["memory/kv_cache"] for v in latent] == [61 * 576 * 2 * 100] * 2
    fp8 = ask_json("memory llama3-70b --inference --seq 100 --cache-dtype fp8")["values"]["memory/kv_cache"]
    assert fp8 == one / 2


def test_blocked_formats_store_the_matrices_of_layers_alone() -> None:
    """nf4: 4 bits and a 4-byte scale for 64 weights; int4: 4 bits, and 2 + 1/2 bytes for 128."""
    matrices = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    others = 2 * 128256 * 4096 + 65 * 4096
    for name, each in (("nf4", 0.5 + 4 / 64), ("int4", 0.5 + 2.5 / 128)):
        values = ask_json(f"memory llama3-8b --inference --dtype {name}")["values"]
        assert values["memory/parameters"] == matrices * each + 2 * others


@pytest.mark.parametrize(
    ("line", "status"),
    [("--gpus 8", 0), ("--gpus 1", 1), ("--gpus 2 --seq 83600", 4), ("--gpus 2 --seq 80000", 0)],
)
def test_serving_has_verdicts_too(line: str, status: int) -> None:
    assert run_line(f"memory llama3-70b --hardware h100-sxm-80gb --inference --must-fit {line}").status == status


@pytest.mark.parametrize("option", ["--pp 2", "--zero 3", "--max seq", "--optimizer sgd", "--micro-batch 2", "--ep 2"])
def test_what_belongs_to_training_is_refused_while_serving(option: str) -> None:
    outcome = run_line(f"memory mixtral-8x7b --inference {option}")
    assert (outcome.status, outcome.out) == (2, "")
    assert "belongs to training" in outcome.errors[0]


def test_only_what_was_counted_is_called_exact() -> None:
    for line, exact in (("", True), ("--precision fp8-mixed", False), ("--lora-rank 8", False)):
        notes = " ".join(ask_json(f"memory llama3-8b --seq 128 {line}")["notes"])
        assert ("are exact for transformers" in notes) is exact


@pytest.mark.parametrize(
    ("line", "exact"),
    [
        ("switch-base-8 --seq 64", True),
        ("switch-base-8 --seq 65", False),  # an expert drops the tokens beyond its 64
        ("longformer-base --seq 1024", True),
        ("longformer-base --seq 1000", False),  # padded to whole windows of 512
        ("nllb-moe-54b --seq 64", False),  # its class runs other experts than were chosen
    ],
)
def test_what_the_step_alone_knows_is_not_called_exact(line: str, exact: bool) -> None:
    notes = " ".join(ask_json(f"memory {line} --attention eager")["notes"])
    assert ("are exact for transformers" in notes) is exact


def test_a_framework_s_own_formats_are_those_it_keeps() -> None:
    """Megatron-core adds gradients up in fp32: 2 + 4 + 12 bytes per parameter; FSDP shards 4 + 4 + 8 in fp32."""
    for framework, widths in (("megatron-core", (2, 4, 12)), ("torchtitan", (4, 4, 8)), ("deepspeed", (2, 2, 12))):
        values = ask_json(f"memory llama3-8b --seq 128 --framework {framework}")["values"]
        found = [values[f"memory/{name}"] / 8030261248 for name in ("parameters", "gradients", "optimizer")]
        assert found == pytest.approx(widths, rel=1e-6)
    written_out = ask_json("memory llama3-8b --seq 128 --framework megatron-core --precision param=bf16,grad=bf16")
    assert written_out["values"]["memory/gradients"] == 2 * 8030261248


def test_deepspeed_s_third_stage_never_frees_its_part_of_the_gradients() -> None:
    """stage3.py, grad_partitions_flat_buffer: made with the optimizer, 2 bytes for each of the own parameters. Of its
    second stage, gradients are new in each step's first backward pass."""
    line = "memory llama3-8b --seq 128 --gpus 8 --framework deepspeed"
    for stage, held in ((3, 2 * 8030261248 / 8), (2, 0)):
        values = ask_json(f"{line} --zero {stage}")["values"]
        assert values.get("memory/at/forward/gradients", 0) == pytest.approx(held, rel=1e-6)


def test_megatron_s_own_estimate_of_states() -> None:
    """Megatron-LM, tools/report_theoretical_memory.py: 18 bytes per parameter of the most loaded rank, 6 + 12/dp with
    the distributed optimizer; its gradients are in one buffer from the first forward pass on."""
    block = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    line = "memory llama3-8b --framework megatron-core --tp 8 --pp 4 --recompute selective"
    held = (8 * block + 128256 * 4096) / 8 + 8 * 2 * 4096
    for more, each in (("--dp 1", 18), ("--dp 4 --zero 1", 6 + 12 / 4)):
        values = ask_json(f"{line} {more}")["values"]
        states = sum(values[f"memory/{name}"] for name in ("parameters", "gradients", "optimizer"))
        assert states == pytest.approx(each * held, rel=1e-6)
    shapes = 4096 * (4096 + 2 * 1024) + 4096**2 + 3 * 4096 * 14336  # qkv, output, gate and up, down
    placeholders = 2 * shapes // 8  # what fused kernels return in place of gradients, once for each shape
    assert values["memory/at/forward/gradients"] == values["memory/gradients"] + placeholders
    for apart in ("--separate-gradients", "--no-gradient-accumulation-fusion --tensor-model-parallel-size 8"):
        values = ask_json(f"{line} --dp 4 --zero 1 {apart}")["values"]
        assert values["memory/at/forward/gradients"] == values["memory/gradients"]
    refused = run_line("memory llama3-8b --framework fsdp --gpus 8 --separate-gradients")
    assert (refused.status, "--separate-gradients has no effect here" in refused.err) == (2, True)


def test_lora_trains_two_low_rank_matrices_for_each_linear() -> None:
    """Rank 8 beside the seven products of 32 blocks: 20,971,520 parameters, as PEFT's all-linear prints for this model;
    a step counter for each of their 448 tensors; the master copy is theirs alone."""
    trained = 32 * 8 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert trained == 20_971_520
    values = ask_json("memory llama3-8b --seq 128 --lora-rank 8")["values"]
    assert values["memory/parameters"] == 2 * (8030261248 + trained)
    assert values["memory/gradients"] == 2 * trained
    assert values["memory/optimizer"] == 12 * trained + 4 * 448
    narrow = ask_json("memory llama3-8b --seq 128 --lora-rank 8 --quantized nf4 --lora-targets q_proj,v")["values"]
    assert narrow["memory/gradients"] == 2 * 32 * 8 * (8192 + 5120)
    matrices = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    others = 2 * (2 * 128256 * 4096 + 65 * 4096)
    assert narrow["memory/parameters"] == 0.5625 * matrices + others + narrow["memory/gradients"]


def test_offloaded_checkpoints_of_groups_never_become_negative() -> None:
    line = "memory llama3-8b --offload activations --micro-batch 8 --recompute"
    for kind in ("full", "every:2", "group:4", "group:sqrt", "none"):
        values = ask_json(f"{line} {kind}")["values"]
        assert min(values[f"memory/at/{moment}/activations"] for moment in ("forward", "loss", "backward")) >= 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--max seq --snapshot 5GB --hardware h100", "--max and --snapshot ask different things"),
        ("--max seq --tensors --hardware h100", "--max and --tensors ask different things"),
        ("--snapshot 5GB --must-fit --hardware h100", "--snapshot and --must-fit ask different things"),
        ("--memory-size 40GB", "--memory-size has no effect here"),
        ("--inference --must-fit", "--hardware is missing: which accelerator must it fit on?"),
        ("--inference --gpus 6 --tp 4", "--gpus 6 is not a multiple of --tp 4"),
        ("--inference --dtype nf5", "unknown dtype 'nf5'"),
    ],
)
def test_what_cannot_be_answered_is_one_line(line: str, says: str) -> None:
    outcome = run_line(f"memory llama3-8b {line}")
    assert (outcome.status, outcome.out) == (2, "")
    assert says in outcome.errors[0]
    assert len(outcome.hints) == 1


def test_a_size_in_place_of_a_snapshot_is_what_was_allocated() -> None:
    answer = ask_json("memory llama3-8b --seq 128 --snapshot 128.5GiB")
    assert answer["seen"][0]["seen"] == int(128.5 * 2**30)
    assert answer["values"]["seen/allocated"] == int(128.5 * 2**30)


@pytest.mark.parametrize("frozen", [0, 2, 6])
def test_frozen_layers_keep_nothing_and_have_no_states(tmp_path: pathlib.Path, frozen: int) -> None:
    """A small Llama in bf16, 2 × 128 tokens, its table and first layers frozen. Hooks on the code itself counted
    18,471,060, 12,748,900 and 1,288,196 bytes."""
    config = {
        "model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 688,
        "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    line = f"memory {path} --seq 128 --micro-batch 2 --precision bf16-pure"
    values = ask_json(f"{line} --freeze-layers {frozen}")["values"]
    seen = {0: 18_471_060, 2: 12_748_900, 6: 1_288_196}[frozen]
    assert values["memory/activations/saved"] == seen
    layer = 2 * 256**2 + 2 * 256 * 128 + 3 * 256 * 688 + 2 * 256
    trained = (6 - frozen) * layer + 1000 * 256 + 256
    assert values["memory/gradients"] == 2 * trained
    assert values["memory/optimizer/exp_avg"] == 2 * trained
    assert values["memory/parameters"] == ask_json(line)["values"]["memory/parameters"]
    assert values["memory/at/step/gradients"] == values["memory/gradients"]


def test_what_cannot_be_frozen_is_refused() -> None:
    for model, options, status in (
        ("flan-t5-xl", "--freeze-layers 2", 3),
        ("llama3-8b", "--freeze-layers 33", 2),
        ("llama3-8b", "--freeze-layers 2 --lora-rank 8", 2),
    ):
        assert run_line(f"memory {model} {options}").status == status


def test_stages_of_a_partly_frozen_pipeline_hold_all_of_it() -> None:
    stages = ask_json("memory llama3-8b --pp 4 --seq 512 --freeze-layers 12")["stages"]
    whole = ask_json("memory llama3-8b --pp 4 --seq 512")["stages"]
    assert [row["parameters"] for row in stages] == [row["parameters"] for row in whole]
    ratios = [a["optimizer"] / b["optimizer"] for a, b in zip(stages, whole, strict=True)]
    assert ratios == pytest.approx([0, 0.5, 1, 1], abs=1e-4)


def test_tf32_reads_fp32_tensors_as_they_are() -> None:
    plain, tensor_cores = (
        ask_json(f"memory llama3-8b --seq 128 --precision {policy}")["values"]
        for policy in ("fp32", "param=fp32,compute=tf32")
    )
    assert plain == tensor_cores
    assert run_line("memory llama3-8b --precision param=fp64").status == 3


def test_copies_of_weights_in_eight_bits_are_allowed_for() -> None:
    """Transformer Engine keeps each weight in fp8 twice, as it is and transposed; torchao keeps none."""
    wide, narrow = (
        ask_json(f"memory llama3-8b --seq 128 --gpus 8 --framework deepspeed --precision {policy}")
        for policy in ("bf16-mixed", "fp8-mixed")
    )
    gained = narrow["values"]["memory/high"] - narrow["values"]["memory/used"]
    assert gained > wide["values"]["memory/high"] - wide["values"]["memory/used"]
    assert gained > 2 * 8030261248
    assert any("copies of the weights" in note for note in narrow["notes"])


def test_torchaos_linear_layers_keep_16_bit_inputs_and_no_weights() -> None:
    """torchao float8/float8_linear.py, matmul_with_hp_or_float8_args, saves what it was given. A named policy and its
    parts are the same policy, and its matmuls run in 8 bits."""
    eight = "param=fp32,grad=fp32,compute=fp8,state=fp32"
    line = "llama3-8b --seq 512 --gpus 8 --hardware h100 --framework torchtitan --recompute full --precision"
    wide, named, parts = (ask_json(f"memory {line} {one}") for one in ("amp-bf16", "fp8-mixed", eight))
    assert named["values"] == parts["values"]
    for path in ("memory/activations/saved", "memory/weight_casts", "memory/at/forward/weight_casts"):
        assert named["values"].get(path, 0) == wide["values"].get(path, 0)
    assert not any("copies of the weights" in note for note in named["notes"])
    steps = [ask_json(f"step {line} {one}")["values"]["step/compute"] for one in ("fp8-mixed", eight, "amp-bf16")]
    assert steps[0] == steps[1] < steps[2]


def test_live_bytes_are_as_uncertain_as_traced_steps_of_the_code_were() -> None:
    """Equal in all: no width. Off in some: the furthest. Never traced: what nine of ten codes stay below."""
    from napkin._tables.traced_steps import TRACED
    from napkin.inputs.class_facts import traced_error

    furthest = sorted(abs(error) for *_, error in TRACED.values())
    assert traced_error("llama") == 0.0 == TRACED["llama"][3]
    assert traced_error("t5") == abs(TRACED["t5"][3]) > 0
    assert traced_error("mamba") == furthest[len(furthest) * 9 // 10] > 0
    sure, unsure = (run_line(f"memory {name} --seq 128 --json").values for name in ("gpt2", "t5-base"))
    assert unsure["memory/allocated/low"] < (1 - abs(TRACED["t5"][3]) / 2) * unsure["memory/allocated"]
    assert sure["memory/allocated/low"] > 0.98 * sure["memory/allocated"]


@pytest.mark.parametrize(
    ("line", "gpus", "fewer"),
    [
        ("llama3-8b", 4, 2),
        ("llama3-8b --recompute none", 8, 4),
        ("llama3-8b --recompute full", 4, 2),
        ("llama3-70b", 32, 24),
        ("llama3-70b --tp 8 --zero 1 --recompute full", 48, 40),
        ("llama3-8b --lora-rank 16 --recompute full", 1, None),
    ],
)
def test_the_fewest_gpus_surely_fit_and_fewer_do_not(line: str, gpus: int, fewer: int | None) -> None:
    """States are sharded and, where that takes fewer GPUs, all is recomputed, unless the options say otherwise."""
    base = f"memory --hardware h100-sxm-80gb {line}"
    answer = ask_json(f"{base} --min gpus")
    assert answer["values"]["gpus"] == gpus
    assert answer["inputs"]["gpus"]["origin"] == "solved"
    assert answer["verdict"] == FITS
    more = "" if "--zero" in line or gpus == 1 else " --zero 3"  # one GPU has nothing to shard
    more += "" if "--recompute" in line else " --recompute full"
    same = ask_json(f"{base}{more} --gpus {gpus}")
    assert {path: same["values"][path] for path in same["values"]} == {
        path: value for path, value in answer["values"].items() if path != "gpus"
    }
    if fewer is not None:
        assert ask_json(f"{base}{more} --gpus {fewer}")["verdict"] != FITS
    said = run_line(f"{base} --min gpus").out
    assert ("--pp, which plan searches, may need fewer" in said.replace("\n  ", " ")) == (gpus > 1)


@pytest.mark.parametrize("model", ["llama3-8b", "qwen2.5-14b", "mixtral-8x7b"])
def test_the_fewest_gpus_are_no_more_than_with_an_option_stated(model: str) -> None:
    """What is free is searched: stating a recomputation cannot need fewer GPUs, and one that needs as few is taken
    only if nothing milder fits."""
    line = f"memory {model} --hardware h100 --min gpus --json"
    free = run_line(line)
    stated = {again: run_line(f"{line} --recompute {again}").values.get("gpus", math.inf) for again in ("none", "full")}
    assert free.values["gpus"] == min(stated.values())
    chosen = free.data["inputs"]["recompute"]["value"]
    assert chosen == ("none" if stated["none"] <= stated["full"] else "full")


def test_min_gpus_is_refused_with_given_gpus() -> None:
    assert run_line("memory llama3-8b --hardware h100 --gpus 8 --min gpus").status == 2
    assert run_line("memory llama3-8b --min gpus").status == 2
    nothing = run_line("memory llama3-405b --hardware rtx-4090 --seq 131072 --min gpus")
    assert nothing.status == 1
    assert "on any number of GPUs" in nothing.err


@pytest.mark.parametrize(
    ("line", "permuted"),
    [
        (
            "memory gemma2-9b --gpus 8 --hardware h100 --zero 1 --seq 8192",
            "memory --seq 8192 gemma2-9b --zero 1 --hardware h100 --gpus 8",
        ),
        (
            "plan gpt2 --gpus 4 --hardware h100 --seq 1024 --global-batch 16",
            "plan --global-batch 16 gpt2 --hardware h100 --seq 1024 --gpus 4",
        ),
    ],
)
def test_the_order_of_options_changes_no_row(line: str, permuted: str) -> None:
    first, second = ask_json(line), ask_json(permuted)
    for key in ("values", "rows", "suggestions", "verdict"):
        assert first.get(key) == second.get(key)


def test_a_remedy_of_a_trillionth_of_the_time_is_shown() -> None:
    """1 + extra_time rounds to 0 there, which is no divisor."""
    outcome = run_line(f"memory llama3-8b --hardware a100 --seq 128 --lora-rank {10**40}")
    assert outcome.status == 0
    assert "-100%" in outcome.out


@pytest.mark.parametrize("sharding", ["--zero 1", "--zero 2"])
def test_a_suggestion_on_one_data_parallel_rank_leaves_out_the_sharding(sharding: str) -> None:
    """Which is refused there; with the command line's changes appended each suggestion fits."""
    line = f"memory llama3-8b --gpus 8 --hardware a100-40gb {sharding} --seq 4096 --recompute selective"
    found = run_line(f"{line} --json").data["suggestions"]
    alone = [one for one in found if "--tp 8" in one["change"]]
    assert alone
    for one in found:
        for again in (f"{line} {one['change']}", one["command"].removeprefix("napkin ")):
            outcome = run_line(f"{again} --json")
            assert (outcome.status, outcome.data["verdict"]) == (0, "fits"), again


@pytest.mark.parametrize(
    ("hardware", "says"),
    [
        ("h100", "CUDA context, allocator's cache; NCCL"),
        ("mi300x", "HIP context, allocator's cache; RCCL"),
        ("tpu-v5p", "device context, cache as under CUDA"),
    ],
)
def test_the_overhead_is_named_after_the_maker_s_software(hardware: str, says: str) -> None:
    shown = run_line(f"memory llama3.2-1b --gpus 4 --hardware {hardware}").out
    assert says in shown
    assert ("CUDA context" in shown) == ("CUDA context" in says)

"""Rows of measured fine-tuning: each quantity is what `memory` and `step` answer for the same run, or a reason."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from napkin.evidence.finetuning.words import within
from napkin.inputs.presets import preset
from tests.conftest import run_line
from tests.finetune_row import A100, DROPPED, LORA, PLAIN, ROW, validated


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"method": "kind: full", "layout": f"{PLAIN}, {DROPPED}"}, "--precision bf16-pure"),
        (
            {"layout": f"{PLAIN}, {DROPPED}, autocast: false"},
            "--lora-rank 16 --lora-targets q,v --precision frozen=bf16,param=fp32",
        ),
        (
            {"layout": PLAIN.replace("trainer: none", "trainer: torchtune")},
            "--lora-rank 16 --lora-targets q,v --precision bf16-pure --framework torchtune",
        ),
        (  # peft's preparation for training in k bits casts what is not quantized to fp32
            {
                "method": f"{LORA}, quantized: nf4",
                "layout": "seq: 4096, precision: bf16, trainer: hf-trainer, stack: none",
            },
            "--lora-rank 16 --lora-targets q,v --quantized nf4 --precision amp-bf16",
        ),
        (  # accelerate casts the parameters that FSDP trains to fp32 under autocast
            {
                "method": "kind: full",
                "count": 2,
                "layout": "seq: 4096, precision: amp-bf16, trainer: hf-trainer, stack: fsdp, zero: 3, "
                "versions: transformers 5.0",
            },
            "--gpus 2 --zero 3 --framework fsdp --precision amp-bf16",
        ),
        ({"method": "kind: full", "layout": f"{PLAIN}, loss: fused"}, "--precision bf16-pure --loss fused"),
    ],
)
def test_a_row_is_what_the_commands_answer(tmp_path: pathlib.Path, row: dict[str, Any], options: str) -> None:
    found = validated(tmp_path, row)
    common = f"llama3-8b --seq 4096 --micro-batch 4 --recompute full --hardware a100-sxm-80gb {options} --json"
    memory = run_line(f"memory {common}").values
    entry = found["a", "memory_allocated"]
    assert entry["predicted"] == pytest.approx(min(memory["memory/allocated"], 79.25 * 2**30), rel=0.01)
    speed = run_line(f"step {common} --stack fsdp-eager").values["tokens_per_second_per_gpu"]
    assert found["a", "tokens_per_second_per_gpu"]["predicted"] == pytest.approx(speed, rel=1e-6)


def test_one_entry_for_each_quantity_that_was_measured(tmp_path: pathlib.Path) -> None:
    measured = "peak_bytes: 3e+10, what: reserved, driver_bytes: 4e+10, step_seconds: 5, samples_per_second: 1"
    found = validated(tmp_path, {"measured": measured})
    assert {quantity for _, quantity in found} == {"memory_reserved", "memory_used", "samples_per_second"}
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in found.values())


def test_runs_that_were_out_of_memory_get_a_verdict(tmp_path: pathlib.Path) -> None:
    found = validated(
        tmp_path,
        {"id": "all", "method": "kind: full", "measured": "oom: true"},
        {"id": "large", "model": "llama3-70b", "measured": "oom: true"},
    )
    assert found["large", "memory_used"]["verdict"] == "does not fit"
    assert found["all", "memory_used"]["verdict"] in ("does not fit", "too close to call", "fits")


def test_runs_that_ran_get_a_verdict(tmp_path: pathlib.Path) -> None:
    """`oom: false`, `ran: true`, or the card that it ran on. LoRA on 16 GB of weights fits 80 GB and not 12 GiB."""
    found = validated(
        tmp_path,
        {"id": "ran", "layout": PLAIN.replace("4096", "512"), "measured": "oom: false"},
        {"id": "said", "layout": PLAIN.replace("4096", "512"), "measured": "ran: true"},
        {"id": "card", "measured": "card_gib_at_most: 12, step_seconds: 5"},
        {"id": "weighed", "measured": "card_gib_at_most: 80, oom: false, peak_bytes: 3e+10, what: used"},
        {"id": "beyond", "measured": "card_gib_at_most: 12, peak_bytes: 1e+10, what: used"},
    )
    assert found["ran", "memory_used"]["verdict"] == found["said", "memory_used"]["verdict"] == "fits"
    assert "measured" not in found["ran", "memory_used"]
    assert found["card", "memory_used"]["verdict"] == "does not fit"
    assert found["card", "step_seconds"]["predicted"]
    assert "verdict" not in found["weighed", "memory_used"]
    assert found["weighed", "memory_used"]["measured"] == 3e10
    assert "takes more than its accelerator holds, and ran" in found["beyond", "memory_used"]["why"]


@pytest.mark.parametrize("chip", ["3090", "4x RTX 3090", "RTX 3090 24GB", "RTX 3090 (one desk)"])
def test_a_card_of_a_name_of_digits_or_with_the_row_s_own_count_is_known(tmp_path: pathlib.Path, chip: str) -> None:
    row = {"count": 4, "method": "kind: full", "measured": "oom: true"}
    assert validated(tmp_path, row, chip=f"'{chip}'")["a", "memory_used"]["verdict"] == "does not fit"


@pytest.mark.parametrize("chip", ["RTX 3090 48GB", "RTX 3090 (48GB)", "3091"])
def test_a_card_that_is_not_known_is_the_reason(tmp_path: pathlib.Path, chip: str) -> None:
    row = {"count": 4, "method": "kind: full", "measured": "oom: true"}
    assert "unknown accelerator" in validated(tmp_path, row, chip=f"'{chip}'")["a", "memory_used"]["why"]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"task": "gkd"}, "no preset has the shape of its teacher: not stated"),
        ({"task": "prm"}, "the task prm is not predicted"),
        ({"method": "kind: lisa, trainable_params: 1000"}, "trains by lisa"),
        ({"method": f"{LORA}, quantized: aqlm-2"}, "stores frozen weights as aqlm-2"),
        ({"method": f"{LORA}, modules_to_save: gate_norm"}, "in full: not modeled"),
        ({"model": "no-such-model"}, "no preset has the shape of no-such-model"),
        ({"model": "Qwen2-70B"}, "no preset has the shape of Qwen2-70B (near: qwen2-7b, qwen2-72b, "),
        ({"layout": f"{PLAIN}, ulysses: 4"}, "do not divide 1 GPUs"),
        ({"method": f"{LORA}, experts_targeted: targeted"}, "which tensors of the experts"),
        ({"method": "kind: lora, lora_rank: 16, lora_targets: the usual ones"}, "has no linear layer 'the'"),
        ({"layout": f"{PLAIN}, offload: everything"}, "the offload everything is not modeled"),
        ({"layout": f"{PLAIN}, tp: 3"}, "do not divide"),
        ({"layout": f"{PLAIN.replace('stack: none', 'stack: colossal')}"}, "the framework colossal is not modeled"),
    ],
)
def test_what_is_not_understood_makes_the_row_say_why(tmp_path: pathlib.Path, row: dict[str, Any], why: str) -> None:
    entries = validated(tmp_path, row).values()
    assert entries
    for entry in entries:
        assert "predicted" not in entry
        assert why in entry["why"]


def test_ranks_that_exchange_heads_are_not_those_that_pass_keys_on(tmp_path: pathlib.Path) -> None:
    """The same tokens on each, but attention waits for all-to-alls."""
    rows = [{"id": name, "count": 4, "layout": f"{PLAIN}, {name}: 4"} for name in ("ulysses", "cp")]
    found = validated(tmp_path, *rows)
    speeds = [found[name, "tokens_per_second_per_gpu"]["predicted"] for name in ("ulysses", "cp")]
    assert speeds[0] > speeds[1]  # here the ring, of short parts, is slower


@pytest.mark.parametrize(
    ("row", "same"),
    [
        ({"method": f"{LORA}, quantized: hqq-4"}, {"method": f"{LORA}, quantized: nf4"}),  # 4.5 bits a weight
        ({"method": f"{LORA}, quantized: eetq"}, {"method": f"{LORA}, quantized: int8"}),
        (
            {"method": "kind: galore", "layout": f"{PLAIN}, optimizer: galore"},
            {"method": "kind: full", "layout": f"{PLAIN}, optimizer: galore"},
        ),
        ({"method": "kind: lora, lora_rank: 16, lora_targets: q_proj v_proj"}, {"method": LORA}),
        ({"layout": f"{PLAIN}, loss: chunked"}, {"layout": f"{PLAIN}, loss: fused"}),
        ({"layout": f"{PLAIN}, offload: activation"}, {"layout": f"{PLAIN}, offload: activations"}),
        ({"layout": f"{PLAIN}, attention: flash_attn"}, {"layout": PLAIN}),
        (
            {"count": 4, "layout": "seq: 4096, precision: bf16, framework: TRL SFTTrainer + DeepSpeed ZeRO-3, zero: 3"},
            {"count": 4, "layout": "seq: 4096, precision: bf16, trainer: trl, stack: deepspeed, zero: 3"},
        ),
        (
            {"layout": "seq: 4096, precision: bf16, framework: LLaMA-Factory on transformers"},
            {"layout": "seq: 4096, precision: bf16, trainer: llama-factory, stack: none"},
        ),
        ({"model": "'', name: decapoda-research/llama-7b-hf"}, {"model": "llama-7b"}),
    ],
)
def test_rows_that_say_the_same_in_other_words(
    tmp_path: pathlib.Path, row: dict[str, Any], same: dict[str, Any]
) -> None:
    found = validated(tmp_path, {"id": "one", **row}, {"id": "other", **same})
    for quantity in ("memory_allocated", "tokens_per_second_per_gpu"):
        assert found["one", quantity]["predicted"] == found["other", quantity]["predicted"]


def test_memory_of_reinforcement_learning_is_that_of_its_phases(tmp_path: pathlib.Path) -> None:
    """What a driver shows is the largest phase of `memory`; what torch allocates is the trainer's."""
    layout = "zero: 3, precision: bf16, trainer: verl, stack: fsdp, framework: FSDP2"
    rl = "group: 8, prompts: 128, prompt_length_mean: 200, response_length_mean: 1000, response_length_max: 3500"
    row = ROW.replace("  measured:", f"  rl: {{{{{rl}, rollout_tp: 1, gpu_memory_utilization: 0.5}}}}\n  measured:")
    usual = {"task": "grpo", "model": "llama3-8b", "chip": A100, "count": 8, "method": LORA, "layout": layout}
    file = tmp_path / "finetune.yaml"
    rows = [
        row.format(id=what, **usual, measured=f"peak_bytes: 5e+10, what: {what}, step_seconds: 60")
        for what in ("used", "allocated", "unstated")
    ]
    file.write_text("schema: finetune/1\nrows:\n" + "".join(rows))
    found = {(row["id"], row["quantity"]): row for row in run_line(f"validate {file} --json").data["rows"]}
    line = (
        "memory llama3-8b --task grpo --gpus 8 --hardware a100-sxm-80gb --trainer verl --framework fsdp --zero 3 "
        "--fsdp-version 2 "
        "--lora-rank 16 --lora-targets q,v --micro-batch 4 --recompute full --global-batch 128 --samples-per-prompt 8 "
        "--prompt-tokens 200 --response-tokens 1000 --max-prompt-tokens 200 --max-response-tokens 3500 "
        "--rollout colocated:0.5 --rollout-tp 1 --json"
    )
    used, allocated, unstated = (found[what, f"memory_{what}"] for what in ("used", "allocated", "unstated"))
    assert used["low"] < used["predicted"] < used["high"]
    assert allocated["predicted"] < used["predicted"] == unstated["predicted"]
    assert unstated["low"] == allocated["low"]
    assert found["used", "step_seconds"]["predicted"] > 0
    held = run_line(line).values
    assert used["predicted"] == pytest.approx(held["memory/total"], rel=0.02)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cognitivecomputations/dolphin-2.6-mistral-7b", "mistral-7b"),
        ("gradientai/Llama-3-8B-Instruct-Gradient-1048k", "llama3-8b"),
        ("NousResearch/Nous-Hermes-Llama2-13b", "nous-hermes-llama2-13b"),
        ("lmsys/vicuna-13b-v1.3", "llama-13b"),
        ("HuggingFaceH4/zephyr-7b-beta", "mistral-7b"),
        ("liuhaotian/llava-v1.6-mistral-7b", ""),  # images too
        ("mlabonne/beyonder-4x7b", ""),  # four of them
        ("nonsense-7b", ""),
    ],
)
def test_a_fine_tune_has_the_shape_of_the_model_in_its_name(name: str, shape: str) -> None:
    found = within(name)
    assert (preset(found).name if found else "") == (preset(shape).name if shape else "")


def test_degrees_that_a_row_leaves_open_are_those_of_the_fastest_layout_that_fits(tmp_path: pathlib.Path) -> None:
    """16 sequences, four in a forward pass, on 16 GPUs: four GPUs share one. Llama 2 70B in bf16 fits no card, so that
    tensors are divided."""
    layout = "global_batch: 16, seq: 4096, precision: bf16-pure, trainer: nemo, stack: megatron-core"
    measured = "peak_bytes: 3e+10, what: allocated, step_seconds: 2"
    row = {"count": 16, "model": "llama2-70b", "measured": measured}
    found = validated(
        tmp_path, {"id": "open", **row, "layout": layout}, {"id": "tp4", **row, "layout": f"{layout}, tp: 4"}
    )
    for name in ("memory_allocated", "step_seconds"):
        assert found["open", name]["low"] <= found["tp4", name]["predicted"] <= found["open", name]["high"]


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ("memory_gib: 55.3", "measured.memory_gib: not read; measured takes peak_bytes"),
        ("runs: 3", "nothing is measured; measured takes peak_bytes"),
        ("peak_bytes: much", "'much' is not a number"),
        ("peak_bytes: 3e10, what: used, derived: 0.5", "rows.0.measured.derived: 0.5 is not a list of names"),
    ],
)
def test_a_row_that_nothing_is_read_of_says_why_and_leaves_the_others(
    tmp_path: pathlib.Path, measured: str, why: str
) -> None:
    found = validated(tmp_path, {"measured": measured}, {"id": "b"})
    assert why in found["a", "memory_used"]["why"]
    assert "predicted" not in found["a", "memory_used"]
    assert found["b", "memory_allocated"]["predicted"] > 0
    assert why in run_line(f"validate {tmp_path / 'finetune.yaml'}").out.replace("\n  ", " ")


def test_a_benchmark_s_time_has_its_evaluations_in_it(tmp_path: pathlib.Path) -> None:
    """0.88 of the time to a target are steps, as in the logs of MLPerf's fine-tuning (tests/test_goodput.py)."""
    layout, times = f"{PLAIN}, global_batch: 4", "step_seconds: 5, run_seconds: 100, samples: 64"
    found = validated(tmp_path, {"id": "mlperf-a", "layout": layout, "measured": times})
    step = found["mlperf-a", "step_seconds"]["predicted"]
    assert found["mlperf-a", "run_seconds"]["predicted"] == pytest.approx(16 * step / 0.88)


def test_a_batch_that_the_gpus_cannot_share_is_refused(tmp_path: pathlib.Path) -> None:
    found = validated(tmp_path, {"count": 64, "layout": f"{PLAIN}, global_batch: 8"})
    assert "how its 64 GPUs divide a batch of 8" in found["a", "tokens_per_second_per_gpu"]["why"]


@pytest.mark.parametrize(
    ("said", "same", "method"),
    [("copy", "second copy", "kind: full"), ("adapters off", "adapters switched off", LORA)],
)
def test_words_for_the_source_of_a_reference(tmp_path: pathlib.Path, said: str, same: str, method: str) -> None:
    measured = "peak_bytes: 3e+10, what: allocated}}\n  rl: {{reference: {}"
    asked = {"task": "dpo", "model": "llama3.2-1b", "method": method}
    found = validated(tmp_path, *({**asked, "id": one, "measured": measured.format(one)} for one in (said, same)))
    usual = validated(tmp_path, {**asked, "id": "open"})["open", "memory_allocated"]
    assert found[said, "memory_allocated"]["predicted"] == found[same, "memory_allocated"]["predicted"]
    assert found[said, "memory_allocated"]["predicted"] == usual["predicted"]

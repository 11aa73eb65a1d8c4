"""Libraries by name: their defaults hold if the command line says nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.commands.command import PROBED
from napkin.commands.unused import REASONS
from napkin.options.machine import FIGURES
from napkin.options.training import KERNELS as NAMED_KERNELS
from napkin.options.training import LOSSES
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.kernels import KERNELS
from napkin.training.trainers import TRAINERS
from tests.conftest import ROOT, run_line

LINE = "memory llama3-8b --seq 2048 --json"
PAGE = Path(ROOT, "docs", "fine-tuning.md").read_text(encoding="utf-8").rpartition("## 14. ")[2]


@pytest.mark.parametrize(
    ("trainer", "same"),
    [
        ("hf-trainer", "--precision bf16-pure"),
        ("llama-factory", "--precision amp-bf16 --recompute full"),
        (
            "ms-swift --lora-rank 8",
            "--lora-rank 8 --lora-dropout 0.05 --precision frozen=bf16,param=fp32,compute=bf16 --recompute full",
        ),
        ("none --lora-rank 8", "--lora-rank 8 --precision frozen=bf16,param=fp32"),
        (  # peft's prepare_model_for_kbit_training turns checkpoints on
            "hf-trainer --lora-rank 8 --quantized nf4",
            "--lora-rank 8 --quantized nf4 --precision amp-bf16 --recompute full",
        ),
        (
            "trl --lora-rank 8 --quantized nf4",
            "--lora-rank 8 --quantized nf4 --precision bf16-pure --recompute full --loss chunked-recomputed",
        ),
        ("torchtune --lora-rank 8", "--lora-rank 8 --precision bf16-pure --framework torchtune"),
        ("hf-trainer --framework fsdp --gpus 8 --zero 3", "--precision amp-bf16 --framework fsdp --gpus 8 --zero 3"),
        ("axolotl --framework fsdp --gpus 8", "--precision bf16-pure --framework fsdp --gpus 8 --kernels axolotl"),
        ("openrlhf --gpus 8 --zero 3", "--precision bf16-mixed --framework deepspeed --gpus 8 --zero 3"),
        ("openrlhf --gpus 8", "--precision bf16-mixed --framework deepspeed --gpus 8 --zero 2"),
        ("verl --gpus 8", "--precision amp-bf16 --framework fsdp --fsdp-version 1 --gpus 8 --zero 3 --recompute full"),
        ("nemo-rl --gpus 8", "--precision bf16-mixed --framework megatron-core --gpus 8 --zero 1"),
        (  # a program of its own, which checkpoints nothing by default
            "ms-swift --framework megatron-core --lora-rank 8",
            "--framework megatron-core --lora-rank 8 --lora-dropout 0.05",
        ),
    ],
)
def test_defaults_of_a_library(trainer: str, same: str) -> None:
    assert run_line(f"{LINE} --trainer {trainer}").values == run_line(f"{LINE} {same}").values


@pytest.mark.parametrize(
    ("framework", "stage", "software"),
    [
        ("fsdp", "3", "fsdp-eager"),
        ("torchtitan", "3", "fsdp-compiled"),
        ("torchtune", "3", "fsdp-eager"),
        ("litgpt", "3", "fsdp-eager"),
        ("deepspeed", "0", "fsdp-eager"),
        ("megatron-core", "0", "megatron-core"),
        ("nanotron", "0", "nanotron"),
    ],
)
def test_a_framework_brings_its_sharding_and_its_software(framework: str, stage: str, software: str) -> None:
    line = f"llama3-8b --hardware h100 --framework {framework} --json"
    for machine in ("--gpus 8", "--dp 8", "--gpus 16 --tp 2"):
        found = run_line(f"step {line} {machine}")
        assert (found.data["inputs"]["zero"]["value"], found.data["inputs"]["stack"]["value"]) == (stage, software)
        assert found.values == run_line(f"step {line} {machine} --zero {stage}").values
    assert run_line(f"memory {line} --gpus 8").values == run_line(f"memory {line} --gpus 8 --zero {stage}").values
    for alone in ("", "--gpus 1", "--gpus 2 --tp 2"):
        assert run_line(f"memory {line} {alone}").data["inputs"]["zero"]["value"] == "0"
    assert run_line(f"step {line} --gpus 8 --zero 1").data["inputs"]["zero"]["value"] == "1"


@pytest.mark.parametrize(
    ("trainer", "framework", "software"),
    [
        ("nemo-rl", "megatron-core", "megatron-core"),
        ("nemo-rl", "fsdp", "fsdp-eager"),  # DTensor's policy runs transformers' models
        ("verl", "fsdp", "fsdp-eager"),
        ("verl", "megatron-core", "megatron-core"),
        ("ms-swift", "megatron-core", "megatron-core"),
        ("trl", "deepspeed", "fsdp-eager"),
    ],
)
def test_the_software_of_a_library_on_a_framework(trainer: str, framework: str, software: str) -> None:
    """A library on another framework than its usual one is timed as that framework, in commands and rows alike."""
    assert TRAINERS[trainer].stack_on(FRAMEWORKS[framework]) == software


def test_plan_takes_the_software_that_step_takes() -> None:
    for framework in ("fsdp", "deepspeed", "torchtitan"):
        line = f"--hardware h100 --gpus 8 --framework {framework} --json"
        stacks = {run_line(f"{one} llama3-8b {line}").data["inputs"]["stack"]["value"] for one in ("plan", "step")}
        assert len(stacks) == 1


def test_the_command_line_wins() -> None:
    found = run_line(f"{LINE} --trainer llama-factory --precision bf16-mixed --recompute none").values
    assert found == run_line(f"{LINE} --precision bf16-mixed").values


def test_a_library_in_every_command_that_takes_a_step() -> None:
    line = "llama3-8b --hardware h100 --gpus 8 --zero 3 --seq 2048 --lora-rank 8 --trainer trl --framework fsdp --json"
    timed = run_line(f"step {line} --global-batch 8").values["step/time"]
    run = run_line(f"train-time {line} --global-batch 8 --tokens 1B").values["time/uninterrupted"]
    assert run == pytest.approx(timed * 1e9 / (8 * 2048), rel=1e-6)


@pytest.mark.parametrize(
    ("line", "published"),
    [
        ("qwen3-4b --seq 16384", 63.8),
        ("qwen3-14b --seq 16384 --gpus 8 --framework fsdp", 38.9),
        ("qwen3-14b --seq 16384 --gpus 8 --framework fsdp --loss torch", 58.9),
        ("qwen3-32b --seq 8192 --gpus 8 --framework fsdp", 71.2),
    ],
)
def test_trl_s_published_peaks(line: str, published: float) -> None:
    """Peak GiB of full fine-tuning on H100s with loss_type chunked_nll, and nll (huggingface/trl, notes of release
    1.4, after pull requests 5575 and 5676)."""
    found = run_line(f"memory {line} --hardware h100 --trainer trl --json")
    gib = found.values["memory/allocated"] / 2**30
    assert gib == pytest.approx(published, rel=0.03)
    assert f"{gib:.1f}" in PAGE
    assert f"{published}" in PAGE


def test_a_library_s_loss_is_of_texts() -> None:
    """A loss over log-probabilities, or one of scores, stays as it is; a version before it had none."""
    for task in ("dpo", "rm"):
        line = f"memory llama3-8b --hardware h100 --lora-rank 8 --task {task} --precision bf16-pure --json"
        assert run_line(f"{line} --trainer trl --recompute none").values == run_line(line).values
    assert [TRAINERS["trl"].loss_in(one) for one in ("trl 1.6.0", "trl 1.7.1, transformers 5.2", "torch 2.4")] == [
        "",
        "chunked-recomputed",
        "",
    ]


@pytest.mark.parametrize(
    ("card", "published"), [("v100-16gb", 40724), ("rtx-4090", 78475), ("a100-40gb", 153977), ("a100-80gb", 342733)]
)
def test_unsloth_s_published_longest_sequences(card: str, published: int) -> None:
    """Of Llama 3.1 8B in nf4 with LoRA of rank 32 on all linear layers, one sequence (unslothai/unsloth, README.md at
    e3162dc5b, on GPUs of 16, 24, 40 and 80 GB)."""
    line = f"memory llama3.1-8b --hardware {card} --trainer unsloth --quantized nf4 --lora-rank 32 --max seq"
    found = run_line(f"{line} --optimizer adamw-8bit --json")
    assert found.values["max/seq"] == pytest.approx(published, rel=0.04)
    assert f"{found.values['max/seq']:,}" in PAGE
    assert f"{published:,}" in PAGE


def test_axolotl_joins_adapters_with_their_layers_for_texts_in_other_formats_than_8_bits() -> None:
    line = "memory llama3-8b --lora-rank 8 --trainer axolotl --loss fused --recompute full --json"
    assert run_line(line).values["memory/allocated"] < run_line(f"{line} --kernels none").values["memory/allocated"]
    for other in ("--quantized int8", "--task dpo"):
        assert run_line(f"{line} {other}").values == run_line(f"{line} {other} --kernels none").values


def test_the_option_names_the_libraries_of_kernels() -> None:
    assert ("none", *KERNELS) == NAMED_KERNELS
    for known in KERNELS.values():
        assert known.loss in ("", *LOSSES)
        assert known.before in ("", *LOSSES)


def test_kernels_are_those_of_a_hugging_face_class() -> None:
    """Unsloth brings its own, and `none` takes them away; a framework with a model of its own has no use for others."""
    line = "memory llama3-8b --lora-rank 8 --trainer unsloth --json"
    assert run_line(line).values == run_line(f"{line} --kernels unsloth").values
    plain = run_line(f"{line} --kernels none --loss torch").values["memory/allocated"]
    assert run_line(line).values["memory/allocated"] < run_line(f"{line} --kernels none").values["memory/allocated"]
    assert plain == run_line(f"{line} --kernels none").values["memory/allocated"]
    refused = run_line("memory llama3-8b --framework megatron-core --kernels liger")
    assert refused.status == 2
    assert "--kernels has no effect here" in refused.err


def test_unknown_ones_are_refused() -> None:
    found = run_line(f"{LINE} --trainer axolotel")
    assert found.status == 2
    assert "axolotl" in found.err


def test_every_policy_is_one_that_the_option_takes() -> None:
    for trainer in TRAINERS.values():
        for framework in (PLAIN, FRAMEWORKS["fsdp"], FRAMEWORKS["deepspeed"]):
            for policy in (trainer.policy_of_all(framework), trainer.policy_of_adapters(framework, "nf4")):
                frozen = " --lora-rank 8" if policy.frozen else ""
                assert run_line(f"{LINE} --precision {policy.stated}{frozen}").status == 0


def test_peft_casts_nothing_next_to_weights_of_gptq() -> None:
    """prepare_model_for_kbit_training: `if not is_gptq_quantized and …` (peft 0.21, utils/other.py)."""
    frozen = [TRAINERS["hf-trainer"].policy_of_adapters(PLAIN, stored).frozen for stored in ("", "int4", "nf4", "int8")]
    assert frozen == ["bf16", "bf16", "", ""]  # as the adapters: fp32


TUNED = "llama3-8b --hardware h100 --gpus 8 --lora-rank 16 --global-batch 64"


@pytest.mark.parametrize(
    ("trainer", "stack", "recompute"),
    [
        ("trl", "fsdp-eager", None),
        ("unsloth", "fsdp-eager", "full"),
        ("unsloth --recompute none", "fsdp-eager", "none"),
        ("unsloth --stack lean", "lean", "full"),
    ],
)
def test_plan_searches_what_the_library_runs(trainer: str, stack: str, recompute: str | None) -> None:
    found = run_line(f"plan {TUNED} --trainer {trainer} --json")
    assert found.data["inputs"]["stack"]["value"] == stack
    chosen = next(row for row in found.data["rows"] if row["recommended"])
    if recompute is not None:
        assert {row["recompute"] for row in found.data["rows"]} == {recompute}
    step = run_line(f"{chosen['command'].removeprefix('napkin ')} --json").values
    assert step["step/time"] == pytest.approx(found.values["step/time"])


@pytest.mark.parametrize("trainer", ["trl --zero 1", "unsloth --zero 0", "nemo --zero 1"])
def test_plan_and_train_time_agree_on_the_run_of_a_library(trainer: str) -> None:
    run = f"{TUNED} --trainer {trainer} --dp 8 --micro-batch 1 --tokens 100M --json"
    plan = run_line(f"plan {run} --tp 1 --pp 1 --cp 1 --recompute full").values
    assert plan["time"] == pytest.approx(run_line(f"train-time {run} --recompute full").values["time"])


def test_usual_layouts_recompute_what_the_library_does() -> None:
    data = run_line(f"plan {TUNED} --trainer unsloth --json").data
    usual = {row["name"]: row["step/time"] for row in data["popular"] if row.get("step/time")}
    assert min(usual.values()) >= min(row["step/time"] for row in data["rows"])
    assert "FSDP, full recomputation" not in usual


@pytest.mark.parametrize("command", ["memory", "step"])
@pytest.mark.parametrize("adapted", ["--lora-rank 16", "--lora-rank 16 --trainer hf-trainer", ""])
def test_weights_can_be_stated_unquantized(command: str, adapted: str) -> None:
    line = f"{command} llama3-8b --hardware h100 --seq 2048 {adapted} --json"
    assert run_line(f"{line} --quantized none").values == run_line(line).values


def test_a_sweep_over_formats_begins_with_none() -> None:
    line = "memory llama3-8b --hardware h100 --lora-rank 16 --seq 2048"
    rows = run_line(f"sweep {line} --over quantized=none,nf4 --json").data["rows"]
    assert [row["memory/total"] for row in rows] == [
        run_line(f"{line} {more} --json").values["memory/total"] for more in ("", "--quantized nf4")
    ]


def test_a_served_model_that_is_not_quantized() -> None:
    line = "memory llama3-8b --hardware h100 --inference --json"
    assert run_line(f"{line} --quantized none").values == run_line(line).values


def test_trl_checkpoints_since_a_release() -> None:
    """gradient_checkpointing is True in its configs since 0.22 (huggingface/trl a222aeb46)."""
    trl = TRAINERS["trl"]
    assert [trl.recomputes(text) for text in ("", "trl 0.21.0, transformers 4.55", "trl==0.22.1", "trl 1.0")] == [
        True, False, True, True,
    ]  # fmt: skip


def test_options_that_may_change_nothing_say_so() -> None:
    """Each has a reason to name; no offloading that a host of 64 GB has room for is suggested here."""
    assert PROBED - {*FIGURES, "dtype"} <= set(REASONS)
    line = "memory mixtral-8x7b --hardware h100 --gpus 16 --ep 8 --zero 1 --host-memory 64GB --json"
    assert any("--host-memory changes no figure" in note for note in run_line(line).data["notes"])
    refused = run_line("memory llama3-8b --hardware h100 --inference --lora-targets q,v")
    assert refused.status == 2
    assert "--lora-targets has no effect here" in refused.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--trainer trl --lora-rank 8", True),
        ("--trainer trl --lora-rank 8 --precision param=fp32,compute=bf16,frozen=bf16", False),  # stated
        ("--trainer trl --lora-rank 8 --quantized nf4", False),
        ("--trainer trl", False),  # all weights are fp32, as it loads them
        ("--trainer axolotl --lora-rank 8", False),
    ],
)
def test_a_base_that_the_library_would_load_in_fp32_is_assumed_in_sixteen_bits(line: str, says: bool) -> None:
    found = run_line(f"memory llama3-8b --task sft --hardware h100 --seq 512 {line}").out
    assert ("base in bf16 (trl's own default is fp32)" in found) is says
    notes = run_line(f"memory llama3-8b --task sft --hardware h100 --seq 512 {line} --json").data["notes"]
    assert any("--precision param=fp32,compute=bf16" in note for note in notes) is says


@pytest.mark.parametrize(
    ("software", "apart"),
    [
        ("hf-trainer --fsdp-version 1", True),
        ("trl --fsdp-version 1", True),
        ("trl", False),
        ("axolotl", True),
        ("nemo-automodel", False),
    ],
)
def test_fsdp_units_of_adapters_are_of_peft_s_wrap_policy(software: str, apart: bool) -> None:
    """A layer and its eight matrices (A and B of four modules), each gathered in two passes, or all with the layer.
    transformers' Trainer sets that policy for the first version only; axolotl calls fully_shard for each adapter."""
    line = "step llama3-8b --seq 256 --hardware h100 --gpus 8 --zero 3 --framework fsdp --lora-rank 8 --recompute none"
    line += " --lora-targets q_proj,k_proj,v_proj,o_proj --json --explain"
    terms = run_line(f"{line} --trainer {software}").data["terms"]
    assert terms["decoder/launch/units"]["value"] == (1 + 8 * apart) * 2


def test_unsloth_on_a_fast_gpu_waits_for_its_host_in_proportion_to_the_layers() -> None:
    """QLoRA of Qwen3 0.6B, 1.7B and 4B (28, 28 and 36 layers), 2 sequences of 2,048 tokens, on a B200: 17,000, 16,700
    and 13,100 tokens/s (invergent-ai/surogate, speed benchmarks, columns of Unsloth), where the products of the third
    are seven times those of the first."""
    line = "--hardware b200 --trainer unsloth --quantized nf4 --lora-rank 16 --lora-targets all --seq 2048 --json"
    line += " --micro-batch 2 --grad-accum 4 --optimizer adamw-8bit"
    seconds = [run_line(f"step qwen3-{size} {line}").values["step/time"] for size in ("0.6b", "1.7b", "4b")]
    assert seconds[1] / seconds[0] == pytest.approx(17000 / 16700, abs=0.05)
    assert seconds[2] / seconds[0] == pytest.approx(17000 / 13100, abs=0.05)

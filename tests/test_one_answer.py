"""One question, one answer: commands that are asked the same thing agree, or say why they do not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, run_line

FROZEN = "llama3-8b --gpus 8 --hardware h100 --zero 3 --freeze-layers 16 --seq 4096 --global-batch 8"


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_mfu_of_frozen_layers_is_one_number(recompute: str) -> None:
    """A gradient that passes through frozen layers only because they are checkpointed is no work of the model's: the
    FLOPs behind an MFU are the same with and without recomputation, in every command."""
    line = f"{FROZEN} --recompute {recompute}"
    step = run_line(f"step {line} --json").values
    rate = step["tokens_per_second_per_gpu"]
    measured = run_line(f"mfu {line} --tokens-per-second-per-gpu {rate!r} --json").values
    assert measured["mfu"] == pytest.approx(step["mfu"], rel=1e-6)
    assert measured["hfu/torch"] == pytest.approx(step["hfu"], rel=1e-6)
    run = run_line(f"train-time {line} --tokens 1B --json").values
    assert run["mfu"] == pytest.approx(step["mfu"] * run["goodput"], rel=1e-6)
    counted = run_line("flops llama3-8b --freeze-layers 16 --seq 4096 --json").values["flops/per_token"]
    assert step["mfu"] == pytest.approx(counted * rate / 989.4e12, rel=1e-3)


@pytest.mark.slow
def test_plan_and_train_time_say_why_they_differ() -> None:
    asked = "llama3-70b --hardware h100 --tokens 1T --within 30d"
    assert "napkin plan" in run_line(f"train-time {asked}").out
    assert "napkin train-time" in run_line(f"plan {asked}").out


@pytest.mark.parametrize(
    "line",
    [
        "memory llama3.1-405b --hardware rtx-4090 --micro-batch 64 --min gpus",
        "train-time llama3-70b --hardware h100 --tokens 15T --tp 8 --pp 8 --within 1h",
    ],
)
def test_an_impossible_question_still_prints_its_object(line: str) -> None:
    found = run_line(f"{line} --json")
    assert found.status == 1
    said = json.loads(found.out)
    assert said["verdict"] == "impossible"
    assert said["notes"][0] in found.err


def test_a_budget_that_no_machine_keeps_is_named_as_the_reason() -> None:
    asked = "plan llama3-8b --hardware h100 --min gpus --tokens 1T --price 2"
    found = run_line(f"{asked} --budget 100")
    assert found.status == 1
    assert "IMPOSSIBLE: for $100" in found.out
    assert "no number of GPUs that was tried keeps --budget" in found.out
    assert run_line(f"{asked} --budget 100 --json").values["cost"] > 100


def test_a_step_is_no_larger_than_the_run_nor_than_a_step_of_tuning() -> None:
    line = "plan llama3-8b --gpus 8 --hardware h100 --seq 4096 --json"
    run = run_line(f"{line} --tokens 1M").data["rows"]
    assert max(row["global_batch"] for row in run) <= 1_000_000 // 4096
    tuned = run_line(f"{line} --lora-rank 16 --samples 10000 --sample-tokens 500").data["rows"]
    assert max(row["global_batch"] for row in tuned) == 128


def test_compiled_steps_are_timed_as_compiled_software() -> None:
    line = "step llama3-8b --gpus 8 --hardware h100 --zero 3 --json"
    compiled = run_line(f"{line} --compile")
    assert compiled.data["inputs"]["stack"]["value"] == "fsdp-compiled"
    assert run_line(f"{line} --no-compile").data["inputs"]["stack"]["value"] == "fsdp-eager"
    memory = run_line("memory llama3-8b --gpus 8 --hardware h100 --zero 3 --compile --json").values["memory/total"]
    assert compiled.values["memory/total"] == memory
    clash = run_line(f"{line} --compile --framework megatron-core")
    assert clash.status == 2
    assert "contradict" in clash.err


@pytest.mark.parametrize(
    ("trainer", "framework", "runs"),
    [
        ("trl", "torchtitan", False),
        ("trl", "deepspeed", True),
        ("torchtune", "fsdp", True),
        ("torchtune", "deepspeed", False),
        ("torchtune", "torchtune", True),
        ("nemo", "plain", False),
        ("nemo", "megatron-core", True),
    ],
)
def test_a_library_runs_on_frameworks_that_wrap_its_models(trainer: str, framework: str, runs: bool) -> None:
    found = run_line(f"memory llama3-8b --gpus 8 --trainer {trainer} --framework {framework}")
    assert found.status == (0 if runs else 2)


def test_unquantized_experts_get_a_note_and_quantizing_them_is_a_remedy() -> None:
    found = run_line("memory mixtral-8x7b --hardware h100 --lora-rank 16 --quantized nf4")
    assert "experts not quantized" in found.out
    assert "--quantize-experts" in found.out


def test_an_interval_is_in_the_unit_of_its_value() -> None:
    line = "train-time llama3-70b --hardware h100 --tokens 15T --gpus 512 --tp 8 --pp 8"
    headline = run_line(line).out.splitlines()[1]
    ends = run_line(f"{line} --json").data
    low, high = (ends[end]["time"] / 31_536_000 for end in ("low", "high"))
    assert math.floor(low) >= 1  # below two years, if a time on its own is in days
    assert f"{low:.2f} to {high:.2f} years" in headline


@pytest.mark.parametrize(("written", "meant"), [("A100 80G", "a100-80gb"), ("h100-80", "h100-80gb")])
def test_memory_of_an_accelerator_is_read_with_and_without_its_unit(written: str, meant: str) -> None:
    line = ["memory", "llama3-8b", "--json", "--hardware"]
    assert run_line([*line, written]).values == run_line([*line, meant]).values


def test_several_machines_propose_the_step_of_the_one_that_is_chosen() -> None:
    found = run_line("plan llama3-8b --gpus 8..32 --hardware h100 --seq 4096 --min cost")
    rows = run_line("plan llama3-8b --gpus 8..32 --hardware h100 --seq 4096 --min cost --json").data["rows"]
    (chosen,) = (row for row in rows if row["recommended"])
    assert chosen["tokens_per_second_per_gpu"] == max(row["tokens_per_second_per_gpu"] for row in rows)
    assert found.out.splitlines()[1].split()[0] == str(chosen["gpus"])
    assert f"--dp {chosen['dp']} " in found.out.partition("next:")[2]
    assert found.out.count("<- use") == 1


@pytest.mark.slow
def test_one_unread_row_refuses_the_file_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "rows.yaml"
    run_line(f"validate {path} --init")
    path.write_text(path.read_text().replace("{step_seconds: 2.5}", "{step_seconds: fast}"))
    assert run_line(f"validate {path}").status == 0
    strict = run_line(f"validate {path} --strict")
    assert strict.status == 2
    assert "step_seconds" in strict.err
    assert run_line("validate --strict").status == 2


def test_rows_of_csv_hold_whole_numbers_as_json_does() -> None:
    listed = run_line("hardware --csv").out
    assert "989400000000000," in listed
    assert ".0," not in listed


def test_an_invalid_common_layout_is_not_reported_as_too_large() -> None:
    """On one node, tensor parallelism over all of its GPUs leaves one data-parallel rank, which shards nothing."""
    line = "plan llama3-8b --gpus 8 --hardware h100 --seq 4096"
    screen = " ".join(run_line(line).out.split())
    assert "not valid here: tensor parallel in the node, ZeRO-1" in screen
    rows = {row["name"]: row for row in run_line(f"{line} --json").data["popular"]}
    assert rows["tensor parallel in the node, ZeRO-1"]["fits"] is None
    assert "one data-parallel rank" in rows["tensor parallel in the node, ZeRO-1"]["why"]


def test_markdown_joins_the_question_as_the_screen_does() -> None:
    line = "memory llama3-8b --gpus 8 --hardware h100 --zero 3"
    assert run_line(f"{line} --markdown").out.splitlines()[0] == run_line(line).out.splitlines()[0]


@pytest.mark.parametrize("model_type", ["t5gemma", "led"])
def test_a_plan_of_adapters_on_an_encoder_and_a_decoder_has_memory_s_bytes(model_type: str) -> None:
    """The search evaluates layouts as arrays: the gradients of tables meet only if the encoder's end is next, and
    frozen tables have none."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    fields = json.dumps({**dict(rows)[model_type], "model_type": model_type})
    asked = "- --seq 64 --hardware h100 --lora-rank 4 --json"
    found = run_line(f"plan {asked} --gpus 16 --max-micro-batch 8 --rows 3", stdin=fields).data["rows"]
    assert found
    for row in found:
        line = row["command"].removeprefix("napkin step").replace(f"--stack {row_stack(row)}", "")
        same = run_line(f"memory {line} --json", stdin=fields).values
        assert row["memory"] == pytest.approx(same["memory/total"], rel=1e-9)


def row_stack(row: dict[str, object]) -> str:
    """Return the software that a row's line names."""
    words = str(row["command"]).split()
    return words[words.index("--stack") + 1]


@pytest.mark.parametrize(
    "line",
    [
        "lint MODEL --gpus 8 --hardware h100 --seq 64",
        "sensitivity step MODEL --hardware h100 --seq 64",
        "sweep memory MODEL --seq 64 --over micro-batch=1,2",
        "plan MODEL --gpus 8 --hardware h100 --seq 64",
    ],
)
def test_a_file_on_standard_input_answers_as_by_its_name(line: str, tmp_path: Path) -> None:
    """Commands that ask their question several times read it once: every other one found it empty."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    text = json.dumps({**dict(rows)["gpt2"], "model_type": "gpt2"})
    file = tmp_path / "model.json"
    file.write_text(text, encoding="utf-8")
    named, piped = (
        run_line(line.replace("MODEL", f"{file} --json")),
        run_line(line.replace("MODEL", "- --json"), stdin=text),
    )
    assert named.status == piped.status != 2
    for part in ("values", "low", "high", "verdict"):
        assert named.data.get(part) == piped.data.get(part)
    rows_of = [[(row.get("rule"), row.get("input"), row.get("step/time")) for row in found_rows(one.data)]
               for one in (named, piped)]  # fmt: skip
    assert rows_of[0] == rows_of[1]


def found_rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an answer, or the findings of lint."""
    found: list[dict[str, Any]] = data.get("rows") or data.get("findings") or []
    return found


@pytest.mark.parametrize("line", ["t5-base --seq 512", "t5-base --seq 512 --target-seq 114", "llama3.2-1b --seq 2048"])
def test_every_command_counts_a_model_s_tokens_alike(line: str) -> None:
    """An encoder-decoder's too: the tokens of --seq, with which rates and amounts of training are given."""
    rows, length = 8, 512 if line.startswith("t5") else 2048
    step = run_line(f"step {line} --micro-batch {rows} --hardware h100 --json").values
    count = run_line(f"flops {line} --batch {rows} --json").values
    assert count["flops/per_token"] == pytest.approx(count["flops/total"] / (rows * length))
    assert count["flops/per_token/torch"] == pytest.approx(count["flops/per_token"])
    speed = step["tokens_per_second_per_gpu"]
    assert speed == pytest.approx(rows * length / step["step/time"])
    assert step["mfu"] == pytest.approx(count["flops/total"] / step["step/time"] / 989.4e12, rel=1e-3)
    again = run_line(f"mfu {line} --hardware h100 --gpus 1 --tokens-per-second {speed} --json").values
    assert again["mfu/torch"] == pytest.approx(step["mfu"])
    if "target" not in line:
        run = run_line(f"train-time {line} --tokens 1B --gpus 1 --hardware h100 --mfu 0.3 --json").values
        assert run["flops/exact"] == pytest.approx(1e9 * count["flops/per_token"])


@pytest.mark.parametrize(
    "line", ["--gpus 512 --within 30d", "--gpus 512 --compute 1e23", "--budget 1M --price 2 --gpus 64"]
)
def test_optimal_states_the_time_of_its_steps_too(line: str) -> None:
    found = run_line(f"optimal {line} --hardware h100 --json").values
    assert found["time/uninterrupted"] == pytest.approx(found["time"] * found["goodput"])
    assert 0.5 < found["goodput"] < 1


@pytest.mark.parametrize("command", ["step llama3-8b", "plan llama3-8b --gpus 8", "optimal --gpus 8 --within 3d"])
def test_a_dtype_where_training_takes_a_policy_is_refused_with_the_policy(command: str) -> None:
    refused = run_line(f"{command} --hardware h100 --dtype fp8")
    assert refused.status == 2
    assert "--precision bf16-mixed" in refused.err


def test_a_decoder_s_own_length_is_the_same_everywhere() -> None:
    """A step of T5 with targets of 128 tokens, its run, and the line of the layout that plan recommends."""
    line = "t5-large --hardware a100 --gpus 8 --seq 512 --target-seq 128"
    step = run_line(f"step {line} --micro-batch 4 --json").values
    run = run_line(f"train-time {line} --micro-batch 4 --steps 1000 --global-batch 32 --json").values
    assert run["time/uninterrupted"] == pytest.approx(1000 * step["step/time"])
    counted = run_line("flops t5-large --seq 512 --target-seq 128 --json").values["flops/total"]
    assert run["flops/exact"] == pytest.approx(32_000 * counted)
    plan = run_line(f"plan {line} --json")
    chosen = next(row for row in plan.data["rows"] if row["recommended"])
    assert "--target-seq 128" in chosen["command"]
    again = run_line(f"{chosen['command'].removeprefix('napkin ')} --json").values
    assert again["step/time"] == pytest.approx(plan.values["step/time"])
    assert run_line(f"plan {line.replace('128', '512')} --json").values["step/time"] != plan.values["step/time"]


@pytest.mark.parametrize(
    "line",
    [
        "llama2-13b --gpus 64 --hardware h100 --global-batch 1024",
        "qwen3-8b --gpus 16 --hardware a100-80gb --global-batch 64",
        "llama3-8b --gpus 8 --hardware h100 --global-batch 64 --lora-rank 16",
        "llama3-8b --gpus 8 --hardware h100 --global-batch 64 --framework fsdp",
        "llama3-8b --gpus 8 --hardware h100 --global-batch 64 --trainer trl",
    ],
)
def test_a_layout_of_plan_has_one_memory_or_says_whose(line: str) -> None:
    """A layout typed with the options of the question has the memory of plan's row, or the answer names the
    implementation that it counts; with plan's implementation it has that memory."""
    found = run_line(f"plan {line} --json").data
    model = found["inputs"]["implementation"]["value"]
    assert found["rows"]
    for row in found["rows"][:3]:
        degrees = [f"--{name} {row[name]}" for name in ("tp", "pp", "cp", "zero", "micro-batch", "recompute")]
        asked = f"{line} {' '.join(degrees)}" + (f" --vp {row['vp']}" if row["vp"] > 1 else "")
        for command, tokens in (("memory", ""), ("step", ""), ("train-time", " --tokens 1B")):
            typed = run_line(f"{command} {asked}{tokens} --json").data
            if typed["values"]["memory/total"] == row["memory"]:
                continue
            assert typed["inputs"]["implementation"]["value"] != model
            assert "hf implementation" in run_line(f"{command} {asked}{tokens}").out
            assert any(f"--implementation {model}" in note for note in typed["notes"])
            same = run_line(f"{command} {asked}{tokens} --implementation {model} --json").values
            assert same["memory/total"] == row["memory"]


def test_what_is_outside_the_layers_is_named() -> None:
    """Phi-3.5-MoE's head has a bias of 32,064, more than its norm's 8,192; GPT-2 has learned positions."""
    said = {name: run_line(f"params {name}").out for name in ("phi3.5-moe", "gpt2", "llama3-8b")}
    counted = run_line("params phi3.5-moe --json").values["params/outside_layers"]
    assert counted == 32_064 + 2 * 4096
    assert "head bias; final norm" in said["phi3.5-moe"]
    assert "positions; final norm" in said["gpt2"]
    assert "bias" not in said["llama3-8b"]


def test_a_maximum_of_none_says_which_smallest_value_was_judged() -> None:
    found = run_line("memory llama3-70b --hardware rtx4090 --max params")
    assert found.out.splitlines()[1].strip() == "0 layers: 1 layer DOES NOT FIT"
    for what, counted in {"params": "layer", "micro-batch": "sequence", "seq": "token"}.items():
        lines = run_line(f"memory llama3-8b --hardware h100 --gpus 8 --zero 3 --max {what}").out.splitlines()
        assert f"{counted}; mostly " in next(line for line in lines if line.startswith("  1 more "))


def test_a_long_sequence_is_divided_before_it_is_cut() -> None:
    """Halves of 1,000,000 tokens end at 15,625, which 8 ranks do not divide: the length that they do is tried."""
    line = "memory llama3-8b --gpus 8 --seq 1M --hardware h100 --zero 3"
    found = run_line(f"{line} --json")
    changes = [row["change"].split() for row in found.data["suggestions"] if "--cp 8" in row["change"]]
    assert [change[change.index("--seq") + 1] for change in changes] == ["125000"]
    for row in found.data["suggestions"]:
        assert run_line(f"{row['command'].removeprefix('napkin ')} --json").data["verdict"] == "fits"


def test_an_impossible_plan_names_its_table_as_the_nearest() -> None:
    out = run_line("plan llama3-8b --gpus 8 --hardware h100 --seq 1M").out
    assert "nearest layout" in out
    assert "nearest layout" not in run_line("plan llama3-8b --gpus 8 --hardware h100").out


def test_a_file_of_grpo_lacks_the_gpus_that_its_prompts_follow_from(tmp_path: Path) -> None:
    """8 micro-batches · 4 accumulated / 8 responses to a prompt: 4 prompts a step on each GPU."""
    file = tmp_path / "grpo.yaml"
    file.write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nbeta: 0.04\nnum_generations: 8\nmax_prompt_length: 512\n"
        "max_completion_length: 1024\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 4\nbf16: true\n"
    )
    for command in ("memory", "step"):
        line = f"{command} --from {file} --hardware h100"
        refused = run_line(line)
        assert refused.status == 2
        assert "--gpus is missing" in refused.err
        assert "--global-batch is missing" not in refused.err
        found = run_line(f"{line} --gpus 2 --json")
        assert found.data["inputs"]["global-batch"]["value"] == 8

"""Lint on files: frameworks' own, run files, several; comments, selection, what CI reads, exit statuses."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import Napkin

RECIPE = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
dtype: bfloat16
use_peft: true
lora_r: 16
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
max_length: 2048
packing: true
bf16: true
optim: adamw_torch_fused
"""
"""A recipe of TRL with a known mistake: LoRA on an H100 recomputes what fits."""
TITAN = """\
[job]
dump_folder = "out"

[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 1
seq_len = 8192
steps = 1000

[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 4

[activation_checkpoint]
mode = "full"
"""
"""A configuration of torchtitan that divides an 8B model over four ranks, and recomputes all of it."""
MEGATRON = """\
#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --ffn-hidden-size 11000 --swiglu --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 \\
  --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights \\
  --tensor-model-parallel-size 3 --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer
"""
"""A launch of Megatron-LM whose three tensor-parallel ranks divide neither its GPUs nor its heads."""


def found(napkin: Napkin, line: str) -> dict[str, dict[str, object]]:
    return {row["rule"]: row for row in napkin(f"lint {line} --json").data["rows"]}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "sft.yaml"
    path.write_text(RECIPE)
    return path


def test_a_finding_names_file_line_and_key(napkin: Napkin, recipe: Path) -> None:
    row = found(napkin, f"{recipe} --hardware h100 --gpus 8 --select N101")["N101"]
    assert (row["file"], row["line"], row["key"]) == (str(recipe), 7, "gradient_checkpointing")
    assert row["change"] == "--recompute none"
    command = str(row["command"])
    assert command.startswith(f"napkin lint {recipe} ")
    assert "N101" not in found(napkin, command.removeprefix("napkin lint "))


def test_torchtitan_and_its_steps_have_a_price(napkin: Napkin, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TITAN)
    rows = found(napkin, f"{tmp_path}/t.toml --hardware h100 --gpus 32 --price 2")
    assert {"N101", "N106"} <= set(rows)
    costs = {number: row["cost"] for number, row in rows.items() if row["time"]}
    step = napkin(f"step --from {tmp_path}/t.toml --hardware h100 --gpus 32 --json").values["step/time"]
    whole = 1000 * step / 3600 * 32 * 2  # steps, hours of one, GPUs, USD
    assert costs["N101"] == pytest.approx(whole * float(str(rows["N101"]["time"])))


def test_contradictions_of_a_launch_script(napkin: Napkin, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(MEGATRON)
    line = f"{tmp_path}/run.sh --hardware h100"
    assert {"N401", "N403"} <= set(found(napkin, line))
    assert napkin(f"lint {line}").status == 1
    fixed = found(napkin, f"{line} --tp 4 --dropout 0 --zero 1 --micro-batch 2")  # not held up by the host
    assert fixed["N118"]["change"] == "config.json: intermediate_size 11,008"


def test_a_key_without_effect_warns(napkin: Napkin, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(
        '{"zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}},\n"bf16": {"enabled": true},\n'
        '"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}\n'
    )
    line = f"llama3-8b --from {path} --gpus 8 --hardware h100"
    rows = found(napkin, line)
    assert (rows["N497"]["file"], rows["N497"]["line"], rows["N497"]["severity"]) == (str(path), 1, "warning")
    assert len(rows) > 1  # the step is judged too: 8B with stage 1 on 80 GB does not fit
    assert napkin(f"lint {line} --select N497").status == 0  # DeepSpeed trains with such a file
    assert found(napkin, str(path)).keys() == {"N497"}  # also without a model
    stage = napkin(f"memory llama3-8b --from {path} --gpus 8 --json")  # DeepSpeed reads the key in stage 3 alone
    assert stage.status == 0
    assert "offload" not in stage.data["inputs"]


@pytest.mark.parametrize(
    ("comment", "line", "left"),
    [
        ("  # napkin: ignore N101", 7, False),
        ("  # napkin: ignore N2", 7, True),
        ("  # napkin: ignore", 7, False),
        ("  # napkin: ignore N101", 6, True),
        ("# napkin: ignore recompute-with-memory-free", None, False),
        ("# napkin: ignore N1 N2", None, False),
    ],
)
def test_comments_switch_rules_off(napkin: Napkin, recipe: Path, comment: str, line: int | None, left: bool) -> None:
    lines = RECIPE.splitlines()
    if line is None:
        lines.insert(0, comment)
    else:
        lines[line - 1] += comment
    recipe.write_text("\n".join(lines) + "\n")
    assert ("N101" in found(napkin, f"{recipe} --hardware h100 --gpus 8")) == left


def test_a_comment_with_an_unknown_rule_is_an_error(napkin: Napkin, recipe: Path) -> None:
    recipe.write_text(RECIPE + "# napkin: ignore N999\n")
    outcome = napkin(f"lint {recipe} --hardware h100 --gpus 8")
    assert (outcome.status, len(outcome.errors)) == (2, 1)
    assert f"{recipe}:12: napkin: ignore" in outcome.err


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("--select N101", {"N101"}),
        ("--select N1 --ignore N101", set()),
        ("--select all --ignore N1,N2", set()),
        ("--ignore N1 --select N101", {"N101"}),
        ("--select recompute-with-memory-free", {"N101"}),
    ],
)
def test_the_longer_beginning_decides(napkin: Napkin, recipe: Path, options: str, left: set[str]) -> None:
    rows = found(napkin, f"{recipe} --hardware h100 --gpus 8 {options}")
    assert {number for number in rows if number in ("N101", "N207")} == left


def test_several_files_are_several_runs(napkin: Napkin, recipe: Path, tmp_path: Path) -> None:
    other = tmp_path / "run.yaml"
    other.write_text("command: memory\nmodel: llama3-8b\ngpus: 1\nzero: 3\nhardware: h100\n")
    outcome = napkin(f"lint {recipe} {other} --gpus 8 --hardware h100 --json")
    assert outcome.status == 0  # the command line wins: 8 GPUs
    assert {row["file"] for row in outcome.data["rows"]} == {str(recipe), str(other)}
    outcome = napkin(f"lint {other} {tmp_path}/none.yaml --json")
    assert outcome.status == 2
    assert "N201" in {row["rule"] for row in outcome.data["rows"]}
    assert len(outcome.errors) == 1


PHASED = """\
model: llama3-8b
hardware: h100
gpus: 64
zero: 3
framework: fsdp
phases:
  - {name: short, tokens: 1T, seq: 4096, global_batch: 1024}
  - {name: long, tokens: 100B, seq: 65536, global_batch: 64, recompute: full}
"""


def test_every_phase_of_a_run_is_judged_by_itself(napkin: Napkin, tmp_path: Path) -> None:
    """8,192 × 128,256 fp32 logits fit and 65,536 do not; a change of one part is one in the file."""
    (tmp_path / "run.yaml").write_text(PHASED, encoding="utf-8")
    outcome = napkin(f"lint {tmp_path}/run.yaml --json --junit {tmp_path}/out.xml")
    found = {(row["rule"], row["phase"]) for row in outcome.data["rows"]}
    assert ("N201", "long") in found
    assert ("N201", "short") not in found
    assert outcome.status == 1
    assert all(row["command"] is None for row in outcome.data["rows"])
    cases = ElementTree.parse(tmp_path / "out.xml").getroot().iter("testcase")
    names = [one.get("name") for one in cases]
    assert len(names) == len(set(names)) == len(outcome.data["rows"])
    refused = napkin(f"step --run {tmp_path}/run.yaml")
    assert (refused.status, len(refused.errors)) == (2, 1)


def test_what_github_and_jenkins_read(napkin: Napkin, recipe: Path, tmp_path: Path) -> None:
    line = f"lint {recipe} --hardware h100 --gpus 8 --select N101 --annotations github --junit {tmp_path}/out.xml"
    outcome = napkin(line)
    assert outcome.status == 0
    mark = next(one for one in outcome.out.splitlines() if one.startswith("::"))
    assert mark.startswith(f"::warning file={recipe},line=7,title=N101 recompute-with-memory-free::")
    assert "--recompute none" in mark
    (suite,) = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("failures"), suite.get("tests")) == ("0", "1")
    napkin(f"lint llama3-8b --gpus 12 --tp 8 --junit {tmp_path}/out.xml")
    (suite,) = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert suite.get("failures") == "1"


def test_without_an_accelerator_nothing_is_priced_in_time(napkin: Napkin, recipe: Path) -> None:
    data = napkin(f"lint {recipe} --gpus 8 --json").data
    assert all(row["time"] is None for row in data["rows"])
    assert any("--hardware" in note for note in data["notes"])


def test_an_untimed_remedy_gets_a_note(napkin: Napkin) -> None:
    data = napkin("lint llama3-8b --gpus 8 --hardware h100 --zero 3 --offload activations --json").data
    rows = [row for row in data["rows"] if row["time"] is None]
    assert rows
    assert any("--offload activations: its time is modeled only" in note for note in data["notes"])


def test_needless_offloading_costs_time_and_saves_memory(napkin: Napkin) -> None:
    """30 bytes of each of 8 B parameters at 118 GB/s: about 2 s of a host's update."""
    data = napkin("lint llama3-8b --gpus 8 --hardware h100 --zero 3 --recompute full --offload optimizer --json").data
    (row,) = [row for row in data["rows"] if row["rule"] == "N209"]
    assert row["memory"] < 0 < row["time"]


SAMPLED = "--task grpo --samples-per-prompt 8 --global-batch 64"


@pytest.mark.parametrize(
    "trainer",
    [
        "openrlhf",
        "openrlhf --micro-batch 8 --no-padding",
        "nemo-rl",
        "verl --recompute none",
        "verl --micro-batch 64",
        "trl",
    ],
)
def test_lint_weighs_the_update_that_memory_answers(napkin: Napkin, trainer: str) -> None:
    """N201 is by how much the step does not fit."""
    line = f"qwen2.5-7b {SAMPLED} --trainer {trainer} --gpus 8 --hardware h100 --max-prompt-tokens 1024"
    line += " --max-response-tokens 4096 --json"
    held = napkin(f"memory {line}").values
    found = napkin(f"lint {line}").data
    short = next(row["memory"] for row in found["rows"] if row["rule"] == "N201")
    assert short == pytest.approx(held["memory/phase/update"] - held["memory/capacity"])


def test_rollouts_are_the_trainer_s_passes(napkin: Napkin) -> None:
    """Over the longest sequences, on the trainer's own GPUs, with the log-probabilities before the update: stages that
    nothing needs are found, and a change leaves the prompts of a step as they are."""
    line = f"llama3-8b --hardware h100 --pp 4 --zero 1 --micro-batch 4 --recompute full --seq 4096 {SAMPLED}"
    found = napkin(f"lint {line} --gpus 32 --rollout separate:16 --json")
    (row,) = [row for row in found.data["rows"] if row["rule"] == "N107"]
    assert row["change"] == "--pp 1"
    assert row["time"] > 0.1
    alone = napkin(f"lint {line} --gpus 16 --rollout none --json").data["rows"]
    assert [one["time"] for one in alone if one["rule"] == "N107"] == [row["time"]]
    assert any("the trainer's passes" in note for note in found.data["notes"])
    assert "--prompt-tokens is missing" in napkin(f"lint llama3-8b --gpus 8 --hardware h100 {SAMPLED}").err


def test_the_list_and_one_rule(napkin: Napkin) -> None:
    listed = napkin("lint --rules --json").data["rows"]
    assert len(listed) >= 40
    told = napkin("lint --explain pipeline-bubble").out
    assert all(words in told for words in ("N105", "(p−1)/(v·m)", "arXiv:2104.04473"))
    assert napkin("lint --explain N999").status == 2


def test_warm_up_and_saves_of_a_file(napkin: Napkin, recipe: Path) -> None:
    """Young's interval by hand: √(2·w·M) of a checkpoint of 6 bytes per parameter, in steps of the model."""
    recipe.write_text(
        RECIPE.replace("use_peft: true\nlora_r: 16\n", "max_steps: 300\nwarmup_steps: 500\nsave_steps: 9\n")
    )
    line = f"{recipe} --gpus 8 --hardware h100 --zero 3 --framework fsdp --mtbf 24h --write-bandwidth 2GB/s"
    rows = found(napkin, line)
    assert (rows["N307"]["line"], rows["N307"]["key"]) == (4, "warmup_steps")
    assert "N307" not in found(napkin, f"{line} --warmup-steps 30")
    step = napkin(f"step --from {recipe} --gpus 8 --hardware h100 --zero 3 --framework fsdp --json").values["step/time"]
    write = 8_030_261_248 * 6 / 2e9  # bf16 weights and two moments
    best = (2 * write * 86400) ** 0.5
    lost = [write / every + every / 2 / 86400 for every in (9 * step, best)]
    assert rows["N302"]["change"] == f"--save-steps {round(best / step)}"
    assert rows["N302"]["time"] == pytest.approx(min(lost[0], 1) - lost[1], rel=1e-6)


def test_every_unknown_name_of_a_file_is_told_with_its_line(napkin: Napkin, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: llama3-8bb\nhardware: h1000\noptimizer: adamww\ngpus: 8\n")
    found = napkin(f"lint {path}")
    assert found.status == 2
    for line, said in enumerate(("model: no model is called", "hardware: unknown accelerator", "optimizer: unknown")):
        assert f"run.yaml:{line + 1}: {said}" in found.err

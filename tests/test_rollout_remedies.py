"""What makes a step of reinforcement learning fit: suggestions of `memory`, asked again as commands of their own."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from napkin.commands.command import find
from napkin.commands.inputs import Inputs
from napkin.commands.rollout.question import read
from napkin.commands.signature import OptionText
from napkin.planning.rollout_axes import rollout_axes
from napkin.planning.verdicts import FITS
from tests.conftest import run_line

LENGTHS = "--prompt-tokens 256 --response-tokens 1024 --samples-per-prompt 8 --global-batch 16"
HERE = f"llama3-8b --task grpo --gpus 4 --hardware a100-sxm-80gb {LENGTHS}"
PASSES = (
    "qwen2.5-7b --task grpo --gpus 4 --hardware a100-sxm-80gb --trainer openrlhf --zero 3 --recompute full "
    "--prompt-tokens 500 --response-tokens 2000 --max-response-tokens 8192 --samples-per-prompt 8 --global-batch 64 "
    "--micro-batch 1 --logprob-micro-batch 32"
)
"""A step whose passes without gradients, of 32 sequences, take the most."""


def asked(line: str) -> dict[str, Any]:
    return run_line(f"{line} --json").data


@pytest.mark.parametrize(
    "line",
    [
        f"{HERE} --trainer trl --rollout colocated:0.3",
        f"{HERE} --trainer verl --rollout colocated:0.6 --recompute none",
        f"{HERE} --rollout separate:2",
        f"qwen2.5-7b --task ppo --gpus 2 --hardware a100 --trainer openrlhf --rollout colocated:0.5 {LENGTHS}",
        f"{HERE} --host-memory 40GiB --rollout colocated:0.8 --zero 3",
        PASSES,
    ],
)
def test_every_suggestion_fits_and_takes_the_time_that_step_says(line: str) -> None:
    answer = asked(f"memory {line}")
    assert answer["verdict"] != FITS
    assert answer["suggestions"]
    timed = line.partition(" --host-memory 40GiB")
    before = asked(f"step {timed[0]}{timed[2]}")["values"]["step/time"]
    for row in answer["suggestions"]:
        again = asked(row["command"].removeprefix("napkin "))
        assert again["verdict"] == FITS, row["change"]
        assert int(again["values"]["memory/total"]) == row["used"], row["change"]
        assert int(again["values"].get("memory/host", 0)) == row.get("host", 0), row["change"]
        after = asked(f"step {timed[0]}{timed[2]} {row['change']}")
        ratio = after["values"]["step/time"] / before
        assert row["extra_time"] == pytest.approx(ratio - 1), row["change"]
        assert row["low"] == pytest.approx(ratio * after["low"]["step/time"] / after["values"]["step/time"] - 1)
        assert row["high"] == pytest.approx(ratio * after["high"]["step/time"] / after["values"]["step/time"] - 1)


def test_a_smaller_engine_is_suggested_only_down_to_what_holds_a_response() -> None:
    """Of 79.2 GiB: a fifth over one rank has no room for 15 GiB of weights and 1 GiB of logits, over two it has room
    for both and a response; a tenth over one rank has none for the weights. An engine awake takes its share from the
    update too."""
    line = f"memory {HERE} --trainer trl --zero 3 --micro-batch 4 --rollout colocated:0.3"
    assert next(row["change"] for row in asked(line)["suggestions"]) == "--rollout colocated:0.2 --rollout-tp 2"
    fixed = [row["change"] for row in asked(f"{line} --rollout-tp 1")["suggestions"]]
    assert fixed
    assert not any("colocated:0.1" in change or "colocated:0.2" in change for change in fixed)


def test_more_gpus_are_offered_next_to_a_smaller_engine_that_serves_too() -> None:
    """The step that does not fit has 256 samples, which 256 GPUs cannot take two at a time: eight can."""
    job = "qwen2.5-7b --task grpo --gpus 4 --hardware a100 --zero 3 --trainer trl --micro-batch 2"
    lengths = "--prompt-tokens 200 --response-tokens 1000 --max-response-tokens 4096 --samples-per-prompt 8"
    changes = [row["change"] for row in asked(f"memory {job} {lengths} --global-batch 32")["suggestions"]]
    assert "--gpus 8" in changes
    assert any("--rollout colocated" in change for change in changes)


def test_more_gpus_leave_an_engine_of_its_own_as_it_is() -> None:
    """Two for the engine, and 2·2ⁿ that train."""
    answer = asked(f"memory {HERE} --rollout separate:2")
    (more,) = [row["change"] for row in answer["suggestions"] if "--gpus" in row["change"]]
    gpus = int(more.split("--gpus ")[1].split()[0])
    assert gpus - 2 in {4, 8, 16, 32, 64}
    assert "--rollout" not in more


def test_none_is_sought_where_a_step_fits() -> None:
    answer = asked(f"memory {HERE} --trainer trl --zero 3 --rollout colocated:0.1")
    assert answer["verdict"] == FITS
    assert "suggestions" not in answer


def test_that_nothing_helps_is_said() -> None:
    """One response of 20,000 tokens on cards of 12 GiB: all LoRA's states on 4 bits next to logits of 10 GB."""
    lengths = "--prompt-tokens 256 --response-tokens 20000 --samples-per-prompt 2 --global-batch 1"
    line = f"memory llama3-8b --task grpo --gpus 4 --hardware rtx-3060 --rollout separate:2 {lengths}"
    answer = run_line(line)
    assert "DOES NOT FIT" in answer.out
    assert "Nothing that napkin tries makes it fit" in answer.out


@pytest.mark.parametrize("command", ["memory", "step"])
def test_an_engine_without_room_for_a_response_is_refused(command: str) -> None:
    """15 GiB of weights on one card of 12 GiB leave no cache, in memory as in time."""
    answer = run_line(
        f"{command} llama3-8b --task grpo --gpus 2 --hardware rtx-3060 --rollout separate:1 --rollout-tp 1 {LENGTHS}"
    )
    assert answer.status == 3
    assert answer.err.startswith("error: the engine's share leaves no cache for a response of 1,280 tokens")


def test_a_suggestion_on_one_data_parallel_rank_leaves_out_the_sharding() -> None:
    line = (
        "memory llama3-8b --task grpo --gpus 8 --hardware a100-80gb --zero 1 --prompt-tokens 500 "
        "--response-tokens 6000 --samples-per-prompt 8 --global-batch 64 --rollout separate:4 --trainer nemo-rl "
        "--framework megatron-core"
    )
    found = run_line(f"{line} --json").data["suggestions"]
    assert any(one["change"] == "--tp 4 --zero 0" for one in found)
    for one in found:
        outcome = run_line(f"{one['command'].removeprefix('napkin ')} --json")
        assert (outcome.status, outcome.data["verdict"]) == (0, "fits"), one["command"]


def test_fewer_sequences_of_the_passes_are_suggested_where_these_decide() -> None:
    found = asked(f"memory {PASSES}")
    assert found["values"]["memory/total"] == found["values"]["memory/phase/logprobs"]
    assert all("--logprob-micro-batch" in one["change"] for one in found["suggestions"] if "gpus" not in one["change"])
    assert any("--logprob-micro-batch" in one["change"] for one in found["suggestions"])


@pytest.mark.parametrize(
    ("trainer", "levels"),
    [
        ("--trainer openrlhf", ["4", "2", "1"]),  # twice the update's 4
        ("--trainer openrlhf --logprob-micro-batch 6", ["3", "1"]),
        ("--trainer openrlhf --logprob-micro-batch 1", []),
        ("--trainer verl", ["1"]),  # packs 16,384 tokens, twelve sequences of the longest
        ("--trainer verl --max-response-tokens 16128", []),  # which the longest sequence fills
        ("--trainer trl --reference none", []),  # one sequence at a time
    ],
)
def test_the_passes_may_have_fewer_sequences_than_they_have(trainer: str, levels: list[str]) -> None:
    words = shlex.split(f"{HERE} {trainer}")
    given = {"model": OptionText(words[0])}
    for name, text in zip(words[1::2], words[2::2], strict=True):
        given[name.removeprefix("--")] = OptionText(text)
    found = read(Inputs(find("memory"), given), timed=False)
    setups = (found.setup, found.setups[0][1])
    axes = rollout_axes(found.model, setups, {}, 8, found.sharing, found.lengths, found.capacity)
    tried = [one["logprob-micro-batch"] for axis in axes if axis.name == "logprobs" for one in axis.levels]
    assert tried == levels


def test_a_plan_without_a_layout_names_the_command_that_tries_other_changes() -> None:
    line = "plan qwen2.5-7b --task grpo --gpus 2 --hardware rtx4090 --prompt-tokens 300 --response-tokens 1000"
    line += " --samples-per-prompt 8 --global-batch 64"
    refused = run_line(line)
    assert refused.status == 1
    hint = refused.err.split("hint: napkin ")[1].partition(" says what would fit")[0]
    found = run_line(f"{hint} --json").data["suggestions"]
    assert any("--lora-rank 16" in one["change"] for one in found)
    assert run_line(f"{line} --lora-rank 16").status == 0


def test_memory_that_does_not_fit_is_followed_by_a_command_that_fits() -> None:
    """70B of GRPO on 8 GPUs: `plan` has no layout for it, so the next command is one of the verified suggestions."""
    line = "memory llama3-70b --task grpo --gpus 8 --hardware h100 --prompt-tokens 300 --response-tokens 1000"
    out = run_line(f"{line} --samples-per-prompt 8 --global-batch 128").out
    assert "DOES NOT FIT" in out
    following = " ".join(out.split("next: napkin ")[1].replace("\\", " ").split())
    assert run_line(f"{following} --json").data["verdict"] == "fits"


def test_a_command_without_engines_names_no_option_of_them() -> None:
    asked = "qwen2.5-0.5b --task gkd --reference qwen2.5-7b --gpus 8 --hardware h100 --seq 2048 --global-batch 16"
    for command, named in ((f"mfu {asked} --step-time 3s", False), (f"step {asked}", True)):
        err = run_line(command).err
        assert "--task distill" in err
        assert ("--rollout" in err) == named

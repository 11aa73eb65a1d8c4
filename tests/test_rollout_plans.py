"""Plans of reinforcement learning, and the commands that follow an answer or are refused."""

from __future__ import annotations

import itertools
import re

import pytest

from napkin.evidence.figures.response_lengths import answers_within
from tests.conftest import run_line
from tests.test_rollouts import LENGTHS, LINE, values

PLAN = f"plan {LINE} --max-pp 1 --max-cp 1".replace(" --zero 3 --recompute full", "")


RUN = "--trainer nemo-rl --steps 100 --price 2 --goodput 1"


@pytest.mark.parametrize("more", ["", RUN, "--off-policy-steps 1 --rollout separate:4", "--offload optimizer"])
def test_each_way_of_a_plan_is_what_step_and_memory_answer(more: str) -> None:
    found = run_line(f"{PLAN} {more} --json").data
    ways = found["rows"]
    use = next(row for row in ways if row["recommended"])
    for row in (ways[0], use):
        step = values(row["command"].removeprefix("napkin "))
        assert row["step/time"] == pytest.approx(step["step/time"])
        line = re.sub(r"--(stack|off-policy-steps) \S+", "", row["command"]).removeprefix("napkin step")
        assert row["memory/total"] == pytest.approx(values(f"memory {line}")["memory/total"], rel=1e-6)
    assert found["values"]["step/time"] == use["step/time"]
    assert found["verdict"] == use["fit"] == "fits"
    assert all(one["step/time"] <= other["step/time"] for one, other in itertools.pairwise(ways[:5]))
    if "--steps" in more:
        hours = 100 * use["step/time"] * 8 / 3600
        assert found["values"]["cost"] == pytest.approx(2 * hours)


def test_a_plan_without_means_is_what_step_and_memory_answer() -> None:
    """Of verl, whose micro-batches have no padding: the times and the memory, and their intervals."""
    limits = "--max-prompt-tokens 500 --max-response-tokens 4096"
    line = PLAN.replace("--prompt-tokens 200 --response-tokens 1000", limits)
    found = run_line(f"{line} --trainer verl --json").data
    use = next(row for row in found["rows"] if row["recommended"])
    assert use["micro_batch"] > 1
    step = run_line(f"{use['command'].removeprefix('napkin ')} --json").data
    for name in ("values", "low", "high"):
        assert found[name]["step/time"] == pytest.approx(step[name]["step/time"])
        assert found[name]["memory/total"] == pytest.approx(step[name]["memory/total"], rel=1e-6)


def test_what_does_not_fit_is_followed_by_what_does() -> None:
    """The line below an answer that does not fit is a suggestion, which was evaluated."""
    said = run_line(f"memory {LINE.replace('--zero 3 --recompute full', '--zero 0')}").out
    assert "DOES NOT FIT" in said
    following = " ".join(said.split("next: napkin ")[1].replace("\\", " ").split())
    assert following.startswith("memory ")
    assert run_line(f"{following} --json").data["verdict"] == "fits"


def test_the_fewest_gpus_are_those_below_which_nothing_surely_fits() -> None:
    line = PLAN.replace("--gpus 8", "--tp 2 --micro-batch 1")
    found = run_line(f"{line} --min gpus --json")
    gpus = found.values["gpus"]
    assert found.data["verdict"] == "fits"
    fewer = run_line(f"{line} --gpus {gpus // 2} --json")
    assert fewer.status == 1 or fewer.data["verdict"] != "fits"


def test_the_batch_of_answers_counts_prompts() -> None:
    said = run_line("step llama3-8b --task grpo --hardware h100 --prompt-tokens 8 --response-tokens 8").err
    assert "--global-batch N: prompts of an optimizer step" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("step llama3-8b --task grpo --hardware h100 --response-tokens 8 --samples-per-prompt 8", "--prompt-tokens"),
        (f"step {LINE} --max-response-tokens 99", "is below the mean"),
        ("plan llama3-8b --task grpo --gpus 8 --hardware h100", "--prompt-tokens is missing"),
        (f"plan {LINE} --within 3d", "--within"),
        (f"plan {LINE} --rollout none".replace("--zero 3", ""), "chooses layout and engine of a step that generates"),
        (f"plan {LINE} --gpus 8..64", "for one number of GPUs"),
        (f"step {LINE} --seq 4096 --max-response-tokens 2000", "have 2,200 tokens together"),
        (f"step {LINE} --critic gpt2", "no value model"),
        (f"step {LINE} --rollout separate:8", "counts all"),
        (f"step {LINE} --rollout elsewhere", "is not understood"),
        ("step llama3-8b --hardware h100 --prompt-tokens 100", "only reinforcement learning"),
        (
            "memory llama3-70b --task grpo --gpus 2 --hardware h100 --zero 3 --rollout colocated:0.1 " + LENGTHS,
            "has 10% of each of 2 GPUs",  # and needs 141.1 GB / 2 of 85 GB for the weights alone
        ),
    ],
)
def test_what_has_no_meaning_is_refused(line: str, says: str) -> None:
    answer = run_line(line)
    assert answer.status in (2, 3)
    assert says in answer.err


MEANS = "--prompt-tokens 200 --response-tokens 1000"


def following(line: str) -> str:
    """Return the command that an answer suggests next."""
    return " ".join(run_line(line).out.split("next: napkin ")[1].replace("\\", " ").split())


@pytest.mark.parametrize("longest", ["--max-prompt-tokens 500", "--prompt-tokens 200"])
def test_memory_is_followed_by_a_step_that_assumes_means_below_maxima(longest: str) -> None:
    """The step covers other means in its interval, so the line to paste names none."""
    line = LINE.replace(MEANS, f"{longest} --max-response-tokens 3500") + " --tp 4"
    assert following(f"memory {line}").startswith("step ")
    assert values(following(f"memory {line}")) == values(f"step {line}")


def test_memory_is_followed_by_likely_means_of_lengths_without_maxima() -> None:
    """4,000 tokens of which a prompt has 200 leave 3,800 for the response."""
    line = LINE.replace(MEANS, "--seq 4000 --prompt-tokens 200") + " --tp 4"
    assert following(f"memory {line}").endswith(f"--response-tokens {answers_within(3800, 'llama').likely}")

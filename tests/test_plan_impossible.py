"""What `plan` answers where nothing fits, a limit is missed, or what is asked cannot be."""

from __future__ import annotations

import pytest

from napkin.planning.verdicts import FITS
from tests.conftest import Napkin
from tests.test_plan import SMALL


@pytest.mark.parametrize(
    ("line", "reason", "nearest"),
    [
        ("plan llama3-70b --gpus 8 --hardware h100 --seq 8192", "none of", "--gpus 16"),
        ("plan llama3-8b --gpus 64 --hardware h100 --tp 3", "does not divide the attention heads (32)", "--tp 4"),
        ("plan llama3-8b --gpus 61 --hardware h100 --global-batch 64", "divides the batch of 64", "--gpus 64"),
        (
            "plan llama3-8b --gpus 8 --hardware h100 --global-batch 64 --grad-accum 5",
            "--grad-accum 5 does not divide the batch of 64",
            "--grad-accum 4",
        ),
        (
            "plan llama3-8b --gpus 8 --hardware h100 --max-global-batch 2 --optimizer-in-backward --dp 3",
            "not a multiple of 3",
            "--dp 2",
        ),
        ("plan llama3-8b --gpus 64 --hardware h100 --dp 48", "not a multiple of 48", "--dp 64"),
        ("plan llama3-70b --gpus 64 --hardware h100 --zero 0 --tp 1 --pp 1", "none of", ""),
    ],
)
def test_the_impossible_is_answered_with_the_nearest_possible(
    napkin: Napkin, line: str, reason: str, nearest: str
) -> None:
    outcome = napkin(line)
    assert outcome.status == 1
    assert reason in " ".join(outcome.out.split())
    assert f"nearest: {nearest}" in outcome.out
    assert outcome.out.splitlines()[1].startswith("  IMPOSSIBLE: ")
    assert napkin(f"{line} --json").data["rows"]


def test_what_is_no_layout_is_tried_where_no_layout_fits(napkin: Napkin) -> None:
    """A host keeps 12 bytes per parameter of AdamW's master copies and moments; LoRA is no pre-training, so that the
    next command is the other. The answer to a suggestion's command is the suggestion's."""
    line = "plan llama3-8b --gpus 1 --hardware h100"
    found = napkin(f"{line} --json").data
    assert found["verdict"] == "impossible"
    rows = {row["change"]: row for row in found["suggestions"]}
    assert "trains" in rows["--lora-rank 16"]
    offloaded = rows["--offload optimizer"]
    assert offloaded["host"] == pytest.approx(12 * 8_030_261_248, rel=1e-6)  # and a step count per tensor
    again = napkin(offloaded["command"].removeprefix("napkin ") + " --json")
    assert again.data["verdict"] == "fits"
    assert again.values["memory/total"] == offloaded["used"]
    assert again.values["step/time"] == offloaded["step/time"]
    shown = napkin(line).out
    assert "would fit with" in shown
    assert "token/s" in shown  # steps of each have another batch
    assert offloaded["command"].split() == [word for word in shown.partition("next: ")[2].split() if word != "\\"]


def test_several_machines_on_which_nothing_fits_are_answered_as_the_largest(napkin: Napkin) -> None:
    several, one = (napkin(f"plan llama3-70b --gpus {gpus} --hardware h100 --json") for gpus in ("4,8", "8"))
    assert several.status == one.status == 1
    assert several.data["reasons"] == one.data["reasons"]
    assert several.data["suggestions"] == one.data["suggestions"]


def test_a_plan_says_what_else_was_tried_where_nothing_fits(napkin: Napkin) -> None:
    """24 GB hold no layer of 405B with its gradients; where no layout divides the model, no option helps."""
    found = napkin("plan llama3-405b --gpus 1 --hardware rtx4090 --json").data
    assert found["suggestions"] == []
    assert found["reasons"][-1].startswith("none fits with other --lora-rank, --quantized, --optimizer, --offload")
    assert "suggestions" not in napkin("plan llama3-70b --gpus 8 --hardware h100 --tp 3 --json").data


@pytest.mark.parametrize(
    "line",
    [
        "llama3-8b --task sft --hardware rtx5090 --seq 4096",
        "llama3-8b --hardware rtx4090",
        "llama3-405b --hardware h100",
        "gpt3-175b --hardware a100",
        "qwen2.5-7b --task dpo --hardware a100",
    ],
)
def test_the_fewest_gpus_of_a_plan_are_no_more_than_memory_finds(napkin: Napkin, line: str) -> None:
    """`memory` searches data-parallel ranks with ZeRO-3, which a plan has too; what is recommended surely fits."""
    plan, memory = (napkin(f"{command} {line} --min gpus --json") for command in ("plan", "memory"))
    assert plan.data["verdict"] == memory.data["verdict"] == "fits"
    assert plan.values["gpus"] <= memory.values["gpus"]


def test_a_run_is_planned_on_gpus_whose_recommended_layout_fits(napkin: Napkin) -> None:
    """A layout that surely fits may be far slower than one that may: without a run it is enough; with one, more GPUs
    are, if any are."""
    line = "plan llama3-8b --task sft --hardware gh200 --min gpus --json"
    alone, run = napkin(line), napkin(f"{line} --tokens 10M")
    assert alone.values["gpus"] < run.values["gpus"]
    assert alone.values["mfu"] < run.values["mfu"]
    line = "plan llama3-8b --task sft --hardware t4 --min gpus --json"
    alone, none = napkin(line), napkin(f"{line} --tokens 10M")
    assert none.data["verdict"] == "fits"
    assert none.values["gpus"] == alone.values["gpus"]


def test_the_nearest_machine_is_indeed_possible(napkin: Napkin) -> None:
    line = "plan llama3-70b --gpus {} --hardware h100 --seq 8192 --json"
    words = napkin(line.format(8)).data["nearest"].split()
    assert words[0] == "--gpus"
    enough = int(words[1].replace(",", ""))
    assert napkin(line.format(enough)).status == 0
    assert all(napkin(line.format(fewer)).status == 1 for fewer in range(16, enough, 8))


def test_a_prime_machine_is_answered_where_data_parallelism_alone_fits(napkin: Napkin) -> None:
    rows = napkin("plan llama3-8b --gpus 13 --hardware h100 --seq 4096 --json").data["rows"]
    assert all(13 in (row["dp"], row["pp"]) for row in rows)


def test_too_slow_is_impossible(napkin: Napkin) -> None:
    assert napkin(f"{SMALL} --gpus 16 --tokens 15T --within 30d").status == 1
    assert napkin(f"{SMALL} --gpus 16 --tokens 100B --within 90d").status == 0


def test_the_fewest_gpus_are_enough_and_half_are_not(napkin: Napkin) -> None:
    found = napkin(f"{SMALL} --objective gpus --tokens 1T --within 80d --json").values
    assert found["time"] <= 80 * 86400
    slower = napkin(f"{SMALL} --gpus {found['gpus'] // 2} --tokens 1T --within 80d")
    assert slower.status == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan llama3-8b --hardware h100 --objective time", "--gpus is missing"),
        ("plan llama3-8b --hardware h100 --within 3d", "--within needs --tokens"),
        ("plan llama3-8b --hardware mi250x --gpus 8 --tokens 1T --budget 1000", "--budget needs --price"),
        ("plan llama3-8b --hardware h100 --tokens 1T --budget 200k", "--budget does not determine --gpus"),
        ("plan llama3-8b --hardware h100 --gpus 16..8", "empty range"),
        ("plan llama3-8b --hardware h100 --gpus 8 --objective speed", "not one of"),
        ("plan llama3-8b --hardware h100 --gpus 8..16 --within 3d", "--within needs --tokens"),
        ("plan llama3-8b --hardware h100 --gpus 8 --stack megatron-xl", "unknown stack"),
        ("plan llama3-9b --hardware h100 --gpus 8", "llama3-9b"),
    ],
)
def test_what_plan_refuses(napkin: Napkin, line: str, words: str) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert words in outcome.err
    assert outcome.out == ""


def test_the_fewest_gpus_that_fit_are_found_without_a_deadline(napkin: Napkin) -> None:
    line = "plan llama3-8b --hardware h100 --seq 8192 --global-batch 32"
    found = napkin(f"{line} --json").data
    assert found["values"] == napkin(f"{line} --min gpus --json").data["values"]
    gpus = found["values"]["gpus"]
    assert found["inputs"]["gpus"]["origin"] == "solved"
    (chosen,) = (row for row in found["rows"] if row["recommended"])
    assert chosen["fit"] == FITS
    assert napkin(f"{line} --gpus {gpus} --json").data["rows"] == found["rows"]
    fewer = napkin(f"{line} --gpus {gpus // 2} --json").data
    assert fewer.get("reasons") or not any(row["recommended"] and row["fit"] == FITS for row in fewer["rows"])
    assert napkin(f"{line} --min gpus --objective time").status == 2


RUN = "plan llama3-8b --hardware h100 --tokens 1T --gpus 64 --price 2"


@pytest.mark.parametrize(
    ("limits", "mark", "following"),
    [
        ("--budget 10", "over", "step"),
        ("--budget 50k --within 10d", "late, over", "step"),
        ("--budget 90k --within 10d", "late", "plan"),
        ("--within 1h", "late", "step"),
        ("--within 10d", "late", "plan"),
    ],
)
def test_a_missed_limit_is_marked_and_what_follows_can_be_answered(
    napkin: Napkin, limits: str, mark: str, following: str
) -> None:
    """More GPUs keep a deadline, but hardly lower a cost: the fewest are proposed only if there are some."""
    answer = napkin(f"{RUN} {limits}")
    first, head, _, row, *_ = answer.out.splitlines()
    assert answer.status == 1
    assert row.endswith(f"  {mark}")
    assert "BROKEN" in head
    if "--budget" in limits:
        assert ", for $" in first
        assert head.split()[2].startswith("$5")
    line = " ".join(answer.out.partition("next: napkin ")[2].replace("\\\n", " ").split())
    assert line.split()[0] == following
    assert napkin(line).status in (0, 4)


def test_the_best_of_several_machines_has_its_cost_next_to_the_budget(napkin: Napkin) -> None:
    lines = napkin("plan llama3-8b --hardware h100 --tokens 1T --gpus 64,128 --price 2 --budget 10k").out.splitlines()
    assert "for $10,000" in lines[0]
    gpus, _, days, _, cost, *_ = lines[1].split()
    hours = float(days) * 24 * int(gpus)
    assert float(cost.strip("$").replace(",", "")) == pytest.approx(2 * hours, rel=1e-3)
    assert all(line.endswith("over") for line in lines[3:5])


def test_the_nearest_machine_keeps_the_deadline_and_is_judged_as_one_that_is_named(napkin: Napkin) -> None:
    """$100,000 at $3.67 are 27,248 GPU-hours, a few percent fewer than the run takes, inside its interval: the machine
    that keeps the deadline is too close to call, and not impossible on 4 GPUs in 300 days. Half of that is outside."""
    question = "plan llama3-8b --tokens 1T --hardware h100 --within 30d --rows 1"
    line = f"{question} --price 3.67 --budget"
    close, in_time = napkin(f"{line} 100k --json"), napkin(f"{question} --json")
    gpus = int(in_time.values["gpus"])
    named = napkin(f"{line} 100k --gpus {gpus} --json")
    assert (close.status, close.data["verdict"]) == (named.status, named.data["verdict"]) == (4, "too close to call")
    assert close.values["gpus"] == gpus > 4
    assert close.values["time"] <= 30 * 86_400
    assert close.values["cost"] == pytest.approx(named.values["cost"])
    over = napkin(f"{line} 50k --json")
    assert (over.status, over.data["verdict"]) == (1, "impossible")
    assert over.data["nearest"].startswith(f"{gpus} GPUs")
    assert "TOO CLOSE TO CALL: within 30 days and for $100,000" in napkin(f"{line} 100k").out.splitlines()[1]


TUNED = "plan llama3.1-8b --task dpo --lora-rank 16 --quantized nf4 --hardware rtx-4090 --samples 60k"


def _recommended(napkin: Napkin, line: str) -> dict[str, object]:
    """Return the recommended row of a plan."""
    (row,) = [row for row in napkin(f"{line} --json").data["rows"] if row["recommended"]]
    return dict(row)


def test_samples_that_are_joined_are_not_split_over_gpus(napkin: Napkin) -> None:
    line = f"{TUNED} --sample-tokens 400 --gpus 4"
    assert {row["cp"] for row in napkin(f"{line} --json").data["rows"]} == {1}
    assert _recommended(napkin, f"{line} --max-cp 4")["cp"] == 4
    longer = f"plan llama3.1-8b --task sft --hardware h100 --gpus 8 --samples 1k --seq {2**17}"
    assert _recommended(napkin, f"{longer} --sample-tokens {2**17}")["cp"] == 8


def test_joined_samples_are_split_where_the_batch_has_fewer_than_gpus(napkin: Napkin) -> None:
    line = "plan llama3.1-8b --task sft --hardware h100 --gpus 256 --samples 52k --sample-tokens 270"
    found = _recommended(napkin, line)
    assert (found["dp"], found["cp"]) == (128, 2)  # a batch of up to 128 sequences


def test_fine_tuning_that_may_not_fit_has_changes_with_which_it_does(napkin: Napkin) -> None:
    found = napkin(f"{TUNED} --sample-tokens 400 --gpus 4 --json").data
    assert found["verdict"] == "too close to call"
    changes = [row["change"] for row in found["suggestions"]]
    assert "--loss fused" in changes
    assert "--seq 2048" in changes
    fused = napkin(f"{TUNED} --sample-tokens 400 --gpus 4 --loss fused --json")
    assert fused.data["verdict"] == "fits"


def test_a_layout_that_is_too_close_to_call_is_said_to_be(napkin: Napkin) -> None:
    options = "gemma3-4b --seq 16384 --hardware a100 --gpus 1 --task sft --trainer axolotl --recompute full"
    outcome = napkin(f"plan {options} --global-batch 1")
    assert outcome.status == 1
    assert "too close to call: its interval begins below that" in " ".join(outcome.out.split())
    assert "TOO CLOSE TO CALL" in napkin(f"memory {options}").out

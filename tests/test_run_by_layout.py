"""`train-time` of a MODEL whose layout is given: the step model says what it takes, as `step` and `plan` do."""

from __future__ import annotations

import math

import pytest

from napkin.errors import NapkinError
from napkin.planning.fewest import EIGHTHS, fewest, machines
from tests.conftest import Napkin

RUN = "gpt2 --tokens 300B --hardware h100"
LAYOUT = "--tp 1 --pp 1 --cp 1 --vp 1 --zero 1 --micro-batch 8 --recompute none --implementation megatron"


def test_a_deadline_finds_the_fewest_gpus_of_this_very_layout(napkin: Napkin) -> None:
    line = f"{RUN} {LAYOUT} --seq 1024 --global-batch 512"
    found = napkin(f"train-time {line} --within 2d --json").data
    gpus, time = found["values"]["gpus"], found["values"]["time"]
    assert found["inputs"]["gpus"]["origin"] == "solved"
    assert found["values"]["time/allowed"] == 2 * 86400
    assert time <= 2 * 86400
    step = napkin(f"step {line.replace('--tokens 300B ', '')} --gpus {gpus} --json").values
    assert time == pytest.approx(300e9 / (512 * 1024) * step["step/time"] / found["values"]["goodput"])
    assert napkin(f"train-time {line} --gpus {gpus} --json").values["time"] == pytest.approx(time)
    fewer = napkin(f"train-time {line} --gpus {gpus // 2} --json").values["time"]
    assert fewer > 2 * 86400


def test_plan_with_every_degree_given_finds_the_same(napkin: Napkin) -> None:
    line = f"{RUN} {LAYOUT} --seq 1024 --global-batch 512 --within 2d"
    mine, plan = napkin(f"train-time {line} --json").values, napkin(f"plan {line} --json").values
    assert mine["gpus"] == plan["gpus"]
    assert mine["time"] == pytest.approx(plan["time"])


def test_degrees_with_dp_say_how_many_gpus(napkin: Napkin) -> None:
    found = napkin("train-time llama3-8b --tokens 1T --hardware h100 --dp 16 --tp 2 --json").data
    assert found["inputs"]["gpus"] == {"value": 32, "origin": "derived", "given": None}
    assert found["values"] == napkin("train-time llama3-8b --tokens 1T --hardware h100 --gpus 32 --tp 2 --json").values


HELD = [("32", "30d", "broken", 1), ("64", "40d", "too close to call", 4), ("64", "90d", "holds", 0)]


@pytest.mark.parametrize(("gpus", "within", "verdict", "status"), HELD)
def test_a_layout_on_given_gpus_is_checked_against_the_deadline(
    napkin: Napkin, gpus: str, within: str, verdict: str, status: int
) -> None:
    found = napkin(f"train-time llama3-8b --tokens 1T --hardware h100 --gpus {gpus} --tp 2 --within {within} --json")
    assert found.data["verdict"] == verdict
    assert found.status == status


def test_a_deadline_that_no_number_meets_says_why(napkin: Napkin) -> None:
    found = napkin("train-time llama3-8b --tokens 100B --hardware h100 --within 1h --zero 3 --global-batch 64")
    assert found.status == 1
    assert "no number of GPUs up to 64 trains" in found.err
    assert "a larger --global-batch" in found.err


def test_the_fewest_are_whole_nodes_and_multiples_of_the_degrees() -> None:
    def found(need: int, counts: list[int], parts: int | None = None) -> int:
        gpus = fewest(lambda n: n >= need, counts, parts).gpus
        assert gpus is not None
        return gpus

    for need in (1, 3, 5, 8, 9, 17, 40, 100, 1000):
        exact = found(need, machines(8))
        assert exact == (1 << (need - 1).bit_length() if need <= 8 else 8 * math.ceil(need / 8))
        assert exact <= found(need, machines(8), EIGHTHS) <= max(exact * 9 / 8, exact + 8)
        by_six = found(need, machines(8, 6))
        assert by_six == (6 if need <= 6 else 12 if need <= 12 else 24 * math.ceil(need / 24))
    assert fewest(lambda n: False, machines(8)).gpus is None


def test_the_ranks_of_the_fewest_divide_the_batch() -> None:
    """Of a batch of 96 with replicas of 2 GPUs and pairs of ranks: 2 · (2, 4, …, 96), whole nodes if there are."""
    assert machines(8, 2, 96, 2) == [4, 8, 16, 24, 32, 48, 64, 96, 192]
    assert machines(8, 1, 12) == [1, 2, 4, 6, 12]  # no whole node divides 12 sequences: what is larger counts too
    assert machines(8, 1, 7, 2)[:3] == [2, 4, 8]  # no number of ranks does: asking any of them says why


def test_a_refused_number_of_gpus_does_not_refuse_others() -> None:
    def even(n: int) -> bool:
        if n % 2:
            raise NapkinError(f"{n} is odd", f"{n + 1} is not")
        return n >= 20

    assert fewest(even, list(range(1, 100))).gpus == 20
    nothing = fewest(even, [1, 3, 7])
    assert not nothing.asked
    with pytest.raises(NapkinError, match="1 is odd"):
        nothing.or_refuse("too few", "more")
    few = fewest(even, [1, 2, 6])
    with pytest.raises(NapkinError, match="too few") as refused:
        few.or_refuse("too few", "more")
    assert refused.value.status == 1
    assert refused.value.hint == "1 is odd; more"


def test_the_fewest_gpus_carry_the_interval_of_the_step(napkin: Napkin) -> None:
    line = "train-time llama3-8b --tokens 1T --hardware h100 --tp 2 --global-batch 512"
    found = napkin(f"{line} --within 30d --json").data
    low, high = found["low"]["gpus"], found["high"]["gpus"]
    assert low <= found["values"]["gpus"] <= high
    line += f" --zero {found['inputs']['zero']['value']} --recompute {found['inputs']['recompute']['value']}"
    there = napkin(f"{line} --gpus {found['values']['gpus']} --within 30d --json").data
    for name in ("values", "low", "high"):
        assert there[name]["time"] == pytest.approx(found[name]["time"])
    assert napkin(f"{line} --gpus {high} --within 30d --json").data["verdict"] == "holds"
    half = napkin(f"{line} --gpus {low // 2} --within 30d --json").data
    assert half["verdict"] == "broken"


NO_NUMBER = [
    ("memory llama3-8b --hardware h100 --min gpus --tp 3", 2, "--tp 3 does not divide the attention heads"),
    ("memory deepseek-v3 --hardware h100 --min gpus --ep 3", 2, "--ep 3 does not divide the experts"),
    ("memory llama3-8b --hardware h100 --min gpus --pp 40", 2, "more than the 32 layers"),
    ("memory llama3-70b --hardware h100 --min gpus --micro-batch 4000", 1, "any number of GPUs up to 1,048,576"),
    ("memory llama3-8b --hardware rtx-4090 --min gpus --inference --batch 1000000", 1, "up to 32, its heads"),
    ("train-time llama3-8b --tokens 1T --hardware h100 --tp 3 --within 30d", 2, "--tp 3 does not divide"),
]


@pytest.mark.parametrize(("line", "status", "why"), NO_NUMBER)
def test_where_no_number_of_gpus_serves_the_reason_is_kept(napkin: Napkin, line: str, status: int, why: str) -> None:
    found = napkin(line)
    assert found.status == status
    assert why in found.err


LARGE = "llama3-70b --hardware h100 --lora-rank 16 --tokens 100M"


@pytest.mark.parametrize(("more", "status"), [("", 0), ("--within 2h", 1)])
def test_a_layout_that_does_not_fit_says_so_as_memory_does(napkin: Napkin, more: str, status: int) -> None:
    found = napkin(f"train-time {LARGE} --gpus 24 {more} --json")
    memory = napkin(f"memory {LARGE.replace(' --tokens 100M', '')} --gpus 24 --json")
    assert found.data["verdict"] == memory.data["verdict"] == "does not fit"
    assert found.values["memory/total"] == memory.values["memory/total"]
    assert found.status == status
    said = f"DOES NOT FIT {memory.values['memory/total'] / 2**30:.1f} of 79.2 GiB"
    assert said in napkin(f"train-time {LARGE} --gpus 24 {more}").out.splitlines()[1]


@pytest.mark.parametrize("more", ["", "--zero 3", "--tp 8", "--zero 1 --recompute full --tp 8"])
def test_the_fewest_gpus_in_time_are_some_that_fit(napkin: Napkin, more: str) -> None:
    line = f"{LARGE} {more}"
    found = napkin(f"train-time {line} --min gpus --within 1h --json")
    taken = {name: found.data["inputs"][name]["value"] for name in ("zero", "recompute")}
    options = " ".join(f"--{name} {text}" for name, text in taken.items() if f"--{name}" not in more)
    held = napkin(f"memory {line.replace('--tokens 100M', '')} {options} --gpus {found.values['gpus']} --json")
    assert held.data["verdict"] == "fits"
    again = napkin(f"train-time {line} {options} --gpus {found.values['gpus']} --json").values
    assert again["time"] == pytest.approx(found.values["time"])
    assert again["time"] <= 3600


def test_a_deadline_that_only_layouts_too_large_would_meet_is_refused(napkin: Napkin) -> None:
    found = napkin(f"train-time {LARGE} --zero 0 --min gpus --within 1h")
    assert found.status == 1
    assert "no number of GPUs up to 1,048,576 fits and trains" in found.err


@pytest.mark.parametrize(
    "asked",
    [
        "llama3-8b --tokens 10B --within 2d --budget 1k --price 2",
        "llama3-8b --tokens 100B --gpus 64 --budget 1000 --price 2",
        "llama3-8b --tokens 10B --gpus 11 --within 2d --budget 1k --price 2",
        "llama3-8b --tokens 10B --within 2d --mfu 0.4 --budget 1k --price 2",
        "llama3-8b --tokens 1T --gpus 64 --tp 2 --budget 10 --price 2",
        "llama3-8b --tokens 1T --gpus 64 --tp 2 --budget 10 --price 2 --within 10d",
        "--params 8B --tokens 10B --within 2d --budget 1k --price 2",
        "--params 8B --tokens 100B --gpus 64 --budget 1000 --price 2",
    ],
)
def test_what_follows_a_budget_is_another_question_with_an_answer(napkin: Napkin, asked: str) -> None:
    line = f"train-time {asked} --hardware h100"
    proposed = napkin(line).out.partition("next: napkin ")[2].replace("\\\n", " ").split()
    assert sorted(proposed) != sorted(line.split())
    answer = napkin(" ".join(proposed))
    assert answer.out, answer.err
    assert not answer.err


def test_a_run_whose_states_nothing_divides_is_asked_of_plan(napkin: Napkin) -> None:
    """671B parameters on every GPU fit none; an option of the step without a layout means plain data parallelism."""
    out = napkin("train-time deepseek-v3 --tokens 14.8T --gpus 2048 --hardware h800 --precision fp8-mixed").out
    assert "DOES NOT FIT" in out
    assert "next: napkin plan deepseek-v3 --tokens 14.8T --gpus 2048 --hardware h800" in out


def test_memory_that_is_too_close_to_call_keeps_the_interval_of_the_time(napkin: Napkin) -> None:
    line = napkin(
        "train-time llama3.1-8b --tokens 100B --gpus 64 --hardware h100 --zero 3 --seq 8192"
    ).out.splitlines()[1]
    assert "90%: " in line
    assert "TOO CLOSE TO CALL" in line


def test_the_question_states_the_layout_that_is_timed(napkin: Napkin) -> None:
    """Without degrees a run is data parallel, which an option of the step model alone does not tell."""
    line = "train-time llama3-8b --tokens 1B --gpus 1024 --hardware h100"
    assert napkin(f"{line} --precision fp8-mixed").out.splitlines()[0].endswith("80GB, dp 1,024")
    assert napkin(f"{line} --tp 8 --zero 1").out.splitlines()[0].endswith("tp 8, dp 128, ZeRO-1")
    assert "dp" not in napkin(line).out.splitlines()[0]


def test_a_budget_alone_pays_for_fine_tuning_on_the_fewest_gpus_it_fits_on(napkin: Napkin) -> None:
    line = "llama3.1-8b --task sft --lora-rank 16 --quantized nf4 --hardware rtx-4090 --price 0.4 --budget 20"
    found = napkin(f"train-time {line} --json").data
    assert found["values"]["gpus"] == 1
    assert found["inputs"]["zero"]["value"] == "0"  # one GPU has nothing to shard
    assert found["inputs"]["recompute"]["value"] == "full"
    same = napkin(f"train-time {line} --gpus 1 --recompute full --json").values
    assert found["values"]["tokens"] == pytest.approx(same["tokens"])
    assert found["values"]["time"] == pytest.approx(20 / 0.4 * 3600)


def test_a_budget_for_what_fits_nowhere_says_so(napkin: Napkin) -> None:
    line = "llama3.1-405b --task sft --hardware t4 --price 0.4 --budget 20 --micro-batch 64 --zero 0"
    found = napkin(f"train-time {line}")
    assert found.status == 1
    assert "not certain to fit on any number of GPUs" in found.err

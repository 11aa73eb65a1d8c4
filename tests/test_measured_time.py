"""`train-time` from a measured rate, and next to the same run if it is published."""

from __future__ import annotations

import pytest

from tests.conftest import run_line

RUN = "train-time --params 7B --tokens 1T --gpus 64 --hardware h100"
DAY = 86400


def test_a_measured_rate_is_the_time_without_interruptions() -> None:
    """10¹² tokens at 500,000 a second are 2,000,000 s; MFU 6 · 7·10⁹ · 500,000 / (64 · 989.4·10¹²)."""
    found = run_line(f"{RUN} --tokens-per-second 500k --json").values
    assert found["time/uninterrupted"] == pytest.approx(2_000_000)
    assert found["time"] == pytest.approx(2_000_000 / found["goodput"])
    assert found["mfu/while_running"] == pytest.approx(6 * 7e9 * 500_000 / (64 * 989.4e12))
    assert found["mfu"] == pytest.approx(found["mfu/while_running"] * found["goodput"])
    assert 0.5 < found["goodput"] < 1
    alone = run_line(f"{RUN} --tokens-per-second 500k --goodput 1 --json").values
    assert alone["time"] == pytest.approx(2_000_000)


def test_a_rate_is_of_the_job_a_gpu_or_a_log() -> None:
    job = run_line(f"{RUN} --tokens-per-second 512k --json").values
    gpu = run_line(f"{RUN} --tokens-per-second-per-gpu 8k --json").values
    assert gpu["time"] == pytest.approx(job["time"])
    mfu = run_line("mfu --params 7B --gpus 64 --hardware h100 --tokens-per-second 512k --json").values
    assert job["mfu/while_running"] == pytest.approx(mfu["mfu/6nd"])
    machine = run_line(f"{RUN.replace('--gpus 64', '')} --tokens-per-second-per-gpu 8k --within 20d --json").values
    assert machine["gpus/exact"] == pytest.approx(1e12 / 8000 / (20 * DAY) / machine["goodput"])


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("--tokens-per-second 1M --mfu 0.4", "both say how fast"),
        ("--tokens-per-second 1M --tokens-per-second-per-gpu 1k", "cannot be combined"),
        ("--tokens-per-second 0", "--tokens-per-second"),
        ("--tokens-per-second 1M --confidence 80", "nothing is estimated"),
    ],
)
def test_contradictions_are_refused(more: str, says: str) -> None:
    outcome = run_line(f"{RUN} {more}")
    assert outcome.status == 2
    assert says in outcome.errors[0]


def test_an_impossible_rate_is_reported() -> None:
    outcome = run_line(f"{RUN} --tokens-per-second 100M --json")
    assert (outcome.status, outcome.data["verdict"]) == (1, "impossible")


def test_the_same_run_is_shown_where_it_is_published() -> None:
    """Touvron et al. 2023, table 2: Llama 2 7B on 2T tokens took 184,320 A100 hours."""
    line = "train-time llama2-7b --tokens {} --hardware {} --gpus 512"
    same = run_line(line.format("2T", "a100") + " --json").data
    assert [(one["id"], one["gpu_hours"]) for one in same["published_runs"]] == [("llama2-7b", 184_320)]
    assert "published: Llama 2 7B 184,320 GPU-hours" in run_line(line.format("2T", "a100")).out
    for tokens, hardware in (("3T", "a100"), ("2T", "h100")):
        assert run_line(line.format(tokens, hardware) + " --json").data["published_runs"] == []


LINE = "elapsed time per iteration (ms): 2048.0 | global batch size: 64"
TFLOPS = "throughput per GPU (TFLOP/s/GPU): 412.0"


@pytest.mark.parametrize(
    ("who", "tokens"),
    [("llama3-8b --seq 8192", 64 * 8192), ("llama3-8b", 64 * 4096), ("--params 8B --seq 2k", 128_000)],
)
def test_a_log_of_steps_takes_the_tokens_of_a_sequence(who: str, tokens: int) -> None:
    """--seq, else the model's; 2.048 s a step of 64 sequences."""
    found = run_line(["train-time", *who.split(), *RUN.split()[3:], "--log", LINE, "--json"]).values
    assert found["time/uninterrupted"] == pytest.approx(1e12 / (tokens / 2.048))


def test_the_hint_for_a_missing_length_names_what_would_give_it() -> None:
    outcome = run_line([*RUN.split(), "--log", LINE])
    assert (outcome.status, outcome.hints) == (2, ["hint: --seq N, or MODEL in place of --params"])


@pytest.mark.parametrize("more", ["", " --flops palm"])
def test_a_logged_speed_is_the_same_run_in_both_commands(more: str) -> None:
    """TFLOP/s that a log states are counted as `napkin mfu` counts them: tokens per second are the same."""
    run = f"llama3-8b --seq 8192 --gpus 64 --hardware h100{more} --json"
    time = run_line([*f"train-time {run} --tokens 1T".split(), "--log", TFLOPS]).values["time/uninterrupted"]
    rate = run_line([*f"mfu {run}".split(), "--log", TFLOPS]).values["tokens_per_second"]
    assert time == pytest.approx(1e12 / rate)

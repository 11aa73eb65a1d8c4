"""What failures, checkpoints and restarts take of a run: published runs, hand-derived shares, laws."""

from __future__ import annotations

import math
from statistics import median

import pytest

from napkin.evidence.figures.failures import FAILURES, HOUR, published
from napkin.evidence.figures.goodput import PUBLISHED
from napkin.evidence.figures.goodput import published as goodput_of
from napkin.evidence.rates.constants import deviations
from napkin.term import fold, leaf
from napkin.timing.goodput import Goodput
from napkin.timing.interruptions import CheckpointWrite, Interruptions, useful
from tests.conftest import Napkin

SECOND = CheckpointWrite(leaf("fixed", 1.0, "second"), leaf("rate", 1e9, "byte/s/node"), leaf("each", 0, "byte/GPU"))
"""A checkpoint that blocks for a second."""
PLAN = "plan llama3-8b --hardware h100 --tokens 1T"


def on(gpus: int, spare: bool = False, states: float = 0.0) -> Goodput:
    share = PUBLISHED["production"].share
    found = Goodput(share, 0.13, interruptions=published(share, spare))
    saving = found.saving(leaf("states", states, "byte")) if states else found
    return saving.on(leaf("gpus", gpus, "GPU"))


def test_the_share_that_failures_leave_by_hand() -> None:
    """A failure a day, 60 s a checkpoint, 600 s a restart: an hour between checkpoints loses 60/3600 to writing, half
    an hour and a restart to each failure, to first order in each."""
    day = 86400.0
    share = useful(3600 / day, 60 / day, 600 / day)
    assert share == pytest.approx(1 / (1 + 60 / 3600) * (1 - (600 + (3600 + 60) / 2) / day), rel=1e-3)
    assert useful(1e-6, 0, 0) == pytest.approx(1)
    assert 0 < useful(5, 5, 1e6) < 1e-9


def test_youngs_interval_is_the_best_one() -> None:
    """To the next order in w/M: Daly's correction is below 1 % here."""
    for write in (1e-6, 1e-5):
        best = math.sqrt(2 * write)
        at = [useful(best * factor, write, 0.01) for factor in (0.7, 1, 1.4)]
        assert at[1] > max(at[0], at[2])


@pytest.mark.parametrize(
    ("gpus", "states", "reached"),
    [
        # Llama 3, arXiv:2407.21783, section 3.3.4: higher than 90 % of 54 days, 419 interruptions
        (16_384, 405e9 * 14, 0.90),
        (384, 2.3e12, 0.92),  # BLOOM: 82,072 steps of 105 s in 108 days, its chronicles
        (9_600, 0.0, 0.97),  # ByteRobust, arXiv:2509.16293: up to 97 % over three months
    ],
)
def test_published_runs_lie_in_the_interval(gpus: int, states: float, reached: float) -> None:
    """OPT-175B does not: 33 days of training in 56 (0.59), with a cluster that was deleted among what took the rest."""
    low, high = on(gpus, states=states).ends(deviations(0.9))
    assert low < reached < high


def test_what_a_checkpoint_holds_and_how_long_it_blocks(napkin: Napkin) -> None:
    """14 bytes for each of 8.03e9 parameters, and the steps of the optimizer; 2.3 TB took BLOOM 40 s; LoRA saves its
    adapters only."""
    full = napkin(f"{PLAN} --gpus 64 --json").values
    assert full["checkpoint/bytes"] == pytest.approx(8_030_261_248 * 14, rel=1e-6)
    assert full["checkpoint/interval"] == pytest.approx(math.sqrt(2 * full["checkpoint/blocked"] * full["mtbf"]))
    checked = napkin("checkpoint llama3-8b --json").values
    assert full["checkpoint/bytes"] == pytest.approx(checked["checkpoint/bytes"], rel=1e-6)
    lora = napkin(f"{PLAN} --gpus 64 --lora-rank 16 --json").values
    adapters = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert lora["checkpoint/bytes"] < adapters * 16
    assert lora["checkpoint/blocked"] < full["checkpoint/blocked"]
    write = published(PUBLISHED["production"].share, False).saving(leaf("states", 2.3e12, "byte")).write
    assert 30 < write.seconds(leaf("gpus", 384, "GPU")).value < 70
    one = napkin("checkpoint 7B --gpus 1 --json").values["checkpoint/write_time"]
    assert one == pytest.approx(148.8, rel=0.3)  # PyTorch's blog on distributed checkpoints, 7B, before they overlap


def test_checkpoint_says_what_a_plan_says(napkin: Napkin) -> None:
    planned = napkin(f"{PLAN} --gpus 64 --json").values
    alone = napkin("checkpoint llama3-8b --gpus 64 --json").values
    assert alone["checkpoint/write_time"] == pytest.approx(planned["checkpoint/blocked"], rel=1e-6)
    assert alone["checkpoint/interval"] == pytest.approx(planned["checkpoint/interval"], rel=1e-6)
    assert alone["mtbf"] == planned["mtbf"]


def test_your_own_storage_and_interval_count(napkin: Napkin) -> None:
    own = napkin(f"{PLAN} --gpus 64 --write-bandwidth 1GB/s --checkpoint-interval 1h --json").values
    assert own["checkpoint/blocked"] == pytest.approx(own["checkpoint/bytes"] / 1e9)
    assert own["checkpoint/interval"] == 3600
    best = napkin(f"{PLAN} --gpus 64 --write-bandwidth 1GB/s --json").values
    assert own["goodput"] < best["goodput"]


def test_the_failures_of_llama_3() -> None:
    """419 interruptions in 54 days on 16,384 GPUs, among the rows that the rate is of: within its spread."""
    found = on(16_384).expected(leaf("time", 54 * 86400, "second"))
    failures = next(float(term.value) for term in found if term.name == "failures")
    spread = published(PUBLISHED["production"].share, False).spreads[0]
    assert abs(math.log(failures / 419)) < spread
    assert FAILURES[0].failures == 419
    assert FAILURES[0].gpu_hours * HOUR / 419 / 16_384 == pytest.approx(3.09 * 3600, rel=2e-3)  # hours apart


def test_more_gpus_fail_more_and_spares_help() -> None:
    shares = [float(on(gpus).share.value) for gpus in (1, 64, 1024, 16_384, 131_072)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < 1
    assert on(16_384, spare=True).share.value > on(16_384).share.value
    assert on(2_330).share.value == pytest.approx(0.88)
    assert fold(on(512).share) == pytest.approx(on(512).share.value)


def test_a_plan_and_a_layout_have_one_goodput(napkin: Napkin) -> None:
    planned = napkin(f"{PLAN} --gpus 64 --json").values
    assert planned["goodput"] == pytest.approx(float(on(64, states=planned["checkpoint/bytes"]).share.value))
    assert planned["time"] == pytest.approx(planned["time/uninterrupted"] / planned["goodput"])
    assert planned["failures"] == pytest.approx(planned["time"] / planned["mtbf"])
    several = napkin(f"{PLAN} --gpus 32,64 --min time --json").data
    row = next(row for row in several["rows"] if row["gpus"] == 64)
    assert row["time"] == pytest.approx(planned["time"])


def test_spares_are_paid_for_and_your_own_failures_count(napkin: Napkin) -> None:
    plain = napkin(f"{PLAN} --gpus 64 --json").values
    spare = napkin(f"{PLAN} --gpus 64 --spares 8 --json").values
    assert spare["gpu_hours"] == pytest.approx(plain["gpu_hours"] * 72 / 64 * spare["time"] / plain["time"])
    often = napkin(f"{PLAN} --gpus 64 --gpu-mtbf 100h --restart-time 1h --json").values
    assert often["mtbf"] == pytest.approx(100 * 3600 / 64)
    assert often["goodput"] < plain["goodput"] / 2
    refused = napkin(f"{PLAN} --gpus 64 --goodput 0.9 --spares 8")
    assert refused.status == 2
    assert "--goodput says what failures take" in refused.errors[0]


def test_nothing_fails_without_failures() -> None:
    never = Interruptions(
        leaf("gpu_mtbf", 1e30, "GPU-second"),
        SECOND,
        leaf("restart", 600.0, "second"),
        leaf("rest", 0.95, "1"),
        (0.0, 0.0, 0.0),
    )
    assert float(never.share(leaf("gpus", 1000, "GPU")).value) == pytest.approx(0.95)
    assert never.spread(leaf("gpus", 1000, "GPU")) == 0


def test_the_spread_of_what_restarts_take() -> None:
    """Of the share T/(M·e^(R/M)·(e^((T + w)/M) − 1)) only e^(−R/M) depends on R: half of ln from R·e^σ to R/e^σ."""
    mtbf, restart, sigma = 1e7 / 1000, 600.0, 0.5
    failing = Interruptions(
        leaf("gpu_mtbf", 1e7, "GPU-second"),
        SECOND,
        leaf("restart", restart, "second"),
        leaf("rest", 0.95, "1"),
        (0.0, 0.0, sigma),
    )
    expected = restart / mtbf * math.sinh(sigma)
    assert failing.spread(leaf("gpus", 1000, "GPU")) == pytest.approx(expected)


def test_the_spread_of_what_a_checkpoint_blocks() -> None:
    """Of the same share only 1/(e^((T + w)/M) − 1) depends on w: half of ln of it at w·e^σ over that at w/e^σ. No bytes
    are written beside: at one byte a second they would take most of the time."""
    mtbf, every, sigma = 1e7 / 1000, 500.0, 0.5
    failing = Interruptions(
        leaf("gpu_mtbf", 1e7, "GPU-second"),
        CheckpointWrite(leaf("fixed", 100.0, "second"), leaf("rate", 1.0, "byte/s/node"), leaf("each", 0, "byte/GPU")),
        leaf("restart", 600.0, "second"),
        leaf("rest", 0.95, "1"),
        (0.0, sigma, 0.0),
        leaf("every", every, "second"),
    )
    long, short = (math.expm1((every + 100 * math.exp(way * sigma)) / mtbf) for way in (1, -1))
    assert failing.spread(leaf("gpus", 1000, "GPU")) == pytest.approx(math.log(long / short) / 2)


def test_a_given_goodput_adds_nothing_to_the_interval(napkin: Napkin) -> None:
    found = napkin("train-time --params 7B --tokens 1T --gpus 512 --hardware h100 --goodput 0.8 --json").data
    mfu = found["high"]["mfu"] / found["values"]["mfu"]
    assert found["values"]["time"] / found["low"]["time"] == pytest.approx(mfu)


def test_energy_by_measured_draw_and_a_regions_grid(napkin: Napkin) -> None:
    """MLPerf v4.0: 64 nodes drew 6,849 W each, 856.1 W a GPU, of a rated 700; Finland's grid 39.32 g/kWh in 2024."""
    line = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5"
    rated = napkin(f"{line} --json").values
    found = napkin(f"{line} --power measured --region europe-north1 --json").values
    assert found["energy"] == pytest.approx(1024 * 856.1 * 1.1 * found["time"])
    assert found["energy"] / rated["energy"] == pytest.approx(856.1 / (700 * 1.3))
    assert found["carbon"] == pytest.approx(found["energy"] / 3.6e6 * 0.03932)
    assert napkin(f"{line} --region Finland --json").values["carbon"] < rated["carbon"] / 9
    assert napkin(f"{line} --power measured --hardware a100").status == 3
    assert napkin(f"{line} --region atlantis").status == 2
    assert napkin(f"{line} --region us-west1 --carbon-intensity 0.1").status == 2


def test_benchmarks_of_fine_tuning_evaluate_more_often(napkin: Napkin) -> None:
    """Llama 2 70B with LoRA in MLPerf's logs: samples until the target over samples a second at the median step, over
    the seconds from start to target. On 4 to 384 GPUs of v4.0 and 4 to 512 of v5.0 the share has its own interval."""
    runs = (
        (3072, 1.9694, 1765.5),
        (3072, 0.9807, 3558.5),
        (3072, 2.4738, 1414.5),
        (3072, 2.7184, 1289.2),
        (6144, 16.4244, 430.6),
        (3072, 33.2487, 106.3),
        (3072, 5.3844, 639.5),
        (7296, 248.3797, 33.6),
        (3402, 37.7553, 103.8),
    )
    shares = [samples / rate / seconds for samples, rate, seconds in runs]
    tuned = goodput_of("benchmark", tunes=True)
    low, high = tuned.ends(deviations(0.9))
    assert median(shares) == pytest.approx(float(tuned.share.value), abs=0.005)
    assert all(low < share < high for share in shares)
    line = "train-time llama3-8b --gpus 8 --hardware h100 --seq 8192 --run-kind benchmark"
    assert napkin(f"{line} --tokens 25M --json").values["goodput"] == PUBLISHED["benchmark"].share.value
    tuning = f"{line} --task sft --lora-rank 16 --samples 3072 --sample-tokens 8192"
    assert napkin(f"{tuning} --json").values["goodput"] == tuned.share.value

"""Whole runs: the rule of their utilization, kinds of run, submitters, goodput."""

from __future__ import annotations

import itertools
import math
import pathlib
import statistics

import pytest
import yaml

from napkin.counting import conventions, flops, utilization
from napkin.errors import NapkinError
from napkin.evidence import published
from napkin.evidence.figures import goodput
from napkin.evidence.fit.posterior import seconds_of
from napkin.evidence.intervals.ranking import weighted_quantile
from napkin.evidence.predictions import runs
from napkin.evidence.rows import facts
from napkin.evidence.rows.models import model_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.runs import run_row, submitter
from napkin.evidence.validation.run_check import compared
from napkin.inputs import hardware
from napkin.inputs.hardware import find
from napkin.inputs.load import Document
from napkin.inputs.peaks import peak_name
from napkin.record import replace
from napkin.training.precision import precision
from tests.conftest import ROOT

# --- whole runs ---


def test_the_rule_of_whole_runs_by_hand() -> None:
    known = runs.judging(runs.evidence(), "production")
    rule = runs.fit(known)
    # a published rule of the same form: a −1.02 ± 0.07, b −0.21 ± 0.09, c 0.35 ± 0.07, d 0.15 ± 0.07; runs that were
    # published since draw a down (rates count with the usual losses) and b and c up (small models on H100s)
    for constant, middle, spread in zip(rule, (-1.02, -0.21, 0.35, 0.15), (0.09, 0.09, 0.13, 0.07), strict=True):
        assert abs(constant - middle) < spread
    assert runs.predicted(rule, runs.features(True, 70e9, 2024)) == pytest.approx(rule[0] + rule[1])
    assert runs.hours(6e18, 1e15, 0.5) == pytest.approx(6e18 / (3600 * 5e14))


def test_hours_that_are_tokens_over_a_rate_hold_no_losses() -> None:
    by_id = {run.row.id: run for run in runs.evidence()}
    # LLaMA 65B: 6 × 65.2e9 × 1.4e12 FLOP in 1,022,362 hours of 312 TFLOP/s is 0.477; with a goodput of 0.88, 0.420
    assert math.exp(by_id["llama1-65b"].log_u) == pytest.approx(0.88 * 0.4770, rel=0.01)
    # Llama 2 70B is billed: 6 × 69e9 × 2e12 in 1,720,320 hours is 0.43
    assert math.exp(by_id["llama2-70b"].log_u) == pytest.approx(0.4286, rel=0.01)
    (billed,) = compared([by_id["llama2-70b"].row], 0.9, inside=True)
    (rated,) = compared([replace(by_id["llama2-70b"].row, basis="rate")], 0.9, inside=True)
    assert billed.predicted is not None
    assert rated.predicted == pytest.approx(0.88 * billed.predicted)


def test_a_benchmark_is_judged_by_benchmarks() -> None:
    known = runs.evidence()
    rule = runs.FittedRule(runs.judging(known, "benchmark"), 0.9)
    assert {run.row.run_kind for run in rule.runs} == {"benchmark"}
    asked = runs.PlannedRun(405e9, 405e9, hardware.find("h100"), 1024, run_kind="benchmark")
    found = runs.estimate(asked, rule)
    # MLPerf v5.0: 0.74 to 0.87 of the bf16 peak on 1,024 to 2,560 Hopper GPUs, v3.1 0.5 to 0.7
    assert 0.65 < found.mfu < 0.8
    assert runs.estimate(replace(asked, gpus=8192), rule).mfu < found.mfu
    sixteen = runs.estimate(replace(asked, precision="bf16"), rule)
    assert sixteen.wider
    assert sixteen.low < found.low
    # fewer accelerators than any run had: no extrapolation beyond the peak
    assert runs.estimate(replace(asked, gpus=8), rule).mfu == runs.estimate(replace(asked, gpus=256), rule).mfu


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"source": "mlcommons/training_results_v4.1 Dell/results/XE9680/gpt3"}, "benchmark"),
        ({"run_kind": "speedrun"}, "speedrun"),
        ({"kind": "benchmark"}, "benchmark"),
        ({"source": "x/y records/track_1_short/2025-01-01"}, "speedrun"),
        ({"source": "a paper"}, "production"),
    ],
)
def test_a_row_says_what_kind_of_run_it_is(fields: dict[str, str], kind: str) -> None:
    assert run_row(RowFields(Document("rows", None), 0, {"id": "a", **fields})).run_kind == kind


def test_a_submission_is_its_submitters() -> None:
    assert submitter("mlcommons/training_results_v5.0 IBM+CoreWeave+NVIDIA/results/a/b") == "NVIDIA"
    assert submitter("mlcommons/training_results_v4.1/Dell/results/a") == "Dell"
    assert submitter("a model card") == ""


def test_the_goodput_of_benchmarks_is_that_of_their_logs() -> None:
    """steps · median step over run start to target, for each run whose step is in the evidence too."""
    rows = yaml.safe_load(pathlib.Path(ROOT, "configs/evidence/steps.yaml").read_text(encoding="utf-8"))["rows"]
    step = {row["id"]: row["measured"]["step_seconds"] for row in rows if "step_seconds" in row["measured"]}
    rows = yaml.safe_load(pathlib.Path(ROOT, "configs/evidence/runs.yaml").read_text(encoding="utf-8"))["rows"]
    logs = [
        math.log(
            row["tokens"] / row["global_batch_tokens"] * step[row["id"]] * row["count"] / (3600 * row["device_hours"])
        )
        for row in rows
        if row["id"] in step
    ]
    assert len(logs) == 23
    found = goodput.PUBLISHED["benchmark"]
    assert found.share.value == pytest.approx(math.exp(statistics.median(logs)), abs=0.005)
    assert found.spread == pytest.approx(statistics.stdev(logs), abs=0.002)


def test_complete_runs_name_their_model_in_a_text() -> None:
    file = pathlib.Path(ROOT, "configs/evidence/runs.yaml")
    found = published.read(str(file))
    assert not found.unread
    assert len(found.runs) == len(yaml.safe_load(file.read_text(encoding="utf-8"))["rows"])


def test_linear_equations() -> None:
    assert runs.solve([[0.0, 2.0], [1.0, 1.0]], [4.0, 5.0]) == pytest.approx([3.0, 2.0])


def test_an_estimate_names_its_runs() -> None:
    def on(card: str) -> runs.Estimate:
        run = runs.PlannedRun(70e9, 70e9, hardware.find(card), 1024)
        return runs.estimate(run, runs.FittedRule(runs.judging(runs.evidence(), "production"), 0.9))

    found = on("h100")
    assert found.low < found.mfu < found.high
    assert 0.25 < found.mfu < 0.33
    assert "Llama 3 70B" in found.named()
    assert not found.wider
    unseen = on("b200")
    assert unseen.wider
    assert unseen.high / unseen.low > found.high / found.low


def test_faster_accelerators_use_no_larger_share_of_their_peak() -> None:
    """The rule knows a fast accelerator by its peak: whole runs on one that the evidence lacks are judged by those on
    the fastest that it has. One or two nodes are no cluster, and more accelerators never take longer."""

    rule = runs.FittedRule(runs.judging(runs.evidence(), "production"), 0.9)

    def share(card: str, gpus: int = 1024, size: float = 8e9) -> float:
        return runs.estimate(runs.PlannedRun(size, size, hardware.find(card), gpus), rule).mfu

    assert share("h100") == share("h200") == share("b200") == share("mi300x") < share("a100")
    assert share("tpu-v5p") == share("a100")  # 459 TFLOP/s
    assert share("b200", 16) == share("a100", 16)
    for size in (1e9, 7e9, 70e9, 400e9):
        for slower, faster in (("v100-sxm2-16gb", "a100"), ("a100", "h100"), ("h100", "b200"), ("a100", "mi300x")):
            peaks = [hardware.find(card).peak(hardware.find(card).default_dtype) for card in (slower, faster)]
            assert share(faster, size=size) * peaks[1] > share(slower, size=size) * peaks[0]
        counts = [8, 16, 17, 20, 32, 48, 63, 64, 65, 128, 4096]
        for fewer, more in itertools.pairwise(counts):
            assert share("h100", fewer, size) * fewer < share("h100", more, size) * more


def test_the_verdict_on_an_mfu_is_by_what_published_steps_reach() -> None:
    """Of the published steps, each source weighing the same, one in a hundred reaches RARE, half reach GOOD, and nine
    in ten FAIR."""
    by_source: dict[str, list[float]] = {}
    for row in facts.steps():
        if row.why or row.suspect or row.shape is None or not row.global_batch:
            continue
        try:
            model = model_of(row.shape, row.seq)
            chip = find(row.chip)
            peak = chip.peak(peak_name(precision(row.policy).compute))
        except NapkinError:  # a shape that its table does not describe fully, a chip without such a peak
            continue
        if chip.clock_in_use_hz:  # it runs above the clock of its printed peak
            continue
        counted = conventions.all_conventions(model, flops.works(model, 1, row.seq))
        done = counted["palm"].value * row.global_batch * row.seq
        by_source.setdefault(row.source_key, []).append(done / (seconds_of(row) * row.gpus * peak))
    assert len(by_source) >= 26
    weighted = [(mfu, 1 / len(every)) for every in by_source.values() for mfu in every]
    assert weighted_quantile(weighted, 0.5) == pytest.approx(utilization.GOOD, abs=0.005)
    assert weighted_quantile(weighted, 0.99) == pytest.approx(utilization.RARE, abs=0.005)
    assert weighted_quantile(weighted, 0.1) == pytest.approx(utilization.FAIR, abs=0.005)

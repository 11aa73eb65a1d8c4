"""The evidence of steps: fits find what made the rows, and intervals cover what they say."""

from __future__ import annotations

import math
import os
import pathlib
import re
import runpy
import statistics
from typing import Any

import numpy as np
import pytest

from napkin._tables import calibration
from napkin.evidence import published
from napkin.evidence.figures import prices
from napkin.evidence.fit import one_constant
from napkin.evidence.fit.columns import Columns
from napkin.evidence.fit.posterior import Problem
from napkin.evidence.intervals.ranking import nearest_rank
from napkin.evidence.intervals.steps import (
    CLASSES,
    class_of,
    distance,
    nearest,
    own_error,
    point,
    quantile,
    scale,
    widened,
)
from napkin.evidence.predictions import one_run
from napkin.evidence.prose.steps import of_step
from napkin.evidence.rates import chips, constants
from napkin.evidence.rates.constants import own_error_of
from napkin.evidence.rates.machines import machine
from napkin.evidence.rates.of_step import SYNCHRONOUS, Early, constant_names, picker, rates
from napkin.evidence.rates.priors import CHIP, PRIORS, prior_of
from napkin.evidence.rows import facts, teams
from napkin.evidence.rows.row import RowFields
from napkin.evidence.software.stacks import stack
from napkin.evidence.validation import accuracy
from napkin.evidence.validation.compared import Compared
from napkin.evidence.validation.step_check import point_of, steps
from napkin.inputs import hardware
from napkin.inputs.load import Document
from napkin.record import replace
from tests.conftest import ROOT, Napkin, run_line
from tests.test_evidence_rows import ROW, rows_of

TUNING = published.read(os.path.join(ROOT, "configs", "evidence", "tuning.yaml"))

# --- fitting ---


def test_a_fit_finds_the_constants_that_made_the_rows() -> None:
    rows = [row for row in facts.steps() if row.id.startswith("foundry-a100-80gb")][:30]
    columns = Columns(rows)
    priors = {name: prior_of(name)[:2] for name in columns.constants if name not in ("one", "zero")}
    true = {**{name: value for name, (value, _) in priors.items()}, "matmul/ampere/16": 0.70, "memory": 0.75}
    problem = Problem(columns, ["one"] * len(columns.kept), priors)
    problem.log_truth = np.log(columns.predict(columns.values(true)))
    found = problem.fit()
    (factor,) = found.sources.values()
    assert np.abs(problem.log_predicted(found.log) - problem.log_truth - factor).max() < 0.01
    assert found.constants()["matmul/ampere/16"] < 0.78


def test_several_sets_of_constants_give_what_each_gives() -> None:
    rows = [row for row in facts.steps() if row.id.startswith(("foundry-h100-80gb", "titan-", "mbridge-26.04-"))]
    columns = Columns(rows)
    one = columns.values({name: prior_of(name)[0] for name in columns.constants if name not in ("one", "zero")})
    other = np.where(one > 0, one * np.linspace(0.9, 1.1, len(one)), 0)
    other[:2] = one[:2]
    np.testing.assert_allclose(
        columns.predict_sets(np.stack([one, other])), [columns.predict(one), columns.predict(other)], rtol=1e-12
    )


def test_a_recipes_own_flags_recompute_for_time_as_for_memory(tmp_path: pathlib.Path) -> None:
    """Recipes of torchtune checkpoint by default (recipes/configs/llama3_1/8B_full_single_device.yaml)."""
    text = ROW.replace("stack: megatron-core", "stack: fsdp-compiled, recompute: SAID")
    by_recipe, full, none = (
        steps(rows_of(tmp_path, text.replace("SAID", said)))[0].predicted for said in ("recipe default", "full", "none")
    )
    assert by_recipe == full
    assert full is not None
    assert none is not None
    assert full > 1.15 * none


def test_one_row_alone_is_what_the_step_command_says(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    """The columns of all rows and a single `napkin step` are one model: the same layout, the same seconds."""
    (row,) = steps(rows_of(tmp_path, ROW), in_sample=True)
    line = "step llama3-8b --tp 2 --dp 32 --zero 1 --micro-batch 1 --global-batch 256 --seq 8192 --hardware h100 --json"
    single = napkin(f"{line} --stack megatron-core").values["step/time"]
    assert row.predicted == pytest.approx(single, rel=0.01)


@pytest.mark.parametrize("optimizer", ["muon", "soap"])
def test_rows_have_the_matrix_work_of_their_optimizer(napkin: Napkin, tmp_path: pathlib.Path, optimizer: str) -> None:
    """Rows of other widths next to each other: the work on a matrix depends on each shape in its own way."""
    row = ROW.replace("stack:", f"optimizer: {optimizer}, stack:").replace("tp: 2", "tp: 1").replace("dp: 32", "dp: 64")
    another = row.partition("rows:\n")[2].replace("id: mine", "id: narrow").replace("ffn: 14336", "ffn: 12288")
    wide, narrow = steps(rows_of(tmp_path, row + another), in_sample=True)
    line = "step llama3-8b --dp 64 --zero 1 --micro-batch 1 --global-batch 256 --seq 8192 --hardware h100 --json"
    single = napkin(f"{line} --stack megatron-core --optimizer {optimizer}").values["step/time"]
    assert wide.predicted == pytest.approx(single, rel=0.01)
    assert narrow.predicted is not None
    assert narrow.predicted < 0.95 * single


# --- intervals ---


def test_distance_counts_each_difference_once() -> None:
    here = point("hopper", "megatron-core", False, 16, 8e9, 8192, 64)
    assert distance(here, here) == 0
    assert distance(here, point("hopper", "megatron-core", False, 16, 80e9, 8192, 64)) == pytest.approx(1)
    assert distance(here, point("ampere", "megatron-core", True, 16, 8e9, 8192, 64)) == pytest.approx(math.sqrt(2))


def test_sources_weigh_the_same_in_a_quantile() -> None:
    here = point("hopper", "megatron-core", False, 16, 8e9, 8192, 64)
    place = ("hopper", "megatron-core", 0, 16, here.params, here.seq, here.gpus)
    many = [(f"a{i}", "a", *place, 0.01, 0.0, 0.0) for i in range(100)]
    few = [("b", "b", *place, 0.5, 0.0, 0.0)]
    assert quantile(0.5, many + few, 1.0) == pytest.approx(0.01)
    assert quantile(0.9, many + few, 1.0) == pytest.approx(0.5)
    assert quantile(0.9, many + few, 1.0, without="b") == pytest.approx(0.01)
    assert nearest(here, many + few, count=2, without="a")[0][1].source == "b"


def test_a_percentile_is_one_of_the_values_and_never_below_the_median() -> None:
    assert nearest_rank([float(n) for n in range(10, 0, -1)], 0.9) == 9
    assert nearest_rank([float(n) for n in range(1, 12)], 0.9) == 10  # 0.9 · 11 = 9.9
    assert nearest_rank([0.1, 0.3], 0.9) == 0.3
    assert nearest_rank([0.2], 0.9) == 0.2


def test_intervals_cover_what_they_say_and_widen_with_distance() -> None:
    rows = facts.steps()
    for level in (0.5, 0.8, 0.9):
        compared = [one for one in steps(rows, level) if one.covered is not None and not one.suspect]
        groups: dict[str, list[bool]] = {}
        for one in compared:
            groups.setdefault(one.group, []).append(bool(one.covered))
        share = statistics.fmean(statistics.fmean(found) for found in groups.values())
        assert share == pytest.approx(level, abs=2 * math.sqrt(level * (1 - level) / len(groups)))
    near = point("ampere", "fsdp-eager", False, 16, 7e9, 2048, 64)
    far = point("other", "unknown", False, 16, 7e12, 2048, 10**6)
    assert constants.half_width(far, 0.9)[0] > 1.3 * constants.half_width(near, 0.9)[0]


def test_no_constant_is_learnt_from_a_row_that_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its accelerator has no factor, its source's constants are everybody's, and its error is among those of intervals;
    another measured time of it moves no fit."""
    judging = {row.source_key for row in facts.steps() if row.judges}
    learnt = {row.source_key for row in facts.steps() if not row.judges and not row.why and not row.suspect}
    only = judging - learnt
    assert {"xtuner", "internlm", "primus"} <= only
    assert f"{CHIP}MI300X" not in chips.factors()
    for source in only:
        assert constants.constants(source) == constants.constants()
        assert any(entry[1] == source for entry in calibration.SEEN)
    monkeypatch.syspath_prepend(f"{ROOT}/tools")
    import calibrate

    problem = calibrate.problem()
    judges = np.array([row.judges for row in problem.columns.kept])
    assert judges.sum() > 70
    assert not problem.weights(problem.counted)[judges].any()


def test_a_row_never_predicts_itself() -> None:
    rows = [row for row in facts.steps() if row.id.startswith("tpu-trillium-llama3.1-8b")]
    out, inside = steps(rows), steps(rows, in_sample=True)
    assert all(a.predicted != b.predicted for a, b in zip(out, inside, strict=True))


# --- accuracy ---


def test_published_steps_with_their_source_left_out() -> None:
    """The figures of docs/accuracy.md, with room for a new row or two."""
    found = accuracy.errors()
    dense = accuracy.summary(found.out[~found.experts])
    assert dense[1] < 0.08
    assert dense[3] < 0.22
    assert accuracy.summary(found.inside[~found.experts])[1] < 0.062
    experts = accuracy.summary(found.out[found.experts])
    assert experts[2] < 0.24
    assert experts[3] < 0.44
    near = accuracy.scaled_by_nearest(found)
    known = np.isfinite(near) & ~found.experts
    assert accuracy.summary(near[known])[1] < 0.04
    ranked = accuracy.ranking(found)
    assert ranked.pairs > 200
    assert ranked.right / ranked.pairs > 0.78
    assert ranked.regret < 0.03
    # most sources are predicted without a common bias
    assert abs(statistics.median(found.out)) < 0.06


def test_the_class_of_evidence_of_a_step() -> None:
    """Software that another source measured on such chips; that none did; and that is not known."""
    here = point("hopper", "fsdp-eager", False, 16, 7e9, 4096, 8)

    def row(source: str, error: float, era: str = "hopper", stack: str = "fsdp-eager") -> Any:
        return (source, source, era, stack, 0, 16, here.params, here.seq, here.gpus, error, 0.0, 0.0)

    seen = [row("a", 0.1), row("a", 0.1), row("b", 0.1), row("c", 0.4, "volta"), row("d", 0.3, stack="unknown")]
    assert class_of(here, seen, "a") == "measured"
    assert class_of(here, seen[:2], "a") == "described"
    assert class_of(replace(here, generation="ampere"), seen) == "described"
    assert class_of(replace(here, stack="unknown"), seen) == "unknown"


def test_intervals_widen_by_what_is_not_known_of_a_chip_and_its_software() -> None:
    """√(0.1² + (0.05·2)² + (2/π)·(0.3² + 0.4² + 1.2²)): 0.5² + 1.2² is 1.3²; of unknown software no less than the
    spread of all."""
    here = point("cdna", "lean", False, 16, 7e9, 4096, 8)
    assert own_error(here, 0.3, 0.4) == pytest.approx(0.5 * math.sqrt(2 / math.pi))
    own = own_error(here, 0.3, 0.4, 1.2)
    assert own == pytest.approx(1.3 * math.sqrt(2 / math.pi))
    assert scale(0.1, 2.0, own) == pytest.approx(math.sqrt(0.01 + 0.01 + 1.69 * 2 / math.pi))
    assert own_error(replace(here, stack="unknown"), 0.0, 0.01) == pytest.approx(0.08 * math.sqrt(2 / math.pi))
    # releases differ by 10 % on mixtures of experts
    assert own_error(replace(here, experts=True), 0.0, 0.0) == pytest.approx(0.1 * math.sqrt(2 / math.pi))
    # no source measured a step on MI300X: its interval is wider than that of the same run on H100
    widths = [constants.half_width(replace(here, generation=era), 0.9)[0] for era in ("cdna", "hopper")]
    assert widths[0] > 1.1 * widths[1]


def test_the_posterior_of_a_constant_between_its_prior_and_its_rows() -> None:
    """No rows: the prior. Rows that are exact at 2 on a wide prior at 1: 2."""
    value, spread = one_constant.posterior(1.0, 0.7, lambda _: {})
    assert value == pytest.approx(1)
    assert spread == pytest.approx(0.7, rel=0.02)  # a normal cut at 3σ has 0.987 of its deviation

    def gaps(constant: float) -> dict[str, list[float]]:
        gap = math.log(constant) - math.log(2.0)
        return {"a": [gap] * 4, "b": [gap] * 4}

    value, spread = one_constant.posterior(1.0, 0.7, gaps)
    assert value == pytest.approx(2, rel=0.03)
    assert spread < 0.1


def test_kernels_for_hopper_are_as_fast_as_others_before_it() -> None:
    """FlashAttention 3 is 1.5 to 2.0 times as fast as FlashAttention-2 on Hopper (Shah et al. 2024, abstract), and does
    not exist before it."""
    line = "step llama3-8b --gpus 8 --zero 3 --seq 131072 --recompute full --json"

    def seconds(card: str, kernel: str) -> float:
        return float(run_line(f"{line} --hardware {card} --attention {kernel}").values["step/compute/attention"])

    assert 1.5 < seconds("h100", "flash") / seconds("h100", "cudnn") < 2.1
    assert seconds("a100", "cudnn") == seconds("a100", "flash")


def test_products_in_few_bits_that_nobody_measured_have_a_wider_interval() -> None:
    """CDNA's 8 bits take the share of its 16 bits, and ln 3 more at the interval's end; Hopper's are known."""
    sigma = {"matmul/cdna/16": 0.1, "matmul/hopper/16": 0.1, "matmul/hopper/8": 0.2, "stack/lean": 0.0}
    sigma["data_exposed"] = 0.5
    here = point("cdna", "lean", False, 16, 7e9, 4096, 8)
    mean = math.sqrt(2 / math.pi)
    assert own_error_of(here, sigma) == pytest.approx(0.1 * mean)
    assert own_error_of(here, sigma, exposed=0.48) == pytest.approx(0.26 * mean)  # 0.1² + (0.5 · 0.48)²
    assert own_error_of(replace(here, bits=8), sigma) == pytest.approx(math.hypot(0.1, math.log(3) / 1.645) * mean)
    assert own_error_of(replace(here, generation="hopper", bits=8), sigma) == pytest.approx(0.2 * mean)


def test_fine_tuning_has_the_intervals_of_other_steps() -> None:
    line = "step llama3-8b --gpus 1 --hardware h100 --stack fsdp-compiled --attention flash2 --json"
    plain, tuned = (run_line(f"{line}{more}") for more in ("", " --lora-rank 8"))
    ends = [math.log(one.data["high"]["step/time"] / one.data["low"]["step/time"]) for one in (plain, tuned)]
    assert ends[1] == pytest.approx(ends[0])


def test_a_clock_at_the_lowest_voltage_falls_as_the_watts_do() -> None:
    """An H100 PCIe has 350 W for 756 TFLOP/s, the H100 SXM of its generation 700 W for 989.4: 0.654 of the power. Its
    matrix units, predicted at that to the fitted power, reach 0.654 of the H100 SXM's share of the peak. A GPU with the
    watts of its generation's reference, one whose maker holds it below its clock, one that is predicted at its lowest
    voltage, and one whose steps were published have the clock as it is."""
    cards = ("h100-pcie-80gb", "a100", "rtx-3090", "l4", "h100-sxm-96gb-500w")
    at = {name: machine(hardware.find(name), "fp16") for name in cards}
    power = 350 / 756 / (700 / 989.4)
    assert at["h100-pcie-80gb"].power == pytest.approx(power, rel=2e-3)
    assert at["h100-sxm-96gb-500w"].power < 1
    unmeasured = replace(at["h100-sxm-96gb-500w"], chip="another")
    judged = [*at.values(), unmeasured]
    assert [constants.may_be_at_lowest_voltage(one) for one in judged] == [True, False, False, False, False, True]
    known = constants.constants()
    shares = []
    for card, figures in (("h100", known), (cards[0], known), (cards[0], constants.at_lowest_voltage(known))):
        where = machine(hardware.find(card), "fp16")
        names = constant_names(where, stack("fsdp-compiled"), "flash2", "rdma", SYNCHRONOUS, "", False, figures)
        found = rates(picker({**figures, names["chip"]: 1.0}, names), where, Early(0, 0), False, False)
        shares.append(float(found.matmul_wide))
    assert shares[1] == pytest.approx(shares[0] * power ** known["power"], rel=2e-3)
    assert shares[2] == pytest.approx(shares[0] * power, rel=2e-3)


def test_an_interval_reaches_to_the_step_at_the_lowest_voltage() -> None:
    """Beyond what it is without: by the ratio of both steps. The matmuls of 8,192 tokens take most of the time."""
    assert widened(0.1, clock=0.2) == pytest.approx(0.3)
    line = "step llama3.2-1b --gpus 1 --seq 8192 --stack fsdp-compiled --attention flash2 --json --hardware"
    limited, free = (run_line(f"{line} {card}").data for card in ("h100-pcie-80gb", "h100"))
    ends = [math.log(one["high"]["step/time"] / one["low"]["step/time"]) / 2 for one in (limited, free)]
    reach = -math.log((350 / 756 / (700 / 989.4)) ** (1 - constants.constants()["power"]))
    assert 0.5 * reach < ends[0] - ends[1] < reach


def test_an_interval_reaches_to_what_another_release_multiplies_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """On AMD's accelerators, under a loop of PyTorch's own layers: matmuls that are e^(1.645 · 0.35) = 1.78 times as
    slow and take most of the time. NVIDIA's have one library, and compiled loops are not PyTorch's own."""
    assert widened(0.3, library=0.4) == pytest.approx(0.5)
    line = "step llama3.2-1b --gpus 1 --seq 8192 --attention flash2 --json --stack"

    def half(stack_and_card: str) -> float:
        found = run_line(f"{line} {stack_and_card}").data
        return math.log(found["high"]["step/time"] / found["low"]["step/time"]) / 2

    asked = ("fsdp-eager --hardware mi325x", "fsdp-compiled --hardware mi325x", "fsdp-eager --hardware h200")
    wide = [half(one) for one in asked]
    monkeypatch.setattr(one_run, "OPEN_LIBRARIES", ())
    usual = [half(one) for one in asked]
    assert wide[1:] == usual[1:]
    assert 0.5 * 1.645 * 0.35 < math.sqrt(wide[0] ** 2 - usual[0] ** 2) < 1.645 * 0.35


def test_rows_of_fine_tuning_are_predicted_without_their_source() -> None:
    """The constant that fine-tuning alone shows is its prior if its one source is left out, and not if another is."""
    name, (prior, spread, _) = "host_module", PRIORS["host_module"]
    assert teams.source_of("Qwen README, Profiling of Memory") == "qwen"
    unknown = {title for row in TUNING.tuning if not teams.source_of(title := row.text("source.title"))}
    assert not unknown, "sources of configs/evidence/steps.yaml without these"
    assert constants.constants("qwen")[name] == pytest.approx(prior, rel=1e-3)
    assert constants.spreads("qwen")[name] == pytest.approx(spread, rel=0.02)
    for source in ("", "bloom", "fms-acceleration"):
        assert constants.constants(source)[name] != pytest.approx(prior, rel=0.02)


def test_a_chip_without_matrix_units_multiplies_at_its_fp32_rate() -> None:
    """P100: 10.6 TFLOP/s of fp32; its 21.2 of fp16 sum in fp16."""
    at = machine(hardware.find("P100 SXM2 16GB"), "fp16")
    assert at.peak == at.peak_wide == 10.6e12


def test_no_fused_attention_before_it_was_published() -> None:
    """Unnamed software of 2021 writes its scores; of 2023 it is taken to be fused."""
    for title, kernel in (("A report of 2021-05-12", "eager"), ("A report of 2023", None)):
        row = RowFields(Document("rows.yaml", None), 0, {"layout": {}, "source": {"title": title}})
        assert of_step(row)["layout"].get("attention") == kernel


def test_the_intervals_of_each_class_cover_what_they_say() -> None:
    """90 % of held-out steps, sources weighing the same, within two standard errors, in each class and in all."""
    found = [one for one in steps(facts.steps()) if one.covered is not None and not one.suspect]
    for kinds in (*((kind,) for kind in CLASSES), CLASSES):
        mean, error = share_covered([one for one in found if one.evidence in kinds])
        assert mean > 0.9 - 2 * error, kinds
        assert mean < 0.9 + 3 * error, kinds


def share_covered(found: list[Compared]) -> tuple[float, float]:
    """Return the share of rows inside their intervals, sources weighing the same, and its standard error."""
    groups: dict[str, list[bool]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(bool(one.covered))
    each = [statistics.fmean(covered) for covered in groups.values()]
    return statistics.fmean(each), statistics.stdev(each) / math.sqrt(len(each))


def test_point_of_a_published_row() -> None:
    row = next(row for row in facts.steps() if row.id.startswith("mbridge-26.08-deepseekv3-gb300"))
    at = point_of(row)
    assert (at.generation, at.stack, at.experts, at.bits) == ("blackwell", "megatron-core", True, 8)
    assert math.exp(at.params) == pytest.approx(671e9, rel=0.02)


# --- commands ---


def test_validate_over_everything(napkin: Napkin) -> None:
    outcome = napkin("validate --json")
    assert outcome.status == 0
    data = outcome.data
    assert data["values"]["error/step_seconds/median"] < 0.08
    assert data["values"]["error/device_hours/median"] < 0.19
    assert 0.8 < data["values"]["coverage/step_seconds"] <= 1
    assert len(data["rows"]) > 700
    for row in data["rows"]:
        assert row.get("why") or row.get("predicted") is not None


def test_validate_a_file_of_one_s_own(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(ROW, encoding="utf-8")
    (row,) = napkin(f"validate {path} --json").data["rows"]
    assert row["low"] < row["predicted"] < row["high"]
    assert row["error"] == pytest.approx(row["predicted"] / 5.0 - 1)
    outcome = napkin(f"validate {tmp_path / 'none.yaml'}")
    assert outcome.status == 2
    assert outcome.errors


def test_calibrate_finds_one_s_own_factor(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(ROW, encoding="utf-8")
    before = napkin(f"validate {path} --in-sample --json").data["rows"][0]["predicted"]
    slow = ROW.replace("step_seconds: 5.0", f"step_seconds: {1.2 * before!r}")
    path.write_text(slow, encoding="utf-8")
    values = napkin(f"calibrate {path} --json").values
    assert values["factor"] == pytest.approx(1.2)
    assert values["error/before"] == pytest.approx(1 - 1 / 1.2)
    assert values["error/refitted"] < values["error/before"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tp: 2", "tp: 2, zero: 9", "rows.0.layout.zero: 9 is out of range"),
        ("micro_batch: 1", "micro_batch: 0", "rows.0.layout.micro_batch: 0 is out of range"),
        ("tp: 2", "tp: 5", "does not divide the 64 accelerators"),
        ("step_seconds: 5.0", "step_seconds: 0", "rows.0.measured.step_seconds: 0 is out of range"),
        ("step_seconds: 5.0", "mfu: 45", "rows.0.measured.mfu: 45 is out of range"),
        ("policy: bf16-mixed", "policy: [bf16]", "rows.0.layout.policy: ['bf16'] is not a text"),
    ],
)
def test_a_bad_value_of_a_row_is_refused_with_file_line_and_field(
    napkin: Napkin, tmp_path: pathlib.Path, old: str, new: str, said: str
) -> None:
    assert old in ROW
    path = tmp_path / "rows.yaml"
    path.write_text(ROW.replace(old, new), encoding="utf-8")
    outcome = napkin(f"calibrate {path}")
    assert outcome.status == 2
    assert said in outcome.errors[0]
    assert re.match(r"error: .*rows\.yaml:[0-9]+: rows\.0", outcome.errors[0])


@pytest.mark.parametrize("word", ["fabric: string", "chip: H1000"])
def test_a_word_that_is_not_known_leaves_its_row_out_and_says_so(
    napkin: Napkin, tmp_path: pathlib.Path, word: str
) -> None:
    path = tmp_path / "rows.yaml"
    second = ROW.partition("rows:\n")[2].replace("id: ", "id: other-", 1)
    key = word.partition(":")[0]
    changed = (
        re.sub(rf"{key}: [^,}}\n]*", word, second)
        if key in second
        else second.replace("hardware: {", f"hardware: {{{word}, ")
    )
    path.write_text(ROW + changed, encoding="utf-8")
    outcome = napkin(f"calibrate {path}")
    assert outcome.status == 0, outcome.err
    assert "1 measured step of" in outcome.out
    assert "not compared: other-" in outcome.out


def test_the_page_on_accuracy_says_what_the_evidence_says() -> None:
    """docs/accuracy.md is made by tools/accuracy.py; figures may differ in the last digit between machines."""
    page = runpy.run_path(os.path.join(ROOT, "tools", "accuracy.py"))["page"]()
    with open(os.path.join(ROOT, "docs", "accuracy.md"), encoding="utf-8") as stream:
        written = stream.read()
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", written) == number.sub("#", page), "run python tools/accuracy.py"
    for kept, now in zip(number.findall(written), number.findall(page), strict=True):
        assert float(kept) == pytest.approx(float(now), rel=0.01, abs=0.11)


def test_prices_are_dated_and_of_known_cards() -> None:
    for slug, price in prices.PRICES.items():
        assert hardware.shipped()[slug].name
        assert price.low <= price.middle <= price.high
        assert price.date[:2] == "20"
        assert price.source
    assert prices.remark("unheard-of", "X") == ""
    assert prices.PRICES["rtx-4090"].middle == 0.39  # of 0.34, 0.39 and 0.74
    assert prices.PRICES["h100-sxm-80gb"].middle == 3.67  # between 3.49 and 3.85, the third and fourth of six


def test_a_step_that_waits_for_the_host_is_less_certain(tmp_path: pathlib.Path) -> None:
    """A host of another make launches a layer 1.9 times as slowly; work that outlasts its launches hides that."""
    short, wide = ROW.replace("seq: 8192", "seq: 512"), {}
    for micro in (1, 8):
        text = short.replace("micro_batch: 1", f"micro_batch: {micro}")
        (found,) = steps(rows_of(tmp_path, text))
        assert found.high is not None
        assert found.low is not None
        wide[micro] = found.high / found.low
    assert wide[1] > 1.3 * wide[8]

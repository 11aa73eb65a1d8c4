"""What scripts may rely on of each command, a promise a test: figures, limits, files and exit statuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import run_line
from tests.contract import COUNT, RUN, SMALL, refused

# --- train-time ------------------------------------------------------------------------------------------------------

GIVEN = {"params": "70B", "tokens": "15T", "gpus": "1024", "mfu": "0.5", "within": "30d"}


@pytest.mark.parametrize("missing", ["tokens", "gpus", "params"])
def test_one_quantity_may_be_missing_and_solves_the_equation(missing: str) -> None:
    options = " ".join(f"--{k} {v}" for k, v in GIVEN.items() if k != missing)
    data = run_line(f"train-time {options} --hardware h100 --json").data
    v = data["values"]
    assert data["inputs"][missing]["origin"] == "solved"
    assert v["flops/total"] == pytest.approx(989.4e12 * v["mfu"] * v["gpus"] * v["time"], rel=1e-9)
    assert v["flops/total"] == pytest.approx(6 * v["params"] * v["tokens"], rel=1e-9)


@pytest.mark.parametrize(
    "given",
    [
        "--params 70B --mfu 0.4 --within 30d",
        "--params 70B --tokens 1T --within 30d",
        "--tokens 1T --mfu 0.4 --within 30d",
        "--params 70B --mfu 0.4 --gpus 1024",
        "--params 70B --tokens 1T --gpus 1024",
    ],
)
def test_with_a_budget_two_may_be_missing(given: str) -> None:
    v = run_line(f"train-time {given} --hardware h100 --budget 2000000 --price 2.5 --json").values
    assert v["cost"] == pytest.approx(2_000_000, rel=1e-9)
    assert v["gpu_hours"] == pytest.approx(800_000, rel=1e-9)
    assert v["flops/total"] == pytest.approx(989.4e12 * v["mfu"] * v["gpus"] * v["time"], rel=1e-9)
    assert v["time"] <= 2_592_000 or "gpus 1024" in given


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--params 70B --tokens 15T", "--gpus, --within"),
        ("--params 70B --tokens 15T --gpus 8 --tp 2", "MODEL"),
    ],
)
def test_too_many_unknowns_are_named(options: str, says: str) -> None:
    refused(run_line(f"train-time {options} --hardware h100"), 2, says)


@pytest.mark.parametrize(
    ("limits", "status", "verdict"),
    [
        ("--within 150d", 0, "holds"),  # it takes 143.9 days: 6·70e9·15e12 / (989.4e12·0.5·1024) s
        ("--within 140d", 1, "broken"),
        ("--within 150d --price 2 --budget 8e6", 0, "holds"),  # 143.9·24·1024·2 = 7.07 M USD
        ("--within 150d --price 2 --budget 7e6", 1, "broken"),
        ("--price 2 --budget 7e6", 1, "broken"),
    ],
)
def test_a_deadline_and_a_budget_of_a_run_that_is_determined_are_judged(limits: str, status: int, verdict: str) -> None:
    outcome = run_line(f"train-time --params 70B --tokens 15T --gpus 1024 --mfu 0.5 --hardware h100 {limits} --json")
    assert (outcome.status, outcome.data["verdict"]) == (status, verdict)
    assert outcome.values["time"] == pytest.approx(6 * 70e9 * 15e12 / (989.4e12 * 0.5 * 1024))


def test_an_impossible_answer_is_given_with_status_1() -> None:
    outcome = run_line(f"{RUN} --within 30d --json")
    assert (outcome.status, outcome.data["verdict"]) == (1, "impossible")
    assert outcome.values["mfu"] > 1


def test_an_estimated_mfu_carries_an_interval_that_a_level_narrows() -> None:
    wide, narrow = run_line(f"{RUN} --json"), run_line(f"{RUN} --confidence 80 --json")
    assert wide.data["inputs"]["mfu"]["origin"] == "evidence"
    low, time, high = (wide.values[path] for path in ("time/low", "time", "time/high"))
    assert low < narrow.values["time/low"] < time < narrow.values["time/high"] < high


# --- memory and step -------------------------------------------------------------------------------------------------


def test_states_of_the_default_policy_are_sixteen_bytes(write: Any) -> None:
    v = run_line(["memory", write("c.json", SMALL), "--json"]).values
    assert v["memory/parameters"] == v["memory/gradients"] == 2 * COUNT
    assert v["memory/optimizer"] == 12 * COUNT + 4 * (4 * 9 + 3)  # one fp32 step counter for each of 39 tensors
    assert v["memory/total"] == v["memory/used"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--tp 3 --gpus 6", "--tp 2 does"),
        ("--cp 3 --gpus 3", "--cp 2 does"),
        ("--tp 2 --gpus 7", "--gpus 8"),
        ("--tp 2 --dp 3 --gpus 8", "contradiction"),
        ("--ep 2 --gpus 2", "no experts"),
        ("--pp 8 --gpus 8", "at most 4"),
        ("--gpus 2 --global-batch 3", "multiple"),
        ("--precision bf17-mixed", "bf16-mixed"),
        ("--optimizer adamww", "adamw"),
        ("--attention flashh", "flash"),
        ("--recompute half", "group:sqrt"),
        ("--recompute memory_budget", "napkin does not model"),
        ("--activation-memory-budget 0.5", "napkin does not model"),
        ("--must-fit", "--hardware"),
        ("--zero 4", "0, 1, 2, 3"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_the_nearest(write: Any, options: str, says: str) -> None:
    refused(run_line(["memory", write("c.json", SMALL), *options.split()]), 2, says)


def test_megatrons_long_names_are_the_same_options(write: Any) -> None:
    path = write("c.json", SMALL)
    long = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --seq-length 256"
    short = "--tp 2 --pp 2 --micro-batch 2 --seq 256"
    answers = [run_line(["memory", path, "--gpus", "8", *one.split(), "--json"]) for one in (long, short)]
    assert answers[0].values == answers[1].values


def test_must_fit_sets_the_status() -> None:
    line = "memory llama3-8b --hardware h100 --must-fit --json"
    for options, status, verdict in (
        ("--gpus 8 --zero 3 --recompute full", 0, "fits"),
        ("--gpus 1", 1, "does not fit"),
    ):
        outcome = run_line(f"{line} {options}")
        assert (outcome.status, outcome.data["verdict"]) == (status, verdict)
    v = run_line("memory llama3-8b --gpus 8 --zero 3 --recompute full --json").values
    between = (v["memory/used"] + v["memory/high"]) / 2
    close = run_line(f"{line} --gpus 8 --zero 3 --recompute full --memory-size {int(between)}B")
    assert (close.status, close.data["verdict"]) == (4, "too close to call")


@pytest.mark.parametrize("what", ["micro-batch", "seq"])
def test_the_largest_fits_and_one_more_does_not(write: Any, what: str) -> None:
    path = write("c.json", SMALL)
    line = ["memory", path, "--hardware", "h100", "--json"]
    answer = run_line([*line, "--max", what])
    best = answer.values[f"max/{what.replace('-', '_')}"]
    assert answer.data["inputs"][what]["origin"] == "solved"
    at, beyond = (run_line([*line, f"--{what}", str(best + more)]).values for more in (0, 1))
    assert at["memory/used"] <= at["memory/capacity"] < beyond["memory/used"]
    assert at["memory/used"] == answer.values["memory/used"]


def test_every_interval_follows_the_level(write: Any) -> None:
    path = write("c.json", SMALL)
    for command, low in (("memory", "memory/low"), ("step", "step/low")):
        line = [command, path, "--hardware", "h100", "--gpus", "8", "--json"]
        wide, narrow = run_line(line).values, run_line([*line, "--confidence", "80"]).values
        high = low.replace("low", "high")
        assert wide[low] < narrow[low] < narrow[high] < wide[high]
    refused(run_line(["step", path, "--hardware", "h100", "--confidence", "200"]), 2, "50 to 98")


# --- flops, mfu, roofline --------------------------------------------------------------------------------------------


def test_attention_is_counted_full_half_or_exactly(write: Any) -> None:
    line = ["flops", write("c.json", SMALL), "--batch", "2", "--seq", "128", "--json"]
    attention = 4 * 128 * 128 * 256 * 4 * 2  # Q·Kᵀ and P·V over the square, 256 wide, 4 layers, 2 sequences
    products = 2 * 256 * (4 * (725_504 - 512) + 256_000)
    full = run_line(line).values
    assert full["flops/forward"] == products + attention
    assert full["flops/backward"] == 2 * full["flops/forward"]
    assert full["flops/attention"] == 3 * attention == 2 * full["flops/attention/half"]
    assert full["flops/attention/exact"] == 3 * 4 * (128 * 129 // 2) * 256 * 4 * 2
    assert run_line([*line, "--causal"]).values["flops/forward"] == products + attention // 2


def test_mfu_is_given_under_every_convention(write: Any) -> None:
    line = ["mfu", write("c.json", SMALL), "--gpus", "8", "--hardware", "h100", "--json"]
    v = run_line([*line, "--tokens-per-second", "98000"]).values
    for name in ("6nd", "6nd_non_embedding", "palm", "nanogpt", "megatron", "causal", "torch"):
        assert 0 < v[f"mfu/{name}"] <= v[f"hfu/{name}"]
    assert v["mfu/6nd"] == pytest.approx(6 * COUNT * 98_000 / (8 * 989.4e12))
    each = run_line([*line, "--tokens-per-second-per-gpu", "12250"]).values
    assert each["mfu/palm"] == pytest.approx(v["mfu/palm"])


def test_the_verdict_of_the_roofline_is_a_word() -> None:
    for shape, word in (("4096x4096x4096", "compute"), ("1x4096x4096", "memory")):
        answer = run_line(f"roofline matmul {shape} --hardware h100 --json").data
        m, k, n = map(int, shape.split("x"))
        assert answer["verdict"] == word
        assert answer["values"]["intensity"] == pytest.approx(2 * m * k * n / (2 * (m * k + k * n + m * n)))
        assert [answer["values"][one] for one in "mkn"] == [m, k, n]
    refused(run_line("roofline matmul 64x64x64 --hardware a100 --dtype fp8"), 3, "fp8")


# --- small commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tensor 4x8 --dtype fp32", {"memory/total": 128, "elements": 32, "contiguous": 1, "stride/0": 8, "offset": 0}),
        ("data --tokens 15T --vocab 65536", {"data/bytes": 30 * 10**12}),
        ("data --tokens 15T --vocab 65537", {"data/bytes": 60 * 10**12}),
        ("optimizer adamw-fused --shape 96x64 --param-dtype bf16", {"optimizer/state_bytes": 2 * 96 * 64 * 2 + 4}),
        ("flops linear --widths 4,4,1 --batch 2", {"params/total": 20, "flops/total": 240}),
        (
            "memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32",
            {"memory/total": 496, "memory/saved_input": 32},
        ),
        ("dtype 70000", {"dtype/fp16/max": 65504, "dtype/fp8_e4m3/max": 448, "dtype/bf16/value": 70144}),
        ("max-params --gpus 8 --hardware h100", {"params/max": 40 * 10**9, "memory/capacity": 640 * 10**9}),
        (
            "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h",
            {
                "checkpoint/bytes": 980 * 10**9,
                "checkpoint/write_time": 98,
                "checkpoint/interval": (2 * 98 * 86400) ** 0.5,
            },
        ),
    ],
)
def test_small_answers(line: str, values: dict[str, float]) -> None:
    answer = run_line(f"{line} --json").values
    for path, value in values.items():
        assert answer[path] == pytest.approx(value, rel=1e-12), path


def test_muon_on_a_vector_is_refused() -> None:
    refused(run_line("optimizer muon --shape 96"), 2, "matrices")


# --- plan and bench --------------------------------------------------------------------------------------------------


def test_an_impossible_plan_answers_with_the_nearest(write: Any) -> None:
    outcome = run_line(["plan", write("c.json", SMALL), "--gpus", "13", "--tp", "2", "--hardware", "h100", "--json"])
    assert (outcome.status, outcome.data["verdict"]) == (1, "impossible")
    assert outcome.data["rows"]


def test_without_a_device_bench_is_absent() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    refused(run_line("bench --quick"), 5, "no CUDA device")


def test_a_plan_without_gpus_asks_for_the_fewest(write: Any) -> None:
    line = ["plan", write("c.json", SMALL), "--hardware", "h100", "--within", "1d", "--tokens", "1B", "--json"]
    answer = run_line(line).data
    assert answer["inputs"]["objective"] == {"value": "gpus", "origin": "default", "given": "gpus"}
    assert answer["values"]["gpus"] >= 1

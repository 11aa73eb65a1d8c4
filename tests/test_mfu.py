"""MFU and HFU: from every kind of rate to the same utilization, verdicts, the classic mistakes, log lines."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.errors import NapkinError
from napkin.inputs.log import read_line
from tests.conftest import run_line

PEAK = 989.4e12
H100 = "--hardware h100-sxm-80gb --peak-flops 989.4TFLOP/s"
SIX_N, PALM = 6 * 8_030_261_248, 6 * (8_030_261_248 - 525_336_576) + 12 * 32 * 4096 * 8192


def test_every_kind_of_rate_is_the_same_mfu() -> None:
    expected = 12_250 * PALM / PEAK
    rates = (
        "--tokens-per-second 98000 --gpus 8",
        "--tokens-per-second-per-gpu 12250",
        f"--samples-per-second {98_000 / 8192!r} --gpus 8",
        f"--step-time {64 * 8192 / 98_000!r}s --global-batch 64 --gpus 8",
        f"--tflops {12_250 * PALM / 1e12!r} --flops palm",
        '--log "tok/s: 98,000 | loss 2.1" --gpus 8',
    )
    for rate in rates:
        found = run_line(f"mfu llama3-8b {rate} {H100} --seq 8192 --json")
        assert found.values["mfu/palm"] == pytest.approx(expected, rel=1e-9), rate
        assert found.values["mfu"] == found.values["mfu/palm"]
        assert found.values["mfu/6nd"] == pytest.approx(12_250 * SIX_N / PEAK, rel=1e-9)


def test_conventions_and_hardware_utilization() -> None:
    found = run_line(f"mfu llama3-8b --tokens-per-second-per-gpu 9000 {H100} --seq 8192 --json").values
    names = {"6nd", "6nd_non_embedding", "palm", "nanogpt", "megatron", "causal", "torch", "exact"}
    assert {path[4:] for path in found if path.startswith("mfu/")} == names
    assert all(found[f"hfu/{name}"] == found[f"mfu/{name}"] for name in names - {"exact"})
    assert "hfu/exact" not in found
    assert found["mfu/causal"] < found["mfu/palm"]


def test_an_mfu_above_1_is_possible_where_a_window_leaves_most_of_the_square_out() -> None:
    """Mistral 7B at 131,072 tokens with a window of 4,096: token i attends to min(i, 4,096) of them, and attention in
    32 layers of 32 heads of 128 takes 4 FLOP a pair and element, three times."""
    line = "mfu mistral-7b-v0.1 --hardware h100-sxm-80gb --seq 131072 --json --tokens-per-second-per-gpu"
    length, window, rate, peak = 131_072, 4096, 8000, 989.4e12
    pairs = window * length - window * (window - 1) // 2
    found = run_line(f"{line} {rate}")
    left_out = (found.values["mfu/torch"] - found.values["mfu/exact"]) * found.values["peak"] / rate
    assert left_out == pytest.approx(12 * 32 * 4096 * (length - pairs / length), rel=1e-9)
    assert found.values["peak"] == pytest.approx(peak, rel=1e-3)
    assert found.values["mfu"] > 1 > found.values["mfu/exact"]
    assert (found.data["verdict"], found.status) == ("good", 0)
    causal = (length + 1) / 2 - pairs / length  # pairs of a token outside the window, counted twice in the full square
    judged = found.values["mfu"] - 2 * 12 * 32 * 4096 * causal * rate / peak
    assert any(f"the verdict is about an MFU of {judged:.3g}: " in note for note in found.data["notes"])
    most = rate / found.values["mfu/exact"]
    assert run_line(f"{line} {most * 1.01!r}").data["verdict"] == "impossible"
    assert run_line(f"{line} {most * 0.99!r}").status == 0


def test_the_time_of_a_long_run_with_a_window_is_possible() -> None:
    """Trained with LoRA, the square of attention is counted: its MFU is above 1, and its interval is about it."""
    found = run_line(
        "train-time mistral-7b-v0.1 --tokens 1B --gpus 8 --hardware h100 --seq 131072 --zero 3 --global-batch 64 "
        "--micro-batch 1 --lora-rank 8 --recompute full --json"
    )
    assert found.values["mfu"] > 1
    assert found.data["verdict"] != "impossible"
    for path in ("mfu", "time"):
        assert found.values[f"{path}/low"] < found.values[path] < found.values[f"{path}/high"]


def test_recomputation_counts_towards_hfu_alone() -> None:
    line = f"mfu llama3-8b --tokens-per-second-per-gpu 9000 {H100} --seq 8192 --json"
    none, full, half, core = (
        run_line(f"{line} --recompute {kind}").values for kind in ("none", "full", "every:2", "selective")
    )
    assert none["mfu/torch"] == full["mfu/torch"] == core["mfu/torch"]
    matrices, head, square = 8_030_261_248 - 525_336_576 - 65 * 4096, 2 * 4096 * 128_256, 4 * 32 * 4096 * 8192
    forward = 2 * matrices + square
    assert full["hfu/torch"] / full["mfu/torch"] == pytest.approx(1 + (forward - head) / (3 * forward), rel=1e-9)
    assert half["hfu/torch"] / half["mfu/torch"] == pytest.approx(1 + (forward - head) / (6 * forward), rel=1e-9)
    assert core["hfu/torch"] / core["mfu/torch"] == pytest.approx(1 + square / (3 * forward), rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "verdict", "status"),
    [
        (12_250, "good", 0),
        (8_000, "good", 0),
        (5_500, "fair", 0),
        (3_000, "poor", 0),
        (1_050, "poor", 0),  # 6 %
        (500, "bad", 0),
        (20_000, "impossible", 1),
    ],
)
def test_verdicts(rate: int, verdict: str, status: int) -> None:
    outcome = run_line(f"mfu llama3-8b --tokens-per-second-per-gpu {rate} {H100} --seq 8192 --json")
    assert outcome.data["verdict"] == verdict
    assert outcome.status == status


def test_a_sparse_peak_is_flagged() -> None:
    line = "mfu llama3-8b --tokens-per-second-per-gpu 9000 --hardware h100-sxm-80gb --seq 8192 --json"
    wrong = run_line(f"{line} --peak-flops 1979TFLOP/s").data["notes"]
    assert any("sparse peak" in note for note in wrong)
    assert not any("sparse peak" in note for note in run_line(line).data["notes"])


def test_which_convention_explains_a_claim() -> None:
    line = f"mfu llama3-8b --tokens-per-second-per-gpu 9000 {H100} --seq 8192 --json"
    found = run_line(line).values

    def note(claim: float) -> str:
        notes: list[str] = run_line(f"{line} --claimed-mfu {claim:.4f}").data["notes"]
        return next(note for note in notes if "claimed" in note)

    assert "mfu/6nd " in note(found["mfu/6nd"])
    datasheet = line.replace(H100, "--hardware h100-sxm-80gb")
    halved = run_line(f"{datasheet} --claimed-mfu {found['mfu/6nd_non_embedding'] / 2:.4f}").data["notes"]
    assert any("against the sparse peak" in one for one in halved)
    assert "no convention explains" in note(0.95)


def test_a_number_of_parameters_is_enough() -> None:
    found = run_line(f"mfu --params 7B --tokens-per-second-per-gpu 10000 {H100} --json").values
    assert found["mfu/6nd"] == pytest.approx(6 * 7e9 * 10_000 / PEAK)
    full = run_line(f"mfu --params 7B --tokens-per-second-per-gpu 10000 {H100} --recompute full --json").values
    assert full["hfu/6nd"] == pytest.approx(8 * 7e9 * 10_000 / PEAK)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mfu llama3-8b --hardware h100", "one of these is needed"),
        ("mfu llama3-8b --hardware h100 --tokens-per-second 9 --tflops 9", "cannot be combined"),
        ("mfu llama3-8b --hardware h100 --tokens-per-second 9", "--gpus"),
        ("mfu llama3-8b --hardware h100 --step-time 2s --gpus 8", "--global-batch"),
        ("mfu llama3-8b --hardware h100 --params 8B --tflops 9", "cannot be combined"),
        ("mfu --params 8B --tflops 400 --hardware h100 --flops palm", "needs a model"),
        ("mfu --params 8B --tflops 400 --hardware h100 --flops nonsense", "no convention"),
        ('mfu llama3-8b --hardware h100 --log "hello"', "no throughput"),
        ("mfu llama3-8b --hardware h100 --time 3s --tflops 4", "belongs to a matmul"),
    ],
)
def test_bad_usage(line: str, says: str) -> None:
    outcome = run_line(line)
    assert outcome.status == 2
    assert says in outcome.errors[0]


# lines as trainers print them
LINES = [
    (
        " iteration 100/ 500 | consumed samples: 102400 | elapsed time per iteration (ms): 2345.5 | throughput per GPU "
        "(TFLOP/s/GPU): 431.2 | learning rate: 1.0E-5 | global batch size: 1024 | lm loss: 5.1E+00 |",
        {"step_seconds": 2.3455, "flops_per_second_per_gpu": 431.2e12, "global_batch": 1024},
    ),
    (
        "step: 10  loss:  8.0  memory: 47.28GiB(49.77%)  tps: 7,023  tflops: 411.25  mfu: 41.5%",
        {"tokens_per_second_per_gpu": 7023, "flops_per_second_per_gpu": 411.25e12, "mfu": 0.415},
    ),
    ("iter 100: loss 3.2021, time 134.5ms, mfu 42.5%", {"step_seconds": 0.1345, "mfu": 0.425}),
    (
        "{'train_runtime': 100.0, 'train_samples_per_second': 12.25, 'train_steps_per_second': 0.75, 'epoch': 1.0}",
        {"samples_per_second": 12.25, "steps_per_second": 0.75},
    ),
    (
        "completed step: 5, seconds: 3.125, TFLOP/s/device: 210.5, Tokens/s/device: 4321.5, loss: 10.8",
        {"step_seconds": 3.125, "flops_per_second_per_gpu": 210.5e12, "tokens_per_second_per_gpu": 4321.5},
    ),
    ("tokens per gpu per second (tgs): 3050.75", {"tokens_per_second_per_gpu": 3050.75}),
    (
        "tgs (tokens/gpu/second)=4193.5 tflops=187.5",
        {"tokens_per_second_per_gpu": 4193.5, "flops_per_second_per_gpu": 187.5e12},
    ),
    (
        "step 99 | loss 6.1 | dt: 338.25ms | tok/sec: 1549887.5",
        {"step_seconds": 0.33825, "tokens_per_second": 1549887.5},
    ),
    ("step=10, RunningAvgSamplesPerSec=50.25, MemAllocated=1GB", {"samples_per_second": 50.25}),
]


@pytest.mark.parametrize(("line", "quantities"), LINES)
def test_log_lines(line: str, quantities: dict[str, float]) -> None:
    found = read_line(line).quantities
    assert found == pytest.approx(quantities)


@given(st.text(max_size=300))
def test_any_line_is_read_or_refused(line: str) -> None:
    with contextlib.suppress(NapkinError):
        assert read_line(line).quantities


MEGATRON = "elapsed time per iteration (ms): {} | throughput per GPU (TFLOP/s/GPU): {} | global batch size: 64"
NANOGPT = "iter 500: loss 3.1234, time {}ms, mfu {}%"


def test_a_log_that_states_its_speed_is_counted_again() -> None:
    """Megatron's count of 64 sequences a second on 64 GPUs is what its log should state."""
    line = ["mfu", "llama3-8b", *["--gpus", "64", "--hardware", "h100", "--seq", "8192"]]
    rate = run_line([*line, "--tokens-per-second-per-gpu", "8192", "--json"]).values
    speed = rate["flops_per_second/megatron"] / 1e12
    same = run_line([*line, "--log", MEGATRON.format(1000, f"{speed:.1f}"), "--json"]).data
    assert f"the log's {speed:.4g} (TFLOP/s per GPU) is Megatron-LM's count of this rate" in same["notes"]
    assert same["values"]["tokens_per_second_per_gpu"] == pytest.approx(8192)
    other = " ".join(run_line([*line, "--log", MEGATRON.format(1000, f"{speed / 2:.1f}")]).out.split())
    assert f"is not Megatron-LM's count of this rate, {speed:.4g}: another model" in other
    assert "no single cause" not in other
    alone = run_line([*line, "--log", "throughput per GPU (TFLOP/s/GPU): 400", "--json"]).data
    assert not any("the log's 400" in note for note in alone["notes"])


@pytest.mark.parametrize("card", ["h100", "a100"])
def test_nanogpt_divides_by_the_peak_of_an_a100(card: str) -> None:
    """estimate_mfu: 6N + 12LHQT, of 312 TFLOP/s whatever the accelerator; N without positions, 123.65M of GPT-2."""
    per_gpu = 480 * 1024 / (8 * 0.25)
    mfu = (6 * (124_439_808 - 1024 * 768) + 12 * 12 * 768 * 1024) * per_gpu / 312e12
    line = ["mfu", "gpt2", *f"--gpus 8 --global-batch 480 --seq 1024 --hardware {card} --json".split()]
    notes = run_line([*line, "--log", NANOGPT.format(250, f"{100 * mfu:.2f}")]).data["notes"]
    assert any("(MFU, of 312.0 TFLOP/s) is nanoGPT's count of this rate" in note for note in notes)
    notes = run_line([*line, "--log", NANOGPT.format(250, "41.2")]).data["notes"]
    assert any(f"is not nanoGPT's count of this rate, {mfu:.4g}" in note for note in notes)
    assert not any("explained" in note for note in notes)
    claimed = run_line([*line, "--log", NANOGPT.format(250, "41.2"), "--claimed-mfu", "0.3"]).data["notes"]
    assert any("a claimed MFU of 0.3" in note for note in claimed)


def test_a_rare_mfu_is_not_called_good_without_reserve() -> None:
    """One in a hundred published steps reaches 0.70: the verdict of the second line says so as the remark does."""
    line = "mfu llama3-8b --hardware h100 --seq 8192 --tokens-per-second-per-gpu"
    assert "GOOD BUT RARE" in run_line(f"{line} 12792").out.splitlines()[1]
    assert "RARE" not in run_line(f"{line} 9000").out


def test_how_samples_and_logged_flops_are_read_is_assumed_on_the_screen() -> None:
    line = "mfu llama3-8b --hardware h100 --gpus 8 --seq 8192"
    assert "samples of 8,192 tokens with padding" in run_line(f"{line} --samples-per-second 4").out
    assert "TFLOP/s by the megatron convention" in run_line(f"{line.replace('--gpus 8', '')} --tflops 410").out
    assert "convention," not in run_line(f"{line.replace('--gpus 8', '')} --tflops 410 --flops palm").out


@pytest.mark.parametrize(
    ("seq", "rate", "verdict"),
    [(4096, 7500, "fair"), (32768, 5000, "fair"), (131072, 4000, "poor")],
)
def test_an_mfu_with_a_window_is_judged_without_what_it_leaves_out(seq: int, rate: int, verdict: str) -> None:
    """Mistral 7B: 6 · 7.11e9 FLOP of matrices (without the input table) and 2 · 12 · 32 · 4096 for each pair in the
    window, which is all of the square up to 4,096 tokens: 0.37, 0.28 and 0.22 of 989.4 TFLOP/s, the last from an MFU by
    the full square of 1.01."""
    line = f"mfu mistral-7b-v0.1 --hardware h100-sxm-80gb --seq {seq} --tokens-per-second-per-gpu {rate} --json"
    found = run_line(line)
    window = min(4096, seq)
    pairs = (window * seq - window * (window - 1) / 2) / seq
    attention = 12 * 32 * 4096 * min(2 * pairs, seq)
    judged = (6 * (7_241_732_096 - 32000 * 4096) + attention) * rate / 989.4e12
    limits = {"fair": (0.23, 0.39), "poor": (0.05, 0.23)}[verdict]
    assert limits[0] <= judged < limits[1]
    assert found.data["verdict"] == verdict


@pytest.mark.parametrize(
    ("dtype", "policy"), [("fp8", "--precision fp8-mixed "), ("fp32", "--precision fp32 "), ("int8", "")]
)
def test_the_next_step_has_a_policy_that_computes_in_the_peak_s_format(dtype: str, policy: str) -> None:
    """None computes in int8: the step's own default then, not fp32, which is the farthest from it."""
    out = run_line(f"mfu llama3-8b --dtype {dtype} --hardware h100 --gpus 8 --tokens-per-second 10000").out
    assert f"next: napkin step llama3-8b {policy}--hardware h100 --gpus 8" in out

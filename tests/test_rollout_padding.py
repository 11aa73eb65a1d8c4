"""The tokens that a trainer of reinforcement learning runs for a sequence that it pads, by hand."""

from __future__ import annotations

import json
import math

import pytest

from napkin.evidence.figures.response_lengths import longest_of_step
from napkin.planning.padding import longest_of, run_tokens
from napkin.planning.rollout_lengths import LengthSpread, RolloutLengths
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.trainers import find
from tests.conftest import written

HALF = LengthSpread(100, math.log(2))
"""Half of the responses reach the limit of 100 tokens."""
STEP = (
    "step qwen2.5-1.5b --task grpo --gpus 8 --hardware h100 --prompt-tokens 100 --max-prompt-tokens 200 "
    "--response-tokens 500 --max-response-tokens 1000 --samples-per-prompt 8 --global-batch 64 --micro-batch 32"
)


@pytest.mark.parametrize(
    ("count", "longest"),
    [(1, 100 / math.log(2) * 1 / 2), (2, 100 / math.log(2) * (1 / 2 + 1 / 8)), (500, 100.0)],
)
def test_the_longest_of_several_responses(count: int, longest: float) -> None:
    """∫ 1 − (1 − 2^(−t/100))ⁿ from 0 to 100: 72.1 tokens of one, 90.2 of two, the limit of many."""
    assert longest_of(HALF, count) == pytest.approx(longest, rel=1e-6)


def test_responses_of_one_length_are_that_long() -> None:
    assert longest_of(LengthSpread(300, 0.0), 8) == 300


@pytest.mark.parametrize(
    ("trainer", "unpads"), [("verl", True), ("nemo-rl", True), ("trl", False), ("openrlhf", False)]
)
def test_what_libraries_pad(trainer: str, unpads: bool) -> None:
    assert (find(trainer).padded == "") is unpads


def test_a_sequence_has_the_length_that_its_group_is_padded_to() -> None:
    """64 responses on 2 ranks, micro-batches of 1: their own length; the longest of 32; the longest allowed."""
    lengths = RolloutLengths(prompt=10, response=round(longest_of(HALF, 1)), longest=100, answers=8, prompts=8)
    layout = Layout(seq=82, micro=1, micro_batches=32, dp=2)
    assert run_tokens(layout, lengths, "") == 10 + 72
    assert run_tokens(layout, lengths, "micro-batch") in (10 + 72, 10 + 73)
    assert run_tokens(layout, lengths, "rank") == 10 + 100
    assert run_tokens(layout, lengths, "limit") == 10 + 100


def test_ranks_that_gather_layers_together_wait_for_the_longest_sequences() -> None:
    """The longest of 2 responses has 90.2 tokens, 18.0 above the mean; of means of 4, half as many above. Ranks that
    hold all weights, and micro-batches of as many tokens, wait for none; padded ones, for the longest of all ranks."""
    lengths = RolloutLengths(prompt=10, response=round(longest_of(HALF, 1)), longest=100, answers=8, prompts=8)
    one, four = (Layout(seq=82, micro=m, micro_batches=32 // m, dp=2, zero=3) for m in (1, 4))
    assert [run_tokens(layout, lengths, "") for layout in (one, four)] == [82 + 18, 82 + 9]
    assert run_tokens(one, lengths, "", even=True) == 82
    assert run_tokens(one.replaced(zero=2), lengths, "") == 82
    assert run_tokens(one.replaced(dp=1), lengths, "") == 82
    assert run_tokens(one, lengths, "micro-batch") == 10 + math.ceil(longest_of(lengths.spread, 2))


def test_micro_batches_of_as_many_tokens_wait_for_none() -> None:
    """A library that packs tokens is faster than with as many sequences, where these are gathered from all ranks."""
    line = f"{STEP} --trainer verl".replace("--micro-batch 32", "").replace("1.5b", "7b")
    packed, counted = (
        json.loads(written(f"{line} {more}", "json"))["values"]["step/update"]
        for more in ("--micro-batch-tokens 2400", "--micro-batch 4")
    )
    assert 1.1 * packed < counted < 1.8 * packed


def test_passes_over_padding_take_as_many_times_longer() -> None:
    """Sequences of 600 tokens padded to 1,200: twice the products, and the generation is the same."""
    free, padded = (
        json.loads(written(f"{STEP} --trainer verl {more}", "json"))["values"] for more in ("--no-padding", "--padding")
    )
    parts = ("generation", "update", "logprobs")
    ratio = {name: padded[f"step/{name}"] / free[f"step/{name}"] for name in parts}
    assert ratio["generation"] == pytest.approx(1, rel=1e-9)
    assert 1.5 < ratio["update"] < 2.5
    assert 1.5 < ratio["logprobs"] < 2.5


def test_the_mean_square_of_lengths() -> None:
    """Half of the responses reach 100 tokens: E[r] = 100/ln 2 · 1/2 = 72.1, E[r²] = 2·(100/ln 2)²·(1 − (1 + ln 2)/2) =
    6,387; with prompts of 10, (100 + 2·10·72.1 + 6,387) / 82.1². Without a limit, twice the square of the mean."""
    lengths = RolloutLengths(prompt=10, response=72, longest=100, answers=8, prompts=8)
    assert lengths.uneven == pytest.approx(7929 / 82.13**2, rel=3e-3)
    assert replace(lengths, longest=72).uneven == pytest.approx(1)
    assert replace(lengths, prompt=0, longest=10_000).uneven == pytest.approx(2)


def test_attention_grows_with_the_mean_square_of_lengths() -> None:
    """With as many tokens, only pairs grow, and only where sequences are not padded to one length."""

    def compute(response: int, longest: int, more: str) -> float:
        line = STEP.replace("--response-tokens 500 --max-response-tokens 1000", "")
        line += f" --trainer verl --zero 2 --response-tokens {response} --max-response-tokens {longest} {more}"
        return float(json.loads(written(line, "json"))["values"]["step/update/compute"])

    same, twice, most = (compute(4000, longest, "--no-padding") for longest in (4000, 8000, 16000))
    uneven = [
        RolloutLengths(100, 4000, longest, 8, 64, reached=longest_of_step(longest, 4000, 512, "qwen2")).uneven
        for longest in (8000, 16000)
    ]
    assert same < twice < most
    assert (most - same) / (twice - same) == pytest.approx((uneven[1] - 1) / (uneven[0] - 1), rel=0.05)
    assert compute(300, 1000, "--padding") == compute(600, 1000, "--padding")

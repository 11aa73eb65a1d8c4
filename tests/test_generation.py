"""Generation: what a pass of an inference engine reads and computes, and the seconds that follow, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import build
from napkin.commands.question.named import named_config
from napkin.evidence.serving.generation import UNKNOWN, rates_on
from napkin.footprint.served_weights import stored, weights_read
from napkin.inputs.hardware import find
from napkin.operations.model import Model
from napkin.planning.generation import (
    ServingSetup,
    Tokens,
    cache_of,
    decode_flops,
    decode_passes,
    moved_by_sequence,
    prefill_flops,
    prefill_passes,
)
from napkin.planning.service import hold, serve
from napkin.record import fields, replace
from napkin.term import constant
from napkin.timing.generation import (
    CLOSED,
    STATIC,
    EnginePasses,
    EngineRanks,
    EngineShares,
    GenerationRates,
    Traffic,
    passes_time,
)  # fmt: skip

LLAMA, TABLE = 8_030_261_248, 128_256 * 4096
LAYER = 4096 * (4096 + 1024 + 1024 + 4096 + 3 * 14336)
"""Weights in the linear layers of a layer of Llama 3 8B."""
SHARES = EngineShares(*(1.0,) * 7, layer=0.0, routed=0.0, host=0.0)
RATES = GenerationRates(peak=1.0, wide=1.0, bandwidth=1.0, link=1.0, network=1.0, node=8, reached=SHARES)
H100 = GenerationRates(989.4e12, 989.4e12, 3.35e12, 450e9, 50e9, 8, SHARES)


def model(name: str) -> Model:
    return build(named_config(name)[0])


def setup(name: str, tp: int = 1, pp: int = 1, ep: int = 1, dp: int = 1, dtype: str = "bf16") -> ServingSetup:
    return ServingSetup(model(name), stored(dtype), 2, "bf16", EngineRanks(tp, pp, ep), dp)


def passes(**changes: Any) -> EnginePasses:
    return replace(EnginePasses(constant("n", 3), layers=5, read=7, linear=0, attention=0, cached=11), **changes)


def test_each_pass_reads_the_weights_and_all_read_their_cache() -> None:
    """3 passes of 7 bytes, then 11 bytes of keys and values; at half of the bandwidth twice as long."""
    assert float(passes_time("t", passes(), EngineRanks(), RATES).value) == 3 * 7 + 11
    slow = replace(RATES, reached=replace(SHARES, weights=0.5))
    assert float(passes_time("t", passes(), EngineRanks(), slow).value) == 2 * 3 * 7 + 11


def test_what_computes_longer_than_it_reads_takes_its_flops() -> None:
    assert float(passes_time("t", passes(linear=100, attention=50), EngineRanks(), RATES).value) == 100 + 50
    assert float(passes_time("t", passes(linear=20, attention=50), EngineRanks(), RATES).value) == 21 + 50


def test_kernels_between_the_products_move_their_bytes_at_their_own_share() -> None:
    halved = replace(RATES, reached=replace(SHARES, memory=0.5))
    assert float(passes_time("t", passes(streamed=10), EngineRanks(), RATES).value) == 32 + 10
    assert float(passes_time("t", passes(streamed=10), EngineRanks(), halved).value) == 32 + 20


def test_a_host_that_schedules_in_python_handles_each_sequence_of_a_pass() -> None:
    """2 seconds for each of 6 sequences, after what the device does; 4 sequences of one step are 4, and those of 3
    stages that pass them on count once."""
    hosted = replace(RATES, reached=replace(SHARES, host=2.0))
    assert float(passes_time("t", passes(sequences=6), EngineRanks(), hosted).value) == 32 + 12
    assert float(passes_time("t", passes(sequences=6), EngineRanks(), RATES).value) == 32
    for stages in (1, 4):
        one = decode_passes(setup("llama3-8b", pp=stages), Tokens(100, 20), constant("n", 1), 4, 4)
        assert one.sequences == 4
    assert prefill_passes(setup("llama3-8b"), 5, 100).sequences == 5


@pytest.mark.parametrize(
    ("engine", "hosted"), [("vllm", True), ("tgi", True), ("sglang", False), ("tensorrt-llm", False), ("", False)]
)
def test_only_engines_that_schedule_in_python_wait_for_their_host(engine: str, hosted: bool) -> None:
    assert (rates_on(find("h100"), "bf16", engine or UNKNOWN).reached.host > 0) is hosted


def test_an_h20s_matrix_units_hold_an_engine_back() -> None:
    """A quarter of an H100's FLOP per clock (4,096 and 1,024 of a multiprocessor): kernels that keep an H100 busy for
    60 % keep these busy all the time, for the largest share that matmuls reach (0.95). Attention's softmax takes the
    clocks that it takes on an H100, next to a matmul that takes four times as many."""
    whole, held = (rates_on(find(chip), "bf16", "vllm").reached for chip in ("h100-sxm-80gb", "h20-96gb"))
    assert whole.matmul > 0.95 / 4
    assert held.matmul == 0.95
    softmax = 1 / whole.attention - 1 / whole.matmul
    assert held.attention == pytest.approx(1 / (1 / 0.95 + softmax / 4))
    assert (held.weights, held.cache, held.layer) == (whole.weights, whole.cache, whole.layer)


def test_without_graphs_a_pass_takes_what_the_host_needs_to_launch_it() -> None:
    """Three passes of 5 layers, 4 of them routed, at 2 s each: 54 s, while the device works for 32 s on 7 + 11/3 each;
    at 1 s each the host is ahead of it: 27 s."""
    for seconds, expected in ((2, 3 * (5 + 4) * 2), (1, 32)):
        eager = replace(RATES, reached=replace(RATES.reached, eager=seconds))
        assert float(passes_time("t", passes(routed_layers=4), EngineRanks(), eager).value) == expected


def test_ranks_wait_and_exchange() -> None:
    """Two all-reduces in each of 5 layers of 3 passes; on 4 ranks 2·3/4 of the payload of 8 bytes, each time."""
    found = passes_time("t", passes(exchanged=8), EngineRanks(tp=4), RATES)
    assert float(found.value) == 32 + 3 * 2 * 5 + 2 * 5 * 1.5 * 8
    launched = replace(RATES, reached=replace(SHARES, layer=2.0, routed=13.0))
    assert float(passes_time("t", passes(), EngineRanks(), launched).value) == 32 + 3 * 5 * 2
    assert float(passes_time("t", passes(routed_layers=4), EngineRanks(), launched).value) == 32 + 3 * (5 * 2 + 4 * 13)


def test_a_stage_waits_for_the_experts_of_its_own_layers() -> None:
    """3 passes of a stage with half of the 4 routed layers: to the experts and back in each, 3/4 of 16 bytes to other
    ranks each way, and a hop to the next stage."""
    found = passes_time("t", passes(routed_layers=4, routed=16), EngineRanks(pp=2, ep=4), RATES)
    assert float(found.value) == 32 + 3 * 2 * 2 + 2 * 0.75 * 16 + 3


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("llama3-8b", 131_072),
        ("llama3-70b", 327_680),
        ("deepseek-v3", 70_272),
        ("llama2-7b", 524_288),
        ("gpt-oss-20b", 24 * 2 * 8 * 64 * 2),
        ("gemma3-4b", 34 * 2 * 4 * 256 * 2),
        ("gemma3n-e4b", 20 * 2 * 2 * 256 * 2),
    ],
)
def test_the_cache_of_a_token(name: str, each: int) -> None:
    """2 · layers · key/value heads · 128 · 2 bytes; of latent attention 61 · (512 + 64) · 2; all tokens of a
    window; of 35 layers of Gemma 3n 15 share the keys of others."""
    found = hold(setup(name), Traffic(STATIC, 1, 100, 28), None)
    assert float(found.per_token.value) == each
    assert float(found.sequence.value) == 128 * each


def test_a_latent_is_on_every_rank_and_more_ranks_than_heads_repeat_them() -> None:
    assert cache_of(setup("deepseek-v3", tp=8), 100, 50) == cache_of(setup("deepseek-v3"), 100, 50)
    assert cache_of(setup("llama3-8b", tp=8), 100, 50) == cache_of(setup("llama3-8b"), 100, 50) / 8
    assert cache_of(setup("llama3-8b", tp=16), 100, 50) == cache_of(setup("llama3-8b"), 100, 50) / 8


def test_of_a_window_no_more_is_kept() -> None:
    """gpt-oss-20b: 12 of 24 layers keep 128 tokens, 2 · 8 · 64 elements each."""
    assert cache_of(setup("gpt-oss-20b"), 10_000, 1) == 12 * (10_000 + 128) * 2 * 8 * 64 * 2


def test_layers_that_share_keys_read_them_again() -> None:
    """Gemma 3n E4B: of 20 layers that keep keys 16 keep 512 tokens, of 15 that share them 12; 2 · 2 · 256 elements."""
    served = setup("gemma3n-e4b")
    kept = (4 * 4096 + 16 * 512) * 1024 * 2
    assert cache_of(served, 4096, 1) == kept
    assert moved_by_sequence(served, 4096, 1) == kept + (3 * 4096 + 12 * 512) * 1024 * 2


def test_a_step_reads_the_keys_that_sparse_attention_chooses() -> None:
    """DeepSeek-V4-Flash: 21 of its layers choose 512 of the keys of 4 tokens each, of 512 elements."""
    served = setup("deepseek-v4-flash")
    skipped = cache_of(served, 100_000, 1) - moved_by_sequence(served, 100_000, 1)
    assert skipped == 21 * (100_000 // 4 - 512) * 512 * 2
    assert moved_by_sequence(served, 2048, 1) == cache_of(served, 2048, 1)


def test_experts_that_a_step_meets() -> None:
    """Mixtral 8x7B: of 8 experts 2 for one token; for 4 tokens 8·(1 − 0.75⁴) = 5.46875."""
    expert = 3 * 4096 * 14336 * 32 * 2
    one, four = (weights_read(model("mixtral-8x7b"), n, stored("bf16")) for n in (1, 4))
    assert float(one.experts) == pytest.approx(2 * expert)
    assert float(four.experts) == pytest.approx(5.46875 * expert)
    assert four.others == one.others


def test_a_decoded_token_computes_twice_its_weights_and_its_scores() -> None:
    """Llama 3 8B: 2 FLOPs of each weight of 32 layers and the head; over 10 tokens after 90, query 91 to 100, on the
    mean 95.5 keys, each 2 · 2 · 4096 in 32 layers."""
    linear, attention = decode_flops(model("llama3-8b"), Tokens(90, 10))
    assert linear == 2 * (32 * LAYER + TABLE)
    assert attention == pytest.approx(95.5 * 4 * 4096 * 32)
    linear, attention = prefill_flops(model("llama3-8b"), 100)
    assert linear == 2 * (100 * 32 * LAYER + TABLE)
    assert attention == 5050 * 4 * 4096 * 32


def test_absorbed_latent_attention_reads_the_latent_in_each_head() -> None:
    """DeepSeek V3: 128 heads score against 512 + 64 elements and sum 512, in 61 layers."""
    _, attention = decode_flops(model("deepseek-v3"), Tokens(99, 1))
    assert attention == pytest.approx(100 * 2 * 128 * (576 + 512) * 61)


def test_a_decode_step_by_hand() -> None:
    """Llama 3 8B in 16 bits on an H100 at its full rates: one sequence of 1,000 + 24/2 tokens. Kernels between the
    products move 2 bytes of 129,024 elements in each of 32 layers (tests/test_engine_kernels.py)."""
    found = serve(setup("llama3-8b"), Traffic(STATIC, 1, 1000, 24), H100)
    assert found.step is not None
    assert found.tpot is not None
    read = 2 * (LLAMA - TABLE)
    assert float(found.step.value) == pytest.approx((read + 1012 * 131_072 + 32 * 2 * 129_024) / 3.35e12, rel=1e-6)
    assert float(found.tpot.value) == pytest.approx(float(found.step.value))
    compute = (2 * (1000 * 32 * LAYER + TABLE) + 500_500 * 4 * 4096 * 32) / 989.4e12
    moved = 1000 * 32 * 2 * 129_024 / 3.35e12
    assert float(found.ttft.value) == pytest.approx(compute + moved)
    cycle = float(found.ttft.value) + 23 * float(found.step.value)
    assert float(found.output_rate.value) == pytest.approx(24 / cycle)


def test_tokens_of_a_closed_loop_add_up() -> None:
    """Little's law: requests in flight are their rate times their time; a queue adds to it."""
    left = constant("left", 64 * 1012 * 131_072, "byte")
    for at_once in (1, 8, 64, 200):
        found = serve(setup("llama3-8b"), Traffic(CLOSED, at_once, 1000, 24), H100, left)
        assert found.tpot is not None
        assert float(found.request.value) == pytest.approx(
            float(found.ttft.value) + 23 * float(found.tpot.value), rel=1e-9
        )
        assert float(found.request_rate.value) * float(found.request.value) == pytest.approx(at_once)
        assert found.at_once == min(at_once, 64)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b"])
def test_larger_batches_serve_more_and_slower(name: str) -> None:
    """Total tokens a second never fall, and no token comes sooner."""
    found = [serve(setup(name), Traffic(STATIC, n, 500, 100), H100) for n in (1, 2, 8, 64, 512)]
    rates = [float(one.output_rate.value) for one in found]
    times = [float(one.tpot.value) for one in found if one.tpot is not None]
    assert rates == sorted(rates)
    assert times == sorted(times)


def test_ranks_and_stages_divide_what_is_read() -> None:
    alone = decode_passes(setup("llama3-8b"), Tokens(100, 10), constant("n", 1), 8, 8)
    ranks = decode_passes(setup("llama3-8b", tp=4), Tokens(100, 10), constant("n", 1), 8, 8)
    stages = decode_passes(setup("llama3-8b", pp=4), Tokens(100, 10), constant("n", 1), 8, 8)
    for divided in (ranks, stages):
        assert divided.read == pytest.approx(float(alone.read) / 4)
        assert divided.linear == pytest.approx(float(alone.linear) / 4)
        assert divided.cached == pytest.approx(float(alone.cached) / 4)
    assert float(stages.count.value) == 4  # a stage reads its weights for each quarter of the sequences
    few = decode_passes(setup("llama3-8b", pp=4), Tokens(100, 10), constant("n", 1), 1, 1)
    assert few.cached == pytest.approx(float(alone.cached) / 8)  # one sequence passes four stages in turn


def test_experts_over_replicas_meet_the_tokens_of_all() -> None:
    """8 replicas of one GPU that share the experts: each holds an eighth, and meets eight times the tokens."""
    apart = decode_passes(setup("mixtral-8x7b", ep=8, dp=8), Tokens(100, 10), constant("n", 1), 4, 4)
    read = weights_read(model("mixtral-8x7b"), 32, stored("bf16"))
    assert apart.read == pytest.approx(float(read.others) + float(read.experts) / 8)


def test_every_share_is_named_in_the_answer() -> None:
    assert set(fields(EngineShares)) >= {"weights", "cache", "matmul", "attention", "bus", "latency", "layer", "routed"}

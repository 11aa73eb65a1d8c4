"""The roofline against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.operations.work import gemm
from napkin.term import Term, leaf
from napkin.timing import roofline
from tests.conftest import Napkin

PEAK, BANDWIDTH = 989.4e12, 3.35e12


def bounds(flops: float, moved: float) -> dict[str, Term]:
    sizes = leaf("flops", flops, "FLOP"), leaf("bytes", moved, "byte")
    return roofline.bounds(*sizes, leaf("peak", PEAK, "FLOP/s"), leaf("bandwidth", BANDWIDTH, "byte/s"))


def width(value: float = 2) -> Term:
    return leaf("width", value, "byte")


def test_the_lectures_intensities() -> None:
    def intensity(pair: tuple[Term, Term]) -> float:
        return float(pair[0].value / pair[1].value)

    assert intensity(roofline.elementwise("relu", 10**6, width())) == 0.25
    assert intensity(roofline.elementwise("relu", 10**6, width(4))) == 0.125
    n = 4096
    assert intensity(roofline.product_terms(gemm("dot", 1, n, 1), width(), width())) == 2 * n / (2 * (2 * n + 1))
    assert intensity(roofline.product_terms(gemm("mv", n, n, 1), width(), width())) == pytest.approx(1, rel=1e-3)
    assert intensity(roofline.product_terms(gemm("mm", n, n, n), width(), width())) == pytest.approx(n / 3)


def test_times_and_verdicts() -> None:
    found = bounds(1e15, 1e12)
    assert found["compute"].value == 1e15 / PEAK
    assert found["memory"].value == 1e12 / BANDWIDTH
    assert found["overlapped"].value == max(1e15 / PEAK, 1e12 / BANDWIDTH)
    assert found["serial"].value == pytest.approx(1e15 / PEAK + 1e12 / BANDWIDTH)
    assert found["ridge"].value == pytest.approx(295.34, abs=0.01)
    assert roofline.verdict(found) == "compute"
    assert roofline.verdict(bounds(1e12, 1e12)) == "memory"


@given(st.floats(1e3, 1e18), st.floats(1e3, 1e15))
def test_the_roof_is_the_better_of_the_two_bounds(flops: float, moved: float) -> None:
    found = bounds(flops, moved)
    assert found["rate"].value == pytest.approx(flops / found["overlapped"].value)
    assert (found["intensity"].value < found["ridge"].value) == (roofline.verdict(found) == "memory") or found[
        "intensity"
    ].value == pytest.approx(found["ridge"].value)
    assert found["overlapped"].value <= found["serial"].value <= 2 * found["overlapped"].value


@given(st.integers(1, 40_000), st.integers(1, 40_000), st.sampled_from([0.5, 1, 2, 4]), st.sampled_from([1, 2, 4]))
def test_the_smallest_compute_bound_batch_is_exactly_that(k: int, n: int, wide: float, out: int) -> None:
    ridge = leaf("ridge", 295.0, "FLOP/byte")
    least = roofline.smallest_batch(gemm("p", 1, k, n), width(wide), width(out), ridge)

    def intensity(m: int) -> float:
        one = gemm("p", m, k, n)
        moved = (m * k + k * n) * wide + m * n * out
        return float(one.flops / moved)

    if least is None:
        assert intensity(10**15) <= 295.0 * (1 + 1e-9)
    else:
        assert intensity(least.value) >= 295.0 * (1 - 1e-9)
        assert least.value == 1 or intensity(least.value - 1) < 295.0 * (1 + 1e-9)


def test_a_row_that_gains_any_flop_hides_weights_at_some_length() -> None:
    """Of (m×1)(1×1) in bytes a row has 2 FLOP and moves 2 bytes next to the weight's 1: at a ridge of R it gains
    2 − 2R FLOP, and hides the R of the weight with ⌈R / (2 − 2R)⌉ rows; at a ridge of 1 with none."""
    for ridge, rows in ((0.5, 1), (0.75, 2), (0.9, 5), (1.0, None)):
        found = roofline.smallest_batch(gemm("p", 1, 1, 1), width(1), width(1), leaf("ridge", ridge, "FLOP/byte"))
        assert (found and found.value) == rows


def test_batched_products_move_every_operand() -> None:
    one = gemm("p", 16, 32, 2, batch=5)
    assert one.flops == 5 * 2 * 16 * 32 * 2
    assert [t.value for t in roofline.product_terms(one, width(), width())] == [
        one.flops,
        5 * 2 * (16 * 32 + 32 * 2 + 16 * 2),
    ]


def test_decoding_reads_every_weight_but_the_table_of_embeddings(napkin: Napkin) -> None:
    # Llama 3 8B: 8,030,261,248 parameters, of which the input table is 128,256 × 4,096
    found = napkin("memory llama3-8b --inference --hardware h100-sxm-80gb --seq 8192 --json").values
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    cache = 2 * 2 * 32 * 8 * 128 * 8192
    assert found["time/per_token"] == pytest.approx((weights + cache) / 3.35e12)
    many = napkin("memory llama3-8b --inference --hardware h100-sxm-80gb --seq 8192 --batch 8 --json").values
    assert many["time/per_token"] == pytest.approx((weights + 8 * cache) / 3.35e12)
    assert many["tokens_per_second"] == pytest.approx(8 / many["time/per_token"])


def test_decoding_reads_the_chosen_experts(napkin: Napkin) -> None:
    # Mixtral 8x7B: 2 of 8 experts of 3 × 4096 × 14336 in 32 layers
    one, many = (
        napkin(f"memory mixtral-8x7b --inference --hardware h100-sxm-80gb --seq 1 --batch {n} --json --explain").data
        for n in (1, 1000)
    )
    expert = 2 * 3 * 4096 * 14336 * 32

    def read(data: dict[str, Any]) -> float:
        return float(data["terms"]["weights_read"]["value"])

    assert read(many) - read(one) == pytest.approx(6 * expert)


def test_a_models_operations_add_up(napkin: Napkin) -> None:
    outcome = napkin("roofline llama3-8b --hardware h100-sxm-80gb --seq 8192 --json")
    counted = napkin("flops llama3-8b --seq 8192 --json").values["flops/forward"]
    rows = {row["operation"]: row for row in outcome.data["rows"]}
    assert outcome.values["flops/forward"] == counted == sum(row["flops"] for row in rows.values())
    assert outcome.values["bytes/forward"] == sum(row["bytes"] for row in rows.values())
    assert outcome.values["time/overlapped"] == pytest.approx(sum(row["time"] for row in rows.values()))
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    tokens, h, f = 8192, 4096, 14336
    assert rows["gate"]["bytes"] == 32 * 2 * (tokens * h + h * f + tokens * f)
    assert rows["attention"]["bytes"] == 32 * 2 * tokens * (2 * 32 + 2 * 8) * 128
    assert rows["gate"]["bound"] == "compute"
    assert rows["mlp_norm"]["bound"] == "memory"


def test_few_tokens_are_memory_bound_and_hit_few_experts(napkin: Napkin) -> None:
    def rows(seq: int) -> dict[str, dict[str, Any]]:
        listed = napkin(f"roofline mixtral-8x7b --hardware h100 --seq {seq} --json").data["rows"]
        return {row["operation"]: row for row in listed}

    found = {seq: rows(seq) for seq in (1, 4096)}
    expert = 3 * 4096 * 14336 * 32 * 2
    per_token = 2 * 32 * 2 * 3 * (4096 + 14336)  # two experts, three products, 2 bytes, in 32 layers
    assert found[1]["experts"]["bytes"] == 2 * expert + per_token
    assert found[4096]["experts"]["bytes"] == 8 * expert + 4096 * per_token
    assert found[1]["experts"]["bound"] == "memory"
    assert found[4096]["experts"]["bound"] == "compute"


@pytest.mark.parametrize("model", ["gpt2", "deepseek-v3", "t5-small", "mamba-2.8b", "gemma2-9b"])
def test_every_kind_of_network_has_a_roofline(napkin: Napkin, model: str) -> None:
    outcome = napkin(f"roofline {model} --hardware h100 --seq 512 --json")
    assert outcome.status == 0, outcome.err
    assert all(row["bytes"] > 0 and row["time"] > 0 for row in outcome.data["rows"])
    assert outcome.data["verdict"] in ("memory", "compute")


def test_a_link_is_slower_than_memory_by_the_ratio_of_their_rates(napkin: Napkin) -> None:
    """3,200 / 64 = 50, for any size."""
    found = napkin("roofline transfer 80GB --link 64GB/s --hardware h100 --memory-bandwidth 3.2TB/s --json").values
    assert found["time/link"] == pytest.approx(80 / 64)
    assert found["slower"] == pytest.approx(50)

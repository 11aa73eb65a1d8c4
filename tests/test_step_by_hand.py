"""The time of a step worked out by hand: matmuls, attention, and the sum of the parts.

A test for each term of docs/step-time.md. Every rate is 1 and nothing is lost (unit_step.py), so that
seconds are FLOPs, or bytes, and each test spells out its paper's formula with the dimensions of one small decoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from napkin.evidence.fit.columns import plan_of
from napkin.evidence.fit.generic import decoder
from napkin.evidence.rates.machines import machine
from napkin.evidence.rows import facts
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.evidence.software.stacks import stack
from napkin.inputs import hardware
from napkin.operations.attention.band import BandAttention
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.shifted import ShiftedAttention
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.operations.rotary import Rotary
from napkin.operations.streams_apart import ChunkAttention, NgramAttention
from napkin.operations.work import Work
from napkin.record import replace
from napkin.timing.attention import core_time
from napkin.timing.clock import Clock
from napkin.timing.layer_clock import LayerClock
from napkin.timing.step import layers_of_step, least_step, step
from napkin.timing.step_layout import StepLayout
from napkin.training.optimizer_step import step_traffic
from napkin.training.optimizer_work import projecting
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from tests.conftest import model
from tests.unit_step import (
    DENSE,
    EF,
    FINAL,
    HEADS,
    KV,
    MATRICES,
    MOE,
    PAIRS,
    PLAIN,
    UNIT,
    B,
    D,
    E,
    F,
    H,
    K,
    L,
    S,
    T,
    V,
    joined,
    linears,
    parts,
    product,
    three,
)

# --- matrix products ---


def test_matrix_products() -> None:
    forward, backward = linears()
    head = sum(three(T, H, V))
    assert parts()["step/compute/matmul"] == pytest.approx(L * (forward + backward) + head)
    assert parts(micro_batches=3)["step/compute/matmul"] == pytest.approx(3 * (L * (forward + backward) + head))


def test_tensor_parallelism_divides_columns_or_rows() -> None:
    """Shoeybi et al. 2019, section 3: q, k, v, gate, up by columns; o and down by rows; the logits by vocabulary."""
    found = parts(tp=2)
    assert found["step/compute/matmul"] == pytest.approx(L * sum(linears(2)) + sum(three(T, H, V // 2)))


def test_full_recomputation_repeats_the_layers_forward_and_not_the_head() -> None:
    forward, backward = linears()
    head = sum(three(T, H, V))
    found = parts(layers_recomputed=1)
    assert found["step/compute/matmul"] == pytest.approx(L * (2 * forward + backward) + head)
    half = parts(layers_recomputed=0.5)
    assert half["step/compute/matmul"] == pytest.approx(L * (1.5 * forward + backward) + head)
    # a checkpoint that stops early leaves out the last product (torch.utils.checkpoint, early_stop)
    early = parts(layers_recomputed=1, changed={"stops_early": 0.75})
    assert early["step/compute/matmul"] == pytest.approx(L * (2 * forward + backward - 0.75 * product(T, F, H)) + head)


def test_products_recomputed_by_a_share() -> None:
    forward, backward = linears()
    found = parts(products_recomputed=0.25)
    assert found["step/compute/matmul"] == pytest.approx(L * (1.25 * forward + backward) + sum(three(T, H, V)))


def test_experts_run_again_where_every_second_linear_layer_does() -> None:
    """torchtitan's selective recomputation keeps every second torch.ops.aten.mm, and no torch._grouped_mm: half of
    the other matmuls run again, and the experts' in full, with what lies between them, but not their exchange."""
    rates = {"permutation_bytes": 8.0}
    every, none = (
        parts(MOE, rates, ep=4, dp=4, products_recomputed=share, experts_recomputed=1 if share else 0)
        for share in (0.5, 0)
    )
    experts, all_matmuls = every["moe/experts/products/forward"], every["moe/matmul/forward"]
    more = every["moe/matmul"] - none["moe/matmul"]
    assert more == pytest.approx(0.5 * (all_matmuls - experts) + experts)
    between = every["moe/elementwise"] - none["moe/elementwise"]
    assert between == pytest.approx(6 * T * K * EF + 0.4 * 8 * T * K * H)
    assert every["step/communication/expert"] == none["step/communication/expert"]


def test_fp8_products_read_one_byte_an_element_and_the_head_stays_wide() -> None:
    def narrow(m: float, k: float, n: float) -> float:
        return joined(m * k * n, (m * k + k * n) + 2 * m * n)  # twice the peak; one byte an operand, two a result

    def all_three(m: float, k: float, n: float) -> float:
        return narrow(m, k, n) + narrow(m, n, k) + narrow(k, m, n)

    layer = sum(all_three(T, k, n) for k, n in ((H, (HEADS + 2 * KV) * D), (HEADS * D, H), (H, 2 * F), (F, H)))
    found = parts(low=1, changed={"peak": 2.0})
    assert found["step/compute/matmul"] == pytest.approx(L * layer + sum(three(T, H, V)))


def test_bytes_of_products_where_they_bind() -> None:
    """With a peak that costs nothing: both operands and the result, two bytes each; in 8 bits the operands have one."""
    fast = {"peak": 1e30, "peak_wide": 1e30, "memory": 0.5}

    def moved(m: float, k: float, n: float, operand: int = 2) -> float:
        return (operand * (m * k + k * n) + 2 * m * n) / 0.5

    def layer(operand: int) -> float:
        shapes = ((H, (HEADS + 2 * KV) * D), (HEADS * D, H), (H, 2 * F), (F, H))
        return sum(moved(T, k, n, operand) + moved(T, n, k, operand) + moved(k, T, n, operand) for k, n in shapes)

    head = moved(T, H, V) + moved(T, V, H) + moved(H, T, V)
    assert parts(changed=fast)["step/compute/matmul"] == pytest.approx(L * layer(2) + head)
    assert parts(changed=fast, low=1)["step/compute/matmul"] == pytest.approx(L * layer(1) + head)


def test_shares_of_the_rates() -> None:
    """Of the memory's, the link's and the network's rate a share is reached."""
    assert parts(changed={"memory": 0.5})["step/memory_bound"] == pytest.approx(2 * parts()["step/memory_bound"])
    near: dict[str, Any] = {"tp": 2}
    far: dict[str, Any] = {"dp": 16, "zero": 1}
    for part, layout, rate in (("tensor", near, "bus"), ("data", far, "wire")):
        whole = parts(changed={"network": 0.01}, **layout)[f"step/communication/{part}"]
        slower = parts(changed={"network": 0.01, rate: 0.5}, **layout)[f"step/communication/{part}"]
        assert slower == pytest.approx(2 * whole)


def test_a_depth_that_costs_and_a_width_that_is_not_aligned() -> None:
    """k/(k + k₀), and a loss for each halving of 64 that k or n needs; 96 columns need one."""
    shape = replace(DENSE, ffn=96)
    found = parts(shape, {"half_depth": 128.0, "misaligned": 0.5})
    deep = 2 * T * 96 * H / (96 / (96 + 128) * 0.5)  # down's forward pass, in whole tiles of T by H
    assert found["layer/down/forward/compute"] == pytest.approx(deep)


# --- attention ---


def test_fused_attention_of_padded_heads() -> None:
    """Heads of 128 padded to 256 take twice as long; those of 64 padded to 128 as long as heads of 128, and no share of
    small heads applies."""
    name = "step/compute/attention"
    assert parts(lanes=256)[name] == pytest.approx(2 * parts()[name])
    small = replace(DENSE, head_dim=64)
    assert parts(small, {"small_head": 0.5}, lanes=128)[name] == pytest.approx(parts()[name])
    assert parts(small, {"small_head": 0.5})[name] == pytest.approx(parts()[name])
    assert parts(small)[name] == pytest.approx(parts()[name] / 2)


def test_fused_attention() -> None:
    """2 FLOP · causal pairs · heads · (d_qk + d_v); backward 2.5 × that (Dao 2023, section 3.1)."""
    forward = 2 * B * PAIRS * HEADS * (D + D)
    assert parts()["step/compute/attention"] == pytest.approx(L * (1 + 2.5) * forward)
    slower = parts(changed={"attention_backward": 1.25, "attention": 0.5})["step/compute/attention"]
    assert slower == pytest.approx(L * (1 + 2.5 * 1.25) * forward / 0.5)
    keys = PAIRS / S
    short = parts(changed={"half_keys": 3 * keys})["step/compute/attention"]
    assert short == pytest.approx(4 * L * 3.5 * forward)  # a quarter of the rate: k keys of k + 3k
    ring = parts(cp=2, changed={"half_keys": keys / 2})["step/compute/attention"]
    assert ring == pytest.approx(2 * L * 3.5 * forward / 2)  # a rank's kernel reads half of the keys
    again = parts(attention_recomputed=1)["step/compute/attention"]
    assert again == pytest.approx(L * (2 + 2.5) * forward)
    assert parts(layers_recomputed=1)["step/compute/attention"] == pytest.approx(again)
    assert parts(tp=2, cp=2)["step/compute/attention"] == pytest.approx(L * 3.5 * forward / 4)


def test_attention_in_a_window_and_with_small_heads() -> None:
    window = 128
    pairs = window * (window + 1) / 2 + (S - window) * window
    shape = replace(DENSE, window=window)  # tables print windows that alternate with full attention
    whole, part = (2 * B * each * HEADS * 2 * D for each in (PAIRS, pairs))
    assert parts(shape)["step/compute/attention"] == pytest.approx(3.5 * L / 2 * (whole + part))
    small = replace(DENSE, heads=8, kv_heads=4, head_dim=64)
    found = parts(small, {"small_head": 0.5})["step/compute/attention"]
    assert found == pytest.approx(L * 3.5 * 2 * B * PAIRS * 8 * 128 / 0.5)
    assert parts(changed={"small_head": 0.5})["step/compute/attention"] == parts()["step/compute/attention"]


def test_heads_of_more_than_128_under_a_kernel_of_128_columns() -> None:
    """Two heads of 256 are as many FLOPs as four of 128, at half the rate; heads of 128 keep theirs."""
    large = replace(DENSE, heads=2, kv_heads=1, head_dim=256)
    found = parts(large, {"large_head": 0.5})["step/compute/attention"]
    assert found == pytest.approx(L * 3.5 * 2 * B * PAIRS * 2 * 512 / 0.5)
    assert parts(changed={"large_head": 0.5})["step/compute/attention"] == parts()["step/compute/attention"]


def test_a_backward_pass_that_computes_what_a_window_masks() -> None:
    """Forward the window's pairs, backward all causal ones; without a window the same as ever."""
    window = 128
    pairs = window * (window + 1) / 2 + (S - window) * window
    whole, part = (2 * B * each * HEADS * 2 * D for each in (PAIRS, pairs))
    masked = {"masked_backward": 1.0}
    found = parts(replace(DENSE, window=window), masked)["step/compute/attention"]
    assert found == pytest.approx(L / 2 * (3.5 * whole + part + 2.5 * whole))
    assert parts(changed=masked)["step/compute/attention"] == parts()["step/compute/attention"]


def core(op: AttentionCore, **layout: Any) -> float:
    """The fused kernel's forward FLOPs of one core."""
    clock = Clock(UNIT, StepLayout(**{"sequence": 512, "micro_batch": B, "micro_batches": 1, **layout}))
    return float(core_time(clock, op, "core")[0].value)


@pytest.mark.parametrize(
    ("changes", "pairs"),
    [
        ({}, 512 * 513 / 2),
        ({"causal": False}, 512 * 512),
        ({"window": 100}, 100 * 101 / 2 + 412 * 100),
        # runs of 200, 200 and 112 tokens, each causal; with all of their own run; in a window of 50
        ({"chunk": 200}, 2 * 200 * 201 / 2 + 112 * 113 / 2),
        ({"chunk": 200, "causal": False}, 2 * 200**2 + 112**2),
        ({"chunk": 200, "window": 50}, 2 * (50 * 51 / 2 + 150 * 50) + 50 * 51 / 2 + 62 * 50),
        # 50 back and as many, or 10, ahead, the token itself counted once
        ({"causal": False, "window": 50}, 2 * (50 * 51 / 2 + 462 * 50) - 512),
        ({"causal": False, "window": 50, "ahead": 10}, 50 * 51 / 2 + 462 * 50 + 10 * 11 / 2 + 502 * 10 - 512),
        # one more key for each run of 64 tokens that is past: 64·(0 + 1 + … + 7) + 8
        ({"compressed": 64}, 512 * 513 / 2 + 64 * 28 + 8),
        ({"compressed": 64, "chosen": 2}, 512 * 513 / 2 + 64 * 1 + 2 * (512 - 128 + 1)),
    ],
)
def test_pairs_that_a_fused_kernel_computes(changes: dict[str, Any], pairs: float) -> None:
    """2 FLOP · sequences · pairs · heads · (d_qk + d_v), and what `flops` counts as exact."""
    op = AttentionCore("core", ("q", "k", "v"), 4, 2, 128, 64, **changes)
    assert core(op) == pytest.approx(2 * B * pairs * 4 * (128 + 64))
    assert op.pairs(Work(B, 512, pairs="exact")) == B * pairs


def test_a_kernel_that_reads_a_mask_computes_all_pairs_of_all_its_heads_keys() -> None:
    """s² pairs in place of s(s + 1)/2, forward and backward; keys and values are copied for each query head, a 2-byte
    element of (heads + kv_heads) · 2d read or written forward, and as many back."""
    plain, masked = parts(), parts(masked=1)
    assert masked["step/compute/attention"] == pytest.approx(L * 3.5 * 2 * B * S * S * HEADS * 2 * D)
    copies = 2 * T * (HEADS + KV) * 2 * D
    more = masked["step/memory_bound/elementwise"] - plain["step/memory_bound/elementwise"]
    assert more == pytest.approx(L * 2 * copies)
    window = replace(DENSE, window=128)
    assert parts(window, masked=1)["step/compute/attention"] == pytest.approx(masked["step/compute/attention"])


def test_pairs_with_the_other_stack() -> None:
    """Cross-attention sees every token of the source; merged attention those in addition to its own past."""
    layout = {"sequence": 512, "source": 300}
    cross = AttentionCore("core", ("q", "k", "v"), 4, 4, 128, 128, causal=False, cross=True)
    assert core(cross, **layout) == pytest.approx(2 * B * 512 * 300 * 4 * 256)
    merged = AttentionCore("core", ("q", "k", "v"), 4, 4, 128, 128, merged=True)
    assert core(merged, **layout) == pytest.approx(2 * B * (512 * 513 / 2 + 512 * 300) * 4 * 256)
    assert core(merged, **layout, flash=0) == pytest.approx(2 * B * 512 * 812 * 4 * 256 + B * 4 * 512 * 812 * 13 / 30)
    runs = AttentionCore("core", ("q", "k", "v"), 4, 4, 128, 128, compressed=100)
    assert core(runs, flash=0) == pytest.approx(2 * B * 512 * 517 * 4 * 256 + B * 4 * 512 * 517 * 13 / 30)


def test_unfused_attention() -> None:
    """Two batched products over the full square, backward four; of the scores' bytes 13 parts of 30 move forward and 17
    backward (Korthikanti et al. 2022, appendix A)."""
    square = 2 * B * S * S * HEADS * 2 * D
    scores = B * HEADS * S * S * 30
    found = parts(flash=0, changed={"score_bytes": 30.0})["step/compute/attention"]
    assert found == pytest.approx(L * (3 * square + scores))
    forward = square + scores * 13 / 30
    again = parts(flash=0, attention_recomputed=1, changed={"score_bytes": 30.0})["step/compute/attention"]
    assert again == pytest.approx(L * (3 * square + scores + forward))
    divided = parts(flash=0, tp=2, cp=2, changed={"score_bytes": 30.0})["step/compute/attention"]
    assert divided == pytest.approx(found / 4)
    # heads of 54 are odd: five halvings of 64, and the library's slower batched products
    odd = replace(DENSE, head_dim=54)
    losses = {"score_bytes": 0.0, "misaligned": 0.5, "core_odd": 0.25, "core": 0.5}
    assert parts(odd, losses, flash=0)["step/compute/attention"] == pytest.approx(
        L * 3 * 2 * B * S * S * HEADS * 2 * 54 / (0.5**5 * 0.25 * 0.5)
    )
    # heads of 72, a multiple of 8, are 16 bytes apart: three halvings, and no slower products
    assert parts(replace(DENSE, head_dim=72), losses, flash=0)["step/compute/attention"] == pytest.approx(
        L * 3 * 2 * B * S * S * HEADS * 2 * 72 / (0.5**3 * 0.5)
    )


@pytest.mark.parametrize(
    ("op", "scores"),
    [
        (ShiftedAttention("core", ("q", "k", "v", "r"), 2, 8, True), 2 * 64 * 64),
        (BandAttention("core", ("q", "k", "v"), 2, 8, 8, 16), 2 * 64 * 17),  # a band of a window and one
        (NgramAttention("core", (), 2, 8, 2), 2 * 64 * 64 * (1 + 2 * 2)),
        (ChunkAttention("core", (), 2, 8, 16, 1), 2 * 64 * 2 * 16),  # its own chunk and the one before
    ],
)
def test_attention_that_no_kernel_runs_moves_its_scores(op: Operation, scores: int) -> None:
    """Of 3 sequences of 64 tokens: 13 parts of the scores' bytes forward, 17 backward."""
    clock = LayerClock(
        Clock(replace(UNIT, score_bytes=30.0), StepLayout(sequence=64, micro_batch=3, micro_batches=1)), "layer"
    )
    op.time(clock)
    assert sum(one.value for one in clock.forward["attention"]) == 13 * 3 * scores
    assert sum(one.value for one in clock.backward["attention"]) == 17 * 3 * scores


# --- choices ---


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("shape", [DENSE, MOE], ids=["dense", "moe"])
def test_a_choice_is_made_by_zero_or_one(shape: PrintedDecoder, zero: int) -> None:
    """Every condition is a truth value, which --explain prints."""
    ep, shards = 2 if shape.experts else 1, 2 if zero else 1
    plan = StepLayout(sequence=S, micro_batch=B, micro_batches=2, dp=4, zero=zero, shards=shards, ep=ep)
    found = step(decoder(shape), plan, UNIT)
    conditions = [node.parts[0] for node in found.time.walk() if node.op == "choice"]
    assert conditions
    assert {float(one.value) for one in conditions} <= {0.0, 1.0}


# --- the whole ---


def test_the_parts_of_a_step_add_up_to_it_once() -> None:
    layout: dict[str, Any] = {"tp": 2, "cp": 2, "pp": 2, "dp": 4, "ep": 2, "zero": 1, "micro_batches": 4, "low": 1}
    found = parts(MOE, {"fixed": 5.0, "host_layer": 1e12, "host_experts": 1e12}, **layout)
    sums = {
        "compute": ("matmul", "attention"),
        "memory_bound": ("elementwise", "casts", "accumulation"),
        "communication": ("tensor", "context", "expert", "pipeline", "data"),
        "overhead": ("host", "fixed"),
    }
    for part, inner in sums.items():
        each = [found[f"step/{part}/{one}"] for one in inner]
        assert all(each), part
        assert found[f"step/{part}"] == pytest.approx(sum(each))
    whole = sum(found[f"step/{part}"] for part in (*sums, "bubble", "optimizer"))
    assert found["step/time"] == pytest.approx(whole)
    # what ZeRO-3's gathers can hide behind: everything but the optimizer, data parallelism and what is fixed
    behind = whole - found["step/optimizer"] - found["step/communication/data"] - 5
    assert found["step/work"] == pytest.approx(behind)


def test_the_router_s_product() -> None:
    """T·h·E in tiles of 256×128, of whose columns E are used."""
    found = parts(MOE)
    forward = joined(2 * T * H * E / (E / 128), 2 * (T * H + H * E + T * E))
    name = next(one for one in found if one.startswith("moe/router") and one.endswith("/forward"))
    assert found[name] == pytest.approx(forward)
    half = joined(T * H * E / (E / 128), T * H + 2 * H * E + T * E)
    assert parts(MOE, cp=2)[name] == pytest.approx(half)
    narrow = parts(MOE, low=1, changed={"peak": 2.0})
    assert narrow[name] == pytest.approx(forward)  # 8 bits: the linear layers alone
    back = name.replace("/forward", "/backward")
    assert narrow[back] == pytest.approx(found[back])


def test_norms_and_rotary_embeddings_of_a_reference_class_are_several_kernels() -> None:
    """A norm: to fp32, squared, averaged, multiplied, back, times the weight: 36 bytes an element if one kernel reads
    and writes 4; backward 76 in place of 6. Rotary embeddings of queries and keys: times cos, half negated, joined,
    times sin, added: 20 in place of 4; backward both products (8), the half (2), two halves written into zeros (8), and
    two sums (12): 30 in place of 4. No factor: every kernel is counted."""
    once = parts(changed={"elementwise": 2.0})["step/memory_bound/elementwise"]
    found = parts(changed={"elementwise": 2.0}, elementary=1)["step/memory_bound/elementwise"]
    norms = (2 * L + 1) * T * H * (36 + 76 - 2 * (4 + 6))
    rotated = L * T * (HEADS + KV) * D * (20 + 30 - 2 * (4 + 4))
    assert found - once == pytest.approx(norms + rotated)


@pytest.mark.parametrize(
    ("how", "forward", "backward"),
    [
        ({}, 4 + 2 + 4 + 4 + 6, 4 + 4 + 2 + 8 + 6 + 6),
        ({"pairing": "interleaved"}, 20, 30),
        ({"upcast": True, "once": True}, 6 + 8 + 4 + 8 + 8 + 12 + 6, 6 + 8 + 8 + 4 + 16 + 12 + 12 + 6),
        ({"upcast": True, "first": True}, 6 + 8 + 6 + 4 + 8 + 8 + 12 + 6, 6 + 8 + 8 + 4 + 16 + 12 + 12 + 6 + 6),
        ({"upcast": True}, 6 + 8 + 2 + 4 + 6 + 8 + 12 + 6, 6 + 8 + 8 + 6 + 2 + 8 + 6 + 12 + 6),
        ({"upcast": True, "fused": True}, 6 + 8 + 6, 6 + 8 + 6),
        ({"fused": True}, 4, 4),
        ({"pairing": "complex"}, 0, 0),
    ],
)
def test_bytes_of_the_kernels_of_a_rotation(how: dict[str, Any], forward: int, backward: int) -> None:
    """An element in 16 bits: a cast to or from fp32 is 6, a product 4, a sum 6, half negated 2, halves joined 4, two
    halves written into zeros 8; in fp32 twice as many of each."""
    assert Rotary("r", ("x",), 2, 8, 8, **how).elementary() == (16 * forward, 16 * backward)


def test_layer_norms_of_a_reference_class_are_one_kernel() -> None:
    once, found = (parts(PLAIN, elementary=on)["step/memory_bound/elementwise"] for on in (0, 1))
    assert found == once


def test_rows_of_a_software_that_launches_each_operation_are_fitted_with_its_kernels() -> None:
    """The constants learn from the same bytes with which a single run is timed."""
    rows = [row for row in facts.steps() if row.stack in ("fsdp-eager", "fsdp-compiled") and row.shape][:200]
    kinds = {row.stack: plan_of(row, 1, 1, machine(hardware.find("h100"), "bf16")).elementary for row in rows}
    assert kinds == {"fsdp-eager": 1, "fsdp-compiled": 0}


def test_autocast_over_fp32_weights_moves_the_residual_stream_in_fp32() -> None:
    """Norms, the final one too, and residual sums twice as wide: 4 h more forward and 6 h backward for each norm, 6 h
    and 6 h a sum."""
    narrow, wide = (parts(wide_stream=on)["step/memory_bound/elementwise"] for on in (0, 1))
    assert wide - narrow == pytest.approx(L * T * 2 * ((4 + 6) * H + (6 + 6) * H) + FINAL)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("fp32", 4 * 4 + 2 * 4 + 14 * 4), ("bf16-pure", 4 * 2 + 2 * 2 + 14 * 2), ("bf16-mixed", 16 + 8 + 56 + 2)],
)
def test_bytes_of_adamw_in_elementary_kernels(policy: str, expected: int) -> None:
    """mul of the parameter 2; lerp 2 of m and the gradient; mul 2, addcmul 2 of v and the gradient; sqrt, div, add 2
    each; addcdiv reads m and the root, reads and writes the parameter: 4 + 2 + 14."""
    adamw, gradient = OPTIMIZERS["adamw"], 2 if policy == "bf16-pure" else 4
    assert step_traffic(POLICIES[policy], adamw.copies, gradient, adamw.moved("foreach")) == expected
    assert adamw.moved("fused") is None


def test_experts_that_run_one_after_the_other() -> None:
    """Each is a product like any other, with three launches of its own each way that the layer's product has one."""
    slow = {"grouped": 0.5}
    assert parts(MOE, slow, looped=1)["step/compute/matmul"] == pytest.approx(parts(MOE)["step/compute/matmul"])
    assert parts(MOE, slow)["step/compute/matmul"] > parts(MOE)["step/compute/matmul"]
    seconds = 1e15
    found = parts(MOE, {"host_layer": seconds}, looped=1)
    # 26 launches of the layer (see below), of which the experts are 1 forward and 2 backward
    assert found["moe/launch"] == pytest.approx(seconds * (26 - 3 + 3 * E * 3) / 26)


def test_experts_that_share_tiles() -> None:
    """A tile in which one expert ends and the next begins runs for both: 7 more than the rows of 8 experts fill. That
    is all that is lost between them."""
    rows = T * K / E
    plain, found = (parts(MOE, {"grouped": each}, shared_tile=on) for each, on in ((1, 0), (0.5, 512)))
    more = (rows + 512 * 7 / 8) / rows
    for name in ("up/forward", "down/forward", "up/input_gradient", "down/weight_gradient"):
        name = f"moe/experts/{name}/compute"
        assert found[name] == pytest.approx(more * plain[name])
    one, alone = (parts(replace(MOE, experts=1, top_k=1), shared_tile=on)["step/time"] for on in (0, 512))
    assert alone == pytest.approx(one)


@pytest.mark.parametrize(("chip", "tile", "lanes"), [("tpu-v5p", 512, 128), ("h100", 0, 1)])
def test_xla_pads_tiles_and_heads_on_tpus(chip: str, tile: int, lanes: int) -> None:
    at = machine(hardware.find(chip), "bf16")
    assert stack("xla").tile_of_experts(at.generation) == tile
    assert at.lanes == lanes


def test_experts_taken_by_index_out_of_one_tensor_make_its_gradient_one_by_one() -> None:
    """Each of the experts on a GPU has a tensor of zeros as large as all of their three matrices, 2 bytes an element
    written; all but the first are added to it, two read and one written. Only in the backward pass of trained ones."""
    once, found = (parts(MOE, looped=1, stacked=on)["step/memory_bound/elementwise"] for on in (0, 1))
    assert found - once == pytest.approx(L * (E * 2 + (E - 1) * 6) * E * 3 * H * EF)
    shared = [parts(MOE, looped=1, stacked=on, dp=4, ep=4)["step/memory_bound/elementwise"] for on in (0, 1)]
    assert shared[1] - shared[0] == pytest.approx(L * (2 * 2 + 6) * 2 * 3 * H * EF)
    again = [parts(MOE, looped=1, stacked=on, layers_recomputed=1)["step/memory_bound/elementwise"] for on in (0, 1)]
    assert again[1] - again[0] == pytest.approx(found - once)


def test_every_expert_runs_every_token_where_nothing_is_routed() -> None:
    """Three matmuls of h × f forward and two more each backward, 2 FLOP a product, of all E experts and not of K."""
    found, routed = parts(MOE, unrouted=1), parts(MOE)
    more = found["step/compute/matmul"] - routed["step/compute/matmul"]
    assert more == pytest.approx(L * T * (E - K) * 3 * 3 * 2 * H * EF)
    assert found["step/memory_bound/elementwise"] > routed["step/memory_bound/elementwise"]


# --- layouts evaluated together ---

MAMBA = model(
    model_type="mamba2", hidden_size=64, num_hidden_layers=4, vocab_size=256, state_size=16, num_heads=8, head_dim=16,
    expand=2, n_groups=1, chunk_size=64,
)  # fmt: skip
STREAMS = replace(decoder(DENSE), streams=4)
TOGETHER: dict[str, Any] = {
    "sequence": (512, 512, 256, 100, 512, 64), "micro_batch": (1, 2, 2, 1, 4, 1), "micro_batches": (1, 4, 2, 8, 2, 4),
    "tp": (1, 2, 2, 1, 4, 2), "pp": (1, 2, 1, 4, 2, 2), "vp": (1, 2, 1, 1, 1, 2), "dp": (1, 2, 8, 4, 4, 16),
    "cp": (1, 1, 2, 1, 1, 1), "ep": (1, 2, 4, 1, 2, 8), "zero": (0, 1, 3, 2, 1, 3), "flash": (1, 1, 0, 1, 0, 1),
    "sequence_parallel": (0, 1, 1, 0, 0, 1), "layers_recomputed": (0, 1, 0, 0.5, 1, 0),
    "low": (0, 0, 0, 1, 1, 0), "shards": (0, 0, 8, 0, 0, 4), "gathers_inputs": (0, 1, 0, 0, 0, 1),
    "sends_copies": (0, 1, 1, 0, 1, 0),
    "shared_tile": (0, 0, 512, 0, 128, 512), "lanes": (1, 128, 256, 1, 256, 1),
    "one_hot": (0, 1, 0, 1, 0, 0), "expert_load": (1, 1.5, 1, 1, 2, 1), "experts_recomputed": (0, 0, 1, 0, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("of", [decoder(DENSE), decoder(MOE), MAMBA], ids=["dense", "moe", "mamba2"])
def test_layouts_that_are_evaluated_together_take_what_each_takes_alone(of: Model) -> None:
    rates = replace(
        UNIT, node=4, link=7.0, network=3.0, memory=0.6, peak=2.0, half_depth=9.0, waves=0.5, misaligned=0.9, fixed=5.0,
        data_overlap=0.5, data_exposed=0.1, tensor_latency=2.0, data_latency=3.0, interference=0.1, straggle=4.0,
        host_layer=1e6, host_experts=2e6, grouped=0.5, dispatch=1.5, stack=1.25, core=0.5, elementwise=1.5,
    )  # fmt: skip
    columns: dict[str, Any] = {name: np.array(values, dtype=float) for name, values in TOGETHER.items()}
    every = {one.name: one.value for one in step(of, StepLayout(**columns), rates).time.parts}
    for at in range(len(TOGETHER["tp"])):
        alone = step(of, StepLayout(**{name: values[at] for name, values in TOGETHER.items()}), rates).time
        for one in alone.parts:
            found = float(np.broadcast_to(every[one.name], 6)[at])
            assert found == pytest.approx(float(one.value), rel=1e-9), (at, one.name)


def test_stages_send_each_other_all_streams() -> None:
    """Hyper-connections: n residual streams of h elements."""
    plan = StepLayout(S, B, 8, pp=2)
    found = {one.name: float(one.value) for one in step(STREAMS, plan, UNIT).time.walk()}
    assert found["step/communication/pipeline"] == pytest.approx(8 * 4 * 4 * T * H)


def test_a_step_takes_at_least_its_mean_stage_and_the_bubble() -> None:
    """m·mean + (p − 1)/v·mean; on a single stage all of it."""
    for p, v, m in ((1, 1, 3), (2, 1, 4), (2, 2, 4)):
        plan = StepLayout(S, B, m, pp=p, vp=v)
        layers = layers_of_step(decoder(DENSE), plan, UNIT)
        found = parts(pp=p, vp=v, micro_batches=m)
        mean = ((L + 1) * found["layer"] + found["model/head"]) / p
        assert least_step(plan, UNIT, layers).value == pytest.approx(m * mean + (p - 1) / v * mean)


def test_an_optimizer_s_products_reach_a_share_of_fp32_s_peak() -> None:
    """Decompositions do not: they are measured steps."""
    works = projecting(8, decomposed=True)
    found = parts(works=works, optimizer_bytes=0, changed={"matmul_wide": 0.5, "peak_full": 0.25})["step/optimizer"]
    cubes = sum(min(a, b) ** 2 * max(a, b) / 200 for a, b in MATRICES)
    assert found == pytest.approx(L * (sum(32 * a * b for a, b in MATRICES) / (0.5 * 0.25) + cubes))

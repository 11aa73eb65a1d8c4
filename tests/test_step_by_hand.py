"""The time of a step worked out by hand, a test for each line of the table in docs/step-time.md.

Every rate is 1 and nothing is lost, so that seconds are FLOPs, or bytes, and each test spells out its paper's formula
with the dimensions of one small decoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from napkin.evidence import facts
from napkin.evidence.columns import plan_of
from napkin.evidence.decompositions import SEEN
from napkin.evidence.generic import decoder
from napkin.evidence.printed import PrintedDecoder
from napkin.operations.attention.band import BandAttention
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.shifted import ShiftedAttention
from napkin.operations.backward_parts import Learning
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.experts import ExpertMatmul, Experts
from napkin.operations.learned import TokenShift
from napkin.operations.losses import copied_bytes
from napkin.operations.maps import AttentionDifference, HalfHeads
from napkin.operations.model import Model
from napkin.operations.norms import Norm
from napkin.operations.passes import Ungraded
from napkin.operations.pointwise import Activation, Add, Clamp, GroupMean, Jitter, Multiply, Softcap
from napkin.operations.relative import SharedExperts
from napkin.operations.retrieval import RetrievedExperts
from napkin.operations.roles import POSITION
from napkin.operations.rotary import Rotary
from napkin.operations.router import Router
from napkin.operations.streams import ExpertScale
from napkin.operations.streams_apart import ChunkAttention, NgramAttention, Streamed
from napkin.operations.views import Concat, ConcatTokens, Slice, Transpose, reuse
from napkin.operations.work import Work
from napkin.record import fields, replace
from napkin.timing.attention import core_time
from napkin.timing.clock import Clock
from napkin.timing.experts import expert_time
from napkin.timing.layer_clock import LayerClock
from napkin.timing.placement import groups_of
from napkin.timing.rates import Rates
from napkin.timing.step import layers_of_step, least_step, step
from napkin.timing.step_layout import StepLayout
from napkin.training.optimizer_step import step_traffic
from napkin.training.optimizer_work import EIGENVECTORS, ORTHOGONAL, SINGULAR, orthogonalizing, projecting
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from tests.conftest import model, preset, run_line

NONE = {
    *("waves", "half_depth", "half_keys", "tensor_latency", "data_latency"),
    *("data_overlap", "gather_overlap", "data_exposed", "interference", "host_layer", "host_experts", "host_expert"),
    *("host_unit", "host_module", "fixed", "straggle", "stops_early"),
}
"""Rates that lose time: nothing at 0."""
UNIT = Rates(**{name: 0.0 if name in NONE else 1.0 for name in fields(Rates)} | {"node": 8})
"""One FLOP, one byte in memory, on a link and over the network a second; nothing is hidden, lost or added."""

B, S, L, H, HEADS, KV, D, F, V = 2, 512, 4, 512, 4, 2, 128, 1024, 2048
T = B * S
WAYS = ("forward", "backward")
DENSE = PrintedDecoder("dense", L, H, HEADS, KV, D, F, V, True, False)
PLAIN = replace(DENSE, gated=False)
E, K, EF = 8, 2, 256
MOE = PrintedDecoder("moe", L, H, HEADS, KV, D, 0, V, True, False, experts=E, top_k=K, expert_ffn=EF)
LAYER = H * (HEADS + 2 * KV) * D + HEADS * D * H + 3 * H * F
"""Weights of a dense layer's linear layers."""
ATTENTION = H * (HEADS + 2 * KV) * D + HEADS * D * H
NORMS = 2 * H
LOOKUPS, FINAL = T * (4 + 6) * H, T * (4 + 6) * H
"""Bytes outside the layers. A lookup reads a row and writes it; backward it reads the gradient, and reads and writes
the row that it is added to. The final norm reads and writes; backward it reads two and writes one."""


def parts(shape: PrintedDecoder = DENSE, changed: dict[str, float] | None = None, **layout: Any) -> dict[str, float]:
    """Every term of a step by its name, in seconds; `changed` are rates that are not 1 or 0."""
    plan = StepLayout(**{"sequence": S, "micro_batch": B, "micro_batches": 1, **layout})
    found = step(decoder(shape), plan, replace(UNIT, **(changed or {})))
    return {node.name: float(node.value) for node in found.time.walk()}


def product(m: float, k: float, n: float) -> float:
    """A GEMM (m×k)(k×n): 2mkn FLOP joined smoothly with the bytes of three 16-bit matrices. Every shape here is cut
    into whole tiles of 128×256, or of 256×128."""
    return joined(2 * m * k * n, 2 * (m * k + k * n + m * n))


def joined(x: float, y: float) -> float:
    return float((x**4 + y**4) ** 0.25)


def three(m: float, k: float, n: float) -> tuple[float, float]:
    """Forward; backward: the input's gradient (m×n)(n×k) and the weight's (k×m)(m×n)."""
    return product(m, k, n), product(m, n, k) + product(k, m, n)


def linears(t: int = 1, tokens: float = T) -> tuple[float, float]:
    """Forward and backward of a layer's GEMMs on one of t ranks: q, k, v in one; o; gate and up in one; down."""
    shapes = [
        (H, (HEADS + 2 * KV) * D // t),
        (HEADS * D // t, H),
        (H, 2 * F // t),
        (F // t, H),
    ]
    passes = [three(tokens, k, n) for k, n in shapes]
    return sum(f for f, _ in passes), sum(b for _, b in passes)


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

PAIRS = S * (S + 1) / 2


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


# --- elementwise work, casts, accumulation, the head ---


def test_elementwise_bytes_of_a_dense_layer() -> None:
    """Bytes a token, 16 bits an element. A norm reads and writes h, backward reads two and writes one; rotary reads and
    writes q and k both ways; q, k and v are copied in part; a residual sum reads two and writes one; SwiGLU in one
    kernel reads two and writes one, backward reads three and writes two."""
    qk, qkv = (HEADS + KV) * D, (HEADS + 2 * KV) * D
    forward = 2 * 4 * H + 4 * qk + 2 * qkv + 2 * 6 * H + 6 * F
    backward = 2 * 6 * H + 4 * qk + 4 * qkv + 2 * 6 * H + 10 * F
    head = T * V  # the loss, one byte a logit here
    ends = LOOKUPS + FINAL
    assert parts()["step/memory_bound/elementwise"] == pytest.approx(L * T * (forward + backward) + ends + head)
    again = parts(layers_recomputed=1)["step/memory_bound/elementwise"]
    assert again == pytest.approx(L * T * (2 * forward + backward) + ends + head)
    eager = parts(changed={"elementwise": 1.5, "loss_bytes": 20.0})["step/memory_bound/elementwise"]
    assert eager == pytest.approx(1.5 * (L * T * (forward + backward) + ends) + 20 * head)


def test_a_loss_that_runs_the_head_again() -> None:
    """Four parts, with copies of 6 and 24 bytes for each element of the head's weight; once more 2·T·h·V FLOP."""
    plain, again = parts(), parts(loss_parts=4, head_copied=6, head_copied_back=24)
    assert again["step/compute/matmul"] - plain["step/compute/matmul"] == pytest.approx(2 * T * H * V)
    assert again["step/memory_bound/casts"] - plain["step/memory_bound/casts"] == 4 * 30 * H * V


@pytest.mark.parametrize(
    ("stored", "narrow", "trained", "forward", "backward"),
    [
        (4, 2, True, 6, 6 + 6 + 12),  # to 16 bits; again, the gradient to fp32, added to the sum
        (2, 2, True, 6 + 6, 12 + 12 + 6),  # to fp32, and to 16 bits
        (2, 2, False, 12, 12),
        (4, 4, True, 0, 12),
    ],
)
def test_bytes_of_the_copies_of_a_head(stored: int, narrow: int, trained: bool, forward: int, backward: int) -> None:
    """A cast reads one format and writes the other; a sum reads two numbers and writes one."""
    assert copied_bytes(stored, narrow, trained) == (forward, backward)


def test_what_tensor_parallelism_divides_of_the_elementwise_work() -> None:
    """Rotary, attention and the feed-forward network's inner width by t; norms and sums only with sequence parallelism
    (Korthikanti et al. 2022, section 4.2)."""
    qk, qkv = (HEADS + KV) * D, (HEADS + 2 * KV) * D
    divided = (4 + 4) * qk + (2 + 4) * qkv + (6 + 10) * F
    whole = (2 * 4 + 2 * 6 + 2 * 6 + 2 * 6) * H
    head, ends = T * V / 2, LOOKUPS + FINAL
    assert parts(tp=2)["step/memory_bound/elementwise"] == pytest.approx(L * T * (divided / 2 + whole) + ends + head)
    both = parts(tp=2, sequence_parallel=1)["step/memory_bound/elementwise"]
    # each rank looks up all tokens among its rows; the sum is scattered afterwards
    assert both == pytest.approx(L * T * (divided + whole) / 2 + LOOKUPS + FINAL / 2 + head)
    every = L * T * (divided + whole) + ends + T * V
    assert parts(cp=2)["step/memory_bound/elementwise"] == pytest.approx(every / 2)


def test_the_first_stage_looks_up_and_the_last_one_norms() -> None:
    """Of five layers the first of two stages has three and the lookups; by hand the last has four, norm and loss."""
    five = replace(DENSE, layers=5)
    qk, qkv = (HEADS + KV) * D, (HEADS + 2 * KV) * D
    layer = T * ((4 + 4) * qk + (2 + 4) * qkv + (6 + 10) * F + (2 * 10 + 2 * 12) * H)
    moved = "step/memory_bound/elementwise"
    assert parts(five, pp=2)[moved] == pytest.approx(3 * layer + LOOKUPS)
    assert parts(five, pp=2, layers_before=1, layers_last=4)[moved] == pytest.approx(4 * layer + FINAL + T * V)


def test_what_is_done_with_embeddings_and_logits() -> None:
    """Positions are looked up and added, in each rank whole but under sequence parallelism; the soft cap reads and
    writes the logits, backward reads two and writes one, each rank its own; what is frozen has no gradient."""
    dense = decoder(DENSE)
    (stack,) = dense.stacks
    positions = (Embedding("p", ("places",), S, H, role=POSITION), Add("sum", ("x", "p"), H))
    more = replace(stack, before=(*stack.before, *positions), after=(*stack.after, Softcap("cap", ("head",), V)))

    def moved(of: Model, **layout: Any) -> float:
        plan = StepLayout(sequence=S, micro_batch=B, micro_batches=1, **layout)
        found = step(of, plan, UNIT).time.walk()
        return next(float(one.value) for one in found if one.name == "step/memory_bound/elementwise")

    longer = replace(dense, stacks=(more,))
    for tp, sp in ((1, 0), (2, 0), (2, 1)):
        added = moved(longer, tp=tp, sequence_parallel=sp) - moved(dense, tp=tp, sequence_parallel=sp)
        stream = T * (10 + 12) * H / (tp if sp else 1)
        assert added == pytest.approx(stream + T * (4 + 6) * V / tp)
    still = replace(stack, before=tuple(replace(op, learning=Learning(0, 0, False)) for op in stack.before))
    assert moved(dense) - moved(replace(dense, stacks=(still,))) == pytest.approx(T * 6 * H)


@pytest.mark.parametrize(
    ("operation", "forward", "backward"),
    [
        (Norm("n", ("x",), 100), 400, 600),
        (Embedding("e", ("ids",), 1000, 100), 400, 600),
        (Softcap("c", ("x",), 100), 400, 600),
        (Clamp("c", ("x",), 100), 400, 600),
        (Jitter("j", ("x",), 100), 800, 600),
        (GroupMean("m", ("x",), 25, 100), 250, 250),
        (TokenShift("t", ("x", "w"), 100), 600, 1000),
        (HalfHeads("h", ("v",), 100), 300, 300),
        (AttentionDifference("d", ("a", "b"), 5, 20), 600, 800),
        (ExpertScale("s", ("r",), 8, 2), 12, 20),
        (Concat("k", ("a", "b"), 100), 400, 0),
        (ConcatTokens("k", ("a", "b"), 100), 800, 0),
        (Slice("s", ("qkv",), 100), 0, 0),
        (Slice("s", ("qkv",), 100, copied=True, repeats=2), 800, 800),
        (Transpose("t", ("x",), 100), 400, 400),
        (ExpertMatmul("e", ("x", "r"), 100, 50, 8, 2), 4 * 200 + 4 * 100, 4 * 200 + 4 * 100),
        (
            ExpertMatmul("e", ("x", "r"), 100, 50, 8, 2, "sorted", "tokens"),
            4 * 100 + 6 * 100 + 2 * 100 + 2 * 50,
            4 * 100 + 10 * 100 + 2 * 100 + 2 * 50,
        ),
        (RetrievedExperts("r", ("x", "k"), 100, 64, 8, 2, "gelu", False), 2 * 2 * 400, 2 * 2 * 600),
        (SharedExperts("s", ("x", "w"), 100, 50, 2), 2 * (600 + 200) + 200, 2 * (1000 + 200) + 200),
        (reuse(Norm("n", ("x",), 100)), 400, 600),
        (Streamed("n", ("x",), Norm("n", ("x",), 100), 3), 1200, 1800),
        (Ungraded("u", ("x",), (Norm("n", ("x",), 100), Add("s", ("x", "y"), 100)), 3), 3000, 0),
        (Activation("a", ("x",), 100, "gelu"), 400, 600),
        (Activation("a", ("x",), 100, "silu").fused_into_multiplication(), 0, 0),
        (Multiply("m", ("x", "y"), 100), 600, 1000),
        (Add("s", ("x", "y"), 100), 600, 600),
        (Rotary("r", ("x",), 3, 100, 100), 1200, 1200),
        (AttentionCore("c", ("q", "k", "v"), 4, 2, 100, 50), 2 * (600 + 100), 4 * (600 + 100)),
        (Router("g", ("x",), 100, 8, 2), 96, 96),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Operation) else "",
)
def test_bytes_that_one_operation_moves(operation: Operation, forward: int, backward: int) -> None:
    """Two bytes for each element read or written; a router's scores are fp32, read and written three times in all."""
    assert operation.traffic() == (forward, backward)


def test_no_operations_move_no_bytes() -> None:
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1)), "layer")
    own.elementwise(())
    assert [one.value for one in (*own.forward["elementwise"], *own.backward["elementwise"])] == [0, 0]


def test_casts_to_eight_bits() -> None:
    """Bytes for each input element of a linear layer, the local ones of a row-parallel layer; none in 16 bits."""
    inputs = H + HEADS * D + H + F
    assert parts()["step/memory_bound/casts"] == 0
    found = parts(low=1, changed={"cast_bytes": 3.0})["step/memory_bound/casts"]
    assert found == pytest.approx(L * T * 3 * inputs)
    twice = parts(low=1, casts=2, changed={"cast_bytes": 3.0})["step/memory_bound/casts"]
    assert twice == pytest.approx(2 * found)
    halved = parts(low=1, tp=2, changed={"cast_bytes": 3.0})["step/memory_bound/casts"]
    assert halved == pytest.approx(L * T * 3 * (H + HEADS * D / 2 + H + F / 2))
    again = parts(low=1, layers_recomputed=1, changed={"cast_bytes": 3.0})["step/memory_bound/casts"]
    assert again == pytest.approx(1.4 * found)  # the forward pass has 0.4 of the traffic


def test_gradient_accumulation() -> None:
    """So many bytes for each weight and micro-batch, those of embedding and head too, which are one if they are
    tied; recomputation adds none."""
    weights = L * (LAYER + NORMS) + 2 * V * H
    found = parts(micro_batches=5, layers_recomputed=1, changed={"accumulation_bytes": 12.0})
    assert found["step/memory_bound/accumulation"] == pytest.approx(5 * 12 * weights)
    sparse = parts(MOE, {"accumulation_bytes": 12.0}, micro_batches=3)["step/memory_bound/accumulation"]
    assert sparse == pytest.approx(3 * 12 * (L * (ATTENTION + NORMS + H * E + 3 * E * H * EF) + 2 * V * H))
    divided = parts(tp=2, changed={"accumulation_bytes": 12.0})["step/memory_bound/accumulation"]
    assert divided == pytest.approx(12 * (L * (LAYER / 2 + NORMS) + 2 * V * H / 2))
    tied = parts(replace(DENSE, tied=True), {"accumulation_bytes": 12.0})["step/memory_bound/accumulation"]
    assert tied == pytest.approx(12 * (L * (LAYER + NORMS) + V * H))


# --- tensor and context parallelism ---


def test_tensor_parallel_all_reduces() -> None:
    """Two forward (o, down) and two backward (q-k-v, gate-up) in a layer, one forward of the embedding's rows and one
    backward of the logits', each 2(t−1)/t · 2·T·h bytes on the link (Shoeybi et al. 2019, section 3, figure 4)."""
    once = 2 * (4 - 1) / 4 * 2 * T * H
    assert parts(tp=4)["step/communication/tensor"] == pytest.approx((L * 4 + 2) * once)
    assert parts(tp=1)["step/communication/tensor"] == 0
    assert parts(tp=4, cp=2)["step/communication/tensor"] == pytest.approx((L * 4 + 2) * once / 2)
    # full recomputation repeats those of the forward pass (Korthikanti et al. 2022, section 5)
    assert parts(tp=4, layers_recomputed=1)["step/communication/tensor"] == pytest.approx((L * 6 + 2) * once)
    # a reduce-scatter and an all-gather move what an all-reduce does (Korthikanti et al. 2022, section 4.2.2)
    assert parts(tp=4, sequence_parallel=1)["step/communication/tensor"] == pytest.approx((L * 4 + 2) * once)
    both: dict[str, Any] = {"sequence_parallel": 1, "layers_recomputed": 1}
    assert parts(tp=4, **both)["step/communication/tensor"] == pytest.approx((L * 6 + 2) * once)
    assert parts(tp=4, changed={"tensor_exposed": 0.5})["step/communication/tensor"] == pytest.approx(
        (L * 2 + 1) * once
    )


def test_the_latency_of_tensor_parallelism() -> None:
    """One collective an all-reduce, two with sequence parallelism; none on a single rank."""
    rates = {"link": 1e30, "tensor_latency": 3.0}
    assert parts(changed=rates, tp=4)["step/communication/tensor"] == pytest.approx((L * 4 + 2) * 3)
    assert parts(changed=rates, tp=4, sequence_parallel=1)["step/communication/tensor"] == pytest.approx(
        (L * 4 + 2) * 2 * 3
    )
    again = parts(changed=rates, tp=4, sequence_parallel=1, layers_recomputed=1)["step/communication/tensor"]
    assert again == pytest.approx((L * 6 + 2) * 2 * 3)
    assert parts(changed=rates)["step/communication/tensor"] == 0


def test_ring_attention() -> None:
    """Keys and values of the others, (c−1)/c of b·s·2·kv_heads·d elements of 16 bits, once forward and twice backward
    (Liu et al. 2023, section 3); tensor parallelism divides the heads."""
    keys_and_values = B * S * 2 * KV * D * 2
    once = (4 - 1) / 4 * keys_and_values
    assert parts(cp=4)["step/communication/context"] == pytest.approx(L * 3 * once)
    assert parts(cp=4, layers_recomputed=1)["step/communication/context"] == pytest.approx(L * 4 * once)
    assert parts(cp=4, tp=2)["step/communication/context"] == pytest.approx(L * 3 * once / 2)
    assert parts()["step/communication/context"] == 0


def test_ranks_that_exchange_heads_send_what_attention_reads_and_makes() -> None:
    """4 ranks on nodes of 8, and of 2: of T/4 tokens a rank sends 1/4 of q, k, v and the result to each other one, both
    ways, over the link, or to two of them over the network, which takes as long as it is alone. 2 heads of keys are
    repeated for the 4 ranks. Each rank then has all keys of its heads."""
    sent = T / 4 * 2 * (2 * HEADS * D + 2 * 4 * D) / 4
    here, apart = (parts(DENSE, {"node": node}, cp=4, exchanges=1) for node in (8, 2))
    assert here["step/communication/context"] == pytest.approx(L * 2 * 3 * sent)
    assert apart["step/communication/context"] == pytest.approx(L * 2 * 2 * sent)
    ring = parts(DENSE, cp=4)
    assert here["layer/core/keys"] == pytest.approx(4 * ring["layer/core/keys"])


# --- experts ---


def test_grouped_products_of_experts() -> None:
    """Each of the E/e experts of a rank multiplies T·k/(E/e) rows: as many leave a rank as arrive."""
    found = parts(MOE, ep=2, dp=2)
    local, rows = E / 2, T * K / (E / 2)

    def grouped(m: float, k: float, n: float) -> float:
        return joined(local * 2 * m * k * n, local * 2 * (m * k + k * n + m * n))

    forward = grouped(rows, H, 2 * EF) + grouped(rows, EF, H)
    backward = grouped(rows, 2 * EF, H) + grouped(H, rows, 2 * EF) + grouped(rows, H, EF) + grouped(EF, rows, H)
    assert found["moe/experts/products/forward"] == pytest.approx(forward)
    assert found["moe/experts/products/backward"] == pytest.approx(backward)


def test_the_fullest_rank_has_more_rows_and_more_to_exchange() -> None:
    """1.5 times the mean: T·k·1.5/(E/e) rows of each expert, 1.5 times the bytes moved and sent; attention and update
    as before."""
    even, full = (parts(MOE, ep=4, dp=4, expert_load=load) for load in (1, 1.5))
    assert full["moe/experts/up/forward/compute"] == pytest.approx(E / 4 * 2 * 1.5 * T * K / (E / 4) * H * 2 * EF)
    assert full["step/communication/expert"] == pytest.approx(1.5 * even["step/communication/expert"])
    moved = "moe/experts/elementwise/forward"
    assert full[moved] == pytest.approx(1.5 * even[moved])
    same = [name for name in even if "attention" in name or "optimizer" in name]
    assert len(same) > 20
    assert [full[name] for name in same] == [even[name] for name in same]


def test_ranks_that_share_an_expert_divide_its_width() -> None:
    """etp 2: all tokens of both, half of the inner width (Megatron-core, expert_tensor_parallel_size)."""
    found = parts(MOE, ep=2, etp=2, dp=4)
    local, rows, inner = E / 2, 2 * T * K / (E / 2), EF / 2
    up = joined(local * 2 * rows * H * 2 * inner, local * 2 * (rows * H + H * 2 * inner + rows * 2 * inner))
    down = joined(local * 2 * rows * inner * H, local * 2 * (rows * inner + inner * H + rows * H))
    assert found["moe/experts/products/forward"] == pytest.approx(up + down)


def test_elementwise_work_of_experts() -> None:
    """Gated: six bytes forward and ten backward of each inner element that is routed; permutation in and out."""
    found = parts(MOE, {"permutation_bytes": 8.0})
    routed = T * K
    assert found["moe/experts/elementwise/forward"] == pytest.approx(6 * routed * EF + 0.4 * 8 * routed * H)
    assert found["moe/experts/elementwise/backward"] == pytest.approx(10 * routed * EF + 0.6 * 8 * routed * H)


def test_elementwise_work_of_experts_without_a_gate() -> None:
    """One tensor read and one written, backward two read and one written; one GEMM up."""
    clock = Clock(UNIT, StepLayout(S, B, 1, ep=2, dp=2))
    op = Experts("experts", ("x", "router"), H, EF, E, K, gated=False)
    forward, backward = expert_time(clock, op, "experts")
    routed = T * K
    assert forward["elementwise"].value == pytest.approx(4 * routed * EF + 0.4 * routed * H)
    assert backward["elementwise"].value == pytest.approx(6 * routed * EF + 0.6 * routed * H)
    rows, local = routed / (E / 2), E / 2
    once = joined(local * 2 * rows * H * EF, local * 2 * (rows * H + H * EF + rows * EF))
    assert forward["matmul"].value == pytest.approx(2 * once)  # up and down have the same shape


def test_biases_of_experts() -> None:
    """The second bias times the token's score: of 64 bytes an element 28 forward and 36 backward (Megatron-LM
    core_v0.15.0, _apply_bias). The first one's gradient reads the gradients of gate and up."""
    found, bare = (parts(shape, {"expert_bias_bytes": 64.0}) for shape in (replace(MOE, expert_bias=True), MOE))
    more = {way: found[f"moe/experts/elementwise/{way}"] - bare[f"moe/experts/elementwise/{way}"] for way in WAYS}
    assert more["forward"] == pytest.approx(28 * T * K * H)
    assert more["backward"] == pytest.approx(36 * T * K * H + 2 * T * K * 2 * EF)


def test_casts_of_experts() -> None:
    """Inputs of both products, hidden and inner, for each row that is routed."""
    found = parts(MOE, {"cast_bytes": 3.0}, low=1)["step/memory_bound/casts"]
    assert found == pytest.approx(L * 3 * (T * K * (H + EF) + T * (H + HEADS * D)))


def test_all_to_all_inside_a_node() -> None:
    """Dispatch and combine of T·k rows, of which (e−1)/e leave the rank, 16 bits an element; backward the same. Tensor
    parallelism divides the tokens."""
    once = 2 * (4 - 1) / 4 * T * K * H * 2
    assert parts(MOE, ep=4, dp=4)["step/communication/expert"] == pytest.approx(L * 2 * once)
    assert parts(MOE, ep=4, dp=4, layers_recomputed=1)["step/communication/expert"] == pytest.approx(L * 3 * once)
    assert parts(MOE, ep=4, dp=4, tp=2)["step/communication/expert"] == pytest.approx(L * 2 * once / 2)
    assert parts(MOE, {"dispatch": 1.5}, ep=4, dp=4)["step/communication/expert"] == pytest.approx(1.5 * L * 2 * once)
    # 8-bit dispatch, 16-bit combine (DeepSeek-V3, arXiv:2412.19437, section 3.3.2): three bytes in place of four
    assert parts(MOE, ep=4, dp=4, low=1)["step/communication/expert"] == pytest.approx(L * 2 * once * 3 / 4)
    assert parts(MOE)["step/communication/expert"] == 0


def test_all_to_all_between_nodes() -> None:
    """16 ranks on 2 nodes: a token goes once to the other node if one of its 2 experts lies there, 1 − (1/2)² of them
    (DeepSeek-V3, section 3.2.2); the slower of link and network counts."""
    found = parts(MOE, {"link": 1e30}, ep=16, dp=16)
    assert found["step/communication/expert"] == pytest.approx(L * 2 * 2 * T * (1 - 0.5**2) * H * 2)


def test_ranks_that_share_an_expert_gather_its_tokens() -> None:
    """etp 2: what the all-to-all brought is gathered from the other rank, and what comes out is scattered."""
    alone = parts(MOE, ep=2, dp=4)["step/communication/expert"]
    shared = parts(MOE, ep=2, etp=2, dp=4)["step/communication/expert"]
    assert shared - alone == pytest.approx(L * 2 * 2 * T * K * H * 2)


# --- pipeline ---


def layer_seconds(found: dict[str, float]) -> float:
    """Seconds of the mean layer."""
    return found["layer"]


def test_the_pipeline_s_bubble() -> None:
    """(p−1)/v slots of a mean stage, of which the schedule keeps a share (Narayanan et al. 2021, section 2.2)."""
    found = parts(pp=4, vp=1, micro_batches=8)
    model = (L + 1) * found["layer"] + found["model/head"]  # the embedding counts as a layer
    assert found["step/bubble"] == pytest.approx(3 * model / 4)
    assert parts(pp=2, vp=2, micro_batches=8, idle=1 / 3)["step/bubble"] == pytest.approx(1 / 3 * 1 / 2 * model / 2)


def test_what_stages_send_each_other() -> None:
    """Activations forward and their gradients backward, b·s·h elements of 16 bits for each micro-batch and chunk
    (Narayanan et al. 2021, section 2.2); each rank its part where sequence parallelism divides the stream."""
    once = 4 * T * H
    assert parts(pp=4, micro_batches=8)["step/communication/pipeline"] == pytest.approx(8 * once)
    assert parts(pp=2, vp=2, micro_batches=8)["step/communication/pipeline"] == pytest.approx(8 * 2 * once)
    assert parts(pp=4, tp=2)["step/communication/pipeline"] == pytest.approx(once)
    assert parts(pp=4, tp=2, sequence_parallel=1)["step/communication/pipeline"] == pytest.approx(once / 2)
    assert parts(pp=4, cp=2)["step/communication/pipeline"] == pytest.approx(once / 2)
    assert parts()["step/communication/pipeline"] == 0


def test_the_slowest_stage() -> None:
    """⌈L/p⌉ layers on every stage but the last, the rest and the head on the last; the slower of the two counts."""
    forward, backward = linears()
    head = sum(three(T, H, V))
    five = replace(DENSE, layers=5)
    # two stages: 3 layers, or 2 and the head, which costs as much as 2·T·h·V FLOP, less than a layer
    assert head < forward + backward
    assert parts(five, pp=2)["step/compute/matmul"] == pytest.approx(3 * (forward + backward))
    wide = replace(DENSE, layers=5, vocab=16 * V)
    heavy = sum(three(T, H, 16 * V))
    assert heavy > forward + backward
    assert parts(wide, pp=2)["step/compute/matmul"] == pytest.approx(2 * (forward + backward) + heavy)
    by_hand = parts(five, pp=2, layers_before=1, layers_last=4)
    assert by_hand["step/compute/matmul"] == pytest.approx(4 * (forward + backward) + head)
    alone = parts(five, pp=2, layers_before=5, layers_last=0)  # the last stage has the head alone
    assert alone["step/compute/matmul"] == pytest.approx(5 * (forward + backward))
    every = parts(five, pp=2, layers_before=0, layers_last=5)
    assert every["step/compute/matmul"] == pytest.approx(5 * (forward + backward) + head)


def test_what_a_layout_does_not_state() -> None:
    """Both stacks read the sequence; nothing is gathered by itself."""
    plain = StepLayout(S, B, 1)
    assert (plain.keys, plain.decoding().sequence) == (S, S)
    assert parts(changed={"host_unit": 1e15, "host_module": 1e15})["step/overhead/host"] == 0


def test_a_vision_tower_embeds_its_patches_once() -> None:
    """Before its layers, its projector and the embedding of tokens, all on the first stage; nothing without images."""
    seeing = preset("qwen3-vl-8b")
    assert seeing.vision is not None
    depth = seeing.vision.tower.stacks[0].depth
    plan = StepLayout(S, B, 1, images=1, tower_tokens=256, image_tokens=64)
    layers = layers_of_step(seeing, plan, UNIT)
    assert layers.order.first == ((1, 0), (depth, 1), (1, 2), (1, 3))
    assert layers.runs[0][1].groups["matmul"].value > 0
    assert layers_of_step(seeing, replace(plan, images=0), UNIT).order.first == ((1, 0),)


# --- data parallelism and the optimizer ---

WEIGHTS = L * (LAYER + NORMS) + 2 * V * H
"""Parameters: layers, embedding and head."""


def test_zero_1_scatters_gradients_and_gathers_parameters() -> None:
    """(n−1)/n of the gradients in their format, and of the 16-bit parameters, once a step (Rajbhandari et al. 2020,
    section 7.2.1)."""
    for gradient in (2, 4):
        found = parts(dp=4, zero=1, gradient_bytes=gradient, micro_batches=8)["step/communication/data"]
        assert found == pytest.approx(3 / 4 * (gradient + 2) * WEIGHTS)
    assert parts()["step/communication/data"] == 0
    tied = parts(replace(DENSE, tied=True), dp=4, zero=1)["step/communication/data"]
    assert tied == pytest.approx(3 / 4 * (4 + 2) * (WEIGHTS - V * H))


def test_without_zero_gradients_are_all_reduced() -> None:
    """2(n−1)/n of the gradients in their format (Rajbhandari et al. 2020, section 7.1)."""
    for gradient in (2, 4):
        found = parts(dp=4, zero=0, gradient_bytes=gradient)["step/communication/data"]
        assert found == pytest.approx(2 * 3 / 4 * gradient * WEIGHTS)


def test_zero_2_scatters_gradients_in_every_micro_batch() -> None:
    found = parts(dp=4, zero=2, gradient_bytes=4, micro_batches=8)["step/communication/data"]
    assert found == pytest.approx(3 / 4 * (8 * 4 + 2) * WEIGHTS)


def test_context_ranks_share_the_weights_too() -> None:
    """Of dp·cp ranks, as memory divides them (Megatron-core parallel_state.py, data parallel with context parallel)."""
    found = parts(dp=2, cp=2, zero=1, optimizer_bytes=30)
    assert found["step/communication/data"] == pytest.approx(3 / 4 * (4 + 2) * WEIGHTS)
    assert found["step/optimizer"] == pytest.approx(30 * WEIGHTS / 4)
    found = parts(cp=4, zero=3, optimizer_bytes=30)
    assert found["step/communication/data"] == pytest.approx(
        joined(found["step/work"], 3 / 4 * 8 * WEIGHTS) - found["step/work"], rel=1e-6
    )
    assert found["step/optimizer"] == pytest.approx(30 * WEIGHTS / 4)


SAME = [(layout, zero) for layout in ("--cp 4", "--dp 4", "--cp 2 --dp 2") for zero in (1, 3)]


@pytest.mark.parametrize(("layout", "zero"), [*SAME, ("--dp 8 --dp-shard 4", 3)])
def test_the_command_divides_time_and_memory_over_the_same_ranks(layout: str, zero: int) -> None:
    line = f"llama3-8b --gpus {8 if '8' in layout else 4} --hardware h100 --seq 8192 --json"
    plain, divided = layout.partition(" --dp-shard")[0], f"{layout} --zero {zero}"
    whole, own = (run_line(f"step {line} --stack lean {one}").values["step/optimizer"] for one in (plain, divided))
    assert whole / own == pytest.approx(4)
    all_states, states = (run_line(f"memory {line} {one}").values["memory/optimizer"] for one in (plain, divided))
    assert all_states / states == pytest.approx(4, rel=0.1)  # and buffers that are not divided


def test_gradients_are_scattered_behind_the_last_backward_pass() -> None:
    """4 bytes a weight, less what the last micro-batch's backward hides: that of the layers, and the lookups' (6 bytes
    an element of a token, and one a weight here that is accumulated); at least the share that is never hidden. The 2
    bytes that are gathered follow the optimizer's step: no backward pass hides them."""
    scattered, returned = 3 / 4 * 4 * WEIGHTS, 3 / 4 * 2 * WEIGHTS
    backward = L * parts()["layer/behind"] + T * 6 * H + V * H
    slow = 1e4
    found = parts(dp=4, zero=1, changed={"data_overlap": 1.0, "network": 1 / slow, "link": 1 / slow})
    assert found["step/communication/data"] == pytest.approx(slow * scattered - backward + slow * returned)
    # of a stage with two chunks, the last one's layers: a quarter of all
    chunks = parts(dp=4, zero=1, pp=2, vp=2, changed={"data_overlap": 1.0, "network": 1e-4, "link": 1e-4})
    stage = 3 / 4 * 6 * (L / 2 * (LAYER + NORMS) + V * H)
    assert chunks["step/communication/data"] == pytest.approx(1e4 * stage - backward / 4)
    rates = {"data_overlap": 1.0, "gather_overlap": 1.0, "data_exposed": 0.1, "link": 1e3}
    least = parts(dp=4, zero=1, changed=rates)
    assert least["step/communication/data"] == pytest.approx(0.1 * (scattered + returned) / 1e3)


def test_parameters_are_gathered_ahead_of_the_first_forward_pass() -> None:
    """2 bytes a weight, less what the forward pass of the layers and the lookups (4 bytes an element of a token) hides;
    of a stage with two chunks a quarter of it. Without ZeRO gradients alone are sent, in both directions."""
    returned, scattered, slow = 3 / 4 * 2 * WEIGHTS, 3 / 4 * 4 * WEIGHTS, 1e4
    one = parts()
    forward = L * one["layer/forward/waited"] + T * 4 * H
    assert one["layer/forward/waited"] + one["layer/behind"] == pytest.approx(one["layer/seconds"])
    rates = {"gather_overlap": 1.0, "network": 1 / slow, "link": 1 / slow}
    found = parts(dp=4, zero=1, changed=rates)
    assert found["step/communication/data"] == pytest.approx(slow * (scattered + returned) - forward)
    chunks = parts(dp=4, zero=1, pp=2, vp=2, changed=rates)
    stage = 3 / 4 * 6 * (L / 2 * (LAYER + NORMS) + V * H)
    assert chunks["step/communication/data"] == pytest.approx(slow * stage - forward / 4)
    whole = parts(dp=4, zero=0, changed=rates)
    assert whole["step/communication/data"] == pytest.approx(slow * 2 * scattered)


def test_the_latency_of_a_reduction() -> None:
    rates = {"link": 1e30, "network": 1e30, "data_latency": 5.0}
    assert parts(dp=8, zero=1, changed=rates)["step/communication/data"] == pytest.approx(5 * 3)
    assert parts(dp=1, changed=rates)["step/communication/data"] == 0


def test_zero_3_gathers_twice_and_scatters_once_in_every_micro_batch() -> None:
    """(n−1)/n of the 16-bit parameters forward and backward and of the gradients, each micro-batch (Rajbhandari et al.
    2020, section 7.2.2), joined smoothly with the step's work."""
    found = parts(dp=4, zero=3, shards=4, gradient_bytes=4, micro_batches=8)
    gathers = 3 / 4 * 8 * (2 + 2 + 4) * WEIGHTS
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, gathers) - work, rel=1e-6)
    disturbed = parts(dp=4, zero=3, shards=4, micro_batches=8, changed={"interference": 0.1})
    assert disturbed["step/communication/data"] - found["step/communication/data"] == pytest.approx(0.1 * gathers)


def test_a_head_that_each_part_of_the_loss_gathers() -> None:
    """Six times more in a micro-batch, 16-bit, with nothing to overlap with."""
    one, seven = (parts(dp=4, zero=3, shards=4, micro_batches=8, head_gathers=more) for more in (0, 6))
    more = seven["step/communication/data"] - one["step/communication/data"]
    assert more == pytest.approx(8 * 6 * 3 / 4 * 2 * V * H)


def test_layers_are_gathered_one_by_one_where_matrices_of_adapters_are_units() -> None:
    """FSDP has at most two units in flight (torch/distributed/fsdp/_limiter_utils.py): nothing hides a layer's
    gathers behind the layer before, whose adapters are units too."""
    found = parts(dp=4, zero=3, shards=4, gradient_bytes=4, micro_batches=8, gathers_adapters=1)
    assert found["step/communication/data"] == pytest.approx(3 / 4 * 8 * (2 + 2 + 4) * WEIGHTS, rel=1e-6)


def test_zero_3_gathers_what_a_mean_stage_holds() -> None:
    """Half of the layers and one of embedding and head, nothing of which is frozen."""
    found = parts(dp=4, zero=3, pp=2, micro_batches=8)
    gathers = 3 / 4 * 8 * (2 + 2 + 4) * (L / 2 * (LAYER + NORMS) + V * H)
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, gathers) - work, rel=1e-6)


def test_replicas_of_zero_3_reduce_their_own_part() -> None:
    """Two copies of four shards: 2(2−1)/2 of a quarter of the gradients between them, once a step (hybrid sharding,
    Zhao et al. 2023, section 3.2.2)."""
    found = parts(dp=8, zero=3, shards=4, gradient_bytes=4)
    inside, between = 3 / 4 * 8 * WEIGHTS, 2 * 1 / 2 * 4 * WEIGHTS / 4
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, inside + between) - work, rel=1e-6)


EXPERT = 3 * H * EF
MOE_DENSE = L * (ATTENTION + NORMS + H * E) + 2 * V * H


def test_experts_are_reduced_by_the_ranks_that_hold_the_same() -> None:
    """8 replicas, experts over 4 of them: 2 hold the same experts, E/4 on each."""
    found = parts(MOE, dp=8, ep=4, zero=1)["step/communication/data"]
    assert found == pytest.approx(6 * (7 / 8 * MOE_DENSE + 1 / 2 * L * E / 4 * EXPERT))


def test_the_optimizer_moves_its_own_part() -> None:
    """AdamW with a 32-bit master copy: the gradient is read (4), master and both moments read and written (3 · 8), the
    16-bit parameter written (2): 30 bytes per parameter."""
    assert step_traffic(POLICIES["bf16-mixed"], OPTIMIZERS["adamw"].copies, 4) == 30
    assert parts(optimizer_bytes=30)["step/optimizer"] == pytest.approx(30 * WEIGHTS)
    assert parts(optimizer_bytes=30, dp=4)["step/optimizer"] == pytest.approx(30 * WEIGHTS)
    for zero in (1, 2, 3):
        assert parts(optimizer_bytes=30, dp=4, zero=zero)["step/optimizer"] == pytest.approx(30 * WEIGHTS / 4)
    slow = parts(optimizer_bytes=30, changed={"optimizer_slowness": 2.0})["step/optimizer"]
    assert slow == pytest.approx(60 * WEIGHTS)
    # a stage of two: half of the layers, and the embedding or the head
    stage = parts(optimizer_bytes=30, pp=2)["step/optimizer"]
    assert stage == pytest.approx(30 * (L / 2 * (LAYER + NORMS) + V * H))


MATRICES = [(H, (HEADS + 2 * KV) * D), (HEADS * D, H), (H, F), (H, F), (F, H)]
"""Of a dense layer: queries, keys and values in one; output, gate, up, down."""


def test_a_host_updates_the_states_of_its_gpus() -> None:
    """ZeRO-Offload's table 4: 1, 4 and 10 billion parameters in 0.22, 1.03 and 2.57 s, in 1.39, 5.71 and 14.76 s by
    torch's operations: 15/3.82 and 15/21.86 billion a second, for all GPUs of a node together."""
    for host, rate in ((1, 15e9 / 3.82), (2, 15e9 / 21.86)):
        alone = parts(optimizer_bytes=30, host=host)["step/optimizer"]
        assert alone == pytest.approx(WEIGHTS / rate)
        assert parts(optimizer_bytes=30, host=host, dp=4)["step/optimizer"] == pytest.approx(4 * alone)
        assert parts(optimizer_bytes=30, host=host, dp=4, zero=2)["step/optimizer"] == pytest.approx(alone)
        assert parts(optimizer_bytes=30, host=host, cp=2)["step/optimizer"] == pytest.approx(2 * alone)
    line = "step llama3-8b --gpus 16 --hardware h100 --zero 3 --framework deepspeed --offload optimizer --json"
    found = run_line(line)
    assert found.values["step/optimizer"] == pytest.approx(8_030_261_248 / 2 * 3.82 / 15e9)
    on_gpus = run_line(line.replace("--offload optimizer ", ""))
    wide, narrow = (one.data["high"]["step/time"] / one.values["step/time"] for one in (found, on_gpus))
    assert wide > 1.2 * narrow
    refused = run_line(line.replace("--offload", "--optimizer muon --offload"))
    assert (refused.status, "muon on a host" in refused.err) == (3, True)


def test_an_optimizer_works_on_each_matrix() -> None:
    """GaLore: down to rank 8 and back, 2 · 2·a·b·8 FLOP, and a decomposition of m²·n cubes every 200 steps."""
    works = projecting(8, decomposed=True)
    each = sum(32 * a * b + min(a, b) ** 2 * max(a, b) / 200 for a, b in MATRICES)
    for dp, zero, pp, expected in (
        (1, 0, 1, L * each),
        (4, 0, 1, L * each),  # every replica all of them
        (4, 1, 1, L * each / 4),  # each one of the ranks
        (1, 0, 2, L / 2 * each),
    ):
        found = parts(works=works, optimizer_bytes=0, dp=dp, zero=zero, pp=pp)["step/optimizer"]
        assert found == pytest.approx(expected)
    # tensor-parallel ranks divide the longer side
    halved = [(a, b / 2) if b > a else (a / 2, b) for a, b in MATRICES]
    each_half = sum(32 * a * b + min(a, b) ** 2 * max(a, b) / 200 for a, b in halved)
    divided = parts(works=works, optimizer_bytes=0, tp=2)["step/optimizer"]
    assert divided == pytest.approx(L * each_half)
    tables = parts(works=works, works_on_tables=1, optimizer_bytes=0)["step/optimizer"]
    assert tables == pytest.approx(L * each + 2 * (32 * V * H + H**2 * V / 200))
    both = parts(works=works, optimizer_bytes=30)["step/optimizer"]
    assert both == pytest.approx(L * each + 30 * WEIGHTS)
    # experts in one tensor are no matrices: q, k and v in one, output and router are
    dense = sum(32 * a * b + min(a, b) ** 2 * max(a, b) / 200 for a, b in [*MATRICES[:2], (H, E)])
    for zero, ways in ((0, 1), (1, 4)):
        found = parts(MOE, works=works, optimizer_bytes=0, dp=4, ep=2, zero=zero)["step/optimizer"]
        assert found == pytest.approx(L * dense / ways)


def test_unaligned_experts_are_slowed_down_twice() -> None:
    """A width of 2 · 24 = 3 · 2⁴ is aligned to 16 elements only; grouping slows the same products down again."""
    of = replace(MOE, expert_ffn=24)
    name = "moe/experts/up/forward/compute"
    plain, odd, both = (
        parts(of, dp=8, changed=changed)[name]
        for changed in ({}, {"misaligned": 0.8}, {"misaligned": 0.8, "grouped": 0.5})
    )
    assert odd > plain
    assert both == pytest.approx(odd / (9 / 16))


def test_the_only_expert_of_a_rank_is_an_ordinary_product() -> None:
    """Grouping slows products of several experts down by what is lost between two of them: 1 − (1 − share)(n − 1)/n."""
    for ep, share in ((8, 1.0), (4, 3 / 4), (2, 5 / 8), (1, 9 / 16)):
        name = "moe/experts/up/forward/compute"
        plain, grouped = (parts(MOE, dp=8, ep=ep, changed={"grouped": rate})[name] for rate in (1.0, 0.5))
        assert grouped == pytest.approx(plain / share)


def test_muon_s_products_are_of_16_bits() -> None:
    m, n = H, F
    iteration = product(m, n, m) + product(m, m, m) + product(m, m, n)
    found = parts(works=orthogonalizing, optimizer_bytes=0)
    each = [value for name, value in found.items() if "/works/" in name and name.endswith(f"{F}x{H}/each")]
    assert each == [pytest.approx(5 * iteration)]


def test_decompositions_take_as_long_as_those_that_were_seen() -> None:
    """The published step that each figure is from, predicted by it: H100 at 3.35 TB/s, every tenth step."""
    for kind, seen in SEEN.items():
        cubes = sum(count * m * m * n for count, m, n in seen.matrices)
        assert cubes * seen.bytes_of_a_cube / seen.bandwidth == pytest.approx(seen.seconds), kind
    shampoo, soap = SEEN[EIGENVECTORS], SEEN[ORTHOGONAL]
    assert soap.bytes_of_a_cube < shampoo.bytes_of_a_cube < SEEN[SINGULAR].bytes_of_a_cube


@pytest.mark.parametrize(
    ("policy", "gradient", "expected"),
    [
        ("fp32", 4, 4 + 8 + 8 + 8),  # gradient; parameter, exp_avg and exp_avg_sq read and written
        ("amp-bf16", 4, 4 + 8 + 8 + 8),
        ("bf16-pure", 2, 2 + 4 + 4 + 4),
        ("bf16-mixed", 4, 4 + 8 + 8 + 8 + 2),
    ],
)
def test_bytes_of_adamw_by_policy(policy: str, gradient: int, expected: int) -> None:
    assert step_traffic(POLICIES[policy], OPTIMIZERS["adamw"].copies, gradient) == expected


def test_zero_divides_experts_over_the_ranks_that_hold_the_same() -> None:
    """Eight ranks, experts over four: two hold the same experts, whichever stage divides the states."""
    own = 30 * (MOE_DENSE / 8 + L * E / 4 * EXPERT / 2)
    for zero in (1, 3):
        found = parts(MOE, dp=8, ep=4, zero=zero, shards=8, optimizer_bytes=30)["step/optimizer"]
        assert found == pytest.approx(own)


def test_zero_3_gathers_experts_from_the_ranks_that_hold_the_same() -> None:
    found = parts(MOE, dp=8, ep=4, zero=3, shards=8)
    gathers = 8 * (7 / 8 * MOE_DENSE + 1 / 2 * L * E / 4 * EXPERT)
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, gathers) - work, rel=1e-6)


def test_the_optimizer_s_part_of_experts_that_ranks_share() -> None:
    """Eight ranks, experts over two of them, each divided over two: two hold the same part."""
    whole = parts(MOE, dp=8, ep=2, etp=2, optimizer_bytes=30)["step/optimizer"]
    assert whole == pytest.approx(30 * (MOE_DENSE + L * E / 4 * EXPERT))
    own = parts(MOE, dp=8, ep=2, etp=2, zero=1, optimizer_bytes=30)["step/optimizer"]
    assert own == pytest.approx(30 * (MOE_DENSE / 8 + L * E / 4 * EXPERT / 2))


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
    kinds = {row.stack: plan_of(row, 1, 1, 16).elementary for row in rows}
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


# --- the host, and what nothing scales ---


def test_a_layer_takes_as_long_as_its_launch() -> None:
    """The device waits if the host is slower; the head waits for nothing."""
    found = parts(changed={"host_layer": 1e12, "fixed": 7.0}, micro_batches=2)
    device = parts()["layer/device"]
    assert found["step/overhead"] == pytest.approx(2 * L * (1e12 - device) + 7)
    assert parts(changed={"host_layer": 1.0})["step/overhead"] == 0
    experts = parts(MOE, {"host_layer": 1e12, "host_experts": 2e12})
    assert experts["step/overhead"] == pytest.approx(L * (2e12 - experts["moe/device"]))


def test_the_device_waits_for_the_launches_of_each_expert() -> None:
    """Next to the launches that it does not wait for: of the experts on a GPU, in all passes, of which the forward one
    is 10 of 26 launches (see below) and is run again by recomputation."""
    each = {"host_expert": 3.0}
    for ep, local in ((1, E), (2, E / 2), (8, 1)):
        found = parts(MOE, each, dp=8, ep=ep)
        assert found["step/overhead"] == pytest.approx(L * local * 3)
        bare = parts(MOE, dp=8, ep=ep)
        assert found["moe/behind"] - bare["moe/behind"] == pytest.approx(local * 3 * 16 / 26)
    again = parts(MOE, each, layers_recomputed=1)["step/overhead"]
    assert again == pytest.approx(L * E * 3 * (26 + 10) / 26)
    assert parts(MOE, each, looped=1)["step/overhead"] == 0


def test_the_software_s_factor_scales_everything_but_what_is_fixed() -> None:
    layout: dict[str, Any] = {"tp": 2, "pp": 2, "dp": 2, "zero": 1, "micro_batches": 4}
    once, twice = parts(**layout, changed={"fixed": 5.0}), parts(**layout, changed={"stack": 2.0, "fixed": 5.0})
    assert twice["step/time"] - 5 == pytest.approx(2 * (once["step/time"] - 5))


def test_more_gpus_wait_longer_for_the_slowest() -> None:
    """Once a step for each doubling of the GPUs, whatever they divide."""
    rates = {"straggle": 3.0}
    assert parts(changed=rates)["step/overhead"] == 0
    assert parts(tp=2, dp=4, changed=rates)["step/overhead"] == pytest.approx(3 * 3)
    assert parts(pp=2, cp=2, dp=2, micro_batches=4, changed=rates)["step/overhead"] == pytest.approx(3 * 3)


def test_link_or_network() -> None:
    """Neighbors in a node use the link; a group that leaves it uses the cards of its ranks in a node, at most the link;
    stages eight apart use one card."""
    rates = {"link": 8.0, "network": 0.5}
    inside = parts(dp=8, zero=1, changed=rates)["step/communication/data"]
    assert inside == pytest.approx(7 / 8 * 6 * WEIGHTS / 8)
    outside = parts(dp=16, zero=1, changed=rates)["step/communication/data"]
    assert outside == pytest.approx(15 / 16 * 6 * WEIGHTS / (8 * 0.5))
    far = parts(dp=8, pp=2, changed=rates)["step/communication/pipeline"]
    assert far == pytest.approx(4 * T * H / 0.5)
    near = parts(tp=2, pp=2, changed=rates)["step/communication/pipeline"]
    assert near == pytest.approx(4 * T * H / 8)


def test_zero_3_in_smaller_groups_reduces_experts_over_the_ranks_that_hold_the_same() -> None:
    """Mixtral on 16 GPUs, ep 8, groups of 2: 8 groups hold each dense shard, but an expert is on 2 ranks, which no
    group divides. Dense gradients are reduced over 8, experts' over 2."""
    line = "step mixtral-8x7b --gpus 16 --zero 3 --dp-shard 2 --ep 8 --hardware h100 --explain --json"
    found = run_line(line).data["terms"]["sharded/replicas/parameters"]["value"]
    experts = 32 * 8 * 3 * 4096 * 14336 / 8
    dense = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096) + 2 * 32000 * 4096
    assert found == pytest.approx(dense / 2 * 7 / 8 + experts * 1 / 2, rel=1e-5)


def test_gradients_hide_behind_the_backward_pass_and_its_share_of_the_launches() -> None:
    """A layer that waits for the host: norm, q k v, rotary, core, o, sum, norm, gate, up, activation, product, down and
    sum are 13 launches forward; backward 13 for inputs and 7 for weights (q k v, o, gate, up, down, two norms).
    Experts and their router stand for the five of the feed-forward network: 10 forward, 10 and 6 backward.

    Recomputation launches the forward pass again in the backward pass. The share has no sizes in it: longer sequences
    and faster matmuls leave it as it is."""
    seconds = 1e15
    for shape, kind, rate, share in ((DENSE, "layer", "host_layer", 20 / 33), (MOE, "moe", "host_experts", 16 / 26)):
        for layout, again in (({}, 0.0), ({"sequence": 2 * S}, 0.0), ({"layers_recomputed": 1}, 1 - share)):
            found = parts(shape, {rate: seconds}, **layout)
            assert found[f"{kind}/device"] < seconds / 100
            assert found[f"{kind}/behind"] == pytest.approx(seconds * (share + again))
        faster = parts(shape, {rate: seconds, "peak": 3.0})
        assert faster[f"{kind}/behind"] == pytest.approx(seconds * share)


def test_work_that_waits_for_the_host_hides_no_more_of_a_reduction_where_it_grows() -> None:
    """Launches take longer than the work, and the reduction longer than them: a step is the launches' forward share,
    the reduction and the head's work."""
    launched, sent = 1e12, 1e14
    rates = {"host_layer": launched, "data_overlap": 1.0, "link": 3 / 4 * 6 * WEIGHTS / sent}
    for length in (S, 2 * S):
        found = parts(changed=rates, dp=4, zero=1, sequence=length)
        work = found["step/time"] - found["step/optimizer"] - found["model/head"]
        assert work == pytest.approx(L * launched * 13 / 33 + sent)


@pytest.mark.parametrize(("shards", "own", "copies"), [(0, 8, 1), (1, 1, 8), (2, 2, 4)])
def test_all_data_parallel_ranks_shard_unless_a_group_is_given(shards: int, own: int, copies: int) -> None:
    found = groups_of(StepLayout(sequence=S, micro_batch=B, micro_batches=1, dp=4, cp=2, shards=shards))
    assert (found.shards.ranks.value, found.copies.ranks.value) == (own, copies)


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
    "low": (0, 0, 0, 1, 1, 0), "shards": (0, 0, 8, 0, 0, 4),
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

"""The time of a step worked out by hand: bytes of elementwise work, casts, the head and experts.

A test for each term of docs/step-time.md. Every rate is 1 and nothing is lost (unit_step.py), so that
seconds are FLOPs, or bytes, and each test spells out its paper's formula with the dimensions of one small decoder.
"""

from __future__ import annotations

from typing import Any

import pytest

from napkin.evidence.fit.generic import decoder
from napkin.operations.attention.core import AttentionCore
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
from napkin.operations.streams_apart import Streamed
from napkin.operations.views import Concat, ConcatTokens, Slice, Transpose, reuse
from napkin.operations.work import Learning
from napkin.record import replace
from napkin.term import GIVEN, leaf
from napkin.timing.clock import Clock
from napkin.timing.experts import expert_time
from napkin.timing.layer_clock import LayerClock
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout
from tests.unit_step import (
    ATTENTION,
    DENSE,
    EF,
    FINAL,
    HEADS,
    KV,
    LAYER,
    LOOKUPS,
    MOE,
    NORMS,
    UNIT,
    WAYS,
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
    parts,
    product,
)

# --- elementwise work, casts, accumulation, the head ---


@pytest.mark.parametrize(("low", "wide", "operand"), [(0, False, 2), (1, False, 1), (1, True, 2)])
def test_a_gemm_reads_both_operands_and_writes_its_result_at_the_rate_that_memory_reaches(
    low: int, wide: bool, operand: int
) -> None:
    """3 products of (4×6)(6×5): operands of 2 bytes, of 1 where matmuls read 8 bits; the result always has 16 bits."""
    clock = Clock(
        replace(UNIT, bandwidth=4.0, memory=0.5), StepLayout(sequence=S, micro_batch=B, micro_batches=1, low=low)
    )
    m, k, n, batch = (leaf(name, size, "1", GIVEN) for name, size in (("m", 4), ("k", 6), ("n", 5), ("batch", 3)))
    found = clock.gemm("x", m, k, n, batch, wide)
    seconds = {part.name: part.value for part in found.parts}
    assert seconds["x/moved"] == 3 * (operand * (4 * 6 + 6 * 5) + 2 * 4 * 5) / (4 * 0.5)


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
    """So many bytes for each weight and micro-batch, those of embedding, last norm and head too; tied matrices are
    one; recomputation adds none."""
    weights = L * (LAYER + NORMS) + 2 * V * H + H
    found = parts(micro_batches=5, layers_recomputed=1, changed={"accumulation_bytes": 12.0})
    assert found["step/memory_bound/accumulation"] == pytest.approx(5 * 12 * weights)
    sparse = parts(MOE, {"accumulation_bytes": 12.0}, micro_batches=3)["step/memory_bound/accumulation"]
    assert sparse == pytest.approx(3 * 12 * (L * (ATTENTION + NORMS + H * E + 3 * E * H * EF) + 2 * V * H + H))
    divided = parts(tp=2, changed={"accumulation_bytes": 12.0})["step/memory_bound/accumulation"]
    assert divided == pytest.approx(12 * (L * (LAYER / 2 + NORMS) + 2 * V * H / 2 + H))
    tied = parts(replace(DENSE, tied=True), {"accumulation_bytes": 12.0})["step/memory_bound/accumulation"]
    assert tied == pytest.approx(12 * (L * (LAYER + NORMS) + V * H + H))


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


def test_experts_whose_tokens_come_and_go_by_matmuls_with_masks() -> None:
    """MaxText's dense_matmul, einsums "BSM,BSEC -> EBCM" and "EBCM,BSEC -> BSM" for each of B sequences: E·C = 1.5·S·K
    slots. Forward both; backward the gradients of tokens and of the experts' outputs as large, and that of the scores
    in the combining mask, (S × H)(H × E·C). Nothing is permuted."""
    slots = 1.5 * S * K
    there, back, scores = (B * product(*shape) for shape in ((slots, S, H), (S, slots, H), (S, H, slots)))
    rates = {"permutation_bytes": 8.0}
    found, moved = (parts(MOE, rates, ep=4, dp=4, expert_load=1.5, one_hot=one) for one in (1, 0))
    assert found["moe/experts/masks/forward"] == pytest.approx(there + back)
    assert found["moe/experts/masks/backward"] == pytest.approx(there + back + scores)
    matmuls = found["moe/experts/forward/matmuls"] - found["moe/experts/products/forward"]
    assert matmuls == pytest.approx(there + back)
    way = "moe/experts/elementwise/forward"
    assert moved[way] - found[way] == pytest.approx(0.4 * 8 * 1.5 * T * K * H)
    steps = found["step/time"] - moved["step/time"]
    assert steps == pytest.approx(L * (2 * (there + back) + scores - 8 * 1.5 * T * K * H))


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


def test_clamps_of_experts() -> None:
    """Megatron-LM core_v0.16.0, weighted_bias_quick_geglu_impl, and torch's derivative of clamp. Forward gate and up
    are each read and written (4), and joined (4). Backward a comparison of the gate (2 + 1) chooses its gradient
    (1 + 2 + 2); of up two comparisons (6) are joined to one mask (3) that chooses (5); both are joined (4)."""
    rates = {"clamps_apart": 1.0}
    found, bare = (parts(shape, rates) for shape in (replace(MOE, expert_clamp=True), MOE))
    more = {way: found[f"moe/experts/elementwise/{way}"] - bare[f"moe/experts/elementwise/{way}"] for way in WAYS}
    gate, up = (2 + 1) + (1 + 2 + 2), 2 * (2 + 1) + (1 + 1 + 1) + (1 + 2 + 2)
    assert more["forward"] == pytest.approx((4 + 4) * T * K * 2 * EF)
    assert more["backward"] == pytest.approx((gate + up + 2 * 4) * T * K * EF)
    fused = parts(replace(MOE, expert_clamp=True), {"clamps_apart": 0.0})
    assert fused["step/time"] == parts(MOE, {"clamps_apart": 0.0})["step/time"]


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


def test_all_to_all_between_nodes_of_each_copy() -> None:
    """The same where NCCL's all-to-all sends a token to each of its 2 experts by itself: half of these lie in the other
    node. Inside a node it sends as many bytes."""
    found = parts(MOE, {"link": 1e30}, ep=16, dp=16, sends_copies=1)
    assert found["step/communication/expert"] == pytest.approx(L * 2 * 2 * T * K / 2 * H * 2)
    inside = [parts(MOE, ep=4, dp=4, sends_copies=on)["step/communication/expert"] for on in (0, 1)]
    assert inside[0] == inside[1] > 0


def test_ranks_that_share_an_expert_gather_its_tokens() -> None:
    """etp 2: what the all-to-all brought is gathered from the other rank, and what comes out is scattered."""
    alone = parts(MOE, ep=2, dp=4)["step/communication/expert"]
    shared = parts(MOE, ep=2, etp=2, dp=4)["step/communication/expert"]
    assert shared - alone == pytest.approx(L * 2 * 2 * T * K * H * 2)

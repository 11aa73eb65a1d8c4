"""The time of a step worked out by hand: what ranks send each other, the optimizer, and the host.

A test for each term of docs/step-time.md. Every rate is 1 and nothing is lost (unit_step.py), so that
seconds are FLOPs, or bytes, and each test spells out its paper's formula with the dimensions of one small decoder.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from napkin.counting.params import params
from napkin.evidence.figures.host_updates import host_rate
from napkin.evidence.fit.generic import decoder
from napkin.evidence.rates.decompositions import SEEN
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.record import replace
from napkin.timing.collectives import groups_of
from napkin.timing.optimizer import FUSED_ON_HOST
from napkin.timing.step import layers_of_step, step
from napkin.timing.step_layout import StepLayout
from napkin.training.optimizer_step import step_traffic
from napkin.training.optimizer_work import EIGENVECTORS, ORTHOGONAL, SINGULAR, orthogonalizing, projecting
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from tests.conftest import model_of, preset, run_line
from tests.unit_step import (
    DENSE,
    EXPERT,
    HEADS,
    KV,
    LAYER,
    MATRICES,
    MOE,
    MOE_DENSE,
    NORMS,
    UNIT,
    WEIGHTS,
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
    # what q-k-v and gate-up read is gathered once more for the gradients of their weights (the same section)
    kept: dict[str, Any] = {"sequence_parallel": 1, "gathers_inputs": 1}
    assert parts(tp=4, **kept)["step/communication/tensor"] == pytest.approx((L * (4 + 2 / 2) + 2) * once)
    both: dict[str, Any] = {"sequence_parallel": 1, "layers_recomputed": 1}
    assert parts(tp=4, **both)["step/communication/tensor"] == pytest.approx((L * 6 + 2) * once)
    assert parts(tp=4, changed={"tensor_exposed": 0.5})["step/communication/tensor"] == pytest.approx(
        (L * 2 + 1) * once
    )


def test_branches_that_read_one_norm_have_one_all_reduce_backward() -> None:
    """GPT-J: two forward (o, down) and one backward, for the norm's result that q, k, v and up read."""
    fields = {"model_type": "gptj", "n_embd": H, "n_layer": L, "n_head": HEADS, "rotary_dim": 64, "n_positions": S}
    plan = StepLayout(sequence=S, micro_batch=B, micro_batches=1, tp=4)
    found = step(model_of({**fields, "vocab_size": V}), plan, UNIT)
    (sent,) = (one for one in found.time.walk() if one.name == "step/communication/tensor")
    assert sent.value == pytest.approx((L * 3 + 2) * 2 * (4 - 1) / 4 * 2 * T * H)


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


# --- pipeline ---


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


def test_what_stages_send_each_other_in_parts() -> None:
    """With tp 4 and without sequence parallelism a rank sends a fourth and gathers three fourths from the others, once
    a chunk and micro-batch (Narayanan et al. 2021, section 4.1: scatter/gather); one rank has no one to gather from."""
    once = 4 * T * H
    parted: dict[str, Any] = {"splits_boundary": 1, "pp": 2}
    assert parts(tp=4, **parted)["step/communication/pipeline"] == pytest.approx(once / 4 + once * 3 / 4)
    hidden = parts(tp=4, micro_batches=8, changed={"pipeline_exposed": 0.0}, **parted)
    assert hidden["step/communication/pipeline"] == pytest.approx(8 * once * 3 / 4)
    assert parts(tp=4, vp=2, **parted)["step/communication/pipeline"] == pytest.approx(2 * once)
    assert parts(**parted)["step/communication/pipeline"] == pytest.approx(once)
    assert parts(tp=4, splits_boundary=1)["step/communication/pipeline"] == 0


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
    alone = parts(replace(wide, vocab=64 * V), pp=4)  # 2, 2 and 1, and the head alone
    assert alone["step/compute/matmul"] == pytest.approx(sum(three(T, H, 64 * V)))
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
    stage = 3 / 4 * 6 * (L / 2 * (LAYER + NORMS) + V * H + H)
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
    stage = 3 / 4 * 6 * (L / 2 * (LAYER + NORMS) + V * H + H)
    assert chunks["step/communication/data"] == pytest.approx(slow * stage - forward / 4)
    whole = parts(dp=4, zero=0, changed=rates)
    assert whole["step/communication/data"] == pytest.approx(slow * 2 * scattered)


def test_the_latency_of_a_reduction() -> None:
    rates = {"link": 1e30, "network": 1e30, "data_latency": 5.0}
    assert parts(dp=8, zero=1, changed=rates)["step/communication/data"] == pytest.approx(5 * 3)
    assert parts(dp=1, changed=rates)["step/communication/data"] == 0


@pytest.mark.parametrize(("dp", "inside", "between"), [(4, 3, 0), (8, 7, 0), (16, 14, 1), (24, 21, 2)])
def test_the_hops_of_zero_3_s_collectives(dp: int, inside: int, between: int) -> None:
    """Each of L layers, and the embedding with the head, passes three times around n ranks in every micro-batch: n − N
    hops inside N nodes of 8 and N − 1 between them (NVIDIA/nccl src/graph/tuning.cc, ring)."""
    rates = {"link": 1e30, "network": 1e30, "link_hop": 1e12, "network_hop": 7e12}
    found = parts(dp=dp, zero=3, micro_batches=2, changed=rates)
    work, hops = found["step/work"], 2 * (L + 1) * 3 * (inside * 1e12 + between * 7e12)
    assert found["step/communication/data"] == pytest.approx(joined(work, hops) - work, rel=1e-6)


def test_the_hops_where_each_weight_is_reduced_by_itself() -> None:
    """q, k and v in one, the output, gate and up in one, down, and two norms: six of a layer, scattered and gathered.
    Ranks that tensor parallelism sets apart are four to a node."""
    rates = {"link": 1e30, "network": 1e30, "link_hop": 1.0, "network_hop": 10.0}
    for tp, around in ((1, 14 * 1 + 1 * 10), (2, 12 * 1 + 3 * 10)):
        found = parts(tp=tp, dp=16, zero=1, reduces_tensors=1, changed=rates)
        assert found["step/communication/data"] == pytest.approx(2 * 6 * L * around)
    for zero, alone in ((1, 0), (0, 1)):
        found = parts(dp=16, zero=zero, reduces_tensors=alone, changed=rates)
        assert found["step/communication/data"] == pytest.approx(0, abs=1e-9)


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


def test_layers_that_reentrant_checkpoints_surround_are_gathered_a_third_time_and_one_by_one() -> None:
    """Forward, as the checkpoint runs again, and for its gradients: 2 + 2 + 2 bytes of parameters and 4 of gradients
    (transformers training_args.py: "a redundant AllGather in backward pass"). Where half of the layers run again, half
    of the third pass is gathered; where none do, everything is as without it."""
    given = partial(parts, dp=4, zero=3, shards=4, gradient_bytes=4, micro_batches=8)
    for recomputed, bytes_of_one in ((1, 10), (0.5, 9)):
        found = given(gathers_late=1, layers_recomputed=recomputed)
        assert found["step/communication/data"] == pytest.approx(3 / 4 * 8 * bytes_of_one * WEIGHTS, rel=1e-6)
    plain, unused = given(), given(gathers_late=1)
    assert unused["step/communication/data"] == pytest.approx(plain["step/communication/data"], rel=1e-9)


def test_zero_3_gathers_what_a_mean_stage_holds() -> None:
    """Half of the layers and one of embedding and head, nothing of which is frozen."""
    found = parts(dp=4, zero=3, pp=2, micro_batches=8)
    gathers = 3 / 4 * 8 * (2 + 2 + 4) * (L / 2 * (LAYER + NORMS) + V * H + H)
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, gathers) - work, rel=1e-6)


def test_replicas_of_zero_3_reduce_their_own_part() -> None:
    """Two copies of four shards: 2(2−1)/2 of a quarter of the gradients between them, once a step (hybrid sharding,
    Zhao et al. 2023, section 3.2.2)."""
    found = parts(dp=8, zero=3, shards=4, gradient_bytes=4)
    inside, between = 3 / 4 * 8 * WEIGHTS, 2 * 1 / 2 * 4 * WEIGHTS / 4
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, inside + between) - work, rel=1e-6)


def test_the_exchange_of_experts_beside_another_micro_batch() -> None:
    """Each pass sends T·k rows of h elements of 16 bits to the 7 of 8 other ranks of the node and back. Where it runs
    beside the other pass of another micro-batch, a quarter of it shows, or what that pass's work does not fill; the
    first forward pass and the last backward pass of m micro-batches have no such partner."""
    each = T * K * 7 / 8 * 2 * 2 * H
    name, beside = "step/communication/expert", {"expert_exposed": 0.25}
    ranks: dict[str, Any] = {"dp": 8, "ep": 8}
    assert parts(MOE, **ranks, micro_batches=4)[name] == pytest.approx(4 * L * 2 * each)
    assert parts(MOE, beside, **ranks)[name] == pytest.approx(L * 2 * each)
    shown = 1 / 4 + 3 / 4 * 0.25
    assert parts(MOE, beside, **ranks, micro_batches=4)[name] == pytest.approx(4 * L * 2 * each * shown)
    slow = parts(MOE, beside | {"link": 1e-4}, **ranks, micro_batches=4)
    left = 2 * 1e4 * each - sum(slow[f"moe/{group}"] for group in ("matmul", "attention", "elementwise", "casts"))
    assert left > 2 * 0.25 * 1e4 * each
    assert slow[name] == pytest.approx(4 * L * (2 * 1e4 * each / 4 + 3 / 4 * left))


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
    assert stage == pytest.approx(30 * (L / 2 * (LAYER + NORMS) + V * H + H))


def test_a_host_updates_the_states_of_its_gpus() -> None:
    """30 bytes of each parameter at the rate of its kernel, for all GPUs of a node together."""
    rates = {"host_fused": 5.0, "host_looped": 2.0}
    for host, rate in ((1, 5.0), (2, 2.0)):
        alone, replicas, sharded, context = (
            parts(changed=rates, optimizer_bytes=30, host=host, dp=dp, zero=zero, cp=cp)["step/optimizer"]
            for dp, zero, cp in ((1, 0, 1), (4, 0, 1), (4, 2, 1), (1, 0, 2))
        )
        assert alone == sharded == pytest.approx(30 * WEIGHTS / rate)
        assert (replicas, context) == pytest.approx((4 * alone, 2 * alone))
    line = "step llama3-8b --gpus 16 --hardware h100 --network-bandwidth 50GB/s --zero 3 --framework deepspeed --json"
    found = run_line(f"{line} --offload optimizer")
    assert found.values["step/optimizer"] == pytest.approx(8_030_261_248 / 2 * 30 / host_rate(FUSED_ON_HOST))
    on_gpus = run_line(line)
    wide, narrow = (one.data["high"]["step/time"] / one.values["step/time"] for one in (found, on_gpus))
    assert wide > 1.5 * narrow
    refused = run_line(f"{line} --optimizer muon --offload optimizer")
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


def test_each_further_step_of_a_ring_launches_three_kernels_a_pass() -> None:
    """The kernel, the exchange and the correction, forward and backward, next to 33 launches of a layer."""
    for cp in (1, 2, 4):
        found = parts(changed={"host_layer": 1e15}, cp=cp)
        assert found["layer/launch"] == pytest.approx(1e15 * (33 + 6 * (cp - 1)) / 33)
    assert parts(changed={"host_layer": 1e15}, cp=4, exchanges=1)["layer/launch"] == pytest.approx(1e15)


def test_the_host_goes_from_chunk_to_chunk_while_the_device_works() -> None:
    """4 layers in 2 stages of 2 chunks, 3 micro-batches. The slowest stage has two layers and the head, the mean one
    half of the model; the bubble is 1/2 of that (p−1 slots of v chunks). Where launches take longer than the work of
    the layers, only the head and the lookups give the host time to spare."""
    shape: dict[str, Any] = {"pp": 2, "vp": 2, "micro_batches": 3}
    each = 1e15
    before = parts(**shape)
    slowest, mean = before["layer/device"] * 2 + before["model/head"], before["model/micro_batch"] / 2
    found = parts(changed={"host_chunk": each}, **shape)
    assert found["stage/host/waited"] == pytest.approx(2 * each - slowest)
    waited = 3 * (2 * each - slowest) + (2 * each - mean) / 2
    assert found["step/time"] - before["step/time"] == pytest.approx(waited)
    assert parts(changed={"host_chunk": mean / 4}, **shape)["step/time"] == pytest.approx(before["step/time"])
    late = parts(changed={"host_layer": 1e12, "host_chunk": each}, **shape)
    assert late["stage/host/waited"] == pytest.approx(2 * each - before["model/head"])


@pytest.mark.parametrize(("shards", "own", "copies"), [(0, 8, 1), (1, 1, 8), (2, 2, 4)])
def test_all_data_parallel_ranks_shard_unless_a_group_is_given(shards: int, own: int, copies: int) -> None:
    found = groups_of(StepLayout(sequence=S, micro_batch=B, micro_batches=1, dp=4, cp=2, shards=shards))
    assert (found.shards.ranks.value, found.copies.ranks.value) == (own, copies)


def test_weights_that_one_gpu_updates() -> None:
    """Linear layers and norms of each layer, the table, the last norm and a head of its own."""

    def updated(shape: PrintedDecoder) -> float:
        return float(step(decoder(shape), StepLayout(sequence=S, micro_batch=B, micro_batches=1), UNIT).weights)

    assert updated(DENSE) == L * (LAYER + NORMS) + 2 * V * H + H
    assert updated(replace(DENSE, tied=True)) == updated(DENSE) - V * H


@pytest.mark.parametrize(
    "name",
    [
        *("gpt2", "bge-m3", "opt-350m", "flan-t5-base", "bart-base", "mobilebert-uncased", "gemma3n-e2b", "gemma4-e2b"),
        *("zamba2-1.2b", "deepseek-v2-lite", "deberta-base", "bloom-560m", "led-base-16384"),
    ],
)
def test_one_gpu_updates_every_parameter(name: str) -> None:
    """Positions, segments, embeddings of each layer, projections, poolers and shared blocks as well; no head where the
    class has none. `params` counts in another way."""
    model = preset(name)
    found = step(model, StepLayout(sequence=S, micro_batch=B, micro_batches=1), UNIT).weights
    assert found == params(model)["params/total"].value


def test_a_head_reads_what_it_is_given_and_a_network_without_one_makes_no_logits() -> None:
    """OPT-350m projects 1,024 features down to 512 before its head; bge-m3 ends with a pooler."""

    def head(name: str) -> dict[str, float]:
        plan = StepLayout(sequence=S, micro_batch=B, micro_batches=1)
        return {one.name: float(one.value) for one in step(preset(name), plan, UNIT).time.walk()}

    assert head("opt-350m")["head/logits/forward"] == pytest.approx(product(T, 512, 50272), rel=0.01)
    assert not [one for one in head("bge-m3") if one.startswith(("head/logits", "head/loss"))]

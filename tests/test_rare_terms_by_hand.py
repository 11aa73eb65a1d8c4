"""Terms of a step's memory and time that few models or layouts have, by hand.

The small decoders are those of test_states_by_hand.py: T tokens of h elements, V rows of the embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin import term
from napkin.counting.params import params
from napkin.evidence.fit.generic import decoder
from napkin.footprint.allocator import ROUNDING, Flow, reported
from napkin.footprint.checkpointed import saved_states
from napkin.footprint.engine_kernels import (
    FEW,
    FUSED,
    WIDE_CUDA,
    WIDE_METAL,
    EngineKernels,
    _launches,
    activations,
    widened,
)
from napkin.footprint.gathers import gathered_bytes
from napkin.footprint.local_weights import LocalWeights, stays_fp32
from napkin.footprint.memory import least_states, parts_of, rank_of
from napkin.footprint.moments import Moments
from napkin.footprint.placeholders import buffers
from napkin.footprint.prepared import PreparedStep, prepare, shape_of
from napkin.footprint.rank import Moment
from napkin.footprint.saving import saved
from napkin.footprint.served_weights import StoredWeights
from napkin.footprint.stages import _runs
from napkin.footprint.submodels import TowerPart, waiting
from napkin.footprint.through_passes import Gradients, References
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.losses import LOSSES, Loss
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Add
from napkin.operations.rewrite import FusedLinear
from napkin.operations.roles import COLUMN, REPLICATED, ROW
from napkin.operations.trained import forward_only
from napkin.operations.tuning import Tuning
from napkin.operations.work import Learning
from napkin.record import fields, replace
from napkin.term import TRUE, leaf
from napkin.timing.clock import Clock
from napkin.timing.efficiency import halvings, tile_share
from napkin.timing.ends import entries
from napkin.timing.generation import EnginePasses, EngineRanks, EngineShares
from napkin.timing.goodput import Goodput
from napkin.timing.layer import residual_width
from napkin.timing.layer_clock import LayerClock
from napkin.timing.layer_collectives import tensor_time
from napkin.timing.layer_weights import layer_weights
from napkin.timing.step import step, step_of_passes
from napkin.timing.step_layout import StepLayout
from napkin.training.framework import EVEN, FRONT, SLOTS
from napkin.training.layout import Layout
from napkin.training.order import order_of
from napkin.training.recomputation import Recompute
from napkin.training.setup import Width
from napkin.training.tasks import Passes, Passing
from tests import unit_step as small
from tests.conftest import ROOT, model, model_of, preset
from tests.test_closures_by_hand import LORA, T5
from tests.test_closures_by_hand import PAIRS as PAIRS_OF_LAYER
from tests.test_states_by_hand import (
    DENSE,
    ENDS,
    EXPERTS,
    HEADS,
    KV,
    LAYER,
    OTHERS,
    SPARSE,
    TABLE,
    TENSORS,
    WHOLE,
    D,
    E,
    F,
    H,
    L,
    S,
    V,
    setup_of,
    step_of,
)
from tests.unit_step import DENSE as SMALL
from tests.unit_step import PAIRS, UNIT, B, T, linears, product

LENGTH = small.S
"""Tokens of a sequence of the decoder whose step is timed at unit rates."""


def with_implementation(**changes: Any) -> PreparedStep:
    """A step of the small decoder whose reference class differs."""
    setup = setup_of()
    return prepare(DENSE, replace(setup, implementation=replace(setup.implementation, **changes)))


# --- what the forward function holds ---


@pytest.mark.parametrize(("policy", "held"), [("bf16-pure", 2 * S * H), ("fp32", 0), ("amp-bf16", 0)])
def test_the_embedding_output_is_saved_if_no_layer_saves_it(policy: str, held: int) -> None:
    """8 bytes of each position, and the embeddings: a norm that casts to fp32 keeps its copy in place of its input."""
    step = step_of(DENSE, policy=policy)
    assert References(step, rank_of(step, 0).stage).around == 8 * S + held


def test_a_class_that_holds_no_embeddings() -> None:
    run = with_implementation(embeddings="").run
    assert (run.embedded, run.stream) == (0, 0)
    assert with_implementation(embeddings="loss").run.stream == 2 * S * H


@pytest.mark.parametrize(
    ("attention", "crops", "there"), [("flash", 0, 1), ("eager", 0, 1), ("eager", 1, 1), ("flash", 1, 0)]
)
def test_masks_that_a_class_registers(attention: str, crops: bool, there: int) -> None:
    """One of each layer, of the longest sequence; if it crops (nanoGPT), of the sequence, and of eager attention."""
    setup = replace(setup_of(), attention=attention)
    own = replace(setup.implementation, crops=bool(crops), buffers=(("masks", "fp32"),))
    step = prepare(DENSE, replace(setup, implementation=own))
    length = S if crops else 2048
    assert buffers(step, rank_of(step, 0).stage) == 4 * L * length**2 * there


# --- weights and their gradients ---


@pytest.mark.parametrize(("policy", "width"), [("bf16-mixed", 2), ("fp32", 4)])
def test_gradients_when_the_layers_are_done(policy: str, width: int) -> None:
    """Of the head, the last norm and all layers; the embedding's is still to come."""
    step = step_of(DENSE, policy=policy)
    rank = rank_of(step, 0)
    found = Moments(step, rank, parts_of(step, rank.stage)).end_of_backward()
    assert found.gradients == width * (TABLE + H + L * LAYER)


def test_a_checkpoint_of_what_is_trained() -> None:
    """bf16 weights, an fp32 copy and Adam's two moments, and a counter of 4 bytes for each tensor."""
    assert saved_states(DENSE, setup_of()).value == (2 + 4 + 8) * WHOLE + 4 * TENSORS
    assert saved_states(DENSE, setup_of(optimizer="sgd")).value == (2 + 4) * WHOLE
    assert saved_states(SPARSE, setup_of(optimizer="lion")).value == (2 + 4 + 4) * (OTHERS + EXPERTS)


def test_modules_that_are_trained_in_full_are_gathered_in_their_own_type() -> None:
    """100 elements of a root and 10 of a block in 2 bytes, of which 40 and 4 have 4 bytes; next to them 8 frozen bytes,
    2 of which are scales that stay divided. Two blocks are gathered at a time."""
    step = step_of(DENSE, dp=4, zero=3)
    root, block = (LocalWeights(n, 0, saved=0.4 * n, saved_width=4, frozen=8, scales=2) for n in (100, 10))
    none = LocalWeights(0, 0)
    parts = [(1, root), (L, block), (1, none)]
    of = rank_of(step, 0).stage
    assert gathered_bytes(step, of, parts) == (2 * 100 + 2 * 40 + 6) + 2 * (2 * 10 + 2 * 4 + 6)


@pytest.mark.parametrize(("quantization", "each"), [("", 4), ("nf4", 8)])
def test_frozen_weights_are_gathered_in_16_bits_and_packed_ones_as_they_are_stored(
    quantization: str, each: int
) -> None:
    """Of 10 frozen bytes 2 are scales; FSDP casts the 8 of fp32 weights to 4."""
    plain = step_of(DENSE, "fsdp", dp=4, zero=3)
    tuning = Tuning("lora", 8, 0.0, ("q", "v"), quantization)
    setup = replace(plain.setup, implementation=replace(plain.setup.implementation, tuning=tuning))
    parts = [(count, LocalWeights(0, 0, frozen=10, scales=2)) for count in (1, L, 1)]
    of = rank_of(plain, 0).stage
    assert gathered_bytes(replace(plain, setup=setup), of, parts) == 4 * each  # embedding, head and two blocks


# --- the loss ---


@pytest.mark.parametrize("chunks", [2, 8])
def test_a_loss_that_is_fused_with_the_head_in_equal_parts(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the fp32 gradient of the hidden state; forward it holds the logits of one part in 3 bytes each, the
    head's gradient and a loss of each token."""
    name = f"in {chunks} parts"
    form = Loss(0, 3, parts=lambda tokens, vocabulary, width: tokens // chunks, added=True)
    monkeypatch.setitem(LOSSES, name, form)
    node = step_of(DENSE, loss=name, policy="bf16-pure").run.after.nodes[-1]
    assert [storage.size for _, storage in node.kept] == [4 * S * H]
    assert node.forward_scratch == 3 * S // chunks * V + 2 * V * H + 4 * S


# --- images ---


def test_features_of_no_images_have_no_bytes() -> None:
    vision = preset("qwen3-vl-8b").vision
    assert vision is not None
    *_, features = waiting(vision.projector.stacks[0])
    assert features.traffic() == (0, 0)


# --- the allocator ---


def test_segments_that_grow_leave_no_blocks_of_the_optimizer_step_apart() -> None:
    """Gaps of at most 6 % of what comes and goes, none in the middle; rounding of 0 to 1.5 %. Of fixed segments 16 %,
    and all that the step holds (twice as much here) fits no activation."""
    assert (ROUNDING.low, ROUNDING.high) == (0, 0.015)
    passing = 10**9
    live, flow = leaf("live", passing, "byte", TRUE), Flow(2 * passing, passing, 0)
    found, fixed = reported(live, 1, flow=flow, expandable=True), reported(live, 1, flow=flow)
    low, high = (found.ends["memory/reserved"][at] - found.ends["memory/allocated"][at] for at in (0, 1))
    assert (low, high) == pytest.approx((0, 0.06 * passing), abs=2)
    assert found.reserved.value == found.allocated.value == fixed.allocated.value
    assert fixed.reserved.value - fixed.allocated.value == pytest.approx((2 + 0.16) * passing, abs=2)


# --- time ---


def test_a_layer_without_a_residual_stream_has_no_width() -> None:
    """Else that of the last sum, or of the last layer that puts out the stream."""
    assert residual_width(()) == residual_width((Matmul("q", ("x",), 4, 8),)) == 0
    assert residual_width((Add("a", ("x", "y"), 4), Add("b", ("x", "y"), 6), Matmul("q", ("x",), 4, 8))) == 6


def test_a_pass_without_gradients_is_a_forward_pass_and_nothing_else() -> None:
    """A reference over two sequences for each of the micro-batch: every operation forward, over twice the tokens. What
    no size scales is there once, and the optimizer is the trained model's."""
    of = decoder(SMALL)
    plan = StepLayout(sequence=LENGTH, micro_batch=B, micro_batches=3)
    once = 10**12  # of the order of the step, or no comparison would notice it
    rates = replace(UNIT, fixed=float(once))
    passes = Passes(of, (Passing("reference", forward_only(of, False), 2),))
    found = {one.name: float(one.value) for one in step_of_passes(passes, plan, rates).time.parts}
    alone = {one.name: float(one.value) for one in step(of, plan, rates).time.parts}
    rows = 2 * T
    qk, qkv = (small.HEADS + small.KV) * small.D, (small.HEADS + 2 * small.KV) * small.D
    width, inner = small.H, small.F
    layer = linears(tokens=rows)[0] + 2 * 2 * B * PAIRS * small.HEADS * 2 * small.D
    layer += rows * (2 * 4 * width + 4 * qk + 2 * qkv + 2 * 6 * width + 6 * inner)
    ends = product(rows, width, small.V) + rows * (4 * width + 4 * width + small.V)  # lookup, last norm and loss
    assert found.pop("step/reference") == pytest.approx(3 * (small.L * layer + ends))
    assert found == alone
    both = step_of_passes(Passes(of, (Passing("critic", of, trained=True),)), plan, rates).time
    assert float(both.value) == pytest.approx(2 * sum(alone.values()) - once)


def test_what_a_layout_and_an_engine_do_not_state_is_nothing() -> None:
    """One rank of each kind, one chunk, 16 bits; all else is off."""
    plan = StepLayout(LENGTH, B, 1)
    ones = {"tp", "pp", "vp", "cp", "ep", "dp", "etp", "flash", "idle", "casts", "tower_tokens", "image_tokens"}
    ones |= {"expert_load", "gathers_again", "lanes", "uneven"}
    sizes = {"gradient_bytes": 4, "gathered_bytes": 2, "frozen_bytes": 2, "optimizer_bytes": 30}
    stated = {"sequence": LENGTH, "micro_batch": B, "micro_batches": 1, "works": None, "parts_recomputed": ()}
    for name in fields(StepLayout):
        assert getattr(plan, name) == {**dict.fromkeys(ones, 1), **sizes, **stated}.get(name, 0), name
    passes = EnginePasses(term.constant("count", 1), 1, 1, 1, 1, 1)
    assert (passes.streamed, passes.exchanged, passes.routed, passes.routed_layers) == (0, 0, 0, 0)
    assert EngineShares(1, 1, 1, 1, 1, 1, 1, 1, 1, 1).hop == Goodput(term.constant("g", 1)).spread == 0
    assert EngineRanks() == EngineRanks(1, 1, 1)
    assert EngineKernels() == EngineKernels(2, 0, 0, False, 0)
    assert TowerPart() == TowerPart(0, 0, 0, 0, 0)
    bare = LocalWeights(1, 2)
    assert (bare.frozen, bare.wide, bare.idle, bare.saved, bare.saved_width, bare.states) == (0, 0, 0, 0, 0, ())


# --- several moments, stages and kernels ---


def test_the_largest_moment_of_the_passes_is_before_the_optimizer_step() -> None:
    moments = tuple(Moment(name, 0, 0, 0, size, 0, 0, 0) for name, size in (("a", 3), ("b", 5), ("step", 9)))
    found = replace(rank_of(step_of(DENSE), 0), moments=moments)
    assert (found.in_passes, found.live) == (5, 9)


def test_stages_whose_ends_count_as_layers() -> None:
    """Twelve layers and both ends on four stages: 3 + 4 + 3 + 2 layers. The first is of four slots, the embedding's
    among them: stage i of the first two begins with layer 4·i − 1, of the others with 3·i + 1."""
    setup = setup_of(DENSE, pp=4)
    slots = replace(setup, framework=replace(setup.framework, partition=SLOTS))
    order = order_of(((12, ((1, 0),)),), Recompute("none"), 0)
    assert _runs(DENSE, order, slots) == [(4, 0, 2, -1), (3, 2, 4, 1)]
    even = replace(setup, framework=replace(setup.framework, partition=EVEN))
    assert _runs(DENSE, order_of(((10, ((1, 0),)),), Recompute("none"), 0), even) == [(3, 0, 2, 0), (2, 2, 4, 2)]
    front = replace(setup, framework=replace(setup.framework, partition=FRONT))
    assert _runs(DENSE, order_of(((10, ((1, 0),)),), Recompute("none"), 0), front)[1] == (3, 0, 4, 0)


def test_kernels_that_an_engine_launches() -> None:
    """A product with its two conversions and its weights widened; attention that writes scores: two products and a
    softmax, else one kernel; any other operation one."""
    matmul, core = Matmul("q", ("x",), 4, 8), AttentionCore("c", ("q", "k", "v"), 4, 2, 8, 8)
    for kernels, products, attention in ((FUSED, 1, 1), (WIDE_METAL, 1, 3), (WIDE_CUDA, 3, 7)):
        assert [_launches(kernels, matmul, True, widened) for widened in (0, 1)] == [products, products + 1]
        assert _launches(kernels, core, False, 0) == attention
        assert _launches(kernels, Add("a", ("x", "y"), 4), False, 1) == 1


def test_frozen_weights_are_saved_with_adapters() -> None:
    """Each of L layers with R·(in + out) elements of adapters next to its frozen ones, 2 bytes each."""
    setup = setup_of(DENSE, dp=4, zero=3, save="full")
    of = prepare(DENSE, replace(setup, implementation=replace(setup.implementation, tuning=LORA)))
    rank = rank_of(of, 0)
    what = saved(of, rank, parts_of(of, rank.stage))
    block = LAYER + PAIRS_OF_LAYER
    assert block > sum(ENDS)
    assert (what.unit, what.weights) == (2 * block, 2 * (WHOLE + L * PAIRS_OF_LAYER))


@pytest.mark.parametrize("t", [1, 4])
def test_all_reduces_of_linear_layers_by_how_they_are_divided(t: int) -> None:
    """Forward one for each row-parallel layer, backward one for each column-parallel one whose input has a gradient;
    2(t − 1)/t · 2·T·h bytes each. A layer that every rank has whole needs none."""
    clock = Clock(UNIT, StepLayout(sequence=LENGTH, micro_batch=B, micro_batches=1, tp=t))
    frozen = Learning(inputs=0)
    shards = (ROW, ROW, ROW, COLUMN, REPLICATED, REPLICATED)
    linears = [FusedLinear(f"{at}", ("x",), shard, 4, 4) for at, shard in enumerate(shards)]
    linears.append(FusedLinear("first", ("x",), COLUMN, 4, 4, frozen))
    ahead, back = tensor_time(clock, "layer", small.H, linears)
    once = 2 * (t - 1) / t * 2 * T * small.H
    assert (ahead["tensor"].value, back["tensor"].value) == pytest.approx((3 * once, once))


def test_how_often_64_is_halved_to_divide_a_size() -> None:
    """Rows of 16 bits that begin every 128, 64, …, 2 bytes."""
    assert [halvings(64 >> n) for n in range(7)] == list(range(7))
    assert [halvings(size) for size in (640, 96, 80, 72, 100, 54, 63)] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("m", "n", "batch", "share"),
    [
        (128, 256, 1, 1.0),  # a full tile
        (256, 128, 1, 1.0),
        (128, 128, 1, 0.93),  # a full small one, where half of a large one would be padding
        (64, 128, 1, 0.75),
        (32, 128, 1, 0.75 / 2),
        (64, 64, 1, 0.75 / 2),
        (129, 256, 2, 129 / 256),  # 4 large tiles, half of two of them padding
        (128, 256, 7, (7 / 8) ** 0.5),  # 7 large tiles in two waves of 4 units
        (128, 256, 5, 0.93 * (10 / 12) ** 0.5),  # 5 of 8 places with large tiles, 10 of 12 with small ones
        (256, 256, 3, 0.93),  # 12 small tiles in three waves
    ],
)
def test_tiles_of_a_product(m: int, n: int, batch: int, share: float) -> None:
    """m·n over what whole tiles compute, times the root of the units that the last wave fills, on 4 units; the best of
    the sizes of tiles counts (NVIDIA, Matrix Multiplication Background User's Guide)."""
    assert tile_share(m, n, batch, 4, 0.5 if batch > 1 else 0) == pytest.approx(share)


@pytest.mark.parametrize(("policy", "width"), [("fp32", 4), ("bf16-pure", 2)])
@pytest.mark.parametrize("again", [False, True])
def test_zeros_that_a_decoder_reads_in_place_of_a_bias(policy: str, width: int, again: bool) -> None:
    """T5 adds zeros to the scores with the encoder, heads · s · s of them: where layers are checkpointed they are a
    leaf, which lives on with its gradient, and checkpoints have them as an argument, so nothing else holds them. Of
    several micro-batches the last one's are there in the next."""
    how = Recompute("full" if again else "none")
    step = step_of(T5, policy=policy, recompute=how)
    rank = rank_of(step, 0)
    found = Moments(step, rank, parts_of(step, rank.stage))
    zeros = HEADS * S * S * width
    assert step.run.zeros is not None
    assert step.run.zeros.size == zeros
    assert (found.leaves, found.through_backward) == (2 * zeros * again, 0)
    assert (found.outlives, found.last) == (2 * zeros * again, 0)
    several = step_of(T5, policy=policy, recompute=how, micro_batches=2)
    assert Moments(several, rank, parts_of(several, rank.stage)).last == width + 2 * zeros * again  # and the loss


def test_a_bias_of_a_quantized_layer_is_gathered_as_other_frozen_weights_are() -> None:
    """Matrices of nf4 in 0.5625 bytes, the bias in 4; forward, and backward if the input has a gradient. What is
    trained is counted instead."""
    layout = StepLayout(LENGTH, B, 1, frozen_bytes=4)
    bare = Matmul("q", ("x",), 64, 128, bias=True)
    for inputs in (0, 1):
        frozen = replace(bare, learning=Learning(0, inputs, False, "nf4"))
        trained, fixed = layer_weights((frozen,), layout, "layer")
        assert fixed.dense.value == (1 + inputs) * (64 * 128 * 0.5625 + 128 * 4)
        assert (trained.dense.value, trained.experts.value, fixed.experts.value) == (0, 0, 0)
    trained, fixed = layer_weights((bare,), layout, "layer")
    assert (trained.dense.value, fixed.dense.value) == (64 * 128 + 128, 0)


def test_the_ends_of_an_interval_are_whole_bytes_outwards() -> None:
    """Live bytes 1001 · 0.9 = 900.9, at least 900; 1001 · 1.2 · 1.015 = 1219.2, at most 1220. One end alone is the
    other one too."""
    live, width = leaf("live", 1001, "byte", TRUE), Width((-0.1, 0.2))
    low, high = 8_519_680 + 900, 2 * 8_519_680 + 32 * 2**20 + 1220
    assert reported(live, 1, width).ends["memory/allocated"] == (low, high)
    assert reported(live, 1, width, bounds=("low",)).ends["memory/allocated"] == (low, low + 1)
    assert reported(live, 1, width, bounds=("high",)).ends["memory/allocated"] == (high - 1, high)


@pytest.mark.parametrize(
    ("form", "rest"),
    [("compiled", 4 - 2 - 2), ("vocabulary", 10 - 4 - 2), ("chunked", 2.25 - 2 - 1.75), ("dtensor", 16 - 4 - 2)],
)
def test_what_a_loss_holds_at_its_peak_beyond_what_it_keeps_and_passes_on(form: str, rest: float) -> None:
    """So many bytes for each of T·V logits; below 0 some of what is kept goes as the gradient comes."""
    node = step_of(DENSE, loss=form, policy="bf16-pure").run.after.nodes[-1]
    assert node.name == "loss"
    assert node.scratch == rest * S * V
    # of chunks, one part's gradient of the head's weight stands next to the sum
    head = next(one for one in reversed(step_of(DENSE, loss=form, policy="bf16-pure").run.after.nodes[:-1]))
    assert (head.weight, head.scratch) == (2 * V * H, 2 * V * H if form == "chunked" else 0)


def test_one_checkpointed_layer_is_enough_for_a_leaf() -> None:
    """Of T5's two layers one is checkpointed: its zeros live on with their gradient; a kernel saves them as its
    mask, so nothing else holds them."""
    one_each = model(
        model_type="t5", d_model=H, num_heads=HEADS, d_kv=16, d_ff=96, num_layers=1, num_decoder_layers=1, vocab_size=V
    )
    step = step_of(one_each, policy="fp32", recompute=Recompute("every", 2))
    rank = rank_of(step, 0)
    assert sum(rank.stage.checkpointed) == 1
    found = Moments(step, rank, parts_of(step, rank.stage))
    assert step.run.zeros is not None
    assert found.leaves == 2 * step.run.zeros.size
    assert found.through_backward == found.references.closure


def test_images_of_a_micro_batch() -> None:
    """Two in each of three sequences."""
    shape = shape_of(preset("llava-1.5-7b"), Layout(96, micro=3, images=2))
    assert (shape.sequences, shape.images) == (3, 6)
    assert shape_of(preset("llava-1.5-7b"), Layout(96, micro=3)).images == 0


def test_what_follows_an_encoder_comes_before_its_decoder() -> None:
    """The encoder's last norm over its own tokens, 4 bytes an element forward and 6 backward; the head is not there."""
    plan = StepLayout(sequence=LENGTH, micro_batch=B, micro_batches=1, target=2 * LENGTH)
    clock, last = Clock(UNIT, plan), Clock(UNIT, plan.decoding())
    looked_up, between, decoder_s = entries(clock, last, T5)
    assert between.groups["elementwise"].value == B * LENGTH * (4 + 6) * H
    assert between.groups["matmul"].value == 0
    assert looked_up.groups["elementwise"].value == B * LENGTH * (4 + 6) * H
    assert decoder_s.groups["elementwise"].value == 2 * B * LENGTH * (4 + 6) * H
    ahead = [one.ahead.name for one in (looked_up, between, decoder_s)]
    assert ahead == ["embedding/ahead", "between_1/ahead", "embedding_1/ahead"]


def test_bytes_that_an_engine_s_kernels_move() -> None:
    """llama.cpp on CUDA, 5 tokens: elementwise work in 32 bits, 6 bytes for each element of a product's operand and
    result, of two experts for each token, and 24 bytes a score."""
    qkv, wide = (HEADS + 2 * KV) * D, HEADS * D
    operands = (H + wide) + 2 * (H + KV * D) + (wide + H) + (H + E) + 2 * 3 * (H + F)
    elementwise = sum(op.traffic()[0] for op in SPARSE.stacks[-1].layers[0].operations)
    assert elementwise == 2 * 4 * H + 4 * (HEADS + KV) * D + 2 * qkv + 12 * E + 2 * 6 * H
    moved = L * (5 * (2 * elementwise + 6 * operands) + 15 * HEADS * 24)
    assert activations(WIDE_CUDA, SPARSE, 5, 15) == moved
    assert activations(FUSED, SPARSE, 5, 15) == L * 5 * elementwise
    bits4, bits16 = StoredWeights("four", 0.5, 2), StoredWeights("wide", 2, 2)
    widens = replace(WIDE_CUDA, widens=True)
    assert widened(widens, bits4, 100, FEW + 1) == 100 * (1 + 2 / 0.5)  # read once more, and written in 16 bits
    assert widened(widens, bits4, 100, FEW) == widened(widens, bits16, 100, 1000) == 0
    assert widened(WIDE_CUDA, bits4, 100, 1000) == 0


@pytest.mark.parametrize("tied", [True, False])
def test_the_gradient_of_a_head_of_which_a_part_is_the_embedding(tied: bool) -> None:
    """MobileBERT's head is joined from the embedding of 128 elements and a matrix of the other 384: the embedding's
    part is copied from the whole gradient at once, but waits for the lookup's if both are one weight."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    shape = {**dict(rows)["mobilebert"], "model_type": "mobilebert", "num_hidden_layers": 1}
    step = step_of(model_of({**shape, "tie_word_embeddings": tied}), policy="fp32")
    rank = rank_of(step, 0)
    found = Gradients(step, rank, parts_of(step, rank.stage))
    part = 4 * 128 * 30522
    assert step.run.undivided == part
    assert found.first == step.weights.head.gradients(4) + (0 if tied else part)
    assert Moments(step, rank, parts_of(step, rank.stage)).outlives == part


def test_weights_that_stay_in_fp32_by_their_path() -> None:
    """A path's end, of a norm without a module "norm"; one that begins with a slash is a whole path. Only where the
    model is loaded, and trained, in 16 bits: fp16's exceptions in fp16 alone."""
    gate, norm = Matmul("g", ("x",), 4, 8, module="mlp.gate"), Norm("n", ("x",), 4)
    (weight,) = gate.weights()

    def stays(op: Operation, *paths: str, policy: str = "bf16-pure", excepts: tuple[str, ...] = ()) -> bool:
        setup = setup_of(policy=policy)
        own = replace(setup.implementation, fp32_weights=paths, fp16_excepts=excepts)
        return stays_fp32(op, weight, replace(setup, implementation=own))

    assert stays(gate, "gate/weight")
    assert stays(gate, "mlp.gate/weight")
    assert stays(norm, "norm/weight")
    assert stays(replace(gate, module="/gate"), "/gate/weight")
    for other in ("/weight", "up/weight", "gate/bias"):
        assert not stays(gate, other)
    assert not stays(norm, "gate/weight")
    for policy in ("fp32", "amp-bf16", "bf16-mixed"):
        assert not stays(gate, "gate/weight", policy=policy)
    assert not stays(gate, excepts=("gate/weight",))


@pytest.mark.parametrize("model_type", ["albert", "zamba2", "llama"])
def test_the_states_of_a_single_stage_are_the_least_there_can_be(model_type: str) -> None:
    """Also of weights that several layers share, which count once."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    of = model_of({**dict(rows)[model_type], "model_type": model_type})
    setup = setup_of(of, policy="fp32")
    held = rank_of(prepare(of, setup), 0)
    assert held.parameters == 4 * params(of)["params/total"].value
    assert least_states(of, setup) == held.parameters + held.gradients + held.optimizer


def test_no_linear_layers_cast_nothing_to_8_bits() -> None:
    own = LayerClock(Clock(UNIT, StepLayout(LENGTH, B, 1, low=1)), "layer")
    assert own.fused(()) is None
    assert [one.value for one in (*own.forward["casts"], *own.backward["casts"])] == [0, 0]

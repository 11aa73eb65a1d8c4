"""FLOPs and the time of a step with frozen weights and adapters, by hand, at unit rates (unit_step.py).

autograd computes the gradient of a weight if it is trained, and of an input if anything that it depends on is;
adapters are thin matmuls of their own; quantized weights are expanded to 16 bits before each product."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from napkin.counting import flops
from napkin.evidence.fit.generic import decoder
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.formats import QUANTIZED
from napkin.operations.adapters.as_operations import Adapter
from napkin.operations.experts import Experts
from napkin.operations.frozen import Frozen
from napkin.operations.implementations import HF
from napkin.operations.roles import ADAPTER
from napkin.operations.trained import as_trained
from napkin.operations.tuning import Tuning
from napkin.operations.work import Learning
from napkin.record import replace
from napkin.term import constant
from napkin.timing.clock import Clock, size
from napkin.timing.layer_clock import LayerClock
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout
from napkin.training.frameworks import FRAMEWORKS, first_version
from napkin.training.setup import keeps_adapters
from napkin.training.trainers import TRAINERS
from tests.conftest import run_line
from tests.unit_step import (
    ATTENTION,
    DENSE,
    EF,
    HEADS,
    KV,
    LAYER,
    MOE,
    NORMS,
    PAIRS,
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
    product,
    three,
)

R = 256
"""A rank that whole tiles hold."""
QKV = (HEADS + 2 * KV) * D
SHAPES = ((H, QKV), (HEADS * D, H), (H, F), (H, F), (F, H))
"""(in, out) of a layer's linear layers; gate and up are one product, with an adapter each."""
LORA = Tuning("lora", R, 0.0)
PAIRS_OF_LAYER = sum(R * (k + n) for k, n in SHAPES)
"""Weights of the adapters of a layer."""


def parts(frozen: Frozen, shape: PrintedDecoder = DENSE, **layout: Any) -> dict[str, float]:
    """Every term of a step by its name, in seconds."""
    plan = StepLayout(**{"sequence": S, "micro_batch": B, "micro_batches": 1, **layout})
    found = step(as_trained(decoder(shape), frozen), plan, UNIT)
    return {node.name: float(node.value) for node in found.time.walk()}


def lora(tuning: Tuning = LORA) -> Frozen:
    return Frozen(replace(HF, tuning=tuning))


def inputs_alone(shapes: Any = ((H, QKV), (HEADS * D, H), (H, 2 * F), (F, H))) -> float:
    """The inputs' gradients of frozen products."""
    return sum(product(T, n, k) for k, n in shapes)


def adapters(t: int = 1) -> tuple[float, float]:
    """Forward and backward of a layer's adapters, of which t ranks divide B of columns and A of rows."""
    divided = [(k, n // t) if n != H else (k // t, n) for k, n in SHAPES]
    passes = [one for k, n in divided for one in (three(T, k, R), three(T, R, n))]
    return sum(f for f, _ in passes), sum(b for _, b in passes)


def test_frozen_products_have_no_gradient_of_their_weight() -> None:
    """The first layer reads an embedding that is not trained: its norm, its first product and the adapter's A next to
    that have no gradient of their input. The head is frozen too."""
    forward, _ = linears()
    thin, back = adapters()
    head = product(T, H, V) + product(T, V, H)
    none = product(T, QKV, H) + product(T, R, H)
    found = parts(lora())
    assert found["step/compute/matmul"] == pytest.approx(L * (forward + inputs_alone() + thin + back) - none + head)
    again = parts(lora(), layers_recomputed=1)
    assert again["step/compute/matmul"] == pytest.approx(found["step/compute/matmul"] + L * (forward + thin))
    # attention has no weights: its backward pass stays whole
    assert found["step/compute/attention"] == pytest.approx(L * 3.5 * 2 * B * PAIRS * HEADS * 2 * D)


def test_adapters_of_one_layer_type_alone() -> None:
    """Next to attention's result: below the first adapter no gradient is computed."""
    found = parts(lora(replace(LORA, targets=("o",))))
    forward, _ = linears()
    k, n = HEADS * D, H
    thin = sum(three(T, k, R)) + sum(three(T, R, n))
    later = L * (forward + inputs_alone() + thin)
    first = product(T, QKV, H) + product(T, n, k) + product(T, R, k)  # qkv, o, and A: their inputs
    head = product(T, H, V) + product(T, V, H)
    assert found["step/compute/matmul"] == pytest.approx(later - first + head)
    assert found["step/compute/attention"] == pytest.approx((L * 3.5 - 2.5) * 2 * B * PAIRS * HEADS * 2 * D)


def test_bytes_that_adapters_move() -> None:
    """Forward: each result scaled (4 bytes an element) and added (6). Backward: scaled again, and the input's two
    gradients added (6); dropout reads, writes and masks its input both ways (5)."""
    plain = replace(LORA, targets=("down",))
    base = parts(lora(replace(LORA, method="none")))["step/memory_bound/elementwise"]
    # with nothing trained no backward pass runs; add that of every layer but what the first adapter does not need
    qk = (HEADS + KV) * D
    backward = 2 * 6 * H + 4 * qk + 4 * QKV + 2 * 6 * H + 10 * F
    first = 2 * 6 * H + 4 * qk + 4 * QKV + 6 * H + 10 * F  # all that is before the first down
    moved = L * T * (10 * H + 4 * H + 6 * F) - T * 6 * F
    final = T * 6 * H  # the last norm's backward pass
    found = parts(lora(plain))["step/memory_bound/elementwise"]
    assert found == pytest.approx(base + L * T * backward - T * first + moved + final)
    dropped = parts(lora(replace(plain, dropout=0.1)))["step/memory_bound/elementwise"]
    assert dropped - found == pytest.approx(L * T * 10 * F - T * 5 * F)


def test_4_bit_layers_return_what_they_make_in_the_format_of_what_they_read() -> None:
    """Under autocast over fp32 norms: the joined q, k and v cast the stream to 16 bits, o attention's result, gate and
    up the stream, and down the product, and each casts its result back: 6 bytes an element, and again for the
    gradients, of which the first layer's q, k and v have none. What lies between them is moved in fp32."""
    frozen = lora(replace(LORA, quantized="nf4", library="transformers"))
    narrow, wide = (parts(frozen, wide_stream=on) for on in (0, 1))
    first = H + QKV
    width = first + (HEADS * D + H) + (2 * H + 2 * F) + (F + H)
    casts = "step/memory_bound/casts"
    assert wide[casts] - narrow[casts] == pytest.approx(6 * T * (2 * L * width - first))
    between = "layer/elementwise/forward"
    assert wide[between] == pytest.approx(2 * narrow[between])


def test_quantized_weights_are_expanded_before_each_product() -> None:
    """Read as they are stored and written in 16 bits: forward, for the inputs' gradient, and where recomputed; NF4's
    lookups, 90 FLOP a weight, take the longer of their time and that of the bytes, joined smoothly."""
    each = joined(QUANTIZED["nf4"] + 2, 90)
    found = parts(lora(replace(LORA, quantized="nf4", library="transformers")))
    none = H * QKV  # the first layer's inputs have no gradient
    assert found["step/memory_bound/casts"] == pytest.approx(each * (2 * L * LAYER - none))
    again = parts(lora(replace(LORA, quantized="nf4", library="transformers")), layers_recomputed=1)
    assert again["step/memory_bound/casts"] == pytest.approx(each * (3 * L * LAYER - none))
    # once a micro-batch, for any number of tokens
    several = parts(lora(replace(LORA, quantized="nf4", library="transformers")), micro_batches=4)
    assert several["step/memory_bound/casts"] == pytest.approx(4 * found["step/memory_bound/casts"])
    # bitsandbytes as of 2023 quantizes the head too
    whole = parts(lora(replace(LORA, quantized="nf4", library="bitsandbytes")))
    assert whole["step/memory_bound/casts"] == pytest.approx(each * (2 * (L * LAYER + V * H) - none))


def test_autocast_casts_frozen_weights_in_every_pass() -> None:
    """4 bytes read and 2 written, forward and where recomputed, the head's too; what autograd saves is the cast. Those
    of trained weights are in its cache, and counted with their gradients' sums."""
    casts = "step/memory_bound/casts"
    assert parts(lora(), frozen_casts=6)[casts] == pytest.approx(6 * (L * LAYER + V * H))
    assert parts(lora(), frozen_casts=6, layers_recomputed=1)[casts] == pytest.approx(6 * (2 * L * LAYER + V * H))
    assert parts(Frozen(HF), frozen_casts=6)[casts] == 0
    # parts of the loss cast the head's weight by themselves, here 6 bytes each way
    found = parts(lora(), frozen_casts=6, loss_parts=4, head_copied=6, head_copied_back=6)
    assert found[casts] == pytest.approx(6 * L * LAYER + 4 * (6 + 6) * V * H)


@pytest.mark.parametrize(
    ("policy", "framework", "moved"),
    [("amp-bf16", "", 4 + 2), ("bf16-pure", "", 0), ("amp-bf16", "--framework fsdp", 0)],
)
def test_which_frozen_weights_are_cast(policy: str, framework: str, moved: int) -> None:
    """Sharded ones are gathered in 16 bits."""
    line = f"{EIGHT_B} --lora-rank 8 --seq 512 --precision {policy} --zero {3 if framework else 0} {framework}"
    found = run_line(f"step {line} --explain --json").data["terms"]
    assert found.get("bytes_cast", {"value": 0})["value"] == moved


def test_parts_of_the_loss_return_no_gradient_to_a_frozen_head() -> None:
    """256 tokens in each of 16 parts: the 16-bit weight is cast to fp32 (2 + 4 bytes) and back (4 + 2), both ways."""
    line = (
        f"{EIGHT_B} --trainer trl --task sft --seq 4096 --lora-rank 8 --precision frozen=bf16,param=fp32,compute=bf16"
    )
    assert explained(line, "head/copies/copied_back/bytes") == 16 * 12 * TABLE_8B
    assert explained(line, "head/copies/copied/bytes") == 16 * 12 * TABLE_8B


@pytest.mark.parametrize(
    ("changed", "branched", "seconds"),
    [
        ({"peak_full": 19.5e12, "bandwidth": 2.039e12}, 0, 1.241e-3),  # what a report on Learning-CUDA measured
        ({"peak_full": 19.5e12, "bandwidth": 2.039e12}, 1, 1.68 * 1.241e-3),  # pull request 1747: 1.36 to 2.07 times
        ({"peak_full": 30.3e12, "bandwidth": 0.3e12}, 0, 16_384**2 * 2.5625 / 0.3e12),  # an L4 waits for its memory
        ({"peak_full": 0, "bandwidth": 0.3e12}, 0, 16_384**2 * 2.5625 / 0.3e12),  # no fp32 rate known: the bytes
    ],
)
def test_nf4_is_expanded_as_fast_as_vector_units_and_memory_allow(
    changed: dict[str, float], branched: int, seconds: float
) -> None:
    """16,384 × 16,384 weights of NF4: on an A100 90 FLOP a weight, 151 where nested conditions find the value; the
    bytes of a card with slow memory take longer."""
    layout = StepLayout(sequence=S, micro_batch=B, micro_batches=1, branched=branched)
    own = LayerClock(Clock(replace(UNIT, **changed), layout), "moe")
    own.expand("weight", size("elements", 16_384**2), Learning(0, 1, False, "nf4"))
    for way in (own.forward, own.backward):
        (found,) = (float(one.value) for one in way["casts"])
        assert found == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize(
    ("stored", "low", "each"),
    [("nf4", 0, (0.5625 + 2, 90)), ("nf4", 1, (0.5625 + 2, 90)), ("int8", 0, (1 + 2, 0))],
)
def test_what_one_stored_weight_moves(stored: str, low: int, each: tuple[float, float]) -> None:
    """Read as it is stored, written in 16 bits, forward and for the inputs' gradient: of experts those on this rank.
    NF4 is looked up as well, 90 FLOP a weight."""
    frozen = Learning(0, 1, False, stored)
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1, ep=2, low=low)), "moe")
    own.expand("weight", size("elements", 100), frozen)
    own.experts(replace(Experts("experts", ("x", "router"), H, EF, E, K), learning=frozen))
    for way in (own.forward, own.backward):
        moved = [float(one.value) for one in way["casts"] if "expanded" in one.name]
        assert moved == pytest.approx([100 * joined(*each), E / 2 * 3 * H * EF * joined(*each)])


@pytest.mark.parametrize(("gated", "matrices"), [(True, 3), (False, 2)])
def test_experts_of_4_bits_return_what_they_make_in_the_format_of_what_they_read(gated: bool, matrices: int) -> None:
    """6 bytes for each element that a token's K experts read and make, H and EF in each of two matrices or three, and
    again for the gradients."""
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1, wide_stream=1)), "moe")
    own.experts(Experts("experts", ("x", "router"), H, EF, E, K, gated=gated, learning=Learning(0, 1, False, "nf4")))
    for way in (own.forward, own.backward):
        (moved,) = (float(one.value) for one in way["casts"] if "returned" in one.name)
        assert moved == 6 * T * K * matrices * (H + EF)


@pytest.mark.parametrize(("stored", "wide", "casts"), [("nf4", 1, 1), ("nf4", 0, 0), ("", 1, 0), ("", 0, 0)])
def test_only_quantized_layers_under_a_wide_stream_cast_what_they_read(stored: str, wide: int, casts: int) -> None:
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1, wide_stream=wide)), "dense")
    own.returned("linear", Learning(0, 1, False, stored), constant("rows", T), constant("width", H))
    assert [float(one.value) for one in own.forward.get("casts", [])] == [6 * T * H] * casts


@pytest.mark.parametrize(("copies", "ep", "local"), [(1, 2, 1), (2, 1, 2), (2, 2, 1), (8, 2, 4)])
def test_merged_adapters_of_experts_are_divided_as_the_experts(copies: int, ep: int, local: int) -> None:
    """B·A of each expert on this rank, and its sum with the weight, 6 bytes an element; one matrix that is not of
    experts is on every rank."""
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1, ep=ep)), "moe")
    of: Any = SimpleNamespace(name="merged", copies=copies, d_in=H, rank=R, d_out=EF)
    own.merged(of)
    (forward,) = own.forward["matmul"]
    assert float(forward.value) == pytest.approx(local * product(EF, R, H))
    assert float(own.forward["elementwise"][0].value) == 6 * local * EF * H


def test_weights_of_gptq_are_unpacked_by_elementary_operations_whose_result_autograd_keeps() -> None:
    """4 bits and a scale read; 4 bytes written by the shift, read and cast to 1, read and masked to 1, less the zero
    point 1 read and 1 written, times the scale 1 read and 2 written: 16. The product keeps it for its gradient."""
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1)), "dense")
    own.expand("weight", size("elements", 100), Learning(0, 1, False, "int4"))
    written, cast, masked, less, scaled = 4, 4 + 1, 1 + 1, 1 + 1, 1 + 2
    each = QUANTIZED["int4"] + written + cast + masked + less + scaled
    assert [float(one.value) for one in own.forward["casts"]] == pytest.approx([100 * each])
    assert own.backward["casts"] == []


def test_products_of_eight_bits_take_weights_of_eight_bits_as_they_are() -> None:
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1, low=1)), "dense")
    own.expand("weight", size("elements", 100), Learning(0, 1, False, "int8"))
    assert [one.value for one in (*own.forward["casts"], *own.backward["casts"])] == [0, 0]


def test_adapters_alone_are_reduced_added_up_and_updated() -> None:
    trained = L * PAIRS_OF_LAYER
    assert parts(lora(), optimizer_bytes=30)["step/optimizer"] == pytest.approx(30 * trained)
    reduced = parts(lora(), dp=4, zero=1, gradient_bytes=4)["step/communication/data"]
    assert reduced == pytest.approx(3 / 4 * (4 + 2) * trained)
    assert parts(lora(), micro_batches=3)["step/memory_bound/accumulation"] == pytest.approx(3 * trained)


@pytest.mark.parametrize(("quantized", "layer"), [("", 2.0), ("nf4", QUANTIZED["nf4"])])
def test_zero_3_gathers_frozen_weights_as_they_are_stored(quantized: str, layer: float) -> None:
    """Twice a micro-batch, the embedding once, and no gradients of them are scattered; norms and tables stay 16-bit."""
    tuning = replace(LORA, quantized=quantized, library="transformers")
    found = parts(lora(tuning), dp=4, zero=3, shards=4, gradient_bytes=4, micro_batches=2)
    frozen = 2 * L * (LAYER * layer + NORMS * 2) + 2 * H * 2 + (1 + 2) * V * H * 2
    gathers = 3 / 4 * 2 * (frozen + (2 + 2 + 4) * L * PAIRS_OF_LAYER)
    work = found["step/work"]
    assert found["step/communication/data"] == pytest.approx(joined(work, gathers) - work, rel=1e-6)


def test_zero_3_gathers_frozen_experts_next_to_what_is_dense() -> None:
    """Of a layer attention, norms and router, and its experts; head and last norm twice, the embedding once: all of 2
    bytes."""
    layer = ATTENTION + NORMS + H * E + 3 * E * H * EF
    found = parts(lora(), MOE, dp=4, zero=3, shards=4)
    assert found["sharded/frozen"] == pytest.approx(3 / 4 * 2 * (2 * (L * layer + H) + (2 + 1) * V * H))


def explained(line: str, name: str) -> float:
    """The value of one term of a step."""
    return float(run_line(f"step {line} --explain --json").data["terms"][name]["value"])


def gathered(line: str) -> float:
    """The bytes of frozen weights that one GPU gathers in a micro-batch."""
    return explained(line, "sharded/frozen")


EIGHT_B = "llama3-8b --hardware h100 --gpus 8 --zero 3"
TABLE_8B, LAYER_8B = 128256 * 4096, 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
"""Llama 3 8B's embedding, as large as its head, and one of its 32 layers with its norms."""


def test_frozen_fp32_weights_are_gathered_in_fp32() -> None:
    """7/8 of 4 bytes for each weight of layers and head, forward and backward, and of the embedding, forward."""
    by_hand = 7 / 8 * 4 * (2 * (32 * LAYER_8B + TABLE_8B) + TABLE_8B)
    assert by_hand == pytest.approx(54.4e9, rel=1e-3)
    assert gathered(f"{EIGHT_B} --precision fp32 --lora-rank 8") == pytest.approx(by_hand)
    # autocast's 16 bits, to which shards are cast
    assert gathered(f"{EIGHT_B} --precision amp-bf16 --lora-rank 8") == pytest.approx(by_hand / 2)


@pytest.mark.parametrize("kind", ["", "--lora-rank 8"])
def test_deepspeed_gathers_the_head_for_each_part_of_a_recomputed_loss(kind: str) -> None:
    """8,192 tokens in parts of 256: 32 gathers in forward and as many in backward, of which each pass counts one,
    of 2 bytes for each weight. A head that is the embedding too stays gathered (trl, maybe_gather_lm_head_ctx)."""
    line = f"{EIGHT_B} --trainer trl --task sft --seq 4096 --micro-batch 2 --precision bf16-pure {kind}"
    assert explained(f"{line} --framework deepspeed", "sharded/head/bytes") == 7 / 8 * 62 * 2 * TABLE_8B
    assert "sharded/head" not in run_line(f"step {line} --framework fsdp --explain --json").data["terms"]
    tied = line.replace("llama3-8b", "llama3.2-1b")
    assert "sharded/head" not in run_line(f"step {tied} --framework deepspeed --explain --json").data["terms"]


def test_frozen_layers_without_a_backward_pass_are_gathered_once() -> None:
    by_hand = 7 / 8 * 2 * (31 * LAYER_8B + TABLE_8B)
    assert by_hand == pytest.approx(12.75e9, rel=1e-3)
    assert gathered(f"{EIGHT_B} --freeze-layers 31") == pytest.approx(by_hand)


@pytest.mark.parametrize(("policy", "sent", "each"), [("fp32", 4, 4), ("amp-bf16", 4, 4), ("bf16-mixed", 2, 2)])
def test_trained_parameters_are_gathered_after_the_step_as_they_are_stored(policy: str, sent: int, each: int) -> None:
    """ZeRO-1: gradients scattered, 16-bit ones as Megatron-core does it (grad_reduce_in_fp32=False), and 7/8 of all
    parameters gathered."""
    line, part = f"{EIGHT_B.replace('zero 3', 'zero 1')} --precision {policy}", 7 / 8 * (32 * LAYER_8B + 2 * TABLE_8B)
    assert explained(line, "data/bytes") == pytest.approx(sent * part, rel=1e-5)
    assert explained(line, "data/gathered_bytes") == pytest.approx(each * part, rel=1e-5)


@pytest.mark.parametrize("tp", [1, 4])
def test_tensor_parallel_ranks_divide_the_tokens_of_adapters_next_to_experts(tp: int) -> None:
    """Each of T·K rows passes one pair: A and B, and both gradients of each; ranks have as many rows each."""
    pair = Adapter("up/lora", ("x",), H, R, R, EF, copies=E, used=K)
    own = LayerClock(Clock(UNIT, StepLayout(sequence=S, micro_batch=B, micro_batches=1, tp=tp)), "moe")
    pair.time(own)
    forward = sum(float(one.value) for one in own.forward["matmul"])
    assert forward == pytest.approx(three(T * K // tp, H, R)[0] + three(T * K // tp, R, EF)[0])
    own.elementwise((pair,))
    (moved,) = own.forward["elementwise"]
    assert float(moved.value) == pytest.approx(10 * EF * T * K / tp)


def test_bytes_of_adapters_by_their_format() -> None:
    """Of H elements read and F made. In fp32 under autocast: x cast up and down (6 each), dropped in fp32 (4 + 4 + 1),
    and so its gradient, which is added (6). Without autocast A reads 4 bytes and B writes 4 (2 more each), then scaled
    (8), added to 16 bits (2 + 4 + 4) and cast back (6); the gradient is cast (6), for the frozen layer back (6, unless
    x needs none), scaled (8), read by two matmuls, and x's is written (2 more each, as x is read), cast and added. One
    function adds in place: 2."""
    kept = Adapter("a", ("x",), H, R, R, F)
    assert kept.traffic() == (10 * F, 4 * F + 6 * H)
    narrowed = replace(kept, wide=True, narrowed=True)
    assert narrowed.traffic() == (10 * F + 12 * H, 4 * F + 18 * H)
    dropped = replace(narrowed, drops=True)
    assert dropped.traffic() == (10 * F + 21 * H, 4 * F + 27 * H)
    full = replace(kept, wide=True)
    assert full.traffic() == (26 * F + 8 * H, 24 * F + 16 * H)
    assert replace(full, learning=Learning(1, 0)).traffic() == (26 * F + 8 * H, 18 * F)
    assert replace(narrowed, joined=True).traffic() == (2 * F, 2 * H)


@pytest.mark.parametrize(
    ("trainer", "version", "kept", "cast"),
    [("hf-trainer", 2, "bf16", False), ("hf-trainer", 1, "fp32", True), ("axolotl", 2, "fp32", True)],
)
def test_fully_shard_of_a_block_casts_its_adapters(trainer: str, version: int, kept: str, cast: bool) -> None:
    """To 16 bits, as it gathers them; a matrix that is a unit of its own is read before it is gathered, in fp32."""
    fsdp = FRAMEWORKS["fsdp"] if version == 2 else first_version(FRAMEWORKS["fsdp"])
    library = TRAINERS[trainer]
    framework = library.on(fsdp)
    policy = replace(library, autocast=True).policy_of_adapters(framework, "")
    found = keeps_adapters(replace(HF, tuning=Tuning("lora")), policy, framework).tuning
    assert found is not None
    assert (found.kept_in, found.autocast) == (kept, cast)


def test_what_adapters_move_is_counted_kernel_by_kernel() -> None:
    """The factor on the elementwise work of a layer does not hold for them."""
    pair = Adapter("up/lora", ("x",), H, R, R, F, role=ADAPTER)
    own = LayerClock(Clock(replace(UNIT, elementwise=3.0), StepLayout(sequence=S, micro_batch=B, micro_batches=1)), "x")
    own.elementwise((pair,))
    assert float(own.forward["elementwise"][0].value) == pytest.approx(10 * F * T)


def test_adapters_launch_kernels_of_their_own() -> None:
    """A dense layer is 13 launches forward, 13 for inputs' gradients and 7 for weights'. Without weights' gradients 26;
    an adapter next to each of its four products adds A, B with the scale, and the sum forward, and backward two
    weights' gradients and A's input, as four of peft's took 0.41 ms where a layer takes 0.62 for 36; nf4 is expanded
    for each of the four both ways."""
    seconds = 1e15

    def host(tuning: Tuning) -> float:
        plan = StepLayout(sequence=S, micro_batch=B, micro_batches=1)
        found = step(as_trained(decoder(DENSE), lora(tuning)), plan, replace(UNIT, host_layer=seconds))
        names = {node.name: float(node.value) for node in found.time.walk()}
        return max(value for name, value in names.items() if name.endswith("/launch"))

    assert host(replace(LORA, targets=("o",))) == pytest.approx(seconds * (26 + 3 + 3) / 33)
    assert host(replace(LORA, targets=("o",), dropout=0.1)) == pytest.approx(seconds * (26 + 4 + 4) / 33)


def test_4_bit_weights_take_the_host_two_launches_more_each_way() -> None:
    """For the product, and for the gradient of what it reads."""
    frozen = Learning(weights=0, inputs=1, stored="nf4")
    assert frozen.launch_counts(True) == (1 + 2, 1 + 2)
    assert replace(frozen, inputs=0).launch_counts(True) == (3, 0)
    assert frozen.launch_counts(False) == (1, 1)


@pytest.mark.parametrize(("sp", "column", "row"), [(1, 2, 2), (0, 2, 1)])
def test_adapters_exchange_what_they_read_and_make(sp: int, column: int, row: int) -> None:
    """In halves of an all-reduce, which passes (t−1)/t of the tokens' 16-bit elements. Where both matrices are divided,
    with sequence parallelism an all-gather forward and a scatter or a gather backward; without it the gradient of what
    q, k and v read, which the first layer has none of, is all-reduced (two), and what o makes is gathered (one). What A
    makes, r wide, is gathered (one) or reduced (two), and its gradient reduced (two). Divided as the layer, the adapter
    exchanges that alone, in two halves."""
    half, thin = 2 * T * H * 3 / 4, 2 * T * R * 3 / 4
    halves = {"qkv": L * column - (1 if sp else 2), "o": L * row}
    of_thin = {"qkv": 3, "o": 4}
    for target, count in halves.items():
        tuning = replace(LORA, targets=(target,))
        none, as_layer, both = (
            parts(lora(one), tp=4, sequence_parallel=sp)["step/communication/tensor"]
            for one in (replace(LORA, method="none"), tuning, replace(tuning, divided=True))
        )
        assert both - as_layer == pytest.approx(count * half + L * (of_thin[target] - 2) * thin)
        assert as_layer - none > 0
        assert parts(lora(replace(tuning, divided=True)))["step/communication/tensor"] == 0


def test_each_matrix_that_is_gathered_by_itself_waits_for_the_host() -> None:
    """FSDP has a unit for each layer, and one for A and one for B, in the forward pass and in the backward pass, which
    may run the forward pass again; ZeRO-3 one for each module: the seven linear layers too (norms have no weights
    here)."""
    seconds = 1e15

    def launch(rate: str, **layout: Any) -> float:
        plan = StepLayout(**{"sequence": S, "micro_batch": B, "micro_batches": 1, **layout})
        tuning = replace(LORA, targets=("o", "down"))
        found = step(as_trained(decoder(DENSE), lora(tuning)), plan, replace(UNIT, **{rate: seconds}))
        names = {node.name: float(node.value) for node in found.time.walk()}
        return max(value for name, value in names.items() if name.endswith("/launch")) / seconds

    assert launch("host_unit") == 0
    assert launch("host_unit", gathers_layers=1) == pytest.approx(2)
    assert launch("host_unit", gathers_layers=1, gathers_adapters=1) == pytest.approx(2 + 2 * 2 * 2)
    assert launch("host_unit", gathers_adapters=1) == pytest.approx(2 * 2 * 2)
    assert launch("host_unit", gathers_adapters=1, layers_recomputed=1) == pytest.approx(2 * 2 * 3)
    assert launch("host_unit", gathers_adapters=1, layers_recomputed=1, gathers_again=0) == pytest.approx(2 * 2 * 2)
    assert launch("host_module", gathers_modules=1) == pytest.approx((7 + 4) * 2)


def test_tensor_parallel_adapters() -> None:
    """B of a column-parallel layer is divided, A of a row-parallel one; the first layer's inputs need no all-reduce."""
    forward, _ = linears(2)
    thin, back = adapters(2)
    shapes = ((H, QKV // 2), (HEADS * D // 2, H), (H, F), (F // 2, H))
    none = product(T, QKV // 2, H) + product(T, R, H)
    head = product(T, H, V // 2) + product(T, V // 2, H)
    found = parts(lora(), tp=2)
    expected = L * (forward + inputs_alone(shapes) + thin + back) - none + head
    assert found["step/compute/matmul"] == pytest.approx(expected)
    once = 2 * (2 - 1) / 2 * 2 * T * H
    # and one each of the embedding's rows and the logits; of four pairs in a layer what A makes, or its gradient
    assert found["step/communication/tensor"] == pytest.approx((L * 4 - 1 + 2) * once + L * 4 * once * R / H)


def test_first_layers_that_are_frozen() -> None:
    """A forward pass alone, which no checkpoint repeats; all products of the first trained layer follow a norm that is
    trained, and pass gradients on."""
    forward, backward = linears()
    frozen = Frozen(HF, layers=1)
    found = parts(frozen, layers_recomputed=1, optimizer_bytes=30)
    head = sum(three(T, H, V))
    trained = (L - 1) * (2 * forward + backward)
    assert found["step/compute/matmul"] == pytest.approx(forward + trained + head)
    assert found["step/compute/attention"] == pytest.approx((1 + (L - 1) * 4.5) * 2 * B * PAIRS * HEADS * 2 * D)
    assert found["step/optimizer"] == pytest.approx(30 * ((L - 1) * (LAYER + NORMS) + H + V * H))


def test_adapters_merged_into_the_weights_of_experts() -> None:
    """B·A for each expert, added to its weights, whose gradients pass on to A and B (peft's ParamWrapper)."""
    tuning = replace(LORA, parameters=(("experts.down_proj", 1),))
    found = parts(lora(tuning), MOE)
    merged = joined(E * 2 * H * R * EF, E * 2 * (H * R + R * EF + H * EF))
    name = next(one for one in found if "merged" in one and one.endswith("/forward"))
    assert found[name] == pytest.approx(merged)
    added = 6 * E * H * EF
    assert next(value for one, value in found.items() if one.endswith("merged_1/added")) == pytest.approx(added)


def test_flops_of_frozen_networks() -> None:
    """Forward 2N + 2P + A a token, backward 2N + 4P + 2A, less what the first layer does not need: N of the linear
    layers, P of the adapters, A of attention's full square."""
    model = decoder(DENSE)
    trained = as_trained(model, lora())
    over = flops.works(trained, B, S)
    found = {name: one.value for name, one in flops.step(trained, over).items()}
    square = 4 * S * HEADS * D
    forward = T * (L * (2 * LAYER + 2 * PAIRS_OF_LAYER + square) + 2 * V * H)
    first = 2 * H * QKV + 2 * H * R
    backward = T * (L * (2 * LAYER + 4 * PAIRS_OF_LAYER + 2 * square) + 2 * V * H - first)
    assert found["flops/forward"] == forward
    assert found["flops/backward"] == backward
    assert found["flops/attention"] == 3 * T * L * square


def test_dora_multiplies_both_results_and_makes_norms() -> None:
    """Next to down: 14 bytes more of each output's element forward, 16 backward; and in each forward pass, B·A of an
    identity matrix, and 14 bytes for each element of the weight (peft, tuners/lora/dora.py)."""
    plain = replace(LORA, targets=("down",))
    weighted = replace(plain, magnitude=True)
    base, found = parts(lora(plain)), parts(lora(weighted))
    moved = L * (T * (14 + 16) * H + 14 * F * H)
    elementwise = "step/memory_bound/elementwise"
    assert found[elementwise] - base[elementwise] == pytest.approx(moved)
    more = found["step/compute/matmul"] - base["step/compute/matmul"]
    assert more == pytest.approx(L * (product(F, F, R) + product(F, R, H)))
    again = (
        parts(lora(weighted), layers_recomputed=1)[elementwise] - parts(lora(plain), layers_recomputed=1)[elementwise]
    )
    assert again == pytest.approx(moved + L * (T * 14 * H + 14 * F * H))
    assert parts(lora(weighted), optimizer_bytes=30)["step/optimizer"] == pytest.approx(30 * L * (R * (F + H) + H))


def test_nothing_frozen_is_the_model_itself() -> None:
    model = decoder(DENSE)
    assert as_trained(model, Frozen(HF)) is model


ASKED = "llama3-8b --gpus 8 --hardware h100 --seq 4096"


@pytest.mark.parametrize("option", ["--lora-rank 16", "--lora-rank 16 --quantized nf4", "--freeze-layers 16"])
def test_every_command_answers_the_same_step(option: str) -> None:
    layout = "--zero 3 --global-batch 16 --micro-batch 2"
    timed = run_line(f"step {ASKED} {option} {layout} --json").values["step/time"]
    run = run_line(f"train-time {ASKED} {option} {layout} --tokens 1B --json").values
    assert run["time/uninterrupted"] == pytest.approx(timed * 1e9 / (16 * 4096), rel=1e-6)
    against = run_line(f"mfu {ASKED} {option} {layout} --step-time 5s --json").values
    assert against["step/predicted"] == pytest.approx(timed)
    plan = "--implementation hf --stack fsdp-eager --tp 1 --pp 1 --cp 1 --zero 3 --micro-batch 2 --recompute none"
    found = run_line(f"plan {ASKED} {option} {plan} --global-batch 16 --json")
    assert found.values["step/time"] == pytest.approx(timed)


def test_training_less_takes_less_time() -> None:
    whole, half, adapted = (
        run_line(f"step llama3-8b --hardware h100 --seq 4096 --json {option}").values["step/time"]
        for option in ("", "--freeze-layers 16", "--lora-rank 16 --lora-targets q,v")
    )
    assert adapted < half < whole


def test_flops_and_mfu_count_what_runs() -> None:
    """A token of LoRA costs about 4N instead of 6N, and an MFU is of that."""
    counted = run_line("flops llama3-8b --seq 8192 --lora-rank 16 --json").values["flops/per_token"]
    full = run_line("flops llama3-8b --seq 8192 --json").values["flops/per_token"]
    assert 0.68 < counted / full < 0.8
    rate = "--tokens-per-second 98000 --gpus 8 --hardware h100 --seq 8192 --json"
    adapted = run_line(f"mfu llama3-8b {rate} --lora-rank 16").values
    assert adapted["mfu"] == pytest.approx(adapted["mfu/torch"])
    assert adapted["mfu/torch"] == pytest.approx(12250 * counted / 989.4e12, rel=1e-3)


def test_ranks_make_the_norms_and_merged_weights_of_their_own_parts() -> None:
    """A rank of tp 2 has half of each weight whose norm DoRA makes; one of ep 2 and etp 2 a quarter of the experts."""
    dora = Frozen(replace(HF, tuning=replace(LORA, magnitude=True)))
    whole, half = (parts(dora, tp=tp) for tp in (1, 2))
    names = [name for name in whole if name.endswith("lora/norm/moved")]
    assert names
    assert all(half[name] == pytest.approx(whole[name] / 2) for name in names)
    merged = lora(replace(LORA, parameters=(("experts.down_proj", 1),)))
    whole, quarter = parts(merged, MOE), parts(merged, MOE, dp=4, tp=2, ep=2, etp=2)
    names = [name for name in whole if name.endswith("merged_1/added")]
    assert names
    assert all(quarter[name] == pytest.approx(whole[name] / 4) for name in names)


def test_layers_without_a_backward_pass_cast_nothing_in_it() -> None:
    """Of L layers, half are frozen and read nothing that is trained: they cast forward alone."""
    found = [parts(Frozen(HF, layers), low=1) for layers in (0, L // 2, L)]
    casts = [next(value for name, value in one.items() if name == "step/memory_bound/casts") for one in found]
    assert 0 < casts[2] < casts[0]
    assert casts[1] == pytest.approx((casts[0] + casts[2]) / 2)

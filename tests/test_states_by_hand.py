"""What a rank holds of weights, gradients and states, and what goes between it and its host, worked out by hand.

One small decoder with and without experts; each test spells out the sums with its dimensions."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.footprint.gathers import flat_gradient
from napkin.footprint.local_weights import LocalWeights, as_frozen, divided, optimizer_of, states_of, sum_weights
from napkin.footprint.memory import rank_of
from napkin.footprint.offload import host_bytes
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Moment, Rank, larger, waiting_bytes
from napkin.operations.model import Model
from napkin.operations.roles import COLUMN, EXPERT, REPLICATED, ROW, VOCABULARY
from napkin.operations.tuning import Tuning
from napkin.operations.work import Weight
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS, PLAIN, first_version
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from napkin.training.trainers import TRAINERS
from tests.conftest import model, run_line

H, L, HEADS, KV, D, F, V, S = 64, 4, 4, 2, 16, 96, 256, 32
LLAMA = {
    "model_type": "llama", "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": HEADS,
    "num_key_value_heads": KV, "intermediate_size": F, "vocab_size": V,
}  # fmt: skip
DENSE = model(**LLAMA, tie_word_embeddings=False)
ATTENTION = 2 * H * HEADS * D + 2 * H * KV * D
LAYER = ATTENTION + 3 * H * F + 2 * H
TABLE = V * H
ENDS = (TABLE, TABLE + H)
"""Elements of the embedding; of the last norm and the head."""
WHOLE = L * LAYER + sum(ENDS)
TENSORS = L * 9 + 3
E = 8
SPARSE = model(**LLAMA | {"model_type": "mixtral", "num_local_experts": E, "num_experts_per_tok": 2})
OTHERS = L * (ATTENTION + 2 * H + H * E) + sum(ENDS)
EXPERTS = L * E * 3 * H * F


def setup_of(
    of: Model = DENSE, framework: str = "plain", policy: str = "bf16-mixed", optimizer: str = "adamw", **changes: Any
) -> Setup:
    """A step in the form that a framework keeps it; `changes`: of the setup or of its layout."""
    runs = FRAMEWORKS.get(framework, PLAIN)
    own = {name: changes.pop(name) for name in list(changes) if name in SETUP}
    implementation = runs.implements(implementation_of(runs.implementation, of.family), False, False)
    implementation = replace(implementation, loss=changes.pop("loss", implementation.loss))
    laid = Layout(**{"seq": S, **changes})
    precision = runs.formats(POLICIES[policy])
    found, _ = find(optimizer)
    return Setup(implementation, laid, precision, found, "fused", framework=runs, **own)


SETUP = ("shard", "ema", "offload", "in_backward", "frozen", "save", "forwards", "tower")


def step_of(of: Model = DENSE, *named: str, **changes: Any) -> PreparedStep:
    return prepare(of, setup_of(of, *named, **changes))


def rank(of: Model = DENSE, *named: str, index: int = 0, **changes: Any) -> Rank:
    return rank_of(step_of(of, *named, **changes), index)


def temporary(found: Rank, moment: str, name: str) -> float:
    """The bytes of one of the things that a moment's temporaries are the sum of."""
    (of,) = (one for one in found.moments if one.name == moment)
    return float(dict(of.made["temporaries"])[name])


# --- sums ---

A = LocalWeights(10, 20, (("m", 1, 2), ("v", 3, 4)), 6, 7, 8, 9, 2)
B = LocalWeights(100, 200, (("m", 10, 20),), 60, 70, 80, 90, 4)


def test_what_several_pieces_hold_is_the_sum_of_each_field() -> None:
    found = sum_weights([(2, A), (3, B)])
    assert (found.dense, found.expert, found.all) == (2 * 10 + 3 * 100, 2 * 20 + 3 * 200, 960)
    assert found.states == (("m", 2 * 1 + 3 * 10, 2 * 2 + 3 * 20), ("v", 2 * 3, 2 * 4))
    assert (found.frozen, found.wide) == (2 * 6 + 3 * 60, 2 * 7 + 3 * 70)
    assert (found.idle, found.saved, found.saved_width) == (2 * 8 + 3 * 80, 2 * 9 + 3 * 90, 4)
    nothing = sum_weights([])
    assert (nothing.all, nothing.states, nothing.frozen) == (0, (), 0)
    assert (nothing.wide, nothing.idle, nothing.saved, nothing.saved_width) == (0, 0, 0, 0)


def test_elements_in_a_type_of_their_own() -> None:
    """Of 30 elements in 2 bytes, 7 stay in fp32 and 9 next to adapters have 1 byte."""
    found = replace(A, saved_width=1)
    assert found.typed(2) == 9 * (1 - 2)
    assert found.widened(2) == 7 * (4 - 2) + 9 * (1 - 2)
    assert found.gradients(2) == 30 * 2 + 7 * 2 - 9
    assert flat_gradient(found, 2) == 30 * 2 + 6
    assert flat_gradient(LocalWeights(0, 0, frozen=6), 2) == 0


def test_a_frozen_piece_has_bytes_and_nothing_else() -> None:
    """Its trained elements in the type of frozen ones, and what was frozen already."""
    one = replace(A, wide=0, saved=0)
    assert as_frozen(one, setup_of()) == LocalWeights(0, 0, frozen=30 * 2 + 6)
    apart = replace(setup_of(), precision=replace(POLICIES["fp32"], frozen="bf16"))
    assert as_frozen(one, apart) == LocalWeights(0, 0, frozen=30 * 2 + 6)
    assert as_frozen(one, setup_of(policy="fp32")) == LocalWeights(0, 0, frozen=30 * 4 + 6)


def test_over_how_many_ranks_a_weight_is_divided() -> None:
    layout = Layout(S, tp=2, ep=4, etp=3)
    ways = {shard: divided(Weight("w", (8, 8), shard), layout) for shard in (COLUMN, ROW, VOCABULARY)}
    assert set(ways.values()) == {2}
    assert divided(Weight("w", (8, 8), EXPERT), layout) == 4 * 3
    assert divided(Weight("w", (8, 8), REPLICATED), layout) == 1


def test_muon_takes_matrices_of_layers() -> None:
    """Vectors, tables and stacks of experts go to AdamW (Jordan et al. 2024, Muon)."""
    muon = OPTIMIZERS["muon"]
    assert optimizer_of(Weight("w", (8, 8), COLUMN), muon) is muon
    for other in (
        Weight("w", (8,), REPLICATED),
        Weight("w", (2, 8, 8), COLUMN),
        Weight("w", (8, 8), VOCABULARY),
        Weight("w", (8, 8), EXPERT, copies=2),
    ):
        assert optimizer_of(other, muon).name == "adamw"
        assert optimizer_of(other, OPTIMIZERS["adamw"]).name == "adamw"


# --- states ---


@pytest.mark.parametrize(("zero", "p", "g", "s"), [(0, 1, 1, 1), (1, 1, 1, 8), (2, 1, 8, 8), (3, 8, 8, 8)])
def test_what_zero_divides(zero: int, p: int, g: int, s: int) -> None:
    """Rajbhandari et al. 2020, figure 1: states, then gradients, then parameters, each over all ranks."""
    found = rank(dp=8, zero=zero)
    assert (found.parameters, found.gradients) == (2 * WHOLE / p, 2 * WHOLE / g)
    each = dict.fromkeys(("exp_avg", "exp_avg_sq", "master"), 4 * WHOLE / s)
    assert dict(found.states) == each | {"step": -(-4 * TENSORS // s)}  # a counter of 4 bytes for each tensor


@pytest.mark.parametrize("zero", range(4))
def test_what_zero_divides_of_experts(zero: int) -> None:
    """Eight ranks with experts over four: two hold the same E/4 of them."""
    found = rank(SPARSE, dp=8, ep=4, zero=zero, ema=True)
    own, part = OTHERS + EXPERTS / 4, OTHERS / 8 + EXPERTS / 4 / 2
    assert found.parameters == 2 * (part if zero >= 3 else own)
    assert found.gradients == 2 * (part if zero >= 2 else own)
    each = 4 * (part if zero >= 1 else own)
    sizes = {name: size for name, size in found.states if name != "step"}
    assert sizes == dict.fromkeys(("exp_avg", "exp_avg_sq", "master", "ema"), each)


def test_what_frameworks_add_to_the_states() -> None:
    """nanotron: a buffer of 4 bytes; torchtitan: fp32 weights and gradients without a master copy, and with a
    pipeline whole gradients; states that are paged or offloaded are not on the GPU."""
    assert rank(DENSE, "nanotron", policy="bf16-mixed").gradients == (2 + 4) * WHOLE
    found = rank(DENSE, "torchtitan", dp=4, zero=3)
    assert (found.parameters, found.gradients, found.optimizer) == (WHOLE, WHOLE, 2 * WHOLE + TENSORS)
    staged = rank(DENSE, "torchtitan", dp=4, pp=2, zero=3)
    assert staged.gradients == 4 * (L / 2 * LAYER + TABLE)
    assert staged.parameters == L / 2 * LAYER + TABLE
    assert rank(DENSE, offload=("optimizer",)).states == ()
    away = rank(DENSE, offload=("parameters",))
    assert (away.parameters, away.gradients, away.optimizer) == (0, 0, 12 * WHOLE + 4 * TENSORS)


def test_an_8_bit_optimizer_of_one_state() -> None:
    """Momentum of SGD in fp32: 4 bytes for each parameter; Lion the same."""
    for name in ("sgd-momentum", "lion"):
        assert rank(DENSE, policy="bf16-fp32state", optimizer=name).optimizer == 4 * WHOLE


def test_a_tied_head_is_counted_once_on_one_stage_and_twice_on_two() -> None:
    tied = model(**LLAMA, tie_word_embeddings=True)
    whole = L * LAYER + TABLE + H
    found = rank(tied, policy="fp32")
    assert (found.parameters, found.gradients, found.optimizer) == (4 * whole, 4 * whole, 8 * whole + 4 * (TENSORS - 1))
    both = [rank(tied, policy="fp32", index=i, pp=2) for i in range(2)]
    assert sum(one.parameters for one in both) == 4 * (whole + TABLE)
    assert sum(one.optimizer for one in both) == 8 * (whole + TABLE) + 4 * TENSORS


def test_the_gradients_of_a_tied_table_are_added_into_a_third() -> None:
    """The lookup's gradient of the table replaces that of its output, S·H values; then both are added."""
    for tied, tables, outputs in ((False, 1, 1), (True, 2, 0)):
        found = rank(model(**LLAMA, tie_word_embeddings=tied), policy="fp32")
        assert temporary(found, "backward", "embedding") == 4 * (tables * TABLE + outputs * S * H)


# --- gathered parameters ---


def blocks(found: Rank, moment: str = "forward") -> float:
    return temporary(found, moment, "gathered")


def test_what_fsdp_gathers() -> None:
    """Embedding, last norm and head as one unit, and two blocks: the one in use and the one that is prefetched, in the
    16 bits to which the fp32 shards are cast. At the loss no block is."""
    for moment, count in (("forward", 2), ("loss", 0), ("backward", 2)):
        assert blocks(rank(DENSE, "fsdp", dp=4, zero=3), moment) == 2 * (sum(ENDS) + count * LAYER)
    assert blocks(rank(DENSE, "fsdp", dp=4, zero=2)) == 0
    assert blocks(rank(DENSE, policy="fp32", dp=4, zero=3)) == 4 * (sum(ENDS) + 2 * LAYER)


@pytest.mark.parametrize(
    ("version", "recomputed", "count"),
    [(1, "full", 1), (1, "none", 2), (2, "full", 2)],
)
def test_reentrant_checkpoints_leave_the_first_fsdp_no_block_to_prefetch(
    version: int, recomputed: str, count: int
) -> None:
    fsdp = FRAMEWORKS["fsdp"]
    framework = replace(first_version(fsdp) if version == 1 else fsdp, reentrant=True)
    setup = setup_of(DENSE, "fsdp", dp=4, zero=3, recompute=recompute(recomputed, "a test"))
    found = rank_of(prepare(DENSE, replace(setup, framework=framework)), 0)
    assert blocks(found, "backward") == 2 * (sum(ENDS) + count * LAYER)


def test_what_fsdp_gathers_on_the_stages_of_a_pipeline() -> None:
    """The embedding on the first, the head on the last, neither between."""
    found = [blocks(rank(DENSE, "fsdp", index=i, pp=4, dp=2, zero=3)) for i in range(4)]
    assert found == [2 * (end + 2 * LAYER) for end in (TABLE, 0, 0, TABLE + H)]
    # torchtitan keeps a stage's parameters gathered
    assert blocks(rank(DENSE, "torchtitan", pp=2, dp=2, zero=3)) == 2 * (TABLE + L / 2 * LAYER)


@pytest.mark.parametrize("name", ["torchtune", "torchtitan"])
def test_what_is_gathered_where_embedding_and_head_are_units(name: str) -> None:
    """One of them at a time next to two blocks, the head alone at the loss, two blocks while layers run backward."""
    found = rank(DENSE, name, dp=2, zero=3, policy="bf16-pure")
    assert blocks(found) == 2 * (TABLE + H + 2 * LAYER)
    assert blocks(found, "loss") == 2 * (TABLE + H)
    assert blocks(found, "backward") == 2 * 2 * LAYER


def test_what_litgpt_gathers() -> None:
    litgpt = rank(DENSE, "litgpt", dp=2, zero=3, policy="bf16-pure")
    assert blocks(litgpt) == 2 * (sum(ENDS) + 2 * LAYER)
    assert blocks(litgpt, "loss") == 2 * sum(ENDS)


def test_experts_are_gathered_with_their_block() -> None:
    """A rank gathers its own E/2 experts of a block, from the ranks that hold the same."""
    block = ATTENTION + 2 * H + H * E + E / 2 * 3 * H * F
    assert blocks(rank(SPARSE, "fsdp", dp=4, ep=2, zero=3)) == 2 * (sum(ENDS) + 2 * block)


# --- host and optimizer step ---


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"zero": 1, "offload": ("optimizer",)}, (2 + 2) / 4),  # gradients down, weights up: a rank's own part
        ({"zero": 0, "offload": ("optimizer",)}, 2 + 2),
        ({"zero": 3, "offload": ("parameters", "optimizer"), "micro_batches": 3}, 3 * (2 + 2 + 2) / 4),
        ({"zero": 3, "offload": ("activations",)}, 0),
        ({"zero": 3}, 0),
    ],
)
def test_bytes_between_a_gpu_and_its_host(changes: dict[str, Any], moved: float) -> None:
    """bf16 weights and gradients; with offloaded parameters up for both passes and down after each backward."""
    step = step_of(DENSE, dp=4, **changes)
    assert host_bytes(rank_of(step, 0), step.setup) == moved * WHOLE


def test_bytes_between_a_gpu_and_its_host_by_format() -> None:
    """fp32 gradients next to bf16 weights: 4 down, 2 up for each of both passes."""
    step = step_of(DENSE, "megatron-core", dp=4, zero=3, offload=("parameters",), micro_batches=2)
    assert host_bytes(rank_of(step, 0), step.setup) == 2 * (2 * 2 + 4) * WHOLE / 4


def test_buckets_and_copies_of_the_optimizer_step() -> None:
    """Megatron-DeepSpeed: 6 bytes an element of the own part, and a bucket of 5e8 gradients of 2 bytes."""
    found = rank(DENSE, "megatron-deepspeed", dp=4, zero=1)
    whole = found.weights.all
    assert temporary(found, "step", "optimizer_step") == -(-6 * whole // 4)
    assert temporary(found, "step", "gradient_bucket") == 2 * 500_000_000
    assert temporary(rank(DENSE, "megatron-deepspeed", dp=4), "step", "optimizer_step") == 6 * whole


def test_what_deepspeed_copies_of_gradients() -> None:
    """The step: the own part flat in 2 bytes, then in 4; with ZeRO-3 of no more elements than its groups have. Passes
    with ZeRO-3: next to the bucket of 5e8 gradients what is in it, here all of them, in the order of the ranks. Nothing
    in the step if the states are on the host."""
    bucket = 2 * 500_000_000
    found = rank(DENSE, "deepspeed", dp=4, zero=2)
    assert temporary(found, "step", "optimizer_step") == 6 * -(-WHOLE // 4)
    assert temporary(found, "backward", "gradient_bucket") == bucket
    setup = setup_of(DENSE, "deepspeed", dp=4, zero=3)
    assert setup.framework.step_most == 10**9
    for most, updated in ((WHOLE, -(-WHOLE // 4)), (1000, 1000)):
        grouped = prepare(DENSE, replace(setup, framework=replace(setup.framework, step_most=most)))
        assert temporary(rank_of(grouped, 0), "step", "optimizer_step") == 6 * updated
    third = rank_of(prepare(DENSE, setup), 0)
    assert temporary(third, "backward", "gradient_bucket") == bucket + 2 * WHOLE
    assert temporary(third, "step", "gradient_bucket") == bucket
    away = rank(DENSE, "deepspeed", dp=4, zero=2, offload=("optimizer",))
    assert temporary(away, "step", "optimizer_step") == 0


@pytest.mark.parametrize("trainer", ["axolotl", "llama-factory", "ms-swift"])
def test_buckets_that_transformers_sets(trainer: str) -> None:
    """reduce_bucket_size "auto" in a library's ZeRO-3 file: h² gradients of 2 bytes, next to a copy of the largest
    one, which is reduced by itself as it is larger (stage3.py, reduce_independent_p_g_buckets_and_remove_grads);
    another library's 5e8 are more than any of them, and so are those of ZeRO-2."""
    own, other = (TRAINERS[name].on(FRAMEWORKS["deepspeed"]) for name in (trainer, "trl"))
    assert own.bucket_of_width
    assert not other.bucket_of_width
    found = prepare(DENSE, replace(setup_of(DENSE, "deepspeed", dp=4, zero=3), framework=own))
    assert H * H < H * F < TABLE
    assert temporary(rank_of(found, 0), "backward", "gradient_bucket") == 2 * H * H + 2 * TABLE
    assert temporary(rank_of(found, 0), "step", "gradient_bucket") == 2 * H * H
    less = prepare(DENSE, replace(setup_of(DENSE, "deepspeed", dp=4, zero=2), framework=own))
    assert temporary(rank_of(less, 0), "backward", "gradient_bucket") == 2 * 500_000_000


@pytest.mark.parametrize(
    ("changes", "reduced"),
    [
        ({"dp": 4}, WHOLE),
        ({"dp": 4, "frozen": 2}, WHOLE - TABLE - 2 * LAYER),  # only what has gradients
        ({"dp": 4, "in_backward": True}, WHOLE),
        ({"dp": 4, "zero": 1}, 0),
        ({"dp": 1}, 0),
        ({"dp": 2, "tp": 2}, 0),
    ],
)
def test_buckets_of_torchs_data_parallelism(changes: dict[str, Any], reduced: int) -> None:
    """A plain loop on several GPUs: DDP's buckets are a second copy of the 16-bit gradients, from the forward pass to
    the optimizer step."""
    found = rank(DENSE, "plain", **changes)
    for moment in ("forward", "loss", "backward", "step"):
        assert temporary(found, moment, "gradient_bucket") == 2 * reduced


# --- moments ---

FIRST = Moment("first", 1, 20, 300, 4000, 50000, 600000, 7000000, models=80000000)


def test_a_moment_is_the_sum_of_its_buckets() -> None:
    assert (FIRST.passing, FIRST.live) == (7654000, 87654321)


def test_the_larger_of_two_moments() -> None:
    second = replace(FIRST, name="second", inputs=600001)
    assert larger(FIRST, second) == larger(second, FIRST) == second
    assert larger(FIRST, second, 0) == larger(FIRST, FIRST) == FIRST
    short = replace(second, inputs=0, brief=7)  # fewer bytes, of which more are short-lived
    assert larger(FIRST, short) == larger(short, FIRST) == replace(FIRST, brief=7)
    assert larger(FIRST, short, 0) == FIRST


def test_what_waits_while_one_micro_batch_runs() -> None:
    """Five chunks of 2 for each micro-batch are in flight: three wait, of 7/2 bytes each, in whole bytes; two more wait
    for their weights' gradients."""
    assert waiting_bytes(7, 3, 5, 2, 2) == 11 + 2 * 3
    assert waiting_bytes(7, 3, 1, 1, 0) == 0


def test_communicators() -> None:
    """One of all ranks, one of each degree that is a part of them, and one over which context- or expert-parallel ranks
    exchange, even if it has all ranks."""
    for changes, groups in (
        ({}, 0),
        ({"dp": 4}, 1),
        ({"dp": 4, "tp": 2}, 3),
        ({"dp": 2, "pp": 2, "cp": 2}, 4),
        ({"cp": 4}, 2),
    ):
        step = step_of(DENSE, **changes)
        assert rank_of(step, 0).flow(step.setup).groups == groups
    step = step_of(SPARSE, dp=2, ep=2)
    assert rank_of(step, 0).flow(step.setup).groups == 2


def test_states_without_a_formula_of_their_own() -> None:
    """By the record alone: 10 dense and 20 of experts on 4 ranks with experts over 2 of them."""
    mine = LocalWeights(10, 20, (("m", 40, 80),), frozen=8)
    parameters, gradients, states = states_of(mine, setup_of(dp=4, ep=2, zero=3, ema=True))
    assert (parameters, gradients) == (-(-(2 * 10 + 8) // 4) + 2 * 20 // 2, 2 * 10 // 4 + 2 * 20 // 2)
    assert dict(states) == {"m": 40 // 4 + 80 // 2, "master": 4 * 10 // 4 + 4 * 20 // 2, "ema": 10 + 40}


def test_scales_of_packed_weights_are_not_sharded() -> None:
    """Of 80 frozen bytes 16 are scales: every rank has them, in its own memory, and no rank gathers them."""
    mine = LocalWeights(0, 0, frozen=80, scales=16)
    for zero, held in ((0, 80), (2, 80), (3, 16 + 64 // 4)):
        assert states_of(mine, setup_of(dp=4, zero=zero))[0] == held
    assert states_of(mine, setup_of(dp=4, zero=3, offload=("parameters",)))[0] == 16
    assert sum_weights([(2, mine), (1, mine)]).scales == 3 * 16
    assert as_frozen(mine, setup_of()).scales == 16
    assert flat_gradient(LocalWeights(1, 0, frozen=80, scales=16), 2) == 2 + 64


def test_what_two_more_pairs_of_gpus_save_of_4_bit_weights() -> None:
    """Half a byte of each of Mistral 7B's 6,979,321,856 elements in layers and the 16-bit rest, from a half to a
    quarter; max_memory_allocated of fms-acceleration's benchmark falls from 15.691 to 14.679 GB (at 876e2ed6,
    scripts/benchmarks/refs/a100_80gb_liger.csv, rows 144 and 176)."""
    line = "memory mistral-7b-v0.1 --task sft --lora-rank 16 --quantized nf4-dq --framework fsdp --json"
    line += " --precision frozen=bf16,param=fp32"
    two, four = (run_line(f"{line} --gpus {gpus}").values["memory/parameters"] for gpus in (2, 4))
    rest = 2 * 32000 * 4096 + 65 * 4096
    adapters = 16 * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert two - four == pytest.approx((6_979_321_856 / 2 + 2 * rest + 4 * adapters) / 4, rel=1e-6)
    assert two - four == pytest.approx(15.691e9 - 14.679e9, rel=0.06)


# --- adapters ---

LINEARS = ((H, HEADS * D), (H, KV * D), (H, KV * D), (HEADS * D, H), (H, F), (H, F), (F, H))
"""(in, out) of a layer's products."""


def adapted(of: Model = DENSE, **tuning: Any) -> PreparedStep:
    setup = setup_of(of, policy="bf16-pure")
    return prepare(of, replace(setup, implementation=replace(setup.implementation, tuning=Tuning(**tuning))))


@pytest.mark.parametrize(
    ("method", "trained"),
    [
        # ten prompt tokens of all heads' values, and a gate for each head (LitGPT, adapter.py)
        ("adapter", 10 * HEADS * D + HEADS),
        # the same, a scale and a bias for each output, and both norms (LitGPT, adapter_v2.py)
        ("adapter_v2", 10 * HEADS * D + HEADS + 2 * sum(n for _, n in LINEARS) + 2 * H),
        ("lora", sum(4 * (k + n) for k, n in LINEARS)),
    ],
)
def test_what_an_adapted_layer_trains(method: str, trained: int) -> None:
    part = adapted(method=method, rank=4).weights.layers[-1]
    assert (part.dense, part.expert) == (trained, 0)


@pytest.mark.parametrize(("method", "trained"), [("adapter", 1_229_760), ("adapter_v2", 4_279_744)])
def test_what_llama_7b_s_adapters_train(method: str, trained: int) -> None:
    """Prompts from the third layer on: 30·(10·4096 + 32); scales and biases of every output, the head's too, and all
    norms: 32·(2·42,496 + 2·4096) + 2·32,000 + 4096 more. Published with LitGPT's adapters for LLaMA 7B."""
    llama = model(
        model_type="llama", hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
        vocab_size=32000, tie_word_embeddings=False,
    )  # fmt: skip
    assert rank_of(adapted(llama, method=method), 0).gradients == 2 * trained


def test_scales_next_to_4_bit_weights() -> None:
    """One of 4 bytes for 64 weights, which bitsandbytes keeps in a tensor of its own and torchao within the weight."""
    for library, apart in (("bitsandbytes", 4 / 64), ("torchao", 0)):
        part = adapted(method="lora", quantized="nf4", library=library).weights.layers[-1]
        assert part.scales == apart * (LAYER - 2 * H)
        assert part.frozen == (0.5 + 4 / 64) * (LAYER - 2 * H) + 2 * 2 * H


def test_an_adapted_model_holds_a_tied_embedding_once() -> None:
    """2 bytes for each frozen weight and for each of the adapters."""
    tied = model(**LLAMA, tie_word_embeddings=True)
    pairs = L * sum(4 * (k + n) for k, n in LINEARS)
    assert rank_of(adapted(tied, method="lora", rank=4), 0).parameters == 2 * (WHOLE - TABLE + pairs)

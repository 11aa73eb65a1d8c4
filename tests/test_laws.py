"""Laws of memory under parallelism, over drawn networks and layouts."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from napkin.architectures import build, implementation_of
from napkin.counting.params import params
from napkin.elementwise import Number
from napkin.footprint.memory import least_states, rank_of
from napkin.footprint.prepared import prepare
from napkin.footprint.rank import Rank
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from napkin.operations.model import Model
from napkin.operations.roles import EXPERT, REPLICATED
from napkin.operations.tuning import Tuning
from napkin.planning.enlarge import largest_that_fits, with_layers
from napkin.planning.verdicts import worst_rank
from napkin.record import replace
from napkin.training import optimizer_names
from napkin.training.layout import Layout
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.recomputation import recompute as read
from napkin.training.setup import Setup

from .conftest import preset, run_line

BASE = {
    "hidden_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 320,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
KINDS: dict[str, dict[str, object]] = {
    "dense": {"model_type": "llama"},
    "tied": {"model_type": "llama", "tie_word_embeddings": True},
    "windowed": {"model_type": "gemma2", "head_dim": 16, "sliding_window": 64, "tie_word_embeddings": True},
    "mixture": {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "sparse after dense": {
        "model_type": "qwen2_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 96,
        "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0, 2],
    },
    "latent": {
        "model_type": "deepseek_v2",
        "num_key_value_heads": 8,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
        "topk_method": "greedy",
        "scoring_func": "softmax",
    },
}
kinds = st.sampled_from(sorted(KINDS))
implementations = st.sampled_from(["hf", "megatron", "torchtitan", "nanotron"])
policies = st.sampled_from(["bf16-mixed", "amp-bf16", "fp32", "bf16-pure"])
recomputes = st.sampled_from(["none", "selective", "full", "every:2", "group:2", "group:sqrt"])
powers = st.sampled_from([1, 2, 4])
schedules = st.sampled_from(["1f1b", "gpipe", "interleaved", "zero-bubble"])


def network(kind: str, layers: int) -> Model:
    fields: dict[str, Any] = {**BASE, **KINDS[kind], "num_hidden_layers": layers}
    if "mlp_only_layers" in fields:
        fields["mlp_only_layers"] = [i for i in (0, 2) if i < layers]
    return build(config_from("drawn", Document("drawn", None), fields))


def setup_of(model: Model, implementation: str = "hf", policy: str = "bf16-mixed", **layout: Any) -> Setup:
    optimizer, _ = optimizer_names.find("adamw")
    attention = str(layout.pop("attention", "flash"))
    shard = layout.pop("shard", 0)
    laid = Layout(**{"seq": 256, **layout})
    return Setup(
        implementation_of(implementation, model.family),
        laid,
        POLICIES[policy],
        optimizer,
        "fused",
        attention,
        shard=shard,
    )


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Model, Setup]:
    """A network, and a layout that divides it."""
    kind, layers = draw(kinds), draw(st.integers(2, 12))
    model = network(kind, layers)
    tp, cp, dp = draw(powers), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4, 8]))
    pp = draw(st.integers(1, min(4, layers)))
    schedule = draw(schedules)
    vp = draw(st.sampled_from([1, 2])) if schedule == "interleaved" and layers >= 2 * pp else 1
    has_experts = "moe" in model.family or model.family in ("mixtral", "deepseek_v2")
    ep = draw(st.sampled_from([e for e in (1, 2, 4, 8) if dp % e == 0])) if has_experts else 1
    zero = draw(st.integers(0, 3))
    shard = draw(st.sampled_from([0, *(n for n in (2, 4) if (dp * cp) % n == 0 and n % ep == 0)])) if zero else 0
    layout = {
        "micro": draw(st.integers(1, 3)),
        "micro_batches": draw(st.integers(1, 9)),
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "etp": draw(st.sampled_from([1, tp])) if has_experts else 1,
        "vp": vp,
        "sp": draw(st.integers(0, 1)) * (tp > 1),
        "zero": zero,
        "schedule": schedule if vp > 1 or schedule != "interleaved" else "1f1b",
        "recompute": read(draw(recomputes)),
        "shard": shard,
        "attention": draw(st.sampled_from(["flash", "eager"])),
    }
    return model, setup_of(model, draw(implementations), draw(policies), **layout)


def ranks(model: Model, setup: Setup) -> list[Rank]:
    step = prepare(model, setup)
    return [rank_of(step, index) for index in range(int(setup.layout.pp))]


def live(model: Model, setup: Setup) -> float:
    return float(worst_rank(prepare(model, setup)).live)


def states(rank: Rank) -> float:
    return float(rank.parameters + rank.gradients + rank.optimizer)


def changed(setup: Setup, **layout: Any) -> Setup:
    return replace(setup, layout=setup.layout.replaced(**layout))


laws = settings(max_examples=250, deadline=None)


# --- the whole and its shards ---


@given(drawn())
@laws
def test_the_shards_of_every_tensor_add_up_to_it(case: tuple[Model, Setup]) -> None:
    """Parts of all stages times the ranks that divide each tensor are the tensors themselves, up to a number a rank."""
    model, setup = case
    layout = setup.layout
    there = ranks(model, setup)
    operations = [
        *((1, op) for stack in model.stacks for op in (*stack.before, *stack.after)),
        *((n, op) for stack in model.stacks for _, n, layer in stack.kinds() for op in layer.operations),
    ]
    dense: Number = 0
    expert: Number = 0
    slack: Number = 0
    for n, op in operations:
        for weight in op.weights():
            ways = layout.ep * layout.etp if weight.shard == EXPERT else layout.tp
            ways = 1 if weight.shard == REPLICATED else ways
            part = ceil(weight.count / ways)
            dense, expert = (dense, expert + n * part) if weight.shard == EXPERT else (dense + n * part, expert)
            assert weight.count <= part * ways < weight.count + ways
            slack += n * ways
    tables = sum(ceil(w.count / layout.tp) for w in model.stacks[0].before[0].weights())
    copies = tables if model.tied and layout.pp == 1 else 0
    assert sum(rank.weights.dense for rank in there) == dense - copies
    assert sum(rank.weights.expert for rank in there) == expert
    whole = params(model)["params/total"].value
    held = sum(rank.weights.dense for rank in there) * layout.tp + expert * layout.ep * layout.etp
    assert held >= whole


@given(drawn())
@laws
def test_all_ranks_together_hold_at_least_the_whole(case: tuple[Model, Setup]) -> None:
    model, setup = case
    layout = setup.layout
    width = {"fp32": 4, "bf16": 2}
    whole = params(model)["params/total"].value
    every = ranks(model, setup)
    group = layout.tp * layout.dp * layout.cp
    assert group * sum(rank.parameters for rank in every) >= whole * width[setup.precision.param]
    assert group * sum(rank.gradients for rank in every) >= whole * width[setup.precision.grad]
    assert group * sum(rank.optimizer for rank in every) >= 2 * whole * width[setup.precision.state]
    if layout.zero >= 3:  # dense weights over all that hold the same, experts over all that hold the same experts
        ways = setup.shards
        copies = max(ways * layout.tp // (layout.ep * layout.etp), 1)
        for rank in every:
            held = width[setup.precision.param]
            share = (rank.weights.dense / ways + rank.weights.expert / copies) * held
            share += rank.weights.wide / ways * (4 - held)  # a router that its class keeps in fp32
            assert share <= rank.parameters < share + 2


# --- monotone ---


@given(drawn())
@laws
def test_more_work_never_takes_less(case: tuple[Model, Setup]) -> None:
    model, setup = case
    layout, here = setup.layout, live(*case)
    assert live(model, changed(setup, seq=2 * layout.seq)) >= here
    assert live(model, changed(setup, micro=layout.micro + 1)) >= here
    assert live(model, changed(setup, micro_batches=layout.micro_batches + 1)) >= here
    depth = model.stacks[0].depth
    unit = int(layout.pp * layout.vp)
    if layout.recompute.kind not in ("every", "group"):
        assert live(with_layers(model, depth - depth % unit + 2 * unit), setup) >= here


@given(drawn())
@laws
def test_recomputing_more_never_keeps_more(case: tuple[Model, Setup]) -> None:
    """Under autocast a fused kernel keeps 16-bit copies of what a checkpoint around it keeps in fp32: there recomputing
    attention alone may keep more."""
    model, setup = case
    kept = []
    for kind in ("none", "selective", "full"):
        step = prepare(model, changed(setup, recompute=Recompute(kind)))
        kept.append([rank_of(step, index).saved for index in range(int(setup.layout.pp))])
    for none, selective, full in zip(*kept, strict=True):
        assert full <= min(none, selective)
        assert selective <= none or (setup.precision.autocast and setup.attention == "flash")


@given(drawn())
@laws
def test_higher_stages_of_zero_never_keep_more(case: tuple[Model, Setup]) -> None:
    model, setup = case
    sizes = []
    for zero in range(4):
        sizes.append([states(rank) for rank in ranks(model, changed(setup, zero=zero))])
    slack = 100  # a byte a tensor is rounded up
    for lower, higher in pairwise(sizes):
        assert all(b <= a + slack for a, b in zip(lower, higher, strict=True))


@given(drawn(), st.sampled_from(["tp", "cp", "dp", "ep", "pp"]))
@laws
def test_more_ranks_of_a_sharding_never_hold_more(case: tuple[Model, Setup], degree: str) -> None:
    model, setup = case
    layout = setup.layout
    if degree == "tp":
        assume(layout.tp < 4)
        more = changed(setup, tp=2 * layout.tp)
    elif degree == "cp":
        more = changed(setup, cp=2 * layout.cp)
    elif degree == "ep":
        assume(layout.ep < 8 and layout.dp % (2 * layout.ep) == 0 and model.family in ("mixtral", "deepseek_v2"))
        assume(layout.zero == 0)
        more = changed(setup, ep=2 * layout.ep)
    elif degree == "pp":
        assume(2 * layout.pp * layout.vp <= model.stacks[0].depth)
        more = changed(setup, pp=2 * layout.pp)
    else:
        assume(not setup.shard)
        more = changed(setup, dp=2 * layout.dp)
    before, after = ranks(model, setup), ranks(model, more)
    slack = 200
    assert max(map(states, after)) <= max(map(states, before)) + slack
    if degree != "pp":
        assert max(rank.saved for rank in after) <= max(rank.saved for rank in before)


# --- solving ---

ROOM = st.integers(5, 400).map(lambda mb: mb * 1_000_000)


@given(drawn(), ROOM, st.sampled_from(["micro", "seq", "layers"]))
@settings(max_examples=20, deadline=None)
def test_the_largest_fits_and_one_more_does_not(case: tuple[Model, Setup], room: int, what: str) -> None:
    model, setup = case
    layout = setup.layout
    assume(what != "layers" or layout.recompute.kind in ("none", "selective", "full"))
    unit = int({"micro": 1, "seq": layout.cp * layout.tp * 8, "layers": layout.pp * layout.vp}[what])

    def fits(value: int) -> bool:
        if what == "layers":
            return live(with_layers(model, value), setup) <= room
        return live(model, changed(setup, **{what: value})) <= room

    best = largest_that_fits(fits, unit, 10**5)
    assert best % unit == 0
    if best:
        assert fits(best)
        assert not fits(best + unit) or best + unit > 10**5
    else:
        assert not fits(unit)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("llama3-8b", "--gpus 8 --seq 8192 --micro-batch 2"),
        ("mixtral-8x7b", "--gpus 64 --seq 4096 --zero 1"),
        ("gemma2-9b", "--gpus 16 --pp 2 --seq 4096 --implementation megatron"),
        ("deepseek-v2-lite", "--gpus 8 --seq 4096 --micro-batch 4"),
        ("llama3-8b", "--gpus 8 --seq 8192 --zero 3 --recompute full --micro-batch 6"),
    ],
)
def test_what_is_suggested_fits_by_its_own_evaluation_and_the_status_is_the_interval_s(model: str, line: str) -> None:
    asked = f"memory {model} --hardware h100-sxm-80gb {line} --json"
    outcome = run_line(f"{asked} --must-fit")
    values = outcome.values
    if values["memory/high"] <= values["memory/capacity"]:
        assert (outcome.data["verdict"], outcome.status) == ("fits", 0)
    else:
        assert (outcome.data["verdict"], outcome.status) in (("does not fit", 1), ("too close to call", 4))
    if outcome.status == 1:
        assert values["memory/used"] > values["memory/capacity"]
    for row in outcome.data.get("suggestions", []):
        again = run_line(f"{asked} {row['change']} --must-fit")
        assert (again.data["verdict"], again.status) == ("fits", 0)
        assert again.values["memory/used"] == pytest.approx(row["used"])
        assert again.values["memory/high"] <= again.values["memory/capacity"]


LORA: dict[str, Any] = {"tuned": "lora"}


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2", "gemma3-4b"])
@pytest.mark.parametrize("frozen", [{}, {"frozen": 5}, {"asleep": "vision"}, LORA], ids=str)
def test_the_states_of_the_mean_stage_are_those_of_a_single_one(name: str, frozen: dict[str, Any]) -> None:
    """What rules a layout out without running it counts frozen parts as they are stored, and no more."""
    model = preset(name)
    if "asleep" in frozen and model.vision is None:
        pytest.skip("has no vision tower")
    setup = setup_of(model)
    if frozen == LORA:
        setup = replace(setup, implementation=replace(setup.implementation, tuning=Tuning("lora", 8, 0.0)))
    if model.vision is not None:
        setup = replace(setup, tower=model.vision.implementation)
    setup = replace(setup, **frozen) if frozen != LORA else setup
    (rank,) = ranks(model, setup)
    assert least_states(model, setup) == rank.parameters + rank.gradients + sum(size for _, size in rank.states)
    several = changed(setup, pp=2)
    most = max(one.parameters + one.gradients + sum(size for _, size in one.states) for one in ranks(model, several))
    assert least_states(model, several) <= most

"""What a compiler that plans the memory of a whole step keeps, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from napkin.evidence.software.scripts import scripts_of
from napkin.footprint.allocator import COMMUNICATION, CONTEXT
from napkin.footprint.gathers import cast_bytes
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Rank
from napkin.footprint.stages import Stage, in_flight
from napkin.planning.search import search
from napkin.planning.verdicts import figures_of, used_bytes
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup
from tests.conftest import preset
from tests.test_plan import planner_of

ONEFLOW = FRAMEWORKS["oneflow"]
H, LAYERS, V = 768, 12, 50_257
LAYER = 12 * H * H + 13 * H
N = LAYERS * LAYER + (V + 1024) * H + 2 * H
"""GPT-2: 124,439,808 parameters, the head tied to the table."""
COUNTERS = 4 * (12 * LAYERS + 4) + 4
"""An fp32 counter of steps for each of 148 tensors, and the loss."""


def setup_of(**layout: int) -> Setup:
    plain = planner_of("gpt2 --gpus 1 --hardware v100 --framework oneflow").request.setup
    return replace(plain, layout=replace(plain.layout, **layout))


def rank_on(setup: Setup) -> Rank:
    return rank_of(prepare(preset("gpt2"), setup), 0)


def stepping(rank: Rank) -> int:
    """Return the bytes that are live in the optimizer step, without the inputs."""
    return int(rank.moments[-1].live - rank.moments[-1].inputs)


@pytest.mark.parametrize(
    ("layout", "gradients", "step"),
    [
        ({"dp": 1}, 6, 18),
        ({"dp": 8}, 6, 18),
        ({"tp": 1, "dp": 1, "micro_batches": 4}, 6, 18),
    ],
)
def test_copies_of_gradients_have_memory_of_their_own(layout: dict[str, int], gradients: int, step: int) -> None:
    """fp32 weights and two states, 16-bit gradients, and their fp32 copies, which a chain of its own holds."""
    rank = rank_on(setup_of(**layout))
    assert rank.parameters == 4 * N
    assert rank.gradients == gradients * N
    assert sum(size for _, size in rank.states) == pytest.approx(8 * N, abs=COUNTERS)
    assert stepping(rank) == pytest.approx(step * N, abs=COUNTERS)


def test_copies_of_gradients_share_memory_with_the_passes_where_ranks_communicate_in_them() -> None:
    """With several tensor-parallel ranks and one micro-batch: the copies, 4 bytes, are only in the optimizer step."""
    rank = rank_on(setup_of(tp=2))
    held = rank.weights.all
    assert N / 2 < held < 0.51 * N
    assert (rank.parameters, rank.gradients) == (4 * held, 2 * held)
    assert stepping(rank) == pytest.approx((4 + 8 + 2 + 4) * held, abs=COUNTERS)
    again = rank_on(setup_of(tp=2, micro_batches=2))
    assert again.gradients == (2 + 4) * held


def test_gradients_in_fp32_are_not_copied() -> None:
    rank = rank_on(replace(setup_of(), precision=POLICIES["fp32"]))
    assert rank.gradients == 4 * N
    assert stepping(rank) == pytest.approx(16 * N, abs=COUNTERS)


@pytest.mark.parametrize(
    ("policy", "parts"),
    [("fp16-mixed", ("fp32", "fp16", "fp16", None)), ("amp-fp16", ("fp32", "fp16", "fp16", None))],
)
def test_weights_are_fp32_and_cast(policy: str, parts: tuple[str | None, ...]) -> None:
    made = ONEFLOW.formats(POLICIES[policy])
    assert (made.param, made.grad, made.compute, made.master) == parts


def test_a_checkpointed_layer_casts_its_weights_again() -> None:
    """All 16-bit copies live until the backward pass; with checkpoints, those outside the layers and one layer's."""

    def casts(recompute: str) -> int:
        setup = setup_of()
        setup = replace(setup, layout=replace(setup.layout, recompute=Recompute(recompute)))
        loss = next(one for one in rank_on(setup).moments if one.name == "loss")
        return int(dict(loss.made["temporaries"])["gathered"])

    assert casts("none") == 2 * N
    assert casts("full") == 2 * (N - (LAYERS - 1) * LAYER)


@pytest.mark.parametrize(
    ("checkpointed", "elements"),
    [
        ((0, 0), 100 + 3 * 10 + 2 * 20 + 1000),
        ((2, 0), 100 + 1 * 10 + 2 * 20 + 1000 + 10),
        ((3, 1), 100 + 0 * 10 + 1 * 20 + 1000 + 20),
    ],
)
def test_of_checkpointed_layers_the_largest_is_cast_at_a_time(checkpointed: tuple[int, int], elements: int) -> None:
    """An embedding of 100 weights, three layers of 10, two of 20 and a head of 1,000, in 2 bytes."""
    step = SimpleNamespace(
        run=SimpleNamespace(layers=(None, None)), setup=SimpleNamespace(precision=POLICIES["fp16-mixed"])
    )
    parts = [(count, LocalWeights(size, 0)) for count, size in ((1, 100), (3, 10), (2, 20), (1, 1000))]
    stage = SimpleNamespace(checkpointed=checkpointed)
    assert cast_bytes(cast(PreparedStep, step), cast(Stage, stage), parts) == 2 * elements


@pytest.mark.parametrize(("micro_batches", "held"), [(1, [1, 1, 1, 1]), (2, [8, 8, 8, 1]), (32, [8, 8, 8, 1])])
def test_stages_have_buffers_of_twice_as_many_micro_batches_as_stages(micro_batches: int, held: list[int]) -> None:
    """Of what the backward pass needs of the forward pass; none on the last stage, and none without accumulation."""
    layout = Layout(seq=1, pp=4, micro_batches=micro_batches)
    assert [in_flight(layout, index, planned=True) for index in range(4)] == [(n, 1, 0) for n in held]


@pytest.mark.parametrize(
    ("layout", "communicators"), [({}, 0), ({"dp": 8}, 1), ({"tp": 8}, 1), ({"tp": 4, "dp": 2}, 2), ({"pp": 4}, 0)]
)
def test_no_cache_and_communicators_of_operations_alone(layout: dict[str, int], communicators: int) -> None:
    setup = setup_of(**layout)
    rank = rank_on(setup)
    found = figures_of(setup, rank.live, rank.flow(setup))
    assert found.reserved.value == found.allocated.value
    assert found.used.value - found.reserved.value == CONTEXT.value + communicators * COMMUNICATION.value


def test_an_unstated_stage_of_zero_is_none() -> None:
    assert scripts_of(ONEFLOW).whole_states
    assert not scripts_of(FRAMEWORKS["megatron"]).whole_states


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_plans_take_the_same_memory(recompute: str) -> None:
    """Layouts evaluated together agree with each alone."""
    planner = planner_of(
        f"gpt2 --gpus 16 --hardware v100 --framework oneflow --seq 1024 --global-batch 64 --recompute {recompute}"
    )
    found = search(planner.on(16), planner.timed, float("inf"))
    assert len(found) > 20
    for i in range(0, len(found), 7):
        setup = replace(planner.request.setup, layout=found.layout(i))
        assert found.used[i] == pytest.approx(used_bytes(planner.request.model, setup), rel=1e-12)

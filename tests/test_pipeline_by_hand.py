"""Stages of a pipeline by hand: which layers each holds, what is in flight, which of them are looked at.

The small decoders are those of test_states_by_hand.py."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from napkin.footprint.memory import rank_of
from napkin.footprint.rows import Rows
from napkin.footprint.stages import bounds, in_flight, places, shares, shares_by_cost
from napkin.operations.model import Model
from napkin.planning.enlarge import with_layers
from napkin.record import replace
from napkin.training.framework import COST, EVEN, FRONT, SLOTS
from napkin.training.layout import Layout
from napkin.training.recomputation import Recompute
from tests.conftest import model
from tests.test_states_by_hand import (
    DENSE,
    HEADS,
    KV,
    LAYER,
    LLAMA,
    SPARSE,
    TABLE,
    D,
    F,
    H,
    L,
    S,
    V,
    rank,
    setup_of,
    step_of,
)


@pytest.mark.parametrize(
    ("partition", "depth", "stages", "layers"),
    [
        (EVEN, 10, 4, [3, 3, 2, 2]),
        (EVEN, 8, 4, [2, 2, 2, 2]),
        (FRONT, 10, 4, [3, 3, 3, 1]),
        (FRONT, 5, 4, [2, 2, 1, 0]),
        (SLOTS, 10, 4, [2, 3, 3, 2]),  # twelve places, the first the embedding's, the last the head's
        (SLOTS, 12, 4, [3, 4, 3, 2]),
        # a head of 3 and 10 layers of 2: shares of 23/4 weights end in the layers 3, 6 and 9
        (COST, 10, 4, [3, 3, 3, 1]),
    ],
)
def test_layers_of_each_stage(partition: str, depth: int, stages: int, layers: list[int]) -> None:
    found = [
        shares_by_cost(depth, stages, i, 2, 3) if partition == COST else shares(depth, stages, i, partition)
        for i in range(stages)
    ]
    assert [high - low for low, high in found] == layers
    assert found[0][0] == 0
    assert found[-1][1] == depth
    assert all(a[1] == b[0] for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("layout", "held"),
    [
        ({"pp": 4, "micro_batches": 8}, [(4, 1, 0), (3, 1, 0), (2, 1, 0), (1, 1, 0)]),
        ({"pp": 4, "micro_batches": 2}, [(2, 1, 0), (2, 1, 0), (2, 1, 0), (1, 1, 0)]),
        ({"pp": 4, "micro_batches": 3, "schedule": "gpipe"}, [(3, 1, 0)] * 4),
        # 2(p − i − 1) + (v − 1)p + 1 chunks of v
        ({"pp": 4, "vp": 2, "micro_batches": 8}, [(11, 2, 0), (9, 2, 0), (7, 2, 0), (5, 2, 0)]),
        ({"pp": 4, "vp": 2, "micro_batches": 4}, [(8, 2, 0), (8, 2, 0), (7, 2, 0), (5, 2, 0)]),
        ({"pp": 4, "micro_batches": 8, "schedule": "zero-bubble"}, [(4, 1, 0), (3, 1, 1), (2, 1, 2), (1, 1, 3)]),
        ({"pp": 4, "micro_batches": 3, "schedule": "zero-bubble"}, [(3, 1, 0), (3, 1, 0), (2, 1, 1), (1, 1, 2)]),
    ],
)
def test_what_is_in_flight_on_each_stage(layout: dict[str, Any], held: list[tuple[int, int, int]]) -> None:
    """Narayanan et al. 2021; Qi et al. 2023, section 2."""
    assert [in_flight(Layout(S, **layout), i) for i in range(4)] == held


def test_the_ends_of_a_pipeline() -> None:
    found = [rank(DENSE, pp=4, index=i).stage for i in range(4)]
    assert [(one.low, one.high, one.first, one.last) for one in found] == [
        (0, 1, 1, 0),
        (1, 2, 0, 0),
        (2, 3, 0, 0),
        (3, 4, 0, 1),
    ]
    cost = [rank(DENSE, "nanotron", pp=2, index=i).stage for i in range(2)]
    # a layer's matrices, 4 of them, and the head: the first stage ends in the layer that brings it above one half
    layer, share = LAYER - 2 * H, (L * (LAYER - 2 * H) + TABLE) / 2
    first = next(n for n in range(1, L + 1) if n * layer > share)
    assert [sum(one.layers) for one in cost] == [first, L - first]


# --- stages that are looked at ---

SMALL = {
    "hidden_size": H, "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": F,
    "vocab_size": V, "head_dim": D, "max_position_embeddings": 4096,
}  # fmt: skip


def windowed(types: str) -> Model:
    """A decoder whose layers see a window (w) or everything (f)."""
    names = {"w": "sliding_attention", "f": "full_attention"}
    return model(
        **SMALL, model_type="gemma3_text", num_hidden_layers=len(types), sliding_window=16,
        layer_types=[names[one] for one in types],
    )  # fmt: skip


DENSE_12 = with_layers(DENSE, 12)
LOOKED = [("wwf" * 6, p) for p in (2, 3, 4, 5, 6, 7, 9)] + [
    ("www" + "f" * 13, 4),
    ("f" + "wf" * 10, 5),
    ("wwwwwf" * 4, 6),
]


@pytest.mark.parametrize(("types", "p"), LOOKED)
@pytest.mark.parametrize("framework", ["plain", "megatron-deepspeed"])
def test_of_stages_that_hold_the_same_the_first_is_looked_at(types: str, p: int, framework: str) -> None:
    """Both ends, and of those between that have the same layers the first, which has the most micro-batches in flight.
    Under a zero-bubble schedule the last as well."""
    step = step_of(windowed(types), framework, pp=p, micro_batches=p)
    held = [types[int(low) : int(high)] for low, high in (bounds(step, i) for i in range(p))]
    assert sum(map(len, held)) == len(types)
    firsts = {next(i for i in range(1, p - 1) if held[i] == one) for one in held[1:-1]}
    assert set(places(step)) == {0, p - 1} | firsts
    late = step_of(windowed(types), framework, pp=p, micro_batches=p, schedule="zero-bubble")
    assert set(places(late)) >= {0, p - 1} | firsts | {p - 2 - held[-2:0:-1].index(one) for one in held[1:-1]}


def test_of_equal_layers_both_ends_of_each_run_of_stages_are_looked_at() -> None:
    """One, five of two, and one: the first two and the last two of the five."""
    step = step_of(DENSE_12, pp=7, micro_batches=7, stages=((1, 1), (5, 2), (1, 1)))
    assert set(places(step)) == {0, 1, 2, 4, 5, 6}
    alone = rank_of(step, 1).alone().stage
    assert (alone.chunks, alone.parts, alone.delayed) == (1, 1, 0)


@pytest.mark.parametrize("types", ["wwf" * 4, "w" * 12])
def test_stages_that_are_assigned_by_hand_are_looked_at(types: str) -> None:
    """Runs of one, two and three layers: of each run the first."""
    step = step_of(windowed(types), pp=6, micro_batches=6, stages=((1, 1), (2, 2), (2, 3), (1, 1)))
    assert set(places(step)) >= {0, 1, 3, 5}
    step = step_of(windowed(types), "nanotron", pp=6, micro_batches=6)
    assert set(places(step)) >= {0, 5} | (set(range(6)) if "f" in types else set())


@pytest.mark.parametrize(
    ("types", "stages"),
    [
        ("wwf" * 6, ((2, 1), (4, 3), (2, 2))),
        ("wwf" * 6, ((1, 2), (5, 3), (1, 1))),
        ("w" * 9 + "f" * 9, ((3, 2), (3, 3), (3, 1))),
        ("f" + "wf" * 10, ((3, 1), (3, 4), (3, 2))),
        ("wwwwwf" * 4, ((2, 5), (7, 2))),
        ("ww" + "f" * 10, ((4, 1), (2, 4))),
    ],
)
@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_of_assigned_stages_that_hold_the_same_the_first_is_looked_at(
    types: str, stages: tuple[tuple[int, int], ...], schedule: str
) -> None:
    """Runs of stages of one size: of those that have the same layers the first, under a zero-bubble schedule the last
    as well."""
    p = sum(count for count, _ in stages)
    step = step_of(windowed(types), pp=p, micro_batches=p, stages=stages, schedule=schedule)
    held = [types[int(low) : int(high)] for low, high in (bounds(step, i) for i in range(p))]
    assert [len(one) for one in held] == [size for count, size in stages for _ in range(count)]
    inside = held[1:-1]
    firsts = {1 + inside.index(one) for one in inside}
    lasts = {p - 2 - inside[::-1].index(one) for one in inside}
    assert set(places(step)) >= {0, p - 1} | firsts | (lasts if schedule == "zero-bubble" else set())


# --- layouts evaluated together ---

TIED = model(**LLAMA, tie_word_embeddings=True)
DIVIDED = [(2, 2, 1), (2, 4, 1), (4, 2, 1), (4, 4, 1)]
WHOLE_LAYERS = [(1, 2, 0), (1, 3, 0)]
"""tp, micro-batch and sequence parallelism: what the tape depends on; one tape has rows that run the same."""
DEGREES = list(product((1, 2, 4), (1, 2), (0, 1, 3), (1, 4)))[::3]
"""pp, dp, ZeRO stage and micro-batches."""


@pytest.mark.parametrize(
    ("of", "more"),
    [
        (DENSE, {}),
        (TIED, {}),
        (TIED, {"policy": "amp-bf16", "recompute": Recompute("every", 2)}),
        (TIED, {"in_backward": True}),
        (SPARSE, {"recompute": Recompute("full")}),
        (windowed("wfwf"), {"policy": "fp32"}),
    ],
)
def test_layouts_that_are_evaluated_together_hold_what_each_holds_alone(of: Model, more: dict[str, Any]) -> None:
    """Every pipeline's last stage, of layouts that differ in all that may be an array."""
    for rows in (DIVIDED, WHOLE_LAYERS):
        tp, micro, sp = (np.array(column) for column in zip(*rows, strict=True))
        row = np.arange(len(DEGREES)) % len(rows)
        pp, dp, zero, m = (np.array(column) for column in zip(*DEGREES, strict=True))
        tapes = setup_of(of, tp=tp, micro=micro, sp=sp, **more)
        degrees = {"pp": pp, "dp": dp, "zero": zero, "micro_batches": m}
        of_rows = {"tp": tp[row], "micro": micro[row], "sp": sp[row]}
        setup = replace(tapes, layout=tapes.layout.replaced(**of_rows, **degrees))
        every = rank_of(Rows(of, tapes).step(setup, row), pp - 1)
        for at in range(len(DEGREES)):
            own = {name: int(sizes[at]) for name, sizes in {**of_rows, **degrees}.items()}
            step = step_of(of, **own, **more)
            alone = rank_of(step, own["pp"] - 1)
            assert [entry(one.live, at) for one in every.moments] == [one.live for one in alone.moments], own
            assert entry(every.least, at) == alone.least
            assert entry(every.flow(setup).groups, at) == alone.flow(step.setup).groups


def entry(sizes: Any, at: int) -> float:
    return float(np.broadcast_to(sizes, len(DEGREES))[at])

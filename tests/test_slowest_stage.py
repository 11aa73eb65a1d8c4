"""What the slowest stage of a pipeline holds, by hand: two kinds of layers of 1 and 3 seconds, and a head."""

from __future__ import annotations

import numpy as np
import pytest

from napkin.timing.pipeline import Degrees, LayerRuns, slowest_stage

FIRST_CHEAP = LayerRuns(((6, 0), (6, 1)), (), 2)
CASES = [
    (FIRST_CHEAP, Degrees(1, 1, 12, 12), 2, ([6, 6], 1)),
    (FIRST_CHEAP, Degrees(4, 1, 3, 3), 2, ([0, 3], 1)),
    (LayerRuns(((6, 1), (6, 0)), (), 2), Degrees(4, 1, 3, 3), 2, ([0, 3], 0)),
    (LayerRuns(((6, 1), (6, 0)), (), 2), Degrees(4, 1, 3, 3), 7, ([3, 0], 1)),
    (LayerRuns(((6, 1), (6, 0)), (), 2), Degrees(4, 1, 3, 3), 6, ([3, 0], 1)),  # as long as the first: the head's stage
    (FIRST_CHEAP, Degrees(3, 2, 4, 4), 0, ([2, 2], 1)),  # chunks of 2: layers 0-1 and 6-7, 2-3 and 8-9, 4-5 and 10-11
    (LayerRuns(((1, 0), (11, 1)), (), 2), Degrees(2, 1, 6, 6), 0, ([0, 6], 1)),
    (LayerRuns(((12, 0),), ((5, 1),), 2), Degrees(3, 1, 4, 4), 2, ([4, 5], 0)),  # five others on the first stage
    (FIRST_CHEAP, Degrees(2, 1, 10, 2), 0, ([6, 4], 0)),  # assigned by hand
    (LayerRuns(((4, 0), (4, 1), (4, 0)), (), 2), Degrees(3, 1, 4, 4), 2, ([0, 4], 0)),  # the middle one
    # ten layers, of which the last stage has four: the second one begins with layer 2, so that both have four
    (LayerRuns(((5, 0), (1, 1), (4, 0)), (), 2), Degrees(3, 1, 4, 4), 0, ([3, 1], 0)),
    (LayerRuns(((1, 1), (3, 0)), (), 2), Degrees(2, 1, 5, 4), 0, ([3, 1], 1)),  # more than there are
    # eight layers, of which the last stage has the slow one: the third begins with layer 4 and ends before it
    (LayerRuns(((7, 0), (1, 1)), (), 2), Degrees(4, 1, 3, 1), 0, ([0, 1], 1)),
]


@pytest.mark.parametrize(("order", "degrees", "head", "held"), CASES)
def test_the_slowest_stage_holds(order: LayerRuns, degrees: Degrees, head: int, held: tuple[list[int], int]) -> None:
    assert slowest_stage(order, degrees, (1, 3), head) == held


def test_many_layouts_at_once_are_as_one_by_one() -> None:
    several = [(pp, vp, 12 // pp, 12 // pp) for pp in (1, 2, 3, 4, 6) for vp in (1, 2)]
    columns = Degrees(*(np.array(column, dtype=float) for column in zip(*several, strict=True)))
    counts, head = slowest_stage(FIRST_CHEAP, columns, (1.0, 3.0), 2.0)
    for at, one in enumerate(several):
        assert ([int(count[at]) for count in counts], int(head[at])) == slowest_stage(  # type: ignore[index]
            FIRST_CHEAP, Degrees(*one), (1, 3), 2
        )


def test_models_of_many_depths_at_once_are_as_one_by_one() -> None:
    """As many columns as do not fit one number: their combinations are numbered anew on the way."""
    depths = np.random.default_rng(0).integers(1, 2000, (6, 40)).astype(float)
    several = LayerRuns(tuple((depth, place % 2) for place, depth in enumerate(depths)), (), 2)
    whole = depths.sum(axis=0)
    half = np.ceil(whole / 2)
    counts, head = slowest_stage(several, Degrees(2, 1, half, whole - half), (1.0, 3.0), 5.0)
    for at in range(40):
        order = LayerRuns(tuple((int(depth[at]), place % 2) for place, depth in enumerate(depths)), (), 2)
        one = slowest_stage(order, Degrees(2, 1, int(half[at]), int(whole[at] - half[at])), (1, 3), 5)
        assert ([int(count[at]) for count in counts], int(head[at])) == one  # type: ignore[index]

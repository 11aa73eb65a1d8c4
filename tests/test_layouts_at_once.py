"""Layouts that are evaluated at once, as arrays with one entry each, hold what each holds alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.footprint.rows import Rows
from napkin.operations.model import Model
from napkin.operations.recurrence import Scan
from napkin.record import replace
from napkin.timing.clock import Clock
from napkin.timing.layer_clock import LayerClock
from napkin.timing.step_layout import StepLayout
from napkin.training.setup import Setup
from napkin.training.tasks import ForwardPass
from tests.test_moments_by_hand import OTHER, TIED
from tests.test_states_by_hand import DENSE, setup_of
from tests.unit_step import UNIT

PIPELINES = np.array([1, 2])


def both(of: Model, setup: Setup) -> tuple[Setup, Rows]:
    """The layouts of one stage and of two, and the pass that they have in common."""
    several = replace(setup, layout=setup.layout.replaced(pp=PIPELINES, micro_batches=np.array([2, 2])))
    return several, Rows(of, several)


@pytest.mark.parametrize(
    ("of", "changes"),
    [
        (DENSE, {}),
        (TIED, {}),
        (TIED, {"frozen": 0}),
        (DENSE, {"forwards": (ForwardPass("reference", OTHER, held=True),), "loss": "log-probs"}),
        (DENSE, {"forwards": (ForwardPass("critic", OTHER, held=True, trained=True),), "loss": "log-probs"}),
    ],
)
def test_what_is_live_in_each_of_several_layouts(of: Model, changes: dict[str, Any]) -> None:
    setup = setup_of(of, **changes)
    several, rows = both(of, setup)
    step = rows.step(several, np.array([0, 1]))
    found = memory.with_moments(step, memory.holding(step, 0).alone())
    for at, pp in enumerate(PIPELINES):
        alone = replace(setup, layout=setup.layout.replaced(pp=int(pp), micro_batches=2))
        one = prepare(of, alone)
        rank = memory.with_moments(one, memory.holding(one, 0).alone())
        for together, apart in ((found.live, rank.live), (found.in_passes, rank.in_passes)):
            assert np.broadcast_to(np.asarray(together), (2,))[at] == apart
        for name in ("peak", "end"):
            assert np.broadcast_to(np.asarray(getattr(step.after, name)), (2,))[at] == getattr(one.after, name)


def seconds_of_scan(cp: Any) -> tuple[Any, ...]:
    """Of lightning attention over 512 tokens in chunks of 256: its matmuls forward and backward."""
    own = LayerClock(Clock(UNIT, StepLayout(sequence=512, micro_batch=1, micro_batches=1, cp=cp)), "layer")
    own.gemms(Scan("scan", ("x",), "lightning", 2, 64, 64, chunk=256))
    return tuple(sum(one.value for one in way["matmul"]) for way in (own.forward, own.backward))


def test_only_layouts_with_a_shorter_chunk_run_its_matmuls() -> None:
    """One rank has two whole chunks, one of four a shorter one alone, one of two a whole chunk."""
    ranks = (1, 4, 2)
    together = seconds_of_scan(np.array(ranks))
    for at, cp in enumerate(ranks):
        assert [way[at] for way in together] == pytest.approx(seconds_of_scan(cp))

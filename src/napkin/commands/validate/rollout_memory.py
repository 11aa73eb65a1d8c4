"""Memory per GPU in a reinforcement learning step, for a measured row."""

from __future__ import annotations

from napkin.commands.validate.rollout_question import AskedStep
from napkin.planning.rollout_memory import RolloutFit, Sharing, weigh
from napkin.planning.rollouts import micro_batches, over, scored

TRAINERS_OWN = ("allocated", "reserved")
"""Figures of the trainer's process, which exclude the engine."""


def held_in(asked: AskedStep) -> list[RolloutFit]:
    """Return the memory of each phase over the longest sequences."""
    capacity = asked.hardware.term("capacity", "memory/capacity", "byte")
    setup = scored(over(asked.setup, asked.lengths.most), asked.trainer.scores, asked.lengths.longest)
    sharing = Sharing(asked.engine, asked.trainer.sleeps, asked.away)
    return [
        weigh(asked.model, one, sharing, capacity)
        for one in micro_batches(setup, [asked.lengths], asked.trainer.unpads, asked.tokens)
    ]


def memory_of(fits: list[RolloutFit], what: str, apart: bool) -> tuple[float, float, float]:
    """Return the bytes of a figure (allocated, reserved or used) with their interval. A figure of unstated kind is the
    maximum that the driver shows, with an interval down to what the trainer allocates. apart: the engine has separate
    GPUs, and the figure is from a trainer's GPU."""
    name = what if what in TRAINERS_OWN else "phase/update" if apart else "total"
    path = f"memory/{name}"
    first = fits[0]
    middle = (
        first.terms[path] if name in TRAINERS_OWN else {one.name: one for one in (first.total, *first.phases)}[path]
    )
    least = "memory/allocated" if what not in (*TRAINERS_OWN, "used") else path
    low = min(float(one.ends[least][0]) for one in fits)
    return float(middle.value), low, max(float(one.ends[path][1]) for one in fits)

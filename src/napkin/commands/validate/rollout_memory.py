"""Memory per GPU in a reinforcement learning step, for a measured row."""

from __future__ import annotations

from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollout_memory import RolloutFit, Sharing, weigh
from napkin.planning.rollouts import Engine, micro_batches, over, scored
from napkin.record import record
from napkin.training.setup import Setup
from napkin.training.trainer import Trainer


@record
class AskedStep:
    """A step with certain lengths.

    setup     of the trainer, over sequences of the mean length
    kernel    of attention, as its time takes it
    engine    None if the model itself generates
    tokens    of a micro-batch, 0 where its sequences are given
    counted   torch's figures of the trainer's processes hold the engine's memory
    offloaded states that the trainer moves to the host, if any, while an engine on its GPUs generates
    """

    model: Model
    hardware: Hardware
    trainer: Trainer
    setup: Setup
    kernel: str
    engine: Engine | None
    lengths: RolloutLengths
    tokens: int = 0
    offloaded: tuple[str, ...] = ()
    counted: bool = False

    @property
    def away(self) -> tuple[str, ...]:
        """What the trainer moves to the host while responses are generated."""
        return self.offloaded if self.engine is not None and not self.engine.apart else ()


TRAINERS_OWN = ("allocated", "reserved")
"""Figures of the trainer's process, which exclude an engine in another one."""
Interval = tuple[float, float, float]
"""A value and the ends of its interval."""


def held_in(asked: AskedStep) -> list[RolloutFit]:
    """Return the memory of each phase over the longest sequences."""
    capacity = asked.hardware.term("capacity", "memory/capacity", "byte")
    setup = scored(over(asked.setup, asked.lengths.most), asked.trainer.scores, asked.lengths.longest)
    sharing = Sharing(asked.engine, asked.trainer.sleeps, asked.away)
    return [
        weigh(asked.model, one, sharing, capacity)
        for one in micro_batches(setup, [asked.lengths], asked.trainer.unpads, asked.tokens)
    ]


def counted_in(asked: AskedStep) -> Interval:
    """Return the bytes of the engine in the figures of the trainer's process: none, unless it is `counted` there. The
    room for its largest pass is free while it sleeps, unless torch has kept some of it."""
    if asked.engine is None or asked.engine.apart or not asked.counted:
        return 0.0, 0.0, 0.0
    taken = float(asked.engine.memory(asked.hardware.term("capacity", "memory/capacity", "byte")).value)
    pool = taken - asked.engine.profiled()
    return pool, pool, taken


def memory_of(fits: list[RolloutFit], what: str, apart: bool, counted: Interval) -> Interval:
    """Return the bytes of a figure (allocated, reserved or used) with their interval. A figure of unstated kind is the
    maximum that the driver shows, with an interval down to what the trainer allocates. apart: the engine has separate
    GPUs, and the figure is from a trainer's GPU; counted: the engine's bytes in figures of the trainer's process."""
    name = what if what in TRAINERS_OWN else "phase/update" if apart else "total"
    path = f"memory/{name}"
    first = fits[0]
    middle = (
        first.terms[path] if name in TRAINERS_OWN else {one.name: one for one in (first.total, *first.phases)}[path]
    )
    least = "memory/allocated" if what not in (*TRAINERS_OWN, "used") else path
    low = min(float(one.ends[least][0]) for one in fits)
    value, high = float(middle.value), max(float(one.ends[path][1]) for one in fits)
    if name not in TRAINERS_OWN:
        return value, low, high
    own, least_own, most_own = counted
    return value + own, low + least_own, high + most_own

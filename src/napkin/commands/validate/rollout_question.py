"""A step of a measured reinforcement learning row, as a question."""

from __future__ import annotations

from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollouts import Engine
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

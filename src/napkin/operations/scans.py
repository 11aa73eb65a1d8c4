"""Recurrences on the tape: the kernel or the implementation that runs each kind, and what it is given (mixers.py)."""

from __future__ import annotations

from collections.abc import Callable

from napkin.autograd.tensors import Tensor
from napkin.operations import mixers
from napkin.operations.lowering import Lowering
from napkin.operations.mixers import MixerSizes
from napkin.operations.roles import MIXER_GATE, MIXER_INPUT, SCAN_PARAMETERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


class Recurrence(Protocol):
    """A recurrence over the sequence (recurrence.Scan)."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def doubled(self) -> bool: ...


Read = list[Tensor]
"""What a recurrence reads, in the order of its operation."""


def selective(run: Lowering, op: Recurrence, read: Read, size: MixerSizes) -> Tensor:
    """Run one kernel from the input projection to the output's, or one for the scan only."""
    if run.implementation.mixer == "whole":
        return mixers.inner(run.tape, run.made(MIXER_INPUT).tensor, run.made(SCAN_PARAMETERS).tensor, size)
    u, delta, b, c = read[:4]
    return mixers.selective(
        run.tape, (u, delta, b, c), run.made(MIXER_GATE).tensor, size, turned=not run.program.blocked
    )


def ssd(run: Lowering, op: Recurrence, read: Read, size: MixerSizes) -> Tensor:
    """Run Mamba-2's scan on the slices of its input projection."""
    projected = run.values[run.of_role(MIXER_GATE).reads[0]]
    return mixers.ssd(run.tape, projected.tensor, size, op.name in run.program.normed)


def mlstm(run: Lowering, op: Recurrence, read: Read, size: MixerSizes) -> Tensor:
    """Run the mLSTM, on slices of a fused projection or on tensors of their own."""
    return mixers.mlstm(run.tape, read, size, parts=op.reads[0] in run.program.slices)


SCANS: dict[str, Callable[[Lowering, Recurrence, Read, MixerSizes], Tensor]] = {
    "delta": lambda run, op, read, size: mixers.delta(run.tape, read[0], read[1], read[2], size, op.doubled),
    "kda": lambda run, op, read, size: mixers.kda(run.tape, read[0], read[1], read[2], size),
    "lightning": lambda run, op, read, size: mixers.lightning(run.tape, read[0], size),
    "mlstm": mlstm,
    "rg_lru": lambda run, op, read, size: mixers.rg_lru(run.tape, read[0], read[1], read[2], size),
    "selective": selective,
    "ssd": ssd,
    "wkv": lambda run, op, read, size: mixers.wkv(run.tape, read[0], read[1], size),
}

"""Recurrences on the tape: the kernel or the code that runs each kind, and what it is given (mixers.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from napkin.autograd.tape import Tensor
from napkin.elementwise import ceil_div
from napkin.operations import mixers
from napkin.operations.base import MIXER_GATE, MIXER_INPUT, SCAN_PARAMETERS
from napkin.operations.linear import BlockMatmul
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.mixers import Sizes
from napkin.operations.norms import Norm
from napkin.operations.recurrence import ForgetGate, Scan
from napkin.operations.views import Slice

Read = list[Tensor]
"""What a recurrence reads, in the order of its operation."""


def selective(run: Lowering, op: Scan, read: Read, size: Sizes) -> Tensor:
    """One kernel from the input projection to the output's, or one for the scan alone."""
    if run.code.mixer == "whole":
        return mixers.inner(run.tape, run.made(MIXER_INPUT).tensor, run.made(SCAN_PARAMETERS).tensor, size)
    u, delta, b, c = read[:4]
    by_heads = isinstance(run.of_role(SCAN_PARAMETERS), BlockMatmul)
    return mixers.selective(run.tape, (u, delta, b, c), run.made(MIXER_GATE).tensor, size, turned=not by_heads)


def ssd(run: Lowering, op: Scan, read: Read, size: Sizes) -> Tensor:
    normed = any(isinstance(one, Norm) and op.name in one.reads for one in run.program)
    projected = run.values[run.of_role(MIXER_GATE).reads[0]]
    return mixers.ssd(run.tape, projected.tensor, size, normed)


def mlstm(run: Lowering, op: Scan, read: Read, size: Sizes) -> Tensor:
    parts = any(isinstance(one, Slice) and one.name == op.reads[0] for one in run.program)
    return mixers.mlstm(run.tape, read, size, parts=parts)


KINDS: dict[str, Callable[[Lowering, Any, Read, Sizes], Tensor]] = {
    "delta": lambda run, op, read, size: mixers.delta(run.tape, read[0], read[1], read[2], size, op.doubled),
    "kda": lambda run, op, read, size: mixers.kda(run.tape, read[0], read[1], read[2], size),
    "lightning": lambda run, op, read, size: mixers.lightning(run.tape, read[0], size),
    "mlstm": mlstm,
    "rg_lru": lambda run, op, read, size: mixers.rg_lru(run.tape, read[0], read[1], read[2], size),
    "selective": selective,
    "ssd": ssd,
    "wkv": lambda run, op, read, size: mixers.wkv(run.tape, read[0], read[1], size),
}


def scanned(run: Lowering, op: Any) -> Value:
    """A recurrence, by the kernel or the code that runs it."""
    first = run.read(op)
    ways = run.split.tensor if first.divided else 1
    size = Sizes(run.b, run.own, op.heads // ways, op.head_dim, op.state, ceil_div(op.groups, ways), op.chunk)
    read = [run.read(op, index).tensor for index in range(len(op.reads))]
    run.tape.again = False
    out = KINDS[op.kind](run, op, read, size)
    return Value(out, op.heads * op.head_dim, first.divided, first.whole)


def forget_gate(run: Lowering, op: Any) -> Value:
    """The decays of a recurrence with one for each channel."""
    x = run.read(op)
    ways = run.split.tensor if x.divided else 1
    heads = op.heads // ways
    decays = mixers.forget(run.tape, x.tensor, heads, op.head_dim, op.form)
    if op.narrowed:
        decays = run.tape.cast(decays, "fp32" if run.tape.autocast else run.tape.compute)
    return Value(decays, op.heads * op.head_dim, x.divided, x.whole)


RULES: Rules = {
    ForgetGate: forget_gate,
    Scan: scanned,
}

"""How long the forward pass holds what autograd does not keep: until its last reader has run, or until the variable
that names it goes, with the function that it stands in.

A layer's code is a function for attention, one for the feed-forward network, and the layer around both. Each holds its
argument (the normalised stream) until it returns; attention holds query, key and value, both of query and key as they
were until both are rotated, and hands its weights to the layer, which holds them to its end. Variables that one
expression adds up stand until it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from napkin.autograd.tape import Tape, Tensor
from napkin.operations.attention import AttentionCore, Rotary
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Add


class Scopes:
    """Follows one layer's operations and holds their values on the tape."""

    def __init__(self, tape: Tape, operations: tuple[Operation, ...], inside_layer: bool, late: bool) -> None:
        self.tape = tape
        self.feeding = _feeding(operations)
        self.sums = _sums(operations)
        self.inside_layer = inside_layer
        self.late = late
        self.here: list[Tensor] = []
        self.unrotated: list[Tensor] = []
        self.summed: list[Tensor] = []
        self.to_the_end: list[Tensor] = []

    def enter(self, op: Operation, reads: Iterable[Tensor]) -> None:
        """An operation is about to read its values."""
        if not isinstance(op, Rotary) and self.unrotated:
            self.tape.hold(*self.unrotated)
            self.unrotated = []
        if not self.inside_layer:
            return
        if isinstance(op, Add) or (isinstance(op, Norm) and op.name not in self.feeding):
            self.tape.hold(*self.here)
            self.here = []
        reads = tuple(reads)
        if isinstance(op, Add):
            self.summed += reads
        if isinstance(op, Rotary):
            self.unrotated += reads
        elif isinstance(op, AttentionCore):
            self.here += reads

    def leave(self, op: Operation, made: Tensor) -> None:
        """It has made its value."""
        if self.inside_layer and isinstance(op, Norm) and op.name not in self.feeding:
            self.here.append(made)
        if isinstance(op, Add) and op.name not in self.sums:
            self.tape.hold(*self.summed)
            self.summed = []

    def weights(self, tensor: Tensor) -> None:
        """Attention's weights, which it returns."""
        (self.to_the_end if self.late else self.here).append(tensor)

    def close(self, *tensors: Tensor) -> None:
        """The layer returns."""
        self.tape.hold(*self.here, *self.unrotated, *self.to_the_end, *tensors)


def _sums(operations: tuple[Operation, ...]) -> frozenset[str]:
    """Sums that the addition behind them goes on with, in one expression."""
    pairs = pairwise(operations)
    return frozenset(a.name for a, b in pairs if isinstance(a, Add) and isinstance(b, Add) and a.name in b.reads)


def _feeding(operations: tuple[Operation, ...]) -> frozenset[str]:
    """Operations between attention's products and its core."""
    by_name = {op.name: op for op in operations}
    found: set[str] = set()
    todo = [name for op in operations if isinstance(op, AttentionCore) for name in op.reads]
    while todo:
        op = by_name.get(todo.pop())
        if op is not None and op.name not in found and not isinstance(op, Matmul):
            found.add(op.name)
            todo += op.reads
    return frozenset(found)

"""How long the forward pass holds what autograd does not keep: until its last reader has run, or until the variable
that names it goes, with the function that it stands in.

A layer's code is a function for attention, one for the feed-forward network, and the layer around both. Each holds its
argument (the normalised stream) until it returns; attention holds query, key and value, both of query and key as they
were until both are rotated, and hands its weights to the layer, which holds them to its end. Variables that one
expression adds up stand until it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import Tensor
from napkin.record import record


@record
class ScopeNames:
    """What the scopes of a layer's values depend on, by the names of operations.

    rotations   of queries and keys        cores    of attention
    additions   all of them                partial  sums that the addition behind them goes on with, in one expression
    norms       those of the stream: what attention or the feed-forward network takes as its argument
    """

    rotations: frozenset[str]
    cores: frozenset[str]
    additions: frozenset[str]
    partial: frozenset[str]
    norms: frozenset[str]


class Scopes:
    """Follow one layer's operations and hold their values on the tape."""

    def __init__(self, tape: Tape, names: ScopeNames, inside_layer: bool, late: bool) -> None:
        self.tape = tape
        self.names = names
        self.inside_layer = inside_layer
        self.late = late
        self.here: list[Tensor] = []
        self.unrotated: list[Tensor] = []
        self.summed: list[Tensor] = []
        self.to_the_end: list[Tensor] = []

    def enter(self, name: str, reads: Iterable[Tensor]) -> None:
        """Release what goes out of scope before an operation reads its values."""
        names = self.names
        if name not in names.rotations and self.unrotated:
            self.tape.hold(*self.unrotated)
            self.unrotated = []
        if not self.inside_layer:
            return
        if name in names.additions or name in names.norms:
            self.tape.hold(*self.here)
            self.here = []
        reads = tuple(reads)
        if name in names.additions:
            self.summed += reads
        if name in names.rotations:
            self.unrotated += reads
        elif name in names.cores:
            self.here += reads

    def leave(self, name: str, made: Tensor) -> None:
        """Hold what an operation has made as long as its variable lives."""
        if self.inside_layer and name in self.names.norms:
            self.here.append(made)
        if name in self.names.additions and name not in self.names.partial:
            self.tape.hold(*self.summed)
            self.summed = []

    def weights(self, tensor: Tensor) -> None:
        """Hold attention's weights, which it returns."""
        (self.to_the_end if self.late else self.here).append(tensor)

    def close(self, *tensors: Tensor) -> None:
        """Release everything: the layer returns."""
        self.tape.hold(*self.here, *self.unrotated, *self.to_the_end, *tensors)

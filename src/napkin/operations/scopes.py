"""Track how long the forward pass holds tensors that autograd does not save.

A tensor lives until its last reader has run, or until the local variable that refers to it goes out of scope. A layer's
forward pass is a function for attention, one for the MLP, and the layer around both. Each holds its argument (the
normalized stream) until it returns; attention holds query, key and value, and query and key from before RoPE until both
are rotated, and returns its weights to the layer, which holds them until it returns and may return them in turn.
Operands of one expression live until the expression has been evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import Tensor
from napkin.operations.implementations import ATTENDED, IN_DROPOUT, INNER, SUMMED
from napkin.record import record


@record
class ScopeNames:
    """Names of the operations that begin or end the scope of a local variable.

    rotations  rotary embeddings of queries and keys
    cores      attention cores
    additions  all additions
    partial    additions whose sum the next addition reads, in one expression
    norms      norms of the residual stream, whose output is the argument of attention or the MLP
    forked     those of them that both attention and the MLP read: a variable of the layer, until both are added
    ends       linear layers of attention's result, after which it returns
    lasts      last linear layers of MLPs
    """

    rotations: frozenset[str]
    cores: frozenset[str]
    additions: frozenset[str]
    partial: frozenset[str]
    norms: frozenset[str]
    forked: frozenset[str]
    ends: frozenset[str]
    lasts: frozenset[str]


class Scopes:
    """Follow one layer's operations and hold their values on the tape."""

    def __init__(
        self, tape: Tape, names: ScopeNames, inside_layer: bool, weights_to: str, variables: tuple[str, ...]
    ) -> None:
        self.tape = tape
        self.names = names
        self.inside_layer = inside_layer
        self.weights_to = weights_to
        self.variables = variables
        self.here: list[Tensor] = []
        self.unrotated: list[Tensor] = []
        self.summed: list[Tensor] = []
        self.to_the_end: list[Tensor] = []
        self.given_back: list[Tensor] = []

    def enter(self, name: str, reads: Iterable[Tensor]) -> None:
        """Release variables that go out of scope before an operation reads its inputs."""
        names = self.names
        if name not in names.rotations and self.unrotated:
            self.tape.hold(*self.unrotated)
            self.unrotated = []
        if not self.inside_layer:
            return
        if name in names.norms or (name in names.additions and IN_DROPOUT not in self.variables):
            self.result_is_there()
        reads = tuple(reads)
        if name in names.additions:
            self.summed += reads
            if ATTENDED in self.variables:
                self.to_the_end += reads[1:]
        if name in names.lasts and INNER in self.variables:
            self.to_the_end += reads
        if name in names.rotations:
            self.unrotated += reads
        elif name in names.cores:
            self.here += reads

    def leave(self, name: str, made: Tensor) -> None:
        """Hold an operation's output as long as its variable lives."""
        if self.inside_layer and name in self.names.norms:
            self.here.append(made)
        if name in self.names.ends and IN_DROPOUT not in self.variables:
            self.result_is_there()
        waits = self.inside_layer and SUMMED in self.variables
        if name in self.names.norms if waits else name in self.names.additions and name not in self.names.partial:
            self.tape.hold(*self.summed)
            self.summed = []
        if self.inside_layer and name in self.names.forked:
            self.summed.append(made)

    def result_is_there(self) -> None:
        """Release what the variables of attention or the MLP hold: it returns."""
        self.tape.hold(*self.here)
        self.here = []

    @property
    def returned(self) -> tuple[Tensor, ...]:
        """Return what the layer returns next to the stream."""
        return tuple(self.given_back) if self.weights_to == "loop" else ()

    def local(self, *tensors: Tensor) -> None:
        """Hold tensors that local variables of attention refer to."""
        self.here += tensors

    def until_added(self, *tensors: Tensor) -> None:
        """Hold tensors that variables refer to until the next sum is there."""
        self.summed += tensors

    def weights(self, tensor: Tensor) -> None:
        """Hold attention's weights, which it returns: a second attention of the layer, as a decoder's to its encoder,
        returns its own to the same variable."""
        if self.weights_to == "attention":
            self.here.append(tensor)
            return
        self.tape.hold(*self.given_back)
        self.given_back = [tensor]

    def close(self, *tensors: Tensor) -> None:
        """Release everything: the layer returns."""
        self.tape.hold(*self.here, *self.unrotated, *self.summed, *self.to_the_end, *self.given_back, *tensors)

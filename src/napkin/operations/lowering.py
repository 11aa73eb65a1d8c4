"""What running a layer's operations on a tape needs: one rank's context, and helpers that several kinds share.

What an implementation does differently is in a field of `Implementation` (and, for arithmetic that the published
implementation fixes, on the operation itself); how a layout divides tensors is in `Split`. Each kind of operation says
what it runs in its method `lower`; rewrite.py finds what depends on an operation's neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import INPUT_LABEL, WEIGHT, Tensor, select
from napkin.elementwise import Number, ceil_div, maximum
from napkin.operations.activation_functions import activated
from napkin.operations.implementations import Implementation
from napkin.operations.scopes import ScopeNames, Scopes
from napkin.record import record

ENCODED = "encoder's output"
"""What cross-attention reads: one tensor, which all layers of a decoder share."""


@record
class Split:
    """How one rank's part of a layer is cut: tensor, context and expert parallelism, and sequence parallelism's
    division of what tensor parallelism leaves whole (1 where it is off). `inner`: ranks that each expert's width is
    divided over (expert tensor parallelism)."""

    tensor: Number = 1
    context: Number = 1
    expert: Number = 1
    sequence: Number = 1
    inner: Number = 1

    def sent(self, tokens: Number) -> Number:
        """Tokens whose experts run on a rank, of the `tokens` that it holds between layers: tensor-parallel ranks
        share them, and those that divide an expert gather theirs (Megatron-core transformer/moe/token_dispatcher.py).
        """
        return ceil_div(tokens * self.sequence * self.inner, self.tensor)


@record
class Shape:
    """One micro-batch: b sequences of s tokens. `source`: tokens of the encoder's sequences, whose output the decoder
    reads; 0 in a network of one stack."""

    sequences: Number
    length: Number
    source: Number = 0


@record
class Value:
    """A tensor in a layer's program: `width` numbers a token before any division; `divided` over tensor-parallel
    ranks; `gathered` holds all tokens of the sequence-parallel group; `heads_first`: a head's tokens lie together."""

    tensor: Tensor
    width: Number
    divided: bool = False
    gathered: bool = False
    heads_first: bool = False


class Readable(Protocol):
    """What reads outputs by their names."""

    @property
    def reads(self) -> tuple[str, ...]: ...


class Lowered(Readable, Protocol):
    """An operation as far as running it on a tape goes (base.Operation)."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    def lower(self, run: Lowering) -> Value: ...


@record
class Program:
    """A layer's operations in the order in which an implementation runs them, and what depends on neighbors.

    windowed   attention with a window is among them      blocked  block-diagonal linear layers are
    gates      activations that run in the kernel of the multiplication that reads them
    merged     operations whose work the kernel before them does
    inside     operations that one kernel of a recurrence runs, and runs again in backward
    slices     (what it is a slice of, its width) of each slice, by name
    relative   scores by distance, which attention adds      normed  what norms read
    shares_position_bias  whether the layers that follow use this one's position bias; None without one
    scopes     how long the functions of a layer's code hold its values (scopes.py)
    """

    operations: tuple[Lowered, ...]
    windowed: bool
    blocked: bool
    gates: frozenset[str]
    merged: frozenset[str]
    inside: frozenset[str]
    slices: Mapping[str, tuple[str, int]]
    relative: tuple[str, ...]
    normed: frozenset[str]
    shares_position_bias: bool | None
    scopes: ScopeNames


class Lowering:
    """Runs operations on a tape for one micro-batch on one rank."""

    def __init__(
        self,
        tape: Tape,
        implementation: Implementation,
        shape: Shape,
        split: Split,
        attention: str,
        dropout: float,
        selective: bool = False,
    ) -> None:
        self.tape = tape
        self.implementation = implementation
        self.split = split
        self.attention = attention
        self.dropout = dropout
        self.selective = selective
        self.stack = 0
        self.over(shape)
        self.tables: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self.orders: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self.factor: Tensor | None = None
        self.own_tables: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self.masks: dict[str, Tensor] = {}
        self.copies: dict[int, dict[str, Tensor]] = {}
        self.bias: Tensor | None = None
        self.zeros: Tensor | None = None
        self.distances: Tensor | None = None
        self.routers: Number = 0
        self.derived: dict[int, Tensor] = {}
        self.values: dict[str, Value] = {}
        self.shared_tensors: dict[str, Value] = {}
        self.gathered: dict[int, Tensor] = {}

    # --- the program ---

    def over(self, shape: Shape) -> None:
        """What runs from here on runs over these tokens: another stack's, with rotary tables of its own."""
        self.stack += 1
        self.b = shape.sequences
        self.s = shape.length
        self.own = shape.length // self.split.context
        self.tokens = self.b * self.own
        self.source = shape.source
        self.encoded: Tensor | None = None
        self.memory = ""

    def reads_encoder(self, name: str, width: Number, dtype: str) -> None:
        """The encoder's output, which the layers that follow share and read by this name."""
        self.memory = name
        self.encoded = self.tape.given(self.b * (self.source // self.split.context) * width, dtype, ENCODED)
        self.encoded.places[0][1].shared = True

    def run(self, program: Program, x: Value | None) -> Value:
        """Run a program's operations in order and return the last one's output."""
        self.values = {**self.shared_tensors} if x is None else {**self.shared_tensors, "x": x}
        if x is not None and self.encoded is not None:
            self.values[self.memory] = Value(self.encoded, x.width, gathered=True)
        self.program = program
        self.gathered = {}
        self.own_tables = {}
        self.factor = None
        self.orders = {}
        self.derived = {}
        self.scopes = Scopes(self.tape, program.scopes, x is not None, self.implementation.weights_late)
        for op in program.operations:
            self.tape.scope = op.name
            self.scopes.enter(op.name, [self.values[name].tensor for name in op.reads if name in self.values])
            if op.name in program.merged:  # the kernel before does its work
                self.values[op.name] = self.read(op)
                continue
            self.tape.again = op.name in program.inside
            self.values[op.name] = op.lower(self)
            self.tape.again = False
            self.scopes.leave(op.name, self.values[op.name].tensor)
        self.scopes.close(*(value.tensor for value in (x,) if value is not None))
        return self.values[program.operations[-1].name]

    def read(self, op: Readable, index: int = 0) -> Value:
        return self.values[op.reads[index]]

    def of_role(self, role: str) -> Lowered:
        """The operation of this layer that has a role, which one has."""
        return next(op for op in self.program.operations if op.role == role)

    def made(self, role: str) -> Value:
        """What the operation with a role has made."""
        return self.values[self.of_role(role).name]

    def residual(self, width: Number, dtype: str) -> Value:
        """A layer's input: the residual stream."""
        count = self.tokens // self.split.sequence * width
        return Value(self.tape.given(count, dtype, INPUT_LABEL), width)

    def gather_sequence(self, x: Value) -> Tensor:
        """All tokens of the sequence-parallel group, gathered into a new tensor; itself where there is none."""
        n = self.split.sequence
        there = self.gathered.get(id(x.tensor))
        if there is not None:  # every product that reads a tensor shares its gathered form
            return there
        whole = self.tape.new(x.tensor.count * n, x.tensor.dtype, "gathered")
        gathered = select(n == 1, x.tensor, whole)
        if gathered is not x.tensor:
            self.tape.record("all_gather", (x.tensor,), gathered)
        self.gathered[id(x.tensor)] = gathered
        return gathered

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """The sum over tensor-parallel ranks, one part of the tokens on each with sequence parallelism."""
        n = self.split.sequence
        part = self.tape.new(x.count // n, x.dtype, "reduced")
        reduced = select(n == 1, x, part)
        return self.tape.record("reduce_scatter", (x,), reduced) if reduced is not x else x

    def gather_parts(self, x: Value) -> Value:
        """The parts of all tensor-parallel ranks, gathered; itself where nothing is divided."""
        t = self.split.tensor
        whole = self.tape.new(x.tensor.count * t, x.tensor.dtype, "gathered")
        gathered = select(t == 1, x.tensor, whole)
        if gathered is not x.tensor:
            self.tape.record("all_gather", (x.tensor,), gathered)
        return Value(gathered, x.width, False, True)

    def rows_of(self, how: str) -> Number:
        """Rows of a table of ids or angles: one a sequence, or one for all."""
        return self.b if how in ("each", "learned") or (how == "source" and not self.source) else 1

    def by_heads(self, x: Tensor) -> Tensor:
        """The tensor laid out by heads: one copy for all that read it."""
        x = self.tape.lowered(x)
        if id(x) not in self.derived:
            self.derived[id(x)] = self.tape.copy(x, "by heads")
        return self.derived[id(x)]

    def over_constant(self, x: Tensor) -> Tensor:
        """x divided by a constant that is a tensor."""
        return self.tape.multiply(x, self.tape.new(1, x.dtype, "constant", fixed=True), "divided")

    def made_of(self, names: tuple[str, ...]) -> Tensor | None:
        """The tensor that the named outputs are slices of, where they are all of it."""
        slices = self.program.slices
        if any(name not in slices for name in names) or len({slices[name][0] for name in names}) > 1:
            return None
        source = self.values[slices[names[0]][0]]
        return source.tensor if sum(slices[name][1] for name in names) == source.width else None

    def fp32_weight(self, count: Number) -> Tensor:
        """A small weight that the classes store in fp32 whatever the rest is in."""
        return self.tape.given(count, "fp32", "weight", kind=WEIGHT)

    def capped(self, x: Tensor) -> Tensor:
        """cap·tanh(x/cap)."""
        return self.tape.scale(self.tape.tanh(self.tape.scale(x)))

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """activation(gate)·up of one kernel, which keeps both."""
        out = self.tape.new(up.count, up.dtype, "gated")
        return self.tape.record("swiglu", (gate, up), out, (gate, up))

    def activated(self, x: Tensor, function: str) -> Tensor:
        """The non-linearity that config.json names."""
        return activated(self.tape, self.implementation, x, function, self.weight)

    def weight(self, count: Number) -> Tensor:
        """A learned vector, as it is stored."""
        stored = "fp32" if self.tape.autocast else self.tape.compute
        tuning = self.implementation.tuning
        frozen = tuning is not None and tuning.method != "adapter_v2"
        return self.tape.given(count, stored, "weight", kind=WEIGHT, fixed=frozen)


def either(first: Number, second: Number) -> Number:
    """Whether one of the conditions holds, entry by entry."""
    return maximum(first * 1, second * 1) == 1

"""Run a layer's operations on a tape: the state of one rank, and shared helpers.

Differences between implementations are fields of `Implementation` (arithmetic that the published model fixes is on the
operation itself); how a layout divides tensors is in `Split` (shapes.py). Each operation records what it runs in its
method `lower`; rewrite.py handles what depends on an operation's neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import MADE_AGAIN, WEIGHT, Storage, Tensor, select
from napkin.elementwise import Number, is_zero, maximum
from napkin.operations.activation_functions import activated
from napkin.operations.implementations import OVERWRITES, Implementation
from napkin.operations.roles import LM_HEAD
from napkin.operations.scopes import ScopeNames, Scopes
from napkin.operations.shapes import Shape, Split, Value
from napkin.operations.stack_inputs import StackInputs
from napkin.operations.work import Learning
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


class Readable(Protocol):
    """Anything that reads outputs by name."""

    @property
    def reads(self) -> tuple[str, ...]: ...


class Lowered(Readable, Protocol):
    """The interface of base.Operation for running it on a tape."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def short(self) -> str: ...
    @property
    def learning(self) -> Learning: ...
    def normalizes(self) -> bool: ...
    def owner(self) -> object: ...
    def lower(self, run: Lowering) -> Value: ...


@record
class Program:
    """A layer's operations in execution order, and facts that depend on their neighbors.

    windowed   has attention with a window        blocked  has block-diagonal linear layers
    gates      activations fused into the multiplication that reads them
    merged     operations fused into the kernel before them
    inside     operations that the fused kernel of a recurrence runs, and recomputes in backward
    slices     (what it is a slice of, its width) of each slice, by name
    rotated_first  rotary embeddings that the same function runs as the next one (query and key), by name: that one
    relative   relative-position scores, which attention adds      normed  inputs of norms
    shares_position_bias  whether the following layers use this one's position bias; None without one
    scopes     how long local variables of the layer's forward functions hold its values (scopes.py)
    """

    operations: tuple[Lowered, ...]
    windowed: bool
    blocked: bool
    gates: frozenset[str]
    merged: frozenset[str]
    inside: frozenset[str]
    slices: Mapping[str, tuple[str, int]]
    rotated_first: Mapping[str, Lowered]
    relative: tuple[str, ...]
    normed: frozenset[str]
    shares_position_bias: bool | None
    scopes: ScopeNames


class Lowering(StackInputs):
    """Runs operations on a tape for one micro-batch on one rank."""

    def __init__(
        self,
        tape: Tape,
        implementation: Implementation,
        shape: Shape,
        split: Split,
        attention: str,
        dropout: float,
        modules: tuple[str, ...] = (),
    ) -> None:
        super().__init__(tape, implementation, shape, split)
        self.attention = attention
        self.dropout = dropout
        self.modules = modules
        """What is recomputed by itself (recomputed_parts.py)."""
        self.inner: dict[str, tuple[int, int, int]] = {}
        """Nodes of the part of an operation that can be, by name: first, one after the last, and one after the last
        that reads its result."""
        self.tables: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}
        self.orders: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self.factor: Tensor | None = None
        self.own_tables: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}
        self.masks: dict[str, Tensor] = {}
        self.copies: dict[int, dict[str, Tensor]] = {}
        self.bias: Tensor | None = None
        self.zeros: Tensor | None = None
        self.undivided: Number = 0
        self.spread: dict[tuple[int, int], Number] = {}
        self.distances: Tensor | None = None
        self.routers: Number = 0
        self.derived: dict[int, Tensor] = {}
        self.raised: dict[str, Tensor] = {}
        """Tensors cast to fp32 for rotary embeddings that have not run yet, by name."""
        self.uncast: list[Callable[[], None]] = []
        """Outputs of rotary embeddings that are still to be cast back."""
        self.scores: list[Callable[[], tuple[Tensor, ...]]] = []
        """What attention makes itself, after its own scores: scores of positions, and what else their function's
        variables hold."""
        self.values: dict[str, Value] = {}
        self.shared_tensors: dict[str, Value] = {}
        self.gathered: dict[int, Tensor] = {}
        self.handed: frozenset[str] = frozenset()
        self.starts: dict[str, int] = {}
        self.cast: set[int] = set()
        """Operations with a weight that autocast has copied, by identity."""
        self.reused: Mapping[int, bool] = {}
        """Operations of layers whose weights others read too, by identity: whether these are in other layers."""

    # --- the program ---

    def shared_values(self) -> tuple[Storage, ...]:
        """Return the storages that operations share with all later layers, each once."""
        places = (place for value in self.shared_tensors.values() for place in value.tensor.storages)
        return tuple({id(storage): storage for _, storage in places}.values())

    def shared_storages(self) -> tuple[Storage, ...]:
        """Return the same, including the zeros in place of position biases."""
        shares = self.zeros is not None and self.zeros.storage.shared
        return (*self.shared_values(), *((self.zeros.storage,) if shares and self.zeros is not None else ()))

    def _score(self, head: Lowered) -> None:
        """Restrict the head's input to the tokens with logits, as transformers' classes do (logits_to_keep)."""
        whole = self.tokens
        self.score()
        for name in head.reads:
            value = self.values[name]
            part = self.tape.slice(value.tensor, value.tensor.count // whole * self.tokens, apart=True)
            part.rows_apart = not (self.tape.autocast and part.dtype == "fp32")  # a cast lays them together
            self.values[name] = replace(value, tensor=part)

    def run(self, program: Program, x: Value | None) -> Value:
        """Run a program's operations in order and return the last one's output; x if there is none."""
        self._begin(program, x)
        for op in program.operations:
            if op.role == LM_HEAD and self.scored:
                self._score(op)
            self._run_one(op)
        if x is None:
            self.handed = frozenset(self.shared_tensors)
        self.scopes.close(*(value.tensor for value in (x,) if value is not None))
        values = (self.values[op.name] for op in reversed(program.operations))
        made = next((value for value in values if self._is_stream(value)), x)
        assert made is not None  # a network begins with an embedding
        return made

    def _begin(self, program: Program, x: Value | None) -> None:
        """Forget what the last program computed, and give this one its inputs."""
        self.values = {**self.shared_tensors} if x is None else {**self.shared_tensors, "x": x}
        if x is None:
            self.handed = frozenset()
        self.arguments = {}
        self.starts = {}
        self.inner = {}
        if x is not None and self.encoded is not None:
            self.values[self.memory] = Value(self.encoded, x.width, gathered=True)
            self.takes(self.encoded)
        for given in self.passed.values():
            self.takes(given)
        self.program = program
        self.gathered = {}
        self.own_tables = {}
        self.factor = None
        self.orders = {}
        self.derived = {}
        self.raised = {}
        self.scores = []
        held = self.implementation.weights_to, self.implementation.variables
        self.scopes = Scopes(self.tape, program.scopes, x is not None, *held)

    def _run_one(self, op: Lowered) -> None:
        """Run one operation of the program, unless the kernel before it does its work."""
        self.tape.scope = op.name
        self.starts[op.name] = len(self.tape.nodes)
        for name in op.reads:
            if name in self.handed:
                self.takes(self.values[name].tensor)
        self.scopes.enter(op.name, [self.values[name].tensor for name in op.reads if name in self.values])
        if op.name in self.program.merged:
            self.values[op.name] = self.read(op)
            return
        self.tape.recomputed = op.name in self.program.inside
        self.tape.frozen = self.freezes(op)
        self.values[op.name] = op.lower(self)
        if any(not is_zero(node.uncast_weight) for node in self.tape.nodes[self.starts[op.name] :]):
            self.cast.add(id(op))
        self._name_weights(op)
        self.tape.frozen = False
        self.tape.recomputed = False
        self.scopes.leave(op.name, self.values[op.name].tensor)

    def _is_stream(self, value: Value) -> bool:
        """Return whether a value can be the input of what follows: it is not a table of distances."""
        return value.tensor is not self.distances and value.tensor.storage.kind != WEIGHT

    def _name_weights(self, op: Lowered) -> None:
        """Assign keys to the weights of an operation that other operations share."""
        owner = id(op.owner())
        if owner in self.reused:
            weighing = (node for node in self.tape.nodes[self.starts[op.name] :] if not is_zero(node.weight))
            for number, node in enumerate(weighing):
                node.of, node.elsewhere = (owner, number), self.reused[owner]
                node.one_copy, node.completes = owner in self.cast, owner == id(op)

    def freezes(self, op: Lowered) -> bool:
        """Return whether an operation's own weights get no gradient: those of frozen layers, all next to adapters, but
        norms in adapter_v2."""
        tuning = self.implementation.tuning
        if tuning is None:
            return not op.learning.trained
        return not (tuning.affine and op.normalizes()) and not tuning.saves(op.role, op.module)

    def read(self, op: Readable, index: int = 0) -> Value:
        return self.values[op.reads[index]]

    def of_role(self, role: str) -> Lowered:
        """Return the layer's only operation with a role."""
        return next(op for op in self.program.operations if op.role == role)

    def made(self, role: str) -> Value:
        """Return the output of the layer's operation with a role."""
        return self.values[self.of_role(role).name]

    def gather_sequence(self, x: Value) -> Tensor:
        """All-gather the tokens of the sequence-parallel group; return the tensor itself without sequence
        parallelism."""
        if id(x.tensor) not in self.gathered:  # all linear layers that read a tensor share its gathered copy
            self.gathered[id(x.tensor)] = self.all_gather(x.tensor, self.split.sequence)
        return self.gathered[id(x.tensor)]

    def all_gather(self, x: Tensor, ranks: Number) -> Tensor:
        """Return the parts of all ranks; the tensor itself if there is one."""
        gathered = select(ranks == 1, x, self.tape.new(x.count * ranks, x.dtype, "gathered"))
        return self.tape.record("all_gather", (x,), gathered) if gathered is not x else x

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """Return the sum over tensor-parallel ranks; with sequence parallelism each rank gets its part of the
        tokens."""
        n = self.split.sequence
        part = self.tape.new(x.count // n, x.dtype, "reduced")
        reduced = select(n == 1, x, part)
        return self.tape.record("reduce_scatter", (x,), reduced) if reduced is not x else x

    def gather_parts(self, x: Value) -> Value:
        """All-gather the parts of all tensor-parallel ranks; return the tensor itself without tensor parallelism."""
        return Value(self.all_gather(x.tensor, self.split.tensor), x.width, False, True)

    def made_of(self, names: tuple[str, ...]) -> Tensor | None:
        """Return the tensor that the named outputs are slices of, if they cover it."""
        slices = self.program.slices
        if any(name not in slices for name in names) or len({slices[name][0] for name in names}) > 1:
            return None
        source = self.values[slices[names[0]][0]]
        return source.tensor if sum(slices[name][1] for name in names) == source.width else None

    def fp32_weight(self, count: Number) -> Tensor:
        """Return a small weight that is stored in fp32 in every precision."""
        return self.tape.given(count, "fp32", "weight", kind=WEIGHT, no_grad=self.tape.frozen)

    def capped(self, x: Tensor) -> Tensor:
        """Return cap·tanh(x/cap)."""
        return self.tape.scale(self.tape.tanh(self.tape.scale(x)))

    def gated(self, gate: Tensor, up: Tensor, dense: bool = False) -> Tensor:
        """Return activation(gate)·up by one kernel, which saves both, and whose backward may write their gradients over
        them, and in a dense layer its result over its gradient."""
        out = self.tape.new(up.count, up.dtype, "gated")
        if dense and self.implementation.swiglu == "remade":
            out.storage.kind = MADE_AGAIN
        over = gate.size + up.size if self.implementation.swiglu in OVERWRITES else 0
        return self.tape.record("swiglu", (gate, up), out, (gate, up), scratch=-over)

    def activated(self, x: Tensor, function: str) -> Tensor:
        """Apply the activation that config.json names."""
        return activated(self.tape, self.implementation, x, function, self.weight)

    def weight(self, count: Number) -> Tensor:
        """Return a learned vector in its stored dtype."""
        stored = "fp32" if self.tape.autocast else self.tape.compute
        return self.tape.given(count, stored, "weight", kind=WEIGHT, no_grad=self.tape.frozen)


def either(first: Number, second: Number) -> Number:
    """Return whether either condition holds, elementwise."""
    return maximum(first * 1, second * 1) == 1

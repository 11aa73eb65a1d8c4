"""What a training step keeps for backward, to the byte: a model's operations run on a tape, layer by layer.

Bytes are unique storages that autograd saves; parameters, buffers and the step's own inputs (token ids, labels) are not
counted. Exact for the named versions of the code (implementations.py), checked against saved-tensor hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from napkin.elementwise import Number, ceil_div, where
from napkin.formulas.implementations import Code
from napkin.formulas.layer import Layer, Model, Stack
from napkin.formulas.lowering import Lowering, Shape, Split, Value
from napkin.formulas.tape import ACTIVATION, BYTES, INPUT, WEIGHT_COPY, Node, Storage, Tape


@dataclass(frozen=True, slots=True)
class Numerics:
    """Types of a step: `compute` is what layers run in without autocast; `autocast` lowers fp32 layers to it."""

    compute: str
    autocast: str = ""


@dataclass(frozen=True, slots=True)
class Recompute:
    """Which blocks keep only their input. `every` k: blocks 0, k, 2k, …; `group` k: one input for each run of k."""

    mode: str = "none"
    size: int = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """What one piece of a model (a layer, or what stands before or after the layers) leaves for backward.

    saved   bytes of its own storages       casts   bytes of autocast's weight copies
    shared  storages that other layers keep too (rotary tables)
    kept    every storage, for a listing    nodes   its primitives, for the live bytes and the traffic
    input   bytes of the residual stream that it reads
    """

    name: str
    saved: Number
    casts: Number
    shared: tuple[Storage, ...]
    kept: tuple[Storage, ...]
    nodes: tuple[Node, ...]
    input: Number


@dataclass(frozen=True, slots=True)
class Pass:
    """One micro-batch's forward pass through the whole model on one rank."""

    before: Piece
    layers: tuple[tuple[int, Piece], ...]
    after: Piece
    logits: Number
    labels: Number


def piece(name: str, tape: Tape, start: int, first: int, input_bytes: Number) -> Piece:
    """What was put on the tape since it held `start` storages and `first` nodes."""
    kept = tuple(tape.kept[start:])
    own = [s for s in kept if not s.shared]
    return Piece(
        name,
        total(s.size * s.kept for s in own if s.kind == ACTIVATION),
        total(s.size * s.kept for s in own if s.kind == WEIGHT_COPY),
        tuple(s for s in kept if s.shared),
        kept,
        tuple(tape.nodes[first:]),
        input_bytes,
    )


def total(values: Iterable[Number]) -> Number:
    result: Number = 0
    for value in values:
        result = result + value
    return result


def forward(
    model: Model,
    stack: Stack,
    code: Code,
    shape: Shape,
    split: Split,
    numerics: Numerics,
    attention: str,
    dropout: float,
    selective: bool = False,
    loss: str = "plain",
) -> Pass:
    """Run a stack once on a tape: what stands before the layers, each kind of layer once, the head and the loss."""
    tape = Tape(numerics.compute, numerics.autocast)
    lowering = Lowering(tape, code, shape, split, attention, dropout, selective)
    x = lowering.run(stack.before, None)
    before = piece("before", tape, 0, 0, 0)
    layers = []
    width, dtype = model.hidden, x.tensor.dtype
    for count, layer in stack.runs:
        layers.append((count, one_layer(lowering, layer, width, dtype)))
    start, first = len(tape.kept), len(tape.nodes)
    residual = lowering.residual(width, dtype)
    logits = lowering.run(stack.after, residual)
    sizes = cross_entropy(lowering, logits)
    after = piece("after", tape, start, first, residual.tensor.size)
    return Pass(before, tuple(layers), after, *sizes)


def one_layer(lowering: Lowering, layer: Layer, width: int, dtype: str) -> Piece:
    tape = Tape(lowering.tape.compute, lowering.tape.autocast)
    outer, lowering.tape = lowering.tape, tape
    x = lowering.residual(width, dtype)
    lowering.run(layer.operations, x)
    lowering.tape = outer
    return piece(layer.kind, tape, 0, 0, x.tensor.size)


def cross_entropy(lowering: Lowering, logits: Value) -> tuple[Number, Number]:
    """log-softmax, kept in the type of its input, and the negative log-likelihood, which keeps labels and the weight
    of all tokens. Returns bytes of the logits and of the model's own copy of the labels."""
    tape, code = lowering.tape, lowering.code
    tape.scope = "loss"
    if logits.divided and not code.parallel_loss:
        logits = lowering.joined(logits)
    wide = tape.cast(logits.tensor, "fp32") if code.wide_loss else tape.raised(logits.tensor)
    out = tape.softmax(wide)
    tokens = lowering.tokens
    labels: Number = 0
    if code.shifted:
        # a single sequence's shifted labels are a view of the padded ones, one longer
        labels = where(lowering.b == 1, (lowering.own + 1), tokens) * BYTES["int64"]
        target = tape.new(tokens, "int64", "labels", fixed=True)
        target.places[0][1].size = labels
    else:
        target = tape.given(tokens, "int64", "labels", kind=INPUT, fixed=True)
    weight = tape.new(1, out.dtype, "weight of all tokens", fixed=True)
    tape.record("nll_loss", (out,), tape.new(1, out.dtype, "loss"), (target, weight))
    return logits.tensor.size, labels


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes kept for backward between forward and backward of one micro-batch, and how many layers keep what."""

    layers: Number
    outside: Number
    casts: Number
    whole: int
    checkpoints: int

    @property
    def all(self) -> Number:
        return self.layers + self.outside


def saved(run: Pass, recompute: Recompute) -> Saved:
    """Fold a pass into its saved bytes under a recomputation policy."""
    depth = sum(count for count, _ in run.layers)
    whole = whole_layers(run, recompute)
    kept_whole = sum(n for n, _ in whole)
    checkpointed = depth - kept_whole
    layers = total(n * p.saved for n, p in whole)
    casts = run.before.casts + run.after.casts + total(n * p.casts for n, p in whole)
    inputs = 0
    if checkpointed:
        held = ceil_div(depth, recompute.size) if recompute.mode == "group" else checkpointed
        inputs = held
        layers = layers + held * run.layers[0][1].input
    shared: list[Storage] = []
    for _, p in (*whole, (1, run.before), (1, run.after)):
        shared += [s for s in p.shared if not any(s is other for other in shared)]
    outside = run.before.saved + run.after.saved + total(s.size * s.kept for s in shared)
    return Saved(layers, outside, casts, kept_whole, inputs)


def whole_layers(run: Pass, recompute: Recompute) -> list[tuple[int, Piece]]:
    """The layers that keep everything, as runs."""
    if recompute.mode in ("none", "selective"):
        return list(run.layers)
    if recompute.mode in ("full", "group"):
        return []
    first = 0
    result = []
    for count, p in run.layers:
        # blocks 0, k, 2k, … are checkpointed: those of this run that are not
        checkpointed = ceil_div(first + count, recompute.size) - ceil_div(first, recompute.size)
        if count > checkpointed:
            result.append((count - checkpointed, p))
        first += count
    return result

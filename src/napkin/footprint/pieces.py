"""What one piece of a model, and a pass through all of it, keeps for backward; sizes in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin.autograd.forward_peaks import forward_peaks
from napkin.autograd.tape import Tape
from napkin.autograd.tensors import ACTIVATION, INPUT_LABEL, WEIGHT_COPY, Node, Storage
from napkin.elementwise import Number, total
from napkin.operations.model import Layer, Numbered
from napkin.record import record, replace


@record
class Piece:
    """What one piece of a model (a layer, or the operations before or after the layers) keeps for backward, in bytes.

    saved    its own storages
    casts    autocast's copies of its weights
    shared   storages that other layers keep too (rotary tables)
    kept     every storage, for a listing
    nodes    its primitives, for the live bytes and the traffic
    input    the residual stream that it reads
    recomputed  those of its own storages that it computes itself (all but its input)
    chosen   what recomputation by operations keeps: the outputs of attention and of every second linear layer, in the
             order of the calls (torchtitan, apply_ac with mode selective and option op)
    burst    the peak of its forward pass, with its input and what it has kept so far
    dropped  the same where nothing is kept
    anew     the same where it is recomputed, until all that is kept is there, with the gradients that are there already
    made     storages that it makes and others share: it makes them anew where it is recomputed
    leaf     bytes of the zeros that it reads in place of position biases and that a gradient reaches
    biases   autocast's copies of biases, which its cache holds to the end of the forward pass
    arguments  storages that the layer is called with next to its input, which its checkpoint keeps: those that all
             layers share
    carried  bytes of those that are its own
    rest     bytes of what it keeps beyond its checkpointed block
    rest_casts  those of autocast's copies of the weights there
    masks    bytes of the causal masks that it reads, by what tells them apart
    returned what it returns next to the stream, which lives until the next layer returns
    remembers  bytes that its modules refer to until they run again
    leaks    bytes that the graphs of these tensors save where the layer was recomputed: no backward pass frees them
    lent     bytes that the graphs of what it shares in a mapping save where it was recomputed: the layers' checkpoints
             refer to the mapping until none of them is left
    block    how many of its nodes its checkpointed block has
    delayed  what the gradients of weights need where they are computed apart from those of activations: the input of
             each linear layer and its output's gradient (Qi et al. 2023, arXiv:2401.10241, table 1: 32·T·h of a GPT
             layer)
    """

    name: str
    saved: Number
    casts: Number
    shared: tuple[Storage, ...]
    kept: tuple[Storage, ...]
    nodes: tuple[Node, ...]
    input: Number
    recomputed: Number
    chosen: Number
    burst: Number
    dropped: Number
    anew: Number
    biases: Number
    delayed: Number
    arguments: tuple[Storage, ...] = ()
    carried: Number = 0
    rest: Number = 0
    rest_casts: Number = 0
    masks: tuple[tuple[object, Number], ...] = ()
    returned: tuple[Storage, ...] = ()
    made: tuple[Storage, ...] = ()
    leaf: Number = 0
    remembers: Number = 0
    leaks: Number = 0
    lent: Number = 0
    block: int = 0

    @property
    def stashed(self) -> Number:
        """Bytes that the layer keeps where it is checkpointed, in addition to what it shares with others."""
        return self.input + self.carried + self.rest


@record
class Pass:
    """The forward pass of one micro-batch through the complete model on one rank; sizes in bytes.

    layers    for each layer type, how many there are and what one of them keeps
    kinds     the layer of each type
    patterns  the order of the layers, types by index
    closure   what checkpointed layers refer to and autograd does not hold: positions, slopes
    tables    rotary tables, which checkpointed layers refer to as well
    held_logits  those that the training loop holds until the backward pass is over
    loss      the loss, which the training loop holds until the step is over
    embedded  embeddings that the model's forward function holds and autograd does not keep
    stream    the first tensor of the residual stream, where the forward function holds it that way
    leaf      the tokens' embeddings where they are not part of the stream: a leaf where they require a gradient
    final     the most that the final norm holds, with its input
    first     the part of the residual stream's first tensor that the operations before the layers keep
    zeros     the bias of attention to the encoder that its layers share: a leaf that requires a gradient where layers
              are checkpointed, so that it outlives the backward pass with its gradient
    undivided  bytes of a head's gradient that lives as long as another of which it is a part
    shared_tensors  what layers share: the forward function holds it while they run, and checkpoints refer to it
    """

    before: Piece
    layers: tuple[tuple[int, Piece], ...]
    after: Piece
    kinds: tuple[Layer, ...]
    patterns: tuple[Numbered, ...]
    closure: Number
    tables: tuple[Storage, ...]
    held_logits: Number
    loss: Number
    embedded: Number
    stream: Number
    leaf: Number
    final: Number
    first: Number
    zeros: Number
    undivided: Number
    shared_tensors: tuple[Storage, ...]


def piece(name: str, tape: Tape, start: int, first: int, input_bytes: Number) -> Piece:
    """Return what the tape recorded after its first `start` storages and its first `first` nodes."""
    kept = tuple(tape.kept[start:])
    own = [s for s in kept if not s.shared]
    nodes = tuple(tape.nodes[first:])
    holds = [(number - first, tensor) for number, tensor in tape.holds if number >= first]
    burst, dropped, anew = (input_bytes + peak for peak in forward_peaks(nodes, holds))
    return Piece(
        name,
        total(s.size * s.kept for s in own if s.kind == ACTIVATION),
        total(s.size * s.kept for s in own if s.kind == WEIGHT_COPY),
        tuple(s for s in kept if s.shared),
        kept,
        nodes,
        input_bytes,
        total(s.size * s.kept for s in own if s.label != INPUT_LABEL),
        chosen_of(nodes),
        burst,
        dropped,
        anew,
        total(node.cached for node in nodes),
        delayed_of(nodes),
    )


MATMULS = ("linear", "grouped_mm", "bmm")
"""Primitives whose weight gradients can be computed later."""


def delayed_of(nodes: Iterable[Node]) -> Number:
    """Return the bytes of the inputs of linear layers, each storage once, and of their outputs' gradients."""
    inputs: dict[int, Number] = {}
    gradients: Number = 0
    for node in nodes:
        if node.name in MATMULS and not (isinstance(node.weight, int) and node.weight == 0):
            gradients = gradients + node.output.size
            inputs |= {id(s): s.size * kept for kept, s in node.kept if s.kind != WEIGHT_COPY}
    return gradients + total(inputs.values())


def chosen_of(nodes: Iterable[Node]) -> Number:
    """Return the bytes of the outputs of attention (with their log-sum-exp) and of linear layers 1, 3, 5, and so on."""
    size: Number = 0
    linears = 0
    for node in nodes:
        if node.name == "linear":
            linears += 1
            size = size + node.output.size * (linears % 2)
        elif node.name == "attention":
            read = {id(storage) for x in node.inputs for _, storage in x.storages}
            size = size + total(s.size * s.kept for _, s in node.kept if id(s) not in read)
    return size


def saved_upstream(nodes: Sequence[Node], ends: Iterable[int]) -> tuple[Storage, ...]:
    """Return the storages of its own that the graph of some nodes' results saves."""
    before: list[list[int]] = []
    makers: dict[int, int] = {}  # of what runs in place, the last so far
    for number, node in enumerate(nodes):
        before.append([makers[id(x.root)] for x in node.inputs if id(x.root) in makers])
        makers[id(node.output.root)] = number
    todo, seen = list(ends), set[int]()
    while todo:
        number = todo.pop()
        if number not in seen:
            seen.add(number)
            todo += before[number]
    found = {id(s): s for number in seen for _, s in nodes[number].kept if not s.shared}
    return tuple(found.values())


def unread(made: Piece) -> Piece:
    """Return a layer whose result nothing reads: it runs, and no gradient reaches it."""
    nothing: tuple[object, ...] = ()
    changes = dict.fromkeys(("kept", "nodes", "shared", "arguments", "masks", "returned", "made"), nothing)
    sizes = dict.fromkeys(
        (
            "leaks",
            "lent",
            "saved",
            "casts",
            "recomputed",
            "chosen",
            "carried",
            "rest",
            "rest_casts",
            "delayed",
            "input",
        ),
        0,
    )
    return replace(made, burst=made.dropped, **changes, **sizes)

"""What a section of a model, and the forward pass through all sections, saves for the backward pass, in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin.autograd.forward_peaks import forward_peaks
from napkin.autograd.tape import Tape
from napkin.autograd.tensors import ACTIVATION, INPUT_LABEL, REMADE, WEIGHT_COPY, Node, Storage, Tensor
from napkin.elementwise import Number, total
from napkin.operations.model import Layer, Numbered
from napkin.record import record, replace


@record
class Section:
    """What one section of a model saves for the backward pass. A section is a layer, or the operations before or after
    the layers. Sizes are in bytes, for one micro-batch.

    saved    storages of this section only
    casts    autocast's copies of its weights
    shared   storages that other layers save as well (rotary tables)
    kept     every storage, for a listing
    nodes    its primitives, from which live bytes and memory traffic follow
    input    the residual stream that it reads
    recomputed  the part of `saved` that it computes itself (all but its input)
    chosen   what operation-level recomputation saves: the outputs of attention and of every second linear layer, in
             call order (torchtitan, apply_ac with mode selective and option op)
    burst    peak of its forward pass, including its input and what it has saved so far
    dropped  the same if nothing is saved
    anew     the same during recomputation, up to the last saved tensor, with the gradients that already exist
    made     shared storages that it computes; it computes them again during recomputation
    leaf     the zeros that it reads in place of position biases, if they require a gradient
    biases   autocast's copies of biases, which its cache holds until the end of the forward pass
    arguments  arguments of the layer, besides its input, that its checkpoint saves and all layers share
    carried  arguments that only this layer has
    rest     what it saves outside its checkpointed block
    rest_casts  autocast's copies of the weights outside that block
    masks    causal masks that it reads, as (key that identifies the mask, bytes)
    returned outputs other than the residual stream, which live until the next layer returns
    remembers  what its modules hold a reference to until they run again
    leaks    what the graphs of those tensors save after a recomputation; no backward pass frees it
    mapped   what the graphs of tensors shared through a mapping save after a recomputation; the checkpoints of the
             layers hold the mapping until the last of them is freed
    held     streams next to its input that variables hold while it runs forward
    argument of the module that it is in, if it does not save its input: the class holds it until that module returns
    waits    gradients of streams next to its input that wait while it runs backward
    waiting  the tensors among its own that have a gradient before it runs backward
    block    number of its nodes that are inside its checkpointed block
    delayed  what weight gradients need if they are computed separately from activation gradients: the input of each
             linear layer and the gradient of its output (Qi et al. 2023, arXiv:2401.10241, table 1: 32·T·h for a GPT
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
    mapped: Number = 0
    held: Number = 0
    argument: Number = 0
    waits: Number = 0
    waiting: tuple[Tensor, ...] = ()
    block: int = 0

    @property
    def stashed(self) -> Number:
        """Bytes that the layer saves if it is checkpointed, in addition to what layers share."""
        return self.input + self.carried + self.rest


@record
class Pass:
    """The forward pass of one micro-batch through the complete model on one rank; sizes in bytes.

    before    the operations before the layers
    layers    for each layer type, the number of layers and the section of one of them
    after     the operations after the layers
    kinds     the layer of each type
    patterns  the order of the layers, types by index
    closure   tensors that checkpointed layers refer to and autograd does not save: positions, slopes
    tables    rotary tables, which checkpointed layers refer to as well
    held_logits  logits that the training loop holds until the backward pass ends
    loss      the loss, which the training loop holds until the step ends
    embedded  embeddings that the model's forward function holds and autograd does not save
    stream    the first tensor of the residual stream, if the forward function holds it
    leaf      token embeddings that are not part of the residual stream, if they are a leaf that requires a gradient
    final     peak of the final norm, including its input
    first     the part of the first tensor of the residual stream that the operations before the layers save
    zeros     the shared bias of cross-attention; in checkpointed layers it is a leaf that requires a gradient, so it
              and its gradient outlive the backward pass
    undivided  a head's gradient that is a view of a larger one and so lives as long as that
    shared_tensors  tensors that layers share; the forward function holds them while the layers run, and checkpoints
              refer to them
    memory    an encoder's output, which the decoder's layers share
    """

    before: Section
    layers: tuple[tuple[int, Section], ...]
    after: Section
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
    zeros: Storage | None
    undivided: Number
    shared_tensors: tuple[Storage, ...]
    memory: Storage | None


def section(name: str, tape: Tape, start: int, first: int, input_bytes: Number, prunes: bool = False) -> Section:
    """Return the section that the tape recorded after its first `start` storages and its first `first` nodes. prunes:
    what recomputation by operations saves is what a gradient needs (implementations.py)."""
    kept = tuple(s for s in tape.kept[start:] if s.kind != REMADE)
    own = [s for s in kept if not s.shared]
    nodes = tuple(tape.nodes[first:])
    holds = [(number - first, tensor) for number, tensor in tape.holds if number >= first]
    burst, dropped, anew = (input_bytes + peak for peak in forward_peaks(nodes, holds))
    return Section(
        name,
        total(s.saved for s in own if s.kind == ACTIVATION),
        total(s.saved for s in own if s.kind == WEIGHT_COPY),
        tuple(s for s in kept if s.shared),
        kept,
        nodes,
        input_bytes,
        total(s.size * s.kept for s in kept if s.own(again=True) and s.label != INPUT_LABEL),
        chosen_of(nodes, prunes),
        burst,
        dropped,
        anew,
        total(node.cached for node in nodes),
        delayed_of(nodes),
    )


MATMULS = ("linear", "grouped_mm", "bmm")
"""Primitives whose weight gradients can be computed later."""


def delayed_of(nodes: Iterable[Node]) -> Number:
    """Return the bytes of the inputs of linear layers (each storage once) and of the gradients of their outputs."""
    inputs: dict[int, Number] = {}
    gradients: Number = 0
    for node in nodes:
        if node.name in MATMULS and not (isinstance(node.weight, int) and node.weight == 0):
            gradients = gradients + node.output.size
            inputs |= {id(s): s.size * kept for kept, s in node.kept if s.kind != WEIGHT_COPY}
    return gradients + total(inputs.values())


def chosen_of(nodes: Sequence[Node], prunes: bool = False) -> Number:
    """Return the bytes of the outputs of attention (with their log-sum-exp) and of linear layers 1, 3, 5, and so on;
    where the compiler prunes, of those of which anything that a gradient needs is made."""
    size: Number = 0
    linears = 0
    for place, node in enumerate(nodes):
        if node.name == "linear":
            linears += 1
            if linears % 2 and (not prunes or is_needed(nodes, place)):
                size = size + node.output.size
        elif node.name == "attention":
            read = {id(storage) for x in node.inputs for _, storage in x.storages}
            size = size + total(s.saved for _, s in node.kept if id(s) not in read)
    return size


def is_needed(nodes: Sequence[Node], place: int) -> bool:
    """Return whether a later node saves something that is made of a node's output."""
    made = {id(nodes[place].output.root)}
    for node in nodes[place + 1 :]:
        if any(id(x.root) in made for x in node.inputs):
            if any(not storage.shared for _, storage in node.kept):
                return True
            made.add(id(node.output.root))
    return False


def saved_upstream(nodes: Sequence[Node], ends: Iterable[int]) -> tuple[Storage, ...]:
    """Return the unshared storages that the graph behind some nodes saves; ends: the indices of these nodes."""
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


def unread(made: Section) -> Section:
    """Return the section of a layer whose output is unused: it runs, and no gradient reaches it."""
    nothing: tuple[object, ...] = ()
    changes = dict.fromkeys(("kept", "nodes", "shared", "arguments", "masks", "returned", "made"), nothing)
    sizes = dict.fromkeys(
        (
            "leaks",
            "mapped",
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

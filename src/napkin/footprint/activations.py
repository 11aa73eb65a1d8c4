"""What a training step keeps for backward, to the byte: a model's operations run on a tape, layer by layer.

Bytes are those of unique storages that autograd saves, without parameters, buffers and the step's inputs (token ids,
labels). Exact for the named versions of the implementations (implementations.py), checked with saved-tensor hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

from napkin.autograd.live import before_recomputation, forward_peak, forward_peaks
from napkin.autograd.tape import Tape
from napkin.autograd.tensors import ACTIVATION, BYTES, INPUT, INPUT_LABEL, WEIGHT_COPY, Node, Storage, Tensor, sized
from napkin.elementwise import Number, ceil_div, minimum, where
from napkin.errors import Refused
from napkin.footprint.legs import Leg
from napkin.operations.attention_kernels import cuts_keys, is_masked
from napkin.operations.base import Operation
from napkin.operations.facts import POSITION_SCORES
from napkin.operations.implementations import ALIBI, ALWAYS, EAGER
from napkin.operations.losses import LOSSES, Loss
from napkin.operations.lowering import Lowering, Value
from napkin.operations.model import Layer, Numbered, Stack
from napkin.operations.rewrite import rewrite
from napkin.operations.roles import LAYERS, LM_HEAD, MEMORY
from napkin.record import record, replace
from napkin.training.precision import Precision
from napkin.training.recomputation import Recompute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
    masks    bytes of the causal masks that it reads, by what tells them apart
    returned what it returns next to the stream, which lives until the next layer returns
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
    chosen: Number = 0
    burst: Number = 0
    dropped: Number = 0
    anew: Number = 0
    biases: Number = 0
    delayed: Number = 0
    arguments: tuple[Storage, ...] = ()
    carried: Number = 0
    rest: Number = 0
    masks: tuple[tuple[object, Number], ...] = ()
    returned: tuple[Storage, ...] = ()
    made: tuple[Storage, ...] = ()
    leaf: Number = 0

    @property
    def stashed(self) -> Number:
        """Bytes that the layer keeps where it is checkpointed, beside what it shares with others."""
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
    held_logits: Number = 0
    loss: Number = 0
    embedded: Number = 0
    stream: Number = 0
    final: Number = 0
    first: Number = 0
    zeros: Number = 0
    undivided: Number = 0
    shared_tensors: tuple[Storage, ...] = ()


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


def tape_for(precision: Precision) -> Tape:
    """Return an empty tape: layers run in the parameters' dtype, or in fp32 under autocast; 8-bit matmuls keep 8-bit
    inputs."""
    autocast = precision.compute if precision.autocast else ""
    if autocast and autocast not in BYTES:
        autocast = "bf16"
    narrow = precision.compute if precision.compute not in ("fp32", "tf32", "bf16", "fp16") else ""
    # 8- and 4-bit parameters are operands of matmuls; norms, sums and the residual stream stay in 16 bits
    stored = {"tf32": "fp32"}.get(precision.param, precision.param)
    return Tape(stored if stored in ("fp32", "bf16", "fp16") else "bf16", autocast, narrow)


def total(values: Iterable[Number]) -> Number:
    """Return the sum of numbers or arrays."""
    result: Number = 0
    for value in values:
        if value.__class__ is not int or value:
            result = result + value if result.__class__ is not int or result else value
    return result


def forward(
    stack: Stack,
    legs: list[Leg],
    precision: Precision,
    attention: str,
    dropout: float,
    selective: bool = False,
    begins: bool = False,
) -> Pass:
    """Run a stack once on a tape: what stands before the layers, each kind of layer once, the head and the loss. Each
    of its stretches runs over its own sequences. `begins`: no gradient reaches what follows the layers."""
    tape = tape_for(precision)
    first = legs[0]
    lowering = Lowering(tape, first.implementation, first.shape, first.split, attention, dropout, selective)
    made = _run_before(lowering, legs)
    before = piece("before", tape, 0, 0, 0)
    x = made[0] if first.encodes else next(value for value in reversed(made) if value is not None)
    assert x is not None  # a network begins with an embedding
    looked_up = stack.before if first.encodes else next(leg.before for leg in reversed(legs) if leg.before)
    embedded, stream = _embedded(lowering, looked_up, x)
    kept_there = total(s.size * minimum(s.kept, weight) for weight, s in x.tensor.storages)
    layers, kinds, patterns, width, dtype = _run_layers(lowering, stack, legs, made)
    start, node = len(tape.kept), len(tape.nodes)
    residual = lowering.residual(width, dtype)
    residual.tensor.no_grad = begins
    lowering.routers = total(n for _, n, layer in stack.kinds() if any(op.gives_logits() for op in layer.operations))
    kept_on = _run_head(lowering, stack, residual)
    after = piece("after", tape, start, node, residual.tensor.size)
    closure, tables = _closure(lowering, stack)
    order = tuple(kinds), tuple(patterns)
    products = [number for number, one in enumerate(after.nodes) if one.name in ("linear", "frozen")]
    holds = [(number - node, tensor) for number, tensor in tape.holds if number >= node]
    final = after.input + forward_peak(after.nodes[: products[0]] if products else after.nodes, holds)
    held = body_output(stack) == STREAM or any(s.label == INPUT_LABEL for s in after.kept)
    gone = where(held, 0, after.input)  # the stream, once it is normalized
    after = replace(after, burst=after.burst - gone)
    shared_tensors = lowering.shared_values()
    return Pass(
        before,
        tuple(layers),
        after,
        *order,
        closure=closure,
        tables=tables,
        held_logits=kept_on,
        loss=tape.nodes[-1].output.size,
        embedded=embedded,
        stream=stream,
        final=final,
        first=kept_there,
        zeros=0 if lowering.zeros is None else lowering.zeros.size * lowering.zeros.storage.shared,
        undivided=lowering.undivided,
        shared_tensors=shared_tensors,
    )


def _run_before(lowering: Lowering, legs: list[Leg]) -> list[Value | None]:
    """Run what precedes the layers of each stretch, one after the other; return what each makes of it. Of a stretch in
    which nothing is trained the tape keeps nothing."""
    made: list[Value | None] = []
    tape = lowering.tape
    for leg in legs:
        if len(legs) > 1:
            lowering.over(leg.shape, leg.implementation, leg.split)
        reads = made[-1] if made and not legs[len(made) - 1].patterns else None
        lowering.tape = tape.fresh() if leg.asleep else tape
        made.append(lowering.run(rewrite(leg.before, leg.implementation), reads) if leg.before else reads)
        lowering.tape = tape
    return made


def _run_layers(
    lowering: Lowering, stack: Stack, legs: list[Leg], made: list[Value | None]
) -> tuple[list[tuple[int, Piece]], list[Layer], list[Numbered], Number, str]:
    """Run each layer type once; return (how many, one of them), the types, their order, and the residual stream's width
    and dtype after them. `made`: what precedes the layers of each stretch."""
    known: dict[tuple[int, str], tuple[int, Piece, str]] = {}  # each layer type is lowered once
    kinds: list[Layer] = []
    patterns: list[Numbered] = []
    remaining = iter(stack.patterns)
    width: Number = 0
    dtype, encodes = "", False
    for leg, x in zip(legs, made, strict=True):
        if len(legs) > 1:
            lowering.over(leg.shape, leg.implementation, leg.split)
        if encodes:
            lowering.reads_encoder(MEMORY, width, dtype)
        if x is not None:
            width, dtype = x.width, dtype if encodes else x.tensor.dtype
        elif leg.width:
            width = width * leg.width
        encodes = leg.encodes
        for times, runs in (next(remaining) for _ in range(leg.patterns)):
            while times:
                begin, block = dtype, []
                for count, layer in runs:
                    while count:
                        key = (id(layer), dtype)
                        if key not in known:
                            one, then = one_layer(lowering, layer, width, dtype)
                            known[key] = (len(kinds), unread(one) if leg.idle else one, then)
                            kinds.append(layer)
                        kind, _, dtype = known[key]
                        same = count if dtype == key[1] else 1  # what follows may read the stream in another type
                        block.append((same, kind))
                        count -= same
                same = times if dtype == begin else 1
                patterns.append((same, tuple(block)))
                times -= same
    pieces = {kind: one for kind, one, _ in known.values()}
    layers = [(count, pieces[kind]) for kind, count in counted(patterns).items()]
    return layers, kinds, patterns, width, dtype


def _run_head(lowering: Lowering, stack: Stack, residual: Value) -> Number:
    """Run what follows the layers, and the loss; return the bytes of logits that the training loop keeps."""
    form = LOSSES.get(lowering.implementation.loss)
    kept_on: Number = 0
    if form is not None and form.fused:
        fused_loss(lowering, stack.after, residual)
    else:
        logits = lowering.run(rewrite(stack.after, lowering.implementation), residual)
        if form is None:
            cross_entropy(lowering, logits, lowering.values[body_output(stack)].tensor)
        else:
            special_loss(lowering, logits, form)
            kept_on = int(form.held) * logits.tensor.count
    return kept_on


def counted(patterns: Iterable[Numbered]) -> dict[int, int]:
    """Return how many layers there are of each type, by its index."""
    counts: dict[int, int] = {}
    for times, runs in patterns:
        for count, kind in runs:
            counts[kind] = counts.get(kind, 0) + times * count
    return dict(sorted(counts.items()))


def _embedded(lowering: Lowering, operations: Iterable[Operation], x: Value) -> tuple[Number, Number]:
    """Return the bytes of embeddings that the forward function holds, and those that are the residual stream."""
    if not lowering.implementation.embeddings:
        return 0, 0
    held: dict[str, Tensor] = {}
    for op in operations:
        if op.name not in lowering.values:  # of the encoder, whose own variables are gone
            continue
        if op.embeds() not in ("", LAYERS):  # which their sum replaces
            held[op.name] = lowering.values[op.name].tensor
        elif op.replaces() in held:
            held[op.replaces()] = lowering.values[op.name].tensor
    own = {id(storage) for _, storage in x.tensor.storages}
    others = (place for tensor in held.values() for place in tensor.storages if id(place[1]) not in own)
    stream = any(id(storage) in own for tensor in held.values() for _, storage in tensor.storages)
    return total(s.size * (weight - minimum(s.kept, weight)) for weight, s in others), x.tensor.size * stream


def _closure(lowering: Lowering, stack: Stack) -> tuple[Number, tuple[Storage, ...]]:
    """Return what checkpointed layers refer to in addition to their input: bytes of positions and slopes, and the
    rotary tables."""
    refers = lowering.implementation.closure
    stream = "fp32" if lowering.tape.autocast else lowering.tape.compute
    ids = lowering.own * BYTES["int64"] * (("ids" in refers) + lowering.b * ("each ids" in refers))
    if "distances" in refers and any(op.pattern() == POSITION_SCORES for one in stack.layers for op in one.operations):
        ids = ids + lowering.own * lowering.s * BYTES["int64"]
    attends = [core for layer in stack.layers for op in layer.operations if (core := op.attends()) is not None]
    heads = max((op.heads for op in attends if op.position == "alibi"), default=0)
    slopes = sized(lowering.b * heads * lowering.s, stream) if "alibi" in refers else 0
    pairs = lowering.tables.values() if "tables" in refers else ()
    tables = tuple(storage for pair in pairs for t in pair for _, storage in t.storages)
    tables += tuple(storage for mask in _shared_masks(lowering) for _, storage in mask.storages)
    spread = total(lowering.spread.values()) * ("tables" in refers)
    return ids + slopes + spread, tables


def _shared_masks(lowering: Lowering) -> tuple[Tensor, ...]:
    """Return the masks that are made once for all layers: with ALiBi's biases for a kernel, boolean otherwise."""
    return tuple(lowering.masks[name] for name in (ALIBI, "mask") if name in lowering.masks)


def _mask_beside(lowering: Lowering, layer: Layer, kept: tuple[Storage, ...]) -> tuple[Storage, ...]:
    """Return the masks of all layers that a layer with attention reads and that are not among what it keeps."""
    if not any(op.attends() is not None for op in layer.operations):
        return ()
    read = (storage for mask in _shared_masks(lowering) for _, storage in mask.storages)
    return tuple(storage for storage in read if not any(storage is one for one in kept))


def _masks(lowering: Lowering, layer: Layer) -> tuple[tuple[object, Number], ...]:
    """Return the bytes of the masks that a layer's attention reads, each with what tells it apart from those of other
    layers: its stack and, where the class makes one for each, its window. Attention that sees all keys has none."""
    refers = lowering.implementation.closure
    stream = "fp32" if lowering.tape.autocast else lowering.tape.compute
    inverts = any(op.inverts_mask() for op in layer.operations)
    found: dict[object, Number] = {}
    for core in (core for op in layer.operations if (core := op.attends()) is not None):
        bounded = core.window is not None or core.chunk is not None
        keys = lowering.s + lowering.source * core.merged
        if lowering.attention == EAGER:
            hides = (
                core.causal
                or cuts_keys(lowering, core)
                or (bounded and lowering.implementation.kernel_mask == "windows")
            ) and lowering.implementation.mask != "shared"
            made = ("mask" in refers or "masks" in refers) and hides and not core.cross
            size = sized(lowering.b * lowering.own * keys, stream)
        else:  # boolean, made for windows and for both stacks' keys; one for all sequences, but where one is inverted
            always = lowering.implementation.kernel_mask == ALWAYS and core.position != ALIBI
            made = "masks" in refers and (bounded or core.merged or always) and is_masked(lowering, core)
            size = lowering.own * keys * (lowering.b if inverts or core.merged else 1)
        if made:
            found[lowering.stack, (core.window, core.chunk) if "masks" in refers else None] = size
    return tuple(found.items())


def one_layer(lowering: Lowering, layer: Layer, width: Number, dtype: str) -> tuple[Piece, str]:
    """Return what a layer keeps, and the dtype of its output."""
    tape = lowering.tape.fresh()
    outer, lowering.tape = lowering.tape, tape
    before = {id(storage) for storage in lowering.shared_storages()}
    x = lowering.residual(width, dtype)
    x.tensor.no_grad = layer.begins
    out = lowering.run(rewrite(layer.operations, lowering.implementation), x)
    lowering.tape = outer
    made = piece(layer.kind, tape, 0, 0, x.tensor.size)
    taken = lowering.arguments.values()
    own = tuple(storage for storage in lowering.shared_storages() if id(storage) not in before)
    zeros = () if lowering.zeros is None else (lowering.zeros.storage,)
    beyond = lowering.starts[layer.beyond] if layer.beyond else len(made.nodes)
    rest = {id(s): s for node in made.nodes[beyond:] for _, s in node.kept if s.label != INPUT_LABEL}
    made = replace(
        made,
        arguments=tuple(s for s in taken if s.shared),
        carried=total(s.size for s in taken if not s.shared),
        rest=total(s.size * s.kept for s in rest.values() if s.kind == ACTIVATION),
        masks=_masks(lowering, layer),
        shared=(*made.shared, *_mask_beside(lowering, layer, made.shared)),
        anew=made.anew
        + (before_recomputation(made.nodes) if lowering.implementation.late else 0)
        + total(storage.size for storage in own),
        made=own,
        leaf=total(s.size for s in zeros if any(s is one for one in (*own, *taken))),
        returned=tuple(storage for x in lowering.scopes.returned for _, storage in x.storages),
    )
    return (made, out.tensor.dtype) if layer.read else (unread(made), dtype)


def unread(made: Piece) -> Piece:
    """Return a layer whose result nothing reads: it runs, and no gradient reaches it."""
    nothing: tuple[object, ...] = ()
    changes = dict.fromkeys(("kept", "nodes", "shared", "arguments", "masks", "returned", "made"), nothing)
    sizes = dict.fromkeys(("saved", "casts", "recomputed", "chosen", "carried", "rest", "delayed", "input"), 0)
    return replace(made, burst=made.dropped, **changes, **sizes)


def body_output(stack: Stack) -> str:
    """Return the name of the tensor that the class without its head returns, and the class with it holds until the
    loss: the stream, or what norms and projections of the body make of it."""
    root = stack.before[0].module.partition(".")[0] if stack.before else ""
    found = STREAM
    for op in stack.after:
        linear = op.linear() is not None
        if linear and op.module.partition(".")[0] != root:
            break
        if linear or op.normalizes():
            found = op.name
    return found


def cross_entropy(lowering: Lowering, logits: Value, hidden: Tensor) -> None:
    """Record a log-softmax, kept in its input's dtype, and the negative log-likelihood, which keeps the labels and the
    weight of all tokens. `hidden`: what the class holds as the output of its body."""
    tape, implementation = lowering.tape, lowering.implementation
    tape.scope = "loss"
    if logits.divided and not implementation.parallel_loss:
        logits = lowering.gather_parts(logits)
    scored, tokens = logits.tensor, lowering.tokens
    if implementation.cuts:
        scored = _cut(lowering, scored)
        tokens = tokens - lowering.b
    wide = tape.cast(scored, "fp32") if implementation.fp32_loss else tape.raised(scored)
    held = [logits.tensor, scored, wide] if implementation.cuts else [logits.tensor, wide]
    if implementation.shifted:
        ids = tape.given(tokens, "int64", "labels", kind=INPUT, no_grad=True)
        padded = tape.new(lowering.b * (lowering.own + 1), "int64", "padded labels", no_grad=True)
        padded.storage.size = where(lowering.b == 1, 0, padded.size)  # one sequence's stay, and are counted there
        held.append(tape.record("pad", (ids,), padded))
    out = tape.softmax(wide)
    if implementation.shifted:
        # a single sequence's shifted labels are a view of the padded ones, one longer
        target = tape.new(tokens, "int64", "labels", no_grad=True)
        target.storage.size = where(lowering.b == 1, lowering.own + 1, tokens) * BYTES["int64"]
    elif implementation.cuts:
        target = tape.new(tokens, "int64", "labels", no_grad=True)
        target.storage.size = where(lowering.b == 1, 0, target.size)  # one sequence's are a view
    else:
        target = tape.given(tokens, "int64", "labels", kind=INPUT, no_grad=True)
    weight = tape.new(1, out.dtype, "weight of all tokens", no_grad=True)
    tape.record("nll_loss", (out,), tape.new(1, out.dtype, "loss"), (target, weight))
    tape.hold(*held, hidden)


def _cut(lowering: Lowering, logits: Tensor) -> Tensor:
    """Record the logits without those of each sequence's last token: a copy, but of one sequence a view."""
    tape = lowering.tape
    left = tape.new(logits.count - logits.count // lowering.tokens * lowering.b, logits.dtype, "cut logits")
    left.storage.size = where(lowering.b == 1, 0, left.size)
    return tape.record("cut", (logits,), left)


def special_loss(lowering: Lowering, logits: Value, form: Loss) -> None:
    """Record a cross entropy that works in its own buffers: what it keeps, and their peak."""
    tape = lowering.tape
    tape.scope = "loss"
    head = tape.nodes[-1]
    if form.chunks > 1:
        head.scratch = head.scratch + head.weight
    if logits.divided and not lowering.implementation.parallel_loss:
        logits = lowering.gather_parts(logits)
    count = logits.tensor.count

    def of(bytes_each: float) -> Number:
        return ceil_div(count * int(bytes_each * QUARTERS), QUARTERS)

    kept = logits.tensor
    if form.kept != BYTES[kept.dtype]:  # other bytes than the logits themselves
        kept = tape.new(1, "fp32", "buffer", no_grad=True)
        kept.storage.size = of(form.kept)
    given = Tensor(of(form.passed), "int8", logits.tensor.storages, base=logits.tensor)
    rest = of(form.row) // lowering.b if form.row else 0
    others = (
        of(form.peak) + rest - of(form.kept) - given.size
    )  # below 0: some of what is kept goes as the gradient comes
    tape.record("loss", (given,), tape.new(1, logits.tensor.dtype, "loss"), (kept,), scratch=others)


def fused_loss(lowering: Lowering, operations: tuple[Operation, ...], residual: Value) -> None:
    """Record the head's matmul and the cross entropy as one kernel; what follows the head runs inside it.

    It keeps the gradients of the hidden state and of the head's weight, which backward returns as they are. Forward
    also holds the logits of one chunk, its part of the weight's gradient, and an fp32 loss per token."""
    tape = lowering.tape
    place = next((n for n, op in enumerate(operations) if op.role == LM_HEAD), None)
    if place is None:
        raise Refused("a loss fused with the head's matmul needs a head", "omit --loss")
    head: Any = operations[place]
    hidden = (
        lowering.run(rewrite(operations[:place], lowering.implementation), residual).tensor
        if place
        else residual.tensor
    )
    tape.scope = "loss"
    vocabulary = head.d_out // lowering.split.tensor
    rows = next_power(ceil_div(lowering.tokens, ceil_div(vocabulary, head.d_in)))
    rows = minimum(rows, lowering.tokens)
    of_hidden = tape.new(hidden.count, hidden.dtype, "gradient of the hidden state", no_grad=True)
    trained = vocabulary * head.d_in * (lowering.implementation.tuning is None and head.learning.trained)
    of_weight = tape.new(trained, tape.compute, "gradient of the head's weight", no_grad=True)
    logits = sized(rows * vocabulary, tape.autocast or hidden.dtype)
    tape.record(
        "fused_loss",
        (hidden,),
        tape.new(1, "fp32", "loss"),
        (of_hidden, of_weight),
        weight=of_weight.size,
        scratch=-of_weight.size - of_hidden.size,  # both are kept already: returned, not computed
        forward_scratch=logits + of_weight.size + sized(lowering.tokens, "fp32"),
    )


def next_power(n: Number) -> Number:
    """Return the smallest power of two that is at least n."""
    power: Number = n * 0 + 1
    for _ in range(40):  # 2^40 tokens
        power = where(power < n, 2 * power, power)
    return power


STREAM = "x"
"""The name under which operations read the residual stream."""
QUARTERS = 4
"""Bytes for each logit are multiples of a quarter: whole numbers stay exact."""


def group_size(recompute: Recompute, depth: int) -> int:
    """Return how many blocks share a checkpoint."""
    if recompute.kind != "group":
        return 1
    if recompute.k:
        return recompute.k
    return isqrt(max(depth - 1, 0)) + 1  # ⌈√L⌉

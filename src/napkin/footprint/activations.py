"""The bytes that a training step saves for the backward pass: a model's operations run on a tape, layer by layer.

The bytes are those of the unique storages that autograd saves, without parameters, buffers and the step's inputs (token
ids, labels). Exact for the named versions of the implementations (implementations.py), checked with saved-tensor hooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from napkin.autograd.forward_peaks import forward_peak, forward_peaks
from napkin.autograd.live import before_recomputation
from napkin.autograd.tape import Tape
from napkin.autograd.tensors import ACTIVATION, INPUT_LABEL, WEIGHT_COPY, Node, Storage
from napkin.elementwise import Number, minimum, total, where
from napkin.footprint.closures import closure, embedded_bytes, leaf_bytes, masks_of, unkept_masks
from napkin.footprint.loss_tape import STREAM, body_output, run_head
from napkin.footprint.sections import Pass, Section, saved_upstream, section, unread
from napkin.footprint.submodels import SubModel
from napkin.operations.adapters.lora import in_layer
from napkin.operations.lowering import Lowering
from napkin.operations.model import Layer, Numbered, Stack
from napkin.operations.recomputed_parts import RecomputedPart, parts_of
from napkin.operations.rewrite import Operations, rewrite
from napkin.operations.roles import MEMORY
from napkin.operations.shapes import Value
from napkin.record import replace
from napkin.training.precision import Precision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.autograd.recomputed import Again


def tape_for(precision: Precision, fuses_gradients: bool = False, shares: bool = False) -> Tape:
    """Return an empty tape. Layers run in the parameters' dtype, or in fp32 under autocast; 8-bit matmuls save 8-bit
    inputs. fuses_gradients: linear layers add to the gradients that are there; shares: those that read the same tensor
    share its copy in fewer bits."""
    autocast = precision.compute if precision.autocast else ""
    if autocast and autocast not in ("bf16", "fp16"):  # what surrounds matmuls of fewer bits
        autocast = "bf16"
    narrow = precision.compute if precision.compute not in ("fp32", "tf32", "bf16", "fp16") else ""
    return Tape(precision.nominal, autocast, narrow, fuses_gradients, shares)


def forward(
    stack: Stack,
    submodels: list[SubModel],
    precision: Precision,
    attention: str,
    dropout: float,
    modules: tuple[str, ...] = (),
    begins: bool = False,
) -> Pass:
    """Run a stack once on a tape: the operations before the layers, each layer type once, the head and the loss. Each
    submodel runs over its own sequences.

    attention  the kernel                      dropout  the probability, 0 for none
    modules    what is recomputed by itself (operations/recomputed_parts.py)
    begins     no gradient reaches what follows the layers"""
    first = submodels[0]
    tape = tape_for(precision, first.implementation.fuses_gradients, first.implementation.fused_projections)
    lowering = Lowering(tape, first.implementation, first.shape, first.split, attention, dropout, modules)
    made = _run_before(lowering, submodels)
    before = section("before", tape, 0, 0, 0)
    looked_up, first_x, last_x = _looked_up(submodels, made)
    embedded, stream = embedded_bytes(lowering, looked_up, last_x)
    leaf = leaf_bytes(lowering, looked_up, last_x)
    kept_there = total(s.size * minimum(s.kept, weight) for weight, s in first_x.tensor.storages)
    layers, kinds, patterns, width, dtype = _run_layers(lowering, stack, submodels, made)
    after, final, kept_on = _run_after(lowering, stack, width, dtype, begins)
    refers, tables = closure(lowering, stack)
    return Pass(
        before,
        tuple(layers),
        after,
        tuple(kinds),
        tuple(patterns),
        closure=refers,
        tables=tables,
        held_logits=kept_on,
        loss=tape.nodes[-1].output.size,
        embedded=embedded,
        stream=stream,
        leaf=leaf,
        final=final,
        first=kept_there,
        zeros=lowering.zeros.storage if lowering.zeros is not None and lowering.zeros.storage.shared else None,
        undivided=lowering.undivided,
        shared_tensors=lowering.shared_values(),
        memory=None if lowering.encoded is None else lowering.encoded.storage,
    )


def _run_after(
    lowering: Lowering, stack: Stack, width: Number, dtype: str, begins: bool
) -> tuple[Section, Number, Number]:
    """Run what follows the layers, the head and the loss, on their result of that width and format. Return its section,
    the peak of the forward pass of the class without a head, and the bytes of logits that the training loop holds."""
    tape = lowering.tape
    start, node = len(tape.kept), len(tape.nodes)
    residual = lowering.residual(width, dtype)
    residual.tensor.no_grad = begins
    lowering.routers = total(n for _, n, layer in stack.kinds() if any(op.gives_logits() for op in layer.operations))
    kept_on = run_head(lowering, stack, residual)
    after = section("after", tape, start, node, residual.tensor.size)
    holds = [(number - node, tensor) for number, tensor in tape.holds if number >= node]
    final = after.input + forward_peak(_of_body(lowering, stack, after.nodes), holds)
    held = body_output(stack) == STREAM or any(s.label == INPUT_LABEL for s in after.kept)
    gone = where(held, 0, after.input)  # the stream, once it is normalized
    return replace(after, burst=after.burst - gone), final, kept_on


def _of_body(lowering: Lowering, stack: Stack, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the first of the nodes after the layers, up to the result of the class without a head."""
    result = lowering.values.get(body_output(stack))
    own = {id(storage) for _, storage in result.tensor.storages} if result is not None else set()
    ends = [n for n, node in enumerate(nodes, 1) if any(id(storage) in own for _, storage in node.output.storages)]
    return nodes[: max(ends, default=0)]


def _run_before(lowering: Lowering, submodels: list[SubModel]) -> list[Value | None]:
    """Run the operations before the layers of each submodel in order, and return the output of each. The tape saves
    nothing of a submodel in which nothing is trained."""
    made: list[Value | None] = []
    tape = lowering.tape
    for submodel in submodels:
        if len(submodels) > 1:
            lowering.over(submodel.shape, submodel.implementation, submodel.split)
        reads = made[-1] if made and not submodels[len(made) - 1].patterns else None
        lowering.tape = tape.fresh() if submodel.asleep else tape
        made.append(
            lowering.run(rewrite(submodel.before, submodel.implementation), reads) if submodel.before else reads
        )
        lowering.tape = tape
    return made


def _looked_up(submodels: Sequence[SubModel], made: Sequence[Value | None]) -> tuple[Operations, Value, Value]:
    """Return the operations that look up tokens, of an encoder and its decoder, and the output of the first and of the
    last of these."""
    ends = next((place + 1 for place, submodel in enumerate(submodels) if submodel.encodes), len(submodels))
    first = next(place for place in reversed(range(ends)) if submodels[place].before)
    outputs = [x for x in made[first:] if x is not None]  # a network begins with an embedding
    return tuple(op for submodel in submodels[first:] for op in submodel.before), outputs[0], outputs[-1]


def _run_layers(
    lowering: Lowering, stack: Stack, submodels: list[SubModel], made: list[Value | None]
) -> tuple[list[tuple[int, Section]], list[Layer], list[Numbered], Number, str]:
    """Run each layer type once. Return (number of layers, section) by type, the types, their order, and the width and
    dtype of the residual stream after them. `made`: the outputs before the layers of each submodel."""
    known: dict[tuple[int, str], tuple[int, Section, str]] = {}  # each layer type is lowered once
    kinds: list[Layer] = []
    patterns: list[Numbered] = []
    remaining, reused = iter(stack.patterns), reused_weights(stack)
    width: Number = 0
    dtype, encodes = "", False
    for submodel, x in zip(submodels, made, strict=True):
        if len(submodels) > 1:
            lowering.over(submodel.shape, submodel.implementation, submodel.split)
        lowering.to_blocks()
        if encodes:
            lowering.reads_encoder(MEMORY, width, dtype)
        if x is not None:
            width, dtype = x.width, dtype if encodes else x.tensor.dtype
        elif submodel.width:
            width = width * submodel.width
        encodes = submodel.encodes
        for times, runs in (next(remaining) for _ in range(submodel.patterns)):
            while times:
                begin, block = dtype, []
                for count, layer in runs:
                    while count:
                        key = (id(layer), dtype)
                        if key not in known:
                            one, then = one_layer(lowering, layer, width, dtype, reused)
                            known[key] = (len(kinds), unread(one) if submodel.idle else one, then)
                            kinds.append(layer)
                        kind, _, dtype = known[key]
                        same = count if dtype == key[1] else 1  # what follows may read the stream in another type
                        block.append((same, kind))
                        count -= same
                same = times if dtype == begin else 1
                patterns.append((same, tuple(block)))
                times -= same
    sections = {kind: one for kind, one, _ in known.values()}
    layers = [(count, sections[kind]) for kind, count in counted(patterns).items()]
    return layers, kinds, patterns, width, dtype


def _nodes_of(lowering: Lowering, names: list[str], part: RecomputedPart) -> Again:
    """Return the nodes of a recomputed part of the layer that was run last, of operations `names` in order."""
    from napkin.autograd.recomputed import Again

    if part.within:
        first, end, until = lowering.inner[part.operations[0]]
        return Again(tuple(range(first, end)), until, part.frees_output)
    begins = [*(lowering.starts[name] for name in names), len(lowering.tape.nodes)]
    nodes: list[int] = []
    for place, name in enumerate(names):
        if name in part.operations:
            nodes += range(begins[place], begins[place + 1])
    until = lowering.starts[part.until] if part.until else nodes[-1] + 1 if nodes else 0
    return Again(tuple(nodes), until, part.frees_output)


def counted(patterns: Iterable[Numbered]) -> dict[int, int]:
    """Return the number of layers of each type, by its index."""
    counts: dict[int, int] = {}
    for times, runs in patterns:
        for count, kind in runs:
            counts[kind] = counts.get(kind, 0) + times * count
    return dict(sorted(counts.items()))


def reused_weights(stack: Stack) -> dict[int, bool]:
    """Return the operations whose weights are shared, by identity: whether the other readers are in other layers."""
    found: dict[int, bool] = {}
    for layer in stack.layers:
        own = {id(op) for op in layer.operations}
        for owner in (op.owner() for op in layer.operations if op.owner() is not op):
            found[id(owner)] = found.get(id(owner), False) or id(owner) not in own
    return found


def one_layer(
    lowering: Lowering, layer: Layer, width: Number, dtype: str, reused: Mapping[int, bool]
) -> tuple[Section, str]:
    """Return the section of a layer, and the dtype of its output."""
    before = {id(storage) for storage in lowering.shared_storages()}
    tape, x, out = _run_layer(lowering, layer, width, dtype, reused)
    made = section(layer.kind, tape, 0, 0, x.tensor.size, lowering.implementation.prunes)
    taken = lowering.arguments.values()
    own = tuple(storage for storage in lowering.shared_storages() if id(storage) not in before)
    zeros = () if lowering.zeros is None else (lowering.zeros.storage,)
    remembered, mapped = _kept_upstream(tape, made)
    made = _up_to_rest(lowering, layer, tape, made)
    made = replace(
        made,
        arguments=tuple(s for s in taken if s.shared),
        carried=total(s.size for s in taken if not s.shared),
        masks=masks_of(lowering, layer),
        shared=(*made.shared, *unkept_masks(lowering, layer, made.shared)),
        anew=made.anew
        + (before_recomputation(made.nodes[: made.block]) if lowering.implementation.late else 0)
        + total(storage.size for storage in own),
        made=own,
        leaf=total(s.size for s in zeros if any(s is one for one in (*own, *taken))),
        returned=tuple(storage for x in lowering.scopes.returned for _, storage in x.storages),
        remembers=total(size for _, size in tape.remembered),
        leaks=total(s.saved for s in remembered),
        mapped=total(s.saved for s in mapped),
        held=layer.beside.held * x.tensor.size,
        argument=0 if not layer.beside.called or any(s.label == INPUT_LABEL for s in made.kept) else x.tensor.size,
        waits=layer.beside.waits * x.tensor.size,
        waiting=tuple(tape.waiting),
    )
    return (made, out.tensor.dtype) if layer.read else (unread(made), dtype)


def _run_layer(
    lowering: Lowering, layer: Layer, width: Number, dtype: str, reused: Mapping[int, bool]
) -> tuple[Tape, Value, Value]:
    """Run a layer on a tape of its own; return that, its input and its output."""
    tape = lowering.tape.fresh()
    outer, lowering.tape = lowering.tape, tape
    lowering.reused = reused
    x = lowering.residual(width, dtype)
    x.tensor.no_grad = layer.begins
    whole = lowering.implementation
    lowering.implementation = in_layer(whole, layer)
    program = rewrite(layer.operations, lowering.implementation)
    out = lowering.run(program, x)
    if lowering.modules:
        from napkin.autograd.recomputed import recompute

        parts = parts_of(layer.operations, lowering.modules)
        recompute(tape, (_nodes_of(lowering, [op.name for op in program.operations], part) for part in parts))
    lowering.tape, lowering.reused, lowering.implementation = outer, {}, whole
    return tape, x, out


def _kept_upstream(tape: Tape, made: Section) -> tuple[tuple[Storage, ...], tuple[Storage, ...]]:
    """Return what nodes save before those that the class remembers, and before those that a mapping hands to other
    layers, and mark both."""
    remembered = saved_upstream(made.nodes, (number for number, _ in tape.remembered))
    makers = {id(node.output.root): number for number, node in enumerate(made.nodes)}
    mapped = saved_upstream(made.nodes, (makers[id(x.root)] for x in tape.mapped if id(x.root) in makers))
    for storage in (*remembered, *mapped):
        storage.remembered = True
    return remembered, mapped


def _up_to_rest(lowering: Lowering, layer: Layer, tape: Tape, made: Section) -> Section:
    """Return a section divided into the block and what follows it in the layer, outside the checkpoint."""
    beyond = lowering.starts[layer.beyond] if layer.beyond else len(made.nodes)
    rest = {id(s): s for node in made.nodes[beyond:] for _, s in node.kept if s.label != INPUT_LABEL}
    own = total(s.saved for s in rest.values() if not s.shared)
    anew = made.anew
    if layer.beyond:  # what follows the block has run backward: its gradient of the layer's input waits
        weights = total(node.weight for node in made.nodes[beyond:])
        anew = 2 * made.input + forward_peaks(made.nodes[:beyond], tape.holds)[2] + weights - own
    return replace(
        made,
        block=beyond,
        recomputed=made.recomputed - own,
        rest=total(s.saved for s in rest.values() if s.kind == ACTIVATION),
        rest_casts=total(s.saved for s in rest.values() if s.kind == WEIGHT_COPY and not s.shared),
        anew=anew,
    )

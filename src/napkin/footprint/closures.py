"""Tensors that the forward function and checkpoints refer to and autograd does not save: embeddings, positions, slopes,
rotary tables and masks."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.autograd.tensors import BYTES, Storage, Tensor, sized
from napkin.elementwise import Number, minimum, total
from napkin.operations.attention.kernels import cuts_keys, is_masked
from napkin.operations.base import Operation
from napkin.operations.facts import POSITION_SCORES
from napkin.operations.implementations import ALIBI, ALWAYS, EAGER
from napkin.operations.lowering import Lowering
from napkin.operations.model import Layer, Stack
from napkin.operations.roles import LAYERS, SINES, TOKEN
from napkin.operations.shapes import Value

EMBEDDINGS = "embeddings"
"""Path of a module that adds up embeddings."""


def embedded_bytes(lowering: Lowering, operations: Iterable[Operation], x: Value) -> tuple[Number, Number]:
    """Return the bytes of embeddings that the forward function holds, and of those that are the residual stream. A
    module of embeddings frees its variables as it returns, so only its result is held."""
    if not lowering.implementation.embeddings:
        return 0, 0
    operations = tuple(operations)
    if any(op.embeds() == TOKEN and EMBEDDINGS in op.module.split(".")[:-1] for op in operations):
        return 0, x.tensor.size
    held: dict[str, Tensor] = {}
    for op in operations:
        if op.name not in lowering.values:  # of the encoder, whose own variables are gone
            continue
        if op.embeds() not in ("", LAYERS) or op.role == SINES:  # which their sum replaces
            held[op.name] = lowering.values[op.name].tensor
        elif op.replaces() in held:
            held[op.replaces()] = lowering.values[op.name].tensor
    own = {id(storage) for _, storage in x.tensor.storages}
    others = (place for tensor in held.values() for place in tensor.storages if id(place[1]) not in own)
    stream = any(id(storage) in own for tensor in held.values() for _, storage in tensor.storages)
    return total(s.size * (weight - minimum(s.kept, weight)) for weight, s in others), x.tensor.size * stream


def leaf_bytes(lowering: Lowering, operations: Iterable[Operation], x: Value) -> Number:
    """Return the bytes of token embeddings that are neither the residual stream nor saved by autograd. If they are made
    to require a gradient, they are a leaf, which the graph holds until its end."""
    own = {id(storage) for _, storage in x.tensor.storages}
    tensors = (lowering.values[op.name].tensor for op in operations if op.embeds() == TOKEN)
    places = (place for tensor in tensors for place in tensor.storages if id(place[1]) not in own)
    return total(s.size * (weight - minimum(s.kept, weight)) for weight, s in places)


def closure(lowering: Lowering, stack: Stack) -> tuple[Number, tuple[Storage, ...]]:
    """Return what checkpointed layers refer to besides their input: the bytes of positions and slopes, and the rotary
    tables."""
    refers = lowering.implementation.closure
    stream = "fp32" if lowering.tape.autocast else lowering.tape.compute
    ids = lowering.own * BYTES["int64"] * (("ids" in refers) + lowering.b * ("each ids" in refers))
    if "distances" in refers and any(op.pattern() == POSITION_SCORES for one in stack.layers for op in one.operations):
        ids = ids + lowering.own * lowering.s * BYTES["int64"]
    attends = (core for layer in stack.layers for op in layer.operations if (core := op.attends()) is not None)
    heads = next((core.heads for core in attends if core.position == "alibi"), 0)  # the same in all layers
    slopes = sized(lowering.b * heads * lowering.s, stream) if "alibi" in refers else 0
    pairs = lowering.tables.values() if "tables" in refers else ()
    tables = tuple(storage for pair in pairs for t in pair for _, storage in t.storages)
    tables += tuple(storage for mask in _shared_masks(lowering) for _, storage in mask.storages)
    spread = total(lowering.spread.values()) * ("tables" in refers)
    return ids + slopes + spread, tables


def _shared_masks(lowering: Lowering) -> tuple[Tensor, ...]:
    """Return the masks that are built once for all layers: with ALiBi's biases for a kernel, boolean otherwise."""
    return tuple(lowering.masks[name] for name in (ALIBI, "mask") if name in lowering.masks)


def unkept_masks(lowering: Lowering, layer: Layer, kept: tuple[Storage, ...]) -> tuple[Storage, ...]:
    """Return the shared masks that a layer with attention reads and does not save."""
    if not any(op.attends() is not None for op in layer.operations):
        return ()
    read = (storage for mask in _shared_masks(lowering) for _, storage in mask.storages)
    return tuple(storage for storage in read if not any(storage is one for one in kept))


def masks_of(lowering: Lowering, layer: Layer) -> tuple[tuple[object, Number], ...]:
    """Return the bytes of the masks that a layer's attention reads, each with a key that identifies it: its stack and,
    if the class builds one mask per window, the window. Attention to all keys has no mask."""
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
        else:  # boolean, made for windows and for both stacks' keys; one for all sequences, but if one is inverted
            always = core.masked or (lowering.implementation.kernel_mask == ALWAYS and core.position != ALIBI)
            made = "masks" in refers and (bounded or core.merged or always) and is_masked(lowering, core)
            size = lowering.own * keys * (lowering.b if inverts or core.merged else 1)
        if made:
            found[lowering.stack, (core.window, core.chunk) if "masks" in refers else None] = size
    return tuple(found.items())

"""What the layers of a stage save for the backward pass, and what they share."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.autograd.tensors import INPUT_LABEL, WEIGHT_COPY, Storage
from napkin.elementwise import Flag, Number, ceil_div, is_array, maximum, minimum, product, total, where
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.stages import Stage
from napkin.operations.implementations import MASKS
from napkin.record import record
from napkin.training.order import Counts, Variant
from napkin.training.recomputation import OPERATIONS

LAYERS_IN_TRANSIT = 2
"""Layers whose activations are on the GPU under activation offloading: one being written, one being read."""

STASHED = 5
"""Tensors being copied to the host at once (torchtune training/_activation_offloading.py, max_fwd_stash_size)."""


def saved_bytes(step: PreparedStep, stage: Stage) -> tuple[Number, Number, Number]:
    """Return the bytes that one micro-batch saves on a stage: in layers, as weight copies, and outside the layers."""
    run, recompute = step.run, step.setup.layout.recompute
    casts = product(stage.first, run.before.casts) + product(stage.last, run.after.casts)
    shared: dict[int, tuple[Storage, Number]] = {}  # by storage: it, and how many layers keep it
    for n, variant in zip(stage.variants, step.order.variants, strict=True):
        section = run.layers[variant.kind][1]
        if variant.no_grad:
            continue
        casts = casts + product(n, section.rest_casts if variant.checkpointed else section.casts)
        for storage in section.arguments if variant.checkpointed else section.shared:
            shared[id(storage)] = (storage, shared.get(id(storage), (storage, 0))[1] + n)
    size = recompute.group(step.order.depth)
    layers = saved_by_layers(step, stage.variants, ceil_div(total(stage.checkpointed), size))
    passed = mask_bytes(step, stage.checkpointed) if MASKS in step.setup.implementation.passes else 0
    once = [(s.kind, where(keep > 0, product(s.size, _held_part(step, s)), 0)) for s, keep in shared.values()]
    tables = total(size for kind, size in once if kind != WEIGHT_COPY)
    casts = casts + total(size for kind, size in once if kind == WEIGHT_COPY)
    before = run.before.saved - run.first * first_keeps_input(step)  # one tensor, kept twice
    outside = total((stage.first * before, product(stage.last, run.after.saved), tables, passed))
    return layers, casts, outside


def first_keeps_input(step: PreparedStep) -> bool:
    """Return whether the first layer saves the residual stream unchanged, or is checkpointed and saves nothing else."""
    if not step.order.segments:
        return False
    variant = step.order.variants[step.order.segments[0].runs[0][2]]
    section = step.run.layers[variant.kind][1]
    return not variant.no_grad and (variant.checkpointed or any(s.label == INPUT_LABEL for s in section.kept))


def saved_by_layers(step: PreparedStep, counts: Counts, checkpoints: Number) -> Number:
    """Return the bytes that `counts` layers of each variant save; the checkpointed ones save `checkpoints` inputs."""
    setup = step.setup
    layers: Number = 0
    inputs: Number = 0
    sections = [section for _, section in step.run.layers]
    for n, variant in zip(counts, step.order.variants, strict=True):
        section = sections[variant.kind]
        if variant.no_grad:
            continue
        if variant.checkpointed:
            inputs = inputs + n * section.stashed
            if setup.layout.recompute.kind == OPERATIONS:
                layers = layers + n * section.chosen
        else:
            layers = layers + n * section.saved
    if setup.layout.recompute.group(step.order.depth) > 1:
        inputs = checkpoints * maximum(0, *(section.stashed for section in sections))
    if "activations" in setup.offload:  # copied to the host as they are computed
        layers = minimum(layers, LAYERS_IN_TRANSIT * maximum(0, *(section.saved for section in sections)))
        inputs = minimum(inputs, STASHED * maximum(0, *(section.stashed for section in sections)))
    return total((layers, inputs))


def mask_bytes(step: PreparedStep, counts: Counts) -> Number:
    """Return the bytes of the causal masks that `counts` layers of each type refer to, each mask once."""
    masks: dict[object, tuple[Number, Number]] = {}
    for checkpointed, (_, section) in zip(counts, step.run.layers, strict=True):
        for key, size in section.masks:
            masks[key] = (size, masks.get(key, (size, 0))[1] + checkpointed)
    return total(where(checkpointed > 0, size, 0) for size, checkpointed in masks.values())


def returned_bytes(step: PreparedStep, stage: Stage, layer: Number) -> Number:
    """Return the bytes of outputs, besides the residual stream, of the layer before `layer` (index in the complete
    stack) that are not saved for backward: they live until `layer`, or what follows the last layer, has run."""
    order = step.order
    sizes = [
        total(
            s.size * (1 if one.checkpointed or one.no_grad else 1 - minimum(s.kept, 1))
            for s in step.run.layers[one.kind][1].returned
        )
        for one in order.variants
    ]
    if not any(is_array(size) or size for size in sizes):
        return 0
    return where(layer > stage.low, dot(order.between(maximum(layer - 1, 0), layer), sizes), 0)


def made_once_bytes(step: PreparedStep, stage: Stage) -> tuple[Number, Number]:
    """Return the bytes of rotary tables, and of masks built once for all layers, that no layer saves: those that
    checkpointed layers refer to, and those that the forward function holds while any layer runs."""
    referred: Number = 0
    held: Number = 0
    for storage in step.run.tables:
        checkpointed, others = _users(step, stage.variants, storage)
        unkept = storage.size * (1 - where(others > 0, minimum(storage.kept, 1), 0))
        referred = referred + where(checkpointed > 0, unkept, 0)
        held = held + where(checkpointed + others > 0, unkept, 0)
    return referred, held


def shared_kv_bytes(step: PreparedStep, stage: Stage) -> Number:
    """Return the bytes of tensors that layers share and none saves for backward: only the forward function holds
    them."""
    return total(unsaved_bytes(step, stage, storage) for storage in step.run.shared_tensors)


def mapped_bytes(step: PreparedStep, stage: Stage) -> Number:
    """Return the bytes of those of them that no layer has as an argument: they lie in a mapping, to which checkpointed
    layers refer."""
    arguments = {id(storage) for _, section in step.run.layers for storage in section.arguments}
    mapped = (storage for storage in step.run.shared_tensors if id(storage) not in arguments)
    return total(unsaved_bytes(step, stage, storage) for storage in mapped)


def unsaved_bytes(step: PreparedStep, stage: Stage, storage: Storage | None) -> Number:
    """Return the bytes of a tensor that layers share, if no layer saves it for backward or its checkpoint has it as an
    argument; 0 if there is no tensor."""
    if storage is None:
        return 0
    checkpointed, keep = _users(step, stage.variants, storage)
    unsaved = where(keep > 0, 1 - minimum(storage.kept, 1), 1)
    if _is_argument(step, storage):
        unsaved = where(checkpointed > 0, 0, unsaved)
    return storage.size * where(_is_there(step, stage, storage), unsaved, 0)


def _is_there(step: PreparedStep, stage: Stage, storage: Storage) -> Flag:
    """Return whether a stage has a storage that layers share: with a layer that makes it or has it as an argument. What
    is no layer's argument the forward function makes on every stage."""
    sections = [section for _, section in step.run.layers]
    takes = [any(storage is one for one in section.arguments) for section in sections]
    makes = [any(storage is one for one in section.made) for section in sections]
    here = total(n for n, *either in zip(stage.layers, takes, makes, strict=True) if any(either))
    return not any(takes) or here > 0


def _is_argument(step: PreparedStep, storage: Storage) -> bool:
    """Return whether a storage is an argument of a checkpointed layer, which its checkpoint saves."""
    return any(
        variant.checkpointed and any(storage is other for other in step.run.layers[variant.kind][1].arguments)
        for variant in step.order.variants
    )


def _held_part(step: PreparedStep, storage: Storage) -> Number:
    """Return the share of a shared storage that is saved for backward: 1, or 0 if nothing saves it."""
    return 1 if _is_argument(step, storage) else storage.kept * (not storage.earlier)


def _users(step: PreparedStep, counts: Counts, storage: Storage) -> tuple[Number, Number]:
    """Return, among `counts` layers of each variant that share a storage, the number that are checkpointed and the
    number that save it."""
    users = [(n, one) for n, one in zip(counts, step.order.variants, strict=True) if _uses(step, one, storage)]
    return total(n for n, one in users if one.checkpointed), total(n for n, one in users if not one.checkpointed)


def _uses(step: PreparedStep, variant: Variant, storage: Storage) -> bool:
    """Return whether layers of a variant save a storage, or refer to it if they are checkpointed."""
    section = step.run.layers[variant.kind][1]
    reads = (*section.shared, *section.arguments) if variant.checkpointed else () if variant.no_grad else section.shared
    makes = variant.checkpointed and any(storage is other for other in section.made)  # and frees it
    return not makes and any(storage is other for other in reads)


@record
class SharedStorage:
    """A storage that layers of a stage share: its bytes if the stage saves or refers to it, and for each variant
    whether its layers do."""

    size: Number
    users: tuple[bool, ...]


def shared_storages(step: PreparedStep, stage: Stage) -> list[SharedStorage]:
    """Return the storages that the layers of a stage share and its last reader frees, without copies of weights."""
    sections = (section for _, section in step.run.layers)
    shared = {id(s): s for section in sections for s in (*section.shared, *section.arguments) if s.kind != WEIGHT_COPY}
    refers = {id(storage) for storage in step.run.tables}
    found = []
    for key, storage in shared.items():
        checkpointed, others = _users(step, stage.variants, storage)
        there = (others > 0) | ((checkpointed > 0) & ((key in refers) or _is_argument(step, storage)))
        size = where(there, product(storage.size, _held_part(step, storage)), 0)
        if storage is step.run.zeros:
            size = where(leaf_of_zeros(step, stage) > 0, 0, size)
        found.append(SharedStorage(size, tuple(_uses(step, one, storage) for one in step.order.variants)))
    return found


def leaf_of_zeros(step: PreparedStep, stage: Stage) -> Number:
    """Return the bytes of the zeros that layers read in place of position biases, if they are a leaf that requires a
    gradient: the graph of a layer that did not make them again holds them until the backward pass ends."""
    zeros = step.run.zeros
    if zeros is None:
        return 0
    pairs = zip(stage.variants, step.order.variants, strict=True)
    readers = total(where(_leaf_bytes(step, one) > 0, n, 0) for n, one in pairs)
    return where((total(stage.checkpointed) > 0) & (readers > 0), zeros.size, 0)


def _leaf_bytes(step: PreparedStep, variant: Variant) -> Number:
    """Return the bytes of the zeros that a layer reads as the forward pass made them: a checkpointed one may make its
    own."""
    section = step.run.layers[variant.kind][1]
    again = variant.checkpointed and any(storage is step.run.zeros for storage in section.made)
    return 0 if again else section.leaf


def freed_bytes(shared: Iterable[SharedStorage], left: Counts) -> Number:
    """Return the bytes of shared storages that none of the remaining layers (of each variant) still reads."""
    return total(
        where(total(n for n, uses in zip(left, one.users, strict=True) if uses) == 0, one.size, 0) for one in shared
    )


def dot(counts: Iterable[Number], sizes: Iterable[Number]) -> Number:
    """Return Σ count · size."""
    return total(product(n, size) for n, size in zip(counts, sizes, strict=True))

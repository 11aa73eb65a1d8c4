"""Queries over all operations of a model: its linear layers, its recurrences, the masks of its attention."""

from __future__ import annotations

from napkin.operations.base import Operation
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.roles import AUDIO, COLUMN, IMAGE_PROJECTOR, IMAGES, KEY, LM_HEAD, POSITION, QKV, ROW, VALUE
from napkin.operations.work import Weight
from napkin.record import record

BY_HEADS = (KEY, VALUE, QKV)
"""Roles of operations that are divided by key/value heads."""


@record
class AttentionMasks:
    """The attention masks that a model needs: `merged` if it runs over both sides' keys at once; `bounds` are the
    windows and chunks, in tokens."""

    merged: bool
    bounds: tuple[int, ...]


def seen_operations(model: Model) -> list[Operation]:
    """Return the operations of a vision tower and its projector."""
    parts = model.vision.parts if model.vision is not None else ()
    stacks = [stack for part in parts for stack in part.stacks]
    ends = [op for stack in stacks for op in (*stack.before, *stack.after)]
    return ends + [op for part in parts for op in part.operations]


def is_head_matrix(op: Operation, weight: Weight) -> bool:
    """Return whether a weight is the matrix of the language model's head, which a tied embedding is too."""
    return op.role == LM_HEAD and weight.name == "weight"


def head_of(model: Model) -> Operation | None:
    """Return the language model's head."""
    return next((op for op in model.stacks[-1].after if op.role == LM_HEAD), None)


def heard_operations(model: Model) -> list[Operation]:
    """Return what the model holds of an audio encoder."""
    return [op for op in model.stacks[-1].after if op.role == AUDIO]


def tower_tensors(model: Model) -> list[Operation]:
    """Return what the model holds of a vision tower that is known by its tensors, and of its projector."""
    return [op for op in model.stacks[-1].after if op.role in (IMAGES, IMAGE_PROJECTOR)]


def has_scan(model: Model) -> bool:
    """Return whether some layer is recurrent."""
    return any(op.scans() for op in model.operations)


def generates(model: Model) -> bool:
    """Return whether the last stack can generate tokens: its attention is causal, or it is recurrent."""
    found = [op for layer in model.stacks[-1].layers for op in layer.operations]
    cores = [core for op in found if (core := op.attends()) is not None]
    return any(core.causal for core in cores) or any(op.scans() for op in found)


def has_separate_experts(model: Model) -> bool:
    """Return whether experts are separate linear layers, which run in a loop."""
    return any(op.chooses_among() and op.routed() is None for op in model.operations)


def unshared_heads(model: Model, ranks: int, tp: int) -> str:
    """Return the heads of a tensor-parallel rank that ranks which exchange heads for tokens cannot divide, in words; ""
    if they can. Fewer key and value heads than ranks are repeated."""
    if model.heads // tp % ranks:
        return f"the {model.heads // tp:,} attention heads of a rank"
    shared = {max(core.kv_heads // tp, 1) for op in model.operations if (core := op.attends()) is not None}
    odd = [heads for heads in sorted(shared) if heads % ranks and ranks % heads]
    return f"the {odd[0]:,} key/value heads of a rank" if odd else ""


def expert_widths(model: Model) -> list[int]:
    """Return the inner widths of the experts, each once, ascending."""
    return sorted({experts.d_ff for op in model.operations if (experts := op.routed()) is not None})


def grouped_experts(model: Model) -> list[tuple[int, int]]:
    """Return (width, inner width) of the last stack's experts that grouped matmuls compute: inputs not weighted."""
    found = [op.routed() for layer in model.stacks[-1].layers for op in layer.operations]
    return [(one.d_model, one.d_ff) for one in found if one is not None and not one.weighted_input]


def learned_positions(model: Model) -> list[int]:
    """Return the rows of the last stack's position embeddings, which limit the sequence length."""
    tables = (op for op in model.stacks[-1].before if op.embeds() == POSITION)
    return [weight.shape[0] for table in tables for weight in table.weights()[:1]]


def attention_masks(model: Model) -> AttentionMasks:
    """Return the masks that the last stack's attention needs."""
    found = (op.attends() for layer in model.stacks[-1].layers for op in layer.operations)
    cores = [core for core in found if core is not None]
    bounds = tuple(bound for op in cores for bound in (op.window, op.chunk) if bound is not None)
    return AttentionMasks(any(op.merged for op in cores), bounds)


def key_heads(model: Model) -> list[int]:
    """Return the key/value heads of a network's attention that ranks divide, each number of them once."""
    cores = (op.attends() for s in model.stacks for one in s.layers for op in one.operations)
    return sorted({core.kv_heads for core in cores if core is not None and not core.shared})


def undivided(model: Model, implementation: Implementation, ranks: int) -> str:
    """Return a dimension that this many tensor-parallel ranks do not divide, or "" if the implementation runs on them:
    they divide the heads of attention and of a vision tower, the key/value heads (or, where the implementation gathers
    heads, each rank has one), and the divided dimension of every other weight."""
    tower = model.vision.tower.heads if model.vision is not None else 0
    for heads, whose in ((model.heads, "attention heads"), (tower, "attention heads of the vision tower")):
        if heads % ranks:
            return f"the {whose} ({heads:,})"
    for few in key_heads(model):
        if few % ranks and not (implementation.gathers_heads and ranks % few == 0):
            return f"the key/value heads ({few:,})"
    widths = ((op.name, width) for op in model.operations if op.role not in BY_HEADS for width in _divided(op))
    return next((f"the width of {name} ({width:,})" for name, width in widths if width % ranks), "")


def _divided(op: Operation) -> list[int]:
    """Return the dimensions of an operation's weights that tensor parallelism divides."""
    dimension = {COLUMN: 0, ROW: 1}
    return [weight.shape[dimension[weight.shard]] for weight in op.weights() if weight.shard in dimension]

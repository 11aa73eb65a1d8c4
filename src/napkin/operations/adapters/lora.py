"""Adapters on frozen linear layers: the adapted layers, and the format of their weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from napkin.operations.adapters.named import is_chosen, is_target, path_ends
from napkin.operations.facts import LinearLayer, LinearPart, Named
from napkin.operations.implementations import Implementation
from napkin.operations.roles import (
    COLUMN,
    EXPERT,
    KEY,
    LM_HEAD,
    QKV,
    QUERY,
    REPLICATED,
    ROW,
    TOKEN,
    VALUE,
    VOCABULARY,
)
from napkin.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind
    from napkin.operations.base import Operation
    from napkin.operations.model import Layer
    from napkin.operations.tuning import Tuning

JOINED = (QUERY, KEY, VALUE, QKV)
"""Roles of attention's linear layers, and of the fused projection of all three."""
SAVEABLE = (TOKEN, LM_HEAD)
"""Roles of modules that can be trained in full next to adapters: the embedding and the head."""

Adapted = tuple[int, int, int, int]
"""Number, rank, input and output size of adapters."""


def lora_pairs(
    op: LinearLayer, program: tuple[Named, ...], implementation: Implementation, tuning: Tuning
) -> tuple[int, int]:
    """Return how many of LoRA's pairs of matrices a linear layer has, and how many elements they make per token. A
    fused projection has those of all its parts, with one dropout of their common input."""
    if tuning.method != "lora" or op.bare or tuning.saves(op.role, op.module):
        return 0, 0
    if implementation.qkv == "joined" and op.role in JOINED:
        if op.role in (KEY, VALUE):
            return 0, 0
        named = tuning.targets  # published rows name the parts of a fused projection by their roles: q, v
        parts = [
            one
            for one in program
            if one.role in JOINED and (tuning.everything or one.role in named or is_target(one, named))
        ]
        return len(parts), _width(parts)
    chosen = is_chosen(op, implementation, tuning)
    # an adapter of a part that published rows name by its role is next to the whole fused projection
    part = op.role == QKV and any(name in JOINED for name in tuning.targets)
    return (1, op.d_out) if chosen or part else (0, 0)


def leaves_gaps(op: LinearLayer, program: tuple[Named, ...], implementation: Implementation, width: int) -> bool:
    """Return whether adapters that make `width` elements per token are next to some parts of a fused projection only:
    what they make is then put into its place in a tensor of the whole width, and kept for that (Lightning-AI/litgpt
    litgpt/lora.py, zero_pad: index_copy)."""
    if implementation.qkv != "joined" or op.role not in JOINED:
        return False
    return width < _width([one for one in program if one.role in JOINED])


def _width(parts: list[Named]) -> int:
    """Return the elements that parts of a fused projection make per token."""
    return sum(getattr(part, "d_out", 0) or getattr(part, "width", 0) for part in parts)


def times_rank(part: LinearPart, tuning: Tuning | None) -> int:
    """Return the width of a linear layer's adapter as a multiple of LoRA's rank; 0 if no target names the layer."""
    if tuning is None or tuning.method != "lora":
        return 0
    if part.parameter:
        return max((times for target, times in tuning.parameters if path_ends(part.path, target)), default=0)
    return int(tuning.everything or any(path_ends(part.path, target) for target in tuning.targets))


def adapter_width(part: LinearPart, tuning: Tuning | None) -> int:
    """Return the width of the adapter of a linear layer within an operation: its own rank, or a multiple of LoRA's."""
    times = times_rank(part, tuning)
    own = dict(tuning.ranks) if tuning is not None and times else {}
    return own.get(part.path, times * tuning.rank) if tuning is not None else 0


def kind_on(op: Operation, implementation: Implementation) -> tuple[AdapterKind, AdaptedLayer] | None:
    """Return the kind of the adapter on an operation, if it is none of LoRA's, and the operation as it sees it; None
    if it has none."""
    tuning = implementation.tuning
    if tuning is None or tuning.method == "lora":
        return None
    from napkin.operations.adapters.kinds import KINDS

    kind = KINDS.get(tuning.method)
    at = None if kind is None else kind.on(op, implementation, tuning)
    return None if kind is None or at is None else (kind, at)


def in_layer(implementation: Implementation, layer: Layer) -> Implementation:
    """Return the implementation as a layer runs it: with its adapters, without a prompt, or only frozen."""
    tuning = implementation.tuning
    if tuning is None or (layer.adapted and not layer.ranks):
        return implementation
    if layer.adapted:
        return replace(implementation, tuning=replace(tuning, ranks=layer.ranks))
    if tuning.prompted:
        return replace(implementation, tuning=replace(tuning, prompts=False))
    return replace(implementation, tuning=replace(tuning, method="frozen", targets=(), parameters=()))


def adapter_shards(shard: str, copies: int = 1, divided: bool = False) -> tuple[str, str]:
    """Return how A and B of an adapter are divided: A where the layer divides its input, B where it divides its output
    (peft 0.21, tuners/lora/tp_layer.py; modelscope/mcore-bridge src/mcore_bridge/tuners/lora.py), and the pairs of
    experts as the experts are. `divided`: each matrix is, A by its inputs where the layer's are divided, else by its
    rank, and B by its outputs (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/utils.py, ParallelLinearAdapter).
    DoRA's vector is divided as B."""
    if copies > 1:
        return EXPERT, EXPERT
    if divided:
        return ROW if shard == ROW else COLUMN, COLUMN
    return ROW if shard == ROW else REPLICATED, COLUMN if shard == COLUMN else REPLICATED


def modules_of(operations: Iterable[Operation]) -> Iterator[tuple[Operation, bool]]:
    """Yield operations, what is held in the place of what holds it, and whether each runs."""
    for op in operations:
        held = op.holds()
        yield from ((one, False) for one in held) if held else ((op, True),)


def module_of(op: Operation) -> Operation:
    """Return what a module of the class runs, of which another may own the weights."""
    owner = op.owner()
    return owner if owner is op else replace(owner, name=op.name, module=op.module)


def other_adapters(op: Operation, implementation: Implementation, tuning: Tuning) -> Iterator[Adapted]:
    """Yield LoRA's adapters on weights that are not separate linear layers."""
    yield from adapted_parts(op, implementation, tuning)
    yield from adapted_parameters(op, implementation, tuning)
    yield from adapted_lookups(op, tuning)


def adapted_parts(op: Operation, implementation: Implementation, tuning: Tuning) -> Iterator[Adapted]:
    """Yield adapters on linear layers within an operation: routers, indexers, experts that are modules."""
    yield from _on_parts(op, implementation, tuning, False)


def adapted_parameters(op: Operation, implementation: Implementation, tuning: Tuning) -> Iterator[Adapted]:
    """Yield adapters on parameters of experts and routers (peft's ParamWrapper): a pair of matrices for each expert."""
    yield from _on_parts(op, implementation, tuning, True)


def _on_parts(op: Operation, implementation: Implementation, tuning: Tuning, parameters: bool) -> Iterator[Adapted]:
    for part in op.linear_parts(implementation):
        width = adapter_width(part, tuning)
        if width and part.parameter == parameters:
            yield part.copies, width, part.d_in, part.d_out


def adapted_lookups(op: Operation, tuning: Tuning) -> Iterator[Adapted]:
    """Yield adapters on embeddings, whose rows are their input."""
    rank = lookup_rank(op, tuning)
    for rows, width in (weight.shape for weight in op.tables()) if rank else ():
        yield 1, rank, rows, width


def lookup_rank(op: Operation, tuning: Tuning) -> int:
    """Return the rank of the adapters on an operation's embeddings, 0 without; what is trained in full has none."""
    if tuning.method != "lora" or tuning.everything or tuning.saves(op.role, op.module):
        return 0
    return tuning.rank_of(op.module) if op.tables() and is_target(op, tuning.targets) else 0


def is_unquantized(op: LinearLayer, tuning: Tuning) -> bool:
    """Return whether a frozen product's weight is stored as it was: the head's, unless the quantizer takes it."""
    return not tuning.quantized or op.bare or (op.shard == VOCABULARY and not tuning.quantizer.head)


def stored_format(op: Operation, implementation: Implementation, tuning: Tuning) -> str:
    """Return the format that an operation's frozen matrices are stored in; "" if that is the parameters' own, in all
    layers.

    Experts are quantized if each is a module with its own linear layers, or on request."""
    linear = op.linear()
    if not tuning.narrow(op.module):
        return ""
    if linear is not None:
        return "" if is_unquantized(linear, tuning) else tuning.quantized
    quantizes = tuning.experts or implementation.looped == "modules"
    return tuning.quantized if quantizes and any(weight.shard == EXPERT for weight in op.weights()) else ""

"""The weights of a layer on one GPU, before ZeRO shards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin import term
from napkin.elementwise import Number
from napkin.formats import stored_bytes
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.operations.queries import head_of, is_head_matrix
from napkin.operations.roles import ADAPTER, EXPERT, REPLICATED, SENSES
from napkin.record import record
from napkin.term import Term
from napkin.timing.clock import BYTE, Clock, size
from napkin.timing.step_layout import StepLayout


@record
class Held:
    """Dense and expert weights on one GPU, before ZeRO shards them."""

    dense: Term
    experts: Term


def layer_weights(
    operations: Sequence[Operation],
    layout: StepLayout,
    kind: str,
    tied: bool = False,
    gathered: Sequence[Operation] = (),
) -> tuple[Held, Held]:
    """Return the weights of a layer on one GPU before ZeRO: its trained parameters, and the bytes of frozen ones, once
    for each pass over the layer.

    tied      the head's matrix is the embedding, and not counted
    gathered  the operations whose passes gather frozen ones, if these are others"""
    counts = dict.fromkeys(("whole", "sharded", "expert"), 0)
    fixed: dict[str, Number] = dict.fromkeys(counts, 0)
    passes = 1 + any(op.learning.runs for op in gathered or operations if op.role != ADAPTER)
    for op in operations:
        each = stored_bytes(op.learning.stored) if op.learning.stored else layout.frozen_bytes
        for weight in op.weights():
            if tied and is_head_matrix(op, weight):
                continue
            shard = {EXPERT: "expert", REPLICATED: "whole"}.get(weight.shard, "sharded")
            if op.learning.trained:
                counts[shard] += weight.count
            else:
                size = weight.count * (each if len(weight.shape) > 1 else layout.frozen_bytes)
                fixed[shard] = fixed[shard] + passes * size
    return held(f"{kind}/weights", counts, "param", layout), held(f"{kind}/frozen", fixed, BYTE, layout)


def held(name: str, counts: Mapping[str, Number], unit: str, layout: StepLayout) -> Held:
    """Return the weights on one GPU: replicated ones, those sharded over tensor-parallel ranks, and those of
    experts. counts: those of each of the three kinds on all ranks together, in `unit` (parameters or bytes)."""
    whole, sharded, expert = (
        term.leaf(f"{name}/{shard}", count, unit, term.TRUE, "exact count") for shard, count in counts.items()
    )
    ranks = term.multiply("expert_ranks", size("ep", layout.ep), size("etp", layout.etp))
    return Held(
        term.add(name, whole, term.divide(f"{name}/divided", sharded, size("tp", layout.tp))),
        term.divide(f"{name}/experts", expert, ranks),
    )


def end_operations(model: Model) -> tuple[list[Operation], list[Operation]]:
    """Return the operations before the layers, with those between an encoder and its decoder, and those after them; an
    audio encoder and a vision tower, which text does not run, have no gradients."""
    *encoders, last = model.stacks
    before = [op for stack in model.stacks for op in stack.before]
    after = [op for op in last.after if op.role not in SENSES]
    return [*before, *(op for stack in encoders for op in stack.after)], after


def end_weights(clock: Clock, model: Model) -> tuple[tuple[Held, Held], tuple[Held, Held]]:
    """Return the weights before and after the layers on one GPU, as `layer_weights` does. A tied matrix is one of those
    before; frozen, it is gathered as often as the head uses it."""
    before, after = end_operations(model)
    gathered = [*before, *after] if model.tied else before
    return (
        layer_weights(before, clock.layout, "before", gathered=gathered),
        layer_weights(after, clock.layout, "after", tied=model.tied),
    )


def head_weights(clock: Clock, model: Model) -> Term:
    """Return the parameters of the head's matrix on one tensor-parallel rank."""
    head = head_of(model)
    count = 0 if head is None else sum(one.count for one in head.weights() if is_head_matrix(head, one))
    return term.divide("head/weights", term.leaf("head/parameters", count, "param", term.TRUE, "exact count"), clock.tp)

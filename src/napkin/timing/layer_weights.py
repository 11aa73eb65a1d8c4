"""The weights of a layer on one GPU, before ZeRO shards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin import term
from napkin.elementwise import Number
from napkin.formats import stored_bytes
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.operations.roles import EXPERT, REPLICATED
from napkin.record import record
from napkin.term import Term
from napkin.timing.clock import BYTE, Clock, size
from napkin.timing.step_layout import StepLayout


@record
class Held:
    """Dense and expert weights on one GPU, before ZeRO shards them."""

    dense: Term
    experts: Term


def layer_weights(operations: Sequence[Operation], layout: StepLayout, kind: str) -> tuple[Held, Held]:
    """Return the weights of a layer on one GPU before ZeRO: its trained parameters, and the bytes of frozen ones, once
    for each pass over the layer."""
    counts = dict.fromkeys(("whole", "sharded", "expert"), 0)
    fixed: dict[str, Number] = dict.fromkeys(counts, 0)
    passes = 1 + any(op.learning.runs for op in operations)
    for op in operations:
        each = stored_bytes(op.learning.stored) if op.learning.stored else layout.frozen_bytes
        for weight in op.weights():
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


def table_of(clock: Clock, model: Model) -> Term:
    """Return the parameters of the head, or of the token embedding, on one tensor-parallel rank."""
    local = term.divide("head/rows", size("vocabulary", model.vocabulary), clock.tp)
    return term.multiply("head/weights", term.leaf("head/columns", model.hidden, "param", term.GIVEN), local)

"""The adapters of a model as operations of their own, next to those whose weights they adapt."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.operations.adapters.as_operations import Adapter, BiasAdapter, MergedAdapter, Reparameterized
from napkin.operations.adapters.lora import (
    adapted_lookups,
    adapted_parameters,
    adapted_parts,
    kind_on,
    lora_pairs,
    module_of,
)
from napkin.operations.base import Operation
from napkin.operations.facts import POSITION_BIASES
from napkin.operations.implementations import Implementation
from napkin.operations.roles import ADAPTER, MERGED
from napkin.operations.work import Learning


def adapters_next_to(
    op: Operation, operations: tuple[Operation, ...], implementation: Implementation, inputs: bool
) -> Iterator[Operation]:
    """Yield the adapters next to an operation. `inputs`: whether gradients pass on to what it reads."""
    learning = Learning(1, int(inputs))
    yield from _next_to_linear(op, operations, implementation, learning)
    found = kind_on(module_of(op), implementation)
    if found is not None:
        kind, at = found
        yield Reparameterized(f"{op.name}/{kind.name}", op.reads, kind.name, at, role=ADAPTER, learning=learning)
    yield from _within(op, implementation, learning)


def _next_to_linear(
    op: Operation, operations: tuple[Operation, ...], implementation: Implementation, learning: Learning
) -> Iterator[Operation]:
    """Yield LoRA's adapter on a linear layer. Another run of a module runs its adapter again."""
    tuning, linear = implementation.tuning, module_of(op).linear()
    if tuning is None or linear is None:
        return
    several, made = lora_pairs(linear, operations, implementation, tuning)
    if not several:
        return
    rank, drops = tuning.rank_of(linear.module), tuning.dropout > 0
    yield Adapter(
        f"{op.name}/lora",
        op.reads,
        linear.d_in,
        several * rank,
        rank,
        made,
        linear.shard,
        drops,
        role=ADAPTER,
        magnitude=tuning.magnitude,
        wide=tuning.wide,
        narrowed=tuning.wide and tuning.autocast,
        joined=tuning.joined and not drops and not tuning.magnitude,
        divided=tuning.divided,
        used=linear.vectors,
        learning=learning,
    )


def _within(op: Operation, implementation: Implementation, learning: Learning) -> Iterator[Operation]:
    """Yield LoRA's adapters on what is no separate linear layer: layers within an operation, parameters, lookups."""
    tuning, module, name = implementation.tuning, module_of(op), f"{op.name}/lora"
    assert tuning is not None
    routed = module.routed()
    for number, (copies, rank, d_in, d_out) in enumerate(adapted_parts(module, implementation, tuning)):
        yield Adapter(
            f"{name}_{number + 1}",
            op.reads,
            d_in,
            rank,
            rank,
            d_out,
            drops=tuning.dropout > 0,
            wide=tuning.wide,
            narrowed=tuning.wide and tuning.autocast,
            copies=copies,
            used=1 if routed is None else routed.top_k,
            role=ADAPTER,
            learning=learning,
        )
    for number, (copies, rank, d_in, d_out) in enumerate(adapted_parameters(module, implementation, tuning)):
        yield MergedAdapter(f"{name}/merged_{number + 1}", op.reads, copies, d_in, rank, d_out, role=MERGED)
    for number, (_, rank, rows, width) in enumerate(adapted_lookups(module, tuning)):
        if module.pattern() in POSITION_BIASES:
            yield BiasAdapter(f"{name}_{number + 1}", op.reads, rows, rank, width, role=ADAPTER, learning=learning)
            continue
        yield Adapter(name, op.reads, rows, rank, rank, width, looked_up=True, role=ADAPTER, learning=learning)

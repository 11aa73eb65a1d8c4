"""Pad a vocabulary with rows of the embedding, and columns of the logits, that belong to no token."""

from __future__ import annotations

from napkin.elementwise import ceil_div
from napkin.operations.base import Operation
from napkin.operations.model import Model, Stack
from napkin.operations.roles import TOKEN, VOCABULARY
from napkin.record import replace


def padded(model: Model, multiple: int) -> Model:
    """Return the model with its vocabulary rounded up to a multiple of `multiple`: ⌈V/multiple⌉·multiple (Megatron-core
    tokenizers/utils/build_tokenizer.py, vocab_size_with_padding)."""
    before = model.vocabulary
    rows = ceil_div(before, multiple) * multiple
    if rows == before:
        return model

    def one(op: Operation) -> Operation:
        owner = op.owner()
        if owner is not op:
            return replace(op, of=one(owner))
        if op.role == TOKEN and getattr(op, "rows", 0) == before:
            return replace(op, rows=rows)
        if getattr(op, "shard", "") == VOCABULARY and getattr(op, "d_out", 0) == before:
            return replace(op, d_out=rows)
        return op

    def after(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        found: list[Operation] = []
        logits: set[str] = set()
        for op in operations:
            if logits.intersection(op.reads) and getattr(op, "width", 0) == before:
                found.append(replace(op, width=rows))
                logits.add(op.name)
                continue
            found.append(one(op))
            if found[-1] is not op:
                logits.add(op.name)
        return tuple(found)

    def stack(old: Stack) -> Stack:
        return replace(old, before=tuple(one(op) for op in old.before), after=after(old.after))

    return replace(model, stacks=tuple(stack(old) for old in model.stacks), vocabulary=rows)

"""Pad a vocabulary with rows of the embedding, and columns of the logits, that belong to no token."""

from __future__ import annotations

from napkin.operations.base import Operation
from napkin.operations.model import Model, Stack
from napkin.record import replace


def padded(model: Model, multiple: int) -> Model:
    """Return the model with its vocabulary rounded up to a multiple of `multiple`: ⌈V/multiple⌉·multiple (Megatron-core
    tokenizers/utils/build_tokenizer.py, vocab_size_with_padding)."""
    before = model.vocabulary
    rows = -(-before // multiple) * multiple
    if rows == before:
        return model

    def after(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        found: list[Operation] = []
        logits: set[str] = set()
        for op in operations:
            found.append(op.padded(before, rows, not logits.isdisjoint(op.reads)))
            if found[-1] is not op:
                logits.add(op.name)
        return tuple(found)

    def stack(old: Stack) -> Stack:
        return replace(old, before=tuple(op.padded(before, rows, False) for op in old.before), after=after(old.after))

    return replace(model, stacks=tuple(stack(old) for old in model.stacks), vocabulary=rows)

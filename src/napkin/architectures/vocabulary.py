"""A vocabulary padded with ids that stand for no token: rows of the tables and columns of the logits alike."""

from __future__ import annotations

from typing import Any

from napkin.elementwise import ceil_div
from napkin.operations.base import VOCABULARY, Operation
from napkin.operations.embedding import Embedding
from napkin.operations.linear import Matmul
from napkin.operations.model import Model, Stack
from napkin.operations.views import Reused
from napkin.record import replace


def padded(model: Model, multiple: int) -> Model:
    """The model with its vocabulary rounded up to a multiple of `multiple`: ⌈V/multiple⌉·multiple (Megatron-core
    tokenizers/utils/build_tokenizer.py, vocab_size_with_padding)."""
    before = model.vocabulary
    rows = ceil_div(before, multiple) * multiple
    if rows == before:
        return model

    def one(op: Operation) -> Operation:
        if isinstance(op, Reused):
            return replace(op, of=one(op.of))
        if isinstance(op, Embedding) and op.role == "token" and op.rows == before:
            return replace(op, rows=rows)
        if isinstance(op, Matmul) and op.shard == VOCABULARY and op.d_out == before:
            return replace(op, d_out=rows)
        return op

    def after(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        found: list[Operation] = []
        logits: set[str] = set()
        for op in operations:
            wide: Any = op
            if logits.intersection(op.reads) and getattr(op, "width", 0) == before:
                found.append(replace(wide, width=rows))
                logits.add(op.name)
                continue
            found.append(one(op))
            if found[-1] is not op:
                logits.add(op.name)
        return tuple(found)

    def stack(old: Stack) -> Stack:
        return replace(old, before=tuple(one(op) for op in old.before), after=after(old.after))

    return replace(model, stacks=tuple(stack(old) for old in model.stacks), vocabulary=rows)

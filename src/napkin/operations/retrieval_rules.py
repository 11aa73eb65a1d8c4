"""Experts looked up by product keys, on the tape (operation: retrieval.py)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import BYTES, Tensor
from napkin.operations.expert_rules import shares
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.retrieval import RetrievedExperts


def retrieved(run: Lowering, op: Any) -> Value:
    """All halves of keys in order, their sums' best, whose rows are looked up in both tables: two batched products of
    them keep all that they read."""
    x, logits = run.read(op).tensor, run.read(op, 1).tensor
    tape, tokens = run.tape, run.tokens
    stored = "fp32" if tape.autocast else tape.compute
    halves = tape.new(logits.count, "int64", "halves in order", fixed=True)
    ordered = tape.record("topk", (logits,), tape.new(logits.count, logits.dtype, "halves"), (halves,))
    sums = tape.add(ordered.view(tokens * op.keys * op.keys), ordered.view(tokens * op.keys * op.keys))
    places, chosen = (tape.new(tokens * op.top_k, "int64", what, fixed=True) for what in ("places", "chosen"))
    best = tape.record("topk", (sums,), tape.new(tokens * op.top_k, sums.dtype, "best"), (places,))
    scores = tape.softmax(best)
    if op.normalise:
        scores = shares(run, scores, tokens)

    def looked_up(table: str) -> Tensor:
        rows = tape.new(tokens * op.top_k * op.width, stored, table)
        return tape.record("embedding", (chosen,), rows, (chosen,), weight=op.experts * op.width * BYTES[stored])

    down, up = looked_up("down"), looked_up("up")
    hidden = run.activated(tape.matmul(down, x, tokens * op.top_k, "hidden"), op.function)
    out = tape.matmul(tape.multiply(hidden, scores), up, tokens * op.width, "output")
    return Value(out, op.width)


RULES: Rules = {RetrievedExperts: retrieved}

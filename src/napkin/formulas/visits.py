"""Layers of a run whose backward pass can have the largest live bytes.

Backwards through equal layers live bytes change by the same amount from one to the next (what they kept goes, their
weights' gradients come), so the ends of a run are enough; where some are checkpointed or groups are, the ends of each
kind and of the last and the first groups.
"""

from __future__ import annotations

from napkin.elementwise import Number, maximum, minimum
from napkin.formulas.activations import checkpointed, group_size
from napkin.inputs.plan import Recompute
from napkin.record import record


@record
class Visit:
    """One layer in the backward pass.

    there   1 where the run has such a layer, else 0
    ahead   layers of the run up to it, itself counted       again   of them, those that are checkpointed
    inputs  checkpoints that those keep                      rerun   layers that were computed again and are still there
    """

    there: Number
    ahead: Number
    again: Number
    inputs: Number
    rerun: Number


def visits(recompute: Recompute, depth: int, begin: Number, offset: Number, count: Number) -> list[Visit]:
    """For a run of `count` layers: `begin` its first layer's number in the model, `offset` in the stage. The run's last
    layer, which has all of it ahead, comes first."""
    size = group_size(recompute, depth)

    def visit(ahead: Number) -> Visit:
        there = (ahead > 0) * (ahead <= count) * 1
        again = checkpointed(begin, begin + maximum(ahead, 0), recompute)
        if size == 1:
            is_again = again - checkpointed(begin, begin + maximum(ahead - 1, 0), recompute)
            return Visit(there, ahead, again, again, is_again)
        last = offset + ahead - 1
        start = maximum(last // size * size, offset)
        inputs = last // size - (offset + size - 1) // size + 1
        return Visit(there, ahead, again, inputs, last - start + 1)

    if size > 1:
        last = (offset + count - 1) // size * size - offset  # layers before the last group
        first = size - offset % size
        ends = (count, maximum(last, 0) + 1, last, last - size + 1, minimum(first, count), 0 * count + 1)
        return [visit(n) for n in ends]
    if recompute.kind == "every":
        k = recompute.k
        end = begin + count - 1
        numbers = (end // k * k, (begin + k - 1) // k * k, end - (end % k == 0) * 1, begin + (begin % k == 0) * 1)
        return [visit(count), *(visit(n - begin + 1) for n in numbers)]
    return [visit(count), visit(0 * count + 1)]

"""The time of operations outside the layers: embedding lookups, the final norm, the logits and their loss. None of them
is recomputed. Those before the layers are on the first pipeline stage, those after on the last."""

from __future__ import annotations

from collections.abc import Sequence

from napkin import term
from napkin.elementwise import holds_for_all
from napkin.operations.backward_parts import ALL
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.operations.rewrite import fuse_linears
from napkin.operations.roles import ADAPTER, REPLICATED, VOCABULARY
from napkin.operations.trained import head_of
from napkin.term import Term
from napkin.timing.clock import BYTE, PER_PARAM, Clock, size, total, zero
from napkin.timing.layer import LayerTime
from napkin.timing.layer_clock import GROUPS, LayerClock
from napkin.timing.layer_collectives import all_reduce_time
from napkin.timing.layer_weights import layer_weights, table_of
from napkin.timing.matrix_work import work_of


def timed(clock: Clock, operations: Sequence[Operation], kind: str, apart: Operation | None = None) -> LayerClock:
    """Return the clock of operations outside the layers, with their seconds; `apart`: an operation whose matmuls are
    timed elsewhere."""
    own = LayerClock(clock, kind)
    for op in operations:
        if op is not apart:
            op.time(own)
    if own.linears:
        own.fused(fuse_linears(own.linears))
    own.elementwise(operations)
    return own


def by_group(own: LayerClock) -> dict[str, Term]:
    """Return the seconds by group, forward and backward."""
    return {group: total(f"{own.kind}/{group}", (*own.forward[group], *own.backward[group])) for group in GROUPS}


def outside(stack: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations of a stack without adapters, which are timed with the head."""
    return tuple(op for op in stack if op.role != ADAPTER)


def entry_time(clock: Clock, operations: Sequence[Operation], kind: str, tied: bool) -> LayerTime:
    """Return the time of the operations before a stack's layers: embedding lookups, which vocabulary-parallel ranks
    all-reduce (Shoeybi et al. 2019, arXiv:1909.08053, section 3), and further operations on the embeddings.

    The gradient of an embedding is accumulated in full, like that of any weight; that of a tied one with the head's.
    Its parameters are counted with the head's (`tables` of data_parallel.py)."""
    operations = outside(operations)
    own = timed(clock, operations, kind)
    for op in operations:
        for weight in op.weights():
            if weight.shard == VOCABULARY:
                own.add({"tensor": all_reduce_time(clock, f"{kind}/{op.name}", weight.shape[1])}, {})
    held, _ = layer_weights(operations, clock.layout, kind)
    if not tied:
        each = clock.rate("accumulation_bytes", clock.rates.accumulation_bytes, PER_PARAM)
        added = term.multiply(f"{kind}/accumulation/bytes", each, held.dense)
        own.add({}, {"accumulation": clock.move(f"{kind}/accumulation/added", added)})
    behind = total(f"{kind}/behind", (one for terms in own.backward.values() for one in terms))
    ahead = total(f"{kind}/ahead", (one for terms in own.forward.values() for one in terms))
    return LayerTime(by_group(own), behind, ahead, *layer_weights((), clock.layout, kind), zero(f"{kind}/works"))


def head_time(clock: Clock, model: Model) -> LayerTime:
    """Return the time of the operations after the layers: the final norm, the logits (always in 16 bits), operations on
    them, and the loss; and that of adapters on the embedding and the head."""
    head = head_of(model)
    learning = ALL if head is None else head.learning
    width = size("head/width", model.hidden)
    local = term.divide("head/rows", size("logits", model.logits), clock.tp)
    forward, backward = clock.linear("head/logits", clock.tokens, width, local, wide=True, learning=learning)
    adapters = tuple(op for stack in model.stacks for op in (*stack.before, *stack.after) if op.role == ADAPTER)
    own = timed(clock, (*outside(model.stacks[-1].after), *adapters), "head", head)
    if learning.stored or not holds_for_all(clock.layout.loss_parts > 0):  # its parts cast the weight by themselves
        own.frozen("head/logits", term.multiply("head/elements", width, local), learning)
    loss = clock.rate("loss_bytes", clock.rates.loss_bytes, BYTE)
    read = clock.move("head/loss", term.multiply("head/loss/bytes", loss, clock.tokens, local))
    own.add({"matmul": forward, "elementwise": read}, {"matmul": backward})
    if holds_for_all(clock.layout.loss_parts > 0):
        _recompute_parts(own, forward, term.multiply("head/elements_of_a_rank", width, local))
    if learning.inputs and (head is None or head.division() != REPLICATED):  # the logits are divided by columns
        own.add({}, {"tensor": all_reduce_time(clock, "head", model.hidden)})
    if learning.trained:
        each = clock.rate("accumulation_bytes", clock.rates.accumulation_bytes, PER_PARAM)
        added = term.multiply("head/accumulation/bytes", each, table_of(clock, model))
        own.add({}, {"accumulation": clock.move("head/accumulation/added", added)})
    held = layer_weights(adapters, clock.layout, "head")
    return LayerTime(by_group(own), zero("head/behind"), zero("head/ahead"), *held, work_of(clock, adapters, "head"))


def _recompute_parts(own: LayerClock, forward: Term, elements: Term) -> None:
    """Add the logits that a loss in checkpointed parts computes again in backward, and its copies of the head's weight
    (operations/losses.py, copied_bytes)."""
    layout, parts = own.clock.layout, size("loss_parts", own.clock.layout.loss_parts)
    ahead, back = (
        own.clock.move(
            f"head/copies/{name}",
            term.multiply(
                f"head/copies/{name}/bytes",
                term.leaf(name, each, BYTE, term.TRUE, "casts of the weight"),
                parts,
                elements,
            ),
        )
        for name, each in (("copied", layout.head_copied), ("copied_back", layout.head_copied_back))
    )
    own.add({"casts": ahead}, {"casts": back, "matmul": forward.renamed("head/logits/again")})


def entries(clock: Clock, last: Clock, model: Model) -> list[LayerTime]:
    """Return the time of the operations before the layers of each stack; those after an encoder's layers come before
    the decoder's. last: the clock of the last stack."""
    found = []
    for place, stack in enumerate(model.stacks):
        over = clock if place == 0 else last
        if place:
            found.append(entry_time(clock, model.stacks[place - 1].after, f"between_{place}", model.tied))
        found.append(entry_time(over, stack.before, "embedding" if place == 0 else f"embedding_{place}", model.tied))
    return found

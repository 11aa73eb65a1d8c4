"""The time of operations outside the layers: embedding lookups, the final norm, the logits and their loss. None of them
is recomputed. Those before the layers are on the first pipeline stage, those after on the last."""

from __future__ import annotations

from collections.abc import Sequence

from napkin import term
from napkin.elementwise import holds_for_all
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.operations.queries import head_of
from napkin.operations.rewrite import fuse_linears
from napkin.operations.roles import ADAPTER, REPLICATED, SENSES, TOKEN, VOCABULARY
from napkin.term import Term
from napkin.timing.clock import BYTE, PER_PARAM, Clock, size, total, zero
from napkin.timing.layer import LayerTime
from napkin.timing.layer_clock import GROUPS, LayerClock
from napkin.timing.layer_collectives import all_reduce_time
from napkin.timing.layer_weights import layer_weights


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
    """Return the operations of a stack without adapters, which are timed with the head, and without an audio encoder
    or a vision tower, which text does not run."""
    return tuple(op for op in stack if op.role not in (ADAPTER, *SENSES))


def entry_time(clock: Clock, operations: Sequence[Operation], kind: str, tied: bool) -> LayerTime:
    """Return the time of the operations before a stack's layers: embedding lookups, which vocabulary-parallel ranks
    all-reduce (Shoeybi et al. 2019, arXiv:1909.08053, section 3), and further operations on the embeddings.

    The gradient of an embedding is accumulated in full, like that of any weight; that of a tied one with the head's."""
    operations = outside(operations)
    own = timed(clock, operations, kind)
    for op in operations:
        for weight in op.weights():
            if weight.shard == VOCABULARY:
                own.add({"tensor": all_reduce_time(clock, f"{kind}/{op.name}", weight.shape[1])}, {})
    _accumulate(own, [op for op in operations if not (tied and op.embeds() == TOKEN)])
    behind = total(f"{kind}/behind", (one for terms in own.backward.values() for one in terms))
    ahead = total(f"{kind}/ahead", (one for terms in own.forward.values() for one in terms))
    return _at_end(own, behind, ahead)


def _at_end(own: LayerClock, behind: Term, ahead: Term) -> LayerTime:
    """Return the time of operations whose weights `end_weights` counts. Their few launches are not timed."""
    none = layer_weights((), own.clock.layout, own.kind)
    groups = by_group(own)
    spare = total(f"{own.kind}/host/spare", groups.values())
    return LayerTime(groups, behind, ahead, *none, zero(f"{own.kind}/works"), spare)


def _accumulate(own: LayerClock, operations: Sequence[Operation]) -> None:
    """Add the accumulation of the gradients of operations' weights."""
    held, _ = layer_weights(operations, own.clock.layout, own.kind)
    each = own.clock.rate("accumulation_bytes", own.clock.rates.accumulation_bytes, PER_PARAM)
    added = term.multiply(f"{own.kind}/accumulation/bytes", each, held.dense)
    own.add({}, {"accumulation": own.clock.move(f"{own.kind}/accumulation/added", added)})


def head_time(clock: Clock, model: Model) -> LayerTime:
    """Return the time of the operations after the layers: the final norm, the logits, operations on them, and the loss;
    and that of adapters on the embedding and the head."""
    head = head_of(model)
    adapters = tuple(op for stack in model.stacks for op in (*stack.before, *stack.after) if op.role == ADAPTER)
    own = timed(clock, (*outside(model.stacks[-1].after), *adapters), "head", head)
    if head is not None:
        _add_logits(own, model, head)
    _accumulate(own, outside(model.stacks[-1].after))
    return _at_end(own, zero("head/behind"), zero("head/ahead"))


def _add_logits(own: LayerClock, model: Model, head: Operation) -> None:
    """Add the head's matmul, always in 16 bits, and the loss of what it makes; both run again for each module that
    predicts a further token."""
    clock, learning, linear = own.clock, head.learning, head.linear()
    tokens, losses = clock.tokens, model.stacks[-1].losses
    if losses > 1:
        tokens = term.multiply("head/tokens", tokens, size("head/losses", losses))
    width = size("head/width", model.hidden if linear is None else linear.d_in)
    local = term.divide("head/rows", size("logits", model.logits), clock.tp)
    forward, backward = clock.linear("head/logits", tokens, width, local, wide=True, learning=learning)
    if learning.stored or not holds_for_all(clock.layout.loss_parts > 0):  # its parts cast the weight by themselves
        own.frozen("head/logits", term.multiply("head/elements", width, local), learning)
    loss = clock.rate("loss_bytes", clock.rates.loss_bytes, BYTE)
    read = clock.move("head/loss", term.multiply("head/loss/bytes", loss, tokens, local))
    own.add({"matmul": forward, "elementwise": read}, {"matmul": backward})
    if holds_for_all(clock.layout.loss_parts > 0):
        _recompute_parts(own, forward, term.multiply("head/elements_of_a_rank", width, local))
    if learning.inputs and head.division() != REPLICATED:  # the logits are divided by columns
        own.add({}, {"tensor": all_reduce_time(clock, "head", model.hidden)})


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

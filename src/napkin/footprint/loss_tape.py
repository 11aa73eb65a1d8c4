"""The loss on the tape: a cross entropy in torch operations, one with its own buffers, and one fused with the head's
matmul."""

from __future__ import annotations

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import BYTES, INPUT, Tensor, sized
from napkin.elementwise import Number, ceil_div, maximum, where
from napkin.errors import Refused
from napkin.operations.base import Operation
from napkin.operations.implementations import CUT_IN_FP32, CUT_IN_FUNCTION
from napkin.operations.lowering import Lowering
from napkin.operations.model import Stack
from napkin.operations.rewrite import rewrite
from napkin.operations.roles import LM_HEAD, LOSS
from napkin.operations.shapes import Value
from napkin.operations.work import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.losses import Loss

STREAM = "x"
"""The name under which operations read the residual stream."""
QUARTERS = 4
"""Bytes per logit are multiples of a quarter, so integers stay exact."""


def run_head(lowering: Lowering, stack: Stack, residual: Value) -> Number:
    """Run the operations after the layers, and the loss, as often as the model predicts a further token; return the
    bytes of logits that the training loop holds."""
    for _ in range(stack.losses - 1):
        _run_head_once(lowering, stack, residual)
    return _run_head_once(lowering, stack, residual)


def _run_head_once(lowering: Lowering, stack: Stack, residual: Value) -> Number:
    """Run them once; return the same."""
    form = _special(lowering.implementation.loss)
    kept_on: Number = 0
    if stack.after and stack.after[-1].role == LOSS:  # a head of another kind, with a loss of its own
        lowering.run(rewrite(stack.after, lowering.implementation), residual)
    elif form is not None and form.parts is not None:
        fused_loss(lowering, stack.after, residual, form)
    else:
        logits = lowering.run(rewrite(stack.after, lowering.implementation), residual)
        if form is None:
            returned = cross_entropy(lowering, logits, lowering.values[body_output(stack)].tensor)
            kept_on = lowering.implementation.holds_logits * returned.size
        else:
            special_loss(lowering, logits, form)
            kept_on = int(form.held) * logits.tensor.count
    return kept_on


def body_output(stack: Stack) -> str:
    """Return the name of the tensor that the class without a head returns, and that the class with a head holds until
    the loss: the residual stream, or the output of the body's norms and projections."""
    root = stack.before[0].module.partition(".")[0] if stack.before else ""
    found = STREAM
    for op in stack.after:
        linear = op.linear() is not None
        if linear and op.module.partition(".")[0] != root:
            break
        if linear or op.normalizes():
            found = op.name
    return found


def cross_entropy(lowering: Lowering, logits: Value, hidden: Tensor) -> Tensor:
    """Record a log-softmax, saved in its input's dtype, and the negative log-likelihood, which saves the labels and the
    total weight; return the logits that the model's class returns. `hidden`: the output of the class's body, which it
    holds."""
    tape, implementation = lowering.tape, lowering.implementation
    tape.scope = "loss"
    if logits.divided and not implementation.parallel_loss:
        logits = lowering.gather_parts(logits)
    scored, tokens = logits.tensor, lowering.tokens
    if implementation.cuts in (CUT_IN_FP32, CUT_IN_FUNCTION):
        scored = tape.cast(scored, "fp32")
    returned = logits.tensor if implementation.cuts == CUT_IN_FUNCTION else scored
    held = [returned, scored]
    if implementation.cuts:
        scored = _cut(lowering, scored)
        tokens = tokens - lowering.b
        held.append(scored)
    wide = tape.cast(scored, "fp32") if implementation.fp32_loss else tape.raised(scored)
    held.append(wide)
    if implementation.shifted:
        ids = tape.given(tokens, "int64", "labels", kind=INPUT, no_grad=True)
        padded = tape.new(lowering.b * (lowering.own + 1), "int64", "padded labels", no_grad=True)
        padded.storage.size = where(lowering.b == 1, 0, padded.size)  # one sequence's stay, and are counted there
        held.append(tape.record("pad", (ids,), padded))
    out = tape.softmax(wide)
    if implementation.shifted:
        # a single sequence's shifted labels are a view of the padded ones, one longer
        target = tape.new(tokens, "int64", "labels", no_grad=True)
        target.storage.size = where(lowering.b == 1, lowering.own + 1, tokens) * BYTES["int64"]
    elif implementation.cuts:
        target = tape.new(tokens, "int64", "labels", no_grad=True)
        target.storage.size = where(lowering.b == 1, 0, target.size)  # one sequence's are a view
    else:
        target = tape.given(tokens, "int64", "labels", kind=INPUT, no_grad=True)
    weight = tape.new(1, out.dtype, "weight of all tokens", no_grad=True)
    tape.record("nll_loss", (out,), tape.new(1, out.dtype, "loss"), (target, weight))
    tape.hold(*held, hidden)
    return returned


def _cut(lowering: Lowering, logits: Tensor) -> Tensor:
    """Record the logits without those of each sequence's last token: a copy, or a view for a single sequence."""
    tape = lowering.tape
    left = tape.new(logits.count - logits.count // lowering.tokens * lowering.b, logits.dtype, "cut logits")
    left.storage.size = where(lowering.b == 1, 0, left.size)
    return tape.record("cut", (logits,), left)


def _special(loss: str) -> Loss | None:
    """Return a form of cross entropy other than torch's own; None for that."""
    if not loss:
        return None
    from napkin.operations.losses import LOSSES

    return LOSSES.get(loss)


def of_each(bytes_each: float, count: Number) -> Number:
    """Return the bytes of this many logits, given quarter bytes per logit."""
    return ceil_div(count * int(bytes_each * QUARTERS), QUARTERS)


def special_loss(lowering: Lowering, logits: Value, form: Loss) -> None:
    """Record a cross entropy with its own buffers: what it saves, and their peak."""
    tape = lowering.tape
    tape.scope = "loss"
    head = tape.nodes[-1]
    if form.chunks > 1:
        head.scratch = head.scratch + head.weight
    if logits.divided and not lowering.implementation.parallel_loss:
        logits = lowering.gather_parts(logits)

    def of(bytes_each: float) -> Number:
        return of_each(bytes_each, logits.tensor.count)

    kept = logits.tensor
    if form.kept != BYTES[kept.dtype]:  # other bytes than the logits themselves
        kept = tape.new(1, "fp32", "buffer", no_grad=True)
        kept.storage.size = of(form.kept)
    given = Tensor(of(form.passed), "int8", logits.tensor.storages, base=logits.tensor)
    rest = of(form.row) // lowering.b if form.row else 0
    others = of(form.peak) + rest - of(form.kept) - given.size  # below 0: some of it goes as the gradient comes
    tape.record("loss", (given,), tape.new(1, logits.tensor.dtype, "loss"), (kept,), scratch=others)


def fused_loss(lowering: Lowering, operations: tuple[Operation, ...], residual: Value, form: Loss) -> None:
    """Record the head's matmul and the cross entropy as one kernel, one part of the tokens at a time; operations after
    the head run inside it. Refused without a head."""
    tape = lowering.tape
    place = next((n for n, op in enumerate(operations) if op.role == LM_HEAD), None)
    if place is None or form.parts is None:
        raise Refused("a loss fused with the head's matmul needs a head", "omit --loss")
    head = operations[place]
    (matmul,) = head.gemms(Work(lowering.b, lowering.own))
    hidden = (
        lowering.run(rewrite(operations[:place], lowering.implementation), residual).tensor
        if place
        else residual.tensor
    )
    lowering.score()
    tape.scope = "loss"
    vocabulary = matmul.n // lowering.split.tensor
    logits = form.parts(lowering.tokens, vocabulary, matmul.k) * vocabulary
    trained = vocabulary * matmul.k * (not lowering.freezes(head))
    if form.early:
        _early_loss(tape, hidden, trained, logits, lowering.tokens, form)
    else:
        _recomputed_loss(tape, hidden, trained, vocabulary * matmul.k, logits, lowering.tokens, form)


def _early_loss(tape: Tape, hidden: Tensor, trained: Number, logits: Number, tokens: Number, form: Loss) -> None:
    """Record a loss that computes the gradients in its forward pass; logits, trained: of one part, and of the head's
    weight.

    It saves the gradients of the hidden state and, unless that is added to the parameter's own, of the head's weight,
    and backward returns them unchanged. Forward also holds the logits of one part, the part's gradient of the weight,
    and an fp32 loss per token."""
    dtype = tape.autocast or hidden.dtype
    own = of_each(form.peak, logits)
    held = own if form.added or dtype != "fp32" else 2 * own
    of_hidden = tape.new(
        hidden.count, "fp32" if form.added else hidden.dtype, "gradient of the hidden state", no_grad=True
    )
    of_weight = tape.new(trained, tape.compute, "gradient of the head's weight", no_grad=True)
    tape.record(
        "fused_loss",
        (hidden,),
        tape.new(1, "fp32", "loss"),
        (of_hidden,) if form.added else (of_hidden, of_weight),
        weight=of_weight.size,
        scratch=0 if form.added else -of_weight.size - of_hidden.size,  # both are kept already: returned, not computed
        forward_scratch=held + of_weight.size + sized(tokens, "fp32"),
    )


def _recomputed_loss(
    tape: Tape, hidden: Tensor, trained: Number, weight: Number, logits: Number, tokens: Number, form: Loss
) -> None:
    """Record a loss whose parts are checkpointed, under autocast: 16-bit weights are copied to fp32, all are copied to
    autocast's 16 bits for the matmul, and a log-softmax, the likelihood and the entropy follow in fp32.

    trained, weight, logits: elements of the weight that have a gradient, of the weight, and of a part's logits. It
    saves a copy of the hidden state in the order of its labels. Backward, the gradients of slices of the hidden state
    are summed, and so are those of the weight; each sum is a third tensor. A part's own gradient of the weight, in the
    matmul's format and then in the weight's, is never more than the copies, the logits or the sum."""
    wide, narrow = BYTES["fp32"], BYTES[tape.autocast or tape.compute]
    stored = wide if tape.autocast else narrow
    widened, lowered = wide * weight * (stored < wide), narrow * weight * (narrow < wide)
    copied, scored = widened + lowered + narrow * logits, narrow * logits + of_each(form.peak, logits)
    one = tape.new(hidden.count, hidden.dtype, "hidden state in the order of its labels")
    order = tape.new(2 * tokens, "int64", "labels and their order", no_grad=True)
    summed = stored * trained
    tape.record(
        "recomputed_loss",
        (hidden,),
        tape.new(1, "fp32", "loss"),
        (one, order),
        weight=summed,
        scratch=maximum(copied, lowered + scored, 2 * summed, 2 * one.size),
        forward_scratch=maximum(copied, scored),
    )

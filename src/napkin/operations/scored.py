"""The loss of classification and question answering, over scores of labels (transformers 5.23.0, loss_utils.py)."""

from __future__ import annotations

from napkin.autograd.tensors import INPUT, Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Elementwise
from napkin.operations.lowering import Lowering
from napkin.operations.roles import LOSS
from napkin.operations.shapes import Value
from napkin.record import record

SEQUENCE, TOKEN, SPAN = "sequence", "token", "span"
"""What is scored: a sequence, each of its tokens, or where an answer begins and ends among them."""


@record
class ClassLoss(Elementwise):
    """A cross entropy over `labels` scores: of a sequence (of one of its tokens where `picks`), of each token, in fp32
    (ForTokenClassification), or of all tokens, for where an answer begins and where it ends."""

    labels: int
    over: str = SEQUENCE
    picks: bool = True

    def __post_init__(self) -> None:
        self.__dict__["role"] = LOSS

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: a few numbers for each token."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        tape, x = run.tape, run.read(self).tensor
        tape.scope = "loss"
        held = [x]
        if self.over == SPAN:
            parts = [tape.copy(tape.slice(x, run.tokens), "begin or end") for _ in range(2)]
            losses = [self._entropy(run, part, run.b) for part in parts]
            return Value(tape.add(*losses), 1)
        rows = run.tokens
        if self.over == SEQUENCE:
            rows = run.b
            if self.picks:
                indices = [tape.given(run.b, "int64", "rows", kind=INPUT, no_grad=True) for _ in range(2)]
                x = tape.record("index", (x,), tape.new(run.b * self.labels, x.dtype, "scores of sequences"), indices)
        else:
            x = tape.cast(x, "fp32")
        held.append(x)
        loss = self._entropy(run, x, rows)
        tape.hold(*held)
        return Value(loss, 1)

    def _entropy(self, run: Lowering, x: Tensor, rows: Number) -> Tensor:
        """Record a log-softmax and the negative log-likelihood, which keeps the labels and the weight of all rows."""
        tape = run.tape
        out = tape.softmax(tape.raised(x))
        target = tape.given(rows, "int64", "labels", kind=INPUT, no_grad=True)
        weight = tape.new(1, out.dtype, "weight of all rows", no_grad=True)
        return tape.record("nll_loss", (out,), tape.new(1, out.dtype, "loss"), (target, weight))

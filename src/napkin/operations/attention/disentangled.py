"""DeBERTa's disentangled attention: scores of relative positions next to those of the content."""

from __future__ import annotations

from functools import partial

from napkin.autograd.tensors import Tensor, select
from napkin.elementwise import Number
from napkin.operations.adapters.adapted import linear
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.eager import dropped_share
from napkin.operations.bases import Module, Ordinary
from napkin.operations.facts import POSITION_SCORES, LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.primitives import minimum
from napkin.operations.roles import COLUMN
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class TableMatmul(Module):
    """Linear layer applied to the `rows` of an embedding, independent of the tokens. FLOP: 2·rows·d_in·d_out.

    `within`: only rows of distances in −s … s, at most two per position. `by_heads`: the result is copied for each
    sequence."""

    rows: int
    d_in: int
    d_out: int
    bias: bool = False
    within: bool = False
    by_heads: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return Matmul(self.name, self.reads, self.d_in, self.d_out, self.bias, COLUMN).weights()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        rows = minimum(self.rows, 2 * work.length) if self.within else self.rows
        return (gemm(self.name, rows, self.d_in, self.d_out),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return (LinearPart(self.module, self.d_in, self.d_out, self.bias),)

    def lower(self, run: Lowering) -> Value:
        """Project the embedding's rows once for all sequences."""
        tape = run.tape
        rows_here = minimum(self.rows, 2 * run.s) if self.within else self.rows
        assert run.distances is not None  # the stack begins with it
        table = run.distances
        if id(table) not in run.derived:  # both products read the same rows
            dropped = tape.dropout(table, run.dropout)
            run.derived[id(table)] = tape.slice(dropped, rows_here * self.d_in, apart=True)
        x = tape.lowered(run.derived[id(table)])
        if tape.copies is not None:  # the weight is the content's, which keeps autocast's copy of it
            rows = tape.record("linear", (x,), tape.new(rows_here * self.d_out, x.dtype, "rows"), (x,))
        else:
            rows = linear(run, self.linear_parts(run.implementation)[0], x, label=f"{self.name}/weight")
        if self.by_heads:
            rows = tape.copy(rows.view(rows.count * run.b), "for each sequence")
        return Value(rows, self.d_out)


@record
class RelativeScores(Ordinary):
    """Scores of each query or key against the `rows` of a table of relative positions, a part of attention's scores
    (DeBERTa, arXiv:2006.03654). FLOP: 2·b·a·s·rows·d. `within` as in TableMatmul. `divided`: what a constant divides,
    the table's rows, the scores, or neither (a query that is scaled already). `by_heads`: what it reads is copied
    into a layout by heads."""

    heads: int
    head_dim: int
    rows: int
    within: bool = False
    divided: str = "scores"
    by_heads: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        rows = minimum(self.rows, 2 * work.length) if self.within else self.rows
        return (gemm(self.name, work.length, self.head_dim, rows, work.sequences * self.heads, weight=False),)

    def pattern(self) -> str:
        return POSITION_SCORES

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts those of pairs."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        """Return the score that each pair of a query and a key takes from those of its distance."""
        return work.tokens * self.heads * work.length

    def lower(self, run: Lowering) -> Value:
        if self.by_heads:
            run.scores.append(partial(self.made, run))
            return Value(run.tape.new(0, run.tape.compute, "made in attention", no_grad=True), self.heads * self.rows)
        return Value(self.made(run)[0], self.heads * self.rows)

    def made(self, run: Lowering) -> tuple[Tensor, ...]:
        """Score against each row, of which each pair's distance then chooses one: both and the choice are kept. Return
        the scores, and what else the function's variables hold."""
        tape = run.tape
        content, table = run.read(self).tensor, tape.lowered(run.read(self, 1).tensor)
        if self.divided == "table":  # in place
            divisor = tape.new(1, "fp32", "divisor", no_grad=True)
            table = tape.record("div", (table,), table.view(), (divisor,))
        if self.by_heads:
            content = _by_heads(run, content)
        else:  # the product puts sequences and heads together, and repeats the table
            content, spread = tape.lowered(content), table.view(table.count * run.b)
            content = select(run.b == 1, content, tape.copy(content, "folded"))
            table = select(run.b == 1, table, tape.copy(spread, "for each sequence"))
        rows_here = minimum(self.rows, 2 * run.s) if self.within else self.rows
        scores = tape.matmul(content, table, run.tokens * self.heads * rows_here, "scores of rows")
        index = tape.new(run.own * run.s, "int64", "distances", no_grad=True)
        pairs = tape.new(run.tokens * self.heads * run.s, scores.dtype, "scores of pairs")
        pairs = tape.record("gather", (scores,), pairs, (scores, index))
        return _over_constant(run, pairs) if self.divided == "scores" else pairs, pairs, index, table


@record
class HeadMajorAttention(AttentionCore):
    """Attention of queries, keys and values that are copied into a layout by heads: keys divided by a constant, the
    scores of positions added, a mask of each layer's own (DeBERTa v2)."""

    copied: bool = True

    def eager(
        self, run: Lowering, qkv: tuple[Tensor, ...], rows_apart: tuple[bool, ...], heads: Number, kv_heads: Number
    ) -> Tensor:
        tape = run.tape
        q, k, v = (_by_heads(run, x) for x in qkv)
        run.scopes.local(q, k, v)
        count = run.b * heads * run.own * run.s
        scores = tape.matmul(q, _over_constant(run, k), count, "scores")
        positions: Tensor | None = None
        variables: list[Tensor] = []
        for make in run.scores:
            part, *others = make()
            variables += others
            if positions is None:  # 0 and the first are a new tensor, to which the others are added in place
                positions = tape.shift(part)
            else:
                positions = tape.record("add", (positions, part), positions.view(), alias=True)
        if positions is not None:
            tape.hold(*variables)
            scores = tape.add(scores, positions)
        mask = tape.new(run.b * run.own * run.s, "bool", "mask", no_grad=True)
        scores = tape.record("masked_fill", (scores,), tape.new(count, scores.dtype, "masked"), (mask,))
        weights = tape.dropout(tape.softmax(scores), dropped_share(run, self))
        out = tape.matmul(tape.lowered(weights), v, run.tokens * heads * self.v_dim, "values")
        return tape.copy(out, "attended")


def _by_heads(run: Lowering, x: Tensor) -> Tensor:
    """Return a head-major copy of the tensor, which all readers share."""
    x = run.tape.lowered(x)
    if id(x) not in run.derived:
        run.derived[id(x)] = run.tape.copy(x, "by heads")
    return run.derived[id(x)]


def _over_constant(run: Lowering, x: Tensor) -> Tensor:
    """Divide x by a constant tensor."""
    return run.tape.multiply(x, run.tape.new(1, x.dtype, "constant", no_grad=True), "divided")

"""Linear layers and their relatives: matrices that are parameters."""

from __future__ import annotations

from napkin.operations.base import COLUMN, HEADS, REPLICATED, VOCABULARY, Gemm, Operation, Weight, Work, gemm
from napkin.operations.primitives import minimum
from napkin.record import record


@record
class Matmul(Operation):
    """A linear layer d_in → d_out; y = x·W (+ bias). FLOP: 2·T·d_in·d_out."""

    d_in: int
    d_out: int
    bias: bool = False
    shard: str = REPLICATED

    def __post_init__(self) -> None:
        self._named_module()

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.d_out, self.d_in), self.shard)
        if not self.bias:
            return (weight,)
        return (weight, Weight("bias", (self.d_out,), COLUMN if self.shard == COLUMN else REPLICATED))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out),)


@record
class JoinedHead(Operation):
    """logits = x·[table, rest]ᵀ + bias: the head's matrix is put together on every pass, from the token table of
    `table` numbers a token and a matrix of the others. FLOP: 2·T·d_in·d_out."""

    d_in: int
    d_out: int
    table: int

    def weights(self) -> tuple[Weight, ...]:
        table = Weight("weight", (self.d_out, self.table), VOCABULARY)
        rest = Weight("rest", (self.d_in - self.table, self.d_out))
        return (table, rest, Weight("bias", (self.d_out,)))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out),)


@record
class BlockMatmul(Operation):
    """A block-diagonal linear layer: `blocks` separate maps d_in → d_out, one a head. FLOP: 2·T·blocks·d_in·d_out."""

    blocks: int
    d_in: int
    d_out: int
    bias: bool = False
    shard: str = HEADS

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.blocks, self.d_out, self.d_in), self.shard)
        return (weight, Weight("bias", (self.blocks, self.d_out), self.shard)) if self.bias else (weight,)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out, batch=self.blocks),)


@record
class TableMatmul(Operation):
    """A linear layer applied to the `rows` of a table, however many tokens there are. FLOP: 2·rows·d_in·d_out.

    `within`: at most two rows a position of the sequence are taken (distances −s … s)."""

    rows: int
    d_in: int
    d_out: int
    bias: bool = False
    within: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return Matmul(self.name, self.reads, self.d_in, self.d_out, self.bias, COLUMN).weights()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        rows = minimum(self.rows, 2 * work.length) if self.within else self.rows
        return (gemm(self.name, rows, self.d_in, self.d_out),)

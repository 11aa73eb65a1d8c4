"""Linear layers and their relatives: matrices that are parameters."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import (
    COLUMN,
    HEADS,
    REPLICATED,
    ROW,
    VOCABULARY,
    Gemm,
    Ordinary,
    Timer,
    Weight,
    Work,
    division_of,
    gemm,
)
from napkin.operations.primitives import minimum
from napkin.record import record


@record
class Matmul(Ordinary):
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

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: its GEMMs move their operands."""
        return 0, 0

    def division(self) -> str:
        return self.shard

    def time(self, timer: Timer) -> None:
        timer.linear(self)

    def linear(self) -> Matmul:
        return self

    def residual(self) -> Number | None:
        return self.d_out if self.shard == ROW else None


@record
class JoinedHead(Ordinary):
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

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: its GEMMs move their operands."""
        return 0, 0


@record
class BlockMatmul(Ordinary):
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

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: its GEMMs move their operands."""
        return 0, 0

    def division(self) -> str:
        return division_of(self.shard)


@record
class TableMatmul(Ordinary):
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

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: its GEMMs move their operands."""
        return 0, 0

"""Lookups of tokens and positions, and scores by distance."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import (
    HEADS,
    NOT_TIMED,
    POSITION,
    REPLICATED,
    TABLES,
    TOKEN,
    VOCABULARY,
    Gemm,
    Lookup,
    Operation,
    Ordinary,
    Weight,
    Work,
    gemm,
)
from napkin.operations.primitives import minimum
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@record
class Embedding(Lookup):
    """A lookup of rows of `width` elements in an embedding of `rows`. `role` is one of base.py's roles of embeddings.

    `trained`: a gradient reaches the embedding.
    """

    rows: int
    width: int
    trained: bool = True
    _: KW_ONLY
    role: str = TOKEN

    def weights(self) -> tuple[Weight, ...]:
        shard = VOCABULARY if self.role in TABLES else REPLICATED
        return (Weight("weight", (self.rows, self.width), shard, trained=self.trained),)

    def embeds(self) -> str:
        return self.role

    def cropped(self, length: int) -> Operation:
        return replace(self, rows=min(self.rows, length)) if self.role == POSITION else self

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 8 * self.width


@record
class PositionBias(Lookup):
    """A learnt score for each head and bucket of distances between query and key, added to attention's (T5,
    arXiv:1910.10683, section 2.1). `shared`: the layers that follow use it too, and have no table of their own."""

    buckets: int
    heads: int
    shared: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.buckets, self.heads), HEADS),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class RelativeScores(Ordinary):
    """Scores of each query or key against the `rows` of a table of relative positions, a part of attention's scores
    (DeBERTa, arXiv:2006.03654). FLOP: 2·b·a·s·rows·d. `within` as in TableMatmul. `divided`: what a constant divides,
    the table's rows, the scores, or neither (a query that is scaled already)."""

    heads: int
    head_dim: int
    rows: int
    within: bool = False
    divided: str = "scores"

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        rows = minimum(self.rows, 2 * work.length) if self.within else self.rows
        return (gemm(self.name, work.length, self.head_dim, rows, work.sequences * self.heads, weight=False),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

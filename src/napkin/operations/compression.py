"""Operations of attention over compressed keys (DeepSeek-V4): runs of tokens that are past stand for themselves by one
key each, of which an indexer may choose."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import NOT_TIMED, Gemm, Ordinary, Weight, Work, gemm
from napkin.operations.facts import Cache, Served
from napkin.operations.linear import BlockMatmul
from napkin.record import record


@record
class Compressor(Ordinary):
    """One key of `head_dim` numbers for each run of `rate` tokens: Σ over the run of softmax(gate + position)·value,
    normalised, its last `rotary` numbers turned. FLOP: 4·T·h·d, twice that where overlapping.

    overlapping  a run's key is made of its own tokens and of those of the run before, each token giving both its own
                 values and gates"""

    d_in: int
    head_dim: int
    rate: int
    rotary: int
    overlapping: bool = False

    @property
    def wide(self) -> int:
        """Numbers of values, and of gates, that a token gives."""
        return self.head_dim * (1 + self.overlapping)

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("value", (self.wide, self.d_in)),
            ("gate", (self.wide, self.d_in)),
            ("positions", (self.rate, self.wide)),
            ("norm", (self.head_dim,)),
        )
        return tuple(Weight(name, shape) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        parts = ("value", "gate")
        return tuple(gemm(f"{self.name}/{part}", work.tokens, self.d_in, self.wide) for part in parts)

    def traffic(self) -> tuple[Number, Number]:
        return 16 * self.wide, 24 * self.wide


@record
class RunIndexer(Ordinary):
    """Chooses the runs that each query sees: small queries from the latent query, its own compressor for their keys,
    and a weight for each head; score = Σ_h w_h·relu(q_h·k). Reads the layer's normalised input and the latent query.
    The loss's gradient does not reach its weights: a choice has none."""

    d_in: int
    q_rank: int
    heads: int
    head_dim: int
    rate: int
    rotary: int

    @property
    def keys(self) -> Compressor:
        return Compressor(f"{self.name}/keys", self.reads[:1], self.d_in, self.head_dim, self.rate, self.rotary, True)

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            *((weight.name, weight.shape) for weight in self.keys.weights()),
            ("query", (self.heads * self.head_dim, self.q_rank)),
            ("head_weights", (self.heads, self.d_in)),
        )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        t, runs = work.tokens, work.length // self.rate
        return (
            *self.keys.gemms(work),
            gemm(f"{self.name}/query", t, self.q_rank, self.heads * self.head_dim),
            gemm(f"{self.name}/head_weights", t, self.d_in, self.heads),
            gemm(f"{self.name}/scores", self.heads, self.head_dim, runs, t, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def cache(self, over: Served) -> Cache | None:
        """One key for each run of tokens, on every rank."""
        return Cache(self.name, growing=over.context // self.rate * self.head_dim)


@record
class BlockIndexer(Ordinary):
    """Chooses the blocks of `block` keys that each query sees, by the largest of q·k in each: small queries of its own
    heads and one key a token, normalised, `rotary` numbers turned. The loss's gradient does not reach its weights."""

    d_in: int
    heads: int
    head_dim: int
    block: int
    rotary: int

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("query", (self.heads * self.head_dim, self.d_in)),
            ("key", (self.head_dim, self.d_in)),
            ("query_norm", (self.head_dim,)),
            ("key_norm", (self.head_dim,)),
        )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        t, s = work.tokens, work.length
        return (
            gemm(f"{self.name}/query", t, self.d_in, self.heads * self.head_dim),
            gemm(f"{self.name}/key", t, self.d_in, self.head_dim),
            gemm(f"{self.name}/scores", s, self.head_dim, s, work.sequences * self.heads, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def cache(self, over: Served) -> Cache | None:
        """One key a token, on every rank."""
        return Cache(self.name, growing=over.context * self.head_dim)


@record
class GroupedMatmul(BlockMatmul):
    """A block-diagonal linear layer whose blocks are cut from one matrix: heads in groups, a map for each group."""

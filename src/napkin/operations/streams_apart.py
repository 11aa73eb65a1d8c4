"""Operations of networks whose memory is not known: several predicted streams, and layers that are reversed."""

from __future__ import annotations

from napkin.elementwise import Number, floor_log2, where
from napkin.errors import Refused
from napkin.operations.base import Operation
from napkin.operations.bases import Ordinary
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record, replace

UNKNOWN = (
    "napkin does not know what a training step of this network keeps in memory",
    "its parameters and FLOPs are known: napkin params, napkin flops",
)
"""What to say of memory, and the hint."""


@record
class Unkept(Ordinary, abstract=True):
    """Operations of which no one knows what a training step keeps."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Refuse to say what is kept."""
        raise Refused(*UNKNOWN)


@record
class Streamed(Unkept):
    """An operation that runs on `streams` vectors a token in place of one. FLOP: those of `of`, this many times."""

    of: Operation
    streams: int

    def weights(self) -> tuple[Weight, ...]:
        return self.of.weights()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return tuple(
            replace(one, batch=one.batch * self.streams, flops=one.flops * self.streams, pairs=None)
            for one in self.of.gemms(work)
        )

    def traffic(self) -> tuple[Number, Number]:
        forward, backward = self.of.traffic()
        return self.streams * forward, self.streams * backward

    def attention_width(self) -> Number:
        return self.streams * self.of.attention_width()


@record
class StreamedLinear(Matmul):
    """A linear layer that runs on `streams` vectors a token. FLOP: 2·T·streams·d_in·d_out."""

    streams: int = 1

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens * self.streams, self.d_in, self.d_out),)

    @property
    def vectors(self) -> int:
        return self.streams

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Refuse to say what is kept."""
        raise Refused(*UNKNOWN)


@record
class NgramAttention(Unkept):
    """Causal attention of the main stream, and of `ngram` predicted streams that see the main one and themselves.
    FLOP: 4·b·a·d·s²·(1 + 2·ngram), in every convention of counting pairs (ProphetNet, arXiv:2001.04063)."""

    heads: int
    head_dim: int
    ngram: int

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        batch, length, found = work.sequences * self.heads, work.length, []
        for name, times, keys in (("main", 1, length), ("predicted", self.ngram, 2 * length)):
            found += [
                gemm(f"{name}_scores", length, self.head_dim, keys, batch * times, weight=False),
                gemm(f"{name}_values", length, keys, self.head_dim, batch * times, weight=False),
            ]
        return tuple(found)

    def scores(self, work: Work) -> Number:
        return work.tokens * self.heads * work.length * (1 + 2 * self.ngram)

    def attention_width(self) -> Number:
        return 2 * self.heads * self.head_dim * (1 + 2 * self.ngram)

    def division(self) -> str:
        return HEADS


@record
class ChunkAttention(Unkept):
    """Attention of chunks of `chunk` tokens to themselves and `around` more, `hashes` times, after tokens are sorted by
    random rotations where `buckets` says into how many (Reformer, arXiv:2001.04451). A sequence of one chunk sees
    everything once. FLOP: 4·b·a·d·s·chunk·(1 + around)·hashes, in every convention of counting pairs.

    buckets  0: local, nothing is sorted; −1: as many as the class derives from the sequence
    most     positions of the longest sequence, from which the class derives how many buckets it factors
    """

    heads: int
    head_dim: int
    chunk: int
    around: int
    hashes: int = 1
    buckets: int = 0
    most: int = 0

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        batch, length = work.sequences * self.heads, work.length
        alone = length <= self.chunk
        keys = where(alone, length, self.chunk * (1 + self.around))
        times = where(alone, 1, self.hashes)
        found = [
            gemm("scores", length, self.head_dim, keys, batch * times, weight=False),
            gemm("values", length, keys, self.head_dim, batch * times, weight=False),
        ]
        if self.buckets:
            angles = where(alone, 0, self.hashes * self._rotations(length))
            found.append(replace(gemm("hashes", length, self.head_dim, angles, batch, weight=False), backward=0))
        return tuple(found)

    def _rotations(self, length: Number) -> Number:
        """Return the random directions of one hash: half as many as buckets."""
        if self.buckets > 0:
            return self.buckets // 2
        power = floor_log2(2 * (length // self.chunk))
        limit = 2 * max(int((self.most // self.chunk) ** 0.5), self.chunk)
        factors = 2 ** (power // 2) // 2 + 2 ** (power - power // 2) // 2
        return where(2**power > limit, factors, 2**power // 2)

    def scores(self, work: Work) -> Number:
        return sum(one.batch * one.m * one.n for one in self.gemms(work) if one.name == "scores")

    def attention_width(self) -> Number:
        return 2 * self.heads * self.head_dim

    def division(self) -> str:
        return HEADS

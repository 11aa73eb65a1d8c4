"""Adapters as separate operations, for FLOP counts and step times.

On the tape an adapter runs within the operation that it adapts (adapted.py)."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.errors import Refused
from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind, AdapterProduct
from napkin.operations.adapters.kinds import KINDS
from napkin.operations.adapters.lora import adapter_shards
from napkin.operations.base import Timer
from napkin.operations.bases import Ordinary
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS, MEMORY, REPLICATED
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Learning, Weight, Work, division_of, gemm
from napkin.record import record, replace

CAST = 6
"""Bytes of an element that is cast between 16 and 32 bits: read and written."""
WITHIN = "an adapter runs within the operation that it adapts"


@record
class Adapter(Ordinary):
    """y += scale · B·A·dropout(x) next to a linear layer x → y (Hu et al. 2021, arXiv:2106.09685, section 4.1).
    FLOP: 2·T·(d_in·thin + rank·d_out).

    thin, rank  output of A and input of B per token: a fused projection has one A for each of its parts
    drops       dropout before A         looked_up  A is an embedding, looked up by token ids
    shard       the linear layer's, which says how A and B are divided (`adapter_shards`)
    magnitude   DoRA: the weight's norm is computed in each forward pass, and both results are multiplied
    wide        its matrices are kept in fp32 next to a network in 16 bits, so that what they read is cast
    narrowed    autocast casts that on to 16 bits again; else its matmuls run in fp32
    joined      one function adds its output in place, with the linear layer's
    divided     both matrices are divided over tensor-parallel ranks
    copies      pairs of matrices, one per expert module, of which a token passes through `used`; for a single pair,
    `used` is the number of times"""

    d_in: int
    thin: int
    rank: int
    d_out: int
    shard: str = REPLICATED
    drops: bool = False
    looked_up: bool = False
    magnitude: bool = False
    wide: bool = False
    narrowed: bool = False
    joined: bool = False
    divided: bool = False
    copies: int = 1
    used: int = 1

    @property
    def reads_encoder(self) -> bool:
        """Return whether it runs over the encoder's tokens."""
        return self.reads == (MEMORY,)

    def weights(self) -> tuple[Weight, ...]:
        shards, used = adapter_shards(self.shard, self.copies, self.divided), min(self.used, self.copies)
        found = (
            Weight("A", (self.thin, self.d_in), shards[0], self.copies, used),
            Weight("B", (self.d_out, self.rank), shards[1], self.copies, used),
        )
        return (*found, Weight("magnitude", (self.d_out,), shards[1], self.copies, used)) if self.magnitude else found

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        """A's input may need no gradient; B's always does."""
        rows = work.tokens * self.used
        down = replace(gemm(f"{self.name}/A", rows, self.d_in, self.thin), backward=1 + self.learning.inputs)
        up = gemm(f"{self.name}/B", rows, self.rank, self.d_out)
        return (up,) if self.looked_up else (down, up)

    def products(self, work: Work) -> tuple[Gemm, ...]:
        return self.gemms(work)

    def division(self) -> str:
        return HEADS if self.copies > 1 else division_of(self.shard)

    def traffic(self) -> tuple[Number, Number]:
        """Forward: the result scaled (read, written) and added (two read, one written); dropout reads, writes, and
        writes a mask of bytes. Backward: scaled again; through dropout; the input's two gradients added (peft 0.21,
        tuners/lora/layer.py, Linear.forward: `result + lora_B(lora_A(dropout(x))) * scaling`). DoRA multiplies both
        results and adds them: 4 + 4 + 6 bytes an element of the output; backward their gradients, and the vector's.
        Matrices in fp32 cast x to it (2 read, 4 written) and its gradient back, drop in it, and under autocast cast
        both once more; without, matmuls read and write it, and the result is in it until the sum is cast back, whose
        gradient goes back to both terms, to the frozen layer's in 16 bits. In place (unsloth kernels/utils.py,
        matmul_lora: addmm_), what is added to is read once."""
        if self.joined:
            return self.used * 2 * self.d_out, self.used * 2 * self.d_in * self.learning.inputs
        full = self.wide and not self.narrowed
        cast = CAST * (self.wide + self.narrowed)
        dropped = (9 if self.wide else 5) * self.drops
        inputs = self.learning.inputs * (not self.looked_up) * (6 + cast + 4 * full) + self.learning.inputs * dropped
        ahead, back = (24, 20) if self.magnitude else (10, 4)
        if full:
            ahead, back = ahead + 10 + CAST, back + 8 + CAST * (1 + self.learning.inputs)
        forward = ahead * self.d_out + (cast + 2 * full + dropped) * self.d_in
        return self.used * forward, self.used * (back * self.d_out + inputs * self.d_in)

    def launch_counts(self) -> tuple[int, int]:
        """Count A, B with the scaled result, the sum, and dropout; of DoRA the norm's three and both scaled results.
        Backward: both weights' gradients; A's input and dropout where the gradient passes on. Measured: four of peft
        0.21 on torch 2.13, in a layer of 36 such launches that takes 0.62 ms on one core, add 0.21 ms forward and 0.20
        backward."""
        more = 5 if self.magnitude else 0
        inputs = self.learning.inputs and not self.looked_up
        return 3 + self.drops + more, 2 + inputs * (1 + self.drops) + 2 * self.magnitude

    def time(self, timer: Timer) -> None:
        timer.adapter(self)
        if self.magnitude:
            timer.norm_of_weight(self)

    def lower(self, run: Lowering) -> Value:
        raise Refused(WITHIN)


@record
class BiasAdapter(Ordinary):
    """An adapter on an embedding of distances: rows of A looked up for each pair of a query and a key, once for all
    sequences, and multiplied by B. FLOP: 2·s²·rank·heads."""

    rows: int
    rank: int
    heads: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("A", (self.rank, self.rows)), Weight("B", (self.heads, self.rank)))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(f"{self.name}/B", work.length * work.length, self.rank, self.heads),)

    def products(self, work: Work) -> tuple[Gemm, ...]:
        return self.gemms(work)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is added to each pair's score."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return work.length * work.length * self.heads

    def lower(self, run: Lowering) -> Value:
        raise Refused(WITHIN)


@record
class Reparameterized(Ordinary):
    """An adapter other than LoRA and DoRA on a linear layer. Matmuls between weights do not depend on the number of
    tokens."""

    kind: str
    at: AdaptedLayer

    @property
    def own(self) -> AdapterKind:
        return KINDS[self.kind]

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, shape) for name, shape in self.own.weights(self.at))

    def timed(self) -> tuple[tuple[Gemm, Learning], ...]:
        return tuple(
            (gemm(one.name, one.m, one.k, one.n, one.batch), self.learns(one)) for one in self.own.products(self.at)
        )

    def moved(self) -> tuple[Number, Number]:
        return self.own.moved(self.at)

    def learns(self, product: AdapterProduct) -> Learning:
        """Return which gradients of a matmul's factors are computed."""
        return Learning(product.weights, self.learning.inputs if product.inputs < 0 else product.inputs)

    def of(self, work: Work, of_tokens: bool) -> tuple[Gemm, ...]:
        """Return the matmuls with tokens, or those of weights only."""
        found = []
        for one in self.own.products(self.at):
            if (one.m == 0) == of_tokens:
                learning = self.learns(one)
                made = gemm(f"{self.name}/{one.name}", one.m or work.tokens, one.k, one.n, one.batch)
                found.append(replace(made, backward=learning.weights + learning.inputs))
        return tuple(found)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return self.of(work, True)

    def products(self, work: Work) -> tuple[Gemm, ...]:
        return (*self.of(work, True), *self.of(work, False))

    def traffic(self) -> tuple[Number, Number]:
        return self.own.traffic(self.at)

    def launch_counts(self) -> tuple[int, int]:
        return self.own.launches(self.at)

    def time(self, timer: Timer) -> None:
        timer.reparameterized(self)

    def lower(self, run: Lowering) -> Value:
        raise Refused(WITHIN)


@record
class MergedAdapter(Ordinary):
    """W + scale · B·A for the weights of all experts, or for a router's, recomputed in every forward pass (peft 0.21,
    tuners/lora/layer.py, ParamWrapper). Its matmuls are between weights, independent of the number of tokens, and not
    part of the FLOPs per token."""

    copies: int
    d_in: int
    rank: int
    d_out: int

    def weights(self) -> tuple[Weight, ...]:
        shards = adapter_shards(REPLICATED, self.copies)
        return (
            Weight("A", (self.rank, self.d_in), shards[0], self.copies),
            Weight("B", (self.d_out, self.rank), shards[1], self.copies),
        )

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `time` counts the sum with the weights."""
        return 0, 0

    def time(self, timer: Timer) -> None:
        timer.merged(self)

    def lower(self, run: Lowering) -> Value:
        raise Refused(WITHIN)

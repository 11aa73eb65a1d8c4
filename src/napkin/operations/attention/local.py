"""Attention within blocks of a sequence and with a few global tokens, which attend to all (PEGASUS-X,
arXiv:2208.04347, section 3)."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Ordinary
from napkin.operations.global_tokens import products_of
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record

MASK = "mask of padding"


@record
class LocalAttention(Ordinary):
    """softmax of the scores of each query with the keys of its block of `block` tokens and of `tokens` global ones,
    times their values. Reads q, k, v of S tokens, and keys and values of the global ones.

    more  tokens of each sequence, of S, that the layer's stream does not have
    FLOP: 4·b·a·d·S·(block + tokens)"""

    heads: int
    size: int
    block: int
    tokens: int
    more: int = 0

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        length = work.length + self.more
        batch, blocks = work.sequences * self.heads, work.sequences * self.heads * (length // self.block)
        return (
            gemm("global_scores", length, self.size, self.tokens, batch, weight=False),
            gemm("scores", self.block, self.size, self.block, blocks, weight=False),
            gemm("global_values", length, self.tokens, self.size, batch, weight=False),
            gemm("values", self.block, self.block, self.size, blocks, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        return work.sequences * self.heads * (work.length + self.more) * (self.block + self.tokens)

    def attention_width(self) -> Number:
        return 2 * self.heads * self.size

    def division(self) -> str:
        return HEADS

    def lower(self, run: Lowering) -> Value:
        """Two products of scores are joined, and the weights are cut in two again. A mask is added to the scores, of
        which the class passes one to all layers."""
        tape = run.tape
        q, k, v, global_k, global_v = (run.read(self, i).tensor for i in range(5))
        rows = q.count // self.size
        run.takes(mask_of(run))
        run.scopes.local(q, k, v, global_k, global_v)
        parts = (
            tape.matmul(q, global_k, rows * self.tokens, "scores of global tokens"),
            tape.matmul(q, k, rows * self.block, "scores of blocks"),
        )
        scores = tape.join(parts, "scores")
        masked = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
        weights = tape.dropout(tape.softmax(masked), run.dropout)
        of_global, of_block = (
            tape.matmul(tape.slice(weights, rows * count, apart=True), values, q.count, "values")
            for count, values in ((self.tokens, global_v), (self.block, v))
        )
        attended = tape.add(of_global, of_block)
        tape.hold(*parts, masked, of_global, of_block)
        run.scopes.to_the_end.append(weights)
        return Value(attended.view(), self.heads * self.size, True, True)


@record
class GlobalAttention(Ordinary):
    """softmax of the scores of `tokens` global queries with the keys of all of a sequence's tokens and of themselves,
    times the values of these. Reads q, k, v of the global tokens, and k and v of S others.

    more  as in LocalAttention
    used  as in OnGlobal
    FLOP: 4·b·a·d·tokens·(S + tokens)"""

    heads: int
    size: int
    tokens: int
    more: int = 0
    used: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        keys, batch = work.length + self.more + self.tokens, work.sequences * self.heads
        products = (
            gemm("scores", self.tokens, self.size, keys, batch, weight=False),
            gemm("values", self.tokens, keys, self.size, batch, weight=False),
        )
        return products_of(products, self.used)

    def traffic(self) -> tuple[Number, Number]:
        """Read and write keys and values once more, and their gradients."""
        return 8 * self.heads * self.size, 8 * self.heads * self.size

    def scores(self, work: Work) -> Number:
        return work.sequences * self.heads * self.tokens * (work.length + self.more + self.tokens)

    def attention_width(self) -> Number:
        return 2 * self.heads * self.size

    def division(self) -> str:
        return HEADS

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        outer, tape.recomputed = tape.recomputed, tape.recomputed or not self.used
        q, k, v, local_k, local_v = (run.read(self, i).tensor for i in range(5))
        run.scopes.local(q, k, v)
        keys, values = (tape.join(pair, "of all tokens") for pair in ((k, local_k), (v, local_v)))
        scores = tape.matmul(q, keys, q.count // self.size * (keys.count // (run.b * self._width(run))), "scores")
        masked = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
        weights = tape.dropout(tape.softmax(masked), run.dropout)
        attended = tape.matmul(weights, values, q.count, "values")
        tape.hold(keys, values, masked)
        tape.recomputed = outer
        run.scopes.to_the_end.append(weights)
        return Value(attended.view(), self.heads * self.size, True, True)

    def _width(self, run: Lowering) -> Number:
        """Return the elements of a key, over the heads of a rank."""
        return self.heads * self.size // run.split.tensor


def mask_of(run: Lowering) -> Tensor:
    """Return the mask of padding that the class passes to each layer, one for all."""
    if MASK not in run.masks:
        stored = "fp32" if run.tape.autocast else run.tape.compute
        run.masks[MASK] = run.tape.given(run.b * run.own, stored, MASK, no_grad=True)
        run.masks[MASK].storage.shared = True
    return run.masks[MASK]

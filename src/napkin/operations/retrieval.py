"""Experts of one neuron each, looked up by product keys (Lample et al. 2019, arXiv:1907.05242; He 2024,
arXiv:2407.04153)."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Module
from napkin.operations.expert_kernels import shares
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class RetrievedExperts(Module):
    """Σ over the chosen experts of score · activation(x·down)·up, each expert a row of two tables. FLOP: 4·T·k·h.

    Reads the tokens and a router's logits of `keys` first and `keys` second halves of keys, whose sums score keys²
    experts, of which the `top_k` best are chosen."""

    width: int
    experts: int
    keys: int
    top_k: int
    function: str
    normalize: bool

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, (self.width,), copies=self.experts, used=self.top_k) for name in ("down", "up"))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (
            gemm(f"{self.name}/down", self.top_k, self.width, 1, batch=work.tokens, weight=False),
            gemm(f"{self.name}/up", 1, self.top_k, self.width, batch=work.tokens, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Look up the rows of two tables, as embeddings do."""
        return 2 * 4 * self.top_k * self.width, 2 * 6 * self.top_k * self.width

    def lower(self, run: Lowering) -> Value:
        """Sort all halves of keys, and look up the rows of the best sums in both embeddings.

        Two batched matmuls of the rows keep all that they read."""
        x, logits = run.read(self).tensor, run.read(self, 1).tensor
        tape, tokens = run.tape, run.tokens
        stored = "fp32" if tape.autocast else tape.compute
        halves = tape.new(logits.count, "int64", "halves in order", no_grad=True)
        ordered = tape.record("topk", (logits,), tape.new(logits.count, logits.dtype, "halves"), (halves,))
        pairs = tokens * self.keys * self.keys
        sums = tape.add(ordered.view(pairs), ordered.view(pairs))
        indices = tape.record("add", (halves,), tape.new(pairs, "int64", "experts of the sums"))
        places, chosen = (tape.new(tokens * self.top_k, "int64", what, no_grad=True) for what in ("places", "chosen"))
        best = tape.record("topk", (sums,), tape.new(tokens * self.top_k, sums.dtype, "best"), (places,))
        scores = tape.softmax(best)
        if self.normalize:
            scores = shares(run, scores, tokens)

        def looked_up(table: str) -> Tensor:
            rows = tape.new(tokens * self.top_k * self.width, stored, table)
            return tape.record(
                "embedding", (chosen,), rows, (chosen,), weight=self.experts * self.width * BYTES[stored]
            )

        down, up = looked_up("down"), looked_up("up")
        hidden = run.activated(tape.matmul(down, x, tokens * self.top_k, "hidden"), self.function)
        weights = tape.multiply(hidden, scores)
        run.scopes.until_added(logits, ordered, sums, indices, best, down, up, weights)
        out = tape.matmul(weights, up, tokens * self.width, "output")
        return Value(out, self.width)

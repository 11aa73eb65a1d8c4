"""Operations of Inkling's layers: scores by the distance of keys, short convolutions of the stream, and shared experts
that take part in the router's shares."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number
from napkin.operations.adapters.adapted import EACH, ExpertProducts, linear
from napkin.operations.bases import Elementwise, Module, Ordinary
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.lowering import Lowering
from napkin.operations.router import Router
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class DistanceBias(Ordinary):
    """What is added to the score of each query and key: the query's `rank` elements for each head mix learned profiles
    over `extent` distances. FLOP: 2·T·a·rank·extent."""

    heads: int
    rank: int
    extent: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("profiles", (self.rank, self.extent)),)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens * self.heads, self.rank, self.extent),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts those of pairs."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        """Return the score that each pair of a query and a key takes from those of its distance."""
        return work.tokens * self.heads * work.length

    def lower(self, run: Lowering) -> Value:
        """Compute the scores of all distances, of which each pair of tokens takes its own, and zero outside."""
        tape = run.tape
        scores = tape.linear(run.read(self).tensor, self.rank, self.extent, weight=f"{self.name}/profiles")
        index = tape.new(run.own * run.s, "int64", "distances", no_grad=True)
        pairs = tape.new(run.tokens * self.heads * run.s, scores.dtype, "scores of pairs")
        pairs = tape.record("gather", (scores,), pairs, (scores, index))
        outside = tape.new(run.own * run.s, "bool", "outside", no_grad=True)
        cut = tape.new(pairs.count, pairs.dtype, "scores within")
        return Value(tape.record("masked_fill", (pairs,), cut, (outside,)), self.heads, True)


@record
class ShortConvolution(Elementwise):
    """x + a depthwise causal convolution of it over `kernel` steps, in fp32. Elementwise work: no matmul."""

    channels: int
    kernel: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.channels, 1, self.kernel)),)

    def traffic(self) -> tuple[int, int]:
        return 16 * self.channels, 24 * self.channels

    def lower(self, run: Lowering) -> Value:
        """Run causal_conv1d, which saves its input; autocast does not apply to it."""
        x = run.read(self)
        tape = run.tape
        wide = tape.cast(x.tensor, "fp32")
        made = tape.new(x.tensor.count, "fp32", "convolved")
        convolved = tape.record("conv", (wide,), made, (wide,), weight=self.channels * self.kernel * BYTES["fp32"])
        return Value(tape.cast(tape.add(convolved, wide), x.tensor.dtype), x.width, x.divided, x.gathered)


@record
class SinkRouter(Router):
    """A router that scores `shared` experts, which all tokens pass, next to those that it chooses: each one's share is
    its sigmoid over the sum of all of these, times a learned scale. Its value: the shares of the chosen, then those of
    the shared. FLOP: 2·T·h·(E + S)."""

    shared: int = 1

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.experts + self.shared, self.d_in)), Weight("scale", (1,)))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.experts + self.shared),)

    def lower(self, run: Lowering) -> Value:
        """All in fp32, outside of autocast; the choice has no gradient."""
        x = run.read(self)
        tape = run.tape
        rows = x.tensor.count // self.d_in
        every = self.experts + self.shared
        outer = tape.compute, tape.autocast
        kept: list[Tensor] = []
        if tape.compute != "fp32" and not tape.autocast:
            kept.append(tape.new(self.d_in * every, "fp32", "wide weight", no_grad=True))
        if tape.autocast:
            tape.compute, tape.autocast = "fp32", ""
        logits = linear(run, self.linear_parts(run.implementation)[0], tape.cast(x.tensor, "fp32"))
        index = tape.new(rows * self.top_k, "int64", "chosen", no_grad=True)
        best = tape.new(rows * self.top_k, "fp32", "best")
        best = tape.record("gather", (logits,), best, (logits, index, *kept))
        count = rows * (self.top_k + self.shared)
        joined = tape.record("cat", (best, tape.slice(logits, rows * self.shared)), tape.new(count, "fp32", "joined"))
        logs = tape.record("logsigmoid", (joined,), tape.new(count, "fp32", "log-sigmoid"), (joined,))
        total = tape.new(rows, "fp32", "log-sum-exp")
        total = tape.record("logsumexp", (logs,), total, (logs, total))
        shares = tape.new(count, "fp32", "shares")
        shares = tape.record("exp", (tape.add(logs, total),), shares, (shares,))
        shares = tape.multiply(tape.scale(shares), run.fp32_weight(1))
        tape.compute, tape.autocast = outer
        return Value(tape.cast(shares, x.tensor.dtype), self.top_k + self.shared)


@record
class SharedExperts(Module):
    """Σ over `experts` that all tokens pass of down(f(gate(x)) ⊙ up(x) ⊙ share), as batched matmuls. Reads the tokens
    and the shares. FLOP: 6·T·S·h·f."""

    d_model: int
    d_ff: int
    experts: int
    function: str = "silu"

    def weights(self) -> tuple[Weight, ...]:
        wide, narrow = (self.experts, self.d_ff, self.d_model), (self.experts, self.d_model, self.d_ff)
        return (Weight("gate", wide), Weight("up", wide), Weight("down", narrow))

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        """Return the tensors of all experts' weights."""
        return tuple(
            LinearPart(
                f"{self.module}.{weight.name}_proj",
                weight.shape[2],
                weight.shape[1],
                copies=self.experts,
                parameter=True,
            )
            for weight in self.weights()
        )

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        shapes = (("gate", self.d_model, self.d_ff), ("up", self.d_model, self.d_ff), ("down", self.d_ff, self.d_model))
        return tuple(gemm(f"{self.name}/{part}", work.tokens, a, b, self.experts) for part, a, b in shapes)

    def traffic(self) -> tuple[Number, Number]:
        """Forward the product of gate and up, with the share, and the sum over experts, backward the same."""
        return self._moved(6 + 6), self._moved(10 + 10)

    def _moved(self, products: int) -> int:
        """Return the bytes of a token; products: those of each inner element."""
        return self.experts * (products * self.d_ff + 2 * self.d_model) + 2 * self.d_model

    def lower(self, run: Lowering) -> Value:
        """Read all tokens once for each expert: a view, of which autocast makes a complete copy each time.

        What the experts make is added up in fp32."""
        x, weights = run.read(self), run.read(self, 1)
        tape = run.tape
        rows = x.tensor.count // self.d_model * self.experts
        products = ExpertProducts(run, self)

        def batched(read: Tensor, sizes: tuple[int, int], what: str, number: int) -> Tensor:
            return products.product("bmm", tape.lowered(read), (self.experts, *sizes), what, number=number, casts=EACH)

        def repeated() -> Tensor:
            if tape.autocast and x.tensor.dtype == "fp32":
                copied = tape.new(rows * self.d_model, tape.autocast, "for each expert")
                return tape.record("cast", (x.tensor,), copied)
            return x.tensor.view(rows * self.d_model)

        wide, narrow = (self.d_model, self.d_ff), (self.d_ff, self.d_model)
        gate, up = (batched(repeated(), wide, what, number) for number, what in enumerate(("gate", "up")))
        hidden = tape.multiply(run.activated(gate, self.function), up)
        hidden = tape.multiply(hidden, weights.tensor)
        down = tape.cast(batched(hidden, narrow, "down", -1), "fp32")
        products.close()
        total = tape.record("sum", (down,), tape.new(x.tensor.count, "fp32", "summed"))
        return Value(tape.cast(total, x.tensor.dtype), self.d_model, x.divided, x.gathered)

"""Routers of mixtures of experts, and the balancing loss on their logits."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.operations.adapters.adapted import linear
from napkin.operations.adapters.lora import times_rank
from napkin.operations.bases import Elementwise, Module
from napkin.operations.expert_kernels import (
    root_softplus,
    shares,
    sparsemixer,
)
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.lowering import Lowering
from napkin.operations.roles import ROUTER
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class Router(Module):
    """A router that chooses `top_k` of `experts` for each token by a linear layer. FLOP: 2·T·h·E.

    score      softmax, sigmoid, sqrtsoftplus (√softplus), or softmax_top_k and sigmoid_top_k (over the chosen only)
    normalize  the chosen scores are divided by their sum
    upcast     the linear layer runs in fp32
    balanced   a bias without a gradient takes part in the choice: a "buffer" or a "parameter"
    softcap    the logits are capped: cap·tanh(logit/cap)
    noise      in training its input is multiplied in place by a random factor near 1
    hashed     a fixed map from token ids chooses, the linear layer only scores the chosen (Roller et al. 2021,
               arXiv:2106.04426): a buffer that is indexed
    masked     scores outside the chosen groups are masked before the top k are taken
    """

    d_in: int
    experts: int
    top_k: int
    bias: bool = False
    score: str = "softmax"
    normalize: bool = False
    upcast: bool = False
    balanced: str = ""
    softcap: bool = False
    noise: bool = False
    hashed: bool = False
    masked: bool = False

    def weights(self) -> tuple[Weight, ...]:
        present = (("bias", self.bias), ("balance", self.balanced == "parameter"))
        vectors = tuple(Weight(name, (self.experts,), trained=name != "balance") for name, there in present if there)
        return (Weight("weight", (self.experts, self.d_in)), *vectors)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.experts),)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        """Return the router's linear layer, or the parameter in its place."""
        apart = implementation.linear_router
        path = self.module if apart else f"{self.module}.weight"
        e, d_in = self.weights()[0].shape
        return (LinearPart(path, d_in, e, self.bias, parameter=not apart),)

    def gives_logits(self) -> bool:
        return not self.hashed

    def expert_part(self) -> str:
        return ROUTER

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        """Return the balancing bias, which has no gradient, and the token → experts map of a hashed router."""
        bias = self.experts if self.balanced == "buffer" else 0
        return (bias, "fp32"), (vocabulary * self.top_k if self.hashed else 0, "int64")

    def traffic(self) -> tuple[Number, Number]:
        """fp32 scores, softmax and choice."""
        return 12 * self.experts, 12 * self.experts

    def lower(self, run: Lowering) -> Value:
        """Choose experts; the value is the weights of the chosen ones.

        No gradient passes through the choice itself (biases, groups, masks): whatever autograd saves for it goes with
        it."""
        x = run.read(self)
        tape, implementation = run.tape, run.implementation
        k, e = self.top_k, self.experts
        rows = x.tensor.count // self.d_in
        outer = tape.compute, tape.autocast
        if implementation.router_apart and tape.autocast:
            tape.compute, tape.autocast = "fp32", ""
        tensor = tape.cast(x.tensor, "fp32") if self.upcast else x.tensor
        if self.noise:
            noise = tape.new(tensor.count, tensor.dtype, "noise", no_grad=True)
            tensor = tape.record("mul", (tensor, noise), tensor.view(), (noise,))
        part = self.linear_parts(implementation)[0]
        logits = linear(run, part, tensor, label=f"{self.name}/weight")
        made_in = logits.dtype
        if self.softcap:
            logits = run.capped(tape.cast(logits, "fp32"))
        if implementation.router == "sparsemixer":
            return Value(sparsemixer(run, logits, rows, k, e), k)
        kept = [tape.new(rows * k, "int64", "chosen", no_grad=True)]
        if self.masked:
            kept.append(tape.new(rows * e, "bool", "outside the groups", no_grad=True))
        merged = part.parameter and times_rank(part, implementation.tuning)  # the matmul keeps its cast
        if self.upcast and not implementation.fp32_router and tape.compute != "fp32" and not merged:
            kept.append(tape.new(self.d_in * e, "fp32", "wide weight", no_grad=True))
        weights = self._weights(run, logits, rows * k, kept)
        if self.normalize:
            weights = shares(run, weights, rows)
        if implementation.chosen is not None:
            weights = implementation.chosen(run, weights)
        tape.compute, tape.autocast = outer
        if implementation.router != "scores":
            weights = tape.cast(weights, x.tensor.dtype if implementation.router == "tokens" else made_in)
        return Value(weights, k)

    def _weights(self, run: Lowering, logits: Tensor, count: Number, kept: list[Tensor]) -> Tensor:
        """Return the scores of the `count` chosen experts: of their logits alone, or of all, from which they are taken.
        kept: what the choice saves."""
        tape, native = run.tape, run.implementation.native_scores
        wide = logits if native else tape.cast(logits, "fp32")
        if self.score.endswith("_top_k"):
            read = logits if self.score == "sigmoid_top_k" else wide
            if self.balanced:  # gathered by a choice with a bias: gather keeps what it reads
                kept = [*kept, read]
            best = tape.record("topk", (read,), tape.new(count, read.dtype, "best"), kept)
            if self.score == "sigmoid_top_k":
                return tape.sigmoid(best)
            return tape.softmax(best, "" if native == "raised" else best.dtype)
        if self.score == "sqrtsoftplus":
            scores = root_softplus(run, wide)
        elif self.score == "sigmoid":
            scores = tape.sigmoid(wide)
        else:
            scores = tape.softmax(wide, wide.dtype if native == "kept" else "")
        return tape.record("topk", (scores,), tape.new(count, scores.dtype, "weights"), kept)


@record
class BalanceLoss(Elementwise):
    """Auxiliary loss on how evenly the routers of all layers spread the tokens over `experts` (Fedus et al. 2021,
    arXiv:2101.03961, equations 4 to 6). `each`: routers per layer."""

    experts: int
    top_k: int
    each: int = 1

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: how many routers there are, only the model knows; few ask for this loss."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Run the softmax of each layer's router logits once more, and count the tokens that each expert got.

        Which experts are best is read, not how good: no gradient passes through that choice, which saves nothing."""
        tape = run.tape
        rows = run.tokens * run.routers * self.each
        probabilities = tape.softmax(
            tape.new(rows * self.experts, "fp32" if run.implementation.fp32_logits else tape.compute, "x")
        )
        shares = tape.new(self.experts, "fp32", "shares of tokens", no_grad=True)
        loss = tape.new(1, "fp32", "balance")
        return Value(tape.record("balance", (probabilities,), loss, (shares,)), 1)

"""Mixtures of experts: routers, experts, the balancing loss."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import (
    EXPERT,
    EXPERT_KERNELS,
    EXPERTS,
    NOT_TIMED,
    ROUTER,
    Elementwise,
    Gemm,
    Ordinary,
    Timer,
    Weight,
    Work,
    gemm,
)
from napkin.operations.primitives import minimum
from napkin.record import record


@record
class Router(Ordinary):
    """Chooses `top_k` of `experts` for each token by a linear layer. FLOP: 2·T·h·E.

    score      softmax, sigmoid, sqrtsoftplus (√softplus), or softmax_top_k and sigmoid_top_k (of the chosen alone)
    normalise  the chosen scores are divided by their sum       upcast   the linear layer runs in fp32
    balanced   a bias that no gradient reaches takes part in the choice: kept as a buffer, or as a parameter
    softcap    the logits pass through cap·tanh(logit/cap)
    noise      its input is multiplied in place by a random factor near 1, in training
    hashed     a fixed table chooses by the token's number, the linear layer only scores the chosen (Roller et al. 2021,
               arXiv:2106.04426): a buffer, of which rows are looked up
    masked     all scores but those of chosen groups are masked, and the best are taken from what is left
    """

    d_in: int
    experts: int
    top_k: int
    bias: bool = False
    score: str = "softmax"
    normalise: bool = False
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

    def gives_logits(self) -> bool:
        return not self.hashed

    def expert_part(self) -> str:
        return ROUTER

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        """A bias that no gradient reaches, and the choices of a hashed router."""
        bias = self.experts if self.balanced == "buffer" else 0
        return (bias, "fp32"), (vocabulary * self.top_k if self.hashed else 0, "int64")

    def traffic(self) -> tuple[Number, Number]:
        """fp32 scores, softmax and choice."""
        return 12 * self.experts, 12 * self.experts


@record
class BalanceLoss(Elementwise):
    """A second loss, on how evenly the routers of all layers spread the tokens over `experts` (Fedus et al. 2021,
    arXiv:2101.03961, equations 4 to 6). `each`: how many routers' logits a layer gives to it."""

    experts: int
    top_k: int
    each: int = 1

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Experts(Ordinary):
    """Routed feed-forward networks h → f → h; each token runs through top_k of them. FLOP: 2·T·k·(2 or 3)·h·f.

    Reads the tokens and the router's output. `function`: as in Activation, or swiglu_oai: (up + 1)·gate·σ(1.702·gate)
    of clamped gate and up. `weighted_input`: the score multiplies the token before its expert, not after. `idle`:
    choices of a token, beside top_k, that fall on average on experts without weights, which hand it on (LongCat).
    `upcast`: the gate's activation and its product with up run in fp32. `limited`: gate and up are cut to an interval
    before the activation. `dropout`: before the last product. `capacity`: so many tokens of a sequence an expert serves
    at most (0: all)."""

    d_model: int
    d_ff: int
    experts: int
    top_k: int
    gated: bool = True
    bias: bool = False
    function: str = "silu"
    weighted_input: bool = False
    idle: int = 0
    upcast: bool = False
    dropout: bool = False
    capacity: int = 0
    limited: bool = False

    def weights(self) -> tuple[Weight, ...]:
        h, f, e, k = self.d_model, self.d_ff, self.experts, self.top_k
        first = ("gate_up", (2 * f, h)) if self.gated else ("up", (f, h))  # one tensor each for all experts
        shapes = [first, ("down", (h, f))]
        weights = [Weight(name, shape, EXPERT, e, k) for name, shape in shapes]
        if self.bias:
            weights += [Weight(f"{name}_bias", shape[:1], EXPERT, e, k) for name, shape in shapes]
        return tuple(weights)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        # rows spread over the experts; the shape that each sees on average is the same total
        rows = work.tokens * self.top_k
        up = ("gate", "up") if self.gated else ("up",)
        return (
            *(gemm(f"{self.name}/{name}", rows, self.d_model, self.d_ff) for name in up),
            gemm(f"{self.name}/down", rows, self.d_ff, self.d_model),
        )

    def expert_part(self) -> str:
        return EXPERTS

    def depends_on_shapes(self, length: int) -> bool:
        """How many tokens need no matmul is known in the step only."""
        return not (self.idle or 0 < self.capacity < length)

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: `time` counts it with the tokens that each expert gets."""
        return 0, 0

    def time(self, timer: Timer) -> None:
        timer.experts(self)

    def elements_moved(self, work: Work) -> Number:
        """Of each GEMM the input and the result, and the weights of the experts that are hit."""
        moved: Number = 0
        for one in self.gemms(work):
            moved = moved + one.batch * (one.m * one.k + one.m * one.n)
        hit = minimum(self.experts, work.tokens * self.top_k)
        return moved + sum(hit * weight.each for weight in self.weights())

    def dispatched(self) -> Number:
        return self.top_k * self.d_model

    def launches(self) -> str:
        return EXPERT_KERNELS


@record
class ExpertMatmul(Ordinary):
    """A linear layer of which there are `experts`, each for the rows whose router chose it (JetMoE, arXiv:2404.07413).
    FLOP: 2·T·k·d_in·d_out.

    Reads a tensor and a router's output. `reads_rows` and `makes`: how the rows of what it reads and makes stand:
    tokens one row a token · choices one for each token's choice · sorted the same, by expert. Making tokens, it weighs
    its choices by their scores and adds them up, and a bias."""

    d_in: int
    d_out: int
    experts: int
    top_k: int
    reads_rows: str = "tokens"
    makes: str = "sorted"

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.d_out, self.d_in), EXPERT, self.experts, self.top_k)
        return (weight, Weight("bias", (self.d_out,))) if self.makes == "tokens" else (weight,)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens * self.top_k, self.d_in, self.d_out),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

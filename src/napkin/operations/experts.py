"""Mixtures of experts: routers, experts, the balancing loss."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number, ceil_div
from napkin.operations.adapters.adapted import EACH, ExpertProducts
from napkin.operations.base import EXPERT_KERNELS, Operation, Timer
from napkin.operations.bases import Module
from napkin.operations.expert_kernels import (
    clamped_swiglu,
    looped_experts,
    sorted_tokens,
    unrouted_experts,
)
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import ONE_KERNEL, Implementation
from napkin.operations.lowering import Lowering
from napkin.operations.norms import scaled_norm
from napkin.operations.primitives import minimum
from napkin.operations.roles import EXPERT, EXPERTS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class Experts(Module):
    """Routed MLPs h → f → h, of which each token uses top_k. FLOP: 2·T·k·(2 or 3)·h·f.

    Reads the tokens and the router's output.

    function        as in Activation, or swiglu_oai: (up + 1)·gate·σ(1.702·gate) of clamped gate and up (gpt-oss)
    weighted_input  the score multiplies the expert's input, not its output
    idle            choices per token, in addition to top_k, that fall on average on zero-computation experts (LongCat)
    upcast          the gate's activation and its product with up run in fp32
    limited         gate and up are clamped before the activation
    dropout         before the down-projection
    groups, chosen_groups  the experts are in so many groups, and a token's in so many of them
    normed          each expert's result is normalized, multiplied by one learned vector before (norms.ScaledNorm)
    capacity        most tokens of a sequence that an expert serves (0: no limit)
    """

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
    normed: bool = False
    groups: int = 1
    chosen_groups: int = 1

    @property
    def clamped(self) -> bool:
        """Return whether the activation itself clamps gate and up."""
        return self.function == "swiglu_oai"

    def weights(self) -> tuple[Weight, ...]:
        h, f, e, k = self.d_model, self.d_ff, self.experts, self.top_k
        first = ("gate_up", (2 * f, h)) if self.gated else ("up", (f, h))  # one tensor each for all experts
        shapes = [first, ("down", (h, f))]
        weights: list[Weight] = []
        for name, shape in shapes:
            weights.append(Weight(name, shape, EXPERT, e, k))
            if self.bias:
                weights.append(Weight(f"{name}_bias", shape[:1], EXPERT, e, k))
        if self.normed:
            weights.append(Weight("post_norm", (h,)))
        return tuple(weights)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        """Return each expert's linear layers if it is a module, or the tensors of all experts' weights."""
        if implementation.expert_linears:
            up, down = (f"{self.module}.expert_0.{name}" for name in implementation.expert_linears)
            shapes = (up, self.d_model, self.d_ff), (down, self.d_ff, self.d_model)
            return tuple(LinearPart(*shape, copies=self.experts) for shape in shapes)
        return expert_tensors(self, implementation)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        # rows spread over the experts; the shape that each sees on average is the same total
        rows = work.tokens * self.top_k
        up = ("gate", "up") if self.gated else ("up",)
        return (
            *(gemm(f"{self.name}/{name}", rows, self.d_model, self.d_ff) for name in up),
            gemm(f"{self.name}/down", rows, self.d_ff, self.d_model),
        )

    def routed(self) -> Experts:
        return self

    def chooses_among(self) -> int:
        return self.experts

    def expert_part(self) -> str:
        return EXPERTS

    def depends_on_shapes(self, length: int) -> bool:
        """Return False where tokens may need no expert: how many is known in the step only."""
        return not (self.idle or 0 < self.capacity < length)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `time` counts it with the tokens that each expert gets."""
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

    def launches(self) -> str:
        return EXPERT_KERNELS

    def launch_counts(self) -> tuple[int, int]:
        return self.learning.launch_counts(True)

    def lower(self, run: Lowering) -> Value:
        """Tokens sorted by expert, two grouped matmuls, weighted, put back in order and summed.

        transformers 5 calls torch's grouped matmul in every precision: on CUDA it takes bf16, fp16 and fp32
        (aten/src/ATen/native/GroupedMMUtils.h) and autocast leaves it alone, so that tokens are cast to the weights'
        type. Below compute capability 8.0 an operator of its own keeps the same (integrations/moe.py)."""
        if run.implementation.unrouted:
            return unrouted_experts(run, self)
        if run.implementation.looped:
            return looped_experts(run, self)
        x, weights = run.read(self), run.read(self, 1)
        tape = run.tape
        rows = run.split.rows(run.split.sent(x.tensor.count // self.d_model) * self.top_k)
        inner = self.d_ff // run.split.inner
        order, back, pick = (tape.new(rows, "int64", what, no_grad=True) for what in ("order", "inverse", "token"))
        offsets = tape.new(ceil_div(self.experts, run.split.expert), "int32", "offsets", no_grad=True)
        sent = tape.new(rows * self.d_model, x.tensor.dtype, "sent")
        sent = tape.record("gather", (x.tensor,), sent, (pick,), scratch=x.tensor.size)
        weight = tape.record("gather", (weights.tensor,), tape.new(rows, weights.tensor.dtype, "weight"), (order,))
        stored = "fp32" if tape.autocast else tape.compute
        sent = tape.cast(tape.multiply(sent, weight) if self.weighted_input else sent, stored)
        first = inner * (2 if self.gated else 1)
        products = ExpertProducts(run, self)
        up, bias = self.grouped(products, sent, (self.d_model, first), offsets, "up")
        begin = len(tape.nodes)
        hidden = self._hidden(run, up, rows * inner, stored)
        if run.implementation.scores_inside:
            return self._scored_inside(run, products, hidden, weight, pick, offsets, begin)
        down, second = self.grouped(products, hidden, (inner, self.d_model), offsets, "down", *bias)
        if self.normed:
            down = scaled_norm(run, down, self.d_model)
        out = down if self.weighted_input else tape.multiply(down, weight)
        ordered = tape.new(out.count, out.dtype, "ordered")
        out = tape.record("gather", (out,), ordered, (back,), scratch=out.size)
        total = tape.record("sum", (out,), tape.new(x.tensor.count, out.dtype, "summed"))
        tape.hold(sent, weight, down, order, offsets, *second)  # local variables
        products.close()
        return Value(tape.cast(total, x.tensor.dtype), self.d_model, x.divided, x.gathered)

    def _scored_inside(
        self,
        run: Lowering,
        products: ExpertProducts,
        hidden: Tensor,
        weight: Tensor,
        pick: Tensor,
        offsets: Tensor,
        begin: int,
    ) -> Value:
        """Multiply the hidden elements by the scores, and add what the last product makes of them to each token. A
        kernel of the gated activation multiplies within itself. begin: the first node of the activation."""
        x, tape = run.read(self), run.tape
        if not (self.gated and run.implementation.swiglu in ONE_KERNEL):
            hidden = tape.cast(tape.multiply(hidden, weight), hidden.dtype)
        inner = self.d_ff // run.split.inner
        end = len(tape.nodes)
        down, _ = self.grouped(products, hidden, (inner, self.d_model), offsets, "down")
        run.inner[self.name] = begin, end, len(tape.nodes)
        total = tape.record("index_add", (down,), tape.new(x.tensor.count, down.dtype, "summed"), (pick,))
        products.close()
        return Value(tape.cast(total, x.tensor.dtype), self.d_model, x.divided, x.gathered)

    def _hidden(self, run: Lowering, up: Tensor, count: Number, stored: str) -> Tensor:
        """Return the `count` hidden elements of all experts from what the first product makes. stored: the weights'
        type."""
        tape = run.tape
        if self.function == "swiglu_oai":
            return clamped_swiglu(run, up, count)
        if not self.gated:
            return run.activated(up, self.function)
        gate, other = (tape.slice(up, count) for _ in range(2))
        if self.limited:
            gate, other = (tape.record("clamp", (t,), tape.new(t.count, t.dtype, "cut"), (t,)) for t in (gate, other))
        if self.upcast:
            gate, other = (tape.cast(part, "fp32") for part in (gate, other))
            hidden = tape.cast(tape.multiply(run.activated(gate, self.function), other), stored)
        elif run.implementation.swiglu in ONE_KERNEL:
            hidden = run.gated(gate, other)
        else:
            hidden = tape.multiply(run.activated(gate, self.function), other)
        tape.hold(gate, other)
        return hidden

    def grouped(
        self,
        products: ExpertProducts,
        x: Tensor,
        sizes: tuple[Number, Number],
        offsets: Tensor,
        what: str,
        *before: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Record a grouped matmul of `sizes` (in, out) and its bias, which is looked up for each row before and added
        in place; return the result and what is looked up. `before`: the same of the last product, which a variable
        holds until then."""
        run, tape = products.run, products.run.tape
        stored = "fp32" if tape.autocast else tape.compute
        local = ceil_div(self.experts, run.split.expert)
        rows, width = x.count // sizes[0], sizes[1]
        biases: tuple[Tensor, ...] = ()
        if self.bias:
            chosen = before[1] if before else tape.new(rows, "int64", "expert of each", no_grad=True)
            looked_up = tape.new(rows * width, stored, f"{what} biases")
            looked_up = tape.record("index", (run.weight(local * width),), looked_up, (chosen,))
            biases = (looked_up, chosen)
            tape.hold(*before)
        number = -1 if what == "down" else 0
        out = products.product("grouped_mm", x, (local, *sizes), what, number=number, kept=(offsets,))
        if self.bias:
            out = tape.record("bias", (out, looked_up), out.view(), alias=True)
        return out, biases


@record
class ExpertMatmul(Module):
    """A linear layer with `experts` weights, each for the tokens routed to it (JetMoE, arXiv:2404.07413).
    FLOP: 2·T·k·d_in·d_out.

    Reads a tensor and a router's output. `reads_rows` and `makes` are the order of rows of input and output: tokens
    (one per token) · choices (one per choice of a token) · sorted (choices by expert). With output rows "tokens" the
    choices are weighted by their scores and added up, plus a bias."""

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

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return expert_tensors(self, implementation)

    def chooses_among(self) -> int:
        return self.experts

    def traffic(self) -> tuple[Number, Number]:
        """Gather the rows of a token's choices, copy what each expert makes together, and put it into the order of the
        choices, or weigh it and add it up; backward the same way back, and the gradient of the weights."""
        return self._moved(6), self._moved(10)

    def _moved(self, weighing: int) -> Number:
        """Return the bytes of a token; weighing: those of each element that a score is multiplied with."""
        read, made = self.top_k * self.d_in, self.top_k * self.d_out
        gathered = 0 if self.reads_rows == "sorted" else 4 * read
        summed = weighing * made + 2 * made + 2 * self.d_out
        return gathered + 4 * made + {"sorted": 0, "choices": 4 * made, "tokens": summed}[self.makes]

    def lower(self, run: Lowering) -> Value:
        """One matmul per expert, of the rows that chose it, concatenated; index_add saves what it adds."""
        x = run.read(self)
        tape = run.tape
        rows = run.tokens * self.top_k
        order, tokens, scores = sorted_tokens(run, self.reads[1], rows)
        read = x.tensor
        if self.reads_rows != "sorted":
            sent = tape.new(rows * self.d_in, read.dtype, "sent")
            read = tape.record("gather", (read,), sent, (tokens if self.reads_rows == "tokens" else order,))
        read = tape.lowered(read)
        local = ceil_div(self.experts, run.split.expert)
        products = ExpertProducts(run, self)
        out = products.product("linear", read, (local, self.d_in, self.d_out), "output", casts=EACH)
        products.close()
        out = tape.copy(out, "joined")
        if self.makes == "choices":
            restored = tape.new(out.count, out.dtype, "restored")
            out = tape.record("index_add", (out,), restored, (order, out))
        elif self.makes == "tokens":
            out = tape.multiply(out, scores)
            total = tape.new(run.tokens * self.d_out, out.dtype, "summed")
            out = tape.scale(tape.record("index_add", (out,), total, (tokens, out)), "shifted")
            return Value(out, self.d_out, x.divided, x.gathered)
        return Value(out, self.top_k * self.d_out, x.divided, x.gathered)


def expert_tensors(op: Operation, implementation: Implementation) -> tuple[LinearPart, ...]:
    """Return the tensors that have all experts' weights: parameters of the module, or grouped linear layers."""
    apart = not implementation.grouped_linears
    matrices = [weight for weight in op.weights() if weight.shard == EXPERT and len(weight.shape) == 2]
    names = [weight.name if weight.name == "weight" else f"{weight.name}_proj" for weight in matrices]
    return tuple(
        LinearPart(f"{op.module}.{name}", weight.shape[1], weight.shape[0], copies=weight.copies, parameter=apart)
        for name, weight in zip(names, matrices, strict=True)
    )

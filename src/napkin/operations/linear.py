"""Linear layers: matmuls with a parameter."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, WEIGHT, Tensor, select, sized
from napkin.elementwise import Number, ceil_div
from napkin.operations.adapters.lora import is_unquantized, kind_on, leaves_gaps, lora_pairs
from napkin.operations.base import Operation, Timer
from napkin.operations.bases import Module, Ordinary
from napkin.operations.facts import BLOCKS, LINEAR, LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.lowering import Lowering
from napkin.operations.roles import COLUMN, DOWN, HEADS, REPLICATED, ROW, VOCABULARY
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, division_of, gemm
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind
    from napkin.operations.tuning import Tuning


@record
class Matmul(Module):
    """Linear layer d_in → d_out, y = x·Wᵀ (+ bias). FLOP: 2·T·d_in·d_out."""

    d_in: int
    d_out: int
    bias: bool = False
    shard: str = REPLICATED

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, d_out=rows) if self.shard == VOCABULARY and self.d_out == before else self

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.d_out, self.d_in), self.shard)
        if not self.bias:
            return (weight,)
        return (weight, Weight("bias", (self.d_out,), COLUMN if self.shard == COLUMN else REPLICATED))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def division(self) -> str:
        return self.shard

    def time(self, timer: Timer) -> None:
        timer.linear(self)

    def pattern(self) -> str:
        return LINEAR

    def linear(self) -> Matmul:
        return self

    @property
    def bare(self) -> bool:
        return False

    @property
    def vectors(self) -> int:
        return 1

    def residual(self) -> Number | None:
        return self.d_out if self.shard == ROW else None

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        tensor, divided, gathered = x.tensor, x.divided, x.gathered
        d_in: Number = self.d_in
        d_out: Number = self.d_out
        t = run.split.tensor
        column = self.shard in (COLUMN, VOCABULARY)
        again = column and not x.gathered and run.implementation.gather_again and not self._is_adapted(run)
        if column:
            if not x.gathered and not again:
                tensor = run.gather_sequence(x)
            d_out, divided, gathered = d_out // t, True, True
        elif self.shard == ROW:
            d_in, divided, gathered = d_in // t, False, False
        factor = tensor.count // d_in
        if tensor.rows_apart:
            tensor = select(run.b == 1, tensor, run.tape.copy(run.tape.lowered(tensor), "by steps"))
        before_down = run.implementation.before_down
        if before_down is not None and self.role == DOWN:
            tensor = before_down(run, tensor)
        tuning = run.implementation.tuning
        found = kind_on(self, run.implementation)
        if found is not None and tuning is not None:
            out = self.around(run, tensor, *found, tuning)
        elif tuning is not None and self._joins(run, tuning):
            from napkin.operations.adapters.adapted import joined

            out = joined(run, tensor, d_in, d_out, tuning.rank_of(self.module), not is_unquantized(self, tuning))
        else:
            out = self.product(run, tensor, d_in, d_out)
            out = self._of_tokens(run, out, factor * d_out, again)
            if tuning is not None:
                out = self.adapted(run, tensor, out, (d_in, d_out), tuning, again)
            return Value(out, self.d_out, divided, gathered)
        return Value(self._of_tokens(run, out, factor * d_out, again), self.d_out, divided, gathered)

    def _of_tokens(self, run: Lowering, out: Tensor, count: Number, again: bool) -> Tensor:
        """Return what the layer makes of all tokens, or of a rank's own where it divides its inputs. again: it gathers
        the tokens itself, and each rank's own make `count` elements."""
        if again:
            out.count = count * run.split.sequence
            out.storage.size = out.size
        return run.reduce_scatter(out) if self.shard == ROW else out

    def _is_adapted(self, run: Lowering) -> bool:
        """Return whether LoRA's pairs read all tokens. Where both matrices are divided, A reads next to a column-
        parallel layer the tokens of all sequence-parallel ranks and keeps them, where the frozen layer keeps nothing
        (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/utils.py, get_adapter_attributes_from_linear:
        return_layernorm_output_gathered; ParallelLinearAdapter.forward; pull request 4581)."""
        tuning = run.implementation.tuning
        if tuning is None or not tuning.divided:
            return False
        return lora_pairs(self, run.program.operations, run.implementation, tuning)[0] > 0

    def _joins(self, run: Lowering, tuning: Tuning) -> bool:
        """Return whether the layer and its adapter are one function."""
        if not tuning.joined or tuning.dropout or tuning.magnitude:
            return False
        return lora_pairs(self, run.program.operations, run.implementation, tuning)[0] == 1

    def product(self, run: Lowering, x: Tensor, d_in: Number, d_out: Number) -> Tensor:
        """Multiply by the layer's own weight."""
        tuning = run.implementation.tuning
        own = run.implementation.linear if self.shard != VOCABULARY else None
        label = f"{self.name}/weight"
        if tuning is not None and not is_unquantized(self, tuning):
            return (int8 if tuning.keeps_int8 else quantized)(run, x, d_in, d_out, tuning)
        if own is not None:
            return own(run, x, d_in, d_out, self.bias, label)
        narrow = self.shard != VOCABULARY or not run.implementation.wide_head
        return run.tape.linear(x, d_in, d_out, self.bias, label, narrow=narrow)

    def around(self, run: Lowering, x: Tensor, kind: AdapterKind, at: AdaptedLayer, tuning: Tuning) -> Tensor:
        """Run the layer with an adapter of another kind than LoRA, which tensor parallelism does not divide."""
        from napkin.operations.adapters.kind import Math

        tape = run.tape

        def base(read: Tensor) -> Tensor:
            tape.frozen = True
            made = self.product(run, read, self.d_in, self.d_out)
            tape.frozen = False
            return made

        tape.frozen = False
        out = kind.lower(Math(run, tuning, x), x, base, at)
        tape.frozen = True
        return out

    def adapted(
        self, run: Lowering, x: Tensor, out: Tensor, shape: tuple[Number, Number], tuning: Tuning, local: bool
    ) -> Tensor:
        """Add the output of adapters on the frozen linear layer; a learned scale saves its input. local: x has the
        rank's own tokens."""
        tape, (d_in, d_out) = run.tape, shape
        tape.frozen = False
        several, width = lora_pairs(self, run.program.operations, run.implementation, tuning)
        if several:
            from napkin.operations.adapters.adapted import pair_of_ranks

            rank = several * tuning.rank_of(self.module)
            wide = pair_of_ranks(run, x, self.shard, (d_in, width), rank, local)
            if leaves_gaps(self, run.program.operations, run.implementation, width):
                wide = tape.record("pad", (wide,), tape.new(wide.count, wide.dtype, "padded"), (wide,))
            wide = wide.view(out.count)
            if tuning.magnitude:
                wide = self.rescaled(run, x, out, wide, (d_in, d_out))
            out = tape.cast(tape.add(out, wide), out.dtype)
        if tuning.affine:
            out = tape.multiply(out, run.tape.given(d_out, tape.compute, "scale", kind=WEIGHT))
        tape.frozen = True
        return out

    def rescaled(self, run: Lowering, x: Tensor, out: Tensor, wide: Tensor, shape: tuple[Number, Number]) -> Tensor:
        """Run DoRA's (m/‖W'‖ − 1)·Wx + m/‖W'‖·BAx, which saves both results for the gradient of m. The norm is
        detached: the identity, BA twice, and W + BA are there while it is made. Behind dropout, Wx is made again."""
        tape = run.tape
        d_in, d_out = shape
        elements = d_in * d_in + 3 * d_in * d_out
        norm = tape.new(d_out, out.dtype, "norms", no_grad=True)
        tape.record("weight norm", (), norm, forward_scratch=sized(elements, out.dtype))
        base = out
        if run.implementation.tuning is not None and run.implementation.tuning.dropout:
            base = tape.record("frozen", (x,), tape.new(out.count, out.dtype, "output without dropped inputs"))
        magnitude = tape.given(d_out, tape.compute, "magnitude", kind=WEIGHT)
        return tape.add(tape.multiply(base, magnitude), tape.multiply(wide, magnitude))


def quantized(run: Lowering, x: Tensor, d_in: Number, d_out: Number, tuning: Tuning) -> Tensor:
    """Run a frozen linear layer whose quantized weight is dequantized in both passes; old bitsandbytes saves its input
    (MatMul4Bit), and that of the micro-batch before."""
    tape = run.tape
    given, x = x, tape.lowered(x)
    out = tape.new(x.count // d_in * d_out, x.dtype, "output")
    kept = (*((x,) if tuning.keeps else ()), *((tape.of_last(x),) if tuning.keeps_last else ()))
    out = tape.record("frozen", (x,), out, kept, scratch=tuning.dequantized_bytes * d_in * d_out)
    tape.hold(given)
    return out


def int8(run: Lowering, x: Tensor, d_in: Number, d_out: Number, tuning: Tuning) -> Tensor:
    """Run a frozen linear layer of LLM.int8(), which keeps its input as it is given, though no gradient needs it, and
    returns its type. Forward makes of it fp16 and int8, and 32-bit sums; backward, the weight in the input's type
    (bitsandbytes/autograd/_functions.py, MatMul8bitLt; backends/default/ops.py, int8_scaled_mm)."""
    tape = run.tape
    out = tape.new(x.count // d_in * d_out, x.dtype, "output")
    narrowed = x.count * (BYTES["fp16"] * (x.dtype != "fp16") + BYTES["int8"])
    sums = out.count * BYTES["fp32"]
    weight = d_in * d_out * BYTES[x.dtype]
    return tape.record("frozen", (x,), out, (x,), scratch=weight, forward_scratch=narrowed + sums)


@record
class PerSequence(Matmul):
    """A linear layer over one token of each sequence: the `first`, or what follows from it. `used`: the loss depends
    on it; otherwise it runs and keeps nothing. FLOP: 2·b·d_in·d_out."""

    first: bool = False
    used: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return tuple(replace(one, trained=self.used) for one in super().weights())

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        found = gemm(self.name, work.sequences, self.d_in, self.d_out)
        return (found if self.used else replace(found, backward=0),)

    def lower(self, run: Lowering) -> Value:
        x = run.read(self).tensor
        if not self.used:
            return Value(run.tape.new(run.b * self.d_out, x.dtype, "pooled", no_grad=True), self.d_out)
        if self.first:
            x = run.tape.slice(x, run.b * self.d_in)
        from napkin.operations.adapters.adapted import linear

        part = LinearPart(self.module, self.d_in, self.d_out, self.bias)
        return Value(linear(run, part, x, label=f"{self.name}/weight"), self.d_out)


@record
class JoinedHead(Module):
    """logits = x·[E, R]ᵀ + bias, if the head's matrix is concatenated on every pass: the token embedding E of
    `table` elements per token, and a matrix R of the others (MobileBERT). FLOP: 2·T·d_in·d_out."""

    d_in: int
    d_out: int
    table: int

    def weights(self) -> tuple[Weight, ...]:
        table = Weight("weight", (self.d_out, self.table), VOCABULARY)
        rest = Weight("rest", (self.d_in - self.table, self.d_out))
        return (table, rest, Weight("bias", (self.d_out,)))

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, d_out=rows) if self.d_out == before else self

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        """Return a linear layer whose weight the class reads, and which it never calls: its adapter does nothing."""
        return (LinearPart("cls.predictions.dense", self.d_out, self.d_in - self.table),)

    def lower(self, run: Lowering) -> Value:
        """Concatenate the matrix, an activation that autocast casts, and multiply; both factors are saved.

        The gradients of the matrix's parts are views of its gradient. That of the others outlives the backward pass,
        and with it the whole; the embedding's is copied, or added to that of the lookup."""
        x, tape = run.read(self), run.tape
        rows = ceil_div(self.d_out, run.split.tensor)
        parts = tuple(run.weight(size * rows) for size in (self.table, self.d_in - self.table))
        run.undivided = parts[0].size
        out = tape.matmul(x.tensor, tape.join(parts, "matrix put together"), run.tokens * rows, "logits")
        out = tape.record("bias", (out,), out.view(), weight=rows * BYTES[parts[0].dtype], alias=True)  # added in place
        return Value(out, self.d_out, True, True)


@record
class BlockMatmul(Ordinary):
    """Block-diagonal linear layer: `blocks` maps d_in → d_out, one per head. FLOP: 2·T·blocks·d_in·d_out."""

    blocks: int
    d_in: int
    d_out: int
    bias: bool = False
    shard: str = HEADS

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.blocks, self.d_out, self.d_in), self.shard)
        return (weight, Weight("bias", (self.blocks, self.d_out), self.shard)) if self.bias else (weight,)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.d_out, batch=self.blocks),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: its GEMMs move their operands."""
        return 0, 0

    def pattern(self) -> str:
        return BLOCKS

    def division(self) -> str:
        return division_of(self.shard)

    def lower(self, run: Lowering) -> Value:
        """Batched matmuls, one per block. Sequences are folded into one dimension by a copy, or, where each has a
        product of its own, the weight is repeated for each."""
        x = run.read(self)
        tape, width = run.tape, self.blocks * self.d_out
        tensor = tape.lowered(x.tensor)
        is_part = self.reads[0] in run.program.slices
        if not is_part:
            if id(tensor) not in run.derived:
                run.derived[id(tensor)] = select(run.b == 1, tensor, tape.copy(tensor, "by blocks"))
            tensor = run.derived[id(tensor)]
        out = tape.new(tensor.count * self.d_out // self.d_in, tensor.dtype, "output")
        count = self.blocks * self.d_in * self.d_out
        apart = run.implementation.mixer == "apart"
        weight = tape.given(count, tensor.dtype, "weight", kind=WEIGHT)
        if tape.autocast and not apart:
            weight = tape.weight_copy(count, f"{self.name}/weight")
        if apart:  # autocast casts what is seen through a view on every pass
            each = tape.new(run.b * count, tensor.dtype, "weight for each sequence")
            weight = each if tape.autocast else select(run.b == 1, weight, each)
        grads = count * sized(1, "fp32" if tape.autocast else tape.compute)
        made = tape.record("bmm", (tensor,), out, (weight,), for_weight=(tensor,), weight=grads)
        return Value(made, width, x.divided, x.gathered)

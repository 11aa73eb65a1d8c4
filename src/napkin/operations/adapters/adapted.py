"""Linear layers and matmuls of experts on the tape: trained, frozen, or frozen with adapters (peft 0.21, tuners/lora).

Every linear layer of a reference class runs through `linear`, and every matmul of tokens with experts' weights through
`ExpertProducts`, so that only this module decides how a weight is trained."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number, ceil_div
from napkin.operations.adapters.lora import adapter_width
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.lowering import Lowering
from napkin.operations.roles import COLUMN, ROW, VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from napkin.operations.tuning import Tuning
else:
    Protocol = object

CACHED, EACH = "cached", "each"
"""How autocast casts the weight of a matmul: once per step, or a part of it in each call."""


class Parted(Protocol):
    """The part of base.Operation that identifies its weight."""

    @property
    def name(self) -> str: ...
    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]: ...


def linear(
    run: Lowering, part: LinearPart, x: Tensor, *, d_out: Number = 0, label: str = "", once: bool = True
) -> Tensor:
    """Run a linear layer of the reference class, and its adapter where LoRA's targets name it. A parameter that a class
    multiplies by itself is no linear layer that a recipe of fewer than 16 bits converts. d_out: that of this rank, if
    its outputs are divided; once: autocast casts the weight once a step, not in each call."""
    tape, tuning = run.tape, run.implementation.tuning
    d_out = d_out or part.d_out
    rank = adapter_width(part, tuning)
    if rank and part.parameter:
        return _with_merged(run, part, x, d_out, rank)
    out = tape.linear(x, part.d_in, d_out, part.bias, label, once, narrow=not part.parameter)
    if rank:
        out = tape.add(out, pair(run, x, part.d_in, d_out, rank))
    return out


def pair(run: Lowering, x: Tensor, d_in: Number, d_out: Number, rank: int, copies: Number = 1) -> Tensor:
    """Run LoRA's two matrices d_in → rank → d_out after dropout; each of `copies` experts has its own. Their input is
    first cast to their type, which autocast undoes."""
    tape, tuning = run.tape, run.implementation.tuning
    assert tuning is not None
    outer, tape.frozen = tape.frozen, False
    thin = tape.linear(_prepared(run, x, tuning), d_in, rank, copies=copies)
    wide = tape.scale(tape.linear(thin, rank, d_out, copies=copies))
    tape.frozen = outer
    return wide


def _prepared(run: Lowering, x: Tensor, tuning: Tuning) -> Tensor:
    """Return what LoRA's first matrix reads: x in its type, after dropout."""
    tape, stream = run.tape, x.dtype
    x = tape.cast(x, tuning.kept_in or ("fp32" if tape.autocast else tape.compute))
    if tuning.kept_in and tuning.autocast:
        x = tape.cast(x, stream)  # a copy for each layer
    return tape.dropout(x, tuning.dropout)


def pair_of_ranks(run: Lowering, x: Tensor, shard: str, shape: tuple[Number, int], rank: int, local: bool) -> Tensor:
    """Run LoRA's two matrices next to a linear layer that tensor-parallel ranks divide by `shard` (adapter_shards).

    shape  inputs of this rank, and outputs of all
    local  x has a rank's own tokens, of those that sequence parallelism divides, and the layer gathers them

    Divided as the layer, A reads what it has, and what it makes is gathered or reduced. Where both are divided, x has
    all tokens (return_layernorm_output_gathered), what either makes is gathered, and of the result next to a row-
    parallel layer each rank keeps its own tokens."""
    tape, tuning, ranks = run.tape, run.implementation.tuning, run.split.tensor
    assert tuning is not None
    d_in, d_out = shape
    outer, tape.frozen = tape.frozen, False
    x = _prepared(run, x, tuning)
    if tuning.divided:
        thin = tape.linear(x, d_in, rank if shard == ROW else ceil_div(rank, ranks))
        thin = thin if shard == ROW else run.all_gather(thin, ranks)
        wide = tape.linear(thin, rank, d_out // ranks)
        if shard not in (COLUMN, VOCABULARY):
            wide = run.all_gather(wide, ranks)
            wide = run.reduce_scatter(wide) if shard == ROW else wide
    else:
        thin = tape.linear(x, d_in, rank)
        if shard == ROW:
            thin = run.reduce_scatter(thin)
        elif local:
            thin = run.all_gather(thin, run.split.sequence)
        wide = tape.linear(thin, rank, d_out // ranks if shard in (COLUMN, VOCABULARY) else d_out)
    wide = tape.scale(wide)
    tape.frozen = outer
    return wide


def joined(run: Lowering, x: Tensor, d_in: Number, d_out: Number, rank: int, quantized: bool) -> Tensor:
    """Run a frozen linear layer with LoRA as one function, which saves its input alone (unsloth/kernels/fast_lora.py,
    LoRA_W, LoRA_QKV, LoRA_MLP). quantized: the frozen weight is."""
    tape, tuning = run.tape, run.implementation.tuning
    assert tuning is not None
    given, x = x, tape.lowered(x)
    stored = tuning.kept_in or ("fp32" if tape.autocast else tape.compute)
    out = tape.new(x.count // d_in * d_out, x.dtype, "output")
    scratch = tuning.dequantized_bytes * d_in * d_out * quantized
    outer, tape.frozen = tape.frozen, False
    weight = rank * (d_in + d_out) * BYTES[stored]
    out = tape.record("lora", (x,), out, (x,), weight=weight, scratch=scratch, forward_scratch=scratch)
    tape.frozen = outer
    tape.hold(given)
    return out


def adapted_rows(run: Lowering, ids: Tensor, count: Number, rank: int, shape: tuple[Number, Number]) -> Tensor:
    """Look up `count` rows of an embedding's adapter, and multiply them by its second matrix (peft, Embedding). shape:
    rows and width of the embedding."""
    tape, tuning = run.tape, run.implementation.tuning
    assert tuning is not None
    stored = tuning.kept_in or ("fp32" if tape.autocast else tape.compute)
    rows, width = shape
    outer, tape.frozen = tape.frozen, False
    thin = tape.new(count * rank, stored, "adapter's rows")
    thin = tape.record("embedding", (ids,), thin, (ids,), weight=rows * rank * BYTES[stored])
    wide = tape.scale(tape.linear(thin, rank, width, once=False))
    tape.frozen = outer
    return wide


def _with_merged(run: Lowering, part: LinearPart, x: Tensor, d_out: Number, rank: int) -> Tensor:
    """Multiply by one frozen parameter plus the product of LoRA's two matrices, which is a separate matmul."""
    tape, tuning = run.tape, run.implementation.tuning
    stored = "fp32" if tape.autocast else tape.compute
    kept_in = tuning.kept_in if tuning is not None and tuning.kept_in else stored
    elements, count = rank * (part.d_in + d_out), part.d_in * d_out
    outer, tape.frozen = tape.frozen, False
    copies = [tape.weight_copy(elements, f"{part.path}/adapter")] if tape.autocast else []
    delta = tape.new(count, tape.autocast or kept_in, "adapter's product")
    delta = tape.record("matmul", (), delta, copies, weight=elements * BYTES[kept_in])
    merged = tape.shift(tape.cast(tape.scale(delta), stored), "merged weight")
    tape.frozen = outer
    merged = merged if tape.autocast else tape.cast(merged, x.dtype)
    return tape.matmul(x, merged, x.count // part.d_in * d_out, "output")


def _merged(run: Lowering, count: Number, elements: Number, what: str) -> Tensor:
    """Return a frozen weight of `count` elements plus the product of its adapter's matrices, of `elements` together: a
    new tensor, computed outside of autocast (peft, ParamWrapper)."""
    tape, tuning = run.tape, run.implementation.tuning
    stored = "fp32" if tape.autocast else tape.compute
    outer, tape.frozen = tape.frozen, False
    kept_in = tuning.kept_in if tuning is not None and tuning.kept_in else stored
    casts = [tape.new(elements, stored, f"{what} cast", no_grad=True)] if kept_in != stored else []
    made = tape.new(count, stored, what)
    made = tape.record("baddbmm", (), made, casts, weight=elements * BYTES[kept_in])
    tape.frozen = outer
    return made


class ExpertProducts:
    """Runs the matmuls of tokens with the expert weights of one layer.

    An adapter on a tensor that has all experts' weights is merged into it for the call of the module, which saves it in
    place of the frozen weight; experts that are separate modules have separate adapters."""

    def __init__(self, run: Lowering, op: Parted) -> None:
        self.run = run
        self.op = op
        self.parts = op.linear_parts(run.implementation)
        self.merged: dict[str, Tensor] = {}

    def product(
        self,
        primitive: str,
        x: Tensor,
        sizes: tuple[Number, Number, Number],
        what: str,
        *,
        number: int = 0,
        kept: tuple[Tensor, ...] = (),
        casts: str = "",
    ) -> Tensor:
        """Multiply x, in the dtype of the matmul.

        sizes  experts on this rank, and the input and output elements of each per row     number  of the linear part
        kept   what the primitive saves in addition to x and the weight   casts  CACHED or EACH under autocast
        """
        run, tape = self.run, self.run.tape
        local, d_in, d_out = sizes
        stored = "fp32" if tape.autocast else tape.compute
        count = local * d_in * d_out
        out = tape.new(x.count // d_in * d_out, x.dtype, what)
        part = self.parts[number]
        rank = adapter_width(part, run.implementation.tuning)
        if rank and part.parameter:
            weight = self._of_call(part, count, local * rank * (d_in + d_out), casts)
            return tape.record(primitive, (x, weight), out, (x, *kept, weight))
        if casts and tape.autocast:
            label = f"{self.op.name}/{what}"
            cached = casts == CACHED
            copy = tape.weight_copy(count, label) if cached else tape.new(count, tape.autocast, label, no_grad=True)
            kept = (*kept, copy)
        read = tape.narrowed(x) if tape.linear_dtype and not part.parameter else x
        out = tape.record(primitive, (x,), out, kept, for_weight=(read,), weight=count * BYTES[stored])
        if rank:
            out = tape.add(out, pair(run, x, d_in, d_out, rank, local))
        return out

    def _of_call(self, part: LinearPart, count: Number, elements: Number, casts: str) -> Tensor:
        """Return the merged weight, which is computed once per call of the module; autocast casts it."""
        if part.path not in self.merged:
            self.merged[part.path] = _merged(self.run, count, elements, f"{part.path} with its adapter")
        merged = self.merged[part.path]
        return self.run.tape.lowered(merged) if casts else merged

    def close(self) -> None:
        """End the module's call, which held the merged weights."""
        self.run.tape.hold(*self.merged.values())

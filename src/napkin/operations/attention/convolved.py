"""Attention next to a convolution over the values of each head (Nyströmformer, arXiv:2102.03902)."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.eager import batched
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS
from napkin.operations.work import Weight
from napkin.record import record


@record
class ConvolvedAttention(AttentionCore):
    """softmax(q·kᵀ/√d)·v + a depthwise convolution of `kernel` steps over the values of each head (0: none).

    approximates  the class approximates the attention by landmarks: what it keeps is counted as full attention's
    """

    kernel: int = 0
    approximates: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("convolution", (self.heads, 1, self.kernel, 1), HEADS),) if self.kernel else ()

    def depends_on_shapes(self, length: int) -> bool:
        """Return False if it is approximated."""
        return not self.approximates

    def eager(
        self, run: Lowering, qkv: tuple[Tensor, ...], rows_apart: tuple[bool, ...], heads: Number, kv_heads: Number
    ) -> Tensor:
        """Query and key are each scaled by the fourth root of their width; nothing drops weights; the convolution is
        added in place. All variables but the last live until the function returns."""
        tape = run.tape
        q, k, v = (t.view(rows_apart=apart) for t, apart in zip(qkv, rows_apart, strict=True))
        q, k = tape.scale(q), tape.scale(k)
        scores = batched(run, q, k, heads, run.b * heads * run.own * run.s, "scores")
        scores = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
        weights = tape.softmax(scores)
        out = batched(run, weights, v, heads, run.tokens * heads * self.v_dim, "values")
        if self.kernel:
            count = heads * self.kernel
            stored = "fp32" if tape.autocast else tape.compute
            kept = (v, tape.weight_copy(count, f"{self.name}/convolution")) if tape.autocast else (v,)
            convolved = tape.new(out.count, out.dtype, "convolved")
            convolved = tape.record("conv", (v,), convolved, kept, weight=count * BYTES[stored])
            out = tape.record("add", (out, convolved), out.view(), alias=True)
        out = tape.copy(out, "attended")
        tape.hold(q, k, v, scores, weights)
        return out

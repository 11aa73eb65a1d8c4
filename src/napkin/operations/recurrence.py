"""Recurrences over the sequence and the convolutions around them."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations import mixers
from napkin.operations.bases import Elementwise, Ordinary
from napkin.operations.facts import Cache, Served
from napkin.operations.lowering import Lowering
from napkin.operations.mixers import MixerSizes
from napkin.operations.primitives import ceil_div, is_array
from napkin.operations.roles import HEADS
from napkin.operations.scans import SCANS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record

WKV_STATE = 3
"""Elements of a channel's state in the wkv recurrence."""


@record
class ForgetGate(Elementwise):
    """Log-decay of each channel's state: −exp(A)·softplus(x + b), with a learned A per head and b per channel, `heads`
    of `head_dim` channels (Kimi Delta Attention, arXiv:2510.26692, section 3).

    form      how the reference implementation computes it, in fp32:
        guarded   softplus in elementary operations, bypassed for large inputs
        softplus  one kernel
        bounded   floor·σ(exp(A)·(x + b)) instead, at least `floor`
    narrowed  cast to the stream's dtype
    """

    heads: int
    head_dim: int
    form: str = "guarded"
    narrowed: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("decay", (self.heads,), HEADS), Weight("bias", (self.heads * self.head_dim,), HEADS))

    def traffic(self) -> tuple[Number, Number]:
        """Count a 16-bit input and an fp32 result; backward also reads the gradient of the result."""
        return 6 * self.heads * self.head_dim, 12 * self.heads * self.head_dim

    def lower(self, run: Lowering) -> Value:
        """Compute the decay of each channel."""
        x = run.read(self)
        ways = run.split.tensor if x.divided else 1
        heads = self.heads // ways
        decays = mixers.forget(run.tape, x.tensor, heads, self.head_dim, self.form)
        if self.narrowed:
            decays = run.tape.cast(decays, "fp32" if run.tape.autocast else run.tape.compute)
        return Value(decays, self.heads * self.head_dim, x.divided, x.gathered)


@record
class Scan(Ordinary):
    """A recurrence over the sequence with a state of `state` elements per channel: `heads` × `head_dim` channels.

    kind     selective (Mamba), ssd (Mamba-2), delta (gated delta rule), kda (the same, each channel with a decay of its
             own), lightning, mlstm (xLSTM), wkv (RWKV), rg_lru
    chunk    tokens that a chunked form handles by matmuls
    doubled  the delta rule's write strengths reach up to 2

    The matmuls are those of the plain chunked form, c tokens per chunk, n = ⌈s/c⌉ chunks, p head size, N state:
        selective   the state's read-out, 2·b·s·a·p·N; the recurrence itself is elementwise
        ssd         per head 2·n·c·(c·N + c·p + 2·N·p) within and between chunks, and 2·(n+1)²·N·p carries the states
        delta, kda  per head 2·n·c·(2·c·N + c·p + 3·N·p); the triangular solve is not a matmul
        mlstm       per head 2·n·c·(c·N + c·p + 2·N·p + N), the last of them the normalizer's
        lightning   per head 2·(N + p)·Σ(chunk length)² + 4·s·N·p, the last chunk as short as it is
        wkv, rg_lru elementwise
    """

    kind: str
    heads: int
    head_dim: int
    state: int
    groups: int = 1
    chunk: int = 0
    doubled: bool = False

    def scans(self) -> str:
        return self.kind

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        p, state, c = self.head_dim, self.state, self.chunk
        if self.kind == "selective":
            return (gemm("read_out", self.heads * p, state, 1, work.tokens, weight=False),)
        if self.kind not in ("ssd", "delta", "kda", "lightning", "mlstm"):
            return ()
        each = work.sequences * self.heads
        if self.kind == "lightning":
            whole, rest = each * (work.length // c), work.length % c
            found = (
                gemm("scores", c, state, c, whole, weight=False),
                gemm("values", c, c, p, whole, weight=False),
                gemm("last_scores", rest, state, rest, each, weight=False),
                gemm("last_values", rest, rest, p, each, weight=False),
                gemm("read_out", work.length, state, p, each, weight=False),
                gemm("states", state, work.length, p, each, weight=False),
            )
            return tuple(one for one in found if is_array(one.flops) or one.flops)
        chunks = ceil_div(work.length, c)
        within = each * chunks
        common = (
            gemm("scores", c, state, c, within, weight=False),
            gemm("values", c, c, p, within, weight=False),
            gemm("states", state, c, p, within, weight=False),
            gemm("read_out", c, state, p, within, weight=False),
        )
        if self.kind == "ssd":
            carry = gemm("carry", chunks + 1, chunks + 1, p * state, each, weight=False)
            return (*common, carry)
        if self.kind == "mlstm":
            return (*common, gemm("normaliser", c, state, 1, within, weight=False))
        keys = gemm("keys", c, state, c, within, weight=False)
        corrections = gemm("corrections", c, state, p, within, weight=False)
        return (*common, keys, corrections)

    def remark(self) -> str:
        return "a scan counts the matrix products of its plain chunked form, not its elementwise work"

    def traffic(self) -> tuple[Number, Number]:
        """Count inputs, gates and outputs once; the state stays on chip."""
        return 8 * self.heads * self.head_dim, 16 * self.heads * self.head_dim

    def cache(self, over: Served) -> Cache | None:
        """heads · head_dim · state elements; of the wkv recurrence numerator, denominator and largest exponent of a
        channel; of an mLSTM the normalizer with the largest exponent too."""
        each = WKV_STATE if self.kind == "wkv" else self.state or 1
        normalizer = self.state + 1 if self.kind == "mlstm" else 0
        return Cache(self.name, fixed=ceil_div(self.heads, over.ranks) * (self.head_dim * each + normalizer))

    def lower(self, run: Lowering) -> Value:
        """Run the recurrence, by a fused kernel or by elementary operations."""
        first = run.read(self)
        ways = run.split.tensor if first.divided else 1
        size = MixerSizes(
            run.b, run.own, self.heads // ways, self.head_dim, self.state, ceil_div(self.groups, ways), self.chunk
        )
        read = [run.read(self, index).tensor for index in range(len(self.reads))]
        run.tape.recomputed = False
        out = SCANS[self.kind](run, self, read, size)
        return Value(out, self.heads * self.head_dim, first.divided, first.gathered)

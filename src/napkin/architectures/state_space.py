"""State-space mixers: Mamba's selective scan and Mamba-2's."""

from __future__ import annotations

from napkin.architectures.blocks import Operations
from napkin.operations.base import Operation
from napkin.operations.convolutions import Conv
from napkin.operations.learned import Parameters
from napkin.operations.linear import BlockMatmul, Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Multiply, Scale
from napkin.operations.recurrence import Scan
from napkin.operations.roles import COLUMN, MIXER, MIXER_GATE, MIXER_INPUT, ROW, SCAN_PARAMETERS
from napkin.operations.views import Slice
from napkin.record import record, replace


@record
class Selective:
    """Mamba's selective scan (arXiv:2312.00752): h → 2d, causal convolution, (Δ, B, C) from the convolved half, scan,
    gate, d → h. A block.

    inner, state  d, and elements of a channel's state
    rank          of the bottleneck through which Δ comes
    kernel        of the convolution
    heads         separate projections for as many slices of d (Zamba); 1: one for all
    normed        Δ, B and C are RMS-normalized (Jamba, Falcon-Mamba), with weights or without
    prefix        of the operations' names
    """

    width: int
    inner: int
    state: int
    rank: int
    kernel: int
    bias: bool
    conv_bias: bool
    heads: int = 1
    normed: bool = False
    norm_weights: bool = True
    function: str = "silu"
    prefix: str = "mixer_"

    def __call__(self, source: str) -> Operations:
        at, inner, function = f"{self.prefix}{{}}".format, self.inner, self.function
        parameters, names = self._parameters()
        decay = Parameters(at("decay"), (), (("A_log", (inner, self.state)), ("D", (inner,))))
        operations: Operations = (
            Matmul(at("in_proj"), (source,), self.width, 2 * inner, bias=self.bias, shard=COLUMN, role=MIXER_INPUT),
            Slice(at("hidden"), (at("in_proj"),), inner),
            Slice(at("gate"), (at("in_proj"),), inner, role=MIXER_GATE),
            Conv(at("conv"), (at("hidden"),), inner, self.kernel, bias=self.conv_bias),
            Activation(at("conv_act"), (at("conv"),), inner, function),
            *parameters,
            decay,
            Scan(at("scan"), (at("conv_act"), *names, decay.name), "selective", inner, 1, self.state),
            Activation(at("gate_act"), (at("gate"),), inner, function),
            Multiply(at("gated"), (at("scan"), at("gate_act")), inner),
            Matmul(at("out_proj"), (at("gated"),), inner, self.width, bias=self.bias, shard=ROW),
        )
        return as_mixer(operations)

    def _parameters(self) -> tuple[Operations, tuple[str, str, str]]:
        """Return what makes Δ, B and C of the convolved half, and their names."""
        at, heads, rank = f"{self.prefix}{{}}".format, self.heads, self.rank
        parts = (("dt", rank), ("b", self.state), ("c", self.state))
        low, per_head = rank + 2 * self.state, self.inner // heads
        suffix = "_norm" if self.normed else ""
        project, step, read = at("x_proj"), at("dt_proj"), (at(f"dt{suffix}"),)
        first: Operation = BlockMatmul(project, (at("conv_act"),), heads, per_head, low, role=SCAN_PARAMETERS)
        last: Operation = BlockMatmul(step, read, heads, rank, per_head, bias=True)
        if heads == 1:
            first = Matmul(project, (at("conv_act"),), self.inner, low, shard=ROW, role=SCAN_PARAMETERS)
            last = Matmul(step, read, rank, self.inner, bias=True, shard=COLUMN)
        split: Operations = tuple(Slice(at(part), (project,), heads * size) for part, size in parts)
        if self.normed:
            weight = self.norm_weights
            split += tuple(
                Norm(at(f"{part}_norm"), (at(part),), size, groups=heads, weight=weight) for part, size in parts
            )
        return (first, *split, last), (step, at(f"b{suffix}"), at(f"c{suffix}"))


@record
class Ssd:
    """Mamba-2's mixer (arXiv:2405.21060): one projection to gate, input, B, C and Δ (2d + 2·groups·N + heads), a causal
    convolution over d + 2·groups·N channels, the scan, a gated norm (else a plain gate), d → h. A block.

    inner, state  d, and N, elements of a head's state
    groups        of heads that share B and C
    kernel        of the convolution
    chunk         tokens that the scan takes at once
    out_bias      of the output projection, if it differs
    scaled        constants multiply what the projection makes
    prefix        of the operations' names
    """

    width: int
    inner: int
    heads: int
    state: int
    groups: int
    kernel: int
    chunk: int
    bias: bool
    conv_bias: bool
    out_bias: bool | None = None
    normed: bool = True
    scaled: bool = False
    function: str = "silu"
    prefix: str = "mixer_"

    def __call__(self, source: str) -> Operations:
        at, inner, heads = f"{self.prefix}{{}}".format, self.inner, self.heads
        shared = self.groups * self.state
        channels = inner + 2 * shared
        scan_reads = tuple(at(name) for name in ("hidden", "dt", "b", "c", "decay"))
        out_bias = self.bias if self.out_bias is None else self.out_bias
        projected = self._projected(source, inner + channels + heads)
        joined = projected[-1].name
        operations: Operations = (
            *projected,
            Slice(at("gate"), (joined,), inner, role=MIXER_GATE),
            Slice(at("mixed"), (joined,), channels),
            Slice(at("dt"), (joined,), heads),
            Conv(at("conv"), (at("mixed"),), channels, self.kernel, bias=self.conv_bias),
            Activation(at("conv_act"), (at("conv"),), channels, self.function),
            Slice(at("hidden"), (at("conv_act"),), inner),
            Slice(at("b"), (at("conv_act"),), shared),
            Slice(at("c"), (at("conv_act"),), shared),
            Parameters(at("decay"), (), (("dt_bias", (heads,)), ("A_log", (heads,)), ("D", (heads,)))),
            Scan(at("scan"), scan_reads, "ssd", heads, inner // heads, self.state, self.groups, self.chunk),
            *self._gated(),
            Matmul(at("out_proj"), (at("norm"),), inner, self.width, bias=out_bias, shard=ROW),
        )
        return as_mixer(operations)

    def _projected(self, source: str, made: int) -> Operations:
        """Return the input projection, to `made` elements."""
        name = f"{self.prefix}in_proj"
        first = Matmul(name, (source,), self.width, made, bias=self.bias, shard=COLUMN, role=MIXER_INPUT)
        if not self.scaled:
            return (first,)
        return (first, Scale(f"{name}_scaled", (name,), made, vector=True, role=MIXER_INPUT))

    def _gated(self) -> Operations:
        at, inner = f"{self.prefix}{{}}".format, self.inner
        if self.normed:
            return (Norm(at("norm"), (at("scan"), at("gate")), inner, gated=True, shard=COLUMN),)
        return (
            Activation(at("gate_act"), (at("gate"),), inner, self.function),
            Multiply(at("norm"), (at("scan"), at("gate_act")), inner),
        )


def as_mixer(operations: Operations) -> Operations:
    """Mark what one kernel of a recurrence runs: all but the input projection."""
    return tuple(op if op.role else replace(op, role=MIXER) for op in operations)

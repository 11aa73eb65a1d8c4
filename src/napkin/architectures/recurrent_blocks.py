"""Blocks that mix tokens by a recurrence instead of attention, as lists of operations.

As in blocks.py a block takes the name of the tensor that it reads, its last operation is its output, and `prefix`
keeps names apart. Sizes: h model width, d inner width, N state, k convolution kernel.
"""

from __future__ import annotations

from napkin.architectures.blocks import NormStyle, Operations
from napkin.operations.base import Operation
from napkin.operations.convolutions import Conv
from napkin.operations.learned import Parameters, TokenShift
from napkin.operations.linear import BlockMatmul, Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Multiply, Softcap
from napkin.operations.recurrence import ForgetGate, Scan
from napkin.operations.roles import COLUMN, HEADS, ROW
from napkin.operations.views import Slice
from napkin.record import record

DELTA_CHUNK = 64
"""Tokens of a chunk of the gated delta rule: a constant of its kernel (github.com/fla-org/flash-linear-attention)."""


@record
class GatedDelta:
    """Gated DeltaNet (arXiv:2412.06464): q, k, v through one short convolution, the delta rule with a decay (a) and a
    write strength (b) for each head, a gated norm for each head, heads → h. No biases. A block.

    kernel       of the convolution
    projections  which of q k v z b a each input projection makes, by name: families fuse them differently
    doubled      write strengths reach up to 2
    gate         activation of the norm's gate
    arithmetic   of the norm, as in operations.norms.Norm
    prefix       of the operations' names
    """

    width: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    projections: tuple[tuple[str, tuple[str, ...]], ...]
    doubled: bool = False
    function: str = "silu"
    gate: str = "silu"
    arithmetic: str = ""
    prefix: str = "mixer_"

    def __call__(self, source: str) -> Operations:
        at, heads, value_dim = f"{self.prefix}{{}}".format, self.value_heads, self.value_dim
        projected, names = self._projected(source)
        values = heads * value_dim
        channels = 2 * self.key_heads * self.key_dim + values
        sizes = (heads, value_dim, self.key_dim, self.key_heads, DELTA_CHUNK, self.doubled)
        return (
            *projected,
            Conv(at("conv"), (names["q"], names["k"], names["v"]), channels, self.kernel, bias=False),
            Activation(at("conv_act"), (at("conv"),), channels, self.function),
            Parameters(at("decay"), (), (("dt_bias", (heads,)), ("A_log", (heads,)))),
            Scan(at("scan"), (at("conv_act"), names["b"], names["a"], at("decay")), "delta", *sizes),
            Norm(
                at("norm"),
                (at("scan"), names["z"]),
                value_dim,
                groups=heads,
                gated=True,
                arithmetic=self.arithmetic,
                gate=self.gate,
            ),
            Matmul(at("out_proj"), (at("norm"),), values, self.width, shard=ROW),
        )

    def _projected(self, source: str) -> tuple[Operations, dict[str, str]]:
        """Return the input projections, and the names of q, k, v, z, b and a."""
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        sizes = {"q": keys, "k": keys, "v": values, "z": values, "b": self.value_heads, "a": self.value_heads}
        operations: list[Operation] = []
        names: dict[str, str] = {}
        for projection, makes in self.projections:
            name, made = self.prefix + projection, sum(sizes[part] for part in makes)
            operations.append(Matmul(name, (source,), self.width, made, shard=COLUMN))
            for part in makes:
                names[part] = name
                if len(makes) > 1:
                    names[part] = self.prefix + part
                    operations.append(Slice(names[part], (name,), sizes[part]))
        return tuple(operations), names


@record
class KimiDelta:
    """Kimi Delta Attention (arXiv:2510.26692): q, k, v through one short convolution, the delta rule with a decay of
    each channel and a write strength of each head, a norm with a sigmoid gate per head, heads → h. No biases. A block.

    kernel          of the convolution
    rank            decays and output gate come through a bottleneck of this many elements; None: one matrix each
    wide_gate       the output gate comes from one matrix whatever the rank
    form, narrowed  as in ForgetGate
    prefix          of the operations' names
    """

    width: int
    heads: int
    head_dim: int
    kernel: int
    rank: int | None
    form: str
    narrowed: bool
    function: str = "silu"
    wide_gate: bool = False
    prefix: str = "mixer_"

    def __call__(self, source: str) -> Operations:
        at, width, heads, head_dim = f"{self.prefix}{{}}".format, self.width, self.heads, self.head_dim
        size, normed = heads * head_dim, (at("scan"), at("gate"))
        sizes = (heads, head_dim, head_dim, heads, DELTA_CHUNK)
        return (
            *(Matmul(at(letter), (source,), width, size, shard=COLUMN) for letter in "qkv"),
            Conv(at("conv"), (at("q"), at("k"), at("v")), 3 * size, self.kernel, bias=False),
            Activation(at("conv_act"), (at("conv"),), 3 * size, self.function),
            *self._through(self.rank, at("forget"), source),
            ForgetGate(at("decays"), (at("forget"),), heads, head_dim, self.form, self.narrowed),
            Matmul(at("strength"), (source,), width, heads, shard=COLUMN),
            Scan(at("scan"), (at("conv_act"), at("strength"), at("decays")), "kda", *sizes),
            *self._through(None if self.wide_gate else self.rank, at("gate"), source),
            Norm(at("norm"), normed, head_dim, groups=heads, gated=True, arithmetic="fp32", gate="sigmoid"),
            Matmul(at("out_proj"), (at("norm"),), size, width, shard=ROW),
        )

    def _through(self, rank: int | None, name: str, source: str) -> Operations:
        """Return a projection to all heads, through a bottleneck if there is one."""
        size = self.heads * self.head_dim
        if rank is None:
            return (Matmul(name, (source,), self.width, size, shard=COLUMN),)
        low = f"{name}_low"
        return (Matmul(low, (source,), self.width, rank), Matmul(name, (low,), rank, size, shard=COLUMN))


@record
class MatrixMemory:
    """xLSTM's matrix memory (arXiv:2405.04517, arXiv:2503.13427): queries and keys, values, capped input and forget
    gates of each head, the recurrence, a norm of each head, a sigmoid gate, values → h. A block.

    chunk   tokens that the recurrence takes at once
    fused   one projection for queries, keys, values and gate, one for both gates of the heads
    prefix  of the operations' names
    """

    width: int
    heads: int
    key_width: int
    value_width: int
    chunk: int
    bias: bool
    fused: bool
    norm: NormStyle
    prefix: str = "mixer_"

    def __call__(self, source: str) -> Operations:
        at, heads, wide = f"{self.prefix}{{}}".format, self.heads, self.value_width
        value_dim, key_dim = wide // heads, self.key_width // heads
        reads = tuple(at(name) for name in ("q", "k", "v", "input_capped", "forget_capped"))
        return (
            *(self._fused(source) if self.fused else self._projected(source)),
            Scan(at("scan"), reads, "mlstm", heads, value_dim, key_dim, heads, self.chunk),
            self.norm(at("norm"), at("scan"), value_dim, heads),
            Activation(at("gate_act"), (at("gate"),), wide, "sigmoid"),
            Multiply(at("gated"), (at("gate_act"), at("norm")), wide),
            Matmul(at("out_proj"), (at("gated"),), wide, self.width, self.bias, ROW),
        )

    def _sizes(self) -> dict[str, int]:
        return {"q": self.key_width, "k": self.key_width, "v": self.value_width, "gate": self.value_width}

    def _fused(self, source: str) -> Operations:
        """Return all that the recurrence reads, and the gate, as parts of two projections."""
        at, heads, sizes = f"{self.prefix}{{}}".format, self.heads, self._sizes()
        return (
            Matmul(at("qkv"), (source,), self.width, sum(sizes.values()), self.bias, COLUMN),
            *(Slice(at(name), (at("qkv"),), size) for name, size in sizes.items()),
            Matmul(at("gates"), (source,), self.width, 2 * heads, True, COLUMN),
            Softcap(at("gates_capped"), (at("gates"),), 2 * heads),
            *(Slice(at(f"{name}_capped"), (at("gates_capped"),), heads) for name in ("input", "forget")),
        )

    def _projected(self, source: str) -> Operations:
        """Return the same from a projection each."""
        at, heads = f"{self.prefix}{{}}".format, self.heads
        operations: list[Operation] = [
            Matmul(at(name), (source,), self.width, size, self.bias, COLUMN) for name, size in self._sizes().items()
        ]
        for name in ("input", "forget"):
            operations.append(Matmul(at(name), (source,), self.width, heads, True, COLUMN))
            operations.append(Softcap(at(f"{name}_capped"), (at(name),), heads))
        return tuple(operations)


def lightning(
    source: str, *, width: int, heads: int, head_dim: int, chunk: int, function: str = "silu", prefix: str = "mixer_"
) -> Operations:
    """Return lightning attention (arXiv:2501.08313): q, k, v through an activation, linear attention with a fixed decay
    per head, a norm over all heads, a sigmoid gate from the block's input, heads → h."""
    at = f"{prefix}{{}}".format
    size = heads * head_dim
    return (
        Matmul(at("qkv_proj"), (source,), width, 3 * size, shard=COLUMN),
        Activation(at("qkv_act"), (at("qkv_proj"),), 3 * size, function),
        Scan(at("scan"), (at("qkv_act"),), "lightning", heads, head_dim, head_dim, chunk=chunk),
        Norm(at("norm"), (at("scan"),), size),
        Matmul(at("output_gate"), (source,), width, size, shard=COLUMN),
        Activation(at("gate_act"), (at("output_gate"),), size, "sigmoid"),
        Multiply(at("gated"), (at("norm"), at("gate_act")), size),
        Matmul(at("out_proj"), (at("gated"),), size, width, shard=ROW),
    )


def rg_lru(
    source: str, *, width: int, inner: int, heads: int, kernel: int, function: str, prefix: str = "mixer_"
) -> Operations:
    """Return Griffin's recurrent block (arXiv:2402.19427): a gelu branch, and a branch of convolution and real-gated
    linear recurrence whose two gates are block-diagonal maps, one block a head."""
    at = f"{prefix}{{}}".format
    block = inner // heads
    return (
        Matmul(at("linear_y"), (source,), width, inner, bias=True, shard=COLUMN),
        Activation(at("y_act"), (at("linear_y"),), inner, function),
        Matmul(at("linear_x"), (source,), width, inner, bias=True, shard=COLUMN),
        Conv(at("conv"), (at("linear_x"),), inner, kernel),
        BlockMatmul(at("input_gate"), (at("conv"),), heads, block, block, bias=True),
        Activation(at("input_gate_act"), (at("input_gate"),), inner, "sigmoid"),
        BlockMatmul(at("recurrent_gate"), (at("conv"),), heads, block, block, bias=True),
        Activation(at("recurrent_gate_act"), (at("recurrent_gate"),), inner, "sigmoid"),
        Parameters(at("decay"), (), (("recurrent_param", (inner,)),)),
        Scan(
            at("scan"),
            (at("conv"), at("input_gate_act"), at("recurrent_gate_act"), at("decay")),
            "rg_lru",
            heads,
            block,
            1,
        ),
        Multiply(at("gated"), (at("scan"), at("y_act")), inner),
        Matmul(at("linear_out"), (at("gated"),), inner, width, bias=True, shard=ROW),
    )


def short_conv(source: str, *, width: int, kernel: int, bias: bool) -> Operations:
    """Return LFM2's gated short convolution: h → 3h (B, C, x), C ⊙ conv(B ⊙ x), h → h."""
    at = "mixer_{}".format
    return (
        Matmul(at("in_proj"), (source,), width, 3 * width, bias=bias, shard=COLUMN),
        *(Slice(at(part), (at("in_proj"),), width) for part in ("b", "c", "hidden")),
        Multiply(at("bx"), (at("b"), at("hidden")), width),
        Conv(at("conv"), (at("bx"),), width, kernel, bias=bias),
        Multiply(at("gated"), (at("c"), at("conv")), width),
        Matmul(at("out_proj"), (at("gated"),), width, width, bias=bias, shard=ROW),
    )


def _token_shift(name: str, source: str, width: int) -> Operations:
    """Return RWKV's mix of a token with the one before, by a learned share per channel."""
    return (
        Parameters(f"{name}_share", (), (("weight", (width,)),), shard="replicated"),
        TokenShift(name, (source, f"{name}_share"), width),
    )


def wkv(source: str, *, width: int, inner: int, prefix: str = "mixer_") -> Operations:
    """Return RWKV-4's time mixing (arXiv:2305.13048): r, k, v from token-shifted inputs, the wkv recurrence with a
    decay and a bonus per channel, sigmoid(r) ⊙ wkv, inner → h."""
    at = f"{prefix}{{}}".format
    parts = ("key", "value", "receptance")
    return (
        *(op for part in parts for op in _token_shift(at(f"mix_{part}"), source, width)),
        *(Matmul(at(part), (at(f"mix_{part}"),), width, inner, shard=COLUMN) for part in parts),
        Parameters(at("decay"), (), (("time_decay", (inner,)), ("time_first", (inner,))), shard=HEADS),
        Scan(at("scan"), (at("key"), at("value"), at("decay")), "wkv", inner, 1, 1),
        Activation(at("receptance_act"), (at("receptance"),), inner, "sigmoid"),
        Multiply(at("gated"), (at("receptance_act"), at("scan")), inner),
        Matmul(at("output"), (at("gated"),), inner, width, shard=ROW),
    )


def channel_mix(source: str, *, width: int, d_ff: int) -> Operations:
    """Return RWKV-4's channel mixing: sigmoid(r) ⊙ W·relu²(k), both from token-shifted inputs."""
    at = "channel_{}".format
    return (
        *(op for part in ("key", "receptance") for op in _token_shift(at(f"mix_{part}"), source, width)),
        Matmul(at("key"), (at("mix_key"),), width, d_ff, shard=COLUMN),
        Activation(at("key_act"), (at("key"),), d_ff, "relu2"),
        Matmul(at("value"), (at("key_act"),), d_ff, width, shard=ROW),
        Matmul(at("receptance"), (at("mix_receptance"),), width, width, shard=COLUMN),
        Activation(at("receptance_act"), (at("receptance"),), width, "sigmoid"),
        Multiply(at("gated"), (at("receptance_act"), at("value")), width),
    )

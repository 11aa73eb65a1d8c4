"""Elementwise operations."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import (
    HEADS,
    NOT_TIMED,
    Elementwise,
    Gemm,
    Ordinary,
    Weight,
    Work,
    division_of,
)
from napkin.operations.facts import Cache, Served
from napkin.record import record, replace


@record
class Activation(Elementwise):
    """An elementwise non-linearity over `width` numbers a token, by its name in config.json: silu, gelu, gelu_new,
    gelu_pytorch_tanh, relu, relu2, … `learnt` scalars belong to it (xIELU has two). `upcast`: computed in fp32 and
    cast back. `fused`: it runs in the kernel of the multiplication that reads it."""

    width: int
    function: str
    learnt: int = 0
    upcast: bool = False
    fused: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scalars", (self.learnt,)),) if self.learnt else ()

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward reads two and writes one. Nothing within the kernel of a multiplication."""
        return (0, 0) if self.fused else (4 * self.width, 6 * self.width)

    def fused_into_multiplication(self) -> Activation:
        return replace(self, fused=True)


@record
class Dropout(Elementwise):
    """Dropout of `width` numbers a token that no residual addition carries (after the embeddings)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Jitter(Elementwise):
    """Noise of a router: `width` numbers a token, each multiplied in place by a random factor near 1, in training."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Softcap(Elementwise):
    """cap·tanh(x/cap) over `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Clamp(Elementwise):
    """Values cut to an interval, `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Multiply(Elementwise):
    """An elementwise product of two tensors of `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward reads three and writes two."""
        return 6 * self.width, 10 * self.width

    def multiplies(self) -> tuple[str, ...]:
        return self.reads


@record
class Scale(Elementwise):
    """Multiplication by a constant, or by a learnt vector of `width` (`learnt`). `cast`: the constant is held as an
    integer tensor, which each pass casts to the activations' type. `positions`: each position has a constant of its
    own, in fp32 (Llama 4's temperature of attention). `vector`: constants of each of the `width` numbers, held with the
    weights. `sequences`: each sequence has one, in fp32. `held`: the format that the one constant is held in, which
    each pass casts. `masks`: the constant is each token's mask, in the activations' format, or held as booleans."""

    width: int
    learnt: bool = False
    cast: bool = False
    positions: bool = False
    sequences: bool = False
    vector: bool = False
    held: str = ""
    masks: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.width,)),) if self.learnt else ()

    def replaces(self) -> str:
        return self.reads[0]

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width


@record
class Add(Elementwise):
    """A sum of tensors of `width` numbers a token (the residual); `dropout` marks the branch read second."""

    width: int
    dropout: bool = False

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward adds up the gradients of the two branches."""
        return 6 * self.width, 6 * self.width

    def residual(self) -> Number | None:
        return self.width


@record
class GroupMean(Elementwise):
    """The mean of the heads of each group: `width` numbers a token are left."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Affine(Elementwise):
    """(x + b)·w with learnt vectors b and w of `width`."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("bias", (self.width,)), Weight("scale", (self.width,)))

    def traffic(self) -> tuple[Number, Number]:
        return 8 * self.width, 14 * self.width


@record
class Learnt(Ordinary):
    """Vectors or small tensors that a layer learns besides its matrices (A, D, dt bias, decay, …). `trained`: a
    gradient reaches them."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    shard: str = HEADS
    trained: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, shape, self.shard, trained=self.trained) for name, shape in self.tensors)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: other operations read them."""
        return 0, 0

    def division(self) -> str:
        return division_of(self.shard)


@record
class Mix(Elementwise):
    """x·w + y·(1 − w), where y is x of the token before and w the learnt share of each of `width` channels, read
    second (RWKV)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def cache(self, over: Served) -> Cache | None:
        """The token before, once for all that mix it."""
        return Cache(self.reads[0], fixed=self.width)

"""A layer is a list of operations; parameters, FLOPs, activation bytes, bytes moved and time are folds over it.

A layer is a small dataflow program. Each operation's `name` is also the name of its output tensor, and `reads` names
the outputs that it reads; "x" is the layer's input, and the last operation's output is the next layer's. Symbols:
T tokens, b sequences, s length, h width, a query heads, d head size, f feed-forward width, E experts, k chosen experts.

How a weight or an output splits over tensor-parallel ranks is its `shard`:
    column      the output dimension is divided (q, k, v, gate, up): bias divided with it
    row         the input dimension is divided (attention output, down): bias whole on each rank
    heads       one entry or row a head, divided with the heads
    vocabulary  the rows of a table are divided
    expert      whole experts are divided over expert-parallel ranks
    replicated  whole on each rank
"""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.primitives import matmul_flops
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

MEMORY = "memory"
"""What cross-attention reads: the encoder's output."""
LENT = "lent/"
"""How a tensor that was lent is read: this and the name of the operation that lends it."""
COLUMN, ROW, HEADS, VOCABULARY, EXPERT, REPLICATED = "column", "row", "heads", "vocabulary", "expert", "replicated"
TOKEN, LAYERS, POSITION, SEGMENT = "token", "layers", "position", "segment"
DISTANCE, NGRAM = "distance", "ngram"
"""Roles of embeddings: of tokens, of each layer's own input, of positions, of segments; of relative distances, read
entirely instead of looked up; of hashed runs of tokens."""
TABLES = (TOKEN, LAYERS)
"""Roles of the embeddings that tokens are looked up in."""


@record
class Weight:
    """A parameter tensor: `copies` of `shape` (experts have copies). `used` of the copies serve one token. `trained`:
    a gradient reaches it."""

    name: str
    shape: tuple[int, ...]
    shard: str = REPLICATED
    copies: int = 1
    used: int = 1
    trained: bool = True

    @property
    def count(self) -> int:
        """All parameters."""
        return self.copies * self.each

    @property
    def active(self) -> int:
        """Parameters that serve one token."""
        return self.used * self.each

    @property
    def each(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@record
class Work:
    """What one forward pass runs over: T tokens in sequences whose lengths square to `squares`.

    tokens   Σ length                  squares  Σ length² (attention's full square)
    length   the longest sequence      pairs    full, half or exact: which (query, key) pairs count
    lengths  documents packed into a sequence, (length, how many) each; attention stays inside a document
    memory   length of the other stack's sequence, for cross-attention (0 where there is none)
    """

    sequences: Number
    length: Number
    pairs: str = "full"
    lengths: tuple[tuple[int, int], ...] = ()
    memory: Number = 0

    @property
    def tokens(self) -> Number:
        return self.sequences * self.length


@record
class Gemm:
    """`batch` matrix products (m×k)(k×n) on one device, in the forward pass.

    `flops` is 2·batch·m·k·n, but for attention in a convention that counts fewer pairs. `weight` tells whether (k×n)
    is a parameter (backward then makes one product for the input's and one for the weight's gradient)."""

    name: str
    batch: Number
    m: Number
    k: Number
    n: Number
    flops: Number
    weight: bool = True
    attention: bool = False


def gemm(name: str, m: Number, k: Number, n: Number, batch: Number = 1, weight: bool = True) -> Gemm:
    return Gemm(name, batch, m, k, n, matmul_flops(m, k, n, batch), weight)


REQUIRED = ("weights", "gemms")
"""Methods that every kind of operation must define, itself or through an intermediate base that gives a default."""


@record
class Operation:
    """One step of a layer: its name is its output tensor's; `reads` names the outputs that it reads.

    A concrete kind states everything about itself: a class that lacks a method of `REQUIRED` fails when it is defined.
    Intermediate bases (`Elementwise`, `View`, …) are marked `abstract=True` and may give defaults.

    role    what other code may ask for (a constant of this module); "" where nothing asks
    module  path of the module in the reference implementation (self_attn.q_proj), which LoRA targets match
    """

    name: str
    reads: tuple[str, ...]
    _: KW_ONLY
    role: str = ""
    module: str = ""

    def __init_subclass__(cls, abstract: bool = False) -> None:
        """Raise TypeError where a concrete kind of operation lacks a required method."""
        if abstract:
            return
        own = cls.__mro__[: cls.__mro__.index(Operation)]
        lacking = [method for method in REQUIRED if not any(method in vars(base) for base in own)]
        if lacking:
            raise TypeError(f"operation {cls.__name__} lacks {', '.join(lacking)} (operations/base.py, REQUIRED)")

    def weights(self) -> tuple[Weight, ...]:
        """Return the parameter tensors, undivided."""
        raise NotImplementedError

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        """Return the matmuls of one forward pass on one device, undivided."""
        raise NotImplementedError

    def moved(self) -> tuple[Number, Number]:
        """Bytes a token that its elementwise work must move, forward and backward, in 16-bit tensors: of operations
        that step.py has no rule for."""
        return 0, 0


@record
class Elementwise(Operation, abstract=True):
    """Arithmetic on each element, or reductions over a token's vector: no matmuls, and no parameters unless stated."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()


@record
class Lookup(Operation, abstract=True):
    """Rows taken out of a parameter: no matmuls."""

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()


@record
class View(Operation, abstract=True):
    """Another arrangement of existing tensors (a view, or a copy): no parameters, no arithmetic."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

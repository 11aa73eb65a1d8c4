"""What a forward pass runs over, and what an operation computes with: weights, GEMMs, and which
parts of its backward pass run."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.primitives import PAIRS, matmul_flops
from napkin.operations.roles import AS_READ, COLUMN, REPLICATED, ROW
from napkin.record import record, replace


@record
class Weight:
    """A parameter: `copies` tensors of `shape` (one per expert), of which a token uses `used`; `trained` if it gets
    a gradient."""

    name: str
    shape: tuple[int, ...]
    shard: str = REPLICATED
    copies: int = 1
    used: int = 1
    trained: bool = True

    @property
    def count(self) -> int:
        """Return the number of parameters."""
        return self.copies * self.each

    @property
    def active(self) -> int:
        """Return the number of parameters that one token uses."""
        return self.used * self.each

    @property
    def each(self) -> int:
        """Return the elements of one copy."""
        total = 1
        for size in self.shape:
            total *= size
        return total


@record
class Work:
    """What one forward pass runs over.

    sequences  number of sequences        length  tokens per sequence
    pairs      which (query, key) pairs count as FLOPs: full, half or exact
    lengths    packed documents of a sequence, as (length, count); attention does not cross documents
    memory     length of the encoder's sequence, which cross-attention reads; 0 without one
    added      of `length`, the tokens that the class adds to each sequence before its layers, and drops after them
    indexer_loss  a loss of their own trains the indexers of sparse attention; else they run without gradient
    """

    sequences: Number
    length: Number
    pairs: str = "full"
    lengths: tuple[tuple[int, int], ...] = ()
    memory: Number = 0
    indexer_loss: bool = False
    added: Number = 0

    @property
    def tokens(self) -> Number:
        """Return the number of tokens."""
        return self.sequences * self.length

    @property
    def given(self) -> Work:
        """Return the work over the tokens that the step gives, without those that the class adds."""
        return replace(self, length=self.length - self.added, added=0)


@record
class Pairs:
    """How attention FLOPs are counted: 2 · count · heads · size, or half of it where `halved` (the causal convention
    that ignores the diagonal). `count`: (query, key) pairs per head over all sequences; `size`: head_dim."""

    count: Number
    heads: Number
    size: Number
    halved: bool


@record
class PairRule:
    """How one head pairs queries and keys: by a function of `PAIRS` of the sequence's length and of named sizes, or,
    where `rule` is "", each query with each token of the other stack.

    name  own (keys of the sequence itself), runs (compressed keys) or other_side
    """

    name: str
    rule: str
    sizes: tuple[tuple[str, int], ...] = ()

    def pairs(self, length: Number, memory: Number) -> Number:
        """Return the (query, key) pairs of a sequence of `length` next to another stack's of `memory`."""
        if not self.rule:
            return length * memory
        pairs: Number = PAIRS[self.rule](length, *(size for _, size in self.sizes))
        return pairs


@record
class Gemm:
    """`batch` matmuls (m×k)(k×n) of the forward pass on one device.

    `flops` is 2·batch·m·k·n, except for attention in a convention that counts fewer pairs. `weight`: (k×n) is a
    parameter, so that backward has one matmul for the input's and one for the weight's gradient. `backward`: matmuls of
    this size in the backward pass; 0 of what runs without gradient."""

    name: str
    batch: Number
    m: Number
    k: Number
    n: Number
    flops: Number
    weight: bool = True
    pairs: Pairs | None = None
    backward: int = 2


def gemm(name: str, m: Number, k: Number, n: Number, batch: Number = 1, weight: bool = True) -> Gemm:
    """Return a GEMM of 2·batch·m·k·n FLOP."""
    return Gemm(name, batch, m, k, n, matmul_flops(m, k, n, batch), weight)


def chosen_by(work: Work, products: tuple[Gemm, ...]) -> tuple[Gemm, ...]:
    """Return the matmuls of an indexer, whose choice has no gradient. A loss of its own reaches its weights and both
    factors of its scores; its inputs are detached (DeepSeek-V3.2-Exp, section 2.1)."""
    return tuple(replace(one, backward=(1 if one.weight else 2) * work.indexer_loss) for one in products)


def division_of(shard: str) -> str:
    """Return how the output of a weight with this shard is divided."""
    return shard if shard in (COLUMN, ROW) else AS_READ


EXPANDED = 2
"""Launches that the host could make in the time in which it has 4-bit weights expanded. Linear4bit of width 64 takes
139 μs of a core of a Xeon where a linear layer takes 37 (bitsandbytes 0.49), but that core expands too. Published
steps that wait for the host say fewer than these 3: with nf4 they take 1.1 to 1.6 times as long as in 16 bits (LitGPT
tutorials/resource-tables.md; Surogate's table of Unsloth)."""


@record
class Learning:
    """The parts of an operation's backward pass that run, and the stored format of its frozen weights.

    weights  1 if the gradients of weights are computed        inputs  1 if those of inputs are
    trained  whether its weights are updated; false for weights with merged adapters, whose gradients only pass through
    stored   format of frozen weights that every matmul first expands to 16 bits; "": none
    """

    weights: int = 1
    inputs: int = 1
    trained: bool = True
    stored: str = ""

    @property
    def runs(self) -> bool:
        """Whether anything of the backward pass runs."""
        return bool(self.weights or self.inputs)

    def launch_counts(self, weighs: bool) -> tuple[int, int]:
        """Return the launches of an operation, forward and backward; one with weights in a stored format also expands
        them, for the matmul and for the gradient of its input."""
        expands = EXPANDED * (weighs and self.stored != "")
        return 1 + expands, self.inputs * (1 + expands) + (weighs and self.weights)

    def of(self, product: Gemm) -> Gemm:
        """Return a matmul with the number of its backward matmuls that run; a product of two activations has both or
        none."""
        first, second = self.weights if product.weight else self.inputs, self.inputs
        # of one matmul, the inputs are detached: it is the weight's gradient
        return replace(product, backward=(0, first, first + second)[product.backward])


ALL = Learning()
"""Weights are trained and gradients propagate: the default without frozen weights."""

"""Records and typed views through which operations describe inference and their matmuls to the folds."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from napkin.operations.implementations import Implementation
    from napkin.operations.work import Gemm, Learning, PairRule
else:
    Protocol = object


ACTIVATION, PRODUCT, SUM, CONVOLUTION = "activation", "product", "sum", "convolution"
LINEAR, BLOCKS, SHARED_OUTPUT = "linear", "blocks", "shared output"
POSITION_SCORES, OWN_POSITION_BIAS, SHARED_POSITION_BIAS = "position scores", "own bias", "shared bias"
"""What an operation is where its neighbors matter: an elementwise activation, product or sum, a convolution along the
sequence; a linear layer, a block-diagonal one, an output that later layers read; scores of relative positions, a bias
of each distance for this layer, or for those that follow too."""
POSITION_BIASES = OWN_POSITION_BIAS, SHARED_POSITION_BIAS


@record
class Served:
    """A sequence in inference, on one of `ranks` tensor-parallel ranks: `context` tokens, and `source` tokens of the
    other stack that cross-attention reads."""

    context: Number
    source: Number
    ranks: Number


@record
class Cache:
    """What one sequence keeps on a rank between the steps of inference, in elements.

    tensor   the tensor that is kept, once for all operations that need it
    growing  elements that grow with the context         fixed  elements independent of the context
    tokens, heads, head_dim, made_from
             keys and values instead: tokens that are kept, key/value heads, elements of a key and a value of one head,
             and the two tensors, of which both may come from one narrower latent that is kept in their place
    unread   the part of `growing`, or of `tokens`, that the next token does not read in sparse attention
    again    another layer caches it, and it is only read
    """

    tensor: str
    growing: Number = 0
    fixed: Number = 0
    tokens: Number = 0
    heads: int = 0
    head_dim: tuple[int, int] = (0, 0)
    made_from: tuple[str, ...] = ()
    unread: Number = 0
    again: bool = False


@record
class LinearPart:
    """A linear layer of the reference class that an operation consists of, by what LoRA's targets may say.

    path       of its module, or of the parameter
    copies     of experts: each is one with `d_in` inputs and `d_out` outputs
    parameter  a tensor of the module instead of a linear layer of its own: only targets of parameters name it
    fails      peft creates an adapter whose output has another shape than the layer's, so that its forward pass fails
    """

    path: str
    d_in: int
    d_out: int
    bias: bool = False
    copies: int = 1
    parameter: bool = False
    fails: bool = False


class Named(Protocol):
    """A module of the reference class, by what LoRA's targets may say."""

    @property
    def role(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def short(self) -> str: ...


class LinearLayer(Named, Protocol):
    """y = x·W (+ bias), as the folds see it."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def d_in(self) -> int: ...
    @property
    def d_out(self) -> int: ...
    @property
    def bias(self) -> bool: ...
    @property
    def shard(self) -> str: ...
    @property
    def learning(self) -> Learning: ...
    @property
    def bare(self) -> bool:
        """Whether its weight is a parameter of a module that is not a linear layer: LoRA and quantization skip it."""

    @property
    def vectors(self) -> int:
        """Number of vectors per token that it reads."""


class ThinPair(Protocol):
    """An adapter y += scale · B·A·x next to a linear layer, as far as its time depends on it."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def reads_encoder(self) -> bool: ...
    @property
    def d_in(self) -> int: ...
    @property
    def thin(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def d_out(self) -> int: ...
    @property
    def looked_up(self) -> bool: ...
    @property
    def used(self) -> int: ...
    @property
    def copies(self) -> int: ...
    @property
    def shard(self) -> str: ...
    @property
    def divided(self) -> bool: ...
    @property
    def learning(self) -> Learning: ...


class Reparameterization(Protocol):
    """An adapter of another kind than LoRA, as far as its time depends on it."""

    @property
    def name(self) -> str: ...
    def timed(self) -> tuple[tuple[Gemm, Learning], ...]:
        """Return its matmuls, and the gradients of their factors; a matmul over the tokens has 0 rows."""

    def moved(self) -> tuple[Number, Number]:
        """Return the bytes moved to compute its weights, forward and backward."""


class MergedExperts(Protocol):
    """An adapter on the weights of all experts, as far as its time depends on it."""

    @property
    def name(self) -> str: ...
    @property
    def copies(self) -> int: ...
    @property
    def d_in(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def d_out(self) -> int: ...


class AttentionCost(Protocol):
    """Scores and values of attention, as far as the time of a step and its kernels on the tape depend on them."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def softcap(self) -> bool: ...
    @property
    def sinks(self) -> bool: ...
    @property
    def upcast(self) -> bool: ...
    @property
    def qk_dim(self) -> int: ...
    @property
    def v_dim(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def cross(self) -> bool: ...
    @property
    def merged(self) -> bool: ...
    @property
    def window(self) -> int | None: ...
    @property
    def chunk(self) -> int | None: ...
    @property
    def position(self) -> str: ...
    @property
    def own_mask(self) -> bool: ...
    @property
    def masked(self) -> bool: ...
    @property
    def anywhere(self) -> bool: ...
    @property
    def compressed(self) -> int: ...
    @property
    def copied(self) -> bool: ...
    @property
    def shared(self) -> bool: ...
    @property
    def learning(self) -> Learning: ...
    def runs(self, length: Number) -> Number: ...
    def pair_rules(self, exact: bool) -> tuple[PairRule, ...]: ...


class RoutedExperts(Protocol):
    """Routed feed-forward networks, as far as the time of a step and the ways to run them depend on them."""

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]: ...

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def function(self) -> str: ...
    @property
    def dropout(self) -> bool: ...
    @property
    def idle(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def top_k(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def chosen_groups(self) -> int: ...
    @property
    def weighted_input(self) -> bool: ...
    @property
    def gated(self) -> bool: ...
    @property
    def bias(self) -> bool: ...
    @property
    def clamped(self) -> bool: ...
    @property
    def learning(self) -> Learning: ...

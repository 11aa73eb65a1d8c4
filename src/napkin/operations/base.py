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
from napkin.operations.facts import Attention, Cache, LinearLayer, RoutedExperts, Served
from napkin.operations.primitives import matmul_flops
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from napkin.operations.lowering import Lowering, Value

MEMORY = "memory"
"""What cross-attention reads: the encoder's output."""
SHARED_TENSOR = "lent/"
"""How a tensor that was lent is read: this and the name of the operation that lends it."""
COLUMN, ROW, HEADS, VOCABULARY, EXPERT, REPLICATED = "column", "row", "heads", "vocabulary", "expert", "replicated"
AS_READ = "as read"
"""How tensor parallelism divides an output that is divided as the tensors that the operation reads are."""
NOT_TIMED = 0, 0
"""The traffic of an operation that moves bytes of which the time of a step does not know yet."""
LAYER_KERNELS, EXPERT_KERNELS = "layer", "experts"
"""How many kernels the host launches for a layer with this operation: as for a dense one, or as for experts."""
ROUTER, EXPERTS = "router", "experts"
"""Parts of a mixture of experts."""
ELEMENT_BYTES = 2
"""Bytes of an element in the 16-bit tensors that `traffic` counts."""
TOKEN, LAYERS, POSITION, SEGMENT = "token", "layers", "position", "segment"
DISTANCE, NGRAM = "distance", "ngram"
"""Roles of embeddings: of tokens, of each layer's own input, of positions, of segments; of relative distances, read
entirely instead of looked up; of hashed runs of tokens."""
QUERY, KEY, VALUE, QKV = "q", "k", "v", "qkv"
"""Roles of a layer's self-attention: what makes queries, keys and values, and the fused projection."""
KV_LATENT, ROTATED_QUERY, ROTATED_KEY = "kv_latent", "rotated_query", "rotated_key"
"""Roles of latent attention: the projection to the latent of keys and values, and what is rotated."""
DOWN, SHARED_EXPERT, LM_HEAD = "down", "shared_expert", "lm_head"
"""Roles of a feed-forward block's last linear layer, of what belongs to a shared expert, and of the language model's
head."""
MIXER_INPUT, MIXER_GATE, SCAN_PARAMETERS, MIXER = "mixer_input", "mixer_gate", "scan_parameters", "mixer"
"""Roles of a recurrent mixer: its input projection, the gate cut out of that, the projection to Δ, B and C, and
whatever else one kernel runs."""
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
class Pairs:
    """How attention's FLOPs are counted: 2 · pairs · heads · size, or half of it (the causal convention that ignores
    the diagonal). `count`: (query, key) pairs of one head over all sequences; `size`: elements of a key or a value."""

    count: Number
    heads: Number
    size: Number
    halved: bool


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
    pairs: Pairs | None = None


def gemm(name: str, m: Number, k: Number, n: Number, batch: Number = 1, weight: bool = True) -> Gemm:
    return Gemm(name, batch, m, k, n, matmul_flops(m, k, n, batch), weight)


def division_of(shard: str) -> str:
    """Return what a weight's division makes of the output: a division by heads follows that of the input."""
    return shard if shard in (COLUMN, ROW) else AS_READ


class Timer:
    """What an operation tells how its matmuls run; timing/layer.py turns that into seconds."""

    def gemms(self, op: Operation) -> None:
        """The operation's GEMMs run as they are, their batch divided over tensor-parallel ranks."""
        raise NotImplementedError

    def linear(self, op: LinearLayer) -> None:
        """A linear layer, which runs together with those that read the same tensor and are divided alike."""
        raise NotImplementedError

    def attention(self, op: Attention) -> None:
        """The core of attention."""
        raise NotImplementedError

    def experts(self, op: RoutedExperts) -> None:
        """Routed experts."""
        raise NotImplementedError


REQUIRED = (
    "weights",
    "gemms",
    "lower",
    "traffic",
    "division",
    "time",
    "linear",
    "attention_width",
    "elements_moved",
    "ring",
    "dispatched",
    "launches",
    "cache",
    "fused_into_multiplication",
    "multiplies",
    "residual",
    "attends",
    "embeds",
    "buffers",
    "gives_logits",
    "angles",
    "normalizes",
    "replaces",
    "inverts_mask",
    "owner",
    "depends_on_shapes",
    "cropped",
    "remark",
    "expert_part",
)
"""Methods that every kind of operation must define, itself or through an intermediate base that gives a default."""


@record
class Operation:
    """One step of a layer: its name is its output tensor's; `reads` names the outputs that it reads.

    A concrete kind states everything about itself: a class that lacks a method of `REQUIRED` fails when it is defined.
    Intermediate bases (`Elementwise`, `View`, …) are marked `abstract=True` and may give defaults.

    role    what other code may ask for (a constant of this module); "" where nothing asks
    module  the linear layer that LoRA targets name; as the operation is first named unless stated
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

    def _named_module(self) -> None:
        """Take the name that the architecture gives as the module's."""
        if not self.module:
            object.__setattr__(self, "module", self.name)

    def weights(self) -> tuple[Weight, ...]:
        """Return the parameter tensors, undivided."""
        raise NotImplementedError

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        """Return the matmuls of one forward pass on one device, undivided."""
        raise NotImplementedError

    def lower(self, run: Lowering) -> Value:
        """Run on a tape as an implementation does, and return the output: what is kept for backward, and what lives
        until then. A kind whose saved tensors are not known raises Refused."""
        raise NotImplementedError

    def traffic(self) -> tuple[Number, Number]:
        """Return the bytes a token that elementwise work must move, forward and backward, in 16-bit tensors; operands
        and results of GEMMs apart."""
        raise NotImplementedError

    def division(self) -> str:
        """Return how tensor parallelism divides the output: COLUMN begins a division (backward then needs an
        all-reduce), ROW ends it (forward does), HEADS divides this operation only, AS_READ follows the input."""
        raise NotImplementedError

    def time(self, timer: Timer) -> None:
        """Tell the timer how the matmuls run."""
        raise NotImplementedError

    def linear(self) -> LinearLayer | None:
        """Return the operation where it is a linear layer."""
        raise NotImplementedError

    def attention_width(self) -> Number:
        """Return heads · (d_qk + d_v) of an operation that computes attention's scores and values; else 0."""
        raise NotImplementedError

    def elements_moved(self, work: Work) -> Number:
        """Return the elements that one forward pass reads and writes where every operation is a kernel of its own."""
        raise NotImplementedError

    def ring(self) -> tuple[Number, Number]:
        """Return the elements a token that context parallelism passes around: of this stack's sequence, and of the
        other stack's."""
        raise NotImplementedError

    def dispatched(self) -> Number:
        """Return the elements a token that expert parallelism sends to the experts' ranks."""
        raise NotImplementedError

    def launches(self) -> str:
        """Return how many kernels the host launches for a layer with this operation: LAYER_KERNELS or
        EXPERT_KERNELS."""
        raise NotImplementedError

    def cache(self, over: Served) -> Cache | None:
        """Return what one sequence keeps on a rank in inference; None for nothing."""
        raise NotImplementedError

    def fused_into_multiplication(self) -> Operation:
        """Return what is left of the operation where the kernel of a multiplication that reads it runs it too."""
        raise NotImplementedError

    def multiplies(self) -> tuple[str, ...]:
        """Return the tensors that it multiplies element by element, in a kernel that may run what made them."""
        raise NotImplementedError

    def residual(self) -> Number | None:
        """Return the width of the residual stream where the operation writes it; None where it does not."""
        raise NotImplementedError

    def attends(self) -> Attention | None:
        """Return the operation where it is the core of attention."""
        raise NotImplementedError

    def embeds(self) -> str:
        """Return the role of an embedding with weights of its own; "" of any other operation."""
        raise NotImplementedError

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        """Return (elements, number format) of the tensors that the reference module registers next to its
        parameters."""
        raise NotImplementedError

    def gives_logits(self) -> bool:
        """Return whether it scores experts and hands the logits to a balancing loss."""
        raise NotImplementedError

    def angles(self) -> tuple[int, int] | None:
        """Return (rotated elements of a head, number of the rotary table) of a rotary embedding."""
        raise NotImplementedError

    def normalizes(self) -> bool:
        """Return whether it is a normalization layer of the reference implementation."""
        raise NotImplementedError

    def replaces(self) -> str:
        """Return the embedding's output that it replaces within the embedding's own module; "" where it does not."""
        raise NotImplementedError

    def inverts_mask(self) -> bool:
        """Return whether it makes a copy of the causal mask for each sequence."""
        raise NotImplementedError

    def owner(self) -> Operation:
        """Return the operation whose weights it uses."""
        raise NotImplementedError

    def depends_on_shapes(self, length: int) -> bool:
        """Return whether what sequences of this length keep for backward depends on shapes only, unpadded."""
        raise NotImplementedError

    def cropped(self, length: int) -> Operation:
        """Return the operation with learned positions cut to `length`."""
        raise NotImplementedError

    def remark(self) -> str:
        """Return what a reader of the FLOP count must know."""
        raise NotImplementedError

    def expert_part(self) -> str:
        """Return the part of a mixture of experts that its parameters belong to: ROUTER, EXPERTS or ""."""
        raise NotImplementedError


@record
class Ordinary(Operation, abstract=True):
    """What most operations state: GEMMs that run as they are, no attention, nothing cached and nothing exchanged."""

    def division(self) -> str:
        return AS_READ

    def time(self, timer: Timer) -> None:
        timer.gemms(self)

    def linear(self) -> LinearLayer | None:
        return None

    def attention_width(self) -> Number:
        return 0

    def elements_moved(self, work: Work) -> Number:
        """Of GEMMs with a parameter every operand and result; else what its elementwise work moves."""
        products = [one for one in self.gemms(work) if one.weight]
        if not products:
            return work.tokens * (self.traffic()[0] / ELEMENT_BYTES)
        moved: Number = 0
        for one in products:
            moved = moved + one.batch * (one.m * one.k + one.m * one.n)
        return moved + sum(one.batch * one.k * one.n for one in products)

    def ring(self) -> tuple[Number, Number]:
        return 0, 0

    def dispatched(self) -> Number:
        return 0

    def launches(self) -> str:
        return LAYER_KERNELS

    def cache(self, over: Served) -> Cache | None:
        return None

    def fused_into_multiplication(self) -> Operation:
        return self

    def multiplies(self) -> tuple[str, ...]:
        return ()

    def residual(self) -> Number | None:
        return None

    def attends(self) -> Attention | None:
        return None

    def embeds(self) -> str:
        return ""

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        return ()

    def gives_logits(self) -> bool:
        return False

    def angles(self) -> tuple[int, int] | None:
        return None

    def normalizes(self) -> bool:
        return False

    def replaces(self) -> str:
        return ""

    def inverts_mask(self) -> bool:
        return False

    def owner(self) -> Operation:
        return self

    def depends_on_shapes(self, length: int) -> bool:
        return True

    def cropped(self, length: int) -> Operation:
        return self

    def remark(self) -> str:
        return ""

    def expert_part(self) -> str:
        return ""


@record
class Elementwise(Ordinary, abstract=True):
    """Arithmetic on each element, or reductions over a token's vector: no matmuls, and no parameters unless stated."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()


@record
class Lookup(Ordinary, abstract=True):
    """Rows taken out of a parameter: no matmuls."""

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()


@record
class View(Ordinary, abstract=True):
    """Another arrangement of existing tensors (a view, or a copy): no parameters, no arithmetic."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

"""Define the interface of an operation.

A layer is a list of operations; parameters, FLOPs, activation bytes, bytes moved and time are folds over it. Each
operation's `name` is also the name of its output tensor, and `reads` names the outputs that it reads; "x" is the
layer's input, and the last operation's output is the next layer's. Symbols: T tokens, b sequences, s length, h width,
a query heads, d head size, f feed-forward width, E experts, k chosen experts.
"""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.backward_parts import ALL, Learning
from napkin.operations.facts import (
    AttentionCost,
    Cache,
    LinearLayer,
    LinearPart,
    MergedExperts,
    Reparameterization,
    RoutedExperts,
    Served,
    ThinPair,
)
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from napkin.operations.implementations import Implementation
    from napkin.operations.lowering import Lowering
    from napkin.operations.shapes import Value

LAYER_KERNELS, EXPERT_KERNELS = "layer", "experts"
"""Kernels that the host launches for a layer with this operation: as many as for a dense layer, or for experts."""


class Timer:
    """Receives how an operation's matmuls run; timing/layer_clock.py turns that into seconds."""

    def gemms(self, op: Operation) -> None:
        """Run the operation's GEMMs one by one, their batch divided over tensor-parallel ranks."""
        raise NotImplementedError

    def linear(self, op: LinearLayer) -> None:
        """Run a linear layer, fused with those that read the same tensor and have the same shard."""
        raise NotImplementedError

    def attention(self, op: AttentionCost) -> None:
        """Run the core of attention."""
        raise NotImplementedError

    def experts(self, op: RoutedExperts) -> None:
        """Run routed experts."""
        raise NotImplementedError

    def adapter(self, op: ThinPair) -> None:
        """Run an adapter: two thin matmuls next to a linear layer."""
        raise NotImplementedError

    def norm_of_weight(self, op: ThinPair) -> None:
        """Make the norm of a weight with its adapter, as DoRA does in every forward pass."""
        raise NotImplementedError

    def reparameterized(self, op: Reparameterization) -> None:
        """Run an adapter of another kind than LoRA: its products, and the making of its weights."""
        raise NotImplementedError

    def merged(self, op: MergedExperts) -> None:
        """Add the product of an adapter's matrices to the weights of all experts."""
        raise NotImplementedError


@record
class Operation:
    """One step of a layer.

    A concrete class states everything about itself: one that lacks a method of `REQUIRED` fails when it is defined.
    Intermediate bases (`Elementwise`, `View`, …) are marked `abstract=True` and may give defaults.

    name    the name of its output tensor; carries no meaning
    reads   the names of the outputs that it reads
    role    what folds may ask for (roles.py); "" if nothing asks
    module  the path of the linear layer, embedding, router or experts in the reference class: within the layer
            (`self_attn.q_proj`), or from the root (`model.embed_tokens`). LoRA targets match it. A builder states a
            key of the architecture's `modules`, `name` unless stated; building the model puts the path in its place
    short   what LoRA targets may say instead: q, k, v, o, gate, up, down, …; `name` unless stated
    learning  what of its backward pass runs (operations/trained.py marks what is frozen)
    """

    name: str
    reads: tuple[str, ...]
    _: KW_ONLY
    role: str = ""
    module: str = ""
    short: str = ""
    learning: Learning = ALL

    def __init_subclass__(cls, abstract: bool = False) -> None:
        """Raise TypeError if a concrete class lacks a required method."""
        if abstract:
            return
        defined = set().union(*(vars(base) for base in cls.__mro__[: cls.__mro__.index(Operation)]))
        if not defined.issuperset(REQUIRED):
            lacking = [method for method in REQUIRED if method not in defined]
            raise TypeError(f"operation {cls.__name__} lacks {', '.join(lacking)} (operations/base.py, REQUIRED)")

    def _is_module(self) -> None:
        """Name the module after the operation if nothing else is stated (for __post_init__)."""
        for field in ("module", "short"):
            if not self.__dict__[field]:
                self.__dict__[field] = self.name

    def weights(self) -> tuple[Weight, ...]:
        """Return the parameter tensors, undivided."""
        raise NotImplementedError

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        """Return the matmuls of one forward pass on one device, undivided."""
        raise NotImplementedError

    def products(self, work: Work) -> tuple[Gemm, ...]:
        """Return the matmuls of one forward pass, each with as many as its backward pass runs."""
        found = self.gemms(work)
        return found if self.learning == ALL else tuple(self.learning.of(one) for one in found)

    def lower(self, run: Lowering) -> Value:
        """Record on the tape what the implementation runs, and return the output.

        The tape then has the tensors saved for backward and the live bytes. Raises Refused where the saved tensors
        are not known."""
        raise NotImplementedError

    def elementary(self) -> tuple[Number, Number]:
        """Return the bytes per token that its reference moves, forward and backward, if it is several elementary
        kernels; 0: it is one."""
        raise NotImplementedError

    def traffic(self) -> tuple[Number, Number]:
        """Return the bytes per token that elementwise work must move, (forward, backward), in 16-bit tensors; without
        the operands and results of GEMMs."""
        raise NotImplementedError

    def division(self) -> str:
        """Return how tensor parallelism divides the output: COLUMN begins a division (backward then needs an
        all-reduce), ROW ends it (forward does), HEADS divides this operation only, AS_READ follows the input."""
        raise NotImplementedError

    def time(self, timer: Timer) -> None:
        """Pass the matmuls to the timer."""
        raise NotImplementedError

    def linear(self) -> LinearLayer | None:
        """Return the operation if it is a linear layer."""
        raise NotImplementedError

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        """Return the linear layers of the reference class that it consists of, and the parameters that are used as
        one; () if it is one itself."""
        raise NotImplementedError

    def holds(self) -> tuple[Operation, ...]:
        """Return the operations that the class holds here and does not run."""
        raise NotImplementedError

    def attention_width(self) -> Number:
        """Return heads · (d_qk + d_v) of an operation that computes attention scores and values, else 0."""
        raise NotImplementedError

    def scores(self, work: Work) -> Number:
        """Return the attention scores of all heads that elementary operations write and read again, where the operation
        computes such and is not the core of attention that a kernel may run."""
        raise NotImplementedError

    def elements_moved(self, work: Work) -> Number:
        """Return the elements that one forward pass reads and writes, unfused: one kernel per operation."""
        raise NotImplementedError

    def ring(self) -> tuple[Number, Number]:
        """Return the elements per token that ring attention sends around (context parallelism): of this stack's
        sequence, and of the other stack's."""
        raise NotImplementedError

    def launches(self) -> str:
        """Return which layer's number of kernel launches applies: LAYER_KERNELS or EXPERT_KERNELS."""
        raise NotImplementedError

    def launch_counts(self) -> tuple[int, int]:
        """Return how many launches it counts as, forward and backward, if an operation is one, the gradient of its
        inputs one and that of its weights one."""
        raise NotImplementedError

    def cache(self, over: Served) -> Cache | None:
        """Return what one sequence caches on a rank in inference; None for nothing."""
        raise NotImplementedError

    def fused_into_multiplication(self) -> Operation:
        """Return the operation as fused into the kernel of the multiplication that reads it."""
        raise NotImplementedError

    def multiplies(self) -> tuple[str, ...]:
        """Return the tensors that it multiplies elementwise, in a kernel that may fuse what made them."""
        raise NotImplementedError

    def residual(self) -> Number | None:
        """Return the width of the residual stream if the operation writes it, else None."""
        raise NotImplementedError

    def attends(self) -> AttentionCost | None:
        """Return the operation if it is the core of attention."""
        raise NotImplementedError

    def embeds(self) -> str:
        """Return the role of an embedding that has its own weights, else ""."""
        raise NotImplementedError

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        """Return (elements, dtype) of the tensors that the reference module registers next to its
        parameters."""
        raise NotImplementedError

    def gives_logits(self) -> bool:
        """Return whether it is a router whose logits a balancing loss reads."""
        raise NotImplementedError

    def angles(self) -> tuple[int, int] | None:
        """Return (rotated elements per head, index of the cos/sin table) of a rotary embedding."""
        raise NotImplementedError

    def normalizes(self) -> bool:
        """Return whether it is a normalization layer of the reference implementation."""
        raise NotImplementedError

    def replaces(self) -> str:
        """Return the name of the embedding output that it overwrites within the embedding's module, or ""."""
        raise NotImplementedError

    def inverts_mask(self) -> bool:
        """Return whether it copies the causal mask for each sequence."""
        raise NotImplementedError

    def owner(self) -> Operation:
        """Return the operation whose weights it uses."""
        raise NotImplementedError

    def runs_again(self) -> bool:
        """Return whether it is its owner's module, run once more, and no module of its own with tied weights."""
        raise NotImplementedError

    def depends_on_shapes(self, length: int) -> bool:
        """Return whether the bytes saved for backward are a function of shapes alone, for unpadded sequences of this
        length."""
        raise NotImplementedError

    def cropped(self, length: int) -> Operation:
        """Return the operation with learned positions truncated to `length`."""
        raise NotImplementedError

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        """Return the operation of a model whose vocabulary of `before` tokens is padded to `rows`; `reads_logits`: it
        reads what the head makes."""
        raise NotImplementedError

    def remark(self) -> str:
        """Return a note to the FLOP count, or ""."""
        raise NotImplementedError

    def expert_part(self) -> str:
        """Return the part of a mixture of experts that its parameters belong to: ROUTER, EXPERTS or ""."""
        raise NotImplementedError

    def routed(self) -> RoutedExperts | None:
        """Return the operation if it is a mixture of experts."""
        raise NotImplementedError

    def chooses_among(self) -> int:
        """Return the number of experts whose weights it has and of which each token uses some, or 0."""
        raise NotImplementedError

    def scans(self) -> str:
        """Return the kind of recurrence over the sequence that it is, or ""."""
        raise NotImplementedError

    def sliced(self) -> tuple[str, int] | None:
        """Return (name, width) of a view of `width` elements per token out of the named output."""
        raise NotImplementedError

    def pattern(self) -> str:
        """Return what the operation is where its neighbors matter (a constant of facts.py), or ""."""
        raise NotImplementedError


REQUIRED = tuple(
    name for name, one in vars(Operation).items() if callable(one) and name[0] != "_" and name != "products"
)
"""Methods that every class of operation must define, itself or in an intermediate base (ordinary.py)."""

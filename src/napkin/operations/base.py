"""Define the interface of an operation.

A layer is a list of operations; parameters, FLOPs, activation bytes, bytes moved and time are folds over it. Each
operation's `name` is also the name of its output tensor, and `reads` names the outputs that it reads; "x" is the
layer's input, and the last operation's output is the next layer's. Symbols: T tokens, b sequences, s length, h width,
a query heads, d head size, f feed-forward width, E experts, k chosen experts.
"""

from __future__ import annotations

from napkin.elementwise import Number
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
from napkin.operations.work import ALL, Gemm, Learning, Weight, Work
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from napkin.operations.implementations import Implementation
    from napkin.operations.lowering import Lowering
    from napkin.operations.shapes import Value

LAYER_KERNELS, EXPERT_KERNELS = "layer", "experts"
"""Which number of kernel launches applies to a layer with this operation: that of a dense layer, or of experts."""


class Timer:
    """Receives an operation's matmuls; timing/layer_clock.py converts them to seconds."""

    def gemms(self, op: Operation) -> None:
        """Run the operation's GEMMs one by one, their batch divided over tensor-parallel ranks."""
        raise NotImplementedError

    def linear(self, op: LinearLayer) -> None:
        """Run a linear layer, fused with those that read the same tensor and have the same shard."""
        raise NotImplementedError

    def attention(self, op: AttentionCost) -> None:
        """Run the attention core."""
        raise NotImplementedError

    def experts(self, op: RoutedExperts) -> None:
        """Run routed experts."""
        raise NotImplementedError

    def adapter(self, op: ThinPair) -> None:
        """Run an adapter: two thin matmuls next to a linear layer."""
        raise NotImplementedError

    def norm_of_weight(self, op: ThinPair) -> None:
        """Compute the norm of a weight with its adapter, as DoRA does in every forward pass."""
        raise NotImplementedError

    def reparameterized(self, op: Reparameterization) -> None:
        """Run an adapter of another kind than LoRA: its matmuls, and the computation of its weights."""
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
    role    its function in the layer, which folds may use (roles.py); "" for none
    module  the path of the linear layer, embedding, router or experts in the reference class: within the layer
            (`self_attn.q_proj`), or from the root (`model.embed_tokens`). LoRA targets match it. A builder states a
            key of the architecture's `modules`, `name` unless stated; building the model puts the path in its place
    short   short name for LoRA targets: q, k, v, o, gate, up, down, …; `name` unless stated
    learning  which parts of its backward pass run (operations/trained.py marks frozen operations)
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
        """Return the matmuls of one forward pass, each with its number of backward matmuls."""
        found = self.gemms(work)
        return found if self.learning == ALL else tuple(self.learning.of(one) for one in found)

    def lower(self, run: Lowering) -> Value:
        """Record on the tape what the implementation runs, and return the output.

        The tape then has the tensors saved for backward and the live bytes. Raises Refused if the saved tensors are
        unknown."""
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
        """Return the linear layers of the reference class within it, and the parameters used like one; () if it is
        itself a linear layer."""
        raise NotImplementedError

    def holds(self) -> tuple[Operation, ...]:
        """Return the operations that the class has here and does not run."""
        raise NotImplementedError

    def attention_width(self) -> Number:
        """Return heads · (d_qk + d_v) of an operation that computes attention scores and values, else 0."""
        raise NotImplementedError

    def scores(self, work: Work) -> Number:
        """Return the attention scores of all heads that elementary operations write and read, for an operation other
        than the attention core."""
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
        """Return the number of launches, forward and backward, where an operation, the gradient of its inputs and that
        of its weights count as one each."""
        raise NotImplementedError

    def cache(self, over: Served) -> Cache | None:
        """Return what one sequence caches on a rank in inference; None for nothing."""
        raise NotImplementedError

    def fused_into_multiplication(self) -> Operation:
        """Return the operation as fused into the kernel of the multiplication that reads it."""
        raise NotImplementedError

    def multiplies(self) -> tuple[str, ...]:
        """Return the tensors that it multiplies elementwise, in a kernel that may fuse their producers."""
        raise NotImplementedError

    def residual(self) -> Number | None:
        """Return the width of the residual stream if the operation writes it, else None."""
        raise NotImplementedError

    def attends(self) -> AttentionCost | None:
        """Return the operation if it is the attention core."""
        raise NotImplementedError

    def embeds(self) -> str:
        """Return the role of an embedding with its own weights, else ""."""
        raise NotImplementedError

    def tables(self) -> tuple[Weight, ...]:
        """Return the weights of the class's embeddings, of which it looks up rows."""
        raise NotImplementedError

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        """Return (elements, dtype) of the tensors that the reference module registers next to its
        parameters."""
        raise NotImplementedError

    def gives_logits(self) -> bool:
        """Return whether it is a router whose logits are an input of the balancing loss."""
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
        """Return whether it runs its owner's module again, rather than a separate module with tied weights."""
        raise NotImplementedError

    def depends_on_shapes(self, length: int) -> bool:
        """Return whether the bytes saved for backward depend only on shapes, for unpadded sequences of this length."""
        raise NotImplementedError

    def cropped(self, length: int) -> Operation:
        """Return the operation with learned positions truncated to `length`."""
        raise NotImplementedError

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        """Return the operation of a model whose vocabulary of `before` tokens is padded to `rows`; `reads_logits`: it
        reads the head's output."""
        raise NotImplementedError

    def remark(self) -> str:
        """Return a note on the FLOP count, or ""."""
        raise NotImplementedError

    def expert_part(self) -> str:
        """Return the part of a mixture of experts that its parameters belong to: ROUTER, EXPERTS or ""."""
        raise NotImplementedError

    def routed(self) -> RoutedExperts | None:
        """Return the operation if it is a mixture of experts."""
        raise NotImplementedError

    def chooses_among(self) -> int:
        """Return the number of routed experts whose weights it has, or 0."""
        raise NotImplementedError

    def scans(self) -> str:
        """Return its kind of recurrence over the sequence, or ""."""
        raise NotImplementedError

    def sliced(self) -> tuple[str, int] | None:
        """Return (name, width) of a view of `width` elements per token out of the named output."""
        raise NotImplementedError

    def pattern(self) -> str:
        """Return its kind for rewrites that depend on neighbors (a constant of facts.py), or ""."""
        raise NotImplementedError


REQUIRED = tuple(
    name for name, one in vars(Operation).items() if callable(one) and name[0] != "_" and name != "products"
)
"""Methods that every class of operation must define, itself or in an intermediate base (bases.py)."""

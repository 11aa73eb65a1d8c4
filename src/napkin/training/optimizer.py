"""What an optimizer is: the tensors that it keeps for a parameter, and what its step allocates and computes.

A state follows the parameter's number format unless it says otherwise; step counters are fp32 scalars, on the host
unless the optimizer is fused or capturable. optimizer_states.py has the bytes of each layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.record import record
from napkin.training.optimizer_step import FUSED, Accesses, Size, Update, elementwise_update
from napkin.training.optimizer_work import Works

FORMS = ("foreach", "forloop", "fused")
WHOLE, ROWS, COLUMNS, SCALAR, BLOCKS = "whole", "rows", "columns", "scalar", "blocks"
ONE, GRAMS, CUT_GRAMS, LOW_RANK, PROJECTION = "one", "grams", "cut grams", "low rank", "projection"
LOW_RANK_BLOCKS, PROJECTION_INT4 = "low rank, blocks", "projection, int4"
BY_SHAPE = (ROWS, COLUMNS, GRAMS, CUT_GRAMS, LOW_RANK, PROJECTION, LOW_RANK_BLOCKS, PROJECTION_INT4)
"""Layouts whose bytes depend on a tensor's shape, not on its number of elements alone."""


@record
class State:
    """One tensor that is kept for each parameter tensor. `fp32`: in fp32 whatever the parameter's dtype; `size`: the
    longest side that has a Gram matrix, or the rank of a projection; `bits`: of an element in blocks."""

    name: str
    layout: str = WHOLE
    fp32: bool = False
    size: int = 0
    bits: int = 8


@record
class Optimizer:
    """An optimizer: what it keeps and what its step allocates.

    states         kept for a tensor of two or more dimensions
    vectors        kept for a vector if that differs (factored optimizers)
    forms          implementations of its step (foreach, forloop, fused)
    only_matrices  takes matrices alone: embeddings, heads and vectors stay with `rest`
    whole          works on matrices that tensor parallelism does not divide
    works          matrix products and decompositions of a step, None for an optimizer that works element by element
    update         what its step allocates and frees again (optimizer_step.py)
    paged          states are in managed memory, which the driver moves and torch's allocator does not count
    accesses       of its step where elementary kernels run it, None: those of a fused one are taken
    """

    name: str
    states: tuple[State, ...]
    source: str
    vectors: tuple[State, ...] | None = None
    forms: tuple[str, ...] = ("foreach", "forloop")
    only_matrices: bool = False
    rest: str = "adamw"
    whole: bool = False
    works: Works | None = None
    note: str = ""
    update: Update = elementwise_update()
    paged: bool = False
    accesses: Accesses | None = None

    def moved(self, form: str) -> Accesses | None:
        """Return the accesses of a step of that form; None for a fused one."""
        return None if form == FUSED else self.accesses

    def temporaries(self, form: str, sizes: Sequence[Size], all_elements: Number, width: int) -> Number:
        """Return the bytes that a step allocates at most next to its states. `sizes`: each kind of tensor, in order;
        `all_elements`: elements of all tensors; `width`: bytes of an element of a state."""
        if form == FUSED or not sizes:
            return 0
        return self.update(form, sizes, all_elements, width, self.in_fp32)

    def kept(self, shape: tuple[int, ...]) -> tuple[State, ...]:
        """Return the states of a tensor of that shape. Refused (2) if the optimizer does not take it."""
        if self.only_matrices and len(shape) != 2:
            raise NapkinError(
                f"{self.name} takes matrices only, not a tensor of {len(shape)} dimension{'s' * (len(shape) != 1)}",
                "give vectors, embeddings and heads to adamw",
            )
        return self.states if self.vectors is None or len(shape) > 1 else self.vectors

    @property
    def factored(self) -> bool:
        """Whether its bytes depend on the shapes of the tensors, not on their number of elements alone."""
        return any(s.layout in BY_SHAPE for s in self.states)

    @property
    def in_fp32(self) -> bool:
        """Whether its states are fp32 whatever the parameter's format: 16-bit gradients are cast for the step."""
        return any(s.fp32 for s in self.states)

    @property
    def code_books(self) -> int:
        """8-bit states: all tensors share a book of codes for each."""
        return sum(s.layout in (BLOCKS, LOW_RANK_BLOCKS) and s.bits == 8 for s in self.states)

    @property
    def copies(self) -> int:
        """Parameter-shaped states."""
        return sum(s.layout in (WHOLE, BLOCKS) for s in self.states)


def counters_on_device(form: str | None) -> bool:
    """Fused kernels read their step counter on the device; the other forms keep it on the host."""
    return form == "fused"

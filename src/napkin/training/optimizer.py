"""The record of an optimizer: its states for a parameter, and what its step allocates and computes.

A state has the parameter's number format unless stated; step counters are fp32 scalars, on the host
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
MOMENTUM = "momentum_buffer"
"""torch's name of the state that an optimizer keeps with momentum only."""
BY_SHAPE = (ROWS, COLUMNS, GRAMS, CUT_GRAMS, LOW_RANK, PROJECTION, LOW_RANK_BLOCKS, PROJECTION_INT4)
"""Layouts whose bytes depend on a tensor's shape, not only on its number of elements."""


@record
class State:
    """One state tensor per parameter tensor. `fp32`: in fp32 for any parameter dtype; `size`: the longest side with a
    Gram matrix, or the rank of a projection; `bits`: of an element in blocks."""

    name: str
    layout: str = WHOLE
    fp32: bool = False
    size: int = 0
    bits: int = 8


@record
class Optimizer:
    """An optimizer: its states and what its step allocates.

    states         states of a tensor of two or more dimensions
    vectors        states of a vector, if different (factored optimizers)
    forms          implementations of its step (foreach, forloop, fused)
    only_matrices  takes only matrices: embeddings, heads and vectors use `rest`
    whole          needs matrices that tensor parallelism does not divide
    works          matmuls and decompositions of a step, None for an elementwise optimizer
    update         what its step allocates and frees again (optimizer_step.py)
    paged          states are in managed memory, which the driver moves and torch's allocator does not count
    accesses       memory accesses of its step in elementwise kernels, None: those of a fused one
    unquantized    the same optimizer with fp32 states, if its own are in 8 bits
    unmodeled      in a few words, what of its own software is not modeled
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
    unquantized: str = ""
    unmodeled: str = ""

    def moved(self, form: str) -> Accesses | None:
        """Return the memory accesses of a step in that form; None for a fused one."""
        return None if form == FUSED else self.accesses

    def temporaries(self, form: str, sizes: Sequence[Size], all_elements: Number, width: int) -> Number:
        """Return the peak bytes of a step's temporaries. `sizes`: each kind of tensor, in order;
        `all_elements`: elements of all tensors; `width`: bytes of an element of a state."""
        if form == FUSED or not sizes:
            return 0
        return self.update(form, sizes, all_elements, width, self.in_fp32)

    def kept(self, shape: tuple[int, ...]) -> tuple[State, ...]:
        """Return the states of a tensor of that shape. Raises NapkinError (2) if the optimizer does not take it."""
        if self.only_matrices and len(shape) != 2:
            raise NapkinError(
                f"{self.name} takes matrices only, not a tensor of {len(shape)} dimension{'s' * (len(shape) != 1)}",
                "give vectors, embeddings and heads to adamw",
            )
        return self.states if self.vectors is None or len(shape) > 1 else self.vectors

    @property
    def factored(self) -> bool:
        """Whether its bytes depend on the shapes of the tensors, not only on their number of elements."""
        return any(s.layout in BY_SHAPE for s in self.states)

    @property
    def in_fp32(self) -> bool:
        """Whether its states are fp32 for any parameter dtype, so that 16-bit gradients are cast for the step."""
        return any(s.fp32 for s in self.states)

    @property
    def keeps_momentum(self) -> bool:
        """Whether a momentum buffer is among its states."""
        return any(s.name == MOMENTUM for s in self.states)

    @property
    def code_books(self) -> int:
        """Code books of 8-bit states, one per state, shared by all tensors."""
        return sum(s.layout in (BLOCKS, LOW_RANK_BLOCKS) and s.bits == 8 for s in self.states)

    @property
    def copies(self) -> int:
        """Number of parameter-shaped states."""
        return sum(s.layout in (WHOLE, BLOCKS) for s in self.states)


def counters_on_device(form: str | None) -> bool:
    """Return whether step counters are on the device: fused kernels read them there; other forms keep them on the
    host."""
    return form == "fused"

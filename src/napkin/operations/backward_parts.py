"""Which parts of an operation's backward pass run."""

from __future__ import annotations

from napkin.operations.work import Gemm
from napkin.record import record, replace

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

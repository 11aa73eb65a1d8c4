"""Which parts of an operation's backward pass run."""

from __future__ import annotations

from napkin.operations.work import Gemm
from napkin.record import record, replace


@record
class Learning:
    """What of an operation's backward pass runs, and what its frozen weights cost before they are multiplied.

    weights  1 if the weights' gradients are computed        inputs  1 where those of what it reads are
    trained  whether its weights are updated; not those that adapters are merged into, whose gradients only pass on
    stored   format of frozen weights that every product expands to 16 bits first; "": they are multiplied as they are
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
        """Return the launches of an operation, forward and backward; one with weights expands them if they are
        stored in a format of their own, for the product and for the gradient of its input."""
        expands = int(weighs and self.stored != "")
        return 1 + expands, self.inputs * (1 + expands) + (weighs and self.weights)

    def of(self, product: Gemm) -> Gemm:
        """Return a matmul with as many in its backward pass as run there; a product of two activations has both or
        none."""
        first, second = self.weights if product.weight else self.inputs, self.inputs
        # of one matmul, the inputs are detached: it is the weight's gradient
        return replace(product, backward=(0, first, first + second)[product.backward])


ALL = Learning()
"""Weights are trained and gradients pass on: what holds unless something is frozen."""

"""The interface of adapters other than LoRA and DoRA on frozen linear layers.

A kind is one class that states its trained tensors, its buffers, what it runs on the tape, and its matmuls:
low_rank.py and rotation.py define them. LoRA, which can also adapt embeddings and expert parameters,
is in lora.py and adapted.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from napkin.autograd.tensors import BYTES, WEIGHT, Tensor
from napkin.elementwise import Number
from napkin.operations.adapters.named import is_chosen
from napkin.operations.implementations import Implementation
from napkin.operations.roles import DOWN
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.base import Operation
    from napkin.operations.lowering import Lowering
    from napkin.operations.tuning import Tuning

Base = Callable[[Tensor], Tensor]
"""The frozen matmul that an adapter is applied to."""


@record
class AdaptedLayer:
    """The linear layer that an adapter is on.

    size  the adapter's rank, or the width of its blocks        inner  the layer ends a feed-forward block
    """

    d_in: int
    d_out: int
    size: int
    inner: bool = False


@record
class AdapterProduct:
    """A matmul (m×k)(k×n), `batch` of them. m: its rows; 0: the tokens.

    weights, inputs  1 if the backward pass computes the gradient of its second factor, and of its first one; inputs -1:
    if a gradient flows to what the layer reads"""

    name: str
    m: int
    k: int
    n: int
    batch: int = 1
    weights: int = 1
    inputs: int = 1


class Math:
    """The dtypes of an adapter's computation on a rank's tape."""

    def __init__(self, run: Lowering, tuning: Tuning, x: Tensor) -> None:
        self.run, self.tape, self.tuning = run, run.tape, tuning
        tape = run.tape
        self.stream = x.dtype
        self.stored = tuning.kept_in or ("fp32" if tape.autocast else tape.compute)
        narrow = tape.autocast or (tape.compute if tuning.kept_in and tuning.autocast else "")
        self.products = narrow or self.stored
        """Dtype of matmuls: autocast's, or the adapter's own."""
        self.in_stream = narrow or self.stream
        """The same if the adapter is first cast to its input's type."""

    def read(self, x: Tensor) -> Tensor:
        """Return the layer's input in the adapter's dtype (tuners_utils.py, _cast_input_dtype), after dropout."""
        return self.tape.dropout(self.tape.cast(x, self.stored), self.tuning.dropout)

    def factor(self, x: Tensor) -> Tensor:
        """Return the operand of a matmul."""
        return self.tape.cast(x, self.products)

    def made(
        self,
        primitive: str,
        count: Number,
        what: str,
        trained: Number,
        dtype: str = "",
        cast: Number = 0,
        scratch: Number = 0,
    ) -> Tensor:
        """Record a tensor, in the adapter's dtype or another, computed only from `trained` elements of parameters,
        which are in memory anyway, and of which autocast casts `cast`. scratch: temporary bytes of either pass."""
        tape = self.tape
        copies = [tape.weight_copy(cast, what)] if cast and tape.autocast else []
        out = tape.new(count, dtype or self.stored, what)
        weight = trained * BYTES[self.stored]
        return tape.record(primitive, (), out, copies, weight=weight, scratch=scratch, forward_scratch=scratch)

    def vector(self, count: Number) -> Tensor:
        return self.tape.given(count, self.stored, "vector", kind=WEIGHT)

    def matmul(self, x: Tensor, y: Tensor, count: Number, what: str, dtype: str = "") -> Tensor:
        """Multiply two tensors that both need gradients and are therefore saved, in `dtype` or the dtype of matmuls."""
        dtype = dtype or self.products
        x, y = self.tape.cast(x, dtype), self.tape.cast(y, dtype)
        return self.tape.record("matmul", (x, y), self.tape.new(count, dtype, what), (x, y))

    def added(self, out: Tensor, more: Tensor) -> Tensor:
        return self.tape.cast(self.tape.add(out, more), out.dtype)


class AdapterKind:
    """A kind of adapter on a frozen linear layer.

    name       peft's, and that of --adapter        title  for people
    sized      the option of its size, "" if it has none        usual  peft's default size
    measure    what the size means, for people
    quantizes  peft runs it on quantized weights (a delta of the weight's own shape needs that shape)
    drops      its input passes through dropout, like LoRA's
    """

    name = ""
    title = ""
    sized = "lora-rank"
    measure = "rank"
    usual = 8
    quantizes = True
    drops = False

    def on(self, op: Operation, implementation: Implementation, tuning: Tuning) -> AdaptedLayer | None:
        """Return an operation as the adapter sees it, if it is on it: a linear layer that a target names."""
        linear = op.linear()
        if linear is None or linear.bare or tuning.saves(linear.role, linear.module):
            return None
        if not is_chosen(linear, implementation, tuning):
            return None
        return AdaptedLayer(linear.d_in, linear.d_out, tuning.rank, linear.role == DOWN)

    def words(self, size: int) -> str:
        """Return the kind and its size in words."""
        return f"{self.title} {self.measure} {size}" if self.sized else self.title

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the shape of each trained tensor."""
        raise NotImplementedError

    def buffer(self, at: AdaptedLayer) -> int:
        """Return the elements of fp32 buffers that the layer holds."""
        return 0

    def shared(self, layers: list[AdaptedLayer]) -> int:
        """Return the elements of frozen tensors that all layers share."""
        return 0

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        """Run the layer with its adapter. What it records is trained; `base` is not."""
        raise NotImplementedError

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        """Yield its matmuls."""
        yield from ()

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        """Return the bytes per token of its elementwise work, forward and backward, in 16 bits."""
        return 0, 0

    def moved(self, at: AdaptedLayer) -> tuple[Number, Number]:
        """Return the bytes moved to compute its weights, without matmuls, forward and backward, independent of the
        tokens."""
        return 0, 0

    def count(self, at: AdaptedLayer) -> int:
        """Return the number of trained parameters."""
        total = 0
        for _, shape in self.weights(at):
            each = 1
            for axis in shape:
                each *= axis
            total += each
        return total

    def launches(self, at: AdaptedLayer) -> tuple[int, int]:
        """Return the number of kernels: its matmuls, and as many elementwise kernels."""
        own = list(self.products(at))
        ahead = 2 * len(own) + 2
        return ahead, 2 * sum(one.weights + abs(one.inputs) for one in own) + 2

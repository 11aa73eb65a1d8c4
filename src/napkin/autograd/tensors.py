"""Symbolic tensors, their storages, and the nodes of the autograd graph."""

from __future__ import annotations

from napkin import formats
from napkin.autograd.control_flow import differs
from napkin.elementwise import Number, ceil_div, is_array, is_zero, where

BYTES, SIXTEENTHS = formats.BYTES, formats.SIXTEENTHS
PROMOTION_RANK = {"bf16": 1, "fp16": 1, "fp32": 2, "fp64": 3}
"""The result of an operation on two dtypes has the one of higher rank (torch.promote_types)."""

SLICE, CUT, JOINED, DIFFERENCE = "slice", "cut", "joined", "subtract"
INPUT_LABEL = "x"
"""Label of the residual stream that a layer reads."""
ACTIVATION, WEIGHT, WEIGHT_COPY, INPUT = "activation", "weight", "weight copy", "input"
MADE_AGAIN = "made again"
"""Of a storage that no backward pass needs: what was in it is computed again, in the place of its gradient."""
REMADE = "remade"
"""Of a storage that a part of a layer frees in the forward pass and makes again in backward (recomputed.py)."""


def sized(count: Number, dtype: str) -> Number:
    """Return the bytes of `count` elements."""
    return count * BYTES[dtype] if dtype in BYTES else ceil_div(count * SIXTEENTHS[dtype], 16)


class Storage:
    """Bytes on the device. `kept`: whether autograd saves it, 0 or 1, or an array of them (one per layout);
    `remembered`: the graph of a tensor that a module refers to after the pass saves it; `earlier`: an earlier layer
    made it and saves it, unless this one runs again; `narrowed`: the copy of fewer bits that a linear layer makes of
    its input."""

    __slots__ = ("earlier", "kept", "kind", "label", "narrowed", "remembered", "shared", "size")

    def __init__(self, label: str, size: Number, kind: str = ACTIVATION, shared: bool = False) -> None:
        self.label = label
        self.size = size
        self.kind = kind
        self.shared = shared
        self.kept: Number = 0
        self.remembered = False
        self.earlier = False
        self.narrowed = False

    @property
    def saved(self) -> Number:
        """Return the bytes of it that autograd saves."""
        return 0 if self.earlier else self.size * self.kept

    def own(self, again: bool) -> bool:
        """Return whether each layer has its own: it is not shared, or a copy of a weight, which autocast makes anew as
        the layer runs again."""
        return not self.shared or (again and self.kind == WEIGHT_COPY)


class Tensor:
    """`count` elements of `dtype` in a storage.

    storages    the storages that it may be in, each with the condition (0 or 1, or an array per layout) that it is
    no_grad     requires no gradient
    rows_apart  a transposed view, in which sequences and heads are not adjacent in memory, so that folding them into
                one dimension copies
    base        the tensor that a view belongs to, whose gradient receives the view's"""

    __slots__ = ("base", "count", "dtype", "no_grad", "rows_apart", "storages")

    def __init__(
        self,
        count: Number,
        dtype: str,
        storages: tuple[tuple[Number, Storage], ...],
        no_grad: bool = False,
        rows_apart: bool = False,
        base: Tensor | None = None,
    ) -> None:
        self.base = base
        self.count = count
        self.dtype = dtype
        self.storages = storages
        self.no_grad = no_grad
        self.rows_apart = rows_apart

    @property
    def storage(self) -> Storage:
        """Return the storage of a tensor that is in one only."""
        return self.storages[0][1]

    @property
    def size(self) -> Number:
        """Return the bytes of the elements."""
        return sized(self.count, self.dtype)

    def view(self, count: Number | None = None, *, rows_apart: bool | None = None) -> Tensor:
        """Return a view of the same storage; `count` if it shows a part only, or repeats elements."""
        return Tensor(
            self.count if count is None else count,
            self.dtype,
            self.storages,
            self.no_grad,
            self.rows_apart if rows_apart is None else rows_apart,
            self,
        )

    @property
    def root(self) -> Tensor:
        """Return the tensor at the end of a chain of views."""
        tensor = self
        while tensor.base is not None:
            tensor = tensor.base
        return tensor


class Node:
    """A node of the autograd graph: one primitive with its inputs, output and saved tensors.

    weight     bytes of the gradients of its weights
    bias       the bias's part of `weight`, which is summed last
    alias      its backward passes the gradient on without a new tensor (additions, copies, views)
    broadcast  its backward computes each factor's gradient in the size of the product, then sums and casts it
    uncast_weight    bytes of the weight gradient in the dtype that the matmul ran in, before its cast
    scratch          temporary bytes of its backward
    forward_scratch  temporary bytes of its forward
    cached           bytes of the copy of a bias that autocast's cache holds from then on
    of               key of its weight, if other nodes read it as well: their gradients are summed
    elsewhere        nodes of other sections read it as well
    one_copy         they share autocast's copy: gradients are summed in its dtype, and cast when complete
    completes        its gradient is the last of these
    remakes          what is made again just before its backward pass
    """

    __slots__ = (
        "alias",
        "bias",
        "broadcast",
        "cached",
        "completes",
        "elsewhere",
        "forward_scratch",
        "inputs",
        "kept",
        "name",
        "of",
        "one_copy",
        "output",
        "remakes",
        "scratch",
        "uncast_weight",
        "weight",
    )

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        output: Tensor,
        kept: tuple[tuple[Number, Storage], ...],
        weight: Number,
        alias: bool,
        scratch: Number,
        broadcast: bool,
        forward_scratch: Number,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.output = output
        self.kept = kept
        self.weight = weight
        self.alias = alias
        self.scratch = scratch
        self.broadcast = broadcast
        self.uncast_weight: Number = 0
        self.bias: Number = 0
        self.forward_scratch = forward_scratch
        self.cached: Number = 0
        self.of: object = None
        self.elsewhere = False
        self.one_copy = False
        self.completes = True
        self.remakes: tuple[Storage, ...] = ()

    @property
    def summed(self) -> Number:
        """Return the bytes of the gradient of its weight as it is summed with those of other nodes."""
        return self.uncast_weight if self.one_copy and not is_zero(self.uncast_weight) else self.weight

    @property
    def made(self) -> Number:
        """Return the bytes of the gradient of its weight after it has run."""
        return self.weight if self.completes else self.summed


def select(condition: Number, yes: Tensor, no: Tensor) -> Tensor:
    """Return `yes` if the condition holds, else `no`.

    If layouts differ in it, both branches stay on the tape and are replayed for all: only arrays that agree in every
    condition give the live bytes of each layout."""
    if not is_array(condition):
        return yes if condition else no
    if not differs(condition):
        return yes if condition.all() else no
    holds = condition * 1
    storages = tuple((w * holds, s) for w, s in yes.storages) + tuple((w * (1 - holds), s) for w, s in no.storages)
    count = where(condition, yes.count, no.count)
    return Tensor(count, no.dtype, storages, yes.no_grad and no.no_grad, no.rows_apart, no)


def promoted(x: Tensor, y: Tensor) -> str:
    """Return the dtype to which torch promotes two floating-point tensors."""
    return x.dtype if PROMOTION_RANK[x.dtype] >= PROMOTION_RANK[y.dtype] else y.dtype

"""Symbolic tensors, their storages, and the nodes of the autograd graph."""

from __future__ import annotations

from napkin import formats
from napkin.elementwise import Number, ceil_div, is_array, where

BYTES, SIXTEENTHS = formats.BYTES, formats.SIXTEENTHS
PROMOTION_RANK = {"bf16": 1, "fp16": 1, "fp32": 2, "fp64": 3}
"""The result of an operation on two dtypes has the one of higher rank (torch.promote_types)."""

SLICE, CUT = "slice", "cut"
INPUT_LABEL = "x"
"""The residual stream that a layer reads."""
ACTIVATION, WEIGHT, WEIGHT_COPY, INPUT = "activation", "weight", "weight copy", "input"


def sized(count: Number, dtype: str) -> Number:
    """Bytes of `count` elements."""
    return count * BYTES[dtype] if dtype in BYTES else ceil_div(count * SIXTEENTHS[dtype], 16)


class Storage:
    """Bytes on the device. `kept` is how much of it autograd holds: 0 or 1, or an array of them."""

    __slots__ = ("kept", "kind", "label", "shared", "size")

    def __init__(self, label: str, size: Number, kind: str = ACTIVATION, shared: bool = False) -> None:
        self.label = label
        self.size = size
        self.kind = kind
        self.shared = shared
        self.kept: Number = 0


class Tensor:
    """`count` elements of `dtype` in one of several storages, each with the condition (0 or 1) under which it is.

    `fixed` marks what needs no gradient; `rows_apart` tells that sequences and heads are not next to each other in
    memory (a transposed view), so that folding both into one dimension copies; `base` is the tensor that a view shows,
    whose gradient is its own."""

    __slots__ = ("base", "count", "dtype", "fixed", "places", "rows_apart")

    def __init__(
        self,
        count: Number,
        dtype: str,
        places: tuple[tuple[Number, Storage], ...],
        fixed: bool = False,
        rows_apart: bool = False,
        base: Tensor | None = None,
    ) -> None:
        self.base = base
        self.count = count
        self.dtype = dtype
        self.places = places
        self.fixed = fixed
        self.rows_apart = rows_apart

    @property
    def size(self) -> Number:
        """Bytes of the elements, however they are stored."""
        return sized(self.count, self.dtype)

    def view(self, count: Number | None = None, *, rows_apart: bool | None = None) -> Tensor:
        """The same storage seen through another shape; `count` where it shows only a part, or repeats."""
        return Tensor(
            self.count if count is None else count,
            self.dtype,
            self.places,
            self.fixed,
            self.rows_apart if rows_apart is None else rows_apart,
            self,
        )

    @property
    def root(self) -> Tensor:
        """The tensor that a chain of views shows."""
        tensor = self
        while tensor.base is not None:
            tensor = tensor.base
        return tensor


class Node:
    """One primitive as autograd sees it: what it read, made and kept.

    weight   bytes of the weight gradient that its backward leaves behind
    alias    its backward hands the gradient on without making a new tensor (additions, copies, views)
    broadcast  its backward makes each factor's gradient as large as the product, sums and casts them in turn
    bias     of them, the bias's, summed when the others are there
    uncast_weight  bytes of the weight gradient in the type that the product ran in, which is cast behind it
    scratch  further bytes that its backward needs while it runs
    forward_scratch  further bytes that its forward needs
    cached   bytes of the copy of a bias that autocast's cache holds from then on
    """

    __slots__ = (
        "alias",
        "bias",
        "broadcast",
        "cached",
        "forward_scratch",
        "inputs",
        "kept",
        "name",
        "output",
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
        uncast_weight: Number,
        bias: Number,
        forward_scratch: Number,
        cached: Number,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.output = output
        self.kept = kept
        self.weight = weight
        self.alias = alias
        self.scratch = scratch
        self.broadcast = broadcast
        self.uncast_weight = uncast_weight
        self.bias = bias
        self.forward_scratch = forward_scratch
        self.cached = cached


def select(condition: Number, yes: Tensor, no: Tensor) -> Tensor:
    """`yes` where the condition holds, else `no`. Where layouts differ in it, what each of them makes stays on the tape
    and is replayed for all: only arrays that agree in every condition have the live bytes of single layouts."""
    if not is_array(condition):
        return yes if condition else no
    if condition.all():
        return yes
    if not condition.any():
        return no
    holds = condition * 1
    places = tuple((w * holds, s) for w, s in yes.places) + tuple((w * (1 - holds), s) for w, s in no.places)
    count = where(condition, yes.count, no.count)
    return Tensor(count, no.dtype, places, yes.fixed and no.fixed, no.rows_apart, no)


def promoted(x: Tensor, y: Tensor) -> str:
    """torch's result type of two floating types."""
    return x.dtype if PROMOTION_RANK[x.dtype] >= PROMOTION_RANK[y.dtype] else y.dtype

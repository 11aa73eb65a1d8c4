"""A symbolic torch: tensors have an element count, a type and a storage, and each primitive says what autograd keeps.

Running a layer's code on a `Tape` gives what the real code does on a device, without one: the storages that autograd
saves for backward (each counted once, however many nodes or views hold it), the weight copies that autocast makes, and
the nodes to replay backwards for the live bytes (live.py).

The rules are autograd's (tools/autograd/derivatives.yaml in pytorch): a linear layer keeps its input and its weight; a
product keeps each factor that the other's gradient needs; pow, gelu and silu keep the input; softmax, tanh, rsqrt, exp
and relu the result; dropout its mask; look-ups their indices; sums, scalings, views, casts and concatenation nothing.
A view shares its base's storage, so a slice keeps the whole. Autocast's lists are those of ATen/autocast_mode.h.

Counts may be arrays with one entry per layout: nothing here branches on a count.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import (
    ACTIVATION,
    BYTES,
    CUT,
    INPUT,
    PROMOTION_RANK,
    SLICE,
    WEIGHT,
    WEIGHT_COPY,
    Node,
    Storage,
    Tensor,
    promoted,
    sized,
)
from napkin.elementwise import Number, is_array, maximum


class Tape:
    """Runs primitives and remembers them.

    compute    type of linear layers' weights, and of activations where nothing casts
    autocast   type that autocast lowers matrix products to, or "" when it is off
    linear_dtype  type of less than 16 bits that linear layers read their inputs in, or ""
    again      what runs now runs again in backward: nothing of it is kept but autocast's copies of weights
    holds      (the last node that runs while a variable names a tensor, that tensor)
    copies     autocast's copies of the weights that the operation at hand shares with others, by their labels
    """

    def __init__(self, compute: str, autocast: str = "", linear_dtype: str = "") -> None:
        self.compute = compute
        self.autocast = autocast
        self.linear_dtype = linear_dtype
        self.nodes: list[Node] = []
        self.holds: list[tuple[int, Tensor]] = []
        self.kept: list[Storage] = []
        self.scope = ""
        self.again = False
        self.copies: dict[str, Tensor] | None = None

    def fresh(self) -> Tape:
        """An empty tape of the same types."""
        return Tape(self.compute, self.autocast, self.linear_dtype)

    # --- storages ---

    def new(self, count: Number, dtype: str, what: str, *, fixed: bool = False) -> Tensor:
        """A fresh tensor."""
        return Tensor(count, dtype, ((1, Storage(f"{self.scope}/{what}", sized(count, dtype))),), fixed)

    def given(self, count: Number, dtype: str, what: str, *, kind: str = ACTIVATION, fixed: bool = False) -> Tensor:
        """A tensor that was there before: the layer's input, a weight, the token ids."""
        return Tensor(count, dtype, ((1, Storage(what, sized(count, dtype), kind)),), fixed)

    def keep(self, *tensors: Tensor) -> tuple[tuple[Number, Storage], ...]:
        """Autograd saves these tensors; weights and the step's own inputs are not counted."""
        held: list[tuple[Number, Storage]] = []
        for tensor in tensors:
            for weight, storage in tensor.places:
                if storage.kind in (WEIGHT, INPUT):
                    continue
                if not any(storage is other for other in self.kept):
                    self.kept.append(storage)
                storage.kept = maximum(storage.kept, weight)
                held.append((weight, storage))
        return tuple(held)

    def record(
        self,
        name: str,
        inputs: Sequence[Tensor],
        output: Tensor,
        kept: Sequence[Tensor] = (),
        *,
        weight: Number = 0,
        alias: bool = False,
        scratch: Number = 0,
        broadcast: bool = False,
        uncast_weight: Number = 0,
        bias: Number = 0,
        forward_scratch: Number = 0,
        cached: Number = 0,
    ) -> Tensor:
        output.fixed = all(t.fixed for t in inputs) and not is_array(weight) and weight == 0
        if self.again:
            kept = [t for t in kept if t.places[0][1].kind == WEIGHT_COPY]
        held = () if output.fixed else self.keep(*kept)
        self.nodes.append(
            Node(
                name,
                tuple(inputs),
                output,
                held,
                weight,
                alias,
                scratch,
                broadcast,
                uncast_weight,
                bias,
                forward_scratch,
                cached,
            )
        )
        return output

    def hold(self, *tensors: Tensor) -> None:
        """Variables name these tensors until here."""
        self.holds += [(len(self.nodes) - 1, tensor) for tensor in tensors]

    # --- what autocast does to arguments; who calls the operation holds them as they were until it is over ---

    def lowered(self, x: Tensor) -> Tensor:
        """An argument of an operation on autocast's list of lower precision."""
        return self.cast(x, self.autocast) if self.autocast and x.dtype == "fp32" else x

    def raised(self, x: Tensor) -> Tensor:
        """An argument of an operation on autocast's list of fp32."""
        return self.cast(x, "fp32") if self.autocast else x

    # --- elementwise ---

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        out = self.new(x.count, dtype, f"as {dtype}")
        out.rows_apart = x.rows_apart
        return self.record("cast", (x,), out)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.record("add", (x, y), self.new(x.count, promoted(x, y), "sum"), alias=True)

    def scale(self, x: Tensor, what: str = "scaled") -> Tensor:
        """x times a constant: keeps nothing."""
        out = self.new(x.count, x.dtype, what)
        out.rows_apart = x.rows_apart
        return self.record("scale", (x,), out)

    def shift(self, x: Tensor, what: str = "shifted", dtype: str = "") -> Tensor:
        """x plus a constant, of a wider type where it is: keeps nothing, and hands its gradient on."""
        wider = dtype and PROMOTION_RANK[dtype] > PROMOTION_RANK[x.dtype]
        out = self.new(x.count, dtype if wider else x.dtype, what)
        out.rows_apart = x.rows_apart
        return self.record("shift", (x,), out, alias=True)

    def rotate(self, x: Tensor) -> Tensor:
        """Both halves of each head put together anew, one negated. Backwards each half fills a tensor of its own with
        zeros around it, and they are added."""
        negated = sized(x.count // 2, x.dtype)
        return self.record(
            "rotate", (x,), self.new(x.count, x.dtype, "rotated"), scratch=x.size, forward_scratch=negated
        )

    def multiply(self, x: Tensor, y: Tensor, what: str = "product") -> Tensor:
        """x·y, elementwise or broadcast over x: each factor is kept where the other's gradient needs it."""
        out = self.new(x.count, promoted(x, y), what)
        out.rows_apart = x.rows_apart
        kept = ([] if y.fixed else [x]) + ([] if x.fixed else [y])
        return self.record("mul", (x, y), out, kept, broadcast=True)

    def power(self, x: Tensor) -> Tensor:
        given, x = x, self.raised(x)
        out = self.record("pow", (x,), self.new(x.count, x.dtype, "power"), (x,), scratch=2 * x.size)
        self.hold(given)
        return out

    def mean(self, x: Tensor, count: Number) -> Tensor:
        return self.record("mean", (x,), self.new(count, x.dtype, "mean"))

    def rsqrt(self, x: Tensor) -> Tensor:
        x = self.raised(x)
        out = self.new(x.count, x.dtype, "rsqrt")
        return self.record("rsqrt", (x,), out, (out,), scratch=2 * x.size)

    def tanh(self, x: Tensor) -> Tensor:
        out = self.new(x.count, x.dtype, "tanh")
        return self.record("tanh", (x,), out, (out,))

    def sigmoid(self, x: Tensor) -> Tensor:
        out = self.new(x.count, x.dtype, "sigmoid")
        return self.record("sigmoid", (x,), out, (out,))

    def relu(self, x: Tensor) -> Tensor:
        out = self.new(x.count, x.dtype, "relu")
        return self.record("relu", (x,), out, (out,))

    def erf(self, x: Tensor) -> Tensor:
        """Backwards 2/√π·exp(−x²)·gradient: the square, its negative, the exponential and its multiple."""
        return self.record("erf", (x,), self.new(x.count, x.dtype, "erf"), (x,), scratch=4 * x.size)

    def smooth(self, x: Tensor, name: str, written: bool = False) -> Tensor:
        """silu, gelu and their like as one kernel: the input is kept. `written`: the code's own gelu of tanh, written
        out in both directions within one function, where four tensors as large stand at once forwards, five
        backwards."""
        out = self.new(x.count, x.dtype, name)
        return self.record(name, (x,), out, (x,), scratch=4 * x.size * written, forward_scratch=3 * x.size * written)

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """The fused kernel keeps a mask of one byte an element; nothing happens at p = 0."""
        if not p:
            return x
        mask = self.new(x.count, "bool", "dropout mask", fixed=True)
        return self.record("dropout", (x,), self.new(x.count, x.dtype, "dropped"), (mask,))

    def copy(self, x: Tensor, what: str) -> Tensor:
        """A contiguous copy, or a concatenation of parts that are as large together."""
        return self.record("copy", (x,), self.new(x.count, x.dtype, what), alias=True)

    def slice(self, x: Tensor, count: Number, apart: bool = False) -> Tensor:
        """A view of a part of x: the gradients of the parts are written into one of the whole (split, chunk), or,
        `apart`, each into a whole of its own, which are added."""
        part = x.view(count)
        part.base = None
        return self.record(CUT if apart else SLICE, (x,), part)

    # --- normalisations and reductions ---

    def layer_norm(self, x: Tensor, rows: Number, weights: Sequence[Tensor], weight: Number) -> Tensor:
        """The fused kernel keeps its input, and mean and reciprocal deviation of each row in fp32."""
        given, x = x, self.raised(x)
        mean = self.new(rows, "fp32", "mean", fixed=True)
        rstd = self.new(rows, "fp32", "rstd", fixed=True)
        out = self.new(x.count, x.dtype, "normalised")
        self.record("layer_norm", (x,), out, (x, mean, rstd, *weights), weight=weight)
        self.hold(given)
        return out

    def rms_norm(self, x: Tensor, rows: Number, weight: Number) -> Tensor:
        """The fused kernel keeps its input and the reciprocal root mean square of each row in fp32."""
        given, x = x, self.raised(x)
        rstd = self.new(rows, "fp32", "rstd", fixed=True)
        out = self.new(x.count, x.dtype, "normalised")
        self.record("rms_norm", (x,), out, (x, rstd), weight=weight)
        self.hold(given)
        return out

    def softmax(self, x: Tensor, dtype: str = "") -> Tensor:
        """Keeps its result. What is asked for in another type, or is raised by autocast, is cast first."""
        given, x = x, self.cast(x, dtype) if dtype else self.raised(x)
        out = self.new(x.count, x.dtype, "softmax")
        self.record("softmax", (x,), out, (out,))
        self.hold(given)
        return out

    # --- matrix products ---

    def linear(
        self, x: Tensor, d_in: Number, d_out: Number, bias: bool = False, weight: str = "", once: bool = True
    ) -> Tensor:
        """x·Wᵀ. Keeps x, and autocast's copy of the weight, which is cast `once` a step or in each product."""
        stored = self.compute if not self.autocast else "fp32"
        given, x = x, self.lowered(x)
        kept = [self.new(x.count, self.linear_dtype, f"as {self.linear_dtype}") if self.linear_dtype else x]
        if self.autocast and not x.fixed:
            name = weight or "weight"
            kept.append(self.weight_copy(d_in * d_out, name) if once else self.new(d_in * d_out, self.autocast, name))
        out = self.new(x.count // d_in * d_out, x.dtype, "output")
        grads = d_in * d_out * BYTES[stored] + (d_out * BYTES[stored] if bias else 0)
        uncast = grads * BYTES[x.dtype] // BYTES[stored] if self.autocast else 0
        summed = d_out * BYTES[x.dtype] if bias else 0
        cached = summed if self.autocast else 0
        self.record("linear", (x,), out, kept, weight=grads, uncast_weight=uncast, bias=summed, cached=cached)
        self.hold(given)
        return out

    def weight_copy(self, count: Number, label: str) -> Tensor:
        """Autocast's copy of a weight: one a step, however often a weight that several layers share is used."""
        if self.copies is not None and label in self.copies:
            return self.copies[label]
        copy = self.new(count, self.autocast, label)
        copy.places[0][1].kind = WEIGHT_COPY
        if self.copies is not None:
            copy.places[0][1].shared = True
            self.copies[label] = copy
        return copy

    def matmul(self, x: Tensor, y: Tensor, count: Number, what: str) -> Tensor:
        """x·y of two activations: each is kept where the other needs a gradient."""
        given, (x, y) = (x, y), (self.lowered(x), self.lowered(y))
        out = self.new(count, promoted(x, y), what)
        self.record("matmul", (x, y), out, (x, y))
        self.hold(*given)
        return out

"""Record what torch's primitives save for backward, on symbolic tensors: element count, dtype and storage.

Running a layer on a `Tape` gives the storages that autograd saves (each counted once, however many nodes or views hold
it), the weight copies that autocast makes, and the nodes to replay backward for the live bytes (live.py).

The rules are autograd's (tools/autograd/derivatives.yaml in pytorch): a linear layer saves its input and its weight; a
multiplication each factor that the other's gradient needs; pow, gelu and silu the input; softmax, tanh, rsqrt, exp and
relu the result; dropout its mask; embedding and gather their indices; add, scaling by a constant, views, casts and
concatenation nothing. A view shares its base's storage, so saving a slice keeps all of it alive. Autocast's lists are
those of ATen/autocast_mode.h.

Counts may be arrays with one entry per layout: nothing here branches on a count.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import (
    ACTIVATION,
    BYTES,
    CUT,
    INPUT,
    JOINED,
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
    """Records the primitives that run on it.

    compute    dtype of linear weights, and of activations where nothing casts them
    autocast   dtype that autocast runs matmuls in, or "" when it is off
    linear_dtype  dtype of fewer than 16 bits in which linear layers save their inputs, or ""
    recomputed  what runs now is recomputed in backward: only autocast's weight copies are saved
    holds      (index of the last node that runs while a local variable refers to a tensor, that tensor)
    copies     autocast's copies of weights that several layers share, by label
    frozen     weights get no gradient: nothing is saved for it, and autocast casts them anew in each call
    """

    def __init__(self, compute: str, autocast: str = "", linear_dtype: str = "") -> None:
        self.compute = compute
        self.autocast = autocast
        self.linear_dtype = linear_dtype
        self.nodes: list[Node] = []
        self.holds: list[tuple[int, Tensor]] = []
        self.kept: list[Storage] = []
        self._known: set[int] = set()
        """Which storages are kept."""
        self.scope = ""
        self.recomputed = False
        self.copies: dict[str, Tensor] | None = None
        self.frozen = False

    def fresh(self) -> Tape:
        """Return an empty tape with the same dtypes."""
        return Tape(self.compute, self.autocast, self.linear_dtype)

    # --- storages ---

    def new(self, count: Number, dtype: str, what: str, *, no_grad: bool = False) -> Tensor:
        """Allocate a tensor."""
        return Tensor(count, dtype, ((1, Storage(f"{self.scope}/{what}", sized(count, dtype))),), no_grad)

    def given(self, count: Number, dtype: str, what: str, *, kind: str = ACTIVATION, no_grad: bool = False) -> Tensor:
        """Return a tensor that exists before the layer runs: its input, a weight, the token ids."""
        return Tensor(count, dtype, ((1, Storage(what, sized(count, dtype), kind)),), no_grad)

    def keep(self, *tensors: Tensor) -> tuple[tuple[Number, Storage], ...]:
        """Save tensors for backward; weights and the step's own inputs are not counted."""
        held: list[tuple[Number, Storage]] = []
        for tensor in tensors:
            for weight, storage in tensor.storages:
                if storage.kind in (WEIGHT, INPUT):
                    continue
                if id(storage) not in self._known:
                    self._known.add(id(storage))
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
        for_weight: Sequence[Tensor] = (),
        weight: Number = 0,
        alias: bool = False,
        scratch: Number = 0,
        broadcast: bool = False,
        uncast_weight: Number = 0,
        bias: Number = 0,
        forward_scratch: Number = 0,
        cached: Number = 0,
    ) -> Tensor:
        """Record one primitive and return its output.

        kept        what it saves for backward
        for_weight  what it saves for its weight's gradient only, before those
        weight      bytes of the gradients of weights that are no inputs; uncast_weight: before they are cast; bias: of
                    a bias among them
        alias       passes its gradient on unchanged
        broadcast   a multiplication, whose gradients are summed to the factors' sizes
        scratch, forward_scratch  temporary bytes of its backward and of its forward pass
        cached      bytes that stay in autocast's cache
        """
        if self.frozen:
            weight = uncast_weight = bias = 0
        else:
            kept = (*for_weight, *kept)
        output.no_grad = all(t.no_grad for t in inputs) and not is_array(weight) and weight == 0
        if self.recomputed:
            kept = [t for t in kept if t.storage.kind == WEIGHT_COPY]
        held = () if output.no_grad else self.keep(*kept)
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
        """Keep tensors alive up to the last recorded node: a local variable refers to them."""
        self.holds += [(len(self.nodes) - 1, tensor) for tensor in tensors]

    # --- autocast of arguments; the caller holds the originals until the operation returns ---

    def lowered(self, x: Tensor) -> Tensor:
        """Cast an argument of an operation on autocast's lower-precision list."""
        return self.cast(x, self.autocast) if self.autocast and x.dtype == "fp32" else x

    def raised(self, x: Tensor) -> Tensor:
        """Cast an argument of an operation on autocast's fp32 list."""
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
        """Multiply by a Python scalar, which saves nothing."""
        out = self.new(x.count, x.dtype, what)
        out.rows_apart = x.rows_apart
        return self.record("scale", (x,), out)

    def shift(self, x: Tensor, what: str = "shifted", dtype: str = "") -> Tensor:
        """Add a constant, whose dtype may promote the result; saves nothing and passes its gradient on."""
        wider = dtype and PROMOTION_RANK[dtype] > PROMOTION_RANK[x.dtype]
        out = self.new(x.count, dtype if wider else x.dtype, what)
        out.rows_apart = x.rows_apart
        return self.record("shift", (x,), out, alias=True)

    def rotate(self, x: Tensor) -> Tensor:
        """Run rotate_half: concatenate both halves of each head, one negated.

        Backward, each half's gradient is padded with zeros to a tensor of its own, and the two are added."""
        negated = sized(x.count // 2, x.dtype)
        return self.record(
            "rotate", (x,), self.new(x.count, x.dtype, "rotated"), scratch=x.size, forward_scratch=negated
        )

    def multiply(self, x: Tensor, y: Tensor, what: str = "product") -> Tensor:
        """Multiply elementwise, y broadcast over x; each factor is saved if the other's gradient needs it."""
        out = self.new(x.count, promoted(x, y), what)
        out.rows_apart = x.rows_apart
        kept = ([] if y.no_grad else [x]) + ([] if x.no_grad else [y])
        return self.record("mul", (x, y), out, kept, broadcast=True)

    def divide(self, x: Tensor, y: Tensor, what: str = "quotient") -> Tensor:
        """Divide elementwise by y, broadcast over x. Backward, y's gradient is −g·(x/y)/y, with two temporaries."""
        out = self.multiply(x, y, what)
        self.nodes[-1].scratch = 2 * out.size
        return out

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
        """Run erf. Backward, 2/√π·exp(−x²)·gradient allocates four temporaries."""
        return self.record("erf", (x,), self.new(x.count, x.dtype, "erf"), (x,), scratch=4 * x.size)

    def smooth(self, x: Tensor, name: str, written: bool = False) -> Tensor:
        """Run silu, gelu, … as one kernel that saves its input.

        `written`: a custom autograd function for tanh-GELU in elementary operations, with four temporaries of x's size
        live at once in forward and five in backward."""
        out = self.new(x.count, x.dtype, name)
        return self.record(name, (x,), out, (x,), scratch=4 * x.size * written, forward_scratch=3 * x.size * written)

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Run dropout, whose fused kernel saves a mask of one byte per element; return x at p = 0."""
        if not p:
            return x
        mask = self.new(x.count, "bool", "dropout mask", no_grad=True)
        return self.record("dropout", (x,), self.new(x.count, x.dtype, "dropped"), (mask,))

    def copy(self, x: Tensor, what: str) -> Tensor:
        """Copy x into contiguous memory (also a concatenation of the same total size)."""
        return self.record("copy", (x,), self.new(x.count, x.dtype, what), alias=True)

    def slice(self, x: Tensor, count: Number, apart: bool = False) -> Tensor:
        """Return a view of a part of x.

        Backward, the gradients of all parts fill one gradient of x (split, chunk), or, `apart`, each part's is padded
        to the size of x and they are added (indexing)."""
        part = x.view(count)
        part.base = None
        return self.record(CUT if apart else SLICE, (x,), part)

    def join(self, parts: Sequence[Tensor], what: str) -> Tensor:
        """Concatenate tensors. Backward, each gets a view of its part of the gradient."""
        count = parts[0].count
        for part in parts[1:]:
            count = count + part.count
        return self.record(JOINED, parts, self.new(count, parts[0].dtype, what))

    # --- normalizations and reductions ---

    def layer_norm(self, x: Tensor, rows: Number, weights: Sequence[Tensor], weight: Number) -> Tensor:
        """Run F.layer_norm, which saves its input, and mean and rstd of each row in fp32."""
        given, x = x, self.raised(x)
        mean = self.new(rows, "fp32", "mean", no_grad=True)
        rstd = self.new(rows, "fp32", "rstd", no_grad=True)
        out = self.new(x.count, x.dtype, "normalized")
        self.record("layer_norm", (x,), out, (x, mean, rstd, *weights), weight=weight)
        self.hold(given)
        return out

    def rms_norm(self, x: Tensor, rows: Number, weight: Number) -> Tensor:
        """Run F.rms_norm, which saves its input and the reciprocal RMS of each row in fp32."""
        given, x = x, self.raised(x)
        rstd = self.new(rows, "fp32", "rstd", no_grad=True)
        out = self.new(x.count, x.dtype, "normalized")
        self.record("rms_norm", (x,), out, (x, rstd), weight=weight)
        self.hold(given)
        return out

    def softmax(self, x: Tensor, dtype: str = "") -> Tensor:
        """Run softmax, which saves its result; the input is first cast to `dtype`, or to fp32 by autocast."""
        given, x = x, self.cast(x, dtype) if dtype else self.raised(x)
        out = self.new(x.count, x.dtype, "softmax")
        self.record("softmax", (x,), out, (out,))
        self.hold(given)
        return out

    # --- matmuls ---

    def linear(
        self,
        x: Tensor,
        d_in: Number,
        d_out: Number,
        bias: bool = False,
        weight: str = "",
        once: bool = True,
        copies: Number = 1,
    ) -> Tensor:
        """Run F.linear, x·Wᵀ, which saves x and autocast's copy of the weight, cast `once` per step or in each call;
        `copies`: weights, each for rows of its own."""
        stored = self.compute if not self.autocast else "fp32"
        given, x = x, self.lowered(x)
        read = self.new(x.count, self.linear_dtype, f"as {self.linear_dtype}") if self.linear_dtype else x
        kept = []
        if self.autocast and not x.no_grad:
            name = weight or "weight"
            count = copies * d_in * d_out
            kept.append(self.weight_copy(count, name) if once else self.new(count, self.autocast, name))
        out = self.new(x.count // d_in * d_out, x.dtype, "output")
        grads = copies * d_in * d_out * BYTES[stored] + (d_out * BYTES[stored] if bias else 0)
        uncast = grads * BYTES[x.dtype] // BYTES[stored] if self.autocast else 0
        summed = d_out * BYTES[x.dtype] if bias else 0
        cached = summed if self.autocast and not self.frozen else 0
        self.record(
            "linear",
            (x,),
            out,
            kept,
            for_weight=(read,),
            weight=grads,
            uncast_weight=uncast,
            bias=summed,
            cached=cached,
        )
        self.hold(given)
        return out

    def weight_copy(self, count: Number, label: str) -> Tensor:
        """Return autocast's copy of a weight, cached once per step, also for a weight that several layers share; of a
        frozen weight it makes one in each call."""
        if self.frozen:
            return self.new(count, self.autocast, label, no_grad=True)
        if self.copies is not None and label in self.copies:
            return self.copies[label]
        copy = self.new(count, self.autocast, label)
        copy.storage.kind = WEIGHT_COPY
        if self.copies is not None:
            copy.storage.shared = True
            self.copies[label] = copy
        return copy

    def matmul(self, x: Tensor, y: Tensor, count: Number, what: str) -> Tensor:
        """Multiply two activations, each saved if the other needs a gradient."""
        given, (x, y) = (x, y), (self.lowered(x), self.lowered(y))
        out = self.new(count, promoted(x, y), what)
        self.record("matmul", (x, y), out, ([] if y.no_grad else [x]) + ([] if x.no_grad else [y]))
        self.hold(*given)
        return out

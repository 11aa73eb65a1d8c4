"""Record what torch's primitives save for backward, on symbolic tensors: element count, dtype and storage.

Running a layer on a `Tape` gives the storages that autograd saves, the weight copies that autocast makes, and the nodes
to replay backward for the live bytes (live.py).

The rules are autograd's (tools/autograd/derivatives.yaml in pytorch): a linear layer saves its input and its weight; a
multiplication each factor that the other's gradient needs; pow, gelu and silu the input; softmax, tanh, rsqrt, exp and
relu the result; dropout its mask; embedding and gather their indices; add, scaling by a constant, views, casts and
concatenation nothing. A view shares its base's storage, so saving a slice keeps all of it alive. Autocast's lists are
those of ATen/autocast_mode.h.

Counts may be arrays with one entry per layout: nothing here branches on a count.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.recorder import Recorder
from napkin.autograd.tensors import (
    BYTES,
    CUT,
    DIFFERENCE,
    JOINED,
    PROMOTION_RANK,
    SLICE,
    WEIGHT_COPY,
    Tensor,
    promoted,
    sized,
)
from napkin.elementwise import Number


class Tape(Recorder):
    """Torch's primitives, each with what it saves for backward."""

    def fresh(self) -> Tape:
        """Return an empty tape with the same dtypes."""
        return Tape(self.compute, self.autocast, self.linear_dtype, self.fuses_gradients, self.shares)

    # --- elementwise ---

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.record("add", (x, y), self.new(x.count, promoted(x, y), "sum"), alias=True)

    def subtract(self, x: Tensor, y: Tensor) -> Tensor:
        """Subtract. Backward, y's gradient is a negated copy."""
        return self.record(DIFFERENCE, (x, y), self.new(x.count, promoted(x, y), "difference"), alias=True)

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

        Backward, each half's gradient is padded with zeros to a full tensor, and the two are added."""
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

    def sum(self, x: Tensor, count: Number) -> Tensor:
        """Sum rows. Backward, each row's gradient is a view of its sum's."""
        return self.record("sum", (x,), self.new(count, x.dtype, "sum"), alias=True)

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
        narrow: bool = True,
    ) -> Tensor:
        """Run F.linear, x·Wᵀ, which saves x and autocast's copy of the weight, cast `once` per step or in each call;
        `copies`: number of weights, each for different rows; `narrow`: a recipe of fewer than 16 bits takes it."""
        stored = self.compute if not self.autocast else "fp32"
        given, x = x, self.lowered(x)
        read = self.narrowed(x) if self.linear_dtype and narrow else x
        kept = []
        if self.autocast and not x.no_grad:
            name = weight or "weight"
            count = copies * d_in * d_out
            kept.append(self.weight_copy(count, name) if once else self.new(count, self.autocast, name))
        out = self.new(x.count // d_in * d_out, x.dtype, "output")
        made = 0 if self.fuses_gradients else copies * d_in * d_out
        grads = made * BYTES[stored] + (d_out * BYTES[stored] if bias else 0)
        self.record("linear", (x,), out, kept, for_weight=(read,), weight=grads, trains=True)
        if not self.frozen:
            node = self.nodes[-1]
            node.bias = d_out * BYTES[x.dtype] if bias else 0
            if self.autocast:
                node.uncast_weight = grads * BYTES[x.dtype] // BYTES[stored]
                # a copy that nothing is saved for is in the cache too
                node.cached = node.bias + copies * d_in * d_out * BYTES[x.dtype] * (x.no_grad and once)
        self.hold(given)
        return out

    def narrowed(self, x: Tensor) -> Tensor:
        """Return the copy of x in fewer bits that linear layers multiply and save: of each, or one for all."""
        _, copy = self.narrow.get(id(x), (x, None))
        if copy is None:
            copy = self.new(x.count, self.linear_dtype, f"as {self.linear_dtype}")
            copy.storage.narrowed = True
            if self.shares:
                self.narrow[id(x)] = x, copy
        return copy

    def weight_copy(self, count: Number, label: str) -> Tensor:
        """Return autocast's copy of a weight, cached once per step, even for a weight that several layers share; a
        frozen weight is copied in each call."""
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

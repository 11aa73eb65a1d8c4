"""Record primitives on symbolic tensors: nodes, the storages that autograd saves (each counted once, even if several
nodes or views hold it), local variables, and casts of arguments.

Counts may be arrays with one entry per layout: nothing here branches on a count.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import (
    ACTIVATION,
    INPUT,
    MADE_AGAIN,
    WEIGHT,
    WEIGHT_COPY,
    Node,
    Storage,
    Tensor,
    sized,
)
from napkin.elementwise import Number, is_array, maximum


class Recorder:
    """Records the primitives that run on it.

    compute    dtype of linear weights, and of activations if nothing casts them
    autocast   dtype that autocast runs matmuls in, or "" when it is off
    linear_dtype  dtype of fewer than 16 bits in which linear layers save their inputs, or ""
    recomputed  the current operations are recomputed in backward: only autocast's weight copies are saved
    holds      (index of the last node that runs while a local variable refers to a tensor, that tensor)
    remembered (index of its node, bytes) of tensors that a module refers to until it runs again
    mapped     tensors that layers share through a mapping, which refers to them as long as a layer's checkpoint does
    copies     autocast's copies of weights that several layers share, by label
    waiting    tensors of which later layers, whose backward ran before, have left a gradient
    frozen     weights get no gradient: nothing is saved for them, and autocast casts them in each call
    shares     linear layers that read the same tensor share its copy in fewer bits
    fuses_gradients  linear layers add their weights' gradients to those that are there: none is allocated
    """

    def __init__(
        self,
        compute: str,
        autocast: str = "",
        linear_dtype: str = "",
        fuses_gradients: bool = False,
        shares: bool = False,
    ) -> None:
        self.compute = compute
        self.autocast = autocast
        self.linear_dtype = linear_dtype
        self.fuses_gradients = fuses_gradients
        self.shares = shares
        self.narrow: dict[int, tuple[Tensor, Tensor]] = {}
        """What linear layers that share it copy into fewer bits, and the copy, by the id of the former."""
        self.earlier: dict[int, tuple[Tensor, Tensor]] = {}
        """Tensors, and what they were in the last micro-batch, by the id of their storage."""
        self.nodes: list[Node] = []
        self.holds: list[tuple[int, Tensor]] = []
        self.remembered: list[tuple[int, Number]] = []
        self.mapped: list[Tensor] = []
        self.waiting: list[Tensor] = []
        self.kept: list[Storage] = []
        self._known: set[int] = set()
        """Ids of the storages that are saved."""
        self.scope = ""
        self.recomputed = False
        self.copies: dict[str, Tensor] | None = None
        self.frozen = False

    # --- storages ---

    def new(self, count: Number, dtype: str, what: str, *, no_grad: bool = False) -> Tensor:
        """Allocate a tensor."""
        return Tensor(count, dtype, ((1, Storage(f"{self.scope}/{what}", sized(count, dtype))),), no_grad)

    def given(self, count: Number, dtype: str, what: str, *, kind: str = ACTIVATION, no_grad: bool = False) -> Tensor:
        """Return a tensor that exists before the layer runs: its input, a weight, the token ids."""
        return Tensor(count, dtype, ((1, Storage(what, sized(count, dtype), kind)),), no_grad)

    def of_last(self, x: Tensor) -> Tensor:
        """Return what a tensor was in the micro-batch before this one."""
        if id(x.storage) not in self.earlier:
            self.earlier[id(x.storage)] = (x, self.new(x.count, x.dtype, "of the last micro-batch", no_grad=True))
        return self.earlier[id(x.storage)][1]

    def keep(self, *tensors: Tensor) -> tuple[tuple[Number, Storage], ...]:
        """Save tensors for backward; weights, the step's own inputs, and what is computed again are not counted."""
        held: list[tuple[Number, Storage]] = []
        for tensor in tensors:
            for weight, storage in tensor.storages:
                if storage.kind in (WEIGHT, INPUT, MADE_AGAIN):
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
        trains: bool = False,
        alias: bool = False,
        scratch: Number = 0,
        broadcast: bool = False,
        forward_scratch: Number = 0,
    ) -> Tensor:
        """Record one primitive and return its output.

        kept        what it saves for backward
        for_weight  what it saves for its weight's gradient only, before those
        weight      bytes of the gradients of weights that are not inputs
        trains      it has such a weight, though its gradient may be added to one that is there
        alias       passes its gradient on unchanged
        broadcast   a multiplication, whose gradients are summed to the factors' sizes
        scratch, forward_scratch  temporary bytes of its backward and of its forward pass
        """
        if self.frozen:
            weight = 0
        else:
            kept = (*for_weight, *kept)
        learns = is_array(weight) or weight != 0 or (trains and not self.frozen)
        output.no_grad = all(t.no_grad for t in inputs) and not learns
        if self.recomputed:
            kept = [t for t in kept if t.storage.kind == WEIGHT_COPY]
        held = () if output.no_grad else self.keep(*kept)
        self.nodes.append(Node(name, tuple(inputs), output, held, weight, alias, scratch, broadcast, forward_scratch))
        return output

    def hold(self, *tensors: Tensor) -> None:
        """Keep tensors alive up to the last recorded node: a local variable refers to them."""
        self.holds += [(len(self.nodes) - 1, tensor) for tensor in tensors]

    def remember(self, size: Number) -> None:
        """Let a module refer to a tensor of the last recorded node, and to its graph, until it runs again."""
        self.remembered.append((len(self.nodes) - 1, size))

    # --- autocast of arguments; the caller holds the originals until the operation returns ---

    def lowered(self, x: Tensor) -> Tensor:
        """Cast an argument of an operation on autocast's lower-precision list."""
        return self.cast(x, self.autocast) if self.autocast and x.dtype == "fp32" else x

    def raised(self, x: Tensor) -> Tensor:
        """Cast an argument of an operation on autocast's fp32 list."""
        return self.cast(x, "fp32") if self.autocast else x

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        out = self.new(x.count, dtype, f"as {dtype}")
        out.rows_apart = x.rows_apart
        return self.record("cast", (x,), out)

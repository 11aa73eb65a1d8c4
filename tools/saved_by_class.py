"""What a class of transformers saves for backward, seen by hooks: one forward pass on the meta device."""

from __future__ import annotations

import contextlib
import re
import weakref
from typing import Any, NamedTuple

import cuda_on_meta
import torch
from autocast_on_meta import Autocast
from drawn_configs import Shape, batch_of
from peft_adapters import Adapters, adapted
from reference_class import device_of, network

KEEP_ALL = "none"
"""The recomputation that keeps everything."""


class Row(NamedTuple):
    """One storage that autograd saved."""

    module: str
    shape: tuple[int, ...]
    dtype: str
    size: int


class Held:
    """A tensor that autograd saved, for as long as the graph that wants it back lives."""

    def __init__(self, tensor: Any, key: int) -> None:
        self.tensor, self.key = tensor, key


class Measured(NamedTuple):
    """What one run of a class kept for backward."""

    rows: list[Row]
    saved: int
    casts: int


def measure(
    fields: dict[str, Any],
    precision: str,
    kernel: str,
    sequences: int,
    length: int,
    target: int = 0,
    recompute: str = KEEP_ALL,
    adapters: Adapters | None = None,
) -> Measured:
    """Run one forward pass and its loss; `target`: tokens of the decoder's sequences, if they are others; `adapters`:
    next to a frozen network."""
    cuda_on_meta.KERNEL = kernel
    model = network(fields, precision, kernel)
    if adapters:
        model = adapted(model, adapters)
    if recompute != KEEP_ALL:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    device = device_of(fields)
    with torch.device(device):
        batch = batch_of(
            Shape(fields, sequences, length, target), torch.bfloat16 if precision == "bf16" else torch.float32
        )
    if "router_dtype" in fields:  # the first pass casts the router's weights
        with torch.no_grad():
            model(**batch)
    return traced(model, batch, device, precision)


def traced(model: Any, batch: dict[str, Any], device: str, precision: str) -> Measured:
    """Run a class's forward pass, and return what autograd saves on it."""
    narrow_norms = {
        name
        for name, module in model.named_modules()
        if device == "cpu" and isinstance(module, torch.nn.LayerNorm) and precision == "bf16"
    }
    given = [tensor for tensor in batch.values() if isinstance(tensor, torch.Tensor)]
    alive = [*model.parameters(), *model.buffers(), *given]  # a storage's address is its name
    known = {tensor.untyped_storage()._cdata for tensor in alive}
    stack: list[str] = []
    hit: set[str] = set()
    experts = {name for name, _ in model.named_modules() if re.search(r"\.expert_\d+$", name)}
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: stack.append(name))
        if name in experts:
            module.register_forward_pre_hook(lambda *_, name=name: hit.add(name))
        module.register_forward_hook(lambda *_: (stack.pop(), None)[1], always_call=True)
    rows: dict[int, Row] = {}
    casts: dict[int, int] = {}
    held: weakref.WeakSet[Held] = weakref.WeakSet()
    autocast = Autocast()

    def pack(tensor: Any) -> Held:
        storage = tensor.untyped_storage()
        key = storage._cdata
        tensor = tensor.detach()  # a result that is kept would keep its own graph
        if key not in known and key not in rows and key not in casts:
            alive.append(tensor)
            if key in autocast.copies:
                casts[key] = storage.nbytes()
            else:
                where, dtype = stack[-1] if stack else "", str(tensor.dtype).removeprefix("torch.")
                wide = 2 if where in narrow_norms and tensor.shape[-1] == 1 else 1  # fp32 on CUDA, bf16 on the CPU
                rows[key] = Row(where, tuple(tensor.shape), dtype, wide * storage.nbytes())
        one = Held(tensor, key)
        held.add(one)
        return one

    with (
        torch.device(device),
        autocast if precision == "autocast" else contextlib.nullcontext(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one.tensor),
    ):
        made = model(**batch)
    if hit < experts:
        raise ValueError("an expert got no token")
    kept = {one.key for one in held}  # what no gradient passes through is gone by now
    del made
    found = [row for key, row in rows.items() if key in kept]
    return Measured(found, sum(row.size for row in found), sum(size for key, size in casts.items() if key in kept))

"""Buffers of the optimizer step, and the tensors that it updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, maximum, minimum, total, where
from napkin.footprint.local_weights import divided, optimizer_of, weights_of
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import Rank
from napkin.operations.base import Operation
from napkin.operations.roles import VOCABULARY
from napkin.training.optimizer import Optimizer
from napkin.training.optimizer_step import FUSED
from napkin.training.optimizers import OPTIMIZERS


def optimizer_temporaries(step: PreparedStep, rank: Rank) -> Number:
    """Return the bytes of the optimizer step's buffers (optimizer_step.py), sharded like the states. The weights that
    Muon leaves to AdamW are updated in a separate step."""
    setup = step.setup
    shards = where(setup.layout.zero >= 1, setup.shards, 1)
    if "optimizer" in setup.offload:
        return 0  # gradients are where the states are
    framework = setup.framework
    updated = ceil_div(rank.weights.all, shards)
    if framework.step_most:
        updated = where(setup.layout.zero >= 3, minimum(updated, framework.step_most), updated)
    own = setup.step_bytes * updated
    width = int(sized(1, setup.precision.state))
    kinds = list(tensor_sizes(step)) if setup.form != FUSED else []  # one kernel updates all in place
    found: Number = own
    for optimizer in {setup.optimizer.name: setup.optimizer, "adamw": OPTIMIZERS["adamw"]}.values():
        sizes = [(n, shape) for n, shape, used in kinds if used.name == optimizer.name]
        whole = rank.weights.all if not setup.optimizer.only_matrices else total(n for n, _ in sizes)
        found = maximum(found, ceil_div(optimizer.temporaries(setup.form, sizes, whole, width), shards))
    return found


def tensor_sizes(step: PreparedStep) -> Iterator[tuple[Number, tuple[int, ...], Optimizer]]:
    """Yield (elements on a rank, shape, optimizer) of the trained tensors in order, each layer type at most twice. A
    tied head has no tensor of its own."""
    stack, setup = step.stack, step.setup
    layers: list[Operation] = []
    first, norms_last = setup.implementation.registers_first, setup.implementation.norms_last
    before = registered(_tables_first(stack.before), first, norms_last=False) if setup.frozen is None else []
    for layer in stack.layers:
        layers += registered(layer.operations, first, norms_last) * (1 if stack.depth == 1 else 2)
    ends = stack.after if not setup.still_head else ()
    after = [op for op in ends if not (step.model.tied and op.division() == VOCABULARY)]
    for weight in (one for one in weights_of([*before, *layers, *after]) if one.trained):
        shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
        yield ceil_div(weight.count, divided(weight, setup.layout)), shape, optimizer_of(weight, setup.optimizer)


def _tables_first(operations: Sequence[Operation]) -> list[Operation]:
    """Return operations with each linear layer behind all tables of its module, which registers them first."""
    last = {_parent(op): number for number, op in enumerate(operations) if op.embeds()}
    linear = [op.linear() is not None for op in operations]
    places = [(max(n, last.get(_parent(op), n)) if linear[n] else n, linear[n]) for n, op in enumerate(operations)]
    return [operations[number] for number in sorted(range(len(operations)), key=places.__getitem__)]


def _parent(op: Operation) -> str:
    """Return the path of the module that registers an operation."""
    return op.module.rpartition(".")[0]


def registered(operations: Sequence[Operation], first: tuple[str, ...], norms_last: bool) -> list[Operation]:
    """Return operations in the order in which the class registers their weights."""

    def place(number: int) -> tuple[bool, int, bool]:
        op = operations[number]
        name = op.module.rpartition(".")[2]
        early = name in first
        if early:  # before all else of its parent
            parent = op.module.removesuffix(name)
            number = next(n for n, other in enumerate(operations) if other.module.startswith(parent))
        return norms_last and op.normalizes(), number, not early

    return [operations[number] for number in sorted(range(len(operations)), key=place)]

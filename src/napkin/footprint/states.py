"""What one rank holds of weights and of their optimizer's states, before data parallelism divides them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, ceiling, maximum, total, where
from napkin.formats import stored_bytes
from napkin.operations.base import Operation
from napkin.operations.facts import LinearLayer
from napkin.operations.implementations import Implementation
from napkin.operations.lora import (
    adapter_shards,
    kind_on,
    lora_pairs,
    module_of,
    modules_of,
    other_adapters,
    stored_format,
)
from napkin.operations.roles import EXPERT, REPLICATED, VOCABULARY
from napkin.operations.tuning import Tuning
from napkin.operations.work import Weight
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.optimizer import Optimizer, State
from napkin.training.optimizer_states import state_bytes
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.setup import Setup


def weights_of(operations: Iterable[Operation]) -> Iterator[Weight]:
    """Yield the parameter tensors of operations; those of shared blocks belong to their owner."""
    for op in operations:
        yield from op.weights()


@record
class HeldWeights:
    """Weights on one rank before data parallelism shards them.

    dense, expert  elements of trained weights; those of experts are separate, for fewer ranks shard them
    states         (name, bytes of dense weights, bytes of experts) of the optimizer's states
    frozen         bytes of weights that are not trained, which `dense` and `expert` do not count
    wide           of the dense elements, those that stay in fp32 where the others, and their gradients, are narrower
    saved          of the dense elements, those next to adapters that have, with gradients, the frozen weights' type
    saved_width    bytes of each of them
    idle           elements of adapters that no gradient reaches, next to what does not run; `frozen` has their bytes
    """

    dense: Number
    expert: Number
    states: tuple[tuple[str, Number, Number], ...] = ()
    frozen: Number = 0
    wide: Number = 0
    idle: Number = 0
    saved: Number = 0
    saved_width: Number = 0

    @property
    def all(self) -> Number:
        return self.dense + self.expert

    def widened(self, width: Number) -> Number:
        """Return the bytes of elements in a type of their own beyond `width` bytes for each."""
        return self.wide * (sized(1, "fp32") - width) + self.typed(width)

    def typed(self, width: Number) -> Number:
        """Return the same, only of those in the frozen weights' type."""
        return self.saved * (self.saved_width - width)

    def gradients(self, width: Number) -> Number:
        """Return the bytes of all gradients, of `width` bytes but for elements in a type of their own."""
        return self.all * width + self.widened(width)


def divided(weight: Weight, layout: Layout) -> Number:
    """Return over how many ranks tensor and expert parallelism divide a weight."""
    if weight.shard == EXPERT:
        return layout.ep * layout.etp
    return 1 if weight.shard == REPLICATED else layout.tp


def stays_wide(op: Operation, weight: Weight, setup: Setup) -> bool:
    """Return whether a weight stays in fp32 where the model is loaded in a 16-bit type, and trained in it: under
    autocast all weights are fp32, and engines with a master copy cast all of them."""
    precision, implementation = setup.precision, setup.implementation
    loaded = precision.frozen or precision.param
    if loaded not in ("bf16", "fp16") or precision.autocast or precision.master is not None:
        return False
    found = implementation.fp32_weights + implementation.fp16_excepts * (loaded == "fp16")
    path = f"{op.module or 'norm' * op.normalizes()}/{weight.name}"
    return any(path == one or (not one.startswith("/") and path.endswith(one)) for one in found)


def held_weights(operations: Iterable[Operation], setup: Setup) -> HeldWeights:
    """Return what one rank holds of these operations' weights."""
    if setup.implementation.tuning is not None:
        return tuned(tuple(operations), setup, setup.implementation.tuning)
    dense: Number = 0
    expert: Number = 0
    frozen: Number = 0
    wider: Number = 0
    states: dict[str, list[Number]] = {}
    precision = setup.precision
    for op, weight in [(one, weight) for one in operations for weight in one.weights()]:
        ways = divided(weight, setup.layout)
        part = ceil_div(weight.count, ways)
        stays = stays_wide(op, weight, setup)
        if not weight.trained:
            frozen = frozen + part * sized(1, "fp32" if stays else precision.param)
            continue
        wider = wider + part * stays
        kind = "fp32" if stays and precision.state == precision.param else precision.state
        is_expert = weight.shard == EXPERT
        dense, expert = (dense, expert + part) if is_expert else (dense + part, expert)
        shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
        wide = setup.wide_tables and weight.shard == VOCABULARY
        optimizer = OPTIMIZERS[setup.optimizer.name.removesuffix("-8bit")] if wide else setup.optimizer
        for state in optimizer_of(weight, optimizer).kept(shape):
            both = states.setdefault(state.name, [0, 0])
            size = _state_size(state, shape, "fp32" if wide else kind)
            both[is_expert] = both[is_expert] + ceil_div(size, ways)
    return HeldWeights(dense, expert, tuple((name, both[0], both[1]) for name, both in states.items()), frozen, wider)


def optimizer_of(weight: Weight, optimizer: Optimizer) -> Optimizer:
    """Return the optimizer of a weight: another one for vectors, embedding and head where it takes only matrices (as
    Muon's authors advise)."""
    if optimizer.only_matrices and (len(weight.shape) != 2 or weight.copies > 1 or weight.shard == VOCABULARY):
        return OPTIMIZERS[optimizer.rest]
    return optimizer


PROMPT = 10
"""Tokens of the prompt that an adapter's attention reads (LitGPT, adapter_prompt_length)."""


def tuned(operations: tuple[Operation, ...], setup: Setup, tuning: Tuning) -> HeldWeights:
    """Return what one rank holds of a frozen network: its weights as they are stored, and the adapters.

    lora        r·(d_in + d_out) for each target module, an embedding's rows being its d_in
    adapter     a prompt of 10 embeddings, and a gate for each head
    adapter_v2  the same, a scale and a bias of d_out for each linear layer, and the norms' weights
    saved       copies of the embedding or the head, trained in full

    Tensor and expert parallelism divide LoRA's matrices as `adapter_shards` says; the others are whole on every rank.
    """
    width = sized(1, setup.precision.frozen or setup.precision.param)
    stored = stored_bytes(tuning.quantized) if tuning.quantized else width
    trained: list[Weight] = []
    saved: list[Weight] = []
    frozen: Number = 0
    own = {op.module for op in operations if op.owner() is op}
    for op, runs in modules_of(operations):
        owner = op.owner()
        holder = op
        if owner is not op and not op.runs_again() and op.module not in own:
            holder = module_of(op)  # a module with tied weights has adapters of its own
        linear = holder.linear()
        narrow = stored_format(op if linear is None else owner, setup.implementation, tuning) != ""
        share = tuning.narrow(op.module) if narrow else 0.0
        saved += op.weights() if tuning.saves(op.role, op.module) else ()
        for weight in op.weights():
            if tuning.method == "adapter_v2" and op.normalizes():
                continue  # it is trained
            part = ceil_div(weight.count, divided(weight, setup.layout))
            kept = sized(1, "fp32") if stays_wide(op, weight, setup) else width
            matrix = len(weight.shape) > 1
            frozen = frozen + part * (stored * share + kept * (1 - share) if narrow and matrix else kept)
        frozen = frozen + _buffers(holder.linear(), setup.implementation) * runs
        added = [
            *_added(op, holder.linear(), operations, setup.implementation, tuning),
            *_others(holder, setup.implementation, tuning),
        ]
        trained += added if runs else [replace(weight, trained=False) for weight in added]
    return _of_adapters(trained, saved, ceiling(frozen), setup)


def _buffers(linear: LinearLayer | None, implementation: Implementation) -> int:
    """Return the bytes of the fp32 buffers of the adapter on a linear layer."""
    found = None if linear is None else kind_on(linear, implementation)
    return 0 if found is None else 4 * found[0].buffer(found[1])


def _added(
    op: Operation,
    linear: LinearLayer | None,
    operations: tuple[Operation, ...],
    implementation: Implementation,
    tuning: Tuning,
) -> list[Weight]:
    """Return what is trained next to an operation, which is the linear layer `linear` where that is one."""
    found: list[Weight] = []
    core = op.attends()
    if tuning.method == "adapter_v2" and op.normalizes():
        found += [Weight(weight.name, weight.shape) for weight in op.weights()]
    if linear is not None:
        pairs, made = lora_pairs(linear, operations, implementation, tuning)
        if pairs:
            found += _pair(linear.shard, 1, (tuning.rank * pairs, linear.d_in), (made, tuning.rank), tuning)
        other = kind_on(linear, implementation)
        if other is not None:
            found += [Weight(name, shape) for name, shape in other[0].weights(other[1])]
        if tuning.method == "adapter_v2":
            found += [Weight("scale", (linear.d_out,)), Weight("bias", (linear.d_out,))]
    if core is not None and tuning.method.startswith("adapter"):
        found += [Weight("prompt", (PROMPT, core.heads * core.v_dim)), Weight("gate", (core.heads,))]
    return found


def _others(op: Operation, implementation: Implementation, tuning: Tuning) -> Iterator[Weight]:
    """Yield the adapters on what is no linear layer of its own."""
    for copies, rank, d_in, d_out in other_adapters(op, implementation, tuning):
        yield from _pair(REPLICATED, copies, (copies * rank, d_in), (d_out, copies * rank), tuning)


def _of_adapters(adapters: list[Weight], saved: list[Weight], frozen: Number, setup: Setup) -> HeldWeights:
    """Return what one rank holds of adapters, and of modules that are trained in full in the frozen weights' own type,
    next to `frozen` bytes."""
    precision, layout = setup.precision, setup.layout
    own = precision.frozen or precision.param
    states: dict[str, list[Number]] = {}
    elements: list[Number] = [0, 0]
    idle: Number = 0
    for number, weight in enumerate((*adapters, *saved)):
        ways, is_expert, shape = divided(weight, layout), weight.shard == EXPERT, weight.shape
        part = ceil_div(weight.count, ways)
        if not weight.trained:
            idle = idle + part
            continue
        elements[is_expert] = elements[is_expert] + part
        kind = own if number >= len(adapters) and precision.master is None else precision.state
        for state in optimizer_of(weight, setup.optimizer).kept(shape):
            both = states.setdefault(state.name, [0, 0])
            both[is_expert] = both[is_expert] + ceil_div(_state_size(state, shape, kind), ways)
    return HeldWeights(
        elements[0],
        elements[1],
        tuple((name, both[0], both[1]) for name, both in states.items()),
        frozen + idle * sized(1, precision.param),
        idle=idle,
        saved=total(ceil_div(weight.count, divided(weight, layout)) for weight in saved),
        saved_width=sized(1, own),
    )


def _pair(shard: str, copies: int, down: tuple[int, int], up: tuple[int, int], tuning: Tuning) -> Iterator[Weight]:
    """Yield A and B of these shapes next to a layer with this shard, for `copies` experts together, and DoRA's
    vector."""
    shards = adapter_shards(shard, copies)
    yield Weight("A", down, shards[0])
    yield Weight("B", up, shards[1])
    if tuning.magnitude:
        yield Weight("magnitude", (copies * up[0],), shards[1])


def _state_size(state: State, shape: tuple[int, ...], kind: str) -> Number:
    return state_bytes(state, shape, sized(1, kind) if kind not in ("mxfp8", "mxfp4", "nvfp4") else 1)


def states_of(mine: HeldWeights, setup: Setup) -> tuple[Number, Number, tuple[tuple[str, Number], ...]]:
    """Return the bytes of parameters, gradients and optimizer states (by name) of a rank that holds these weights."""
    layout, precision = setup.layout, setup.precision
    shards = setup.shards  # of dense weights
    expert_shards = 1 if setup.framework.experts_apart else layout.with_experts(shards)

    def sharded(dense: Number, expert: Number, on: Number) -> Number:
        return where(on, ceil_div(dense, shards) + ceil_div(expert, expert_shards), dense + expert)

    weight, grad = sized(1, precision.param), sized(1, precision.grad)
    parameters = sharded(
        mine.dense * weight + mine.widened(weight) + mine.frozen, mine.expert * weight, layout.zero >= 3
    )
    more = mine.widened(grad) if precision.grad == precision.param else 0
    gradients = sharded(mine.dense * grad + more, mine.expert * grad, layout.zero >= 2)
    if setup.framework.keeps_stage:  # summed whole over a pipeline's micro-batches, reduced after the last
        gradients = where((layout.pp > 1) & (layout.zero >= 2), mine.all * grad, gradients)
    gradients = gradients + setup.framework.accumulator * mine.all
    counted = () if setup.optimizer.paged else mine.states  # the allocator sees no managed memory
    states = [(name, sharded(dense, expert, layout.zero >= 1)) for name, dense, expert in counted]
    if precision.master is not None:
        size = sized(1, precision.master)
        states.append(("master", sharded(mine.dense * size, mine.expert * size, layout.zero >= 1)))
    if "optimizer" in setup.offload:
        states = []
    if "parameters" in setup.offload:
        parameters, gradients = 0 * parameters, 0 * gradients
    if setup.ema:  # not a part of the optimizer, which may be in the host's memory
        size = sized(1, precision.state)
        states.append(("ema", sharded(mine.dense * size, mine.expert * size, layout.zero >= 1)))
    return parameters, gradients, tuple(states)


def gathered(parts: Sequence[tuple[Number, HeldWeights]]) -> HeldWeights:
    """Return the sum of (count, what one of them holds)."""
    names: dict[str, list[Number]] = {}
    for count, part in parts:
        for name, dense, expert in part.states:
            both = names.setdefault(name, [0, 0])
            both[0], both[1] = both[0] + count * dense, both[1] + count * expert
    return HeldWeights(
        total(n * p.dense for n, p in parts),
        total(n * p.expert for n, p in parts),
        tuple((name, both[0], both[1]) for name, both in names.items()),
        total(n * p.frozen for n, p in parts),
        total(n * p.wide for n, p in parts),
        total(n * p.idle for n, p in parts),
        total(n * p.saved for n, p in parts),
        maximum(0, *(p.saved_width for _, p in parts)),
    )


def still(part: HeldWeights, setup: Setup) -> HeldWeights:
    """Return a piece with its weights frozen."""
    width = sized(1, setup.precision.frozen or setup.precision.param)
    return HeldWeights(0, 0, frozen=part.gradients(width) + part.frozen)

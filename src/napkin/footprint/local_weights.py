"""The weights and optimizer states of one rank, before and after data parallelism shards them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, maximum, total, where
from napkin.operations.base import Operation
from napkin.operations.roles import EXPERT, REPLICATED, VOCABULARY
from napkin.operations.work import Weight
from napkin.record import record
from napkin.training.layout import Layout
from napkin.training.optimizer import Optimizer, State
from napkin.training.optimizer_states import state_bytes
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.setup import Setup


def weights_of(operations: Iterable[Operation]) -> Iterator[Weight]:
    """Yield the parameter tensors of operations. Weights of shared blocks are yielded only for the block that owns
    them."""
    for op in operations:
        yield from op.weights()


@record
class LocalWeights:
    """Weights on one rank before data parallelism shards them.

    dense, expert  elements of trained weights; experts are counted separately because fewer ranks shard them
    states         optimizer states as (name, bytes for dense weights, bytes for experts)
    frozen         bytes of weights that are not trained; not part of `dense` and `expert`
    scales         the part of them that ZeRO-3 does not divide and an offload leaves: scales of bitsandbytes' 4-bit
                   weights, attributes of a parameter that are no parameters (nn/modules.py, Linear4bit, quant_state)
    wide           dense elements that stay in fp32 while the others and their gradients are in 16 bits
    saved          dense elements trained in full next to adapters (modules_to_save), with the frozen weights' dtype
    saved_width    bytes of one such element
    idle           elements of adapters of modules that do not run, which get no gradient; `frozen` has their bytes
    """

    dense: Number
    expert: Number
    states: tuple[tuple[str, Number, Number], ...] = ()
    frozen: Number = 0
    wide: Number = 0
    idle: Number = 0
    saved: Number = 0
    saved_width: Number = 0
    scales: Number = 0

    @property
    def all(self) -> Number:
        return self.dense + self.expert

    def widened(self, width: Number) -> Number:
        """Return the bytes that `wide` and `saved` elements take beyond `width` bytes each (negative: fewer)."""
        return self.wide * (sized(1, "fp32") - width) + self.typed(width)

    def typed(self, width: Number) -> Number:
        """Return the same for the `saved` elements only."""
        return self.saved * (self.saved_width - width)

    def gradients(self, width: Number) -> Number:
        """Return the bytes of all gradients: `width` bytes each, except for `wide` and `saved` elements."""
        return self.all * width + self.widened(width)


class StateBytes:
    """Sums the bytes of the optimizer states by name, for dense weights and for experts."""

    def __init__(self) -> None:
        self._sizes: dict[str, list[Number]] = {}

    def add(self, name: str, size: Number, expert: bool = False) -> None:
        """Add the bytes of a state; expert: the state belongs to the weights of experts."""
        both = self._sizes.setdefault(name, [0, 0])
        both[expert] = both[expert] + size

    def listed(self) -> tuple[tuple[str, Number, Number], ...]:
        """Return (name, bytes for dense weights, bytes for experts) of each state."""
        return tuple((name, dense, expert) for name, (dense, expert) in self._sizes.items())


def divided(weight: Weight, layout: Layout) -> Number:
    """Return the number of ranks over which tensor and expert parallelism shard a weight."""
    if weight.shard == EXPERT:
        return layout.ep * layout.etp
    return 1 if weight.shard == REPLICATED else layout.tp


def stays_fp32(op: Operation, weight: Weight, setup: Setup) -> bool:
    """Return whether a weight stays in fp32 although the model is loaded and trained in a 16-bit dtype. Under autocast
    all weights are fp32, and with an fp32 master copy all weights are cast to 16 bits."""
    precision, implementation = setup.precision, setup.implementation
    loaded = precision.frozen or precision.param
    if loaded not in ("bf16", "fp16") or precision.autocast or precision.master is not None:
        return False
    found = implementation.fp32_weights + implementation.fp16_excepts * (loaded == "fp16")
    path = f"{op.module or 'norm' * op.normalizes()}/{weight.name}"
    return any(path == one or (not one.startswith("/") and path.endswith(one)) for one in found)


def optimizer_of(weight: Weight, optimizer: Optimizer) -> Optimizer:
    """Return the optimizer of a weight. An optimizer that takes only matrices, such as Muon, leaves vectors, the
    embedding and the head to another one, as Muon's authors advise."""
    if optimizer.only_matrices and (len(weight.shape) != 2 or weight.copies > 1 or weight.shard == VOCABULARY):
        return OPTIMIZERS[optimizer.rest]
    return optimizer


def state_size(state: State, shape: tuple[int, ...], kind: str) -> Number:
    """Return the bytes of one optimizer state of a tensor with this shape, in a number format."""
    return state_bytes(state, shape, sized(1, kind) if kind not in ("mxfp8", "mxfp4", "nvfp4") else 1)


def expert_shards(setup: Setup) -> Number:
    """Return the ranks over which ZeRO divides the states of experts."""
    return 1 if setup.framework.experts_apart else setup.layout.with_experts(setup.shards)


def states_of(mine: LocalWeights, setup: Setup) -> tuple[Number, Number, tuple[tuple[str, Number], ...]]:
    """Return the bytes of the parameters, the gradients and the optimizer states (by name) of a rank with these
    weights, after sharding."""
    layout, precision = setup.layout, setup.precision

    def sharded(dense: Number, expert: Number, on: Number) -> Number:
        return where(on, ceil_div(dense, setup.shards) + ceil_div(expert, expert_shards(setup)), dense + expert)

    weight, grad = sized(1, precision.param), sized(1, precision.grad)
    divides = mine.dense * weight + mine.widened(weight) + mine.frozen - mine.scales
    parameters = sharded(divides, mine.expert * weight, layout.zero >= 3) + mine.scales
    more = mine.widened(grad) if precision.grad == precision.param else 0
    gradients = sharded(mine.dense * grad + more, mine.expert * grad, layout.zero >= 2)
    if setup.framework.keeps_stage:  # summed whole over a pipeline's micro-batches, reduced after the last
        gradients = where((layout.pp > 1) & (layout.zero >= 2), mine.all * grad, gradients)
    gradients = gradients + setup.accumulator * mine.all
    counted = () if setup.optimizer.paged else mine.states  # the allocator sees no managed memory
    states = [(name, sharded(dense, expert, layout.zero >= 1)) for name, dense, expert in counted]
    if precision.master is not None:
        size = sized(1, precision.master)
        states.append(("master", sharded(mine.dense * size, mine.expert * size, layout.zero >= 1)))
    if "optimizer" in setup.offload:
        states = []
    if "parameters" in setup.offload:
        parameters, gradients = 0 * parameters + mine.scales, 0 * gradients
    if setup.ema:  # not a part of the optimizer, which may be in the host's memory
        size = sized(1, precision.state)
        states.append(("ema", sharded(mine.dense * size, mine.expert * size, layout.zero >= 1)))
    return parameters, gradients, tuple(states)


def sum_weights(parts: Sequence[tuple[Number, LocalWeights]]) -> LocalWeights:
    """Return the sum of count × weights over pairs (count, weights)."""
    states = StateBytes()
    for count, part in parts:
        for name, dense, expert in part.states:
            states.add(name, count * dense)
            states.add(name, count * expert, expert=True)
    return LocalWeights(
        total(n * p.dense for n, p in parts),
        total(n * p.expert for n, p in parts),
        states.listed(),
        total(n * p.frozen for n, p in parts),
        total(n * p.wide for n, p in parts),
        total(n * p.idle for n, p in parts),
        total(n * p.saved for n, p in parts),
        maximum(0, *(p.saved_width for _, p in parts)),
        total(n * p.scales for n, p in parts),
    )


def as_frozen(part: LocalWeights, setup: Setup) -> LocalWeights:
    """Return the same weights, all frozen."""
    width = sized(1, setup.precision.frozen or setup.precision.param)
    return LocalWeights(0, 0, frozen=part.gradients(width) + part.frozen, scales=part.scales)

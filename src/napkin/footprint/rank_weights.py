"""The weights of a model on one rank (parameters, gradients and optimizer states of each part): of its operations,
trained or frozen with adapters, and of all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, ceiling, is_array, total, where
from napkin.footprint.local_weights import (
    LocalWeights,
    StateBytes,
    as_frozen,
    divided,
    optimizer_of,
    state_size,
    stays_fp32,
    sum_weights,
)
from napkin.footprint.submodels import tower_part
from napkin.formats import scale_bytes, stored_bytes
from napkin.operations.adapters.lora import (
    adapter_shards,
    in_layer,
    kind_on,
    lora_pairs,
    module_of,
    modules_of,
    other_adapters,
    stored_format,
)
from napkin.operations.base import Operation
from napkin.operations.facts import LinearLayer
from napkin.operations.implementations import Implementation
from napkin.operations.model import Layer, Model, Stack
from napkin.operations.roles import EXPERT, REPLICATED, TOKEN, VOCABULARY
from napkin.operations.work import Weight
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.setup import Setup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.tuning import Tuning


def local_weights(operations: Iterable[Operation], setup: Setup) -> LocalWeights:
    """Return the weights of these operations on one rank."""
    if setup.implementation.tuning is not None:
        return tuned(tuple(operations), setup, setup.implementation.tuning)
    dense: Number = 0
    expert: Number = 0
    frozen: Number = 0
    wider: Number = 0
    states = StateBytes()
    precision = setup.precision
    for op, weight in [(one, weight) for one in operations for weight in one.weights()]:
        ways = divided(weight, setup.layout)
        part = ceil_div(weight.count, ways)
        stays = stays_fp32(op, weight, setup)
        if not weight.trained:
            frozen = frozen + part * sized(1, "fp32" if stays else precision.param)
            continue
        wider = wider + part * stays
        kind = "fp32" if stays and precision.state == precision.param else precision.state
        is_expert = weight.shard == EXPERT
        dense, expert = (dense, expert + part) if is_expert else (dense + part, expert)
        shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
        wide = setup.wide_tables and weight.shard == VOCABULARY
        optimizer = OPTIMIZERS[setup.optimizer.unquantized] if wide else setup.optimizer
        for state in optimizer_of(weight, optimizer).kept(shape):
            states.add(state.name, ceil_div(state_size(state, shape, "fp32" if wide else kind), ways), is_expert)
    return LocalWeights(dense, expert, states.listed(), frozen, wider)


PROMPT = 10
"""Prompt tokens that an adapter's attention reads (LitGPT, adapter_prompt_length)."""


def tuned(operations: tuple[Operation, ...], setup: Setup, tuning: Tuning) -> LocalWeights:
    """Return the weights of a frozen network on one rank: those as stored, and the adapters.

    lora        r·(d_in + d_out) for each target module, an embedding's rows being its d_in
    adapter     a prompt of 10 embeddings, and a gate for each head, in layers that read one
    adapter_v2  the same, a scale and a bias of d_out for each linear layer, and the norms' weights
    saved       copies of the embedding or the head, trained in full

    Tensor and expert parallelism divide LoRA's matrices as `adapter_shards` says; other adapters are replicated on
    every rank."""
    width = sized(1, setup.precision.frozen or setup.precision.param)
    stored = stored_bytes(tuning.quantized) if tuning.quantized else width
    apart = scale_bytes(tuning.quantized) if tuning.quantizer.scales_apart else 0.0
    trained: list[Weight] = []
    saved: list[Weight] = []
    frozen: Number = 0
    scales: Number = 0
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
            if tuning.affine and op.normalizes():
                continue  # it is trained
            part = ceil_div(weight.count, divided(weight, setup.layout))
            kept = sized(1, "fp32") if stays_fp32(op, weight, setup) else width
            matrix = len(weight.shape) > 1
            frozen = frozen + part * (stored * share + kept * (1 - share) if narrow and matrix else kept)
            scales = scales + part * apart * share * matrix
        other = kind_on(holder, setup.implementation)
        if other is not None:
            frozen = frozen + 4 * other[0].buffer(other[1]) * runs  # in fp32
        added = [
            *_added(op, linear, operations, setup.implementation, tuning),
            *(Weight(name, shape) for name, shape in (other[0].weights(other[1]) if other is not None else ())),
            *_others(holder, setup.implementation, tuning),
        ]
        trained += added if runs else [replace(weight, trained=False) for weight in added]
    return replace(_of_adapters(trained, saved, ceiling(frozen), setup), scales=ceiling(scales))


def _added(
    op: Operation,
    linear: LinearLayer | None,
    operations: tuple[Operation, ...],
    implementation: Implementation,
    tuning: Tuning,
) -> list[Weight]:
    """Return the adapters of LoRA and LitGPT on an operation; linear: the same operation if it is a linear layer."""
    found: list[Weight] = []
    core = op.attends()
    if tuning.affine and op.normalizes():
        found += [Weight(weight.name, weight.shape) for weight in op.weights()]
    if linear is not None:
        pairs, made = lora_pairs(linear, operations, implementation, tuning)
        if pairs:
            rank = tuning.rank_of(linear.module)
            found += _pair(linear.shard, 1, (rank * pairs, linear.d_in), (made, rank), tuning)
        if tuning.affine:
            found += [Weight("scale", (linear.d_out,)), Weight("bias", (linear.d_out,))]
    if core is not None and tuning.prompted:
        found += [Weight("prompt", (PROMPT, core.heads * core.v_dim)), Weight("gate", (core.heads,))]
    return found


def _others(op: Operation, implementation: Implementation, tuning: Tuning) -> Iterator[Weight]:
    """Yield the adapters on operations that are not separate linear layers."""
    for copies, rank, d_in, d_out in other_adapters(op, implementation, tuning):
        yield from _pair(REPLICATED, copies, (copies * rank, d_in), (d_out, copies * rank), tuning)


def _of_adapters(adapters: list[Weight], saved: list[Weight], frozen: Number, setup: Setup) -> LocalWeights:
    """Return the adapters on one rank, and the modules that are trained in full in the frozen weights' dtype, in
    addition to `frozen` bytes."""
    precision, layout = setup.precision, setup.layout
    own = precision.frozen or precision.param
    states = StateBytes()
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
            states.add(state.name, ceil_div(state_size(state, shape, kind), ways), is_expert)
    return LocalWeights(
        elements[0],
        elements[1],
        states.listed(),
        frozen + idle * sized(1, precision.param),
        idle=idle,
        saved=total(ceil_div(weight.count, divided(weight, layout)) for weight in saved),
        saved_width=sized(1, own),
    )


def _pair(shard: str, copies: int, down: tuple[int, int], up: tuple[int, int], tuning: Tuning) -> Iterator[Weight]:
    """Yield A and B with these shapes for a layer with this shard, for `copies` experts together, and DoRA's vector."""
    shards = adapter_shards(shard, copies, tuning.divided)
    yield Weight("A", down, shards[0])
    yield Weight("B", up, shards[1])
    if tuning.magnitude:
        yield Weight("magnitude", (copies * up[0],), shards[1])


@record
class Weights:
    """The weights of a model on one rank.

    before  operations before the layers       layers  one layer of each type
    after   operations after the layers        shared  weights that several layers share
    head    `after`, with the embedding if both are tied
    table   the embedding that a tied head shares
    """

    before: LocalWeights
    layers: tuple[LocalWeights, ...]
    after: LocalWeights
    shared: LocalWeights | None
    head: LocalWeights
    table: LocalWeights


_KNOWN: list[tuple[Model, Stack, tuple[Setup, tuple[Layer, ...]], Weights]] = []
"""The last weights of single layouts. A step and its remedies often differ only in what divides no weights."""
KEPT_WEIGHTS = 4


def weights_on_a_rank(model: Model, stack: Stack, setup: Setup, kinds: Iterable[Layer]) -> Weights:
    """Return the weights on a rank, before data parallelism shards them; of the layout they depend on four degrees."""
    at = setup.layout
    divided = Layout(seq=1, tp=at.tp, pp=at.pp, ep=at.ep, etp=at.etp)
    asked = replace(setup, layout=divided, save="", widths=()), tuple(kinds)
    if any(is_array(degree) for degree in (at.tp, at.pp, at.ep, at.etp)):
        return _weights_on_a_rank(model, stack, *asked)
    for of, within, before, weights in _KNOWN:
        if of is model and within is stack and before == asked:
            return weights
    weights = _weights_on_a_rank(model, stack, *asked)
    _KNOWN[:] = [*_KNOWN[1 - KEPT_WEIGHTS :], (model, stack, asked, weights)]
    return weights


def _weights_on_a_rank(model: Model, stack: Stack, setup: Setup, kinds: Iterable[Layer]) -> Weights:
    """Return the same. A tied head shares the embedding's matrix, and is frozen with it; on another pipeline stage it
    is a copy."""
    after = head = local_weights(stack.after, setup if not model.tied else _as_tied(setup))
    table = local_weights((table_of(stack),), bare(setup))
    if model.tied:
        single, still_head = where(setup.layout.pp == 1, 1, 0), setup.frozen is not None
        both = 1 if still_head else single
        minus = tuple((n, -d * both, -e * both) for n, d, e in table.states)
        states = sum_weights([(1, after), (1, LocalWeights(0, 0, minus))]).states
        copied = table.gradients(sized(1, setup.precision.param)) * (1 - single) * still_head
        frozen = after.frozen - both * table.frozen + copied
        dense = after.dense - both * table.dense
        after = replace(after, dense=dense, states=states, frozen=frozen)
        if still_head:
            head, table = after, LocalWeights(0, 0)
    if setup.still_head:
        head = after = as_frozen(after, setup)
    seen = _of_tower(model, stack)
    layers = []
    for layer in kinds:
        run = setup.tower if id(layer) in seen else in_layer(setup.implementation, layer)
        part = local_weights(layer.operations, replace(setup, implementation=run))
        layers.append(part if layer.read else _unread(part, setup))
    once = any(op.runs_again() for layer in stack.layers for op in layer.operations)
    shared = local_weights(model.shared, setup if once else bare(setup)) if model.shared else None
    return Weights(_before(model, stack, setup), tuple(layers), after, shared, head, table)


def _unread(part: LocalWeights, setup: Setup) -> LocalWeights:
    """Return the weights of a layer whose output is unused: no gradient reaches its weights or adapters."""
    adapters = part.all if setup.implementation.tuning is not None else 0
    return replace(as_frozen(part, setup), idle=part.idle + adapters)


def _of_tower(model: Model, stack: Stack) -> set[int]:
    """Return which layers of the joined stack are the tower's and the projector's."""
    return {id(layer) for _, runs in stack.patterns[: tower_part(model).patterns] for _, layer in runs}


def _before(model: Model, stack: Stack, setup: Setup) -> LocalWeights:
    """Return the weights before the layers on a rank."""
    seen = tower_part(model).before
    own = local_weights(stack.before[seen:], setup)
    own = own if setup.frozen is None else as_frozen(own, setup)
    tuning = setup.implementation.tuning
    if tuning is not None and tuning.shared:
        own = replace(own, frozen=own.frozen + tuning.shared * sized(1, setup.precision.param))
    if not seen:
        return own
    tower = local_weights(stack.before[:seen], replace(setup, implementation=setup.tower))
    return sum_weights([(1, own), (1, tower if not setup.freezes else as_frozen(tower, setup))])


def bare(setup: Setup) -> Setup:
    """Return the setup without adapters. Adapters of a weight that several modules share belong to each module."""
    tuning = setup.implementation.tuning
    if tuning is None:
        return setup
    return replace(
        setup, implementation=replace(setup.implementation, tuning=replace(tuning, method="frozen", saved=()))
    )


def _as_tied(setup: Setup) -> Setup:
    """Return the setup in which a tied head is stored like the embedding."""
    wide = tuple(name for name in setup.implementation.fp32_weights if not name.startswith("lm_head"))
    return replace(setup, implementation=replace(setup.implementation, fp32_weights=wide))


def table_of(stack: Stack) -> Operation:
    """Return the token embedding that a tied head shares: a decoder's own, or the one shared with its encoder."""
    tables = [op for op in stack.before if op.embeds() == TOKEN]
    return tables[-1] if tables else stack.before[0]

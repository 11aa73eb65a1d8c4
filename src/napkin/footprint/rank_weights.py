"""The weights of a model on one rank: parameters, gradients and optimizer states of each part."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.autograd.tensors import sized
from napkin.elementwise import is_array, where
from napkin.footprint.local_weights import LocalWeights, as_frozen, sum_weights
from napkin.footprint.states import local_weights
from napkin.footprint.submodels import tower_part
from napkin.operations.adapters.lora import in_layer
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model, Stack
from napkin.operations.roles import TOKEN
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.setup import Setup


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

"""Models that only run forward in a training step (reference, reward): their weights, and the phase of their pass."""

from __future__ import annotations

from napkin.autograd.control_flow import on_another_tape
from napkin.autograd.tensors import sized
from napkin.elementwise import Flag, Number, ceil_div, is_array, maximum, product, total, where
from napkin.footprint.local_weights import LocalWeights, states_of, sum_weights
from napkin.footprint.prepared import PreparedStep, pass_of, stack_of_step
from napkin.footprint.rank import Made
from napkin.footprint.rank_weights import weights_on_a_rank
from napkin.footprint.sections import Pass
from napkin.footprint.stages import Stage
from napkin.operations.losses import LOSSES
from napkin.record import replace
from napkin.training.setup import Setup
from napkin.training.tasks import ForwardPass


def held_models(step: PreparedStep, mine: LocalWeights) -> Made:
    """Return the weight bytes of each other model on a rank that holds `mine` of the trained model."""
    return tuple((one.name, _held(one, step, mine)) for one in step.setup.forwards if one.held)


def _held(one: ForwardPass, step: PreparedStep, mine: LocalWeights) -> Number:
    """Return the bytes of a model's weights on a rank, divided like the trained model's; with gradients and optimizer
    states if it is trained as well.

    It is sharded under ZeRO-3, and replicated in lower stages (trl/models/utils.py, prepare_deepspeed,
    prepare_fsdp)."""
    setup = step.setup
    if one.model is not None:
        mine = _whole(one, setup)
    if one.trained:
        parameters, gradients, states = states_of(mine, setup)
        return parameters + gradients + total(size for _, size in states)
    width = sized(1, one.dtype or setup.precision.frozen or setup.precision.param)
    trained = setup.implementation.tuning is None or one.model is not None
    dense = (mine.dense * width + mine.widened(width)) * trained + mine.frozen
    expert = mine.expert * width * trained
    shards = setup.shards
    over = ceil_div(dense, shards) + ceil_div(expert, setup.layout.with_experts(shards))
    return where(setup.layout.zero >= 3, over, dense + expert)


def _whole(one: ForwardPass, setup: Setup) -> LocalWeights:
    """Return the weights of another model on a rank, without a pipeline."""
    model, bare = one.model, _alone(setup)
    assert model is not None
    stack = stack_of_step(model, bare)
    kinds = tuple({id(layer): layer for _, layer in stack.runs}.values())
    held = weights_on_a_rank(model, stack, bare, kinds)
    counts = {id(layer): 0 for layer in kinds}
    for count, layer in stack.runs:
        counts[id(layer)] += count
    layers = [(counts[id(layer)], part) for layer, part in zip(kinds, held.layers, strict=True)]
    shared = [(1, held.shared)] if held.shared is not None else []
    return sum_weights([(1, held.before), *layers, (1, held.after), *shared])


def _alone(setup: Setup) -> Setup:
    """Return the setup of another model: nothing is frozen, adapted or recomputed, and its loss materializes logits."""
    plain = replace(setup.implementation, tuning=None)
    return replace(setup, implementation=plain, frozen=None, asleep="", forwards=())


def pass_peak(step: PreparedStep, stage: Stage) -> Number:
    """Return the peak bytes of passes without gradients that run while the activations of the trained model are live,
    including the logits that the loss holds; 0 if there are none."""
    form = LOSSES[step.setup.implementation.loss]
    held = _of(form.local, product(stage.last, logits_of(step.model.logits, step.setup)))
    return maximum(0, *(held + peak_of(one, step, stage) for one in step.setup.forwards if not one.first))


def peak_of(one: ForwardPass, step: PreparedStep, stage: Stage) -> Number:
    """Return the larger of the peak of a pass's head with the loss, and of a layer's pass that saves nothing."""
    setup = step.setup
    form = LOSSES[setup.implementation.loss]
    model = one.model or step.model
    run: Pass = step.run
    if one.model is not None:
        alone = _alone(setup)
        with on_another_tape(*_groups(alone.layout.micro)):
            run = pass_of(model, stack_of_step(model, alone), alone)
    layer = maximum(0, *(section.dropped for _, section in run.layers))
    its = product(stage.last, logits_of(model.logits, setup))
    chunk = run.after.burst - run.after.saved if form.parts is not None else _of(form.again, its)
    return maximum(layer, total((run.after.input, product(stage.last, chunk))))


def _groups(micro: Number) -> list[Flag]:
    """Return the masks of the layouts with micro-batches of one sequence and of several, if there are both."""
    one = micro == 1
    return [one, micro != 1] if is_array(one) and one.any() and not one.all() else []


def logits_of(outputs: int, setup: Setup) -> Number:
    """Return the logits of a micro-batch on one rank, in elements."""
    layout = setup.layout
    rows = outputs // layout.tp if setup.implementation.parallel_loss else outputs
    return layout.sequences * ((layout.scored or layout.seq) // layout.cp) * rows


def _of(each: float, logits: Number) -> Number:
    """Return the bytes of logits; `each`: quarter bytes per logit."""
    return logits * int(4 * each) // 4

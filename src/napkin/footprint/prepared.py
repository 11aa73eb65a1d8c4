"""One model's pass on the tape and its metadata, prepared once for all stages of a pipeline."""

from __future__ import annotations

from napkin.autograd.live import Replay
from napkin.autograd.tensors import sized
from napkin.elementwise import Number, is_array, where
from napkin.footprint import activations
from napkin.footprint.rank_weights import Weights, weights_on_a_rank
from napkin.footprint.replays import AFTER, BEFORE, Replays
from napkin.footprint.sections import Pass
from napkin.footprint.submodels import PROJECTOR, VISION, TowerPart, joined, submodels_of, tower_part
from napkin.operations.frozen import Reach
from napkin.operations.model import Model, Stack
from napkin.operations.shapes import Shape, Split
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.order import Order, order_of
from napkin.training.setup import Setup


@record
class PreparedStep:
    """A training step recorded on the tape: what all stages of a pipeline share.

    run     the forward pass; `before` and `after` have the replays of the operations outside the layers
    first   the replay of the first layer, which frees what layers share
    """

    model: Model
    stack: Stack
    setup: Setup
    run: Pass
    replays: Replays
    before: Replay
    after: Replay
    weights: Weights
    order: Order
    first: Replay | None = None

    def replay(self, kind: int, recomputed: bool) -> Replay:
        """Return the replay of a layer."""
        return self.replays.of(self.setup, kind, recomputed=recomputed)

    def carrying(self, kind: int, recomputed: bool) -> Replay | None:
        """Return the replay of a layer that adds to gradients of later layers; None if there is none."""
        if not self.replays.shares(kind):
            return None
        return self.replays.of(self.setup, kind, recomputed=recomputed, carried=True)

    def under(self, setup: Setup) -> PreparedStep:
        """Return the same step under another setup that does not change the tape."""
        weights = weights_on_a_rank(self.model, self.stack, setup, self.run.kinds)
        return replace(self, setup=setup, weights=weights, order=order_of_run(self.model, self.run, setup))


def prepare(model: Model, setup: Setup) -> PreparedStep:
    """Run the model once on the tape, forward and backward."""
    held = setup.held(model)
    stack = stack_of_step(held, setup)
    run = pass_of(model, stack, setup)
    weights = weights_on_a_rank(held, stack, setup, run.kinds)
    return step_of(held, stack, setup, Replays(run, table_gradient(held, setup, weights)), weights)


def table_gradient(model: Model, setup: Setup, weights: Weights) -> Number:
    """Return the bytes of the gradient of the embedding that a tied head shares, 0 without one or if it is frozen."""
    return weights.table.all * sized(1, setup.precision.grad) * model.tied


def stack_of_step(model: Model, setup: Setup) -> Stack:
    """Return the stack that a step runs."""
    stack = _frozen(joined(model), model, setup)
    return cropped(stack, setup.layout.seq) if setup.implementation.crops else stack


def _frozen(stack: Stack, model: Model, setup: Setup) -> Stack:
    """Return the stack with frozen operations marked."""
    if setup.implementation.tuning is None and not setup.freezes and not setup.still_head:
        return stack
    from napkin.operations.trained import (
        adapted_in,
        with_first_trained,
        with_frozen_embedding,
        with_frozen_end,
        with_frozen_head,
        with_frozen_layers,
    )

    tuning = setup.implementation.tuning
    if tuning is not None and tuning.prompted:
        from napkin.operations.tuning import FIRST_PROMPTED

        stack = adapted_in(stack, range(FIRST_PROMPTED[tuning.method], stack.depth))
    if model.tied and setup.frozen is not None:
        stack = with_frozen_head(stack)
    if setup.still_head:
        stack = with_frozen_end(stack)
    if model.vision is None and len(model.stacks) == 1:
        reach = reach_of_step(model, setup)
        if setup.frozen is not None:
            stack = with_frozen_embedding(stack, setup.wakes)
        if setup.wakes and setup.frozen is not None:
            stack = with_frozen_layers(stack, setup.frozen)
        elif reach.begins:
            stack = with_first_trained(stack, reach.untouched)
    return stack


def step_of(model: Model, stack: Stack, setup: Setup, replays: Replays, weights: Weights) -> PreparedStep:
    """Return the step whose pass is on the tape."""
    run = replays.run
    return PreparedStep(
        model,
        stack,
        setup,
        run,
        replays,
        replays.of(setup, BEFORE),
        replays.of(setup, AFTER),
        weights,
        order_of_run(model, run, setup),
        first=_first(run, setup, replays),
    )


_PASSES: list[tuple[Model, tuple[object, ...], Pass]] = []
"""The last passes of single layouts, each with its model and other inputs. Remedies and rows of a plan often differ
only in sharding, which does not change the tape."""
KEPT_PASSES = 8


def pass_of(model: Model, stack: Stack, setup: Setup) -> Pass:
    """Return the forward pass of a model on the tape, from the cache if an earlier step ran the same."""
    layout, reach = setup.layout, reach_of_step(model, setup)
    split = Split(
        layout.tp,
        layout.cp,
        layout.ep,
        where(layout.sp == 1, layout.tp, 1),
        layout.etp,
        layout.expert_load,
        layout.ulysses,
    )
    shape = shape_of(model, layout)
    implementation = setup.running
    if model.next_token and implementation.causal_loss:
        implementation = replace(implementation, fp32_loss=True, shifted=True)
    asked = (
        implementation,
        setup.tower,
        shape,
        split,
        setup.layers_in,
        setup.attention,
        setup.dropout,
        layout.recompute.parts,
        reach,
        setup.wakes,
    )
    several = any(is_array(number) for part in (shape, split) for number in part.__dict__.values())
    if not several:
        for known, before, run in _PASSES:
            if known is model and before == asked:
                return run
    asleep = _part_asleep(tower_part(model), reach.untouched)
    submodels = submodels_of(model, implementation, setup.tower, shape, split, asleep)
    if len(submodels) == 1:
        submodels = [replace(submodels[0], before=stack.before, patterns=len(stack.patterns))]
    run = activations.forward(stack, submodels, *asked[4:8], begins=reach.begins and reach.untouched == stack.depth)
    if not several:
        _PASSES[:] = [*_PASSES[1 - KEPT_PASSES :], (model, asked, run)]
    return run


def shape_of(model: Model, layout: Layout) -> Shape:
    """Return a micro-batch's sequences, with the learned tokens that the class puts before each, and its images."""
    if len(model.stacks) > 1:
        return Shape(layout.sequences, layout.target or layout.seq, layout.seq)
    lengths = model.vision.lengths(layout.image_tokens) if model.vision is not None else None
    images = layout.sequences * layout.images if layout.images else 0  # none in any of several layouts
    scored = layout.scored or int(layout.seq) * bool(model.prompt)
    return Shape(layout.sequences, layout.seq + model.prompt, 0, images, lengths or (1, 1, 1), scored)


def _first(run: Pass, setup: Setup, replays: Replays) -> Replay | None:
    """Return the first layer's replay, which frees the rotary tables; None if no layer keeps any."""
    number = next((kind for _, runs in run.patterns for _, kind in runs), None)
    if number is None or not run.layers[number][1].shared:
        return None
    return replays.of(setup, number, alone=True)


def order_of_run(model: Model, run: Pass, setup: Setup) -> Order:
    """Return the order of the layers of a pass under a setup's recomputation."""
    between = [number for number, layer in enumerate(run.kinds) if not layer.block]
    return order_of(run.patterns, setup.layout.recompute, layers_asleep(model, setup), between, setup.wakes)


def layers_asleep(model: Model, setup: Setup) -> int:
    """Return the layers of the joined stack before the first one that is trained."""
    if setup.frozen is not None and setup.wakes:
        return tower_part(model).layers + setup.frozen
    return reach_of_step(model, setup).untouched


_REACHES: list[tuple[Model, tuple[object, ...], Reach]] = []
"""For the last models: how they are trained and where their backward pass ends."""


def reach_of_step(model: Model, setup: Setup) -> Reach:
    """Return where the backward pass of a step ends."""
    tuning = setup.implementation.tuning
    if tuning is None and not setup.freezes:
        return Reach(0, False)
    if tuning is not None and (not tuning.targeted or flat(setup)):
        from napkin.operations.tuning import FROZEN_LAYERS

        return Reach(FROZEN_LAYERS.get(tuning.method, 0), False)
    asked = setup.implementation, setup.frozen, setup.asleep, setup.still_head, setup.wakes
    for known, before, reach in _REACHES:
        if known is model and before == asked:
            return reach
    from napkin.operations.trained import reach_of

    reach = reach_of(setup.trained(model))
    _REACHES[:] = [*_REACHES[1 - KEPT_PASSES :], (model, asked, reach)]
    return reach


def flat(setup: Setup) -> bool:
    """Return whether a layer's frozen weights and its adapters form one flat parameter with a gradient."""
    dp = setup.layout.dp
    return setup.framework.unsynced and (is_array(dp) or dp > 1)


def _part_asleep(part: TowerPart, untouched: int) -> str:
    """Return the last part of a multimodal model that no gradient reaches, "" for none."""
    if not part.layers or untouched < part.tower:
        return ""
    return PROJECTOR if untouched >= part.projected else VISION


def cropped(stack: Stack, length: Number) -> Stack:
    """Return the stack with its learned positions cut to the training sequence length (nanoGPT's crop_block_size)."""
    return replace(stack, before=tuple(op.cropped(int(length)) for op in stack.before))

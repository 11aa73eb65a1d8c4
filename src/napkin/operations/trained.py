"""A model as it is trained: what of its backward pass runs, and its adapters as operations of their own.

FLOPs and the time of a step are folds over the result. autograd computes the gradient of a weight if it is trained,
and of an operation's inputs if anything that they depend on is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from napkin.errors import Refused
from napkin.operations.adapters.lora import (
    in_layer,
    stored_format,
)
from napkin.operations.base import Operation
from napkin.operations.frozen import Frozen, Reach
from napkin.operations.idle import Idle
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Stack, stack_of
from napkin.operations.roles import ADAPTER, IMAGE_PROJECTOR, IMAGES, LM_HEAD, MEMORY, MERGED, TOKEN
from napkin.operations.scored import ClassLoss
from napkin.operations.work import ALL, Learning
from napkin.record import replace

VISION, PROJECTOR = "vision", "projector"
"""Parts of a multimodal model, by which they are frozen."""
STREAM = "x"
"""The name under which operations read their layer's input."""


def as_trained(model: Model, frozen: Frozen) -> Model:
    """Return the model with what is frozen marked in its operations, and its adapters among them."""
    if not frozen.anything:
        return model
    flows = False
    vision = model.vision
    if vision is not None:
        asleep = (frozen.part in (VISION, PROJECTOR), frozen.part in (VISION, PROJECTOR), frozen.part == PROJECTOR)
        parts: list[Model] = []
        for part, still in zip(vision.parts, asleep, strict=True):
            (stack,) = part.stacks
            whole = still or frozen.layers is not None
            found, flows = _stack(stack, frozen, flows, stack.depth if whole else 0, whole)
            parts.append(replace(part, stacks=(found,)))
        vision = replace(vision, patches=parts[0], tower=parts[1], projector=parts[2])
    stacks: list[Stack] = []
    outside = False
    for stack in model.stacks:
        last = stack is model.stacks[-1]
        first = frozen.layers or 0 if last else 0
        found, flows = _stack(stack, frozen, flows, first, frozen.layers is not None, outside, last and frozen.head)
        stacks.append(found)
        outside, flows = flows, False  # a decoder's stream begins anew; it reads the encoder's result
    if frozen.layers is not None and model.tied:
        stacks[-1] = with_frozen_head(stacks[-1])
    return replace(model, stacks=tuple(stacks), vision=vision)


STILL = Learning(0, 1, False)
"""Of frozen weights through which gradients pass to what is read."""


def with_frozen_head(stack: Stack) -> Stack:
    """Return a stack whose head is the embedding that is frozen."""
    after = tuple(replace(op, learning=STILL) if op.role == LM_HEAD else op for op in stack.after)
    return replace(stack, after=after)


def with_frozen_end(stack: Stack) -> Stack:
    """Return a stack of which nothing after the layers is trained."""
    return replace(stack, after=tuple(replace(op, learning=STILL) for op in stack.after))


def with_frozen_embedding(stack: Stack, wakes: bool) -> Stack:
    """Return a stack of which nothing before the layers is trained; `wakes`: the tokens' embedding is made to require a
    gradient all the same."""
    before = (op if wakes and op.embeds() == TOKEN else replace(op, learning=STILL) for op in stack.before)
    return replace(stack, before=tuple(before))


def with_frozen_layers(stack: Stack, layers: int) -> Stack:
    """Return a stack whose first layers are frozen."""
    runs: list[tuple[int, Layer]] = []
    known: dict[int, Layer] = {}
    for count, layer in stack.runs:
        fixed = min(count, layers)
        if fixed:
            still = tuple(replace(op, learning=STILL) for op in layer.operations)
            runs.append((fixed, known.setdefault(id(layer), replace(layer, operations=still))))
        if count > fixed:
            runs.append((count - fixed, layer))
        layers -= fixed
    return stack_of(stack.name, stack.before, runs, stack.after)


def with_frozen_tower(model: Model, part: str) -> Model:
    """Return a model of which this part is frozen that is known by its tensors: the tower, or the projector and with it
    the tower. Text runs neither: an optimizer keeps nothing for them then."""
    still = {VISION: (IMAGES,), PROJECTOR: (IMAGES, IMAGE_PROJECTOR)}[part]
    *others, last = model.stacks
    after = tuple(Idle(op.name, (), op.holds(), role=op.role) if op.role in still else op for op in last.after)
    return replace(model, stacks=(*others, replace(last, after=after)))


def with_adapted_layers(model: Model, layers: Collection[int]) -> Model:
    """Return a decoder with adapters on these layers only (peft's layers_to_transform)."""
    (stack,) = model.stacks
    return replace(model, stacks=(adapted_in(stack, layers),))


def adapted_in(stack: Stack, layers: Collection[int]) -> Stack:
    """Return a stack with adapters in these layers only."""
    runs: list[tuple[int, Layer]] = []
    known: dict[int, Layer] = {}
    place = 0
    for count, layer in stack.runs:
        for number in range(place, place + count):
            bare = known.setdefault(id(layer), replace(layer, adapted=False))
            runs.append((1, layer if number in layers else bare))
        place += count
    return stack_of(stack.name, stack.before, runs, stack.after)


def reach_of(trained: Model) -> Reach:
    """Return where the backward pass of a model ends, from the operations that learn (`as_trained`)."""
    pieces = list(_pieces(trained))
    count = 0
    for layers, operations in pieces:
        if any(op.learning.runs for op in operations):
            break
        count += layers
    else:
        operations = trained.stacks[-1].after
    return Reach(count, not _passes_on(operations))


def _pieces(trained: Model) -> Iterator[tuple[int, tuple[Operation, ...]]]:
    """Yield (how many, operations of one) of what runs in order before a model's head."""
    vision, (first, *_) = trained.vision, trained.stacks
    if vision is not None:
        (tower,), (projector,) = vision.tower.stacks, vision.projector.stacks
        yield from ((count, layer.operations) for count, layer in tower.runs)
        yield 1, projector.before
        # images in place: gradients pass through it where the first layer of language passes them on
        inside = next((layer.operations for _, layer in first.runs), first.after)
        yield 1, tuple(op for op in inside if set(op.reads) == {STREAM} and op.learning.inputs)
    for stack in trained.stacks:
        yield from ((count, layer.operations) for count, layer in stack.runs)
        if stack is not trained.stacks[-1] and stack.after:
            yield 1, stack.after


def _passes_on(operations: Iterable[Operation]) -> bool:
    """Return whether a gradient passes on to what a piece reads: what reads nothing else tells."""
    return any(op.learning.inputs for op in operations if set(op.reads) == {STREAM})


def with_first_trained(stack: Stack, layers: int) -> Stack:
    """Return a stack of which no gradient reaches the first layers, nor what the layer after them reads."""
    runs: list[tuple[int, Layer]] = []
    for count, layer in stack.runs:
        if 0 <= layers < count:
            runs += [(layers, layer)] * (layers > 0) + [(1, replace(layer, begins=True))]
            count -= layers + 1
            layers = -1
        elif layers >= count:
            layers -= count
        if count:
            runs.append((count, layer))
    return stack_of(stack.name, stack.before, runs, stack.after)


def _stack(
    stack: Stack, frozen: Frozen, flows: bool, still: int, asleep: bool, outside: bool = False, ends: bool = False
) -> tuple[Stack, bool]:
    """Return a stack as it is trained, and whether a gradient reaches its result.

    flows   whether gradients pass on to what is before it      outside  to what it reads of another stack
    still   this many first layers are frozen                   asleep   so is what is before the layers
    ends    so is what is after them"""
    before, flows = _operations(stack.before, frozen, asleep, flows, outside)
    flows = flows or frozen.wakes
    runs: list[tuple[int, Layer]] = []
    known: dict[tuple[int, bool, bool], tuple[Layer, bool]] = {}
    place = 0
    for count, layer in stack.runs:
        left = count
        while left:
            fixed = place < still
            key = (id(layer), flows, fixed)
            if key not in known:
                own = replace(frozen, implementation=in_layer(frozen.implementation, layer))
                operations, out = _operations(layer.operations, own, fixed, flows, outside)
                known[key] = replace(layer, operations=operations), out
            found, out = known[key]
            times = min(left, still - place) if fixed else 1 if out != flows else left
            runs.append((times, found))
            flows = out
            left, place = left - times, place + times
    after, flows = _operations(stack.after, frozen, ends, flows, outside)
    return stack_of(stack.name, before, runs, after), flows


def _operations(
    operations: tuple[Operation, ...], frozen: Frozen, asleep: bool, flows: bool, outside: bool
) -> tuple[tuple[Operation, ...], bool]:
    """Return the operations of a layer as they are trained, and whether a gradient reaches the last one's result.

    asleep  all of their weights are frozen"""
    own = {op.name for op in operations}
    reached: set[str] = set()
    found: list[Operation] = []
    tuning = frozen.implementation.tuning
    for op in operations:
        inputs = any(_reaches(name, own, reached, flows, outside) for name in op.reads)
        adapters: tuple[Operation, ...] = ()
        if tuning is None:
            has_weights = any(weight.trained for weight in op.weights())
            learning = Learning(int(not asleep), int(inputs), not asleep)
            learns = has_weights and not asleep
        else:
            from napkin.operations.adapters.placed import adapters_next_to  # few questions have adapters

            adapters = tuple(adapters_next_to(op, operations, frozen.implementation, inputs))
            merged = any(one.role == MERGED for one in adapters)
            saved = tuning.saves(op.role, op.module)
            stored = "" if saved else stored_format(op, frozen.implementation, tuning)
            learning = Learning(int(merged or saved), int(inputs), saved, stored)
            learns = bool(adapters) or saved
        if inputs or learns:
            reached.add(op.name)
        found += [op if learning == ALL else replace(op, learning=learning), *adapters]
    return tuple(found), (bool(operations) and operations[-1].name in reached) or (not operations and flows)


def _reaches(name: str, own: set[str], reached: set[str], flows: bool, outside: bool) -> bool:
    """Return whether a gradient passes on to what an operation reads: another's result, the layer's input, the other
    stack's result, or what earlier layers made."""
    if name in own:
        return name in reached
    return outside if name == MEMORY else flows


IDLE = Learning(0, 0, False)
"""Of an operation in a pass without gradients."""


def forward_only(model: Model, adapters: bool = True) -> Model:
    """Return a model as a pass without gradients runs it; adapters: with those that it has among its operations."""

    def of(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        kept = (op for op in operations if adapters or op.role not in (ADAPTER, MERGED))
        return tuple(replace(op, learning=replace(IDLE, stored=op.learning.stored)) for op in kept)

    known: dict[int, Layer] = {}
    stacks = []
    for stack in model.stacks:
        runs = [
            (count, known.setdefault(id(layer), replace(layer, operations=of(layer.operations))))
            for count, layer in stack.runs
        ]
        stacks.append(stack_of(stack.name, of(stack.before), runs, of(stack.after)))
    return replace(model, stacks=tuple(stacks))


def with_score(model: Model) -> Model:
    """Return a model whose head has a single output, a score with its own weights, and a loss over the scores of
    sequences (transformers AutoModelForSequenceClassification with num_labels 1: score, without a bias). Refused
    without a head."""
    *others, last = model.stacks
    place = next((n for n, op in enumerate(last.after) if op.role == LM_HEAD), None)
    if place is None:
        raise Refused(f"{model.name} has no head that a score could replace", "a model with a language model's head")
    head = last.after[place]
    score = Matmul("score", head.reads, model.hidden, 1, role=LM_HEAD, module="score")
    after = (*last.after[:place], score, ClassLoss("class_loss", (score.name,), 1))
    return replace(model, stacks=(*others, replace(last, after=after)), tied=False, outputs=1, extra=())

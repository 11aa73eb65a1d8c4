"""The submodels of a network, each with its own sequence length: an encoder and a decoder, or a vision tower, its
projector and the language model."""

from __future__ import annotations

from napkin.elementwise import Number, is_array
from napkin.operations.implementations import Implementation
from napkin.operations.model import Layer, Model, Pattern, Stack
from napkin.operations.rewrite import Operations
from napkin.operations.shapes import Shape, Split
from napkin.record import record, replace

VISION, PROJECTOR = "vision", "projector"
"""Parts of a multimodal model that can be frozen separately."""


@record
class SubModel:
    """One submodel.

    before    operations before its layers; they read the previous submodel's output as "x"
    patterns  number of the joined stack's patterns that belong to it
    shape     its sequences
    width     width of the residual stream that its layers read, if no operation before them produces it
    encodes   the layers of the next submodel read its output by name (cross-attention)
    asleep    nothing in it is trained, and no gradient passes through it
    idle      for a vision tower: there are no images, so it does not run
    """

    before: Operations
    patterns: int
    shape: Shape
    implementation: Implementation
    split: Split
    width: Number = 0
    encodes: bool = False
    asleep: bool = False
    idle: bool = False


def joined(model: Model) -> Stack:
    """Return all stacks as one. Operations between two stacks become a layer that is not a transformer block."""
    last = model.stacks[-1]
    if len(model.stacks) == 1 and model.vision is None:
        return last
    before = tuple(op for stack in model.stacks for op in stack.before)
    patterns: list[Pattern] = []
    for stack in model.stacks[:-1]:
        patterns += stack.patterns
        if stack.after:
            patterns.append((1, ((1, Layer(f"end of the {stack.name}", stack.after, block=False)),)))
    if model.vision is not None:
        from napkin.operations.images import PlaceImages

        (patches,), (tower,), (projector,) = (part.stacks for part in model.vision.parts)
        before = (*patches.before, *tower.before, *before)
        ends = (
            Layer(PROJECTOR, waiting(projector) if model.vision.queries else projector.before, block=False),
            Layer("images in place", (PlaceImages("placed", ("x",), model.hidden),), block=False),
        )
        patterns = [*tower.patterns, *((1, ((1, end),)) for end in ends), *patterns]
    return Stack("both", before, (*patterns, *last.patterns), last.after)


def waiting(projector: Stack) -> Operations:
    """Return the operations of a projector with layers in a text-only step, where it only has states."""
    from napkin.operations.idle import Idle
    from napkin.operations.images import Patches

    layers = (layer.operations for _, count, layer in projector.kinds() for _ in range(count))
    held = (projector.before, *layers, projector.after)
    idle = (Idle(f"waiting_{number}", (), operations, trained=True) for number, operations in enumerate(held))
    return (*idle, Patches("features", ("x",), 0))


@record
class TowerPart:
    """Counts of what precedes the language model in the joined stack.

    before     operations before the tower's layers
    patterns   patterns of the tower and the projector
    tower      layers of the tower
    projected  layers of the tower and the projector
    layers     all layers before those of the language model
    """

    before: int = 0
    patterns: int = 0
    tower: int = 0
    projected: int = 0
    layers: int = 0


def tower_part(model: Model) -> TowerPart:
    """Return what precedes the language model in the joined stack; all zero for a model without a vision tower."""
    if model.vision is None:
        return TowerPart()
    (patches,), (tower,), _ = (part.stacks for part in model.vision.parts)
    depth = model.vision.tower.depth
    return TowerPart(len(patches.before) + len(tower.before), len(tower.patterns) + 1, depth, depth + 1, depth + 2)


def submodels_of(
    model: Model, implementation: Implementation, tower: Implementation, shape: Shape, split: Split, frozen: str
) -> list[SubModel]:
    """Return the submodels in the order in which they run.

    tower: the implementation of the vision tower.
    frozen: the last part that is frozen and that no gradient passes through; "" for none.
    """
    last = model.stacks[-1]
    text = [SubModel(last.before, len(last.patterns), shape, implementation, split)]
    if len(model.stacks) > 1:
        first = model.stacks[0]
        own = Shape(shape.sequences, shape.source, block=model.block)
        patterns = sum(len(stack.patterns) + bool(stack.after) for stack in model.stacks[:-1])
        text = [SubModel(first.before, patterns, own, implementation, split, encodes=True), *text]
    if model.vision is None:
        return text
    vision, whole = model.vision, replace(split, context=1, sequence=1)
    patches, tokens, features = shape.lengths
    count = tower_part(model).patterns - 1
    images, asleep = shape.images, frozen in (VISION, PROJECTOR)
    idle = not is_array(images) and images == 0
    found = [
        SubModel(vision.patches.stacks[0].before, 0, Shape(images, patches), tower, whole, asleep=asleep or idle),
        SubModel(vision.tower.stacks[0].before, count, Shape(images, tokens), tower, whole, asleep=asleep or idle),
        SubModel((), 1, Shape(images, features), tower, whole, width=vision.merged, asleep=frozen == PROJECTOR),
        replace(text[0], patterns=1, encodes=False),
    ]
    return [*(replace(submodel, idle=idle) for submodel in found), replace(text[0], before=()), *text[1:]]

"""The stretches of a network that run over sequences of their own: an encoder and its decoder, or a vision tower, its
projector and the language model."""

from __future__ import annotations

from napkin.elementwise import Number, is_array
from napkin.operations.implementations import Implementation
from napkin.operations.model import Layer, Model, Pattern, Stack
from napkin.operations.rewrite import Operations
from napkin.operations.shapes import Shape, Split
from napkin.record import record, replace

VISION, PROJECTOR, LANGUAGE = "vision", "projector", "language"
"""Parts of a multimodal model, by which they are frozen."""


@record
class Leg:
    """One stretch.

    before    what runs before its layers; reads what the stretch before returns as "x"
    patterns  of the joined stack's patterns, how many are its own
    shape     its sequences
    width     of the stream that its layers read, where nothing before them makes it
    encodes   the layers of the next stretch read its result by name
    asleep    nothing in it is trained, and no gradient passes through it
    idle      of a tower: there are no images, and it does not run
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
    """Return all stacks as one: what runs between two of them is a layer that is not a block."""
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
    """Return what a projector with layers holds, where a step runs over text alone: its states are kept."""
    from napkin.operations.idle import Idle
    from napkin.operations.images import Patches

    layers = (layer.operations for _, count, layer in projector.kinds() for _ in range(count))
    held = (projector.before, *layers, projector.after)
    idle = (Idle(f"waiting_{number}", (), operations, trained=True) for number, operations in enumerate(held))
    return (*idle, Patches("features", ("x",), 0))


@record
class TowerPart:
    """What of the joined stack precedes the language model: the vision tower, its projector, and images in place.

    before     operations before the tower's layers      patterns   the tower's and the projector's
    tower      the tower's layers                         projected  those and the projector's
    layers     all layers before the language model's
    """

    before: int = 0
    patterns: int = 0
    tower: int = 0
    projected: int = 0
    layers: int = 0


def tower_part(model: Model) -> TowerPart:
    """Return what of the joined stack precedes the language model; nothing without a tower."""
    if model.vision is None:
        return TowerPart()
    (patches,), (tower,), _ = (part.stacks for part in model.vision.parts)
    depth = model.vision.tower.depth
    return TowerPart(len(patches.before) + len(tower.before), len(tower.patterns) + 1, depth, depth + 1, depth + 2)


def legs_of(
    model: Model, implementation: Implementation, tower: Implementation, shape: Shape, split: Split, frozen: str
) -> list[Leg]:
    """Return the stretches in order. `tower`: how the vision tower is run; `frozen`: the last part that is neither
    trained nor passed by a gradient, "" for none."""
    last = model.stacks[-1]
    text = [Leg(last.before, len(last.patterns), shape, implementation, split)]
    if len(model.stacks) > 1:
        first = model.stacks[0]
        own = Shape(shape.sequences, shape.source)
        patterns = sum(len(stack.patterns) + bool(stack.after) for stack in model.stacks[:-1])
        text = [Leg(first.before, patterns, own, implementation, split, encodes=True), *text]
    if model.vision is None:
        return text
    vision, whole = model.vision, replace(split, context=1, sequence=1)
    patches, tokens, features = shape.lengths
    count = tower_part(model).patterns - 1
    images, asleep = shape.images, frozen in (VISION, PROJECTOR)
    idle = not is_array(images) and images == 0
    found = [
        Leg(vision.patches.stacks[0].before, 0, Shape(images, patches), tower, whole, asleep=asleep or idle),
        Leg(vision.tower.stacks[0].before, count, Shape(images, tokens), tower, whole, asleep=asleep or idle),
        Leg((), 1, Shape(images, features), tower, whole, width=vision.merged, asleep=frozen == PROJECTOR),
        replace(text[0], patterns=1, encodes=False),
    ]
    return [*(replace(leg, idle=idle) for leg in found), replace(text[0], before=()), *text[1:]]

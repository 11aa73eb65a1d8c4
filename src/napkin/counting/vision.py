"""Parameters and FLOPs of what a multimodal model has next to text: patches, tower and projector of images; parameters
of an audio encoder."""

from __future__ import annotations

from napkin.counting.flops import EXACT, layer_forward, operation_flops, summed
from napkin.counting.params import PARAM, layer_params, params, weight_params
from napkin.operations.model import Model
from napkin.operations.queries import heard_operations, tower_tensors
from napkin.operations.work import Work
from napkin.term import GIVEN, Term, add, constant, leaf, multiply


def params_of(model: Model) -> list[Term]:
    """Return the parameters of a vision tower and its projector, and the total with them; those of an audio encoder,
    and the total with these too. Empty without either; the last one is that of the whole model."""
    found: list[Term] = []
    total = params(model)["params/total"]
    parts = [_params(part) for part in model.vision.parts] if model.vision is not None else []
    parts += [weight_params("params/vision", weight) for op in tower_tensors(model) for weight in op.weights()]
    if parts:
        vision = add("params/vision", *parts)
        total = add("params/total_with_vision", total, vision)
        found += [vision, total]
    audio = [weight_params("params/audio", weight) for op in heard_operations(model) for weight in op.weights()]
    if audio:
        heard = add("params/audio", *audio)
        found += [heard, add("params/total_with_audio", total, heard)]
    return found


def _params(model: Model) -> Term:
    """Return the parameters of one part."""
    (stack,) = model.stacks
    path = f"params/vision/{stack.name}"
    parts = [
        weight_params(f"{path}/{operation.name}", weight)
        for operation in (*stack.before, *stack.after)
        for weight in operation.weights()
    ]
    for name, count, layer in stack.kinds():
        times = leaf(f"{path}/{name}_layers", count, "1", GIVEN)
        parts.append(multiply(f"{path}/layers/{name}", times, layer_params(f"{path}/layer/{name}", layer)))
    return add(path, *parts) if parts else constant(path, 0, PARAM, "no weights")


def flops_of(model: Model, images: int, tokens: int = 0) -> list[Term]:
    """Return the FLOPs of one image forward, of one image in training, and of `images` images.

    tokens  tokens of an image in the language model (0: from the config's image size) Empty if the model takes no
    images, or the patches of an image are unknown. Attention counts the pairs that the class computes: those within an
    image, or within a window."""
    lengths = model.vision.lengths(tokens) if model.vision is not None else None
    if model.vision is None or lengths is None:
        return []
    seen = lengths[1] if model.vision.queries else 0
    parts = [_flops(part, length, seen) for part, length in zip(model.vision.parts, lengths, strict=True)]
    once = add("flops/vision/forward", *(term for read, unread in parts for term in (read, *unread)))
    (patches, _), *others = parts  # pixels need no gradient
    back = add(
        "flops/vision/backward",
        patches,
        *(multiply(f"{part.name}/backward", constant("backward_over_forward", 2), part) for part, _ in others),
    )
    each = add("flops/vision/per_image", once, back)
    if not images:
        return [once, each]
    return [once, each, multiply("flops/vision", leaf("images", images, "1", GIVEN), each)]


def _flops(model: Model, length: int, memory: int) -> tuple[Term, list[Term]]:
    """Return the forward FLOPs of one part for one image, and those of its layers whose outputs are unused. `memory`:
    the tower's tokens, which learned queries attend to."""
    (stack,) = model.stacks
    path, work = f"flops/vision/{stack.name}", Work(1, length, EXACT, memory=memory)
    terms = [term for op in (*stack.before, *stack.after) for term in operation_flops(path, op, work)]
    unread: list[Term] = []
    for name, count, layer in stack.kinds():
        one = layer_forward(f"{path}/layer/{name}", layer, work)
        times = leaf(f"{path}/{name}_layers", count, "1", GIVEN)
        (terms if layer.read else unread).append(multiply(f"{path}/{name}", times, one))
    return summed(path, terms), unread

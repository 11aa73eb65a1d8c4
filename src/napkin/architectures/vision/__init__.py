"""Vision towers of multimodal models and what projects their results to the language model, as the classes of Hugging
Face transformers 5.23.0 build them.

An image's patches are the tokens of the tower; the tokens of the projector are those that the language model sees.
kinds.py has the towers by the model_type of their vision_config, models.py the multimodal model_types.
"""

from __future__ import annotations

from napkin.architectures.vision.models import SIGHTS, Sight
from napkin.architectures.vision.projectors import Sees
from napkin.architectures.vision.single_kinds import TOWERS
from napkin.architectures.vision.tower import grid, one_stack, tower
from napkin.errors import Refused
from napkin.inputs.model import Config
from napkin.operations.model import Layer, Vision, stack_of
from napkin.record import replace

MOST_READ = 100
"""Layers of a tower that are concatenated at most."""


def vision_of(config: Config, kind: str, hidden: int) -> Vision | None:
    """Return what a multimodal config of this model_type does with images; None, where napkin does not know it.
    `hidden`: the width of the language model."""
    sight, block = SIGHTS.get(kind), config.mapping("vision_config", required=False)
    if sight is None or (block is None and not sight.flat):
        return None
    outer = Config(config.name, config.document, config.fields, kind, sight.fields, {}, config.prefix)
    if block is None:
        assert sight.build is not None
        return sight.build(outer, outer, hidden)
    named = block.get("model_type") or sight.tower
    if named == kind or not sight.named:  # published files repeat the model's own type here
        named = sight.tower
    if not isinstance(named, str) or named not in TOWERS:
        return None
    inner = config.block("vision_config", named, TOWERS[named].defaults)
    try:
        found = sight.build(outer, inner, hidden) if sight.build else _projected(outer, inner, sight, hidden)
        return replace(found, across=sight.across)
    except Refused as problem:  # known, but not of this form; a value that no class takes is an error
        config.notes.append(f"the vision tower is not counted: {problem.message}")
        return None


def _projected(config: Config, vision: Config, sight: Sight, hidden: int) -> Vision:
    """Return the tower that vision_config describes, with its projector."""
    kind = TOWERS[vision.model_type]
    read = _layers_read(config, sight.layers, vision.integer(kind.names.depth)) if sight.layers else []
    if sight.drops and config.flag(sight.drops):
        vision.restate(kind.names.depth, vision.integer(kind.names.depth, least=2) - 1)
    seen = tower(vision, kind, min(read) if read else None)
    without = int(config.text("vision_feature_select_strategy") == "default") if sight.cuts else seen.added
    sides = grid(vision)
    if sight.size:
        vision.restate("image_size", config.raw(sight.size))
        sides = grid(vision)
        seen = replace(seen, grid=sides[0] * sides[1])
    sees = Sees(config, vision, seen.tower.hidden, max(1, len(read)), *sides, seen.added, without, hidden)
    found = sight.project(sees)
    if found.each:
        (stack,) = seen.tower.stacks
        runs = (*stack.runs, (1, Layer("each patch", found.each, block=False)))
        seen = replace(seen, tower=replace(seen.tower, stacks=(stack_of("tower", stack.before, runs, ()),)))
    projector = one_stack(config.name, "projector", found.operations, found.width or hidden)
    if found.queries:
        stack = stack_of("projector", found.operations, found.layers, found.after)
        projector = replace(projector, stacks=(stack,))
    return replace(
        seen,
        projector=projector,
        merged=found.merged,
        tokens=found.tokens,
        traced=sight.traced,
        queries=found.queries,
    )


def _layers_read(config: Config, field: str, depth: int) -> list[int]:
    """Read which layers' results the projector reads, counted from the last one: -2 is 1, and so is `depth` − 1."""
    value = config.raw(field)
    several = value if isinstance(value, list) else [value]
    whole = [one for one in several if isinstance(one, int) and not isinstance(one, bool) and -depth <= one <= depth]
    if not 0 < len(whole) == len(several) <= MOST_READ:
        raise config.wrong(field, f"is not one or several of {depth:,} layers")
    return [-one - 1 if one < 0 else depth - one for one in whole]

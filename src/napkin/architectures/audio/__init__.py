"""Audio encoders of multimodal models and what projects their results to the language model: the parameters that they
hold. A step on text runs none of them.

encoders.py has the encoders by the model_type of their config, projectors.py the multimodal model_types; both state
shapes of tensors with the functions of architectures/shapes.py.
"""

from __future__ import annotations

from napkin.architectures.audio.encoders import ENCODERS
from napkin.architectures.audio.projectors import HEARINGS, Hears
from napkin.architectures.idle import tensors
from napkin.architectures.shapes import together
from napkin.errors import Refused
from napkin.inputs.model import Config
from napkin.operations.idle import Idle
from napkin.operations.model import Model
from napkin.operations.roles import AUDIO
from napkin.record import replace

DEAF_WHERE_NULL = ("gemma4", "gemma4_unified")
"""Model types whose class has no audio encoder where `audio_config` is null; others build their default one."""


def with_audio(model: Model, config: Config, kind: str) -> tuple[Model, bool] | None:
    """Return a model of one stack that also holds the audio encoder of a multimodal config of this model_type, and
    whether its class sees images too; None, where napkin does not know it."""
    hearing = HEARINGS.get(kind)
    block = config.mapping(hearing.block, required=False) if hearing is not None else None
    if hearing is None or block is None or len(model.stacks) > 1:
        return None
    named = block.get("model_type")
    encoder = ENCODERS[named if isinstance(named, str) and named in ENCODERS else hearing.encoder]
    outer = Config(config.name, config.document, config.fields, kind, hearing.fields, {}, config.prefix)
    inner = config.block(hearing.block, "", encoder.defaults, encoder.aliases)
    try:
        shapes = encoder.shapes(inner)
        project = hearing.project(Hears(outer, inner, encoder.width(inner), model.hidden))
    except Refused as problem:  # known, but not of this form; a value that no class takes is an error
        config.notes.append(f"the audio encoder is not counted: {problem.message}")
        return None
    held = together(shapes, together(project, within="projector"))
    idle = Idle("audio", (), (tensors("audio_encoder", held),), trained=True, role=AUDIO)
    (stack,) = model.stacks
    return replace(model, stacks=(replace(stack, after=(idle, *stack.after)),)), hearing.sees

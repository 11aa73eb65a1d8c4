"""Which parts of an image-text model a file trains."""

from __future__ import annotations

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import flag
from napkin.inputs.presets import is_preset, preset


def take_towers(reading: Reading, vision: str, projector: str, language: str) -> None:
    """Read the frozen parts of a model with a vision tower. The tower and the projector are frozen unless the file says
    otherwise, and then have no adapters either: in LLaMA-Factory (hparams/finetuning_args.py, model/model_utils/misc.py
    and visual.py) and in ms-swift (swift/arguments/tuner_args.py).

    vision, projector, language  the switches that freeze these parts
    """
    model, keys = str(reading.value_of("model")), (vision, projector, language)
    if not is_preset(model) or "vision_config" not in preset(model).config:
        return
    if reading.open_among(*keys):
        reading.ask("freeze", *keys)
        return
    tower, between = (reading.read(key, flag) is not False for key in (vision, projector))
    if reading.read(language, flag):
        reading.refuse(language, "the language model is frozen; only the other parts are trained", "freeze")
    elif "adapter" in reading.inputs:
        trained = next((key for key, frozen in ((vision, tower), (projector, between)) if not frozen), None)
        if trained is not None:
            reading.refuse(trained, "parts outside the language model are trained next to its adapters", "freeze")
        reading.ignore(*(key for key in keys if key in reading.source))
    elif tower:
        reading.derive("freeze", "vision,projector" if between else "vision", vision, projector)
    elif between:
        reading.refuse(projector, "a trained tower before a frozen projector is not modeled", "freeze")

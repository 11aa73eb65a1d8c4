"""What each GPU holds while a checkpoint is loaded, before ranks divide its quantized weights."""

from __future__ import annotations

from napkin.footprint.loading import HOST, loaded_by_each
from napkin.operations.model import Model
from napkin.render.answer import Answer
from napkin.term import TRUE, leaf
from napkin.training.setup import Setup
from napkin.units import human

PATH = "memory/loading"
SOURCE = "all weights, the linear layers' quantized"


def add(answer: Answer, model: Model, setup: Setup) -> None:
    """Add the bytes that each GPU holds while weights are loaded, which the verdict covers, unless they wait in host
    memory."""
    loaded = int(loaded_by_each(model, setup))
    if not loaded or setup.loading == HOST:
        return
    answer.terms = (*answer.terms, leaf(PATH, loaded, "byte", TRUE, SOURCE))
    answer.notes.append(
        f"while loading: {human(loaded, 'byte')} of quantized weights on each GPU before they are divided, unless they "
        "wait in host memory (--loading host: transformers 4.39 to 4.57 under DeepSpeed's ZeRO-3, or under FSDP with "
        "fsdp_cpu_ram_efficient_loading; later ones with a device_map that says so)"
    )

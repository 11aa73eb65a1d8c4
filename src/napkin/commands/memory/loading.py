"""What each GPU holds while a checkpoint is loaded, before ranks divide its quantized weights, against its memory."""

from __future__ import annotations

from napkin.commands.memory.question import MemoryQuestion
from napkin.footprint.loading import HOST, after_loading
from napkin.render.answer import Answer
from napkin.term import TRUE, leaf
from napkin.units import human

PATH = "memory/loading"
SOURCE = "all weights, the linear layers' quantized"


def judge(answer: Answer, question: MemoryQuestion) -> None:
    """Add the bytes that each GPU holds while weights are loaded, unless they wait in host memory; the verdict then
    covers them too."""
    loaded, place, capacity = question.loaded, question.loading, question.capacity
    if not loaded or place == HOST:
        return
    answer.terms = (*answer.terms, leaf(PATH, loaded, "byte", TRUE, SOURCE))
    answer.notes.append(
        f"while loading: {human(loaded, 'byte')} of quantized weights on each GPU before they are divided, unless they "
        "wait in host memory (--loading host: transformers 4.39 to 4.57 under DeepSpeed's ZeRO-3, or under FSDP with "
        "fsdp_cpu_ram_efficient_loading; later ones with a device_map that says so)"
    )
    if capacity is not None:
        answer.verdict = after_loading(answer.verdict or "", loaded, capacity.value, place)

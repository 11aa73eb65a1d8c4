"""Which layers Megatron-core's options assign to which pipeline stage."""

from __future__ import annotations

import re

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import text

LAYOUT = "pipeline_model_parallel_layout"
ENDS = {
    "account_for_embedding_in_pipeline_split": "embedding-as-layer",
    "account_for_loss_in_pipeline_split": "loss-as-layer",
}
_GROUP = re.compile(r"\(([^()]{1,80})\)\*(\d{1,3})")
_ONE = re.compile(r"([^*()])\*(\d{1,3})")
_LONGEST = 4096
"""Letters and bars of a layout that napkin reads."""


def take_stages(reading: Reading) -> None:
    """Read a layout, stage by stage, and whether embedding and loss take the place of a layer."""
    for key, option in ENDS.items():
        reading.switch(option, True, key)
    written, pp = reading.read(LAYOUT, text), reading.value_of("pp")
    if written is None:
        if reading.open_among(LAYOUT):
            reading.ask("stage-layers", LAYOUT)
        return
    chunks = _chunks(written)
    if chunks is None or not pp or len(chunks) % pp:
        why = f"napkin reads no layout of {pp} stages from it" if pp else "the number of stages is not in the file"
        reading.ask("stage-layers", LAYOUT)
        reading.refuse(LAYOUT, why, "stage-layers")
        return
    stages, vp = [sum(chunks[stage::pp]) for stage in range(pp)], len(chunks) // pp
    reading.derive("stage-layers", ",".join(map(str, stages)), LAYOUT, "pipeline_model_parallel_size")
    if all(layers % vp == 0 for layers in stages):
        reading.derive("vp", vp, LAYOUT, "pipeline_model_parallel_size")
    else:
        reading.omit(LAYOUT, f"its {vp} chunks of a stage differ, and are counted as one")


def _chunks(written: str) -> list[int] | None:
    """Return the decoder layers of each model chunk, in the order of the layers; None if this is no layout. E stands
    for the embedding, t for a layer, m for a module that predicts further tokens, L for the loss; a bar ends a chunk,
    and *n repeats a letter or a group (core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list)."""
    layout = re.sub(r"[\s,'\"\\]", "", written)
    for pattern in (_GROUP, _ONE):
        if sum(len(one[1]) * int(one[2]) for one in pattern.finditer(layout)) > _LONGEST:
            return None
        layout = pattern.sub(lambda one: one[1] * int(one[2]), layout)
    if len(layout) > _LONGEST or set(layout) - set("EtmL|") or "t" not in layout:
        return None
    return [chunk.count("t") for chunk in layout.split("|")]

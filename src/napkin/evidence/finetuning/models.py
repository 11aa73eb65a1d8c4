"""The models and the accelerator that a row of fine-tuning names, and whether it says how much memory that had."""

from __future__ import annotations

import re

from napkin.architectures import build
from napkin.errors import NapkinError
from napkin.evidence.finetuning.words import within
from napkin.evidence.rates.machines import bridged, by_slots, gpus_per_node
from napkin.evidence.rows.fields import accelerator_of
from napkin.evidence.rows.networks import network_of, states_bridge, states_slots
from napkin.evidence.rows.row import RowFields
from napkin.footprint.submodels import PROJECTOR, VISION
from napkin.inputs import hardware
from napkin.inputs.hardware import Hardware
from napkin.inputs.launch import names as names_of_files
from napkin.inputs.model_file import load_config
from napkin.inputs.presets import is_preset, shapeless
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training.tasks import ADAPTERS_OFF, NONE, SAME, Task

REFERENCES = {
    "second copy": SAME,
    "frozen copy": SAME,
    "copy": SAME,
    "adapters switched off": ADAPTERS_OFF,
    "adapters off": ADAPTERS_OFF,
    "precomputed": NONE,
    "none": NONE,
}
"""Row words for the source of a reference's log-probabilities."""
STORED_WORDS = re.compile(r"[-_ ]+(linearized|bnb|nf4|nvfp4|bf16|fp8|gptq|awq|int4|int8|4bit)$", re.IGNORECASE)
"""The last word of a checkpoint's name that says how its weights are stored."""


def model_of(row: RowFields) -> Model:
    """Return the preset that a row names: whoever published its copy, however that is stored, whatever it was trained
    for (`-hf`, `Base`, `Instruct`), and with what it says of it (`OPT-13B actor, OPT-350M critic`, `GPT-J 6B
    (compared)`) left out. Refused where no preset has its shape."""
    said = row.text("model.name").rpartition("/")[2]
    bare = said.partition(" (")[0].partition(" actor")[0].replace(" family", "")
    names = [row.text("model.preset"), said, bare]
    while STORED_WORDS.search(bare):
        bare = STORED_WORDS.sub("", bare)
        names.append(bare)
    names += [names_of_files.model_of("-".join(bare.split()))[0] or "", within(bare)]
    for name in names:
        if name and is_preset(name):
            return build(load_config(name))
    raise shapeless(row.text("model.name") or row.text("model.preset"))


def frozen_layers(row: RowFields, model: Model) -> int | None:
    """Return how many first layers are frozen, with the embedding; None if all are trained. Refused where that cannot
    be."""
    layers = row.count("method.freeze_layers", least=0)
    depth = model.stacks[-1].depth
    if layers is not None and (layers > depth or len(model.stacks) > 1):
        raise NapkinError(f"freezes {layers} layers of {model.name}: not modeled")
    return layers


def frozen_part(row: RowFields, model: Model) -> str:
    """Return the last part of a multimodal model that is frozen: vision or projector; "" if none is."""
    said = row.text("method.freeze")
    if said and (said not in (VISION, PROJECTOR) or model.vision is None):
        raise NapkinError(f"freezes {said[:40]}: not modeled")
    return said or (VISION if row.text("method.freeze_vit") == "true" else "")


def reference_of(row: RowFields, task: Task, adapters: bool) -> str:
    """Return the source of a reference's log-probabilities; where a row states none, the default of libraries: the
    model with its adapters switched off, or a copy of it (trl/trainer/dpo_trainer.py, ref_model). Refused for words
    that are not understood."""
    if task.teacher:
        return row.text("rl.teacher")
    said = row.text("rl.reference").partition(" (")[0]
    if not task.reference:
        return REFERENCES.get(said, NONE)
    if not said:
        return ADAPTERS_OFF if adapters else SAME
    if said not in REFERENCES:
        raise NapkinError(f"where the reference is: {said[:60]}")
    return REFERENCES[said]


def teacher_of(row: RowFields, task: Task) -> Model | None:
    """Return the model whose distribution is learned; None if a task has none. Refused where no preset has its
    shape."""
    if not task.teacher:
        return None
    name = row.text("rl.teacher").rpartition("/")[2]
    if not is_preset(name):
        raise shapeless(name, "its teacher: not stated")
    return build(load_config(name))


def card_of(row: RowFields) -> Hardware | None:
    """Return the accelerator; None if it is not stated."""
    text = accelerator_of(row)
    if not text:
        return None
    try:
        return _in_its_node(hardware.find(text), row)
    except NapkinError:
        if SIZE.match(text):
            return None
        raise


def _in_its_node(card: Hardware, row: RowFields) -> Hardware:
    """Return an accelerator with what a row says of its node: how many it holds, what joins them, and the network."""
    if states_slots(row):
        card = by_slots(card)
    elif states_bridge(row):
        card = bridged(card)
    stated = row.count("hardware.per_node")
    if stated:
        card = replace(card, devices_per_node=gpus_per_node(card, stated))
    network = network_of(row).get("network")
    return replace(card, nic_bandwidth=float(network)) if network else card


SIZE = re.compile(r"(\d{1,4}) ?Gi?B?\b")
"""The memory of an accelerator of which a row states nothing else."""
LEAST_USABLE = 0.918
"""Share of the nominal memory of an accelerator that a program may find at least: 22.03 of 24 GiB of an A10G, whose
error correction takes a sixteenth of it."""


BYTES = ("peak_bytes", "peak_bytes_per_gpu", "driver_bytes", "driver_mib")
"""Fields of `measured` that hold the memory of a GPU."""


def is_judged(row: RowFields) -> bool:
    """Return whether a row says that the run was out of memory, or nothing of its memory but that it fit: it was not,
    it ran, or a card that it ran on."""
    out, said = row.flag("measured.oom"), row.part("measured")
    ran = out is False or row.flag("measured.ran") or said.get("card_gib_at_most") is not None
    return bool(out) or (bool(ran) and all(said.get(name) is None for name in BYTES))


def room_of(row: RowFields, card: Hardware | None) -> float | None:
    """Return the bytes of a GPU that a run had: those of its accelerator, or of its size where a row names no more
    (`24 GB`), at most those of the card that the row says it ran on (`card_gib_at_most`); None if it states neither."""
    most = row.positive("measured.card_gib_at_most")
    size = _nominal(row)
    stated = [float(card.capacity)] if card is not None else [size] if size else []
    return min([*stated, *([most * 2**30] if most else [])], default=None)


def least_room_of(row: RowFields, card: Hardware | None) -> float | None:
    """Return the bytes that a GPU has at least; less than `room_of` where all that is stated of it is its size."""
    room = room_of(row, card)
    return room * LEAST_USABLE if room is not None and card is None and _nominal(row) else room


def _nominal(row: RowFields) -> float:
    """Return the bytes of an accelerator by its size; 0 where a row names it otherwise or not at all."""
    size = SIZE.match(accelerator_of(row))
    return float(size[1]) * 2**30 if size else 0.0

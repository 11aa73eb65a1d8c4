"""Leave open what a program states under names of its own, which tell what they are about but not how much."""

from __future__ import annotations

import re

from napkin.inputs.launch.names import take_optimizer
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import Open, is_off

OTHERS = re.compile(
    r"kwargs|(?:^|_)(?:vit|vision|visual|critic|ref|reference|reward|rm|rollout|vllm|infer|teacher|eval)(?:_|$)"
)
"""Words of names about another model or another pass than the one that is trained."""
RECOMPUTES = re.compile(
    r"(?:^|_)(?:grad|gradient|act|activation)s?_?(?:checkpoint|ckpt|recompute|remat)|(?:^|_)recompute$"
)
OFFLOADS = re.compile(r"(?:^|_)(?:cpu_|adam_|optimizer_|param_)?offload(?:_|$)|(?:^|_)offloading$")
EIGHT_BITS = re.compile(r"8_?bits?_?(?:adam|optim)|(?:adam|optim\w*)_?8_?bit")
FREEZES = re.compile(r"freeze_(?:backbone|base|base_model|llm|lm|language|language_model|text_model|decoder|model)")
TUNES = re.compile(r"tune_(?:mm_)?(?:llm|lm|language_model)")
PROJECTORS = re.compile(r"tune_(?!lora)(?:\w+_)?(?:adapter|projector)(?:_only)?")
PARTS = "mm_tunable_parts"
"""Switches of what is trained of a model with towers: LLaVA's, LLaVA-NeXT's and Qwen-VL's train.py and their forks."""
BACKBONE = "freeze_backbone"
"""The language model in LLaVA's train.py, the vision tower in InternVL's (internvl_chat_finetune.py)."""
OPTIMIZERS = ("optimizer", "optimizer_name", "optimizer_type", "optim_type")


def ask_switched(reading: Reading) -> None:
    """Read switches of recomputation, offload and 8-bit optimizers that a launch line has under names of its own."""
    source, looked = reading.source, reading.format.looked
    own = [key for key in source.values if key not in looked and not OTHERS.search(key)]
    named = {key: source.values[key].value for key in own}
    for key, value in named.items():
        if RECOMPUTES.search(key) and not source.has_any("gradient_checkpointing", "use_gradient_checkpointing"):
            if isinstance(value, Open):
                reading.ask("recompute", key)
            else:
                reading.assume("recompute", "none" if is_off(value) else "full", key)
        elif OFFLOADS.search(key) and not is_off(value) and "offload" not in reading.inputs:
            reading.ask("offload", key)
        elif EIGHT_BITS.search(key) and not is_off(value) and "8bit" not in str(source.plain("optim")):
            reading.ask("optimizer", key)
    if "optimizer" not in reading.inputs and not source.has_any("optim"):
        take_optimizer(reading, *[key for key in OPTIMIZERS if key in named])


def _freeze_tower(reading: Reading, key: str, off: bool) -> None:
    """Read a switch that freezes the vision tower."""
    if reading.open_among(key):
        reading.ask("freeze", key)
    elif not off and not reading.value_of("adapter"):
        reading.put("freeze", "vision", key)
    else:
        reading.told(key)


def refuse_frozen(reading: Reading) -> None:
    """Refuse a run that trains other parts than the language model: a projector before it, or a tower."""
    named = [key for key in reading.source.values if FREEZES.fullmatch(key) and key != BACKBONE]
    why = "the language model is frozen; only the other parts are trained"
    switches = [one.value for key, one in reading.source.values.items() if TUNES.fullmatch(key)]
    tuned = any(not is_off(one) and not isinstance(one, Open) for one in switches)
    for key, stated in reading.source.values.items():
        off = is_off(stated.value)
        if key == BACKBONE and named:  # next to a switch of the language model it is that of the tower
            _freeze_tower(reading, key, off)
            continue
        parts = key == PARTS and "language_model" not in str(stated.value)
        projector = PROJECTORS.fullmatch(key) is not None and not off and not tuned
        frozen = (FREEZES.fullmatch(key) is not None and not off) or (TUNES.fullmatch(key) is not None and off)
        if isinstance(stated.value, Open) and (parts or projector or frozen):
            reading.ask("freeze-layers", key)
        elif parts or projector or (frozen and not reading.value_of("adapter")):
            reading.refuse(key, why, "freeze")
        elif key == PARTS or any(one.fullmatch(key) for one in (FREEZES, TUNES, PROJECTORS)):
            reading.told(key)

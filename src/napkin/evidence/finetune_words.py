"""What a row of fine-tuning says in words alone: the library and what divides its model, and the model's shape."""

from __future__ import annotations

import re

from napkin.evidence.recognize import Facts
from napkin.evidence.row_words import library_of
from napkin.evidence.rows import RowFields
from napkin.inputs.presets import is_preset

SHARDED_BY = (
    ("lit-?(gpt|llama)", "litgpt"),
    ("megatron(-core|-lm|-bridge)?|mcore", "megatron-core"),
    ("deepspeed|zero-?[123]", "deepspeed"),
    ("fsdp[12]?|dtensor|fully_shard", "fsdp"),
    ("ddp|distributeddataparallel", "ddp"),
)
"""Words of a framework, and what they say divides the model."""


TUNED_FROM = {"vicuna": "llama", "alpaca": "llama", "wizardlm": "llama", "guanaco": "llama", "zephyr": "mistral"}
"""Names of fine-tunes, and the family that they were tuned from, whose sizes they have (lm-sys/FastChat
docs/vicuna_weights_version.md; tatsu-lab/stanford_alpaca README; alignment-handbook recipes/zephyr-7b-beta)."""
OTHER_SHAPES = re.compile(r"llava|vision|clip|blip|video|audio|omni|moe|^vl$|^\d+x\d+b$")
"""Words of names that say that a model is more than the one it was made from."""
SIZE = re.compile(r"\d+(\.\d+)?[bm]$")


def within(name: str) -> str:
    """Return the preset whose name, with a size, a fine-tune's name contains (`dolphin-2.6-mistral-7b`), "" if none."""
    words = name.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-").split("-")
    words = [TUNED_FROM.get(word, word) for word in words]
    if any(OTHER_SHAPES.search(word) for word in words):
        return ""
    parts = (words[first:last] for first in range(len(words)) for last in range(len(words), first, -1))
    names = ("-".join(part) for part in parts if any(SIZE.fullmatch(word) for word in part))
    return max((one for one in names if is_preset(one)), key=len, default="")


def of_tuning(row: RowFields) -> Facts:
    """Return the facts that the framework's words state and that have no field."""
    words = row.text("layout.framework").lower()
    found = {"trainer": library_of(words), "stack": _sharded_by(words)}
    return {"layout": {field: name for field, name in found.items() if name and not row.text(f"layout.{field}")}}


def _sharded_by(words: str) -> str:
    return next((name for spelling, name in SHARDED_BY if re.search(rf"\b({spelling})\b", words)), "")

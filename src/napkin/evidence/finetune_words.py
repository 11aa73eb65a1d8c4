"""The library of fine-tuning, and what divides its model, that a row says in its framework's words alone."""

from __future__ import annotations

import re

from napkin.evidence.recognize import Facts
from napkin.evidence.rows import RowFields

LIBRARIES = (
    ("unsloth", "unsloth"),
    ("axolotl", "axolotl"),
    ("llama[- ]?factory", "llama-factory"),
    ("ms-swift|swift", "ms-swift"),
    ("torchtune", "torchtune"),
    ("verl", "verl"),
    ("openrlhf", "openrlhf"),
    ("nemo[- ]?rl", "nemo-rl"),
    ("nemo automodel|nemo-automodel", "nemo-automodel"),
    ("nemo", "nemo"),
    ("trl", "trl"),
    ("trainer|transformers|hugging ?face", "hf-trainer"),
    ("accelerate", "accelerate"),
)
"""Words of a framework, and the library of fine-tuning that they name (training/trainers.py); the first that occurs
holds: a library stands before those that it is built on."""
SHARDED_BY = (
    ("megatron(-core|-lm|-bridge)?|mcore", "megatron-core"),
    ("deepspeed|zero-?[123]", "deepspeed"),
    ("fsdp[12]?|dtensor|fully_shard", "fsdp"),
    ("ddp|distributeddataparallel", "ddp"),
)
"""Words of a framework, and what they say divides the model."""


def of_tuning(row: RowFields) -> Facts:
    """Return the facts that the framework's words state and that have no field."""
    words = row.text("layout.framework").lower()
    found = {"trainer": _named(words, LIBRARIES), "stack": _named(words, SHARDED_BY)}
    return {"layout": {field: name for field, name in found.items() if name and not row.text(f"layout.{field}")}}


def _named(words: str, among: tuple[tuple[str, str], ...]) -> str:
    return next((name for spelling, name in among if re.search(rf"\b({spelling})\b", words)), "")

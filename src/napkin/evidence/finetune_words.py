"""The library of fine-tuning, and what divides its model, that a row says in its framework's words alone."""

from __future__ import annotations

import re

from napkin.evidence.recognize import Facts
from napkin.evidence.row_words import library_of
from napkin.evidence.rows import RowFields

SHARDED_BY = (
    ("lit-?(gpt|llama)", "litgpt"),
    ("megatron(-core|-lm|-bridge)?|mcore", "megatron-core"),
    ("deepspeed|zero-?[123]", "deepspeed"),
    ("fsdp[12]?|dtensor|fully_shard", "fsdp"),
    ("ddp|distributeddataparallel", "ddp"),
)
"""Words of a framework, and what they say divides the model."""


def of_tuning(row: RowFields) -> Facts:
    """Return the facts that the framework's words state and that have no field."""
    words = row.text("layout.framework").lower()
    found = {"trainer": library_of(words), "stack": _sharded_by(words)}
    return {"layout": {field: name for field, name in found.items() if name and not row.text(f"layout.{field}")}}


def _sharded_by(words: str) -> str:
    return next((name for spelling, name in SHARDED_BY if re.search(rf"\b({spelling})\b", words)), "")

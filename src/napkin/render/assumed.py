"""The defaults of an answer in a few words each, the most surprising first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.render.answer import Cell, Shown

DEFAULTED = ("default", "class default", "assumed")


def _number(value: Cell) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _recompute(value: Cell) -> str:
    return "no recomputation" if value == "none" else f"recompute {value}"


def _as_is(value: Cell) -> str:
    return str(value)


WORDS: Mapping[str, Callable[[Cell], str]] = {
    "stack": lambda value: "software unknown" if value == "unknown" else f"{value} software",
    "zero": lambda value: f"ZeRO-{value}",
    "seq": lambda value: f"seq {_number(value)}",
    "target-seq": lambda value: f"target seq {_number(value)}",
    "precision": _as_is,
    "dtype": _as_is,
    "optimizer": lambda value: {"adamw": "AdamW", "sgd": "SGD"}.get(str(value), str(value)),
    "recompute": _recompute,
    "micro-batch": lambda value: f"micro-batch {_number(value)}",
    "batch": lambda value: f"batch {_number(value)}",
    "cache-dtype": lambda value: f"{value} KV cache",
}
"""Input → its value in words, in the order in which they are named."""


def either(value: Cell, words: Callable[[Cell], str] = str) -> str:
    """Return a value in words; of an input that differs between the questions of a sweep, all its values."""
    return " or ".join(map(words, value)) if isinstance(value, list) else words(value)


def assumed_words(inputs: Mapping[str, Shown]) -> list[str]:
    """Return the defaults in words; empty values are omitted."""
    found = []
    gpus = inputs.get("gpus")
    for name, words in WORDS.items():
        shown = inputs.get(name)
        if name == "dtype" and "precision" in inputs:  # which says what the matmuls are in
            continue
        if name == "zero" and (gpus is None or gpus.value == 1):
            continue
        if shown is not None and shown.origin in DEFAULTED and shown.value is not None:
            found.append(either(shown.value, words))
    return found

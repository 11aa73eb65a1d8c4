"""Modules that are trained in full next to adapters, by their names in peft's modules_to_save."""

from __future__ import annotations

from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.operations.adapters.lora import SAVEABLE
from napkin.operations.adapters.targets import all_operations, is_module
from napkin.operations.model import Model

HEAD_MODULES = ("classifier", "score", "qa_outputs")
"""What peft trains in full by itself if its task is classification or question answering (peft 0.21, peft_model.py,
PeftModelForSequenceClassification, PeftModelForTokenClassification, PeftModelForQuestionAnswering)."""


def saved_modules(names: tuple[str, ...], model: Model) -> tuple[str, ...]:
    """Return what is trained in full next to adapters: the modules named, as peft matches them, by a part of their
    paths, and the head of a class that scores labels. The embedding and the head of a language model are given by their
    roles. Raises where a name matches nothing, or what is not modeled."""
    operations = all_operations(model)
    heads = [name for name in HEAD_MODULES if model.outputs and any(_inside(op.module, name) for op in operations)]
    if not names:
        return tuple(heads)
    if len(model.stacks) > 1 or model.vision is not None:
        raise Refused(f"--modules-to-save: {model.name} is not a decoder by itself", "leave it out")
    found: list[str] = []
    for name in names:
        inside = [op for op in operations if _inside(op.module, name)]
        if not inside:
            known = sorted({op.module.rpartition(".")[2] for op in operations if is_module(op)})
            raise NapkinError(
                f"--modules-to-save: {model.name} has no linear layer or embedding in {name[:40]!r}",
                did_you_mean(name, known) or f"one of {', '.join(known)}",
            )
        if any(not is_module(op) for op in inside):
            raise Refused(f"--modules-to-save {name[:40]}: not modeled", "name linear layers or embeddings")
        found.append(inside[0].role if inside[0].role in SAVEABLE and not model.outputs else name)
    return tuple(dict.fromkeys((*found, *heads)))


def _inside(path: str, name: str) -> bool:
    """Return whether a part of a path is named so."""
    return f".{name}." in f".{path}."

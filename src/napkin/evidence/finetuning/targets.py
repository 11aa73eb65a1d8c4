"""The modules that get adapters in a row of measured fine-tuning, and their rank where it states none."""

from __future__ import annotations

import re

from napkin._tables.adapter_targets import CONVERTED, DEFAULTS, RENAMED
from napkin.errors import NapkinError
from napkin.evidence.finetuning.software import trainer_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.software.scripts import scripts_named, scripts_of_library
from napkin.operations.adapters.lora import module_of, modules_of
from napkin.operations.adapters.named import path_ends
from napkin.operations.adapters.targets import ALL_LINEAR, DEFAULT, PARTS, has_modules
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model

USUAL_TARGETS = ("q", "v")
"""Parts of a layer with adapters if a row does not say: peft's for Llama (peft 0.21, utils/constants.py)."""


def rank_of(row: RowFields) -> int:
    """Return the LoRA rank; the default of a row's library if the row does not state it."""
    return row.count("method.lora_rank") or scripts_named(row.text("layout.stack").lower()).lora_rank


def leaves_adapters_open(row: RowFields) -> bool:
    """Return whether a row does not state the LoRA rank or the adapted modules."""
    return row.count("method.lora_rank") is None or not states_targets(row)


def states_targets(row: RowFields) -> bool:
    """Return whether a row states the modules that have adapters."""
    return bool(_targets_text(row))


def _targets_text(row: RowFields) -> str:
    """Return a row's text on the modules with adapters; "" if it only points elsewhere."""
    text = row.text("method.lora_targets_canonical") or row.text("method.lora_targets")
    return "" if text.startswith(("see ", "default")) else text


def usual_targets(model: Model, implementation: Implementation) -> tuple[str, ...]:
    """Return the modules with adapters of a library that chooses none: peft's for the class, or as Llama's."""
    return (DEFAULT,) if model.family in DEFAULTS else _of_class(USUAL_TARGETS, (), model, implementation)


def targets_of(row: RowFields, model: Model, implementation: Implementation) -> tuple[str, ...]:
    """Return the names of the modules with adapters: those that the run gave them, if the class has all of them, else
    the parts of a layer that they stand for; if a row leaves them open, its library's default. Refused for words that
    are not understood."""
    text = _targets_text(row).replace(" (+ head)", ",lm_head")
    given = tuple(_names(row.text("method.lora_targets").partition(" (")[0]))
    if any(given) and has_modules(given, model, implementation):
        text = ",".join(given)
    if not text and not row.text("method.lora_target_parameters"):
        if scripts_of_library(trainer_of(row)).all_linear:
            return (ALL_LINEAR,)
        parts = scripts_named(row.text("layout.stack").lower()).targets
        own = parts != USUAL_TARGETS
        return _of_class(parts, (), model, implementation) if own else usual_targets(model, implementation)
    if text in ("*_proj", ALL_LINEAR) or text.startswith("all"):
        return (ALL_LINEAR,)
    parameters = row.text("method.lora_target_parameters")
    names = tuple(_names(",".join(filter(None, (text.partition(" (")[0], parameters)))))
    if any(not name or not name.replace("_", "").replace(".", "").isalnum() for name in names):
        raise NapkinError(f"which modules have adapters is not understood: {text[:60]}")
    return _of_class(names, given, model, implementation)


FUSED = {
    **dict.fromkeys(("q", "k", "v"), ("qkv",)),
    **dict.fromkeys(("gate", "up"), ("gate_up",)),
    "q": ("qkv", "q_gate"),
}
"""Parts of a layer, and the linear layers that compute them together with others."""
OF_EXPERTS = {"gate": "gate_up_proj", "up": "gate_up_proj", "down": "down_proj"}
"""Parts of an expert, and the tensors of all experts that hold them."""


def _of_class(
    names: tuple[str, ...], given: tuple[str, ...], model: Model, implementation: Implementation
) -> tuple[str, ...]:
    """Return the targets as the class has them: of the names that the run gave, those that it has, then the other parts
    that the row states (`names`). A part that it computes together with others is their linear layer, one of experts in
    one tensor is what peft converts to that; one that it lacks is left out where it has another one, as peft passes
    over names that match nothing."""
    operations = [module_of(op) for op, _ in modules_of(model.operations)]
    modules = {op.short.lower(): op.module.lower() for op in operations}
    tensors = RENAMED.get(CONVERTED.get(model.family, ""), {})
    found = [one for one in given if one in tensors or has_modules((one,), model, implementation)]
    covered = {part for part, tensor in OF_EXPERTS.items() if any(tensors.get(one) == tensor for one in found)}
    covered |= {op.short.lower() for op in operations if any(path_ends(op.module, one) for one in found)}
    for name in names:
        if name in covered:
            continue
        converted = [one for one, tensor in tensors.items() if tensor == OF_EXPERTS.get(name)]
        if name not in PARTS or (name in modules and not converted):
            found.append(name)
        else:
            found += converted or [modules[one] for one in FUSED.get(name, ()) if one in modules]
    return tuple(dict.fromkeys(found)) or names


def _names(text: str) -> list[str]:
    return re.split(r"[\s,]+", text.strip())


def experts_of(row: RowFields, model: Model, implementation: Implementation) -> tuple[str, ...]:
    """Return the experts' tensors if a row says that they have adapters without naming them. Refused where its class
    does not say which tensors these are."""
    if row.text("method.experts_targeted") != "targeted" or row.text("method.lora_target_parameters"):
        return ()
    parts = [part for op in model.operations if op.routed() for part in op.linear_parts(implementation)]
    paths = dict.fromkeys(part.path for part in parts if part.parameter and part.copies > 1)
    if not paths:
        raise NapkinError("which tensors of the experts have adapters is not stated")
    return tuple(paths)

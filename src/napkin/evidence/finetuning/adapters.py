"""Adapters of a fine-tuning row: LoRA and DoRA as the row states them; another kind as LoRA with the same number of
parameters on the same modules, which has similar memory and time, with a wider interval.
The modules that get them, and their rank where a row states none."""

from __future__ import annotations

import re

from napkin._tables.adapter_targets import CONVERTED, DEFAULTS, RENAMED
from napkin.errors import NapkinError
from napkin.evidence.finetuning.software import trainer_of, tuning_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.software.scripts import scripts_named, scripts_of_library
from napkin.operations.adapters.kinds import KINDS as OTHER_KINDS
from napkin.operations.adapters.lora import module_of, modules_of
from napkin.operations.adapters.named import path_ends
from napkin.operations.adapters.targets import (
    ALL_LINEAR,
    DEFAULT,
    PARTS,
    found_targets,
    has_modules,
    lacking_targets,
    resolved,
)
from napkin.operations.adapters.virtual import VIRTUAL_TOKENS
from napkin.operations.frozen import Frozen
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.roles import ADAPTER
from napkin.operations.trained import as_trained
from napkin.operations.tuning import Tuning
from napkin.record import replace

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


FULL, LORA, DORA = "full", "lora", "dora"
KINDS = (FULL, LORA, DORA)
"""What is trained as its operations."""
PROJECTED = ("galore", "apollo")
"""Kinds that are optimizers of all weights."""
NO_ADAPTERS = ("lisa", "llamapro", "longlora", "badam", "freeze", "bitfit")
"""Kinds that train a part of the network's weights at a time, or new layers of it."""
LOWEST_RANK, HIGHEST_RANK = 8, 64
"""Of LoRA where a run leaves it open: peft's default (peft 0.21, tuners/lora/config.py), and that of Dettmers et al.
2023 (arXiv:2305.14314, appendix B)."""
OTHER_MEMORY, OTHER_TIME = 1.15, 1.8
"""Relative uncertainty of memory of another kind or of LoRA that is open, and of time of another kind, compared with
LoRA of as many parameters. Assumed: kinds that make a delta as large as the weight (LoHa, LoKr, OFT, BOFT) hold it and
multiply it out, kinds of vectors and prompts do less."""


def check_kind(row: RowFields) -> bool:
    """Return whether a row trains adapters of another kind than LoRA, or leaves LoRA's open. Refused where what it
    trains is neither."""
    kind = row.text("method.kind")
    if not kind:
        raise NapkinError("what is trained is not stated")
    if kind == FULL or kind in PROJECTED:
        return False
    if kind in KINDS:
        return leaves_adapters_open(row)
    if kind in NO_ADAPTERS or kind.startswith(FULL):
        raise NapkinError(f"trains by {kind[:40]}: not modeled")
    return True


def adapters_of(row: RowFields, model: Model, implementation: Implementation, other: bool) -> Tuning:
    """Return the adapters of a row, without names that the model lacks next to others, which peft passes over.
    other: of a kind that is taken for LoRA."""
    if other and row.text("method.kind") not in KINDS:
        return _of_kind(row, model, implementation) or _like_lora(row, model, implementation)
    return _lora(row, rank_of(row), targets_of(row, model, implementation), model, implementation)


def open_adapters(row: RowFields, model: Model, implementation: Implementation) -> tuple[Tuning, ...]:
    """Return the least and the most that LoRA may be where a row leaves its rank or its modules open, else nothing: on
    the modules that peft adapts by default, or on all linear layers."""
    if row.text("method.kind") not in (LORA, DORA) or not leaves_adapters_open(row):
        return ()
    modules = [usual_targets(model, implementation), (ALL_LINEAR,)]
    if states_targets(row):
        modules = [targets_of(row, model, implementation)] * 2
    ranks = (row.count("method.lora_rank") or rank for rank in (LOWEST_RANK, HIGHEST_RANK))
    return tuple(_lora(row, rank, one, model, implementation) for rank, one in zip(ranks, modules, strict=True))


def _lora(row: RowFields, rank: int, targets: tuple[str, ...], model: Model, implementation: Implementation) -> Tuning:
    """Return LoRA or DoRA of that rank on those modules, without those that the model lacks."""
    tuning = replace(tuning_of(row, rank), magnitude=row.text("method.kind") == DORA)
    lacking = lacking_targets(targets, model, implementation)
    targets = tuple(name for name in targets if name not in lacking)
    if row.text("method.experts_targeted"):  # apart from linear layers, before peft converted names
        apart = (*found_targets(targets, model, implementation), *experts_of(row, model, implementation))
        return resolved(tuning, apart, model, implementation, converts=False)
    return resolved(tuning, targets, model, implementation)


def _of_kind(row: RowFields, model: Model, implementation: Implementation) -> Tuning | None:
    """Return adapters of a kind that is modeled, of the size that has as many parameters as the row states; None if
    the kind is another, or has that many in no size."""
    kind = OTHER_KINDS.get(row.text("method.kind"))
    if kind is None:
        return None
    stated, said = row.count("method.trainable_params"), row.count("method.lora_rank")
    if kind.name in VIRTUAL_TOKENS:
        return _of_virtual_tokens(row, kind.name, model, implementation, stated)
    for size in dict.fromkeys((said or kind.usual, kind.usual, *(2**power for power in range(11)))):
        tuning = replace(tuning_of(row, size), method=kind.name, rank=size)
        tuning = resolved(tuning, _targets_of_kind(row, model, implementation), model, implementation)
        if stated is None or _trained_elements(model, implementation, tuning) == stated:
            return tuning
    return None


def _of_virtual_tokens(
    row: RowFields, name: str, model: Model, implementation: Implementation, stated: int | None
) -> Tuning | None:
    """Return as many virtual tokens as have the parameters that a row states, which grow with them by as many each;
    None if it states none."""
    one, two = (replace(tuning_of(row, size), method=name, rank=size) for size in (1, 2))
    first, second = (_trained_elements(model, implementation, tuning) for tuning in (one, two))
    if stated is None or second <= first:
        return None
    count, rest = divmod(stated - first, second - first)
    return None if rest or count < 0 else replace(one, rank=1 + count)


def _targets_of_kind(row: RowFields, model: Model, implementation: Implementation) -> tuple[str, ...]:
    if not row.text("method.lora_targets_canonical"):
        return usual_targets(model, implementation)
    return targets_of(row, model, implementation)


def _trained_elements(model: Model, implementation: Implementation, tuning: Tuning) -> int:
    """Return the elements of the adapters of a model."""
    trained = as_trained(model, Frozen(replace(implementation, tuning=tuning)))
    operations = [
        (int(count), op)
        for stack in trained.stacks
        for count, some in ((1, stack.before), *((count, layer.operations) for _, count, layer in stack.kinds()))
        for op in some
    ]
    return sum(count * weight.count for count, op in operations if op.role == ADAPTER for weight in op.weights())


def _like_lora(row: RowFields, model: Model, implementation: Implementation) -> Tuning:
    """Return LoRA of the rank that has as many parameters as the row states."""
    targets = _targets_of_kind(row, model, implementation)
    one = resolved(replace(tuning_of(row, 1), rank=1), targets, model, implementation)
    stated = row.count("method.trainable_params")
    if stated is None:
        return replace(one, rank=rank_of(row))
    return replace(one, rank=max(round(stated / _trained_elements(model, implementation, one)), 1))

"""Adapters, and modules trained in full next to them, held against peft 0.21: what it refuses, puts elsewhere, cannot
run or counts otherwise."""

from __future__ import annotations

from napkin._tables.adapter_targets import COMPARED, DIFFERS
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.operations.adapters.lora import SAVEABLE, times_rank
from napkin.operations.adapters.named import path_ends
from napkin.operations.adapters.targets import ALL_LINEAR, EVERYTHING, all_operations, is_module, linear_paths, paths_in
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.tuning import Tuning
from napkin.record import replace

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


DETAIL = 0.1
"""Relative difference in adapter parameters up to which it is a detail; a larger one means a different set of
modules."""


def compared(family: str) -> bool:
    """Return whether adapters of a model type were counted with peft."""
    return family in COMPARED


def difference(family: str, targets: tuple[str, ...]) -> float:
    """Return the largest difference from peft's count that was seen for these targets, as a share of it; 0 where all
    counts were equal. A target that was not counted by itself may be any of those that differ."""
    seen = DIFFERS.get(family)
    if not seen:
        return 0.0
    targets = tuple(target for target in targets if not target.startswith("-"))
    named = (ALL_LINEAR,) if targets in EVERYTHING else targets
    most = max(seen.values())
    return max(
        max((share for choice, share in seen.items() if _touch(choice, target)), default=most) for target in named
    )


def equal_targets(family: str) -> list[str]:
    """Return single targets of a model type for which napkin's count equals peft's."""
    return [choice for choice, share in DIFFERS.get(family, {}).items() if not share and choice != ALL_LINEAR]


def _touch(choice: str, target: str) -> bool:
    """Return whether a counted set of targets and a target may name the same module."""
    return path_ends(choice, target) or path_ends(target, choice)


def check_layered(tuning: Tuning, model: Model, implementation: Implementation) -> None:
    """Raise an error for adapters on some layers only that peft puts elsewhere: what is outside of the layers has
    none, parameters have them in every layer, and experts that are modules are told apart by their own numbers (peft
    0.21, tuners/tuners_utils.py, check_target_module_exists)."""
    (stack,) = model.stacks
    outside = [
        op for op in (*stack.before, *stack.after) if any(_named(path, tuning) for path in paths_in(op, implementation))
    ]
    if outside:
        raise NapkinError(
            f"--lora-targets: {outside[0].module} is in no layer, where peft gives it no adapter", "leave it or @ out"
        )
    experts = [
        part.path
        for op in all_operations(model)
        for part in op.linear_parts(implementation)
        if part.copies > 1 and times_rank(part, replace(tuning, method="lora"))
    ]
    others = [*experts, *(name for name, _ in tuning.parameters)]
    if others:
        raise Refused(
            f"--lora-targets @: adapters on {others[0]} in some layers are not modeled",
            "name linear layers outside of the experts",
        )


def _named(path: str, tuning: Tuning) -> bool:
    return any(path_ends(path, target) for target in tuning.targets)


def check_parameters(tuning: Tuning) -> None:
    """Raise an error for what peft does not do next to parameters that do not belong to a linear layer (peft 0.21,
    tuners/lora/layer.py, ParamWrapper)."""
    if not tuning.parameters:
        return
    for asked, option, theirs, instead in (
        (tuning.magnitude, "--adapter dora", "use_dora=True", "--adapter lora"),
        (tuning.dropout, f"--lora-dropout {tuning.dropout:g}", "lora_dropout != 0", "--lora-dropout 0"),
    ):
        if asked:
            raise NapkinError(
                f"{option}: {tuning.parameters[0][0]} is a parameter of no linear layer, where peft refuses it: "
                f"lora.ParamWrapper does not work with {theirs}",
                f"name linear layers only in --lora-targets, or {instead}",
            )


def check_runs(tuning: Tuning, model: Model, implementation: Implementation) -> None:
    """Raise an error for an adapter that peft 0.21 makes and cannot run."""
    operations = all_operations(model)
    failing = [part.path for op in operations for part in op.linear_parts(implementation) if part.fails]
    named = [path for path in failing if times_rank(LinearPart(path, 0, 0), tuning)]
    if named:
        others = (path.rpartition(".")[2] for path in linear_paths(operations, implementation) if path not in failing)
        raise Refused(
            f"--lora-rank: peft adapts {named[0]} as one linear layer, and its pass fails: the layer is of groups",
            f"--lora-targets with some of {', '.join(dict.fromkeys(others))}",
        )

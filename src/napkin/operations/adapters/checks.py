"""Adapters that peft 0.21 refuses, puts elsewhere or cannot run."""

from __future__ import annotations

from napkin.errors import NapkinError, Refused
from napkin.operations.adapters.lora import times_rank
from napkin.operations.adapters.named import path_ends
from napkin.operations.adapters.targets import all_operations, linear_paths, paths_in
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.tuning import Tuning
from napkin.record import replace


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

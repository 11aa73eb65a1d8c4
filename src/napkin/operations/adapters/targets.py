"""Read LoRA's targets: which modules and parameters of a model their names stand for, as peft 0.21 matches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from napkin._tables.adapter_targets import CONVERTED, DEFAULTS, RENAMED
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.operations.adapters.lora import (
    adapted_lookups,
    kind_on,
    module_of,
    modules_of,
    times_rank,
)
from napkin.operations.adapters.named import path_ends
from napkin.operations.base import Operation
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.queries import seen_operations
from napkin.operations.roles import VOCABULARY
from napkin.operations.tuning import Tuning
from napkin.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.adapters.kind import AdaptedLayer

LAYER = "@"
"""What begins the numbers of the layers that get adapters, among the targets: @16-31."""
RANK = "="
"""What is between a pattern and the rank of the modules that it matches, among the targets: down_proj=8."""
ALL_LINEAR, DEFAULT = "all-linear", "default"
"""Targets that stand for every linear layer but the head, and for peft's choice for the model type."""
EVERYTHING = ((), ("all",), (ALL_LINEAR,))
"""Targets that mean every linear layer: none named, napkin's word and peft's."""


def modules_among(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets that name modules, and neither layers nor ranks."""
    return tuple(target for target in targets if not target.startswith(LAYER) and RANK not in target)


def adapted_layers(targets: tuple[str, ...], model: Model) -> frozenset[int] | None:
    """Return the layers that get adapters, from 0: those that `@N` and `@N-M` among the targets name (peft's
    layers_to_transform); None where none does, and all get them."""
    words = [target[len(LAYER) :] for target in targets if target.startswith(LAYER)]
    if not words:
        return None
    if len(model.stacks) > 1 or model.vision is not None:
        raise Refused(f"--lora-targets @{words[0][:40]}: {model.name} is not a decoder by itself", "leave it out")
    depth = model.stacks[0].depth
    found: set[int] = set()
    for word in words:
        first, _, last = word.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(word) > 20:
            raise NapkinError(f"--lora-targets @{word[:40]}: is no number of a layer", "@16 or @16-31, from 0")
        if int(last or first) < int(first):
            raise NapkinError(f"--lora-targets @{word[:40]}: begins after its end", f"@{last}-{first}")
        if int(last or first) >= depth:
            raise NapkinError(
                f"--lora-targets @{word[:40]}: {model.name} has layers 0 to {depth - 1:,}", f"@0-{depth - 1}"
            )
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def all_operations(model: Model) -> list[Operation]:
    """Return every operation of a model, those that do not run included, each layer type once."""
    ends = [op for stack in model.stacks for op in (*stack.before, *stack.after)]
    found = (*ends, *model.operations, *model.shared, *seen_operations(model))
    return [op for op, _ in modules_of(found)]


def resolved(
    tuning: Tuning, targets: tuple[str, ...], model: Model, implementation: Implementation, converts: bool = True
) -> Tuning:
    """Return an adapter with the targets that a user named. A name after a minus is left without an adapter, as peft's
    exclude_modules are. Raises where a name matches nothing, and where an adapter other than LoRA and DoRA is on what
    is not modeled with it."""
    excluded = tuple(target[1:] for target in targets if target.startswith("-"))
    if excluded:
        named = tuple(target for target in targets if not target.startswith("-"))
        targets = _without(excluded, _known(named, model), model, implementation, converts)
    if tuning.method == "lora" or not tuning.targeted:
        return _targeted(tuning, targets, model, implementation, converts)
    if targets == (DEFAULT,):
        raise Refused(f"--lora-targets default: peft's choices for {tuning.method} are not known", "name them")
    return _of_kind(_targeted(tuning, targets, model, implementation, False), model, implementation)


def _of_kind(tuning: Tuning, model: Model, implementation: Implementation) -> Tuning:
    """Return adapters of another kind than LoRA, with what they share."""
    from napkin.operations.adapters.kinds import KINDS
    from napkin.operations.linear import Matmul

    named = f"--adapter {tuning.method}"
    if implementation.qkv == "joined":
        raise Refused(f"{named}: not modeled in this implementation", "--implementation hf")
    asked, as_lora = replace(implementation, tuning=tuning), replace(tuning, method="lora")
    others = [name for name, _ in tuning.parameters]
    layers: list[AdaptedLayer] = []
    for op in all_operations(model):
        others += [part.path for part in op.linear_parts(implementation) if times_rank(part, as_lora)]
        others += [op.module for _ in adapted_lookups(op, as_lora)]
        found = kind_on(op, asked)
        if found is not None:
            others += [] if type(op).lower is Matmul.lower else [op.module or op.name]
            layers.append(found[1])
    if others:
        raise Refused(f"{named}: not modeled on {others[0]}", "--lora-targets with the names of linear layers")
    if not layers:
        raise Refused(f"{named}: none of these targets is a linear layer", "--lora-targets all-linear")
    return replace(tuning, shared=KINDS[tuning.method].shared(layers))


def _targeted(
    tuning: Tuning, targets: tuple[str, ...], model: Model, implementation: Implementation, converts: bool
) -> Tuning:
    """Return an adapter with its targets.

    Where transformers 5 keeps experts in one tensor that were linear layers in transformers 4, peft takes the old names
    for the tensors; the fused one, of gate and up, gets twice the rank (utils/transformers_weight_conversion.py).
    converts: whether it does, as peft did not before. Where the tensors are linear layers, each has the rank itself."""
    targets = _known(targets, model)
    operations = all_operations(model)
    paths = [path for op in operations for path in paths_in(op, implementation)]
    mapped = RENAMED.get(CONVERTED.get(model.family, ""), {}) if converts else {}
    if targets in EVERYTHING and (not mapped or implementation.grouped_linears):
        return tuning
    targets = _spread(targets, operations, implementation, mapped)
    held = [part.path for op in operations for part in op.linear_parts(implementation) if part.parameter]
    parameters: dict[str, int] = {}
    fused: dict[str, set[str]] = {}
    modules: list[str] = []
    for target in targets:
        old = next((name for name in mapped if path_ends(target, name)), None)
        if old is not None:
            fused.setdefault(mapped[old], set()).add(old)
            continue
        found = [path for path in paths if path_ends(path, target)]
        if found and any(part.startswith("expert_") for part in target.split(".")):
            raise Refused(
                f"--lora-targets {target[:40]}: adapters in single experts are not modeled", target.rpartition(".")[2]
            )
        if "." in target and not found and any(path_ends(path, target) for path in held):
            parameters[target] = 1
        elif found:
            modules.append("." + target)
        elif any(target == op.short.lower() for op in operations if is_module(op)):
            modules.append(target)
        else:
            names = sorted({path.rpartition(".")[2] for path in paths})
            number, _, rest = target.partition(".")
            if number.isdecimal() and any(path_ends(path, rest) for path in paths):
                raise Refused(f"--lora-targets {target[:40]}: adapters in single layers are not modeled", rest)
            raise NapkinError(
                f"--lora-targets: {model.name} has no linear layer {target[:40]!r}",
                did_you_mean(target, names) or f"one of {', '.join(names)}",
            )
    _check_fused(fused, mapped)
    if implementation.grouped_linears:
        modules += [f".{name}" for name in fused]
    else:
        parameters |= {name: len(parts) for name, parts in fused.items()}
    return replace(tuning, targets=tuple(modules), parameters=tuple(parameters.items()))


def _known(targets: tuple[str, ...], model: Model) -> tuple[str, ...]:
    """Return the targets; for `default`, peft's choice for the model type."""
    if targets != (DEFAULT,):
        return targets
    known = DEFAULTS.get(model.family)
    if known is None:
        raise NapkinError(f"--lora-targets default: peft has none for {model.family}", "name them, or all-linear")
    return known


def _spread(
    targets: tuple[str, ...], operations: list[Operation], implementation: Implementation, mapped: Iterable[str]
) -> tuple[str, ...]:
    """Return the targets with every linear layer but the head, and what peft takes for experts, for the word that
    stands for all of them; what is named next to it, as lm_head, stays."""
    words = {ALL_LINEAR, *EVERYTHING[1]}
    if targets and not words.intersection(targets):
        return targets
    leaves = (path.rpartition(".")[2] for path in linear_paths(operations, implementation))
    return tuple(dict.fromkeys((*leaves, *mapped, *(one for one in targets if one not in words))))


def _without(
    excluded: tuple[str, ...], targets: tuple[str, ...], model: Model, implementation: Implementation, converts: bool
) -> tuple[str, ...]:
    """Return the targets without the modules that are excluded (peft 0.21, tuners/tuners_utils.py,
    check_target_module_exists): a target of which some are left becomes their paths."""
    operations = all_operations(model)
    mapped = RENAMED.get(CONVERTED.get(model.family, ""), {}) if converts else {}
    targets = _spread(targets, operations, implementation, mapped)
    modules = {path: op.short.lower() for op in operations for path in paths_in(op, implementation)}

    def named(path: str, name: str) -> bool:
        return path_ends(path, name) or modules[path] == name

    for name in excluded:
        if not any(named(path, name) for path in modules):
            names = sorted({path.rpartition(".")[2] for path in modules})
            raise NapkinError(
                f"--lora-targets: {model.name} has no linear layer {name[:40]!r} to leave out",
                did_you_mean(name, names) or f"one of {', '.join(names)}",
            )
    kept: list[str] = []
    for target in targets:
        found = [path for path in modules if named(path, target)]
        left = [path for path in found if not any(named(path, name) for name in excluded)]
        kept += [target] if left == found else [path.lower() for path in left]
    if not kept:
        raise NapkinError("--lora-targets: every target is left out", "name targets, or all-linear")
    return tuple(dict.fromkeys(kept))


def found_targets(targets: tuple[str, ...], model: Model, implementation: Implementation) -> tuple[str, ...]:
    """Return the targets that name a module, where any does: peft passes over the others (peft 0.21,
    tuners/tuners_utils.py, inject_adapter)."""
    paths = [path for op in all_operations(model) for path in paths_in(op, implementation)]
    found = tuple(target for target in targets if any(path_ends(path, target) for path in paths))
    return found or targets


def has_modules(targets: tuple[str, ...], model: Model, implementation: Implementation) -> bool:
    """Return whether every target names a module of the class."""
    paths = [path for op in all_operations(model) for path in paths_in(op, implementation)]
    return all(any(path_ends(path, target) for path in paths) for target in targets)


PARTS = frozenset(("q", "k", "v", "o", "gate", "up", "down", "qkv"))
"""napkin's words for the parts of a layer, which are no module's name."""


def lacking_targets(targets: tuple[str, ...], model: Model, implementation: Implementation) -> tuple[str, ...]:
    """Return the names of modules that a model lacks, if it has others of the targets: peft passes over them."""
    operations = all_operations(model)
    paths = [path for op in operations for path in paths_in(op, implementation)]
    held = [part.path for op in operations for part in op.linear_parts(implementation) if part.parameter]
    converted = RENAMED.get(CONVERTED.get(model.family, ""), {})
    lacking = tuple(
        target
        for target in targets
        if target not in (*PARTS, "all", ALL_LINEAR, DEFAULT)
        and not target.startswith("-")
        and not any(path_ends(path, target) for path in (*paths, *(held if "." in target else ()), *converted))
    )
    return lacking if len(lacking) < len(targets) else ()


def _check_fused(named: dict[str, set[str]], mapped: dict[str, str]) -> None:
    """Raise an error if a part of a fused parameter is named without the other, as peft does."""
    for fused, some in named.items():
        parts = [name for name, one in mapped.items() if one == fused]
        if len(some) < len(parts):
            raise NapkinError(
                f"--lora-targets: {fused} holds {' and '.join(parts)}", f"name {','.join(parts)} together"
            )


def is_module(op: Operation) -> bool:
    """Return whether an operation is a linear layer or an embedding of the class."""
    linear = op.linear()
    return bool(op.tables()) or (linear is not None and not linear.bare)


def paths_in(op: Operation, implementation: Implementation) -> Iterator[str]:
    """Yield the paths of what peft can adapt as a module."""
    op = module_of(op)
    if is_module(op):
        yield op.module
    yield from (part.path for part in op.linear_parts(implementation) if not part.parameter)


def linear_paths(operations: list[Operation], implementation: Implementation) -> Iterator[str]:
    """Yield the paths of the linear layers but the head."""
    for op in operations:
        linear = op.linear()
        if linear is not None and not linear.bare and (linear.shard != VOCABULARY or implementation.head_is_layer):
            yield op.module
        yield from (part.path for part in op.linear_parts(implementation) if not part.parameter)

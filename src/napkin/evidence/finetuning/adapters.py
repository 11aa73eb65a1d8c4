"""Adapters of a fine-tuning row: LoRA and DoRA as the row states them; another kind as LoRA with the same number of
parameters on the same modules, which has similar memory and time, with a wider interval."""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.evidence.finetuning.software import tuning_of
from napkin.evidence.finetuning.targets import (
    experts_of,
    leaves_adapters_open,
    rank_of,
    states_targets,
    targets_of,
    usual_targets,
)
from napkin.evidence.rows.row import RowFields
from napkin.operations.adapters.kinds import KINDS as OTHER_KINDS
from napkin.operations.adapters.targets import ALL_LINEAR, found_targets, lacking_targets, resolved
from napkin.operations.adapters.virtual import VIRTUAL_TOKENS
from napkin.operations.frozen import Frozen
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.roles import ADAPTER
from napkin.operations.trained import as_trained
from napkin.operations.tuning import Tuning
from napkin.record import replace

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

"""Names of operations are for paths only: with every one of them changed, every number stays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.counting import flops
from napkin.counting.params import params
from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.footprint import kv_cache, memory
from napkin.footprint.prepared import prepare
from napkin.inputs.presets import presets
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model, Stack
from napkin.operations.roles import SHARED_TENSOR
from napkin.operations.tuning import Tuning
from napkin.operations.views import Reused
from napkin.record import replace
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import preset
from tests.test_step import reached


def operations_of(model: Model) -> Iterable[tuple[Operation, ...]]:
    for stack in model.stacks:
        yield from (stack.before, *(layer.operations for layer in stack.layers), stack.after)
    yield from (layer.operations for layer in model.extra)
    yield model.shared


def renamed(model: Model) -> Model:
    """The model with another name for each operation, and for each if it is read."""
    names: dict[str, str] = {}
    for operations in operations_of(model):
        for op in operations:
            names.setdefault(op.name, f"n{len(names)}")

    def read(name: str) -> str:
        if name in names:
            return names[name]
        if name.startswith(SHARED_TENSOR):
            return SHARED_TENSOR + names[name.removeprefix(SHARED_TENSOR)]
        owner, slash, part = name.rpartition("/")
        return names[owner] + slash + part if slash else name

    changed: dict[int, Operation] = {}

    def one(op: Operation) -> Operation:
        if id(op) not in changed:  # an operation whose weights another uses again stays the same one for both
            changes: dict[str, Any] = {"of": one(op.of)} if isinstance(op, Reused) else {}
            changed[id(op)] = replace(op, name=read(op.name), reads=tuple(map(read, op.reads)), **changes)
        return changed[id(op)]

    made: dict[int, Layer] = {}

    def layer(old: Layer) -> Layer:
        if id(old) not in made:
            made[id(old)] = replace(old, operations=tuple(map(one, old.operations)))
        return made[id(old)]

    def stack(old: Stack) -> Stack:
        patterns = tuple((times, tuple((n, layer(of)) for n, of in runs)) for times, runs in old.patterns)
        return replace(old, before=tuple(map(one, old.before)), patterns=patterns, after=tuple(map(one, old.after)))

    return replace(
        model,
        stacks=tuple(map(stack, model.stacks)),
        extra=tuple(map(layer, model.extra)),
        shared=tuple(map(one, model.shared)),
    )


def test_parameters_flops_and_caches_keep_their_values_in_every_preset() -> None:
    for one in presets():
        model = preset(one.name)
        other = renamed(model)
        assert totals(params(model)) == totals(params(other)), one.name
        assert totals(flops.step(model, flops.works(model, 1, 512))) == totals(
            flops.step(other, flops.works(other, 1, 512))
        ), one.name
        for stack, new in zip(model.stacks, other.stacks, strict=True):
            for before, after in zip(stack.layers, new.layers, strict=True):
                assert kv_cache.cached_numbers(before, 64) == kv_cache.cached_numbers(after, 64), one.name


def totals(found: dict[str, Any]) -> dict[str, Number]:
    """Values by path, but for paths that name an operation."""
    return {path: term.value for path, term in found.items() if path.count("/") == 1}


def kinds(model: Model) -> tuple[object, ...]:
    """What the network is made of, without sizes."""
    return (model.family, model.tied, *((type(op), op.name) for part in operations_of(model) for op in part))


@functools.cache
def distinct() -> list[tuple[str, Model, Model]]:
    """The name of one preset of each structure, the preset, and the same with other names."""
    models = {kinds(model): (one.name, model) for one in presets() for model in (preset(one.name),)}
    return [(name, model, renamed(model)) for name, model in models.values()]


def rank_bytes(implementation: str, tuning: Tuning | None = None) -> Callable[[Model], object]:
    def count(model: Model) -> object:
        code = replace(implementation_of(implementation, model.family), tuning=tuning)
        length = min(model.max_length or 64, 64)
        setup = Setup(code, Layout(micro=2, seq=length), POLICIES["bf16-mixed"], find("adamw")[0], "foreach")
        prepared = prepare(model, setup)
        saved = [
            section.saved for section in (prepared.run.before, *(p for _, p in prepared.run.layers), prepared.run.after)
        ]
        rank = memory.rank_of(prepared, 0)
        return saved, rank.parameters, rank.optimizer, rank.live

    return count


def step_seconds(model: Model) -> object:
    return step(model, StepLayout(64, 1, 8, tp=2), reached()).time.value


LORA = Tuning("lora", targets=("q", "v"))


@pytest.mark.parametrize(
    "figure",
    [rank_bytes("hf"), rank_bytes("litgpt", LORA), rank_bytes("hf", LORA), step_seconds],
    ids=["memory", "LoRA in litgpt", "LoRA", "step"],
)
def test_memory_lora_and_time_keep_their_values(figure: Callable[[Model], object]) -> None:
    for name, model, other in distinct():
        assert outcome(figure, model) == outcome(figure, other), name


def outcome(figure: Callable[[Model], object], model: Model) -> object:
    """The figure, or why it is refused."""
    try:
        return figure(model)
    except NapkinError as problem:
        return problem.message

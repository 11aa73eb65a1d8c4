"""Kinds of operation: what each must state about itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from itertools import chain

import pytest

from napkin import operations
from napkin.elementwise import Number
from napkin.inputs.presets import all_fields
from napkin.operations.base import Operation
from napkin.operations.bases import Elementwise, View
from napkin.operations.embedding import Embedding
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record, replace
from tests.conftest import preset
from tests.test_renamed import operations_of


def test_a_kind_that_lacks_a_method_fails_when_it_is_defined() -> None:
    with pytest.raises(TypeError, match=r"operation Half lacks gemms"):

        class Half(Operation):
            def weights(self) -> tuple[Weight, ...]:
                return ()


def test_the_base_gives_no_defaults_and_an_intermediate_base_may() -> None:
    with pytest.raises(TypeError, match=r"operation Nothing lacks weights, gemms"):

        class Nothing(Operation):
            pass

    @record
    class Negate(Elementwise):
        """−x."""

        def traffic(self) -> tuple[Number, Number]:
            return 4, 4

        def lower(self, run: Lowering) -> Value:
            return Value(run.tape.scale(run.read(self).tensor), 1)

    assert Negate("n", ("x",)).gemms(Work(1, 8)) == ()

    class Reshaped(View, abstract=True):
        def gemms(self, work: Work) -> tuple[Gemm, ...]:
            raise NotImplementedError

    assert Reshaped.weights is View.weights


def test_role_and_module_are_given_by_keyword_and_come_last() -> None:
    linear = Matmul("q", ("x",), 8, 16, True)
    assert (linear.bias, linear.role, linear.module) == (True, "", "q")
    assert replace(linear, role="query", name="n").module == "q"
    assert Matmul.__match_args__[-4:] == ("role", "module", "short", "learning")
    assert Embedding("e", (), 4, 2).role == "token"
    with pytest.raises(TypeError):
        Embedding("e", (), 4, 2, True, "position")  # type: ignore[call-arg]


def kinds(base: type[Operation] = Operation) -> Iterator[type[Operation]]:
    """Every class of operation, intermediate bases too."""
    for module in pkgutil.walk_packages(operations.__path__, "napkin.operations."):
        importlib.import_module(module.name)
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def reasoned(kind: type[Operation]) -> bool:
    """Return whether the docstring of a kind's traffic says why it is 0 bytes, or counted as nothing."""
    says = (kind.traffic.__doc__ or "").lower()
    return "nothing" in says or "return 0 bytes: " in says


def test_no_operation_of_a_preset_takes_no_time_without_a_reason() -> None:
    """Bytes, products, scores or a clock of its own; else `traffic` says what counts it, or why nothing does."""
    work = Work(2, 256)
    seen: set[str] = set()
    of_each_family = {fields["family"]: name for name, fields in all_fields()}.values()
    for name in of_each_family:
        for one in chain.from_iterable(operations_of(preset(name))):
            op = one.owner()
            if type(op).__name__ in seen or any(op.traffic()) or op.gemms(work) or op.scores(work):
                continue
            seen.add(type(op).__name__)
            assert reasoned(type(op)), f"{type(op).__name__} of {name} takes no time, and its traffic does not say why"
    assert seen


def test_no_kind_states_zero_bytes_without_a_reason() -> None:
    for kind in kinds():
        constants = kind.traffic.__code__.co_consts
        if kind.__module__.startswith("napkin.") and "traffic" in vars(kind) and (0, 0) in constants:
            assert reasoned(kind), kind.__name__

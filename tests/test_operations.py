"""Kinds of operation: what each must state about itself."""

from __future__ import annotations

import pytest

from napkin.operations.base import Elementwise, Gemm, Operation, View, Weight, Work
from napkin.operations.embedding import Embedding
from napkin.operations.linear import Matmul
from napkin.record import record, replace


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

    assert Negate("n", ("x",)).gemms(Work(1, 8)) == ()

    class Reshaped(View, abstract=True):
        def gemms(self, work: Work) -> tuple[Gemm, ...]:
            raise NotImplementedError

    assert Reshaped.weights is View.weights


def test_role_and_module_are_given_by_keyword_and_come_last() -> None:
    linear = Matmul("q", ("x",), 8, 16, True)
    assert (linear.bias, linear.role, linear.module) == (True, "", "")
    assert replace(linear, role="query").role == "query"
    assert Matmul.__match_args__[-2:] == ("role", "module")  # type: ignore[attr-defined]
    assert Embedding("e", (), 4, 2).role == "token"
    with pytest.raises(TypeError):
        Embedding("e", (), 4, 2, True, "position")  # type: ignore[misc]

"""Kinds of operation: what each must state about itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

from napkin import operations
from napkin.elementwise import Number
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.ordinary import Elementwise, View
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work
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
    for module in pkgutil.iter_modules(operations.__path__):
        importlib.import_module(f"napkin.operations.{module.name}")
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_operations_whose_bytes_the_time_of_a_step_does_not_know_yet() -> None:
    """The one list of them: each says `NOT_TIMED` in its class."""
    found = {
        kind.__name__
        for kind in kinds()
        if kind.__module__.startswith("napkin.") and "NOT_TIMED" in kind.traffic.__code__.co_names
    }
    elementwise = (
        "BalanceLoss BlockResidual Cast Clamp ClassLoss AttentionDifference Dropout DynamicMask ExpertScale GroupMean "
        "Jitter Overwrite Softcap TokenShift"
    )
    copies = "ConcatTokens Concat HalfHeads Slice Transpose"
    next_to_gemms = (
        "BandAttention BlockIndexer DistanceBias ExpertMatmul Indexer PositionBias RelativeScores RetrievedExperts "
        "Reused RunChoice RunIndexer SharedExperts ShiftedAttention Ungraded "
        "Unkept ChunkAttention NgramAttention Streamed StreamedLinear"
    )
    assert found == {*elementwise.split(), *copies.split(), *next_to_gemms.split()}

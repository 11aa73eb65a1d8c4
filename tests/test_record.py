"""Frozen records: what a frozen dataclass gives, without its cost."""

from __future__ import annotations

import copy
import pickle

import pytest

from napkin.record import FrozenRecordError, record, replace


@record
class Point:
    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


@record
class Named(Point):
    name: str = "p"


def test_fields_defaults_and_inheritance() -> None:
    assert (Point(1).x, Point(1).y, Point(1, 3).total) == (1, 2, 4)
    one = Named(1, name="q")
    assert (one.x, one.y, one.name) == (1, 2, "q")
    assert repr(one) == "Named(x=1, y=2, name='q')"


def test_compared_and_hashed_by_value() -> None:
    assert Point(1) == Point(x=1, y=2) != Point(1, 3)
    assert Point(1) != Named(1)
    assert len({Point(1), Point(1, 2), Point(2)}) == 2


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_fields_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Point(*values, **named)


def test_a_record_does_not_change() -> None:
    with pytest.raises(FrozenRecordError):
        Point(1).x = 3  # type: ignore[misc]
    assert replace(Point(1), y=5) == Point(1, 5)
    assert copy.deepcopy(Point(1)) == pickle.loads(pickle.dumps(Point(1))) == Point(1)


def test_only_fields_can_be_replaced() -> None:
    with pytest.raises(TypeError, match="Point has no field 'z'"):
        replace(Point(1), z=5)


def test_fields_can_be_matched_by_place() -> None:
    match Named(1, 2, "n"):
        case Named(x, y, name):
            assert (x, y, name) == (1, 2, "n")

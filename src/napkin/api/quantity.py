"""A number of an answer: it behaves as an int or float, and has a unit, an interval and a term tree."""

from __future__ import annotations

from napkin.term import Term, expression
from napkin.units import human

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Whole(Protocol):
        """The part of an answer's interface that its numbers use."""

        @property
        def low(self) -> Mapping[str, float]: ...
        @property
        def high(self) -> Mapping[str, float]: ...
        def below(self, bucket: str, name: str) -> Quantity: ...
        def names_below(self, bucket: str) -> list[str]: ...
        def explain(self, path: str | None = None) -> str: ...


OWN = ("total", "time")
"""Last component of the path that holds a bucket's total: `memory` is memory/total, `step` is step/time."""


class _Known:
    """The attributes of a number besides its value.

    path   its path in the answer (`memory/optimizer/exp_avg`); numbers below it are attributes (`.exp_avg`)
    unit   canonical unit: byte, second, FLOP, param, …; "1" if there is none
    """

    path: str
    unit: str
    _answer: Whole
    _term: Term | None

    def _know(self, answer: Whole, path: str, unit: str, term: Term | None) -> None:
        self.__dict__.update(path=path, unit=unit, _answer=answer, _term=term)

    @property
    def low(self) -> float | None:
        """The low end of its interval, in its unit; None if it has none."""
        return self._answer.low.get(self.path)

    @property
    def high(self) -> float | None:
        """The high end of its interval, in its unit; None if it has none."""
        return self._answer.high.get(self.path)

    @property
    def text(self) -> str:
        """The number in its best unit, as the screen writes it: `55.3 GiB`."""
        return human(self._value(), self.unit)

    @property
    def expression(self) -> str:
        """The formula, in the names of its parts; "" for an input, which is not computed."""
        return "" if self._term is None else expression(self._term)

    @property
    def source(self) -> str:
        """The citation of its formula or its figure; "" if it has none."""
        return "" if self._term is None else self._term.source

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of number that it depends on: given, exact, published, measured, assumed."""
        return frozenset() if self._term is None else frozenset(self._term.kinds())

    @property
    def parts(self) -> tuple[Quantity, ...]:
        """The numbers that it is computed from."""
        return () if self._term is None else tuple(quantity(self._answer, part) for part in self._term.parts)

    def explain(self) -> str:
        """Return the tree of its computation, down to the inputs."""
        return self._answer.explain(self.path)

    def _value(self) -> int | float:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Quantity:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._answer.below(self.path, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a number of an answer does not change")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._answer.names_below(self.path)]


class Count(_Known, int):
    """An integer of an answer, exact at any size."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:  # copied or pickled, it is a plain number
        return int, (int(self),)

    def _value(self) -> int:
        return int(self)


class Measure(_Known, float):
    """A number of an answer."""

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)

    def _value(self) -> float:
        return float(self)


Quantity = Count | Measure
"""A number of an answer."""


def quantity(answer: Whole, term: Term) -> Quantity:
    """Return a term as a number of the answer."""
    return numbered(answer, term.name, term.value, term.unit, term)


def numbered(answer: Whole, path: str, value: int | float, unit: str, term: Term | None = None) -> Quantity:
    """Return a number of the answer by its path; term: the tree of its computation, if there is one."""
    found = Count(value) if isinstance(value, int) else Measure(value)
    found._know(answer, path, unit, term)
    return found

"""Arithmetic on Python numbers or numpy arrays, so that one formula serves one layout or a million.

Scalars stay exact Python integers as long as the arithmetic allows. numpy is never imported here: a caller that passes
an array has loaded it.
"""

from __future__ import annotations

import math
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol, TypeAlias, TypeGuard

    Operand: TypeAlias = Any
    """The other number of an operation. `Number` would be too narrow: int's own methods take ints."""
    Truth: TypeAlias = Any
    """What a comparison returns: a bool of numbers, an array of them otherwise."""

    class Number(Protocol):
        """What formulas compute with: an int, a float, or a float64 array with one entry per layout."""

        def __add__(self, other: Operand, /) -> Number: ...
        def __radd__(self, other: Operand, /) -> Number: ...
        def __sub__(self, other: Operand, /) -> Number: ...
        def __rsub__(self, other: Operand, /) -> Number: ...
        def __mul__(self, other: Operand, /) -> Number: ...
        def __rmul__(self, other: Operand, /) -> Number: ...
        def __truediv__(self, other: Operand, /) -> Number: ...
        def __rtruediv__(self, other: Operand, /) -> Number: ...
        def __floordiv__(self, other: Operand, /) -> Number: ...
        def __rfloordiv__(self, other: Operand, /) -> Number: ...
        def __mod__(self, other: Operand, /) -> Number: ...
        def __rmod__(self, other: Operand, /) -> Number: ...
        def __divmod__(self, other: Operand, /) -> tuple[Number, Number]: ...
        def __pow__(self, other: Operand, /) -> Operand: ...
        def __rpow__(self, other: Operand, /) -> Operand: ...
        def __neg__(self) -> Number: ...
        def __abs__(self) -> Number: ...
        def __lt__(self, other: Operand, /) -> Truth: ...
        def __le__(self, other: Operand, /) -> Truth: ...
        def __gt__(self, other: Operand, /) -> Truth: ...
        def __ge__(self, other: Operand, /) -> Truth: ...
        def __float__(self) -> float: ...
        def __int__(self) -> int: ...
        def __bool__(self) -> bool: ...

    class Flag(Protocol):
        """A bool, or an array of them with one entry per layout."""

        def __and__(self, other: Operand, /) -> Truth: ...
        def __rand__(self, other: Operand, /) -> Truth: ...
        def __or__(self, other: Operand, /) -> Truth: ...
        def __ror__(self, other: Operand, /) -> Truth: ...
        def __mul__(self, other: Operand, /) -> Number: ...
        def __rmul__(self, other: Operand, /) -> Number: ...
        def __bool__(self) -> bool: ...

    class Array(Number, Flag, Protocol):
        """A numpy array of numbers or bools, with one entry per layout."""

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def ndim(self) -> int: ...
        def __add__(self, other: Operand, /) -> Array: ...
        def __radd__(self, other: Operand, /) -> Array: ...
        def __mul__(self, other: Operand, /) -> Array: ...
        def __rmul__(self, other: Operand, /) -> Array: ...
        def __getitem__(self, index: object, /) -> Array: ...
        def all(self) -> bool: ...
        def any(self) -> bool: ...
        def max(self) -> Number: ...
        def min(self) -> Number: ...
        def take(self, indices: object, axis: int | None = None) -> Array: ...

    class _Numpy(Protocol):
        """The functions of numpy that this module calls."""

        def maximum(self, a: Number, b: Number, /) -> Number: ...
        def minimum(self, a: Number, b: Number, /) -> Number: ...
        def where(self, condition: Flag, yes: Number, no: Number, /) -> Number: ...
        def ceil(self, a: Number, /) -> Number: ...
        def floor(self, a: Number, /) -> Number: ...
        def sqrt(self, a: Number, /) -> Number: ...
        def log2(self, a: Number, /) -> Number: ...
        def array(self, values: Sequence[Number], dtype: type, /) -> Array: ...
        def broadcast_to(self, a: Number, shape: tuple[int, ...], /) -> Operand: ...
        def unique(self, a: Number, /, *, return_index: bool = ..., return_inverse: bool) -> tuple[Operand, ...]: ...

else:
    Number = Flag = Array = object


def is_array(value: object) -> TypeGuard[Array]:
    """Return whether the value is an array: one entry per layout."""
    return hasattr(value, "__array__")


def _numpy() -> _Numpy:
    found: _Numpy = sys.modules["numpy"]
    return found


def maximum(*values: Number) -> Number:
    """Return the largest value, elementwise."""
    best = values[0]
    for value in values[1:]:
        if (value.__class__ is int and best.__class__ is int) or not (is_array(best) or is_array(value)):
            best = value if value > best else best
        else:
            best = _numpy().maximum(best, value)
    return best


def minimum(*values: Number) -> Number:
    """Return the smallest value, elementwise."""
    best = values[0]
    for value in values[1:]:
        if (value.__class__ is int and best.__class__ is int) or not (is_array(best) or is_array(value)):
            best = value if value < best else best
        else:
            best = _numpy().minimum(best, value)
    return best


def where(condition: Number | Flag, yes: Number, no: Number) -> Number:
    """Return `yes` if the condition holds, else `no`; both are evaluated, so neither may fail if not chosen."""
    if not is_array(condition):
        return yes if condition else no
    if condition.shape[-1] == 1 and condition.ndim > 1:  # of an axis of its own, on which all entries may agree
        if condition.all():
            return yes
        if not condition.any():
            return no
    return _numpy().where(condition, yes, no)


def combinations(*values: Number) -> tuple[list[tuple[int, ...]], Array | None]:
    """Return the distinct combinations of integers, and for arrays the index of the combination that each layout
    has."""
    if not any(is_array(value) for value in values):
        return [tuple(int(value) for value in values)], None
    key: Operand = 0.0
    size = 1
    for value in values:
        if is_array(value):
            more = int(value.max()) + 1
            if size * more >= 2**53:  # beyond which floats are not exact: the combinations so far are numbered anew
                key = _numpy().unique(key, return_inverse=True)[1].reshape(key.shape)
                size = int(key.max()) + 1
            key, size = key * more + value, size * more
    _, first, which = _numpy().unique(key, return_index=True, return_inverse=True)
    columns = [_numpy().broadcast_to(value, key.shape).reshape(-1)[first] for value in values]
    return [tuple(int(value) for value in one) for one in zip(*columns, strict=True)], which.reshape(key.shape)


def chosen(values: Sequence[Number], which: Array | None) -> Number:
    """Return the value for each layout; which: the indices that `combinations` returns."""
    return values[0] if which is None else _numpy().array(values, float)[which]


def floor_log2(x: Number) -> Number:
    """Return the largest n with 2ⁿ ≤ x, exactly, for 1 ≤ x < 2⁵³; 0 below."""
    n: Number = 0
    for power in range(1, 53):
        n = n + (x >= 2**power)
    return n


def ceil_div(a: Number, b: Number) -> Number:
    """Return ⌈a / b⌉, exact for integers, and in arrays below 2⁵³, where no proper fraction rounds to an integer.

    numpy's own floor division of floats takes ten times as long."""
    if is_array(a) or is_array(b):
        return _numpy().ceil(a / b)
    return -(-a // b)


def floor_div(a: Number, b: Number) -> Number:
    """Return ⌊a / b⌋, as exact as `ceil_div`."""
    if is_array(a) or is_array(b):
        return _numpy().floor(a / b)
    return a // b


def ceiling(a: Number) -> Number:
    """Return ⌈a⌉: an integer for a finite number."""
    if is_array(a):
        return _numpy().ceil(a)
    return a if isinstance(a, int) or not math.isfinite(a) else math.ceil(a)


def floor(a: Number) -> Number:
    """Return ⌊a⌋: an integer for a finite number."""
    if is_array(a):
        return _numpy().floor(a)
    return a if isinstance(a, int) or not math.isfinite(a) else math.floor(a)


def ratio(a: Number, b: Number) -> Number:
    """Return a / b: an integer if both are and b divides a; infinite if it overflows or b is 0."""
    if a.__class__ is float and b.__class__ is float and b:
        return a / b
    if is_array(a) or is_array(b):
        return a / b
    if b == 0:
        return math.nan if a == 0 else math.inf
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    try:
        return a / b
    except OverflowError:
        return math.inf


def times(a: Number, b: Number) -> Number:
    """Return a · b; infinite if an integer does not fit a float."""
    try:
        return a * b
    except OverflowError:
        return math.inf


def holds_for_all(condition: Number | Flag) -> bool:
    """Return whether a condition holds for all layouts."""
    return bool(condition.all() if is_array(condition) else condition)


def is_zero(value: Number) -> bool:
    """Return whether a number is 0 for all layouts."""
    return not value if value.__class__ is int else not (is_array(value) or value)


def product(a: Number, b: Number | Flag) -> Number:
    """Return a · b of finite numbers, without work if one is 0 or 1 for all layouts."""
    if b.__class__ is int or b.__class__ is bool:
        if b == 1:
            return a
        if b == 0:
            return 0
    if a.__class__ is int and 0 <= a <= 1:
        return b if a else 0  # type: ignore[return-value]
    return a * b


def plus(a: Number, b: Number) -> Number:
    """Return a + b; infinite if an integer does not fit a float."""
    try:
        return a + b
    except OverflowError:
        return math.inf


def square_root(a: Number) -> Number:
    """Return √a."""
    return _numpy().sqrt(a) if is_array(a) else math.sqrt(a)


def log2(a: Number) -> Number:
    """Return the logarithm of a to base 2."""
    return _numpy().log2(a) if is_array(a) else math.log2(a)


def power(a: Number, exponent: Number) -> Number:
    """Return a to the power of `exponent`; infinite if it overflows."""
    try:
        raised: Number = a**exponent
    except OverflowError:
        return math.inf
    return raised


def next_power(n: Number) -> Number:
    """Return the smallest power of two that is at least n."""
    power: Number = n * 0 + 1
    for _ in range(40):  # 2^40 tokens
        power = where(power < n, 2 * power, power)
    return power


def total(values: Iterable[Number]) -> Number:
    """Return the sum of numbers or arrays."""
    result: Number = 0
    for value in values:
        if value.__class__ is not int or value:
            result = result + value if result.__class__ is not int or result else value
    return result


def divisors(n: int, most: int | None = None) -> list[int]:
    """Return the divisors of n, up to `most` if it is given, ascending."""
    last = n if most is None else min(n, most)
    found, rest, prime = [1], n, 2
    while prime * prime <= rest and prime <= last:
        power = 1
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        found = [d * prime**k for d in found for k in range(power)]
        prime += 1 if prime == 2 else 2
    if 1 < rest <= last:  # a prime: its square is above what is left, or it is above `last`
        found += [d * rest for d in found]
    return sorted(d for d in found if d <= last)

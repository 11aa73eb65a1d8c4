"""Arithmetic that takes numbers or numpy arrays alike, so that a formula serves one layout and a million.

Scalars stay exact Python integers as long as the arithmetic allows. numpy is never imported here: whoever passes an
array has loaded it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

Number = Any
"""int, float, or a float64 array with one entry per layout."""


def is_array(value: Number) -> bool:
    return hasattr(value, "__array__")


def _numpy() -> Any:
    return sys.modules["numpy"]


def maximum(*values: Number) -> Number:
    """The larger, entry by entry."""
    best = values[0]
    for value in values[1:]:
        if is_array(best) or is_array(value):
            best = _numpy().maximum(best, value)
        elif value > best:
            best = value
    return best


def minimum(*values: Number) -> Number:
    """The smaller, entry by entry."""
    best = values[0]
    for value in values[1:]:
        if is_array(best) or is_array(value):
            best = _numpy().minimum(best, value)
        elif value < best:
            best = value
    return best


def where(condition: Number, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, else `no`. Both are evaluated: neither may fail where it is not chosen."""
    if is_array(condition):
        return _numpy().where(condition, yes, no)
    return yes if condition else no


def ceil_div(a: Number, b: Number) -> Number:
    """⌈a / b⌉; exact for integers, in arrays too below 2⁵³ (a quotient that is no integer cannot round to one there).
    numpy's own floor division of floats takes ten times as long."""
    if is_array(a) or is_array(b):
        return _numpy().ceil(a / b)
    return -(-a // b)


def floor_div(a: Number, b: Number) -> Number:
    """⌊a / b⌋, as exact as ceil_div."""
    if is_array(a) or is_array(b):
        return _numpy().floor(a / b)
    return a // b


def ceiling(a: Number) -> Number:
    """⌈a⌉: an integer for a finite number."""
    if is_array(a):
        return _numpy().ceil(a)
    return a if isinstance(a, int) or not math.isfinite(a) else math.ceil(a)


def floor(a: Number) -> Number:
    """⌊a⌋: an integer for a finite number."""
    if is_array(a):
        return _numpy().floor(a)
    return a if isinstance(a, int) or not math.isfinite(a) else math.floor(a)


def ratio(a: Number, b: Number) -> Number:
    """a / b: an integer where both are and b divides a; infinite, never an exception, where it overflows or b is 0."""
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
    """a · b; infinite, never an exception, where an integer does not fit a float."""
    try:
        return a * b
    except OverflowError:
        return math.inf


def plus(a: Number, b: Number) -> Number:
    """a + b; infinite, never an exception, where an integer does not fit a float."""
    try:
        return a + b
    except OverflowError:
        return math.inf


def square_root(a: Number) -> Number:
    return _numpy().sqrt(a) if is_array(a) else math.sqrt(a)


def log2(a: Number) -> Number:
    return _numpy().log2(a) if is_array(a) else math.log2(a)


def power(a: Number, exponent: Number) -> Number:
    try:
        return a**exponent
    except OverflowError:
        return math.inf

"""What a value becomes when it is stored in a format: rounded to nearest, ties to even, in exact arithmetic."""

from __future__ import annotations

from napkin.formats.table import FORMATS, INFINITE, SATURATES, Format, Integer, power_of_two
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction


@record
class StoredValue:
    """What a value becomes: the number, or None if it is infinite; and what happened to it.

    event  exact, rounded, subnormal (rounded below the smallest normal), underflow (became 0), overflow"""

    value: Fraction | None
    event: str
    becomes: str = ""


def store(value: Fraction, form: Format | Integer) -> StoredValue:
    """`value` in the format, rounded to nearest, ties to even.

    In a scaled format it is the largest of its block (and tensor), which fixes the scale: a power of two for MX,
    2^(⌊log2|v|⌋ − the element's largest exponent); for nvfp4 the largest of its tensor, which takes element 6, block
    scale 448 and the tensor's scale v/2688 in fp32."""
    if isinstance(form, Integer):
        return _store_integer(value, form)
    if value == 0:
        return StoredValue(value, "exact")
    if form.scale == "e8m0":
        shared = min(max(floor_log2(abs(value)) - form.top, -127), 127)
        element = _round(value / power_of_two(shared), form)
        assert element.value is not None  # elements of MX saturate
        return StoredValue(element.value * power_of_two(shared), element.event, element.becomes)
    if form.scale:
        fp32 = FORMATS["fp32"]
        block = FORMATS[form.scale]
        assert isinstance(fp32, Format)
        assert isinstance(block, Format)
        factor = form.largest * block.largest
        tensor = _round(value / factor, fp32)
        if tensor.value is None:
            return StoredValue(None, "overflow", INFINITE)
        return StoredValue(tensor.value * factor, _event(value, tensor.value * factor, tensor.event), tensor.becomes)
    return _round(value, form)


def _event(value: Fraction, result: Fraction, otherwise: str) -> str:
    return "exact" if value == result else "underflow" if result == 0 else otherwise


def _store_integer(value: Fraction, form: Integer) -> StoredValue:
    nearest = round(value) * power_of_two(0)
    if nearest > form.largest:
        return StoredValue(form.largest * power_of_two(0), "overflow", SATURATES)
    if nearest < form.smallest:
        return StoredValue(form.smallest * power_of_two(0), "overflow", "the smallest number")
    return StoredValue(nearest, _event(value, nearest, "rounded"))


def floor_log2(value: Fraction) -> int:
    """⌊log2 value⌋ of a positive number, exactly."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if value >= power_of_two(exponent) else exponent - 1


def _round(value: Fraction, form: Format) -> StoredValue:
    """Return the nearest multiple of the spacing at the value's binade; Python's round() takes ties to even."""
    binade = max(floor_log2(abs(value)), form.lowest)
    spacing = power_of_two(binade - form.fraction)
    result = round(value / spacing) * spacing
    if abs(result) > form.largest:
        if form.above == SATURATES:
            return StoredValue(form.largest if value > 0 else -form.largest, "overflow", SATURATES)
        return StoredValue(None, "overflow", "−" * (value < 0) + INFINITE)
    if result == 0:
        return StoredValue(result, "underflow")
    if result == value:
        return StoredValue(result, "exact")
    return StoredValue(result, "subnormal" if abs(result) < power_of_two(form.lowest) else "rounded")

"""A format's figures as terms: bits, range, spacing."""

from __future__ import annotations

from napkin.formats.table import FORMATS, Format, Integer, element_bytes, power_of_two
from napkin.term import TRUE, Term, constant, leaf, multiply, power, subtract


def figures_of(form: Format | Integer, path: str) -> list[Term]:
    """Return the format's figures as terms below `path`: bits, bytes, exponent and fraction bits, range, spacing.

    A scaled format's range is its elements' range times that of its scales."""
    if isinstance(form, Integer):
        return _integer_figures(form, path)
    two, source = constant("2", 2), form.source
    fraction = leaf(f"{path}/fraction_bits", form.fraction, "1", TRUE, source)
    exponent = leaf(f"{path}/exponent_bits", form.exponent, "1", TRUE, source)
    negative = constant("fraction_bits_negated", -form.fraction)
    top = leaf("largest_exponent", form.top, "1", TRUE, source)
    low = leaf("smallest_exponent", form.lowest, "1", TRUE, source)
    epsilon = power(f"{path}/epsilon", two, negative)
    gap = epsilon if not form.missing else multiply("last_gap", constant("2", 1 + form.missing), epsilon)
    largest, normal, subnormal = (
        multiply("element_max", subtract("largest_significand", two, gap), power("top_binade", two, top)),
        power("element_min_normal", two, low),
        multiply("element_min_subnormal", epsilon, power("element_min_normal", two, low)),
    )
    scales = _scale_range(form)
    terms = [
        leaf(f"{path}/bits", form.bits, "1", TRUE, source),
        element_bytes(form, f"{path}/bytes"),
        leaf(f"{path}/sign_bits", 1, "1", TRUE, source),
        exponent,
        fraction,
        multiply(f"{path}/max", largest, *scales[1]) if scales else largest.renamed(f"{path}/max"),
        multiply(f"{path}/min_normal", normal, *scales[0]) if scales else normal.renamed(f"{path}/min_normal"),
        multiply(f"{path}/min_subnormal", subnormal, *scales[0])
        if scales
        else subnormal.renamed(f"{path}/min_subnormal"),
        epsilon,
    ]
    if scales:
        terms.append(leaf(f"{path}/block", form.block, "1", TRUE, source))
        terms.append(leaf(f"{path}/scale_bits", 8, "1", TRUE, source))
    return terms


def _scale_range(form: Format) -> tuple[tuple[Term, ...], tuple[Term, ...]] | None:
    """(smallest, largest) scale. nvfp4's e4m3 scale, as stored, with its tensor's fp32 scale at 1."""
    if not form.scale:
        return None
    if form.scale == "e8m0":
        two = constant("2", 2)
        return (
            (power("smallest_scale", two, constant("smallest_scale_exponent", -127, "1", form.source)),),
            (power("largest_scale", two, constant("largest_scale_exponent", 127, "1", form.source)),),
        )
    scale = FORMATS[form.scale]
    assert isinstance(scale, Format)
    smallest = power_of_two(scale.lowest - scale.fraction)
    return (
        (leaf("smallest_scale", float(smallest), "1", TRUE, scale.source),),
        (leaf("largest_scale", int(scale.largest), "1", TRUE, scale.source),),
    )


def _integer_figures(form: Integer, path: str) -> list[Term]:
    one = [leaf(f"{path}/{name}", 1, "1", TRUE, form.source) for name in ("min_normal", "min_subnormal", "epsilon")]
    return [
        leaf(f"{path}/bits", form.bits, "1", TRUE, form.source),
        element_bytes(form, f"{path}/bytes"),
        leaf(f"{path}/max", form.largest, "1", TRUE, form.source),
        leaf(f"{path}/min", form.smallest, "1", TRUE, form.source),
        *one,
    ]

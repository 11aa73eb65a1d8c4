"""The shipped constants, their spread, and the evidence that the intervals come from (made by tools/calibrate.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.evidence.intervals.steps import NORMAL_90, RunPoint, SeenStep, class_of, nearest, own_error, quantile, scale
from napkin.evidence.rates.machines import Machine
from napkin.evidence.rates.of_step import NARROW, matmul_of
from napkin.evidence.rates.priors import CHIP, prior_of

WIDE = 16
"""Bits of the products that were measured on every generation."""
UNSEEN_WIDTH = math.log(3) / NORMAL_90
"""assumed: σ of ln(rate) of products in fewer bits that were not measured: at the lower end of the 90 % interval they
take, with a doubled peak, half as long again as in 16 bits. New kernels and their casts can: 250 to 324 TFLOP/s in FP8
on MI300X, whose 16-bit peak is 1,307 (ROCm/TransformerEngine issues 72 and 76, GPT-2 XL, October 2024)."""


def constants(without: str = "") -> Mapping[str, float]:
    """Return all constants, fitted without one source if named, so that a row never helps to predict itself."""
    from napkin._tables import calibration as table

    if not without:
        return table.CONSTANTS
    from napkin._tables.calibration_held_out import WITHOUT

    return {**table.CONSTANTS, **WITHOUT[without]} if without in WITHOUT else table.CONSTANTS


def spreads(without: str = "") -> Mapping[str, float]:
    """Return σ of each constant's logarithm, fitted without one source if it is named."""
    from napkin._tables import calibration as table

    if not without:
        return table.SPREADS
    from napkin._tables.calibration_held_out import SPREADS_WITHOUT

    return {**table.SPREADS, **SPREADS_WITHOUT.get(without, {})}


def own_error_of(at: RunPoint, sigma: Mapping[str, float], exposed: float = 0.0) -> float:
    """Return the mean error from uncertainty about the constants that a run rests on, from σ of their logarithms. A
    chip whose matmuls in 8 or 4 bits were not measured has the constant of 16 bits, with UNSEEN_WIDTH added to its
    spread. exposed: the share of the step that data-parallel communication takes in addition to the compute."""
    chip = sigma[matmul_of(at.generation, at.bits)]
    if at.bits < WIDE and (at.generation, at.bits) not in NARROW:
        chip = math.hypot(chip, UNSEEN_WIDTH)
    return own_error(at, chip, sigma[f"stack/{at.stack}"], sigma["data_exposed"] * exposed)


def may_be_at_lowest_voltage(at: Machine, without: str = "") -> bool:
    """Return whether an accelerator gets fewer watts for a FLOP/s than its generation's reference, so that its voltage
    may be at its lowest: it is not predicted so, and no steps measured it. without: a source that is held out."""
    name = f"{CHIP}{at.chip}"
    measured = spreads(without).get(name, math.inf) < prior_of(name)[1]
    return bool(at.power < 1) and not (at.held or at.at_lowest_voltage or measured)


def at_lowest_voltage(known: Mapping[str, float]) -> dict[str, float]:
    """Return the constants of an accelerator whose voltage is at its lowest.

    Watts grow with f·V². While the voltage falls with the clock, the clock falls as the fitted power of the watts; at
    the lowest voltage, which no datasheet states, it falls as the watts do."""
    return {**known, "power": 1.0}


_QUANTILES: dict[tuple[float, str], float] = {}
_NEAREST: dict[tuple[RunPoint, str], list[tuple[float, SeenStep]]] = {}
"""Cached quantiles of the evidence's errors, by confidence level and held-out source."""


def half_width(
    at: RunPoint, level: float, without: str = "", exposed: float = 0.0
) -> tuple[float, list[tuple[float, SeenStep]]]:
    """Return the half-width of the interval in ln(time), and the steps that it is based on. exposed: see
    own_error_of."""
    from napkin._tables import calibration as table

    if (at, without) not in _NEAREST:
        _NEAREST[at, without] = nearest(at, table.SEEN, without=without)
    close = _NEAREST[at, without]
    if (level, without) not in _QUANTILES:
        _QUANTILES[level, without] = quantile(level, table.SEEN, table.BASE, without)
    own = own_error_of(at, spreads(without), exposed)
    return _QUANTILES[level, without] * scale(table.BASE, close[0][0], own), close


def class_of_evidence(at: RunPoint, without: str = "") -> str:
    """Return the class of evidence of a run's interval."""
    from napkin._tables import calibration as table

    return class_of(at, table.SEEN, without)


def deviations(level: float) -> float:
    """Return the σ of a normal spread at a confidence level: 1.645 at 90 %, others by the evidence's own quantiles."""
    from napkin._tables import calibration as table

    if level == 0.9:
        return NORMAL_90
    return NORMAL_90 * quantile(level, table.SEEN, table.BASE) / quantile(0.9, table.SEEN, table.BASE)


def near_ratio() -> float:
    """Return the factor by which errors shrink once a near configuration of the same source was measured."""
    from napkin._tables import calibration as table

    return table.NEAR_RATIO

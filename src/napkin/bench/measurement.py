"""The result of one measured case, a summary of its sensors, and the flags that it raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from napkin.bench.device import CLOCK_REASONS, THERMAL_REASONS, UNHEALTHY_REASONS, Watch
from napkin.bench.stats import median, noisy, spread
from napkin.inputs.profile_cases import MeasuredValue, Range, Sustained, Telemetry

FIRST_BLOCK = 1.1  # a first block this much slower than the median: the warm-up was too short
LOW_CLOCK = 0.9  # of the maximum, without a power or thermal reason


@dataclass(frozen=True, slots=True)
class Measurement:
    """What measuring one case gave: the figure of each block in order, and what else was recorded."""

    unit: str
    values: Sequence[float]
    calls: int = 1
    launch_bound: bool = False
    center: float | None = None  # the case's figure if it is not the median of the blocks
    figures: Mapping[str, float | None] = field(default_factory=dict)
    sustained: Sustained | None = None
    watch: Watch = field(default_factory=Watch)
    flags: Sequence[str] = ()

    def value(self) -> MeasuredValue:
        """Return the figure of the case with the spread of its blocks."""
        s = spread(self.values)
        middle = s.median if self.center is None else min(max(self.center, s.min), s.max)
        measured = asdict(replace(s, median=middle))
        return MeasuredValue(**measured, unit=self.unit, calls=self.calls, launch_bound=self.launch_bound)


def telemetry(watch: Watch) -> Telemetry | None:
    """Return a summary of the sensor samples; None if there are none."""
    samples = watch.samples
    if not samples:
        return None

    def over(values: list[float | None]) -> Range | None:
        known = [v for v in values if v is not None]
        return Range(sum(known) / len(known), min(known), max(known)) if known else None

    masks = [s.reasons for s in samples if s.reasons is not None]
    shares = {
        name: sum(bool(mask & bit) for mask in masks) / len(masks) for bit, name in CLOCK_REASONS.items() if masks
    }
    return Telemetry(
        samples=len(samples),
        sm_clock_mhz=over([s.sm_clock_mhz for s in samples]),
        power_w=over([s.power_w for s in samples]),
        temperature_c=over([s.temperature_c for s in samples]),
        energy_j=watch.energy_j,
        reasons={name: share for name, share in shares.items() if share > 0},
    )


def judge(outcome: Measurement, seen: Telemetry | None, clock_max_mhz: int | None) -> list[str]:
    """Return the flags of one case: what a reader has to know before trusting the figure."""
    flags = list(outcome.flags)
    slowness = [1 / v for v in outcome.values] if outcome.unit != "second" else list(outcome.values)
    if len(slowness) > 2 and slowness[0] > FIRST_BLOCK * median(slowness[1:]):
        flags.append("slow_first_block")
    if noisy(outcome.values):
        flags.append("contended")
    if spread(outcome.values).outliers:
        flags.append("outliers")
    if outcome.launch_bound:
        flags.append("launch_bound")
    if outcome.sustained is not None and not outcome.sustained.steady:
        flags.append("unsteady")
    if seen is not None:
        if UNHEALTHY_REASONS & seen.reasons.keys():
            flags.append("unhealthy")
        if THERMAL_REASONS & seen.reasons.keys():
            flags.append("thermal")
        capped = (THERMAL_REASONS | UNHEALTHY_REASONS | {"sw_power_cap", "application_clocks"}) & seen.reasons.keys()
        clock = seen.sm_clock_mhz
        if outcome.sustained is not None and clock and clock_max_mhz and not capped and seen.reasons:
            flags += ["low_clock"] if clock.mean < LOW_CLOCK * clock_max_mhz else []
    return list(dict.fromkeys(flags))

"""The meaning of a profile's figures: verdicts on the machine and on MFU, warnings with cause and remedy."""

from __future__ import annotations

from napkin.inputs.profile import Profile
from napkin.inputs.profile_cases import GPU_KINDS, OK

MARKS = ((0.5, "good"), (0.4, "fine"), (0.2, "can improve"), (0.05, "poor: look for the bottleneck"))
WRONG = "something is wrong"
IMPOSSIBLE = (
    "the arithmetic or the peak is wrong: a sparse peak, a PCIe part taken for an SXM one, a missing synchronization, "
    "or the tokens of all ranks over the peak of one"
)
LOW_POWER = 0.99

WARNINGS = {
    "contended": "blocks vary by over 15 %, or the device slowed for no reason: stop what else runs, and measure again",
    "outliers": "some blocks took far longer than the rest: other work on the machine",
    "slow_first_block": "the first block was slower than the rest: the warm-up was too short",
    "unsteady": "the rate still drifted in the window: let the device warm up, then measure again",
    "unhealthy": "the hardware slowed itself down (slowdown, thermal or power brake): look at cooling and power supply",
    "thermal": "the clock was lowered for heat: look at cooling",
    "low_clock": "the clock stayed below 90 % of its maximum without a power or thermal reason: are clocks locked?",
    "launch_bound": "a call takes less than 20 µs: the launch rate of the CPU may be what was measured",
    "suspect": "faster than the datasheet's bandwidth: cache hits or a wrong count; it is in no headline",
    "clock_moved": "the clock moved during the search; the anchor's drift is divided out",
}
QUIET = ("clock_moved", "outliers")  # said in the profile, not worth a line of the report


def mfu_verdict(mfu: float, sustained_share: float | None = None) -> str:
    """Grade an MFU by the lecture's two marks, 0.5 and 0.05, and the range between them."""
    if mfu > 1 or (sustained_share is not None and mfu > sustained_share):
        return IMPOSSIBLE
    return next((word for mark, word in MARKS if mfu >= mark), WRONG)


VERDICTS = ("healthy", "throttled", "contended", "unhealthy", "incomplete")
COMPARED = ("same", "differs")
"""Verdicts on a profile, and on two."""


def verdict(profile: Profile) -> str:
    """Return the worst verdict that applies: incomplete, unhealthy, contended, throttled or healthy."""
    if not profile.complete:
        return "incomplete"
    for flag, word in (("unhealthy", "unhealthy"), ("contended", "contended"), ("thermal", "throttled")):
        if flag in profile.flags:
            return word
    return "healthy"


def warnings(profile: Profile) -> list[str]:
    """Return a warning by flag, with its cases, for each figure that needs care."""
    found = []
    for flag, text in WARNINGS.items():
        cases = [case.id for case in profile.cases if flag in case.flags]
        if cases and flag not in QUIET:
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            found.append(f"{flag}: {cases[0]}{more}: {text}")
    limit, default = profile.device.power_limit_w, profile.device.power_default_w
    if limit is not None and default is not None and limit < LOW_POWER * default:
        found.append(f"the power limit is {limit:.0f} W, below the part's default of {default:.0f} W")
    for case in profile.cases:
        peak = profile.peaks.get(str(case.params.get("dtype"))) if case.group == "matmul" else None
        if case.status == OK and case.value and peak and case.value.median > peak.dense_flops:
            found.append(f"{case.id}: above the datasheet's dense peak: {IMPOSSIBLE}")
    if profile.device.kind not in GPU_KINDS:
        found.append(f"measured on a {profile.device.kind} device: no GPU's figures")
    return [*profile.notes, *found]

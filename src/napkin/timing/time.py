"""Solve the basic equation of training time: FLOPs = peak FLOP/s · MFU · GPUs · time, and cost = price · GPUs · time.

If the MFU is that of the steps, the calendar time is their time divided by the goodput. Any one quantity may be
missing; with a budget, two may be missing if the equations determine them, and GPUs and time both besides the tokens or
the parameters, which only their product decides. N parameters, D tokens, n GPUs, u MFU, t
time, c cost, p price, F FLOP, P peak of one GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.counting.six_n import six, six_n
from napkin.elementwise import ratio
from napkin.errors import NapkinError
from napkin.term import (
    Term,
    ceiling,
    constant,
    divide,
    floor,
    multiply,
)
from napkin.timing.goodput import IN_MFU, Goodput

HOUR = ("seconds_per_hour", 3600, "second/hour")
KWH = ("joules_per_kWh", 3_600_000, "joule/kWh")
UNKNOWNS = ("params", "tokens", "gpus", "mfu", "time")
SIZES, TOGETHER = ("params", "tokens"), ("gpus", "time")
"""What a budget pays for, and what it fixes only the product of."""
EXAMPLE = {"params": "7B", "tokens": "1T", "gpus": "64", "mfu": "0.4", "time": "30d"}
"""Example of each option, for hints."""


def missing_of(known: Mapping[str, Term]) -> list[str]:
    """Return which of params, tokens, gpus, mfu, time are not given; "per_token" is a model's FLOP per token
    and makes params known."""
    return [name for name in UNKNOWNS if name not in known and not (name == "params" and "per_token" in known)]


def limits(known: Mapping[str, Term], with_budget: bool) -> tuple[str, ...]:
    """Return which of "time" and "budget" are only limits, because the other quantities determine the run."""
    missing = missing_of(known)
    spent = with_budget and (len(missing) < 2 or not {"gpus", "time"} & set(missing))
    return (*(() if missing else ("time",)), *(("budget",) if spent else ()))


def unknowns(known: Mapping[str, Term], with_budget: bool, usual: Mapping[str, str] = EXAMPLE) -> list[str]:
    """Return the missing quantities, after checking that the equations determine them. usual: an example of each
    option.

    Raises NapkinError (2) if too much is missing. A given quantity that is not needed is a limit (`limits`), not in
    `known`."""
    missing = missing_of(known)
    equations = 2 if with_budget else 1
    if with_budget and len(missing) == 3 and set(missing) & set(SIZES) and set(missing) > set(TOGETHER):
        return missing
    names = {"time": "--within", **{name: f"--{name}" for name in UNKNOWNS[:4]}}
    if len(missing) > equations:
        asked = ", ".join(f"{names[n]} {usual[n]}" for n in missing)
        more = "; GPU-hours and their cost depend little on which" if missing == ["gpus", "time"] else ""
        raise NapkinError(
            f"too much is missing: {', '.join(names[n] for n in missing)}",
            f"give all but {'two' if with_budget else 'one'} of them: {asked}{more}",
        )
    return missing


def solve(
    known: Mapping[str, Term],
    peak: Term,
    budget: Term | None = None,
    price: Term | None = None,
    goodput: Goodput = IN_MFU,
) -> dict[str, Term]:
    """Return every quantity of the run as a Term: those of `known`, and the missing ones from the two equations.

    known    Terms by name among params, per_token (FLOP/token), tokens, gpus, mfu, time (calendar)
    peak     FLOP/s/GPU, dense       budget, price  USD and USD/GPU-hour
    goodput  share of calendar time spent at this MFU
    A solved gpus is rounded up (gpus/exact next to it), params and tokens down. GPUs and time are omitted if only their
    product is known, gpu_seconds.

    Refused: standby GPUs without --gpus."""
    have = dict(known)
    unknowns(known, budget is not None)
    if "per_token" not in have and "params" in have:
        have["per_token"] = six_n(have["params"])
    busy = _busy(have, budget, price)
    if "per_token" in have and "tokens" in have:
        have["flops"] = multiply("flops/total", have["per_token"], have["tokens"])
        _take_rest(have, peak, goodput, busy)
    else:
        _take_size(have, peak, goodput, busy)
    if "gpus/exact" in have:  # whole GPUs are done a little before the time allowed
        have["time/allowed"] = have["time"].renamed("time/allowed")
        _take_time(have, peak, goodput)
    have["goodput"] = goodput.share
    if busy is not None and not set(TOGETHER) & set(have):
        if goodput.spares is not None:
            raise NapkinError("--gpus is missing: standby GPUs are paid for next to how many?", "--gpus 64")
        return {**have, "gpu_seconds": busy, "gpu_hours": divide("gpu_hours", busy, constant(*HOUR))}
    have.setdefault("time/uninterrupted", goodput.uninterrupted(have["time"]))
    paid = multiply("gpu_seconds", goodput.paid(have["gpus"]), have["time"])
    have["gpu_hours"] = divide("gpu_hours", paid, constant(*HOUR))
    return have


def _busy(have: dict[str, Term], budget: Term | None, price: Term | None) -> Term | None:
    """Return the GPU-seconds, given or from the budget, and add the time or the GPUs that follow from a budget."""
    if budget is None:
        return multiply("gpu_seconds", have["gpus"], have["time"]) if "gpus" in have and "time" in have else None
    assert price is not None
    busy = multiply("gpu_seconds", divide("gpu_hours/affordable", budget, price), constant(*HOUR))
    if "gpus" in have:
        have["time"] = divide("time", busy, have["gpus"])
    elif "time" in have:
        _whole_gpus(have, divide("gpus/exact", busy, have["time"]))
    return busy


def work(peak: Term, mfu: Term, busy: Term, goodput: Goodput) -> Term:
    """Return the FLOP of a run that occupies this many GPU-seconds, at the MFU of its steps."""
    return multiply("flops/total", peak, mfu, goodput.uninterrupted(busy).renamed("gpu_seconds/training"))


def _take_rest(have: dict[str, Term], peak: Term, goodput: Goodput, busy: Term | None) -> None:
    """Add what is missing if the run's FLOPs are known: the MFU, the time, or the GPUs."""
    if "mfu" not in have:
        assert busy is not None
        promised = multiply("flops/promised", peak, goodput.uninterrupted(busy).renamed("gpu_seconds/training"))
        have["mfu"] = divide("mfu", have["flops"], promised, source=_MFU)
    elif "time" not in have and "gpus" in have:
        _take_time(have, peak, goodput)
    elif "gpus" not in have and "time" in have:
        each = multiply("work_per_gpu", peak, have["mfu"], goodput.uninterrupted(have["time"]))
        _whole_gpus(have, divide("gpus/exact", have["flops"], each))
    elif "time" not in have:
        raise NapkinError(
            "--gpus and --within are both missing, and a budget only fixes their product",
            "--gpus 64 says whether the budget is kept; without --tokens, what it is enough for",
        )


def _take_size(have: dict[str, Term], peak: Term, goodput: Goodput, busy: Term | None) -> None:
    """Add the run's FLOPs, and the tokens or the parameters that they pay for."""
    if busy is None:
        raise NapkinError("too much is missing", "give --gpus and --within, or one of them and --budget")
    have["flops"] = work(peak, have["mfu"], busy, goodput)
    if "per_token" in have:
        have["tokens"] = floor("tokens", divide("tokens/exact", have["flops"], have["per_token"]))
    else:
        have["params"] = floor("params", divide("params/exact", have["flops"], six(), have["tokens"]))
        have["per_token"] = six_n(have["params"])


_MFU = "Chowdhery et al. 2022, arXiv:2204.02311, appendix B: observed throughput over the dense peak's"


def _take_time(have: dict[str, Term], peak: Term, goodput: Goodput) -> None:
    """Add the time of the run's FLOPs: uninterrupted, and by the calendar."""
    rate = multiply("rate", peak, have["mfu"], have["gpus"])
    have["time/uninterrupted"] = divide("time/uninterrupted", have["flops"], rate)
    have["time"] = goodput.calendar(have["time/uninterrupted"])


def _whole_gpus(have: dict[str, Term], exact: Term) -> None:
    have["gpus/exact"] = exact
    have["gpus"] = ceiling("gpus", exact)


def cost(gpu_hours: Term, price: Term) -> Term:
    """Return USD = GPU-hours · price per GPU-hour."""
    return multiply("cost", gpu_hours, price)


def energy(found: Mapping[str, Term], tdp: Term, overhead: Term, pue: Term) -> Term:
    """Return joule = GPUs · TDP · overhead (host, fans, network) · time · PUE (cooling and losses of the data center),
    of a solved run."""
    if "gpu_seconds" in found:
        return multiply("energy", found["gpu_seconds"], tdp, overhead, pue)
    return multiply("energy", found["gpus"], tdp, overhead, found["time"], pue)


def carbon(energy_used: Term, intensity: Term) -> Term:
    """Return kg of CO2 equivalent = energy · the grid's intensity (kg/kWh)."""
    return multiply("carbon", divide("energy/kWh", energy_used, constant(*KWH)), intensity)


REFERENCES = (
    ("GPT-3", 3.14e23, "Brown et al. 2020, arXiv:2005.14165, table D.1"),
    ("GPT-4 (speculation)", 2e25, "third-party estimate, never confirmed by the developer"),
    ("EU AI Act presumption of systemic risk", 1e25, "Regulation (EU) 2024/1689, article 51(2)"),
    ("US executive order reporting threshold (revoked)", 1e26, "Executive Order 14110, section 4.2(b), revoked 2025"),
)
"""Training FLOP to compare a count with: name, FLOP, source."""


def compared_with_known(flops: float) -> list[tuple[str, float, float, str]]:
    """Return (name, FLOP, ratio of `flops` to it, source) of well-known runs and thresholds."""
    shares = [(name, known, float(ratio(flops, known)), source) for name, known, source in REFERENCES]
    return [row for row in shares if math.isfinite(row[2])]

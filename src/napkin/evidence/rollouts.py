"""How far published steps of reinforcement learning were from what is predicted: what a step's interval is made of.

No constant is fitted to them, so that each is held out. They are of two sources: the interval is assumed from them, and
the answer says so; a row of one is judged by the other alone.
"""

from __future__ import annotations

import math

from napkin._tables.rollout_errors import STEPS


def longer(deviations: float, without: str = "") -> tuple[float, float]:
    """Return the mean of ln(measured / predicted), and how far one more model may be from it: each model weighs the
    same. deviations: of a normal spread at the confidence level; without: a source that is held out."""
    by_model: dict[str, list[float]] = {}
    for _, source, model, error in STEPS:
        if source != without:
            by_model.setdefault(model, []).append(-error)
    means = [sum(errors) / len(errors) for errors in by_model.values()]
    middle = sum(means) / len(means)
    variance = sum((one - middle) ** 2 for one in means) / (len(means) - 1)
    return middle, of_few(deviations, len(means)) * math.sqrt(variance * (1 + 1 / len(means)))


def of_few(deviations: float, count: int) -> float:
    """Return Student's t for as many values whose normal quantile is `deviations` (Abramowitz and Stegun 26.7.5, within
    2 % from three values on)."""
    z, free = deviations, count - 1
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


def said() -> str:
    """Return what an interval made of them rests on."""
    sources = sorted({source for _, source, _, _ in STEPS})
    models = len({model for _, _, model, _ in STEPS})
    middle, _ = longer(0.0)
    return (
        f"the interval is assumed: {len(STEPS)} published steps of {models} models ({', '.join(sources)}) took "
        f"{math.exp(middle):.1f} × what is predicted, in the mean; no other source states how long its answers are"
    )

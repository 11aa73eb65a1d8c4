"""How far published steps of reinforcement learning were from what is predicted: what a step's interval is made of.

No constant is fitted to them, so that each is held out. They are of one source: the interval is assumed from them, not
calibrated by leaving a source out, and the answer says so.
"""

from __future__ import annotations

import math

from napkin._tables.rollout_errors import STEPS


def longer() -> tuple[float, float]:
    """Return the mean of ln(measured / predicted) and its σ for one more model: each model weighs the same."""
    by_model: dict[str, list[float]] = {}
    for _, _, model, error in STEPS:
        by_model.setdefault(model, []).append(-error)
    means = [sum(errors) / len(errors) for errors in by_model.values()]
    middle = sum(means) / len(means)
    variance = sum((one - middle) ** 2 for one in means) / (len(means) - 1)
    return middle, math.sqrt(variance * (1 + 1 / len(means)))


def said() -> str:
    """Return what an interval made of them rests on."""
    sources = sorted({source for _, source, _, _ in STEPS})
    models = len({model for _, _, model, _ in STEPS})
    middle, _ = longer()
    return (
        f"the interval is assumed: {len(STEPS)} published steps of {models} models ({', '.join(sources)}) took "
        f"{math.exp(middle):.1f} × what is predicted, in the mean; no other source states how long its answers are"
    )

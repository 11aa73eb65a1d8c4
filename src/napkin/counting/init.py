"""Weight initialization: y = W·x over d inputs has a standard deviation of σ_W·√d·σ_x when entries and inputs are
independent with mean 0, so that σ_W = 1/√d keeps the scale (Glorot and Bengio 2010, proceedings.mlr.press/v9, LeCun et
al. 1998), and N(0, 1) multiplies it by √d in every layer.
"""

from __future__ import annotations

import math

from napkin.term import Term, constant, define, divide, make, multiply, power, square_root

SOURCE = "Glorot and Bengio 2010, proceedings.mlr.press/v9/glorot10a.html; LeCun et al. 1998, Efficient BackProp"


def scaled_std(fan_in: Term) -> Term:
    """Return 1/√d, the standard deviation of weights over `fan_in` inputs."""
    return divide("init/std", constant("1", 1), square_root("root_of_fan_in", fan_in), source=SOURCE)


def output_std(std: Term, fan_in: Term, name: str) -> Term:
    """Return the standard deviation of a layer's output for inputs of standard deviation 1: σ·√d."""
    return multiply(name, std, square_root("root_of_fan_in", fan_in), source=SOURCE)


def after(layers: Term, each: Term, name: str) -> Term:
    """Return the standard deviation after `layers` consecutive linear layers."""
    return power(name, each, layers)


def truncated_std(cut: float) -> float:
    """Return the standard deviation of N(0, 1) truncated at ±cut: √(1 − 2·c·φ(c) / (2·Φ(c) − 1)), φ and Φ its density
    and distribution.

    Below 0.05 the closed form cancels; its series, c²/3 − 2·c⁴/45, is exact to seven digits there."""
    if cut < 0.05:
        return cut * math.sqrt(1 / 3 - 2 * cut * cut / 45)
    density = math.exp(-cut * cut / 2) / math.sqrt(2 * math.pi)
    inside = math.erf(cut / math.sqrt(2))
    return math.sqrt(1 - 2 * cut * density / inside)


define("truncated_std", truncated_std)


def truncation(cut: Term) -> Term:
    """Return the standard deviation of N(0, 1) truncated at ±cut."""
    source = f"a normal distribution cut off at ±{cut.value:g} σ"
    return make("truncated_std", "init/truncated/factor", (cut,), source)


def truncated_output(each: Term, cut: Term) -> Term:
    """Return the standard deviation of a layer's output, `each`, if the weights are truncated at ±cut."""
    return multiply("init/truncated/output_std", each, truncation(cut))


def cut_in_std(std: Term) -> Term:
    """Return torch's absolute cut at ±3 in standard deviations of the weights."""
    cut = constant("cut", 3, "1", "trunc_normal_(a=−3, b=3) cuts at absolute ±3")
    return divide("init/cut_in_std", cut, std)

"""Laws with one more dimension, reduced to the form of Hoffmann et al. 2022 at a given value of it: experts, bits."""

from __future__ import annotations

import math

from napkin.planning.laws.law import Surface
from napkin.record import record, replace


@record
class JointExperts:
    """L = a·Ê^delta·N^(alpha + gamma·ln Ê) + b·Ê^omega·D^(beta + zeta·ln Ê) + c, N active parameters; signs as printed.

    Ludziejewski et al. 2025, arXiv:2502.05172, equations 4 and 6, table 3.
    """

    a: float = 35.91
    alpha: float = -0.1889
    delta: float = -0.2285
    gamma: float = 0.0098
    b: float = 35.98
    beta: float = -0.1775
    omega: float = 0.5529
    zeta: float = -0.0259
    start: float = 2.0732
    most: float = 290.4521
    c: float = 1.3637

    def surface(self, experts: int) -> Surface:
        """Return the loss of models with this many experts, one active for each token."""
        inverse = 1 / (experts - 1 + 1 / (1 / self.start - 1 / self.most)) + 1 / self.most
        log_e = -math.log(inverse)
        return Surface(
            E=self.c,
            A=self.a * math.exp(self.delta * log_e),
            B=self.b * math.exp(self.omega * log_e),
            alpha=-(self.alpha + self.gamma * log_e),
            beta=-(self.beta + self.zeta * log_e),
        )


@record
class FewBits:
    """Training with weights, activations and keys and values in few bits: fewer effective parameters, cheaper FLOPs.

    N_eff = N·Π(1 − exp(n − P/gamma)), C = (P/16)·6·N·D in FLOP that cost what bf16's cost. Kumar et al. 2024,
    arXiv:2411.04330, equation 3, section 4.3 and table 2, whose shifts n the main text leaves out.
    """

    whole: Surface = Surface(E=2.7648, A=4299.0, B=18060.0, alpha=0.4965, beta=0.4965)
    parts: tuple[tuple[float, float], ...] = ((2.6745, 0.3037), (2.2102, 1.4072), (0.9578, 2.4185))

    def worth(self, bits: int) -> float:
        """Return the share of the parameters that is effective."""
        return math.prod(-math.expm1(shift - bits / scale) for scale, shift in self.parts)

    def surface(self, bits: int) -> Surface:
        """Return the loss of models that are trained in this many bits."""
        of = self.whole
        return replace(of, A=of.A * self.worth(bits) ** -of.alpha, price=bits / 16)

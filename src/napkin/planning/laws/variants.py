"""Laws with further dimensions (experts, granularity of experts, bits), reduced to the form of Hoffmann et al. 2022 at
given values. Each states its dimensions, and `law_at` returns the law at values of them."""

from __future__ import annotations

import math

from napkin.errors import NapkinError
from napkin.planning.laws.law import Dimension, FittedRange, ScalingLaw, Surface
from napkin.planning.laws.price import ExtraWork, TokenPrice
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

    dimensions = (Dimension("experts", tuple(range(1, 33)), "8"),)

    def law_at(self, law: ScalingLaw, values: tuple[int, ...]) -> ScalingLaw:
        """Return the law for a number of experts."""
        told = "dense" if values == (1,) else f"{values[0]:,} experts, 1 active"
        return replace(law, form=self.surface(*values), told=told, mixture=values != (1,))

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
    arXiv:2411.04330, equation 3, section 4.3 and table 2, whose shifts n the main text omits.
    """

    whole: Surface = Surface(E=2.7648, A=4299.0, B=18060.0, alpha=0.4965, beta=0.4965)
    parts: tuple[tuple[float, float], ...] = ((2.6745, 0.3037), (2.2102, 1.4072), (0.9578, 2.4185))

    dimensions = (Dimension("bits", tuple(range(4, 17)), "16"),)  # with 3, activations were not stable

    def law_at(self, law: ScalingLaw, values: tuple[int, ...]) -> ScalingLaw:
        """Return the law for training in a number of bits."""
        return replace(law, form=self.surface(*values), told=f"trained in {values[0]:,} bits")

    def worth(self, bits: int) -> float:
        """Return the share of the parameters that is effective."""
        return math.prod(-math.expm1(shift - bits / scale) for scale, shift in self.parts)

    def surface(self, bits: int) -> Surface:
        """Return the loss of models that are trained in this many bits."""
        of = self.whole
        return replace(of, A=of.A * self.worth(bits) ** -of.alpha, price=TokenPrice(bits / 16))


@record
class FittedMixture:
    """L = c + (g/G^gamma + a)/N^alpha + b/D^beta, as fitted at one expansion rate, and where.

    params  of models, active, embeddings excluded        tokens  they were trained on
    """

    a: float
    alpha: float
    b: float
    beta: float
    g: float
    gamma: float
    c: float
    params: FittedRange
    tokens: FittedRange


SMALL, LARGE = FittedRange(3e6, 49e6), FittedRange(3e6, 85e6)
"""Active parameters of the models of tables 7, and 3 and 4."""


@record
class FineExperts:
    """Mixtures whose experts are a G-th of a feed-forward layer: G times as many, of which G are active.

    Krajewski et al. 2024, arXiv:2402.07871, equations 9 to 11, tables 1, 3, 4, 7 and 8. The law's N are all parameters,
    d²·(8E + 4) for each of n layers of width d = 64·n, of which 12·d² are active: N here. A token costs
    (12·d²·6 + d·E·G·14)·n FLOP, 6·N and the router's, 6 of whose 14 are those of the forward pass (appendix E).
    """

    fits: tuple[tuple[int, FittedMixture], ...] = (
        (1, FittedMixture(16.3, 0.126, 26.7, 0.127, 0, 1, 0.47, LARGE, FittedRange(16e9, 66e9))),
        (16, FittedMixture(19.64, 0.124, 57.07, 0.169, 1.18, 0.986, 0.472, SMALL, FittedRange(8e9, 66e9))),
        (64, FittedMixture(18.1, 0.115, 30.8, 0.147, 2.1, 0.58, 0.47, LARGE, FittedRange(16e9, 130e9))),
    )
    depth_to_width: int = 64
    router: tuple[float, float] = (14.0, 6.0)

    dimensions = (Dimension("experts", (1, 16, 64), "64"), Dimension("granularity", tuple(range(1, 257))))

    def law_at(self, law: ScalingLaw, values: tuple[int, ...]) -> ScalingLaw:
        """Return the law for an expansion rate, and a granularity; without one, that of each compute's lowest loss.
        Raises NapkinError for a granularity without experts."""
        experts, *finer = values
        if experts == 1 and finer:
            raise NapkinError("--granularity: a dense model has no experts to split", "leave it out, or --experts 64")
        if experts == 1 or finer:
            return self._of(law, experts, *finer)
        choices = tuple(self._of(law, experts, 2**i) for i in range(9))
        return replace(choices[0], choices=choices)

    def _of(self, law: ScalingLaw, experts: int, finer: int = 1) -> ScalingLaw:
        fit = dict(self.fits)[experts]
        each = f"{experts * finer:,} experts of 1/{finer:,} of a layer, {finer:,} active"
        return replace(
            law,
            form=self.surface(experts, finer),
            told="dense" if experts == 1 else f"{experts:,} experts, 1 active" if finer == 1 else each,
            mixture=experts > 1,
            params=fit.params,
            tokens=fit.tokens,
            total=self.total(experts),
            at={"granularity": (finer, FittedRange(1, 16))} if experts > 1 else {},
        )

    def total(self, experts: int) -> float:
        """Return how many parameters there are for each active one."""
        return (8 * experts + 4) / 12

    def surface(self, experts: int, finer: int) -> Surface:
        """Return the loss of N active parameters."""
        fit = dict(self.fits)[experts]
        size = (fit.g / finer**fit.gamma + fit.a) * self.total(experts) ** -fit.alpha
        training, forward = self.router if experts > 1 else (0.0, 0.0)
        # width times layers, d·n = d²/64, where N = 12·d³/64
        routed = experts * finer * (self.depth_to_width / 12) ** (2 / 3) / self.depth_to_width
        source = "Krajewski et al. 2024, arXiv:2402.07871, equation 10 with d = 64·n"
        extra = ExtraWork("router", training * routed, forward * routed, 2 / 3, source)
        return Surface(fit.c, size, fit.b, fit.alpha, fit.beta, price=TokenPrice(extra=extra if experts > 1 else None))

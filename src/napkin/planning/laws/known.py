"""The published laws. Constants belong to their data, tokenizer and counting convention: two fits are never mixed."""

from __future__ import annotations

from napkin.planning.laws.law import FittedRange, Frontier, ScalingLaw, Surface
from napkin.planning.laws.variants import FewBits, FineExperts, JointExperts

HOFFMANN = "Hoffmann et al. 2022, arXiv:2203.15556"
MASSIVE = "MassiveText"
CHINCHILLA = (None, FittedRange(70e6, 16e9), FittedRange(5e9, 500e9))
"""FLOP, parameters and tokens of the runs of Hoffmann et al. 2022, section 3."""

DEFAULT = "besiroglu2024"
"""The only fit with a loss, its uncertainty, and an optimum that agrees with the authors' own runs and later ones:
approaches 1 and 2 of Hoffmann et al., DeepSeek LLM, Llama 3, Porian et al. (docs/optimal.md)."""

LAWS: dict[str, ScalingLaw] = {
    law.name: law
    for law in (
        ScalingLaw(
            "besiroglu2024",
            "Besiroglu et al. 2024",
            "Besiroglu et al. 2024, arXiv:2404.10102; epoch-research/analyzing-chinchilla, notebook, cell 25",
            Surface(
                E=1.8172,
                A=482.01,
                B=2085.43,
                alpha=0.3478,
                beta=0.3658,
                covariance=(
                    (0.06322570, -0.02577839, 0.00204828, 0.003766246, -0.001289838),
                    (-0.02577839, 0.17910471, 0.00368132, -0.001613557, 0.008759665),
                    (0.00204828, 0.00368132, 0.00019622, 0.000120569, 0.000179592),
                    (0.003766246, -0.001613557, 0.000120569, 0.0002246705, -0.0000807888),
                    (-0.001289838, 0.008759665, 0.000179592, -0.0000807888, 0.0004287036),
                ),  # a bootstrap of the authors' 240 points, 1,500 draws; its standard errors are within 5 % of theirs
            ),
            MASSIVE,
            "all parameters",
            *CHINCHILLA,
            remark="refitted to 240 points read off a figure of Hoffmann et al. 2022",
        ),
        ScalingLaw(
            "hoffmann2022-1",
            "Hoffmann et al. 2022, 1",
            f"{HOFFMANN}, section 3.1, table 2; the prefactor from table 3",
            Frontier("params", 1e9, 1.21e20, 0.50),
            MASSIVE,
            "all parameters",
            *CHINCHILLA,
            remark="approach 1: the envelope of training curves",
        ),
        ScalingLaw(
            "hoffmann2022-2",
            "Hoffmann et al. 2022, 2",
            f"{HOFFMANN}, section 3.2, table 2; the prefactor from table A3",
            Frontier("params", 1e9, 1.20e20, 0.49),
            MASSIVE,
            "all parameters",
            FittedRange(6e18, 3e21),
            *CHINCHILLA[1:],
            remark="approach 2: profiles of equal FLOPs",
        ),
        ScalingLaw(
            "hoffmann2022-3",
            "Hoffmann et al. 2022, 3",
            f"{HOFFMANN}, section 3.3; the digits of its TeX source, from Besiroglu et al. 2024, notebook, cell 16",
            Surface(E=1.693372, A=406.40, B=410.73, alpha=0.33917084, beta=0.2849083),
            MASSIVE,
            "all parameters",
            *CHINCHILLA,
            current=False,
            remark="approach 3: its fit had not converged (Besiroglu et al. 2024); it misses its own table A3 by 18 %",
        ),
        ScalingLaw(
            "kaplan2020",
            "Kaplan et al. 2020",
            "Kaplan et al. 2020, arXiv:2001.08361, table 6: N = 1.3e9·C^0.73, C in PF-days of 8.64e19 FLOP",
            Frontier("params", 1.3e9, 8.64e19, 0.73),
            "WebText2",
            "parameters without embeddings",
            None,
            FittedRange(768, 1.5e9),
            FittedRange(22e6, 23e9),
            current=False,
            remark="small models without embeddings, fixed schedules: superseded (Porian et al. 2024, Pearce 2024)",
        ),
        ScalingLaw(
            "deepseek2024",
            "DeepSeek LLM 2024",
            "DeepSeek-AI 2024, arXiv:2401.02954, equation 4: M = 0.1715·C^0.5243, D = C/M",
            Frontier("flops_per_token", 0.1715, 1.0, 0.5243),
            "DeepSeek's",
            "FLOPs per token without the head, as N = M/6",
            FittedRange(1e17, 3e20),
        ),
        ScalingLaw(
            "llama3-2024",
            "Llama 3 2024",
            "Grattafiori et al. 2024, arXiv:2407.21783, figure 3: D = 0.299·C^0.537 (0.29 and 0.53 in section 3.2.1)",
            Frontier("tokens", 0.299, 1.0, 0.537),
            "Llama 3's",
            "all parameters",
            FittedRange(6e18, 1e22),
            FittedRange(40e6, 16e9),
            remark="the text's constants miss the paper's own 16.55T tokens at 3.8e25; the figure's do not",
        ),
        ScalingLaw(
            "porian2024",
            "Porian et al. 2024",
            "Porian et al. 2024, arXiv:2406.19146, the tuned optimum: exponent 0.497, 77e9 parameters at 5.88e23 FLOP",
            Frontier("params", 77e9, 5.88e23, 0.497),
            "RefinedWeb",
            "parameters with the head",
            FittedRange(1.25e16, 2.56e19),
        ),
        ScalingLaw(
            "muennighoff2023",
            "Muennighoff et al. 2023",
            "Muennighoff et al. 2023, arXiv:2305.16264, appendix A",
            Surface(E=1.869163, A=520.82, B=1487.71, alpha=0.3526596, beta=0.3526596),
            "C4",
            "all parameters",
            None,
            FittedRange(7e6, 9e9),
            None,
            remark="alpha = beta was imposed; the fit in which repeated data was studied",
            repeats=True,
        ),
        ScalingLaw(
            "sardana2024",
            "Sardana et al. 2024",
            "Sardana et al. 2024, arXiv:2401.00448, table of refits, all ratios up to 10,000 tokens per parameter",
            Surface(E=1.45, A=33.66, B=138.9, alpha=0.18, beta=0.24),
            "MPT's",
            "all parameters",
            None,
            FittedRange(150e6, 6e9),
            None,
            current=False,
            remark="fitted to far more tokens per parameter than are optimal: for smaller models trained longer",
        ),
        ScalingLaw(
            "ludziejewski2025",
            "Ludziejewski et al. 2025",
            "Ludziejewski et al. 2025, arXiv:2502.05172, equations 4 and 6, table 3",
            JointExperts().surface(8),
            "FineWeb-Edu",
            "active parameters",
            None,
            FittedRange(79e6, 2.7e9),
            FittedRange(500e6, 80e9),
            current=False,
            remark="mixtures of 1 to 32 experts of which one is active for each token",
            variants=JointExperts(),
        ),
        ScalingLaw(
            "krajewski2024",
            "Krajewski et al. 2024",
            "Krajewski et al. 2024, arXiv:2402.07871, equations 9 and 10, tables 1 and 8",
            FineExperts().surface(64, 1),
            "C4",
            "active parameters without embeddings",
            None,
            FittedRange(3e6, 85e6),
            FittedRange(16e9, 130e9),
            current=False,
            remark="mixtures of fine experts; the router's FLOPs count; its constants are rounded: losses to about 1 %",
            variants=FineExperts(),
        ),
        ScalingLaw(
            "kumar2024",
            "Kumar et al. 2024",
            "Kumar et al. 2024, arXiv:2411.04330, equation 3, table 2",
            FewBits().surface(16),
            "Dolma",
            "parameters without embeddings",
            None,
            FittedRange(30e6, 220e6),
            FittedRange(1.5e9, 26e9),
            current=False,
            remark="integer training in 3 to 16 bits; its authors warn against its constants outside their setting",
            variants=FewBits(),
        ),
    )
}


def current_laws() -> tuple[ScalingLaw, ...]:
    """Return the current laws for dense models, which give the spread."""
    return tuple(law for law in LAWS.values() if law.current)

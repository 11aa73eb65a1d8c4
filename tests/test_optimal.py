"""What to train with a budget: the laws' own printed numbers, and laws that every answer keeps."""

from __future__ import annotations

import itertools
import math

import pytest

from napkin.architectures import build
from napkin.commands.optimal.published import nearest
from napkin.evidence.figures.prices import PRICES
from napkin.inputs.model_file import preset_config
from napkin.inputs.presets import preset
from napkin.operations.queries import has_scan
from napkin.planning.laws.allocate import Aims, cheapest, least_compute, optimum, same_loss, value_of
from napkin.planning.laws.known import DEFAULT, LAWS, current_laws
from napkin.planning.laws.law import Repetition, Surface, worth
from napkin.planning.laws.variants import FewBits, FineExperts, JointExperts
from napkin.term import fold, leaf
from tests.conftest import Napkin, answered

WITH_LOSS = [name for name, law in LAWS.items() if law.surface is not None]
APPROACH_1 = [
    (0.4e9, 1.92e19, 8.0e9), (1e9, 1.21e20, 20.2e9), (10e9, 1.23e22, 205.1e9), (67e9, 5.76e23, 1.5e12),
    (175e9, 3.85e24, 3.7e12), (280e9, 9.90e24, 5.9e12), (520e9, 3.43e25, 11.0e12), (1e12, 1.27e26, 21.2e12),
    (10e12, 1.30e28, 216.2e12),
]  # fmt: skip
"""Hoffmann et al. 2022, table 3: parameters, FLOP, tokens."""
APPROACH_2 = [
    (0.4e9, 1.84e19, 7.7e9), (1e9, 1.20e20, 20.0e9), (10e9, 1.32e22, 219.5e9), (67e9, 6.88e23, 1.7e12),
    (175e9, 4.54e24, 4.3e12), (280e9, 1.18e25, 7.1e12), (520e9, 4.19e25, 13.4e12), (1e12, 1.59e26, 26.5e12),
    (10e12, 1.75e28, 292.0e12),
]  # fmt: skip
"""The same, table A3, approach 2."""


def params_of(name: str, compute: float) -> float:
    return float(LAWS[name].form.params(leaf("flops/total", compute, "FLOP")).value)


def surface_of(name: str) -> Surface:
    found = LAWS[name].surface
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "row"),
    [("hoffmann2022-1", row) for row in APPROACH_1] + [("hoffmann2022-2", row) for row in APPROACH_2],
)
def test_the_tables_of_chinchilla(name: str, row: tuple[float, float, float]) -> None:
    """Exponents of two digits and columns of two or three meet within 5 %."""
    params, compute, tokens = row
    assert params_of(name, compute) == pytest.approx(params, rel=0.05)
    assert compute / 6 / params_of(name, compute) == pytest.approx(tokens, rel=0.08)


@pytest.mark.parametrize(
    ("name", "compute", "params", "tokens", "tolerance"),
    [
        ("hoffmann2022-1", 1e21, 2.86e9, None, 0.006),  # Hoffmann et al. 2022, appendix D.4
        ("hoffmann2022-3", 5.76e23, 40e9, None, 0.02),  # the same, caption of figure 4
        ("llama3-2024", 3.8e25, 402e9, 16.55e12, 0.04),  # Grattafiori et al. 2024, section 3.2.1
        ("porian2024", 5.88e23, 77e9, None, 1e-6),
        ("kaplan2020", 8.64e19, 1.3e9, None, 1e-6),  # one PF-day, table 6
        ("besiroglu2024", 5.76e23, 72e9, None, 0.005),  # by hand, from the constants as printed
    ],
)
def test_what_a_law_says_of_its_own_example(
    name: str, compute: float, params: float, tokens: float | None, tolerance: float
) -> None:
    found = params_of(name, compute)
    assert found == pytest.approx(params, rel=tolerance)
    if tokens is not None:
        assert compute / 6 / found == pytest.approx(tokens, rel=tolerance)


@pytest.mark.parametrize(
    ("compute", "experts", "active", "tokens"),
    [
        (1e20, 1, 1.7e9, 9.7e9), (1e20, 8, 990e6, 17e9), (1e20, 32, 669e6, 24.9e9), (1e21, 4, 4.4e9, 38e9),
        (1e21, 16, 3.3e9, 51.2e9), (1e22, 2, 17.4e9, 96e9), (1e22, 8, 14.4e9, 115.8e9), (1e22, 32, 12.2e9, 136.9e9),
    ],
)  # fmt: skip
def test_the_optima_of_mixtures(compute: float, experts: int, active: float, tokens: float) -> None:
    """Ludziejewski et al. 2025, table 1."""
    found = float(JointExperts().surface(experts).params(leaf("flops/total", compute, "FLOP")).value)
    assert found == pytest.approx(active, rel=0.02)
    assert compute / 6 / found == pytest.approx(tokens, rel=0.02)


FINE = [
    (100e6, 4.37e9, 8, 2.95e18, 3.133), (1e9, 28.94e9, 16, 1.93e20, 2.491), (3e9, 72.90e9, 16, 1.41e21, 2.245),
    (7e9, 137.6e9, 32, 6.46e21, 2.076), (70e9, 941.07e9, 32, 4.16e23, 1.694), (300e9, 2.96e12, 64, 5.69e24, 1.503),
    (1e12, 7.94e12, 64, 4.97e25, 1.367),
]  # fmt: skip
"""Krajewski et al. 2024, table 2: active parameters, tokens, granularity, FLOP, loss."""


@pytest.mark.parametrize(("active", "tokens", "finer", "compute", "lowest"), FINE)
def test_the_optima_of_fine_mixtures(active: float, tokens: float, finer: int, compute: float, lowest: float) -> None:
    """The granularity to the digit; sizes and losses as far as the three digits of the constants carry: 0.0005 of
    alpha = 0.115 are 1.6 % of N^alpha at 64T parameters."""
    values = {
        path: float(term.value) for path, term in answered(f"optimal --compute {compute} --law kraj").by_path().items()
    }
    assert values["granularity"] == finer
    assert values["params"] == pytest.approx(active, rel=0.03)
    assert values["tokens"] == pytest.approx(tokens, rel=0.045)
    assert values["loss"] == pytest.approx(lowest, rel=0.011)
    assert values["params/total"] == pytest.approx(values["params"] * (8 * 64 + 4) / 12)


@pytest.mark.parametrize(("active", "tokens", "finer", "compute", "_"), FINE)
def test_the_price_of_fine_mixtures(active: float, tokens: float, finer: int, compute: float, _: float) -> None:
    """Equation 10 with d = 64·n, worked out here, and the column of the FLOPs of table 2."""
    layers = (active / (12 * 64**2)) ** (1 / 3)
    width = 64 * layers
    price = FineExperts().surface(64, finer).price
    assert price.training(active) == pytest.approx((12 * width**2 * 6 + width * 64 * finer * 14) * layers)
    assert price.serving(active) == pytest.approx((12 * width**2 * 2 + width * 64 * finer * 6) * layers)
    assert price.training(active) * tokens == pytest.approx(compute, rel=0.005)
    at = leaf("params", active, "param"), leaf("tokens", tokens, "token")
    assert price.spent(*at).value == pytest.approx(price.training(active) * tokens)
    assert price.served(*at).value == pytest.approx(price.serving(active) * tokens)
    assert price.sized(price.spent(*at), at[1]).value == pytest.approx(active, rel=1e-6)
    assert price.divided(price.spent(*at), at[0]).value == pytest.approx(tokens, rel=1e-6)


def test_fine_mixtures_save_twenty_times_the_compute_of_dense_models() -> None:
    """Krajewski et al. 2024, section 1: "by a factor of more than 20 at 10^20 FLOPs". Beyond 10^25 they read 40 off
    their curves; the constants as printed give 32 and more."""
    dense = FineExperts().surface(1, 1)
    found = []
    for compute in (1e20, 1e25):
        best = answered(f"optimal --compute {compute} --law krajewski2024").by_path()["loss"]
        found.append(least_compute(dense, float(best.value)) / compute)
    assert found[0] == pytest.approx(21, abs=1.5)
    assert found[1] > 30


def test_serving_weighs_the_router_too() -> None:
    """At the balance no other size of the same loss has a life of less compute, router and all."""
    surface, served = FineExperts().surface(16, 8), 1e12
    best = surface.balanced(1e21, served)
    tokens = surface.price.tokens(1e21, best)
    target = value_of(surface, best, tokens, None)
    life = 1e21 + surface.price.serving(best) * served
    for factor in (0.9, 0.98, 1.02, 1.1):
        more = same_loss(surface, best * factor, target)
        assert more is not None
        assert more + surface.price.serving(best * factor) * served > life
    assert cheapest(surface, target, served) == pytest.approx((best, tokens), rel=1e-3)


def test_the_best_precision_is_that_of_its_paper() -> None:
    """Kumar et al. 2024, section 4.3.2: 7 to 8 bits are compute-optimal, whatever the compute."""
    for compute in (1e19, 1e20, 1e22):
        at = leaf("flops/total", compute, "FLOP")
        losses = {}
        for bits in range(4, 17):
            surface = FewBits().surface(bits)
            params = float(surface.params(at).value)
            losses[bits] = value_of(surface, params, surface.price.tokens(compute, params), None)
        assert min(losses, key=lambda bits: losses[bits]) in (7, 8)


def test_repeated_tokens_are_worth_what_the_paper_says() -> None:
    """Muennighoff et al. 2023, appendix A: R* = 3 and 4 repetitions are worth 3.21 passes; the limit is 1 + R*."""
    assert worth(5, 3) == pytest.approx(3.21, abs=0.005)
    assert worth(4, 15.387756) == pytest.approx(3.7257, abs=5e-5)
    assert worth(1e6, 15.387756) == pytest.approx(16.387756)
    assert worth(0.5, 3) == 0.5


def test_serving_makes_the_best_model_smaller() -> None:
    """Sardana et al. 2024: the quality of a Chinchilla 7B is served cheapest by a 6B, that of a 30B by a 16B."""
    surface = Surface(1.69, 406.4, 410.7, 0.34, 0.28)
    for params, served, smaller in ((7e9, 1e11, 6e9), (30e9, 1e13, 16e9)):
        scale = (0.34 * 406.4 / (0.28 * 410.7)) ** (1 / 0.62)
        tokens = (params / scale) ** (0.34 / 0.28) / scale
        target = value_of(surface, params, tokens, None)
        found, read = cheapest(surface, target, served)
        assert float(f"{found:.1g}" if smaller < 1e10 else f"{found:.2g}") == smaller
        assert value_of(surface, found, read, None) == pytest.approx(target)
        assert 3 * found * read + found * served < 3 * params * tokens + params * served


@pytest.mark.parametrize("name", LAWS)
def test_more_compute_asks_for_more_of_both(name: str) -> None:
    found = [(params_of(name, 10.0**power), 10.0**power) for power in range(18, 28)]
    assert all(a[0] < b[0] for a, b in itertools.pairwise(found))
    assert all(a[1] / a[0] < b[1] / b[0] for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("name", WITH_LOSS)
@pytest.mark.parametrize("compute", [1e20, 5.76e23, 3.8e25])
def test_the_optimum_is_where_the_loss_is_lowest(name: str, compute: float) -> None:
    """Deviating costs nothing at the optimum, and more on both sides the farther it goes."""
    surface = surface_of(name)
    at = leaf("flops/total", compute, "FLOP")
    best = float(surface.params(at).value)
    sizes = [best * factor for factor in (0.5, 0.8, 1, 1.25, 2)]
    losses = [value_of(surface, size, surface.price.tokens(compute, size), None) for size in sizes]
    assert losses[0] > losses[1] > losses[2] < losses[3] < losses[4]
    assert same_loss(surface, best, losses[2]) == pytest.approx(compute)
    assert least_compute(surface, losses[2]) == pytest.approx(compute)
    for factor in (0.7, 1.4):
        more = same_loss(surface, best * factor, losses[2])
        assert more is None or more > compute * 1.001


@pytest.mark.parametrize("name", WITH_LOSS)
def test_no_limit_on_data_and_nothing_to_serve_change_nothing(name: str) -> None:
    law, at = LAWS[name], leaf("flops/total", 1e22, "FLOP")
    plain = float(optimum(law, at, Aims()).value)
    plenty = Aims(repeated=Repetition(leaf("unique", 1e18, "token")))
    assert float(optimum(law, at, plenty).value) == pytest.approx(plain, rel=1e-6)
    assert float(optimum(law, at, Aims(served=leaf("served", 1.0, "token"))).value) == pytest.approx(plain, rel=1e-6)
    few = Aims(repeated=Repetition(leaf("unique", 1e9, "token")))
    assert float(optimum(law, at, few).value) < plain  # repeated tokens are worth more than superfluous parameters


def test_the_spread_of_the_default_law_is_that_of_its_paper() -> None:
    """Besiroglu et al. 2024: the standard error of a = 0.513 is 0.020, and of E 0.026; ln N(C) has slope a."""
    surface = surface_of(DEFAULT)
    near, far = 1e60, 1e80
    slope = (surface.deviation_of_params(far) - surface.deviation_of_params(near)) / math.log(far / near)
    assert slope == pytest.approx(0.020, abs=0.001)
    assert surface.deviation(1e200, 1e200) == pytest.approx(0.0257, abs=0.001)


def test_an_answer_inverts(napkin: Napkin) -> None:
    found = napkin("optimal --compute 5.76e23 --json").values
    again = napkin(f"optimal --params {found['params']} --tokens {found['tokens']} --json").values
    assert again["flops/total"] == pytest.approx(5.76e23)
    assert again["flops/wasted"] == pytest.approx(0, abs=1e-6)
    assert again["loss"] == pytest.approx(found["loss"])
    assert napkin(f"optimal --compute {again['flops/total']} --json").values["params"] == pytest.approx(found["params"])


def test_every_answer_is_its_tree() -> None:
    for line in ("optimal --compute 1e22 --unique-tokens 20B", "optimal --params 1B --compute 1e22 --served-tokens 1T"):
        for term in answered(line).terms:
            assert fold(term) == pytest.approx(term.value)


@pytest.mark.parametrize(("params", "compute", "tokens"), APPROACH_2)
def test_a_size_asks_for_its_own_compute(napkin: Napkin, params: float, compute: float, tokens: float) -> None:
    """Table A3 as it is printed: from a model's size to its FLOP and tokens, and from the tokens back."""
    found = napkin(f"optimal --params {params} --law hoffmann2022-2 --json").values
    assert found["flops/total"] == pytest.approx(compute, rel=0.08)
    assert found["tokens"] == pytest.approx(tokens, rel=0.08)
    again = napkin(f"optimal --tokens {found['tokens']} --law hoffmann2022-2 --json").values
    assert again["params"] == pytest.approx(params, rel=1e-3)


def test_a_size_that_serves_or_repeats_is_the_optimum_of_its_compute(napkin: Napkin) -> None:
    for aim in ("", "--served-tokens 1T", "--unique-tokens 50B"):
        asked = napkin(f"optimal --params 7B {aim} --json")
        found = napkin(f"optimal --compute {asked.values['flops/total']} {aim} --json").values
        assert found["params"] == pytest.approx(7e9, rel=1e-5)
        assert found["tokens"] == pytest.approx(asked.values["tokens"], rel=1e-5)
        assert asked.data["low"]["tokens"] < asked.values["tokens"] < asked.data["high"]["tokens"]
        assert "flops/wasted" not in asked.values


def test_what_was_trained_before_the_laws_wastes_compute(napkin: Napkin) -> None:
    """Hoffmann et al. 2022 trained 70B on 1.4T to beat 280B on 300B for the same compute, and GPT-3 had 1.7 tokens a
    parameter: by the refit Chinchilla wastes next to nothing, Gopher and GPT-3 much."""
    wasted = {
        name: napkin(f"optimal --params {params} --tokens {tokens} --json").values
        for name, params, tokens in (
            ("chinchilla", "70B", "1.4T"), ("gopher", "280B", "300B"), ("gpt-3", "175B", "300B"), ("llama", "8B", "9T"),
        )
    }  # fmt: skip
    assert wasted["chinchilla"]["flops/wasted"] < 0.01
    assert wasted["gopher"]["loss"] > wasted["chinchilla"]["loss"]
    assert wasted["gpt-3"]["flops/total"] == pytest.approx(3.15e23)
    assert all(wasted[name]["flops/wasted"] > 0.2 for name in ("gopher", "gpt-3", "llama"))


def test_the_interval_covers_every_accepted_law() -> None:
    answer = answered("optimal --compute 3.8e25")
    low, high = answer.intervals["params"]
    for law in current_laws():
        assert low <= params_of(law.name, 3.8e25) <= high, law.name
    assert not low <= params_of("kaplan2020", 3.8e25) <= high


@pytest.mark.slow
def test_a_machine_and_a_size_agree(napkin: Napkin) -> None:
    """The MFU is that of the plan of the very model, and the FLOPs are what the machine does in the time."""
    line = "--gpus 64 --hardware h100 --within 30d"
    found = napkin(f"optimal {line} --json").values
    assert found["flops/total"] == pytest.approx(
        989.4e12 * found["mfu/while_running"] * found["goodput"] * 64 * 30 * 86400, rel=1e-3
    )
    assert 6 * found["params"] * found["tokens"] == pytest.approx(found["flops/total"])
    assert params_of(DEFAULT, found["flops/total"]) == pytest.approx(found["params"])
    size = f"{found['params'] / 1e9:.3g}B"
    planned = napkin(f"plan {size} --gpus 64 --hardware h100 --tokens {found['tokens']} --json").values
    assert planned["time"] == pytest.approx(30 * 86400, rel=0.06)
    given = napkin(f"optimal {line} --mfu 0.4 --json").values
    assert given["flops/total"] == pytest.approx(989.4e12 * 0.4 * 64 * 30 * 86400, rel=1e-3)
    assert given["goodput"] == 1
    asked = napkin(f"optimal --compute {found['flops/total']} --gpus 64 --hardware h100 --json").values
    assert asked["time"] == pytest.approx(30 * 86400, rel=0.03)


def test_a_budget_without_a_price_takes_what_sellers_ask(napkin: Napkin) -> None:
    """The same in the three commands that a budget limits, and said."""
    asked = PRICES["h100-sxm-80gb"].middle
    found = napkin("optimal --budget 10000 --hardware h100 --mfu 0.4 --json")
    assert found.values["gpu_hours"] == pytest.approx(10_000 / asked)
    assert found.data["inputs"]["price"]["origin"] == "evidence"
    plan = napkin("plan llama3-8b --hardware h100 --gpus 8 --tokens 1B --budget 10000 --json").values
    assert plan["cost"] == pytest.approx(plan["gpu_hours"] * asked)
    taken = napkin("train-time --params 7B --hardware h100 --gpus 8 --mfu 0.4 --budget 10000 --json").values
    assert taken["gpu_hours"] == pytest.approx(10_000 / asked)


def test_a_budget_buys_gpu_hours(napkin: Napkin) -> None:
    found = napkin("optimal --budget 100000 --price 2 --hardware h100 --mfu 0.4 --json").values
    assert found["gpu_hours"] == pytest.approx(50_000)
    assert found["cost"] == pytest.approx(100_000)
    assert found["gpus"] == 72  # whole nodes for about 30 days
    given = napkin("optimal --budget 100000 --price 2 --hardware h100 --mfu 0.4 --gpus 8 --json").values
    assert given["flops/total"] == pytest.approx(found["flops/total"])


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("optimal", 2, "too little is given"),
        ("optimal --compute 1e22 --law chinchila", 2, "no law is called"),
        ("optimal --compute 1e22 --law llama3 --unique-tokens 3B", 2, "states the optimum only"),
        ("optimal --compute 1e22 --params 1B --tokens 1T", 2, "a contradiction"),
        ("optimal --compute 1e22 --served-tokens 1T --unique-tokens 1T", 2, "cannot be combined"),
        ("optimal --compute 1e22 --gpus 64", 2, "no accelerator is named"),
        ("optimal --compute 1e22 --experts 8", 2, "does not depend on experts"),
        ("optimal --compute 1e22 --law kraj --experts 8", 2, "fitted to 1, 16, 64"),
        ("optimal --compute 1e22 --law kraj --experts 1 --granularity 8", 2, "a dense model has no experts"),
        ("optimal --params 1B --tokens 20B --law kraj", 2, "--granularity is missing"),
        ("optimal --compute 1e22 --law kumar --bits 2", 2, "fitted to 4 to 16"),
        ("optimal --budget 1000 --hardware mi250x", 2, "--price is missing"),
        ("optimal --gpus 8 --hardware h100 --within 1d --budget 5 --price 2", 2, "a contradiction"),
        ("optimal deepseek-v3 --compute 1e22", 2, "experts"),
        ("optimal --gpus 1 --hardware rtx4090 --within 365d", 1, "calls for a model of 3.8"),
        ("optimal --compute 1 ", 1, "not enough"),
        ("optimal --gpus 64 --hardware h100 --within 30d --law ludziejewski2025", 3, "mixtures of experts"),
        ("optimal --gpus 64 --hardware h100 --within 30d --law kumar2024 --bits 8", 3, "8 bits"),
    ],
)
def test_what_cannot_be_answered_says_why(napkin: Napkin, line: str, status: int, said: str) -> None:
    outcome = napkin(line)
    assert outcome.status == status
    assert said in outcome.errors[0]
    assert len(outcome.hints) == 1


@pytest.mark.parametrize("size", [7.7e9, 30e9])
def test_the_nearest_published_model_has_no_recurrence(size: float) -> None:
    """falcon-h1-7b and falcon-h1-34b are near in size, and the laws were fitted to transformers."""
    found = nearest(size)
    assert found is not None
    assert abs(math.log(found.params / size)) < 0.25
    assert not has_scan(build(preset_config(preset(found.name))))


@pytest.mark.parametrize("figure", ["--peak-flops 500TFLOP/s", "--memory-bandwidth 1TB/s", "--memory-size 40GB"])
def test_a_lower_figure_of_the_accelerator_buys_less(napkin: Napkin, figure: str) -> None:
    """The plan behind the MFU has the figures of the question too."""
    line = "optimal --gpus 16 --hardware h100 --within 1w"
    assert napkin(f"{line} {figure} --json").values["params"] < napkin(f"{line} --json").values["params"]


def test_about_30_days_are_the_nearest_number_of_whole_nodes(napkin: Napkin) -> None:
    """$10,000 at $1.71 are 5,848 hours of a GPU, 731 of a node of 8: 30.5 days, and not 15.2 on two."""
    found = napkin("optimal --budget 10000 --price 1.71 --hardware a100-80gb --mfu 0.4 --json")
    assert found.values["gpus"] == 8
    assert found.values["time"] == pytest.approx(10000 / 1.71 / 8 * 3600, rel=1e-9)
    exact = napkin("optimal --budget 10000 --price 1.71 --hardware a100-80gb --mfu 0.4 --within 30d --json")
    assert exact.values["gpus"] == 16  # a deadline is kept

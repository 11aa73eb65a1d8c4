"""The question of `napkin optimal`, read from the options: a law, a budget, deviations from the law's optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.goodput import read_goodput
from napkin.commands.question.machine import read_gpus, read_hardware, read_peak
from napkin.commands.question.price import read_market_price
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.evidence.rates.machines import gpus_per_node
from napkin.inputs.hardware import Hardware
from napkin.options.machine import FIGURES
from napkin.options.question import OF_FAILURES
from napkin.planning.laws.allocate import Aims
from napkin.planning.laws.known import LAWS
from napkin.planning.laws.law import Dimension, Repetition, ScalingLaw
from napkin.record import record
from napkin.term import ASSUMED, TRUE, Term, constant, divide, leaf, multiply
from napkin.timing.goodput import Goodput
from napkin.timing.time import HOUR

OF_PLAN = ("seq", "precision", "optimizer", "framework", "gpus-per-node", "hardware", "hardware-file")
"""Options that are passed to the plan of the model."""
OF_MACHINE = (
    *("gpus", "nodes", "gpus-per-node", "within", "budget", "price", "mfu", "goodput", "run-kind"),
    *OF_FAILURES,
    *OF_PLAN[:-2],
)
"""Options that only matter with --hardware."""
PLANNED_FIGURES = tuple(name for name in FIGURES if name != "tdp")
"""Figures of the accelerator that are passed to the plan as well; the first is also that of the MFU."""
USUAL = 30 * 86400
"""Assumed duration in seconds if a budget comes without GPUs and time; its GPU-hours depend little on it."""


@record
class Available:
    """The resources of the run: GPUs, and the time unless the compute is given.

    peak     of one GPU, FLOP/s/GPU       price    USD per GPU-hour, if given
    mfu      if given; else that of a plan with `options`
    """

    hardware: Hardware
    gpus: Term
    time: Term | None
    peak: Term
    price: Term | None
    mfu: Term | None
    goodput: Goodput
    options: Mapping[str, OptionText]


@record
class OptimalQuestion:
    """A budget to divide between parameters and tokens.

    compute  FLOP, if given; else the machine's, or that of params and tokens
    params, tokens  if given; named: the MODEL with these parameters, "" if none is named
    like     whether params and tokens define the loss to reach, at the lowest cost including serving
    brief    whether only quantities are needed, no advice
    suited   whether to solve for the compute for which the parameters, or the tokens, are optimal
    """

    law: ScalingLaw
    aims: Aims
    compute: Term | None
    params: Term | None
    tokens: Term | None
    machine: Available | None
    named: str
    confidence: float
    brief: bool
    suited: bool = False

    @property
    def sized(self) -> bool:
        """Whether parameters and tokens are both given and so define the budget."""
        return self.params is not None and self.tokens is not None

    @property
    def plain(self) -> bool:
        """Whether the question is only the law's optimum for a compute."""
        return self.params is None and self.tokens is None and self.aims == Aims()

    @property
    def like(self) -> bool:
        """Whether to find a cheaper model to serve, with the same loss as the given one."""
        return self.sized and self.aims.served is not None


def read(inputs: Inputs) -> OptimalQuestion:
    """Read the question."""
    read_gpus(inputs)
    law = _read_law(inputs)
    aims = _read_aims(inputs, law)
    params, named = _read_params(inputs)
    tokens = inputs.term("tokens") if inputs.has("tokens") else None
    compute = inputs.term("compute", "flops/total") if inputs.has("compute") else None
    sized = params is not None and tokens is not None
    if compute is not None and sized:
        raise NapkinError(
            "a contradiction: --compute, the parameters and --tokens are all given", "each follows from the other two"
        )
    if sized and law.choices:
        named = law.variants.dimensions[-1].option if law.variants else ""
        raise NapkinError(
            f"--{named} is missing: with parameters and tokens given, no compute limits it", f"--{named} 8"
        )
    if law.choices:
        inputs.assume("the granularity that is optimal for this compute")
    elif any(name not in inputs.given for name in _dimensions(law)):
        inputs.assume(law.told)
    bounded = any(inputs.has(name) for name in ("compute", "within", "budget"))
    suited = (params is None) != (tokens is None) and not bounded
    machine = _read_machine(inputs, law, bounded=compute is not None or sized or suited)
    if machine is None and compute is None and not sized and not suited:
        raise NapkinError(
            "too little is given: what is the budget?",
            "--compute 3.8e25, --gpus 64 --hardware h100 --within 30d, --budget 100000 --price 2 --hardware h100, "
            "or --params 7B for its tokens",
        )
    brief = not inputs.wants("advice")
    return OptimalQuestion(law, aims, compute, params, tokens, machine, named, read_confidence(inputs), brief, suited)


def _read_law(inputs: Inputs) -> ScalingLaw:
    """Return the law that --law names, reduced to its experts or bits."""
    word = inputs.text("law").strip().lower().replace("_", "-")
    paper = "hoffmann2022" if word == "chinchilla" else word
    found = [law for name, law in LAWS.items() if name.startswith(paper)]
    exact = LAWS.get(word)
    if exact is None and len(found) != 1:
        hint = f"one of {', '.join(law.name for law in found)}" if found else did_you_mean(word, LAWS)
        raise NapkinError(f"--law: no law is called {word[:40]!r}", hint or ", ".join(LAWS))
    law = exact or found[0]
    stated = _dimensions(law)
    for name in sorted({name for other in LAWS.values() for name in _dimensions(other)}):
        others = [(other.name, _dimensions(other)[name]) for other in LAWS.values() if name in _dimensions(other)]
        fitting = [one for one, dimension in others if inputs.peek(name) in dimension.values] or [others[0][0]]
        inputs.depends((name,), name in stated, f"{law.name} does not depend on {name}", f"--law {fitting[0]}")
    values = []
    for dimension in stated.values():
        if dimension.usual:
            inputs.default(dimension.option, dimension.usual)
        if inputs.has(dimension.option):
            values.append(_read_value(inputs, dimension))
    return law if law.variants is None else law.variants.law_at(law, tuple(values))


def _dimensions(law: ScalingLaw) -> dict[str, Dimension]:
    return {} if law.variants is None else {one.option: one for one in law.variants.dimensions}


def _read_value(inputs: Inputs, dimension: Dimension) -> int:
    """Return the value of a law's dimension, one of those that it was fitted to."""
    value, fitted = inputs.integer(dimension.option), dimension.values
    if value not in fitted:
        between = f"{fitted[0]} to {fitted[-1]}"
        words = between if len(fitted) > fitted[-1] - fitted[0] else ", ".join(str(one) for one in fitted)
        near = min(fitted, key=lambda one: abs(math.log(one / value)))
        raise NapkinError(
            f"--{dimension.option} {value:,}: the law was fitted to {words}", f"--{dimension.option} {near}"
        )
    return value


def _read_aims(inputs: Inputs, law: ScalingLaw) -> Aims:
    """Read what the model is for, which takes a law with a loss."""
    served = inputs.term("served-tokens") if inputs.has("served-tokens") else None
    repeated = None
    if inputs.has("unique-tokens"):
        repeated = Repetition(inputs.term("unique-tokens"))
        if not law.repeats:
            studied = next(one for one in LAWS.values() if one.repeats)
            inputs.note(
                f"repeated tokens are worth what {studied.title} found on {studied.data} with their own fit "
                f"(--law {studied.name}); here they meet another law's constants"
            )
    if served is not None and repeated is not None:
        raise NapkinError(
            "--served-tokens and --unique-tokens cannot be combined", "no published law joins them: choose one"
        )
    if law.surface is None and (served is not None or repeated is not None):
        named = "served-tokens" if repeated is None else "unique-tokens"
        with_loss = ", ".join(one.name for one in LAWS.values() if one.surface is not None)
        raise NapkinError(f"--{named}: {law.name} states the optimum only, no loss", f"--law with a loss: {with_loss}")
    return Aims(served, repeated)


def _read_params(inputs: Inputs) -> tuple[Term | None, str]:
    """Return the parameters, of a MODEL or as given, and the model's name."""
    if not inputs.has("model"):
        return (inputs.term("params") if inputs.has("params") else None), ""
    from napkin.commands.question.size import read_size

    read_size(inputs, ())
    if not inputs.has("model"):
        return inputs.term("params"), ""
    if inputs.has("params"):
        raise NapkinError("MODEL and --params cannot be combined", "the model has its own count")
    from napkin.commands.question.model import read_model
    from napkin.counting.params import params

    model = read_model(inputs)
    counted = params(model)
    if counted["params/active"].value != counted["params/total"].value:
        raise NapkinError(
            f"{model.name} has experts of which a token takes some, and the dense laws count all parameters",
            f"--params {counted['params/active'].value} counts the active ones",
        )
    return counted["params/total"].renamed("params"), model.name


def _read_machine(inputs: Inputs, law: ScalingLaw, bounded: bool) -> Available | None:
    """Read the resources of the run; bounded: its compute is given and the time is solved for."""
    if not inputs.has("hardware"):
        given = [name for name in OF_MACHINE if name in inputs.given]
        if not bounded and given:
            inputs.need("hardware", "which accelerator?")
        inputs.because(OF_MACHINE, "no accelerator is named", "--hardware h100")
        return None
    hardware = read_hardware(inputs, PLANNED_FIGURES)
    peak = read_peak(inputs, hardware)
    mfu = inputs.term("mfu") if inputs.has("mfu") else None
    read_only_by_plan = (*OF_PLAN[:4], *PLANNED_FIGURES[1:])
    inputs.depends(read_only_by_plan, mfu is None, "--mfu is given, and nothing is planned", "leave out --mfu")
    if "peak-flops" not in inputs.given:  # the peak is that of the format
        inputs.depends(("precision",), True)
    read_market_price(inputs, hardware)
    price = inputs.term("price") if inputs.has("price") else None
    gpus, time = _read_extent(inputs, hardware, price, bounded)
    options = {name: inputs.given[name] for name in (*OF_PLAN, *PLANNED_FIGURES) if name in inputs.given}
    for name in options:
        inputs.value(name)
    if mfu is None and not law.plain:
        what = "mixtures of experts" if law.mixture else f"training in {inputs.peek('bits')} bits"
        said = f"a plan of a dense model in bf16 does not tell the speed of {what}"
        raise Refused(said, "--mfu 0.3, of the bf16 peak")
    goodput = read_goodput(inputs, of_mfu=mfu is not None).on(gpus)
    return Available(hardware, gpus, time, peak, price, mfu, goodput, options)


def _read_extent(inputs: Inputs, hardware: Hardware, price: Term | None, bounded: bool) -> tuple[Term, Term | None]:
    """Return the number of GPUs and the time; None if the compute is given, which determines the time."""
    gpus = inputs.term("gpus") if inputs.has("gpus") else None
    within = inputs.term("within", "time") if inputs.has("within") else None
    if bounded:
        inputs.because(
            ("within", "budget"), "the compute is given, and says how long it takes", "leave out one of them"
        )
        inputs.need("gpus", "how many?")
        return inputs.term("gpus"), None
    if not inputs.has("budget"):
        inputs.need_all({"gpus": "how many?", "within": "for how long?"})
        assert gpus is not None
        return gpus, within
    if price is None:
        inputs.need("price", "a budget buys GPU-hours")
        raise AssertionError
    if gpus is not None and within is not None:
        raise NapkinError("a contradiction: --gpus, --within and --budget are all given", "leave out one of them")
    bought = divide("gpu_hours/affordable", inputs.term("budget"), price)
    seconds = float(bought.value) * HOUR[1]
    if gpus is None:
        limit = USUAL if within is None else float(within.value)
        node, least = gpus_per_node(hardware), seconds / limit
        nodes = math.ceil(least / node) if within is not None else round(least / node)
        count = nodes * node if least > node else math.ceil(least)
        if within is None:
            inputs.assume("about 30 days")
        gpus = leaf(
            "gpus", count, "GPU", TRUE if within is not None else ASSUMED, "whole nodes that the budget occupies"
        )
        inputs.record("gpus", count, "derived", "GPU")
    return gpus, multiply("time", divide("time/hours", bought, gpus), constant(*HOUR))

"""The question of `napkin plan`: machines, limits of the run, and the objective."""

from __future__ import annotations

import math

from napkin._tables.takes import TAKES
from napkin.commands.inputs import Inputs
from napkin.commands.plan.search_space import read_layouts
from napkin.commands.question.amount import read_amount, read_whether_stated
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.goodput import read_goodput
from napkin.commands.question.machine import read_gpus
from napkin.commands.question.price import no_price, read_market_price
from napkin.commands.question.untimed import read_searched
from napkin.errors import NapkinError
from napkin.options.command_line import Text, Texts
from napkin.options.layout import OF_REPLICA
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.layouts import LayoutQuestion
from napkin.record import record
from napkin.term import Term
from napkin.timing.goodput import Goodput

REPEATED = ("precision", "optimizer", "implementation", "stack")
"""Options whose defaults differ in `napkin step`; its command line repeats them."""


@record
class PlanQuestion:
    """One question to the layout search.

    layouts    the layouts to search on each machine          counts      numbers of GPUs; empty: find the fewest
    objective  time, cost or gpus                      tokens      of the whole run, or None
    deadline   of the whole run, in seconds            budget      of the whole run, USD
    goodput    share of calendar time spent training; None without tokens
    price      USD per GPU-hour
    rows       layouts to list                         pareto      whether only the front is listed
    several    whether the best of each machine is listed    peak        dense peak of one accelerator
    brief      whether only the quantities of the recommended layout are needed
    weighed    whether its memory is one of them
    asked      the options as given, to read the same question with other options
    given      options that a line for `napkin step` repeats
    """

    layouts: LayoutQuestion
    counts: tuple[int, ...]
    several: bool
    objective: str
    tokens: float | None
    deadline: float | None
    budget: float | None
    goodput: Goodput | None
    price: float | None
    rows: int
    pareto: bool
    confidence: float
    peak: Term
    brief: bool
    weighed: bool
    asked: Inputs
    given: Texts

    @property
    def limits(self) -> dict[str, float]:
        """Limits of the run by path: its deadline and its budget, if given."""
        return {path: most for path, most in (("time", self.deadline), ("cost", self.budget)) if most is not None}


def read(inputs: Inputs) -> PlanQuestion:
    """Read the question; reject contradictions between the objective and given options."""
    read_searched(inputs)
    read_gpus(inputs, alone=False)
    layouts, prediction = read_layouts(inputs)
    asked = inputs.value("gpus")  # a number, or a list of them
    several = isinstance(asked, list)
    counts = inputs.integers("gpus") if several else (inputs.integer("gpus"),) if asked is not None else ()
    check_machine_or_deadline(inputs)
    _read_objective(inputs, fewest=not counts)
    objective, tokens = inputs.text("objective"), _read_tokens(inputs, layouts.request.seq)
    market = read_market_price(inputs, layouts.hardware, counts[0] if len(counts) == 1 and tokens is not None else 0)
    if market is not None:
        inputs.assume(f"${market.middle:g} a GPU-hour ({market.date})")
    deadline, budget, price = (inputs.number_or_none(name) for name in ("within", "budget", "price"))
    for name, limit in (("within", deadline), ("budget", budget)):
        if limit is not None and tokens is None:
            raise NapkinError(f"--{name} needs --tokens", f"how many tokens does --{name} limit?")
    if budget is not None and price is None:
        raise no_price()
    inputs.depends(("price",), tokens is not None, "only a whole run has a cost", "--tokens says how much is trained")
    searched = layouts.request
    one = len(counts) == 1 and not several and objective != "gpus"
    inputs.depends(
        ("objective", "min"), not one, "one machine's fastest layout is its cheapest", "several --gpus: 256..2048"
    )
    if not counts and objective != "gpus":
        raise NapkinError("--gpus is missing: how many?", "--gpus 8..512 compares some, --min gpus finds the fewest")
    if not counts and tokens is None:  # no run that a slow layout would lengthen
        layouts = layouts.fitting_only()
    return PlanQuestion(
        layouts=layouts,
        counts=counts,
        several=several or (objective == "gpus" and bool(counts)),
        objective=objective,
        tokens=tokens,
        deadline=deadline,
        budget=budget,
        goodput=None if tokens is None else read_goodput(inputs, trained=(searched.model, searched.setup)),
        price=price,
        rows=inputs.integer("rows"),
        pareto=inputs.flag("pareto"),
        confidence=read_confidence(inputs),
        peak=prediction.peak,
        brief=not inputs.wants("layouts/fit"),
        weighed=inputs.wants("memory/total"),
        asked=inputs,
        given=read_given(inputs),
    )


def read_least(inputs: Inputs) -> str | None:
    """Return --min, or None; reject an --objective that differs."""
    least = inputs.text_or_none("min")
    if least is not None and "objective" in inputs and inputs.text("objective") != least:
        raise NapkinError(f"--min {least} and --objective contradict each other", "leave out --objective")
    return least


def check_machine_or_deadline(inputs: Inputs) -> None:
    """Raise NapkinError (2) if a budget is all that limits the run: it costs nearly the same on any number of GPUs."""
    fewest = "gpus" in (read_least(inputs), inputs.text("objective") if "objective" in inputs else None)
    if inputs.has("budget") and not fewest and not any(map(inputs.has, ("gpus", "nodes", "within"))):
        raise NapkinError(
            "--budget does not determine --gpus: the cost barely depends on them",
            "--within 30d finds the fewest, --gpus 64..512 compares some",
        )


def _read_objective(inputs: Inputs, fewest: bool) -> None:
    """Read the objective: --min, its older spelling --objective, else the GPUs if --gpus is left out."""
    least = read_least(inputs)
    one = isinstance(inputs.peek("gpus"), int)
    if one and "gpus" in (least, inputs.text("objective")):
        raise NapkinError("a contradiction: the fewest GPUs are asked for, and --gpus gives them", "leave out --gpus")
    if least is not None:
        inputs.redefault("objective", least)
    elif fewest:
        inputs.defaults({"min": "gpus", "objective": "gpus"})  # what is left out is what is asked for


def read_given(inputs: Inputs) -> dict[str, Text]:
    """Return the options that a `napkin step` line repeats: all given ones that it takes, and defaults that differ
    there."""
    given = {name: text for name, text in inputs.texts_given().items() if name in TAKES["step"]}
    repeated = () if inputs.has("trainer") else REPEATED  # a library has the same defaults there
    others = {name: str(inputs.peek(name)) for name in repeated if inputs.has(name)}
    differing = {name: text for name, text in others.items() if text != SETUP_DEFAULTS.get(name)}
    return {**given, **{name: text for name, text in differing.items() if name not in given}}


def _read_tokens(inputs: Inputs, seq: int) -> int | None:
    """Return the tokens of the entire run, padding included; None if not given. Refused if how many samples are padded
    together, which the padding depends on, is what the search chooses."""
    unpacked = inputs.has("packing") and not inputs.flag("packing")
    if unpacked and inputs.has("lengths") and not inputs.has("micro-batch"):
        raise NapkinError(
            "--no-packing: the padding to the longest of a micro-batch depends on its size, which plan chooses",
            "--micro-batch N, or --packing",
        )
    if not read_whether_stated(inputs):
        return inputs.integer_or_none("tokens")
    if unpacked and inputs.has("lengths"):
        inputs.note(
            "steps are timed over full sequences; napkin train-time times a layout over sequences as they are padded, "
            "and with ranks that wait for the longest"
        )
    batch = 0 if inputs.has("global-batch") else _read_stated_batch(inputs)
    return int(read_amount(inputs, seq, (lambda: batch) if batch else None).tokens.value)


def _read_stated_batch(inputs: Inputs) -> int:
    """Return the sequences of a step: micro-batch · data-parallel ranks · --grad-accum. 0 where one is not stated."""
    factors = [inputs.integer_or_none(name) for name in ("micro-batch", "grad-accum")]
    gpus = inputs.peek("gpus")
    apart = math.prod(inputs.integer_or_none(name) or 1 for name in OF_REPLICA)
    if not isinstance(gpus, int) or not all(factors) or gpus % apart:
        return 0
    return math.prod(one or 1 for one in factors) * (gpus // apart)

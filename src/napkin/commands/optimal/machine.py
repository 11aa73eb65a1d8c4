"""The compute of a machine while it trains a model of some size, from `napkin plan` for that model; and the size for
which this compute is optimal."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.architectures import build
from napkin.commands.command import ask, find
from napkin.commands.optimal.question import Available
from napkin.commands.signature import OptionText
from napkin.counting.six_n import six_n
from napkin.counting.utilization import achieved, mfu
from napkin.errors import BROKEN, NapkinError
from napkin.evidence.rates.constants import deviations
from napkin.planning.llama_shapes import config_of_size
from napkin.planning.scaling import count
from napkin.record import record, replace
from napkin.render.answer import Answer
from napkin.render.figures import amount, to_type
from napkin.term import SEEN, TRUE, Term, constant, divide, leaf, multiply
from napkin.timing import time

ROUNDS = 12
CLOSE = 0.02
"""Share by which a size and the one that follows from its speed may differ: the best layout's speed jumps by a few
percent between neighboring sizes, as they divide otherwise."""
SPEED, STATES = "tokens_per_second_per_gpu", "checkpoint/bytes"


@record
class Speed:
    """Training speed of a machine: tokens per second and GPU, with the half-width of its interval in log space.

    states  bytes of its checkpoints, None if they do not matter
    """

    model: str
    params: float
    rate: float
    half: float
    states: Term | None


@record
class FundedRun:
    """A run whose budget is known.

    terms  mfu, goodput, gpus, time, gpu_hours, cost
    half   half-width of the interval of ln(compute)
    planned  the shape that was planned; "" if the MFU is given
    """

    compute: Term
    terms: tuple[Term, ...]
    half: float
    planned: str


def planned(machine: Available, model: str, only: tuple[str, ...] | None) -> Answer:
    """Return the plan of a model on the machine; only: the needed quantities, None: the layouts as well."""
    options = {**machine.options, "model": OptionText(model), "gpus": OptionText(str(machine.gpus.value))}
    if only is not None and STATES in only:
        options["tokens"] = OptionText("1T")  # however many: a run is asked about
    return ask(find("plan"), options, only, spare={})


def speed(machine: Available, model: str, params: float) -> Speed:
    """Return the speed of the best layout for a model: a preset, or a Llama-shaped model of some size."""
    try:
        answer = planned(machine, model, (SPEED, STATES) if machine.goodput.interruptions else (SPEED,))
    except NapkinError as problem:
        hint = "more --gpus, a smaller --params (napkin max-params finds the largest that fits), or --mfu"
        raise _asked_for(params, problem, hint) from None
    rate = float(answer.by_path()[SPEED].value)
    low, high = answer.intervals[SPEED]
    return Speed(model, params, rate, math.log(float(high) / float(low)) / 2, answer.by_path().get(STATES))


def _asked_for(params: float, problem: NapkinError, hint: str) -> NapkinError:
    """Return the error of a plan for a budget, naming the model."""
    what = f"the budget calls for a model of {amount(params)} parameters: {problem.message}"
    return NapkinError(what, hint, status=problem.status)


def too_little() -> NapkinError:
    """Return the error for a budget of less than one parameter or token."""
    return NapkinError("the budget is not enough for one parameter and one token", "--compute 3.8e25", status=BROKEN)


def of_shape(machine: Available, params: float, known: dict[str, Speed]) -> Speed:
    """Return the speed of a Llama-shaped model with about this many parameters, to three digits."""
    if not params >= 1:  # a number that is none, too
        raise too_little()
    model = to_type(float(f"{params:.3g}"))
    if model not in known:
        try:
            shape, _ = config_of_size(int(float(f"{params:.3g}")), model)
        except NapkinError as problem:
            raise _asked_for(params, problem, "another budget, or --mfu: no model's shape is needed then") from None
        known[model] = speed(machine, model, count(build(shape)))
    return known[model]


def solve(machine: Available, named: str, params_of: Callable[[Term], float], confidence: float) -> FundedRun:
    """Return the run for which the machine's compute in the given time equals the compute for which its model is
    optimal.

    named  the model, if it is given; params_of: the parameters for a compute
    """
    assert machine.time is not None
    if machine.mfu is not None:
        return _run(machine, machine.mfu, machine.time, 0.0, "", confidence)
    known: dict[str, Speed] = {}
    if named:
        params = params_of(leaf("flops/total", 1e20, "FLOP"))
        return _planned_run(machine, speed(machine, named, params), machine.time, confidence)
    params = params_of(_run(machine, leaf("mfu", 0.4, "1"), machine.time, 0.0, "", confidence).compute)
    for _ in range(ROUNDS):
        found = of_shape(machine, params, known)
        run = _planned_run(machine, found, machine.time, confidence)
        following = params_of(run.compute)
        if abs(following / params - 1) < CLOSE:
            return run
        params = math.sqrt(params * following)
    return run


def timed(machine: Available, named: str, params: float, compute: Term, confidence: float) -> FundedRun:
    """Return the run for a given compute, with its duration."""
    if machine.mfu is not None:
        used, half, name = machine.mfu, 0.0, ""
    else:
        found = speed(machine, named, params) if named else of_shape(machine, params, {})
        used, half, name = _mfu(machine, found), found.half, found.model
        machine = _saving(machine, found)
    rate = multiply("rate", machine.peak, used, machine.gpus)
    lasting = machine.goodput.calendar(divide("time/uninterrupted", compute, rate))
    return _run(machine, used, lasting, half, name, confidence, compute)


def _mfu(machine: Available, found: Speed) -> Term:
    """Return the MFU in 6·N terms at a speed of the plan."""
    rate = leaf(SPEED, found.rate, "token/s/GPU", SEEN, f"napkin plan {found.model}: the recommended layout")
    per_token = six_n(leaf("params/planned", found.params, "param", TRUE, f"parameters of {found.model}"))
    return mfu("while_running", achieved("while_running", rate, per_token), machine.peak)


def _planned_run(machine: Available, found: Speed, lasting: Term, confidence: float) -> FundedRun:
    return _run(_saving(machine, found), _mfu(machine, found), lasting, found.half, found.model, confidence)


def _saving(machine: Available, found: Speed) -> Available:
    """Return the machine with the goodput of a run with checkpoints of this model."""
    return machine if found.states is None else replace(machine, goodput=machine.goodput.saving(found.states))


def _run(
    machine: Available,
    used: Term,
    lasting: Term,
    half: float,
    name: str,
    confidence: float,
    compute: Term | None = None,
) -> FundedRun:
    """Return the run at an MFU during steps, for a duration; compute: if it is given."""
    busy = multiply("gpu_seconds", machine.gpus, lasting)
    goodput = machine.goodput
    done = time.work(machine.peak, used, busy, goodput) if compute is None else compute
    paid = multiply("gpu_seconds/paid", goodput.paid(machine.gpus), lasting)
    hours = divide("gpu_hours", paid, constant(*time.HOUR))
    terms = [goodput.whole_run(used), used.renamed("mfu/while_running"), goodput.share, machine.gpus]
    running = (part for part in lasting.parts if part.name == "time/uninterrupted")
    terms += [lasting.renamed("time"), hours, next(running, None) or goodput.uninterrupted(lasting)]
    terms += goodput.expected(terms[4])
    if machine.price is not None:
        terms.append(time.cost(hours, machine.price))
    _, wide = goodput.half_widths(half, deviations(confidence)) if half or goodput.is_spread else (0.0, 0.0)
    return FundedRun(done, tuple(terms), wide, name)

"""`memory`, `step` and `train-time` of reinforcement learning: the phases of a step on each GPU, the time of a step and
of a run."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.memory.host import judge, read_host
from napkin.commands.memory.notes import source_of
from napkin.commands.memory.question import STATUS
from napkin.commands.question.machine import RATES
from napkin.commands.rollout.amount import read_steps, run_of
from napkin.commands.rollout.question import RolloutQuestion, read
from napkin.commands.rollout.seconds import spanned
from napkin.commands.screens import rollout as screen
from napkin.counting.params import params
from napkin.errors import BROKEN, DOES_NOT_FIT, HELD, UNDECIDED, NapkinError
from napkin.inputs.limits import LIMITED, status_of_most
from napkin.planning.rollout_memory import RolloutFit, hosted_between
from napkin.planning.verdicts import NOT
from napkin.render.answer import Answer
from napkin.term import TRUE, divide, leaf, multiply


def run_memory(inputs: Inputs) -> Answer:
    """Answer with the memory of each phase of a step on a GPU."""
    _check_solved(inputs)
    for name in ("inference", "snapshot", "tensors", "must-fit"):
        inputs.depends((name,), name == "must-fit", "it applies to a training step only", "leave it out")
    question = read(inputs, timed=False)
    inputs.depends(("updates", "off-policy-steps"), True)
    found = question.weighed(source_of(question.model, question.setup.implementation))
    engine, capacity = question.sharing.engine, question.capacity
    own = [] if engine is None else [engine.weights(), engine.cache(capacity)]
    between = hosted_between(found.terms, question.sharing.away)
    shown = {**between, **found.terms}
    answer = Answer("memory", (*shown.values(), *found.phases, *own, found.total, capacity))
    answer.intervals = dict(found.ends)
    answer.verdict = found.verdict
    node, there = read_host(inputs, question.setup, question.hardware, tuple(between))
    judge(answer, shown, node, there)
    if inputs.flag("must-fit"):
        answer.status = STATUS[answer.verdict]
    if inputs.wants("suggestions") and answer.verdict in (NOT, UNDECIDED):
        from napkin.commands.rollout.remedies import suggest

        inputs.depends(RATES, True)  # what the remedies cost
        suggest(answer, question, found)
    else:
        inputs.minor.update(RATES)
        inputs.because(RATES, "only remedies take time, and none is needed")
    answer.screen = screen.of_memory(question, answer, found)
    return answer


def _check_solved(inputs: Inputs) -> None:
    """Refuse a search of memory that is made for a training step only, with the command that answers it."""
    for name in ("min", "max"):
        sought = inputs.text_or_none(name)
        if sought is None:
            continue
        if sought == "gpus":
            line = inputs.command_line("plan", {"gpus": None, name: None, "min": "gpus"})
        else:
            line = inputs.command_line("sweep memory", {name: None, sought: None}) + f" --over {sought}=1,2,4,8"
        raise NapkinError(f"--{name} {sought}: memory does not search for it in reinforcement learning", line)


def run_step(inputs: Inputs) -> Answer:
    """Answer with the seconds of a step: generation, log-probabilities, update, weight transfer."""
    question = read(inputs)
    return answer_step(question, question.weighed())


def answer_step(question: RolloutQuestion, fit: RolloutFit) -> Answer:
    """Answer with a step's seconds and the tokens that it trains on. fit: its memory."""
    times = question.timed(fit)
    found = times[0]
    gpus = leaf("gpus", question.gpus, "GPU", TRUE)
    tokens = leaf("tokens", question.lengths.tokens, "token", TRUE, "prompts and responses")
    rate = divide("tokens_per_second_per_gpu", tokens, found.time, gpus)
    outer = {term.name: term for term in (found.time, *found.time.parts, *found.phases)}
    answer = Answer("step", [*outer.values(), *found.inner, rate, fit.total, question.capacity])
    answer.intervals.update(spanned(times, question.confidence, question.stack_named))
    answer.intervals["memory/total"] = fit.ends["memory/total"]
    low, high = answer.intervals["step/time"]
    scale = float(rate.value) * float(found.time.value)
    answer.intervals[rate.name] = (scale / high, scale / low)
    answer.notes.append(found.evidence)
    answer.extra["fit"] = fit.verdict
    answer.screen = screen.of_step(question, answer, found, fit.verdict)
    return answer


def run_time(inputs: Inputs) -> Answer:
    """Answer with the hours of this many steps, or of passes over prompts."""
    from napkin.commands.question.goodput import read_goodput
    from napkin.commands.question.price import no_price, read_market_price

    if inputs.has("within") and not inputs.has("gpus"):
        raise NapkinError(
            "--within: on how many GPUs? the fewest for a deadline are not searched in reinforcement learning",
            f"{inputs.command_line('sweep train-time', {'within': None})} --over gpus=8,16,32",
        )
    question = read(inputs)
    fit = question.weighed()
    found = answer_step(question, fit)
    steps = read_steps(inputs, question.lengths)
    step = found.by_path()["step/time"]
    market = read_market_price(inputs, question.hardware, question.gpus)
    if inputs.has("budget") and not inputs.has("price"):
        raise no_price()
    price = inputs.term("price") if inputs.has("price") else None
    terms = [
        *run_of(steps, step, question.gpus, read_goodput(inputs, trained=(question.model, question.setup)), price),
        step,
        *(one for one in found.terms if one.name.startswith("step/") and one.name.count("/") == 1 and one is not step),
        params(question.model)["params/total"].renamed("params"),
    ]
    terms += [one for one in found.terms if one.name.startswith("memory/")]
    terms.append(multiply("tokens", steps, leaf("tokens_of_a_step", question.lengths.tokens, "token", TRUE)))
    answer = Answer("train-time", terms)
    low, high = (end / float(step.value) for end in found.intervals["step/time"])
    answer.intervals["memory/total"] = found.intervals["memory/total"]
    answer.verdict = fit.verdict if fit.verdict == DOES_NOT_FIT else None
    answer.extra["fit"] = fit.verdict
    for name in ("time", "time/uninterrupted", "gpu_hours", "cost", "step/time"):
        value = next((float(one.value) for one in terms if one.name == name), None)
        if value is not None:
            answer.intervals[name] = (value * low, value * high)
    if market is not None:
        answer.intervals["cost"] = market.spread(answer.by_path()["cost"].value, answer.intervals["cost"])
    answer.notes += found.notes
    most = read_limits(inputs)
    _judge(most, answer, fit.verdict)
    answer.screen = screen.of_time(question, answer, most, fit.verdict, market)
    return answer


def read_limits(inputs: Inputs) -> dict[str, float]:
    """Return the limits of a run by path: its deadline and its budget, where given."""
    return {path: float(inputs.term(name).value) for name, path in LIMITED.items() if inputs.has(name)}


def _judge(most: Mapping[str, float], answer: Answer, fit: str) -> None:
    """Judge a run against its limits, which a step that does not fit does not meet."""
    if not most:
        return
    answer.status = status_of_most(most, answer.quantities(), answer.intervals)
    answer.verdict = HELD[answer.status]
    if fit == DOES_NOT_FIT:
        answer.notes.append(f"the step does not fit; otherwise the run would be: {answer.verdict}")
        answer.verdict, answer.status = fit, BROKEN

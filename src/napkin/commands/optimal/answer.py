"""The answer of `napkin optimal`: the split of the budget into parameters and tokens, its loss, and the cost of
deviations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from napkin.commands.optimal.machine import FundedRun, solve, timed, too_little
from napkin.commands.optimal.matching_compute import suited_ends, suited_rows, suiting
from napkin.commands.optimal.question import OptimalQuestion
from napkin.commands.optimal.rows import COLUMNS, Deviations, deviations_of, law_rows, rows_of, stretched, wasted
from napkin.elementwise import Number
from napkin.evidence.rates.constants import deviations
from napkin.planning.laws.allocate import at_compute, cheapest, optimum
from napkin.planning.laws.known import DEFAULT, LAWS, current_laws
from napkin.planning.laws.law import ScalingLaw, loss
from napkin.record import record, replace
from napkin.render.answer import Answer, Cell, Shown
from napkin.term import TRUE, Term, add, constant, divide, floor, leaf, multiply, subtract

TYPE_CHECKING = False  # mypy takes it as true; it is loaded if a person reads the answer
if TYPE_CHECKING:
    from napkin.commands.optimal.published import NearestModel

SAME_DATA = {"besiroglu2024": "hoffmann2022-3", "hoffmann2022-3": "besiroglu2024"}
"""Laws with comparable losses: two fits to the same runs."""


def answer(question: OptimalQuestion) -> Answer:
    """Answer with the split, its loss, and the cost of other splits."""
    found = _allocate(question)
    question = replace(question, law=found.law)
    losses = _with_loss(question.law)
    surface = losses.surface
    assert surface is not None
    value = loss(surface, found.params, found.tokens, question.aims.repeated)
    paid = [float(term.value) for term in found.terms if term.name == "cost"]
    others = deviations_of(surface, question.aims, float(found.compute.value), paid[0] if paid else None)
    terms = [found.params, found.tokens, found.compute.renamed("flops/total"), value, *value.parts]
    terms.append(divide("tokens/per_param", found.tokens, found.params))
    terms += [
        *_of_mixture(found),
        *_of_aims(question, found),
        *_of_deviation(question, found, others, value),
        *found.terms,
    ]
    done = Answer("optimal", terms, rows=rows_of(others, _asked(question, found)))
    done.intervals = _intervals(question, found, losses)
    done.extra |= {"columns": COLUMNS, "laws": list(_law_rows(question, found))}
    for name in ("params", "tokens"):
        if getattr(question, name) is None:
            term = getattr(found, name)
            done.inputs[name] = Shown(term.value, None, "solved", term.unit)
    goodput = done.by_path().get("goodput")
    if goodput is not None and question.machine is not None and question.machine.goodput.interruptions is not None:
        done.inputs["goodput"] = Shown(goodput.value, None, "evidence", "1")
    done.notes += notes(question, found.params, found.tokens, losses)
    if not question.brief:
        from napkin.commands.optimal.pictures import charts
        from napkin.commands.screens.optimal import screen

        done.plot = charts(question, others, float(found.params.value))
        published = _published(question, found)
        if published is not None:
            done.extra["published"] = {
                "model": published.name,
                "params": published.params,
                "command": published.command,
                **of_serving(published),
            }
        done.screen = screen(question, done, found.run, published)
    return done


def _law_rows(question: OptimalQuestion, found: Allocation) -> Iterator[dict[str, Cell]]:
    """Yield the results of all current laws for the compute, or for the given size or tokens."""
    return suited_rows(question) if question.suited else law_rows(found.compute, question.law)


def of_serving(published: NearestModel) -> dict[str, Cell]:
    """Return the quantities of serving the published model, if it was evaluated."""
    one = published.served
    if one is None:
        return {}
    cost = {} if one.cost is None else {"cost_per_million_output_tokens": one.cost}
    return {"serving": {"gpus": one.gpus, "output_tokens_per_second": one.rate, **cost, "command": one.command}}


@record
class Allocation:
    """A split of a budget by a law, and the run that spends it if there is a machine."""

    compute: Term
    params: Term
    tokens: Term
    run: FundedRun | None
    law: ScalingLaw

    @property
    def terms(self) -> tuple[Term, ...]:
        """The quantities of the run."""
        return () if self.run is None else self.run.terms


def _with_loss(law: ScalingLaw) -> ScalingLaw:
    """Return the law itself, or, for a law that states only the optimum, the default law for its loss."""
    return law if law.surface is not None else LAWS[DEFAULT]


def _published(question: OptimalQuestion, found: Allocation) -> NearestModel | None:
    """Return the nearest published model, with a layout if there is a machine without a given MFU."""
    from napkin.commands.optimal.published import NearestModel, laid_out, nearest, serving_rate

    if question.law.mixture:
        return None
    near = (
        NearestModel(question.named, int(found.params.value)) if question.named else nearest(float(found.params.value))
    )
    machine = question.machine
    if near is None or machine is None:
        return near
    if machine.mfu is None:
        near = laid_out(machine, near.name, near.params)
    if question.aims.served is None:
        return near
    return replace(near, served=serving_rate(machine.hardware.slug, near.name, machine.price))


def _asked(question: OptimalQuestion, found: Allocation) -> float:
    """Return the parameters of the question."""
    return float(found.params.value if question.params is None else question.params.value)


def _allocate(question: OptimalQuestion) -> Allocation:
    """Split the budget by the law, or around a given size or number of tokens."""
    machine, compute, run = question.machine, question.compute, None

    def law_of(compute: Term) -> ScalingLaw:
        return at_compute(question.law, compute, question.aims, question.params, question.tokens)

    def params_of(compute: Term) -> Term:
        if question.params is not None:
            return question.params
        law = law_of(compute)
        if question.tokens is not None:
            found = law.price.sized(compute, question.tokens)
        else:
            found = floor("params", optimum(law, compute, question.aims))
        _check_enough(found)
        return found

    if question.sized:
        assert question.params is not None
        assert question.tokens is not None
        params, tokens = _cheapest(question) if question.like else (question.params, question.tokens)
        law = question.law
        compute = law.price.spent(params, tokens)
    elif question.suited:
        compute = suiting(question)
    elif compute is None:
        assert machine is not None
        run = solve(machine, question.named, lambda one: float(params_of(one).value), question.confidence)
        compute = run.compute
    if not question.sized:
        law, params = law_of(compute), params_of(compute)
        tokens = law.price.divided(compute, params) if question.tokens is None else question.tokens
    _check_enough(params, tokens)
    if machine is not None and run is None:
        run = timed(machine, question.named, float(params.value), compute, question.confidence)
    return Allocation(compute, params, tokens, run, law)


def _check_enough(*amounts: Term) -> None:
    """Reject a budget for less than one parameter or token."""
    if any(one.value < 1 for one in amounts):
        raise too_little()


def _cheapest(question: OptimalQuestion) -> tuple[Term, Term]:
    """Return the model with the same loss as the given one and the least compute in training and serving."""
    surface, served = question.law.surface, question.aims.served
    assert surface is not None
    assert served is not None
    assert question.params is not None
    assert question.tokens is not None
    target = surface.loss(question.params, question.tokens)
    params, tokens = cheapest(surface, float(target.value), float(served.value))
    source = "Sardana et al. 2024, arXiv:2401.00448, equation 3"
    return leaf("params", round(params), "param", TRUE, source), leaf("tokens", round(tokens), "token", TRUE, source)


def _of_mixture(found: Allocation) -> list[Term]:
    """Return the total parameters of a mixture, if the law relates them to the active ones, and the chosen
    dimensions."""
    law = found.law
    terms = [leaf(name, value, "1", TRUE, law.source) for name, (value, _) in law.at.items()]
    if law.total != 1:
        terms.append(multiply("params/total", found.params, constant("parameters for each active one", law.total)))
    return terms


def _of_aims(question: OptimalQuestion, found: Allocation) -> list[Term]:
    """Return the FLOPs of lifetime serving, and how often repeated tokens are seen."""
    served, repeated = question.aims.served, question.aims.repeated
    terms = []
    if served is not None:
        serves = found.law.price.served(found.params, served)
        lifetime = add("flops/lifetime", found.compute, serves)
        terms += [serves, lifetime]
        if question.like:
            assert question.params is not None
            assert question.tokens is not None
            first = add(
                "flops/lifetime/given",
                found.law.price.spent(question.params, question.tokens).renamed("flops/total/given"),
                found.law.price.served(question.params, served).renamed("flops/served/given"),
            )
            one = constant("1", 1)
            terms += [first, subtract("saving", one, divide("lifetime/share", lifetime, first))]
    if repeated is not None:
        worth = repeated.tokens(found.tokens)
        terms += [worth, divide("epochs", found.tokens, repeated.unique)]
    return terms


def _of_deviation(question: OptimalQuestion, found: Allocation, others: Deviations, value: Term) -> list[Term]:
    """Return the cost of the given size or tokens: the loss above the optimum and the wasted share of compute."""
    if (question.params is None and question.tokens is None) or question.like or question.suited:
        return []
    best = leaf("loss/optimal", others.target, "1", TRUE, "the lowest loss for this compute")
    share = wasted(others, float(found.params.value), float(value.value))
    return [
        best,
        subtract("loss/excess", value, best),
        leaf("flops/wasted", share, "1", TRUE, "share of the compute: the best division is as good without it"),
    ]


def _intervals(question: OptimalQuestion, found: Allocation, losses: ScalingLaw) -> dict[str, tuple[Number, Number]]:
    """Return the spread over current laws, and that of the fit if known, at both ends of the compute."""
    compute, half = float(found.compute.value), found.run.half if found.run is not None else 0.0
    wide = deviations(question.confidence)
    ends: dict[str, tuple[Number, Number]] = {}
    solved = question.compute is None and not question.sized and not question.suited
    if solved and half:
        ends["flops/total"] = (compute / math.exp(half), compute * math.exp(half))
    elif half and found.run is not None:
        for term in found.run.terms:
            if term.name in ("time", "gpu_hours", "cost"):
                ends[term.name] = (float(term.value) / math.exp(half), float(term.value) * math.exp(half))
    if half and found.run is not None:
        used = next(float(term.value) for term in found.run.terms if term.name == "mfu")
        ends["mfu"] = (used / math.exp(half), min(used * math.exp(half), 1.0))
    sizes = [float(found.params.value)]
    if question.suited:
        ends |= suited_ends(question, compute, wide)
    elif question.params is None and question.tokens is None:
        sizes = _sizes(question, compute, half if solved else 0.0, wide)
        ends["params"] = (min(sizes), max(sizes))
        ends["tokens"] = (found.law.price.tokens(compute, max(sizes)), found.law.price.tokens(compute, min(sizes)))
    ends["loss"] = _loss_ends(question, found, losses, wide)
    return {path: (low, high) for path, (low, high) in ends.items() if high > low * (1 + 1e-9)}


def _sizes(question: OptimalQuestion, compute: float, half: float, wide: float) -> list[float]:
    """Return the optimal parameters by every current law, at both ends of the compute and of the law's own fit."""
    laws = (question.law, *(current_laws() if question.law.current else ()))
    aims = question.aims
    found = []
    for law in laws:
        if law.surface is None and (aims.served is not None or aims.repeated is not None):
            continue
        for way in (-half, half):
            at = leaf("flops/total", compute * math.exp(way), "FLOP")
            found.append(float(optimum(law, at, aims).value))
        own = wide * law.surface.deviation_of_params(compute) if law.surface is not None else 0.0
        found += [found[-1] * math.exp(own), found[-2] / math.exp(own)]
    return found


def _loss_ends(question: OptimalQuestion, found: Allocation, losses: ScalingLaw, wide: float) -> tuple[float, float]:
    """Return the loss by the fit's own uncertainty and by another fit to the same runs."""
    params, tokens, repeated = found.params, found.tokens, question.aims.repeated
    seen: list[float] = []
    for name in (losses.name, SAME_DATA.get(losses.name, losses.name)):
        surface = losses.surface if name == losses.name else LAWS[name].surface
        assert surface is not None
        at = float(loss(surface, params, tokens, repeated).value)
        own = wide * surface.deviation(float(params.value), float(tokens.value))
        seen += [at - own, at + own]
    return min(seen), max(seen)


def notes(question: OptimalQuestion, params: Term, tokens: Term, losses: ScalingLaw) -> list[str]:
    """Return notes on what the law counts, whether it is extrapolated, and what its loss means."""
    law = question.law
    said = [
        f"{law.title}: {law.source}",
        f"N counts {law.counts}; {law.price.words}",
        *([law.remark] * bool(law.remark)),
    ]
    outside = stretched(law, float(law.price.spent(params, tokens).value), float(params.value), float(tokens.value))
    if outside:
        said.append(f"extrapolated: the law was fitted to {outside}")
    said.append(
        f"the loss is in nats per token of {losses.data} data and its tokenizer: compare it within {losses.name} only"
    )
    if not law.current and (law.surface is None or not law.surface.covariance):
        said.append(f"no uncertainty of {law.name} is published, and no other law is like it: no interval is given")
    if losses.name != law.name:
        said.append(f"{law.name} states no loss: it is that of {losses.name} for this division")
    return said

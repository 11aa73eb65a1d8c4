"""`napkin serve MODEL --hardware any`: which accelerator serves a model cheapest, and how many of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.commands.inputs import Inputs
from napkin.commands.question.offers import Offer, mark_front, raise_what_all_share, read_offers
from napkin.commands.serve.answer import answer_of
from napkin.commands.serve.chosen import choose
from napkin.commands.serve.question import ServeQuestion, read
from napkin.commands.serve.served import ServedModel
from napkin.errors import BROKEN, NapkinError
from napkin.evidence.serving.errors import class_of, half_width
from napkin.options.command_line import pieces_of
from napkin.planning.serving_search import keeps
from napkin.planning.verdicts import FITS
from napkin.record import record, replace
from napkin.render.answer import Answer, Cell, number_in
from napkin.render.chart import Chart, Series
from napkin.timing.generation import LatencyLimits

TIMES = 4
"""Multiple of the fewest GPUs up to which more are tried, if their number is not given: they allow larger batches."""
DRAWN = 10
"""Accelerators that fit in a plot."""
UNITS: dict[str, str | None] = {
    "gpus": "GPU",
    "in_flight": "1",
    "output_tokens_per_second": "token/s",
    "ttft": "second",
    "tpot": "second",
    "price": "USD/GPU-hour",
    "cost": "USD",
    "cost/low": "USD",
    "cost/high": "USD",
}


@record
class ServingOffer:
    """An accelerator in its cheapest number, or why it cannot serve the model; inputs: those of its question."""

    offer: Offer
    inputs: Inputs | None
    found: ServedModel | None
    problem: NapkinError | None


def run_market(inputs: Inputs) -> Answer:
    """Answer for the accelerator that serves a million tokens cheapest, all others as rows."""
    inputs.need_all({"model": "which model?"})
    if "profile" in inputs:
        raise NapkinError("a profile describes one machine", "name one --hardware")
    offers = read_offers(inputs)
    tried = [_read_cheapest(inputs, offer) for offer in offers]
    problems = [one.problem for one in tried if one.problem is not None]
    raise_what_all_share(problems, len(tried))
    served = [one for one in tried if one.found is not None]
    if not served:
        why = "; ".join(f"{one.offer.name}: {one.problem.message}" for one in tried[:3] if one.problem is not None)
        raise NapkinError(f"no machine serves this: {why}", "--dtype fp8, or other --hardware", status=BROKEN)
    rows = _rows(tried)
    best = min(served, key=_cost)
    assert best.found is not None
    assert best.inputs is not None
    inputs.adopt(best.inputs)
    done = answer_of(best.found)
    for name, shown in best.inputs.shown.items():
        if name != "hardware":
            done.inputs.setdefault(name, shown)
    done.rows = [*rows]
    done.extra["columns"] = dict(UNITS)
    done.notes += [one.note for one in offers if not one.own]
    done.plot = (_chart(best.found.setup.model.name, rows),)
    from napkin.commands.screens.serve_market import screen

    done.screen = screen(best.found, done, offers)
    return done


def _read_cheapest(inputs: Inputs, offer: Offer) -> ServingOffer:
    """Return an accelerator in the number of GPUs that serves a million tokens cheapest."""
    one = inputs.changed({"hardware": offer.slug})
    try:
        question = replace(read(one), price=offer.price)
        found = [choose(question)]
    except NapkinError as problem:
        return ServingOffer(offer, None, None, problem)
    least = found[0].setup.gpus
    if question.ranks.gpus is None and question.ranks.dp is None:
        found += [more for gpus in _more(least) if (more := _on(question, gpus)) is not None]
    fitting = [one for one in found if one.verdict == FITS and _kept(one)]
    priced = [one for one in fitting if one.cost is not None]
    if not priced:
        gpus = "a GPU" if least == 1 else f"{least:,} GPUs"
        why = offer.single if fitting else f"does not surely fit on {gpus}"
        return ServingOffer(offer, None, None, NapkinError(why, status=BROKEN))
    return ServingOffer(offer, one, min(priced, key=lambda one: _dollars(one)), None)


def _more(least: int) -> list[int]:
    """Return powers of two above the fewest GPUs."""
    first = least.bit_length()
    return [1 << power for power in range(first, first + TIMES) if 1 << power <= TIMES * least]


def _on(question: ServeQuestion, gpus: int) -> ServedModel | None:
    """Return the question's answer on this number of GPUs; None if the degrees that are given do not divide them."""
    try:
        return replace(choose(replace(question, ranks=replace(question.ranks, gpus=gpus))), question=question)
    except NapkinError:
        return None


def _kept(found: ServedModel) -> bool:
    """Return whether the given requests meet the latency limits."""
    limits = found.question.limits
    return limits == LatencyLimits() or keeps(found.service, limits)


def _dollars(found: ServedModel) -> float:
    assert found.cost is not None
    return float(found.cost.value)


def _cost(one: ServingOffer) -> float:
    assert one.found is not None
    return _dollars(one.found)


def _rows(tried: Sequence[ServingOffer]) -> list[dict[str, Cell]]:
    """Return a row for each accelerator, the cheapest first, those that do not serve the model last."""
    rows = sorted((_row(one) for one in tried), key=lambda row: number_in(row, "cost") if "cost" in row else math.inf)
    done = [row for row in rows if "cost" in row]
    mark_front(done, _pace)
    for row in done:
        row["recommended"] = row is done[0]
    return rows


def _row(one: ServingOffer) -> dict[str, Cell]:
    price, found = one.offer.price, one.found
    row = one.offer.row
    if found is None:
        assert one.problem is not None
        return {**row, "why": one.problem.message.removeprefix(f"{one.offer.name} ").removeprefix("has ")}
    question, service, groups = found.question, found.service, found.setup.groups
    rests = class_of(question.engine.name, question.hardware.generation)
    half = math.exp(half_width("output_tokens_per_second", rests, question.confidence))
    cost = _dollars(found)
    row |= {"gpus": found.setup.gpus, "tp": groups.tp, "pp": groups.pp, "ep": groups.ep, "dp": found.setup.dp}
    row |= {
        "in_flight": int(service.in_flight.value),
        "output_tokens_per_second": float(service.output_rate.value),
        "ttft": float(service.ttft.value),
        "tpot": None if service.tpot is None else float(service.tpot.value),
        "cost": cost,
        "cost/low": cost * price.low / price.middle / half,
        "cost/high": cost * price.high / price.middle * half,
    }
    assert one.inputs is not None
    changes = {"gpus": str(found.setup.gpus), **dict.fromkeys(("min", "plot", "theme", "json", "quiet"))}
    row["command"] = " ".join(pieces_of("serve", one.inputs.texts_given(), changes))
    return row


def _pace(row: Mapping[str, Cell]) -> float:
    """Return the time per output token, or the time to first token if an answer has only one."""
    return number_in(row, "tpot" if row["tpot"] is not None else "ttft")


def _chart(name: str, rows: Sequence[dict[str, Cell]]) -> Chart:
    """Draw the cost of a million tokens on each of the cheapest accelerators, with its interval."""
    done = [row for row in rows if "cost" in row][:DRAWN]

    def column(name: str) -> list[float]:
        return [number_in(row, name) for row in done]

    names = [f"{number_in(row, 'gpus'):,.0f} ×\n{str(row['name']).replace(' ', chr(10))}" for row in done]
    return Chart(
        "bars",
        f"serving {name}: what a million output tokens cost",
        "",
        "USD",
        [Series("USD per million output tokens", names, column("cost"), column("cost/low"), column("cost/high"))],
    )

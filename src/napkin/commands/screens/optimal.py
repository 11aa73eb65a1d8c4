"""Screen of `optimal`: the model and its tokens, the cost of other sizes, the results of other laws."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.optimal.machine import FundedRun
from napkin.commands.optimal.published import PACE, NearestModel
from napkin.commands.optimal.question import OptimalQuestion
from napkin.commands.optimal.rows import stretched
from napkin.elementwise import Number
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import amount, briefly, interval, share, to_type
from napkin.render.screen import Column, Next, Screen, Table
from napkin.term import Term
from napkin.units import human


def screen(question: OptimalQuestion, answer: Answer, run: FundedRun | None, published: NearestModel | None) -> Screen:
    """Return the screen of an answered budget; published: the nearest published model."""
    terms = answer.by_path()
    return Screen(
        _question(question),
        _headline(question, answer, terms),
        table=_sizes(question, answer.rows or ()),
        remarks=_remarks(question, answer, terms, run, published),
        next=_next(question, terms, published),
    )


def _question(question: OptimalQuestion) -> list[str]:
    """Return the question as clauses."""
    machine, found = question.machine, []
    if question.like:
        assert question.params is not None
        assert question.tokens is not None
        found.append(f"as good as {amount(question.params.value)} on {amount(question.tokens.value)} tokens")
    elif question.named or question.params is not None:
        found.append(question.named or f"{amount(question.params.value)} parameters" if question.params else "")
    if question.tokens is not None and not question.like:
        found.append(f"{amount(question.tokens.value)} tokens")
    if question.compute is not None:
        found.append(f"{human(question.compute.value, 'FLOP', 3)}")
    if machine is not None:
        found.append(f"{human(machine.gpus.value, '1')} × {machine.hardware.name}")
        if machine.time is not None:
            found.append(briefly(machine.time.value, "second"))
    if question.aims.served is not None:
        found.append(f"serving {amount(question.aims.served.value)} tokens")
    if question.aims.repeated is not None:
        found.append(f"{amount(question.aims.repeated.unique.value)} unique tokens")
    law = question.law
    return [*found, f"{law.title}: {law.told}" if law.told and law.total == 1 else law.title]


def _headline(question: OptimalQuestion, answer: Answer, terms: Mapping[str, Term]) -> list[str]:
    """Return the model and its tokens, with the spread of the laws."""
    params, tokens = terms["params"].value, terms["tokens"].value
    size = human(params, "param")
    if question.law.mixture:
        size = size.replace(" parameters", " active parameters")
    found = [f"{size} on {human(tokens, 'token')}"]
    if "params" in answer.intervals:
        found.append(_spread(question, answer, params))
    elif question.suited and "tokens" in answer.intervals:
        said = interval(answer.intervals["tokens"], tokens, "token", question.confidence)
        found.append(said.replace(" tokens", "", said.count(" tokens") - 1))
    if question.suited and question.machine is None:
        found.append(human(terms["flops/total"].value, "FLOP", 3))
    found.append(f"loss {terms['loss'].value:.3f}")
    if "saving" in terms:
        found.insert(1, f"{share(terms['saving'].value)} less compute in its life")
    if "flops/wasted" in terms:
        found.insert(1, f"wastes {share(terms['flops/wasted'].value)} of the compute")
    return found


def _spread(question: OptimalQuestion, answer: Answer, params: Number) -> str:
    """Return the spread of the laws, without the unit that the size already has."""
    return interval(answer.intervals["params"], params, "param", question.confidence).replace(" parameters", "")


HEADINGS = (
    Column("parameters", right=True),
    Column("tokens", right=True),
    Column("per parameter", right=True, drop=3),
    Column("loss", right=True, drop=1),
    Column("for equal loss", right=True),
    Column("cost", right=True, drop=2),
    Column(),
)


def _sizes(question: OptimalQuestion, rows: Mapping[str, object] | tuple[Row, ...] | list[Row]) -> Table:
    """Return the sizes around the best one."""
    life = " in its life" if question.aims.served is not None else ""
    stated = question.params is not None or question.tokens is not None
    marks = {"optimal": "<- best", "asked": "<- asked" if stated else f"<- {question.law.name}"}
    cells = []
    for row in rows:
        assert isinstance(row, Mapping)
        extra = row["extra"]
        cells.append(
            (
                amount(number_in(row, "params")),
                amount(number_in(row, "tokens")),
                human(number_in(row, "tokens_per_param"), "1", 3),
                f"{number_in(row, 'loss'):.3f}",
                _extra(extra),
                human(number_in(row, "cost"), "USD") if "cost" in row else "",
                marks.get(str(row["which"]), ""),
            )
        )
    priced = any(cell[5] for cell in cells)
    columns = [
        Column(f"{one.name}{life}" if one.name == "for equal loss" else one.name, one.right, one.drop)
        for one in HEADINGS
        if one.name != "cost" or priced
    ]
    return Table(columns, [cell if priced else (*cell[:5], cell[6]) for cell in cells])


def _extra(extra: object) -> str:
    """Return the extra compute with which a size reaches the best loss."""
    if not isinstance(extra, float):
        return "never"
    if extra >= MANY:
        return f"{1 + extra:,.3g} × compute"
    return f"+{share(extra)} compute" if extra >= 5e-4 else "–"


MANY = 2.0
"""Share from which extra compute is written as a factor."""


def _remarks(
    question: OptimalQuestion,
    answer: Answer,
    terms: Mapping[str, Term],
    run: FundedRun | None,
    published: NearestModel | None,
) -> list[str]:
    """Return remarks on the run, the nearest model, the other laws, and extrapolation."""
    said = []
    if "params/total" in terms:
        said.append(f"{question.law.told}; {amount(float(terms['params/total'].value))} parameters in total")
    if run is not None:
        said.append(_of_run(terms, run))
    if published is not None and not question.named:
        layout = f" in {published.layout}" if published.layout else ""
        said.append(f"nearest published model: {published.name}, {amount(published.params)}{layout}")
    if published is not None and published.served is not None:
        one = published.served
        gpus = f"{one.gpus:,} GPUs" if one.gpus > 1 else "a GPU"
        price = "" if one.cost is None else f"; {human(one.cost, 'USD', 3)} per million"
        said.append(f"serving {published.name}: {human(one.rate, 'token/s', 3)} on {gpus} at {PACE} a token{price}")
    if "epochs" in terms and terms["epochs"].value > 1:
        worth = amount(float(terms["tokens/effective"].value))
        said.append(f"{terms['epochs'].value:.3g} epochs; they are worth {worth} unique tokens")
    laws = answer.extra["laws"]
    assert isinstance(laws, list)
    if question.plain or question.suited:
        what = "tokens" if question.suited and question.params is not None else "params"
        named = ", ".join(f"{one['law']} {amount(one[what])}" for one in laws if one["law"] != question.law.name)
        said += [f"{'laws for dense models' if question.law.mixture else 'other laws'}: {named}"] * bool(named)
    params, tokens = float(terms["params"].value), float(terms["tokens"].value)
    outside = stretched(question.law, float(terms["flops/total"].value), params, tokens)
    if outside:
        said.append(f"extrapolated: {question.law.name} was fitted to {outside}")
    return said


def _of_run(terms: Mapping[str, Term], run: FundedRun) -> str:
    """Return the run in one line."""
    parts = [
        human(terms["time"].value, "second"),
        f"MFU {terms['mfu/while_running'].value:.3g}" + (f" (napkin plan {run.planned})" if run.planned else ""),
        _losses(terms),
        human(terms["gpu_hours"].value, "GPU-hour"),
        human(terms["cost"].value, "USD") if "cost" in terms else "",
        f"{human(terms['flops/total'].value, 'FLOP', 3)}",
    ]
    return ", ".join(part for part in parts if part)


def _losses(terms: Mapping[str, Term]) -> str:
    """Return the goodput, and the number of failures that it includes."""
    if terms["goodput"].value == 1:
        return ""
    failures = terms["failures"].value if "failures" in terms else 0
    said = f" ({amount(round(failures))} failures)" if failures >= 2 else ""
    return f"goodput {terms['goodput'].value:.2g}{said}"


def _next(question: OptimalQuestion, terms: Mapping[str, Term], published: NearestModel | None) -> Next | str:
    """Return the next command: a step of the nearest published model in its layout, or how long this one takes."""
    params, tokens = float(terms["params"].value), to_type(float(f"{terms['tokens'].value:.3g}"))
    if published is not None and published.served is not None:
        return published.served.command
    if published is not None and question.aims.served is not None:
        return f"napkin serve {published.name} --hardware h100 --max-tpot {PACE}"
    if published is not None and published.command:
        return published.command
    if params < SMALLEST or question.law.mixture:
        return Next({"explain": True})
    named = question.named or (published.name if published is not None else to_type(float(f"{params:.3g}")))
    if question.machine is None:
        return f"napkin plan {named} --hardware h100 --min gpus --tokens {tokens} --within 90d"
    gpus, hardware = question.machine.gpus.value, question.machine.hardware.slug
    return f"napkin plan {named} --gpus {gpus} --hardware {hardware} --tokens {tokens}"


SMALLEST = 1e6
"""Number of parameters below which no shape is planned."""

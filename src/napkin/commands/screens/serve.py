"""Screen of `serve`: tokens per second, latency, memory per GPU, and other batches."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.screens.setup import run_on
from napkin.commands.serve.served import ServedModel
from napkin.planning.verdicts import FITS, NOT
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import interval, size, size_of
from napkin.render.screen import Bar, Column, Next, Screen, Table, quantities
from napkin.timing.generation import CLOSED, LatencyLimits
from napkin.units import human

SMALLER = ("fp8", "int4")
"""Formats of weights to try next if they do not fit."""


def screen(found: ServedModel, answer: Answer, shown: Sequence[int]) -> Screen:
    """Return the screen; shown: batches that are listed."""
    return Screen(
        _question(found),
        _headline(found, answer),
        answer.verdict or "",
        quantities(_rows(found, answer)),
        (),
        _batches(found, [row for row in answer.rows or [] if number_in(row, "batch") in shown]),
        next=_next(found, answer),
    )


def _question(found: ServedModel) -> list[str]:
    """Return line 1: model and machine, layout, requests, formats."""
    question, setup = found.question, found.setup
    degrees = {"tp": setup.groups.tp, "pp": setup.groups.pp, "ep": setup.groups.ep, "dp": setup.dp}
    divided = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    first = f"serving {run_on(setup.model.name, setup.gpus, question.hardware.name)}"
    many = (
        f"{found.traffic.at_once:,} in flight" if found.traffic.mode == CLOSED else f"batch {found.service.at_once:,}"
    )
    lengths = f"{found.traffic.prompt:,} in, {found.traffic.response:,} out"
    return [
        f"{first}:" if divided else first,
        *divided,
        many,
        lengths,
        f"{setup.weights.name} weights",
        f"{setup.cache_name} KV cache",
    ]


def _headline(found: ServedModel, answer: Answer) -> list[str]:
    """Return line 2: the verdict, the rate with its interval, latency and price."""
    service, level = found.service, found.question.confidence
    rate = float(service.output_rate.value)
    verdict = (answer.verdict or "").upper()
    if answer.verdict != FITS:
        terms = answer.by_path()
        held = size_of(terms["memory/total"].value, terms["memory/usable"].value)
        return [
            verdict,
            f"{held} per GPU",
            interval(answer.intervals["memory/total"], terms["memory/total"].value, "byte", level),
        ]
    parts = [
        verdict,
        human(rate, "token/s", 3),
        interval(answer.intervals["serve/output_tokens_per_second"], rate, "token/s", level),
    ]
    if service.tpot is not None:
        parts.append(f"{human(service.tpot.value, 'second', 3)} a token")
    if found.cost is not None:
        parts.append(f"{human(found.cost.value, 'USD', 3)} per million")
    return parts


def _rows(found: ServedModel, answer: Answer) -> list[tuple[str | Bar, ...]]:
    """Return rates and times if it may fit, then the memory per GPU of what the engine may use."""
    return [*([] if found.verdict == NOT else _speeds(found, answer)), *_memory(found, answer)]


def _speeds(found: ServedModel, answer: Answer) -> list[tuple[str | Bar, ...]]:
    """Return rates, times and the price."""
    service = found.service
    each = f"; {human(service.output_rate_per_gpu.value, 'token/s', 3)} per GPU" if found.setup.gpus > 1 else ""
    flying = f"{int(service.in_flight.value):,} at a time{each}"
    rows: list[tuple[str | Bar, ...]] = [
        ("output", human(service.output_rate.value, "token/s", 3), "", flying),
        ("first token", human(service.ttft.value, "second", 3), "", _interval(answer, "serve/ttft", "second")),
    ]
    if service.tpot is not None:
        says = (
            f"{_interval(answer, 'serve/tpot', 'second')}; {human(1 / float(service.tpot.value), '1', 3)} a second each"
        )
        rows.append(("next tokens", human(service.tpot.value, "second", 3), "", says))
    waiting = f"; {service.waiting:,} of {found.traffic.at_once:,} wait for room" if service.waiting else ""
    rate = f"{human(service.request_rate.value, '1', 3)} a second{waiting}"
    rows.append(("request", human(service.request.value, "second", 3), "", rate))
    if found.cost is not None:
        path = "serve/cost_per_million_output_tokens"
        says = f"per million tokens; {_interval(answer, path, 'USD')}"
        rows.append(("cost", human(found.cost.value, "USD", 3), "", says))
    price = found.price
    if price is None:
        most = found.question.price.most if found.question.price is not None else None
        known = (
            f"known of machines of up to {most} only; --price takes yours" if most else "not known; --price takes it"
        )
        rows.append(("price", "–", "", known))
    elif price.source:
        rows.append(("price", human(price.middle, "USD"), "", price.words))
    return rows


def _memory(found: ServedModel, answer: Answer) -> list[tuple[str | Bar, ...]]:
    """Return the memory per GPU, and what is left for the engine."""
    terms, engine = answer.by_path(), found.question.engine.name
    total, usable = float(terms["memory/total"].value), float(terms["memory/usable"].value)
    whole = max(total, usable)
    few, many = found.fitting
    fit = f"{few:,} to {many:,} sequences fit" if many > few else f"{few:,} sequences fit"
    rows: list[tuple[str | Bar, ...]] = []
    for name, path, says in (
        ("parameters", "memory/parameters", found.setup.weights.name),
        ("KV cache", "memory/kv_cache", f"{fit}; {size(found.service.held.per_token.value)} a token"),
        ("engine", "memory/engine", "context, graphs, activations"),
    ):
        value = float(terms[path].value)
        rows.append((name, size(value, whole), Bar(value / whole), says))
    if usable > total:
        left = usable - total
        return [*rows, ("free", size(left, whole), Bar(left / whole, 0, "·"), f"of what {engine} takes")]
    return [*rows, ("missing", size(total - usable, whole), "", f"more than {engine} takes")]


def _interval(answer: Answer, path: str, unit: str) -> str:
    value = float(answer.by_path()[path].value)
    return interval(answer.intervals[path], value, unit).partition(": ")[2]


def _batches(found: ServedModel, rows: list[Row]) -> Table | None:
    """Return other batches; none if there is only one."""
    if len(rows) < 2:
        return None
    names = {
        "batch": "batch",
        "output_tokens_per_second_per_gpu": "token/s per GPU",
        "ttft": "first token",
        "tpot": "next",
        "cost": "$ per million",
    }
    shown = [name for name in names if any(name in row for row in rows)]
    columns = [
        *(
            Column(names[name], True, 0 if name in ("batch", "output_tokens_per_second_per_gpu") else 1)
            for name in shown
        ),
        Column("", drop=2),
    ]

    def cell(name: str, row: Row) -> str:
        value = number_in(row, name)
        if name == "batch":
            return f"{value:,.0f}"
        if name == "cost":
            return human(value, "USD", 3).removeprefix("$")
        return human(value, "1" if name.startswith("output") else "second", 3)

    own, mark = found.service.at_once, "<- the largest" if found.question.maximize else "<- asked"
    return Table(columns, [[*(cell(name, row) for name in shown), mark if row["batch"] == own else ""] for row in rows])


def _next(found: ServedModel, answer: Answer) -> Next:
    """Return the next command: more GPUs or a smaller format if it does not fit, else the largest batch, or the
    price."""
    question, setup = found.question, found.setup
    if answer.verdict != FITS:
        if setup.weights.rest > 1:
            return Next({"dtype": SMALLER[0]})
        return Next({"gpus": None, "nodes": None, "tp": None, "dp": None, "pp": None, "ep": None})
    gpus: dict[str, str | None] = {}
    if question.ranks.gpus is None and question.ranks.tp is None:
        even = 1 << (setup.gpus - 1).bit_length()
        gpus = {"gpus": str(even if setup.groups.pp > 1 else setup.gpus), "min": None}
        if setup.groups.pp > 1 and not question.maximize and question.limits == LatencyLimits():
            return Next(gpus)
    if not question.maximize:
        largest = "concurrency" if found.traffic.mode == CLOSED else "batch"
        return Next({"batch": None, "concurrency": None, "max": largest, **gpus})
    return Next({"cache-dtype": "fp8"} if found.setup.element > 1 else {"max": None, "batch": "1"})

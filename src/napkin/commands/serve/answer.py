"""The answer of `serve`: rates, latency, memory and price, and the same for other batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.commands.memory.question import STATUS
from napkin.commands.screens.serve import screen
from napkin.commands.serve.chosen import choose
from napkin.commands.serve.question import ServeQuestion
from napkin.commands.serve.served import ServedModel, served_of
from napkin.evidence.figures.prices import Price
from napkin.evidence.serving.errors import class_of, half_width
from napkin.render.answer import Answer, Row, Shown, number_in
from napkin.render.chart import Chart, Series
from napkin.term import TRUE, Term, add, leaf, multiply
from napkin.timing.generation import CLOSED

MILLI = 1e3
WIDE = 16
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def charts(found: ServedModel, rows: Sequence[Row], rests: str, shown: Sequence[int]) -> tuple[Chart, ...]:
    """Return the panels, none if only one batch fits. rests: class of evidence; shown: batches that are labeled."""
    if len(rows) < 2:
        return ()
    later = all("tpot" in row for row in rows)
    x = f"time of each {'further' if later else 'first'} token (ms)"
    times = [MILLI * number_in(row, "tpot" if later else "ttft") for row in rows]
    half = math.exp(half_width("output_tokens_per_second", rests, found.question.confidence))
    own, bound = found.service.at_once, found.question.limits.tpot if later else found.question.limits.ttft
    limits = [] if bound is None else [(MILLI * bound, "bound")]

    def panel(title: str, name: str, column: str, low: float, high: float) -> Chart:
        values = [number_in(row, column) for row in rows]
        line = Series("any batch", times, values, [v * low for v in values], [v * high for v in values], "line")
        named = [
            Series(f"batch {n:,}{' (asked)' if n == own else ''}", [times[at]], [values[at]], style="points")
            for at, n in enumerate(int(number_in(row, "batch")) for row in rows)
            if n in shown
        ]
        return Chart(
            "lines",
            title,
            x,
            name,
            [line, *named],
            log_x=max(times) > WIDE * min(times),
            log_y=column == "cost" and max(values) > WIDE * min(values),
            limits=limits,
        )

    where = f"{found.setup.model.name} on {found.setup.gpus:,} × {found.question.hardware.name}"
    rates = panel(f"serving {where}: output tokens a second", "token/s", "output_tokens_per_second", 1 / half, half)
    price = found.price
    if price is None:
        return (rates,)
    low, high = price.low / price.middle / half, price.high / price.middle * half
    said = f"{price.middle:g} USD per GPU-hour{f', {price.date}' if price.date else ''}"
    return rates, panel(f"a million output tokens at {said}", "USD", "cost", low, high)


BATCHES = tuple(2**power for power in range(11))
"""Batches that are answered in addition to the requested one, if they fit."""
LISTED = (1, 8, 32, 128, 512)
"""Those shown on the screen."""
QUANTITIES = {
    "serve/output_tokens_per_second": "output_tokens_per_second",
    "serve/output_tokens_per_second_per_gpu": "output_tokens_per_second",
    "serve/total_tokens_per_second": "total_tokens_per_second",
    "serve/requests_per_second": "requests_per_second",
    "serve/ttft": "ttft_ms",
    "serve/tpot": "tpot_ms",
    "serve/request": "total_latency_ms",
    "serve/cost_per_million_output_tokens": "output_tokens_per_second",
}
"""Path → the measured quantity whose errors give its interval."""


def answer(question: ServeQuestion) -> Answer:
    """Answer the question."""
    return answer_of(choose(question))


def answer_of(found: ServedModel) -> Answer:
    """Answer for a chosen layout and its service."""
    question = found.question
    done = Answer("serve", _terms(found))
    done.rows = _rows(found)
    done.extra["columns"] = COLUMNS
    rests = class_of(question.engine.name, question.hardware.generation)
    for path, quantity in QUANTITIES.items():
        value = next((float(term.value) for term in done.terms if term.name == path), None)
        if value is not None:
            half = half_width(quantity, rests, question.confidence)
            low, high = _ends(found.price) if path.startswith("serve/cost") else (1.0, 1.0)
            done.intervals[path] = (value * low / math.exp(half), value * high * math.exp(half))
    total, room = float(done.by_path()["memory/total"].value), found.room
    middle = float(room.cache.value)
    done.intervals["memory/total"] = (total - (room.high - middle), total + (middle - room.low))
    for path in ("serve/max_batch", "serve/kv_cache/tokens"):
        value = float(done.by_path()[path].value)
        scale = value / middle if middle > 0 else 0.0
        done.intervals[path] = (max(math.floor(room.low * scale), 0), math.floor(room.high * scale))
    done.verdict = found.verdict
    if question.must_fit:
        done.status = STATUS[found.verdict]
    _show_solved(done, found)
    done.notes += _notes(found, rests)
    shown = (*LISTED, found.service.at_once, *(int(number_in(row, "batch")) for row in done.rows[-1:]))
    done.plot = charts(found, done.rows, rests, shown)
    done.screen = screen(found, done, shown)
    return done


def _ends(price: Price | None) -> tuple[float, float]:
    """Return the ends of a price relative to its middle."""
    return (1.0, 1.0) if price is None else (price.low / price.middle, price.high / price.middle)


def _show_solved(done: Answer, found: ServedModel) -> None:
    """Show what was solved or derived among the inputs."""
    setup, ranks = found.setup, found.question.ranks
    if found.question.maximize and found.traffic.mode == CLOSED:
        done.inputs["concurrency"] = Shown(int(found.service.in_flight.value), None, "solved")
    elif found.question.maximize:
        done.inputs["batch"] = Shown(found.service.at_once, None, "solved")
    if ranks.gpus is None:
        done.inputs["gpus"] = Shown(setup.gpus, None, "solved", "GPU")
    degrees = {"tp": setup.groups.tp, "pp": setup.groups.pp, "ep": setup.groups.ep, "dp": setup.dp}
    for name, degree in degrees.items():
        if name in ("tp", "dp") or degree > 1:
            done.inputs[name] = Shown(degree, None, "derived")


# --- what is published -----------------------------------------------------------------------------------------------


def _terms(found: ServedModel) -> tuple[Term, ...]:
    """Return the terms of the answer: rates and times, then memory, then cost."""
    question, service, room = found.question, found.service, found.room
    sequences = leaf("sequences", service.at_once, "1", TRUE, "of a replica")
    cache = multiply("memory/kv_cache", sequences, service.held.each)
    total = add("memory/total", room.weights, cache, room.besides)
    memory = (room.weights, cache, room.besides, total, room.usable, question.capacity, room.cache)
    return (*service.terms, *memory, *([found.cost] if found.cost is not None else []))


COLUMNS: dict[str, str | None] = {
    "batch": "1",
    "output_tokens_per_second": "token/s",
    "output_tokens_per_second_per_gpu": "token/s",
    "ttft": "second",
    "tpot": "second",
    "cost": "USD",
}


def _rows(found: ServedModel) -> list[Row]:
    """Return the same for other batches of a replica that fit, and for the largest."""
    most = min(found.fitting[0], found.setup.most)
    rows: list[Row] = []
    for batch in sorted({batch for batch in (*BATCHES, most, found.service.at_once) if 0 < batch <= most}):
        one = served_of(found.question, found.setup, found.question.requests(found.setup, batch), found.question.rates)
        row: dict[str, int | float] = {
            "batch": batch,
            "output_tokens_per_second": float(one.service.output_rate.value),
            "output_tokens_per_second_per_gpu": float(one.service.output_rate_per_gpu.value),
            "ttft": float(one.service.ttft.value),
        }
        if one.service.tpot is not None:
            row["tpot"] = float(one.service.tpot.value)
        if one.cost is not None:
            row["cost"] = float(one.cost.value)
        rows.append(row)
    return rows


def _notes(found: ServedModel, rests: str) -> list[str]:
    """Return notes on what the answer rests on."""
    question, service = found.question, found.service
    notes = [
        f"intervals: errors on published rows of serving whose source was held out; class of evidence: {rests}",
        f"linear layers are multiplied in {question.compute}; {question.engine.source}",
        "no speculation, no prefix that was cached before; experts are equally likely",
    ]
    price = question.price
    if price is None:
        notes.append(f"no price of {question.hardware.name} is known; --price says what an hour costs")
    elif found.price is None:
        notes.append(
            f"{question.hardware.name}: its known price is of machines of up to {price.most}; --price takes another"
        )
    if service.waiting:
        notes.append(f"{service.waiting:,} requests wait: the cache holds {service.at_once:,} of a replica at a time")
    return notes

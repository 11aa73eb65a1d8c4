"""The answer of `serve`: rates, latency, memory and price, and the same for other batches."""

from __future__ import annotations

import math

from napkin.commands.memory.question import STATUS
from napkin.commands.screens.serve import screen
from napkin.commands.serve.question import ServeQuestion
from napkin.commands.serve.served import ServedModel, served_of
from napkin.errors import BROKEN, NapkinError
from napkin.evidence.generation import rates_on
from napkin.evidence.serving_errors import class_of, half_width
from napkin.planning.generation import ServingSetup
from napkin.planning.serving_search import fastest, largest_batch
from napkin.planning.verdicts import FITS
from napkin.render.answer import Answer, Row, Shown
from napkin.term import TRUE, Term, add, leaf, multiply
from napkin.timing.generation import CLOSED, GenerationRates

BATCHES = (1, 8, 32, 128, 512)
"""Batches that are listed next to the one asked for, as far as they fit."""
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
"""Path → the measured quantity whose errors its interval is made of."""


def answer(question: ServeQuestion) -> Answer:
    """Answer the question."""
    rates = rates_on(question.hardware, question.compute, question.engine.name)
    found = _choose(question, rates)
    done = Answer("serve", _terms(found))
    done.rows = _rows(found, rates)
    done.extra["columns"] = COLUMNS
    rests = class_of(question.engine.name, question.hardware.generation)
    for path, quantity in QUANTITIES.items():
        value = next((float(term.value) for term in done.terms if term.name == path), None)
        if value is not None:
            half = half_width(quantity, rests, question.confidence)
            done.intervals[path] = (value / math.exp(half), value * math.exp(half))
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
    done.screen = screen(found, done)
    return done


def _show_solved(done: Answer, found: ServedModel) -> None:
    """Show what was solved or derived among the inputs."""
    setup = found.setup
    if found.question.maximize:
        done.inputs["batch"] = Shown(found.service.at_once, None, "solved")
    if found.question.solves:
        done.inputs["gpus"] = Shown(setup.gpus, None, "solved", "GPU")
    if len(found.question.setups) > 1 or found.question.solves:
        done.inputs["tp"] = Shown(setup.groups.tp, None, "derived")
    done.inputs["dp"] = Shown(setup.dp, None, "derived")


# --- which layout, which batch ---------------------------------------------------------------------------------------


def _choose(question: ServeQuestion, rates: GenerationRates) -> ServedModel:
    """Return the service on one of the setups: the first, with the fewest ranks, on which the sequences of a batch
    surely fit; of requests in flight, or of the largest batch, the one of the largest rate on the GPUs that are
    given. The last setup where none fits."""

    def fitting(setup: ServingSetup) -> ServedModel | None:
        found = _of(question, setup, rates)
        return found if found.verdict == FITS else None

    first = question.solves or not (question.maximize or question.traffic.mode == CLOSED)
    best = fastest(question.setups, fitting, lambda found: found.service, first)
    if best is not None:
        return best
    if question.solves and len(question.setups) > 1:
        most = question.setups[-1].groups.tp
        raise NapkinError(
            f"{question.setups[0].model.name} does not fit on any number of tensor-parallel GPUs up to {most:,}",
            "--dtype fp8, --pp, or a smaller --batch",
            status=BROKEN,
        )
    return _of(question, question.setups[-1], rates)


def _of(question: ServeQuestion, setup: ServingSetup, rates: GenerationRates) -> ServedModel:
    """Return the service on a setup; of the largest batch where that is asked for."""
    if not question.maximize:
        return served_of(question, setup, question.requests(setup), rates)

    def of(batch: int) -> ServedModel:
        return served_of(question, setup, question.requests(setup, batch), rates)

    one = of(1)
    fitting = min(one.fitting[0], setup.most)
    if not fitting:
        raise NapkinError(
            f"one sequence of {setup.model.name} does not surely fit", "more --tp, or --dtype fp8", status=BROKEN
        )
    batch = largest_batch(lambda batch: of(batch).service, fitting, question.limits)
    if batch:
        return of(batch)
    raise NapkinError("no batch keeps the bound on latency: a single sequence takes longer", "more --tp", status=BROKEN)


# --- what is published -----------------------------------------------------------------------------------------------


def _terms(found: ServedModel) -> tuple[Term, ...]:
    """Return what is published: rates and times, then memory, then money."""
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


def _rows(found: ServedModel, rates: GenerationRates) -> list[Row]:
    """Return the same for other batches of a replica that fit, and for the largest."""
    most = min(found.fitting[0], found.setup.most)
    rows: list[Row] = []
    for batch in sorted({batch for batch in (*BATCHES, most, found.service.at_once) if 0 < batch <= most}):
        one = served_of(found.question, found.setup, found.question.requests(found.setup, batch), rates)
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
    """Return what an answer rests on."""
    question, service = found.question, found.service
    notes = [
        f"intervals: errors on published rows of serving whose source was held out; class of evidence: {rests}",
        f"linear layers are multiplied in {question.compute}; {question.engine.source}",
        "no speculation, no prefix that was cached before; experts are equally likely",
    ]
    if service.waiting:
        notes.append(f"{service.waiting:,} requests wait: the cache holds {service.at_once:,} of a replica at a time")
    return notes

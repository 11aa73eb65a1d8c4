"""Screen of `train-time`: the quantity that was solved for, and the other quantities of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.commands.train_time.question import TrainTimeQuestion
from napkin.errors import DOES_NOT_FIT, HELD, IMPOSSIBLE, OK, UNDECIDED
from napkin.options.question import MEASURED_TOKENS
from napkin.render.answer import Answer, number_in
from napkin.render.figures import amount, interval, limits, size_of
from napkin.render.screen import Next, Screen, quantities
from napkin.term import Term
from napkin.units import OUT_OF_RANGE, figures, human

SOLVED = ("mfu", "gpus", "tokens", "params")
"""Quantities that can be solved for instead of time; with a budget, time is solved for as well."""
ROUND = (("30d", 2592000), ("7d", 604800), ("1d", 86400), ("1h", 3600))
"""Common deadlines, as typed and in seconds."""
COMPARABLE = 0.001
"""Smallest ratio to a well-known run at which the comparison is shown."""


def screen(question: TrainTimeQuestion, answer: Answer) -> Screen:
    """Return the screen of an answered run."""
    terms = answer.by_path()
    wanted = _wanted(question, terms)
    return Screen(
        _question(question),
        _headline(question, answer, terms, wanted),
        answer.verdict or "",
        quantities(_rows(question, answer, terms, wanted), right=False),
        _remarks(question, wanted, answer.verdict) + _published(answer),
        next=_next(question, terms, wanted, answer.verdict),
    )


def _is_replicated(question: TrainTimeQuestion, verdict: str | None) -> bool:
    """Return whether the run does not fit because nothing divides the states among its GPUs."""
    if question.step is None or verdict != DOES_NOT_FIT:
        return False
    layout = question.step.setup.layout
    return layout.dp == layout.gpus > 1 and not layout.zero and layout.ep == 1


def _remarks(question: TrainTimeQuestion, wanted: str, verdict: str | None) -> list[str]:
    """Return why `plan` gives a different answer, if a run is estimated without a layout or on one that does not
    fit."""
    if question.step is not None:
        return (
            ["every GPU holds all states; napkin plan searches for a layout that fits"]
            if _is_replicated(question, verdict)
            else []
        )
    if question.confidence is None or wanted not in ("time", "gpus"):
        return []
    return ["by the MFU of published runs; napkin plan times the best layout instead"]


def _published(answer: Answer) -> list[str]:
    """Return the published figure for the same run, if there is one."""
    rows = answer.extra.get("published_runs")
    if not isinstance(rows, list) or not rows:
        return []
    each = [f"{one['model']} {human(number_in(one, 'gpu_hours'), 'GPU-hour')}" for one in rows[:2]]
    return [f"published: {', '.join(each)}"]


def _wanted(question: TrainTimeQuestion, terms: Mapping[str, Term]) -> str:
    """Return the path of the quantity that was solved for."""
    given = question.known
    if question.solved is not None:
        return "gpus"
    for name in SOLVED:
        estimated = name == "mfu" and question.confidence is not None
        if name not in given and name in terms and not estimated and not (name == "params" and "per_token" in given):
            return name
    return "time"


def _question(question: TrainTimeQuestion) -> list[str]:
    """Return the question as clauses."""
    known = question.known
    size = "a model" if "params" not in known else f"{amount(known['params'].value)} parameters"
    tokens = f" on {amount(known['tokens'].value)} tokens" if "tokens" in known else ""
    given = "gpus" in known and question.solved is None
    gpus = f"{human(known['gpus'].value, '1')} × " if given else ""
    found = [(question.named or size) + tokens, gpus + question.hardware.name]
    if question.goodput.run_kind != "production":
        found.append(question.goodput.run_kind)
    laid_out = []
    if question.step is not None:
        from napkin.commands.screens.setup import degrees_of, trained_part

        found += trained_part(question.step.setup)
        laid_out = degrees_of(question.step.setup.layout)
    if "mfu" in known and not question.measured:
        found.append(f"MFU {known['mfu'].value:.3g}")
    allowed = known.get("time") if question.solved is None else question.solved.allowed
    found += limits(*(None if one is None else one.value for one in (allowed, question.budget)))
    return [*found, *_limits(question), *laid_out]


def _limits(question: TrainTimeQuestion) -> list[str]:
    """Return the limits that the run is judged by."""
    asked = (question.limits.get(name) for name in ("time", "budget"))
    return limits(*(None if one is None else one.value for one in asked))


def _headline(question: TrainTimeQuestion, answer: Answer, terms: Mapping[str, Term], wanted: str) -> list[str]:
    """Return the answer, its interval, and derived figures."""
    what = terms[wanted]
    value = f"MFU {what.value:.3g} needed" if wanted == "mfu" else human(what.value, what.unit)
    impossible = [f"IMPOSSIBLE: {value}, more than the hardware's peak"]
    found = impossible if answer.verdict == IMPOSSIBLE else [value]
    if answer.verdict == DOES_NOT_FIT:
        found.append(f"DOES NOT FIT {_memory(terms)}")
    elif question.limits and answer.verdict not in (None, IMPOSSIBLE):
        found.append(f"{str(answer.verdict).upper()}: {' and '.join(_limits(question))}")
    costs = [human(terms["cost"].value, "USD")] if "cost" in terms else []
    found += costs if "budget" in question.limits else []
    if wanted in answer.intervals and question.confidence is not None:
        found.append(interval(answer.intervals[wanted], what.value, what.unit, question.confidence))
    if answer.verdict == UNDECIDED and not question.limits:
        found.append(f"TOO CLOSE TO CALL {_memory(terms)}")
    if wanted != "time" and "time" in terms and ("time/allowed" in terms or "time" not in question.known):
        found.append(f"done in {human(terms['time'].value, 'second')}")
    found += costs if "budget" not in question.limits else []
    return [*found, human(terms["gpu_hours"].value, "GPU-hour")]


def _rows(
    question: TrainTimeQuestion, answer: Answer, terms: Mapping[str, Term], wanted: str
) -> list[tuple[str, str, str]]:
    """Return the run's quantities: hardware, energy and carbon."""
    rows = [("compute", human(terms["flops/total"].value, "FLOP"), _compared(answer, terms))]
    mfu, laid_out = terms["mfu"].value, "gpus" in terms
    peak = question.peak.value * (terms["gpus"].value if laid_out else 1)
    speed = human(peak * mfu, "FLOP/s")
    rows.append(("speed", speed, f"of {human(peak, 'FLOP/s')} dense peak{'' if laid_out else ' per GPU'}"))
    if question.measured:
        rows.append(
            ("MFU", human(mfu, "1", 3), f"{terms['mfu/while_running'].value:.3g} as measured, times the goodput")
        )
    elif "mfu" not in question.known and wanted != "mfu":
        ends = answer.intervals.get("mfu")
        said = "" if ends is None or question.confidence is None else interval(ends, mfu, "1", question.confidence)
        parts = [part for part in (said, *_rests_on(question, answer)) if part]
        rows.append(("MFU", human(mfu, "1", 3), "; ".join(parts)))
    if "goodput" in terms and terms["goodput"].value != 1:
        if "time/uninterrupted" in terms:
            rows.append(("training", human(terms["time/uninterrupted"].value, "second"), "without interruptions"))
        rows.append(
            (
                "goodput",
                human(terms["goodput"].value, "1", 3),
                _losses(terms),
            )
        )
    if "checkpoint/bytes" in terms and terms["checkpoint/interval"].value < terms["time"].value:
        blocked = human(terms["checkpoint/blocked"].value, "second", 3)
        every = human(terms["checkpoint/interval"].value, "second", 3)
        rows.append(("checkpoint", f"every {every}", f"each blocks for {blocked}"))
    if "gpus/exact" in terms:
        rows.append(("exactly", human(terms["gpus/exact"].value, "GPU"), "rounded up to whole GPUs"))
    if "padding/share" in terms:
        real = amount(terms["tokens/real"].value)
        rows.append(("padding", f"{terms['padding/share'].value:.0%}", f"of the tokens; {real} are real"))
    if "memory/total" in terms:
        rows.append(("memory", f"{_memory(terms)} per GPU", "" if question.limits else answer.verdict or ""))
    if question.market is not None:
        rows.append(("price", human(question.market.middle, "USD"), question.market.words))
    if question.named:
        rows.append(("model", human(terms["params"].value, "param"), ""))
    if "energy" in terms:
        rows.append(("energy", human(terms["energy"].value, "joule"), _emitted(terms)))
    return rows


def _losses(terms: Mapping[str, Term]) -> str:
    """Return what takes the rest of the calendar time, with the number of failures if predicted."""
    if "failures" not in terms or terms["failures"].value < 1:
        return "of the time is training; the rest failures and checkpoints"
    apart = human(terms["mtbf"].value, "second", 3)
    return f"of the time is training; {amount(round(terms['failures'].value))} failures, {apart} apart"


def _memory(terms: Mapping[str, Term]) -> str:
    """Return the memory of the layout's step and the capacity of a GPU."""
    return size_of(terms["memory/total"].value, terms["memory/capacity"].value)


def _compared(answer: Answer, terms: Mapping[str, Term]) -> str:
    """Return the FLOPs compared with a well-known run and with the count by operation."""
    said = []
    if "flops/ratio" in terms and terms["flops/exact"].value != terms["flops/total"].value:
        said.append(f"{human(terms['flops/exact'].value, 'FLOP')} counted by operation")
    known = answer.extra.get("context")
    first = known[0] if isinstance(known, list) and known else None
    if isinstance(first, Mapping) and number_in(first, "ratio") >= COMPARABLE:
        said.append(f"{first['ratio']:.3g} × {first['name']}")
    return "; ".join(said)


def _rests_on(question: TrainTimeQuestion, answer: Answer) -> list[str]:
    """Return the basis of an estimated MFU: published whole runs, or the step's in the convention of the run."""
    evidence = answer.extra.get("evidence")
    if isinstance(evidence, list) and evidence:
        return ["from published training runs", f"of the whole run, by {question.convention}"]
    return [f"by {question.convention}, × goodput"]


def _emitted(terms: Mapping[str, Term]) -> str:
    carbon = float(terms["carbon"].value)
    if not math.isfinite(carbon):
        return f"CO2e {OUT_OF_RANGE}"
    return f"{carbon / 1000:,.0f} t CO2e" if carbon >= 1e4 else f"{figures(carbon, 3, strip=True)} kg CO2e"


def _next(question: TrainTimeQuestion, terms: Mapping[str, Term], wanted: str, verdict: str | None) -> Next:
    """Return the next command: with the MFU that published runs reach, the best layout, the GPUs for a deadline."""
    if verdict == DOES_NOT_FIT:
        from napkin.commands.next_command import FREE, under

        return under("plan", less=FREE) if _is_replicated(question, verdict) else under("memory")
    if wanted == "gpus":
        taken = {} if question.solved is None else question.solved.options
        return Next({"gpus": str(terms["gpus"].value), "within": None, "budget": None, "min": None, **taken})
    if "gpus" not in terms:
        return Next({"within": "30d"})
    if wanted == "mfu":  # what a deadline and a budget take; without the budget, the machine or the time is free
        machine = "gpus" in question.known
        return Next({"within": None, "budget": None} if machine else {"budget": None})
    if "mfu" in question.known:
        return Next(dict.fromkeys(MEASURED_TOKENS) if question.measured else {"mfu": None})
    if wanted == "time" and question.named and question.step is None:
        from napkin.commands.next_command import under

        return under("plan")
    if question.step is not None and question.limits and verdict not in (None, HELD[OK]):
        from napkin.commands.next_command import FREE, under

        return under("plan", less=FREE)
    allowed = next((text for text, seconds in ROUND if seconds < terms["time"].value / 1.5), None)
    if wanted == "time" and allowed and question.budget is None and question.step is None:
        return Next({"gpus": None, "within": allowed})
    return Next({"explain": True})

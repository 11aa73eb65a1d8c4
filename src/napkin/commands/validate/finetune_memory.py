"""The memory of rows of measured fine-tuning: of the worst GPU, over what a row leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterable

from napkin.commands.validate.rollout_memory import Interval
from napkin.errors import UNDECIDED, NapkinError
from napkin.evidence.finetuning.adapters import OTHER_MEMORY
from napkin.evidence.finetuning.rows import FineTuning
from napkin.evidence.validation.memory_check import EXCEEDS
from napkin.footprint.loading import after_loading, loaded_by_each
from napkin.footprint.prepared import prepare
from napkin.footprint.varied_lengths import held_by_lengths
from napkin.operations.model import Model
from napkin.planning.verdicts import FITS, NOT, Fit, evaluate
from napkin.record import replace
from napkin.training.setup import Setup

MEMORY = "memory"


def fitting(ways: Iterable[Setup], asked: FineTuning) -> list[Setup]:
    """Return the setups that can fit the accelerator of a row."""
    fits = ((one, evaluate(asked.model, one, asked.room, asked.context)) for one in ways)
    return [one for one, fit in fits if fit.verdict != NOT]


def _peaks(asked: FineTuning, setup: Setup) -> list[Setup]:
    """Return the setups that may have the row's peak, the likely one first: with the longest sequences, with
    accumulated gradients, with other degrees, with wider weights."""
    lengths = dict.fromkeys(asked.lengths.longest)
    ways = fitting((asked.setup, *asked.divisions), asked) if asked.divisions else []
    others = [one for one in ways if one is not setup]
    sums = (2, 1) if asked.adds_up else (setup.layout.micro_batches,)
    return [
        replace(one, layout=one.layout.replaced(seq=seq, micro_batches=count))
        for one in (setup, *others, *asked.wider)
        for count in sums
        for seq in lengths
    ]


def _gaps(fit: Fit, model: Model, setup: Setup, steps: float, end: str) -> float:
    """Return the bytes that the cache holds because no two micro-batches are as long, beyond the usual gaps. Gathered
    weights are as large each time, and a buffer of gradients is never freed. steps: of the run, 0 if unknown."""
    rank, sums = fit.rank, int(setup.layout.micro_batches)
    *passes, step = rank.moments
    longest = max(passes, key=lambda moment: float(moment.passing))
    made = dict(longest.made.get("temporaries", ()))
    flow = rank.flow(setup)
    varied = float(flow.passing - made.get("gathered", 0))
    saved = prepare(model, setup).run.after.saved
    head = min(float(rank.stage.last * saved + made.get("head", 0) + made.get("pass", 0)), varied)
    buffered = bool(setup.keeps_gradients)
    freed = float((0 if buffered else rank.gradients) + step.passing)
    divided = int(setup.layout.zero) >= 2 and not setup.framework.experts_apart
    stay = setup.implementation.tuning is None and sums > 1 and not buffered
    held = held_by_lengths(varied - head, head, freed, divided, stay, steps * sums, end)
    return held - float(flow.gaps(end))


def memory_of(asked: FineTuning, setup: Setup, quantity: str) -> tuple[Interval, str]:
    """Return the bytes of the worst GPU. A figure of unstated kind may be anything from allocated to used."""
    capacity = asked.room
    name = quantity.removeprefix(f"{MEMORY}_")
    name = setup.framework.prints if name == "unstated" and setup.framework.prints else name
    first, last = ("allocated", "used") if name not in ("allocated", "reserved", "used") else (name, name)
    peaks = _peaks(asked, setup)
    fits = [evaluate(asked.model, one, capacity, asked.context) for one in peaks]
    factor = OTHER_MEMORY if asked.other else 1.0
    low = min(fit.reported.ends[f"memory/{first}"][0] for fit in fits) / factor
    high, needed = (max(fit.reported.ends[f"memory/{one}"][1] for fit in fits) * factor for one in (last, "used"))
    found = fits[0].reported
    shown = float({"allocated": found.allocated, "used": found.used}.get(name, found.reserved).value)
    if asked.lengths.varied and name != "allocated":  # blocks of one length serve no other
        shown += _gaps(fits[0], asked.model, peaks[0], asked.steps, "value")
        gaps = _gaps(fits[0], asked.model, peaks[0], asked.steps, "high")
        needed, high = needed + gaps, max(high + gaps, capacity or 0)  # until the card is full
    bound = capacity if capacity is not None and not asked.judged else math.inf
    value = min(shown, bound)
    words = {fit.verdict for fit in fits}
    if words == {NOT} and not asked.judged:
        raise NapkinError(EXCEEDS)
    word = words.pop() if len(words) == 1 else UNDECIDED
    least = asked.least or math.inf
    if word == FITS and needed > least:
        word = UNDECIDED
    word = after_loading(word, loaded_by_each(asked.model, setup), least, "")
    return (round(value), math.floor(min(low, bound)), math.ceil(min(high, bound))), word

"""What published whole runs suggest for the run of a plan: the answer of `napkin train-time` without a layout."""

from __future__ import annotations

from napkin.commands.command import ask, find
from napkin.commands.plan.question import PlanQuestion
from napkin.commands.signature import OptionText
from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.options.model import MODEL_OPTIONS
from napkin.term import SEEN, Term, leaf

KEPT = ("model", "hardware", "hardware-file", "goodput", "run-kind", "confidence", *MODEL_OPTIONS)
"""Options of a plan that its question to `train-time` repeats. A layout would make it another question."""
PATH = "time/published"


def published_time(question: PlanQuestion, gpus: int) -> tuple[Term, tuple[Number, Number]] | None:
    """Return the calendar time by the MFU of published whole runs on this many GPUs, and its interval; None without the
    tokens of the run, for fine-tuning, and where no published run tells."""
    if question.tokens is None or question.layouts.request.setup.tunes:
        return None
    given = {name: one for name, one in question.asked.given.items() if name in KEPT}
    given |= {"tokens": OptionText(str(int(question.tokens))), "gpus": OptionText(str(gpus))}
    try:
        answer = ask(find("train-time"), given, ("time",), spare={})
    except NapkinError:
        return None
    ends = answer.intervals.get("time")
    if ends is None:
        return None
    seconds = answer.by_path()["time"].value
    return leaf(PATH, seconds, "second", SEEN, "published whole runs: napkin train-time"), ends

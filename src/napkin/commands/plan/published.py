"""What published whole runs suggest for the run of a plan: the answer of `napkin train-time` without a layout."""

from __future__ import annotations

from napkin.commands.command import ask, find
from napkin.commands.plan.question import PlanQuestion
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError
from napkin.options.model import MODEL_OPTIONS, PREDICTING
from napkin.render.answer import Answer
from napkin.term import SEEN, leaf

KEPT = ("model", "hardware", "hardware-file", "goodput", "run-kind", "confidence", *MODEL_OPTIONS, *PREDICTING)
"""Options of a plan that its question to `train-time` repeats. A layout would make it another question."""
PATH = "time/published"
OMITTED = f"{PATH} is omitted"


def add_published_time(answer: Answer, question: PlanQuestion, gpus: int) -> None:
    """Add the calendar time by the MFU of published whole runs on this many GPUs, with its interval. Without the tokens
    of the run there is no such time; where `train-time` does not answer, a note says why."""
    if question.tokens is None:
        return
    if question.layouts.request.setup.tunes:
        answer.notes.append(f"{OMITTED}: the published whole runs are pretraining, which this run is not")
        return
    given = {name: one for name, one in question.asked.given.items() if name in KEPT}
    given |= {"tokens": OptionText(str(int(question.tokens))), "gpus": OptionText(str(gpus))}
    try:
        published = ask(find("train-time"), given, ("time",), spare={})
    except NapkinError as problem:
        answer.notes.append(f"{OMITTED}: napkin train-time does not answer: {problem.message}")
        return
    seconds = published.by_path()["time"].value
    answer.terms = (*answer.terms, leaf(PATH, seconds, "second", SEEN, "published whole runs: napkin train-time"))
    answer.intervals[PATH] = published.intervals["time"]

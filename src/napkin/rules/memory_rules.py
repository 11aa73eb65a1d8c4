"""N2: what takes memory that it need not take, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.errors import UNDECIDED
from napkin.planning.remedies import RemedySearch, advice, remedies, with_more_gpus
from napkin.planning.remedy_axes import axes
from napkin.planning.verdicts import NOT
from napkin.rules.case import Configuration, Options
from napkin.rules.rule import ERROR, MEMORY, OWN, Ask, Gain, Hit, Rule
from napkin.training.tasks import PRETRAIN


def _made_to_fit(case: Configuration, ask: Ask) -> Options:
    """Return the change with which the step surely fits: the fastest of those that `memory` proposes."""
    texts = {name: text for name, text in case.given.items() if isinstance(text, (str, bool))}
    search = RemedySearch(axes(case.model, case.setup, texts, case.stated.node or 1), ask.fit)
    tuned = case.setup.task != PRETRAIN
    found = list(advice(search) if tuned else remedies(search))
    if not found:
        more = with_more_gpus(search, fewest=True)
        return more.options if more is not None else {}
    if tuned:
        return found[0].options
    times = [(after.token_seconds if (after := ask.case(one.options)) is not None else None) for one in found]
    order = sorted(range(len(found)), key=lambda at: (times[at] is None, times[at] or 0.0))
    return found[order[0]].options


def _out(case: Configuration) -> Iterator[Hit]:
    if case.fit is not None and case.fit.verdict == NOT:
        over = (case.used or 0) - (case.capacity or 0)
        said = f"{(case.used or 0) / 2**30:.1f} GiB do not fit in {(case.capacity or 0) / 2**30:.1f}"
        yield Hit(said, "hardware", price=Gain(memory=float(over)))


def _perhaps(case: Configuration) -> Iterator[Hit]:
    if case.fit is not None and case.fit.verdict == UNDECIDED:
        said = f"{(case.used or 0) / 2**30:.1f} of {(case.capacity or 0) / 2**30:.1f} GiB are too close to call"
        yield Hit(said, "hardware", price=Gain(memory=0.0))


def _replicated(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    if layout.zero == 0 and layout.dp * layout.cp > 1 and not case.setup.implementation.tuning:
        yield Hit(
            f"optimizer states are kept {int(layout.dp * layout.cp):,} times over",
            "zero",
            ({"zero": "1"},),
        )


RULES = (
    Rule(
        "N201",
        "out-of-memory",
        "The step does not fit in the GPU's memory",
        "What must be there at once is more than the GPU has, however its cache behaves.",
        "llama3-8b --gpus 1 --hardware h100",
        _out,
        gains=OWN,
        mend=_made_to_fit,
        severity=ERROR,
    ),
    Rule(
        "N202",
        "may-run-out-of-memory",
        "Whether the step fits is too close to call",
        "The 90 % interval of what the step takes ends above what the GPU has.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 8192",
        _perhaps,
        gains=OWN,
        close=True,
        mend=_made_to_fit,
    ),
    Rule(
        "N203",
        "replicated-states",
        "Every data-parallel rank keeps all optimizer states",
        "ZeRO-1 divides them over the ranks and moves as many bytes: gradients are reduce-scattered and parameters "
        "gathered instead of gradients all-reduced.",
        "llama3.2-1b --gpus 64 --hardware h100",
        _replicated,
        gains=MEMORY,
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054, sections 5.1 and 7.2",),
    ),
)

"""Screen of a plan of reinforcement learning: the recommended layout, and the next best ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from napkin.commands.screens.plan import fit_word, layout_words
from napkin.commands.screens.setup import trained_part
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import interval, size_of
from napkin.render.screen import Column, Screen, Table
from napkin.units import human

if TYPE_CHECKING:
    from napkin.commands.rollout.search import RolloutLayout, RolloutSearch

LISTED = 8
"""Number of layouts that fit on a screen."""


def screen(search: RolloutSearch, answer: Answer, use: RolloutLayout, confidence: float) -> Screen:
    """Return the screen."""
    terms, lengths = answer.by_path(), search.lengths
    total, capacity = terms["memory/total"].value, search.capacity.value
    clauses = [
        f"{search.model.name} on {use.gpus:,} × {search.layouts.hardware.name}",
        *trained_part(search.layouts.request.setup),
        f"{lengths.prompts:,} × {lengths.answers:,} responses of {lengths.response:,} tokens",
    ]
    step = terms["step/time"].value
    head = [human(terms["gpus"].value, "GPU")] if "gpus" in terms else []
    if "time" in terms:
        head += [human(terms["time"].value, "second")]
        head += [human(terms["cost"].value, "USD")] if "cost" in terms else []
    head += [f"{human(step, 'second')} a step"]
    head += [interval(answer.intervals["step/time"], step, "second", confidence)]
    head += [f"{(answer.verdict or '').upper()} {size_of(total, capacity)}"]
    rows = [row for row in answer.rows or () if number_in(row, "rank") <= LISTED or row["recommended"]]
    said = f"{terms['layouts'].value:,} ways to run a step were timed, {terms['layouts/fit'].value:,} fit or may"
    following = next(str(row["command"]) for row in rows if row["recommended"])
    return Screen(clauses, head, answer.verdict or "", _table(rows), [said], next=following)


def _table(rows: list[Row]) -> Table:
    """Return the layouts, the fastest first."""
    columns = [
        Column("", True, 1),
        Column("trainer"),
        Column("engine"),
        Column("step", True, 0),
        Column("generate", True, 3),
        Column("update", True, 4),
        Column("GiB", True, 2),
        Column("fits", False, 1),
        Column("", False, 1),
    ]
    cells = [
        [
            f"{number_in(row, 'rank'):,.0f}",
            layout_words(row),
            _engine(row),
            human(number_in(row, "step/time"), "second", 3),
            human(number_in(row, "step/generation"), "second", 3),
            human(number_in(row, "step/update"), "second", 3),
            f"{number_in(row, 'memory/total') / 2**30:.1f}",
            fit_word(str(row["fit"])),
            "<- use" if row["recommended"] else "",
        ]
        for row in rows
    ]
    return Table(columns, cells)


def _engine(row: Row) -> str:
    """Return where responses are generated in a word or two."""
    where, _, size = str(row["rollout"]).partition(":")
    place = f"{size} GPUs" if where == "separate" else f"in {float(size):.0%}"
    return f"{place} tp{number_in(row, 'rollout-tp'):.0f}{' offload' if row['rollout-offload'] else ''}"

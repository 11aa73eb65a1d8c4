"""Screen of `plan`: the recommended layout, its speed, and the next best layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.commands.plan.published import PATH as PUBLISHED
from napkin.commands.plan.question import PlanQuestion
from napkin.commands.screens.setup import trained_part
from napkin.commands.screens.suggestions import change_of, first_command, host_line, hosted, joined
from napkin.errors import HELD, UNDECIDED
from napkin.planning.verdicts import FITS, NOT
from napkin.render.answer import Answer, Row, number_in, suggested
from napkin.render.figures import amount, between, interval, limits, size, size_of
from napkin.render.screen import Column, Next, Screen, Table
from napkin.units import human

LISTED = 8
"""Number of layouts that fit on a screen; with a larger --rows, all are shown."""
USUAL_ROWS = 10
REASONS = 3
"""Number of reasons why no layout fits that are listed."""
DEGREES = ("tp", "pp", "vp", "dp", "cp", "ep")


def screen(question: PlanQuestion, answer: Answer, kept_by_more: bool = False) -> Screen:
    """Return the screen of the best layouts of one machine, or of the best of several machines; kept_by_more: the note
    on whether another number of GPUs meets the limits that this one misses."""
    rows, advised = list(answer.rows or ()), suggested(answer)
    several = any("efficiency" in row or "why" in row for row in rows)
    most, nearest = LISTED - len(advised), "nearest" in answer.extra
    return Screen(
        _question(question, several),
        _headline(question, answer),
        answer.verdict or "",
        _machines(question, rows) if several else _layouts(question, rows, _usual(answer), most, nearest),
        _remarks(question, answer, rows),
        _advised(question, advised),
        next=_next(rows, kept_by_more, advised, question.layouts.request.setup.tunes),
    )


def _question(question: PlanQuestion, several: bool) -> list[str]:
    """Return the question as clauses."""
    request, hardware = question.layouts.request, question.layouts.hardware
    counts = question.counts
    if several or len(counts) > 1:
        machine = f"{counts[0]:,} to {counts[-1]:,} × {hardware.name}"
    else:
        machine = f"{counts[0]:,} × {hardware.name}" if counts else hardware.name
    batch = f"{request.batch:,}" if request.batch else f"up to {request.most:,}"
    asked = [f"{request.model.name} on {machine}", *trained_part(request.setup)]
    if question.tokens is not None:
        asked.append(f"{amount(question.tokens)} tokens")
    return [*asked, *limits(question.deadline, question.budget), f"{batch} × {request.seq:,} tokens a step"]


def _headline(question: PlanQuestion, answer: Answer) -> list[str]:
    """Return the machine if it was solved for, the time of the run and of a step, MFU and memory."""
    terms, limit = answer.by_path(), " and ".join(limits(question.deadline, question.budget))
    head = []
    if "reasons" in answer.extra:
        late = any(row.get("recommended") and row.get("misses") for row in answer.rows or ())
        what = limit if late and not question.counts else "no layout"
        return [f"IMPOSSIBLE: {what}", f"nearest: {answer.extra['nearest']}"]
    verdict = answer.verdict or ""
    too_much = verdict == NOT and "memory/host/capacity" in terms
    judged = [f"{verdict.upper()}: {limit}"] if verdict in HELD.values() else []
    costs = [human(terms["cost"].value, "USD")] if "cost" in terms else []
    if "gpus" in terms:
        head.append(human(terms["gpus"].value, "GPU"))
    step = f"{human(terms['step/time'].value, 'second')} a step"

    def ends(path: str) -> list[str]:
        found = answer.intervals.get(path)
        return [] if found is None else [interval(found, terms[path].value, "second", question.confidence)]

    word, used = "", []
    if "memory/total" in terms and "memory/capacity" in terms:
        chosen = next((str(row["fit"]) for row in answer.rows or () if row.get("recommended")), "")
        word = chosen.upper() if not too_much else ""
        used = [size_of(terms["memory/total"].value, terms["memory/capacity"].value)]
    fit = [f"{word} {one}".lstrip() for one in used]
    if question.tokens is not None and "time" in terms:
        head.append(human(terms["time"].value, "second"))
        spent = costs if question.budget is not None else []
        limited = judged if question.limits and (question.counts or answer.status) else []
        head += [*spent, *limited] if question.counts else [*limited, *spent]  # a machine that was found is a part more
        head += ends("time")
        head += costs if question.budget is None else []
        head += [*filter(None, [word]), step, *used] if costs else [*fit, step]  # a full line leaves out the last
    else:
        head += [step, *ends("step/time"), *fit]
    head.append(f"MFU {human(terms['mfu'].value, '1', 3)}")
    if too_much:
        head.insert(0, f"{NOT.upper()} the host")
    return head


def _usual(answer: Answer) -> list[Row]:
    """Return the common choices, whether they fit or not."""
    found = answer.extra.get("popular")
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _advised(question: PlanQuestion, rows: Sequence[Row]) -> Table | None:
    """Return the suggestions that fit on the given GPUs, with the time of the run, else that of a step; or their speed
    where steps may have different batches."""
    if not rows:
        return None
    pace = "run" if question.tokens is not None else "step" if question.layouts.request.batch else "speed"
    columns = (Column("would fit with"), Column("per GPU", True, 1), Column(pace, remark=True))
    return Table(columns, [(change_of(row), size(number_in(row, "used")), _pace(row, pace)) for row in rows])


def _pace(row: Row, pace: str) -> str:
    """Return the run, the step or the speed of all GPUs with a suggestion, and its host memory."""
    trains = "LoRA only" if "trains" in row else ""
    if "untimed" in row:
        return joined(hosted(row), "not timed", trains)
    if pace == "speed":
        gpus = math.prod(number_in(row, name) for name in ("tp", "pp", "dp", "cp"))
        said = f"{number_in(row, 'tokens_per_second_per_gpu') * gpus:,.0f} token/s"
    else:
        said = human(number_in(row, "time" if pace == "run" else "step/time"), "second", 3)
    return joined(said, trains, hosted(row), layout_words(row))


def _layouts(question: PlanQuestion, rows: Sequence[Row], usual: Sequence[Row], most: int, nearest: bool) -> Table:
    """Return the ranked layouts, at most this many, with the recommended one marked, then common choices that may fit.
    nearest: they answer the nearest question that has an answer."""
    run, priced = question.tokens is not None, question.tokens is not None and question.price is not None
    batches = len({row["global-batch"] for row in rows}) > 1
    columns = [
        Column("", True, 1),
        Column("nearest layout" if nearest else "layout"),
        *([Column("batch", True, 4)] if batches else []),
        Column("step", True, 3 if run else 0),
        *([Column("run", True)] if run else []),
        *([Column("cost", True, 5)] if priced else []),
        Column("MFU", True, 2),
        Column("GiB", True, 2),
        Column("fits", False, 1),
        Column("", False, 1),
    ]
    ranked = [row for row in rows if row["rank"]]
    many = question.rows > USUAL_ROWS
    room = most - run  # a run has a remark more
    shown = [row for row in ranked if many or number_in(row, "rank") <= room or row["recommended"]]
    cells = []
    for row in shown:
        cells.append(
            [
                f"{number_in(row, 'rank'):,.0f}",
                layout_words(row),
                *([f"{number_in(row, 'global-batch'):,.0f}"] if batches else []),
                human(number_in(row, "step/time"), "second", 3),
                *([human(number_in(row, "time"), "second", 3)] if run else []),
                *([human(number_in(row, "cost"), "USD")] if priced else []),
                f"{number_in(row, 'mfu'):.3f}",
                f"{number_in(row, 'memory/total') / 2**30:.1f}",
                fit_word(str(row["fit"])),
                _mark(question, row),
            ]
        )
    for row in _usual_rows(question, usual):
        step, used = human(number_in(row, "step/time"), "second", 3), f"{number_in(row, 'memory/total') / 2**30:.1f}"
        cells.append(["–", str(row["name"]), *([""] if batches else []), step, "", used, fit_word(str(row["fit"])), ""])
    return Table(columns, cells)


def _usual_rows(question: PlanQuestion, usual: Sequence[Row]) -> list[Row]:
    """Return the common choices that may fit and whose steps have the same batch as the ranked layouts."""
    if question.layouts.request.batch is None or question.tokens is not None or question.pareto:
        return []
    return [row for row in usual if row.get("step/time") is not None]


def layout_words(row: Row) -> str:
    """Return a layout as one word for each degree above 1, then ZeRO stage, micro-batch and recomputation."""
    words = [f"{name}{number_in(row, name):.0f}" for name in DEGREES if number_in(row, name) > 1]
    words += [f"zero{number_in(row, 'zero'):.0f}"] if row["zero"] else []
    words.append(f"mb{number_in(row, 'micro-batch'):.0f}")
    words += ["no-sp"] if number_in(row, "tp") > 1 and not row["sp"] else []
    return " ".join([*words, *([str(row["recompute"])] if row["recompute"] != "none" else [])])


def fit_word(word: str) -> str:
    """Return whether a layout fits, in one word."""
    return "close" if word == UNDECIDED else word


def _mark(question: PlanQuestion, row: Row) -> str:
    """Return whether a layout is recommended, and which limits its run misses."""
    return ", ".join([*(["<- use"] if row["recommended"] else []), *_missed(question, row)])


def _missed(question: PlanQuestion, row: Row) -> list[str]:
    """Return which limits a layout's run misses: `late` the deadline, `over` the budget."""
    late = question.deadline is not None and number_in(row, "time") > question.deadline
    over = question.budget is not None and number_in(row, "cost") > question.budget
    return [word for word, missed in (("late", late), ("over", over)) if missed]


def _machines(question: PlanQuestion, rows: Sequence[Row]) -> Table:
    """Return the best layout of each machine, or why it has none."""
    run, priced = question.tokens is not None, question.tokens is not None and question.price is not None
    columns = [
        Column("GPUs", True),
        Column("layout"),
        Column("step", True, 2 if run else 0),
        *([Column("run", True)] if run else []),
        *([Column("cost", True, 1)] if priced else []),
        Column("MFU", True, 1),
        Column("GiB", True, 3),
        Column("fits", False, 1),
        Column("tokens/s", True, 4),
        Column("", False, 1),
    ]
    cells = []
    for row in rows:
        gpus = f"{number_in(row, 'gpus'):,.0f}"
        if "why" in row:
            cells.append([gpus, str(row["why"]), *[""] * (len(columns) - 2)])
            continue
        cells.append(
            [
                gpus,
                layout_words(row),
                human(number_in(row, "step/time"), "second", 3),
                *([human(number_in(row, "time"), "second", 3)] if run else []),
                *([human(number_in(row, "cost"), "USD")] if priced else []),
                f"{number_in(row, 'mfu'):.3f}",
                f"{number_in(row, 'memory/total') / 2**30:.1f}",
                fit_word(str(row["fit"])),
                f"{number_in(row, 'tokens_per_second'):,.0f}",
                _mark(question, row),
            ]
        )
    return Table(columns, cells)


def _remarks(question: PlanQuestion, answer: Answer, rows: Sequence[Row]) -> list[str]:
    """Return remarks: why there is no layout, the limits that the run misses, common choices outside the table,
    counts."""
    said = []
    reasons = answer.extra.get("reasons")
    if isinstance(reasons, (list, tuple)):
        said += [str(reason) for reason in reasons[:REASONS]]
    chosen = next((row for row in rows if row.get("recommended")), None)
    if chosen is not None and chosen.get("misses"):
        said.append(f"the best layout {chosen['misses']}")
    tabled = _usual_rows(question, _usual(answer))
    for word, fit in (("also fit", FITS), (UNDECIDED, UNDECIDED), ("do not fit", NOT), ("not valid here", None)):
        found = [row for row in _usual(answer) if row["fit"] == fit and row not in tabled]
        if found and not isinstance(reasons, list):
            how = _unlike(chosen, found) if fit == NOT else ""
            said.append(f"{word}{how}: {'; '.join(str(row['name']) for row in found)}")
    terms = {term.name: term.value for term in answer.terms}
    if "memory/host/capacity" in terms:
        said.append(host_line(terms["memory/host"], terms["memory/host/capacity"]))
    if PUBLISHED in terms:
        seconds, ends = terms[PUBLISHED], answer.intervals[PUBLISHED]
        took = f"{human(seconds, 'second', 3)} ({between(*ends, 'second', seconds)})"
        said.append(f"by published runs' MFU {took}: napkin train-time")
    if "layouts" in terms:
        ties = answer.extra.get("ties")
        within = f", {ties:,} within the interval of the best" if isinstance(ties, int) else ""
        said.append(f"{terms['layouts']:,} layouts, {terms['layouts/fit']:,} fit by estimate{within}")
    return said


def _unlike(chosen: Row | None, usual: Sequence[Row]) -> str:
    """Return how common choices differ from a recommended layout that recomputes: `data parallel only` may be both."""
    recomputes = chosen is not None and chosen["recompute"] != "none"
    return " without recomputation" if recomputes and all(row["recompute"] == "none" for row in usual) else ""


def _next(rows: Sequence[Row], kept_by_more: bool, advised: Sequence[Row], tunes: bool) -> Next | str:
    """Return the next command: the first suggestion that fits, the step of the recommended layout, or the GPUs that
    meet a missed limit."""
    if advised:
        return str(advised[0]["command"]) if tunes else first_command(advised)
    chosen = next((row for row in rows if row.get("recommended")), None)
    if kept_by_more:
        return Next({"gpus": None, "min": "gpus", "objective": None})
    return str(chosen["command"]) if chosen is not None else Next({"explain": True})

"""`napkin validate [FILE]`: predicted against measured, for the shipped evidence or the user's own rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin.commands.command import Command
from napkin.commands.first_file import read_whether_free, write_first
from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.screens.validate import UNITS, grouped, screen
from napkin.commands.validate import finetune, serving
from napkin.errors import NapkinError, Problems
from napkin.evidence.published import Published
from napkin.evidence.published import read as read_published
from napkin.evidence.rows import facts
from napkin.evidence.validation import memory_check, run_check, step_check
from napkin.evidence.validation.compared import Compared
from napkin.evidence.validation.error_statistics import ErrorStatistics, by_group, by_quantity, errors_of
from napkin.options.output import DRAWS
from napkin.record import record
from napkin.render.answer import Answer, Row
from napkin.render.chart import Chart, Series, axis, spoken, titled
from napkin.term import SEEN, Term, leaf

MOST_OWN = 15
"""Number of rows of a user's own file that are shown."""


FIRST = """\
# Measured training steps, compared with napkin's predictions by: napkin validate {name}
# One row a run. Leave out what you do not know: a row that lacks something says what. A CSV file with the same keys
# as columns (layout.tp, measured.step_seconds) does as well. Rows of memory (schema: memory/1) have
# memory: {gib: 55.3, what: used} in place of measured; fine-tuning and RL have schema: finetune/1, complete runs
# endtoend/1. Names of other tools are read (per_device_train_batch_size, num_gpus); a key of the run that is not known
# refuses its row. All keys: docs/rows.md of napkin.
schema: steps/1
rows:
  - id: llama3-8b on one node
    source: {title: our own runs, where: the log of 2026-01-31}
    model: {preset: llama3-8b, seq: 8192}
    hardware: {chip: H100 SXM 80GB, count: 8, per_node: 8}
    layout: {framework: torchtitan, compile: true, zero: 3, dp: 8, micro_batch: 1, global_batch: 8, recompute: none,
      precision: bf16}
    measured: {tokens_per_second_per_gpu: 7900}
  - id: a model of our own
    source: {title: our own runs, where: the log of 2026-01-31}
    model: {name: ours, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, gated: true,
      tied: false, seq: 8192}
    hardware: {chip: H100 SXM 80GB, count: 64, per_node: 8, interconnect: 400 Gbit/s InfiniBand per GPU}
    layout: {framework: megatron-core, tp: 2, pp: 2, dp: 16, micro_batch: 1, global_batch: 128, recompute: none,
      precision: bf16}
    measured: {step_seconds: 2.5}
"""
"""The starter file of rows; the measurements are placeholders."""


@record
class ValidateQuestion:
    """Measured rows to compare predictions with.

    path    file of the user's own rows, or None: the shipped evidence   worst   number of the worst rows to show
    strict  whether a row that cannot be read is an error
    wrote   whether the file was written by --init
    inside  whether constants are fitted with the row's own source   draw  whether a plot may be requested
    """

    rows: Published
    path: str | None
    wrote: bool
    confidence: float
    inside: bool
    worst: int
    strict: bool
    draw: bool


@record
class SourceErrors:
    """The errors of one quantity in the rows of one source."""

    quantity: str
    source: str
    errors: ErrorStatistics


def run(inputs: Inputs) -> Answer:
    """Answer for the shipped evidence or a file."""
    return answer(read(inputs))


def read(inputs: Inputs) -> ValidateQuestion:
    """Read the question."""
    path = inputs.text_or_none("file")
    if inputs.flag("strict") and path is None and not inputs.flag("init"):
        raise NapkinError(
            "--strict has no effect here: the shipped evidence has no row that cannot be read", "name a FILE"
        )
    if inputs.flag("init"):
        read_whether_free(inputs)
        path = write_first(path, "validate", "rows.yaml", FIRST)
    rows = (
        Published("", facts.steps(), facts.memory(), facts.runs(), [], [], [], [])
        if path is None
        else read_published(str(path))
    )
    return ValidateQuestion(
        rows=rows,
        path=path,
        wrote=inputs.flag("init"),
        confidence=read_confidence(inputs),
        inside=inputs.flag("in-sample"),
        worst=_read_worst(inputs),
        strict=inputs.flag("strict"),
        draw=inputs.wants("plot"),
    )


def _read_worst(inputs: Inputs) -> int:
    """Return how many of the worst rows to show: none by default; for a user's own file, as many as fit a screen."""
    text = inputs.text_or_none("worst")
    if text is None:
        return MOST_OWN if inputs.has("file") or inputs.flag("init") else 0
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise NapkinError(f"--worst: {text[:40]!r} is not a whole number", "for example --worst 20")
    return int(text)


def answer(question: ValidateQuestion) -> Answer:
    """Answer with every row's prediction, and the errors by quantity and by source."""
    compared = _compared(question)
    terms, sources = _statistics(compared)
    where = question.path or "the shipped evidence"
    answer = Answer("validate", terms=terms)
    answer.rows = [_row(one) for one in compared]
    answer.extra["sources"] = [_source_row(one) for one in sources]
    answer.screen = screen(
        where, question.confidence, compared, question.worst, question.path, question.wrote, question.rows.told
    )
    kind = "fitted to every row" if question.inside else "fitted with the row's own source held out"
    answer.notes.append(f"constants {kind}; intervals of {question.confidence:.0%}")
    suspects = sum(1 for one in compared if one.suspect)
    if suspects:
        answer.notes.append(f"{suspects} suspect row{'s' * (suspects != 1)} predicted, not counted")
    silent = [one for one in compared if one.predicted is None and not one.verdict]
    if silent:
        answer.notes.append(f"{len(silent)} rows are not predicted, each says why")
        answer.notes += [f"{one.id}: {one.why}" for one in silent] if question.path else []
    answer.notes += grouped(question.rows.told)
    if question.draw:
        answer.plot = _scatter(compared)
    return answer


def _compared(question: ValidateQuestion) -> list[Compared]:
    """Return every row with its prediction. Errors (2) name the fields of a file in which no row can be read, and with
    --strict those of every row that cannot."""
    rows, level, inside = question.rows, question.confidence, question.inside
    found = [
        *(step_check.steps(rows.steps, level, inside) if rows.steps else ()),
        *(memory_check.compared(row, level) for row in rows.memory),
        *(run_check.compared(rows.runs, level, inside) if rows.runs else ()),
        *(one for row in rows.tuning for one in finetune.compared(row, level, inside)),
        *(one for row in rows.serving for one in serving.compared(row, level, inside)),
        *(Compared(one.id, one.quantity, None, None, None, None, "", one.why, wrong=True) for one in rows.unread),
    ]
    wrong = [one for one in found if one.wrong]
    if wrong and (question.strict or len(wrong) == len(found)):
        raise Problems([NapkinError(one.why, "correct it, or leave the field out") for one in wrong])
    return found


def _row(one: Compared) -> Row:
    """Return a row of the answer; unknown values are omitted."""
    fields: Row = {
        "id": one.id,
        "quantity": one.quantity,
        "predicted": one.predicted,
        "low": one.low,
        "high": one.high,
        "measured": one.measured,
        "error": one.error,
        "source": one.source,
        "why": one.why,
        "verdict": one.verdict,
        "suspect": one.suspect,
        "evidence": one.evidence,
    }
    return {key: value for key, value in fields.items() if value not in (None, "")}


def _statistics(compared: Sequence[Compared]) -> tuple[list[Term], list[SourceErrors]]:
    """Return the errors by quantity as terms, and those of each source."""
    terms: list[Term] = []
    sources: list[SourceErrors] = []
    for quantity, members in by_quantity(compared).items():
        found = errors_of(members)
        figures = {
            f"error/{quantity}/median": found.median,
            f"error/{quantity}/mean": found.mean,
            f"error/{quantity}/p90": found.p90,
            f"error/{quantity}/bias": found.bias,
        }
        if found.coverage is not None:
            figures[f"coverage/{quantity}"] = found.coverage
        figures[f"rows/{quantity}"] = found.rows
        terms += [leaf(name, value, "1", SEEN, "published rows") for name, value in figures.items()]
        sources += [SourceErrors(quantity, group, errors_of(rows)) for group, rows in sorted(by_group(members).items())]
    return terms, sources


def _source_row(one: SourceErrors) -> Row:
    """Return the errors of one source as a row."""
    found = one.errors
    covered = {} if found.coverage is None else {"coverage": found.coverage}
    return {
        "quantity": one.quantity,
        "source": one.source,
        "rows": found.rows,
        "median": found.median,
        "mean": found.mean,
        "p90": found.p90,
        "bias": found.bias,
        **covered,
    }


def _scatter(compared: Sequence[Compared]) -> list[Chart]:
    """Draw predicted, with its interval, against measured: one panel per quantity, on logarithmic axes."""
    charts = []
    for quantity, members in by_quantity(compared).items():
        groups = {
            name: [o for o in several if o.measured and o.predicted] for name, several in by_group(members).items()
        }
        unit = UNITS.get(quantity, "byte")
        scale, name_of = axis([one.measured or 0.0 for several in groups.values() for one in several], unit)

        def scaled(values: Iterable[float | None], by: float = scale) -> list[float]:
            return [(value or 0.0) / by for value in values]

        series = [
            Series(
                name,
                scaled(one.measured for one in several),
                scaled(one.predicted for one in several),
                scaled(one.low or one.predicted for one in several),
                scaled(one.high or one.predicted for one in several),
            )
            for name, several in sorted(groups.items())
        ]
        charts.append(
            Chart(
                "points",
                f"{spoken(quantity)}: predicted against measured",
                titled("measured", name_of),
                titled("predicted, with its interval", name_of),
                series,
                log_x=True,
                log_y=True,
                diagonal=True,
            )
        )
    return charts


COMMAND = Command(
    "validate",
    "Compare predictions with published measurements, with each row's own source held out",
    run,
    brief="Compare predictions with published measurements",
    options=("confidence", "in-sample", "worst", "strict", "init", *DRAWS),
    arguments=("file",),
    defaults={"confidence": "90"},
    examples=("validate", "validate --confidence 80 --worst 5"),
)

"""Read measured runs as people publish them: training steps, memory, complete runs.

Rows of a file in one of the forms

    schema: steps/1      id source model hardware layout measured [convention] [suspect] [note]
    schema: memory/1     id source model hardware layout memory [suspect] [note]
    schema: finetune/1   id source task model hardware method layout measured [suspect] [note]
    schema: serving/1    id source model quant hardware layout engine load measured [suspect] [note]
    schema: endtoend/1   id model params_active tokens accelerator device_hours [count precision peak_dtype …]

become records of what is known before a run, with the measured quantity kept separate. A stated MFU, rate or time never
reaches the prediction."""

from __future__ import annotations

from napkin.architectures.reading import DEEPEST
from napkin.errors import NapkinError, Problems
from napkin.evidence.finetuning.words import of_tuning
from napkin.evidence.prose.memory import of_memory
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.prose.steps import of_step
from napkin.evidence.rows.files import MEMORY, RUNS, SERVING, STEPS, TUNING, read_rows
from napkin.evidence.rows.models import preset_model
from napkin.evidence.rows.preset_dimensions import dimensions_of, sizes_of
from napkin.evidence.rows.printed import LAYERS_OF
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.runs import RunRow, run_row
from napkin.evidence.rows.steps import StepRow, step_row
from napkin.evidence.rows.understood import understood
from napkin.inputs.file_roles import other_role
from napkin.inputs.launch.names import model_of
from napkin.inputs.load import printable
from napkin.inputs.presets import is_preset
from napkin.record import record

SHAPES = {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "window", "experts", "mla"}
"""Fields of a row's model that shape its layers."""
MAIN = {
    STEPS: "step_seconds",
    MEMORY: "memory_used",
    RUNS: "device_hours",
    TUNING: "memory_used",
    SERVING: "output_tokens_per_second",
}
"""Schema → main quantity of its rows."""


@record
class UnreadRow:
    """A row with an invalid value. quantity: the main one of its schema; why: the error, with its location."""

    id: str
    quantity: str
    why: str


@record
class Published:
    """The rows of a published file, or of the evidence: those of its schema's kind, and those that cannot be read."""

    schema: str
    steps: list[StepRow]
    memory: list[RowFields]
    runs: list[RunRow]
    tuning: list[RowFields]
    serving: list[RowFields]
    unread: list[UnreadRow]
    told: list[tuple[str, str]]
    """The id of a row, and what is said of a key that it has and that is not read."""


def read(path: str) -> Published:
    """Return the rows of a file, the facts of their prose filled in. The memory model reads its rows field by field. A
    row that holds what it cannot is kept with the reason; the file is refused if it has no rows or schema."""
    document = read_rows(path)
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        told = other_role(data, ("schema", "rows")) or "napkin validate --init writes a first file"
        raise NapkinError(f"{document.name}: has no list of rows", told)
    schema = data.get("schema")
    if not isinstance(schema, str) or schema not in MAIN:
        what = "is missing" if schema is None else f"unknown schema {printable(repr(schema), 60)}"
        raise NapkinError(f"{document.place('schema')}: {what}", f"one of {', '.join(MAIN)}")
    if not data["rows"]:
        raise NapkinError(f"{document.place('rows')}: is empty", "a row a run")
    found = Published(schema, [], [], [], [], [], [], [])
    names: set[str] = set()
    problems: list[NapkinError] = []
    for index, fields in enumerate(data["rows"]):
        row = RowFields(document, index, fields if isinstance(fields, dict) else {})
        try:
            _check_name(row, fields, names)
            row, unread = understood(row, schema)
            found.told.extend((row.text("id"), one) for one in unread)
            if schema != RUNS:  # whose model is a name
                row.count("model.layers", most=DEEPEST)
            if schema == STEPS:
                found.steps.append(step_row(recognized(with_preset(row), of_step)))
            elif schema == MEMORY:
                found.memory.append(recognized(with_preset(row, named=True), of_memory))
            elif schema == RUNS:
                found.runs.append(run_row(row))
            elif schema == SERVING:
                found.serving.append(row)
            else:
                found.tuning.append(recognized(row, of_tuning))
        except NapkinError as problem:
            name = row.fields.get("id")
            shown = printable(name, 60) if isinstance(name, str) and name else f"row {index + 1:,}"
            found.unread.append(UnreadRow(shown, MAIN[schema], problem.message))
            problems.append(problem)
    if len(problems) == len(data["rows"]):
        raise Problems(problems)
    return found


def _check_name(row: RowFields, fields: object, names: set[str]) -> None:
    """Raise WrongRow if a row has no unique name."""
    if not isinstance(fields, dict):
        raise row.wrong("", "is not a mapping")
    name = fields.get("id")
    if name is None or name == "":
        raise row.wrong("id", "is missing")
    if not isinstance(name, str):
        raise row.wrong("id", f"{printable(repr(name), 60)} is not a text")
    if name in names:
        raise row.wrong("id", f"{printable(name, 60)} appears twice")
    names.add(name)


def with_preset(row: RowFields, named: bool = False) -> RowFields:
    """Return a row whose model names a preset, or has the name of one and states no shape, with the preset's
    dimensions, under those that it states itself. Raises the row's error for an unknown preset, or one without the
    multi-token prediction modules that the row trains. named: one that a table of dimensions does not describe is known
    by its name; otherwise it has the preset's own layers, and is refused if it states another shape."""
    stated = row.part("model")
    name = row.text("model.preset")
    if not name and not stated.keys() & {"layers", "hidden"}:
        said = row.text("model.name").rpartition("/")[2].partition(" (")[0]
        name = model_of("-".join(said.split()))[0] or ""
        stated = {key: value for key, value in stated.items() if key != "name"} if name else stated
    if not name:
        return row
    if not is_preset(name):
        raise row.wrong("model.preset", f"{name[:60]!r} is not a preset")
    predicts = bool(row.flag("model.mtp"))
    if predicts and not preset_model(name).extra:
        raise row.wrong("model.mtp", f"{name} has no multi-token prediction modules")
    try:
        dims = {key: value for key, value in dimensions_of(name, predicts).items() if value is not None}
    except NapkinError:
        if named:
            return row.replaced({**row.fields, "model": {**stated, "name": name}})
        own = sizes_of(name)
        if any(stated.get(key, own[key]) != own[key] for key in own) or stated.keys() & SHAPES - own.keys():
            raise
        return row.replaced({**row.fields, "model": {"name": name, **stated, **own, LAYERS_OF: name}})
    if stated.keys() & dims.keys() - {"vocab", "params"}:
        dims.pop("params")
    return row.replaced({**row.fields, "model": {"name": name, **dims, **stated}})

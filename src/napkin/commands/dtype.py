"""`napkin dtype`: number formats side by side, and a value rounded to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from napkin import formats, units
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.formats import Format, Integer
from napkin.formats.figures import figures_of
from napkin.formats.rounding import StoredValue, store
from napkin.options.option import parsed
from napkin.render.answer import Answer, Cell
from napkin.render.screen import Column, Next, Screen, Table, quantities
from napkin.term import TRUE, Term, leaf


def run(inputs: Inputs) -> Answer:
    """Answer for all formats or one, and for a number to store."""
    value, named = _read_value(inputs)
    if inputs.has("dtype") and named is not None:
        raise NapkinError("VALUE and --dtype both name a format", "a number and a format, or one format")
    if inputs.has("dtype"):
        named = formats.find(inputs.text("dtype"))
    return answer(value, inputs.text_or_none("value") or "", named)


def answer(value: Fraction | None, text: str, named: Format | Integer | None) -> Answer:
    """Answer with the properties of the formats, and a value (`text` as typed) rounded to each."""
    notes: list[str] = []
    chosen = list(formats.FORMATS.values()) if named is None else [named]
    terms: list[Term] = []
    rows: list[dict[str, Cell]] = []
    for form in chosen:
        figures = figures_of(form, f"dtype/{form.name}")
        terms += figures
        by_name = {t.name.rpartition("/")[2]: t.value for t in figures}
        rows.append({"dtype": form.name, **{key: by_name.get(key) for key in _COLUMNS}})
        if value is not None:
            stored = store(value, form)
            terms += _stored_terms(value, stored, f"dtype/{form.name}")
            rows[-1] |= {"value": None if stored.value is None else float(stored.value), "event": _event(stored)}
    if value is not None and len(chosen) > 1:
        notes += _lost(text, chosen, value)
        lost = sum(str(row["event"]).startswith(_LOST) for row in rows)
        terms += [leaf("dtype/representable", len(rows) - lost, "1", TRUE), leaf("dtype/lost", lost, "1", TRUE)]
    if any(isinstance(form, Format) and form.scale for form in chosen):
        notes.append(_SCALED)
    several = len(chosen) > 1
    if not several and value is not None:
        notes.append(f"{text} in {chosen[0].name}: {rows[0]['event']}")
    return Answer(
        "dtype",
        terms=terms,
        rows=rows if several else None,
        notes=notes,
        screen=_listing(rows, text, value) if several else _one(chosen[0], rows[0], text, value),
    )


def _listing(rows: Sequence[Mapping[str, Cell]], text: str, value: Fraction | None) -> Screen:
    """Return the screen of all formats, with a value rounded to each."""
    columns = [Column("dtype")]
    names: list[str] = []
    if value is not None:
        columns += [Column(f"{text} becomes", right=True), Column("")]
        names += ["value", "event"]
    columns += [Column("bytes", right=True, drop=2), Column("largest", right=True)]
    columns += [Column("smallest", right=True, drop=1), Column("eps", right=True, drop=3)]
    columns += [Column("exponent+fraction bits", drop=4)]
    names += ["bytes", "max", "min_subnormal", "epsilon"]
    cells = [[str(row["dtype"]), *(_shown(name, row.get(name)) for name in names), _bits_of(row)] for row in rows]
    asked = "Number formats" if value is None else f"{text} in each number format"
    following = Next({"value": "1e-8"}) if value is None else Next({"dtype": "fp16"})
    said = "" if value is None else _kept(rows)
    return Screen((asked,), (said,) if said else (), table=Table(columns, cells), next=following, listing=True)


def _kept(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Return a sentence on the number of formats in which the value is neither 0 nor infinite."""
    lost = [row for row in rows if str(row["event"]).startswith(_LOST)]
    return f"in the range of {len(rows) - len(lost)} of {len(rows)} formats, lost in {len(lost)}"


def _one(form: Format | Integer, row: Mapping[str, Cell], text: str, value: Fraction | None) -> Screen:
    """Return the screen of one format, with a value rounded to it."""
    bits = "" if isinstance(form, Integer) else f"1 sign, {form.exponent} exponent, {form.fraction} fraction bits"
    headline = [f"{_shown('bytes', row['bytes'])} {'byte' if row['bytes'] == 1 else 'bytes'} an element", bits]
    if value is not None:
        lost = str(row["event"]).startswith(_LOST)
        headline.insert(0, str(row["event"]) if lost else f"{_shown('value', row['value'])}, {row['event']}")
    rows = [("largest", _shown("max", row["max"]), "")]
    if isinstance(form, Format):
        rows += [
            ("smallest normal", _shown("min_normal", row["min_normal"]), ""),
            ("smallest subnormal", _shown("min_subnormal", row["min_subnormal"]), "smaller values become 0"),
            ("eps", _shown("epsilon", row["epsilon"]), "from 1 to the next larger number"),
        ]
    asked = [f"Number format {form.name}", *([] if value is None else [f"what {text} becomes"])]
    remarks = []
    if isinstance(form, Format) and form.scale:
        remarks.append(f"Blocks of {form.block} elements share a scale, which the range and the bytes include.")
    following = Next({"value": "1e-8", "dtype": form.name}) if value is None else Next({"dtype": None})
    return Screen(asked, headline, table=quantities(rows), remarks=remarks, next=following)


_LOST = ("underflows", "overflows")
"""Prefixes of the events in which a value becomes 0 or infinite."""


def _bits_of(row: Mapping[str, Cell]) -> str:
    """Return how a format's bits are divided."""
    if row["exponent_bits"] is None:
        return "integer"
    return f"{row['exponent_bits']}+{row['fraction_bits']}"


_COLUMNS = (
    "bits",
    "bytes",
    "exponent_bits",
    "fraction_bits",
    "max",
    "min_normal",
    "min_subnormal",
    "epsilon",
)
_SCALED = (
    "mxfp8, mxfp4 and nvfp4 store elements (e4m3, e2m1, e2m1) under shared scales: the range includes the scale's "
    "(nvfp4: its tensor's fp32 scale at 1), and a value is stored as if it were the largest of its block and tensor"
)


def _read_value(inputs: Inputs) -> tuple[Fraction | None, Format | Integer | None]:
    """Return (number, format); the one argument is one of them."""
    text = inputs.text_or_none("value")
    if text is None:
        return None, None
    word = text.strip().lower().lstrip("+-")
    if word in ("inf", "infinity", "nan"):
        raise NapkinError(f"VALUE: {text.strip()!r} is not a finite number", "for example 1e-8 or 70000")
    if text.strip()[:1] not in "0123456789.+-":
        return None, formats.find(text, "VALUE")
    return Fraction(*parsed(units.exact, text, "VALUE")), None


def _stored_terms(value: Fraction, stored: StoredValue, path: str) -> list[Term]:
    if stored.value is None:
        return []
    found = [leaf(f"{path}/value", _number(stored.value), "1", TRUE, "rounded to nearest, ties to even")]
    if value:
        found.append(
            leaf(f"{path}/error", float((stored.value - value) / value), "1", TRUE, "(stored − value) / value")
        )
    return found


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _event(stored: StoredValue) -> str:
    words = {"underflow": "underflows to 0", "subnormal": "rounded to a subnormal"}
    return f"overflows to {stored.becomes}" if stored.event == "overflow" else words.get(stored.event, stored.event)


def _lost(text: str, chosen: Sequence[Format | Integer], value: Fraction) -> list[str]:
    """Return the formats in which the value is lost, one line per event."""
    lost: dict[str, list[str]] = {}
    for form in chosen:
        stored = store(value, form)
        if stored.event in ("underflow", "overflow"):
            lost.setdefault(_event(stored), []).append(form.name)
    return [f"{text} {event} in {', '.join(names)}" for event, names in lost.items()]


def _shown(name: str, value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if name == "value" and value:
        return f"{value:.9g}"
    return f"{value:.7g}" if name == "bytes" else f"{value:.5g}"


COMMAND = Command(
    "dtype",
    "Number formats: bits, bytes, range and spacing, and a value rounded to each (to nearest, ties to even)",
    run,
    brief="Number formats, and a value rounded to each",
    options=("dtype",),
    arguments=("value",),
    examples=("dtype", "dtype 1e-8", "dtype bf16", "dtype 70000 --dtype fp16"),
)

"""The answer as one JSON object, in base units; counts are exact integers; no NaN and no Infinity."""

from __future__ import annotations

import json
import math

from napkin.render.answer import Answer, Shown
from napkin.render.term_table import TermEntry, table_of

SCHEMA = 1


def to_json(answer: Answer, explain: bool = False) -> str:
    """Return the answer as the text of one JSON object, one entry per line."""
    data = to_data(answer, explain)
    return "{\n" + ",\n".join(f"  {_dumps(key)}: {_block(value)}" for key, value in data.items()) + "\n}\n"


def within(encoding: str, text: str) -> str:
    """Return the text of a JSON object with escapes in place of the characters that an encoding lacks: they are in
    strings, as the rest is ASCII."""
    lacking = {ord(c): json.dumps(c)[1:-1] for c in set(text) if not _encodes(encoding, c)}
    return text.translate(lacking) if lacking else text


def _encodes(encoding: str, character: str) -> bool:
    try:
        character.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def to_data(answer: Answer, explain: bool = False) -> dict[str, object]:
    """Return the JSON object: napkin (the schema), command, inputs, values, units, low, high, verdict, notes, …."""
    found = answer.quantities()
    data: dict[str, object] = {
        "napkin": SCHEMA,
        "command": answer.command,
        "inputs": {name: _input(one) for name, one in answer.inputs.items()},
        "values": {path: _plain(value) for path, (value, _) in found.items()},
        "units": {path: unit for path, (_, unit) in found.items()},
        "low": _ends(answer, 0),
        "high": _ends(answer, 1),
        "verdict": answer.verdict,
        "notes": list(answer.notes),
    }
    if answer.rows is not None:
        data[answer.rows_name] = [{name: _plain(value) for name, value in row.items()} for row in answer.rows]
    data.update({name: _plain(value) for name, value in answer.extra.items()})
    if explain:
        data["terms"] = {path: _term(entry) for path, entry in table_of(answer.finite()).items()}
    return data


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _block(value: object) -> str:
    """Return a value of the object as text, one entry or item per line, because there may be thousands."""
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"    {_dumps(key)}: {_dumps(one)}" for key, one in value.items()) + "\n  }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_dumps(one)}" for one in value) + "\n  ]"
    return _dumps(value)


def _ends(answer: Answer, end: int) -> dict[str, object]:
    """Return one end of the interval of every estimate, by path; an end that is out of range is omitted."""
    ends = {path: _plain(interval[end]) for path, interval in answer.intervals.items()}
    return {path: value for path, value in ends.items() if value is not None}


def _input(one: Shown) -> dict[str, object]:
    """Return the JSON of an input: its value, origin and text, and its source."""
    written = {"value": _plain(one.value), "origin": one.origin, "given": one.text}
    return {**written, "where": one.where} if one.where else written


def _plain(value: object) -> object:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return value


def _term(entry: TermEntry) -> dict[str, object]:
    """Return the JSON of a term: its value, unit and operation, its parts by path, a leaf's kind, its source."""
    term = entry.term
    written: dict[str, object] = {"value": _plain(term.value), "unit": term.unit, "op": term.op}
    if term.kind:
        written["kind"] = term.kind
    if entry.parts:
        written["parts"] = entry.parts
    if term.source:
        written["source"] = term.source
    return written

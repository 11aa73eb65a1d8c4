"""Read every key of a published row: under its own name, under another one, or not at all, which is said. A key that
may change the prediction and is not understood refuses its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.errors import nearest
from napkin.evidence.rows.fields import is_off
from napkin.evidence.rows.files import RUNS, TUNING, BadValue
from napkin.evidence.rows.keys import KEYS, NOT_IN_ROLLOUTS, RUN_BLOCKS, Keys
from napkin.evidence.rows.other_names import Meant, meant_by, places_of, plain
from napkin.evidence.rows.row import RowFields, WrongRow
from napkin.evidence.rows.spelled_values import OF_SCHEMA, READERS, ROUNDED, same
from napkin.evidence.rows.tuning_values import TUNING_READERS
from napkin.inputs.launch.harmless import is_harmless
from napkin.inputs.launch.names import model_of
from napkin.inputs.load import printable
from napkin.inputs.slips import slip_of
from napkin.training.tasks import TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def understood(row: RowFields, schema: str) -> tuple[RowFields, tuple[str, ...]]:
    """Return a row with each key under its own name and each value as that is read, and what is said of the keys that
    are not read. Raises the row's error for a key that may change the prediction and is not understood, and for two
    keys that contradict each other."""
    _check_readable(row)
    if schema not in KEYS:
        return row, ()
    if schema == RUNS:
        _check_flat(row)
    for block in filter(None, KEYS[schema]):
        row.part(block.partition(".")[0])  # raises where it is not a mapping
    told: list[str] = []
    found = {
        name: dict(value) if isinstance(value, dict) and (name in KEYS[schema] or name in RUN_BLOCKS) else value
        for name, value in row.fields.items()
    }
    moved: list[tuple[str, str, object]] = []
    for block in _blocks(row, schema):
        for name, value in _part(found, block).items():
            moved += _read_key(row, schema, block, name, value, told)
    for origin in dict.fromkeys(origin for origin, _, _ in moved):
        block, _, name = origin.rpartition(".")
        del _part(found, block)[name]
    for origin, path, value in moved:
        if path:
            _put(row, found, origin, path, value)
    row = row.replaced(found)
    for read in (*READERS, *OF_SCHEMA.get(schema, ()), *(TUNING_READERS if schema == TUNING else ())):
        row = read(row, told)
    return row, tuple(told)


def _blocks(row: RowFields, schema: str) -> Iterator[str]:
    """Yield the blocks whose keys are looked at: the row itself, its blocks, and theirs."""
    for block in KEYS[schema]:
        part: Any = row.fields
        for name in block.split(".") if block else ():
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, dict):
            yield block


def _part(fields: Mapping[str, Any], block: str) -> dict[str, Any]:
    """Return a block of a row, the row itself for ""."""
    part = fields
    for name in block.split(".") if block else ():
        part = part[name]
    return part  # type: ignore[return-value]


def _read_key(
    row: RowFields, schema: str, block: str, name: str, value: object, told: list[str]
) -> list[tuple[str, str, object]]:
    """Return where a key's values belong that is another name of others: (key, its own name, value), "" for nowhere;
    say in `told` what is not read."""
    keys, path = KEYS[schema][block], f"{block}.{name}" if block else name
    shown = printable(path, 80)
    if value is None:
        return []
    if name in (*keys.read.split(), *keys.silent.split()):
        task = TASKS.get(row.text("task"))
        unread = block == "layout" and name in NOT_IN_ROLLOUTS.split() and task is not None and task.rollout
        if unread and not is_off(name, value) and value != 1:
            told.append(f"{shown}: not read for {row.text('task')}")
        return []
    if name in keys.told.split():
        if not is_off(name, value):
            told.append(f"{shown}: not read")
        return []
    meant = meant_by(schema, block, name, value) if "." not in block else Meant()
    if meant.refused and is_harmless(plain(name)) and not is_off(name, value):
        return [(path, "", None)]
    if meant.refused:
        raise row.wrong(path, f"not read: {meant.refused}")
    if meant.values:
        return [(path, _reachable(row, path, place, block), said) for place, said in meant.values]
    if block == "" and isinstance(value, dict):
        _check_block(row, schema, name, value)
    elif block in ("", *RUN_BLOCKS) and is_harmless(plain(name)):
        return [(path, "", None)]
    hint = _hint(keys, name)
    if keys.closed and not is_off(name, value):
        raise row.wrong(path, f"not read{hint}")
    if slip_of(plain(name), keys.read.split()):
        raise row.wrong(path, f"not read{hint}")
    told.append(f"{shown}: not read{hint}")
    return []


def _reachable(row: RowFields, path: str, place: str, block: str) -> str:
    """Return the place of a value, which keys of rollouts and measured ones have in their own block alone."""
    to = place.partition(".")[0] if "." in place else ""
    if to != block and ("rl" in (block, to) or (to not in RUN_BLOCKS and block)):
        raise row.wrong(path, f"not read here: write {place}")
    return place


def _check_block(row: RowFields, schema: str, name: str, value: Mapping[str, object]) -> None:
    """Reject a block that no row has and whose keys other blocks have."""
    places = places_of(value, schema)
    if places:
        first = printable(str(next(iter(value))), 40)
        raise row.wrong(f"{name}", f"not read: its keys belong elsewhere ({first}: {places[0]})")


def _hint(keys: Keys, name: str) -> str:
    """Return the keys nearest to a name, in words."""
    close = nearest(name, (one for one in keys.read.split() if len(one) > 1), 2)
    return f"; nearest: {', '.join(close)}" if close else ""


def _put(row: RowFields, fields: dict[str, Any], origin: str, path: str, value: object) -> None:
    """Set a key's value. Raises the row's error if it has another one already."""
    block, _, name = path.rpartition(".")
    part = fields.setdefault(block, {}) if block else fields
    if not isinstance(part, dict):
        raise row.wrong(block, "is not a mapping")
    before = part.get(name)
    alike = same(before, value, ROUNDED if block in ("measured", "memory") else 0.0)
    if before is not None and not alike and not (path == "model.name" and _one_model(before, value)):
        said = printable(repr(value), 40)
        raise row.wrong(origin, f"says {said}, and {path} says {printable(repr(before), 40)}: a contradiction")
    if before is None:
        part[name] = value


def _one_model(one: object, other: object) -> bool:
    """Return whether two names are of one preset."""
    found = [model_of(str(name).rpartition("/")[2])[0] for name in (one, other)]
    return found[0] is not None and found[0] == found[1]


def _check_flat(row: RowFields) -> None:
    """Reject a complete run with a block of keys in place of a value."""
    for name, value in row.fields.items():
        if isinstance(value, (dict, list)) and name in KEYS[RUNS][""].read.split() and name != "source":
            raise row.wrong(name, "is not a text or a number")


def _check_readable(row: RowFields) -> None:
    """Reject a row with a value that YAML cannot hold."""
    for name, value in row.fields.items():
        if name not in ("note", "source"):
            for one in _values(value):
                if isinstance(one, BadValue):
                    raise WrongRow(f"{one.why} (row {printable(str(row.fields.get('id')), 60)})")


def _values(value: object) -> Iterator[object]:
    """Yield the values in a field, those in blocks and lists one by one."""
    if isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _values(one)
    else:
        yield value

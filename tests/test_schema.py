"""Every command's JSON follows docs/answer.schema.json, and docs/json.md names what an answer may hold."""

from __future__ import annotations

import copy
import json
import os
import re
from typing import Any

import pytest

from napkin.commands.command import MODULES, find
from tests.conftest import ROOT, Napkin, written

with open(os.path.join(ROOT, "docs", "answer.schema.json"), encoding="utf-8") as _file:
    SCHEMA: dict[str, Any] = json.load(_file)
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KEYWORDS = {
    "$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "enum", "pattern", "required",
    "properties", "additionalProperties", "propertyNames", "items",
}  # fmt: skip
"""What `wrong` reads; the schema uses no other keyword."""


def is_kind(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        return not isinstance(value, bool) and isinstance(value, int if kind == "integer" else (int, float))
    return isinstance(value, KINDS[kind])


def wrong(value: Any, schema: dict[str, Any], at: str = "") -> list[str]:
    """Return where a value departs from the schema (the part of JSON Schema 2020-12 that the schema uses)."""
    if "$ref" in schema:
        return wrong(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], at)
    kinds = schema.get("type", [])
    if kinds and not any(is_kind(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return [f"{at}: {type(value).__name__}, not {kinds}"]
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: {value!r}, not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{at}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, list):
        found += [
            problem for n, one in enumerate(value) for problem in wrong(one, schema.get("items", {}), f"{at}/{n}")
        ]
    if isinstance(value, dict):
        found += [f"{at}: {key} is missing" for key in schema.get("required", ()) if key not in value]
        for key, one in value.items():
            found += wrong(key, schema.get("propertyNames", {}), f"{at}/{key}")
            rest = schema.get("additionalProperties", {})
            found += wrong(one, schema.get("properties", {}).get(key, rest), f"{at}/{key}")
    return found


def keywords(schema: Any) -> set[str]:
    """Return every keyword that the schema uses."""
    found = set(schema)
    for name in ("properties", "$defs"):
        found |= {word for inner in schema.get(name, {}).values() for word in keywords(inner)}
    for name in ("items", "additionalProperties", "propertyNames"):
        found |= keywords(schema[name]) if name in schema else set()
    return found


EXAMPLES = [example for name in MODULES for example in find(name).examples if name != "bench"]
ALSO = (
    "memory llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 16384",
    "plan llama3-70b --gpus 2 --hardware h100",
    "hardware h100",
    "models llama3-8b",
    "memory gpt2 --tensors --seq 1024",
)


@pytest.mark.parametrize("line", [*EXAMPLES, *ALSO])
def test_an_answer_follows_the_schema(line: str) -> None:
    data = json.loads(written(line, "json"))
    assert wrong(data, SCHEMA) == []
    assert set(data) <= set(SCHEMA["properties"]), "a key that the schema does not describe"
    assert list(data["values"]) == list(data["units"])
    assert list(data["low"]) == list(data["high"])
    for path, low in data["low"].items():
        assert low <= data["values"].get(path, low) <= data["high"][path]


def test_an_explained_answer_follows_the_schema(napkin: Napkin) -> None:
    assert wrong(napkin("step llama3-8b --gpus 8 --hardware h100 --zero 3 --explain --json").data, SCHEMA) == []


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("memory llama3-8b --gpus 8 --hardware h100 --zero 3", "memory/total"),
        ("step llama3-8b --gpus 8 --hardware h100 --zero 3", "step/time"),
        ("train-time --params 7B --tokens 1T --gpus 64 --hardware h100", "time"),
    ],
)
def test_an_interval_is_that_of_its_path(napkin: Napkin, line: str, path: str) -> None:
    data = napkin(f"{line} --json").data
    room = path.rpartition("/")[0] or path
    assert (data["low"][path], data["high"][path]) == tuple(data["values"][f"{room}/{end}"] for end in ("low", "high"))
    assert data["low"][path] < data["values"][path] < data["high"][path]


def test_the_check_knows_every_keyword_of_the_schema() -> None:
    assert keywords(SCHEMA) <= KEYWORDS


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("napkin",), 2),
        (("command",), "Train Time"),
        (("values", "time"), "150 days"),
        (("values", "time"), True),
        (("units", "time"), None),
        (("inputs", "gpus", "origin"), "guessed"),
        (("notes",), "one sentence"),
        (("verdict",), 1),
    ],
)
def test_the_schema_refuses_what_is_no_answer(napkin: Napkin, path: tuple[str, ...], value: Any) -> None:
    data = napkin("train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5 --json").data
    broken = copy.deepcopy(data)
    inner = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert wrong(data, SCHEMA) == []
    assert len(wrong(broken, SCHEMA)) == 1


def test_the_page_names_every_key() -> None:
    with open(os.path.join(ROOT, "docs", "json.md"), encoding="utf-8") as file:
        page = file.read()
    assert [key for key in SCHEMA["properties"] if f"`{key}`" not in page] == []
    origins = SCHEMA["$defs"]["input"]["properties"]["origin"]["enum"]
    assert [origin for origin in origins if f"`{origin}`" not in page] == []

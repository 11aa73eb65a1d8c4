"""What must hold of an answer of napkin, whatever was asked: streams, size, and one answer in many forms.

Each function returns what is wrong, in words that are the same for the same mistake, or None.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fuzz_draws import Case

from napkin.elementwise import Number
from napkin.render import render
from napkin.render.answer import Answer
from napkin.render.screen import Display
from napkin.render.text import lines_of
from napkin.term import fold as folded
from napkin.units import human

STATUSES = (0, 1, 2, 3, 4, 5, 74)
LONGEST, LARGEST, ERRORS = 4000, 1_000_000, 11
"""Characters of a message, bytes of an answer, errors (ten, and one line that says how many more)."""
WIDTHS = (80, 60)
NEAR = 1e-9
"""Relative difference of two computations of one number."""


def judged(case: Case, status: int, out: str, err: str) -> str | None:
    """Return what is wrong with an answer as it was written to the streams."""
    if status == 70:
        return err.partition("\n")[0][:160]
    if status not in STATUSES:
        return f"exit status {status}"
    if "Traceback" in err:
        return "a traceback"
    wrong = _stderr(status, err)
    if wrong:
        return wrong
    if len(out.encode("utf-8", "replace")) > LARGEST:
        return f"an answer above {LARGEST} bytes from {case.argv[0][:20]}"
    if asks_json(case) and out and not any(word.startswith(("-o", "--out")) for word in case.argv):
        return _json(out)
    return None


def asks_json(case: Case) -> bool:
    words = case.argv[: case.argv.index("--")] if "--" in case.argv else case.argv
    options = set(words)
    return (
        "--json" in options
        and ("--json", "false") not in pairwise(words)
        and not {"--help", "-h", "help", "--help-all", "-V", "--version"} & options
    )


INTERNAL = re.compile(
    r"unhashable|has no attribute|not subscriptable|not iterable|index out of range|NoneType|positional argument"
    r"|unsupported operand|<class |object at 0x|unexpected keyword|codec can't"
)
"""What Python says of a mistake in a program, which tells a user nothing."""
MORE = re.compile(r"error: and \d+ more")


def _stderr(status: int, err: str) -> str | None:
    lines = err.split("\n")[:-1]
    if err and not err.endswith("\n"):
        return "stderr ends within a line"
    errors = [line for line in lines if line.startswith("error: ")]
    if status in (2, 3, 5, 74) and not errors and not err.startswith("napkin"):
        return f"status {status} without an error"
    if status == 0 and errors:
        return "an error with status 0"
    if len(errors) > ERRORS:
        return "more than ten errors"
    if len(set(errors)) < len(errors):
        return "the same error twice"
    if any(len(line) > LONGEST for line in lines):
        return "a message above 4,000 characters"
    other = [line for line in lines if not line.startswith(("error: ", "hint: ", "warning: "))]
    if errors and other:
        return f"a line on stderr that is neither an error nor a hint: {other[0][:60]!r}"
    if any(not c.isprintable() for line in lines for c in line):
        return "a control character on stderr"
    if status != 0 and any(INTERNAL.search(line) for line in lines):
        return f"a message of Python's own: {INTERNAL.findall(err)[0]}"
    if any(line.strip() in ("error:", "hint:") for line in lines):
        return "an empty message"
    unhinted = [
        line
        for at, line in enumerate(lines)
        if line.startswith("error: ")
        and not MORE.fullmatch(line)
        and not "".join(lines[at + 1 : at + 2]).startswith("hint: ")
    ]
    if unhinted:
        return f"an error without a hint: {unhinted[0][:80]}"
    return None


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} in JSON")


def _json(out: str) -> str | None:
    try:
        data = json.loads(out, parse_constant=_no_constant)
    except ValueError as problem:
        return f"JSON: {str(problem)[:60]}"
    values, units = data.get("values", {}), data.get("units", {})
    for path, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and path not in units:
            return f"a value without a unit: {path}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"a value that is not finite: {path}"
    low, high = data.get("low", {}), data.get("high", {})
    for path in (*low, *high):
        if path not in values:
            continue
        below, above = low.get(path, values[path]), high.get(path, values[path])
        if not below <= values[path] * (1 + NEAR) or not values[path] <= above * (1 + NEAR):
            return f"a value outside its interval: {path}"
    return None


# --- laws ----------------------------------------------------------------------------------------------------------

LAWS: dict[str, tuple[tuple[str, str, str, int], ...]] = {
    "step": (
        ("recompute", "full", "step/time", 1),
        ("peak-flops", "1e18", "step/compute/matmul", -1),
    ),
    "memory": (("recompute", "full", "memory/activations/saved", -1), ("zero", "3", "memory/optimizer", -1)),
    "train-time": (("pue", "2", "energy", 1), ("goodput", "0.5", "time", 1)),
    "checkpoint": (("optimizer", "sgd", "checkpoint/bytes", -1),),
    "data": (("vocab", "100000", "data/bytes", 1),),
}
"""Command → (option, value, quantity, sign): with that value, an extreme of the option, the quantity is at least (1) or
at most (-1) what it is without."""


def law_of(case: Case) -> tuple[str, str, str, int] | None:
    """Return the law that the answer to a case is held against, chosen by its seed."""
    laws = LAWS.get(case.argv[0] if case.argv else "", ())
    return laws[case.seed % len(laws)] if laws else None


def broken_law(law: tuple[str, str, str, int], before: Answer, after: Answer) -> str | None:
    """Return the law that two answers break, which differ by its option."""
    option, value, path, sign = law
    old, new = before.quantities().get(path), after.quantities().get(path)
    if old is None or new is None or sign * (float(new[0]) - float(old[0])) >= -NEAR * abs(float(old[0])):
        return None
    return f"{path} is {'less' if sign > 0 else 'more'} with --{option} {value}"


# --- one answer in many forms --------------------------------------------------------------------------------------


def forms_agree(answer: Answer) -> str | None:
    """Return where the forms of an answer differ: JSON, CSV, Markdown, text, the tree of terms."""
    data = json.loads(render(answer, "json"))
    return _csv(answer, data) or _text(answer, data) or _tree(answer)


def _csv(answer: Answer, data: dict[str, Any]) -> str | None:
    rows = list(csv.reader(io.StringIO(render(answer, "csv"))))
    if answer.rows:
        names, listed = rows[0], data[answer.rows_name]
        if len(rows) != len(listed) + 1:
            return "CSV and JSON have different numbers of rows"
        pairs = ((row, one) for row, one in zip(rows[1:], listed, strict=True))
        for row, one in pairs:
            for name, cell in zip(names, row, strict=True):
                value = one.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool) and float(cell) != float(value):
                    return f"CSV and JSON disagree: {name} of a row"
        return None
    said = {row[0]: row[1] for row in rows[1:]}
    for path, value in data["values"].items():
        if path not in said:
            return f"CSV leaves out {path}"
        if isinstance(value, int | float) and float(said[path]) != float(value):
            return f"CSV and JSON disagree: {path}"
    return None


def _text(answer: Answer, data: dict[str, Any]) -> str | None:
    for path, said, _ in lines_of(answer):
        value, unit = data["values"].get(path, math.nan), data["units"].get(path, "1")
        if not said.startswith((human(value, unit), human(float(value), unit))):
            return f"text and JSON disagree: {path}"
    for width in WIDTHS:
        lines = render(answer, "text", Display(width)).splitlines()
        if len("\n".join(lines)) > LARGEST:
            return "a text above 1 MB"
        quoted = [data["inputs"], data.get("refused"), data.get("not_modelled")]
        named = set(NO_NUMBER.findall(json.dumps(quoted)))  # a file may be called so, or hold it
        if any(set(NO_NUMBER.findall(line)) - named for line in lines) and not answer.screen.verbatim:
            return f"the text of {answer.command} states nan or inf"
        if not answer.screen.verbatim and any(not c.isprintable() for line in lines for c in line):
            return "a control character in the text"
    known = sorted(_numbers(answer, data))
    values = [abs(float(one)) for one in data["values"].values() if isinstance(one, int | float)]
    for part in answer.screen.headline:
        if part.startswith("nearest: "):  # a question with other numbers
            continue
        for name in {str(row["name"]) for row in answer.rows or () if "name" in row}:
            part = part.replace(name, "")  # the digits of an accelerator's name
        for number in NUMBER.finditer(CONFIDENCE.sub("", part)):
            ratio = number[3] in ("%", "×") and _is_ratio(number, values)
            if not ratio and not _is_known(number, known):
                return f"line 2 states {number.group()[:30]!r}, which no value is, in {answer.command}"
    return None


NO_NUMBER = re.compile(r"\b(?:nan|inf)\b")
NUMBER = re.compile(
    r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)(?:e([+-]?\d+))?(?![\w.]*[a-z]\d)(?= ?(%|×|years|days|[A-Za-zµ]*)(?![\d-]))"
)
"""A number of the screen, with its unit: not the digits of a name such as bf16 or llama3-8b."""
CONFIDENCE = re.compile(r"^\d+%: ")
_SCALES = tuple(
    dict.fromkeys(
        (
            *(1000.0**at for at in range(7)),
            *(1024.0**at for at in range(1, 6)),
            *(3600 * 1000.0**at for at in range(7)),
            *(86400.0, 31536000.0, 60.0, 1e-3, 1e-6, 1e-9, 0.01),
        )
    )
)


def _is_known(number: re.Match[str], known: list[float]) -> bool:
    """Return whether a printed number is one of the known ones, in any of the units that napkin prints, as far as its
    digits go."""
    digits = number[1].replace(",", "")
    exponent = int(number[2] or 0)
    shown = float(digits) * 10.0**exponent
    slack = max(0.6 * 10.0 ** (exponent - len(digits.partition(".")[2])), shown * NEAR)
    for scale in _SCALES:
        low, high = (shown - slack) * scale, (shown + slack) * scale
        at = bisect_left(known, low)
        if at < len(known) and known[at] <= high:
            return True
    return False


def _is_ratio(number: re.Match[str], values: list[float]) -> bool:
    """Return whether a printed percentage or factor is the ratio of two values."""
    digits, unit = number[1].replace(",", ""), 0.01 if number[3] == "%" else 1
    ratio, slack = float(digits) * unit, 0.6 * unit * 10.0 ** -len(digits.partition(".")[2])
    return any(abs(a - ratio * b) <= slack * b for a in values for b in values)


def _numbers(answer: Answer, data: dict[str, Any]) -> Iterator[float]:
    """Yield the numbers that JSON states: values, interval ends, inputs, rows and further keys; and how many of the
    inputs are known, and how many left open."""
    yield from _within(data)
    yield from (float(digits) for digits in re.findall(r"\d+", data.get("verdict") or ""))  # `3 warnings, 1 info`
    options = [one for name, one in data["inputs"].items() if name != "launch"]
    known = sum(one["value"] is not None for one in options)
    yield from (float(known), float(len(options) - known))
    low, high = data["low"], data["high"]
    for path, value in data["values"].items():
        for end in (low, high):
            if path in end and isinstance(value, int | float) and value:
                yield abs(end[path] / value - 1)


def _within(node: object) -> Iterator[float]:
    if isinstance(node, bool):
        return
    if isinstance(node, int | float):
        yield abs(float(node))
    elif isinstance(node, dict | list):
        if isinstance(node, list):
            yield float(len(node))
        for child in node.values() if isinstance(node, dict) else node:
            yield from _within(child)


def _tree(answer: Answer) -> str | None:
    """Return what is wrong with the tree of terms: a value that its parts do not give, or a table above 1 MB."""
    found: dict[int, Number] = {}
    for term in answer.finite():
        value = folded(term, found)
        if not _same(value, term.value):
            return f"a tree that folds to another value: {term.name}"
    if len(render(answer, "json", Display(explain=True))) > LARGEST:
        return f"--explain --json above 1 MB from {answer.command}"
    return None


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or math.isclose(float(a), float(b), rel_tol=NEAR)

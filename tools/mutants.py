"""The mutants of the formulas: every place where one operator, comparison, number or term can be changed.

A mutant is one changed operator, comparison or number, a maximum in place of a minimum, or the last of several terms
left out. equivalent_mutants.yaml says of those that no test can notice why that is so.
"""

from __future__ import annotations

import ast
import os
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULES: dict[str, tuple[str, ...]] = {
    "counting": (),
    "footprint": (),
    "timing": (),
    "planning": ("engines.py", "generation.py", "rollouts.py", "service.py"),
}
"""Package → its modules that hold formulas; none named: all."""
PACKAGES = tuple(MODULES)
LEAST_SHARE = 0.15
LARGE = 1e6
"""Floats above it are doubled: 1 more of a figure of six digits is no other figure."""
EQUIVALENT = os.path.join(ROOT, "tools", "equivalent_mutants.yaml")
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
CALLS = {
    "add": "subtract", "subtract": "add", "multiply": "divide", "divide": "multiply", "largest": "smallest",
    "smallest": "largest", "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max",
    "ceil_div": "floor_div", "ceil_divide": "divide", "greater": "greater_or_equal",
}  # fmt: skip
"""Function → the one that takes its place; what the module has no such name for is not changed."""


@dataclass(frozen=True)
class Mutant:
    """One change: the file below src/napkin, where it begins and ends in its text, and what takes its place.

    lines      of the statement that it lies in, of a compound one its head
    written    the lines of the place with the change in braces: `a {* → /} b`
    """

    path: str
    line: int
    start: int
    end: int
    after: str
    lines: tuple[int, int]
    written: str

    @property
    def package(self) -> str:
        """The package that it lies in."""
        return self.path.split(os.sep)[0]

    def of(self, data: bytes) -> bytes:
        """Return the module's text with the change, every line at its number."""
        kept = b"\n" * data[self.start : self.end].count(b"\n")
        return data[: self.start] + self.after.encode() + kept + data[self.end :]

    def __str__(self) -> str:
        return f"src/napkin/{self.path}:{self.line}: {self.written}"


def places(path: str, text: str) -> Iterator[Mutant]:
    """Yield every change of a module's text."""
    tree = ast.parse(text)
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = text.encode()
    heads = _heads(tree)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    def change(node: ast.expr, start: int, end: int, after: str) -> Mutant:
        line = data.rfind(b"\n", 0, start) + 1
        past = data.find(b"\n", end)
        marked = data[line:start] + b"{" + data[start:end] + " → ".encode() + after.encode() + b"}" + data[end:past]
        return Mutant(
            path,
            node.lineno,
            start,
            end,
            after,
            heads.get(node.lineno, (node.lineno, node.lineno)),
            re.sub(r"\s+", " ", marked.decode()).strip(),
        )

    def between(node: ast.expr, left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Mutant]:
        if type(operator) not in OPERATORS or left.end_lineno is None or left.end_col_offset is None:
            return
        before, after = OPERATORS[type(operator)]
        start, end = offset(left.end_lineno, left.end_col_offset), offset(right.lineno, right.col_offset)
        at = data[start:end].find(before.encode())
        if at >= 0:
            yield change(node, start + at, start + at + len(before), after)

    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in _formulas(tree):
        if isinstance(node, ast.BinOp):
            yield from between(node, node.left, node.right, node.op)
        elif isinstance(node, ast.Compare):
            yield from between(node, node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BoolOp):
            yield from between(node, node.values[0], node.values[1], node.op)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.end_col_offset is not None
        ):
            if not isinstance(node.value, bool):
                start, end = offset(node.lineno, node.col_offset), offset(node.lineno, node.end_col_offset)
                yield change(node, start, end, repr(_another(node.value)))
        elif isinstance(node, ast.Call):
            yield from _calls(node, names, change, offset)


def _another(number: float) -> float:
    """Return the number that takes a number's place: 1 more, or twice a float of which 1 is no part to speak of."""
    return 2 * number if isinstance(number, float) and abs(number) > LARGE else number + 1


def _heads(tree: ast.AST) -> dict[int, tuple[int, int]]:
    """Return, by line, the first and last line of the innermost statement there, of a compound one of its head."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):  # outer statements come first
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            found.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1), (node.lineno, last)))
    return found


def _formulas(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that compute: no annotation, error, or name of a term."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.Raise, ast.Assert, ast.JoinedStr, ast.arg)):
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield child.value
                yield from _formulas(child.value)
            continue
        yield child
        yield from _formulas(child)


def _calls(node: ast.Call, names: set[str], change: object, offset: object) -> Iterator[Mutant]:
    """Yield the changes of a call: another function, or the last of several terms left out."""
    assert callable(change)
    assert callable(offset)
    function = node.func
    own = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "term"
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    other = CALLS.get(name)
    built_in = name in ("max", "min")
    if other and isinstance(function, ast.expr) and (own or built_in or other in names):
        if own and other in ("floor_div", "greater_or_equal"):
            return
        if name in ("add", "multiply") and len(node.args) != 3:  # the others take two
            other = None
        if other:
            end = offset(function.end_lineno, function.end_col_offset)
            yield change(node, end - len(name), end, other)
    if own and name in ("add", "multiply") and len(node.args) > 2 and not isinstance(node.args[-1], ast.Starred):
        last, past = node.args[-1], node.args[-2]
        start, end = offset(past.end_lineno, past.end_col_offset), offset(last.end_lineno, last.end_col_offset)
        yield change(node, start, end, "")


def all_places(packages: list[str]) -> dict[str, list[Mutant]]:
    """Return every change, by package."""
    found: dict[str, list[Mutant]] = {}
    for package in packages:
        folder = os.path.join(ROOT, "src", "napkin", package)
        for name in MODULES[package] or sorted(os.listdir(folder)):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.setdefault(package, []).extend(places(os.path.join(package, name), file.read()))
    return found


def sample(found: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Draw from each package by its share of all places, of several at least LEAST_SHARE of the sample."""
    drawn = random.Random(seed)
    every = sum(map(len, found.values()))
    chosen: list[Mutant] = []
    for mutants in found.values():
        share = max(len(mutants) / every, LEAST_SHARE if len(found) > 1 else 0)
        chosen += drawn.sample(mutants, min(len(mutants), max(1, round(count * share))))
    return sorted(chosen, key=lambda one: (one.path, one.start))


def reasons() -> Mapping[tuple[str, str], str]:
    """Return why no test can notice a mutant, by its module and how it is written."""
    with open(EQUIVALENT, encoding="utf-8") as file:
        listed = yaml.safe_load(file) or {}
    return {(path, written): why for path, each in listed.items() for written, why in each.items()}

"""Change the formulas one place at a time and see whether a test notices.

    python tools/mutate.py                          60 mutants of counting, footprint and timing, seed 0
    python tools/mutate.py --count 200 --seed 3 --only timing
    python tools/mutate.py --list                   the mutants of the sample, without running anything

A mutant is one changed operator, comparison, number, or sum, product, maximum of terms. The sample is drawn from each
package by its share of all places (at least a fifth). Every mutant runs in a copy of the checkout against the test
files that TESTS maps to its package, the quick ones first, until one fails. A test that compares a generated page or
table with what makes it is left out: it notices every change and says nothing about which number is right. A mutant
that takes longer than SLOWER times what the tests take without one is counted as noticed. Survivors are listed with
their line; exit status 1 where there are any, 2 where a test fails without any mutant.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = ("counting", "footprint", "timing")
TESTS = {
    "counting": (
        ("test_counting_by_hand", "test_params", "test_mfu", "test_flops", "test_small_cli", "test_vision"),
        ("test_tensors", "test_latent", "test_recurrent", "test_time", "test_contract"),
    ),
    "footprint": (
        ("test_stages", "test_adapted_by_hand", "test_memory", "test_uneven", "test_memory_shown", "test_rollouts"),
        (
            "test_lora_bytes", "test_order", "test_snapshot", "test_vision_memory", "test_tasks", "test_activations",
            "test_live", "test_memory_published", "test_laws", "test_contract",
        ),
    ),
    "timing": (
        ("test_step_by_hand", "test_slowest_stage", "test_roofline", "test_goodput", "test_rollouts"),
        (
            "test_time", "test_adapted_by_hand", "test_step", "test_step_laws", "test_nodes", "test_scaling",
            "test_laws",
        ),
    ),
}  # fmt: skip
"""Package → the test files that are about its numbers: the quick ones, and those that what they miss is run against."""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".environments", ".*_cache", ".hypothesis", "__pycache__", "dist")
SLOWER = 4
PAGES = "not page and not in_step and not docs"
"""Which tests do not compare a generated page or table with what makes it."""
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
    """One change: the file below src/napkin, where it begins and ends in its text, and what stands there then."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def package(self) -> str:
        """The package that it lies in."""
        return self.path.split(os.sep)[0]


def places(path: str, text: str) -> Iterator[Mutant]:
    """Yield every change of a module's text."""
    tree = ast.parse(text)
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = text.encode()

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    def change(node: ast.expr, start: int, end: int, after: str) -> Mutant:
        return Mutant(path, node.lineno, start, end, data[start:end].decode(), after)

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
                yield change(node, start, end, repr(node.value + 1))
        elif isinstance(node, ast.Call):
            yield from _calls(node, names, change, offset)


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
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                path = os.path.join(package, name)
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.setdefault(package, []).extend(places(path, file.read()))
    return found


def sample(found: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Draw from each package by its share of all places, at least a fifth of the sample."""
    drawn = random.Random(seed)
    every = sum(map(len, found.values()))
    chosen: list[Mutant] = []
    for mutants in found.values():
        share = max(len(mutants) / every, 1 / 5 if len(found) > 1 else 0)
        chosen += drawn.sample(mutants, min(len(mutants), max(1, round(count * share))))
    return sorted(chosen, key=lambda one: (one.path, one.start))


def tests_of(package: str) -> list[list[str]]:
    """Return the test files of a package, the quick ones apart."""
    return [[os.path.join("tests", f"{name}.py") for name in names] for names in TESTS[package]]


def baseline(package: str, copy: str) -> list[float]:
    """Return the seconds that a package's tests take without any mutant. Exits where one fails."""
    seconds = []
    for files in tests_of(package):
        started = time.monotonic()
        failed = _noticed(files, copy, None)
        if failed:
            print(f"{failed} fails without any mutant", file=sys.stderr)
            raise SystemExit(2)
        seconds.append(time.monotonic() - started)
    return seconds


def outcome(mutant: Mutant, copy: str, seconds: list[float]) -> str:
    """Run the tests on one mutant: the first test that noticed, `too long`, or "" where none did. seconds: what the
    tests take without one."""
    target = os.path.join(copy, "src", "napkin", mutant.path)
    with open(target, "rb") as file:
        kept = file.read()
    try:
        with open(target, "wb") as file:
            file.write(kept[: mutant.start] + mutant.after.encode() + kept[mutant.end :])
        runs = zip(tests_of(mutant.package), seconds, strict=True)
        return next((found for files, usual in runs if (found := _noticed(files, copy, SLOWER * usual))), "")
    finally:
        with open(target, "wb") as file:
            file.write(kept)


def _noticed(files: list[str], copy: str, limit: float | None) -> str:
    env = {**os.environ, "PYTHONPATH": os.path.join(copy, "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--no-header",
        "-k",
        PAGES,
    ]
    try:
        run = subprocess.run([*line, *files], cwd=copy, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "too long"
    if not run.returncode:
        return ""
    said = [one for one in run.stdout.splitlines() if one.startswith(("FAILED", "ERROR"))]
    return said[0].split(" - ")[0].removeprefix("FAILED ") if said else f"status {run.returncode}"


def main() -> int:
    """Draw a sample, run it, list the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PACKAGES, action="append")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    chosen = sample(all_places(asked.only or list(PACKAGES)), asked.count, asked.seed)
    if asked.list:
        for one in chosen:
            print(f"src/napkin/{one.path}:{one.line}: {one.before!r} → {one.after!r}")
        return 0
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as place:
        copies: SimpleQueue[str] = SimpleQueue()
        for number in range(asked.workers):
            shutil.copytree(ROOT, os.path.join(place, str(number)), ignore=NOT_COPIED)
            copies.put(os.path.join(place, str(number)))

        seconds = {package: baseline(package, os.path.join(place, "0")) for package in {m.package for m in chosen}}

        def run(one: Mutant) -> tuple[Mutant, str]:
            copy = copies.get()
            try:
                return one, outcome(one, copy, seconds[one.package])
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(asked.workers) as pool:
            for one, noticed in pool.map(run, chosen):
                print(
                    f"{noticed or 'SURVIVED':60} src/napkin/{one.path}:{one.line}: {one.before!r} → {one.after!r}",
                    flush=True,
                )
                if not noticed:
                    survivors.append(one)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants noticed, seed {asked.seed}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

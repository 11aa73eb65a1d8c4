"""Change the formulas one place at a time and see whether a test notices.

    python tools/mutate.py                          400 mutants of counting, footprint and timing, seed 0
    python tools/mutate.py --count 60 --seed 3 --only timing
    python tools/mutate.py --only planning          of what serves a model
    python tools/mutate.py --slow                   against the tests that are marked slow too
    python tools/mutate.py --list                   the mutants of the sample, without running anything

The sample is drawn from each package by its share of all places (mutants.py). First every test runs once, and which
lines of those packages it runs is recorded in .cache/; after a change only the test files that it concerns run again. A
mutant is run against the tests that run its statement, first those of files that import its module, quick ones before
others, until one fails or BUDGET seconds are spent. The tests are collected once: each mutant is a fork in which the
functions' code is exchanged; a constant of a module needs a process of its own. Nothing is written into the checkout.

Left out: tests that compare a generated page or table with what makes it, which notice every change and say nothing
about which number is right, and files that are not about numbers (OTHERS of mutant_tests.py). A mutant that takes
longer than SLOWER times what its tests take without one is counted as noticed. Survivors are listed; those that
equivalent_mutants.yaml gives a reason for are not run and counted apart. Exit status 1 if there are other survivors.
"""

from __future__ import annotations

import argparse
import gc
import importlib.machinery
import json
import os
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mutant_tests import SOURCE, Session, collect, forked, limit, recorded, test_files, tests_for
from mutants import PACKAGES, ROOT, Mutant, all_places, reasons, sample

STRATA = ("counting", "footprint", "timing")
"""The packages that a sample is of where none is named."""
BUDGET = 60.0
"""Seconds of tests, as recorded, that a mutant is run against at the most."""
SLOWER, ALLOWANCE = 4, 20
"""How much longer a test may take than recorded, with seconds on top."""


# --- one mutant ------------------------------------------------------------------------------------------------------


def functions() -> dict[tuple[str, str, int], list[types.FunctionType]]:
    """Return napkin's functions by file, qualified name and first line."""
    gc.unfreeze()
    found: dict[tuple[str, str, int], list[types.FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__.co_filename.startswith(SOURCE):
            code = one.__code__
            found[code.co_filename, code.co_name, code.co_firstlineno].append(one)
    gc.freeze()
    return found


def exchange(mutant: Mutant, known: dict[tuple[str, str, int], list[types.FunctionType]]) -> bool:
    """Give the functions of a module their code with the change. Returns False if none changed: it lies in what
    runs on import."""
    path = os.path.join(SOURCE, mutant.path)
    with open(path, "rb") as file:
        open_codes = [compile(mutant.of(file.read()), path, "exec")]
    changed = False
    while open_codes:
        code = open_codes.pop()
        for function in known.get((path, code.co_name, code.co_firstlineno), ()):
            if function.__code__ != code:
                function.__code__ = code
                changed = True
        open_codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return changed


def run_tests(session: Session, tests: list[str], say: Callable[[str], None]) -> None:
    """Run tests until one fails, which is said."""
    session.failed = say
    by_id = {item.nodeid: item for item in session.items}
    items = [by_id[one] for one in tests if one in by_id]
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.run(item, following)


def outcome(mutant: Mutant, session: Session, known: dict[tuple[str, str, int], list[types.FunctionType]],
            tests: list[str], seconds: float) -> str:  # fmt: skip
    """Return the first test that noticed a mutant, `too long`, or "" if none did."""

    def work(say: Callable[[str], None]) -> None:
        if not exchange(mutant, known):
            say("import")
        run_tests(session, tests, say)

    said = forked(work, seconds)
    return said if said != "import" else imported(mutant, tests, seconds)


def imported(mutant: Mutant, tests: list[str], seconds: float) -> str:
    """Return the same of a change in what runs on import: a process that reads the module with it."""
    asked = json.dumps({"path": mutant.path, "start": mutant.start, "tests": tests, "seconds": seconds})
    run = subprocess.run([sys.executable, __file__, "--imported"], input=asked, capture_output=True, text=True)
    last = run.stdout.rstrip().rpartition("\n")[2]
    if last == "survived":
        return ""
    return last.removeprefix("noticed: ") if run.returncode == 0 else "too long" if run.returncode < 0 else "import"


def import_with(asked: dict[str, object]) -> None:
    """Import a module with its change, run the tests, and print which one noticed."""
    path, tests, seconds = str(asked["path"]), asked["tests"], asked["seconds"]
    assert isinstance(tests, list)
    assert isinstance(seconds, (int, float))
    of_package = all_places([path.split(os.sep)[0]]).values()
    mutant = next(one for each in of_package for one in each if (one.path, one.start) == (path, asked["start"]))
    plain = importlib.machinery.SourceFileLoader.get_code

    def changed(self: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
        if self.path != os.path.join(SOURCE, path):
            return plain(self, name)
        with open(self.path, "rb") as file:
            code: types.CodeType = compile(mutant.of(file.read()), self.path, "exec")
        return code

    importlib.machinery.SourceFileLoader.get_code = changed  # type: ignore[assignment, method-assign]
    limit(seconds + ALLOWANCE)
    ended: list[str] = []

    def use(session: Session) -> None:
        ended.append(forked(lambda say: run_tests(session, tests, say)))

    collect(sorted({os.path.join(ROOT, one.split("::")[0]) for one in tests}), True, use)
    print(f"\nnoticed: {ended[0]}" if ended[0] else "\nsurvived")


# --- the sample ------------------------------------------------------------------------------------------------------


def run_sample(chosen: list[Mutant], session: Session, workers: int, budget: float) -> list[Mutant]:
    """Run mutants, print what became of each, and return the survivors."""
    found = recorded(session, workers)
    known = functions()
    steady: dict[str, bool] = {}

    def alone(test: str) -> bool:
        if test not in steady:
            steady[test] = not forked(lambda say: run_tests(session, [test], say))
        return steady[test]

    def run(mutant: Mutant) -> tuple[Mutant, str, str]:
        tests, every = tests_for(mutant, found, budget)
        while tests:
            seconds = SLOWER * sum(found[one].seconds for one in tests) + ALLOWANCE
            noticed = outcome(mutant, session, known, tests, seconds)
            if noticed not in tests or alone(noticed):
                return mutant, noticed, f"{len(tests)} of {every} tests"
            tests.remove(noticed)
        return mutant, "", f"none of {every} tests" if every else "no test runs it"

    survivors = []
    with ThreadPoolExecutor(workers) as pool:
        for mutant, noticed, of in pool.map(run, chosen):
            print(f"{noticed or f'SURVIVED {of}':60} {mutant}", flush=True)
            if not noticed:
                survivors.append(mutant)
    return survivors


def main() -> int:
    """Draw a sample, run it, list the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PACKAGES, action="append")
    parser.add_argument("--module", action="append", help="the modules whose path below src/napkin holds this")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--slow", action="store_true", help="the tests that are marked slow too")
    parser.add_argument("--imported", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [os.path.join(ROOT, "src"), ROOT]
    sys.dont_write_bytecode = True
    if asked.imported:
        import_with(json.load(sys.stdin))
        return 0
    found = all_places(asked.only or list(STRATA))
    if asked.module:
        found = {key: [m for m in each if any(part in m.path for part in asked.module)] for key, each in found.items()}
    chosen = sample({key: each for key, each in found.items() if each}, asked.count, asked.seed)
    if asked.list:
        print(*chosen, sep="\n")
        return 0
    why = reasons()
    places = {(one.path, one.written) for each in all_places(list(PACKAGES)).values() for one in each}
    for path, written in set(why) - places:
        print(f"equivalent_mutants.yaml: no such place: {path}: {written}", file=sys.stderr)
    run = [one for one in chosen if (one.path, one.written) not in why]
    for one in chosen:
        if one not in run:
            print(f"{'EQUIVALENT':60} {one}\n    {why[one.path, one.written]}")
    survivors: list[Mutant] = []
    collect(
        test_files(),
        asked.slow,
        lambda session: survivors.extend(run_sample(run, session, asked.workers, asked.budget)),
    )
    print(*(f"SURVIVED {one}" for one in survivors), sep="\n")
    for name, of in (*((package, [package]) for package in found), ("in total", list(found))):
        drawn, asked_of, left = (sum(one.package in of for one in each) for each in (chosen, run, survivors))
        share = 1 - left / asked_of if asked_of else 1.0
        print(f"{name:10} {asked_of - left:4} of {asked_of:4} noticed ({share:.1%}), {drawn - asked_of} equivalent")
    print(f"seed {asked.seed}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

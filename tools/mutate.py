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
about which number is right, and files that are not about numbers (OTHERS). A mutant that takes longer than SLOWER times
what its tests take without one is counted as noticed. Survivors are listed; those that equivalent_mutants.yaml gives a
reason for are not run and counted apart. Exit status 1 if there are other survivors.
"""

from __future__ import annotations

import argparse
import functools
import gc
import glob
import hashlib
import importlib.machinery
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mutants import PACKAGES, ROOT, Mutant, all_places, reasons, sample

SOURCE = os.path.join(ROOT, "src", "napkin")
CACHE = os.path.join(ROOT, ".cache", "mutate.pickle")
OTHERS = (
    "architecture_page", "bench", "ci_files", "completion", "docs", "fuzz", "generate", "help", "hostile_files",
    "ignored", "newcomer", "next", "package", "packages", "plot", "reader", "release", "schema", "screen", "site",
    "web",
)  # fmt: skip
"""Test files (the beginning of their name after test_) that are about pages, screens, options and files."""
STRATA = ("counting", "footprint", "timing")
"""The packages that a sample is of where none is named."""
PAGES = "not page and not in_step and not docs"
"""Which tests do not compare a generated page or table with what makes it."""
BUDGET = 60.0
"""Seconds of tests, as recorded, that a mutant is run against at the most."""
REPEATED = 10
"""How much later a test is asked whose file does not import from the module, and of these a case that runs the same
lines of the module as an earlier one of its test."""
SEEN_OFTEN = 30
"""Calls of a function without a new line after which a test's further calls are not recorded."""
SLOWER, ALLOWANCE, MEMORY = 4, 20, 4 << 30
"""How much longer a test may take than recorded, with seconds and bytes on top."""


@dataclass
class Recorded:
    """What a test runs: its seconds (while it is traced), and the lines of each module, as `path:line`."""

    seconds: float
    lines: frozenset[tuple[str, int]]


@dataclass
class Session:
    """A pytest plugin: the collected tests are given to `use` in place of being run."""

    use: Callable[[Session], None]
    items: list[pytest.Item] = field(default_factory=list)
    failed: Callable[[str], None] = print

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Keep the tests, and hand over."""
        self.items = session.items
        self.use(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell who asked of a test that failed."""
        if report.failed:
            self.failed(report.nodeid)

    def run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Run one test."""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def collect(files: Iterable[str], slow: bool, use: Callable[[Session], None]) -> None:
    """Collect the tests of files and hand them to `use`. Exits if they cannot be collected."""
    quick = [] if slow else ["-m", "not slow"]
    line = ["-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", *quick, "-k", PAGES, *files]
    if pytest.main(line, plugins=[Session(use)]) in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED):
        raise SystemExit(2)


def test_files() -> list[str]:
    """Return the test files that are about numbers."""
    found = sorted(glob.glob(os.path.join(ROOT, "tests", "test_*.py")))
    return [path for path in found if not os.path.basename(path)[5:].startswith(OTHERS)]


def digest(*paths: str) -> str:
    """Return what tells the files' texts from others."""
    found = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            found.update(file.read() + b"\0")
    return found.hexdigest()


def forked(work: Callable[[Callable[[str], None]], None], seconds: float | None = None) -> str:
    """Run `work` in a fork, quietly, with so many seconds of CPU. Returns what it says first, `too long`, or ""."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)

        def say(text: str) -> None:
            os.write(writing, text.encode())
            os._exit(0)

        try:
            if seconds is not None:
                limit(seconds)
            work(say)
        except BaseException as error:
            say(f"{type(error).__name__}: {error}")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return said or ("too long" if os.WIFSIGNALED(status) else "")


def limit(seconds: float) -> None:
    """End this process after so many more seconds of CPU, and let it have MEMORY more bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, allowed))
    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))


# --- which test runs which line --------------------------------------------------------------------------------------


class Trace:
    """Records the lines of the mutated packages that run. A function whose calls have shown no new line SEEN_OFTEN
    times in a row is not followed any further: what it runs costs no time to record."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        for package in PACKAGES:
            for path in glob.glob(os.path.join(SOURCE, package, "*.py")):
                self.names[path] = os.path.relpath(path, SOURCE)
        self.begin()

    def begin(self) -> None:
        """Forget what ran, for the next test."""
        self._of: dict[int, tuple[types.CodeType, set[int], list[int]]] = {}

    @property
    def lines(self) -> frozenset[tuple[str, int]]:
        """Lines that ran since, as (module, line)."""
        each = self._of.values()
        return frozenset((self.names[code.co_filename], line) for code, lines, _ in each for line in lines)

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        known = self._of.get(id(code))
        if known is None:
            if code.co_filename not in self.names:
                return None
            known = self._of[id(code)] = code, {code.co_firstlineno}, [0, 0]
        _, lines, calls = known
        if len(lines) > calls[1]:
            calls[0], calls[1] = 0, len(lines)
        calls[0] += 1
        if calls[0] > SEEN_OFTEN:
            return None
        add = lines.add

        def line(frame: types.FrameType, event: str, argument: Any) -> Any:
            add(frame.f_lineno)
            return line

        return line


def record_lines(session: Session, files: list[str], target: str) -> None:
    """Write what each test of some files runs."""
    trace = Trace()
    shared = [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]
    caches = [one for one in shared if one.__module__.startswith(("tests", *(f"napkin.{name}" for name in PACKAGES)))]
    items = [item for item in session.items if str(item.path) in files]
    found: dict[str, Recorded] = {}
    failed: set[str] = set()
    session.failed = failed.add
    for item, following in zip(items, [*items[1:], None], strict=True):
        trace.begin()
        for cache in caches:
            cache.cache_clear()
        started = time.process_time()
        sys.settrace(trace)
        try:
            session.run(item, following)
        finally:
            sys.settrace(None)
        found[item.nodeid] = Recorded(time.process_time() - started, trace.lines)
    with open(target, "wb") as file:
        pickle.dump(({one: what for one, what in found.items() if one not in failed}, failed), file)


def recorded(session: Session, workers: int) -> dict[str, Recorded]:
    """Return what each test runs: from the cache, or by running the files that changed since."""
    source = {name: digest(path) for path, name in Trace().names.items()}
    kept: dict[str, dict[str, Recorded]] = {}
    if os.path.exists(CACHE):
        with open(CACHE, "rb") as file:
            known, kept = pickle.load(file)
        changed = {name for name in {*known, *source} if known.get(name) != source.get(name)}
        for key, found in list(kept.items()):
            if any(name in changed for what in found.values() for name, _ in what.lines):
                del kept[key]
    of_files = Counter(str(item.path) for item in session.items)
    keys = {
        path: f"{os.path.basename(path)} {tests} {digest(path)}" for path, tests in of_files.items()
    }  # with slow tests there are more
    os.makedirs(os.path.dirname(CACHE), exist_ok=True)

    def of_file(path: str) -> None:
        target = f"{CACHE}.{os.path.basename(path)}"
        said = forked(lambda _: record_lines(session, [path], target))
        if said:
            print(f"{os.path.basename(path)}: {said}", file=sys.stderr)
            return
        with open(target, "rb") as file:
            found, failed = pickle.load(file)
        os.remove(target)
        for one in failed:
            print(f"left out, fails without any mutant: {one}", file=sys.stderr)
        kept[keys[path]] = found

    try:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(of_file, [path for path in of_files if keys[path] not in kept]))
    finally:
        with open(CACHE, "wb") as written:
            pickle.dump((source, kept), written)
    return {one: what for path in of_files for one, what in kept.get(keys[path], {}).items()}


@functools.cache
def imports(file: str, module: str) -> bool:
    """Return whether a test file imports a module of napkin, or from it."""
    with open(os.path.join(ROOT, file), encoding="utf-8") as opened:
        text = opened.read()
    package, _, name = module.removesuffix(".py").replace(os.sep, ".").rpartition(".")
    return re.search(rf"from napkin\.{package}(\.{name} import|\b.* import .*\b{name}\b)", text) is not None


def tests_for(mutant: Mutant, found: dict[str, Recorded], budget: float) -> tuple[list[str], int]:
    """Return the tests that run a mutant's statement, in the order in which they are asked, and how many there are:
    quick ones first, of files that import from the module before others; of those the further cases of one test
    function later, and last those that run the same lines of the module as an earlier case. Of what runs on import: its
    module's tests, and those of files that import from it."""
    wanted = {(mutant.path, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
    covering = [one for one, what in found.items() if not wanted.isdisjoint(what.lines)]
    if not covering:
        near = {file for file in {one.split("::")[0] for one in found} if imports(file, mutant.path)}
        covering = [
            one
            for one, what in found.items()
            if one.split("::")[0] in near or any(path == mutant.path for path, _ in what.lines)
        ]
    cases: Counter[tuple[str, bool]] = Counter()
    ways: set[tuple[str, frozenset[int]]] = set()
    costs = {}
    for one in sorted(covering, key=lambda one: found[one].seconds):
        function = one.split("[")[0]
        way = function, frozenset(line for path, line in found[one].lines if path == mutant.path)
        again = way in ways
        ways.add(way)
        cases[function, again] += 1
        own = imports(one.split("::")[0], mutant.path)
        costs[one] = found[one].seconds * (1 if own else REPEATED * cases[function, again] * (REPEATED if again else 1))
    chosen: list[str] = []
    spent = 0.0
    for one in sorted(covering, key=costs.__getitem__):
        spent += found[one].seconds
        if chosen and spent > budget:
            break
        chosen.append(one)
    return chosen, len(covering)


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

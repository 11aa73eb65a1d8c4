"""Which tests run which lines of the formulas, as recorded, and how they are collected and run in forks.

For tools/mutate.py, which says what is left out and why.
"""

from __future__ import annotations

import functools
import gc
import glob
import hashlib
import os
import pickle
import re
import resource
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from mutants import PACKAGES, ROOT, Mutant

SOURCE = os.path.join(ROOT, "src", "napkin")
CACHE = os.path.join(ROOT, ".cache", "mutant_tests.pickle")
OTHERS = (
    "architecture_page", "bench", "ci_files", "completion", "docs", "fuzz", "generate", "help", "hostile_files",
    "ignored", "newcomer", "next", "package", "packages", "plot", "reader", "release", "schema", "screen", "site",
    "web",
)  # fmt: skip
"""Test files (the beginning of their name after test_) that are about pages, screens, options and files."""
PAGES = "not page and not in_step and not docs"
"""Which tests do not compare a generated page or table with what makes it."""
REPEATED = 10
"""How much later a test is asked whose file does not import from the module, and of these a case that runs the same
lines of the module as an earlier one of its test."""
SEEN_OFTEN = 30
"""Calls of a function without a new line after which a test's further calls are not recorded."""
MEMORY = 4 << 30
"""Bytes that a test may take on top of what its process has."""


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

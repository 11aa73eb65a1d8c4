"""Ask napkin thousands of drawn questions, most of them bad, and hold every answer against what the contract promises.

python tools/fuzz.py --from 0 --count 2000 [--jobs 2] [--log FILE] [--real]

A case is its seed: command line, files and standard input follow from it alone (tools/fuzz_draws.py). It is run in
process, or with --real in an interpreter of its own. With --log each finished range is written to a file, which the
next run reads and goes on from. At the end each distinct failure is shown with its shortest case; the exit status is 1
if there is any.

What must hold of every case: the exit status is one that docs/command-line.md lists, never 70; stderr has `error:`
lines and `hint:` lines alone, ten errors at most, each at most 4,000 characters, without control characters, and none
without cause; stdout is below 1 MB; JSON parses, holds no NaN, every value has a unit and lies in its interval; CSV
says the same numbers as JSON; it ends within SECONDS of CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "src"), os.path.dirname(os.path.abspath(__file__))]

from fuzz_draws import Case, draw  # noqa: E402

from napkin.cli import main  # noqa: E402

STATUSES = (0, 1, 2, 3, 4, 5, 74)
SECONDS = 20
"""CPU time of one case."""
LONGEST, LARGEST, ERRORS = 4000, 1_000_000, 11
"""Characters of a message, bytes of an answer, errors (ten, and one line that says how many more)."""
CHUNK = 250
"""Cases of one line of the log."""


class TooSlow(BaseException):
    """A case took more than SECONDS; no `except Exception` swallows it."""


def _stop(*_: object) -> None:
    raise TooSlow


def run_case(case: Case, argv: tuple[str, ...] | None = None) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of a case, run in this process and an empty directory of its own."""
    kept = sys.stdout, sys.stderr, sys.stdin, os.getcwd()
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict", newline="") for _ in "oe")
    sys.stdin = io.TextIOWrapper(io.BytesIO(case.stdin), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, data in case.files.items():
            with open(name, "wb") as file:
                file.write(data)
        sys.stdout, sys.stderr = out, err
        before = signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            status = main(list(case.argv if argv is None else argv))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            sys.stdout, sys.stderr, sys.stdin = kept[:3]
            os.chdir(kept[3])
    return status, _text(out), _text(err)


def _text(stream: io.TextIOWrapper) -> str:
    """Return what was written to a stream over bytes."""
    stream.flush()
    kept = stream.buffer
    assert isinstance(kept, io.BytesIO)
    return kept.getvalue().decode("utf-8", "replace")


def run_real(case: Case) -> tuple[int, str, str]:
    """Run a case in an interpreter of its own; a line that no process can be given (NUL) is answered in process."""
    if any("\0" in word for word in case.argv):
        return run_case(case)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in case.files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        words = [word.encode("utf-8", "surrogatepass" if "\ud800" in word else "surrogateescape") for word in case.argv]
        made = subprocess.run(
            [sys.executable.encode(), b"-m", b"napkin", *words],
            cwd=folder,
            input=case.stdin,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "src")},
            timeout=10 * SECONDS,
            check=False,
        )
    return made.returncode, made.stdout.decode("utf-8", "replace"), made.stderr.decode("utf-8", "replace")


# --- what must hold ------------------------------------------------------------------------------------------------


def failure_of(case: Case, real: bool = False) -> str | None:
    """Return what is wrong with the answer to a case, in words that are the same for the same mistake."""
    try:
        status, out, err = run_real(case) if real else run_case(case)
        wrong = judged(case, status, out, err)
        if wrong is None and status == 0 and case.seed % 4 == 0 and not real and out and asks_json(case):
            again = run_case(case, tuple("--csv" if word == "--json" else word for word in case.argv))
            wrong = _forms_agree(out, again)
    except TooSlow:
        return f"more than {SECONDS} s of CPU: {' '.join(case.argv[:1])[:40]}"
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt):
            raise
        return f"raised {type(problem).__name__}: {str(problem)[:80]}"
    return wrong


def judged(case: Case, status: int, out: str, err: str) -> str | None:
    """Return what is wrong with one answer, or None."""
    if status == 70:
        return err.partition("\n")[0][:160]
    if status not in STATUSES:
        return f"exit status {status}"
    if "Traceback" in err:
        return "a traceback"
    wrong = _stderr(status, err)
    if wrong:
        return wrong
    if len(out.encode("utf-8", "replace")) > LARGEST and "--explain" not in case.argv:
        return f"an answer above {LARGEST} bytes from {case.argv[0][:20]}"
    if asks_json(case) and out:
        return _json(out)
    return None


def asks_json(case: Case) -> bool:
    return "--json" in case.argv and not {"--help", "-h", "help", "--help-all", "-V", "--version"} & set(case.argv)


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
        return f"a line on stderr that is no error and no hint: {other[0][:60]!r}"
    if any(not c.isprintable() for line in lines for c in line):
        return "a control character on stderr"
    if any(line.strip() in ("error:", "hint:") for line in lines):
        return "an empty message"
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
        if not below <= values[path] * (1 + 1e-9) or not values[path] <= above * (1 + 1e-9):
            return f"a value outside its interval: {path}"
    return None


def _forms_agree(out: str, again: tuple[int, str, str]) -> str | None:
    """Return where CSV says other numbers than JSON."""
    data = json.loads(out)
    status, text, _ = again
    if status != 0:
        return f"status {status} with --csv, 0 with --json"
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0][:3] != ["path", "value", "unit"]:
        return None  # a listing
    said = {row[0]: row[1] for row in rows[1:] if len(row) > 2}
    for path, value in data.get("values", {}).items():
        if path in said and isinstance(value, int | float) and said[path] != "" and float(said[path]) != float(value):
            return f"CSV and JSON disagree: {path}"
    return None


# --- many ----------------------------------------------------------------------------------------------------------


def size_of(case: Case) -> int:
    return sum(map(len, case.argv)) + sum(map(len, case.files.values()))


def run_range(work: tuple[int, int, bool]) -> dict[str, Any]:
    """Run the cases of a range; returns statuses, the failures by what is wrong, and the slowest."""
    first, count, real = work
    failures: dict[str, list[int]] = {}
    slowest = (0.0, first)
    for seed in range(first, first + count):
        start = time.process_time()
        wrong = failure_of(draw(seed), real)
        slowest = max(slowest, (time.process_time() - start, seed))
        if wrong:
            failures.setdefault(wrong, []).append(seed)
    return {"from": first, "count": count, "real": real, "failures": failures, "slowest": slowest}


def _done(log: str) -> Iterator[dict[str, Any]]:
    if log and os.path.exists(log):
        with open(log) as file:
            for line in file:
                with contextlib.suppress(ValueError):  # a line cut off by a kill is run again
                    yield json.loads(line)


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask napkin drawn questions and judge the answers.")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", default="", help="a line for each finished range; what it lists is not run again")
    parser.add_argument("--real", action="store_true", help="each case in an interpreter of its own")
    parser.add_argument("--show", type=int, help="print the case of a seed and its answer")
    return parser.parse_args(argv)


def show(seed: int) -> int:
    case = draw(seed)
    print("napkin", shlex.join(ascii(w)[1:-1] if not w.isprintable() else w for w in case.argv)[:2000])
    for name, data in case.files.items():
        print(f"--- {name}\n{data[:3000]!r}")
    status, out, err = run_case(case)
    print(f"--- status {status}\n{out[:2000]}--- stderr\n{err[:2000]}")
    print("wrong:", failure_of(case))
    return 0


def run(argv: list[str]) -> int:
    asked = parsed(argv)
    if asked.show is not None:
        return show(asked.show)
    starts = range(asked.first, asked.first + asked.count, CHUNK)
    work = [(at, min(CHUNK, asked.first + asked.count - at), asked.real) for at in starts]
    results = [one for one in _done(asked.log) if (one["from"], one["count"], one["real"]) in work]
    ready = {(one["from"], one["count"]) for one in results}
    with multiprocessing.get_context("fork").Pool(asked.jobs) as pool:
        for result in pool.imap_unordered(run_range, [one for one in work if one[:2] not in ready]):
            results.append(result)
            if asked.log:
                with open(asked.log, "a") as file:
                    file.write(json.dumps(result) + "\n")
    failures: dict[str, list[int]] = {}
    for result in results:
        for wrong, seeds in result["failures"].items():
            failures.setdefault(wrong, []).extend(seeds)
    for wrong, seeds in sorted(failures.items(), key=lambda one: -len(one[1])):
        case = min(map(draw, seeds), key=size_of)
        print(f"{len(seeds)} × {wrong}\n    --show {case.seed}: {ascii(shlex.join(case.argv))[:300]}")
    seconds, seed = max(tuple(one["slowest"]) for one in results)
    cases, failed = sum(one["count"] for one in results), sum(map(len, failures.values()))
    print(f"{cases} cases, {failed} failed in {len(failures)} ways;")
    print(f"slowest {seconds:.1f} s of CPU (--show {seed})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

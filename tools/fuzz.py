"""Ask napkin thousands of drawn questions, most of them bad, and hold every answer against what the contract promises.

python tools/fuzz.py --from 0 --count 2000 [--jobs 2] [--log FILE] [--real]

A case is its seed: command line, files and standard input follow from it alone (tools/fuzz_draws.py). It is run in
process, or with --real in an interpreter of its own. With --log each finished range is written to a file, which the
next run reads and goes on from. At the end each distinct failure is shown with its shortest case; the exit status is 1
if there is any.

What must hold of every case: it ends within SECONDS of CPU time; the exit status is one that docs/command-line.md
lists, never 70; stderr has `error:` lines and `hint:` lines alone, ten errors at most, each at most 4,000 characters,
without control characters, and none without cause; stdout is below 1 MB, with --explain too; JSON parses, holds no NaN,
every value has a unit and lies in its interval; CSV and text say the same numbers as JSON, and line 2 no other; every
tree of terms folds to its value; and of every fourth case, that one more option moves the answer the right way
(tools/fuzz_oracles.py).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "src"), os.path.dirname(os.path.abspath(__file__))]

import fuzz_oracles as oracles  # noqa: E402
from fuzz_draws import Case, draw  # noqa: E402

from napkin.cli import main  # noqa: E402
from napkin.commands import command  # noqa: E402
from napkin.render.answer import Answer  # noqa: E402

SECONDS = 20
"""CPU time of one case."""
CHUNK = 250
"""Cases of one line of the log."""


class TooSlow(BaseException):
    """A case took more than SECONDS; no `except Exception` swallows it."""


def _stop(*_: object) -> None:
    raise TooSlow


def run_case(case: Case) -> tuple[int, str, str]:
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
            status = main(list(case.argv))
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
        if real:
            return oracles.judged(case, *run_real(case))
        with recorded() as answers:
            status, out, err = run_case(case)
            wrong = oracles.judged(case, status, out, err)
            if wrong is None and answers and status in (0, 1, 4):
                wrong = oracles.forms_agree(answers[-1]) or _law(case, answers)
    except TooSlow:
        return f"more than {SECONDS} s of CPU: {' '.join(case.argv[:1])[:40]}"
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt):
            raise
        return f"raised {type(problem).__name__}: {str(problem)[:80]}"
    return wrong


def _law(case: Case, answers: list[Answer]) -> str | None:
    """Return the law that the answer to every fourth case breaks, if it does; `answers` also takes the second one."""
    law, before = oracles.law_of(case), answers[-1]
    if law is None or case.seed % 4 or any(word == "--" or word.startswith(f"--{law[0]}") for word in case.argv):
        return None
    status, _, _ = run_case(replace(case, argv=(*case.argv, f"--{law[0]}", law[1])))
    return oracles.broken_law(law, before, answers[-1]) if status in (0, 1, 4) else None


@contextlib.contextmanager
def recorded() -> Iterator[list[Answer]]:
    """Keep the answers that are given meanwhile; the last one is that of the command line."""
    answers: list[Answer] = []
    plain = command.ask

    def asked(*arguments: Any, **more: Any) -> Answer:
        answer = plain(*arguments, **more)
        answers.append(answer)
        return answer

    command.ask = asked
    try:
        yield answers
    finally:
        command.ask = plain


# --- many ----------------------------------------------------------------------------------------------------------


def size_of(case: Case) -> int:
    return sum(map(len, case.argv)) + sum(map(len, case.files.values()))


def run_range(work: tuple[int, int, bool]) -> dict[str, Any]:
    """Run the cases of a range; returns statuses, the failures by what is wrong, and the slowest."""
    first, count, real = work
    gc.set_threshold(50_000)  # the trees of an answer are many objects, and all are let go at its end
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
    with contextlib.suppress(TooSlow):
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

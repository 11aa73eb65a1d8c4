"""Whole logs: constant memory, bounded work, the same medians however long they are; what is no log."""

from __future__ import annotations

import io
import pathlib
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from napkin.errors import NapkinError
from napkin.inputs import log_file
from napkin.inputs.log import figures
from tests.conftest import Napkin

ASKED = "mfu gpt2 --seq 1024 --gpus 8 --hardware h100"
LINE = "iteration {}/ 9 | elapsed time per iteration (ms): {:.1f} | global batch size: 64 | lm loss: 2.1\n"


class Made(io.TextIOBase):
    """A log that is made while it is read."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines = lines

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        return next(self.lines, "")


def times(count: int, every: int = 1) -> Iterator[str]:
    """Lines of steps around 800 ms, each among `every` lines of which the others say nothing."""
    rng = random.Random(0)
    for at in range(count):
        yield LINE.format(at, rng.gauss(800, 40)) if at % every == 0 else "time passes, and nothing is known of it\n"


def sampled(count: int, every: int = 1) -> tuple[int, float]:
    """Return the lines that are kept, and the median step."""
    sample = log_file._sample(Made(times(count, every)), "made")  # type: ignore[arg-type]
    return len(sample), log_file.medians(sample).quantities["step_seconds"]


@pytest.mark.slow
def test_a_long_log_takes_the_memory_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "SAMPLE", 500)
    held = []
    for count in (1_000, 20_000):
        tracemalloc.start()
        sampled(count)
        held.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert held[1] < 2 * held[0] < 4e6


@pytest.mark.parametrize("every", [1, 2, 3, 64])
def test_a_pattern_in_the_lines_does_not_hide_the_figures(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(log_file, "SAMPLE", 200)
    kept, median = sampled(40_000, every)
    assert 200 <= kept <= 401
    assert median == pytest.approx(0.8, rel=0.02)


def test_lines_looked_at_grow_with_the_logarithm_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counting(line: str) -> object:
        nonlocal looked
        looked += 1
        return figures(line)

    monkeypatch.setattr(log_file, "SAMPLE", 100)
    monkeypatch.setattr(log_file, "TRIED", 100)
    monkeypatch.setattr(log_file, "figures", counting)
    list(log_file._sample(Made(times(50_000, 40)), "made"))  # type: ignore[arg-type]
    assert looked < 100 * (2 + 9)  # 50,000 / 100 is nine doublings


@pytest.mark.parametrize("spoilt", [" ", "\t", "'", "time ", "9", "(", "iter", "tok/s", "=,"])
def test_no_line_takes_more_than_its_length(spoilt: str) -> None:
    """A pattern that tries every division of a run takes hours for these lines; each of them takes milliseconds."""
    found = figures("mfu:" + spoilt * (10**5 // len(spoilt)) + "; mfu: 0.4")
    assert set(found.quantities) <= {"mfu", "step_seconds", "steps_per_second", "tokens_per_second"}


def test_the_start_of_a_line_without_end_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "one.log"
    path.write_text(LINE.format(1, 800).strip() + "x" * 10**6 + "\n" + LINE.format(2, 900))
    assert log_file.read_file(str(path)).quantities["step_seconds"] == pytest.approx(0.9)


def test_carriage_returns_end_lines(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bar.log"
    path.write_text("\r".join(f" {at}% mfu: 0.4{at}" for at in range(9)), newline="")
    assert log_file.read_file(str(path)).lines > 5


@pytest.mark.parametrize(
    ("rates", "slow"), [("50 100 100 100 84", 0.0), ("50 100 100 100 80", 0.25), ("100 100 1e-320", 1 / 3)]
)
def test_the_share_of_slow_lines(tmp_path: pathlib.Path, rates: str, slow: float) -> None:
    """After the first line of more than three, those at 1 / 1.2 of the median rate or below, however low."""
    path = tmp_path / "rates.log"
    path.write_text("".join(f"step: {at}  tps: {rate}  mfu: 41.58%\n" for at, rate in enumerate(rates.split())))
    assert log_file.read_file(str(path)).slow == pytest.approx(slow)


def test_pipes_and_standard_input_are_logs(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(times(50)))
    said = napkin(f"{ASKED} --log {path} --quiet").out
    for line in (f"cat {path} | {{}} --log -", f"{{}} --log <(cat {path})"):
        command = line.format(f"{sys.executable} -m napkin {ASKED} --quiet")
        assert subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout == said


def test_what_is_no_log_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, words in ((str(tmp_path), "is a directory"), ("/dev/zero", "neither a file nor a pipe")):
        with pytest.raises(NapkinError, match=words):
            log_file.read_file(path)
    monkeypatch.setattr(log_file, "LARGEST", 100)
    with pytest.raises(NapkinError, match="larger than"):
        log_file._sample(Made(times(5)), "made")  # type: ignore[arg-type]

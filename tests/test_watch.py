"""`napkin watch`: a log that grows, is cut, is replaced, ends; with a clock and a sleep that the test moves."""

from __future__ import annotations

import io
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from napkin.commands import watch
from napkin.commands.watch import LiveLine
from napkin.inputs.log import LONGEST, is_over, progress_of
from napkin.inputs.log_follow import EVERY, follow
from tests.conftest import Outcome, run_line

JOB = "llama3-8b --gpus 8 --hardware h100 --seq 8192"
LINE = " iteration {:8d}/{:8d} | elapsed time per iteration (ms): {:.1f} | global batch size: 64 | lm loss: 2.1E+00 |\n"


def step(at: int, of: int = 100, ms: float = 8500.0) -> str:
    return LINE.format(at, of, ms)


class Time:
    """Sleeping takes no time and does what happens to the file next; it ends with Ctrl-C."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.now, self.slept = 0.0, 0
        self.events: Iterator[Callable[[], object]] = iter(events)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds == EVERY  # never in haste
        self.now += 30.0
        self.slept += 1
        event = next(self.events, None)
        if event is None:
            raise KeyboardInterrupt
        event()


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "train.log"


def add(path: pathlib.Path, text: str) -> Callable[[], object]:
    def event() -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)

    return event


def watched(monkeypatch: pytest.MonkeyPatch, line: str, time: Time) -> Outcome:
    monkeypatch.setattr(watch, "CLOCK", time.clock)
    monkeypatch.setattr(watch, "SLEEP", time.sleep)
    return run_line(f"watch {line}")


def test_what_is_there_now_is_what_mfu_says_of_it(log: pathlib.Path) -> None:
    log.write_text("".join(step(at) for at in range(1, 11)), encoding="utf-8")
    found = run_line(f"watch {log} {JOB} --once --json")
    said = run_line(f"mfu {JOB} --step-time 8.5s --global-batch 64 --json").values
    assert found.status == 0
    assert found.values["mfu"] == said["mfu"]
    assert found.values["tokens_per_second"] == pytest.approx(64 * 8192 / 8.5)
    assert (found.values["progress/step"], found.values["progress/total"]) == (10, 100)
    assert found.values["progress/left"] == 90 * 8.5
    assert found.data["complete"] is False
    assert run_line(f"watch {log} --once --json --steps 50").values["progress/left"] == 40 * 8.5


def test_it_goes_on_until_the_run_is_over(monkeypatch: pytest.MonkeyPatch, log: pathlib.Path) -> None:
    log.write_text(step(1), encoding="utf-8")
    time = Time(add(log, step(50)[:40]), add(log, step(50)[40:]), lambda: None, add(log, step(100)))
    found = watched(monkeypatch, f"{log} {JOB} --json", time)
    assert found.status == 0
    assert found.values["progress/step"] == 100
    assert found.data["complete"] is True
    assert time.slept == 4  # and not once more


def test_control_c_answers_and_ends_with_130(monkeypatch: pytest.MonkeyPatch, log: pathlib.Path) -> None:
    log.write_text(step(7), encoding="utf-8")
    found = watched(monkeypatch, f"{log} {JOB}", Time(lambda: None))
    assert found.status == 130
    assert "step 7 of 100" in found.out
    assert found.err == ""
    log.write_text("nothing yet\n", encoding="utf-8")
    nothing = watched(monkeypatch, f"{log} {JOB}", Time())
    assert (nothing.status, nothing.out, nothing.err) == (130, "", "")


def test_a_log_that_is_cut_or_replaced_is_read_from_its_start(
    monkeypatch: pytest.MonkeyPatch, log: pathlib.Path
) -> None:
    log.write_text(step(1) + step(2) + step(3), encoding="utf-8")

    def cut() -> None:
        log.write_text(step(41), encoding="utf-8")

    def rotate() -> None:
        os.replace(log, log.with_suffix(".1"))

    def again() -> None:
        log.write_text(step(90), encoding="utf-8")

    seen: list[object] = []
    time = Time(cut, rotate, again, add(log, step(100)))
    for line in follow(str(log), False, time.sleep):
        seen += [] if line is None else [progress_of(line)]
        if seen[-1:] == [(100, 100)]:
            break
    assert seen == [(1, 100), (2, 100), (3, 100), (41, 100), (90, 100), (100, 100)]
    log.write_text(step(1), encoding="utf-8")
    time = Time(cut, rotate, again, add(log, step(100)))
    assert watched(monkeypatch, f"{log} --json", time).values["progress/step"] == 100


def test_bars_long_lines_and_bytes_that_are_no_text(log: pathlib.Path) -> None:
    log.write_bytes(
        b"\xff\xfe\n" + b"x" * (3 * LONGEST) + b"\n 10%|# | 3/30 [00:10<01:30]\r 20%|# | 6/30 [00:20<01:20]"
    )
    lines = [line for line in follow(str(log), True, lambda _: None) if line is not None]
    assert max(map(len, lines)) == LONGEST
    assert [progress_of(line) for line in lines[-2:]] == [(3, 30), (6, 30)]


def test_a_pipe_ends_where_its_writer_does(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text"
    text.write_text(step(5) + step(6), encoding="utf-8")
    with text.open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        lines = list(follow("-", False, lambda _: pytest.fail("a pipe is waited for by reading it")))
    assert len(lines) == 2


def test_the_live_line(monkeypatch: pytest.MonkeyPatch, log: pathlib.Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    live = LiveLine(quiet=False)
    live.show(["step 7 of 100", "61,680 token/s"], 0.0)
    live.show(["step 7 of 100", "61,680 token/s"], 0.0)
    assert terminal.getvalue().count("step 7") == 1
    live.show([], 400.0)
    assert terminal.getvalue().endswith("61,680 token/s   no line for 6.7 min")
    live.erase()
    assert terminal.getvalue().endswith("\r\033[K")
    LiveLine(quiet=True).show(["nothing"], 0.0)
    assert "nothing" not in terminal.getvalue()


def test_it_is_shown_while_it_goes(monkeypatch: pytest.MonkeyPatch, log: pathlib.Path) -> None:
    shown: list[tuple[str, float]] = []

    class Seen(LiveLine):
        def show(self, parts: Sequence[str], silence: float) -> None:
            shown.append((next(iter(parts), ""), silence))

    monkeypatch.setattr(watch, "LiveLine", Seen)
    log.write_text(step(1), encoding="utf-8")
    watched(monkeypatch, f"{log} {JOB}", Time(lambda: None, add(log, step(50)), lambda: None))
    assert [part for part, _ in shown] == ["step 1 of 100"] * 3 + ["step 50 of 100"] * 3
    assert [silence for _, silence in shown] == [0, 0, 30, 0, 0, 30]


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("watch /nonexistent/train.log", 2, "No such file"),
        ("watch", 2, "LOG is missing"),
        ("watch configs --once", 2, "is a directory"),
        ("watch LICENSE --once", 2, "no line says a throughput"),
        ("watch configs/logs/megatron.log llama3-8b --once", 2, "--hardware is missing"),
        ("watch configs/logs/megatron.log --hardware h100 --once", 2, "--hardware"),
        ("watch configs/logs/megatron.log --once --tflops 3", 2, "tflops"),
    ],
)
def test_what_cannot_be_watched(line: str, status: int, said: str) -> None:
    found = run_line(line)
    assert (found.status, said in found.err) == (status, True), found.err


@pytest.mark.parametrize(
    ("line", "progress", "over"),
    [
        (" [2026-01-02 03:04:05] iteration      100/     500 | consumed samples: 9 |", (100, 500), False),
        ("step: 10  loss:  8.0  memory: 47.28GiB(49.77%)  tps: 7,023  tflops: 411.25  mfu: 41.5%", (10, None), False),
        ("iter 1,100: loss 3.2021, time 134.5ms, mfu 42.5%", (1100, None), False),
        ("{'loss': 4.78, 'epoch': 0.25, 'train_runtime': 10.56, 'train_tokens_per_second': 96.98}", None, False),
        ("{'train_runtime': 19.95, 'train_samples_per_second': 2.4, 'train_loss': 4.78, 'epoch': 0.75}", None, True),
        ("[after training is done] datetime: 2026-01-02 03:04:05", None, True),
        ("[exiting program at iteration 6000] datetime: 2026-08-25 19:54:10", (6000, None), True),
        ("`Trainer.fit` stopped: `max_steps=12` reached.", None, True),
        ("elapsed time per iteration (ms): 2345.5", None, False),
    ],
)
def test_how_far_a_line_says_the_run_is(line: str, progress: tuple[int, int | None] | None, over: bool) -> None:
    assert progress_of(line) == progress
    assert is_over(line) == over


def test_from_python(log: pathlib.Path) -> None:
    import napkin

    log.write_text(step(100), encoding="utf-8")
    answer = napkin.watch(log, "llama3-8b", gpus=8, hardware="h100", seq=8192)
    assert answer["progress/step"] == 100
    assert json.dumps(answer.to_dict())


def test_a_run_file_without_a_command_is_no_log(tmp_path: pathlib.Path) -> None:
    """Its keys are options, each once, and name what a log does not; a log may have lines of options too."""
    path = tmp_path / "run.yaml"
    path.write_text("gpus: 64\nmodel: llama3-8b\nmfu: 0.4\n")
    refused = run_line(["watch", str(path), "--once"])
    assert (refused.status, "is not a log" in refused.err) == (2, True)
    path.write_text("mfu: 0.4\n")
    assert run_line(["watch", str(path), "--once"]).status == 0

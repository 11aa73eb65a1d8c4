"""The screens of the small commands, the listings and the commands that ask others, at every width."""

from __future__ import annotations

import json
import shlex

import pytest

from napkin.cli.reader import read
from napkin.commands.command import ask, named
from napkin.render import render
from napkin.render.answer import Answer
from napkin.render.screen import Display
from tests.conftest import Napkin, run_line

TRAIN = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4"
ANSWERS = (
    ("params llama3-8b", "8,030,261,248 parameters"),
    ("flops matmul 16384x32768x8192", "8.796e12 FLOP"),
    ("roofline matmul 4096x4096x4096 --hardware h100", "compute bound   1,365 FLOP/byte"),
    ("tensor 4x8", "128 bytes"),
    ("tensor 4x8 --transpose", "128 bytes"),
    ("dtype bf16", "2 bytes an element"),
    ("dtype 70000 --dtype fp16", "overflows to infinity"),
    ("optimizer adamw --params 7B", "52.2 GiB   8 bytes per parameter"),
    ("checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h", "one every 68.59 min   980.0 GB"),
    ("data --tokens 15T --vocab 128256", "60.00 TB"),
    ("init --fan-in 4096 --depth 32", "weights of std 0.01562"),
    ("models llama3-70b", "70,553,706,496 parameters"),
    (f"compare {TRAIN} --against hardware=b200,mfu=0.35", "time −89.50 days"),
    (f"sensitivity {TRAIN} --limit 'time <= 150d'", "BROKEN   time is 179.9 days"),
)
"""Commands, and how their second line begins."""
LISTINGS = (
    "dtype",
    "dtype 1e-8",
    "optimizer",
    "hardware h100",
    "models --family llama",
    f"sweep {TRAIN} --over gpus=256,512",
)
IDS = [line for line, _ in ANSWERS]


def answered(line: str) -> Answer:
    command, words = named(shlex.split(line))
    return ask(command, read(command, words).given)


@pytest.mark.parametrize(("line", "said"), ANSWERS, ids=IDS)
def test_the_answer_is_in_line_2_at_every_width(line: str, said: str) -> None:
    answer = answered(line)
    for width in (80, 100, 200):
        lines = render(answer, "text", Display(width)).splitlines()
        assert lines[1].startswith(f"  {said}")
        assert max(map(len, lines)) <= width
        assert len(lines) <= 24
    assert run_line([*shlex.split(line), "--quiet"]).out.startswith(said)


@pytest.mark.parametrize("line", LISTINGS)
def test_a_listing_has_as_many_lines_when_narrow(line: str) -> None:
    answer = answered(line)
    narrow, wide = (render(answer, "text", Display(width)).splitlines() for width in (80, 200))
    assert len(narrow) <= len(wide) + 2
    assert max(map(len, narrow)) <= 80


def test_the_next_command_of_each_is_answered() -> None:
    for line, _ in ANSWERS[:11]:
        command = run_line(shlex.split(line)).out.partition("next: ")[2].replace("\\\n", " ")
        assert run_line(shlex.split(command)[1:]).status in (0, 1, 4), command


def test_plan_says_whether_its_layout_fits_next_to_the_verdict_on_a_limit(napkin: Napkin) -> None:
    """Two verdicts share a word: the limit may be too close to call and the layout fit."""
    asked = "plan llama3-8b --hardware h100 --gpus 48 --tokens 1T --budget 100k --price 3.67 --rows 1"
    chosen = next(row for row in json.loads(napkin(f"{asked} --json").out)["rows"] if row["recommended"])
    line = napkin(f"{asked} --quiet").out
    assert chosen["fit"] == "fits"
    assert "TOO CLOSE TO CALL: for $100,000" in line
    assert " FITS " in line
    close = napkin("plan llama3-8b --gpus 4 --hardware a100-40gb --seq 4096 --rows 1").out.splitlines()[1]
    assert "TOO CLOSE TO CALL 3" in close  # the verdict is kept in 80 columns, and the MFU dropped


def test_markdown_has_the_table_of_the_screen(napkin: Napkin) -> None:
    out = napkin("optimizer --markdown").out
    assert "| adamw | 8 | 4 | step, exp_avg, exp_avg_sq |" in out


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("--gpus 16 --tp 2 --ep 16 --etp 1", "1/2, experts 1/16 per GPU"),  # expert-parallel ranks have whole experts
        ("--gpus 16 --tp 2 --ep 4 --etp 2", "1/2, experts 1/8 per GPU"),
        ("--gpus 16 --pp 2 --ep 8", "1/2, experts 1/16 per GPU"),
        ("--gpus 8 --tp 4 --ep 4 --etp 1", "1/4 per GPU"),
    ],
)
def test_a_share_of_the_experts_is_that_of_the_ranks_that_divide_them(napkin: Napkin, layout: str, said: str) -> None:
    found = napkin(f"memory qwen3-30b-a3b --hardware h100 --framework megatron-core {layout}").out
    assert f"bf16; {said}\n" in found

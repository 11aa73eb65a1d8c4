"""`napkin sweep`: values of lists and ranges, rows with units, points that cannot be asked, pictures."""

from __future__ import annotations

import csv
import io
import pathlib
import re
from typing import Any

import pytest

from napkin.options.ranges import read, values
from napkin.options.registry import OPTIONS
from tests.conftest import Napkin

RUN = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5"


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("mfu", "0.3..0.6:0.05", ["0.3", "0.35", "0.4", "0.45", "0.5", "0.55", "0.6"]),
        ("mfu", "0.3,40%", ["0.3", "40%"]),
        ("gpus", "256..2048", ["256", "512", "1024", "2048"]),
        ("gpus", "256..3k", ["256", "512", "1024", "2048", "3000"]),
        ("gpus", "1..27:x3", ["1", "3", "9", "27"]),
        ("gpus", "8..20:8", ["8", "16", "20"]),
        ("tp", "1..2:x1.1", ["1", "2"]),
        ("within", "10d..30d:10d", ["864000s", "1728000s", "2592000s"]),
        ("memory-bandwidth", "1TB/s..4TB/s:x2", [f"{n}000000000000B/s" for n in (1, 2, 4)]),
        ("sp", "true,false", [True, False]),
        ("hardware", "h100,b200", ["h100", "b200"]),
        ("zero", "1..3", ["1", "2", "3"]),
    ],
)
def test_values_of_a_list_or_range(option: str, text: str, expected: list[Any]) -> None:
    assert values(OPTIONS[option], text, "--over") == expected


@pytest.mark.parametrize(
    ("text", "last"),
    [("256..16e84", 16 * 10**84), ("1..1e80:x1e70", 10**80), ("1..1e61:1e60", 10**61), ("1..1e58", 10**58)],
)
def test_every_value_of_a_range_is_read_again(text: str, last: int) -> None:
    """Doubling 256 up to 1.6e85 passes numbers of more digits than a person types."""
    option = OPTIONS["gpus"]
    found: list[Any] = [read(option, str(value), "--over") for value in values(option, text, "--over")]
    assert (found[0], found[-1]) == (int(text.split("..")[0]), last)
    assert found == sorted(set(found))


def test_rows_are_the_answers_of_the_single_questions(napkin: Napkin) -> None:
    outcome = napkin(f"sweep {RUN} --over gpus=512..2048 --by mfu=0.4,0.5 --json")
    assert outcome.status == 0
    rows = outcome.data["rows"]
    assert [(row["gpus"], row["mfu"]) for row in rows] == [(g, m) for m in (0.4, 0.5) for g in (512, 1024, 2048)]
    for row in rows:
        line = RUN.replace("1024", str(row["gpus"])).replace("--mfu 0.5", f"--mfu {row['mfu']}")
        single = napkin(f"{line} --json").values
        assert row["time"] == single["time"]
        assert row["energy"] == single["energy"]
    assert outcome.data["columns"]["time"] == "second"
    assert outcome.data["inputs"]["gpus"]["value"] == [512, 1024, 2048]


def test_an_answer_that_does_not_move_is_said(napkin: Napkin) -> None:
    """GPUs divide the time and not the cost: 6 · 7e9 · 1e12 FLOP at 0.4 · 989.4e12, at 2 USD an hour."""
    line = "sweep train-time --params 7B --tokens 1T --hardware h100 --mfu 0.4 --price 2 --over gpus=8,16"
    cost = 6 * 7e9 * 1e12 / (0.4 * 989.4e12) / 3600 * 2
    assert f"the same for all: cost ${cost:,.0f}, gpu_hours" in napkin(line).out
    assert "the same for all" not in napkin(line.replace("gpus=8,16", "mfu=0.3,0.4") + " --gpus 8").out


def test_csv_has_a_header_and_base_units(napkin: Napkin) -> None:
    rows = list(csv.DictReader(io.StringIO(napkin(f"sweep {RUN} --over mfu=0.4,0.5 --show time --csv").out)))
    assert [row["mfu"] for row in rows] == ["0.4", "0.5"]
    assert float(rows[0]["time"]) == pytest.approx(6.3e24 / (989.4e12 * 0.4 * 1024))


def test_markdown_has_human_units(napkin: Napkin) -> None:
    assert "| 0.5 | 143.9 days |" in napkin(f"sweep {RUN} --over mfu=0.5 --show time --markdown").out


def test_a_refused_point_stays_with_its_reason(napkin: Napkin) -> None:
    outcome = napkin(f"sweep {RUN} --over dtype=bf16,fp4 --json")
    assert outcome.status == 0
    good, bad = outcome.data["rows"]
    assert good["why"] is None
    assert bad["time"] is None
    assert "fp4" in bad["why"]


def test_if_every_point_is_refused_the_first_reason_is_the_answer(napkin: Napkin) -> None:
    outcome = napkin(f"sweep {RUN} --over dtype=fp4")
    assert outcome.status == 3
    assert outcome.out == ""


def test_a_run_file_gives_the_question(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.5\n")
    outcome = napkin(["sweep", "train-time", "--run", str(file), "--over", "mfu=0.25,0.5", "--json"])
    first, second = outcome.data["rows"]
    assert first["time"] == 2 * second["time"]
    assert outcome.data["inputs"]["params"]["origin"] == "run file"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"sweep {RUN}", "--over is missing"),
        ("sweep --over mfu=0.3", "which command"),
        ("sweep sweep --over mfu=0.3", "cannot ask"),
        (f"sweep {RUN} --over mfu", "OPTION=VALUES"),
        (f"sweep {RUN} --over muf=0.3", "no option"),
        (f"sweep {RUN} --over mfu=0.3..0.6", "no step"),
        (f"sweep {RUN} --over mfu=0.6..0.3:0.1", "empty range"),
        (f"sweep {RUN} --over mfu=0.3..0.6:x1", "above 1"),
        (f"sweep {RUN} --over mfu=0.3..0.6:1e-9", "more than"),
        (f"sweep {RUN} --over gpus=1..9e12:x1.0001", "more than"),
        (f"sweep {RUN} --over gpus=1..100:1 --by mfu=0.001..1:0.001", "questions"),
        (f"sweep {RUN} --over mfu=0.3 --by mfu=0.4", "already"),
        (f"sweep {RUN} --over hardware=a..b", "no ranges"),
        (f"sweep {RUN} --over mfu=30", "30% is 0.3"),
        (f"sweep {RUN} --over json=true", "no option"),
    ],
)
def test_what_sweep_refuses(napkin: Napkin, line: str, words: str) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert words in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#0d1117")])
def test_the_picture_has_units_on_its_axes(napkin: Napkin, tmp_path: pathlib.Path, theme: str, ground: str) -> None:
    picture = tmp_path / "sweep.svg"
    line = f"sweep {RUN} --over gpus=256..4096 --by mfu=0.4,0.5 --show time --plot {picture} --theme {theme}"
    assert napkin(line).status == 0
    text = picture.read_text()
    for words in ("time (days)", "GPUs", "MFU 0.4", "MFU 0.5", "1,024"):
        assert words in text
    assert re.search(f"fill: {ground}", text)


def test_steps_of_different_sizes_compare_by_their_speed_and_say_what_fits(napkin: Napkin) -> None:
    line = "sweep step llama3-8b --hardware h100 --gpus 8 --zero 3 --framework fsdp --over micro-batch=1,8"
    text = napkin(line).out
    assert "micro-batch  tokens_per_second_per_gpu  step/time" in text
    assert "fits up to micro-batch 1" in text
    rows = napkin(f"{line} --json").data["rows"]
    assert [row["fit"] for row in rows] == ["fits", "does not fit"]
    assert rows[1]["tokens_per_second_per_gpu"] > rows[0]["tokens_per_second_per_gpu"]


def test_the_next_command_takes_the_fastest_run_that_fits(napkin: Napkin) -> None:
    line = "sweep train-time llama3-8b --hardware h100 --zero 3 --framework fsdp --tokens 1B --over gpus=1,16,32"
    text = napkin(line).out
    assert text.splitlines()[-1].endswith("--gpus 32")
    held = napkin(f"{line} --within 10h").out
    assert re.search(r" 1 .* does not fit\n", held)  # and so it does not meet the deadline
    assert re.search(r" 32 .* holds\n", held)

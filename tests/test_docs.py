"""Every example of README.md and docs/ prints what the page says it prints (`python tools/docs.py` writes it)."""

from __future__ import annotations

import os
import pathlib
import re
import runpy

import pytest

from tests.conftest import ROOT

DOCS = runpy.run_path(os.path.join(ROOT, "tools", "docs.py"))


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def examples() -> list[tuple[str, int, list[str]]]:
    found = []
    for path in DOCS["pages"]():
        text = read(path)
        lines = text.split("\n")
        found += [(os.path.basename(path), first, lines[first:last]) for first, last in DOCS["blocks"](text)]
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e[0]}:{e[1]}")
def test_the_page_says_what_the_program_prints(example: tuple[str, int, list[str]]) -> None:
    _, _, block = example
    assert block == DOCS["answered"](block)


def test_every_row_of_the_lecture_stands_in_its_page() -> None:
    text = read(os.path.join(ROOT, "docs", "lecture.md"))
    rows = [int(n) for n in re.findall(r"^### (\d+)\.", text, re.MULTILINE)]
    assert rows == list(range(1, 29))


def test_the_runner_notices_a_stale_page() -> None:
    stale = "```console\n$ napkin tensor 4x8\nsomething else\n```\n"
    fresh = DOCS["regenerated"](stale)
    assert fresh != stale
    assert "128 bytes" in fresh
    assert DOCS["regenerated"](fresh) == fresh


def test_every_number_that_moved_is_named() -> None:
    before = ["70B parameters", "time  143.9 days", "cost  3.54 M", "gone  7"]
    after = ["70B parameters", "time  150.2 days", "costs 3.54 M", "new   8"]
    assert DOCS["moved"](before, after) == [
        "time days: 143.9 → 150.2",
        "cost  3.54 M | gone  7 → costs 3.54 M | new   8",
    ]
    assert DOCS["moved"](["of 80 GB"], ["out of 80 GB"]) == []
    page = "```console\n$ napkin tensor \\\n    4x8\n{}\n$ echo $?\n0\n```\n"
    found = DOCS["moved_on"](page.format("bytes 64"), page.format("bytes 128"))
    assert found == ["napkin tensor 4x8: bytes: 64 → 128"]


@pytest.mark.parametrize(
    ("stale", "accept", "status", "written"),
    [("127", False, 1, False), ("127", True, 0, True), ("128 much", False, 0, True)],
)
def test_a_page_is_written_where_no_number_moved_or_that_is_accepted(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], stale: str, accept: bool, status: int, written: bool
) -> None:
    page = tmp_path / "page.md"
    fresh = DOCS["regenerated"]("```console\n$ napkin tensor 4x8\n```\n")
    page.write_text(fresh.replace("128", stale), encoding="utf-8")
    assert DOCS["update"]([str(page)], accept) == status
    assert (page.read_text(encoding="utf-8") == fresh) == written
    assert ("127 → 128" in capsys.readouterr().out) == (stale == "127")


def test_statuses_errors_and_continued_lines() -> None:
    block = ["$ napkin tensor \\", "    4y8 2>&1", "$ echo $?"]
    lines = DOCS["answered"](block)
    assert lines[:2] == block[:2]
    assert lines[2].startswith("error: SIZE")
    assert lines[-2:] == ["$ echo $?", "2"]


def test_an_error_that_the_page_does_not_show_is_not_written() -> None:
    with pytest.raises(RuntimeError, match="4y8"):
        DOCS["answered"](["$ napkin tensor 4y8"])


def test_commands_of_other_programs_are_left_alone() -> None:
    block = ["$ make demo", "whatever it printed"]
    assert DOCS["answered"](block) == block


def test_links_between_pages_lead_somewhere() -> None:
    for path in DOCS["pages"]():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(path)):
            assert os.path.exists(os.path.join(os.path.dirname(path), target)), f"{path}: {target}"

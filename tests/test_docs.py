"""Every example of README.md and docs/ prints what the page says it prints (`python tools/docs.py` writes it)."""

from __future__ import annotations

import os
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

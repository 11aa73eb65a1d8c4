"""Every example of README.md and docs/ prints what the page says it prints (`python tools/docs.py` writes it)."""

from __future__ import annotations

import os
import pathlib
import re
import runpy

import pytest

from tests.conftest import ROOT, Napkin, run_line

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


def test_every_row_of_the_lecture_is_on_its_page() -> None:
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
    assert lines[2].startswith("error: SHAPE")
    assert lines[-2:] == ["$ echo $?", "2"]


def test_an_error_that_the_page_does_not_show_is_not_written() -> None:
    with pytest.raises(RuntimeError, match="4y8"):
        DOCS["answered"](["$ napkin tensor 4y8"])


def test_commands_of_other_programs_are_left_alone() -> None:
    block = ["$ make demo", "whatever it printed"]
    assert DOCS["answered"](block) == block


def test_the_picture_of_a_terminal_is_what_napkin_writes_to_one() -> None:
    terminal = runpy.run_path(os.path.join(ROOT, "tools", "terminal.py"))
    assert terminal["drawn"]() == read(str(terminal["PICTURE"])), "python tools/terminal.py draws it anew"


def test_the_plots_of_the_readme_show_what_their_commands_answer() -> None:
    """The labels of the step's bars, and of the schedule's whole step; matplotlib's versions draw them differently."""
    plots = runpy.run_path(os.path.join(ROOT, "tools", "plots.py"))
    values = run_line(f"{plots['PLOTS']['step.svg']} --json").values
    picture = read(str(plots["IMAGES"] / "step.svg"))
    for part in ("compute", "memory_bound", "communication", "bubble", "overhead"):
        seconds = values[f"step/{part}"]
        assert f">{seconds:.3g}  {seconds / values['step/time']:.0%}<" in picture, part
    assert f">{values['step/time']:.3g}<" in picture
    assert set(plots["PLOTS"]) == {"step.svg", "scaling.svg"}


def linked(path: str) -> list[tuple[str, str]]:
    """Return the links of a page to files and headings, as (file, heading)."""
    found = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", read(path))
    return [(target, heading) for target, heading in found if target or heading]


def headings(path: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", read(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *(os.path.relpath(path, ROOT) for path in DOCS["pages"]())])
def test_links_lead_to_a_file_and_a_heading(page: str) -> None:
    path = os.path.join(ROOT, page)
    for target, heading in linked(path):
        to = os.path.join(os.path.dirname(path), target) if target else path
        assert os.path.exists(to), target
        assert not heading or heading in headings(to), f"{target}#{heading}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, ahead = set(), [os.path.join(ROOT, "README.md")]
    while ahead:
        path = ahead.pop()
        seen.add(path)
        links = {os.path.normpath(os.path.join(os.path.dirname(path), target)) for target, _ in linked(path) if target}
        ahead += [link for link in links - seen if link.endswith(".md")]
    assert [path for path in DOCS["pages"]() if path not in seen] == []


def test_the_readme_is_short() -> None:
    assert len(read(os.path.join(ROOT, "README.md")).splitlines()) <= 220


SPELLINGS = re.findall(r"^\| (`--[^|]*`) \| `(--[^|]*)` \|$", read(os.path.join(ROOT, "docs", "command-line.md")), re.M)


@pytest.mark.parametrize(
    ("spelling", "option"),
    [(spelling, option) for spellings, option in SPELLINGS for spelling in re.findall(r"`([^`]*)`", spellings)],
)
def test_other_names_mean_what_the_page_says(napkin: Napkin, spelling: str, option: str) -> None:
    assert option.startswith("--")
    rest = "" if "--hardware" in option else "--hardware h100"
    rest += "" if "--gpus" in option or "--tp" in option else " --gpus 8"
    said, meant = (napkin(f"memory llama3-8b {rest} {text} --json") for text in (spelling, option))
    assert said.status == meant.status == 0, said.err
    assert said.values == meant.values

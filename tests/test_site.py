"""The documentation site: what it is built from, and what its link check finds."""

from __future__ import annotations

import os
import pathlib
import re
import runpy
from typing import Any

import pytest
import yaml

from napkin._tables.commands import COMMANDS
from napkin.commands.command import find
from napkin.options.registry import OPTIONS
from tests.conftest import ROOT

SITE = runpy.run_path(os.path.join(ROOT, "tools", "site.py"))
REFERENCE = runpy.run_path(os.path.join(ROOT, "tools", "site_reference.py"))


def listed(nav: Any) -> list[str]:
    """Return the pages that the navigation names."""
    if isinstance(nav, str):
        return [nav]
    return [page for one in (nav.values() if isinstance(nav, dict) else nav) for page in listed(one)]


def test_the_navigation_names_every_page_once() -> None:
    with open(os.path.join(ROOT, "mkdocs.yml"), encoding="utf-8") as file:
        pages = listed(yaml.safe_load(file)["nav"])
    written = {path.name for path in pathlib.Path(ROOT, "docs").glob("*.md")} | {"changelog.md", "contributing.md"}
    assert sorted(page for page in pages if "/" not in page) == sorted(written)
    assert len(pages) == len(set(pages))


def test_the_reference_has_every_option_and_command() -> None:
    commands = [find(name) for name in COMMANDS]
    page = REFERENCE["options_page"](commands)
    shown = re.findall(r"^\| `(.+?)`", page.replace("\\|", "|"), re.M)
    assert {option.shown for option in OPTIONS.values()} <= {*shown, *(one.split(" ")[0] for one in shown)}
    assert set(re.findall(r"\(commands/(.*?)\.md\)", REFERENCE["commands_page"]())) == set(COMMANDS)
    memory = REFERENCE["command_page"](find("memory"))
    assert "| `--micro-batch N` | Sequences per GPU in one forward pass (default: 1) |" in memory
    assert "`none` `lora` `dora`" in memory or "`lora` `dora`" in memory


def test_links_lead_to_where_things_are_in_the_site() -> None:
    root = pathlib.Path(ROOT)
    wanted: set[pathlib.Path] = set()
    text = (
        "[a](../src/napkin/term.py) [b](../README.md) [c](fits.md#x) [d](#y) [e](https://x.org)\n```sh\n[f](g)\n```\n"
    )
    moved = SITE["staged"](text, root / "docs" / "plan.md", "plan.md", wanted)
    assert moved == (
        "[a](source/src/napkin/term.py.md) [b](index.md) [c](fits.md#x) [d](#y) [e](https://x.org)\n"
        "```sh\n[f](g)\n```\n"
    )
    assert wanted == {root / "src" / "napkin" / "term.py"}
    with pytest.raises(LookupError, match=r"nowhere\.md"):
        SITE["staged"]("[a](nowhere.md)", root / "docs" / "plan.md", "plan.md", wanted)


def test_the_check_finds_what_leads_nowhere_and_what_is_loaded_from_elsewhere(tmp_path: pathlib.Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<h1 id="here">b</h1><a href="..">home</a>')
    right = '<a href="b/#here">b</a><a href="https://x.org">out</a><a href="mailto:a@b.c">c</a>'
    (tmp_path / "index.html").write_text(right)
    assert SITE["problems"](tmp_path) == []
    wrong = '<a href="b/#there">b</a><a href="c/">c</a><script src="https://cdn.org/x.js"></script>'
    (tmp_path / "index.html").write_text(wrong)
    (tmp_path / "s.css").write_text("@import url('https://fonts.org/x');")
    assert SITE["problems"](tmp_path) == [
        "index.html: no such heading: b/#there",
        "index.html: no such page: c/",
        "index.html: loads https://cdn.org/x.js",
        "s.css: loads https://fonts.org/x",
    ]

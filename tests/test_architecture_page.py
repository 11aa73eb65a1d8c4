"""docs/architecture.md names functions that are there and are called, and shows the packages as they are."""

from __future__ import annotations

import os
import re
import runpy
import sys
from types import FrameType
from typing import Any

import pytest

from napkin.commands.question import model
from tests.conftest import ROOT, run_line

with open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as _file:
    PAGE = _file.read()
NAMED = re.findall(r"\[`([a-z]\w*)`\]\(\.\./(src/napkin/[\w/]+\.py)\)", PAGE)
(COMMAND,) = re.findall(r"^napkin (.*)$", PAGE, re.MULTILINE)


def test_the_functions_named_are_called_by_that_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_BUILT", [])  # no model that an earlier test built
    called: set[tuple[str, str]] = set()

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            called.add((code.co_name, os.path.relpath(code.co_filename, ROOT)))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        assert run_line(COMMAND).status == 0
    finally:
        sys.setprofile(before)
    assert len(NAMED) > 15
    for name, path in NAMED:
        assert (name, path) in called, f"docs/architecture.md names {name} in {path}"


@pytest.mark.parametrize("path", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_for_contributors_lead_somewhere(path: str) -> None:
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read()):
            assert os.path.exists(os.path.join(ROOT, target)), target


def test_the_picture_shows_the_packages_as_they_are() -> None:
    tool = runpy.run_path(os.path.join(ROOT, "tools", "picture.py"))
    assert tool["PICTURE"].read_text(encoding="utf-8") == tool["drawn"](), "run `python tools/picture.py`"

"""Generated tables: the quick ones are in step with their sources, and every one has a tool that writes it."""

from __future__ import annotations

import pathlib
import runpy

import pytest

from tests.conftest import ROOT

TOOLS = pathlib.Path(ROOT, "tools")


GENERATE = runpy.run_path(str(TOOLS / "generate.py"))


@pytest.mark.slow
def test_tables_are_in_step_with_what_people_edit(capsys: pytest.CaptureFixture[str]) -> None:
    assert runpy.run_path(str(TOOLS / "tables.py"))["main"](["--check"]) == 0, capsys.readouterr().err


def test_every_generated_table_is_written_by_a_tool_that_is_there() -> None:
    folder = pathlib.Path(ROOT, "src", "napkin", "_tables")
    tools = [step.tool.split()[0] for step in (*GENERATE["STEPS"], *GENERATE["BY_HAND"])]
    assert all((TOOLS / tool).exists() for tool in tools)
    for path in folder.glob("*.py"):
        if path.name != "__init__.py":
            head = path.read_text(encoding="utf-8").partition("\n")[0]
            assert any(f"tools/{tool}" in head for tool in tools), path.name


def test_what_changed_is_named_and_can_be_put_back(tmp_path: pathlib.Path) -> None:
    step = type(GENERATE["STEPS"][0])("a tool", ("*.py",), "")
    same, other, new = (tmp_path / name for name in ("same.py", "other.py", "new.py"))
    same.write_text("1")
    other.write_text("2")
    before = GENERATE["contents"]((step,), tmp_path)
    other.write_text("3")
    new.write_text("4")
    stale = GENERATE["changed"](before, GENERATE["contents"]((step,), tmp_path))
    assert stale == [new, other]
    GENERATE["restore"](before, stale)
    assert GENERATE["contents"]((step,), tmp_path) == before


def test_the_numbers_that_moved_are_named() -> None:
    before, after = b"| median | 6.4 % |\nwords\n", b"| median | 6.5 % |\nother words\n"
    assert GENERATE["moved_numbers"](before, after) == ["| median | % |: 6.4 \u2192 6.5"]
    many = [b"\n".join(b"row %d" % (k * n) for n in range(1, 100)) for k in (1, 2)]
    assert GENERATE["moved_numbers"](*many)[-1] == "and 59 more"

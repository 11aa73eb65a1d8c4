"""Help: headings, defaults, examples, length; the overview; the same text from any typer."""

from __future__ import annotations

import re

import pytest

from napkin.cli.overview import ASKED
from napkin.commands.command import MODULES, find
from napkin.options.registry import OPTIONS, SECOND_LEVEL
from tests.conftest import Napkin

SENTENCES = [pytest.param(name, id=name) for name in MODULES]


@pytest.mark.parametrize("name", SENTENCES)
def test_help_fits_a_screen_of_sixty_lines(napkin: Napkin, name: str) -> None:
    for level in ("--help", "-h", "--help-all"):
        lines = napkin([name, level]).out.splitlines()
        assert max(map(len, lines)) <= 80
        assert level == "--help-all" or len(lines) <= 60


@pytest.mark.parametrize("name", SENTENCES)
def test_options_stand_under_headings(napkin: Napkin, name: str) -> None:
    text = napkin([name, "--help"]).out
    headings = re.findall(r"^[A-Z]\w+:$", text, re.M)
    options = re.findall(r"^  (?:-\w, )?--[a-z]", text, re.M)
    assert len(headings) >= 3 or len(options) <= 12
    assert text.count(f"napkin {name} ") >= min(2, len(find(name).examples))


def test_each_default_is_shown(napkin: Napkin) -> None:
    for name in MODULES:
        command = find(name)
        text = " ".join(napkin([name, "--help-all"]).out.split())
        for option, default in command.defaults.items():
            shown = default if isinstance(default, str) else "on" if default else "off"
            assert re.search(rf"--{option} (?:(?! --).)*?\(default: {re.escape(shown)}\)", text), (name, option)


def test_what_the_first_level_leaves_out_is_in_the_second(napkin: Napkin) -> None:
    first, every = napkin("memory --help").out, napkin("memory --help-all").out
    assert "napkin memory --help-all lists" in first
    assert "--chunk-layers" not in first
    assert "--chunk-layers" in every
    assert set(OPTIONS) >= SECOND_LEVEL


def test_the_first_level_has_the_options_of_its_examples(napkin: Napkin) -> None:
    said = napkin("serve --help").out
    assert "--prompt-tokens" in said
    assert "--response-tokens" in said
    assert "--prompt-tokens" not in napkin("memory --help").out


def test_help_by_name(napkin: Napkin) -> None:
    assert napkin("help memory").out == napkin("memory --help").out == napkin("memory help").out
    assert napkin("help").out == napkin("--help").out == napkin("-h").out
    assert napkin("help nonsense").status == 2


def test_the_overview_is_sorted_by_what_people_ask(napkin: Napkin) -> None:
    text = napkin("--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert "How many GPUs do I need" in text
    for name in MODULES:
        assert len(re.findall(rf"^  {name} ", text, re.M)) == 1
    for _, lines in ASKED:
        for line in lines:
            assert line.split()[0] in MODULES


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("watch", "watch LOG [MODEL] [OPTIONS]"),  # the model is the second word, and need not be given
        ("data", "data [WHAT] [FILE] [OPTIONS]"),
        ("memory", "memory MODEL [OPTIONS]"),
    ],
)
def test_the_usage_line_has_arguments_in_their_order(napkin: Napkin, line: str, usage: str) -> None:
    assert napkin(f"{line} --help").out.startswith(f"Usage: napkin {usage}\n")


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["data", "lengths"], "FILE is missing"),
        (["data", "widths", "a.jsonl"], "WHAT: 'widths' is not one of lengths"),
        (["watch"], "LOG is missing"),
        (["tensor", "4y"], "SHAPE: '4y' is not a shape"),
        (["read", ""], "FILE: it is empty"),
    ],
)
def test_messages_name_arguments_as_the_usage_line_does(napkin: Napkin, words: list[str], begins: str) -> None:
    outcome = napkin(words)
    assert outcome.status == 2
    assert outcome.errors[0].removeprefix("error: ").startswith(begins)


@pytest.mark.parametrize("name", SENTENCES)
def test_help_is_no_wider_than_a_narrow_terminal(napkin: Napkin, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its sentences wrap at the terminal's width; examples and names, which are pasted, break at blanks only."""
    monkeypatch.setenv("COLUMNS", "60")
    lines = napkin([name, "--help"]).out.splitlines()
    wide = [line for line in lines if len(line) > 60]
    assert all(line.startswith(("Usage:", "  napkin ", "        --", "  --")) for line in wide)
    wrapped = napkin([name, "--help-all"]).out
    monkeypatch.setenv("COLUMNS", "200")
    full = napkin([name, "--help-all"]).out
    assert re.sub(r"[\s\\]+", " ", wrapped) == re.sub(r"[\s\\]+", " ", full)
    assert max(map(len, full.splitlines())) <= 80

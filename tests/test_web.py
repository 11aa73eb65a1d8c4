"""What the page in a browser is made of: the form, and answers as plain data. The browser itself: `make test-page`."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from typing import Any

import pytest

from napkin.cli.known import offered
from napkin.cli.web_answer import answered
from napkin.cli.web_form import HIDDEN, QUESTIONS, STOPS, form
from napkin.commands.command import find
from napkin.options.registry import OPTIONS
from napkin.render.chart import Chart, Series
from napkin.render.svg import figures
from napkin.units import Unreadable
from tests.conftest import ROOT, Napkin

PAGE = runpy.run_path(os.path.join(ROOT, "tools", "page.py"))
FSDP = {"model": "llama3-8b", "gpus": "8", "hardware": "h100", "zero": "3"}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.command)
def test_every_option_of_a_question_is_a_field(question: Any) -> None:
    command = find(question.command)
    drawn: Any = next(one for one in form()["questions"] if one["command"] == question.command)  # type: ignore[attr-defined]
    files = {name for name in command.names if OPTIONS[name].metavar == "FILE"} - {"model"}
    assert set(drawn["fields"]) == {*command.names, *command.figures} - HIDDEN - files
    placed = [*drawn["first"], *(name for group in drawn["groups"] for name in group["fields"])]
    assert sorted(placed) == sorted(drawn["fields"])
    assert {*question.start, *question.first} <= set(drawn["fields"])
    for name, field in drawn["fields"].items():
        assert field["help"]
        assert tuple(field["choices"]) == OPTIONS[name].choices
        assert field["listed"] == bool(offered(name) and not field["choices"])


@pytest.mark.parametrize("name", STOPS)
def test_sliders_stop_at_texts_that_the_option_reads_in_order(name: str) -> None:
    values = [OPTIONS[name].parse(text) for text in STOPS[name]]
    assert all(isinstance(one, (int, float)) for one in values)
    assert values == sorted(set(values))  # type: ignore[type-var]
    with pytest.raises(Unreadable):
        OPTIONS[name].parse("many")


@pytest.mark.parametrize(
    ("command", "texts"),
    [(one.command, dict(one.start)) for one in QUESTIONS] + [("memory", {**FSDP, "max": "micro-batch", "sp": False})],
)
def test_an_answer_is_that_of_the_command_line(napkin: Napkin, command: str, texts: dict[str, Any]) -> None:
    found = answered(command, texts, explain=True)
    if found["status"]:
        problems: Any = found["problems"]
        said = napkin(" ".join(found["line"])[len("napkin ") :])  # type: ignore[arg-type]
        assert said.err.splitlines()[0] == f"error: {problems[0]['message']}"
        return
    line = " ".join(found["line"])[len("napkin ") :]  # type: ignore[arg-type]
    assert json.loads(str(found["json"])) == json.loads(napkin(f"{line} --json --explain").out)
    tree: Any = found["tree"]
    assert set(tree["published"]) <= set(tree["terms"])
    assert all(part in tree["terms"] for term in tree["terms"].values() for part in term["parts"])


def test_another_question_takes_over_the_options_that_it_has() -> None:
    drawn: Any = {one["command"]: one for one in form()["questions"]}  # type: ignore[attr-defined]
    for before in QUESTIONS:
        for after in QUESTIONS:
            kept = {name: text for name, text in before.start.items() if name in drawn[after.command]["takes"]}
            begun = {name: text for name, text in after.start.items() if name != "params" or "model" not in kept}
            found = answered(after.command, {**begun, **kept})
            assert found["problems"] == [], (before.command, after.command)


def test_pictures_have_the_answers_numbers_and_escape_every_text() -> None:
    found: Any = answered("memory", FSDP, width=600)
    (picture,) = found["figures"]
    values = json.loads(found["json"])["values"]
    wide = [float(one) for one in re.findall(r'y="109" width="([\d.]+)"', picture)]  # the fifth row: what is used
    scale = 600 - 130 - 46  # pixels of the capacity, which is the most that is drawn
    assert sum(wide) == pytest.approx(scale * values["memory/total"] / values["memory/capacity"], abs=1)
    assert found["colors"][:2] == ["parameters", "gradients"]
    hostile = Chart("rows", "<b>", series=(Series("", ('<img src="x">', "whole"), (1.0, 1.0)),))
    (picture,) = figures((hostile,), 300)
    assert "<img" not in picture
    assert "&lt;img" in picture


def test_problems_name_the_fields_that_they_are_about() -> None:
    found: Any = answered("memory", {**FSDP, "gpus": "8x", "zero": "5"})
    assert [(one["option"], one["message"]) for one in found["problems"]] == [
        ("gpus", "--gpus: '8x': unknown unit 'x'"),
        ("zero", "--zero: '5' is not one of 0, 1, 2, 3"),
    ]
    found = answered("memory", {**FSDP, "model": "lama3-8b"})
    assert [one["option"] for one in found["problems"]] == ["model"]
    found = answered("memory", {**FSDP, "model": "./config.json"})
    assert (found["status"], found["problems"][0]["option"]) == (2, "model")


def test_remedies_come_in_a_second_message_and_can_be_applied() -> None:
    first: Any = answered("memory", {**FSDP, "seq": "8192"}, advice=False)
    second: Any = answered("memory", {**FSDP, "seq": "8192"})
    assert first["screen"]["more"] is None
    assert json.loads(first["json"])["values"] == json.loads(second["json"])["values"]
    one = second["remedies"][0]
    assert one["change"] == second["screen"]["more"]["rows"][0][0]
    assert answered(one["command"], one["texts"])["screen"]["headline"][0]["text"] == "FITS"  # type: ignore[index]


def test_a_text_that_looks_like_an_option_stays_a_value() -> None:
    found: Any = answered("params", {"model": "--json"})
    assert found["status"] == 2
    found = answered("memory", {**FSDP, "recompute": "--json"})
    assert found["problems"][0]["option"] == "recompute"


def test_the_page_holds_the_lectures_answers_and_loads_only_what_it_has() -> None:
    cards = PAGE["lecture"]()
    assert "<b>143.9 days</b>" in cards
    assert "<b>40.00 B parameters</b>" in cards
    gone = [*PAGE["LEFT_OUT"], "numpy", "yaml", "typer", "pydantic"]
    modules = [name.removesuffix(".py").strip("/").replace("/", ".") for name in gone]
    script = f"""
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name in {modules!r}: raise ImportError(name)
sys.meta_path.insert(0, Gone())
from napkin.cli.web_answer import answered
from napkin.cli.web_form import QUESTIONS
for one in QUESTIONS: print(answered(one.command, one.start, explain=True)["status"])
print(answered("train-time", {{"params": "70B", "tokens": "15T", "gpus": "1024", "hardware": "h100"}})["status"])
print(answered("memory", {{"model": "llama3-70b", "hardware": "h100"}})["status"])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split() == ["0"] * (len(QUESTIONS) + 2), run.stderr

"""What the tests share: the command line run inside this process, with what it printed and its exit status."""

from __future__ import annotations

import functools
import gc
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from napkin.architectures import build
from napkin.cli import main
from napkin.cli.reader import read
from napkin.commands.command import ask, named
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from, load_config
from napkin.operations.model import Model
from napkin.render import render
from napkin.render.answer import Answer
from napkin.render.screen import Display

# Deterministic, so that a failure seen once is seen again; timing is not what these tests are about.
settings.register_profile(
    "napkin", deadline=None, derandomize=True, max_examples=100, suppress_health_check=list(HealthCheck)
)
settings.load_profile("napkin")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Outcome:
    """What one command line did."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.out)
        return data

    @property
    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = self.data["values"]
        return values

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    @property
    def hints(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("hint: ")]


Napkin = Callable[..., Outcome]
"""The type of the fixture `napkin`."""


def run_line(line: str | list[str], stdin: str = "") -> Outcome:
    """Run `napkin LINE` in this process."""
    argv = shlex.split(line) if isinstance(line, str) else line
    out, err = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr, sys.stdin
    text_in = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    sys.stdout, sys.stderr, sys.stdin = out, err, text_in
    try:
        status = main(argv)
    finally:
        sys.stdout, sys.stderr, sys.stdin = kept
    return Outcome(status, out.getvalue(), err.getvalue())


@functools.cache
def answered(line: str) -> Answer:
    """Return the answer to a line that reads nothing but what napkin ships: tests that look at it share one."""
    command, words = named(shlex.split(line))
    return ask(command, read(command, words).given)


def written(line: str, form: str = "text", **view: Any) -> str:
    """Return that answer as it is written in a form."""
    return render(answered(line), form, Display(**view))


def model_of(fields: Mapping[str, Any], *ignorable: str) -> Model:
    """The model of a config.json with these fields."""
    return build(config_from("a test", Document("a test", fields), dict(fields)), ignorable)


def model(**fields: Any) -> Model:
    """The same, its fields one by one."""
    return model_of(fields)


def preset(name: str) -> Model:
    return build(load_config(name))


SLOW = {
    "test_tuning_runs.py::test_the_errors_of_published_runs": "every published run of fine-tuning",
    "test_activations_in_torch.py::test_a_training_step": "whole training steps of plain torch, traced",
    "test_activations.py::test_saved_bytes_of_drawn_configs": "a thousand traced layers",
    "test_bench_": "the benchmark itself, on a fake device and on the CPU",
    "test_docs.py::test_the_page_says": "every example of the documentation",
    "test_evidence.py": "every published step, with sources held out",
    "test_evidence_rows.py::test_no_word_of": "every word of the published rows",
    "test_evidence_rows.py::test_a_user_s_prose": "every published row, read from prose",
    "test_evidence_runs.py::test_the_verdict_on_an_mfu": "the FLOPs of every published step",
    "test_fuzz.py::test_drawn_questions": "more than a thousand drawn questions",
    "test_fuzz.py::test_closed_and_full_streams": "an interpreter for each stream",
    "test_ignored.py::test_no_option_is_ignored": "six hundred questions",
    "test_laws.py": "properties of hundreds of drawn networks and layouts",
    "test_live.py::test_an_optimizer_s_step": "a step of every optimizer of torch, traced",
    "test_memory_intervals.py": "the published figures of memory, with frameworks left out",
    "test_memory_published.py": "every published figure of memory",
    "test_memory_shown.py::test_every_suggestion": "each suggestion asked again",
    "test_next.py::test_what_is_proposed": "three hundred questions, and what each proposes",
    "test_order.py": "properties of drawn pipelines",
    "test_package.py": "builds the wheel and installs it",
    "test_packages.py::test_help": "an interpreter for each library and command",
    "test_plan.py": "searches of thousands of layouts",
    "test_plan_impossible.py": "the same",
    "test_renamed.py::test_memory_lora_and_time": "each structure of network four times",
    "test_schema.py::test_an_answer_follows": "every command's examples",
    "test_screen.py::test_a_screen": "forty questions at four widths",
    "test_screen.py::test_quiet_is": "the same questions",
    "test_screen.py::test_the_next": "the same questions, and what each proposes",
    "test_term.py::test_every_example": "every command's examples in every form",
    "test_time.py::test_every_inverse": "a hundred command lines four times each",
    "test_traced.py": "networks in plain torch, traced",
}
"""What `make test-fast` leaves out: the beginning of a test's id, and why it takes seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests."""
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(tuple(SLOW)):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep what collection made, ten thousand tests and torch, out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # as the command sets it


@pytest.fixture
def napkin() -> Napkin:
    """`napkin("train-time --params 70B …")` → Outcome."""
    return run_line


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run from the project's root, as its documentation's examples do."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def write(tmp_path: Any) -> Any:
    """`write("name", text or mapping)` → path."""

    def put(name: str, content: Any) -> str:
        path = os.path.join(tmp_path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path

    return put

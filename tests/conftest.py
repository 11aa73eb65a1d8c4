"""What the tests share: the command line run inside this process, with what it printed and its exit status."""

from __future__ import annotations

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
from napkin.inputs.load import Document
from napkin.inputs.model import config_from, load_config
from napkin.operations.model import Model

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


def model_of(fields: Mapping[str, Any], *ignorable: str) -> Model:
    """The model of a config.json with these fields."""
    return build(config_from("a test", Document("a test", fields), dict(fields)), ignorable)


def model(**fields: Any) -> Model:
    """The same, its fields one by one."""
    return model_of(fields)


def preset(name: str) -> Model:
    return build(load_config(name))


@pytest.fixture
def napkin() -> Napkin:
    """`napkin("train-time --params 70B …")` → Outcome."""
    return run_line


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run from the project's root, as its documentation's examples do."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")

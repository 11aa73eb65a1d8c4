"""An afternoon of a newcomer: each addition is made here, in the one place where it belongs, and works at once."""

from __future__ import annotations

import pathlib
import sys
from types import ModuleType

import pytest

from napkin.commands.command import MODULES, Command
from napkin.commands.inputs import Inputs
from napkin.options.option import Option
from napkin.options.registry import OPTIONS
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.term import leaf, multiply
from napkin.training.optimizers import OPTIMIZERS, State
from napkin.units import degree
from tests.conftest import Napkin

CARD = """
accelerators:
  abacus-a1:
    vendor: Abacus
    generation: other
    peak_flops: {bf16: 500TFLOP/s}
    memory: {bytes: 100GB, bandwidth: 4TB/s}
"""


def test_an_accelerator_is_an_entry_of_a_file(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(CARD, encoding="utf-8")
    machine = f"--hardware abacus-a1 --hardware-file {path} --json"
    values = napkin(f"train-time --params 1B --tokens 20B --gpus 8 --mfu 0.5 {machine}").values
    assert values["time"] == 6 * 1e9 * 20e9 / (8 * 500e12 * 0.5)
    assert napkin(f"max-params --gpus 8 {machine}").values["params/max"] == 8 * 100e9 / 16


def test_an_optimizer_is_a_record(napkin: Napkin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three states in the parameter's own format: one more than AdamW's."""
    triple = replace(OPTIMIZERS["adamw"], name="triple", states=tuple(State(name) for name in ("a", "b", "c")))
    monkeypatch.setitem(OPTIMIZERS, "triple", triple)
    parameters = napkin("params gpt2 --json").values["params/total"]
    values = napkin("memory gpt2 --precision fp32 --optimizer triple --json").values
    assert values["memory/optimizer"] == 3 * 4 * parameters
    assert napkin("optimizer triple --json").status == 0


def test_a_command_is_a_module_and_an_option_one_entry(napkin: Napkin, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(inputs: Inputs) -> Answer:
        shelves = leaf("shelves", inputs.integer("shelves", "how many?"), "1")
        return Answer("books", "books of a library", [multiply("books", shelves, leaf("each", 40, "1"))])

    module = ModuleType("napkin.commands.books")
    module.COMMAND = Command("books", "Books of a library", run, options=("shelves",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(MODULES, "books", ("books", "Books of a library"))
    option = Option("shelves", degree, "How many shelves", metavar="COUNT")
    monkeypatch.setitem(OPTIONS, "shelves", option)
    assert napkin("books --shelves 12 --json").values["books"] == 480
    assert "each" in napkin("books --shelves 12 --explain").out
    assert napkin("books").status == 2
    assert "--shelves" in napkin("books --help").out

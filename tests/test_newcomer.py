"""An afternoon of a newcomer: each addition is made here, in the one place where it belongs, and works at once."""

from __future__ import annotations

import json
import pathlib
import sys
from types import ModuleType
from typing import Any

import pytest

from napkin import architectures
from napkin._tables import class_defaults
from napkin.architectures.blocks import NormStyle, Operations
from napkin.architectures.families.decoders.llama import LLAMA
from napkin.architectures.mixture import Feed
from napkin.architectures.record import Architecture, like
from napkin.commands.command import MODULES, Command
from napkin.commands.inputs import Inputs
from napkin.elementwise import Number
from napkin.inputs.model import Config
from napkin.operations.bases import Elementwise
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Weight
from napkin.options.option import Option
from napkin.options.registry import OPTIONS
from napkin.record import record, replace
from napkin.render.answer import Answer
from napkin.term import leaf, multiply
from napkin.training.optimizer import State
from napkin.training.optimizers import OPTIMIZERS
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
        return Answer("books", [multiply("books", shelves, leaf("each", 40, "1"))])

    module = ModuleType("napkin.commands.books")
    module.COMMAND = Command("books", "Books of a library", run, options=("shelves",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(MODULES, "books", ("books", "Books of a library"))
    option = Option("shelves", degree, "How many shelves", metavar="COUNT")
    monkeypatch.setitem(OPTIONS, "shelves", option)
    assert napkin("books --shelves 12 --json").values["books"] == 480
    assert napkin("books --shelves 12").out.split() == ["books", "480"]
    assert "each" in napkin("books --shelves 12 --explain").out
    assert napkin("books").status == 2
    assert "--shelves" in napkin("books --help").out


SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
SHAPE |= {"vocab_size": 97, "max_position_embeddings": 128}


def add(monkeypatch: pytest.MonkeyPatch, one: Architecture) -> None:
    """Put a record into a module of its own, and into the index that `make tables` generates."""
    module = ModuleType(f"napkin.architectures.families.decoders.{one.model_type}")
    module.ARCHITECTURES = (one,)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(architectures.MODULES, one.model_type, f"decoders.{one.model_type}")
    monkeypatch.setitem(class_defaults.CLASS_DEFAULTS, one.model_type, dict(one.defaults))


def config_of(folder: pathlib.Path, model_type: str) -> str:
    """Write a small config.json of a model_type."""
    path = folder / f"{model_type}.json"
    path.write_text(json.dumps({"model_type": model_type, **SHAPE}), encoding="utf-8")
    return str(path)


def values(napkin: Napkin, line: str) -> dict[str, Any]:
    outcome = napkin(f"{line} --json")
    assert outcome.status == 0, outcome.err
    return outcome.values


def test_a_relative_of_llama_is_its_difference(
    napkin: Napkin, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Its norms are layer norms with a bias, computed in fp32: 2·3 + 1 biases of 64."""
    add(monkeypatch, like(LLAMA, "oddnorm", norm=NormStyle("layer", "fp32", bias=True)))
    plain, odd = config_of(tmp_path, "llama"), config_of(tmp_path, "oddnorm")
    more = values(napkin, f"params {odd}")["params/total"] - values(napkin, f"params {plain}")["params/total"]
    assert more == 7 * 64
    setting = "--gpus 8 --hardware h100 --zero 3 --micro-batch 1 --seq 128"
    assert values(napkin, f"memory {odd} {setting}")["memory/activations"] > 0
    assert values(napkin, f"step {odd} {setting}")["step/time"] > 0


@record
class Squared(Elementwise):
    """(w·x)², elementwise, with a learned vector w."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.width,)),)

    def traffic(self) -> tuple[Number, Number]:
        return 2 * 2 * self.width, 3 * 2 * self.width

    def lower(self, run: Lowering) -> Value:
        scaled = run.tape.multiply(run.read(self).tensor, run.weight(self.width))
        return Value(run.tape.power(scaled), self.width)


def test_an_operation_of_a_new_kind_is_a_class(
    napkin: Napkin, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """It follows each MLP. Its multiplication keeps x, and its square keeps w·x: two tensors of 64 bf16 a token."""

    def squared(config: Config, usual: Feed) -> Feed:
        def feed(source: str, **options: Any) -> Operations:
            block = usual(source, **options)
            return (*block, Squared("squared", (block[-1].name,), 64))

        return feed

    add(monkeypatch, like(LLAMA, "squared", feed_forward=squared))
    plain, new = config_of(tmp_path, "llama"), config_of(tmp_path, "squared")
    counts = [values(napkin, f"params {model}")["params/total"] for model in (plain, new)]
    assert counts[1] - counts[0] == 3 * 64
    setting = "--precision bf16-pure --micro-batch 1 --seq 128"
    kept = [values(napkin, f"memory {model} {setting}")["memory/activations"] for model in (plain, new)]
    assert kept[1] - kept[0] == 3 * 2 * 128 * 64 * 2
    assert values(napkin, f"step {new} --gpus 8 --hardware h100 {setting}")["step/time"] > 0

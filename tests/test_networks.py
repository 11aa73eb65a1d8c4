"""Small networks of every model_type against the classes that they stand for.

data/tiny_networks.json was measured with Hugging Face transformers 5.23.0 and torch 2.13: parameters of the class named
under `architectures` on the meta device (tensors walked, shared ones once; the top-k of routed experts are active), and
forward FLOPs of 2 sequences of 24 tokens as FlopCounterMode counts them with eager attention, depthwise convolutions
left out. Sizes differ from one another, so that no two dimensions can be mixed up unseen.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from napkin.architectures import MODULES
from napkin.counting import flops
from napkin.counting.params import params
from tests.conftest import model_of

with open(os.path.join(os.path.dirname(__file__), "data", "tiny_networks.json"), encoding="utf-8") as file:
    ROWS: list[dict[str, Any]] = json.load(file)

TYPES = sorted({row["config"]["model_type"] for row in ROWS})
RUN = sorted({row["config"]["model_type"] for row in ROWS if "forward" in row})
"""Those whose forward pass was run under the counter."""


def rows_of(model_type: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["config"]["model_type"] == model_type]


@pytest.mark.parametrize("model_type", TYPES)
def test_parameters_are_those_of_the_class(model_type: str) -> None:
    for row in rows_of(model_type):
        config = row["config"]
        counted = params(model_of(config))
        assert {path: counted[f"params/{path}"].value for path in row["params"]} == row["params"], config


@pytest.mark.parametrize("model_type", RUN)
def test_forward_flops_are_those_of_the_counter(model_type: str) -> None:
    for row in rows_of(model_type):
        if "forward" in row:
            config = row["config"]
            model = model_of(config)
            assert flops.forward(model, flops.works(model, 2, 24)).value == row["forward"], config


def test_most_model_types_are_measured() -> None:
    assert len(set(TYPES) & set(MODULES)) > 90
    assert sum("forward" in row for row in ROWS) > 90

"""What of a vision tower's backward pass runs where parts of the model are frozen."""

from __future__ import annotations

import json

import pytest

from napkin.architectures import implementation_of
from napkin.operations.frozen import Frozen
from napkin.operations.trained import as_trained

from .conftest import model_of, run_line
from .test_vision import SMALL


@pytest.mark.parametrize(
    ("part", "layers", "tower", "projector"),
    [
        ("", None, (1, 1), (1, 1)),
        ("vision", None, (0, 0), (1, 0)),  # the projector's weights learn; no gradient goes on to the tower
        ("projector", None, (0, 0), (0, 0)),
        ("", 0, (0, 0), (0, 0)),  # the first layers of the language model, and what is before them
    ],
)
def test_a_frozen_tower_has_no_backward_pass(
    part: str, layers: int | None, tower: tuple[int, int], projector: tuple[int, int]
) -> None:
    """(whether gradients of weights, of inputs are computed) for the last linear layer of the tower, and the first of
    what has weights in the projector, its norm."""
    model = model_of(SMALL)
    vision = as_trained(model, Frozen(implementation_of("hf", model.family), layers, part)).vision
    assert vision is not None
    found = [op.learning for op in vision.tower.stacks[0].layers[-1].operations if op.linear() is not None][-1]
    assert (found.weights, found.inputs) == tower
    found = next(op.learning for op in vision.projector.stacks[0].before if op.weights())
    assert (found.weights, found.inputs) == projector


@pytest.mark.parametrize(
    ("model_type", "tower", "projector"),
    [("molmo2", 382_505_936, 120_836_608), ("got_ocr2", 89_670_912, 6_947_840), ("florence2", 90_368_000, 1_101_824)],
)
def test_a_frozen_tower_that_is_known_by_its_tensors_has_no_gradients(
    model_type: str, tower: int, projector: int
) -> None:
    """Four bytes for each parameter that is trained, less those of the class's vision_tower, and of its
    multi_modal_projector (transformers 5.24.0, the parameters of the named children)."""
    config = {"model_type": model_type, "text_config": {"num_hidden_layers": 2}, "vision_config": {}}
    if model_type == "got_ocr2":
        config["text_config"] |= {"model_type": "qwen2", "hidden_size": 1024, "vocab_size": 151860}  # type: ignore[operator]

    def gradients(options: str) -> int:
        line = f"memory - --seq 64 --precision fp32 --json {options}".split()
        return int(run_line(line, stdin=json.dumps(config)).values["memory/gradients"])

    whole = gradients("")
    assert whole - gradients("--freeze vision") == 4 * tower
    assert whole - gradients("--freeze vision,projector") == 4 * (tower + projector)

"""What of a vision tower's backward pass runs where parts of the model are frozen."""

from __future__ import annotations

import pytest

from napkin.architectures import implementation_of
from napkin.operations.frozen import Frozen
from napkin.operations.trained import as_trained

from .conftest import model_of
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

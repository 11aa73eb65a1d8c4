"""Words of a screen that a reader takes at their value."""

from __future__ import annotations

import pytest

import napkin
from napkin.cli.verbs import command_of
from napkin.commands.screens.compare import _times
from napkin.errors import NapkinError


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("explain memory llama3-8b", "--explain after the command that gave the number, e.g. napkin memory llama3-8b"),
        ("goodput llama3-70b", "napkin train-time llama3-70b --tokens 1T"),
    ],
)
def test_words_that_are_no_command_are_answered_with_one(words: str, hint: str) -> None:
    with pytest.raises(NapkinError) as found:
        command_of(words.split())
    assert (found.value.hint or "").startswith(hint)


def test_numbers_below_zero_have_no_ratio() -> None:
    assert _times(-77.0, 15.0) == _times(77.0, -15.0) == ""
    assert _times(2.0, 1.0) == "0.5 ×"


def test_a_shape_that_must_fit_is_asked_again_with_recomputation() -> None:
    line = str(napkin.max_params(gpus=32, hardware="a100", like="llama3", zero=3)).rpartition("next: ")[2]
    assert "--recompute full" in line
    full = napkin.max_params(gpus=32, hardware="a100", like="llama3", zero=3, recompute="full")
    assert "--explain" in str(full).rpartition("next: ")[2]

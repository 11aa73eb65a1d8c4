"""Towers and projectors that one model has, and learned queries: the classes' parameters, and FLOPs of an image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.counting.params import params
from napkin.counting.vision import flops_of, params_of
from tests.conftest import ROOT, model_of, run_line

ROWS: list[tuple[str, int, int, int, dict[str, Any]]] = json.loads(
    Path(ROOT, "tests/data/vision_counts.json").read_text(encoding="utf-8")
)["rows"]
FIELDS = {row[0]: {"model_type": row[0], **row[4]} for row in ROWS}


@pytest.mark.parametrize(("model_type", "tokens", "whole", "forward", "config"), ROWS, ids=[row[0] for row in ROWS])
def test_a_tower_counts_as_its_class(
    model_type: str, tokens: int, whole: int, forward: int, config: dict[str, Any]
) -> None:
    model = model_of({"model_type": model_type, **config})
    vision, total = params_of(model)
    assert total.value == whole
    assert vision.value == whole - params(model)["params/total"].value
    seen = flops_of(model, 0, tokens)
    assert (seen[0].value if seen else 0) == forward
    assert bool(seen) != any("not what images take" in note for note in model.notes)


@pytest.mark.parametrize("model_type", ["blip-2", "kosmos-2", "idefics2", "git", "t5gemma2", "molmo2", "lfm3_vl"])
def test_memory_holds_a_projector_that_text_does_not_run(model_type: str) -> None:
    """In fp32 four bytes for each parameter, also if an encoder reads the images."""
    line = ["memory", "-", "--seq", "64", "--precision", "fp32", "--json"]
    answer = json.loads(run_line(line, stdin=json.dumps(FIELDS[model_type])).out)
    assert answer["values"]["memory/parameters"] == 4 * params_of(model_of(FIELDS[model_type]))[1].value
    assert any("memory counts them in" in note for note in answer["notes"])


def test_images_that_queries_read_are_refused_in_memory() -> None:
    answer = run_line(["memory", "-", "--images", "1", "--seq", "64"], stdin=json.dumps(FIELDS["blip-2"]))
    assert answer.status == 3
    assert "learned queries" in answer.err
    answer = run_line(["memory", "-", "--images", "1", "--seq", "64"], stdin=json.dumps(FIELDS["t5gemma2"]))
    assert answer.status == 3
    assert "which its encoder reads" in answer.err


def test_blip_s_decoder_attends_to_the_width_of_its_tower() -> None:
    """Whatever its file says: the class sets it."""
    fields = FIELDS["blip"]
    stated = {**fields, "text_config": {**fields["text_config"], "encoder_hidden_size": 99}}
    assert params(model_of(stated))["params/total"].value == params(model_of(fields))["params/total"].value


def test_a_tower_in_the_words_of_released_files_has_the_layers_that_are_read() -> None:
    """allenai/Molmo2-8B's config.json: vit_config with 27 layers, of which vit_layers reads up to the 25th; the class's
    model.vision_tower and model.multi_modal_projector (transformers 5.24.0) have 382,505,936 and 87,937,536."""
    config = {
        "model_type": "molmo2",
        "text_config": {"model_type": "molmo2_text", "num_hidden_layers": 2},
        "vit_config": {"model_type": "molmo2", "num_hidden_layers": 27, "image_num_pos": 729, "image_patch_size": 14},
        "adapter_config": {"vit_layers": [-3, -9], "intermediate_size": 12288, "text_hidden_size": 4096},
    }
    assert params_of(model_of(config))[0].value == 382_505_936 + 87_937_536

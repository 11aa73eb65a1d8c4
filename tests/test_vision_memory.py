"""Memory of vision-language models: what towers keep was counted on the classes (tools/vision_bytes.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.footprint import memory
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Rank
from napkin.operations.model import Model
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup
from tests.conftest import ROOT, model_of, run_line

DATA = json.loads(Path(ROOT, "tests/data/vision_bytes.json").read_text(encoding="utf-8"))
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}
WIDTH, INNER, DEPTH, GRID = 48, 80, 4, 16
"""Of the small CLIP tower: 28 × 28 pixels in patches of 7 × 7."""


def step_of(model: Model, layout: Layout, policy: str = "bf16", kernel: str = "flash", **more: Any) -> PreparedStep:
    assert model.vision is not None
    implementation = implementation_of("hf", model.family)
    numbers, optimizer = POLICIES[POLICY[policy]], find("adamw")[0]
    tower = model.vision.implementation
    return prepare(model, Setup(implementation, layout, numbers, optimizer, "foreach", kernel, tower=tower, **more))


def rank_of(layout: Layout, name: str = "llava", **more: Any) -> Rank:
    return memory.rank_of(step_of(model_of(DATA["configs"][name]["config"]), layout, **more), 0)


@pytest.mark.parametrize("name", sorted(DATA["configs"]))
def test_what_is_kept_with_images_is_what_the_class_keeps(name: str) -> None:
    config = DATA["configs"][name]
    model = model_of(config["config"])
    rows = [row for row in DATA["rows"] if row[0] == name]
    assert len(rows) == 36  # every mode that was run
    for _, policy, kernel, recompute, sequences, images, saved, casts in rows:
        layout = Layout(
            seq=config["length"],
            micro=sequences,
            images=images,
            image_tokens=config["tokens"],
            recompute=Recompute(recompute),
        )
        rank = memory.rank_of(step_of(model, layout, policy, kernel), 0)
        assert (rank.saved, rank.casts) == (saved, casts), (policy, kernel, recompute, sequences, images)


def test_a_tower_s_weights_are_there_without_images_and_nothing_else() -> None:
    fields = DATA["configs"]["llava"]["config"]
    text = model_of(fields["text_config"])
    alone = prepare(
        text,
        Setup(
            implementation_of("hf", "llama"), Layout(96), POLICIES["bf16-pure"], find("adamw")[0], "foreach", "flash"
        ),
    )
    with_tower, without = rank_of(Layout(96)), memory.rank_of(alone, 0)
    tower = 3 * 49 * WIDTH + (GRID + 2) * WIDTH + 4 * WIDTH  # patches, class token and positions, two norms
    tower += DEPTH * (4 * WIDTH * (WIDTH + 1) + 2 * WIDTH * INNER + INNER + WIDTH + 4 * WIDTH)
    projector = WIDTH * 64 + 64 + 64 * 64 + 64
    assert with_tower.parameters - without.parameters == 2 * (tower + projector)
    assert with_tower.saved == without.saved


def test_a_frozen_tower_keeps_nothing_and_has_no_states() -> None:
    trained, frozen, both = (rank_of(Layout(96, images=1), asleep=part) for part in ("", "vision", "projector"))
    features = GRID * WIDTH * 2 + 2 * GRID * 64 * 2  # what both linear layers and the activation between them read
    text = rank_of(Layout(96)).saved + 96  # the places of images
    assert frozen.saved == text + features + WIDTH * 2  # a view of the tower's result, with the class token
    assert both.saved == text
    assert trained.parameters == frozen.parameters == both.parameters
    unread = 4 * WIDTH * (WIDTH + 1) + 2 * WIDTH * INNER + INNER + WIDTH + 4 * WIDTH + 2 * WIDTH
    assert trained.weights.frozen == 2 * unread  # the last layer and the norm, which LLaVA does not read
    assert both.gradients < frozen.gradients < trained.gradients


def test_recomputation_and_lora_reach_the_tower() -> None:
    layout = Layout(96, images=2)
    assert rank_of(Layout(96, images=2, recompute=Recompute("full"))).saved < rank_of(layout).saved
    lines = [
        f"memory - --images 2 --seq 96 --lora-rank 4 --lora-targets {target} --json" for target in ("fc1", "up_proj")
    ]
    text = json.dumps(DATA["configs"]["llava"]["config"])
    found = [run_line(line, stdin=text) for line in lines]
    assert [one.status for one in found] == [0, 0]  # fc1 is in the tower alone
    states = [one.values["memory/optimizer/exp_avg"] for one in found]
    assert states[0] == 4 * 4 * (DEPTH - 1) * (WIDTH + INNER)  # nothing reads the last layer


def test_a_tower_is_on_the_first_stage_of_a_pipeline() -> None:
    model = model_of(DATA["configs"]["llava"]["config"])
    step = step_of(model, Layout(96, images=1, pp=3, micro_batches=3))
    first, second = memory.rank_of(step, 0), memory.rank_of(step, 1)
    assert sum(first.stage.layers) == sum(second.stage.layers) + DEPTH + 3  # its end, the projector, images in place


def test_images_must_fit_into_the_sequence() -> None:
    text = json.dumps(DATA["configs"]["llava"]["config"])
    assert run_line("memory - --images 6 --seq 96", stdin=text).status == 0
    found = run_line("memory - --images 7 --seq 96", stdin=text)
    assert found.status == 2
    assert "--seq 112" in found.err


def test_a_step_without_images_says_so() -> None:
    text = json.dumps(DATA["configs"]["llava"]["config"])
    found = run_line("memory - --seq 96", stdin=text)
    assert "no images" in found.out
    answer = run_line("memory - --seq 96 --json", stdin=text)
    assert any("without images" in note for note in answer.data["notes"])
    answer = run_line("memory - --seq 96 --images 1 --json", stdin=text)
    assert any("saved activations are exact" in note for note in answer.data["notes"])


def test_freezing_needs_a_tower() -> None:
    assert run_line("memory llama3-8b --freeze vision").status == 2
    text = json.dumps(DATA["configs"]["llava"]["config"])
    assert run_line("memory - --seq 96 --freeze projector", stdin=text).status == 2
    assert run_line("memory - --seq 96 --freeze vision,projector", stdin=text).status == 0


def test_the_time_of_a_step_has_the_tower_s_share() -> None:
    text = json.dumps(DATA["configs"]["llava"]["config"])

    def compute(options: str) -> float:
        found = run_line(f"step - --seq 96 --hardware h100 --gpus 1 {options} --json", stdin=text)
        assert found.status == 0
        seconds: float = found.values["step/compute"]
        return seconds

    once, four = compute("--images 1") - compute(""), compute("--images 4") - compute("")
    assert 0 < once < four
    refused = run_line("step - --seq 96 --hardware h100 --gpus 2 --pp 2 --images 1", stdin=text)
    assert refused.status == 3
    planned = run_line("plan - --seq 96 --hardware h100 --gpus 2 --images 1 --global-batch 4 --json", stdin=text)
    assert planned.status == 0


def test_serving_holds_the_tower_s_weights() -> None:
    fields = DATA["configs"]["llava"]["config"]
    served = [
        run_line("memory - --inference --seq 96 --json", stdin=json.dumps(one)).values["memory/parameters"]
        for one in (fields, fields["text_config"])
    ]
    counted = run_line("params - --json", stdin=json.dumps(fields)).values
    assert served[0] - served[1] == 2 * counted["params/vision"]

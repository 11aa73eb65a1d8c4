"""Multi-token prediction modules in a training step: what they weigh, keep and take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import build
from napkin.counting import flops
from napkin.counting.params import params
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from, load_config
from tests.conftest import preset, run_line

ONE = "deepseek-v3 --gpus 1 --hardware b300 --micro-batch 1 --seq 4096 --framework megatron-core --zero 0"
H, VOCABULARY = 7168, 129_280


def values(line: str) -> dict[str, Any]:
    return run_line(f"{line} --json").values


@pytest.mark.parametrize("name", ["deepseek-v3", "glm4.5-air", "nemotron3-super-120b-a12b"])
def test_a_model_in_training_is_the_model_with_its_modules(name: str) -> None:
    of = preset(name)
    trained = of.predicting
    assert params(trained)["params/total"].value == params(of, mtp=True)["params/total"].value
    over = flops.works(of, 1, 4096)
    assert flops.forward(trained, over).value == flops.forward(of, over, mtp=True).value
    assert trained.depth == of.depth + len(of.extra)
    assert trained.stacks[-1].losses == 1 + len(of.extra)


def test_a_module_of_nemotron_is_an_attention_layer_and_one_with_experts() -> None:
    """Its file: mtp_hybrid_override_pattern `*E`, one module; each layer of the pattern has a norm of its own."""
    of = preset("nemotron3-super-120b-a12b")
    h, counted = 4096, params(of)
    more = params(of, mtp=True)["params/total"].value - counted["params/total"].value
    layers = counted["params/layer/attention"].value + counted["params/layer/moe"].value
    assert more == 2 * h + 2 * h * h + layers + h
    named = [op.name for op in of.extra[0].operations]
    assert len(named) == len(set(named))
    known = {"x", *named}
    assert all(set(op.reads) <= known for op in of.extra[0].operations)


def test_a_note_says_that_modules_are_not_counted_until_they_are() -> None:
    said = "1 multi-token prediction module of the checkpoint not counted"
    assert said in str(run_line(f"step {ONE} --json").data["notes"])
    assert said not in str(run_line(f"step {ONE} --mtp --json").data["notes"])


@pytest.mark.parametrize(("pattern", "left_out"), [("*E", False), ("*Q", True)])
def test_modules_whose_layers_napkin_does_not_know_are_left_out(pattern: str, left_out: bool) -> None:
    fields = dict(load_config("nemotron3-super-120b-a12b").fields) | {"mtp_hybrid_override_pattern": pattern}
    found = build(config_from("x", Document("x", None), fields))
    assert len(found.extra) == (not left_out)
    assert any("are left out" in note for note in found.notes) == left_out


def test_weights_and_logits_of_a_module_are_held() -> None:
    without, with_it = values(f"memory {ONE}"), values(f"memory {ONE} --mtp")
    module = 2 * H + 2 * H * H + params(preset("deepseek-v3"))["params/layer/moe"].value + H
    assert with_it["memory/parameters"] - without["memory/parameters"] == 2 * module
    logits = 4096 * VOCABULARY * 2  # in 16 bits, at least
    assert with_it["memory/activations/saved"] - without["memory/activations/saved"] > logits


def test_a_step_takes_the_share_that_its_flops_say() -> None:
    line = (
        "deepseek-v3 --gpus 64 --hardware b300 --framework megatron-core --tp 1 --ep 8 --micro-batch 4 "
        "--global-batch 1024 --seq 4096"
    )
    without, with_it = values(f"step {line}"), values(f"step {line} --mtp")
    of = preset("deepseek-v3")
    over = flops.works(of, 1, 4096)
    more = flops.forward(of, over, mtp=True).value / flops.forward(of, over).value
    assert with_it["step/compute"] / without["step/compute"] == pytest.approx(more, rel=0.02)
    assert with_it["step/memory_bound"] > without["step/memory_bound"]


@pytest.mark.parametrize("command", ["step", "memory"])
def test_no_module_no_option(command: str) -> None:
    said = run_line(f"{command} llama3-8b --gpus 8 --hardware h100 --mtp")
    assert said.status == 2
    assert "--mtp has no effect here: llama3-8b has no multi-token prediction modules" in said.err


def test_a_row_says_that_modules_were_trained(tmp_path: Path) -> None:
    row = (
        "- {{id: {id}, model: {{preset: {preset}, seq: 4096, mtp: {mtp}}}, hardware: {{chip: H100 SXM 80GB, count: 64, "
        "per_node: 8}}, layout: {{framework: megatron-core, ep: 32, pp: 2, dp: 32, micro_batch: 1, "
        "global_batch: 1280}}, measured: {{step_seconds: 27.6}}}}\n"
    )
    file = tmp_path / "rows.yaml"
    super_ = "nemotron3-super-120b-a12b"
    cases = (("without", super_, "false"), ("with", super_, "true"), ("none", "llama3-8b", "true"))
    file.write_text("schema: steps/1\nrows:\n" + "".join(row.format(id=i, preset=p, mtp=m) for i, p, m in cases))
    found = {one["id"]: one for one in run_line(f"validate {file} --json").data["rows"]}
    assert 1.04 < found["with"]["predicted"] / found["without"]["predicted"] < 1.1  # 81.2 GFLOP a token to 76.3
    assert "llama3-8b has no multi-token prediction modules" in found["none"]["why"]

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


@pytest.mark.parametrize(
    "line",
    [
        "step llama3-8b --gpus 8 --hardware h100",
        "memory llama3-8b --gpus 8 --hardware h100",
        "plan llama3-8b --gpus 8 --hardware h100",
        "lint llama3-8b --gpus 8 --hardware h100",
        "train-time llama3-8b --gpus 8 --hardware h100 --tokens 1T --mfu 0.4",
        "mfu llama3-8b --hardware h100 --tokens-per-second-per-gpu 9000",
        "checkpoint llama3-8b",
        "params llama3-8b",
        "flops llama3-8b",
    ],
)
def test_no_module_no_option(line: str) -> None:
    said = run_line(f"{line} --mtp")
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


PLANNED = "glm4.5-air --gpus 128 --hardware h100 --seq 4096 --global-batch 1024 --mtp"


def test_a_plan_is_about_the_step_and_the_memory_of_its_modules() -> None:
    rows = [row for row in run_line(f"plan {PLANNED} --json").data["rows"] if row.get("command")]
    for row in rows[:4]:
        line = row["command"].removeprefix("napkin step ")
        assert "--mtp" in line
        timed = values(f"step {line}")
        assert timed["step/time"] == pytest.approx(row["time"])
        assert timed["memory/total"] == pytest.approx(row["memory"])
        assert timed["mfu"] == pytest.approx(row["mfu"])
        held = values(f"memory {line.replace(' --stack megatron-core', '')}")
        assert held["memory/total"] == pytest.approx(row["memory"])


def test_a_run_of_given_mfu_takes_the_flops_of_its_modules() -> None:
    """6N of the active parameters: those of the module are a layer of MLA and experts (7 · 8 + 1 of them), 2h → h, and
    four norms."""
    run = "deepseek-v3 --tokens 14.8T --gpus 2048 --hardware h800 --mfu 0.3"
    time = values(f"train-time {run} --mtp")["time"] / values(f"train-time {run}")["time"]
    active = [values(f"params deepseek-v3 {more}")["params/active"] for more in ("--mtp", "")]
    assert time == pytest.approx(active[0] / active[1])
    rate = "deepseek-v3 --hardware h800 --tokens-per-second-per-gpu 1500"
    mfu = [values(f"mfu {rate} {more}")["mfu/6nd"] for more in ("--mtp", "")]
    assert mfu[0] / mfu[1] == pytest.approx(active[0] / active[1])


def test_a_checkpoint_holds_the_weights_and_states_of_modules() -> None:
    saved = [values(f"checkpoint deepseek-v3 {more}")["checkpoint/bytes"] for more in ("--mtp", "")]
    of = preset("deepseek-v3")
    module = params(of, mtp=True)["params/total"].value - params(of)["params/total"].value
    assert saved[0] - saved[1] == 14 * module  # bf16, and fp32 weights and moments


SIZES = (
    "--num-layers 12 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --bf16 "
    "--micro-batch-size 1 --global-batch-size 256 --padded-vocab-size 102400 --use-distributed-optimizer"
)
MIXED = "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --expert-model-parallel-size 8"
LATENT = "--multi-latent-attention --qk-layernorm --kv-lora-rank 512"


@pytest.mark.parametrize(
    ("sizes", "layer"),
    [
        ("", 4 * 2048 * 2048 + 3 * 2048 * 5440),
        (MIXED, 4 * 2048 * 2048 + 64 * (3 * 2048 * 1408 + 2048)),
        (
            f"{MIXED} {LATENT}",
            2048 * 16 * 192 + 2048 * 576 + 512 + 512 * 16 * 256 + 16 * 128 * 2048 + 64 * (3 * 2048 * 1408 + 2048),
        ),
    ],
)
def test_a_launch_of_sizes_builds_its_modules(tmp_path: Path, sizes: str, layer: int) -> None:
    """Each: norms of both inputs, 2h → h, a layer with its two norms, and a last norm."""
    file = tmp_path / "launch.sh"
    counts = []
    for more in ("", "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.1"):
        file.write_text(f"torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py {SIZES} {sizes} {more}\n")
        counts.append(values(f"params --from {file}")["params/total"])
    assert counts[1] - counts[0] == 2 * (2 * 2048 * 2048 + layer + 5 * 2048)


BRIDGE = """model:
  tensor_model_parallel_size: 2
  expert_model_parallel_size: 64
  mtp_num_layers: {}
train:
  micro_batch_size: 1
  global_batch_size: 2048
  train_iters: 100
"""


def test_a_file_that_names_its_model_says_whether_modules_are_trained(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    line = f"step deepseek-v3 --from {file} --gpus 256 --hardware h100"
    file.write_text(BRIDGE.format("null"))
    without = values(line)["step/time"]
    assert values(f"{line} --mtp")["step/time"] > without
    file.write_text(BRIDGE.format(1))
    assert values(line)["step/time"] == values(f"{line} --mtp")["step/time"]
    assert values(f"{line} --no-mtp")["step/time"] == without
    file.write_text(BRIDGE.format(2))
    said = run_line(line)
    assert said.status == 3
    assert "model.mtp_num_layers: napkin trains as many modules as the model's config.json states" in said.err


def test_a_file_is_refused_that_trains_modules_of_a_model_without_them(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(BRIDGE.format(1))
    said = run_line(f"step qwen3-30b-a3b --from {file} --gpus 256 --hardware h100")
    assert said.status == 3
    assert "qwen3-30b-a3b has no multi-token prediction modules that napkin knows" in said.err


def test_a_pasted_line_trains_modules() -> None:
    line = "step deepseek-v3 --tensor-model-parallel-size 1 --gpus 64 --hardware b200 --expert-model-parallel-size 64"
    assert values(f"{line} --mtp-num-layers 1")["step/time"] == values(f"{line} --mtp")["step/time"]

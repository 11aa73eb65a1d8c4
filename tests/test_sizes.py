"""A bare size in the place of a model: a count if that is enough, a Llama-shaped model where shapes are needed."""

from __future__ import annotations

import pathlib

import pytest

from napkin.architectures import build
from napkin.errors import NapkinError
from napkin.inputs.sizes import size_of
from napkin.planning.llama_shapes import FARTHEST, SHAPES, config_of_size
from napkin.planning.scaling import count
from tests.conftest import Napkin, preset, run_line

RUN = "--tokens 15T --gpus 1024 --hardware h100"


@pytest.mark.parametrize(
    ("text", "size"),
    [("7B", 7 * 10**9), ("70b", 70 * 10**9), ("1.3B", 13 * 10**8), ("125M", 125 * 10**6), ("7e9", 7 * 10**9)],
)
def test_a_number_is_a_size(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["llama3-8b", "gpt2", "8x7b", "meta-llama/7b", "./7B", "7B.json", "-", "7B-chat"])
def test_a_name_is_no_size(text: str) -> None:
    assert size_of(text) is None


@pytest.mark.parametrize(("text", "hint"), [("1m", "1M for million"), ("70,000", ""), ("7", "7B"), ("70%", "70B")])
def test_a_number_that_is_no_size_is_refused(text: str, hint: str) -> None:
    with pytest.raises(NapkinError) as refused:
        size_of(text)
    assert hint in str(refused.value.hint)


def test_an_existing_file_comes_before_a_size(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert size_of("7B") == 7 * 10**9
    (tmp_path / "7B").mkdir()
    assert size_of("7B") is None


@pytest.mark.parametrize(
    ("with_model", "with_params"),
    [
        (f"train-time 70B {RUN} --mfu 0.5", f"train-time --params 70B {RUN} --mfu 0.5"),
        (f"train-time 671B --active-params 37B {RUN}", f"train-time --params 671B --active-params 37B {RUN}"),
        (f"train-time 70B --params 70e9 {RUN}", f"train-time --params 70B {RUN}"),
        (
            "mfu 7B --tokens-per-second-per-gpu 3100 --hardware a100",
            "mfu --params 7B --tokens-per-second-per-gpu 3100 --hardware a100",
        ),
        ("checkpoint 70B --write-bandwidth 10GB/s", "checkpoint --params 70B --write-bandwidth 10GB/s"),
    ],
)
def test_where_a_count_is_enough_it_is_params(napkin: Napkin, with_model: str, with_params: str) -> None:
    one, other = napkin(f"{with_model} --json").data, napkin(f"{with_params} --json").data
    assert one["values"] == other["values"]
    assert "model" not in one["inputs"]


def test_where_shapes_are_needed_it_is_a_model(napkin: Napkin) -> None:
    values = napkin(f"train-time 70B {RUN} --mfu 0.5 --flops palm --seq 8192 --json").values
    named = napkin(f"train-time llama3-70b {RUN} --mfu 0.5 --flops palm --seq 8192 --json").values
    assert values["time"] == named["time"]
    assert napkin("flops --params 7B --json").values == napkin("flops 7B --json").values
    assert "Llama-shaped 7B" in napkin("memory 7B --hardware h100").out.splitlines()[0]
    assert "7B in Llama's shape: 28 layers, 4,096 wide" in napkin("memory 7B --hardware h100").out


@pytest.mark.parametrize("size", ["12M", "50M", "125M", "500M", "1B", "1.3B", "3B", "7B", "13B", "34B", "1T", "10T"])
def test_the_shape_has_the_size_and_divides(size: str) -> None:
    wanted = size_of(size)
    assert wanted is not None
    config, _ = config_of_size(wanted, size)
    model = build(config)
    assert abs(count(model) / wanted - 1) <= FARTHEST
    assert model.depth % 4 == 0
    assert model.heads % model.kv_heads == 0
    assert model.hidden == model.heads * model.head_dim
    assert config.fields == config_of_size(wanted, size)[0].fields


def test_7b_by_hand() -> None:
    """28 layers of 4,096: attention 2·4096·(4096 + 1024), feed-forward 3·4096·13824, two norms; two embeddings."""
    layer = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 13824 + 2 * 4096
    assert count(build(config_of_size(7 * 10**9, "7B")[0])) == 28 * layer + 2 * 128256 * 4096 + 4096


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_published_size_is_the_published_model(name: str) -> None:
    assert count(preset(name)) == SHAPES[name]
    assert build(config_of_size(SHAPES[name], "X")[0]).stacks == preset(name).stacks


def test_sizes_grow_one_with_another() -> None:
    sizes = [int(10**7 * 1.25**n) for n in range(1, 50)]
    counts = [count(build(config_of_size(size, "X")[0])) for size in sizes]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    "line",
    [
        "memory llama3-8b --params 7B --hardware h100",
        "memory 7B --params 8B --hardware h100",
        "step llama3-8b --model gpt2 --hardware h100",
        f"train-time 7B --params 8B {RUN}",
        f"train-time llama3-8b --params 8B {RUN}",
        "checkpoint 7B --params 8B",
    ],
)
def test_two_models_are_a_contradiction(line: str) -> None:
    outcome = run_line(line)
    assert outcome.status == 2
    assert len(outcome.errors) == 1
    assert "contradiction" in outcome.err or "cannot be combined" in outcome.err


def test_a_size_too_small_for_any_shape_is_refused() -> None:
    outcome = run_line("params 2M")
    assert (outcome.status, outcome.errors) == (2, ["error: no model of Llama's shape has 2M parameters"])


def test_the_batch_of_a_training_step_is_the_micro_batch(napkin: Napkin) -> None:
    named = napkin("memory llama3-8b --hardware h100 --micro-batch 4 --json")
    assert napkin("memory llama3-8b --hardware h100 --batch 4 --json").values == named.values
    both = run_line("memory llama3-8b --hardware h100 --batch 4 --micro-batch 2")
    assert both.status == 2
    served = napkin("memory llama3-8b --hardware h100 --inference --batch 4 --json").data
    assert served["inputs"]["batch"]["value"] == 4


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("max-params 7B --gpus 8 --hardware h100", "napkin memory 7B --hardware h100"),
        ("optimizer adamw 7B", "--params 7B"),
        ("data 300B --vocab 50257", "--tokens 300B"),
        ("train-time 7B 1T --gpus 8 --hardware h100", "--tokens 1T"),
        ("memory 1e30", "name a model"),
        ("memory 8x7B --hardware h100", "mixtral-8x7b"),
        ("params 30B-A3B", "qwen3-30b-a3b"),
    ],
)
def test_a_size_in_another_place_gets_the_right_hint(line: str, hint: str) -> None:
    outcome = run_line(line)
    assert outcome.status == 2
    assert len(outcome.hints) == 1
    assert hint in outcome.hints[0]


def test_sizes_can_be_compared(napkin: Napkin) -> None:
    rows = napkin("compare 7B 13B --json").data["quantities"]
    assert rows[0]["path"] == "params/total"
    assert rows[0]["ratio"] == pytest.approx(13 / 7, rel=0.01)


def test_a_size_in_a_run_file(tmp_path: pathlib.Path, napkin: Napkin) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("command: params\nmodel: 7B\n", encoding="utf-8")
    assert napkin(f"params --run {path} --json").values == napkin("params 7B --json").values
    path.write_text("command: params\nmodel: 7B\nparams: 8B\n", encoding="utf-8")
    assert run_line(f"params --run {path}").status == 2

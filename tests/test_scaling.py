"""A published shape scaled to a number of parameters: exact, as large as it may be, in the published proportions."""

from __future__ import annotations

import itertools
import math

import pytest

from napkin.errors import UNDECIDED, NapkinError, Refused
from napkin.inputs.model_file import load_config
from napkin.planning.scaling import Proportions, at_most, count, largest_of_family, nearest_of_family
from tests.conftest import Napkin, preset, run_line


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2", "mixtral-8x7b", "qwen2.5-7b", "gemma3-4b", "gemma4-31b"])
def test_its_own_size_gives_the_published_shape_back(name: str) -> None:

    published = preset(name)
    model, parameters = largest_of_family(load_config(name), at_most(count(published)))
    assert (model.hidden, model.depth, model.heads, model.kv_heads) == (
        published.hidden,
        published.depth,
        published.heads,
        published.kv_heads,
    )
    assert parameters == count(published)


@pytest.mark.parametrize("limit", [10**9, 40 * 10**9, 10**12])
def test_it_fits_and_nothing_larger_of_its_width_does(limit: int) -> None:
    model, parameters = largest_of_family(load_config("llama3-8b"), at_most(limit))
    assert parameters == count(model) <= limit
    layer = (count(model) - 2 * model.vocabulary * model.hidden - model.hidden) // model.depth
    assert parameters + layer > limit or model.depth > 1.2 * 32 * model.heads / 32
    assert model.head_dim == 128
    assert model.kv_heads == math.gcd(model.heads, 8)
    assert model.depth / model.hidden == pytest.approx(32 / 4096, rel=0.26)


def test_a_family_means_its_nearest_member() -> None:
    found = nearest_of_family("llama3", 60 * 10**9)
    assert found is not None
    assert found.name == "llama3-70b"
    assert nearest_of_family("llamas", 10**9) is None
    smallest = nearest_of_family("llama3", 0)
    assert smallest is not None
    assert smallest.name == "llama3-8b"


def test_layers_that_are_listed_go_on_in_their_order() -> None:
    """gpt-oss: a window in every other layer."""
    model, _ = largest_of_family(load_config("gpt-oss-20b"), at_most(3 * count(preset("gpt-oss-20b"))))
    kinds = [layer.kind for times, layer in model.stacks[0].runs for _ in range(times)]
    assert len(kinds) == model.depth > 24
    assert kinds == (["sliding_moe", "full_moe"] * len(kinds))[: len(kinds)]
    config = load_config("gpt-oss-20b")
    config.fields = {**config.fields, "layer_types": ["full_attention"] * 23 + ["sliding_attention"]}
    with pytest.raises(Refused, match="layer_types names its layers one by one"):
        largest_of_family(config, at_most(10**11))


def test_what_cannot_be_scaled() -> None:
    with pytest.raises(Refused, match="not one stack"):
        largest_of_family(load_config("t5-base"), at_most(10**9))
    with pytest.raises(NapkinError, match="smallest shape"):
        largest_of_family(load_config("llama3-8b"), at_most(10**6))


def test_command() -> None:
    found = run_line("max-params --gpus 8 --hardware h100 --like llama3-8b --json").values
    assert found["like/params"] <= found["params/max"] == 40 * 10**9
    assert found["like/params"] > 0.95 * 40e9


def test_under_a_layout_the_largest_fits_and_no_deeper_one_does(napkin: Napkin) -> None:
    line = "max-params --gpus 8 --hardware h100 --like llama3 --zero 3 --seq 8192 --recompute full --json"
    values = napkin(line).values
    assert values["fits/params"] < values["params/max"] == 40 * 10**9
    assert values["fits/memory"] <= values["fits/capacity"]
    import json
    import tempfile

    shape = {
        "model_type": "llama", "hidden_size": values["fits/hidden_size"], "num_attention_heads": values["fits/heads"],
        "num_key_value_heads": values["fits/kv_heads"], "head_dim": 128, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    # the inner width is the published proportion, in multiples of 128
    shape["intermediate_size"] = round(28672 * shape["hidden_size"] / 8192 / 128) * 128
    for more, fits in ((0, True), (8, False)):  # the depth stays within a quarter of the proportion
        shape["num_hidden_layers"] = values["fits/layers"] + more
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(shape, file)
            file.flush()
            memory = f"memory {file.name} --gpus 8 --hardware h100 --zero 3 --seq 8192 --recompute full --json"
            found = napkin(memory).values
        assert (found["memory/total"] <= values["fits/capacity"]) is fits


@pytest.mark.parametrize("line", ["--tp 2", "--zero 3 --seq 8192"])
def test_a_layout_needs_a_shape(napkin: Napkin, line: str) -> None:
    outcome = napkin(f"max-params --gpus 8 --hardware h100 {line}")
    assert outcome.status == 2
    assert "--like" in outcome.hints[0]


def test_every_option_of_a_layout_bounds_the_largest() -> None:
    """Interleaved stages take multiples of pp · vp layers; fp32 gradients take more than 16-bit ones."""
    line = "max-params --gpus 64 --hardware h100-sxm-80gb --like llama3-70b --zero 1 --tp 8 --pp 4 --json"
    plain = run_line(f"{line} --vp 2").values
    assert plain["fits/layers"] % 8 == 0
    megatron = run_line(f"{line} --vp 2 --framework megatron-core").values
    assert megatron["fits/layers"] % 8 == 0
    offloaded = run_line(f"{line} --offload optimizer").values
    assert offloaded["fits/params"] > plain["fits/params"]


@pytest.mark.parametrize(
    ("trained", "said"),
    [
        ("--lora-rank 16", "LoRA rank 16"),
        ("--lora-rank 16 --quantized nf4", "LoRA rank 16, nf4 weights"),
        ("--freeze-layers 10", "10 layers frozen"),
        ("--freeze-layers 100 --quiet", ""),
    ],
)
def test_a_partly_trained_model_gets_only_what_fits(trained: str, said: str) -> None:
    """The ceiling of states takes every parameter as trained; a shape has at least the layers that are frozen."""
    line = f"max-params --hardware h100 --gpus 1 --like llama3 {trained}"
    answer = run_line(line)
    assert answer.status == 0, answer.err
    assert said in answer.out.splitlines()[0]
    assert "at most" not in answer.out
    values = run_line(f"{line.removesuffix(' --quiet')} --json").values
    assert not {"params/max", "bytes_per_param", "like/params"} & set(values)
    assert values["fits/memory"] <= values["fits/capacity"]
    whole = run_line("max-params --hardware h100 --gpus 1 --like llama3 --zero 0 --json").values
    assert values["fits/params"] > whole["fits/params"]
    if "freeze-layers" in trained:
        assert values["fits/layers"] >= int(trained.split()[1])


def test_bytes_per_parameter_are_refused_for_frozen_layers(napkin: Napkin) -> None:
    outcome = napkin("max-params --hardware h100 --like llama3 --lora-rank 8 --bytes-per-param 12")
    assert outcome.status == 2
    assert "--bytes-per-param" in outcome.err


@pytest.mark.parametrize("card", ["rtx-4090", "a10", "h100", "v100-sxm2-16gb"])
def test_neighboring_shapes_leave_no_wide_gap(napkin: Napkin, card: str) -> None:
    """The next larger shape of the family is a quarter wider and a quarter shallower at most: what is found uses most
    of the memory, whatever the card's size."""
    values = napkin(f"max-params --hardware {card} --like llama3 --zero 3 --json").values
    assert 0.9 * values["fits/capacity"] < values["fits/memory"] <= values["fits/capacity"]


def test_heads_between_multiples_of_the_kv_heads_are_divided_by_them() -> None:
    shape = Proportions(load_config("llama3-8b"))
    widths = shape.widths(1)
    assert widths[:12] == [8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56]
    assert all(after / before <= 1.25 for before, after in itertools.pairwise(widths))
    assert {heads: shape.model(heads, 4).kv_heads for heads in (10, 12, 24, 40)} == {10: 2, 12: 4, 24: 8, 40: 8}
    assert all(heads % 4 == 0 for heads in shape.widths(4))


@pytest.mark.parametrize(
    "line",
    ["--gpus 8 --hardware h100 --like llama3 --zero 3 --recompute full", "--hardware a10 --like qwen2.5 --zero 0"],
)
def test_max_params_says_fits_where_memory_does(napkin: Napkin, line: str) -> None:
    """One meaning: the largest that surely fits has the verdict `fits`, and at the estimate's edge neither command is
    sure."""
    found = napkin(f"max-params {line} --json")
    surely, possibly = (found.values[f"fits/params/{end}"] for end in ("low", "high"))
    assert surely < found.values["fits/params"] <= possibly
    assert found.data["verdict"] == UNDECIDED
    assert found.values["fits/memory/low"] < found.values["fits/capacity"] < found.values["fits/memory/high"]
    screen = napkin(f"max-params {line}").out.splitlines()
    assert "may fit" in screen[1]
    assert "surely" in screen[1]
    assert sum(UNDECIDED in row for row in screen) == 1

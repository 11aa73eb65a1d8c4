"""What a new user types first and reads last: hints that name what was meant, and next commands that make sense."""

from __future__ import annotations

import shlex

import pytest

from napkin.cli.help import text_of
from napkin.commands.command import find
from tests.conftest import run_line


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("memory rtx3060", "that is an accelerator: --hardware rtx3060, after a MODEL such as llama3-8b"),
        ("step 'RTX 4090' --hardware h100", "that is an accelerator: --hardware RTX 4090, after a MODEL"),
        ("flops gpt2 --micro-batch 8", "--batch N: number of sequences"),
        ("optimizer lion --precision bf16-pure", "--param-dtype NAME: number format of the parameter"),
        ("mfu gpt2 --samples-per-second 3 --sample-tokens 512 --hardware h100", "--seq N: sequence length"),
        ("mfu 7B --tokens-per-second 3500 --hardware a100", "1 for a single one; --tokens-per-second-per-gpu needs"),
        ("optimal --compute 1e24 --law chinchilla", "one of hoffmann2022-1, hoffmann2022-2, hoffmann2022-3"),
        ("optimal --compute 1e24 --law besirogl2024", "did you mean besiroglu2024?"),
        ("memory llama3-8b --hardware h100 --gpus 8 --ep 8", "leave it out"),
        ("dtype inf", "for example 1e-8 or 70000"),
        ("dtype nan", "for example 1e-8 or 70000"),
        ("sweep train-time 7B --tokens 1T --gpus 8 --hardware h100 --over mfu=0.3..0.5", "for example 0.3..0.5:0.05"),
        ("sweep train-time 7B --tokens 1T --gpus 8 --hardware h100 --over mfu=0.1..0.5", "for example 0.1..0.5:x2"),
        ("sweep checkpoint gpt2 --mtbf 1d --over write-bandwidth=1GB/s..2GB/s", "for example 1GB/s..2GB/s:x2"),
    ],
)
def test_a_hint_names_what_was_meant(line: str, hint: str) -> None:
    found = run_line(line)
    assert found.status == 2
    assert hint in found.err


def test_an_example_of_a_range_works() -> None:
    line = "sweep train-time 7B --tokens 1T --gpus 8 --hardware h100 --over mfu=0.3..0.5:0.05"
    assert [row["mfu"] for row in run_line(f"{line} --json").data["rows"]] == pytest.approx([0.3, 0.35, 0.4, 0.45, 0.5])


def test_vs_is_against() -> None:
    question = "compare memory llama3-8b --gpus 8 --hardware h100 --zero 3"
    assert run_line(f"{question} --vs recompute=full").out == run_line(f"{question} --against recompute=full").out


def next_of(line: str) -> list[str]:
    """Return the words of the next command that the answer to a line proposes, after `napkin`."""
    _, _, following = run_line(line).out.partition("\nnext: napkin ")
    return shlex.split(following.replace("\\\n", " "))


def test_one_small_gpu_is_not_sent_to_hundreds() -> None:
    assert "--lora-rank" in next_of("memory llama3-8b --hardware rtx3060")
    assert "--gpus" not in next_of("memory llama3-8b --hardware rtx3060")


def test_a_node_of_gpus_trains_the_same_weights() -> None:
    line = "memory llama3-70b --hardware h200 --gpus 8 --zero 3 --offload optimizer --dropout 0.1 --seq 8192"
    assert "--lora-rank" not in next_of("memory llama3-8b --hardware a100 --gpus 4 --zero 1 --seq 2048 --micro-batch 1")
    assert "--lora-rank" not in next_of(line)


def test_the_next_command_keeps_the_batch() -> None:
    asked = next_of("roofline gpt2 --hardware rtx3090 --batch 8")
    assert asked[:2] == ["step", "gpt2"]
    assert asked[asked.index("--micro-batch") + 1] == "8"
    assert "--micro-batch" not in next_of("roofline gpt2 --hardware rtx3090")


def test_the_memory_of_layers_needs_the_batch_of_their_flops() -> None:
    for batch in ("", " --batch 64"):
        following = next_of(f"flops linear --widths 4,4,1{batch}")
        assert run_line(shlex.join(following)).status == 0
    assert following[following.index("--batch") + 1] == "64"


def test_no_largest_number_of_layers_where_they_are_on_the_host() -> None:
    away = "--offload optimizer,activations,parameters --zero 3"
    found = run_line(f"memory llama3-8b --hardware rtx4090 --max layers {away}")
    assert found.status == 3
    assert "a GPU's memory does not limit it" in found.err
    following = next_of("memory llama3-8b --hardware rtx4090 --max layers")
    assert "--max" not in following  # a suggestion is for the model with its own layers
    assert "FITS" in run_line(shlex.join(following)).out


def test_the_number_of_gpus_that_serve_is_said_if_it_is_chosen() -> None:
    assert "the fewest GPUs" in run_line("serve llama3-8b --hardware rtx3060").out
    for line in ("serve llama3-8b --hardware rtx3060 --gpus 4", "serve llama3-8b --hardware h100"):
        assert "the fewest GPUs" not in run_line(line).out


def test_machines_that_serve_cheapest_have_their_own_numbers_of_gpus() -> None:
    first, *_ = run_line("serve mixtral-8x7b --hardware h100,mi300x").out.splitlines()
    assert "GPUs" not in first
    assert "4 GPUs" in run_line("serve mixtral-8x7b --hardware h100,mi300x --gpus 4").out.splitlines()[0]


def test_a_sweep_shows_no_swept_input_as_an_answer() -> None:
    lines = run_line("sweep optimal --over compute=1e21,1e22").out.splitlines()
    assert lines[1].startswith("  params: least 2.778 B")
    assert "flops/total" not in lines[2]


def test_a_law_a_little_out_of_its_range() -> None:
    assert "(0.9% beyond)" in run_line("optimal --compute 6e18").out  # 4.956 of at least 5 billion tokens


def test_stacks_of_one_name_are_said_once() -> None:
    said = run_line("params t5-11b").out
    assert "encoder/encoder" not in said
    assert "    encoder 2 " in said


def test_a_limit_on_a_path_of_another_place_names_it(tmp_path: object) -> None:
    file = f"{tmp_path}/run.yaml"
    with open(file, "w", encoding="utf-8") as out:
        out.write("command: step\nmodel: gpt2\nhardware: a100\nlimits:\n  step/mfu: '> 0.1'\n")
    found = run_line(f"check {file}")
    assert found.status == 2
    assert "hint: did you mean mfu?" in found.err


def test_a_file_without_a_model_says_how_to_add_one(tmp_path: object) -> None:
    file = f"{tmp_path}/ds.json"
    with open(file, "w", encoding="utf-8") as out:
        out.write('{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    assert "the file names none: napkin memory MODEL --from FILE" in run_line(f"memory --from {file}").err
    assert run_line(f"memory gpt2 --from {file} --gpus 8").status == 0


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("dtype", "Usage: napkin dtype [VALUE] [OPTIONS]"),
        ("train-time", "Usage: napkin train-time [MODEL] [OPTIONS]"),
        ("memory", "Usage: napkin memory MODEL [OPTIONS]"),
        ("compare", "Usage: napkin compare A B [OPTIONS]"),
    ],
)
def test_usage_says_which_arguments_may_be_left_out(command: str, usage: str) -> None:
    assert text_of(find(command), everything=False).splitlines()[0] == usage


def test_a_format_without_an_accelerator_has_no_default() -> None:
    assert "(default: bf16, else fp16)" not in text_of(find("dtype"), everything=True)
    assert "(default: bf16, else fp16)" in text_of(find("roofline"), everything=True)


@pytest.mark.parametrize(
    ("options", "trained", "every"),
    [
        # peft's print_trainable_parameters on Llama 3 8B: 32 layers of matrices (in + out) × rank
        ("--lora-rank 8 --lora-targets q_proj,v_proj", 32 * 8 * (2 * 4096 + 4096 + 1024), 8_033_669_120),
        ("--lora-rank 16", 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18_432), 8_072_204_288),
        # half of the layers, the final norm and the head: the embedding is frozen with the first layers
        ("--freeze-layers 16", 16 * 218_112_000 + 4096 + 128_256 * 4096, 8_030_261_248),
    ],
)
def test_trained_parameters(options: str, trained: int, every: int) -> None:
    found = run_line(f"params llama3-8b {options} --json").values
    assert found["params/trained"] == trained
    assert found.get("params/with_adapters", found["params/total"]) == every
    assert found["params/trained_share"] == pytest.approx(trained / every)
    assert f"  {trained:,} trained   {trained / every:.4%} of {every:,}" in run_line(f"params llama3-8b {options}").out


def test_what_is_trained_is_what_a_checkpoint_of_adapters_holds() -> None:
    count = run_line("params qwen3-8b --lora-rank 32 --json").values["params/trained"]
    saved = run_line("checkpoint qwen3-8b --lora-rank 32 --precision bf16-pure --optimizer sgd --json").values
    assert saved["checkpoint/bytes"] == 2 * count


def test_a_format_of_frozen_weights_changes_no_count() -> None:
    assert "it changes no count of parameters" in run_line("params llama3-8b --lora-rank 8 --quantized nf4").err


def test_the_next_batch_to_serve_surely_fits() -> None:
    for line in (
        "memory mixtral-8x7b --inference --gpus 2 --hardware h100",
        "memory llama3-8b --inference --hardware rtx4090 --dtype int4 --batch 16 --seq 8192",
    ):
        following = next_of(line)
        batch = int(following[following.index("--batch") + 1])
        assert run_line(shlex.join([*following, "--must-fit"])).status == 0
        following[following.index("--batch") + 1] = str(batch + 1)
        assert run_line(shlex.join([*following, "--must-fit"])).status == 4  # one more is too close to call


def test_common_layouts_have_the_given_micro_batch() -> None:
    line = "plan llama3-8b --hardware rtx4090 --gpus 4 --lora-rank 16 --quantized nf4 --recompute full --micro-batch 2"
    given = {row["name"]: row.get("memory/total") for row in run_line(f"{line} --json").data["popular"]}
    other = {row["name"]: row.get("memory/total") for row in run_line(f"{line[:-1]}1 --json").data["popular"]}
    assert given["data parallel only"] > 1.2 * other["data parallel only"]


def test_a_recommended_layout_that_recomputes_is_not_one_that_does_not_fit() -> None:
    said = run_line("plan qwen2.5-7b --hardware rtx4090 --gpus 2 --quantized nf4 --lora-rank 16").out
    assert "dp2 mb1 full" in said
    assert "do not fit without recomputation: data parallel only" in said


def test_common_layouts_that_recompute_as_asked_are_not_said_to_do_without() -> None:
    line = "plan llama3-70b --gpus 32 --hardware h100 --seq 8192 --recompute full --global-batch 64"
    assert {row["recompute"] for row in run_line(f"{line} --json").data["popular"]} == {"full"}
    assert "do not fit: data parallel only" in run_line(line).out


def test_sensitivity_of_a_checkpoint_is_that_of_its_interval() -> None:
    said = run_line("sensitivity checkpoint llama3-70b --gpus 512").out
    assert "checkpoint/interval" in said.splitlines()[0]
    assert "no input moves it" not in said

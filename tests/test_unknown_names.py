"""All problems of a question are told at once: names that nothing has, unknown keys, values that cannot be read."""

from __future__ import annotations

import pathlib

import pytest

from tests.conftest import Napkin


def errors(err: str) -> list[str]:
    return [line.removeprefix("error: ") for line in err.splitlines() if line.startswith("error: ")]


def test_every_unknown_name_of_a_line_is_told(napkin: Napkin) -> None:
    found = napkin("memory llama9-8b --hardware h1000 --optimizer adamx --framework foo --precision bf17")
    assert found.status == 2
    told = errors(found.err)
    assert [word for word in ("llama9-8b", "h1000", "foo", "adamx", "bf17") if f"'{word}'" in found.err] == [
        *("llama9-8b", "h1000", "foo", "adamx", "bf17")
    ]
    assert len(told) == len(set(told)) == 5


def test_any_accelerator_is_a_name_of_plan(napkin: Napkin) -> None:
    assert len(errors(napkin("plan llama9 --hardware any --tokens 1B").err)) == 1


def test_a_comparison_tells_each_once(napkin: Napkin) -> None:
    assert len(errors(napkin("compare memory llama9 --against model=llama3-8b --hardware h1000").err)) == 2


def test_what_is_no_unknown_name_stays_alone(napkin: Napkin) -> None:
    told = errors(napkin("memory llama3-8b --hardware h100 --gpus 3 --tp 2").err)
    assert told == ["--gpus 3 is not a multiple of tp · pp · cp (2)"]


@pytest.mark.parametrize("command", ["check", "memory --run"])
def test_names_of_a_run_file_have_their_lines(napkin: Napkin, tmp_path: pathlib.Path, command: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text('command: memory\nmodel: llama9\nhardware: h1000\nlimits: {memory/total: "<= 3"}\n')
    told = errors(napkin(f"{command} {path}").err)
    assert [one.partition(": ")[0].rpartition(":")[2] for one in told] == ["2", "3"]


def test_an_unknown_key_hides_no_bad_value(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("command: memory\nmodel: llama3-8b\ngpuz: 64\nzero: 7\nseq: abc\n")
    told = errors(napkin(f"memory --run {path}").err)
    assert [one.split(": ")[1] for one in told] == ["gpuz", "zero", "seq"]


def test_an_unknown_key_hides_no_unknown_name(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("command: memory\nmodel: llama9\nhardware: h1000\noptimizer: adamx\ngpuz: 64\n")
    told = errors(napkin(f"memory --run {path}").err)
    assert [one.split(": ")[0].rpartition(":")[2] for one in told] == ["5", "2", "3", "4"]
    path.write_text("command: plan\nmodel: llama3-8b\nhardware: any\ntokens: 1B\ngpuz: 64\n")
    assert len(errors(napkin(f"plan --run {path}").err)) == 1


def test_settings_are_no_log(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    """A log of keys and values is one, and a run file that states an MFU is none."""
    run, log = tmp_path / "run.yaml", tmp_path / "train.log"
    run.write_text("# a run\ncommand: train-time\nmodel: llama3-8b\nlimits:\n  time: '<= 3d'\nmfu: 0.4\n")
    log.write_text("step: 1\nmfu: 0.4\n")
    for line in (f"watch {run} --once", f"mfu llama3-8b --gpus 8 --hardware h100 --log {run}"):
        refused = napkin(line)
        assert refused.status == 2
        assert "is not a log" in refused.err
        assert "--run" in refused.err
    assert napkin(f"watch {log} --once --json").values["mfu/logged"] == 0.4


@pytest.mark.parametrize("form", ["mxfp4", "nvfp4", "fp4", "gguf"])
def test_formats_that_frozen_weights_do_not_train_in_have_a_hint(napkin: Napkin, form: str) -> None:
    hint = napkin(f"memory llama3-8b --lora-rank 8 --quantized {form}").err.partition("hint: ")[2].split()
    assert hint[0] == "--quantized"
    assert napkin(f"memory llama3-8b --lora-rank 8 --quantized {hint[1].strip(':')}").status == 0


@pytest.mark.parametrize(("dtype", "policy"), [("fp8", "fp8-mixed"), ("float16", "fp16-mixed"), ("bf16", "bf16-mixed")])
def test_the_next_command_keeps_the_number_format(napkin: Napkin, dtype: str, policy: str) -> None:
    for line in (
        "mfu llama3-8b --tokens-per-second 68000 --gpus 8 --hardware h100",
        "train-time llama3-8b --tokens 1T --gpus 64 --hardware h100",
    ):
        assert f"--precision {policy} " in napkin(f"{line} --dtype {dtype}").out.partition("next: ")[2]


def test_an_unknown_option_hides_no_unknown_name(napkin: Napkin) -> None:
    found = napkin("memory llama9-8b --hardwre h100 --hardware h1000 --gpus 8")
    assert found.status == 2
    assert errors(found.err)[0] == "memory has no option --hardwre"
    assert len(errors(found.err)) == 3
    assert all(f"'{word}'" in found.err for word in ("llama9-8b", "h1000"))

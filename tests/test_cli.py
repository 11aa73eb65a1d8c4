"""The command line's contract: exit statuses, streams, bad input, hostile files, closed pipes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin import units
from napkin.commands.command import MODULES, find
from napkin.counting import flops
from napkin.operations import losses
from napkin.options.option import Option
from napkin.options.registry import GROUPS, OPTIONS, registry
from napkin.options.training import LOSSES, TORCH_LOSS, UNTIMED
from tests.conftest import Napkin, Outcome, run_line

LECTURE = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5"
NAPKIN = [sys.executable, "-m", "napkin"]


def assert_refused(outcome: Outcome, status: int = 2) -> None:
    """One clear line, nothing on stdout, no traceback."""
    assert outcome.status == status, outcome.err
    assert outcome.out == ""
    assert outcome.errors
    assert "Traceback" not in outcome.err
    assert "defect" not in outcome.err
    assert all(len(line) < 4000 for line in outcome.err.splitlines())


def test_bare_napkin_shows_the_commands_and_ends_with_2(napkin: Napkin) -> None:
    outcome = napkin("")
    assert outcome.status == 2
    assert outcome.out == ""
    for name in MODULES:
        assert name in outcome.err


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_is_an_answer(napkin: Napkin, word: str) -> None:
    assert napkin(word).status == 0
    assert "train-time" in napkin(word).out


def test_version(napkin: Napkin) -> None:
    from napkin import __version__

    assert napkin("--version").out == f"napkin {__version__}\n"


@pytest.mark.parametrize("name", list(MODULES))
def test_every_command_has_help_and_an_example(napkin: Napkin, name: str) -> None:
    command = find(name)
    assert command.name == name
    assert command.examples
    outcome = napkin([name, "--help-all"])
    assert outcome.status == 0
    refused = () if name == "memory" else UNTIMED  # taken only to say why it is refused
    for option in command.takes:
        assert option in refused or f"--{OPTIONS[option].name}" in outcome.out
    for example in command.examples:
        assert " ".join(f"napkin {example}".split()) in " ".join(outcome.out.replace("\\\n", " ").split())


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("train-tme", "no such command 'train-tme'", "train-time"),
        ("train-time --gpusx 8", "has no option --gpusx", "--gpus"),
        ("step llama3-8b --no-packing", "has no option --no-packing", "train-time, plan and lint take --no-packing"),
        ("step llama3-8b --no-mfu", "has no option --no-mfu", "napkin step --help"),
        (
            "compare llama3-8b gpt2 --gpus 8",
            "has no option --gpus",
            "napkin compare step A --gpus … --against model=B, or hardware=B",
        ),
        (
            "compare llama3-8b --params 7B",
            "has no option --params",
            "napkin compare train-time --params … --against params=B, or hardware=B",
        ),
        ("roofline 64x32x16 --hardware h100", "no model is called", "matmul 64x32x16"),
        ("memory gpt2 --dora", "--dora needs --lora-rank", "--lora-rank 8"),
        ("memory gpt2 --unsloth", "no option --unsloth", "--trainer unsloth"),
        ("memory gpt2 --rtx-4090", "no option --rtx-4090", "--hardware rtx-4090"),
        ("memory gpt2 --nf4", "no option --nf4", "--quantized nf4"),
        ("memory gpt2 --rank 8", "--rank 8 is not an option", "--lora-rank N is LoRA's rank"),
        ("memory gpt2 --hidden-size 768", "--width has no effect here", "a model's shape is in its config.json"),
        ("train-time gpt2 --cost 2", "--cost 2 is not an option", "--budget USD for the whole run"),
        ("train-time gpt2 --gpu-hours 2k", "--gpu-hours 2k is not an option", "--within: GPU-hours over --gpus"),
        ("train-time gpt2 --instance p5.48xlarge", "is not an option", "--gpus-per-node"),
        ("train-time gpt2 --days", "--days: its value is missing", "--days X is --within Xd"),
        ("train-time --params", "--params: its value is missing", "70B"),
        ("--params 3", "--params comes before the command", "COMMAND"),
        ("train-time gpt2 extra", "extra", "MODEL"),
        (f"{LECTURE} gpt2", "MODEL and --params cannot be combined", None),
        (LECTURE.replace("h100", "h10"), "unknown accelerator 'h10'", "h100"),
        (LECTURE.replace("0.5", "50"), "--mfu: '50'", "0.5"),
        (LECTURE.replace("70B", "-70B"), "--params: '-70B' is not above zero", None),
        (LECTURE.replace("70B", "nan"), "--params: 'nan'", None),
        (LECTURE.replace("70B", "1e400"), "out of range", None),
        (LECTURE.replace("70B", "0"), "above zero", None),
        (LECTURE.replace("1024", "1.5"), "--gpus: '1.5' is not a whole number", None),
        (f"{LECTURE} --within 30", "no unit", "30d"),
        (f"{LECTURE} --dtype bf17", "unknown dtype 'bf17'", "bf16"),
        (f"{LECTURE} --json --csv", "cannot be combined", None),
        (f"{LECTURE} --verbose --csv", "--csv and --verbose cannot be combined", None),
        (f"{LECTURE} --quiet --paths", "--quiet and --paths cannot be combined", None),
        (f"{LECTURE} --run /nonexistent.yaml", "/nonexistent.yaml", None),
        (f"{LECTURE} --hardware-file /", "directory", None),
        (f"{LECTURE} --plot picture.gif", "--plot", None),
    ],
)
def test_bad_usage(napkin: Napkin, line: str, error: str, hint: str | None) -> None:
    outcome = napkin(line)
    assert_refused(outcome)
    assert error in outcome.err
    if hint:
        assert any(hint in h for h in outcome.hints)


def test_several_problems_are_a_line_each(napkin: Napkin) -> None:
    outcome = napkin("train-time --params x --tokens y --gpus 0")
    assert_refused(outcome)
    assert len(outcome.errors) == 3


def test_the_last_of_a_repeated_option_wins(napkin: Napkin) -> None:
    assert napkin(f"{LECTURE} --gpus 1 --gpus 2048 --json").values["gpus"] == 2048


def test_underscores_and_equal_signs_are_read(napkin: Napkin) -> None:
    assert napkin(f"{LECTURE} --power_overhead=1 --json").data["inputs"]["power-overhead"]["value"] == 1


def test_notes_are_in_json_and_in_the_verbose_text_and_never_on_stderr(napkin: Napkin) -> None:
    for form in ("--json", "--csv", "--markdown", "", "-v", "--verbose"):
        outcome = napkin(f"{LECTURE} {form}")
        assert outcome.err == ""
        assert ("note: h100 is read as" in outcome.out) == (form in ("-v", "--verbose"))
    assert any(note.startswith("h100 is read as") for note in napkin(f"{LECTURE} --json").data["notes"])


def test_an_answer_goes_whole_to_a_file(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "answer.json"
    outcome = napkin(f"{LECTURE} --json -o {target}")
    assert outcome.out == ""
    assert target.read_text().startswith('{\n  "napkin": 1')
    assert napkin(f"{LECTURE} -o {tmp_path}/none/answer.txt").status == 74


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ("-o a.json", '{\n  "napkin": 1'),
        ("-o A.CSV", "path,value,unit\n"),
        ("-o a.md", "\n| "),
        ("-o a.txt", "  143.9 days"),
        ("--csv -o a.json", "path,value,unit\n"),
        ("--quiet -o a.json", "143.9 days"),
        ("-v -o a.md", "  143.9 days"),
    ],
)
def test_the_name_of_the_file_asks_for_its_form(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, options: str, holds: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert napkin(f"{LECTURE} {options}").status == 0
    written = next(tmp_path.iterdir()).read_text()
    assert holds in written
    assert ("\n| " in written) == (holds == "\n| ")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("params config.json -o config.json", "-o: would overwrite config.json, which is given as MODEL"),
        ("params . -o ./config.json", "-o: would overwrite ./config.json, which is given as MODEL"),
        ("params link.json -o config.json", "-o: would overwrite config.json, which is given as MODEL"),
        ("compare config.json gpt2 -o config.json", "-o: would overwrite config.json, which is given as A B"),
        ("check run.yaml --junit run.yaml", "--junit: would overwrite run.yaml, which is given as FILE"),
        ("check . --junit run.yaml", "--junit: would overwrite run.yaml, which is given as FILE"),
        ("check run.yaml -o new.xml --junit ./new.xml", "-o: would overwrite new.xml, which is given as --junit"),
    ],
)
def test_no_file_that_is_read_is_written(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "config.json": '{"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2}',
        "run.yaml": "command: params\nmodel: gpt2\nlimits:\n  params/total: 124439808\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.json").symlink_to("config.json")
    outcome = napkin(line)
    assert (outcome.status, outcome.err.splitlines()[0]) == (2, f"error: {told}")
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert not (tmp_path / "new.xml").exists()


def test_a_preset_and_a_new_file_may_share_a_name(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert napkin("params gpt2 -o gpt2").status == 0
    assert "124.4 M" in (tmp_path / "gpt2").read_text()


def in_a_process(words: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*NAPKIN, *words], capture_output=True, text=True, timeout=60, **more)


def test_the_module_runs_as_a_process() -> None:
    done = in_a_process(LECTURE.split())
    assert done.returncode == 0
    assert "143.9 days" in done.stdout


def test_a_closed_pipe_ends_quietly() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*NAPKIN, *LECTURE.split()], stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write_end)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_reported() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*NAPKIN, *LECTURE.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 74
    assert "error: cannot write the answer" in done.stderr
    assert "Traceback" not in done.stderr


HOSTILE = {
    "bomb.yaml": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "deep.yaml": "[" * 5000,
    "twice.yaml": "params: 7B\nparams: 8B\n",
    "tag.yaml": "params: !!python/object/apply:os.system ['true']\n",
    "octal.yaml": "gpus: 0100\n",
    "truth.yaml": "gpus: yes\n",
    "sexagesimal.yaml": "gpus: 1:30\n",
    "nan.yaml": "mfu: .nan\n",
    "list.yaml": "params: [7B]\n",
    "null.yaml": "params:\n",
    "two.yaml": "params: 7B\n---\nparams: 8B\n",
    "key.yaml": "? [a]\n: 3\n",
    "control.yaml": 'params: "7\\u0007B"\n',
    "tab.yaml": "\tparams: 7B\n",
    "scalar.yaml": "seven\n",
    "unknown.yaml": "parms: 7B\n",
    "block.yaml": "params: |\n  7B\n",
    "long.yaml": "params: " + "9" * 10000 + "\n",
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_run_files(napkin: Napkin, tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    outcome = napkin(["train-time", "--run", str(path), "--hardware", "h100"])
    assert_refused(outcome)
    assert name in outcome.errors[0]


def test_files_that_cannot_be_read(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"params: 7B # \xe9\n")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (16 * 10**6 + 1))
    for path in (latin, large, tmp_path, tmp_path / "none.yaml", "/dev/zero"):
        assert_refused(napkin(["train-time", "--run", str(path), "--hardware", "h100"]))


@given(st.text(max_size=200))
def test_no_text_in_a_run_file_makes_a_traceback(text: str) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8", newline="") as file:
        file.write(text.encode("utf-8", "replace").decode("utf-8"))
        file.flush()
        outcome = run_line(["train-time", "--run", file.name])
    assert_refused(outcome)


WORDS = st.sampled_from(
    [
        "--params",
        "--tokens",
        "--gpus",
        "--hardware",
        "--mfu",
        "--within",
        "--json",
        "70B",
        "h100",
        "0.5",
        "-1",
        "",
        "--",
        "é",
    ]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=8))
def test_no_words_make_a_traceback(words: list[str]) -> None:
    outcome = run_line(["train-time", *[w.replace("\x00", "") for w in words]])
    assert outcome.status in (0, 1, 2, 3)
    assert "defect" not in outcome.err
    assert outcome.status in (0, 1) or outcome.errors


def test_an_option_is_declared_in_one_place() -> None:
    """A name has one meaning in all commands; every option of a command is in the registry."""
    for name in MODULES:
        assert {*find(name).names, *find(name).figures} <= set(OPTIONS)
    again = Option("gpus", units.degree, "Something else")
    with pytest.raises(ValueError, match="--gpus is declared twice"):
        registry([*GROUPS, ("again", (again,))])
    assert OPTIONS["gpus"].unit == "GPU"


def test_the_words_of_options_are_those_that_the_formulas_know() -> None:
    assert (TORCH_LOSS, *losses.LOSSES) == LOSSES
    assert OPTIONS["pairs"].help.endswith(f"{flops.FULL}, {flops.HALF}, {flops.EXACT}")

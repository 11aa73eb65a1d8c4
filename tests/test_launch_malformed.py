"""Broken launch files: one line with file, line and field, one hint, status 2 or 3, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.cli import main
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of

AXOLOTL = """base_model: meta-llama/Llama-3.1-8B
micro_batch_size: 2
gradient_accumulation_steps: 4
sequence_len: 4096
num_epochs: 1
bf16: auto
"""
LINE = (
    "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 --per_device_train_batch_size 2"
)


@pytest.mark.parametrize(
    ("name", "text", "begins"),
    [
        ("a.yaml", AXOLOTL.replace("sequence_len: 4096", "sequence_len: [1, 2]"), "a.yaml:4: sequence_len: "),
        ("a.yaml", AXOLOTL.replace("sequence_len: 4096", "sequence_len: {a: 1}"), "a.yaml:4: sequence_len: is a block"),
        ("a.yaml", AXOLOTL.replace("sequence_len: 4096", "sequence_len: long"), "a.yaml:4: sequence_len: 'long'"),
        ("a.yaml", AXOLOTL + "micro_batch_size: 4\n", "a.yaml:7: "),
        ("a.yaml", AXOLOTL.replace("num_epochs", "\tnum_epochs"), "a.yaml:5: not YAML"),
        ("a.yaml", AXOLOTL + "x: [1, 2\n", "a.yaml:"),
        ("a.yaml", AXOLOTL + "x: *missing\n", "a.yaml:7: "),
        ("a.json", '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": ', "a.json:1: not JSON"),
        ("a.json", '{"zero_optimization": {"stage": "three"}}', "a.json:1: zero_optimization.stage: "),
        ("a.toml", '[job]\n[training]\nseq_len = \n[model]\nflavor = "8B"\n', "a.toml:3: not TOML"),
        ("a.py", "import torch\nbatch_size = 8\ndef f(:\n    pass\n", "a.py:3: not Python"),
        ("a.py", "batch_size = ${a.b}\nblock_size = 8\n", "a.py:1: not Python"),
        ("a.sh", f"{LINE} --gradient_accumulation_steps four\n", "a.sh:1: --gradient_accumulation_steps: 'four'"),
        ("a.sh", f"{LINE} --gradient_accumulation_st\n", "a.sh:1: --gradient_accumulation_st: has no value"),
        ("a.sh", f"#!/bin/bash\n# note\n{LINE} \\\n  --max_seq_length \\\n  --bf16\n", "a.sh:4: --max_seq_length: "),
        ("a.yaml", "<html></html>\n", "a.yaml: is a web page"),
        ("a.yaml", " \n", "a.yaml: is empty"),
    ],
)
def test_an_error_names_its_place(
    name: str,
    text: str,
    begins: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    for command in (["read", "--from", name], ["memory", "--from", name]):
        assert main(command) == 2
        error, hint = capsys.readouterr().err.splitlines()
        assert error.startswith(f"error: {begins}")
        assert hint.startswith("hint: ")


def test_line_ends_and_marks_of_windows_change_nothing() -> None:
    plain = reading_of(source_of(AXOLOTL, "a.yaml")).inputs
    for text in (AXOLOTL.replace("\n", "\r\n"), "\ufeff" + AXOLOTL):
        assert reading_of(source_of(text.lstrip("\ufeff"), "a.yaml")).inputs == plain
    script = f"set -e\nread -r -d '' LINE <<EOF\n{LINE} \\\n  --max_steps 10\nEOF\n$LINE\n"
    unix = reading_of(source_of(script, "run.sh")).inputs
    assert unix["steps"].value == 10
    assert reading_of(source_of(script.replace("\n", "\r\n"), "run.sh")).inputs == unix


def test_a_file_with_a_byte_order_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + AXOLOTL.encode())
    assert main(["read", "--from", str(tmp_path / "a.yaml"), "--json"]) == 0
    assert '"micro-batch": {"value": 2' in capsys.readouterr().out


@pytest.mark.parametrize(
    "written",
    [
        "${model.length}",
        "${oc.env:LENGTH}",
        "{{ length }}",
        "{{length|default('x')}}",
        "${zz}",
        "$LENGTH",
    ],
)
def test_what_is_set_elsewhere_is_asked_or_refused(written: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AXOLOTL.replace("4096", written) + "zz: ${zz}\n")
    assert main(["memory", "--from", str(tmp_path / "a.yaml")]) in (2, 3)


def test_a_windows_path_is_no_model(tmp_path: Path) -> None:
    for path in ("C:\\models\\llama", '"C:\\\\models\\\\llama"'):
        (tmp_path / "a.yaml").write_text(AXOLOTL.replace("meta-llama/Llama-3.1-8B", path))
        assert main(["memory", "--from", str(tmp_path / "a.yaml")]) == 2

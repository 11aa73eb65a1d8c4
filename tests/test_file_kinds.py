"""Files that are not the text they should be: packed, in another encoding, pointers, URLs. Each is named."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pathlib
import pickle

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

CONFIG = '{"model_type": "gpt2", "n_layer": 2}'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
KINDS = [
    (POINTER, "is a pointer of Git LFS", "git lfs pull"),
    (gzip.compress(CONFIG.encode(), mtime=0), "is packed (gzip)", "unpack it"),
    (bz2.compress(CONFIG.encode()), "is packed (bzip2)", "unpack it"),
    (lzma.compress(CONFIG.encode()), "is packed (xz)", "unpack it"),
    (b"PK\x03\x04" + b"x" * 40, "is packed (zip)", "unpack it"),
    (CONFIG.encode("utf-16"), "is UTF-16", "iconv -f UTF-16"),
    (CONFIG.encode("utf-16-le"), "is UTF-16", "iconv -f UTF-16"),
    (CONFIG.encode("utf-16-be"), "is UTF-16", "iconv -f UTF-16"),
    (CONFIG.encode("utf-32"), "is UTF-32", "iconv -f UTF-32"),
]
READERS = [
    "params FILE",
    "memory gpt2 --hardware h100 --from FILE",
    "check FILE",
    "memory gpt2 --hardware h100 --hardware-file FILE",
    "validate FILE",
    "mfu gpt2 --hardware h100 --log FILE",
    "watch FILE --once",
    "memory gpt2 --hardware h100 --snapshot FILE",
    "data lengths FILE",
]


@pytest.mark.parametrize(("content", "message", "hint"), KINDS)
@pytest.mark.parametrize("line", READERS)
def test_a_file_of_another_kind_is_named(
    napkin: Napkin, tmp_path: pathlib.Path, line: str, content: bytes, message: str, hint: str
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    outcome = napkin(line.replace("FILE", str(path)))
    assert outcome.status == 2
    assert any(message in one for one in outcome.errors)
    assert any(hint in one for one in outcome.hints)


HUB = "https://huggingface.co/org/model"


@pytest.mark.parametrize(
    ("url", "file"),
    [
        (HUB, f"{HUB}/resolve/main/config.json"),
        (f"{HUB}/", f"{HUB}/resolve/main/config.json"),
        (f"{HUB}/tree/main", f"{HUB}/resolve/main/config.json"),
        (f"{HUB}/blob/v2/config.json", f"{HUB}/resolve/v2/config.json"),
        ("https://example.com/config.json", "the file"),
        ("s3://bucket/config.json", "the file"),
    ],
)
@pytest.mark.parametrize("line", [*READERS[:3], READERS[5]])
def test_a_url_is_not_read_and_the_hint_names_the_file_to_download(
    napkin: Napkin, line: str, url: str, file: str
) -> None:
    outcome = napkin(line.replace("FILE", url))
    assert outcome.status == 2
    assert any("is a URL, and napkin reads no network" in one for one in outcome.errors)
    assert any(f"download {file} and" in one for one in outcome.hints)


ROLES: dict[str, tuple[str | bytes, str]] = {
    "hardware": ("accelerators: {mine: {memory: 80GB}}\n", "--hardware-file"),
    "run": ("command: memory\nmodel: gpt2\nhardware: h100\n", "--run"),
    "rows": ("schema: memory/1\nrows: []\n", "napkin validate"),
    "snapshot": ('{"segments": [], "device_traces": []}', "--snapshot"),
    "model": ('{"model_type": "gpt2", "n_layer": 2}', "MODEL"),
    "launch": ("base_model: gpt2\nmicro_batch_size: 1\n", "--from"),
    "pickle": (pickle.dumps({"segments": []}), "--snapshot"),
}
EXPECTED = {
    "params FILE": {"model"},
    "memory gpt2 --hardware h100 --from FILE": {"model", "launch"},
    "memory --run FILE": {"run"},
    "check FILE": {"run"},
    "memory gpt2 --hardware h100 --hardware-file FILE": {"hardware"},
    "validate FILE": {"rows"},
}


@pytest.mark.parametrize("line", EXPECTED)
@pytest.mark.parametrize("role", ROLES)
def test_a_file_in_the_place_of_another_is_told_where_it_belongs(
    napkin: Napkin, tmp_path: pathlib.Path, line: str, role: str
) -> None:
    if role in EXPECTED[line]:
        return
    content, place = ROLES[role]
    path = tmp_path / "file.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    outcome = napkin(line.replace("FILE", str(path)))
    assert outcome.status in (2, 3)
    assert len(outcome.errors) == 1
    assert place in outcome.hints[0]


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ('// the model\n{"a": 1}', 1, "no comments"),
        ('{\n"a": 1, # width\n"b": 2}', 2, "no comments"),
        ("{\n'a': 1}", 2, "double quotes"),
        ('{\n"a": True}', 2, "true, false and null"),
        ('{"a": 1,\n}', 2, "remove the comma"),
        ('{"a": [1, 2,]}', 1, "remove the comma"),
        ("<html></html>", 1, "raw file"),
        ('```json\n{"a": 1}\n```', 1, "fence"),
        ('{"a": 1}\n{"a": 2}', 2, "one JSON value"),
        ('{"a": 1, "b', 1, "ends early"),
        ('{"a": 1,', 1, "ends early"),
        ('{"a": 0x40}', 1, "syntax"),
    ],
)
def test_what_is_not_json_is_named_with_what_to_do(
    napkin: Napkin, tmp_path: pathlib.Path, text: str, line: int, hint: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    outcome = napkin(["params", str(path)])
    assert outcome.status == 2
    assert f"config.json:{line}: not JSON" in outcome.errors[0]
    assert hint in outcome.hints[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}',  # hf_quant_config.json
        '{"metadata": {"total_size": 1}, "weight_map": {}}',  # model.safetensors.index.json
    ],
)
def test_a_file_next_to_config_json_names_it(napkin: Napkin, tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    outcome = napkin(["params", str(path)])
    assert outcome.status == 3
    assert "the config.json next to it" in outcome.hints[0]


def test_a_file_wins_over_a_shape_that_its_name_may_be(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{0}.json").write_text(CONFIG)
    assert napkin(["params", "{0}.json"]).errors == ["error: {0}.json: hidden_size: is missing"]


@pytest.mark.parametrize(("text", "value"), [("010", 8), ("0x10", 16), ("0b10", 2), ("10", 10)])
def test_whole_numbers_of_launch_files_are_read_as_pyyaml_reads_them(text: str, value: int) -> None:
    source = source_of(f"base_model: openai-community/gpt2\nmicro_batch_size: {text}\n", "axolotl.yaml")
    assert reading_of(source).inputs["micro-batch"].value == value


def test_the_command_line_settles_what_two_files_contradict(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    line = "memory gpt2 --hardware h100 --gpus 8"
    for stage in (2, 3):
        path = tmp_path / f"{stage}.json"
        path.write_text(f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": {stage}}}}}')
        line += f" --from {path}"
    assert napkin(line).status == 2
    assert napkin(f"{line} --zero 1 --json").data["inputs"]["zero"]["value"] == "1"


@pytest.mark.parametrize("cells", ["[]", '[{"cell_type": "markdown", "source": ["x"]}]', '[{"cell_type": "code"}]'])
def test_a_notebook_that_trains_nothing_says_so(napkin: Napkin, tmp_path: pathlib.Path, cells: str) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(f'{{"cells": {cells}, "nbformat": 4}}')
    outcome = napkin(f"read {path}")
    assert outcome.status == 2
    assert "holds no options of a training program" in outcome.errors[0]


def test_of_many_unknown_options_ten_are_named(napkin: Napkin) -> None:
    outcome = napkin(["memory", "gpt2", *(f"--nothing{at}" for at in range(2000))])
    assert (outcome.status, len(outcome.errors), len(outcome.hints)) == (2, 11, 10)
    assert "and 1990 more" in outcome.err

"""Files that are not the text they should be: packed, in another encoding, pointers, URLs. Each is named."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pathlib
import pickle

import pytest

from tests.conftest import Napkin

CONFIG = '{"model_type": "gpt2", "n_layer": 2}'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
KINDS = [
    (POINTER, "is a pointer of Git LFS", "git lfs pull"),
    (gzip.compress(CONFIG.encode()), "is packed (gzip)", "unpack it"),
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


ROLES = {
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

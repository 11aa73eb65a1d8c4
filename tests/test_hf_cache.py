"""MODEL from the local Hugging Face cache: a fake cache in a temporary folder."""

from __future__ import annotations

import json
import pathlib

import pytest

from napkin.errors import NapkinError
from napkin.inputs.hf_cache import cached_config, folder
from napkin.inputs.presets import preset
from tests.conftest import Napkin, run_line

CONFIG = {**preset("llama3-8b").config, "num_hidden_layers": 7}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hold(
    cache: pathlib.Path, name: str, fields: object = CONFIG, commit: str = COMMIT, main: str | None = COMMIT
) -> pathlib.Path:
    """Put a model into the cache as huggingface_hub does: a blob, and a link to it in a snapshot."""
    home = cache / f"models--{name.replace('/', '--')}"
    (home / "blobs").mkdir(parents=True, exist_ok=True)
    (home / "snapshots" / commit).mkdir(parents=True)
    path = home / "snapshots" / commit / "config.json"
    if fields is not None:
        (home / "blobs" / f"blob{commit}").write_text(json.dumps(fields), encoding="utf-8")
        path.symlink_to(home / "blobs" / f"blob{commit}")
    if main is not None:
        (home / "refs").mkdir(exist_ok=True)
        (home / "refs" / "main").write_text(main, encoding="utf-8")
    return path


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_an_id_is_read_from_the_cache(napkin: Napkin, cache: pathlib.Path) -> None:
    path = hold(cache, "acme/Anvil-2B")
    found = napkin("params acme/Anvil-2B --json").data
    layer = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336 + 2 * 4096
    assert found["values"]["params/total"] == 7 * layer + 2 * 128256 * 4096 + 4096
    assert found["inputs"]["model"] == {
        "value": "acme/Anvil-2B",
        "origin": "given",
        "given": "acme/Anvil-2B",
        "where": str(path),
    }
    first = napkin("memory acme/Anvil-2B --hardware h100").out.splitlines()[0]
    assert first.startswith("acme/Anvil-2B (local cache) on H100")
    assert str(path) in napkin("params acme/Anvil-2B --explain").out


def test_the_order_of_what_is_read(
    napkin: Napkin, cache: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing folder, then presets, then the cache; a path is never looked up."""

    def read_from(model: str) -> str:
        return str(napkin(f"params {model} --json").data["inputs"]["model"]["where"])

    hold(cache, "meta-llama/Meta-Llama-3-8B")
    hold(cache, "acme/anvil")
    assert read_from("meta-llama/Meta-Llama-3-8B") == "preset llama3-8b"
    here = tmp_path / "here"
    (here / "acme" / "anvil").mkdir(parents=True)
    monkeypatch.chdir(here)
    (here / "acme" / "anvil" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert read_from("acme/anvil") == "acme/anvil/config.json"
    for missing in (
        "./acme/other",
        "~/acme/anvil",
        "acme/anvil/more",
        "acme/anvil.json",
        "/meta-llama/Meta-Llama-3-8B",
    ):
        assert run_line(f"params {missing}").status == 2


def test_the_commit_of_main_is_read(cache: pathlib.Path) -> None:
    other = "f" * 40
    path = hold(cache, "acme/anvil", main=COMMIT)
    hold(cache, "acme/anvil", commit=other, main=None)
    assert cached_config("acme/anvil") == str(path)
    assert cached_config("ACME/Anvil") == str(path)
    (cache / "models--acme--anvil" / "refs" / "main").unlink()
    with pytest.raises(NapkinError, match="2 commits"):
        cached_config("acme/anvil")


def test_the_only_commit_is_read_without_main(cache: pathlib.Path) -> None:
    path = hold(cache, "acme/anvil", main=None)
    assert cached_config("acme/anvil") == str(path)


@pytest.mark.parametrize("main", ["../../../../etc", "", "..", "a/b", COMMIT[::-1]])
def test_a_bad_reference_is_refused(cache: pathlib.Path, main: str) -> None:
    hold(cache, "acme/anvil", main=main)
    with pytest.raises(NapkinError) as refused:
        cached_config("acme/anvil")
    assert "hf download" in str(refused.value.hint)


@pytest.mark.parametrize("fields", [None, [1], {"hidden_size": 8}])
def test_a_model_without_a_usable_config_is_refused(cache: pathlib.Path, fields: object) -> None:
    hold(cache, "acme/anvil", fields)
    outcome = run_line("params acme/anvil")
    assert outcome.status in (2, 3)
    assert len(outcome.errors) == 1


@pytest.mark.parametrize("model", ["acme/nothing", "../acme", "a/../b", "acme//anvil", "-/x", "acme/anvil/x", "a\nb"])
def test_what_the_cache_does_not_hold(cache: pathlib.Path, model: str) -> None:
    hold(cache, "acme/anvil")
    assert cached_config(model) is None


def test_an_unknown_id_says_where_it_was_looked_for(cache: pathlib.Path) -> None:
    outcome = run_line("memory acme/nothing --hardware h100")
    assert outcome.status == 2
    assert "local Hugging Face cache does not hold it" in outcome.errors[0]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert folder() == "/home/ada/.cache/huggingface/hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert folder() == "/var/cache/huggingface/hub"
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert folder() == "/home/ada/hf/hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/data/hub")
    assert folder() == "/data/hub"


def test_a_long_name_leaves_line_1_within_the_terminal(napkin: Napkin, cache: pathlib.Path) -> None:
    name = "anvils-and-hammers/Anvil-2B-Instruct-Extended-Context-v2"
    hold(cache, name)
    for line in (f"memory {name} --hardware h100", f"flops {name}", f"step {name} --hardware h100 --gpus 8"):
        first = napkin(line).out.splitlines()[0]
        assert name in first
        assert first.endswith("…")
        assert len(first) <= 80

"""The wheel and the sdist: installed into an empty environment and run from another folder, they answer the same."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from typing import Any

import pytest

from tests.conftest import ROOT

LECTURE = shlex.split("train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5 --json")
CLEAN = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


def python(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, timeout=300, **more)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", str(folder), ROOT, env=CLEAN)
    return folder


def link_dependencies(site: pathlib.Path) -> None:
    """Link what the wheel's metadata asks for without an extra, and what that asks for, and nothing else."""
    (own,) = metadata.distributions(name="napkin-math", path=[str(site)])
    waiting, known = list(own.requires or ()), set()
    while waiting:
        words = waiting.pop().partition(";")
        name = re.split(r"[^\w.-]", words[0])[0]
        if name in known or "extra ==" in words[2]:
            continue
        known.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another Python or system
            assert words[2], name
            continue
        waiting += found.requires or ()
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(found.locate_file(top)))


def test_the_sdist_carries_sources_tests_and_data(built: pathlib.Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hardware_specs.yaml", "README.md", "LICENSE", "Makefile", "pyproject.toml", "tests/conftest.py"} <= names
    assert any(name.startswith("configs/models/") for name in names)


def test_the_wheel_installed_alone_answers_from_another_folder(built: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith("napkin_math-")
    with zipfile.ZipFile(wheel) as archive:
        assert "napkin/py.typed" in archive.namelist()
    home = tmp_path / "empty"
    python("-m", "venv", "--without-pip", str(home))
    inside = str(home / "bin" / "python")
    python("-m", "pip", "--python", inside, "install", "--quiet", "--disable-pip-version-check", "--no-index",
           "--no-deps", "--no-compile", str(wheel), env=CLEAN)  # fmt: skip
    (site,) = (home / "lib").glob("python*/site-packages")
    link_dependencies(site)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    there = subprocess.run(
        [str(home / "bin" / "napkin"), *LECTURE], capture_output=True, text=True, cwd=elsewhere, env=CLEAN, timeout=60
    )
    here = python("-m", "napkin", *LECTURE)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    for line in ("params llama3-70b", "hardware h100", "models llama3-70b", "validate"):
        done = subprocess.run(
            [str(home / "bin" / "napkin"), *line.split()], capture_output=True, text=True, cwd=elsewhere, env=CLEAN,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stderr}"

"""What docs/bench.md says about napkin bench is what it is."""

from __future__ import annotations

import dataclasses
import os
import subprocess

import pytest
import yaml

from napkin.bench import formats, modes, stats, verdicts
from napkin.bench.compare import GPU_TO_GPU, RUN_TO_RUN
from napkin.commands.bench import COMMAND
from napkin.inputs import profile, profile_cases
from napkin.options.output import COMMON
from tests.conftest import ROOT, Napkin

with open(os.path.join(ROOT, "docs", "bench.md"), encoding="utf-8") as _file:
    TEXT = _file.read()


@pytest.mark.parametrize(
    "kind",
    [
        profile.Profile,
        profile_cases.ProfiledDevice,
        profile_cases.Case,
        profile_cases.MeasuredValue,
        profile_cases.Sustained,
        profile_cases.Telemetry,
        profile_cases.Peak,
        profile_cases.OverRanks,
    ],
)
def test_every_field_of_the_profile_is_documented(kind: type) -> None:
    for field in dataclasses.fields(kind):
        assert f"`{field.name}`" in TEXT, field.name


def test_every_option_is_documented() -> None:
    for name in COMMAND.takes:
        if name not in COMMON:
            assert f"`--{name}`" in TEXT, name


def test_the_formats_and_their_first_capability_are_those_of_the_code() -> None:
    rows = {}
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0] != "format" and not cells[0].startswith("-"):
            for key in cells[0].split(", "):
                rows[key] = cells
    assert set(rows) == set(formats.FORMATS)
    for key, cells in rows.items():
        wanted = formats.FORMATS[key]
        if cells[1] != "yes":
            assert cells[1] == ".".join(map(str, wanted.capability)), key
        if wanted.k_multiple > 1:
            assert str(wanted.k_multiple) in cells[5]


def test_the_thresholds_are_those_of_the_code() -> None:
    assert f"{RUN_TO_RUN:.1%}".replace("%", " %") in TEXT
    assert f"{GPU_TO_GPU:.1%}".replace("%", " %") in TEXT
    assert stats.NOISY_RATIO == 1.15
    assert "more than 15 %" in TEXT
    assert stats.ANCHOR_SPREAD == 0.03
    assert (modes.DEFAULT.hold.settled, modes.DEFAULT.hold.window, modes.DEFAULT.hold.sub_window) == (0.005, 10.0, 0.25)
    assert [mark for mark, _ in verdicts.MARKS] == [0.5, 0.4, 0.2, 0.05]
    for word in ("healthy", "contended", "throttled", "unhealthy", "incomplete"):
        assert f"`{word}`" in TEXT


@pytest.mark.parametrize("name", ["bench-slurm.sh", "bench-kubernetes.yaml"])
def test_the_cluster_examples_are_well_formed(name: str) -> None:
    path = os.path.join(ROOT, "docs", "examples", name)
    assert f"examples/{name}" in TEXT
    if name.endswith(".sh"):
        subprocess.run(["bash", "-n", path], check=True)
        return
    with open(path, encoding="utf-8") as file:
        service, job = yaml.safe_load_all(file)
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    arguments = pod["containers"][0]["args"]
    words = arguments[arguments.index("bench") + 1 :]
    options = {word.partition("=")[0].removeprefix("--") for word in words}
    assert options <= set(COMMAND.takes)


def test_the_help_shows_the_examples(napkin: Napkin) -> None:
    done = napkin("bench --help-all")
    assert done.status == 0
    for example in COMMAND.examples:
        assert example in done.out


def test_no_profile_ships_unmeasured() -> None:
    """Each file in configs/profiles is a profile of a real GPU that reads back; docs say so if there is none."""
    folder = os.path.join(ROOT, "configs", "profiles")
    found = [name for name in os.listdir(folder) if name.endswith(".json")]
    for name in found:
        read = profile.read_profile(os.path.join(folder, name))
        assert read.device.kind in profile_cases.GPU_KINDS
        assert read.complete
    assert bool(found) is ("No figure of a real GPU ships" not in TEXT)

"""The files that CI systems read: the composite action, the pre-commit hook. Their shell steps are run."""

from __future__ import annotations

import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from napkin.commands.command import find
from tests.conftest import ROOT

LIMITS = "command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.5\nlimits:\n  time: "


def parsed(*path: str) -> Any:
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return yaml.safe_load(file)


ACTION: dict[str, Any] = parsed("action.yml")


def filled(text: str, values: dict[str, str]) -> str:
    """A text of the action with its expressions replaced; one that is not in `values` fails."""
    return re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda found: values[found.group(1)], text)


def run_step(step: dict[str, Any], values: dict[str, str], env: dict[str, str], cwd: pathlib.Path) -> Any:
    """Run a step as GitHub runs bash: fail at the first command that fails, and in a pipe."""
    given = {name: filled(text, values) for name, text in step.get("env", {}).items()}
    assert "${{" not in step["run"], "an expression in a script is replaced before bash reads it, quotes or not"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=cwd,
        env={**env, **given},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def runner(tmp_path: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """The environment that a runner gives its steps, with this interpreter's napkin on the path, and the checkout."""
    commands, checkout = tmp_path / "bin", tmp_path / "checkout"
    commands.mkdir()
    checkout.mkdir()
    napkin = commands / "napkin"
    napkin.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m napkin "$@"\n')
    napkin.chmod(0o755)
    env = {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.path.join(ROOT, "src"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_PATH": str(tmp_path / "path"),
        "GITHUB_WORKSPACE": str(checkout),
    }
    return env, checkout


def check(runner: tuple[dict[str, str], pathlib.Path], files: str, junit: str = "") -> Any:
    env, checkout = runner
    return run_step(ACTION["runs"]["steps"][1], {"inputs.files": files, "inputs.junit": junit}, env, checkout)


def test_the_action_checks_files_and_folders(runner: tuple[dict[str, str], pathlib.Path]) -> None:
    env, checkout = runner
    (checkout / "runs").mkdir()
    (checkout / "runs" / "a.yaml").write_text(LIMITS + '"<= 150d"\n')
    found = check(runner, "runs")
    assert found.returncode == 0, found.stderr
    assert "1 of 1" in found.stdout
    (checkout / "b.yaml").write_text(LIMITS + '"<= 100d"\n')
    found = check(runner, "runs\nb.yaml\n", "junit.xml")
    assert found.returncode == 1
    assert "::error file=b.yaml,line=8,title=train-time%3A time <= 100d::" in found.stdout
    assert '<testcase classname="b.yaml"' in (checkout / "junit.xml").read_text()
    assert pathlib.Path(env["GITHUB_OUTPUT"]).read_text() == "status=0\nstatus=1\n"


def test_the_action_runs_no_text_of_its_inputs(runner: tuple[dict[str, str], pathlib.Path]) -> None:
    _, checkout = runner
    found = check(runner, '$(touch bad) "; touch bad; " --output=bad', "`touch bad`")
    assert found.returncode == 2
    assert not (checkout / "bad").exists()


def test_the_action_installs_what_lies_next_to_it(runner: tuple[dict[str, str], pathlib.Path]) -> None:
    """With a stand-in for pip, which has no registry in a test: the folder it is given, and the path that is added."""
    env, checkout = runner
    place = checkout / "place"
    fake = pathlib.Path(env["PATH"].split(os.pathsep)[0]) / "python3"
    fake.write_text(
        '#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; else echo "$@" > asked; fi\n'
    )
    fake.chmod(0o755)
    step = ACTION["runs"]["steps"][0]
    found = run_step(step, {"github.action_path": ROOT, "runner.temp": str(place.parent)}, env, checkout)
    assert found.returncode == 0, found.stderr
    assert (checkout / "asked").read_text().split()[-1] == ROOT
    assert pathlib.Path(env["GITHUB_PATH"]).read_text().strip() == str(checkout / "napkin" / "bin")


def test_the_action_declares_what_it_uses() -> None:
    used = set(re.findall(r"\$\{\{ *inputs\.(\w+) *\}\}", str(ACTION)))
    assert used == set(ACTION["inputs"])
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"])


HOOK: dict[str, Any] = parsed(".pre-commit-hooks.yaml")[0]


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("napkin.yaml", True),
        ("runs/70b.napkin.yml", True),
        ("ci/napkin/a.yaml", True),
        (".napkin/deep/a.yaml", True),
        ("runs/a.yaml", False),
        ("napkin.json", False),
        ("napkins/a.yaml", False),
    ],
)
def test_the_hook_takes_run_files(path: str, taken: bool) -> None:
    assert bool(re.search(HOOK["files"], path)) is taken


def test_the_hook_is_a_command_of_the_package() -> None:
    assert HOOK["entry"].split() == ["napkin", find("check").name]
    assert HOOK["language"] == "python"
    assert {"id", "name", "entry", "language"} <= set(HOOK)


@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_runs_the_hook(tmp_path: pathlib.Path) -> None:
    (tmp_path / "napkin.yaml").write_text(LIMITS + '"<= 100d"\n')
    for command in (["git", "init", "-q"], ["git", "add", "."]):
        subprocess.run(command, cwd=tmp_path, check=True)
    line = ["pre-commit", "try-repo", ROOT, "napkin-check", "--all-files"]
    found = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "by 43.94 days" in found.stdout


WORKFLOW: dict[str, Any] = parsed(".github", "workflows", "ci.yml")
ENVIRONMENTS = runpy.run_path(os.path.join(ROOT, "tools", "environments.py"))


def test_the_workflow_tests_every_python_that_is_supported() -> None:
    pythons = list(ENVIRONMENTS["PYTHONS"])
    project = ENVIRONMENTS["project"]()
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == pythons
    versions = [one.rpartition(" ")[2] for one in project["classifiers"] if ":: Python :: 3." in one]
    assert versions == pythons
    assert project["requires-python"] == f">={pythons[0]}"
    steps = [step.get("run") for step in WORKFLOW["jobs"]["test"]["steps"]]
    assert "bash .ci/run" in steps


def test_the_workflow_names_environments_that_are_there() -> None:
    names = {one.name for one in ENVIRONMENTS["ENVIRONMENTS"]}
    asked = {one["environment"] for one in WORKFLOW["jobs"]["environments"]["strategy"]["matrix"]["include"]}
    assert asked <= names
    assert {"lowest", "transformers"} <= asked


def test_lower_bounds_are_pinned_one_by_one() -> None:
    pins = dict(one.split("==") for one in ENVIRONMENTS["lower_bounds"]())
    assert set(pins) == {"typer", "pydantic", "pyyaml", "tomli", "numpy", "matplotlib"}
    assert pins["typer"] == "0.20"


def test_the_tests_of_an_environment_are_there_and_need_no_torch() -> None:
    for name in ENVIRONMENTS["SUBSET"]:
        path = os.path.join(ROOT, "tests", f"{name}.py")
        with open(path, encoding="utf-8") as file:
            assert not re.search("^import torch|^from torch", file.read(), re.MULTILINE), name


def test_the_metadata_and_the_citation_agree() -> None:
    project, citation = ENVIRONMENTS["project"](), parsed("CITATION.cff")
    assert [one["name"] for one in project["authors"]] == [one["name"] for one in citation["authors"]]


MUTANTS = runpy.run_path(os.path.join(ROOT, "tools", "mutants.py"))
PLACES = MUTANTS["all_places"](list(MUTANTS["PACKAGES"]))


def test_a_mutant_changes_one_place_of_a_formula() -> None:
    text = (
        "from napkin import term\n"
        "def f(a: int = 2) -> int:\n"
        '    """1 + 1."""\n'
        "    if a < 3:\n"
        '        raise ValueError(f"{a + 1}")\n'
        "    x = term.multiply('x', p, q, r)\n"
        "    return max(a, 4) // b\n"
    )
    found = list(MUTANTS["places"]("counting/x.py", text))
    assert sorted(one.written for one in found) == [
        "def f(a: int = {2 → 3}) -> int:",
        "if a < {3 → 4}:",
        "if a {< → <=} 3:",
        "return max(a, 4) {// → *} b",
        "return max(a, {4 → 5}) // b",
        "return {max → min}(a, 4) // b",
        "x = term.multiply('x', p, q{, r → })",
    ]
    first = next(one for one in found if "<=" in one.written)
    assert first.lines == (4, 4)
    assert first.of(text.encode()).decode() == text.replace("a < 3", "a <= 3")


def test_the_sample_of_mutants_is_the_same_for_a_seed_and_leaves_no_package_out() -> None:
    first, again, other = (MUTANTS["sample"](PLACES, 30, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {one.package for one in first} == set(MUTANTS["PACKAGES"])

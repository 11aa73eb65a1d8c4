"""Run the tests in the environments that napkin supports: every Python, lowest and newest of every dependency.

    python tools/environments.py                 all of them (minutes); .environments/ keeps what was built
    python tools/environments.py 3.12 lowest     some of them
    python tools/environments.py --list

    3.10 … 3.14     napkin and the newest of its dependencies on that Python
    lowest          the lower bounds of pyproject.toml, on the lowest Python; a later one if they have a build for it
    transformers    next to transformers, in one environment
    training        next to the libraries that have a callback of napkin's, with torch: toy models are trained

In each, napkin is installed as a user installs it, `pip check` looks for conflicts, the two commands of `make demo` and
a check run as processes, and the tests of SUBSET run against what is installed. What no interpreter is here for is
skipped and said; the exit status is 1 if anything failed, 5 if nothing was run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACE = os.path.join(ROOT, ".environments")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TESTING = ("pytest>=8,<10", "pytest-xdist>=3.6,<4", "hypothesis>=6.100,<7")
SUBSET = (
    "test_units", "test_formats", "test_record", "test_term", "test_tensors", "test_contract",
    "test_contract_commands", "test_contract_files", "test_cli",
    "test_reader", "test_help", "test_completion", "test_missing", "test_check", "test_check_ci", "test_schema",
    "test_params", "test_flops", "test_mfu", "test_time", "test_memory", "test_step", "test_roofline", "test_hardware",
    "test_small_cli", "test_snapshot", "test_plot", "test_sweep", "test_compare", "test_api", "test_meter",
    "test_callbacks",
)  # fmt: skip
"""Test files that need no torch: every command, every kind of file that a user gives, and the formulas."""
PROCESSES = (
    ("train-time", "--params", "70B", "--tokens", "15T", "--gpus", "1024", "--hardware", "h100", "--mfu", "0.5"),
    ("max-params", "--gpus", "8", "--hardware", "h100"),
    ("check", "configs/runs"),
    ("--help",),
)
SHOWN = ("typer", "pydantic", "pyyaml", "numpy", "matplotlib", "torch", "transformers", "lightning")


@dataclass(frozen=True)
class Environment:
    """An environment: its name, the Python that it takes, and what is installed next to napkin."""

    name: str
    python: str
    more: tuple[str, ...] = ()
    lowest: bool = False


ENVIRONMENTS = (
    *(Environment(python, python) for python in PYTHONS),
    Environment("lowest", PYTHONS[0], lowest=True),
    Environment("transformers", "3.11", ("transformers>=5",)),
    Environment("training", "3.11", ("torch>=2.5", "transformers>=5", "accelerate>=1.1", "lightning>=2")),
    Environment(
        "training-2024", "3.11", ("torch>=2.5,<2.6", "transformers==4.46.3", "accelerate>=1,<1.3", "numpy<2.3")
    ),
)


def project() -> dict[str, Any]:
    """pyproject.toml's [project]. Python 3.10 has no reader of TOML of its own, and pip brings one."""
    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        found: dict[str, Any] = toml.load(file)["project"]
    return found


def lower_bounds() -> list[str]:
    """`name==lowest` of every dependency and of what --plot needs."""
    stated = project()
    found = []
    for one in [*stated["dependencies"], *stated["optional-dependencies"]["plot"]]:
        match = re.match(r"([\w.-]+)>=([\w.]+)", one)
        if match is None:
            raise SystemExit(f"error: pyproject.toml: {one} has no lower bound")
        found.append(f"{match[1]}=={match[2]}")
    return found


def interpreter(version: str) -> str | None:
    """Return an interpreter of that version: this one, on the path, or among pyenv's."""
    found = shutil.which(f"python{version}")
    candidates = [sys.executable, *([found] if found else [])]
    versions = os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")
    if os.path.isdir(versions):
        names = sorted(name for name in os.listdir(versions) if name.startswith(f"{version}."))
        candidates += [os.path.join(versions, name, "bin", "python") for name in reversed(names)]
    for one in candidates:
        asked = subprocess.run([one, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True)
        if asked.stdout.decode().strip() == version:
            return one
    return None


def built(one: Environment, python: str) -> str:
    """Build an environment from nothing and return its interpreter. Raises CalledProcessError."""
    folder = os.path.join(PLACE, one.name)
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    inside = os.path.join(folder, "Scripts" if os.name == "nt" else "bin", "python")
    pins = lower_bounds() if one.lowest else []
    line = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*line, f"{ROOT}[plot]", *TESTING, *pins, *one.more], check=True)
    subprocess.run([inside, "-m", "pip", "check", "--disable-pip-version-check"], check=True)
    return inside


def versions_in(inside: str) -> str:
    """Return the versions that an environment has of what napkin stands on."""
    code = (
        "import importlib.metadata as m, platform\n"
        f"have = {{d.metadata['Name'].lower(): d.version for d in m.distributions()}}\n"
        f"print(platform.python_version(), *(f'{{n}} {{have[n]}}' for n in {SHOWN!r} if n in have), sep=', ')"
    )
    return subprocess.run([inside, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def tested(inside: str, workers: int, lowest: bool) -> tuple[int, str]:
    """Run the processes and the subset in an environment: the exit status, and pytest's last line."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for words in PROCESSES:
        run = subprocess.run([inside, "-m", "napkin", *words], cwd=ROOT, env=env, capture_output=True, text=True)
        if run.returncode or not run.stdout.strip():
            return 1, f"napkin {' '.join(words)}: status {run.returncode}: {run.stderr.strip()[:300]}"
    files = [os.path.join("tests", f"{name}.py") for name in SUBSET]
    line = [inside, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers), *files]
    if lowest:  # warnings of an old package about a newer one below it are not napkin's
        line += ["-W", "default::DeprecationWarning", "-W", "default::PendingDeprecationWarning"]
    run = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True)
    last = run.stdout.strip().splitlines()[-1:] or run.stderr.strip().splitlines()[-1:]
    if run.returncode:
        print("\n".join(run.stdout.splitlines()[-40:]), file=sys.stderr)
    return run.returncode, last[0] if last else "nothing printed"


def main() -> int:
    """Build and test what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="which environments there are, and their interpreters")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    unknown = set(asked.names) - {one.name for one in ENVIRONMENTS}
    if unknown:
        parser.error(f"no environment {', '.join(sorted(unknown))}")
    outcomes = []
    for one in ENVIRONMENTS:
        if asked.names and one.name not in asked.names:
            continue
        python = interpreter(one.python)
        if asked.list or python is None:
            outcomes.append(
                (one.name, "skipped" if python is None else "found", python or f"no Python {one.python} here")
            )
            continue
        try:
            inside = built(one, python)
            status, said = tested(inside, asked.workers, one.lowest)
            outcomes.append((one.name, "failed" if status else "passed", f"{versions_in(inside)}: {said}"))
        except subprocess.CalledProcessError as problem:
            outcomes.append(
                (one.name, "failed", f"{' '.join(map(str, problem.cmd[:6]))} …: status {problem.returncode}")
            )
        print(*outcomes[-1], sep="\t", flush=True)
    if asked.list or not outcomes:
        print("\n".join("\t".join(row) for row in outcomes))
        return 0
    print("\n".join(f"{name:14} {word:8} {said}" for name, word, said in outcomes))
    words = [word for _, word, _ in outcomes]
    return 1 if "failed" in words else 0 if "passed" in words else 5


if __name__ == "__main__":
    sys.exit(main())

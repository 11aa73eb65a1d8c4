"""What a cold start of napkin costs over a bare interpreter, with the lowest and with the newest typer.

    python benchmarks/startup.py [--environments FOLDER] [--rounds 15]

Whole processes, interleaved in rounds after two of warm-up; user + system time and peak memory of each, as the
operating system counts them; medians, and their ratios to `python -c pass` of the same environment and run. With
--environments, two virtual environments are made there where they are missing: typer 0.20, and the newest that pip
finds. Without it, the environment that runs this. Goals: 4 × and 30 MB for `train-time` with a given MFU, 6 × where
a model is read, 8 × where evidence is consulted or what would fit is searched.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINES = {
    "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5": 4,
    "train-time --params 70B --token 15T --gpu h100": 4,
    "params llama3-8b": 6,
    "flops llama3-8b --seq 8192": 6,
    "memory llama3-8b --gpus 8 --hardware h100 --zero 3": 6,
    "step llama3-8b --gpus 8 --zero 3 --hardware h100": 8,
    "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100": 8,
    "memory llama3-8b --gpus 8 --hardware h100": 8,
}
"""Command line → the most that it may cost, over a bare interpreter."""
SHOWN = ("memory --help", "")
"""What has no goal: help, and candidates for completion."""
PACKAGES = ("rich>=13,<16", "pydantic>=2.7,<3", "pyyaml>=6.0.1,<7", "numpy>=1.26,<3")
TYPERS = {"lowest": "typer==0.20.*", "newest": "typer"}
# An installed package has its bytecode; a checkout gets it in the rounds of warm-up.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["PYTHONPATH"] = os.path.join(ROOT, "src")
COMPLETION = {"_NAPKIN_COMPLETE": "complete_bash", "COMP_WORDS": "napkin memory llama3-", "COMP_CWORD": "2"}


def environments(folder: str) -> dict[str, str]:
    """Return the interpreter of an environment for each typer; one that is missing is made."""
    found = {}
    for name, typer in TYPERS.items():
        place = os.path.join(folder, name)
        found[name] = os.path.join(place, "bin", "python")
        if not os.path.exists(found[name]):
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            subprocess.run([found[name], "-m", "pip", "install", "--quiet", typer, *PACKAGES], check=True)
    return found


def once(argv: list[str], **more: str) -> tuple[float, float]:
    """CPU seconds and peak resident MB of one whole process."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**ENVIRONMENT, **more})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):
        sys.exit(f"error: {' '.join(argv)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def measure(python: str, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return CPU seconds and MB of each round by command line."""
    seen: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 2):
        for line in ("python -c pass", *LINES, *SHOWN):
            argv = [python, "-c", "pass"] if line.startswith("python") else [python, "-m", "napkin", *shlex.split(line)]
            result = once(argv, **({} if line else COMPLETION))
            if number >= 2:
                seen.setdefault(line, []).append(result)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    pythons = environments(options.environments) if options.environments else {"this": sys.executable}
    for name, python in pythons.items():
        asked = [python, "-c", "from importlib.metadata import version; print(version('typer'))"]
        version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        seen = measure(python, options.rounds)
        bare = statistics.median(cpu for cpu, _ in seen["python -c pass"])
        print(f"typer {version} ({name})\n  {'cpu ms':>8} {'× bare':>7} {'goal':>5} {'peak MB':>8}")
        for line, runs in seen.items():
            cpu, memory = (statistics.median(values) for values in zip(*runs, strict=True))
            goal = f"{LINES[line]:>5}" if line in LINES else " " * 5
            print(f"  {1000 * cpu:8.1f} {cpu / bare:7.2f} {goal} {memory:8.1f}  {line or 'candidates after <Tab>'}")


if __name__ == "__main__":
    main()

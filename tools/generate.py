"""Write every generated table and page of published errors, in the order in which one needs the other.

python tools/generate.py            write them all and name the files and the numbers that changed; `make generate`
python tools/generate.py --check    leave every file as it is; exit status 1 if one is out of step

Run it twice and the second run changes nothing. A few minutes: the calibration fits every published step once for each
source that is held out. Tables that are measured on transformers' own classes need that library and hours: they are
named at the end with the command that writes them, and their cases are tested against the stored files instead.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from numbers_moved import moved  # noqa: E402

NAMED, WIDEST = 40, 160
"""Numbers of a file that are named, and characters of one."""


class Step(NamedTuple):
    """One tool of this folder, and the patterns of the files that it writes."""

    tool: str
    writes: tuple[str, ...]
    why: str


STEPS = (
    Step("tables.py", ("src/napkin/_tables/*.py", "src/napkin/__init__.pyi"), "what people edit, as Python literals"),
    Step("calibrate.py", ("src/napkin/_tables/calibration*.py",), "constants of the step time; reads published steps"),
    Step("serving_shares.py", ("src/napkin/_tables/serving_shares.py",), "what engines reach; reads the calibration"),
    Step("serving_accuracy.py", ("docs/serving-accuracy.md",), "errors of serving; reads what engines reach"),
    Step("rollout_accuracy.py", ("src/napkin/_tables/rollout_errors.py",), "errors of steps that generate responses"),
    Step(
        "tuning_run_accuracy.py",
        ("src/napkin/_tables/tuning_run_errors.py",),
        "how much longer runs of fine-tuning take than their steps; reads the calibration",
    ),
    Step(
        "tuning_memory_accuracy.py",
        ("src/napkin/_tables/tuning_memory_errors.py",),
        "how far memory of fine-tuning lies outside the formulas",
    ),
    Step("memory_accuracy.py", ("src/napkin/_tables/memory_errors.py", "docs/memory.md"), "errors of the memory model"),
    Step("accuracy.py", ("docs/accuracy.md",), "errors and intervals of every quantity; reads the tables above"),
    Step("layouts.py", ("docs/plan.md",), "ranks of published layouts; reads both"),
    Step("picture.py", ("docs/images/packages.svg",), "the packages, from the order that the tests assert"),
)
BY_HAND = (
    Step("saved_bytes.py --write", ("src/napkin/_tables/saved_bytes.py",), "bytes that autograd saves"),
    Step("traced_steps.py --write", ("src/napkin/_tables/traced_steps.py",), "live bytes of traced training steps"),
    Step("lora_counts.py --write", ("src/napkin/_tables/adapter_targets.py",), "what peft adapts by default"),
    Step("layer_paths.py", ("src/napkin/_tables/layer_paths.py",), "where a class has its layers"),
    Step("class_fields.py", ("src/napkin/_tables/class_fields.py",), "the config fields that each class reads"),
    Step("class_names.py", ("src/napkin/_tables/class_names.py",), "the classes that files may name"),
    Step("class_heads.py --write", ("src/napkin/_tables/class_heads.py",), "heads of classes that score labels"),
    Step("class_ties.py", ("src/napkin/_tables/class_ties.py",), "whose tie_word_embeddings a class follows"),
    Step("class_counts.py --write MODEL_TYPE…", (), "parameters and FLOPs of transformers' classes"),
)
"""Need transformers; a few minutes for each model type."""


def contents(steps: tuple[Step, ...] = STEPS, root: Path = ROOT) -> dict[Path, bytes]:
    """Return the bytes of every file that the steps write."""
    return {path: path.read_bytes() for step in steps for pattern in step.writes for path in root.glob(pattern)}


def changed(before: dict[Path, bytes], after: dict[Path, bytes]) -> list[Path]:
    """Return the files that differ, new ones and removed ones included."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def moved_numbers(before: bytes, after: bytes) -> list[str]:
    """Return the numbers that moved in a file, the first `NAMED` of them, as `label: old → new`."""
    found = moved(before.decode().splitlines(), after.decode().splitlines())
    left = len(found) - NAMED
    return [*(change[:WIDEST] for change in found[:NAMED]), *([f"and {left:,} more"] if left > 0 else [])]


def restore(before: dict[Path, bytes], paths: list[Path]) -> None:
    """Put the files back as they were."""
    for path in paths:
        if path in before:
            path.write_bytes(before[path])
        else:
            path.unlink()


def run(step: Step) -> None:
    """Run one tool on this checkout's package; raise if it fails."""
    print(f"{step.tool}: {step.why}", flush=True)
    source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, str(ROOT / "tools" / step.tool)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": source}, check=True, stdout=subprocess.DEVNULL)


def say_what_is_left() -> None:
    """Name the tables that this run did not write."""
    has = importlib.util.find_spec("transformers") is not None
    print("not run here: " + ("hours" if has else "transformers is not installed"))
    for step in BY_HAND:
        print(f"  python tools/{step.tool}    {step.why}")


def main(arguments: list[str]) -> int:
    """Run every step; report what changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="leave every file as it is")
    check = parser.parse_args(arguments).check
    before = contents()
    try:
        for step in STEPS:
            run(step)
    except subprocess.CalledProcessError as problem:
        restore(before, changed(before, contents()))
        print(f"error: {problem.cmd[-1]} ended with status {problem.returncode}; nothing was written", file=sys.stderr)
        return 2
    stale = changed(before, contents())
    for path in stale:
        print(f"changed: {path.relative_to(ROOT)}")
        for change in moved_numbers(before.get(path, b""), path.read_bytes() if path.exists() else b""):
            print(f"  {change}")
    if not stale:
        print("every table is in step")
    say_what_is_left()
    if check:
        restore(before, stale)
        return 1 if stale else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

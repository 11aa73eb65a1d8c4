"""What layout searches cost: twenty questions, each a whole process, the median of a few runs.

    python benchmarks/search.py [--rounds 3] [--only TEXT]

CPU seconds as the operating system counts them, as a multiple of a bare start of the interpreter, and peak memory.
Goals: every preset on any machine up to 100,000 GPUs below 1 s of CPU, `sensitivity plan` and ranges of GPUs below 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

ONE, SEVERAL = 1.0, 2.0
"""CPU seconds that a question may take: one machine, and several."""
EVERY = "--max-tp 128 --max-zero 3"
QUESTIONS = (
    ("plan llama3-8b --gpus 8 --hardware h100 --seq 8192 --global-batch 64", ONE),
    ("plan llama3-8b --gpus 64 --hardware a100 --seq 8192", ONE),
    ("plan qwen3-32b --gpus 256 --hardware h200 --seq 4096", ONE),
    ("plan gemma3-27b --gpus 256 --hardware h100 --seq 8192", ONE),
    ("plan llama3-70b --gpus 512 --hardware h100 --seq 8192 --global-batch 1024", ONE),
    ("plan llama3-70b --gpus 1536 --hardware h100 --seq 8192", ONE),
    ("plan mixtral-8x7b --gpus 1024 --hardware h100 --seq 4096", ONE),
    ("plan mixtral-8x22b --gpus 512 --hardware b200 --seq 8192", ONE),
    ("plan qwen3-235b-a22b --gpus 4096 --hardware h200 --seq 8192", ONE),
    ("plan llama3-405b --gpus 16384 --hardware h100 --seq 8192 --global-batch 2048", ONE),
    (f"plan llama3-405b --gpus 16384 --hardware h100 --seq 8192 --global-batch 2048 {EVERY}", ONE),
    ("plan llama3-405b --gpus 98304 --hardware b200 --seq 8192", ONE),
    ("plan deepseek-v3 --gpus 2048 --hardware h800 --seq 4096 --global-batch 15360", ONE),
    ("plan deepseek-v3 --gpus 2048 --hardware h100 --seq 4096 --precision fp8-mixed", ONE),
    ("plan deepseek-v3 --gpus 98304 --hardware h100 --seq 4096", ONE),
    ("plan llama3-70b --hardware h100 --seq 8192", ONE),
    ("plan llama3-70b --hardware h100 --seq 8192 --tokens 15T --within 60d", ONE),
    ("plan llama3-70b --gpus 256..4096 --hardware h100 --seq 8192", SEVERAL),
    ("sensitivity plan llama3-8b --gpus 64 --hardware h100 --seq 8192", SEVERAL),
    ("sensitivity plan llama3-70b --gpus 512 --hardware h100 --seq 8192 --global-batch 1024", SEVERAL),
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""An installed package has its bytecode; a checkout gets it in the first run."""


def spent(words: list[str]) -> tuple[float, float, bytes]:
    """Return CPU seconds and peak MB of one process, and what it wrote."""
    command = [sys.executable, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit(f"error: {' '.join(words)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, answer


def main() -> None:
    """Print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only questions that contain this text")
    options = parser.parse_args()
    bare = statistics.median(spent(["-c", "pass"])[0] for _ in range(5))
    for words in {tuple(line.split()[:2]): line.split() for line, _ in QUESTIONS}.values():
        spent(["-m", "napkin", *words, "--json"])  # bytecode and file cache
    print(f"a bare start takes {bare * 1000:.0f} ms of CPU")
    print(f"{'cpu s':>6} {'× bare':>7} {'peak MB':>8} {'layouts':>9}  question")
    missed = 0
    for line, goal in QUESTIONS:
        if options.only not in line:
            continue
        runs = [spent(["-m", "napkin", *line.split(), "--json"]) for _ in range(options.rounds)]
        seconds, memory = (statistics.median(values) for values in list(zip(*runs, strict=True))[:2])
        layouts = json.loads(runs[0][2])["values"].get("layouts")
        missed += seconds > goal
        mark = "  above its goal" if seconds > goal else ""
        count = f"{layouts:,}" if layouts else "–"
        print(f"{seconds:6.2f} {seconds / bare:7.0f} {memory:8.0f} {count:>9}  {line}{mark}", flush=True)
    print(f"{missed} above their goal")


if __name__ == "__main__":
    main()

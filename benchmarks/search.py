"""What layout searches cost: twenty questions, each a whole process, run once.

    python benchmarks/search.py

CPU seconds as the operating system counts them, as a multiple of a bare start of the interpreter, and peak memory.
Goals: every preset on any machine up to 100,000 GPUs below 1 s of CPU, `sensitivity plan` and ranges of GPUs below 2 s.
"""

from __future__ import annotations

import json
import os
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


def spent(words: list[str]) -> tuple[float, float, bytes]:
    """Return CPU seconds and peak MB of one process, and what it wrote."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit(f"error: {' '.join(words)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, answer


def main() -> None:
    """Print a line for each question."""
    bare = sorted(spent(["-c", "pass"])[0] for _ in range(5))[2]
    spent(["-m", "napkin", *QUESTIONS[0][0].split(), "--json"])  # bytecode and file cache
    print(f"a bare start takes {bare * 1000:.0f} ms of CPU")
    print(f"{'cpu s':>6} {'× bare':>7} {'peak MB':>8} {'layouts':>9}  question")
    for line, goal in QUESTIONS:
        seconds, memory, answer = spent(["-m", "napkin", *line.split(), "--json"])
        layouts = json.loads(answer)["values"].get("layouts")
        mark = "  above its goal" if seconds > goal else ""
        count = f"{layouts:,}" if layouts else "–"
        print(f"{seconds:6.2f} {seconds / bare:7.0f} {memory:8.0f} {count:>9}  {line}{mark}")


if __name__ == "__main__":
    main()

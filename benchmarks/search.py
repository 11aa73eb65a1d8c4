"""What `napkin plan` costs: whole processes over machines of growing size, and the largest search.

    python benchmarks/search.py [--rounds 5]

Wall time, CPU time and peak memory as the operating system counts them, medians; layouts per second of CPU. Goals:
Llama 3 405B on 16,384 H100s, every layout (tensor parallelism over all heads, every ZeRO stage beside every pipeline),
below 1 s of the whole process and 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SCRIPT = os.path.join(os.path.dirname(sys.executable), "napkin")
DENSE = "plan llama3-405b --hardware h100 --seq 8192"
EVERY = "--max-tp 128 --max-zero 3"
CASES = {
    **{f"405B, {n:,} GPUs": f"{DENSE} --gpus {n} --global-batch 2048" for n in (1024, 2048, 4096, 8192, 16384, 24576)},
    "405B, 16,384, every": f"{DENSE} --gpus 16384 --global-batch 2048 {EVERY}",
    "DeepSeek-V3, 2,048": "plan deepseek-v3 --hardware h800 --seq 4096 --gpus 2048 --global-batch 15360",
    "DeepSeek-V3, every": f"plan deepseek-v3 --hardware h800 --seq 4096 --gpus 2048 --global-batch 15360 {EVERY}",
}


def once(words: list[str]) -> tuple[float, float, float, int]:
    """(wall seconds, CPU seconds, peak MB, layouts) of one whole process."""
    start = time.perf_counter()
    process = subprocess.Popen([SCRIPT, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"error: napkin {' '.join(words)} ended with status {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, json.loads(answer)["values"]["layouts"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'search':22} {'layouts':>9} {'wall s':>7} {'cpu s':>7} {'layouts/s':>11} {'peak MB':>8}")
    for name, line in CASES.items():
        once(line.split())  # warm-up: bytecode and file cache
        runs = [once(line.split()) for _ in range(rounds)]
        wall, cpu, memory = (statistics.median(run[i] for run in runs) for i in range(3))
        layouts = runs[0][3]
        print(f"{name:22} {layouts:9,} {wall:7.2f} {cpu:7.2f} {layouts / cpu:11,.0f} {memory:8.1f}")


if __name__ == "__main__":
    main()

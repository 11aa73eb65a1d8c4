"""What a long training log costs: seconds of CPU and memory of `napkin mfu --log`, and their ratios to a log of 1 MB.

    python benchmarks/log.py [--largest 1000] [--rounds 3]

Logs of 1, 10, 100, … megabytes are made in a temporary folder. Goals: the memory of 1 GB within 1.2 times that of 1 MB,
its CPU time within 20 times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

ASKED = ("mfu", "gpt2", "--seq", "1024", "--gpus", "8", "--hardware", "h100", "--json", "--log")
LINE = (
    " iteration {at:8d}/ 1000000 | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f} |"
    " throughput per GPU (TFLOP/s/GPU): {rate:.1f} | learning rate: 1.0E-05 | global batch size:    64 |"
    " lm loss: 2.1E+00 | grad norm: 1.0 | number of skipped iterations:   0 |\n"
)
BLOCK = 1000
"""Lines that are drawn; a log repeats them."""


def write(path: str, size: int) -> None:
    """Write a log of at least `size` bytes."""
    rng = random.Random(0)
    lines = [LINE.format(at=at, samples=64 * at, ms=rng.gauss(812, 40), rate=rng.gauss(411, 9)) for at in range(BLOCK)]
    block = "".join(lines).encode()
    with open(path, "wb") as file:
        for _ in range(-(-size // len(block))):
            file.write(block)


def cost(path: str) -> tuple[float, float]:
    """Return seconds of CPU and megabytes of memory of a process that reads the log."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import resource, sys; from napkin.cli import main; status = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, *ASKED, path], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, int(done.stderr) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of a long log.")
    parser.add_argument("--largest", type=int, default=1000, help="megabytes of the largest log")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        size = 1
        while size <= asked.largest:
            path = os.path.join(folder, "train.log")
            write(path, size * 10**6 - 10**6 // 2)
            found[size] = [min(one) for one in zip(*(cost(path) for _ in range(asked.rounds)), strict=True)]
            size *= 10
    seconds, memory = found[1]
    for size, (taken, held) in found.items():
        print(json.dumps({"MB": size, "cpu": taken / seconds, "memory": held / memory, "s": taken, "memory_MB": held}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a cold `napkin train-time` costs, against a bare interpreter and against `import typer`.

    python benchmarks/startup.py [--rounds 15]

Whole processes, interleaved in rounds after two of warm-up; user + system time and peak memory of each, as the
operating system counts them; medians and their ratios. Goals: at most 8 × the bare interpreter, 1.25 × `import typer`,
30 MB.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys

RUN = shlex.split("train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5")
SCRIPT = os.path.join(os.path.dirname(sys.executable), "napkin")
# An installed package has its bytecode; a checkout gets it in the rounds of warm-up.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import typer": [sys.executable, "-c", "import typer"],
    "napkin train-time": [SCRIPT, *RUN],
}


def once(argv: list[str]) -> tuple[float, float]:
    """CPU seconds and peak resident MB of one whole process."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"error: {' '.join(argv)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for number in range(rounds + 2):
        for name, argv in CASES.items():
            result = once(argv)
            if number >= 2:
                seen[name].append(result)
    cpu = {name: statistics.median(c for c, _ in runs) for name, runs in seen.items()}
    bare, typer = cpu["python -c pass"], cpu["import typer"]
    print(f"{'command':20} {'cpu ms':>8} {'× bare':>8} {'× typer':>8} {'peak MB':>8}")
    for name, runs in seen.items():
        memory = statistics.median(m for _, m in runs)
        print(f"{name:20} {1000 * cpu[name]:8.1f} {cpu[name] / bare:8.2f} {cpu[name] / typer:8.2f} {memory:8.1f}")


if __name__ == "__main__":
    main()

"""What size costs: every command over a million layers, stages or GPUs against the same over a few.

    python benchmarks/size.py [--rounds 3]

CPU time of whole processes as the operating system counts it, the least of some rounds, and the ratio to the same
command over a small network within the same run. Goals: 20,000 layers that alternate, written out, within 3 times 20; a
million equal layers, stages and GPUs within 3 times a few.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SCRIPT = os.path.join(os.path.dirname(sys.executable), "napkin")
SHAPE = {
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 32,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
ALIKE: Mapping[str, object] = {**SHAPE, "model_type": "llama", "tie_word_embeddings": False}
TURNS: Mapping[str, object] = {**SHAPE, "model_type": "gemma2", "sliding_window": 512}
LAYOUT = "--hardware h100 --seq 512"
COMMANDS = (
    "params {model}",
    "flops {model} --seq 512",
    f"step {{model}} {LAYOUT} --gpus 16 --tp 2 --pp 2",
    f"memory {{model}} {LAYOUT} --gpus 16 --tp 2 --pp 2",
    f"memory {{model}} {LAYOUT} --gpus 16 --pp 2 --recompute every:7",
    f"memory {{model}} {LAYOUT} --gpus 16 --pp 2 --recompute group:5",
    f"memory {{model}} {LAYOUT} --gpus 16 --pp 2 --recompute group:sqrt",
    f"memory {{model}} {LAYOUT} --gpus 8 --zero 3 --max micro-batch",
    f"memory {{model}} {LAYOUT} --gpus 8 --zero 3 --max seq",
    f"memory {{model}} {LAYOUT} --gpus 8 --zero 3 --max layers",
    f"memory {{model}} {LAYOUT} --gpus 8 --zero 3 --max params",
    "memory {model} --hardware h100 --seq 512 --inference",
    f"plan {{model}} {LAYOUT} --gpus 64 --global-batch 64",
    f"sweep memory {{model}} {LAYOUT} --gpus 16 --over micro-batch=1,2,4",
    f"sensitivity step {{model}} {LAYOUT} --gpus 16",
)
SIZES = (
    ("20,000 alternating, listed", "turns", 20, 20_000, True),
    ("1,000,000 alternating", "turns", 20, 1_000_000, False),
    ("1,000,000 alike", "alike", 20, 1_000_000, False),
)
WIDE = (
    (
        "1,000,000 GPUs",
        f"memory llama3-8b {LAYOUT} --gpus 16 --zero 1",
        f"memory llama3-8b {LAYOUT} --gpus 1000000 --zero 1",
    ),
    (
        "1,000 stages",
        f"memory {{few}} {LAYOUT} --gpus 16 --pp 4",
        f"memory {{many}} {LAYOUT} --gpus 1000000 --pp 1000",
    ),
    (
        "1,000 stages, 10 chunks",
        f"memory {{few}} {LAYOUT} --gpus 16 --pp 4 --vp 5",
        f"memory {{many}} {LAYOUT} --gpus 1000000 --pp 1000 --vp 10",
    ),
    (
        "1,000,000 stages",
        f"memory {{few}} {LAYOUT} --gpus 4 --pp 4",
        f"memory {{many}} {LAYOUT} --gpus 1000000 --pp 1000000",
    ),
    (
        "plan, 1,000,000 GPUs",
        f"plan llama3-8b {LAYOUT} --gpus 64 --global-batch 64",
        f"plan llama3-8b {LAYOUT} --gpus 1000000 --global-batch 1000000",
    ),
)


def cost(line: str, rounds: int) -> float:
    """CPU seconds of one whole process, the least of some; a layout that fits nowhere is an answer too."""
    least = float("inf")
    for _ in range(rounds):
        process = subprocess.Popen([SCRIPT, *line.split()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            sys.exit(f"error: napkin {line} ended with status {process.returncode}: {said[:400]}")
        least = min(least, usage.ru_utime + usage.ru_stime)
    return least


def written(folder: Path, name: str, layers: int, listed: bool) -> Path:
    """Return a config.json of `layers` layers, their types listed or left to the class."""
    config = {**(TURNS if name == "turns" else ALIKE), "num_hidden_layers": layers}
    if listed:
        config["layer_types"] = ["sliding_attention", "full_attention"] * (layers // 2)
    path = folder / f"{name}-{layers}-{'listed' if listed else 'by-class'}.json"
    path.write_text(json.dumps(config))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for title, name, few, many, listed in SIZES:
            small, large = (written(folder, name, layers, listed) for layers in (few, many))
            print(f"\n{title}: {'few':>47} {'many':>8} {'ratio':>6}")
            for line in COMMANDS:
                times = [cost(line.format(model=model), rounds) for model in (small, large)]
                print(f"  {line.format(model='…'):64} {times[0]:8.3f} {times[1]:8.3f} {times[1] / times[0]:6.2f}")
        few_alike, many_alike = (written(folder, "alike", layers, False) for layers in (20, 1_000_000))
        print("\nwide machines")
        for title, small_line, large_line in WIDE:
            times = [cost(line.format(few=few_alike, many=many_alike), rounds) for line in (small_line, large_line)]
            print(f"  {title:64} {times[0]:8.3f} {times[1]:8.3f} {times[1] / times[0]:6.2f}")


if __name__ == "__main__":
    main()

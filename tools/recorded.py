"""Record the answers to drawn command lines, and compare them after a change of structure.

python tools/recorded.py record FILE [--count 400] [--seed 1]    draw lines, run them, write lines and answers
python tools/recorded.py compare FILE [--text]                   run FILE's lines again; exit status 1 on a difference

A refactoring must not change a number: record before the first edit, compare after every step. The lines cover every
command, many presets, layouts, policies, formats and bad inputs. Compared are the exit status and, of the JSON, inputs,
values, units, intervals, verdict and rows; with --text also notes and what goes to stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shlex
import sys
from collections.abc import Iterator
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDING = ("notes", "suggestions", "problems")
"""Parts of an answer that are sentences, or hold them."""

MACHINES = ("h100", "a100", "h200", "b200", "mi300x", "v100", "l40s", "tpu-v5p", "a10", "rtx-4090", "gb200", "h800")
POLICIES = ("bf16-mixed", "bf16-pure", "amp-bf16", "fp32", "fp16-mixed", "fp8-mixed", "bf16-fp32state")
OPTIMIZERS = ("adamw", "sgd", "adafactor", "muon", "lion", "adamw8bit", "lamb", "sophia", "shampoo", "adam")
CONVENTIONS = ("6nd", "palm", "megatron", "nanogpt", "torch", "causal")
FRAMEWORKS = ("fsdp", "deepspeed", "megatron-core", "torchtitan", "nanotron", "litgpt", "torchtune")


def presets() -> list[str]:
    """Names of the shipped models."""
    folder = os.path.join(ROOT, "configs", "models")
    return sorted(name.removesuffix(".yaml") for name in os.listdir(folder))


class Draw:
    """Draws command lines from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.models = presets()

    def one(self, *words: object) -> str:
        return str(self.dice.choice(words))

    def maybe(self, chance: float, *words: object) -> str:
        """One of the words with this probability; otherwise nothing."""
        return self.one(*words) if self.dice.random() < chance else ""

    def model(self) -> str:
        """Half of the lines ask about models that everyone asks about; the others about any."""
        known = ("llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b", "deepseek-v3", "gpt2", "qwen3-8b")
        return self.one(*known) if self.dice.random() < 0.4 else self.one(*self.models)

    def layout(self) -> str:
        gpus = self.dice.choice((1, 8, 16, 64, 256))
        tp = self.dice.choice([n for n in (1, 1, 2, 4, 8) if n <= gpus])
        pp = self.dice.choice([n for n in (1, 1, 1, 2, 4) if n * tp <= gpus])
        words = [f"--gpus {gpus}", f"--hardware {self.one(*MACHINES)}"]
        words += [f"--tp {tp}"] if tp > 1 else []
        words += [f"--pp {pp}"] if pp > 1 else []
        words += [
            self.maybe(0.2, "--cp 2"),
            self.maybe(0.6, "--zero 0", "--zero 1", "--zero 2", "--zero 3"),
            self.maybe(0.4, "--micro-batch 2", "--micro-batch 4"),
            self.maybe(0.6, "--seq 1024", "--seq 2048", "--seq 8192"),
            self.maybe(0.4, "--recompute full", "--recompute selective", "--recompute every:2"),
            self.maybe(0.3, *(f"--precision {name}" for name in POLICIES)),
            self.maybe(0.3, *(f"--optimizer {name}" for name in OPTIMIZERS)),
            self.maybe(0.3, "--implementation megatron", "--implementation nanogpt"),
            self.maybe(0.15, "--attention eager", "--attention efficient"),
        ]
        return " ".join(word for word in words if word)

    def states(self) -> str:
        words = (
            self.maybe(0.3, *(f"--framework {name}" for name in FRAMEWORKS)),
            self.maybe(0.15, "--lora-rank 16"),
            self.maybe(0.1, "--offload optimizer"),
            self.maybe(0.1, "--ema"),
            self.maybe(0.1, "--freeze-layers 2"),
            self.maybe(0.1, "--loss fused", "--loss chunked", "--loss compiled"),
        )
        return " ".join(word for word in words if word)

    def lines(self, count: int) -> Iterator[str]:
        kinds = [getattr(self, name) for name in dir(self) if name.startswith("ask_")]
        heavy = [self.ask_params, self.ask_flops, self.ask_wrong, *[self.ask_memory] * 7, *[self.ask_step] * 5]
        for number in range(count):
            yield " ".join(((kinds + heavy)[number % len(kinds + heavy)])().split())

    def ask_params(self) -> str:
        return f"params {self.model()}"

    def ask_flops(self) -> str:
        pairs = self.maybe(0.5, "--pairs half", "--pairs exact")
        return f"flops {self.model()} {self.maybe(0.7, '--seq 512', '--seq 4096')} {pairs}"

    def ask_memory(self) -> str:
        return f"memory {self.model()} {self.layout()} {self.states()}"

    def ask_memory_small(self) -> str:
        return f"memory linear --width 64 --depth {self.one(1, 2, 7)} --batch 3 --optimizer {self.one(*OPTIMIZERS)}"

    def ask_inference(self) -> str:
        return f"memory {self.model()} --inference --hardware {self.one(*MACHINES)} --batch 4 --seq 2048"

    def ask_step(self) -> str:
        return f"step {self.model()} {self.layout()} {self.maybe(0.3, '--stack fsdp-eager', '--stack megatron-core')}"

    def ask_train_time(self) -> str:
        mfu = self.maybe(0.5, "--mfu 0.4")
        which = self.maybe(0.5, *(f"--flops {name}" for name in CONVENTIONS))
        return f"train-time {self.model()} --tokens 2T --gpus 512 --hardware {self.one(*MACHINES)} {mfu} {which}"

    def ask_train_time_solved(self) -> str:
        given = self.one("--within 30d", "--budget 2000000 --price 2.5", "--gpus 1024")
        return (
            f"train-time --params {self.one('7B', '70B')} --tokens 1T --hardware h100 {given} {self.one('--mfu 0.4')}"
        )

    def ask_max_params(self) -> str:
        machine = f"max-params --gpus {self.one(1, 8, 64)} --hardware {self.one(*MACHINES)}"
        like = self.maybe(0.4, "--like llama3 --zero 3 --seq 4096 --recompute full")
        policy = f"{self.maybe(0.4, '--precision bf16-pure')} {self.maybe(0.4, '--optimizer lion')}"
        return f"{machine} {like or policy}"

    def ask_mfu(self) -> str:
        return f"mfu {self.model()} --tokens-per-second 40000 --gpus 8 --hardware {self.one(*MACHINES)} --seq 2048"

    def ask_plan(self) -> str:
        machine = f"--gpus {self.one(8, 64, 256)} --hardware {self.one('h100', 'a100', 'b200')}"
        return f"plan {self.one('llama3-8b', 'gpt2', 'mixtral-8x7b', 'llama3-70b')} {machine} --seq 4096"

    def ask_search(self) -> str:
        """Draw a layout search over any kind of model, with some degrees held or bounded."""
        models = ("llama3-70b", "deepseek-v3", "gemma3-27b", "qwen3-235b-a22b", "mixtral-8x22b", self.model())
        words = (
            f"plan {self.one(*models)} --gpus {self.one(8, 48, 512, 2048, 16384)} --hardware {self.one(*MACHINES)}",
            self.one("--seq 2048", "--seq 8192"),
            self.maybe(0.4, "--global-batch 1024", "--global-batch 960", "--max-global-batch 512"),
            self.maybe(0.3, "--tp 4", "--pp 2", "--zero 3", "--ep 2", "--micro-batch 2", "--max-pp 4", "--no-sp"),
            self.maybe(0.2, "--max-zero 3", "--max-tp 64"),
            self.maybe(0.3, "--recompute full", "--recompute every:2", "--recompute group:4", "--recompute selective"),
            self.maybe(0.3, "--precision fp8-mixed", "--precision bf16-pure", "--precision fp32", "--optimizer sgd"),
            self.maybe(0.3, *(f"--framework {name}" for name in FRAMEWORKS)),
            self.maybe(0.2, "--pareto", "--rows 3", "--stack fsdp-eager"),
        )
        return " ".join(words)

    def ask_search_fewest(self) -> str:
        limits = self.maybe(0.6, "--tokens 2T --within 60d", "--tokens 1T --budget 5000000 --price 2.5")
        return f"plan {self.one('llama3-8b', 'llama3-70b', 'mixtral-8x7b')} --hardware h100 --seq 4096 {limits}"

    def ask_search_several(self) -> str:
        machines = self.one("8..64", "256..1024", "96,128")
        return f"plan {self.one('llama3-8b', 'llama3-70b', 'gpt2')} --gpus {machines} --hardware a100 --seq 4096"

    def ask_sensitivity_plan(self) -> str:
        model, gpus = self.one("llama3-8b", "mixtral-8x7b", "gpt2"), self.one(8, 64)
        batch = self.maybe(0.5, "--global-batch 64")
        return f"sensitivity plan {model} --gpus {gpus} --hardware {self.one('h100', 'a100')} --seq 2048 {batch}"

    def ask_roofline(self) -> str:
        return f"roofline {self.model()} --hardware {self.one(*MACHINES)} {self.maybe(0.5, '--seq 1024')}"

    def ask_roofline_shape(self) -> str:
        return f"roofline matmul {self.one('16x4096x4096', '4096x4096x4096')} --hardware {self.one(*MACHINES)}"

    def ask_tensor(self) -> str:
        return f"tensor {self.one('4x8', '16x3x2', '128')} --dtype {self.one('bf16', 'fp32', 'int8')}"

    def ask_dtype(self) -> str:
        return f"dtype {self.one('', '0.1', '1e-8', '70000')}"

    def ask_optimizer(self) -> str:
        return f"optimizer {self.one(*OPTIMIZERS)} --params 7B"

    def ask_checkpoint(self) -> str:
        return f"checkpoint {self.model()} --gpus 512 {self.maybe(0.5, '--write-bandwidth 10GB/s')}"

    def ask_data(self) -> str:
        return f"data --tokens {self.one('15T', '300B')} {self.maybe(0.8, '--vocab 128256', '--vocab 50257')}"

    def ask_init(self) -> str:
        return f"init --fan-in {self.one(512, 4096)}"

    def ask_compare(self) -> str:
        return f"compare step {self.one('llama3-8b', 'gpt2')} --gpus 8 --hardware h100 --against hardware=b200"

    def ask_sweep(self) -> str:
        params = self.one("7B", "70B")
        return f"sweep train-time --params {params} --tokens 1T --hardware h100 --mfu 0.4 --over gpus=64..512"

    def ask_sensitivity(self) -> str:
        return (
            f"sensitivity train-time --params {self.one('7B', '70B')} --tokens 1T --hardware h100 --mfu 0.4 --gpus 64"
        )

    def ask_hardware(self) -> str:
        return f"hardware {self.one('', *MACHINES)}"

    def ask_models(self) -> str:
        return f"models {self.maybe(0.7, self.model())}"

    def ask_check(self) -> str:
        return "check configs/runs/" + self.one("lecture-time.yaml", "lecture-memory.yaml")

    def ask_validate(self) -> str:
        return f"validate {self.maybe(0.5, 'configs/evidence/example.yaml')}"

    def ask_wrong(self) -> str:
        return self.one(
            f"params {self.model()}x",
            "train-time --params 70B --tokens 15 --gpus 1024 --hardware h1000",
            f"memory {self.model()} --gpus 8 --hardware h100 --tp 3",
            f"memory {self.model()} --gpus 8 --hardware h100 --optimizer adamx",
            f"memory {self.model()} --gpus 8 --hardware h100 --precision bf16mixed",
            f"step {self.model()} --gpus 7 --hardware h100 --tp 8",
            f"step {self.model()} --gpus 8 --hardware nothing",
            "max-params --gpus 8",
            "train-time --params 70B --mfu 50 --tokens 15T --gpus 8 --hardware h100",
            "max-params --gpus 8 --hardware h100 --bytes-per-param 16G",
            "tensor 4xx8",
            "roofline 4x4 --hardware h100",
            "check nowhere.yaml",
            "validate README.md",
            "params configs/models",
            f"flops {self.model()} --seq 0",
            "nosuch --command",
        )


def answer(line: str) -> dict[str, Any]:
    """Run `napkin LINE --json` in this process: exit status, parsed stdout, stderr."""
    from napkin.cli import main

    out, err = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        status = main([*shlex.split(line), "--json"])
    finally:
        sys.stdout, sys.stderr = kept
    text = out.getvalue()
    return {"line": line, "status": status, "answer": json.loads(text) if text else None, "stderr": err.getvalue()}


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Return what no refactoring may change: everything but wording."""
    found = {name: part for name, part in (record["answer"] or {}).items() if name not in WORDING}
    return {"line": record["line"], "status": record["status"], "answer": found}


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Return the paths at which two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            if key not in before or key not in after:
                yield f"{path}/{key}: {'gone' if key in before else 'new'}"
            else:
                yield from differences(before[key], after[key], f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}/{at}")
    elif before != after:
        yield f"{path}: {before!r:.120} -> {after!r:.120}"


def record(path: str, count: int, seed: int, only: str) -> int:
    records = [answer(line) for line in Draw(seed).lines(count) if only in line]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(records, file)
    statuses = sorted({one["status"] for one in records})
    shown = ", ".join(f"{sum(one['status'] == s for one in records)} × status {s}" for s in statuses)
    print(f"{path}: {len(records)} answers: {shown}")
    return 0


def compare(path: str, text: bool, only: str) -> int:
    with open(path, encoding="utf-8") as file:
        records = [one for one in json.load(file) if only in one["line"]]
    changed = 0
    for before in records:
        after = json.loads(json.dumps(answer(before["line"])))
        found = list(differences(before, after) if text else differences(numbers(before), numbers(after)))
        if found:
            changed += 1
            print(f"napkin {before['line']}")
            print("".join(f"    {one}\n" for one in found[:5]), end="")
    print(f"{len(records) - changed} of {len(records)} answers unchanged")
    return 1 if changed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", action="store_true", help="compare wording too")
    parser.add_argument("--only", default="", help="only lines that contain this text")
    chosen = parser.parse_args()
    path = os.path.abspath(chosen.file)
    os.chdir(ROOT)
    os.environ["NO_COLOR"] = "1"
    if chosen.what == "record":
        return record(path, chosen.count, chosen.seed, chosen.only)
    return compare(path, chosen.text, chosen.only)


if __name__ == "__main__":
    sys.exit(main())

"""What tools/fuzz.py asks: command lines and files drawn from a seed, good ones spoilt in one to three places."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from fuzz_launch import launch_file

from napkin._tables.models import PRESETS
from napkin.commands.command import MODULES, WRAPPERS, find
from napkin.options.registry import OPTIONS

LEFT_OUT = ("bench",)
"""The command that is not drawn: it measures the machine."""
COSTLY = {"validate": 0.05, "plan": 0.05, "calibrate": 0.05, "sensitivity": 0.15, "models": 0.15}
"""Commands that take ten to a hundred times what the others do, with how often they are drawn for once of another."""

EXAMPLES = frozenset(shlex.join(shlex.split(one)) for name in MODULES for one in find(name).examples)
"""What the tests ask as it is; here something about it is changed."""

HOSTILE = (
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "1",
    "-0",
    "+5",
    "7e",
    "7E",
    "16G",
    "1e400",
    "-1e400",
    "1e308",
    "1.7976931348623157e308",
    "5e-324",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "Infinity",
    "1_000",
    "1__0",
    "0x10",
    "010",
    "1,000",
    "1,,2",
    ",",
    "٣",
    "７B",
    "²",
    "½",
    "1e",
    "e5",
    ".",
    "..",
    "1..2",
    "1..1e18",
    "3..1",
    "1:2",
    "::",
    "=",
    "a=b",
    "=3",
    "100%",
    "-5%",
    "1e999999",
    "9" * 400,
    "x" * 5000,
    "7B" * 3000,
    "\x00",
    "a\x00b",
    "\x1b[31mred",
    "\r",
    "\n",
    "a\nerror: b",
    "\t8",
    "\u202e8",
    "\ud800",
    "\udcff",
    "7B\u200b",
    "😀",
    "None",
    "null",
    "true",
    "false",
    "yes",
    "{}",
    "[]",
    "[[[[",
    "{" * 200,
    "!!python/object:os.system",
    "*a",
    "%s%n",
    "{0}",
    "${HOME}",
    "'",
    '"',
    "\\",
    "./",
    "../",
    "missing.json",
    "./missing",
    "a/b/c",
    "http://x",
    ".",
    "/dev/null",
    "8x8",
    "8x",
    "x8",
    "0x0",
    "8x-8",
    "1x1x1x1x1x1x1x1x1",
    "99999999999x99999999999",
    "30d",
    "30 d",
    "1h30m",
    "-3d",
    "1e30d",
    "80GB",
    "80GiB",
    "80 gib",
    "80XB",
    "1e300GB",
    "400Gb/s",
    "10GB/",
    "/s",
    "1e18",
    "1e15",
    "4294967296",
    "9007199254740993",
    "3.5",
    "1e-9",
    "0.0",
    "time <= 3",
    "<= ",
    "time",
    "bf16",
    "h100",
    "adamw",
    "llama3-8b",
    "matmul",
    "all",
    "auto",
    "none",
)
EDGES = (
    "1",
    "2",
    "3",
    "5",
    "7",
    "16",
    "100",
    "1000",
    "4097",
    "1e6",
    "1e9",
    "1e12",
    "1e15",
    "1e18",
    "0.001",
    "0.5",
    "0.999",
    "1.5",
    "1TB",
    "1B",
)
"""Numbers that are valid when they are read, and often at the end of what makes sense."""
WORDS: dict[str, tuple[str, ...]] = {
    "model": (
        "gpt2",
        "llama3-8b",
        "mixtral-8x7b",
        "deepseek-v3",
        "t5-small",
        "7B",
        "model.json",
        "model.json",
        "model.yaml",
    ),
    "hardware": ("h100", "a100", "b200", "mi300x", "v100", "mine", "tpu-v5p", "h100,a100"),
    "hardware-file": ("hardware.yaml",),
    "profile": ("profile.json",),
    "from-profile": ("profile.json",),
    "run": ("run.yaml",),
    "file": ("rows.yaml",),
    "files": ("run.yaml",),
    "configs": ("launch.txt", "launch.txt", "run.yaml", "model.json", "llama3-8b"),
    "from": ("launch.txt",),
    "log-file": ("log.txt", "-"),
    "reference": ("same", "precomputed", "gpt2", "llama3-70b"),
    "region": ("europe-north1", "us-central1"),
    "spares": ("0", "1", "64"),
    "run-kind": ("production", "benchmark", "speedrun"),
    "phases": ("2",),
    "snapshot": ("snapshot.json", "snapshot.pickle"),
    "log": ("log.txt", "tps: 7,023  tflops: 411.26  mfu: 41.58%", "mfu: " + " " * 4000),
    "output": ("out.txt",),
    "plot": ("out.svg",),
    "junit": ("junit.xml",),
    "dtype": ("bf16", "fp16", "fp32", "fp64", "fp8", "int8"),
    "precision": ("bf16-mixed", "amp-bf16", "fp32", "fp8-mixed"),
    "optimizer": ("adamw", "sgd", "adafactor", "muon"),
    "recompute": ("none", "full", "selective"),
    "gpus": ("1", "8", "64", "1024", "8..64"),
    "seq": ("128", "2048", "8192", "8k"),
    "mfu": ("0.4", "45%"),
    "tokens": ("15T", "1e12"),
    "params": ("7B", "70B", "1"),
    "price": ("2", "0.5"),
    "over": ("mfu=0.3..0.6:0.05", "gpus=8..64", "seq=1024,2048"),
    "by": ("mfu=0.4,0.5",),
    "limit": ("time <= 150d",),
    "against": ("hardware=b200",),
    "size": ("8x8", "4096x4096x4096", "matmul"),
    "within": ("30d",),
    "flops": ("6nd", "palm"),
    "lora-targets": ("all", "q_proj,v_proj"),
    "quantized": ("nf4", "int8"),
    "max": ("micro-batch", "seq"),
    "min": ("gpus",),
}
OF_MODELS = (
    "params model.json",
    "params model.json --json",
    "flops model.json --seq 256 --batch 2",
    "flops model.json --seq 256 --flops palm",
    "memory model.json --hardware h100 --gpus 8 --seq 256 --zero 3",
    "step model.json --hardware h100 --gpus 8 --seq 256",
    "memory model.json --inference --seq 256 --hardware h100",
    "params - --mtp",
    "init model.json",
    "checkpoint model.json",
    "train-time model.json --tokens 1B --hardware h100 --gpus 8",
    "memory model.yaml --hardware a100 --lora-rank 8 --seq 128",
)
"""Questions about a config, whose fields are what is spoilt."""
OF_FILES = (
    "step gpt2 --gpus 8 --hardware h100 --profile profile.json",
    "compare profile.json profile.json",
    "hardware --from-profile profile.json",
    "hardware mine --hardware-file hardware.yaml",
    "train-time --params 7B --tokens 1T --gpus 8 --mfu 0.5 --hardware mine --hardware-file hardware.yaml",
    "step gpt2 --gpus 64 --hardware mine --hardware-file hardware.yaml",
    "memory gpt2 --seq 128 --snapshot snapshot.pickle",
    "memory gpt2 --gpus 8 --seq 128 --snapshot snapshot.json",
    "plan gpt2 --gpus 8 --hardware h100 --profile profile.json",
    "mfu gpt2 --seq 1024 --gpus 8 --hardware h100 --log log.txt",
    "mfu gpt2 --seq 1024 --gpus 8 --hardware h100 --log -",
    "check run.yaml",
    "train-time --run run.yaml",
    "compare run.yaml run.yaml",
    "validate rows.yaml",
    "watch log.txt --once",
    "watch - --once",
    "watch log.txt llama3-8b --gpus 8 --hardware h100 --seq 8192 --steps 500 --once",
)
"""Questions about another file."""
OF_LAUNCHES = (
    "read --from launch.txt",
    "read --from launch.txt --from other.txt",
    "lint launch.txt",
    "lint launch.txt --hardware h100 --gpus 8",
    "lint launch.txt other.txt --hardware a100 --gpus 16",
    "memory --from launch.txt --hardware h100 --gpus 8",
    "memory --from launch.txt --hardware h100",
    "memory gpt2 --from launch.txt --hardware h100 --gpus 8 --zero 3 --precision bf16-mixed --task sft",
    "memory --from launch.txt --from other.txt --hardware h100 --gpus 8 --max micro-batch",
    "step --from launch.txt --hardware h100",
    "step gpt2 --from launch.txt --hardware h100 --gpus 16 --seq 256 --micro-batch 1",
    "flops --from launch.txt",
    "params --from launch.txt",
    "mfu --from launch.txt --hardware h100 --gpus 8 --tokens-per-second 50000",
    "checkpoint --from launch.txt",
    "train-time --from launch.txt --hardware h100 --gpus 8 --tokens 1B",
    "optimal --from launch.txt --gpus 256 --hardware h100 --within 30d",
    "max-params --from launch.txt --hardware h100 --gpus 8",
    "plan --from launch.txt --hardware h100 --gpus 8",
    "watch log.txt --from launch.txt --hardware h100 --gpus 8 --once",
    "sensitivity memory --from launch.txt --hardware h100 --gpus 8 --zero 3",
    "sweep memory --from launch.txt --hardware h100 --gpus 8 --over micro-batch=1,2",
    "compare memory --from launch.txt --hardware h100 --gpus 8 --against hardware=a100",
    "check launched.yaml",
    "memory --run launched.yaml",
    "lint launched.yaml",
    "compare launched.yaml launched.yaml",
    "memory --from launch.txt --hardware h100 --gpus 8 --task gkd --reference gpt2 --seq 256",
)
"""Questions about launch files."""
OF_RUNS = (
    "train-time llama3-8b --tokens 1T --hardware h100 --gpus 64 --region europe-north1",
    "train-time llama3-8b --tokens 1T --hardware h100 --gpus 64 --power measured --price 2",
    "train-time llama3-8b --tokens 1T --hardware h100 --gpus 64 --run-kind benchmark",
    "train-time llama3-8b --tokens 1T --hardware h100 --gpus 64 --zero 3 --gpu-mtbf 5y --restart-time 10min --spares 8",
    "plan llama3-8b --tokens 1T --hardware h100,a100 --gpus 64",
    "plan gpt2 --tokens 10B --hardware h100 --gpus 8 --gpu-mtbf 5y --restart-time 10min --spares 1 --run-kind speedrun",
    "memory gpt2 --task distill --reference llama3-8b --hardware h100 --gpus 8 --seq 256",
    "step gpt2 --task distill --reference precomputed --hardware h100 --gpus 8 --seq 256",
    "optimal --gpus 256 --hardware h100 --within 30d --run-kind speedrun",
    "optimal --budget 500000 --price 2 --hardware a100 --gpu-mtbf 5y --restart-time 10min --spares 4",
    "optimal --params 8B --compute 1e23 --served-tokens 5T",
    "memory --run phases.yaml",
    "train-time --run phases.yaml",
    "check phases.yaml",
    "plan --run phases.yaml",
)
"""Questions about whole runs: their parts, failures, power and budget."""
ROOTS: tuple[Any, ...] = (
    10**18,
    -1,
    0,
    1.5,
    1e308,
    -0.0,
    2**63,
    10**4000,
    "",
    "7e",
    "x" * 3000,
    None,
    True,
    [],
    {},
    [1, "a", None],
    "\x1b[2J",
)
FLOATS = (float("nan"), float("inf"), float("-inf"))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuzz_profile.json")) as _file:
    PROFILE: dict[str, Any] = json.load(_file)
"""A small complete profile of a device that no one has."""
HARDWARE = {
    "accelerators": {
        "mine": {
            "name": "Mine",
            "vendor": "NVIDIA",
            "generation": "hopper",
            "aliases": ["My Card"],
            "peak_flops": {"fp32": 1e13, "fp16": 1e14, "bf16": 1e14},
            "link": "nvlink4",
            "devices_per_node": 8,
            "tdp_w": 700,
            "memory": {"bytes": 80_000_000_000, "label": "80 GB", "type": "HBM3", "bandwidth": 3e12},
            "source": "mine",
        }
    }
}
ROWS = {
    "schema": "steps/1",
    "rows": [
        {
            "id": "one",
            "source": {"title": "mine", "where": "log"},
            "model": {
                "name": "Llama 3 8B",
                "layers": 32,
                "hidden": 4096,
                "heads": 32,
                "kv_heads": 8,
                "ffn": 14336,
                "vocab": 128256,
                "seq": 8192,
                "gated": True,
                "tied": False,
            },
            "hardware": {"chip": "A100 SXM 80GB", "count": 64, "per_node": 8},
            "layout": {
                "stack": "fsdp-eager",
                "dp": 64,
                "tp": 1,
                "zero": 3,
                "micro_batch": 1,
                "global_batch": 64,
                "policy": "bf16-mixed",
                "recompute_kind": "full",
            },
            "measured": {"tokens_per_second_per_gpu": 2904},
        }
    ],
}
_STACK = [{"name": "forward", "filename": "model.py", "line": 3}]
SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "total_size": 20_000,
            "blocks": [
                {"state": "active_allocated", "size": 1024, "requested_size": 1000, "frames": _STACK},
                {"state": "inactive", "size": 18_976},
            ],
        }
    ],
    "device_traces": [
        [{"action": "alloc", "addr": 1, "size": 4000}, {"action": "free_completed", "addr": 1, "size": 4000}]
    ],
}
FOREIGN: tuple[dict[str, Any], ...] = (
    {"dim": 64, "n_layers": 4, "n_heads": 8, "n_kv_heads": 2, "vocab_size": 128, "multiple_of": 16, "norm_eps": 1e-5},
    {"dim": 64, "n_layers": 4, "n_heads": 8, "hidden_dim": 96, "head_dim": 8, "vocab_size": 128, "moe": None},
    {"n_layer": 4, "n_head": 8, "n_embd": 64, "block_size": 128, "bias": True, "vocab_size": 128},
    {"n_layer": 4, "n_head": 8, "n_embd": 64, "padded_vocab_size": 128, "mlp_class_name": "GptNeoxMLP"},
    {"model": {"name": "mpt", "d_model": 64, "n_heads": 8, "n_layers": 4, "vocab_size": 128, "no_bias": True,
               "max_seq_len": "${a.b}", "attn_config": {"alibi": True}}, "a": {"b": 128}},
    {"model": {"d_model": 64, "n_heads": 8, "n_layers": 4, "rope": True, "include_bias": False, "weight_tying": True,
               "layer_norm_with_affine": False, "vocab_size": 128, "embedding_size": 256}},
    {"model": {"model_config": {"is_llama_config": True, "hidden_size": 64, "intermediate_size": 96,
                                "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 129}},
     "parallelism": {"tp": 2}},
)  # fmt: skip
"""Model files of other projects."""
LAUNCHED = {
    "command": "memory",
    "from": "launch.txt",
    "hardware": "h100",
    "gpus": 8,
    "seq": 512,
    "limits": {"memory/total": "<= 80GiB", "verdict": "fits"},
}
"""A run file that names a launch file."""
RUNS: tuple[dict[str, Any], ...] = (
    {
        "command": "train-time",
        "params": "70B",
        "tokens": "15T",
        "gpus": 1024,
        "hardware": "h100",
        "mfu": 0.5,
        "limits": {"time": "== 143.9d ± 0.1%", "gpu_hours": "<= 3.6M"},
    },
    {
        "command": "memory",
        "model": "gpt2",
        "hardware": "h100",
        "gpus": 8,
        "zero": 3,
        "seq": 1024,
        "limits": {"total": "<= 80GB"},
    },
    {"checks": [{"command": "params", "model": "gpt2", "limits": {"params/total": "<= 200M"}}]},
)
PHASES: dict[str, Any] = {
    "model": "gpt2",
    "hardware": "h100",
    "gpus": 16,
    "zero": 1,
    "phases": [
        {"name": "small", "tokens": "10B", "seq": 512, "global-batch": 64},
        {"name": "long", "tokens": 2e9, "seq": 1024, "global-batch": 128, "gpus": 32},
    ],
}
LOG = (
    "iteration 10/100 | elapsed time per iteration (ms): 812.4 | throughput per GPU (TFLOP/s/GPU): 411.2 | "
    "global batch size: 64\n"
)


@dataclass(frozen=True)
class Case:
    """A command line with the files that it may name and what stands on its standard input."""

    seed: int
    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""


def draw(seed: int) -> Case:
    """Return the case of a seed, always the same."""
    rng = random.Random(seed)
    kind = rng.random()
    argv = _line(rng)
    for share, lines in ((0.25, OF_MODELS), (0.33, OF_FILES), (0.47, OF_LAUNCHES), (0.5, OF_RUNS)):
        if kind < share:
            argv = shlex.split(_example(rng, lines))
            break
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        argv = _edged(rng, argv)
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2))):
        argv = _spoilt(rng, argv)
    if shlex.join(argv) in EXAMPLES:
        argv = _edged(rng, argv) if rng.random() < 0.5 else _spoilt(rng, argv)
    if rng.random() < 0.6 and not {"--json", "--csv", "--markdown", "--paths", "-v", "--verbose"} & set(argv):
        argv.append("--json")
    if "mine" in argv and "--hardware-file" not in argv:
        argv += ["--hardware-file", "hardware.yaml"]
    if "watch" in argv:  # it would wait for more of the log; the last of several switches wins
        argv.insert(argv.index("--") if "--" in argv else len(argv), "--once")
    argv = [word for word in argv if "completion" not in word]  # those write into the home directory
    files = {name: _content(rng, name) for name in sorted(_named(argv))}
    stdin = _content(rng, rng.choice(("model.json", "snapshot.json", "log.txt"))) if "-" in argv else b""
    return Case(seed, tuple(argv), files, stdin)


FILES = (
    "launched.yaml",
    "model.json",
    "model.yaml",
    "hardware.yaml",
    "profile.json",
    "run.yaml",
    "rows.yaml",
    "snapshot.json",
    "snapshot.pickle",
    "log.txt",
    "launch.txt",
    "other.txt",
    "phases.yaml",
)


def _named(argv: list[str]) -> set[str]:
    found = {name for name in FILES for word in argv if name in word}
    return found | ({"launch.txt"} if "launched.yaml" in found else set())


def _example(rng: random.Random, lines: tuple[str, ...]) -> str:
    """Return one of the lines, those of costly commands less often."""
    (line,) = rng.choices(lines, [COSTLY.get(one.split()[0], 1) for one in lines])
    return line


# --- command lines -------------------------------------------------------------------------------------------------


def _line(rng: random.Random) -> list[str]:
    """Return a line that is near to a good one: an example with files of ours in it, or options drawn."""
    names = [name for name in MODULES if name not in LEFT_OUT]
    (name,) = rng.choices(names, [COSTLY.get(name, 1) for name in names])
    examples = find(name).examples
    if examples and rng.random() < 0.75:
        words = shlex.split(rng.choice(examples))
        if rng.random() < 0.4:
            presets = ("llama3-8b", "gpt2", "llama3-70b", "deepseek-v3", "llama3-405b")
            words = ["model.json" if word in presets else word for word in words]
        words = [_ours(word) for word in words]
        more = (
            [one for one in find(words[0]).takes if one not in find(words[0]).arguments] if name not in WRAPPERS else []
        )
        return words + [
            word for one in rng.sample(more, min(len(more), rng.choice((0, 0, 1, 2)))) for word in _option(rng, one, 1)
        ]
    words = [name]
    if name in WRAPPERS and rng.random() < 0.9:
        name = rng.choice([one for one in MODULES if one not in (*WRAPPERS, *LEFT_OUT)])
        words.append(name)
    command = find(" ".join(words)) if len(words) == 2 else find(name)
    for argument in command.arguments:
        if rng.random() < 0.85:
            words.append(_good(rng, argument))
    names = [one for one in command.takes if one not in command.arguments]
    for one in rng.sample(names, min(len(names), rng.randrange(7))):
        words += _option(rng, one)
    return words


def _ours(word: str) -> str:
    if word.startswith("configs/"):
        kinds = {"models": "model.yaml", "runs": "run.yaml", "launch": "launch.txt", "logs": "log.txt"}
        return next((ours for kind, ours in kinds.items() if kind in word), "rows.yaml")
    return word


def _option(rng: random.Random, name: str, share_good: float = 0.8) -> list[str]:
    """Return an option with a value, good in most cases."""
    if OPTIONS[name].flag and rng.random() < 0.95:
        return [f"--{name}"]
    value = _good(rng, name) if rng.random() < share_good else rng.choice(HOSTILE)
    return [f"--{name}={value}"] if rng.random() < 0.3 else [f"--{name}", value]


def _good(rng: random.Random, name: str) -> str:
    choices = (
        WORDS.get(name)
        or OPTIONS[name].choices
        or ("1", "2", "4", "8", "16", "128", "0.5", "1e9", "bf16", "10GB", "24h")
    )
    if name == "model" and rng.random() < 0.3:
        return str(rng.choice(list(PRESETS)))
    return rng.choice(choices)


def _edged(rng: random.Random, argv: list[str]) -> list[str]:
    """Return the line with another number for one of its options."""
    spots = [i for i in range(1, len(argv)) if argv[i - 1].startswith("--") and argv[i][:1].isdigit()]
    if not spots:
        return argv
    at = rng.choice(spots)
    return [*argv[:at], rng.choice(EDGES), *argv[at + 1 :]]


def _spoilt(rng: random.Random, argv: list[str]) -> list[str]:
    """Return the line with one thing wrong, or one thing more."""
    argv, at = list(argv), rng.randrange(len(argv)) if argv else 0
    kind = rng.randrange(9)
    if not argv or kind == 0:
        argv.insert(at, rng.choice(HOSTILE))
    elif kind == 1:
        argv[at] = rng.choice(HOSTILE)
    elif kind == 2:
        del argv[at]
    elif kind == 3:
        argv.insert(rng.randrange(len(argv) + 1), argv[at])
    elif kind == 4:
        argv[at] = argv[at].partition("=")[0] + "=" + rng.choice(("", rng.choice(HOSTILE)))
    elif kind == 5:
        argv += _option(rng, rng.choice([name for name in OPTIONS if name != "resume"]), 0.5)
    elif kind == 6:
        word = argv[at]
        place = rng.randrange(len(word) + 1)
        argv[at] = (
            word[:place] + rng.choice(("", "e", "\x00", "9" * 30, "-", ".", "G", "é", "=", ",")) + word[place + 1 :]
        )
    elif kind == 7:
        argv += [
            rng.choice(
                ("--csv", "--json", "--markdown", "--explain", "-v", "--quiet", "--paths", "--help", "--plot=out.svg")
            )
        ]
    else:
        spots = [i for i in range(1, len(argv)) if argv[i - 1].startswith("--") and not argv[i].startswith("--")]
        argv[rng.choice(spots) if spots else at] = rng.choice(HOSTILE)
    return argv


# --- files ---------------------------------------------------------------------------------------------------------


def _content(rng: random.Random, name: str) -> bytes:
    """Return a file of that name: a good one, spoilt in its values, or in its bytes."""
    stem, _, form = name.partition(".")
    if stem == "log":
        data = (LOG * rng.choice((1, 3, 200))).encode()
        return (
            _broken(rng, data)
            if rng.random() < 0.7
            else rng.choice((b"", b" " * 50_000, b"time: " * 5_000, b"\n" * 50_000, data))
        )
    if stem in ("launch", "other"):
        data = launch_file(rng, unfit)
        return _broken(rng, data) if rng.random() < 0.05 else data
    base: Any = {
        "model": _model(rng) if stem == "model" else None,
        "hardware": HARDWARE,
        "profile": PROFILE,
        "run": rng.choice(RUNS),
        "launched": LAUNCHED,
        "phases": PHASES,
        "rows": ROWS,
        "snapshot": SNAPSHOT,
    }[stem]
    value = copy.deepcopy(base)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 4))):
        value = mutated(rng, value)
    data = _written(value, form)
    return _broken(rng, data) if rng.random() < 0.1 else data


def _model(rng: random.Random) -> dict[str, Any]:
    """Return the config of a preset, or now and then another project's model file."""
    if rng.random() < 0.08:
        return rng.choice(FOREIGN)
    return dict(PRESETS[rng.choice(list(PRESETS))]["config"])


def _written(value: Any, form: str) -> bytes:
    if form == "pickle":
        return pickle.dumps(value)
    if form == "yaml":
        kept = io.StringIO()
        yaml.safe_dump(value, kept, allow_unicode=True, sort_keys=False)
        return kept.getvalue().encode("utf-8", "surrogatepass")
    try:
        return json.dumps(value).encode()
    except ValueError:  # an integer of more digits than Python writes
        return b'{"vocab_size": ' + b"9" * 5000 + b"}"


def mutated(rng: random.Random, value: Any) -> Any:
    """Return the tree with one place changed: type, size, length, name, or depth."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.randrange(10)
        if kind == 0:
            del value[key]
        elif kind == 1:
            value[rng.choice(("made_up", "", "x" * 500, "\x1b[1m", str(key) + "s", "rope_scaling", "layer_types"))] = (
                _bad(rng)
            )
        elif kind == 2:
            value[key] = value[rng.choice(list(value))]
        elif kind < 5 or not isinstance(value[key], dict | list):
            value[key] = _bad(rng, value[key])
        else:
            value[key] = mutated(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.9:
        at, kind = rng.randrange(len(value)), rng.randrange(4)
        if kind == 0:
            return value[:at]
        if kind == 1:
            return value + value[: at + 1]
        value[at] = mutated(rng, value[at]) if kind == 2 else _bad(rng, value[at])
        return value
    return _bad(rng, value)


def _bad(rng: random.Random, old: Any = None) -> Any:
    """Return what does not belong there, or a good value changed a little."""
    if isinstance(old, bool):
        return rng.choice((not old, "true", 1, None))
    if isinstance(old, int | float) and rng.random() < 0.5:
        huge = isinstance(old, int) and abs(old) > 10**300  # no float, and hardly a text
        return rng.choice(
            (old + 1, old * 2, -old, old // 2, [old], old - 1, old if huge else str(old), 1 if huge else old / 2)
        )
    if rng.random() < 0.1:
        return rng.choice(FLOATS)
    if rng.random() < 0.05:
        deep: Any = 1
        for _ in range(rng.choice((20, 150, 300))):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        return deep
    return copy.deepcopy(rng.choice(ROOTS))


def unfit(rng: random.Random, old: Any) -> Any:
    """Return a value for a key of a launch file: a bad one, a text of a command line, or a number at an end."""
    return rng.choice((_bad(rng, old), rng.choice(HOSTILE), rng.choice(EDGES), float(rng.choice(EDGES[:15]))))


def _broken(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes cut, doubled, or with wrong ones in them."""
    at = rng.randrange(len(data) + 1)
    wrong = rng.choice(
        (b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"9" * 400, b"{" * 300, b"[" * 5000, b"\n\t", b"&a *a", b": :", b"NaN")
    )
    return rng.choice((data[:at], data[:at] + wrong + data[at:], data + data, wrong, b"\xef\xbb\xbf" + data, data[at:]))

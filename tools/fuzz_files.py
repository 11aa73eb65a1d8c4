"""The files that tools/fuzz_draws.py spoils, and the values that it puts into them."""

from __future__ import annotations

import json
import os
from typing import Any

ROOTS: tuple[Any, ...] = (
    10**11,
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
FILES = (
    "launched.yaml",
    "model.json",
    "model.yaml",
    "hardware.yaml",
    "profile.json",
    "run.yaml",
    "rows.yaml",
    "rows.csv",
    "lengths.txt",
    "snapshot.json",
    "snapshot.pickle",
    "log.txt",
    "launch.txt",
    "other.txt",
    "phases.yaml",
)

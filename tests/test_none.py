"""`none` as a value is as if the option were left out, and wins over files and libraries."""

from __future__ import annotations

import os
import re

import pytest

from napkin.options.option import OrNone
from napkin.options.registry import OPTIONS
from tests.conftest import ROOT, run_line

DECLINED = sorted(name for name, option in OPTIONS.items() if isinstance(option.parse, OrNone))
STATED = {
    "adapter": "memory gpt2 --task sft --adapter ia3",
    "capacity-factor": "memory mixtral-8x7b --gpus 8 --ep 8 --capacity-factor 2",
    "freeze": "memory qwen2.5-vl-7b --images 1 --image-tokens 256 --seq 1024 --freeze vision",
    "lora-rank": "memory gpt2 --task sft --lora-rank 8",
    "modules-to-save": "memory gpt2 --lora-rank 8 --modules-to-save lm_head",
    "offload": "memory gpt2 --offload optimizer",
}


def test_each_such_option_is_asked_here() -> None:
    assert sorted(STATED) == DECLINED


@pytest.mark.parametrize("name", DECLINED)
def test_none_is_the_answer_without_the_option(name: str) -> None:
    stated = STATED[name]
    plain = re.sub(f" --{name} \\S+", "", stated)
    used, without, declined = (run_line(f"{line} --json").data for line in (stated, plain, f"{stated} --{name} none"))
    assert declined["values"] == without["values"] != used["values"]
    assert (declined["inputs"][name]["value"], declined["inputs"][name]["origin"]) == ("none", "given")


def test_none_stays_in_a_line_to_paste_and_in_a_sweep() -> None:
    assert "--offload none" in run_line("memory gpt2 --hardware h100 --offload none").out
    rows = run_line("sweep memory gpt2 --over offload=none,optimizer --json").data["rows"]
    assert [row["offload"] for row in rows] == [None, ["optimizer"]]
    assert rows[0]["memory/optimizer"] > rows[1]["memory/optimizer"] == 0


def test_none_wins_over_a_file_and_over_what_a_library_does_by_itself() -> None:
    file = os.path.join(ROOT, "configs", "launch", "lora-8b.yaml")
    line = f"memory --from {file} --gpus 8 --hardware h100"
    assert "LoRA" in run_line(line).out
    assert "LoRA" not in run_line(f"{line} --lora-rank none --adapter none").out
    unsloth = "memory llama3-8b --trainer unsloth --lora-rank 8 --quantized nf4"
    moved, kept = (run_line(f"{unsloth}{more} --json").data["values"] for more in ("", " --offload none"))
    assert moved["memory/activations"] < kept["memory/activations"]


def test_none_next_to_what_needs_the_option_is_a_contradiction() -> None:
    found = run_line("memory gpt2 --adapter none --lora-rank 8")
    assert (found.status, "a contradiction: --adapter none and --lora-rank" in found.err) == (2, True)
    found = run_line("memory gpt2 --adapter lora --lora-rank none")
    assert (found.status, "--adapter none trains every weight" in found.err) == (2, True)

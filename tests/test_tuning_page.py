"""The comparisons in the text of docs/fine-tuning.md are what the program answers. Its examples: test_docs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_line

ROOT = Path(__file__).parents[1]
PAGE = " ".join((ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8").split())
VISION = (
    f"memory {ROOT}/docs/examples/qwen2.5-vl-7b.json --task sft --lora-rank 8 --trainer ms-swift --images 1 "
    "--image-tokens 256 --freeze vision --hardware"
)


@pytest.mark.parametrize(
    ("line", "path", "unit", "said"),
    [
        (
            "memory llama2-7b --task sft --lora-rank 8 --trainer llama-factory --seq 1024 --micro-batch 4 "
            "--hardware rtx4090",
            "memory/used",
            1e9,
            "counts {:.1f} GB",
        ),
        (
            "memory qwen2.5-0.5b --task dpo --trainer trl --micro-batch 4 --seq 512 --hardware a100-80gb",
            "memory/allocated",
            2**20,
            "counts {:,.0f} MiB allocated",
        ),
        (
            "memory qwen2.5-0.5b --task dpo --trainer trl --micro-batch 4 --seq 512 --hardware a100-80gb",
            "memory/used",
            2**20,
            "and {:,.0f} of the card",
        ),
        (
            "memory gpt-oss-20b --trainer unsloth --quantized nf4-dq --lora-rank 8 --optimizer adamw-8bit --seq 1024 "
            "--hardware rtx3090",
            "memory/used",
            1e9,
            "napkin counts {:.1f} GB",
        ),
        (f"{VISION} rtx4090 --seq 1024", "memory/used", 1e9, "The 1,024 tokens above are {:.1f} GB"),
        (f"{VISION} a100-80gb --seq 4096", "memory/used", 1e9, "samples of 4,096 would be {:.1f}"),
    ],
)
def test_a_comparison_states_what_the_command_answers(line: str, path: str, unit: float, said: str) -> None:
    found = run_line(f"{line} --json")
    assert said.format(found.values[path] / unit) in PAGE

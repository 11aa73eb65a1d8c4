"""What each GPU holds while a checkpoint is quantized and loaded, before the ranks divide it."""

from __future__ import annotations

import pytest

from .conftest import run_line

LINE = "memory llama3-8b --hardware rtx3090 --gpus 2 --framework fsdp --lora-rank 16 --seq 512 --recompute full"
EMBEDDING = 128_256 * 4_096
NORMS = (2 * 32 + 1) * 4_096
LINEAR = 32 * (2 * 4_096 * 4_096 + 2 * 4_096 * 1_024 + 3 * 4_096 * 14_336)
ADAPTERS = 16 * 32 * (2 * 2 * 4_096 + 2 * (4_096 + 1_024) + 3 * (4_096 + 14_336))


def notes_of(more: str) -> list[str]:
    found = run_line(f"{LINE} {more} --json").data["notes"]
    return [note for note in found if note.startswith("while loading")]


def test_every_process_loads_all_quantized_weights_before_they_are_divided() -> None:
    """nf4: half a byte and an fp32 scale of 64 weights; embedding, head, norms and adapters in bf16."""
    (note,) = notes_of("--zero 3 --quantized nf4 --precision bf16-pure")
    whole = LINEAR * (0.5 + 4 / 64) + 2 * (2 * EMBEDDING + NORMS + ADAPTERS)
    said = float(note.split(": ")[1].split(" ")[0]) * 1e9
    assert said == pytest.approx(whole, rel=0.01)
    assert "fsdp_cpu_ram_efficient_loading" in note


@pytest.mark.parametrize("more", ["--zero 3", "--zero 2 --quantized nf4", "--zero 1 --quantized int8"])
def test_weights_that_are_not_quantized_or_not_divided_say_nothing_of_loading(more: str) -> None:
    assert notes_of(more) == []


def test_a_load_that_exceeds_the_gpu_is_assumed_to_be_shared() -> None:
    line = "memory llama2-70b --hardware rtx3090 --gpus 4 --zero 3 --framework fsdp --quantized nf4 --lora-rank 16"
    assumed = "one process loads the weights for all"
    assert assumed in run_line(f"{line} --seq 512 --recompute full").out
    assert assumed not in run_line(f"{LINE} --zero 3 --quantized nf4").out

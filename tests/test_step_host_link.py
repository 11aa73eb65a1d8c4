"""The time of what a step copies between a GPU and its host, by hand and as commands answer it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import run_line
from tests.unit_step import WEIGHTS, H, L, T, parts

SLOW = 1e-6
"""byte/s of a link that is slower than any compute at unit rates hides."""


def away(link: float = SLOW, fetched: int = 0, returned: int = 0, stashed: int = 0, **layout: Any) -> dict[str, float]:
    """Every term of a step that keeps these on the host."""
    return parts(
        changed={"host_link": link},
        fetched_bytes=fetched,
        returned_bytes=returned,
        stashes=stashed,
        layers_recomputed=stashed,
        **layout,
    )


def in_passes(found: dict[str, float]) -> float:
    """The seconds of all micro-batches in both passes, without the optimizer."""
    return found["step/compute"] + found["step/memory_bound"]


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_parameters_gradients_and_inputs_cross_the_link_in_each_micro_batch(micro_batches: int) -> None:
    """Forward: 2 bytes a parameter arrive while 2 bytes a token and element of each layer's input leave. Backward: both
    arrive while 4 bytes a gradient leave. Directions do not slow each other, and compute hides its own length."""
    weights, inputs, gradients = 2 * WEIGHTS, L * T * H * 2, 4 * WEIGHTS
    moved = max(weights, inputs) + max(weights + inputs, gradients)
    found = away(fetched=2, returned=4, stashed=1, micro_batches=micro_batches)
    assert found["step/offload"] == pytest.approx(micro_batches * moved / SLOW - in_passes(found))


def test_gradients_leave_once_where_the_gpu_adds_them_up() -> None:
    """With the optimizer's states alone on the host: after the last of several micro-batches."""
    once, each = (away(returned=4, micro_batches=count)["step/offload"] for count in (1, 5))
    assert once == pytest.approx(each)


def test_each_of_them_alone() -> None:
    inputs = L * T * H * 2
    for found, moved in ((away(fetched=2), 2 * WEIGHTS + 2 * WEIGHTS), (away(stashed=1), inputs + inputs)):
        assert found["step/offload"] == pytest.approx(moved / SLOW - in_passes(found))
    only_back = away(returned=4)
    whole = 4 * WEIGHTS / SLOW
    assert whole - in_passes(only_back) < only_back["step/offload"] < whole  # the backward pass hides its own length


def test_a_rank_copies_its_own_part_of_what_zero_3_shards() -> None:
    found = away(fetched=2, dp=4, shards=4, zero=3)
    passes = found["offload/passes"]
    assert found["step/offload"] == pytest.approx(2 * 2 * WEIGHTS / 4 / SLOW - passes)


def test_a_fast_link_hides_everything_and_nothing_is_counted_without_offloading() -> None:
    assert away(1e12, fetched=2, returned=4, stashed=1)["step/offload"] == 0
    assert "step/offload" not in parts(layers_recomputed=1)


JOB = "llama3.1-8b --hardware rtx4090 --seq 2048 --recompute full --task sft --zero 3"


def test_a_step_that_moves_its_parameters_takes_longer_and_is_less_certain() -> None:
    """16 GB of parameters over PCIe 4 at 12/15.75 of 31.5 GB/s take 0.67 s in each pass."""
    here = run_line(f"step {JOB} --offload optimizer --json").data
    there = run_line(f"step {JOB} --offload optimizer,parameters,activations --json").data
    longer = there["values"]["step/time"] - here["values"]["step/time"]
    assert 0 < longer < 2 * 16.06e9 / (31.507692e9 * 12 / 15.753846)
    width = [one["high"]["step/time"] / one["low"]["step/time"] for one in (here, there)]
    assert width[0] < width[1]


def test_memory_times_the_suggestion_to_offload_as_step_does() -> None:
    found = run_line("memory llama3.1-8b --hardware rtx4090 --seq 2048 --task sft --json").data
    moved = next(one for one in found["suggestions"] if "parameters" in one["change"])
    assert moved["extra_time"] > 1
    asked = run_line(f"{moved['command'].replace('napkin memory', 'step')} --json")
    assert asked.values["step/offload"] > 0


def test_activations_of_layers_that_do_not_run_again_are_refused() -> None:
    for command in ("step", "plan"):
        found = run_line(f"{command} llama3-8b --gpus 8 --hardware h100 --offload activations")
        assert found.status == 3
        assert "--recompute full" in found.err
    assert run_line("step llama3-8b --gpus 8 --hardware h100 --offload activations --recompute full").status == 0


def test_layouts_with_offloaded_parameters_are_not_searched() -> None:
    found = run_line("plan llama3-8b --gpus 8 --hardware h100 --offload parameters")
    assert found.status == 3
    assert "napkin step" in found.err


def test_the_next_command_of_a_step_that_offloads_is_one_that_answers() -> None:
    shown = run_line(f"step {JOB} --offload optimizer,parameters,activations").out
    follows = " ".join(shown.partition("next: napkin ")[2].replace("\\", " ").split())
    assert follows.startswith("memory ")
    assert run_line(follows).status == 0
    assert "copies between GPU and host" in shown


def test_an_unknown_link_to_the_host_is_refused() -> None:
    found = run_line("step llama3-8b --gpus 8 --hardware tpu-v5e --offload parameters --zero 3")
    assert found.status == 3
    assert "link to its host is not known" in found.err
